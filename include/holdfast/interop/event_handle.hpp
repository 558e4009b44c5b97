// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string_view>
#include <type_traits>
#include <utility>

#include "holdfast/concepts/event.hpp"
#include "holdfast/core/intrusive_ptr.hpp"
#include "holdfast/core/result.hpp"

namespace holdfast {

/// What went wrong, as an interface in C tells it: code 0 is OK. The text lives as long as the program.
struct EventHandleError {
  std::int32_t code = 0;  ///< a `StatusKind`
  const char* message = nullptr;
};

/// The functions of one kind of event, laid out as in C; `event` is what the handle carries, never null.
///
/// Threads: any. Source: PJRT device event (runtime.md 2.3).
struct EventTable {
  std::size_t struct_size;      ///< of the table that the maker knew: ask before a later field is used
  const void* extension;        ///< the first of a chain of extensions, or null
  void (*retain)(void* event) noexcept;
  void (*release)(void* event) noexcept;
  /// Calls back exactly once: here and now if it is done, else on the thread that completes it. Without memory it waits.
  void (*and_then)(void* event, void (*callback)(void* argument), void* argument) noexcept;
  EventHandleError (*error)(void* event) noexcept;
  const EventTable* parent;     ///< a table that also fits the event, or null
  std::int32_t (*state)(void* event) noexcept;  ///< 0: pending, 1: done, 2: failed
  /// The native handle of the stream that it was recorded on, or null; the number of the record, or 0, goes to `sequence`.
  void* (*definition_stream)(void* event, std::uint64_t* sequence) noexcept;
};
static_assert(std::is_standard_layout_v<EventTable> && std::is_trivially_copyable_v<EventTable>);

namespace detail {

template <notifying_event E>
struct EventInHandle : RefCounted<EventInHandle<E>> {
  explicit EventInHandle(E e) noexcept : event(std::move(e)) {}
  E event;
};

struct CallbackNode : Continuation {
  void (*callback)(void*) = nullptr;
  void* argument = nullptr;
};

template <notifying_event E>
struct EventTableOf {
  using Cell = EventInHandle<E>;
  static const E& of(void* event) noexcept { return static_cast<Cell*>(event)->event; }
  static void retain(void* event) noexcept { static_cast<Cell*>(event)->retain(); }
  static void release(void* event) noexcept { static_cast<Cell*>(event)->drop(); }
  static void and_then(void* event, void (*callback)(void*), void* argument) noexcept {
    auto* node = new (std::nothrow) CallbackNode;
    if (node == nullptr) {
      static_cast<void>(of(event).wait());
      return callback(argument);
    }
    node->callback = callback;
    node->argument = argument;
    node->run = [](Continuation& c) noexcept {
      const CallbackNode called = static_cast<CallbackNode&>(c);
      delete &static_cast<CallbackNode&>(c);
      called.callback(called.argument);
    };
    if (!of(event).then(*node)) node->run(*node);
  }
  static EventHandleError error(void* event) noexcept {
    if (!of(event).ready()) return {};
    const Error e = of(event).wait();
    if (e.ok()) return {};
    return {static_cast<std::int32_t>(status_kind(e)), e.what != nullptr ? e.what : errc_name(e.code).data()};
  }
  static std::int32_t state(void* event) noexcept { return !of(event).ready() ? 0 : of(event).wait().ok() ? 1 : 2; }
  static void* definition_stream(void* event, std::uint64_t* sequence) noexcept {
    *sequence = 0;
    if constexpr (requires { { of(event).definition_place().stream.native_handle() } -> std::convertible_to<void*>; }) {
      const auto place = of(event).definition_place();
      *sequence = place.sequence;
      return place.stream.native_handle();
    } else {
      return nullptr;
    }
  }
  static constexpr EventTable table{sizeof(EventTable), nullptr, retain, release, and_then, error, nullptr, state, definition_stream};
};

}  // namespace detail

/// A counted event that code in C can hold: a table and a pointer. Null (default made) it is done.
///
/// Threads: as a value; what it stands for, any.
class EventHandle {
 public:
  constexpr EventHandle() noexcept = default;
  /// Takes over one share of an event that foreign code gave.
  constexpr EventHandle(const EventTable* table, void* event) noexcept : table_(table), event_(event) {}
  EventHandle(const EventHandle& other) noexcept : table_(other.table_), event_(other.event_) {
    if (table_ != nullptr) table_->retain(event_);
  }
  EventHandle(EventHandle&& other) noexcept : table_(std::exchange(other.table_, nullptr)), event_(std::exchange(other.event_, nullptr)) {}
  EventHandle& operator=(EventHandle other) noexcept {
    std::swap(table_, other.table_);
    std::swap(event_, other.event_);
    return *this;
  }
  ~EventHandle() {
    if (table_ != nullptr) table_->release(event_);
  }
  /// Makes a handle of an event. Errors: out_of_memory. Cost: one allocation.
  template <notifying_event E>
  [[nodiscard]] static Result<EventHandle> make(E event) noexcept {
    auto* cell = new (std::nothrow) detail::EventInHandle<E>(std::move(event));
    if (cell == nullptr) return make_error(Errc::out_of_memory, "no memory for an event's handle");
    return EventHandle(&detail::EventTableOf<E>::table, cell);
  }

  [[nodiscard]] const EventTable* table() const noexcept { return table_; }
  [[nodiscard]] void* event() const noexcept { return event_; }
  /// The event inside, if it is of this type and was made by this program, else null.
  template <notifying_event E>
  [[nodiscard]] const E* get_if() const noexcept {
    return table_ == &detail::EventTableOf<E>::table ? &detail::EventTableOf<E>::of(event_) : nullptr;
  }

 private:
  const EventTable* table_ = nullptr;
  void* event_ = nullptr;
};

}  // namespace holdfast
