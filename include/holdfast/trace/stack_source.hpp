// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>

#include "holdfast/core/types.hpp"

namespace holdfast {

/// One call stack of a `StackTable`; `no_id<StackId>` where none was taken.
enum class StackId : std::uint32_t {};

/// Something that knows the stack of its caller.
template <class S>
concept stack_source = requires(S& s) {
  { s.take() }
  noexcept->std::same_as<StackId>;
};

/// Takes no stack: the default, costs nothing. Threads: any.
struct NoStacks {
  [[nodiscard]] constexpr StackId take() noexcept { return no_id<StackId>; }
};
static_assert(stack_source<NoStacks>);

}  // namespace holdfast
