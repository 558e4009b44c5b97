// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "holdfast/plan/allocation_table.hpp"

namespace holdfast {

/// What the replay of a heap's events found.
struct HeapPeak {
  Bytes size = 0;           ///< most bytes alive at one time
  std::uint32_t event = 0;  ///< the earliest event after which they are
};

/// Finds logical buffers by id. Cost: O(n log n) once, O(log n) a look-up.
class LogicalBufferIndex {
 public:
  static constexpr std::uint32_t none = 0xFFFFFFFFu;

  constexpr explicit LogicalBufferIndex(const AllocationTable& table) {
    sorted_.reserve(table.buffers.size());
    for (std::uint32_t i = 0; i < table.buffers.size(); ++i)
      sorted_.emplace_back(table.buffers[i].id, i);
    std::sort(sorted_.begin(), sorted_.end());
  }
  /// The place of a buffer in the table; `none` when it is not there.
  [[nodiscard]] constexpr std::uint32_t find(std::int64_t id) const noexcept {
    const auto at =
        std::lower_bound(sorted_.begin(), sorted_.end(), std::pair{id, std::uint32_t{0}});
    return at != sorted_.end() && at->first == id ? at->second : none;
  }
  [[nodiscard]] constexpr bool has_duplicates() const noexcept {
    for (std::size_t i = 1; i < sorted_.size(); ++i)
      if (sorted_[i].first == sorted_[i - 1].first) return true;
    return false;
  }

 private:
  std::vector<std::pair<std::int64_t, std::uint32_t>> sorted_;
};

/// Replays heap traces: who is alive, and how many bytes that makes.
///
/// A buffer that shares counts as its root: memory is there while any of them lives. A sharer whose
/// root has died already brings its memory back. Threads: as a vector. Source: XLA
/// ComputePeakMemory, hlo-format.md Q.2.
class HeapReplay {
 public:
  constexpr HeapReplay(const AllocationTable& table, const LogicalBufferIndex& index)
      : table_(table),
        index_(index),
        root_(table.buffers.size(), 0),
        count_(table.buffers.size(), 0),
        linked_(table.buffers.size(), 0) {
    for (std::uint32_t i = 0; i < root_.size(); ++i) root_[i] = i;
  }

  /// Bytes alive now.
  [[nodiscard]] constexpr Bytes size() const noexcept { return size_; }
  /// Tells whether every allocated buffer was freed.
  [[nodiscard]] constexpr bool all_free() const noexcept {
    return std::all_of(count_.begin(), count_.end(), [](std::uint32_t c) { return c == 0; });
  }

  /// Applies one event. Errors: corrupt (no such buffer, freed twice, allocated twice), over_budget
  /// (sum does not fit).
  constexpr Error apply(const HeapEvent& e) {
    const std::uint32_t buffer = index_.find(e.buffer);
    if (buffer == LogicalBufferIndex::none)
      return make_error(Errc::corrupt, "heap event names a buffer that is not there");
    if (e.kind == HeapEvent::Kind::free) return release(buffer);
    if (linked_[buffer] != 0)
      return make_error(Errc::corrupt, "buffer is allocated while it lives");
    std::uint32_t root = buffer;
    if (e.kind == HeapEvent::Kind::share_with) {
      root = index_.find(e.shares_with);
      if (root == LogicalBufferIndex::none)
        return make_error(Errc::corrupt, "heap event shares with a buffer that is not there");
      root = root_[root];
    }
    linked_[buffer] = 1;
    root_[buffer] = root;
    if (count_[root]++ == 0 && !checked_add(size_, table_.buffers[root].size, size_))
      return make_error(Errc::over_budget, "sizes alive at one time do not fit into 64 bits");
    return {};
  }

  /// Applies a whole trace and gives its peak, counting what was alive before.
  constexpr Result<HeapPeak> run(const HeapTrace& trace) {
    HeapPeak peak{size_, 0};
    for (std::uint32_t i = 0; i < trace.events.count; ++i) {
      if (const Error e = apply(table_.events[trace.events.begin + i]); !e.ok()) return e;
      if (size_ > peak.size) peak = {size_, i};
    }
    return peak;
  }

 private:
  const AllocationTable& table_;
  const LogicalBufferIndex& index_;
  std::vector<std::uint32_t> root_;   // by buffer: whose memory it is in
  std::vector<std::uint32_t> count_;  // by root: how many live in its memory
  std::vector<std::uint8_t> linked_;  // by buffer: lives
  Bytes size_ = 0;

  constexpr Error release(std::uint32_t buffer) {
    if (linked_[buffer] == 0)
      return make_error(Errc::corrupt, "buffer is freed that does not live");
    const std::uint32_t root = root_[buffer];
    linked_[buffer] = 0;
    if (--count_[root] == 0) size_ -= table_.buffers[root].size;
    return {};
  }
};

/// Checks what readers of the file rely on: every id resolves, a buffer is in one allocation,
/// places lie inside their allocation, each trace is about one allocation, frees what it allocates,
/// and no two allocations share an index.
///
/// Errors: corrupt. Cost: O(n log n). Source: hlo-format.md Q.1, Q.3.
[[nodiscard]] constexpr Error check_allocations(const AllocationTable& table) {
  const LogicalBufferIndex index(table);
  if (index.has_duplicates()) return make_error(Errc::corrupt, "two logical buffers have one id");
  std::vector<std::uint32_t> home(table.buffers.size(), LogicalBufferIndex::none);
  for (std::uint32_t a = 0; a < table.allocations.size(); ++a) {
    const Allocation& allocation = table.allocations[a];
    if (allocation.index != a)
      return make_error(Errc::corrupt, "allocation does not stand at its index");
    for (const AssignedBuffer& b : table.assigned_to(allocation)) {
      const std::uint32_t buffer = index.find(b.buffer);
      if (buffer == LogicalBufferIndex::none)
        return make_error(Errc::corrupt, "allocation names a buffer that is not there");
      if (home[buffer] != LogicalBufferIndex::none)
        return make_error(Errc::corrupt, "buffer is in two allocations");
      Bytes end = 0;
      if (!checked_add(b.offset, b.size, end) || end > allocation.size)
        return make_error(Errc::corrupt, "buffer reaches past the end of its allocation");
      home[buffer] = a;
    }
  }
  for (const HeapTrace& trace : table.traces) {
    HeapReplay replay(table, index);
    std::uint32_t allocation = LogicalBufferIndex::none;
    for (const HeapEvent& e : table.events_of(trace)) {
      if (const Error failed = replay.apply(e); !failed.ok()) return failed;
      const std::uint32_t at = home[index.find(e.buffer)];
      if (at == LogicalBufferIndex::none)
        return make_error(Errc::corrupt, "heap event names a buffer that no allocation has");
      if (allocation == LogicalBufferIndex::none) allocation = at;
      if (at != allocation) return make_error(Errc::corrupt, "one trace is about two allocations");
    }
    if (!replay.all_free()) return make_error(Errc::corrupt, "trace leaves a buffer allocated");
  }
  return {};
}

/// The figures that XProf's memory viewer shows for one memory space.
struct ViewerPeak {
  Bytes heap = 0;  ///< most bytes alive in the one trace that it picks
  Bytes indefinite =
      0;  ///< parameters, outputs, constants and thread-locals: each the largest buffer in it
};

/// Replays a file as XProf's memory viewer does, its quirks included, to say what it will show.
///
/// Errors: corrupt, as the viewer refuses the file. Source: hlo-format.md Q.2.
[[nodiscard]] constexpr Result<ViewerPeak> viewer_peak(const AllocationTable& table,
                                                       std::int64_t color = 0) {
  constexpr std::uint32_t none = LogicalBufferIndex::none;
  const LogicalBufferIndex index(table);
  std::vector<std::uint32_t> home(table.buffers.size(), none);
  ViewerPeak out;
  for (std::uint32_t a = 0; a < table.allocations.size(); ++a) {
    const Allocation& allocation = table.allocations[a];
    Bytes largest = 0;
    for (const AssignedBuffer& b : table.assigned_to(allocation)) {
      const std::uint32_t buffer = index.find(b.buffer);
      if (buffer == none)
        return make_error(Errc::corrupt, "allocation names a buffer that is not there");
      home[buffer] = a;
      largest = std::max(largest, table.buffers[buffer].size);
    }
    if (color == 0 && allocation.color == 0 &&
        (allocation.is_indefinite() || allocation.is_thread_local) &&
        !checked_add(out.indefinite, largest, out.indefinite))
      return make_error(Errc::over_budget, "sizes do not fit into 64 bits");
  }
  // A trace belongs to the allocation of its first event's buffer; the later of two wins.
  std::vector<std::uint32_t> trace_of(table.allocations.size(), none);
  std::uint32_t picked = none;
  std::uint32_t most_events = 0;
  for (std::uint32_t t = 0; t < table.traces.size(); ++t) {
    if (table.traces[t].events.empty()) continue;
    const std::uint32_t first = index.find(table.events_of(table.traces[t])[0].buffer);
    if (first != none && home[first] != none) trace_of[home[first]] = t;
  }
  for (std::uint32_t a = 0; a < table.allocations.size() && picked == none; ++a) {
    const Allocation& allocation = table.allocations[a];
    if (allocation.color == color && !allocation.is_indefinite() && !allocation.is_thread_local)
      picked = trace_of[a];
  }
  for (std::uint32_t t = 0; t < table.traces.size() && (picked == none || most_events != 0); ++t) {
    std::uint32_t count = 0;
    for (const HeapEvent& e : table.events_of(table.traces[t])) {
      const std::uint32_t buffer = index.find(e.buffer);
      count += buffer != none && table.buffers[buffer].color == color;
    }
    if (count > most_events) most_events = count, picked = t;
  }
  if (picked == none) return out;
  const Result<HeapPeak> peak = HeapReplay(table, index).run(table.traces[picked]);
  if (!peak.ok()) return peak.error();
  out.heap = peak->size;
  return out;
}

}  // namespace holdfast
