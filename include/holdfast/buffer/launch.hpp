// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "holdfast/concepts/sink.hpp"
#include "holdfast/concepts/sync.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/core/types.hpp"
#include "holdfast/core/units.hpp"
#include "holdfast/event/combine.hpp"
#include "holdfast/event/event_list.hpp"
#include "holdfast/hold/scoped_hold.hpp"

namespace holdfast {

/// One argument of a launch: a buffer, whether its memory is given away, and the size that the program was compiled for.
template <class Buffer>
struct LaunchArgument {
  Buffer* buffer = nullptr;
  bool donate = false;
  Bytes size = -1;  ///< -1: any
};

/// What a launch may decide at run time.
struct LaunchOptions {
  std::span<const std::uint32_t> not_donated;  ///< arguments that are used though listed as donated
  bool copy_if_referenced = false;             ///< under an external hold use the buffer instead of failing (PJRT's CPU client)
  Deadline deadline = Deadline::never();
};

/// The holds of one launch, in the order of its arguments; dropped, every buffer is as it was.
///
/// Threads: one at a time. Source: runtime.md 4.7.
template <class Buffer>
class [[nodiscard]] LaunchHolds {
 public:
  using event_type = typename Buffer::event_type;
  using raw_type = typename Buffer::raw_type;
  using Hold = ScopedHold<Buffer>;

  LaunchHolds() noexcept = default;
  LaunchHolds(LaunchHolds&& other) noexcept : holds_(std::exchange(other.holds_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  LaunchHolds& operator=(LaunchHolds&&) = delete;
  ~LaunchHolds() {
    std::destroy_n(holds_, size_);
    ::operator delete(static_cast<void*>(holds_), std::align_val_t{alignof(Hold)});
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] Hold& operator[](std::size_t i) noexcept {
    HOLDFAST_ASSERT(i < size_);
    return holds_[i];
  }
  /// The memory that an output aliased with an argument takes over: null unless it is donated and mutable.
  [[nodiscard]] raw_type reusable(std::size_t i) const noexcept
    requires std::copy_constructible<raw_type>
  {
    const Hold& hold = holds_[i];
    return hold.kind() == HoldKind::donation && hold.raw().is_mutable() ? hold.raw() : raw_type();
  }
  /// Why the launch must not run: the first argument without memory or with a failed definition event; its outputs fail so.
  [[nodiscard]] Error predetermined_error() const noexcept {
    for (std::size_t i = 0; i < size_; ++i) {
      if (Error e = first_error<event_type>(holds_[i].definition_events()); !e.ok()) return e;
      if (!holds_[i].raw()) return make_error(Errc::internal, "an argument has no memory");
    }
    return {};
  }
  /// Checks that the launch may run on a device: one of those that this process addresses, where all its arguments lie.
  ///
  /// Errors: invalid_argument ("not addressable", or at the first argument on another device). Source: runtime.md 4.7, step 1.
  template <std::equality_comparable Backend>
  [[nodiscard]] Error check_device(const Backend& device, std::span<const Backend> addressable) const noexcept {
    if (std::find(addressable.begin(), addressable.end(), device) == addressable.end())
      return make_error(Errc::invalid_argument, "the device of the launch is not addressable from this process");
    for (std::size_t i = 0; i < size_; ++i) {
      if (const raw_type& raw = holds_[i].raw(); !raw || raw.backend() == device) continue;
      Error e = make_error(Errc::invalid_argument, "an argument lies on another device than the launch");
      e.at_kind = AtKind::argument;
      e.at = i;
      return e;
    }
    return {};
  }
  /// Collects what must be over before the launch runs, each event once.
  ///
  /// `extra`: definition events of all arguments that are pending or failed. `control`: pending usage events of donated
  /// ones, whose errors do not matter. Errors: out_of_memory.
  [[nodiscard]] Error append_dependencies(EventList<event_type>& extra, EventList<event_type>& control) const noexcept {
    for (std::size_t i = 0; i < size_; ++i) {
      for (const event_type& e : holds_[i].definition_events())
        if (!e.ready() || !e.wait().ok())
          if (Error failure = add_once(extra, e); !failure.ok()) return failure;
      if (holds_[i].kind() != HoldKind::donation) continue;
      for (const event_type& e : holds_[i].usage_events())
        if (!e.ready())
          if (Error failure = add_once(control, e); !failure.ok()) return failure;
    }
    return {};
  }
  /// Ends all holds after the launch was handed over, even one that failed: usage converted, donations confirmed.
  void enqueued(const event_type& done) noexcept {
    for (std::size_t i = 0; i < size_; ++i) {
      if (!holds_[i].ok()) continue;
      if (holds_[i].kind() == HoldKind::donation) holds_[i].confirm(done);
      else holds_[i].convert(done);
    }
  }

 private:
  template <class B, sink S>
  friend Result<LaunchHolds<B>> acquire_arguments(std::span<const LaunchArgument<B>>, const LaunchOptions&, S&&) noexcept;

  [[nodiscard]] static Error add_once(EventList<event_type>& list, const event_type& e) noexcept {
    if constexpr (std::equality_comparable<event_type>)
      for (const event_type& other : list.span())
        if (other == e) return {};
    return list.push_back(event_type(e));
  }
  Hold* holds_ = nullptr;
  std::size_t size_ = 0;
};

namespace detail {

// One argument in the order of its buffer's identity, in which all launches take their holds: two launches on the same
// buffers cannot wait for each other.
struct LaunchOrder {
  const void* identity;
  std::uint32_t argument;
  bool donate;
  friend bool operator<(const LaunchOrder& a, const LaunchOrder& b) noexcept {
    return a.identity != b.identity ? std::less<const void*>()(a.identity, b.identity) : a.argument < b.argument;
  }
};

HOLDFAST_COLD constexpr Error clash(bool first_donated, bool second_donated, std::uint32_t argument) noexcept {
  Error e = make_error(Errc::invalid_argument,
                       first_donated && second_donated ? "the same buffer is donated twice: f(donate(a), donate(a))"
                       : first_donated                 ? "a donated buffer is used again: f(donate(a), a)"
                                                       : "a buffer that is used is also donated: f(a, donate(a))");
  e.at_kind = AtKind::argument;
  e.at = argument;
  return e;
}

constexpr Error of_argument(Error e, std::uint32_t argument) noexcept {
  e.at_kind = AtKind::argument;
  e.at = argument;
  return e;
}

}  // namespace detail

/// Takes a hold on every argument of a launch, all or none.
///
/// First, before any hold, looks for one buffer that is donated and used or donated again. Then takes the holds in an order
/// that is the same for all launches. Errors: invalid_argument (clash, null buffer, wrong size: at `argument`), deleted,
/// donated, held, would_block, deadline, out_of_memory; all buffers are as they were. Details go to the sink.
/// Threads: any; blocks as `hold`. Cost: n log n in the arguments, one allocation. Source: runtime.md 4.7, steps 1 to 8.
template <class Buffer, sink Sink = NullSink>
[[nodiscard]] Result<LaunchHolds<Buffer>> acquire_arguments(std::span<const LaunchArgument<Buffer>> arguments,
                                                            const LaunchOptions& options = {},
                                                            Sink&& details = Sink{}) noexcept {
  using Hold = ScopedHold<Buffer>;
  using detail::LaunchOrder;
  const std::size_t n = arguments.size();
  LaunchHolds<Buffer> launch;
  if (n == 0) return Result<LaunchHolds<Buffer>>(std::move(launch));
  if (n > 0x7FFFFFFF) return make_error(Errc::invalid_argument, "too many arguments");
  struct Free {
    void operator()(LaunchOrder* p) const noexcept { delete[] p; }
  };
  const std::unique_ptr<LaunchOrder[], Free> order(new (std::nothrow) LaunchOrder[n]);
  auto* room = ::operator new(sizeof(Hold) * n, std::align_val_t{alignof(Hold)}, std::nothrow);
  launch.holds_ = static_cast<Hold*>(room);
  if (order == nullptr || room == nullptr) return make_error(Errc::out_of_memory, "no memory for the holds of a launch");

  for (std::uint32_t i = 0; i < n; ++i) {
    const LaunchArgument<Buffer>& a = arguments[i];
    if (a.buffer == nullptr) return detail::of_argument(make_error(Errc::invalid_argument, "null buffer as argument"), i);
    if (a.size >= 0 && a.buffer->size() != a.size) {
      Error e = make_error(Errc::invalid_argument, "input mismatch: the buffer has another size than the program was compiled for");
      e.requested = a.size;
      e.available = a.buffer->size();
      return detail::of_argument(e, i);
    }
    const bool denied = std::find(options.not_donated.begin(), options.not_donated.end(), i) != options.not_donated.end();
    order[i] = {a.buffer->identity(), i, a.donate && !denied};
  }
  std::sort(order.get(), order.get() + n);
  const LaunchOrder *clashing = nullptr, *used_first = nullptr;
  for (std::size_t i = 1, group = 0; i < n; ++i) {
    if (order[i].identity != order[i - 1].identity) group = i;
    if (group == i || !(order[i].donate || order[i - 1].donate)) continue;
    if (clashing != nullptr && clashing->argument < order[i].argument) continue;
    clashing = &order[i];
    used_first = &order[order[i].donate && !order[i - 1].donate ? group : i - 1];
  }
  if (clashing != nullptr) {
    static_cast<void>(details.write("first used as argument "));
    static_cast<void>(write_number(details, used_first->argument));
    return detail::clash(used_first->donate, clashing->donate, clashing->argument);
  }

  std::uninitialized_default_construct_n(launch.holds_, n);
  launch.size_ = n;
  // Those that are gone already are found in the order of the arguments, so that the first of them is named.
  for (std::uint32_t i = 0; i < n; ++i)
    if (arguments[i].buffer->is_deleted())
      if (Result<Hold> gone = arguments[i].buffer->try_hold(HoldKind::usage); !gone.ok()) return detail::of_argument(gone.error(), i);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t argument = order[i].argument;
    const auto take = [&](HoldKind kind) noexcept -> Error {
      Result<Hold> hold = arguments[argument].buffer->hold(kind, options.deadline);
      if (!hold.ok()) return hold.error();
      std::destroy_at(launch.holds_ + argument);
      std::construct_at(launch.holds_ + argument, std::move(*hold));
      return {};
    };
    Error e = take(order[i].donate ? HoldKind::donation : HoldKind::usage);
    if (e.code == Errc::held && options.copy_if_referenced) e = take(HoldKind::usage);
    if (!e.ok()) return detail::of_argument(e, argument);
  }
  return Result<LaunchHolds<Buffer>>(std::move(launch));
}

}  // namespace holdfast
