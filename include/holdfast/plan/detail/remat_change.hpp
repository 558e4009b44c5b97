// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "holdfast/plan/detail/remat_time_line.hpp"

namespace holdfast::detail {

/// One change of a module: values that are computed again, or kept on the host for a while.
struct RematEdit {
  InstructionId unit{};    ///< whose result it is about
  InstructionId before{};  ///< the first reader of what comes back
  std::vector<InstructionId>
      chain;  ///< recomputed just before that, in order, the unit last; empty: offload
  std::uint32_t element = 0;      ///< offload: which one, where the result is a tuple
  InstructionId leave_after{};    ///< offload: the copy to the host starts behind it
  InstructionId left_before{};    ///< offload: and is done before it
  InstructionId return_before{};  ///< offload: the copy back starts before it
  std::uint32_t host = 0;         ///< offload: the change whose copy on the host comes back
  InstructionId at_host = no_id<InstructionId>;  ///< offload: what is there already, if it is
  double wait = 0;       ///< offload: of this, each run waits for copies at the least
  Bytes bytes = 0;       ///< less at the peak that it was made for
  double seconds = 0;    ///< added
  bool moved = false;    ///< the unit runs once, but later
  bool dropped = false;  ///< another one does its work

  [[nodiscard]] constexpr bool leaves(std::uint32_t number) const noexcept {
    return host == number && at_host == no_id<InstructionId>;
  }
};

/// What a choice may use.
struct RematLimits {
  bool recompute = true;
  bool offload = true;
  bool wait_for_copies = true;  ///< copies may take longer than what runs meanwhile
  std::uint32_t chain = 64;     ///< instructions recomputed for one value
};

/// The least of `[low, high]` of which something holds that holds of all above too; `high` if of
/// none.
template <class F>
[[nodiscard]] constexpr std::size_t least_that(std::size_t low, std::size_t high, const F& holds) {
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (holds(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}
/// The first place up to `most` before which a copy is done that starts before `low`.
[[nodiscard]] constexpr std::size_t hidden_left(const RematTimeLine& time, RematTimeLine::Line line,
                                                std::size_t low, std::size_t most, double copy) {
  return least_that(low, most, [&](std::size_t k) {
    return time.clock(line[k]) >= time.clock(line[low]) + copy;
  });
}
/// The last place from `least` on before which a copy may start that is done before `high`.
[[nodiscard]] constexpr std::size_t hidden_return(const RematTimeLine& time,
                                                  RematTimeLine::Line line, std::size_t least,
                                                  std::size_t high, double copy) {
  const std::size_t late = least_that(least, high, [&](std::size_t k) {
    return time.clock(line[k]) > time.clock(line[high]) - copy;
  });
  return late > least ? late - 1 : least;
}
/// How long a copy is waited for that starts before one place and has to be done before another.
///
/// Units: seconds.
[[nodiscard]] constexpr double waits(const RematTimeLine& time, RematTimeLine::Line line,
                                     std::size_t from, std::size_t to, double copy) {
  return std::max(0.0, copy - (time.clock(line[to]) - time.clock(line[from])));
}

}  // namespace holdfast::detail
