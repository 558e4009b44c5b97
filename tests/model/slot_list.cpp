// SPDX-License-Identifier: Apache-2.0
// The real free list of slot pools, under every interleaving.
#include "holdfast/backend/host/detail/slot_list.hpp"

#include <doctest/doctest.h>

#include "model/explorer.hpp"

using namespace holdfast;
using model::check_all;
using model::Data;
using model::require;

namespace {

using List = detail::SlotList<model::Sync>;

// Slots whose bytes are plain data: two owners at a time, or one that does not see what the last one wrote, are reported.
template <std::uint32_t Slots, std::uint32_t More = 0>
struct Pool {
  List list;
  model::Sync::atomic<std::uint32_t> next[Slots + More];
  Data<int> bytes[Slots + More];
  bool owned[Slots + More] = {};
  int destroyed = 0, held = 0;

  Pool() { add(0, Slots); }
  auto links() {
    return [this](std::uint32_t i) noexcept -> model::Sync::atomic<std::uint32_t>& { return next[i]; };
  }
  void add(std::uint32_t first, std::uint32_t count) {
    for (std::uint32_t i = first; i + 1 < first + count; ++i) next[i].store(i + 1, std::memory_order_relaxed);
    list.add(first, first + count - 1, links());
  }
  std::uint32_t take() {
    std::uint32_t out = 0;
    const std::uint32_t i = list.pop(links(), out);
    if (i == List::none) return i;
    require(out >= 1 && out <= Slots + More, "the count of slots that are out is wrong");
    require(!owned[i], "a slot has two owners");
    require(destroyed == 0, "a slot of a pool that is gone");
    owned[i] = true;
    ++held;
    bytes[i].set(bytes[i].get() + 1);
    return i;
  }
  void give(std::uint32_t i) {
    if (i == List::none) return;
    bytes[i].set(bytes[i].get() + 1);
    owned[i] = false;
    --held;
    if (list.push(i, links())) ++destroyed;
  }
  void invariant() { require(destroyed <= 1, "a pool is destroyed twice"); }
  void finish() {
    require(held == 0 && list.out() == 0, "the count of slots that are out is wrong at the end");
    std::uint32_t found = 0;
    while (take() != List::none) ++found;
    require(found == Slots + More, "a slot is lost");
  }
};

// The ABA case: one has read the first and its link while another takes all and gives them back so that only the first is the same.
struct Shuffles : Pool<3> {
  static constexpr int threads = 2;
  void run(int t) {
    if (t == 0) return give(take());
    const std::uint32_t a = take(), b = take(), c = take();
    give(b);
    give(c);
    give(a);
  }
};
struct TwiceEach : Pool<2> {
  static constexpr int threads = 2;
  void run(int) {
    give(take());
    give(take());
  }
};
struct ThreeForTwo : Pool<2> {
  static constexpr int threads = 3;
  void run(int) { give(take()); }
};
struct Grows : Pool<1, 2> {
  static constexpr int threads = 2;
  void run(int t) {
    if (t == 0) return add(1, 2);
    const std::uint32_t a = take(), b = take();
    give(a);
    give(b);
  }
};
// The pool goes while two handles die: exactly one of the three destroys.
struct Closes : Pool<2> {
  static constexpr int threads = 3;
  std::uint32_t a = take(), b = take();
  void run(int t) {
    if (t == 0) give(a);
    if (t == 1) give(b);
    if (t == 2 && list.close()) ++destroyed;
  }
  void finish() { require(destroyed == 1, "a pool that is gone is destroyed not once"); }
};

}  // namespace

TEST_CASE("model: HP7 the free list of slots gives no slot to two, loses none and orders what their holders wrote") {
  check_all<Shuffles>("SlotList take give | take all, give back in another order");
  check_all<TwiceEach>("SlotList take give twice | the same");
  check_all<ThreeForTwo>("SlotList three threads for two slots");
  check_all<Grows>("SlotList grows | take take give give");
}
TEST_CASE("model: HP8 of a pool that goes and the handles that die exactly one destroys") {
  check_all<Closes>("SlotList close | give | give");
}
