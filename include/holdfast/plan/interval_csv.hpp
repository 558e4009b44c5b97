// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/concepts/sink.hpp"
#include "holdfast/core/reader.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/plan/live_range.hpp"

namespace holdfast {

/// One line of a table of lifetimes.
struct IntervalRow {
  std::string_view line;  ///< as written, without its end
  std::string_view name;  ///< of the column `id` or `group`; empty when there is neither
  std::uint32_t arena = 0;
  LiveRange range;  ///< its group counts within the arena
};

/// A table of lifetimes: offset problems as files. Its views need the text.
struct IntervalTable {
  std::string_view header;
  std::uint32_t offset_column = 0xFFFFFFFFu;  ///< where `offset` stands; none: it is added behind
  std::vector<IntervalRow> rows;
  std::vector<std::uint32_t> group_counts;  ///< by arena

  /// The problem of one arena, its ranges kept in `ranges`; `alignment` above 0 replaces the file's
  /// own.
  [[nodiscard]] constexpr OffsetProblem problem(std::uint32_t arena, std::vector<LiveRange>& ranges,
                                                Bytes alignment = 0) const {
    ranges.clear();
    for (const IntervalRow& r : rows)
      if (r.arena == arena) {
        ranges.push_back(r.range);
        if (alignment > 0) ranges.back().alignment = alignment;
      }
    return {ranges, group_counts[arena]};
  }
};

namespace detail {

/// Reads tables whose columns are known by their names.
class IntervalReader {
 public:
  constexpr explicit IntervalReader(std::string_view text) : text_(text), rest_(text) {}

  constexpr bool read_header() {
    do {
      if (rest_.empty()) return false;
      header_ = take_line();
    } while (trim(header_).empty());
    columns_.fill(none);
    std::uint32_t count = 0;
    for (std::string_view rest = header_;; ++count) {
      const std::string_view name = trim(take_cell(rest));
      for (std::size_t c = 0; c < names.size(); ++c)
        if (names[c] == name && columns_[c] == none) columns_[c] = count;
      if (rest.data() == nullptr) break;
    }
    if (columns_[lower] == none) columns_[lower] = columns_[start];
    if (columns_[upper] == none) columns_[upper] = columns_[end];
    return columns_[size] != none && columns_[lower] != none && columns_[upper] != none;
  }

  constexpr Result<IntervalTable> run() {
    if (!read_header())
      return make_error_at(Errc::corrupt,
                           "no header with the columns size and lower,upper or start,end", 0);
    IntervalTable t;
    t.header = header_;
    t.offset_column = columns_[offset];
    std::vector<Key> keys;
    while (!rest_.empty()) {
      const std::string_view line = take_line();
      if (trim(line).empty()) continue;
      if (t.rows.size() >= max_rows) return fail("more rows than the limit", line);
      if (Error e = read_row(line, t.rows.emplace_back(), keys.emplace_back()); !e.ok()) return e;
      keys.back().row = static_cast<std::uint32_t>(t.rows.size() - 1);
    }
    number_groups(t, keys);
    return t;
  }

 private:
  static constexpr std::uint32_t none = 0xFFFFFFFFu;
  static constexpr std::size_t max_rows = std::size_t{1} << 27;
  enum Column : std::size_t { id, group, trace, lower, upper, start, end, size, alignment, offset };
  static constexpr std::array<std::string_view, 10> names{
      "id", "group", "trace", "lower", "upper", "start", "end", "size", "alignment", "offset"};

  /// What tells arenas and groups apart.
  struct Key {
    std::string_view arena, group;
    std::uint32_t row = 0;
  };

  std::string_view text_, rest_, header_;
  std::array<std::uint32_t, names.size()> columns_{};

  static constexpr std::string_view trim(std::string_view s) noexcept {
    while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
    while (!s.empty() && (s.back() == ' ' || s.back() == '\t' || s.back() == '\r'))
      s.remove_suffix(1);
    return s;
  }
  constexpr std::string_view take_line() noexcept {
    const std::size_t n = find_char(rest_, '\n');
    std::string_view line = rest_.substr(0, n);
    rest_.remove_prefix(n < rest_.size() ? n + 1 : n);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    return line;
  }
  /// Takes a cell off a line; a null rest says that it was the last.
  static constexpr std::string_view take_cell(std::string_view& line) noexcept {
    const std::size_t n = line.find(',');
    const std::string_view cell = line.substr(0, n);
    line = n == std::string_view::npos ? std::string_view{}
                                       : std::string_view(line.data() + n + 1, line.size() - n - 1);
    return cell;
  }
  constexpr Error fail(const char* what, std::string_view at) const noexcept {
    Error e =
        make_error_at(Errc::corrupt, what, static_cast<std::uint64_t>(at.data() - text_.data()));
    e.stage = Stage::parse;
    return e;
  }
  static constexpr bool number(std::string_view s, std::int64_t& out) noexcept {
    const bool negative = !s.empty() && s.front() == '-';
    if (negative) s.remove_prefix(1);
    if (s.empty()) return false;
    out = 0;
    for (const char c : s)
      if (c < '0' || c > '9' || !checked_multiply(out, 10, out) || !checked_add(out, c - '0', out))
        return false;
    if (negative) out = -out;
    return true;
  }

  constexpr Error read_row(std::string_view line, IntervalRow& row, Key& key) const {
    row.line = line;
    std::array<std::int64_t, names.size()> value{};
    value[alignment] = 1;
    std::uint32_t seen = 0;
    std::uint32_t column = 0;
    for (std::string_view rest = line;; ++column) {
      const std::string_view raw = take_cell(rest);
      const std::string_view cell = trim(raw);
      for (std::size_t c = 0; c < names.size(); ++c) {
        if (columns_[c] != column) continue;
        if (c == id || c == group) row.name = cell;
        if (c == group) key.group = cell;
        if (c == trace) key.arena = cell;
        if (c < lower || c == offset) continue;
        if (cell.empty() && c == alignment) continue;
        if (!number(cell, value[c])) return fail("not a whole number of 64 bits", raw);
        if ((c == size && value[c] < 0) || (c == alignment && value[c] < 1))
          return fail("out of range", raw);
        seen |= 1u << c;
      }
      if (rest.data() == nullptr) break;
    }
    for (const Column c : {lower, upper, size})
      if ((seen & (1u << c)) == 0) return fail("a cell is missing", line);
    if (value[upper] < value[lower]) return fail("ends before it begins", line);
    row.range = {value[lower], value[upper], value[size], value[alignment], 0};
    return {};
  }

  /// Numbers arenas and groups by their first row; without a group column each row is its own.
  constexpr void number_groups(IntervalTable& t, std::vector<Key>& keys) const {
    const bool grouped = columns_[group] != none;
    std::sort(keys.begin(), keys.end(), [](const Key& a, const Key& b) {
      return a.arena != b.arena ? a.arena < b.arena : a.row < b.row;
    });
    std::vector<std::pair<std::uint32_t, std::uint32_t>> arenas;  // first row, first key
    for (std::uint32_t k = 0; k < keys.size(); ++k)
      if (k == 0 || keys[k].arena != keys[k - 1].arena) arenas.push_back({keys[k].row, k});
    std::sort(arenas.begin(), arenas.end());
    for (std::uint32_t a = 0; a < arenas.size(); ++a) {
      std::uint32_t stop = arenas[a].second;
      while (stop < keys.size() && keys[stop].arena == keys[arenas[a].second].arena) ++stop;
      const std::span<Key> run(keys.data() + arenas[a].second, stop - arenas[a].second);
      if (grouped)
        std::sort(run.begin(), run.end(), [](const Key& x, const Key& y) {
          return x.group != y.group ? x.group < y.group : x.row < y.row;
        });
      std::uint32_t count = 0;
      for (std::size_t k = 0; k < run.size(); ++k) {
        if (k != 0 && (!grouped || run[k].group != run[k - 1].group)) ++count;
        t.rows[run[k].row].arena = a;
        t.rows[run[k].row].range.group = count;
      }
      t.group_counts.push_back(count + 1);
    }
  }
};

}  // namespace detail

/// Tells whether a text begins with the header of a table of lifetimes.
[[nodiscard]] constexpr bool is_interval_csv(std::string_view text) {
  return detail::IntervalReader(text.substr(0, 4096)).read_header();
}

/// Reads a table of lifetimes: `id,lower,upper,size[,alignment][,offset]`, or
/// `trace,group,size,start,end[,...]` where each trace is an arena and rows of one group share an
/// offset. Columns are found by name; others are passed over.
///
/// Errors: corrupt, at a byte offset. Cost: n log n in rows. Source: MiniMalloc's format.
[[nodiscard]] constexpr Result<IntervalTable> parse_interval_csv(std::string_view text) {
  return detail::IntervalReader(text).run();
}

/// The largest sum of sizes alive at one time; saturating. Cost: n log n.
[[nodiscard]] constexpr Bytes live_peak(std::span<const LiveRange> ranges) {
  struct Change {
    std::int64_t time;
    Bytes bytes;  // what ends, below 0, comes before what begins
  };
  std::vector<Change> changes;
  for (const LiveRange& r : ranges)
    if (r.begin < r.end) changes.push_back({r.begin, r.size}), changes.push_back({r.end, -r.size});
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return a.time != b.time ? a.time < b.time : a.bytes < b.bytes;
  });
  Bytes now = 0;
  Bytes peak = 0;
  for (const Change& c : changes) {
    if (c.bytes > 0 && now > max_bytes - c.bytes) return max_bytes;
    now += c.bytes;
    peak = std::max(peak, now);
  }
  return peak;
}

/// Writes the table again with its offsets: `offsets` has one a row.
///
/// Errors: the sink's.
template <sink S>
constexpr Error write_interval_csv(const IntervalTable& table, std::span<const Bytes> offsets,
                                   S& out) noexcept {
  Error failure;
  const auto put = [&](std::string_view text) {
    if (failure.ok()) failure = out.write(text);
  };
  const bool added = table.offset_column == 0xFFFFFFFFu;
  put(table.header), put(added ? ",offset\n" : "\n");
  for (std::size_t r = 0; r < table.rows.size() && failure.ok(); ++r) {
    std::string_view line = table.rows[r].line;
    if (added) {
      put(line), put(",");
      if (failure.ok()) failure = write_number(out, offsets[r]);
    } else {
      for (std::uint32_t column = 0; column <= table.offset_column || !line.empty(); ++column) {
        const std::size_t n = std::min(line.find(','), line.size());
        if (column != 0) put(",");
        if (column != table.offset_column)
          put(line.substr(0, n));
        else if (failure.ok())
          failure = write_number(out, offsets[r]);
        line.remove_prefix(std::min(n + 1, line.size()));
      }
    }
    put("\n");
  }
  return failure;
}

}  // namespace holdfast
