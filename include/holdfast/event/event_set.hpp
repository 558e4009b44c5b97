// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "holdfast/event/event_list.hpp"

namespace holdfast {

namespace detail {
// An event that knows its place in a stream: `definition_place()` gives {stream, sequence}, a null stream for none.
template <class E>
concept placed_event = requires(const E& e) {
  { e.definition_place().sequence < e.definition_place().sequence } -> std::same_as<bool>;
  { e.definition_place().stream == decltype(e.definition_place().stream){} } -> std::same_as<bool>;
};
}  // namespace detail

/// The usage events of a buffer: completed entries make room for new ones before the set grows, and of events that know
/// their place in a stream only the last of each stream is kept.
///
/// Threads: not safe; a buffer's hold policy serialises changes. Cost: an add is constant, amortised. Source: runtime.md 2.5.
template <event E, bool Stateless = std::is_empty_v<E>>
class EventSet {
 public:
  /// Adds a pending event; a ready or failed one orders nothing any more and is left out.
  ///
  /// Errors: out_of_memory; the set is as it was.
  [[nodiscard]] Error add(const E& e) noexcept { return has(e) ? Error{} : insert(E(e)); }
  /// The same, and takes the caller's handle if it adds it.
  [[nodiscard]] Error add(E&& e) noexcept { return has(e) ? Error{} : insert(std::move(e)); }
  /// Drops the entries that are ready or failed.
  void trim() noexcept {
    events_.remove_if([](const E& e) noexcept { return e.ready(); });
  }
  void clear() noexcept { events_.clear(); }
  /// Copies the entries that are still pending behind another list's. Errors: out_of_memory.
  [[nodiscard]] Error append_to(EventList<E>& list) const noexcept {
    for (const E& e : events_.span())
      if (!e.ready())
        if (Error failure = list.push_back(E(e)); !failure.ok()) return failure;
    return {};
  }
  [[nodiscard]] std::uint32_t size() const noexcept { return events_.size(); }
  [[nodiscard]] bool empty() const noexcept { return events_.empty(); }
  [[nodiscard]] std::span<const E> span() const noexcept { return events_.span(); }

 private:
  [[nodiscard]] bool has(const E& e) const noexcept {
    if (e.ready()) return true;
    if constexpr (std::equality_comparable<E>) return !events_.empty() && events_.span().back() == e;
    else return false;
  }
  // Out of line, so that the checks cost no frame under the hold's lock.
  [[nodiscard, gnu::noinline]] Error insert(E&& e) noexcept {
    if constexpr (detail::placed_event<E>)
      if (const auto place = e.definition_place(); !(place.stream == decltype(place.stream){})) {
        for (E& other : events_.span()) {
          const auto before = other.definition_place();
          if (!(before.stream == place.stream)) continue;
          if (before.sequence < place.sequence) other = std::move(e);
          return {};
        }
      }
    if (events_.size() == events_.capacity()) trim();
    return events_.push_back(std::move(e));
  }

  EventList<E> events_;
};

/// The set of events without state: always empty, since each of them is ready.
template <event E>
class EventSet<E, true> {
 public:
  [[nodiscard]] static constexpr Error add(const E&) noexcept { return {}; }
  static constexpr void trim() noexcept {}
  static constexpr void clear() noexcept {}
  [[nodiscard]] static constexpr Error append_to(EventList<E>&) noexcept { return {}; }
  [[nodiscard]] static constexpr std::uint32_t size() noexcept { return 0; }
  [[nodiscard]] static constexpr bool empty() noexcept { return true; }
  [[nodiscard]] static constexpr std::span<const E> span() noexcept { return {}; }
};

}  // namespace holdfast
