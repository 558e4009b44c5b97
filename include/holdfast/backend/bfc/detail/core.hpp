// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "holdfast/backend/bfc/detail/space.hpp"
#include "holdfast/backend/bfc/options.hpp"
#include "holdfast/backend/bfc/policies.hpp"
#include "holdfast/core/result.hpp"

namespace holdfast::detail {

/// One block of the upstream.
struct BfcRegion {
  std::byte* data;
  Bytes size;
  std::uint32_t head;  ///< the record before its first chunk
};

/// An upstream that takes back adjoining blocks as one.
template <class Upstream>
concept bfc_joining = requires { requires Upstream::joins_adjacent; };

/// Makes the core of a pool in the memory that its tables lie in; its `give_back` is called before it is deleted.
template <class Core, memory_backend Meta, class... Args>
[[nodiscard]] Result<Core*> bfc_new(Meta meta, Args&&... args) noexcept {
  const Result<Block> room = meta.allocate(static_cast<Bytes>(sizeof(Core)), Alignment(alignof(Core)));
  if (!room.ok()) return room.error();
  return std::construct_at(reinterpret_cast<Core*>(room->data), std::forward<Args>(args)..., meta);
}
template <class Core>
void bfc_delete(Core* core) noexcept {
  core->give_back();
  auto meta = core->meta();
  std::destroy_at(core);
  meta.deallocate({reinterpret_cast<std::byte*>(core), static_cast<Bytes>(sizeof(Core))});
}

/// The pool itself: regions of the upstream, and what is live in them.
///
/// Threads: one at a time. Its tables lie in `Meta`'s memory; nothing is read or written at the upstream's addresses.
template <memory_backend Upstream, class Fit, class Split, class Growth, memory_backend Meta, class Stamps = BfcStamps>
class BfcCore {
 public:
  static constexpr bool two_ended = Growth::two_ended;
  using upstream_type = Upstream;
  using stamps_type = Stamps;

  BfcCore(Upstream upstream, const BfcOptions& options, Split split, Growth growth, Meta meta) noexcept
      : options_(options), target_(std::min(align_up(options.region, bfc_granule), options.limit) & -bfc_granule), space_(split),
        upstream_(upstream), meta_(meta), growth_(growth) {}

  /// Gives every region back, and the tables.
  void give_back() noexcept {
    for (std::uint32_t r = 0; r < region_count_; ++r) upstream_.deallocate({regions_[r].data, regions_[r].size});
    regions_.release(meta_);
    chunks().release(meta_);
    addresses_.release(meta_);
  }
  void close() noexcept { bfc_delete(this); }
  [[nodiscard]] Meta meta() const noexcept { return meta_; }

  [[nodiscard]] static BfcRequest request(Bytes size, Alignment alignment, BfcEnd end, std::uint64_t freed_before) noexcept {
    return {size, (size + bfc_granule - 1) & -bfc_granule, static_cast<std::uint64_t>(std::max(alignment.value(), bfc_granule)),
            freed_before, end};
  }
  Result<Block> allocate(Bytes size, Alignment alignment, BfcEnd end, Tag tag, std::uint64_t freed_before) noexcept {
    return serve(
        size, alignment, end, tag, freed_before,
        [this](const BfcRequest& wanted) noexcept { return space_.place(wanted, space_.split().largest(wanted.rounded)); },
        [this](const BfcRequest& wanted, Errc& why) noexcept { return place_hard(wanted, why); },
        [this](const BfcRequest& wanted, Errc why) noexcept { return fail(wanted, why); });
  }
  /// Gives the block of that place, which has to be free and in one hole.
  Result<Block> allocate_at(Block place, Alignment alignment, Tag tag) noexcept {
    const std::uint64_t align = static_cast<std::uint64_t>(std::max(alignment.value(), bfc_granule));
    if (place.size <= 0 || place.size > max_bytes - bfc_granule || bfc_address(place.data) % align != 0)
      return failure(Errc::invalid_argument, "no place of a block", place.size);
    if (!chunks().reserve(meta_, 4) || !addresses_.reserve(meta_, chunks(), used_ + 1))
      return failure(Errc::out_of_memory, "Out of memory for the tables of a pool", place.size);
    const std::uint32_t c = chunk_at(place.data);
    const Bytes rounded = (place.size + bfc_granule - 1) & -bfc_granule;
    if (c == 0 || chunks()[c].used() || chunks()[c].owner == BfcEnd::gap || rounded > chunks()[c].end() - place.data)
      return failure(Errc::wrong_state, "the place is not free", place.size);
    return hand_out(space_.place_at(c, place.data, rounded), place.size, rounded, align, tag);
  }
  /// Takes a block back; anything else changes nothing.
  Error deallocate(Block block) noexcept {
    if (block.data == nullptr) return {};
    const std::uint32_t slot = addresses_.find(chunks(), block.data);
    if (slot == BfcAddresses::none) [[unlikely]] return blame(block);
    const std::uint32_t c = addresses_.at(slot);
    BfcChunk& chunk = chunks()[c];
    if (chunk.requested != block.size) [[unlikely]]
      return make_error(Errc::invalid_argument, "a block is released with another size than it was given");
    addresses_.erase(chunks(), slot);
    --used_;
    figures_.requested -= block.size;
    rounded_ -= (block.size + bfc_granule - 1) & -bfc_granule;
    figures_.in_use -= chunk.size;
    space_.free(c, now_);
    return {};
  }

  void set_now(std::uint64_t now) noexcept { now_ = now; }
  void set_safe_frontier(std::uint64_t frontier) noexcept { space_.set_safe_frontier(frontier); }

  Bytes trim(Bytes keep) noexcept {
    const Bytes before = figures_.reserved;
    for (std::uint32_t r = region_count_; r-- > 0 && figures_.reserved > keep;)
      if (const BfcChunk& c = chunks()[first(r)]; !c.used() && c.next == 0 && c.freed_at == 0) release_region(r);
    return before - figures_.reserved;
  }
  [[nodiscard]] BfcStatistics statistics() const noexcept {
    BfcStatistics s = figures_;
    s.allocations = allocations_ - allocations_before_;
    s.alignment_waste = rounded_ - s.requested;
    s.split_waste = s.in_use - rounded_;
    s.limit = options_.limit;
    s.free = s.reserved - s.in_use;
    s.largest_free = std::max(space_.largest(BfcEnd::lower), two_ended ? space_.largest(BfcEnd::upper) : 0);
    return s;
  }
  /// Counts and peaks begin again at what is in use.
  void clear_statistics() noexcept {
    allocations_before_ = allocations_;
    figures_.peak_in_use = figures_.in_use;
    figures_.peak_requested = figures_.requested;
    figures_.peak_reserved = figures_.reserved;
    figures_.largest_allocation = 0;
  }

  /// Calls `visitor(region, chunk)` for every chunk, by address.
  template <class Visitor>
  void visit(Visitor visitor) const noexcept {
    for (std::uint32_t r = 0; r < region_count_; ++r)
      for (std::uint32_t c = first(r); c != 0; c = chunks()[c].next) visitor(r, std::as_const(chunks()[c]));
  }
  [[nodiscard]] const BfcOptions& options() const noexcept { return options_; }
  [[nodiscard]] std::uint32_t chunk_count() const noexcept { return chunks().count(); }
  [[nodiscard]] std::uint32_t region_count() const noexcept { return region_count_; }
  [[nodiscard]] const BfcRegion& region(std::uint32_t r) const noexcept { return regions_[r]; }
  /// What may still be asked of the upstream.
  [[nodiscard]] Bytes room() const noexcept {
    return two_ended && region_count_ != 0 ? 0 : (options_.limit - figures_.reserved) & -bfc_granule;
  }
  /// The bytes of regions in which no chunk is in use, their chunks joined or not.
  [[nodiscard]] Bytes idle_bytes() const noexcept {
    Bytes sum = 0;
    for (std::uint32_t r = 0; r < region_count_; ++r) sum += unused(r) ? regions_[r].size : 0;
    return sum;
  }
  [[nodiscard]] Bytes target() const noexcept { return target_; }
  /// The least size that the upstream has refused since it last gave a region; 0: none.
  [[nodiscard]] Bytes refused() const noexcept { return refused_; }
  [[nodiscard]] Upstream& upstream() noexcept { return upstream_; }

 protected:
  static constexpr std::uint64_t no_chunk = ~std::uint64_t{0};  // of records that stand before a region's first

  [[nodiscard]] BfcChunks& chunks() noexcept { return space_.chunks(); }
  [[nodiscard]] const BfcChunks& chunks() const noexcept { return space_.chunks(); }
  [[nodiscard]] std::uint32_t first(std::uint32_t region) const noexcept { return chunks()[regions_[region].head].next; }

  // Hands out the chunk that `place(wanted)` gives, else `hard(wanted, why)`, room in the tables having been made; where
  // that gives 0, too, what `refuse(wanted, why)` says.
  template <class Place, class Hard, class Refuse>
  [[nodiscard]] Result<Block> serve(Bytes size, Alignment alignment, BfcEnd end, Tag tag, std::uint64_t freed_before, Place place,
                                    Hard hard, Refuse refuse) noexcept {
    // One comparison finds 0, negative sizes and those that rounding would overflow.
    if (static_cast<std::uint64_t>(size) - 1 >= static_cast<std::uint64_t>(max_bytes - bfc_granule)) [[unlikely]] {
      if (size == 0) return Block{};
      return size < 0 ? failure(Errc::invalid_argument, "a negative number of bytes was asked for", size)
                      : failure(Errc::out_of_memory, "Out of memory: the size cannot be rounded", size);
    }
    const BfcRequest wanted = request(size, alignment, end, freed_before);
    if (!chunks().reserve(meta_, 4) || !addresses_.reserve(meta_, chunks(), used_ + 1)) [[unlikely]]
      return failure(Errc::out_of_memory, "Out of memory for the tables of a pool", size);
    std::uint32_t c = place(wanted);
    if (c == 0) [[unlikely]] {
      Errc why = Errc::over_budget;
      if ((c = hard(wanted, why)) == 0) return refuse(wanted, why);
    }
    return hand_out(c, wanted.size, wanted.rounded, wanted.alignment, tag);
  }
  Block hand_out(std::uint32_t c, Bytes size, Bytes rounded, std::uint64_t alignment, Tag tag) noexcept {
    BfcChunk& chunk = chunks()[c];
    chunk.requested = size;
    chunk.alignment = static_cast<std::uint8_t>(std::countr_zero(alignment));
    chunk.id = ++allocations_;
    chunk.freed_at = 0;
    chunk.tag = tag;
    addresses_.insert(chunks(), c);
    ++used_;
    figures_.requested += size;
    rounded_ += rounded;
    figures_.in_use += chunk.size;
    if (figures_.in_use > figures_.peak_in_use) figures_.peak_in_use = figures_.in_use;
    if (figures_.requested > figures_.peak_requested) figures_.peak_requested = figures_.requested;
    if (chunk.size > figures_.largest_allocation) figures_.largest_allocation = chunk.size;
    return {chunk.data, size};
  }

  // What is tried when no chunk fits: growth, joining what was freed lately, cutting what was spared, giving idle regions back.
  HOLDFAST_COLD std::uint32_t place_hard(const BfcRequest& wanted, Errc& why) noexcept {
    const auto any = [&] { return space_.place(wanted, max_bytes); };
    if (extend(wanted, why)) {
      const std::uint32_t c = space_.place(wanted, space_.split().largest(wanted.rounded));
      return c != 0 ? c : any();
    }
    const bool unstamped = wanted.freed_before == bfc_any_time;
    if (unstamped) space_.join_stamped(wanted);
    if (const std::uint32_t c = any(); c != 0 || !unstamped || !options_.garbage_collection) return c;
    const Bytes idle = idle_bytes();
    if (idle == 0 || saturating_add(room(), idle) < wanted.rounded) return 0;
    for (std::uint32_t r = region_count_; r-- > 0;)
      if (unused(r)) release_region(r);
    return extend(wanted, why) ? any() : 0;
  }
  [[nodiscard]] bool extend(const BfcRequest& wanted, Errc& why) noexcept {
    const Bytes rounded = wanted.rounded;
    if (rounded > room()) return false;
    if (!regions_.reserve(meta_, region_count_ + 1)) return why = Errc::out_of_memory, false;
    const Bytes goal = growth_.first(target_, rounded);
    const bool as_planned = goal == target_;
    if (!two_ended) target_ = std::max(goal, target_);
    const Alignment alignment(std::max(static_cast<Bytes>(wanted.alignment), options_.region_alignment.value()));
    Bytes size = std::min({goal, room(), std::max(space_.split().largest(rounded) & -bfc_granule, rounded)});
    for (int calls = 1; size != 0; size = growth_.next(size, rounded, calls++)) {
      const Result<Block> block = upstream_.allocate(size, alignment);
      why = Errc::out_of_memory;
      refused_ = size;
      if (!block.ok()) continue;
      const std::uint64_t at = bfc_address(block->data);
      if (at == 0 || at % static_cast<std::uint64_t>(alignment.value()) != 0 || at + static_cast<std::uint64_t>(size) < at) {
        upstream_.deallocate(*block);  // an upstream that breaks its contract must not break the pool
        return false;
      }
      if (as_planned) target_ = saturating_add(target_, target_);
      refused_ = 0;
      add_region({block->data, size});
      return true;
    }
    return false;
  }

  // Regions stand by address.
  void add_region(Block block) noexcept {
    figures_.reserved += block.size;
    figures_.peak_reserved = std::max(figures_.peak_reserved, figures_.reserved);
    std::uint32_t r = region_count_;
    while (r > 0 && regions_[r - 1].data > block.data) --r;
    std::uint32_t last = 0;
    if (bfc_joining<Upstream> && r > 0 && regions_[r - 1].data + regions_[r - 1].size == block.data) {
      for (last = first(r - 1); chunks()[last].next != 0;) last = chunks()[last].next;
      regions_[r - 1].size += block.size;
    } else {
      last = chunks().make(block.data, 0, BfcEnd::gap, 0, 0);
      chunks()[last].id = no_chunk;
      for (std::uint32_t i = region_count_++; i > r; --i) regions_[i] = regions_[i - 1];
      regions_[r] = {block.data, block.size, last};
    }
    space_.free(chunks().make(block.data, block.size, BfcEnd::lower, last, 0), 0);
  }
  void release_region(std::uint32_t r) noexcept {
    const BfcRegion region = regions_[r];
    space_.drop(region.head);
    for (std::uint32_t i = r + 1; i < region_count_; ++i) regions_[i - 1] = regions_[i];
    --region_count_;
    figures_.reserved -= region.size;
    upstream_.deallocate({region.data, region.size});
  }
  [[nodiscard]] bool unused(std::uint32_t r) const noexcept {
    std::uint32_t c = first(r);
    while (c != 0 && !chunks()[c].used()) c = chunks()[c].next;
    return c == 0;
  }

  // The chunk that an address lies in; 0: none. Cost: linear.
  [[nodiscard]] HOLDFAST_COLD std::uint32_t chunk_at(const std::byte* p) const noexcept {
    for (std::uint32_t r = 0; r < region_count_; ++r)
      if (p >= regions_[r].data && p < regions_[r].data + regions_[r].size)
        for (std::uint32_t c = first(r); c != 0; c = chunks()[c].next)
          if (p < chunks()[c].end()) return c;
    return 0;
  }
  [[nodiscard]] HOLDFAST_COLD static Error failure(Errc code, const char* what, Bytes size) noexcept {
    Error e = make_error(code, what);
    e.stage = Stage::allocation;
    e.requested = size;
    return e;
  }
  [[nodiscard]] HOLDFAST_COLD Error fail(const BfcRequest& wanted, Errc why) const noexcept {
    const bool limit = why == Errc::over_budget;
    Error e = failure(why, limit ? "Out of memory: the pool's limit is reached" : "Out of memory: the pool cannot grow", wanted.size);
    e.available = std::max(space_.largest(wanted.end), limit ? room() : 0);
    return e;
  }
  // Why a block is none of those out.
  [[nodiscard]] HOLDFAST_COLD Error blame(Block block) const noexcept {
    if (const std::uint32_t c = chunk_at(block.data); c != 0)
      return chunks()[c].used() ? make_error(Errc::invalid_argument, "an address inside a block is released")
                                : make_error(Errc::wrong_state, "a block is released twice");
    return make_error(Errc::invalid_argument, "an address that is not of the pool is released");
  }

  BfcOptions options_;
  Bytes target_;  ///< the size of the next region
  std::uint32_t region_count_ = 0, used_ = 0;
  std::uint64_t allocations_ = 0, allocations_before_ = 0, now_ = 0;
  BfcStatistics figures_;  ///< those that are kept up
  Bytes rounded_ = 0, refused_ = 0;
  BfcAddresses addresses_;
  BfcArray<BfcRegion> regions_;
  BfcSpace<typename Fit::index, Split, two_ended, Stamps> space_;
  HOLDFAST_NO_UNIQUE_ADDRESS Upstream upstream_;
  HOLDFAST_NO_UNIQUE_ADDRESS Meta meta_;
  HOLDFAST_NO_UNIQUE_ADDRESS Growth growth_;
};

}  // namespace holdfast::detail
