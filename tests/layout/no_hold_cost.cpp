// SPDX-License-Identifier: Apache-2.0
// A tracked buffer without holds compiles to the instructions of a hand-written holder of a pointer and its size.
#include <doctest/doctest.h>

#include "support/instructions.hpp"

using namespace holdfast::testing;

TEST_CASE("no_hold: make, use and destroy have the instructions of a bare pointer and size, under every compiler here") {
  each_compiler("no_hold_cost.cpp", [](InstructionCounts& counts) {
    for (const std::string what : {"make", "use", "destroy", "whole"}) {
      const InstructionCount bare = counts["bare_" + what], tracked = counts["tracked_" + what];
      CAPTURE(what);
      CHECK(bare.all > 0);
      CHECK(tracked.to_return == bare.to_return);
      if (what != "whole") CHECK(tracked.all == bare.all);  // g++ lays the failure's exit out twice
    }
  });
}
