// SPDX-License-Identifier: Apache-2.0
#include "holdfast/core/owned.hpp"

#include <doctest/doctest.h>

#include <type_traits>
#include <utility>

using namespace holdfast;

namespace {
struct Counted {
  int* closed = nullptr;
  constexpr void close() noexcept {
    if (closed != nullptr) ++*closed;
  }
};
static_assert(!std::is_copy_constructible_v<Owned<Counted>> && std::is_nothrow_move_constructible_v<Owned<Counted>> &&
              std::is_nothrow_move_assignable_v<Owned<Counted>> && sizeof(Owned<Counted>) == sizeof(Counted));
constexpr int closed_of_moves() {
  int closed = 0;
  {
    Owned<Counted> a(Counted{&closed}), b = std::move(a);
    a = std::move(b);
  }
  return closed;
}
static_assert(closed_of_moves() == 1);
}  // namespace

TEST_CASE("owned: what it holds is closed once, when it goes or is replaced, and never by what was moved from") {
  int first = 0, second = 0;
  {
    Owned<Counted> a(Counted{&first});
    Owned<Counted> b(Counted{&second});
    a = std::move(b);
    CHECK(first == 1);
    CHECK(b->closed == nullptr);
    a = Owned<Counted>();
    CHECK(second == 1);
  }
  CHECK(first == 1);
  CHECK(second == 1);
}

TEST_CASE("owned: what was given up is closed by nobody here") {
  int closed = 0;
  {
    Owned<Counted> a(Counted{&closed});
    CHECK(a.release().closed == &closed);
  }
  CHECK(closed == 0);
}
