// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <string_view>

#include "holdfast/core/result.hpp"
#include "holdfast/graph/module.hpp"

namespace holdfast {

/// Something that changes a module; `run` says whether it did.
///
/// A pass that fails leaves the module as it was. Threads: as its members; one module is one
/// thread's. Source: XLA's HloPassInterface.
template <class P>
concept graph_pass = requires(P& pass, Module& module) {
  { P::name } -> std::convertible_to<std::string_view>;
  { pass.run(module) } -> std::same_as<Result<bool>>;
};

/// The pass that does nothing.
struct NoPass {
  static constexpr std::string_view name = "none";
  [[nodiscard]] constexpr Result<bool> run(Module&) const noexcept { return false; }
};
static_assert(graph_pass<NoPass>);

}  // namespace holdfast
