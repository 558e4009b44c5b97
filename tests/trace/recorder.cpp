// SPDX-License-Identifier: Apache-2.0
#include "holdfast/trace/recorder.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

using namespace holdfast;

namespace {

struct Ticks : NoClock {
  std::int64_t* at;
  explicit Ticks(std::int64_t* time) noexcept : at(time) {}
  [[nodiscard]] std::int64_t now() const noexcept { return ++*at; }
};
using Manual = BasicRecorder<StdSync, Ticks>;

template <std::size_t N>
struct Memory {
  alignas(64) std::array<std::byte, N * 64> bytes{};
  [[nodiscard]] Block block() { return {bytes.data(), static_cast<Bytes>(bytes.size())}; }
};

std::vector<Record> all(const auto& recorder) {
  std::vector<Record> out;
  recorder.visit([&](const Record& r) { out.push_back(r); });
  return out;
}

Block at(std::uintptr_t address, Bytes size) {
  return {reinterpret_cast<std::byte*>(address), size};
}

}  // namespace

TEST_CASE("recorder: a record tells what, where, how much, when, whose, in which step") {
  Memory<8> memory;
  std::int64_t time = 40;
  Manual r(memory.block(), Ticks{&time});
  r.set_step(3);
  r.on_allocate(at(0x1000, 77), {"weights", 5});
  r.set_step(4);
  r.on_deallocate(at(0x1000, 77));
  Error e = make_error(Errc::out_of_memory, "none");
  e.requested = 1 << 20;
  r.on_failure(e);
  r.on_hold(HoldKind::donation, -1);
  const std::vector<Record> got = all(r);
  REQUIRE(got.size() == 4);
  CHECK(got[0].id == 0);
  CHECK(got[0].kind == RecordKind::allocate);
  CHECK(got[0].block == at(0x1000, 77));
  CHECK(std::string_view(got[0].tag.name) == "weights");
  CHECK(got[0].tag.number == 5);
  CHECK(got[0].step == 3);
  CHECK(got[0].time == 41);
  CHECK(got[0].thread == StdSync::thread_slot());
  CHECK(got[1].kind == RecordKind::deallocate);
  CHECK(got[1].step == 4);
  CHECK(got[1].tag.name == nullptr);
  CHECK(got[2].kind == RecordKind::failure);
  CHECK(got[2].block.size == 1 << 20);
  CHECK(got[2].code == Errc::out_of_memory);
  CHECK(got[3].kind == RecordKind::hold);
  CHECK(got[3].hold == HoldKind::donation);
  CHECK(got[3].change == -1);
  CHECK(got[3].time == 44);
  CHECK(r.lost() == 0);
}

TEST_CASE("recorder: the oldest go first, and the lost are counted") {
  Memory<5> memory;  // four slots are used
  std::int64_t time = 0;
  Manual r(memory.block(), Ticks{&time});
  CHECK(r.capacity() == 4);
  for (std::uintptr_t i = 0; i < 11; ++i) r.on_allocate(at(i + 1, static_cast<Bytes>(i)), {});
  const std::vector<Record> got = all(r);
  REQUIRE(got.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(got[i].id == 7 + i);
    CHECK(got[i].block == at(8 + i, static_cast<Bytes>(7 + i)));
  }
  CHECK(r.count() == 11);
  CHECK(r.lost() == 7);
}

TEST_CASE(
    "recorder: without memory every event is lost, and crooked memory is used from its first "
    "line") {
  std::int64_t time = 0;
  Manual none(Block{}, Ticks{&time});
  none.on_allocate(at(1, 1), {});
  CHECK(none.capacity() == 0);
  CHECK(none.lost() == 1);
  Memory<3> memory;
  Manual crooked({memory.bytes.data() + 1, 3 * 64 - 1}, Ticks{&time});
  CHECK(crooked.capacity() == 2);
  Manual small({memory.bytes.data() + 1, 64}, Ticks{&time});
  CHECK(small.capacity() == 0);
}

TEST_CASE("recorder: threads write whole events, and a reader beside them sees no torn one") {
  Memory<64> memory;
  Recorder r(memory.block());
  constexpr std::uintptr_t threads = 3, each = 20'000;
  std::atomic<bool> stop{false}, torn{false};
  const auto whole = [](const Record& x) {
    // Every field of an event follows from its address.
    const auto a = reinterpret_cast<std::uintptr_t>(x.block.data);
    return x.block.size == static_cast<Bytes>(a * 3) && x.tag.number == a * 7 &&
           x.kind == RecordKind::allocate;
  };
  std::vector<std::thread> pool;
  for (std::uintptr_t t = 0; t < threads; ++t)
    pool.emplace_back([&, t] {
      for (std::uintptr_t i = 1; i <= each; ++i) {
        const std::uintptr_t a = t << 32 | i;
        r.on_allocate(at(a, static_cast<Bytes>(a * 3)), {"x", a * 7});
      }
    });
  std::thread reader([&] {
    while (!stop.load())
      r.visit([&](const Record& x) {
        if (!whole(x)) torn = true;
      });
  });
  for (std::thread& t : pool) t.join();
  stop = true;
  reader.join();
  CHECK_FALSE(torn.load());
  CHECK(r.count() == threads * each);
  const std::vector<Record> left = all(r);
  CHECK(left.size() <= 64);
  CHECK(left.size() >= 60);  // at most the slots that a slow thread held up are missing
  CHECK(r.lost() == threads * each - left.size());
  CHECK(std::is_sorted(left.begin(), left.end(),
                       [](const Record& a, const Record& b) { return a.id < b.id; }));
  CHECK(std::all_of(left.begin(), left.end(), whole));
}
