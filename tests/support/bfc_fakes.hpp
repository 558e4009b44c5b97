// SPDX-License-Identifier: Apache-2.0
// A sub-allocator of addresses without memory, which keeps a log and refuses on demand; and what every pool's chunks must satisfy.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "holdfast/backend/bfc_pool.hpp"

namespace holdfast::testing {

inline constexpr std::uint64_t fake_base = std::uint64_t{1} << 40;

/// What a `FakeMemory` saw: every call's size, the blocks that are out, and when to refuse.
struct FakeLog {
  std::vector<Bytes> asked;
  std::map<std::uint64_t, Bytes> out;
  std::set<std::size_t> refuse;  ///< numbers of calls, from 1
  std::size_t refuse_from = 0;   ///< this call and all later ones; 0: none
  Bytes most = max_bytes;        ///< larger ones are refused
  std::uint64_t next = fake_base;
  std::uint64_t skew = 0;        ///< added to every address: a source that breaks its contract
  Bytes held() const {
    Bytes sum = 0;
    for (const auto& [at, size] : out) sum += size;
    return sum;
  }
};

/// Addresses from 2^40 on, each given once; a write through one would crash.
template <bool Joins = false>
struct BasicFakeMemory {
  static constexpr MemorySpace space = MemorySpace::device;
  static constexpr bool joins_adjacent = Joins;
  FakeLog* log;

  Result<Block> allocate(Bytes size, Alignment alignment) noexcept {
    log->asked.push_back(size);
    const std::size_t call = log->asked.size();
    const auto a = static_cast<std::uint64_t>(alignment.value());
    const std::uint64_t at = (log->next + a - 1) / a * a;
    if (log->refuse.count(call) != 0 || (log->refuse_from != 0 && call >= log->refuse_from) || size > log->most ||
        at + static_cast<std::uint64_t>(size) > std::uint64_t{1} << 62)
      return make_error(Errc::out_of_memory, "refused");
    log->next = at + static_cast<std::uint64_t>(size);
    log->out[at + log->skew] = size;
    return Block{reinterpret_cast<std::byte*>(at + log->skew), size};
  }
  void deallocate(Block block) noexcept {
    const auto at = reinterpret_cast<std::uintptr_t>(block.data);
    auto it = log->out.find(at);
    if (Joins)  // several blocks as one
      while (it != log->out.end() && it->second < block.size) {
        const auto next = std::next(it);
        if (next == log->out.end() || next->first != it->first + static_cast<std::uint64_t>(it->second)) break;
        it->second += next->second;
        log->out.erase(next);
      }
    const bool ours = it != log->out.end() && it->second == block.size;
    CHECK(ours);
    if (ours) log->out.erase(it);
  }
};
using FakeMemory = BasicFakeMemory<>;
static_assert(memory_backend<FakeMemory>);

inline Bytes offset_of(const Block& b) { return static_cast<Bytes>(reinterpret_cast<std::uintptr_t>(b.data) - fake_base); }

/// The chunks tile the regions, no two joinable free ones touch, and the statistics are the chunks' sums.
template <class Pool>
void check_bfc(Pool pool) {
  const BfcSnapshot s = pool.snapshot();
  Bytes in_use = 0, requested = 0, reserved = 0, largest = 0;
  std::size_t i = 0;
  for (std::uint32_t r = 0; r < s.regions.size(); ++r) {
    const std::byte* at = s.regions[r].data;
    const std::byte* const end = at + s.regions[r].size;
    reserved += s.regions[r].size;
    for (bool first = true; i < s.chunks.size() && s.chunks[i].region == r; ++i, first = false) {
      const BfcChunkRecord& c = s.chunks[i];
      REQUIRE(c.block.data == at);
      REQUIRE((c.block.size > 0 && c.block.size % 256 == 0));
      if (!first && !c.used() && !s.chunks[i - 1].used()) {
        const BfcChunkRecord& p = s.chunks[i - 1];
        REQUIRE((c.freed_at != 0 || p.freed_at != 0));
      }
      if (c.used()) {
        REQUIRE((c.requested > 0 && c.requested <= c.block.size));
        in_use += c.block.size;
        requested += c.requested;
      } else {
        largest = std::max(largest, c.block.size);
      }
      at += c.block.size;
    }
    REQUIRE(at == end);
  }
  REQUIRE(i == s.chunks.size());
  REQUIRE(s.statistics.in_use == in_use);
  REQUIRE(s.statistics.requested == requested);
  REQUIRE(s.statistics.reserved == reserved);
  REQUIRE(s.statistics.free == reserved - in_use);
  REQUIRE(s.statistics.largest_free == largest);
  REQUIRE(s.statistics.alignment_waste + s.statistics.split_waste == in_use - requested);
}

}  // namespace holdfast::testing
