// SPDX-License-Identifier: Apache-2.0
#include "holdfast/trace/replay.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "holdfast/backend/host/host_pool.hpp"
#include "holdfast/backend/host/system_memory.hpp"
#include "support/gate.hpp"
#include "support/shared.hpp"

using namespace holdfast;
using namespace holdfast::literals;

namespace {

MemoryLog read(std::string_view text) {
  Result<MemoryLog> log = read_memory_log(text);
  REQUIRE(log.ok());
  return std::move(*log);
}

constexpr std::string_view plain =
    "op,id,size\na,1,100\na,2,4097\nf,1,100\na,3,0\na,1,64\nf,2,4097\nmark,,\nf,3,0\n";

/// A backend with a fault: the block of request `wrong` is spoilt in the way named.
struct Faulty {
  enum class Way { overlap, size, alignment, null, address };
  struct State {
    Way way = Way::overlap;
    int wrong = -1;
    int requests = 0;
    Block last;  ///< of the request before
    Bytes live = 0;
  };
  static constexpr MemorySpace space = MemorySpace::host;
  State* state;

  Result<Block> allocate(Bytes size, Alignment alignment) noexcept {
    Result<Block> b = SystemMemory{}.allocate(size == 0 ? 64 : size + 64, alignment);
    if (!b.ok()) return b;
    Block out{size == 0 ? nullptr : b->data, size};
    const Block kept{b->data, size};
    if (state->requests++ == state->wrong) {
      switch (state->way) {
        case Way::overlap:
          out.data = state->last.data;
          break;  // handed out a second time
        case Way::size:
          out.size += 1;
          break;
        case Way::alignment:
          out.data += 8;
          break;
        case Way::null:
          out.data = nullptr;
          break;
        case Way::address:
          out.data = b->data;
          break;
      }
    }
    if (out.data != kept.data) SystemMemory{}.deallocate(kept);
    if (out.data == kept.data) state->live += 1;
    state->last = out;
    return out;
  }
  void deallocate(Block b) noexcept {
    if (b.data == nullptr || reinterpret_cast<std::uintptr_t>(b.data) % 64 != 0) return;
    if (state->way == Way::overlap && state->requests > state->wrong &&
        b.data == state->last.data && std::exchange(state->wrong, -2) >= 0)
      return;
    state->live -= 1;
    SystemMemory{}.deallocate(b);
  }
};

ReplayReport spoilt(Faulty::Way way, int wrong, std::string_view text, Faulty::State& state) {
  state = {way, wrong, 0, {}, 0};
  return replay(read(text), Faulty{&state});
}

}  // namespace

TEST_CASE("replay: events are carried out, blocks tested, and what is left is told and released") {
  testing::MemoryLog seen;
  const MemoryLog log = read(plain);
  std::vector<std::size_t> calls;
  const ReplayReport r =
      replay(log, testing::LoggedMemory(seen), {}, [&](std::size_t i) { calls.push_back(i); });
  CHECK(r.error.ok());
  CHECK(r.failed == log.events.size());
  CHECK(r.events == 8);
  CHECK(calls == std::vector<std::size_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(r.allocations == 4);
  CHECK(r.allocated == 4261);
  CHECK(r.peak_live == 4197);
  CHECK(r.peak_blocks == 3);
  CHECK(r.left == 64);
  CHECK(r.left_events == std::vector<std::size_t>{4});
  CHECK(r.verified == 4);
  CHECK(r.peak_reserved == -1);
  CHECK(r.samples.empty());
  CHECK(seen.live_bytes.load() == 0);
  CHECK(seen.allocations.load() == seen.frees.load());
}

TEST_CASE("replay: stops at the first event that contradicts the log, and releases all") {
  testing::MemoryLog seen;
  const std::string_view text = "op,id,size\na,1,10\na,2,10\nf,2,10\nf,2,10\nf,9,1\n";
  const MemoryLog log = read(text);
  const ReplayReport r = replay(log, testing::LoggedMemory(seen));
  CHECK(r.error.code == Errc::corrupt);
  CHECK(std::string_view(r.error.what) == "a block is released twice");
  CHECK(place_of(text, r.error.at) == make_place(5, 1));
  CHECK(r.failed == 3);
  CHECK(r.events == 3);
  CHECK(r.left == 10);
  CHECK(seen.live_bytes.load() == 0);
}

TEST_CASE(
    "replay: stops at the request that the backend refuses, for each of them, and nothing leaks") {
  const MemoryLog log = read(plain);
  for (std::int64_t n = 0; n < 4; ++n) {
    testing::MemoryLog seen;
    seen.fail_at = n;
    const ReplayReport r = replay(log, testing::LoggedMemory(seen));
    if (n < 3) {
      CHECK(r.error.code == Errc::out_of_memory);
      CHECK(r.failed == std::vector<std::size_t>{0, 1, 4}[static_cast<std::size_t>(n)]);
    } else {
      CHECK(r.error.ok());  // there are three requests above 0 bytes
    }
    CHECK(seen.live_bytes.load() == 0);
  }
}

TEST_CASE("replay: finds a backend that hands out memory twice, at the event and the byte") {
  Faulty::State state;
  // The second block takes the first one's place: its pattern is gone when it is released.
  const ReplayReport r =
      spoilt(Faulty::Way::overlap, 1, "op,id,size\na,1,512\na,2,512\nf,1,512\nf,2,512\n", state);
  CHECK(r.error.code == Errc::internal);
  CHECK(std::string_view(r.error.what) == "a live block was overwritten");
  CHECK(r.error.at == 0);
  CHECK(r.failed == 2);
  CHECK(r.overwritten == 0);
  CHECK(r.events == 2);
}

TEST_CASE("replay: finds it among the blocks that are never released, too") {
  Faulty::State state;
  const ReplayReport r = spoilt(Faulty::Way::overlap, 1, "op,id,size\na,1,512\na,2,512\n", state);
  CHECK(r.error.code == Errc::internal);
  CHECK(r.failed == 2);  // after all events
  CHECK(r.overwritten == 0);
  CHECK(r.left_events == std::vector<std::size_t>{0, 1});
}

TEST_CASE("replay: finds blocks of another size, without address, out of line") {
  Faulty::State state;
  const auto what = [&](Faulty::Way way, std::string_view text) {
    const ReplayReport r = spoilt(way, 0, text, state);
    CHECK(r.error.code == Errc::internal);
    CHECK(r.failed == 0);
    CHECK(state.live <= 0);
    return std::string_view(r.error.what);
  };
  CHECK(what(Faulty::Way::size, "op,id,size\na,1,10\n") ==
        "the backend gave a block of another size");
  CHECK(what(Faulty::Way::alignment, "op,id,size\na,1,10\n") ==
        "the backend gave a block that is not aligned");
  CHECK(what(Faulty::Way::null, "op,id,size\na,1,10\n") ==
        "the backend gave no address, or one for no bytes");
  CHECK(what(Faulty::Way::address, "op,id,size\na,1,0\n") ==
        "the backend gave no address, or one for no bytes");
}

TEST_CASE("replay: blocks of no bytes are asked for and need no test") {
  const ReplayReport r = replay(
      read("action,pointer,size\nallocate,(nil),0\nfree,(nil),0\nallocate,0x5,0\nfree,0x5,0\n"),
      SystemMemory{});
  CHECK(r.error.ok());
  CHECK(r.allocations == 2);
  CHECK(r.verified == 2);
  CHECK(r.peak_blocks == 1);
}

namespace {

/// Hands out the caller's own bytes.
struct Owned {
  static constexpr MemorySpace space = MemorySpace::host;
  std::vector<std::byte>* bytes;
  Result<Block> allocate(Bytes size, Alignment) noexcept {
    const std::size_t skip = 64 - reinterpret_cast<std::uintptr_t>(bytes->data()) % 64;
    return Block{bytes->data() + skip % 64, size};
  }
  void deallocate(Block) noexcept {}
};

}  // namespace

TEST_CASE("replay: without verification nothing is written") {
  testing::MemoryLog seen;
  ReplayOptions options;
  options.verify = false;
  const ReplayReport r = replay(read(plain), testing::LoggedMemory(seen), options);
  CHECK(r.error.ok());
  CHECK(r.verified == 0);
  // A block that is handed out keeps what was in it.
  std::vector<std::byte> bytes(4096 + 64, std::byte{0x5A});
  const Owned owned{&bytes};
  CHECK(replay(read("op,id,size\na,1,4096\nf,1,\n"), owned, options).peak_live == 4096);
  CHECK(std::count(bytes.begin(), bytes.end(), std::byte{0x5A}) == 4096 + 64);
  options.verify = true;
  CHECK(replay(read("op,id,size\na,1,4096\nf,1,\n"), owned, options).verified == 1);
  CHECK(std::count(bytes.begin(), bytes.end(), std::byte{0x5A}) < 2048);
}

TEST_CASE("replay: a log with the largest sizes ends in an error, not in a sum") {
  const ReplayReport r = replay(
      read("op,id,size\na,1,9223372036854775807\na,2,9223372036854775807\n"), SystemMemory{});
  CHECK(r.error.code == Errc::out_of_memory);
  CHECK(r.failed == 0);
}

TEST_CASE("replay: a pool that shows itself gives peaks and fragmentation over time") {
  HostHeap heap = std::move(*HostHeap::make());
  std::string text = "op,id,size\n";
  for (int i = 0; i < 100; ++i) text += "a," + std::to_string(i) + ",1048576\n";
  for (int i = 0; i < 100; i += 2) text += "f," + std::to_string(i) + ",\n";
  ReplayOptions options;
  options.samples = 30;
  const ReplayReport r = replay(read(text), heap.pool(), options);
  CHECK(r.error.ok());
  CHECK(r.peak_live == 100_MiB);
  CHECK(r.peak_reserved >= 100_MiB);
  CHECK(r.peak_reserved <= 110_MiB);
  CHECK(r.peak_is_exact);
  CHECK(r.samples.size() == 30);
  for (const ReplaySample& s : r.samples) {
    CHECK(s.reserved >= s.live);
    CHECK(s.largest_free <= s.free);
    CHECK(s.free <= s.reserved - s.live);
    CHECK(s.external_fragmentation() <= 1);
  }
  CHECK(r.samples.back().event == 149);
  CHECK(r.samples.back().live == 50_MiB);
}

namespace {

struct Shown : SystemMemory {
  std::vector<Block>* blocks = nullptr;
  Result<Block> allocate(Bytes size, Alignment alignment) noexcept {
    Result<Block> b = SystemMemory::allocate(size, alignment);
    if (b.ok()) blocks->push_back(*b);
    return b;
  }
  void visit_blocks(auto visitor) noexcept {
    for (const Block& b : *blocks) visitor(b, b.size > 100);
  }
  Bytes largest_free() noexcept { return 0; }
  Bytes trim(Bytes) noexcept { return 0; }
};
static_assert(inspectable_backend<Shown>);

}  // namespace

TEST_CASE("replay: a backend that only shows its blocks gives samples of them") {
  std::vector<Block> blocks;
  Shown shown;
  shown.blocks = &blocks;
  const ReplayReport r = replay(read("op,id,size\na,1,100\na,2,300\na,3,101\n"), shown);
  CHECK(r.peak_reserved == 501);
  CHECK_FALSE(r.peak_is_exact);
  REQUIRE(r.samples.size() == 3);
  CHECK(r.samples[2].free == 401);
  CHECK(r.samples[2].largest_free == 300);
  CHECK(r.samples[2].external_fragmentation() == doctest::Approx(101.0 / 401));
}

TEST_CASE(
    "replay: every trace of the corpus runs on the system's memory and on the host pool, each "
    "block tested") {
  for (const char* name : {"mindspore_resnet50.events.csv", "iopddl_G_1.events.csv",
                           "xla_train_12.events.csv", "xla_trinf_16.events.csv",
                           "xla_conv_24.events.csv", "mindspore_pangu_2.6B.events.csv.gz"}) {
    const std::string path = testing::shared_path(std::string("data/traces/") + name);
    if (path.empty()) return;
    const MemoryLog log = read(testing::read_file(path));
    HostHeap heap = std::move(*HostHeap::make({.heed_system = false}));
    ReplayOptions options;
    options.verify = std::string_view(name).starts_with("xla");  // the others would touch gigabytes
    for (const ReplayReport& r :
         {replay(log, heap.pool(), options), replay(log, SystemMemory{}, options)}) {
      CHECK_MESSAGE(r.error.ok(), name);
      CHECK(r.events == log.events.size());
      CHECK(r.peak_live == live_peak(log));
      CHECK(r.verified == (options.verify ? r.allocations : 0));
      if (r.peak_reserved >= 0)
        CHECK_MESSAGE(r.peak_reserved <= r.peak_live / 10 * 11 + 256_KiB, name);
    }
  }
}
