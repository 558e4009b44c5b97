// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "holdfast/backend/bfc/detail/core.hpp"
#include "holdfast/backend/bfc/detail/stream_marks.hpp"

namespace holdfast::detail {

/// The core of a pool in the order of streams: what a stream asks for is taken from what it comes after, or has it wait.
///
/// Threads: one at a time. Calls of events and streams are made while the tables are whole: they may free blocks here.
template <memory_backend Upstream, class Event, class Fit, class Split, class Growth, memory_backend Meta>
class BfcStreamCore : public BfcCore<Upstream, Fit, Split, Growth, Meta, BfcStreamStamps> {
  static_assert(!Growth::two_ended, "a pool in the order of streams has one end");
  using Base = BfcCore<Upstream, Fit, Split, Growth, Meta, BfcStreamStamps>;
  using Stamps = BfcStreamStamps;
  using Slot = BfcStreamSlot<Event>;

 public:
  using Stream = typename Event::stream_type;

  BfcStreamCore(Upstream upstream, const BfcStreamOptions& options, Split split, Growth growth, Meta meta) noexcept
      : Base(upstream, options.pool, split, growth, meta), marks_(options.marks), grow_first_(options.grow_before_waiting) {}
  /// Makes the first tables; false: no memory.
  [[nodiscard]] bool open() noexcept { return reserve_slots(first_slots); }
  /// Waits on the host for all that was freed, then gives all back.
  void give_back() noexcept {
    for (std::uint32_t s = first_slot; s < slot_end_; ++s)
      if (const std::uint32_t c = queue(s).newest; c != 0 && !wait(chunks()[c].freed_at, {}).ok() && slots_[s].attached)
        static_cast<void>(stream_wait<Event>(slots_[s].stream));
    Base::give_back();
    for (std::uint32_t s = 0; s < slots_.capacity(); ++s) {
      slots_[s].marks.release(this->meta_);
      slots_[s].waits.release(this->meta_);
    }
    slots_.release(this->meta_);
    stamps().release(this->meta_);
  }
  void close() noexcept { bfc_delete(this); }

  /// For a stream, or, with none, for the host and thereby all streams.
  Result<Block> allocate(const Stream* stream, Bytes size, Alignment alignment, Tag tag) noexcept {
    const Asker asker{stream, stream != nullptr ? enter(*stream) : 0};
    if (asker.slot == 0) stamps().shared = true;
    return this->serve(
        size, alignment, BfcEnd::lower, tag, bfc_any_time,
        [this, asker](const BfcRequest& wanted) noexcept {
          if (dirty_) [[unlikely]] settle();
          const std::uint32_t c = search(wanted, this->space_.split().largest(wanted.rounded), asker, skips_limit).usable;
          return c != 0 ? this->space_.take(c, wanted) : 0;
        },
        [this, asker](const BfcRequest& wanted, Errc& why) noexcept { return place_hard(wanted, asker, why); },
        [this](const BfcRequest& wanted, Errc why) noexcept { return failure_.ok() ? this->fail(wanted, why) : failure_; });
  }
  Error deallocate(const Stream* stream, Block block) noexcept {
    if (block.data == nullptr) return {};
    this->now_ = stream != nullptr ? mark_free(*stream) : 0;
    const Error e = Base::deallocate(block);
    this->now_ = 0;
    return e;
  }
  /// Forgets a stream, which may be destroyed then. Errors: what marking and waiting for it gave; it must not be destroyed yet.
  Error retire(const Stream& stream) noexcept {
    const std::uint32_t s = find(stream);
    if (s == 0) return {};
    if (Error e = mark_pending(s); !e.ok()) {
      if (!stream_wait<Event>(stream).ok()) return e;
      raise(s, slots_[s].frees);
    }
    slots_[s].attached = false;
    slots_[s].stream = Stream{};
    return {};
  }
  Bytes trim(Bytes keep) noexcept {
    if (marks_ == StreamMarks::on_demand)
      for (std::uint32_t s = first_slot; s < slot_end_; ++s) static_cast<void>(mark_pending(s));
    static_cast<void>(look());
    return Base::trim(keep);
  }
  [[nodiscard]] BfcStreamStatistics stream_statistics() const noexcept {
    BfcStreamStatistics s = figures_;
    this->visit([&](std::uint32_t, const BfcChunk& c) {
      if (!c.used() && Stamps::slot(c.freed_at) == Stamps::nobody) s.stranded += c.size;
    });
    return s;
  }

 private:
  static constexpr std::uint32_t first_slot = Stamps::nobody + 1, first_slots = 8;
  static constexpr std::uint32_t skips_limit = 64;  // chunks that others may use which a search passes by, unless the pool would grow
  static constexpr int polls_limit = 2;

  // Who asks: a stream and its slot, 0 if it has none; without a stream the host.
  struct Asker {
    const Stream* stream = nullptr;
    std::uint32_t slot = 0;
  };
  struct Found {
    std::uint32_t usable = 0, waitable = 0;
  };
  struct Run {
    std::uint32_t first = 0;
    Bytes size = 0;
  };

  [[nodiscard]] BfcChunks& chunks() noexcept { return Base::chunks(); }
  [[nodiscard]] Stamps& stamps() noexcept { return this->space_.stamps(); }
  [[nodiscard]] BfcQueue& queue(std::uint32_t slot) noexcept { return stamps().queue(Stamps::make(slot, 0)); }

  // --- streams ---

  [[nodiscard]] bool reserve_slots(std::uint32_t count) noexcept {
    return stamps().reserve(this->meta_, count) && slots_.reserve(this->meta_, count);
  }
  [[nodiscard]] std::uint32_t find(const Stream& stream) const noexcept {
    for (std::uint32_t s = first_slot; s < slot_end_; ++s)
      if (slots_[s].attached && slots_[s].stream == stream) return s;
    return 0;
  }
  // The slot of a stream; 0: there is none to be had.
  [[nodiscard]] std::uint32_t enter(const Stream& stream) noexcept {
    if (slots_[last_].attached && slots_[last_].stream == stream) [[likely]] return last_;
    const std::uint32_t s = find(stream);
    if (s != 0) return last_ = s;
    return enter_anew(stream);
  }
  [[nodiscard]] HOLDFAST_COLD std::uint32_t enter_anew(const Stream& stream) noexcept {
    std::uint32_t s = idle_slot(false);
    if (s == 0 && slot_end_ == std::min(slots_.capacity(), Stamps::slots_limit)) {
      static_cast<void>(look());
      s = idle_slot(true);
    }
    if (s == 0) {
      if (slot_end_ == Stamps::slots_limit || !reserve_slots(std::min(slot_end_ + 1, Stamps::slots_limit))) return 0;
      s = slot_end_++;
    }
    if (s != first_slot || slots_[s].frees != 0) stamps().shared = true;
    for (std::uint32_t i = 0; i < slots_[s].waits.capacity(); ++i) slots_[s].waits[i] = 0;
    slots_[s].stream = stream;
    slots_[s].attached = true;
    return last_ = s;
  }
  [[nodiscard]] std::uint32_t idle_slot(bool attached) noexcept {
    for (std::uint32_t s = first_slot; s < slot_end_; ++s)
      if (slots_[s].attached <= attached && queue(s).oldest == 0) return s;
    return 0;
  }

  // --- marks ---

  // The stamp of what a stream frees now.
  [[nodiscard]] std::uint64_t mark_free(const Stream& stream) noexcept {
    const std::uint32_t s = enter(stream);
    if (s == 0) [[unlikely]] {
      if (stream_wait<Event>(stream).ok()) return 0;
      stamps().shared = true;
      return Stamps::make(Stamps::nobody, 1);
    }
    const std::uint64_t number = ++slots_[s].frees;
    if (marks_ == StreamMarks::each_free && !record(s).ok()) [[unlikely]] {
      if (stream_wait<Event>(stream).ok()) return raise(s, number), 0;
      stamps().shared = true;  // kept for this stream until a later mark of it
    }
    return Stamps::make(s, number);
  }
  // Marks all that the stream of a slot has freed.
  [[nodiscard]] Error record(std::uint32_t s) noexcept {
    Slot& slot = slots_[s];
    const auto carried = [&, c = queue(s).oldest]() mutable noexcept {
      return c == 0 ? std::uint64_t{0} : Stamps::number(chunks()[std::exchange(c, chunks()[c].queue.newer)].freed_at);
    };
    if (!slot.marks.reserve(this->meta_, carried)) return make_error(Errc::out_of_memory, "no memory for a pool's marks");
    Event e{};
    if (Error failure = e.record(slot.stream); !failure.ok()) return failure;
    slot.marks.push(slot.frees, std::move(e));
    ++figures_.marks;
    return {};
  }
  // Marks what is free and carried by no mark yet, of a stream that is known to live.
  [[nodiscard]] Error mark_pending(std::uint32_t s) noexcept {
    if (!slots_[s].attached) return {};
    const std::uint32_t c = queue(s).newest;
    return c == 0 || slots_[s].marks.find(Stamps::number(chunks()[c].freed_at)) != nullptr ? Error{} : record(s);
  }
  // The host has seen all that the stream freed up to a number.
  void raise(std::uint32_t s, std::uint64_t number) noexcept {
    if (slots_[s].done < number) slots_[s].done = number, dirty_ = true;
  }
  void note_wait(std::uint32_t waiter, std::uint32_t s, std::uint64_t number) noexcept {
    BfcArray<std::uint64_t>& row = slots_[waiter].waits;
    if (waiter != 0 && row.reserve(this->meta_, s + 1)) row[s] = std::max(row[s], number);  // else it waits once more
  }
  void settle() noexcept {
    dirty_ = false;
    for (std::uint32_t s = first_slot; s < slot_end_; ++s) this->space_.set_safe_frontier(Stamps::make(s, slots_[s].done + 1));
  }
  // Asks for the marks that chunks carry, the oldest of each stream first; true where something became safe.
  bool look() noexcept {
    for (std::uint32_t s = first_slot; s < slot_end_; ++s) {
      BfcMarks<Event>& marks = slots_[s].marks;
      const std::uint32_t c = queue(s).oldest;
      const std::uint64_t needed = c == 0 ? ~std::uint64_t{0} : Stamps::number(chunks()[c].freed_at);
      while (auto* const m = marks.front()) {
        if (m->number >= needed) {
          if (mark_passed(m->event))
            raise(s, m->number);
          else if (!m->event.ready() || marks.find(m->number + 1) == nullptr)
            break;  // one that failed leaves its frees to the next
        }
        marks.pop();
      }
    }
    const bool changed = dirty_;
    if (changed) settle();
    return changed;
  }

  [[nodiscard]] bool usable(std::uint64_t stamp, const Asker& asker) const noexcept {
    const std::uint32_t s = Stamps::slot(stamp);
    if (stamp == 0 || s == asker.slot) return true;
    const std::uint64_t number = Stamps::number(stamp);
    const BfcArray<std::uint64_t>& row = slots_[asker.slot].waits;
    return number <= slots_[s].done || (s < row.capacity() && row[s] >= number);
  }
  // The same, asking the mark.
  [[nodiscard]] bool usable_now(std::uint64_t stamp, const Asker& asker) noexcept {
    const std::uint32_t s = Stamps::slot(stamp);
    auto* const m = slots_[s].marks.find(Stamps::number(stamp));
    if (m == nullptr) return false;
    if constexpr (requires(const Stream& t) { { m->event.is_defined_on(t) } -> std::same_as<bool>; })
      if (asker.stream != nullptr && m->event.is_defined_on(*asker.stream)) return note_wait(asker.slot, s, m->number), true;
    if (!mark_passed(m->event)) return false;
    raise(s, m->number);
    return true;
  }
  [[nodiscard]] bool waitable(std::uint64_t stamp) const noexcept {
    const Slot& slot = slots_[Stamps::slot(stamp)];
    return (marks_ == StreamMarks::on_demand && slot.attached) || slot.marks.find(Stamps::number(stamp)) != nullptr;
  }
  // Has the asker come after a free. Errors: those of marking and waiting; nothing is changed but what others wait for.
  [[nodiscard]] Error wait(std::uint64_t stamp, const Asker& asker) noexcept {
    if (usable(stamp, asker)) return {};
    const std::uint32_t s = Stamps::slot(stamp);
    Slot& slot = slots_[s];
    auto* m = slot.marks.find(Stamps::number(stamp));
    if (m == nullptr) {
      if (!waitable(stamp)) return make_error(Errc::wrong_state, "no mark tells when a block is free");
      if (Error e = record(s); !e.ok()) {
        if (!stream_wait<Event>(slot.stream).ok()) return e;
        return raise(s, slot.frees), Error{};
      }
      m = slot.marks.find(Stamps::number(stamp));
    }
    const std::uint64_t number = m->number;
    if (asker.stream == nullptr) {
      ++figures_.host_waits;
      if (Error e = mark_wait(m->event); !e.ok()) return e;
      return raise(s, number), Error{};
    }
    Stream to = *asker.stream;
    if (Error e = m->event.wait_on(to); !e.ok()) return e;
    ++figures_.waits;
    note_wait(asker.slot, s, number);
    return {};
  }

  // --- places ---

  // The first chunk that the asker may use, and the first that it has to wait for.
  [[nodiscard]] Found search(const BfcRequest& wanted, Bytes most, const Asker& asker, std::uint32_t limit = ~0u) noexcept {
    Found found;
    std::uint32_t skipped = 0;
    int polls = polls_limit;
    const std::uint32_t c = this->space_.find(wanted, most, [&](const BfcChunk& x) noexcept {
      if (!wanted.fits(x)) return false;
      if (usable(x.freed_at, asker) || (polls-- > 0 && usable_now(x.freed_at, asker))) return true;
      if (found.waitable == 0 && waitable(x.freed_at)) found.waitable = static_cast<std::uint32_t>(&x - chunks().all());
      return ++skipped == limit;
    });
    if (skipped != limit) found.usable = c;
    return found;
  }
  // The smallest run of free chunks, at least one of them stamped, for all of which `ok(stamp)` holds, that holds the request.
  // What holds for a stamp has to hold for those before it, of that stream. Cost: linear in the chunks for which it holds.
  template <class Ok>
  [[nodiscard]] Run find_run(const BfcRequest& wanted, Ok ok) noexcept {
    Run best;
    const auto joins = [&](std::uint32_t c) noexcept { return c != 0 && !chunks()[c].used() && ok(chunks()[c].freed_at); };
    for (std::uint32_t s = first_slot; s < slot_end_; ++s)
      for (std::uint32_t c = queue(s).oldest; c != 0; c = chunks()[c].queue.newer) {
        if (!ok(chunks()[c].freed_at)) break;
        Run run{c, 0};
        // Of two neighbours one is stamped: from the leftmost stamped one the run is followed once.
        if (const std::uint32_t p = chunks()[c].prev; joins(p)) {
          if (chunks()[p].freed_at != 0 || joins(chunks()[p].prev)) continue;
          run.first = p;
        }
        for (std::uint32_t i = run.first; joins(i); i = chunks()[i].next) run.size += chunks()[i].size;
        if (wanted.fits(chunks()[run.first].data, run.size) && (best.first == 0 || run.size < best.size)) best = run;
        if (best.size == wanted.rounded) return best;
      }
    return best;
  }
  // Takes the request from the beginning of a run, after waits for what it takes of it; 0: a wait failed.
  [[nodiscard]] std::uint32_t take_run(const Run& run, const BfcRequest& wanted, const Asker& asker) noexcept {
    std::byte* const begin = chunks()[run.first].data;
    std::byte* const at = begin + ((0 - bfc_address(begin)) & (wanted.alignment - 1));
    std::byte* stop = at + wanted.rounded;
    std::uint32_t first = run.first;
    while (chunks()[first].end() <= at) first = chunks()[first].next;
    std::uint32_t last = first;
    for (;; last = chunks()[last].next) {
      if (Error e = wait(chunks()[last].freed_at, asker); !e.ok()) return failure_ = e, 0;
      if (chunks()[last].end() >= stop) break;
    }
    if (!this->space_.split().cuts(chunks()[last].end() - at, wanted.rounded, BfcEnd::lower)) stop = chunks()[last].end();
    if (first == last) return this->space_.place_at(first, at, stop - at);
    ++figures_.joins;
    return this->space_.place_over(first, at, stop - at);
  }
  // Takes a chunk after a wait, or, where there is none (0), a run of anybody's; 0: there is none, or a wait failed.
  [[nodiscard]] std::uint32_t take_waiting(std::uint32_t c, const BfcRequest& wanted, const Asker& asker) noexcept {
    if (c != 0) {
      if (Error e = wait(chunks()[c].freed_at, asker); !e.ok()) return failure_ = e, 0;
      return this->space_.take(c, wanted);
    }
    const Run run = find_run(wanted, [&](std::uint64_t stamp) noexcept { return usable(stamp, asker) || waitable(stamp); });
    return run.first != 0 ? take_run(run, wanted, asker) : 0;
  }

  // What is tried when the asker may use no chunk that fits: what has passed by now, its own in pieces, then, in an order that is
  // an option, waits for other streams and growth; at last idle regions are given back, once the host has seen the end of their
  // use. The host, which would block, waits for streams only when the pool cannot grow.
  [[nodiscard]] HOLDFAST_COLD std::uint32_t place_hard(const BfcRequest& wanted, Asker asker, Errc& why) noexcept {
    failure_ = {};
    const Bytes most = this->space_.split().largest(wanted.rounded);
    static_cast<void>(look());
    Found found = search(wanted, most, asker, skips_limit);
    if (found.usable != 0) return this->space_.take(found.usable, wanted);
    const Run own = find_run(wanted, [&](std::uint64_t stamp) noexcept { return usable(stamp, asker); });
    if (own.first != 0) return take_run(own, wanted, asker);
    std::uint32_t c = 0;
    if (asker.stream != nullptr && !grow_first_ && (c = take_waiting(found.waitable, wanted, asker)) != 0) return c;
    if ((c = search(wanted, most, asker).usable) != 0) return this->space_.take(c, wanted);
    static_cast<void>(grow(wanted, asker, why));
    for (const Bytes limit : {most, max_bytes}) {
      found = search(wanted, limit, asker);
      if (found.usable != 0) return this->space_.take(found.usable, wanted);
    }
    if ((c = take_waiting(found.waitable, wanted, asker)) != 0) return c;
    if (!this->options_.garbage_collection || saturating_add(this->room(), this->idle_bytes()) < wanted.rounded) return 0;
    bool given = false;
    for (std::uint32_t r = this->region_count_; r-- > 0;)
      if (this->unused(r) && passed(r)) given = true, this->release_region(r);
    settle();
    if (!given || !grow(wanted, asker, why)) return 0;
    found = search(wanted, max_bytes, asker);
    return found.usable != 0 ? this->space_.take(found.usable, wanted) : 0;
  }
  // What the upstream runs may free here on a new stream, which takes the slot of any that no chunk carries: the asker's, too.
  [[nodiscard]] bool grow(const BfcRequest& wanted, Asker& asker, Errc& why) noexcept {
    const bool grown = this->extend(wanted, why);
    if (asker.stream != nullptr) asker.slot = enter(*asker.stream);
    if (grown) failure_ = {};
    return grown;
  }
  // Waits on the host for all that was freed in a region.
  [[nodiscard]] bool passed(std::uint32_t r) noexcept {
    for (std::uint32_t c = this->first(r); c != 0; c = chunks()[c].next) {
      const std::uint64_t stamp = chunks()[c].freed_at;
      if (!usable(stamp, {}) && !waitable(stamp)) return false;
      if (Error e = wait(stamp, {}); !e.ok()) return failure_ = e, false;
    }
    return true;
  }

  const StreamMarks marks_;
  const bool grow_first_;
  bool dirty_ = false;  // a stream's `done` is ahead of its chunks
  std::uint32_t slot_end_ = first_slot, last_ = 0;
  BfcObjects<Slot> slots_;
  BfcStreamStatistics figures_;
  Error failure_;  // of the last request that was not simple
};

}  // namespace holdfast::detail
