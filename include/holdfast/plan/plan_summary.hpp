// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "holdfast/plan/buffer_assignment.hpp"
#include "holdfast/plan/memory_stats.hpp"

namespace holdfast {

/// A place whose bytes are alive at the peak.
struct PeakHolder {
  ValueId place{};
  Bytes bytes = 0;
};

/// What a plan costs. Device figures count every space but the host's, without constants and code.
struct PlanSummary {
  CompiledMemoryStats stats;
  Bytes heap_bytes = 0;         ///< heights of the temporary arenas, over all spaces
  Bytes lower_bound_bytes = 0;  ///< of `heap_bytes`, for this order
  Bytes peak_bytes = 0;         ///< argument + output - alias + device arenas: all held throughout
  Bytes live_peak_bytes = 0;    ///< the largest sum alive at one time
  bool proven_optimal = false;  ///< `heap_bytes` is known to be the least possible for this order
  std::vector<PeakHolder> at_peak;  ///< largest first
};

namespace detail {

/// Adds a plan up; a frame's calls are seen through to what is alive inside.
class Summarizer {
 public:
  constexpr Summarizer(const Module& module, const ValueTable& values, const Liveness& live,
                       const BufferSet& buffers, const BufferAssignment& plan, Bytes pointer_size)
      : m_(module),
        t_(values),
        live_(live),
        set_(buffers),
        plan_(plan),
        pointer_(pointer_size),
        seen_(live.places.size(), 0) {}

  constexpr PlanSummary run() {
    count_arguments();
    count_outputs();
    for (const Arena& a : plan_.entry_arenas()) {
      out_.heap_bytes = saturating_add(out_.heap_bytes, a.size);
      out_.lower_bound_bytes = saturating_add(out_.lower_bound_bytes, a.lower_bound);
      add(a.space, a.size, &CompiledMemoryStats::temp_size_in_bytes,
          &CompiledMemoryStats::host_temp_size_in_bytes);
    }
    out_.proven_optimal = std::all_of(plan_.arenas.begin(), plan_.arenas.end(), [](const Arena& a) {
      return a.proven_optimal || a.size == a.lower_bound;
    });
    CompiledMemoryStats& s = out_.stats;
    out_.peak_bytes =
        saturating_add(s.argument_size_in_bytes, s.output_size_in_bytes) - s.alias_size_in_bytes;
    out_.peak_bytes = saturating_add(out_.peak_bytes, s.temp_size_in_bytes);
    s.indefinite_allocations = out_.peak_bytes - s.temp_size_in_bytes;
    s.peak_memory_in_bytes = s.total_allocation_bytes = out_.peak_bytes;
    for (std::uint32_t f = 0; f < live_.frames.size(); ++f) peaks_.push_back(sweep(f));
    out_.live_peak_bytes = saturating_add(throughout_, peaks_.back().bytes);
    collect(static_cast<std::uint32_t>(live_.frames.size() - 1));
    std::sort(out_.at_peak.begin(), out_.at_peak.end(),
              [](const PeakHolder& a, const PeakHolder& b) {
                return a.bytes != b.bytes ? a.bytes > b.bytes : a.place < b.place;
              });
    return std::move(out_);
  }

 private:
  struct Peak {
    Bytes bytes = 0;
    std::uint32_t step = 0;
  };
  struct Span {
    Location::Base base;  // spans of one arena never overlap; those of borrowed memory may for the
                          // step of a hand-over
    std::uint32_t index;
    std::uint32_t begin, end;
    Bytes bytes;
  };

  const Module& m_;
  const ValueTable& t_;
  const Liveness& live_;
  const BufferSet& set_;
  const BufferAssignment& plan_;
  Bytes pointer_;
  PlanSummary out_;
  Bytes throughout_ =
      0;  // device bytes alive from begin to end: unaliased parameters and pointer tables
  std::vector<Peak> peaks_;  // by frame
  std::vector<char> seen_;   // by place, as root of a frame's buffer

  static constexpr bool on_host(MemorySpace space) noexcept { return space == MemorySpace::host; }
  constexpr void add(MemorySpace space, Bytes bytes, std::int64_t CompiledMemoryStats::*device,
                     std::int64_t CompiledMemoryStats::*host) noexcept {
    std::int64_t& sum = out_.stats.*(on_host(space) ? host : device);
    sum = saturating_add(sum, bytes);
  }
  constexpr Bytes size(ShapeId s) const noexcept {
    return std::max<Bytes>(m_.shapes.byte_size(s, pointer_), 0);
  }

  constexpr void count_arguments() {
    for (const InstructionId p : m_.parameters_of(m_.entry))
      for (std::uint32_t n = 0, count = m_.shapes.node_count(m_[p].shape); n < count; ++n) {
        const ShapeId s = m_.shapes.node(m_[p].shape, n);
        add(m_.shapes.space(s), size(s), &CompiledMemoryStats::argument_size_in_bytes,
            &CompiledMemoryStats::host_argument_size_in_bytes);
        const bool table = m_.shapes.is_tuple(s);
        if (!on_host(m_.shapes.space(s)) && (table || !set_.is_written(set_.root(t_.value(p, n)))))
          throughout_ = saturating_add(throughout_, size(s));
      }
    std::vector<std::pair<std::uint32_t, std::uint32_t>> aliased;
    for (const ParameterAlias& a : m_.parameter_aliases)
      aliased.push_back({a.parameter, a.parameter_node});
    std::sort(aliased.begin(), aliased.end());
    aliased.erase(std::unique(aliased.begin(), aliased.end()), aliased.end());
    for (const auto& [parameter, node] : aliased) {
      const ShapeId s = m_.shapes.node(m_[m_.parameters_of(m_.entry)[parameter]].shape, node);
      add(m_.shapes.space(s), size(s), &CompiledMemoryStats::alias_size_in_bytes,
          &CompiledMemoryStats::host_alias_size_in_bytes);
    }
  }

  /// Counts the memory that lives on after the run: each piece of it once, with the tables of
  /// tuples.
  constexpr void count_outputs() {
    const auto count = [&](ShapeId s) {
      add(m_.shapes.space(s), size(s), &CompiledMemoryStats::output_size_in_bytes,
          &CompiledMemoryStats::host_output_size_in_bytes);
    };
    const Frame& entry = live_.frames.back();
    std::vector<std::uint32_t> places;
    for (std::uint32_t r = entry.results.begin; r < entry.results.end(); ++r) places.push_back(r);
    const auto key = [&](std::uint32_t r) {
      return std::pair{plan_.locations[r].base, plan_.locations[r].index};
    };
    std::sort(places.begin(), places.end(),
              [&](std::uint32_t a, std::uint32_t b) { return key(a) < key(b); });
    for (std::size_t k = 0; k < places.size(); ++k)
      if (k == 0 || key(places[k]) != key(places[k - 1])) count(live_.places[places[k]].shape);
    const InstructionId root = m_[m_.entry].root;
    std::vector<ValueId> tables;
    for (std::uint32_t n = 0, nodes = m_.shapes.node_count(m_[root].shape); n < nodes; ++n)
      if (m_.shapes.is_tuple(m_.shapes.node(m_[root].shape, n)))
        tables.push_back(t_.value(root, n));
    std::sort(tables.begin(), tables.end());
    tables.erase(std::unique(tables.begin(), tables.end()), tables.end());
    for (const ValueId v : tables) {
      count(t_[v].shape);
      if (m_[t_[v].instruction].opcode != Opcode::parameter)
        throughout_ = saturating_add(throughout_, size(t_[v].shape));
    }
  }

  /// Tells whether a buffer's bytes are this frame's to count; a callee's parameters and results
  /// are its caller's.
  constexpr bool counts(ValueId root, bool entry) const noexcept {
    if (on_host(set_.space(root)) || set_.anchor(root) == Anchor::constant) return false;
    const Location::Base base = plan_.locations[index_of(root)].base;
    if (base == Location::Base::arena) return true;
    return entry && (base == Location::Base::result ||
                     (base == Location::Base::parameter && set_.is_written(root)));
  }

  constexpr Peak sweep(std::uint32_t number) {
    const Frame& frame = live_.frames[number];
    const bool entry = number + 1 == live_.frames.size();
    std::vector<Span> spans;
    for (const LivePiece& p : live_.pieces_of(frame)) {
      if (live_.places[index_of(p.value)].kind == PlaceKind::callee) {
        spans.push_back(
            {Location::Base::none, 0, p.begin, p.end, peaks_[callee_of(p.value)].bytes});
        continue;
      }
      const ValueId r = set_.root(p.value);
      if (seen_[index_of(r)] != 0 || !counts(r, entry)) continue;
      seen_[index_of(r)] = 1;
      const Location& l = plan_.locations[index_of(r)];
      for (const BufferPiece& b : set_.pieces(r))
        spans.push_back({l.base, l.index, b.begin, b.end, set_.size(r)});
    }
    std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
      return a.base != b.base     ? a.base < b.base
             : a.index != b.index ? a.index < b.index
                                  : a.begin < b.begin;
    });
    std::vector<Bytes> change(std::size_t{frame.steps.count} + 2, 0);
    for (std::size_t k = 0; k < spans.size(); ++k) {
      Span s = spans[k];
      const bool borrowed = s.base == Location::Base::result || s.base == Location::Base::parameter;
      if (borrowed && k + 1 < spans.size() && spans[k + 1].base == s.base &&
          spans[k + 1].index == s.index)
        s.end = std::min(s.end, spans[k + 1].begin);
      change[std::min(s.begin, frame.steps.count)] += s.bytes;
      change[std::min(s.end, frame.steps.count + 1)] -= s.bytes;
    }
    Peak peak;
    Bytes now = 0;
    for (std::uint32_t s = 0; s <= frame.steps.count; ++s) {
      now += change[s];
      if (now > peak.bytes) peak = {now, s};
    }
    return peak;
  }
  constexpr std::uint32_t callee_of(ValueId place) const noexcept {
    return live_.frame_of[index_of(m_.called(m_[live_.places[index_of(place)].instruction])[0])];
  }

  /// Lists what is alive at the peak, the newest value of each buffer.
  constexpr void collect(std::uint32_t number) {
    const Frame& frame = live_.frames[number];
    const bool entry = number + 1 == live_.frames.size();
    const std::uint32_t at = peaks_[number].step;
    std::vector<std::pair<ValueId, LivePiece>> alive;
    std::uint32_t callee = Liveness::no_frame;
    for (const LivePiece& p : live_.pieces_of(frame)) {
      const Place& place = live_.places[index_of(p.value)];
      const bool now = p.begin <= at && at < p.end;
      if (place.kind == PlaceKind::callee) {
        if (now && peaks_[callee_of(p.value)].bytes > 0) callee = callee_of(p.value);
        continue;
      }
      const ValueId r = set_.root(p.value);
      const bool argument = entry && place.kind == PlaceKind::value &&
                            t_[p.value].kind == ValueKind::parameter && !set_.is_written(r) &&
                            !on_host(set_.space(r));
      if (argument || (now && counts(r, entry))) alive.push_back({r, p});
    }
    std::sort(alive.begin(), alive.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second.begin > b.second.begin;
    });
    for (std::size_t k = 0; k < alive.size(); ++k)
      if (k == 0 || alive[k].first != alive[k - 1].first)
        out_.at_peak.push_back({alive[k].second.value, set_.size(alive[k].first)});
    if (callee != Liveness::no_frame) collect(callee);
  }
};

}  // namespace detail

/// Adds up what a plan costs and who holds its peak.
///
/// Cost: n log n in live pieces. Source: passes.md 9.5, runtime.md 6.2.
[[nodiscard]] constexpr PlanSummary summarize_plan(const Module& module, const ValueTable& values,
                                                   const Liveness& live, const BufferSet& buffers,
                                                   const BufferAssignment& plan,
                                                   Bytes pointer_size = 8) {
  return detail::Summarizer(module, values, live, buffers, plan, pointer_size).run();
}

}  // namespace holdfast
