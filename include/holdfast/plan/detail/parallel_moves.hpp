// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "holdfast/plan/time_line.hpp"

namespace holdfast::detail {

/// Appends parallel moves to `out` one after the other: a place is written only once nobody waits to read
/// it, and each cycle (a swap) goes through one spare place that `make_spare(to)` makes.
///
/// Targets differ. Only another move's target can be in the way of a source. Cost: O(n log n).
template <class MakeSpare>
constexpr void sequence_moves(std::vector<Move>& moves, std::vector<Move>& out, MakeSpare&& make_spare) {
  constexpr std::size_t none = static_cast<std::size_t>(-1);
  std::sort(moves.begin(), moves.end(), [](const Move& a, const Move& b) { return a.to < b.to; });
  std::vector<std::size_t> reads(moves.size(), none);   // the move whose target is this one's source
  std::vector<std::uint32_t> readers(moves.size(), 0);  // moves that still read this one's target
  for (std::size_t k = 0; k < moves.size(); ++k) {
    const auto found = std::lower_bound(moves.begin(), moves.end(), moves[k].from, [](const Move& a, ValueId v) { return a.to < v; });
    const auto r = static_cast<std::size_t>(found - moves.begin());
    if (found != moves.end() && found->to == moves[k].from && r != k) reads[k] = r, ++readers[r];
  }
  std::vector<char> done(moves.size(), 0);
  const auto emit_chain = [&](std::size_t k) {
    while (k != none && done[k] == 0 && readers[k] == 0) {
      done[k] = 1;
      out.push_back(moves[k]);
      if (reads[k] != none) --readers[reads[k]];
      k = reads[k];
    }
  };
  for (std::size_t k = 0; k < moves.size(); ++k) emit_chain(k);
  for (std::size_t k = 0; k < moves.size(); ++k) {
    if (done[k] != 0) continue;  // what is left are cycles with one reader each
    const ValueId spare = make_spare(moves[k].to);
    out.push_back({moves[k].to, spare});
    std::size_t last = k;
    while (reads[last] != k) last = reads[last];
    moves[last].from = spare;
    reads[last] = none;
    readers[k] = 0;
    emit_chain(k);
  }
}

}  // namespace holdfast::detail
