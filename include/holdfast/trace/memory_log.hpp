// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/concepts/sink.hpp"
#include "holdfast/core/hash.hpp"
#include "holdfast/core/reader.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/core/types.hpp"
#include "holdfast/core/units.hpp"
#include "holdfast/trace/detail/report_text.hpp"
#include "holdfast/trace/recorder.hpp"

namespace holdfast {

/// What an event of a log is.
enum class LogOp : std::uint8_t { allocate, release, failure, mark };

/// What makes an event impossible to carry out.
enum class LogFault : std::uint8_t { none, twice_live, double_release, foreign, size_mismatch };

/// One event of a log.
struct LogEvent {
  std::uint64_t offset = 0;  ///< of its line in the text
  Bytes size = 0;            ///< release: of its allocation; failure: what was asked for
  std::uint32_t block =
      0;  ///< allocations are numbered from 0; `MemoryLog::no_block`: the empty block
  LogOp op = LogOp::allocate;
  LogFault fault = LogFault::none;
};

/// A log of allocations and releases, each release with the allocation that it ends.
struct MemoryLog {
  static constexpr std::uint32_t no_block = 0xFFFFFFFFu;

  std::vector<LogEvent> events;
  std::uint32_t block_count = 0;
  std::int64_t lost =
      0;  ///< events that its recorder had no room for, and releases that miss their allocation

  /// Why an event cannot be carried out, with its place; ok where it can.
  [[nodiscard]] Error error_of(const LogEvent& event) const noexcept {
    static constexpr const char* texts[] = {
        nullptr, "a block is allocated that is live", "a block is released twice",
        "a block is released that was never allocated",
        "a block is released with another size than it was allocated with"};
    if (event.fault == LogFault::none) return {};
    return make_error_at(Errc::corrupt, texts[static_cast<std::size_t>(event.fault)], event.offset);
  }
};

namespace detail {

/// Reads logs whose columns are known by their names.
class LogReader {
 public:
  explicit LogReader(std::string_view text) noexcept : in_(text) {}

  [[nodiscard]] bool read_header() noexcept {
    while (!in_.at_end() && (in_.peek() == '\n' || in_.peek() == '\r')) in_.skip(1);
    columns_.fill(none);
    std::uint32_t column = 0;
    do {
      std::string_view name;
      if (!read_cell(name).ok()) return false;
      const std::size_t c = column_of(name);
      if (c < columns_.size() && columns_[c] == none) columns_[c] = column;
      pointers_ = pointers_ || (c == id && (name.front() == 'p' || name.front() == 'P'));
      ++column;
    } while (in_.take(','));
    return end_line() && columns_[op] != none && columns_[id] != none && columns_[size] != none;
  }

  [[nodiscard]] Result<MemoryLog> run() {
    if (!read_header())
      return fail("no header with columns op, id and size, or Action, Pointer and Size", 0);
    MemoryLog log;
    while (!in_.at_end()) {
      if (end_line()) continue;
      if (log.events.size() >= max_events) return fail("more events than the limit", in_.offset());
      if (const Error e = read_row(log); !e.ok()) return e;
    }
    resolve(log);
    return log;
  }

 private:
  static constexpr std::uint32_t none = 0xFFFFFFFFu;
  static constexpr std::size_t max_events = std::size_t{1} << 27;
  enum Column : std::size_t { op, id, size };

  /// The name by which an event's block is known.
  struct Key {
    std::uint64_t hash;
    std::string_view text;
    std::uint32_t event;
  };

  Reader in_;
  std::array<std::uint32_t, 3> columns_{};
  bool pointers_ = false;
  std::vector<Key> keys_;

  [[nodiscard]] static Error fail(const char* what, std::size_t offset) noexcept {
    Error e = make_error_at(Errc::corrupt, what, offset);
    e.stage = Stage::parse;
    return e;
  }
  [[nodiscard]] static bool is_word(std::string_view text, std::string_view lower) noexcept {
    return std::equal(text.begin(), text.end(), lower.begin(), lower.end(), [](char a, char b) {
      return (a >= 'A' && a <= 'Z' ? a + ('a' - 'A') : a) == b;
    });
  }
  [[nodiscard]] static std::size_t column_of(std::string_view name) noexcept {
    constexpr std::string_view names[] = {"op", "action", "id", "pointer", "size", "bytes"};
    for (std::size_t i = 0; i < std::size(names); ++i)
      if (is_word(name, names[i])) return i / 2;
    return std::size(names);
  }

  /// Takes the end of a line, or of the text.
  bool end_line() noexcept {
    if (in_.peek() == '\r' && in_.peek(1) == '\n') in_.skip(1);
    return in_.take('\n') || in_.at_end();
  }
  /// Takes a cell without the comma behind it; one in quotes as it is written between them.
  [[nodiscard]] Error read_cell(std::string_view& cell) noexcept {
    const std::size_t from = in_.offset();
    if (in_.take('"')) {
      for (;; in_.skip(1)) {
        if (in_.at_end() || in_.peek() == '\n') return fail("a quote is not closed", from);
        if (in_.peek() != '"') continue;
        if (in_.peek(1) != '"') break;
        in_.skip(1);
      }
      cell = in_.since(from + 1);
      in_.skip(1);
      return {};
    }
    while (!in_.at_end() && in_.peek() != ',' && in_.peek() != '\n') in_.skip(1);
    cell = in_.since(from);
    while (!cell.empty() && (cell.back() == ' ' || cell.back() == '\r' || cell.back() == '\t'))
      cell.remove_suffix(1);
    while (!cell.empty() && (cell.front() == ' ' || cell.front() == '\t')) cell.remove_prefix(1);
    return {};
  }
  [[nodiscard]] static bool number(std::string_view s, Bytes& out) noexcept {
    out = 0;
    for (const char c : s)
      if (c < '0' || c > '9' || !checked_multiply(out, 10, out) || !checked_add(out, c - '0', out))
        return false;
    return !s.empty();
  }
  /// Tells whether a pointer is null, as C and C++ libraries print it.
  [[nodiscard]] static bool is_null(std::string_view s) noexcept {
    if (is_word(s, "(nil)") || is_word(s, "nullptr")) return true;
    if (s.starts_with("0x") || s.starts_with("0X")) s.remove_prefix(2);
    return s.find_first_not_of('0') == std::string_view::npos;
  }

  [[nodiscard]] Error read_row(MemoryLog& log) {
    const std::size_t line = in_.offset();
    std::array<std::string_view, 3> cells{};
    std::array<std::size_t, 3> places{line, line, line};
    std::uint32_t column = 0;
    do {
      const std::size_t from = in_.offset();
      std::string_view cell;
      if (const Error e = read_cell(cell); !e.ok()) return e;
      for (std::size_t c = 0; c < cells.size(); ++c)
        if (columns_[c] == column) cells[c] = cell, places[c] = from;
      ++column;
    } while (in_.take(','));
    if (!end_line()) return fail("text behind a quote", in_.offset());

    LogEvent event;
    event.offset = line;
    constexpr std::string_view words[] = {"a",    "alloc",      "allocate", "f",
                                          "free", "deallocate", "failure",  "allocate failure",
                                          "mark", "hold",       "lost"};
    std::size_t word = 0;
    while (word < std::size(words) && !is_word(cells[op], words[word])) ++word;
    if (word == std::size(words)) return fail("neither an allocation nor a release", places[op]);
    event.op = word < 3   ? LogOp::allocate
               : word < 6 ? LogOp::release
               : word < 8 ? LogOp::failure
                          : LogOp::mark;
    if (words[word] == "hold") return {};
    const bool sized = event.op == LogOp::allocate || words[word] == "lost";
    if (!number(cells[size], event.size) &&
        (sized || (event.op == LogOp::release && !cells[size].empty())))
      return fail("not a whole number of 63 bits", places[size]);
    if (words[word] == "lost") return log.lost = saturating_add(log.lost, event.size), Error{};
    event.block = MemoryLog::no_block;
    const bool null = pointers_ && is_null(cells[id]);
    if (null && event.op == LogOp::allocate && event.size != 0) event.op = LogOp::failure;
    if (event.op <= LogOp::release && !null)
      keys_.push_back(
          {hash_text(cells[id]), cells[id], static_cast<std::uint32_t>(log.events.size())});
    log.events.push_back(event);
    return {};
  }

  /// Finds for each release its allocation, name by name; numbers the blocks in time order.
  void resolve(MemoryLog& log) {
    std::sort(keys_.begin(), keys_.end(), [](const Key& a, const Key& b) {
      if (a.hash != b.hash) return a.hash < b.hash;
      const int order = a.text.compare(b.text);
      return order != 0 ? order < 0 : a.event < b.event;
    });
    for (const Key& k : keys_)
      if (log.events[k.event].op == LogOp::allocate)
        log.events[k.event].block = 0;  // to be numbered
    for (LogEvent& e : log.events)
      if (e.op == LogOp::allocate && e.block == 0) e.block = log.block_count++;
    const LogEvent* live = nullptr;
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      LogEvent& e = log.events[keys_[i].event];
      const bool known = i > 0 && keys_[i - 1].text == keys_[i].text;
      if (!known) live = nullptr;
      if (e.op == LogOp::allocate) {
        if (live != nullptr && log.lost == 0) e.fault = LogFault::twice_live;
        live = &e;
        continue;
      }
      if (live == nullptr) {
        e.fault = known ? LogFault::double_release : LogFault::foreign;
        if (log.lost != 0)
          e.op = LogOp::mark, e.fault = LogFault::none, log.lost = saturating_add(log.lost, 1);
        continue;
      }
      if (e.size != 0 && e.size != live->size && log.lost == 0) e.fault = LogFault::size_mismatch;
      e.size = live->size;
      e.block = live->block;
      live = nullptr;
    }
  }
};

}  // namespace detail

/// Tells whether a text begins with the header of a log of memory.
[[nodiscard]] inline bool is_memory_log(std::string_view text) noexcept {
  return detail::LogReader(text.substr(0, 4096)).read_header();
}

/// Reads a log of memory: what `write_memory_log` writes, RMM's
/// `Thread,Time,Action,Pointer,Size,Stream`, or `op,id,size` with `a` and `f`. Columns are found by
/// name; others are passed over. A release may leave its size out or give 0; an allocation with a
/// size and no address is one that failed.
///
/// What is no event is an error; an event that contradicts earlier ones is kept, with its fault.
/// Errors: corrupt, at a byte offset. Cost: n log n.
[[nodiscard]] inline Result<MemoryLog> read_memory_log(std::string_view text) {
  return detail::LogReader(text).run();
}

/// The most bytes that are live at one time in a log; saturating. Cost: linear.
[[nodiscard]] inline Bytes live_peak(const MemoryLog& log) noexcept {
  Bytes now = 0;
  Bytes peak = 0;
  for (const LogEvent& e : log.events) {
    if (e.block == MemoryLog::no_block || e.fault != LogFault::none) continue;
    if (e.op == LogOp::allocate && !checked_add(now, e.size, now)) return max_bytes;
    if (e.op == LogOp::release) now -= e.size;
    peak = std::max(peak, now);
  }
  return peak;
}

namespace detail {

/// Writes rows of cells to a sink until that fails.
template <sink S>
struct LogRow {
  ReportText<S> text;
  bool begun = false;

  /// Begins a cell.
  ReportText<S>& cell() noexcept {
    if (std::exchange(begun, true)) text << ",";
    return text;
  }
  void end() noexcept { text << "\n", begun = false; }
  /// A name in quotes; those of its own are doubled, what would break the line becomes a space.
  void quoted(std::string_view name) noexcept {
    cell() << "\"";
    while (!name.empty()) {
      std::size_t n = 0;
      while (n < name.size() && name[n] != '"' && static_cast<unsigned char>(name[n]) >= 0x20) ++n;
      text << name.substr(0, n);
      if (n < name.size()) text << (name[n] == '"' ? "\"\"" : " ");
      name.remove_prefix(std::min(n + 1, name.size()));
    }
    text << "\"";
  }
};

}  // namespace detail

/// Writes what a recorder kept as CSV: `event,time,thread,step,op,pointer,size,tag,number`.
///
/// `op` is allocate, deallocate, failure (size asked for, tag the reason) or hold (size +1 or -1,
/// tag the kind); `lost` comes first where events were lost, with their count as size. Errors: the
/// sink's.
template <sync Sync, clock Clock, sink S>
Error write_memory_log(const BasicRecorder<Sync, Clock>& recorder, S& out) noexcept {
  static constexpr std::string_view ops[] = {"allocate", "deallocate", "failure", "hold"};
  static constexpr std::string_view holds[] = {"usage", "external", "donation"};
  detail::LogRow<S> row{{out}};
  row.text << "event,time,thread,step,op,pointer,size,tag,number\n";
  const auto write = [&](const Record& r, std::string_view op, Bytes size, std::string_view name) {
    row.cell() << static_cast<std::int64_t>(r.id);
    row.cell() << r.time;
    row.cell().hex(r.thread);
    row.cell() << std::int64_t{r.step};
    row.cell() << op;
    row.cell().hex(reinterpret_cast<std::uintptr_t>(r.block.data));
    row.cell() << size;
    row.quoted(name);
    row.cell().hex(r.tag.number);
    row.end();
  };
  if (const std::uint64_t lost = recorder.lost(); lost != 0)
    write({}, "lost", static_cast<Bytes>(lost), "");
  recorder.visit([&](const Record& r) {
    const std::string_view op = ops[static_cast<std::size_t>(r.kind)];
    switch (r.kind) {
      case RecordKind::hold:
        return write(r, op, r.change, holds[static_cast<std::size_t>(r.hold)]);
      case RecordKind::failure:
        return write(r, op, r.block.size, errc_name(r.code));
      default:
        return write(r, op, r.block.size, r.tag.name != nullptr ? r.tag.name : "");
    }
  });
  return row.text.failure;
}

}  // namespace holdfast
