// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "holdfast/concepts/memory_backend.hpp"
#include "holdfast/core/byte_pattern.hpp"
#include "holdfast/trace/fragmentation.hpp"
#include "holdfast/trace/memory_log.hpp"

namespace holdfast {

/// How a log is replayed.
struct ReplayOptions {
  Alignment alignment{64};  ///< of every block
  bool verify = true;  ///< writes each block and tests it before its release, where the host can
  PatternCheck check = PatternCheck::full;  ///< which bytes of it
  std::size_t samples = 64;                 ///< of `ReplayReport::samples`, evenly over the events
};

/// What a backend held after an event.
struct ReplaySample {
  std::size_t event = 0;
  Bytes live = 0;
  Bytes reserved = 0;
  Bytes free = 0;
  Bytes largest_free = 0;

  [[nodiscard]] double external_fragmentation() const noexcept {
    return holdfast::external_fragmentation(largest_free, free);
  }
};

/// What a replay did, and where it stopped.
struct ReplayReport {
  Error error;             ///< of the first event that failed; ok when all went well
  std::size_t failed = 0;  ///< index of that event; the log's count of events where it is ok or
                           ///< came after all of them
  std::size_t overwritten =
      0;  ///< the allocation of the block that was, where a pattern is not what it was
  std::size_t events = 0;  ///< carried out
  std::int64_t allocations = 0;
  std::int64_t verified = 0;           ///< blocks that were tested
  std::int64_t recorded_failures = 0;  ///< allocations that failed when the log was made; not tried
  Bytes allocated = 0;                 ///< all allocations together
  Bytes peak_live = 0;
  std::int64_t peak_blocks = 0;
  Bytes left = 0;                        ///< live after the last event
  std::vector<std::size_t> left_events;  ///< their allocations
  Bytes peak_reserved = -1;              ///< -1: the backend does not show it
  bool peak_is_exact = false;            ///< the backend keeps it; else it is the largest sample
  std::vector<ReplaySample> samples;     ///< none where the backend shows nothing
};

namespace detail {

/// A backend that keeps figures of what it holds; address space that nothing backs is not among it.
template <class B>
concept keeps_reserved = requires(B& b) {
  { b.statistics().reserved }
  noexcept->std::convertible_to<Bytes>;
  { b.statistics().peak_reserved }
  noexcept->std::convertible_to<Bytes>;
  { b.statistics().free }
  noexcept->std::convertible_to<Bytes>;
  { b.statistics().largest_free }
  noexcept->std::convertible_to<Bytes>;
};

/// One replay of a log.
template <memory_backend Backend>
class Replayer {
 public:
  Replayer(const MemoryLog& log, Backend& backend, const ReplayOptions& options)
      : log_(log), backend_(backend), options_(options), blocks_(log.block_count) {
    stride_ =
        options.samples == 0
            ? 0
            : std::max<std::size_t>(1, (log.events.size() + options.samples - 1) / options.samples);
    report_.failed = log.events.size();
  }

  template <class OnEvent>
  ReplayReport run(OnEvent&& on_event) {
    for (std::size_t i = 0; i < log_.events.size() && report_.error.ok(); ++i) {
      on_event(i);
      report_.error = step(i, log_.events[i]);
      if (!report_.error.ok())
        report_.failed = i;
      else if (++report_.events; stride_ != 0 && (i + 1) % stride_ == 0)
        sample(i);
    }
    finish();
    return std::move(report_);
  }

 private:
  /// A live block and the event that allocated it.
  struct Live {
    Block block;
    std::size_t event = 0;
    bool is_live = false;
  };

  const MemoryLog& log_;
  Backend& backend_;
  const ReplayOptions& options_;
  std::vector<Live> blocks_;
  std::size_t stride_ = 0;
  Bytes live_ = 0;
  std::int64_t count_ = 0;
  ReplayReport report_;

  [[nodiscard]] Error step(std::size_t i, const LogEvent& e) noexcept {
    if (e.fault != LogFault::none) return log_.error_of(e);
    if (e.op == LogOp::failure) ++report_.recorded_failures;
    if (e.op == LogOp::allocate) return allocate(i, e);
    if (e.op == LogOp::release && e.block != MemoryLog::no_block) return release(blocks_[e.block]);
    return {};
  }

  [[nodiscard]] Error allocate(std::size_t i, const LogEvent& e) noexcept {
    const Result<Block> got = backend_.allocate(e.size, options_.alignment);
    if (!got.ok()) return got.error();
    const auto wrong = [&](const char* what) {
      backend_.deallocate(*got);
      return make_error(Errc::internal, what);
    };
    if (got->size != e.size) return wrong("the backend gave a block of another size");
    if ((got->data == nullptr) != (e.size == 0))
      return wrong("the backend gave no address, or one for no bytes");
    if (reinterpret_cast<std::uintptr_t>(got->data) %
            static_cast<std::uintptr_t>(options_.alignment.value()) !=
        0)
      return wrong("the backend gave a block that is not aligned");
    ++report_.allocations;
    report_.allocated = saturating_add(report_.allocated, e.size);
    if (e.block == MemoryLog::no_block) {  // of no bytes: there is nothing to keep
      if (host_accessible<Backend> && options_.verify) ++report_.verified;
      return backend_.deallocate(*got), Error{};
    }
    blocks_[e.block] = {*got, i, true};
    live_ = saturating_add(live_, e.size);
    report_.peak_live = std::max(report_.peak_live, live_);
    report_.peak_blocks = std::max(report_.peak_blocks, ++count_);
    if constexpr (host_accessible<Backend>)
      if (options_.verify) BytePattern(i).write(*got, options_.check);
    return {};
  }

  [[nodiscard]] Error release(Live& b) noexcept {
    Error e = test(b);
    backend_.deallocate(b.block);
    live_ -= b.block.size;
    --count_;
    b = {};
    return e;
  }
  [[nodiscard]] Error test(const Live& b) noexcept {
    if constexpr (host_accessible<Backend>) {
      if (!options_.verify) return {};
      const Bytes at = BytePattern(b.event).compare(b.block, options_.check);
      if (at != b.block.size) {
        report_.overwritten = b.event;
        return make_error_at(Errc::internal, "a live block was overwritten",
                             static_cast<std::uint64_t>(at));
      }
      ++report_.verified;
    }
    return {};
  }

  void sample(std::size_t i) {
    ReplaySample s{i, live_, 0, 0, 0};
    if constexpr (keeps_reserved<Backend>) {
      const auto now = backend_.statistics();
      s.reserved = now.reserved, s.free = now.free, s.largest_free = now.largest_free;
    } else if constexpr (inspectable_backend<Backend>) {
      // Backends tell of a block whether it is free, or whose it is.
      backend_.visit_blocks([&](Block block, auto what) noexcept {
        s.reserved = saturating_add(s.reserved, block.size);
        if constexpr (std::is_same_v<decltype(what), bool>)
          if (what)
            s.free = saturating_add(s.free, block.size),
            s.largest_free = std::max(s.largest_free, block.size);
      });
    } else {
      return;
    }
    report_.peak_reserved = std::max(report_.peak_reserved, s.reserved);
    report_.samples.push_back(s);
  }

  /// Tests and releases what is left: nothing of a replay stays, whatever stopped it.
  void finish() {
    report_.left = live_;
    if constexpr (keeps_reserved<Backend>) {
      report_.peak_reserved = backend_.statistics().peak_reserved;
      report_.peak_is_exact = true;
    }
    for (Live& b : blocks_) {
      if (!b.is_live) continue;
      report_.left_events.push_back(b.event);
      const Error e = report_.error.ok() ? release(b) : (backend_.deallocate(b.block), Error{});
      if (!e.ok()) report_.error = e;
    }
  }
};

}  // namespace detail

/// Carries a log out on a backend, event by event, and stops at the first that fails.
///
/// Each block is filled with its own pattern and tested before its release, so that blocks that
/// overlap or that the backend itself writes to are found. `on_event(index)` is called before each
/// event. Everything is released at the end. Errors: in the report: the backend's; corrupt (the log
/// contradicts itself), at the event's place; internal (a block was overwritten, at the byte; it is
/// misaligned or of another size). Threads: one. Cost: the log's bytes are written and read once
/// where they are verified.
template <memory_backend Backend, class OnEvent>
[[nodiscard]] ReplayReport replay(const MemoryLog& log, Backend backend,
                                  const ReplayOptions& options, OnEvent&& on_event) {
  return detail::Replayer<Backend>(log, backend, options).run(on_event);
}
template <memory_backend Backend>
[[nodiscard]] ReplayReport replay(const MemoryLog& log, Backend backend,
                                  const ReplayOptions& options = {}) {
  return replay(log, std::move(backend), options, [](std::size_t) noexcept {});
}

}  // namespace holdfast
