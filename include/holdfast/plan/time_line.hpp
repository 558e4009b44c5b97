// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/core/types.hpp"
#include "holdfast/core/units.hpp"

namespace holdfast {

/// What one step of a frame's program does.
enum class StepKind : std::uint8_t {
  execute,      ///< runs an instruction's kernel
  call,         ///< runs another frame
  loop_enter,   ///< moves initial values into what the loop carries
  loop_test,    ///< after the condition: on to the body, or to `target` (the loop_exit)
  loop_back,    ///< moves the round's results into what the loop carries; on to `target` (the condition's first step)
  loop_exit,    ///< moves what the loop carried to its results
  branch_begin, ///< a branch starts behind it; `target` is the next branch_begin of the conditional, or the join
  branch_end,   ///< moves the branch's results to the conditional's; on to `target` (the join)
  join,         ///< a conditional is over
  finish,       ///< moves results of the frame to where its caller wants them
};

/// One position of a frame's time line.
struct Step {
  InstructionId instruction{};
  StepKind kind = StepKind::execute;
  std::uint32_t target = 0;  ///< a step, by `kind`
  IndexRange moves;          ///< in `Liveness::moves`
};

/// Bytes of one value that have to be copied to another's place, unless both have the same place.
struct Move {
  ValueId from{}, to{};
};

/// A part of a value's life in its frame: half-open `[begin, end)` of steps.
struct LivePiece {
  ValueId value{};
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

/// A value that an operation reads from its start to its end, unless its result takes the value's place.
struct PendingRead {
  ValueId operand{}, result{};
  std::uint32_t start = 0, done = 0;  ///< steps
  bool alone = true;                  ///< no other operand of the operation is the same value
};

/// Why a place exists that no instruction of the program defines.
enum class PlaceKind : std::uint8_t {
  value,     ///< an ordinary value
  result,    ///< where a frame's caller wants a result; `Place::node` is the node of the root
  spare,     ///< breaks a cycle of moves
  callee,    ///< the frame of a called computation, for the time of the call
};

/// Something that needs bytes. The first places are the values of the `ValueTable`, with the same numbers.
struct Place {
  InstructionId instruction{};  ///< who defines it; the root for results, the call for callees
  std::uint32_t node = 0;
  ShapeId shape{};
  PlaceKind kind = PlaceKind::value;
  std::uint32_t frame = 0;
};

/// Where a place's bytes are, relative to its frame.
struct Location {
  /// What `index` counts.
  enum class Base : std::uint8_t {
    none,       ///< needs no bytes
    parameter,  ///< the memory of the parameter value `index`
    result,     ///< the memory of the result place `index`
    constant,   ///< the constant value `index`
    arena,      ///< arena `index` of `BufferAssignment::arenas`
  };
  Base base = Base::none;
  std::uint32_t index = 0;
  Bytes offset = 0;
};

/// One computation with memory of its own, and everything flattened into it.
struct Frame {
  ComputationId computation{};
  IndexRange steps;    ///< in `Liveness::steps`; step numbers below are relative to it
  IndexRange pieces;   ///< in `Liveness::pieces`
  IndexRange results;  ///< in `Liveness::places`: a result place for each array node of the root, in node order
};

/// The time lines of a module: what runs when, and when each value is needed.
struct Liveness {
  std::vector<Frame> frames;             ///< callees before callers; the entry's is last
  std::vector<std::uint32_t> frame_of;   ///< by computation; `no_frame` for what is not planned
  std::vector<Step> steps;
  std::vector<Move> moves;
  std::vector<LivePiece> pieces;
  std::vector<Place> places;
  std::vector<PendingRead> pending;

  static constexpr std::uint32_t no_frame = 0xFFFFFFFFu;

  [[nodiscard]] constexpr std::span<const Step> steps_of(const Frame& f) const noexcept { return {steps.data() + f.steps.begin, f.steps.count}; }
  [[nodiscard]] constexpr std::span<const LivePiece> pieces_of(const Frame& f) const noexcept { return {pieces.data() + f.pieces.begin, f.pieces.count}; }
  [[nodiscard]] constexpr std::span<const Move> moves_of(const Step& s) const noexcept { return {moves.data() + s.moves.begin, s.moves.count}; }
};

}  // namespace holdfast
