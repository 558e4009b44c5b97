// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/plan/buffers.hpp"
#include "holdfast/plan/idle_memory.hpp"
#include "holdfast/plan/offset_planner.hpp"

namespace holdfast {

/// The temporary memory of one frame in one memory space.
struct Arena {
  std::uint32_t frame = 0;
  MemorySpace space = MemorySpace::device;
  Bytes size = 0;
  Bytes lower_bound = 0;        ///< no offsets of these buffers can be lower
  bool proven_optimal = false;
};

/// Where a called frame's arena lies in its caller's, for the time of the call.
struct CalleeArena {
  ValueId place{};          ///< the call's place of kind callee
  std::uint32_t arena = 0;  ///< of the callee
  Location location;
};

/// Where everything lies: the memory plan of a module.
struct BufferAssignment {
  std::vector<Location> locations;  ///< by place
  std::vector<Arena> arenas;        ///< callees before callers, within a frame by space
  std::vector<IndexRange> arenas_of;///< by frame
  std::vector<CalleeArena> callees; ///< by place, in order

  /// The arenas that a run of the module needs.
  [[nodiscard]] constexpr std::span<const Arena> entry_arenas() const noexcept {
    return {arenas.data() + arenas_of.back().begin, arenas_of.back().count};
  }
};

/// How `assign_buffers` works.
struct AssignOptions {
  Bytes alignment = 64;        ///< of every buffer; a power of two
  bool reuse_results = true;   ///< temporaries may use outputs' and donated parameters' memory while it is idle
};

namespace detail {

/// Places the buffers of every frame, callees first.
template <offset_planner Planner>
class Assigner {
 public:
  constexpr Assigner(const Module& module, const Liveness& live, BufferSet& buffers, const Planner& planner, const AssignOptions& options)
      : m_(module), live_(live), set_(buffers), planner_(planner), options_(options) {}

  constexpr Result<BufferAssignment> run() {
    out_.locations.resize(live_.places.size(), Location{});
    for (std::uint32_t p = 0; p < live_.places.size(); ++p)
      if (set_.anchor(static_cast<ValueId>(p)) == Anchor::constant) out_.locations[p] = {Location::Base::constant, p, 0};
    for (std::uint32_t f = 0; f < live_.frames.size(); ++f)
      if (Error e = assign(f); !e.ok()) return e;
    std::sort(out_.callees.begin(), out_.callees.end(), [](const CalleeArena& a, const CalleeArena& b) {
      return a.place != b.place ? a.place < b.place : a.arena < b.arena;
    });
    for (std::uint32_t p = 0; p < out_.locations.size(); ++p)
      if (const ValueId r = set_.root(static_cast<ValueId>(p)); index_of(r) != p) out_.locations[p] = out_.locations[index_of(r)];
    return std::move(out_);
  }

 private:
  static constexpr std::uint32_t none = 0xFFFFFFFFu;

  /// A temporary to be placed: a buffer, or a callee's arena for the time of a call.
  struct Item {
    ValueId root{};
    Bytes size = 0;
    MemorySpace space = MemorySpace::device;
    std::uint32_t callee_arena = none;
  };

  const Module& m_;
  const Liveness& live_;
  BufferSet& set_;
  const Planner& planner_;
  const AssignOptions& options_;
  BufferAssignment out_;

  constexpr Error assign(std::uint32_t number) {
    const Frame& frame = live_.frames[number];
    std::vector<Item> items;
    std::vector<ValueId> owners;
    for (const LivePiece& piece : live_.pieces_of(frame)) {
      if (live_.places[index_of(piece.value)].kind == PlaceKind::callee) add_callee(piece.value, items);
      else add_buffer(set_.root(piece.value), items, owners);
    }
    std::vector<MemorySpace> spaces;
    for (const Item& i : items) spaces.push_back(i.space);
    std::sort(spaces.begin(), spaces.end());
    spaces.erase(std::unique(spaces.begin(), spaces.end()), spaces.end());
    out_.arenas_of.push_back({static_cast<std::uint32_t>(out_.arenas.size()), 0});
    for (const MemorySpace space : spaces) {
      std::vector<Item> here;
      for (const Item& i : items)
        if (i.space == space) here.push_back(i);
      if (options_.reuse_results) use_idle_memory(frame, space, owners, here);
      if (Error e = place(number, space, here); !e.ok()) return e;
    }
    return {};
  }

  constexpr void add_buffer(ValueId root, std::vector<Item>& items, std::vector<ValueId>& owners) {
    Location& l = out_.locations[index_of(root)];
    if (l.base != Location::Base::none) return;
    switch (set_.anchor(root)) {
      case Anchor::none: l.base = Location::Base::arena; break;
      case Anchor::parameter: l.base = Location::Base::parameter; break;
      case Anchor::result: l.base = Location::Base::result; break;
      case Anchor::constant: l.base = Location::Base::constant; break;
    }
    if (l.base == Location::Base::arena) {
      items.push_back({root, set_.size(root), set_.space(root), none});
    } else {
      l.index = index_of(set_.anchor_place(root));
      if (set_.is_written(root)) owners.push_back(root);
    }
  }
  constexpr void add_callee(ValueId place, std::vector<Item>& items) {
    const ComputationId callee = m_.called(m_[live_.places[index_of(place)].instruction])[0];
    const IndexRange arenas = out_.arenas_of[live_.frame_of[index_of(callee)]];
    for (std::uint32_t a = arenas.begin; a < arenas.end(); ++a)
      if (out_.arenas[a].size > 0) items.push_back({place, out_.arenas[a].size, out_.arenas[a].space, a});
  }

  constexpr void use_idle_memory(const Frame& frame, MemorySpace space, const std::vector<ValueId>& owners, std::vector<Item>& items) {
    std::vector<IdleMemory::Slot> slots;
    std::vector<IdleMemory::Item> movers;
    for (const ValueId o : owners)
      if (set_.space(o) == space) slots.push_back({o, set_.size(o), {}});
    for (const Item& i : items) movers.push_back({i.root, i.size, i.callee_arena == none});
    IdleMemory(set_, out_.locations, frame.steps.count, options_.alignment).fill(slots, movers);
    std::erase_if(items, [&](const Item& i) { return i.callee_arena == none && out_.locations[index_of(i.root)].base != Location::Base::arena; });
  }

  constexpr Error place(std::uint32_t number, MemorySpace space, const std::vector<Item>& items) {
    if (items.empty()) return {};
    std::vector<LiveRange> ranges;
    for (std::uint32_t g = 0; g < items.size(); ++g)
      for (const BufferPiece& p : set_.pieces(items[g].root)) ranges.push_back({p.begin, p.end, items[g].size, options_.alignment, g});
    std::vector<Bytes> offsets(items.size(), 0);
    const Result<OffsetPlan> plan = planner_(OffsetProblem{ranges, static_cast<std::uint32_t>(items.size())}, offsets);
    if (!plan.ok()) return plan.error();
    const auto arena = static_cast<std::uint32_t>(out_.arenas.size());
    out_.arenas.push_back({number, space, plan->peak, plan->lower_bound, plan->proven_optimal});
    ++out_.arenas_of.back().count;
    for (std::uint32_t g = 0; g < items.size(); ++g) {
      const Location l{Location::Base::arena, arena, offsets[g]};
      if (items[g].callee_arena == none) out_.locations[index_of(items[g].root)] = l;
      else out_.callees.push_back({items[g].root, items[g].callee_arena, l});
    }
    return {};
  }
};

}  // namespace detail

/// Gives every buffer of a module a place: parameters, results and constants their own, temporaries an
/// offset in their frame's arena.
///
/// Errors: those of the planner. Source: XLA BufferAssigner.
template <offset_planner Planner>
[[nodiscard]] constexpr Result<BufferAssignment> assign_buffers(const Module& module, const Liveness& live, BufferSet& buffers,
                                                                const Planner& planner, const AssignOptions& options = {}) {
  return detail::Assigner<Planner>(module, live, buffers, planner, options).run();
}

}  // namespace holdfast
