// SPDX-License-Identifier: Apache-2.0
#include "holdfast/core/types.hpp"

#include <type_traits>

#include <doctest/doctest.h>

using namespace holdfast;

static_assert(!std::is_convertible_v<std::uint32_t, InstructionId> && !std::is_convertible_v<InstructionId, std::uint32_t>,
              "an id is no number");
static_assert(!std::is_convertible_v<InstructionId, ComputationId>, "an id of one table is none of another");
static_assert(sizeof(InstructionId) == 4 && sizeof(ValueId) == 4 && sizeof(IndexRange) == 8);
static_assert(std::is_trivially_copyable_v<Tag> && std::is_trivially_copyable_v<IndexRange>);

TEST_CASE("types: the numbers of memory spaces are XLA's") {
  CHECK(static_cast<int>(MemorySpace::device) == 0);
  CHECK(static_cast<int>(MemorySpace::host) == 5);
}

TEST_CASE("types: an id gives its place in its table, and no_id is none of them") {
  CHECK(index_of(InstructionId{7}) == 7);
  CHECK(index_of(no_id<ValueId>) == 0xFFFFFFFFu);
  CHECK(no_id<ValueId> != ValueId{0});
}

TEST_CASE("types: a default range is empty and ends where it begins") {
  constexpr IndexRange none;
  CHECK(none.empty());
  CHECK(none.end() == none.begin);
  constexpr IndexRange some{3, 4};
  CHECK_FALSE(some.empty());
  CHECK(some.end() == 7);
}
