// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "holdfast/backend/bfc/explain.hpp"
#include "holdfast/backend/bfc/snapshot.hpp"
#include "holdfast/core/result.hpp"

namespace holdfast {

/// One block that its owner would move, by a copy or by mapping, to make room.
struct BfcMove {
  Block from;  ///< as it was given
  Block to;
  Alignment alignment;
  Tag tag;
};

namespace detail {

// Finds a hole outside the window for each block in it, the largest first; empty where one finds none.
inline std::vector<BfcMove> bfc_moves_of(const BfcSnapshot& s, const BfcWindow& window) {
  struct Hole {
    Block block;
    BfcEnd owner;
  };
  std::vector<Hole> holes;
  std::vector<const BfcChunkRecord*> blocks;
  for (std::size_t i = 0; i < s.chunks.size(); ++i) {
    const BfcChunkRecord& c = s.chunks[i];
    const bool inside = i >= window.begin && i < window.end;
    if (inside && c.used()) blocks.push_back(&c);
    if (!inside && !c.used() && c.freed_at == 0 && c.owner != BfcEnd::gap) holes.push_back({c.block, c.owner});
  }
  std::sort(blocks.begin(), blocks.end(), [](const auto* a, const auto* b) {
    return a->requested != b->requested ? a->requested > b->requested : a->block.data < b->block.data;
  });
  std::vector<BfcMove> moves;
  for (const BfcChunkRecord* c : blocks) {
    const BfcRequest wanted{c->requested, align_up(c->requested, bfc_granule), static_cast<std::uint64_t>(c->alignment.value()),
                            bfc_any_time, c->owner};
    std::size_t best = holes.size();
    for (std::size_t h = 0; h < holes.size(); ++h)
      if (holes[h].owner == c->owner && wanted.fits(holes[h].block.data, holes[h].block.size) &&
          (best == holes.size() || holes[h].block.size < holes[best].block.size))
        best = h;
    if (best == holes.size()) return {};
    Block& hole = holes[best].block;
    const auto padding = static_cast<Bytes>((0 - bfc_address(hole.data)) & (wanted.alignment - 1));
    moves.push_back({{c->block.data, c->requested}, {hole.data + padding, c->requested}, c->alignment, c->tag});
    const Block behind{hole.data + padding + wanted.rounded, hole.size - padding - wanted.rounded};
    hole.size = padding;
    holes.push_back({behind, holes[best].owner});
  }
  return moves;
}

}  // namespace detail

/// Plans the fewest bytes to move within the pool so that a request fits; nothing is forced.
///
/// Its owner carries a move out: `allocate_at(to, alignment, tag)`, copy or map, `deallocate(from)`. Empty: the request fits as it is.
/// Errors: invalid_argument (no size), infeasible (the blocks in no one place find room elsewhere). Cost: quadratic in the chunks
/// at worst.
[[nodiscard]] inline Result<std::vector<BfcMove>> plan_bfc_moves(const BfcSnapshot& s, Bytes size, Alignment alignment = Alignment(1),
                                                                 BfcEnd end = BfcEnd::lower) {
  const BfcExplanation why = explain_bfc(s, size, alignment, end);
  if (why.reason == BfcReason::invalid) return make_error(Errc::invalid_argument, "no size to make room for");
  if (why.reason == BfcReason::fits) return std::vector<BfcMove>{};
  const detail::BfcRequest wanted{size, why.rounded, static_cast<std::uint64_t>(std::max(alignment.value(), detail::bfc_granule)),
                                  bfc_any_time, end};
  std::vector<BfcMove> best;
  Bytes best_live = max_bytes;
  detail::bfc_each_window(s, wanted, [&](const detail::BfcWindow& window) {
    if (window.live >= best_live || window.blocks == 0) return;
    for (std::size_t i = window.begin; i < window.end && s.two_ended; ++i)
      if (s.chunks[i].owner != end) return;  // what becomes free there is the other end's, or the gap's
    std::vector<BfcMove> moves = detail::bfc_moves_of(s, window);
    if (moves.empty()) return;
    best = std::move(moves);
    best_live = window.live;
  });
  if (best.empty()) {
    Error e = make_error(Errc::infeasible, "no moves within the pool make room");
    e.requested = size;
    e.available = why.largest;
    return e;
  }
  return best;
}

}  // namespace holdfast
