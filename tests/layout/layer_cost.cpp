// SPDX-License-Identifier: Apache-2.0
// Layers that do nothing compile to the instructions of the bare source.
#include <doctest/doctest.h>

#include "support/instructions.hpp"

using namespace holdfast::testing;

TEST_CASE("layers: a source under NoObserver and NoLock has the instructions of the bare source, under every compiler here") {
  each_compiler("layer_cost.cpp", [](InstructionCounts& counts) {
    for (const std::string what : {"take", "give", "pair"}) {
      const InstructionCount bare = counts["bare_" + what], layered = counts["layered_" + what];
      CAPTURE(what);
      CHECK(bare.all > 0);
      CHECK(layered.to_return == bare.to_return);
      CHECK(layered.all <= bare.all);  // g++ lays a failure's exit out twice or once
    }
  });
}
