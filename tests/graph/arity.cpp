// SPDX-License-Identifier: Apache-2.0
#include "holdfast/graph/arity.hpp"

#include <doctest/doctest.h>

using namespace holdfast;

TEST_CASE("arity: fixed, open and free numbers of operands") {
  CHECK(arity_of(Opcode::parameter).most == 0);
  CHECK((arity_of(Opcode::negate).least == 1 && arity_of(Opcode::negate).most == 1));
  CHECK((arity_of(Opcode::select).least == 3 && arity_of(Opcode::select).most == 3));
  CHECK((arity_of(Opcode::dynamic_update_slice).least == 2 &&
         arity_of(Opcode::dynamic_update_slice).most == 255));
  CHECK((arity_of(Opcode::tuple).least == 0 && arity_of(Opcode::tuple).most == 255));
  CHECK(arity_of(static_cast<Opcode>(opcode_count)).most == 255);  // a word not known
}
