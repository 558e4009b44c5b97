// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "holdfast/concepts/clock.hpp"
#include "holdfast/concepts/lock.hpp"
#include "holdfast/concepts/memory_backend.hpp"
#include "holdfast/concepts/observer.hpp"
#include "holdfast/concepts/sink.hpp"
#include "holdfast/core/hash.hpp"
#include "holdfast/core/hash_table.hpp"
#include "holdfast/trace/stack_source.hpp"

namespace holdfast {

/// What is known of a block: of a live one, and for a while of one that was released.
struct LiveBlock {
  Block block;
  Tag tag;
  std::uint64_t allocated = 0;  ///< number of its allocation among the events, from 1
  std::uint64_t released = 0;   ///< number of its release; 0: it lives
  std::int64_t time = 0;        ///< Units: nanoseconds of the set's clock, some milliseconds late
  std::uint32_t thread = 0;     ///< the low half of its thread's slot
  std::uint32_t step = 0;
  StackId stack = no_id<StackId>;

  [[nodiscard]] bool is_used() const noexcept { return block.data != nullptr; }
  [[nodiscard]] bool is_same(const LiveBlock& other) const noexcept {
    return block.data == other.block.data;
  }
  [[nodiscard]] std::uint64_t hash() const noexcept {
    return mix_hash(0, reinterpret_cast<std::uintptr_t>(block.data));
  }
};

/// What was wrong with an event, with what was known of the block.
struct LiveFault {
  enum class Kind : std::uint8_t { double_release, foreign, size_mismatch, twice_live };
  Kind kind = Kind::foreign;
  std::uint64_t event = 0;
  Block given;
  LiveBlock known;  ///< foreign: nothing
};

/// How many blocks live, and what was wrong so far.
struct LiveFigures {
  Bytes bytes = 0;  ///< recorded ones
  std::int64_t blocks = 0;
  std::uint64_t events = 0;
  std::array<std::uint64_t, 4> faults{};  ///< by `LiveFault::Kind`
  std::uint64_t unrecorded = 0;           ///< allocations that found no memory for their record
  double estimated_bytes = 0;             ///< with sampling: unbiased; else as `bytes`
  double estimated_blocks = 0;
};

/// How a live set behaves.
struct LiveSetOptions {
  Bytes sample_mean = 0;   ///< on average one record in so many bytes; 0: every block is recorded
  std::uint64_t seed = 1;  ///< of the sampling
};

/// An observer that knows every live block: finds leaks, double releases, foreign pointers.
///
/// A released block is remembered until its address is used again, or until an eighth of the
/// table's capacity in events has passed. Memory comes from a backend that the set does not itself
/// observe; where that has no more, blocks go unrecorded and are counted, and then an unknown
/// pointer is no longer called foreign; nor is it with sampling. `Stacks` is asked for each block
/// that is recorded. Threads: any, one at a time behind `Lock`. Cost: one look-up; below 50 ns
/// without stacks where the table stays in the cache.
template <memory_backend Backend, lock Lock = WordLock, clock Clock = MonotonicClock,
          stack_source Stacks = NoStacks>
class LiveSet {
  static_assert(host_accessible<Backend>, "the host reads and writes what a table holds");

 public:
  explicit LiveSet(Backend backend, LiveSetOptions options = {}, Clock clock = {},
                   Stacks stacks = {}) noexcept
      : table_(std::move(backend)),
        clock_(clock),
        stacks_(stacks),
        sample_mean_(options.sample_mean),
        random_(options.seed) {
    if (sample_mean_ > 0) until_sample_ = draw();
  }
  LiveSet(const LiveSet&) = delete;
  LiveSet& operator=(const LiveSet&) = delete;

  void on_allocate(Block block, Tag tag) noexcept { static_cast<void>(add(block, tag)); }
  void on_deallocate(Block block) noexcept { static_cast<void>(remove(block)); }
  void on_hold(HoldKind, int) noexcept {}
  void on_failure(const Error&) noexcept {}

  /// Notes that a block was allocated; the empty block is none.
  ///
  /// Errors: already_exists (the address is live: it was handed out twice; the newer one is kept),
  /// out_of_memory (unrecorded).
  Error add(Block block, Tag tag = {}, StackId stack = no_id<StackId>) noexcept {
    if (block.data == nullptr) return {};
    LiveBlock b{
        block, tag,  0, 0, clock_.coarse_now(), static_cast<std::uint32_t>(StdSync::thread_slot()),
        0,     stack};
    const LockGuard guard(lock_);
    b.allocated = ++events_;
    b.step = step_;
    if (sample_mean_ > 0 && !is_sampled(block.size)) {
      // What stood here was released unseen, or is of a block released before.
      if (LiveBlock* const old = table_.find(b); old != nullptr) forget(old);
      return {};
    }
    if (stack == no_id<StackId>) b.stack = stacks_.take();
    Error e;
    LiveBlock* place = table_.find(b);
    if (place != nullptr && place->released == 0) {
      e = fault(LiveFault::Kind::twice_live, block, *place);
      count(*place, -1);
    }
    if (place != nullptr) {
      *place = b;
    } else if (!insert(b)) {
      ++unrecorded_;
      e = make_error(Errc::out_of_memory, "no memory for the record of a block");
      e.requested = static_cast<Bytes>(sizeof(LiveBlock));
      return e;
    }
    count(b, 1);
    return e;
  }

  /// Notes that a block is being released, before its memory can be handed out again.
  ///
  /// A size of 0 says that the caller does not know it. `known` takes what is known of the block,
  /// also when the call fails. Errors: wrong_state (released before), invalid_argument (not from
  /// here, or another size than it was allocated with: it is taken out all the same).
  Error remove(Block block, LiveBlock* known = nullptr) noexcept {
    if (known != nullptr) *known = {};
    if (block.data == nullptr) return {};
    const LockGuard guard(lock_);
    ++events_;
    LiveBlock* const place = table_.find({block, {}, 0, 0, 0, 0, 0, {}});
    if (place == nullptr)
      return sample_mean_ > 0 || unrecorded_ != 0 ? Error{}
                                                  : fault(LiveFault::Kind::foreign, block, {});
    if (known != nullptr) *known = *place;
    if (place->released != 0)
      return sample_mean_ > 0 ? Error{} : fault(LiveFault::Kind::double_release, block, *place);
    const bool matches = block.size == 0 || block.size == place->block.size;
    const Error e = matches ? Error{} : fault(LiveFault::Kind::size_mismatch, block, *place);
    place->released = events_;
    count(*place, -1);
    if (known != nullptr) *known = *place;
    return e;
  }

  /// Sets the step of the blocks that follow. Units: the caller's, such as training steps.
  void set_step(std::uint32_t step) noexcept {
    const LockGuard guard(lock_);
    step_ = step;
  }
  [[nodiscard]] std::uint32_t step() const noexcept {
    const LockGuard guard(lock_);
    return step_;
  }

  [[nodiscard]] LiveFigures figures() const noexcept {
    const LockGuard guard(lock_);
    return {bytes_, blocks_, events_, faults_, unrecorded_, estimated_bytes_, estimated_blocks_};
  }
  /// How many blocks one record of this size stands for: 1 without sampling.
  [[nodiscard]] double weight(Bytes size) const noexcept {
    if (sample_mean_ <= 0 || size <= 0) return 1;
    return -1 / std::expm1(-static_cast<double>(size) / static_cast<double>(sample_mean_));
  }
  /// Calls `visitor(const LiveBlock&)` for the live ones, in no order; it must not use the set.
  template <class Visitor>
  void visit(Visitor&& visitor) const noexcept {
    const LockGuard guard(lock_);
    table_.visit([&](const LiveBlock& b) {
      if (b.released == 0) visitor(b);
    });
  }
  /// Calls `visitor(const LiveFault&)` for the last faults, oldest first; it must not use the set.
  template <class Visitor>
  void visit_faults(Visitor&& visitor) const noexcept {
    const LockGuard guard(lock_);
    const std::uint64_t all = faults_[0] + faults_[1] + faults_[2] + faults_[3];
    for (std::uint64_t n = all < last_.size() ? 0 : all - last_.size(); n < all; ++n)
      visitor(std::as_const(last_[n % last_.size()]));
  }

 private:
  void count(const LiveBlock& b, int sign) noexcept {
    bytes_ += sign * b.block.size;
    blocks_ += sign;
    const double w = sign * weight(b.block.size);
    estimated_blocks_ += w;
    estimated_bytes_ += w * static_cast<double>(b.block.size);
  }
  void forget(LiveBlock* place) noexcept {
    if (place->released == 0) count(*place, -1);
    table_.erase(place);
  }

  HOLDFAST_COLD Error fault(LiveFault::Kind kind, Block given, const LiveBlock& known) noexcept {
    static constexpr struct {
      Errc code;
      const char* what;
    } texts[] = {{Errc::wrong_state, "a block is released twice"},
                 {Errc::invalid_argument, "a block is released that was not allocated here"},
                 {Errc::invalid_argument, "a block is released with another size than it has"},
                 {Errc::already_exists, "a block is allocated that is live"}};
    const auto k = static_cast<std::size_t>(kind);
    std::uint64_t all = 0;
    for (const std::uint64_t n : faults_) all += n;
    last_[all % last_.size()] = {kind, events_, given, known};
    ++faults_[k];
    Error e = make_error(texts[k].code, texts[k].what);
    e.requested = given.size;
    if (kind != LiveFault::Kind::foreign) e.available = known.block.size;
    return e;
  }

  /// Before the table doubles, blocks that were released long ago make room; where it cannot, all
  /// released ones do.
  [[nodiscard]] bool insert(const LiveBlock& b) noexcept {
    const std::size_t capacity = table_.capacity();
    if (table_.count() * 4 >= capacity * 3 && events_ >= next_growth_) {
      const std::uint64_t oldest = events_ < capacity / 8 ? 0 : events_ - capacity / 8;
      table_.erase_if(
          [&](const LiveBlock& old) { return old.released != 0 && old.released < oldest; });
      if (table_.count() * 2 >= capacity) static_cast<void>(table_.grow());
      next_growth_ = events_ + capacity / 8;
    }
    if (table_.insert(b) != nullptr) return true;
    if (table_.count() == static_cast<std::size_t>(blocks_)) return false;
    table_.erase_if([](const LiveBlock& old) { return old.released != 0; });
    return table_.insert(b) != nullptr;
  }

  /// Bytes until the next record: the gaps of a Poisson process along all bytes allocated.
  [[nodiscard]] double draw() noexcept {
    random_ += 0x9E3779B97F4A7C15u;
    const std::uint64_t bits = mix_hash(random_, 0x5851F42D4C957F2Du) >> 11;
    return -std::log((static_cast<double>(bits) + 0.5) * 0x1p-53) *
           static_cast<double>(sample_mean_);
  }
  [[nodiscard]] bool is_sampled(Bytes size) noexcept {
    until_sample_ -= static_cast<double>(size);
    if (until_sample_ > 0) return false;
    until_sample_ = draw();
    return true;
  }

  mutable Lock lock_;
  HashTable<LiveBlock, Backend> table_;
  HOLDFAST_NO_UNIQUE_ADDRESS Clock clock_;
  HOLDFAST_NO_UNIQUE_ADDRESS Stacks stacks_;
  std::uint64_t events_ = 0;
  Bytes bytes_ = 0;
  std::int64_t blocks_ = 0;
  double estimated_bytes_ = 0, estimated_blocks_ = 0;
  std::array<std::uint64_t, 4> faults_{};
  std::uint64_t unrecorded_ = 0;
  std::uint64_t next_growth_ = 0;
  std::uint32_t step_ = 0;
  Bytes sample_mean_;
  std::uint64_t random_;
  double until_sample_ = 0;
  std::array<LiveFault, 8> last_{};
};
static_assert(observer<LiveSet<EmptyMemory>>);

}  // namespace holdfast
