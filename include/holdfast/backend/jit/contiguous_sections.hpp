// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "holdfast/backend/jit/detail/record_list.hpp"
#include "holdfast/backend/jit/eh_frames.hpp"
#include "holdfast/backend/jit/fixup.hpp"
#include "holdfast/backend/jit/memory_mapper.hpp"
#include "holdfast/concepts/sink.hpp"
#include "holdfast/core/result.hpp"

namespace holdfast {

/// What a section holds, in the order in which the three lie in memory.
enum class SectionKind : std::uint8_t { code, read_only, read_write };

/// A size and an alignment: of a section, or of all sections of a kind together. Units: `alignment` is bytes.
struct SectionRequest {
  Bytes size = 0;
  Bytes alignment = 1;
};

/// What is to be reserved, kind by kind.
struct SectionSizes {
  SectionRequest code, read_only, read_write;
};

/// How a reservation is made.
struct ReserveOptions {
  bool guards = true;          ///< untouchable pages before, between and after the kinds: 4 pages of addresses
  const void* near = nullptr;  ///< an address to stay within 2 GiB of, if that can be had
  bool huge_pages = false;     ///< code starts at 2 MiB: many small objects in one arena
};

/// A section's place. `write` is no longer valid once the arena is finalised.
struct Section {
  std::uint32_t id = 0;
  SectionKind kind = SectionKind::code;
  char name[51] = {};
  std::byte* write = nullptr;
  std::byte* run = nullptr;
  Bytes size = 0;
  Bytes alignment = 1;
};

/// How often call frames were registered. Units: counts.
struct FrameStatistics {
  std::int64_t registered = 0;
  std::int64_t twice = 0;     ///< registrations refused because they were there already
  std::int64_t leftover = 0;  ///< frames that their owner had not taken back when the memory was released
};

/// Finalised memory has the protection of its kind: the mapper's mode says how it came to it.
struct ProtectAsMapped {
  template <class Mapper>
  static void finish(Mapper&, const CodeBlock&, const CodeBlock&) noexcept {}
};
/// And nobody can change that any more, not even by releasing it, where the kernel has mseal: for code that is never unloaded.
struct ProtectForever {
  template <class Mapper>
  static void finish(Mapper& mapper, const CodeBlock& code, const CodeBlock& read_only) noexcept {
    if (mapper.make_permanent(code).ok()) static_cast<void>(mapper.make_permanent(read_only));
  }
};

/// Gives the size and alignment of sections laid out one after another. Errors: invalid_argument (a size, an alignment, the sum).
[[nodiscard]] constexpr Result<SectionRequest> total_of(std::span<const SectionRequest> sections) noexcept {
  SectionRequest total;
  for (const SectionRequest& s : sections) {
    if (s.size < 0 || !is_power_of_two(s.alignment) || !checked_align_up(total.size, s.alignment, total.size) ||
        !checked_add(total.size, s.size, total.size))
      return make_error(Errc::invalid_argument, "the sizes of the sections have no sum");
    total.alignment = std::max(total.alignment, s.alignment);
  }
  return total;
}

/// Code, read-only and read-write data of an object in one reservation, so that each reaches the others.
///
/// `reserve`, then `allocate` sections and write them, then `finalise`, then run, then `release`; calls in another order are
/// wrong_state. No page is ever writable and executable. The mapper outlives it. Threads: as a value.
/// Source: XLA's ContiguousSectionMemoryManager.
template <class Mapper = MemoryMapper, class Protect = ProtectAsMapped, frame_policy Frames = RegisterFrames>
class ContiguousSections {
 public:
  using mapper_type = Mapper;
  enum class State : std::uint8_t { empty, reserved, finalised, released };
  static constexpr Bytes limit = (Bytes{1} << 31) - 4096;  ///< below this every place reaches every other
  static constexpr Bytes alignment_limit = Bytes{1} << 30;

  explicit ContiguousSections(Mapper& mapper) noexcept : mapper_(&mapper) {}
  ContiguousSections(const ContiguousSections&) = delete;
  ContiguousSections& operator=(const ContiguousSections&) = delete;
  ~ContiguousSections() { release(); }

  [[nodiscard]] State state() const noexcept { return state_; }
  /// All the addresses that are reserved, guards too.
  [[nodiscard]] Block reservation() const noexcept { return {whole_.run, whole_.size}; }
  /// The pages of a kind.
  [[nodiscard]] CodeBlock segment(SectionKind kind) const noexcept { return segments_[index(kind)].pages; }
  [[nodiscard]] const FrameStatistics& frames() const noexcept { return frame_counts_; }
  /// How far the farther end of the reservation is from an address. Units: bytes.
  [[nodiscard]] Bytes distance(const void* address) const noexcept {
    const auto a = reinterpret_cast<std::intptr_t>(address), begin = reinterpret_cast<std::intptr_t>(whole_.run), end = begin + whole_.size;
    return std::max(end, a) - std::min(begin, a);
  }

  /// Reserves and commits room for sections of these totals; a kind of 0 bytes gets a page, for sections of size 0.
  ///
  /// Errors: wrong_state (reserved before); invalid_argument (a size or alignment, 2 GiB in all or more); the mapper's.
  /// On failure nothing stays mapped.
  [[nodiscard]] Error reserve(const SectionSizes& sizes, const ReserveOptions& options = {}) noexcept {
    if (state_ != State::empty) return make_error(Errc::wrong_state, "sections are reserved once");
    const Bytes page = mapper_->page_size(), guard = options.guards ? page : 0;
    SectionRequest wanted[] = {sizes.code, sizes.read_only, sizes.read_write};
    if (options.huge_pages) wanted[0].alignment = std::max(wanted[0].alignment, huge_page);
    Bytes begin[3] = {}, cursor = 0, base = page;
    for (std::size_t i = 0; i < 3; ++i) {
      SectionRequest& w = wanted[i];
      if (w.size < 0 || !is_power_of_two(w.alignment) || w.alignment > alignment_limit || w.size >= limit)
        return invalid(w.size);
      base = std::max(base, w.alignment);
      begin[i] = align_up(cursor + guard, std::max(page, w.alignment));
      segments_[i].pages.size = std::max(page, align_up(w.size, page));
      cursor = begin[i] + segments_[i].pages.size;
    }
    if (cursor + guard >= limit) return invalid(cursor + guard);
    Result<CodeBlock> whole = mapper_->reserve(cursor + guard, CodePlacement{Alignment(base), options.near});
    if (!whole.ok()) return whole.error();
    whole_ = *whole;
    for (std::size_t i = 0; i < 3; ++i) {
      Segment& s = segments_[i];
      s.pages = CodeBlock{nullptr, whole_.run + begin[i], s.pages.size};
      s.used = 0;
      if (Error e = mapper_->commit(s.pages, i == 0 ? Access::read_execute : Access::read_write); !e.ok()) {
        unmap();
        return e;
      }
    }
    if (options.huge_pages) mapper_->advise_huge(segments_[0].pages);
    state_ = State::reserved;
    return {};
  }

  /// Places a section; one of size 0 gets an address and takes no room.
  ///
  /// Errors: wrong_state; invalid_argument (size, alignment); over_budget (the kind's pages are full: wanted and left).
  [[nodiscard]] Result<Section> allocate(SectionKind kind, Bytes size, Bytes alignment, std::uint32_t id = 0,
                                         std::string_view name = {}) noexcept {
    if (state_ != State::reserved) return make_error(Errc::wrong_state, "sections are allocated between reserve and finalise");
    if (size < 0 || !is_power_of_two(alignment)) return invalid(size);
    Segment& s = segments_[index(kind)];
    const auto at = reinterpret_cast<std::uintptr_t>(s.pages.run + s.used), align = static_cast<std::uintptr_t>(alignment);
    const Bytes left = s.pages.size - s.used, skipped = static_cast<Bytes>((align - at % align) % align);
    const bool fits = skipped <= left && size <= left - skipped;
    if (!fits && !(size == 0 && alignment <= mapper_->page_size())) {
      constexpr const char* full[] = {"the code segment is full", "the read-only segment is full", "the read-write segment is full"};
      Error e = make_error(Errc::over_budget, full[index(kind)]);
      e.stage = Stage::allocation;
      e.requested = size;
      e.available = left;
      return e;
    }
    const Bytes offset = fits ? s.used + skipped : 0;  // an empty section of full pages: any aligned address does
    Section section{id, kind, {}, s.pages.write + offset, s.pages.run + offset, size, alignment};
    name.copy(section.name, std::min(name.size(), sizeof section.name - 1));
    if (!sections_.push_back(section)) return make_error(Errc::out_of_memory, "Out of memory allocating");
    if (size != 0) s.used = offset + size;
    return section;
  }

  /// Fills in a place of a section; nothing is written when the target is out of reach.
  ///
  /// Errors: wrong_state; invalid_argument (the place is not in the section, or `fixup_value`'s; `diagnosis` then says all).
  template <sink S = NullSink>
  [[nodiscard]] Error apply(const Section& section, Bytes offset, FixupKind kind, std::uint64_t target, std::string_view symbol = {},
                            S&& diagnosis = {}) noexcept {
    if (state_ != State::reserved) return make_error(Errc::wrong_state, "relocations are applied before finalise");
    if (offset < 0 || section.size - offset < fixup_size(kind))
      return make_error(Errc::invalid_argument, "a relocation lies outside its section");
    const auto site = kind == FixupKind::addr32nb ? reinterpret_cast<std::uint64_t>(whole_.run)
                                                  : reinterpret_cast<std::uint64_t>(section.run + offset);
    return apply_fixup(section.write + offset, Fixup{kind, site, target, section.name, symbol}, diagnosis);
  }

  /// Tells the unwinder of a call frame section, which is readable and relocated by now.
  ///
  /// Errors: wrong_state; invalid_argument (not in the reservation, no end); already_exists (counted); out_of_memory.
  [[nodiscard]] Error register_frames(std::byte* run, Bytes size) noexcept {
    if (state_ != State::reserved && state_ != State::finalised) return make_error(Errc::wrong_state, "no memory for call frames");
    // Beyond the reservation's bytes nothing is read.
    if (run < whole_.run || size < 0 || size > whole_.size || run - whole_.run > whole_.size - size)
      return make_error(Errc::invalid_argument, "the call frames do not lie in the sections");
    if (std::find(frames_.begin(), frames_.end(), run) != frames_.end()) {
      ++frame_counts_.twice;
      return make_error(Errc::already_exists, "the call frames are registered already");
    }
    if (Error e = check_frames(run, size); !e.ok()) return e;
    if (!frames_.push_back(run)) return make_error(Errc::out_of_memory, "Out of memory allocating");
    Frames::add(run);
    ++frame_counts_.registered;
    return {};
  }
  /// Takes all call frames back, the last one first.
  void deregister_frames() noexcept {
    for (; !frames_.empty(); frames_.pop_back()) Frames::remove(frames_.back());
  }

  /// Gives every kind its protection: afterwards code runs and is never written again.
  ///
  /// On failure nothing is executable and all is writable as before. Errors: wrong_state; the mapper's.
  [[nodiscard]] Error finalise() noexcept {
    if (state_ != State::reserved) return make_error(Errc::wrong_state, "sections are finalised once, after they were reserved");
    const CodeBlock& read_only = segments_[1].pages;
    Error e = mapper_->protect(read_only, Access::read);
    if (e.ok()) e = mapper_->seal(segments_[0].pages);
    if (!e.ok()) {
      static_cast<void>(mapper_->protect(read_only, Access::read_write));
      return e;
    }
    Protect::finish(*mapper_, segments_[0].pages, read_only);
    state_ = State::finalised;
    return {};
  }

  /// Takes the call frames back, then unmaps all; the sections are gone. Does nothing a second time.
  void release() noexcept {
    if (state_ != State::reserved && state_ != State::finalised) return;
    frame_counts_.leftover += static_cast<std::int64_t>(frames_.size());
    deregister_frames();
    unmap();
    sections_.clear();
    state_ = State::released;
  }

  /// Shows the sections in the order of their allocation: for perf, debuggers and reports.
  template <class Visitor>
  void visit_sections(Visitor visitor) const noexcept {
    for (const Section& s : sections_) visitor(s);
  }

 private:
  static constexpr Bytes huge_page = Bytes{1} << 21;
  struct Segment {
    CodeBlock pages;
    Bytes used = 0;
  };
  [[nodiscard]] static constexpr std::size_t index(SectionKind kind) noexcept { return static_cast<std::size_t>(kind); }
  [[nodiscard]] HOLDFAST_COLD static Error invalid(Bytes size) noexcept {
    Error e = make_error(Errc::invalid_argument, "sections need a size below 2 GiB in all and alignments that are powers of two, at most 1 GiB");
    e.stage = Stage::allocation;
    e.requested = size;
    return e;
  }
  void unmap() noexcept {
    for (Segment& s : segments_) {
      mapper_->drop_write_view(s.pages);
      s = Segment{};
    }
    mapper_->release(whole_);
  }

  Mapper* mapper_;
  CodeBlock whole_;
  Segment segments_[3];
  State state_ = State::empty;
  FrameStatistics frame_counts_;
  detail::RecordList<Section> sections_;
  detail::RecordList<std::byte*> frames_;
};

}  // namespace holdfast
