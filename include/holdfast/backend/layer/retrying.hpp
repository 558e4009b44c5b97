// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <utility>

#include "holdfast/backend/layer/detail/layer_base.hpp"
#include "holdfast/concepts/clock.hpp"

namespace holdfast {

/// A request that the source refused for want of memory, as its handler sees it.
struct OutOfMemory {
  Bytes size = 0;
  Alignment alignment;
  Tag tag;
  Error error;             ///< why it was refused the last time
  int failures = 0;        ///< how often it was refused
  std::int64_t until = 0;  ///< the handler's own, from one call to the next
  std::uint32_t seen = 0;  ///< the handler's own
};

/// Something that may find memory: true says "ask again".
///
/// It may also have `static constexpr int max_failures` (16 unless it says so), `static constexpr bool waits_for_release`,
/// `on_release()`, called after each release of the stack, and `on_give_up(const OutOfMemory&)`, called once for a request that
/// stays refused.
template <class H>
concept out_of_memory_handler = requires(H& h, OutOfMemory& request) {
  { h.on_out_of_memory(request) } noexcept -> std::same_as<bool>;
};

/// Gives up at once: the do-nothing model.
struct NoHandler {
  constexpr bool on_out_of_memory(OutOfMemory&) noexcept { return false; }
};
static_assert(out_of_memory_handler<NoHandler>);

/// When memory is out, asks a handler and then the source again, a bounded number of times.
///
/// The last refusal is the caller's error. Only a want of memory is handled: out_of_memory and over_budget. Threads: as the handler
/// and the source; a handler may allocate and release, on the stack too.
template <out_of_memory_handler Handler>
struct Retrying {
  template <memory_backend Up>
  class layer : public detail::StatefulLayer<layer<Up>, Up, Handler> {
    using Base = detail::StatefulLayer<layer<Up>, Up, Handler>;
    friend typename Base::LayerBase;

   public:
    static constexpr bool waits_for_release = Base::waits_for_release || detail::waits_for_release<Handler>;
    using Base::Base;

   private:
    [[nodiscard]] static constexpr int max_failures() noexcept {
      if constexpr (requires { Handler::max_failures; })
        return Handler::max_failures;
      else
        return 16;
    }
    [[nodiscard]] static bool wants_memory(const Error& e) noexcept {
      return e.code == Errc::out_of_memory || e.code == Errc::over_budget;
    }

    template <class... Stream>
    [[nodiscard]] Result<Block> take(Bytes size, Alignment alignment, Tag tag, Stream&... stream) noexcept {
      Result<Block> block = this->take_up(size, alignment, tag, stream...);
      if (block.ok() || !wants_memory(block.error())) [[likely]] return block;
      return again({size, alignment, tag, block.error()}, stream...);
    }
    template <class... Stream>
    [[nodiscard]] HOLDFAST_COLD Result<Block> again(OutOfMemory request, Stream&... stream) noexcept {
      auto&& handler = this->state();
      while (++request.failures <= max_failures() && handler.on_out_of_memory(request)) {
        Result<Block> block = this->take_up(request.size, request.alignment, request.tag, stream...);
        if (block.ok() || !wants_memory(block.error())) return block;
        request.error = block.error();
      }
      if constexpr (requires { handler.on_give_up(request); }) handler.on_give_up(request);
      return request.error;
    }
    template <class... Stream>
    void give(Block block, Stream&... stream) noexcept {
      this->give_up(block, stream...);
      auto&& handler = this->state();
      if constexpr (requires { handler.on_release(); }) handler.on_release();
    }
  };
};
static_assert(memory_backend<Retrying<NoHandler>::layer<EmptyMemory>> && sizeof(Retrying<NoHandler>::layer<EmptyMemory>) == 1);

/// Says nothing when a request is given up.
struct NoDump {
  constexpr void operator()(const OutOfMemory&) const noexcept {}
};

/// Waits until other threads of the stack release memory, up to a time since the first refusal; calls `dump` once when that is over.
///
/// `Locked` stands below its layer, never above. Threads: any; nothing that is released after a refusal is missed. Source: the retry of BFC allocators.
template <class Dump = NoDump, clock Clock = MonotonicClock>
class WaitForMemory {
 public:
  static constexpr int max_failures = std::numeric_limits<int>::max();  // time ends it
  static constexpr bool waits_for_release = true;

  /// Units: nanoseconds.
  explicit WaitForMemory(std::int64_t timeout = 10'000'000'000, Dump dump = {}, Clock clock = {}) noexcept
      : timeout_(timeout), dump_(std::move(dump)), clock_(std::move(clock)) {}

  [[nodiscard]] bool on_out_of_memory(OutOfMemory& request) noexcept {
    std::uint32_t now = releases_.load(std::memory_order_acquire);
    if (request.failures == 1) {
      request.until = saturating_add(clock_.now(), timeout_);
      return request.seen = now, true;  // at once: what came back between the refusal and this look is found
    }
    for (; now == request.seen; now = releases_.load(std::memory_order_acquire)) {
      if (clock_.now() >= request.until) return false;
      clock_.wait_until(releases_, now, request.until);
    }
    return request.seen = now, true;
  }
  void on_release() noexcept {
    releases_.fetch_add(1, std::memory_order_release);
    releases_.notify_all();
  }
  void on_give_up(const OutOfMemory& request) noexcept { dump_(request); }

 private:
  std::int64_t timeout_;
  std::atomic<std::uint32_t> releases_{0};
  HOLDFAST_NO_UNIQUE_ADDRESS Dump dump_;
  HOLDFAST_NO_UNIQUE_ADDRESS Clock clock_;
};
static_assert(out_of_memory_handler<WaitForMemory<>>);

}  // namespace holdfast
