// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "holdfast/backend/bfc/explain.hpp"
#include "holdfast/backend/bfc/snapshot.hpp"
#include "holdfast/concepts/sink.hpp"

namespace holdfast {

namespace detail {

/// Text with numbers in the forms of the dump; keeps the sink's first failure.
template <sink S>
class BfcText {
 public:
  explicit BfcText(S& out) noexcept : out_(out) {}
  BfcText& operator<<(std::string_view text) noexcept {
    if (failure_.ok()) failure_ = out_.write(text);
    return *this;
  }
  BfcText& operator<<(std::int64_t n) noexcept {
    if (failure_.ok()) failure_ = write_number(out_, n);
    return *this;
  }
  /// `768.0KiB`, `6.00MiB`: one decimal for KiB and two above, halves to the even digit.
  BfcText& size(Bytes n) noexcept {
    if (n < 1024) return *this << n << "B";
    int unit = 0;
    for (Bytes rest = n; rest >= 1024; rest >>= 10) ++unit;
    const Bytes decimals = unit == 1 ? 10 : 100;
    const int shift = unit > 5 ? 20 : 0;  // beyond 1 PiB the lowest bits do not show
    const Bytes one = Bytes{1} << (10 * unit - shift), whole = (n >> shift) / one, scaled = (n >> shift) % one * decimals;
    Bytes part = scaled / one;
    const Bytes twice = scaled % one * 2;
    if (twice > one || (twice == one && part % 2 != 0)) ++part;
    *this << whole + part / decimals << ".";
    if (decimals == 100 && part % decimals < 10) *this << "0";
    *this << part % decimals;
    const char suffix[] = {"?KMGTPE"[unit], 'i', 'B'};
    return *this << std::string_view(suffix, sizeof suffix);
  }
  BfcText& hex(std::uint64_t n) noexcept {
    char digits[16];
    std::size_t at = sizeof digits;
    do digits[--at] = "0123456789abcdef"[n % 16];
    while ((n /= 16) != 0);
    return *this << std::string_view(digits + at, sizeof digits - at);
  }
  /// A line of statistics: a label and a number, 20 wide.
  BfcText& figure(std::string_view label, Bytes n) noexcept {
    *this << label;
    int digits = n < 0 ? 2 : 1;
    for (Bytes rest = n; (rest /= 10) != 0;) ++digits;
    for (std::size_t at = label.size(); at < 18; ++at) *this << " ";
    for (; digits < 20; ++digits) *this << " ";
    return *this << n << "\n";
  }
  [[nodiscard]] Error failure() const noexcept { return failure_; }

 private:
  S& out_;
  Error failure_;
};

template <sink S>
void bfc_write_bins(BfcText<S>& text, const BfcSnapshot& s, Bytes rounded) noexcept {
  const auto bins = bfc_bins(s);
  for (int i = 0; i < 21; ++i) {
    const BfcBin& b = bins[static_cast<std::size_t>(i)];
    text << "Bin (" << (Bytes{256} << i) << "): \tTotal Chunks: " << b.chunks << ", Chunks in use: " << b.used << ". ";
    text.size(b.size) << " allocated for chunks. ";
    text.size(b.in_use) << " in use in bin. ";
    text.size(b.requested) << " client-requested in use in bin.\n";
  }
  const std::size_t wanted = free_size_bin(rounded);
  text << "Bin for ";
  text.size(rounded) << " was ";
  text.size(Bytes{256} << wanted) << ", Chunk State: \n";
  const auto chunk = [&](const BfcChunkRecord& c) {
    text << "  Size: ";
    text.size(c.block.size) << " | Requested Size: ";
    text.size(c.requested) << " | in_use: " << (c.used() ? 1 : 0) << " | bin_num: " << (c.used() ? -1 : static_cast<std::int64_t>(free_size_bin(c.block.size)));
  };
  for (std::size_t i = 0; i < s.chunks.size(); ++i) {
    if (s.chunks[i].used() || free_size_bin(s.chunks[i].block.size) != wanted) continue;
    chunk(s.chunks[i]);
    if (i > 0 && s.chunks[i - 1].region == s.chunks[i].region) text << ", prev: ", chunk(s.chunks[i - 1]);
    if (i + 1 < s.chunks.size() && s.chunks[i + 1].region == s.chunks[i].region) text << ", next: ", chunk(s.chunks[i + 1]);
    text << "\n";
  }
}

template <sink S>
void bfc_write_regions(BfcText<S>& text, const BfcSnapshot& s) noexcept {
  for (std::size_t i = 0; i < s.chunks.size(); ++i) {
    const BfcChunkRecord& c = s.chunks[i];
    const bool first = i == 0 || s.chunks[i - 1].region != c.region;
    if (first) text << "Next region of size " << s.regions[c.region].size << "\n";
    text << (c.used() ? "InUse at " : "Free  at ");
    text.hex(bfc_address(c.block.data)) << " of size " << c.block.size << " tag " << (c.tag.name != nullptr ? c.tag.name : "none");
    if (c.tag.number != 0) text << " allocation_annotation " << static_cast<std::int64_t>(c.tag.number);
    text << " next ";
    if (i + 1 < s.chunks.size() && s.chunks[i + 1].region == c.region)
      text << static_cast<std::int64_t>(i + 1);
    else
      text << "18446744073709551615";
    if (c.freed_at != 0) text << " freed_at_count " << static_cast<std::int64_t>(c.freed_at);
    text << "\n";
  }
  std::vector<Bytes> sizes;
  for (const BfcChunkRecord& c : s.chunks)
    if (c.used()) sizes.push_back(c.block.size);
  std::sort(sizes.begin(), sizes.end());
  text << "     Summary of in-use Chunks by size: \n";
  for (std::size_t i = 0, end = 0; i < sizes.size(); i = end) {
    while (end < sizes.size() && sizes[end] == sizes[i]) ++end;
    const auto count = static_cast<Bytes>(end - i);
    text << count << " Chunks of size " << sizes[i] << " totalling ";
    text.size(sizes[i] * count) << "\n";
  }
  text << "Sum Total of in-use chunks: ";
  text.size(s.statistics.in_use) << "\n";
}

}  // namespace detail

/// Writes 100 characters for the whole pool: `*` asked for, `x` waste of chunks in use, `_` free.
/// Errors: the first failure of the sink.
template <sink S>
Error write_bfc_occupancy(S& out, const BfcSnapshot& s) noexcept {
  if (s.statistics.reserved == 0) return out.write("<allocator contains no memory>");
  constexpr std::size_t cells = 100;
  char picture[cells];
  std::fill_n(picture, cells, '_');
  Bytes before = 0;
  // Of 2^56 bytes and more, a hundredth is told without the lowest bits.
  const int shift = s.statistics.reserved >> 56 != 0 ? 7 : 0;
  const auto cell = [&](Bytes at) { return static_cast<std::size_t>((at >> shift) * Bytes{cells} / (s.statistics.reserved >> shift)); };
  for (const BfcChunkRecord& c : s.chunks) {
    if (c.used()) {
      std::fill(picture + cell(before), picture + cell(before + c.block.size - 1) + 1, 'x');
      std::fill(picture + cell(before), picture + cell(before + c.requested - 1) + 1, '*');
    }
    before += c.block.size;
  }
  return out.write({picture, cells});
}

/// Writes why a request was not served and all that the pool holds, in the form that TensorFlow's and XLA's readers know.
///
/// Errors: the first failure of the sink. Cost: linear in the chunks, and a sort.
template <sink S>
Error write_bfc_dump(S& out, const BfcSnapshot& s, Bytes size, Alignment alignment = Alignment(1), BfcEnd end = BfcEnd::lower,
                     Tag by = {}, std::uint64_t freed_before = bfc_any_time) noexcept {
  detail::BfcText<S> text(out);
  const BfcExplanation why = explain_bfc(s, size, alignment, end, freed_before);
  const std::string_view end_name = end == BfcEnd::upper ? "upper" : "lower";
  text << "Allocator (" << s.options.name << ") ran out of memory trying to allocate ";
  text.size(size);
  if (why.rounded != size) text << " (rounded to " << why.rounded << ")";
  if (s.two_ended) text << " from the " << end_name << " end";
  if (by.name != nullptr) text << " requested by op " << by.name;
  if (freed_before != bfc_any_time)
    text << " with freed_by_count=" << static_cast<std::int64_t>(freed_before)
         << ". The caller indicates that this is not a failure, but this may mean that there could be performance gains if more "
            "memory were available.";
  text << "\nBFCAllocator dump for " << s.options.name << "\n";
  detail::bfc_write_bins(text, s, why.rounded);
  detail::bfc_write_regions(text, s);
  text << "Allocator memory summary: rounded request ";
  text.size(why.rounded) << ", total free in pool ";
  text.size(why.free) << ", largest free chunk usable by " << end_name << " end ";
  text.size(why.largest) << ", unallocated bytes ";
  text.size(why.room) << ", pool size ";
  text.size(s.statistics.reserved) << ", pool limit ";
  text.size(s.statistics.limit) << "\n";
  text << "Explanation: ";
  if (text.failure().ok())
    if (const Error e = write_explanation(out, why); !e.ok()) return e;
  text << "\nStats: \n";
  const BfcStatistics& f = s.statistics;
  text.figure("Limit:", f.limit).figure("InUse:", f.in_use).figure("MaxInUse:", f.peak_in_use);
  text.figure("NumAllocs:", static_cast<Bytes>(f.allocations)).figure("MaxAllocSize:", f.largest_allocation);
  text.figure("Reserved:", f.reserved).figure("PeakReserved:", f.peak_reserved).figure("LargestFreeBlock:", f.largest_free);
  if (!text.failure().ok()) return text.failure();
  if (const Error e = write_bfc_occupancy(out, s); !e.ok()) return e;
  return out.write("\n");
}

}  // namespace holdfast
