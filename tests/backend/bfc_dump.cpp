// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/bfc/dump.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "holdfast/backend/layer/locked.hpp"
#include "holdfast/backend/layer/retrying.hpp"
#include "holdfast/backend/stack.hpp"
#include "support/bfc_fakes.hpp"
#include "support/fake_clock.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {

struct Text {
  std::string text;
  int left = -1;  // writes until one fails; -1: none does
  Error write(std::string_view more) noexcept {
    if (left == 0) return make_error(Errc::internal, "the sink is full");
    if (left > 0) --left;
    return text += more, Error{};
  }
};

std::string occupancy(const BfcSnapshot& s) {
  Text out;
  CHECK(write_bfc_occupancy(out, s).ok());
  return out.text;
}
std::string size_text(Bytes n) {
  Text out;
  detail::BfcText<Text>(out).size(n);
  return out.text;
}

}  // namespace

TEST_CASE("bfc_dump: a picture of 100 characters shows what is asked for, wasted and free (BF15)") {
  FakeLog log;
  auto heap = std::move(*BfcHeap<FakeMemory>::make({&log}, {.limit = 4096, .region = 4096}));
  auto pool = heap.pool();
  CHECK(occupancy(pool.snapshot()) == "<allocator contains no memory>");
  const Block a = *pool.allocate(1000, Alignment(1));
  CHECK(occupancy(pool.snapshot()) == std::string(25, '*') + std::string(75, '_'));
  const Block b = *pool.allocate(1600, Alignment(1));  // the whole of 3072
  CHECK(occupancy(pool.snapshot()) == std::string(65, '*') + std::string(35, 'x'));
  CHECK(pool.allocate(1, Alignment(1)).error().code == Errc::over_budget);
  pool.deallocate(a);
  CHECK(occupancy(pool.snapshot()) == std::string(25, '_') + std::string(40, '*') + std::string(35, 'x'));
  pool.deallocate(b);
  auto huge = std::move(*BfcHeap<FakeMemory>::make({&log}, {.limit = Bytes{1} << 61, .region = Bytes{1} << 61}));
  auto pool_of_huge = huge.pool();
  REQUIRE(pool_of_huge.allocate(Bytes{1} << 59, Alignment(1)).ok());
  CHECK(occupancy(pool_of_huge.snapshot()) == std::string(25, '*') + std::string(75, '_'));
}

TEST_CASE("bfc_dump: a chunk's bin is the doublings of 256 bytes, 20 at most (BF1)") {
  const std::pair<Bytes, std::size_t> table[] = {{1, 0},    {256, 0},      {511, 0},      {512, 1},
                                                 {1023, 1}, {128_MiB, 19}, {256_MiB, 20}, {1_GiB, 20}};
  for (const auto& [size, bin] : table) CHECK(free_size_bin(size) == bin);
}

TEST_CASE("bfc_dump: sizes have one decimal in KiB and two above, halves to the even digit") {
  const std::pair<Bytes, const char*> table[] = {{0, "0B"}, {1023, "1023B"}, {1024, "1.0KiB"}, {1280, "1.2KiB"}, {1792, "1.8KiB"},
    {768_KiB, "768.0KiB"}, {1048575, "1024.0KiB"}, {6_MiB, "6.00MiB"}, {15504656302, "14.44GiB"}, {max_bytes, "8.00EiB"},
    {Bytes{3} << 59, "1.50EiB"}, {1_MiB + 10486, "1.01MiB"}};
  for (const auto& [size, text] : table) CHECK(size_text(size) == text);
}

TEST_CASE("bfc_dump: the text of a failed request, line for line") {
  FakeLog log;
  auto heap = std::move(*BfcHeap<FakeMemory>::make({&log}, {.name = "GPU_0_bfc", .limit = 4096, .region = 4096}));
  auto pool = heap.pool();
  const Block a = *pool.allocate(1000, Alignment(1), Tag{"weights", 7}), b = *pool.allocate(512, Alignment(1), Tag{"dot.1"});
  const Block c = *pool.allocate(400, Alignment(1));
  pool.deallocate(b);
  Text out;
  REQUIRE(write_bfc_dump(out, pool.snapshot(), 3000, Alignment(1), BfcEnd::lower, Tag{"fusion.3"}).ok());
  std::string bins;
  for (int i = 0; i < 21; ++i) {
    const char* const figures[] = {"0, Chunks in use: 0. 0B allocated for chunks. 0B in use in bin. 0B",
                                   "2, Chunks in use: 1. 1.0KiB allocated for chunks. 512B in use in bin. 400B",
                                   "1, Chunks in use: 1. 1.0KiB allocated for chunks. 1.0KiB in use in bin. 1000B",
                                   "1, Chunks in use: 0. 2.0KiB allocated for chunks. 0B in use in bin. 0B"};
    bins += "Bin (" + std::to_string(256 << i) + "): \tTotal Chunks: " + figures[i <= 3 ? i : 0] + " client-requested in use in bin.\n";
  }
  CHECK(out.text ==
        "Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.9KiB (rounded to 3072) requested by op fusion.3\n"
        "BFCAllocator dump for GPU_0_bfc\n" + bins +
        "Bin for 3.0KiB was 2.0KiB, Chunk State: \n"
        "  Size: 2.0KiB | Requested Size: 0B | in_use: 0 | bin_num: 3, prev:   Size: 512B | Requested Size: 400B | in_use: 1 | bin_num: -1\n"
        "Next region of size 4096\n"
        "InUse at 10000000000 of size 1024 tag weights allocation_annotation 7 next 1\n"
        "Free  at 10000000400 of size 512 tag none next 2\n"
        "InUse at 10000000600 of size 512 tag none next 3\n"
        "Free  at 10000000800 of size 2048 tag none next 18446744073709551615\n"
        "     Summary of in-use Chunks by size: \n"
        "1 Chunks of size 512 totalling 512B\n"
        "1 Chunks of size 1024 totalling 1.0KiB\n"
        "Sum Total of in-use chunks: 1.5KiB\n"
        "Allocator memory summary: rounded request 3.0KiB, total free in pool 2.5KiB, largest free chunk usable by lower end 2.0KiB, "
        "unallocated bytes 0B, pool size 4.0KiB, pool limit 4.0KiB\n"
        "Explanation: 3000 bytes, 3072 with rounding: more than what is free and the limit leaves. Free 2560, largest usable 2048, below "
        "the limit 0. Short by 1024 in one piece. It is enough to move or free 512 bytes in 1 block, which gives 3072.\n"
        "Stats: \n"
        "Limit:                            4096\n"
        "InUse:                            1536\n"
        "MaxInUse:                         2048\n"
        "NumAllocs:                           3\n"
        "MaxAllocSize:                     1024\n"
        "Reserved:                         4096\n"
        "PeakReserved:                     4096\n"
        "LargestFreeBlock:                 2048\n" + occupancy(pool.snapshot()) + "\n");
  pool.deallocate(a);
  pool.deallocate(c);
}

// Over a pool, under a lock: what is waited for arrives, or one dump says why not.
TEST_CASE("bfc_dump: BF14: a request of a locked pool waits for a release, and leaves one dump when none comes in 10 s") {
  struct Dump {
    BfcPool<FakeMemory> pool;
    WordLock* lock;
    std::vector<std::string>* dumps;
    void operator()(const OutOfMemory& request) const noexcept {
      LockGuard guard(*lock);
      Text out;
      CHECK(write_bfc_dump(out, pool.snapshot(), request.size, request.alignment, BfcEnd::lower, request.tag).ok());
      dumps->push_back(out.text);
    }
  };
  using Waiting = WaitForMemory<Dump, FakeClock>;
  using Memory = Stack<BfcPool<FakeMemory>, Locked<>, Retrying<Waiting>>;
  FakeLog log;
  auto heap = std::move(*BfcHeap<FakeMemory>::make({&log}, {.limit = 4096, .region = 4096}));
  FakeTime time;
  const std::int64_t start = time.now;
  WordLock lock;
  std::vector<std::string> dumps;
  Waiting wait(10'000 * millisecond, Dump{heap.pool(), &lock, &dumps}, FakeClock(time));
  auto memory = make_stack<Memory>(heap.pool(), lock, wait);
  const Block a = *memory.allocate(4096, Alignment(1));
  time.at(start + 100 * millisecond, [&] { memory.deallocate(a); });
  const Result<Block> b = memory.allocate(3000, Alignment(1));
  REQUIRE(b.ok());
  CHECK(time.now == start + 100 * millisecond);
  CHECK(dumps.empty());
  CHECK(memory.allocate(2000, Alignment(1), Tag{"dot.7"}).error().code == Errc::over_budget);
  CHECK(time.now == start + 10'100 * millisecond);
  REQUIRE(dumps.size() == 1);
  CHECK(dumps[0].starts_with("Allocator (bfc) ran out of memory trying to allocate 2.0KiB (rounded to 2048) requested by op dot.7\n"));
  memory.deallocate(*b);
  CHECK(heap.pool().statistics().in_use == 0);
}

TEST_CASE("bfc_dump: an end, a stamp and a soft failure are named; the sink's failure is the answer") {
  FakeLog log;
  auto heap = std::move(*BfcHeap<FakeMemory, BestFit, ExactSplit, TwoEnded>::make({&log}, {.limit = 4096}));
  auto pool = heap.pool();
  const Block a = *pool.allocate(1024, Alignment(1), BfcEnd::lower), b = *pool.allocate(1024, Alignment(1), BfcEnd::upper);
  pool.set_now(12);
  pool.deallocate(a);
  const BfcSnapshot s = pool.snapshot();
  Text out;
  REQUIRE(write_bfc_dump(out, s, 4096, Alignment(1), BfcEnd::upper, {}, 3).ok());
  CHECK(out.text.starts_with("Allocator (bfc) ran out of memory trying to allocate 4.0KiB from the upper end with freed_by_count=3. The caller"));
  CHECK(out.text.find("Free  at 10000000000 of size 1024 tag none next 1 freed_at_count 12\n") != std::string::npos);
  CHECK(out.text.find("usable by upper end 2.0KiB") != std::string::npos);
  for (int left : {0, 1, 5, 60, 150, 230}) {
    Text full;
    full.left = left;
    CHECK(write_bfc_dump(full, s, 4096).code == Errc::internal);
    CHECK(out.text.size() > full.text.size());
  }
  pool.deallocate(b);
}
