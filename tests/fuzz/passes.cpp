// SPDX-License-Identifier: Apache-2.0
// Passes on modules read from text of any bytes: what is read is good, but for asynchronous
// operations that do not end; a pass leaves it good, or as it was.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "holdfast/hlo/parser.hpp"
#include "holdfast/hlo/printer.hpp"
#include "holdfast/passes/host_transfer_asyncifier.hpp"
#include "holdfast/passes/memory_space_propagation.hpp"
#include "holdfast/passes/placement_annotations.hpp"
#include "holdfast/passes/verifier.hpp"
#include "support/check_module.hpp"
#include "support/demand.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using testing::demand;
using testing::StringSink;

namespace {

std::string print(const Module& m) {
  StringSink out;
  demand(print_hlo_text(m, out).ok());
  return out.text;
}

template <class Pass>
void run(Module& m, Pass pass) {
  const std::string before = print(m);
  const Result<bool> changed = pass.run(m);
  if (!changed.ok()) {
    demand(changed.error().what != nullptr && print(m) == before);
    return;
  }
  demand(verify_module(m).ok() && testing::inconsistency(m) == nullptr);
  demand(*changed == (print(m) != before));
  const Result<bool> again = pass.run(m);
  demand(again.ok() && !*again);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Result<Module> m = parse_hlo_text(text);
  if (!m.ok()) return 0;
  if (const Error e = verify_module(*m); !e.ok()) {
    demand(std::string_view(e.what).find("asynchronous operation") != std::string_view::npos);
    return 0;
  }
  run(*m, PlacementAnnotations<StringSink>{});
  run(*m, MemorySpacePropagation<StringSink>{});
  run(*m, HostTransferAsyncifier<StringSink>{});
  return 0;
}
