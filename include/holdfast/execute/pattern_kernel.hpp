// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "holdfast/core/byte_pattern.hpp"
#include "holdfast/execute/detail/machine.hpp"
#include "holdfast/execute/detail/origins.hpp"
#include "holdfast/execute/kernel.hpp"
#include "holdfast/execute/pattern_fault.hpp"
#include "holdfast/graph/background_update.hpp"
#include "holdfast/graph/in_place.hpp"

namespace holdfast {

/// What writes and tests the bytes of `BytePattern`, where the memory is.
///
/// `compare` gives the offset of the first byte that is another one; the size when there is none.
template <class P>
concept pattern_memory = requires(P& p, std::uint64_t stamp, Block block, PatternCheck check) {
  { p.write(stamp, block, check) } noexcept -> std::same_as<Error>;
  { p.compare(stamp, block, check) } noexcept -> std::same_as<Result<Bytes>>;
};

/// Patterns in memory that the host can touch. Threads: any.
struct HostPatterns {
  [[nodiscard]] static Error write(std::uint64_t stamp, Block to, PatternCheck check) noexcept {
    BytePattern(stamp).write(to, check);
    return {};
  }
  [[nodiscard]] static Result<Bytes> compare(std::uint64_t stamp, Block with,
                                             PatternCheck check) noexcept {
    return BytePattern(stamp).compare(with, check);
  }
};
static_assert(pattern_memory<HostPatterns>);

/// A kernel that computes nothing and checks everything: each write leaves a pattern of its own,
/// each read tests it.
///
/// What should be where follows from the program alone (`Origins`), so that faults of alias
/// analysis show as well as those of lives, offsets, copies and order. A loop runs `trips` rounds;
/// a conditional takes branch k mod n on its k-th visit, counted over all runs. After the first
/// fault every call fails. A kernel on memory that another one wrote takes a `first_stamp` above
/// all of that one's, or what is left there could stand for a copy that was not made.
/// Threads: as `plan_kernel` asks, as far as its patterns allow; figures between runs.
template <pattern_memory Patterns>
class BasicPatternKernel {
 public:
  BasicPatternKernel(const PlannedProgram& program, PatternCheck check, std::uint32_t trips = 2,
                std::uint64_t first_stamp = 1, Patterns patterns = {})
      : m_(*program.module),
        patterns_(std::move(patterns)),
        check_(check),
        trips_(trips),
        rules_(m_),
        values_(*program.values),
        origins_(m_,
                 [&](ComputationId c) { return program.values->calls[c] == CallContext::frame; }),
        stamps_(origins_.size(), 0),
        writes_(origins_.size(), Write{}),
        copies_(program.live->places.size(), Write{}),
        places_(program.live->places),
        counts_(m_.instructions.size(), 0),
        pending_of_(m_.instructions.size(), IndexRange{}),
        arenas_(program.plan->entry_arenas().size(), Block{}),
        tops_(arenas_.size(), 0),
        last_stamp_(first_stamp - 1) {
    std::uint32_t most = 1;
    std::uint32_t pending = 0;
    for (std::uint32_t k = 0; k < m_.instructions.size(); ++k) {
      const Instruction& i = m_.instructions[k];
      const auto id = static_cast<InstructionId>(k);
      if (!origins_.has(id)) continue;
      most = std::max(most, m_.shapes.node_count(i.shape));
      if (i.opcode == Opcode::conditional) {
        branches_.push_back({id, static_cast<std::uint32_t>(taken_.size())});
        taken_.resize(taken_.size() + i.called.count, 0);
      }
      if (!is_start(i.opcode)) continue;
      pending_of_[k] = {pending, 0};
      for (const InstructionId o : m_.operands(i)) pending += m_.shapes.node_count(m_[o].shape);
    }
    pending_.resize(pending, Pending{});
    scratch_.resize(most, 0);
  }

  // --- what the executor asks ---

  [[nodiscard]] Error run(const KernelCall& call) noexcept {
    const Opcode op = call.what().opcode;
    const Block updated = updated_memory(call.instruction);
    for (const KernelArray& a : call.operands)
      if (!is_replaced(a, call.instruction, updated))
        if (Error e = check(a, call.instruction); !e.ok()) return e;
    if (Error e = check_pending(call); !e.ok()) return e;
    if (Error e = check_overlaps(call); !e.ok()) return e;
    for (const KernelArray& r : call.results) {
      if (Error e = write(r); !e.ok()) return e;
      note(r.memory);
    }
    if (call.results.size() > 1)
      if (Error e = check(call.results, call.instruction); !e.ok()) return e;
    if (is_start(op)) remember(call, updated);
    return {};
  }
  [[nodiscard]] Error fill_constant(const KernelArray& array) noexcept { return write(array); }
  [[nodiscard]] Result<bool> test_loop(const KernelCall& call) noexcept {
    if (Error e = check(call.operands, call.instruction); !e.ok()) return e;
    std::uint32_t& rounds = counts_[index_of(call.instruction)];
    if (rounds++ < trips_) return true;
    rounds = 0;
    return false;
  }
  [[nodiscard]] Result<std::uint32_t> choose_branch(const KernelCall& call) noexcept {
    if (Error e = check(call.operands, call.instruction); !e.ok()) return e;
    const std::uint32_t branch = counts_[index_of(call.instruction)]++ % call.what().called.count;
    const auto at =
        std::lower_bound(branches_.begin(), branches_.end(), call.instruction,
                         [](const Branches& b, InstructionId i) { return b.conditional < i; });
    taken_[at->first + branch] = 1;
    return branch;
  }
  void on_start(std::span<const Block> arenas) noexcept {
    std::copy(arenas.begin(), arenas.end(), arenas_.begin());
  }
  /// Copies what loops carry, branches give and calls pass, as the program means it.
  [[nodiscard]] Error on_control(const ControlPoint& point) noexcept {
    const Instruction& i = m_[point.instruction];
    switch (point.kind) {
      case StepKind::loop_enter:
        carry(point.instruction, m_.operands(i)[0]);
        break;
      case StepKind::loop_back:
        carry(point.instruction, m_[m_.called(i)[0]].root);
        break;
      case StepKind::branch_end:
        carry(point.instruction, m_[m_.called(i)[point.branch]].root);
        break;
      case StepKind::call:
        for (std::size_t k = 0; k < i.operands.count; ++k)
          carry(m_.parameters_of(m_.called(i)[0])[k], m_.operands(i)[k]);
        break;
      case StepKind::finish:
        if (point.caller != no_id<InstructionId>) carry(point.caller, point.instruction);
        break;
      default:
        break;
    }
    return {};
  }
  /// Makes a copy of the plan where the patterns are in memory that the host cannot touch.
  [[nodiscard]] Error copy(Block to, const std::byte* from) noexcept
    requires requires(Patterns& p) { p.copy(to, from); }
  {
    return patterns_.copy(to, from);
  }
  void on_move(const Move& move, Block to) noexcept {
    note(to);
    copies_[index_of(move.to)] = {to, next_stamp()};
  }

  // --- what its owner does ---

  /// Chooses how much is tested; what was written fully passes both tests. Call it between runs.
  void set_check(PatternCheck check) noexcept { check_ = check; }

  /// Writes the pattern of a value that comes from outside: an argument. Errors: those of the
  /// patterns.
  [[nodiscard]] Error write(const KernelArray& array) noexcept {
    if (array.memory.size == 0) return {};
    const std::uint32_t p = origins_.position(array.instruction, array.node);
    const std::uint64_t stamp = next_stamp();
    if (Error e = patterns_.write(stamp, array.memory, check_); !e.ok()) return e;
    writes_[p] = {array.memory, stamp};
    std::atomic_ref(stamps_[p]).store(stamp, std::memory_order_relaxed);
    return {};
  }
  /// Tests that a value is where it should be. Errors: internal; `fault` has the names.
  [[nodiscard]] Error check(const KernelArray& array, InstructionId reader) noexcept {
    if (array.memory.size == 0) return {};
    const std::uint32_t p = origins_.origin(array.instruction, array.node);
    const std::uint64_t stamp = std::atomic_ref(stamps_[p]).load(std::memory_order_relaxed);
    if (stamp == 0)
      return blame({PatternFault::Kind::never_written, reader, array.instruction, array.node,
                    array.memory.size, 0});
    return compare(array, stamp, reader);
  }
  /// Tests that every branch of every conditional was taken.
  [[nodiscard]] bool has_taken_all_branches() const noexcept {
    return std::find(taken_.begin(), taken_.end(), 0) == taken_.end();
  }
  /// How many values were tested.
  [[nodiscard]] std::uint64_t values_checked() const noexcept {
    return std::atomic_ref(checked_).load(std::memory_order_relaxed);
  }
  /// The highest byte written in each arena, over all runs, summed.
  [[nodiscard]] Bytes measured_peak() const noexcept {
    Bytes sum = 0;
    for (const Bytes top : tops_) sum = saturating_add(sum, top);
    return sum;
  }
  [[nodiscard]] const PatternFault& fault() const noexcept { return fault_; }

 private:
  struct Write {
    Block to;
    std::uint64_t stamp = 0;
  };
  /// An operand that an operation in two halves may read until it is done.
  struct Pending {
    KernelArray array;
    std::uint64_t stamp = 0;
  };
  struct Branches {
    InstructionId conditional{};
    std::uint32_t first = 0;  // in taken_
  };

  const Module& m_;
  HOLDFAST_NO_UNIQUE_ADDRESS Patterns patterns_;
  PatternCheck check_;
  const std::uint32_t trips_;
  InPlaceRules rules_;
  const ValueTable& values_;
  detail::Origins origins_;
  std::vector<std::uint64_t> stamps_;  // by position: the write that it shows
  std::vector<Write> writes_;          // by position: its last write
  std::vector<Write> copies_;          // by place: the last copy to it
  std::span<const Place> places_;
  std::vector<std::uint32_t> counts_;  // by instruction: rounds of a loop, visits of a conditional
  std::vector<IndexRange> pending_of_;  // by instruction under way: its operands in pending_
  std::vector<Pending> pending_;
  std::vector<Branches> branches_;
  std::vector<char> taken_;
  std::vector<std::uint64_t> scratch_;
  std::vector<Block> arenas_;
  std::vector<Bytes> tops_;
  mutable std::uint64_t checked_ = 0;
  std::uint64_t last_stamp_;
  std::mutex mutex_;  // guards fault_, rules_
  PatternFault fault_;

  static constexpr bool is_start(Opcode op) noexcept {
    return op == Opcode::all_gather_start || op == Opcode::all_reduce_start ||
           op == Opcode::async_start || op == Opcode::collective_permute_start ||
           op == Opcode::copy_start || op == Opcode::send;
  }
  static constexpr bool is_done(Opcode op) noexcept {
    return op == Opcode::all_gather_done || op == Opcode::all_reduce_done ||
           op == Opcode::async_done || op == Opcode::collective_permute_done ||
           op == Opcode::copy_done || op == Opcode::send_done;
  }
  std::uint64_t next_stamp() noexcept {
    return std::atomic_ref(last_stamp_).fetch_add(1, std::memory_order_relaxed) + 1;
  }

  [[nodiscard]] Error check(std::span<const KernelArray> arrays, InstructionId reader) noexcept {
    for (const KernelArray& a : arrays)
      if (Error e = check(a, reader); !e.ok()) return e;
    return {};
  }
  void note(Block to) noexcept {
    for (std::size_t a = 0; a < arenas_.size(); ++a) {
      if (to.data < arenas_[a].data || to.data >= arenas_[a].data + arenas_[a].size) continue;
      const Bytes end = to.data + to.size - arenas_[a].data;
      std::atomic_ref<Bytes> top(tops_[a]);
      Bytes known = top.load(std::memory_order_relaxed);
      while (known < end && !top.compare_exchange_weak(known, end, std::memory_order_relaxed)) {
      }
    }
  }
  void carry(InstructionId to, InstructionId from) noexcept {
    const std::uint32_t count = m_.shapes.node_count(m_[to].shape);
    for (std::uint32_t n = 0; n < count; ++n) scratch_[n] = stamps_[origins_.origin(from, n)];
    for (std::uint32_t n = 0; n < count; ++n) stamps_[origins_.position(to, n)] = scratch_[n];
  }
  [[nodiscard]] Error compare(const KernelArray& array, std::uint64_t stamp,
                              InstructionId reader) noexcept {
    std::atomic_ref(checked_).fetch_add(1, std::memory_order_relaxed);
    const Result<Bytes> at = patterns_.compare(stamp, array.memory, check_);
    if (!at.ok()) return at.error();
    return *at == array.memory.size ? Error{} : blame_writer(array, *at, reader);
  }

  // --- operations in two halves ---

  /// Where the update in place that an asynchronous operation wraps has written its result.
  [[nodiscard]] Block updated_memory(InstructionId id) const noexcept {
    const ValueId result = background_update(m_, values_, id).result;
    return result == no_id<ValueId> ? Block{}
                                    : writes_[origins_.position(values_[result].instruction, 0)].to;
  }
  /// Tells whether an operand is the base of such an update and its result lies on it.
  [[nodiscard]] bool is_replaced(const KernelArray& a, InstructionId id,
                                 Block updated) const noexcept {
    return updated.size != 0 && a.memory.data == updated.data &&
           values_.value(a.instruction, a.node) == background_update(m_, values_, id).base;
  }

  /// Notes what must stay as it is until the operation is done: operands but those that its results
  /// lie on.
  void remember(const KernelCall& call, Block updated) noexcept {
    IndexRange& run = pending_of_[index_of(call.instruction)];
    run.count = 0;
    for (const KernelArray& a : call.operands) {
      bool replaced = a.memory.size == 0 || is_replaced(a, call.instruction, updated);
      for (const KernelArray& r : call.results)
        replaced = replaced || r.memory.data == a.memory.data;
      if (!replaced)
        pending_[run.begin + run.count++] = {a, stamps_[origins_.origin(a.instruction, a.node)]};
    }
  }
  [[nodiscard]] Error check_pending(const KernelCall& call) noexcept {
    if (!is_done(call.what().opcode)) return {};
    InstructionId start = call.instruction;
    while (!is_start(m_[start].opcode) && m_[start].operands.count > 0)
      start = m_.operands(m_[start])[0];
    IndexRange& run = pending_of_[index_of(start)];
    for (std::uint32_t k = run.begin; k < run.end(); ++k)
      if (Error e = compare(pending_[k].array, pending_[k].stamp, call.instruction); !e.ok())
        return e;
    run.count = 0;
    return {};
  }

  // --- what may lie on what ---

  [[nodiscard]] Error check_overlaps(const KernelCall& call) noexcept {
    for (const KernelArray& r : call.results)
      for (const KernelArray& a : call.operands) {
        const Block& x = r.memory;
        const Block& y = a.memory;
        if (x.size == 0 || y.size == 0 || x.data >= y.data + y.size || y.data >= x.data + x.size)
          continue;
        if (x.data == y.data && x.size == y.size && may_share(call, a, r.node)) continue;
        return blame({PatternFault::Kind::overlap, call.instruction, a.instruction, a.node, y.size,
                      0, r.instruction, r.node});
      }
    return {};
  }
  [[nodiscard]] bool may_share(const KernelCall& call, const KernelArray& a,
                               std::uint32_t output) noexcept {
    const std::lock_guard lock(mutex_);
    bool found = false;
    rules_.for_each_pair(
        call.instruction, [&](std::uint32_t operand, std::uint32_t node, std::uint32_t out) {
          found = found || (operand == a.operand && node == a.node && out == output);
        });
    return found || (a.node == 0 && InPlaceRules::overwrites(call.what().opcode) &&
                     rules_.may_overwrite(call.instruction, a.operand, output));
  }

  // --- blame ---

  [[nodiscard]] Error blame(const PatternFault& fault) noexcept {
    const std::lock_guard lock(mutex_);
    if (fault_.kind == PatternFault::Kind::none) fault_ = fault;
    return make_error(Errc::internal, what_of(fault.kind));
  }
  /// Finds the last write over a wrong byte.
  [[nodiscard]] Error blame_writer(const KernelArray& array, Bytes at,
                                   InstructionId reader) noexcept {
    PatternFault fault{PatternFault::Kind::not_there, reader, array.instruction, array.node,
                       array.memory.size, at};
    const std::byte* const byte = array.memory.data + at;
    std::uint64_t newest = 0;
    const auto look = [&](const Write& w, InstructionId writer, std::uint32_t node, bool by_copy) {
      if (w.stamp <= newest || byte < w.to.data || byte >= w.to.data + w.to.size) return;
      newest = w.stamp;
      fault.other = writer;
      fault.other_node = node;
      fault.by_copy = by_copy;
    };
    for (std::uint32_t p = 0; p < writes_.size(); ++p)
      look(writes_[p], origins_.owner(p), origins_.node(p), false);
    for (std::uint32_t p = 0; p < copies_.size(); ++p)
      look(copies_[p], places_[p].instruction, places_[p].node, true);
    if (newest > stamps_[origins_.origin(array.instruction, array.node)])
      fault.kind = PatternFault::Kind::overwritten;
    return blame(fault);
  }
};
using PatternKernel = BasicPatternKernel<HostPatterns>;
static_assert(watching_kernel<PatternKernel> && !copying_kernel<PatternKernel>);

}  // namespace holdfast
