// SPDX-License-Identifier: Apache-2.0
// Any requests, releases, stamps and refusals, right or wrong: a pool's chunks tile its regions, nothing overlaps, no memory is lost.
#include "holdfast/backend/bfc_pool.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "holdfast/backend/bfc/dump.hpp"
#include "holdfast/backend/bfc/moves.hpp"
#include "holdfast/backend/bfc/replay.hpp"
#include "support/demand.hpp"

using namespace holdfast;
using testing::demand;

namespace {

struct Reader {
  const std::uint8_t* at;
  const std::uint8_t* end;
  std::uint32_t byte() { return at == end ? 0 : *at++; }
  // A size with few bits, or any at all.
  Bytes size() {
    const std::uint32_t kind = byte();
    if (kind == 255) return max_bytes - static_cast<Bytes>(byte()) * 64;
    if (kind == 254) return -static_cast<Bytes>(byte());
    return (static_cast<Bytes>(byte()) << (kind % 14)) + static_cast<Bytes>(kind / 14);
  }
};

// Addresses without memory; refuses every `nth` call.
struct Refusing {
  static constexpr MemorySpace space = MemorySpace::device;
  struct State {
    AddressSource::State addresses;
    std::uint32_t nth = 0, calls = 0;
    Bytes out = 0;
  };
  State* state;
  Result<Block> allocate(Bytes size, Alignment alignment) noexcept {
    if (state->nth != 0 && ++state->calls % state->nth == 0) return make_error(Errc::out_of_memory, "refused");
    Result<Block> b = AddressSource(state->addresses).allocate(size, alignment);
    if (b.ok()) state->out += size;
    return b;
  }
  void deallocate(Block b) noexcept { state->out -= b.size; }
};

template <class Pool>
void check(Pool& pool, const std::vector<Block>& live, const Refusing::State& state) {
  const BfcSnapshot s = pool.snapshot();
  Bytes in_use = 0, requested = 0, reserved = 0, largest = 0;
  std::size_t i = 0, used = 0;
  for (std::uint32_t r = 0; r < s.regions.size(); ++r) {
    const std::byte* at = s.regions[r].data;
    reserved += s.regions[r].size;
    for (; i < s.chunks.size() && s.chunks[i].region == r; at += s.chunks[i++].block.size) {
      const BfcChunkRecord& c = s.chunks[i];
      demand(c.block.data == at && c.block.size > 0);
      if (!c.used()) {
        largest = c.block.size > largest ? c.block.size : largest;
        if (i > 0 && s.chunks[i - 1].region == r && !s.chunks[i - 1].used()) {
          const BfcChunkRecord& p = s.chunks[i - 1];
          demand(p.freed_at != 0 || c.freed_at != 0);
        }
        continue;
      }
      ++used;
      demand(c.requested > 0 && c.requested <= c.block.size && c.freed_at == 0);
      in_use += c.block.size;
      requested += c.requested;
    }
    demand(at == s.regions[r].data + s.regions[r].size);
  }
  demand(i == s.chunks.size() && used == live.size());
  Bytes asked = 0;
  for (const Block& b : live) asked += b.size;
  demand(asked == requested && s.statistics.requested == requested && s.statistics.in_use == in_use);
  demand(s.statistics.reserved == reserved && state.out == reserved && s.statistics.largest_free == largest);
  NullSink sink;
  demand(write_bfc_dump(sink, s, 1000).ok());
}

void take(std::vector<Block>& live, const Block& b, Alignment alignment) {
  demand(detail::bfc_address(b.data) % static_cast<std::uint64_t>(alignment.value()) == 0);
  for (const Block& x : live) demand(x.data + x.size <= b.data || b.data + b.size <= x.data);
  live.push_back(b);
}

template <class Fit, class Split, class Growth>
void run(Reader in) {
  Refusing::State state;
  {
    BfcOptions options{.limit = 256 + in.byte() * 4000, .region = 1 + in.byte() * 100, .garbage_collection = in.byte() % 2 == 0};
    state.nth = in.byte() % 8;
    auto heap = BfcHeap<Refusing, Fit, Split, Growth>::make({&state}, options);
    demand(heap.ok());
    auto pool = heap->pool();
    std::vector<Block> live;
    std::uint64_t now = 0;
    for (int step = 0; in.at != in.end; ++step) {
      const std::uint32_t what = in.byte();
      if (what < 110) {
        const Bytes size = in.size();
        const Alignment alignment(Bytes{1} << what % 14);
        const BfcExplanation e = pool.explain(size, alignment);
        const Result<Block> b = [&] {
          if constexpr (Growth::two_ended)
            return pool.allocate(size, alignment, what % 2 == 0 ? BfcEnd::lower : BfcEnd::upper);
          else
            return what < 90 ? pool.allocate(size, alignment) : pool.allocate_freed_before(what - 90, size, alignment);
        }();
        demand(!b.ok() || b->size == size);
        if (e.reason == BfcReason::fits && !Growth::two_ended && what < 90) demand(b.ok());
        if (b.ok() && b->data != nullptr) take(live, *b, alignment);
      } else if (what < 210) {
        if (live.empty()) continue;
        std::swap(live[in.byte() % live.size()], live.back());
        demand(pool.deallocate_checked(live.back()).ok());
        demand(!pool.deallocate_checked(live.back()).ok());
        live.pop_back();
      } else if (what < 225) {
        pool.set_now(now = what == 224 ? 0 : now + what % 4);
      } else if (what < 240) {
        pool.set_safe_frontier(now + what % 3);
      } else if (what < 248) {
        pool.trim(static_cast<Bytes>(in.byte()) * 1000);
      } else if (what < 252) {
        const Alignment alignment(Bytes{1} << in.byte() % 12);
        std::byte* const at = reinterpret_cast<std::byte*>(AddressSource::base + in.byte() * 256);
        if (const Result<Block> b = pool.allocate_at({at, in.size()}, alignment); b.ok()) {
          demand(b->data == at);
          take(live, *b, alignment);
        }
      } else if (what == 252) {
        const Bytes size = in.size();
        const auto moves = plan_bfc_moves(pool.snapshot(), size);
        if (!moves.ok()) continue;
        for (const BfcMove& m : *moves) {
          const Result<Block> b = pool.allocate_at(m.to, m.alignment, m.tag);
          demand(b.ok());
          take(live, *b, m.alignment);
          std::swap(*std::find(live.begin(), live.end(), m.from), live.back());
          pool.deallocate(live.back());
          live.pop_back();
        }
        if (!moves->empty()) demand(pool.explain(size).reason <= BfcReason::reclaims);
      } else {
        const Block wrong{reinterpret_cast<std::byte*>(AddressSource::base + in.byte() * 256), in.size()};
        bool ours = false;
        for (const Block& b : live) ours = ours || b == wrong;
        demand(ours || !pool.deallocate_checked(wrong).ok());
      }
      if (step % 8 == 0) check(pool, live, state);
    }
    check(pool, live, state);
    for (const Block& b : live) pool.deallocate(b);
  }
  demand(state.out == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 4096) return 0;
  Reader in{data, data + size};
  switch (in.byte() % 6) {
    case 0: run<BestFit, BfcSplit, BoundedGrowth>(in); break;
    case 1: run<BestFit, ExactSplit, TwoEnded>(in); break;
    case 2: run<FirstFit, BoundedWaste, ExactGrowth>(in); break;
    case 3: run<WorstFit, KeepLarge<>, DoublingGrowth>(in); break;
    case 4: run<TwoLevelFit, ExactSplit, BoundedGrowth>(in); break;
    default: run<BestFit, SplitByEnd<>, TwoEnded>(in); break;
  }
  return 0;
}
