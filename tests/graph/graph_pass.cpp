// SPDX-License-Identifier: Apache-2.0
#include "holdfast/graph/graph_pass.hpp"

#include <doctest/doctest.h>

using namespace holdfast;

namespace {

struct Valid {
  static constexpr std::string_view name = "valid";
  Result<bool> run(Module&) { return true; }
};
struct NoName {
  Result<bool> run(Module&) { return true; }
};
struct NoResult {
  static constexpr std::string_view name = "no result";
  bool run(Module&) { return true; }
};
struct ReadsOnly {
  static constexpr std::string_view name = "takes a temporary";
  Result<bool> run(Module&&) { return true; }
};
static_assert(graph_pass<Valid>);
static_assert(!graph_pass<NoName>);
static_assert(!graph_pass<NoResult>);
static_assert(!graph_pass<ReadsOnly>);

}  // namespace

TEST_CASE("graph_pass: the pass that does nothing says so") {
  Module m;
  const Result<bool> changed = NoPass{}.run(m);
  CHECK((changed.ok() && !*changed));
  CHECK(NoPass::name == "none");
}
