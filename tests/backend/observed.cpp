// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/layer/observed.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "holdfast/backend/layer/aligned.hpp"
#include "holdfast/backend/stack.hpp"
#include "support/strict_memory.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {
struct Told {
  std::vector<std::string> words;
  StrictLog* log = nullptr;
  void on_allocate(Block block, Tag tag) noexcept {
    words.push_back("allocate " + std::to_string(block.size) + (tag.name != nullptr ? std::string(" ") + tag.name : ""));
  }
  void on_deallocate(Block block) noexcept {
    words.push_back("deallocate " + std::to_string(block.size) + (log->live.count(block.data) ? " while there" : " when gone"));
  }
  void on_hold(HoldKind, int) noexcept {}
  void on_failure(const Error& e) noexcept { words.push_back("failure " + std::string(errc_name(e.code))); }
};
}  // namespace

TEST_CASE("observed: each allocation, release and refusal is told once, with size and tag; the empty block is not") {
  StrictLog log;
  log.capacity = 1000;
  Told told{{}, &log};
  auto memory = make_stack<Stack<StrictMemory, Observed<Told>>>(StrictMemory(log), told);
  const Block a = *memory.allocate(100, Alignment(64), Tag{"logits", 7});
  CHECK(log.calls.back().tag.number == 7);  // the source is told too
  const Block b = *memory.allocate(200, Alignment(64));
  CHECK(!memory.allocate(701, Alignment(1)).ok());
  CHECK(!memory.allocate(-1, Alignment(1)).ok());
  const Block none = *memory.allocate(0, Alignment(1));
  memory.deallocate(none);
  memory.deallocate(b);
  memory.deallocate(a);
  const std::vector<std::string> want = {"allocate 100 logits", "allocate 200", "failure out_of_memory", "failure invalid_argument",
                                         "deallocate 200 while there", "deallocate 100 while there"};
  CHECK(told.words == want);
}

TEST_CASE("observed: above a layer it sees what the user sees, below it what the source sees") {
  StrictLog log;
  Told user{{}, &log}, source{{}, &log};
  using Both = Stack<StrictMemory, Observed<Told>, Aligned<256>, Observed<Told>>;
  auto memory = make_stack<Both>(StrictMemory(log), source, user);
  memory.deallocate(*memory.allocate(100, Alignment(1), Tag{"x", 1}));
  CHECK(user.words == std::vector<std::string>{"allocate 100 x", "deallocate 100 while there"});
  CHECK(source.words == std::vector<std::string>{"allocate 256 x", "deallocate 256 while there"});
}
