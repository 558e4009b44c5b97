// backend: where memory comes from: sources (host, code, devices), pools over them, layers that change one thing.
// In the flow: below buffers, which know a backend only by its concept; above the operating system and drivers.
// A backend is a copyable handle, empty or one pointer to its pool; what it gives back carries no state.
// Failures are errors that name the limit or call that they met; nothing is lost by them.
// It never knows whose memory it is, but for a tag.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <tuple>
#include <utility>

#include "holdfast/concepts/memory_backend.hpp"

namespace holdfast {

namespace detail {

template <class B, class... Layers>
struct Stacked {
  using type = B;
};
template <class B, class First, class... Rest>
struct Stacked<B, First, Rest...> : Stacked<typename First::template layer<B>, Rest...> {};

// Makes B of the source and the first `N` states; the outermost layer with a state has the last of them.
template <class B, std::size_t N, class Source, class States>
[[nodiscard]] constexpr B assemble(Source& source, const States& states) noexcept {
  if constexpr (std::same_as<B, Source>) {
    static_assert(N == 0, "more states than layers that have one");
    return std::move(source);
  } else if constexpr (requires { typename B::state_type; }) {
    static_assert(N > 0, "a layer's state is missing");
    return B(assemble<typename B::up_type, N - 1>(source, states), std::get<N - 1>(states));
  } else {
    return B(assemble<typename B::up_type, N>(source, states));
  }
}

}  // namespace detail

/// A source of memory under layers that change one thing each: source first, outermost last.
///
/// `using Device = Stack<SystemMemory, Aligned<256>, Limited, Observed<Counters>>;` A layer is a tag with a nested
/// `template <memory_backend Up> class layer`; an empty one takes no room, one with a state keeps a pointer to the user's object.
template <memory_backend Source, class... Layers>
using Stack = typename detail::Stacked<Source, Layers...>::type;

/// Makes a stack of its source and the states of its layers, source first: `make_stack<Device>(SystemMemory{}, limit, counters)`.
///
/// The states are the user's and outlive the stack's copies; several stacks may share one.
template <memory_backend B, memory_backend Source, class... States>
[[nodiscard]] constexpr B make_stack(Source source, States&... states) noexcept {
  return detail::assemble<B, sizeof...(States)>(source, std::tuple<States&...>(states...));
}

}  // namespace holdfast
