// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/core/result.hpp"
#include "holdfast/core/types.hpp"
#include "holdfast/core/units.hpp"
#include "holdfast/core/wire.hpp"

namespace holdfast {

/// One value that was given memory. Names and runs are views or ranges of the table it stands in.
struct LogicalBuffer {
  std::int64_t id = 0;
  Bytes size = 0;
  std::int64_t color = 0;           ///< memory space
  std::int64_t instruction_id = 0;  ///< of the instruction that defines it; 0: see the names
  std::string_view computation_name = {};
  std::string_view instruction_name = {};
  IndexRange shape_index = {};  ///< in `AllocationTable::numbers`
};

/// A logical buffer's place in an allocation.
struct AssignedBuffer {
  std::int64_t buffer = 0;
  Bytes offset = 0;
  Bytes size = 0;
};

/// One contiguous piece of memory of a program. Source: XLA BufferAllocation.
struct Allocation {
  std::int64_t index = 0;
  Bytes size = 0;
  std::int64_t color = 0;
  std::int64_t parameter_number = 0;
  IndexRange parameter_index = {};  ///< in `AllocationTable::numbers`
  IndexRange assigned = {};         ///< in `AllocationTable::assigned`
  bool is_thread_local = false;
  bool is_tuple = false;
  bool is_parameter = false;  ///< of the entry computation
  bool is_constant = false;
  bool is_aliased = false;  ///< a parameter that shares memory with an output
  bool maybe_live_out = false;

  /// Temporary memory that is allocated before the program runs.
  [[nodiscard]] constexpr bool is_temp() const noexcept {
    return !is_parameter && !maybe_live_out && !is_thread_local && !is_constant;
  }
  /// Memory that lives as long as the program runs.
  [[nodiscard]] constexpr bool is_indefinite() const noexcept {
    return !is_thread_local && (is_parameter || is_constant || maybe_live_out);
  }
};

/// One step of a heap's simulated life.
struct HeapEvent {
  enum class Kind : std::uint8_t { alloc = 0, free = 1, share_with = 2 };
  Kind kind = Kind::alloc;
  std::int64_t buffer = 0;
  std::int64_t shares_with = 0;  ///< share_with: a buffer that is there already
  std::string_view computation_name = {};
  std::string_view instruction_name = {};
};

/// The life of one heap, in order of time.
struct HeapTrace {
  IndexRange events = {};  ///< in `AllocationTable::events`
  std::int64_t allocation = 0;
  bool whole_module = false;
};

/// A buffer assignment as XLA writes it: the memory of a compiled program, who is in it and when.
///
/// Names are views into the bytes read. Threads: as a vector. Source: XLA BufferAssignmentProto,
/// hlo-format.md P.
struct AllocationTable {
  std::vector<LogicalBuffer> buffers;
  std::vector<Allocation> allocations;  ///< in order of their index
  std::vector<AssignedBuffer> assigned;
  std::vector<HeapTrace> traces;
  std::vector<HeapEvent> events;
  std::vector<std::int64_t> numbers;
  std::vector<char> unknown_fields;  ///< of the outermost message, as written

  [[nodiscard]] constexpr std::span<const AssignedBuffer> assigned_to(
      const Allocation& a) const noexcept {
    return {assigned.data() + a.assigned.begin, a.assigned.count};
  }
  [[nodiscard]] constexpr std::span<const HeapEvent> events_of(const HeapTrace& t) const noexcept {
    return {events.data() + t.events.begin, t.events.count};
  }
  [[nodiscard]] constexpr std::span<const std::int64_t> numbers_of(IndexRange r) const noexcept {
    return {numbers.data() + r.begin, r.count};
  }
};

namespace detail {

/// Reads BufferAssignmentProto. Sizes and offsets are checked where they are read: none is negative
/// afterwards.
class AllocationReader {
 public:
  Error failure;
  AllocationTable table;

  constexpr bool read(std::string_view bytes) {
    std::size_t counts[5] = {};
    WireReader counter(bytes);
    for (WireField f; counter.next(f);)
      if (f.number < 5) ++counts[f.number];
    table.buffers.reserve(counts[1]);
    table.allocations.reserve(counts[3]);
    table.traces.reserve(counts[4]);
    WireReader reader(bytes);
    for (WireField f; reader.next(f);) {
      const bool message = f.kind == WireKind::bytes;
      if (message && f.number == 1) {
        if (!read_buffer(f)) return false;
      } else if (message && f.number == 3) {
        if (!read_allocation(f)) return false;
      } else if (message && f.number == 4) {
        if (!read_trace(f)) return false;
      } else {
        table.unknown_fields.insert(table.unknown_fields.end(), reader.raw().begin(),
                                    reader.raw().end());
      }
    }
    return check(reader.error());
  }

 private:
  constexpr bool check(const Error& e) noexcept {
    if (failure.ok()) failure = e;
    return e.ok();
  }
  constexpr bool fail(const char* what, std::uint64_t offset) noexcept {
    return check(make_error_at(Errc::corrupt, what, offset));
  }
  constexpr bool size(const WireField& f, Bytes& out) noexcept {
    out = f.signed_value();
    return out >= 0 || fail("negative size or offset", f.offset);
  }
  constexpr bool append(const WireField& f, IndexRange& range) {
    if (range.count == 0) range.begin = static_cast<std::uint32_t>(table.numbers.size());
    if (!check(append_numbers(f, table.numbers))) return false;
    range.count = static_cast<std::uint32_t>(table.numbers.size()) - range.begin;
    return true;
  }

  constexpr bool read_buffer(const WireField& message) {
    LogicalBuffer b;
    WireReader reader(message.bytes, message.offset);
    for (WireField f; reader.next(f);) {
      switch (f.number) {
        case 1:
          b.id = f.signed_value();
          break;
        case 2:
          if (!size(f, b.size)) return false;
          break;
        case 3:
          if (!read_location(f, b)) return false;
          break;
        case 4:
          b.color = f.signed_value();
          break;
        default:
          break;
      }
    }
    table.buffers.push_back(b);
    return check(reader.error());
  }
  constexpr bool read_location(const WireField& message, LogicalBuffer& b) {
    WireReader reader(message.bytes, message.offset);
    for (WireField f; reader.next(f);) {
      switch (f.number) {
        case 1:
          b.computation_name = f.bytes;
          break;
        case 2:
          b.instruction_name = f.bytes;
          break;
        case 3:
          if (!append(f, b.shape_index)) return false;
          break;
        case 4:
          b.instruction_id = f.signed_value();
          break;
        default:
          break;
      }
    }
    return check(reader.error());
  }
  constexpr bool read_allocation(const WireField& message) {
    Allocation a;
    a.assigned.begin = static_cast<std::uint32_t>(table.assigned.size());
    WireReader reader(message.bytes, message.offset);
    for (WireField f; reader.next(f);) {
      const bool flag = f.value != 0;
      switch (f.number) {
        case 1:
          a.index = f.signed_value();
          break;
        case 2:
          if (!size(f, a.size)) return false;
          break;
        case 3:
          a.is_thread_local = flag;
          break;
        case 5:
          a.is_parameter = flag;
          break;
        case 6:
          a.parameter_number = f.signed_value();
          break;
        case 7:
          a.maybe_live_out = flag;
          break;
        case 8:
          a.color = f.signed_value();
          break;
        case 9:
          if (!read_assigned(f)) return false;
          break;
        case 10:
          if (!append(f, a.parameter_index)) return false;
          break;
        case 11:
          a.is_tuple = flag;
          break;
        case 12:
          a.is_constant = flag;
          break;
        case 13:
          a.is_aliased = flag;
          break;
        default:
          break;
      }
    }
    a.assigned.count = static_cast<std::uint32_t>(table.assigned.size()) - a.assigned.begin;
    table.allocations.push_back(a);
    return check(reader.error());
  }
  constexpr bool read_assigned(const WireField& message) {
    AssignedBuffer a;
    WireReader reader(message.bytes, message.offset);
    for (WireField f; reader.next(f);) {
      if (f.number == 1) a.buffer = f.signed_value();
      if (f.number == 2 && !size(f, a.offset)) return false;
      if (f.number == 3 && !size(f, a.size)) return false;
    }
    table.assigned.push_back(a);
    return check(reader.error());
  }
  constexpr bool read_trace(const WireField& message) {
    HeapTrace t;
    t.events.begin = static_cast<std::uint32_t>(table.events.size());
    WireReader reader(message.bytes, message.offset);
    for (WireField f; reader.next(f);) {
      if (f.number == 2) t.whole_module = f.value != 0;
      if (f.number == 3) t.allocation = f.signed_value();
      if (f.number == 1 && f.kind == WireKind::bytes && !read_event(f)) return false;
    }
    t.events.count = static_cast<std::uint32_t>(table.events.size()) - t.events.begin;
    table.traces.push_back(t);
    return check(reader.error());
  }
  constexpr bool read_event(const WireField& message) {
    HeapEvent e;
    WireReader reader(message.bytes, message.offset);
    for (WireField f; reader.next(f);) {
      switch (f.number) {
        case 1:
          if (f.value > 2) return fail("unknown kind of heap event", f.offset);
          e.kind = static_cast<HeapEvent::Kind>(f.value);
          break;
        case 2:
          e.buffer = f.signed_value();
          break;
        case 3:
          e.computation_name = f.bytes;
          break;
        case 4:
          e.instruction_name = f.bytes;
          break;
        case 5:
          e.shares_with = f.signed_value();
          break;
        default:
          break;
      }
    }
    table.events.push_back(e);
    return check(reader.error());
  }
};

}  // namespace detail

/// Reads a serialised BufferAssignmentProto; names are views into `bytes`.
///
/// Errors: corrupt, at a byte offset. Cost: linear. Source: hlo-format.md P.
[[nodiscard]] constexpr Result<AllocationTable> parse_buffer_assignment(std::string_view bytes) {
  detail::AllocationReader reader;
  if (reader.read(bytes)) return std::move(reader.table);
  reader.failure.stage = Stage::parse;
  return reader.failure;
}

/// Writes a BufferAssignmentProto. The same table gives the same bytes.
///
/// Cost: linear.
[[nodiscard]] constexpr std::vector<char> render_buffer_assignment(const AllocationTable& table) {
  WireWriter out, message, part;
  for (const LogicalBuffer& b : table.buffers) {
    message.clear(), part.clear();
    part.text(1, b.computation_name), part.text(2, b.instruction_name);
    part.numbers(3, table.numbers_of(b.shape_index)), part.number(4, b.instruction_id);
    message.number(1, b.id), message.number(2, b.size), message.message(3, part),
        message.number(4, b.color);
    out.message(1, message);
  }
  for (const Allocation& a : table.allocations) {
    message.clear();
    message.number(1, a.index), message.number(2, a.size), message.number(3, a.is_thread_local);
    message.number(5, a.is_parameter), message.number(6, a.parameter_number),
        message.number(7, a.maybe_live_out), message.number(8, a.color);
    for (const AssignedBuffer& b : table.assigned_to(a)) {
      part.clear();
      part.number(1, b.buffer), part.number(2, b.offset), part.number(3, b.size);
      message.message(9, part);
    }
    message.numbers(10, table.numbers_of(a.parameter_index));
    message.number(11, a.is_tuple), message.number(12, a.is_constant),
        message.number(13, a.is_aliased);
    out.message(3, message);
  }
  for (const HeapTrace& t : table.traces) {
    message.clear();
    for (const HeapEvent& e : table.events_of(t)) {
      part.clear();
      part.number(1, static_cast<std::int64_t>(e.kind)), part.number(2, e.buffer);
      part.text(3, e.computation_name), part.text(4, e.instruction_name),
          part.number(5, e.shares_with);
      message.message(1, part);
    }
    message.number(2, t.whole_module), message.number(3, t.allocation);
    out.message(4, message);
  }
  out.raw({table.unknown_fields.data(), table.unknown_fields.size()});
  return {out.bytes().begin(), out.bytes().end()};
}

}  // namespace holdfast
