// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "holdfast/buffer/launch.hpp"
#include "holdfast/buffer/tracked_buffer.hpp"
#include "holdfast/execute/detail/machine.hpp"
#include "holdfast/execute/detail/run_state.hpp"
#include "holdfast/execute/detail/table.hpp"
#include "holdfast/execute/host_streams.hpp"
#include "holdfast/execute/kernel.hpp"

// Use:
//   using Executor = PlanExecutor<SystemMemory, HostEvent>;
//   auto executor = Executor::make({&module, &values, &live, &plan}, SystemMemory{}, kernel);   //
//   fills constants std::vector<Executor::buffer_type> results(executor->results().size()); Error e
//   = executor->execute(arguments, results, kernel);           // here; or with HostStreams, in the
//   background results[0].block_for_operations();                                 // the first
//   kernel's error, if one failed

namespace holdfast {

/// Carries a memory plan out on a backend's memory, as often as asked.
///
/// Copies of the plan are made by the host, which must be able to touch the memory, or by a
/// `copying_kernel`.
/// The program's tables must outlive it. Threads: `execute` any number at once, with a kernel that
/// allows it.
template <memory_backend Backend, event Event = default_event<Backend>,
          hold_policy Hold = SharedHold>
class PlanExecutor {
 public:
  using buffer_type = TrackedBuffer<Backend, Event, Hold>;
  using raw_type = typename buffer_type::raw_type;

  /// Prepares a plan: finds arguments and results, makes the constants and lets the kernel fill
  /// them.
  ///
  /// `alignment` is that of every block, at least the one the plan was made with.
  /// Errors: invalid_argument (an output and the parameter it lives in differ in size), the
  /// backend's, the kernel's.
  template <plan_kernel Kernel>
  [[nodiscard]] static Result<PlanExecutor> make(const PlannedProgram& program, Backend backend,
                                                 Kernel& kernel,
                                                 Alignment alignment = default_alignment) noexcept {
    static_assert(host_accessible<Backend> || copying_kernel<Kernel>,
                  "the host cannot make the copies of a plan in this memory");
    PlanExecutor out(program, std::move(backend), alignment);
    if (Error e = out.list_leaves(); !e.ok()) return e;
    if (Error e = out.make_constants(kernel); !e.ok()) return e;
    return out;
  }

  /// The arguments that `execute` takes: each array of each parameter, in order.
  [[nodiscard]] std::span<const ProgramLeaf> arguments() const noexcept {
    return arguments_.span();
  }
  /// The results that it gives: each array of the root, in order.
  [[nodiscard]] std::span<const ProgramLeaf> results() const noexcept { return results_.span(); }
  /// The bytes of constants.
  [[nodiscard]] Bytes constant_bytes() const noexcept {
    return constants_ ? constants_->size() : 0;
  }
  /// Calls `f` with each constant and where it lies.
  template <class F>
  void each_constant(F&& f) const noexcept {
    for (const KernelArray& c : constant_list_) f(c);
  }

  /// Runs the program on this thread.
  ///
  /// Arguments are held: by usage to be read, by donation where an output lives in their memory
  /// (these are gone afterwards, even if a kernel fails). One that `options` keep from being
  /// donated is copied first. `results` are made new; theirs is the first error of a kernel or of
  /// an argument's contents, on their definition events, or it is returned where events carry none.
  /// Before the first kernel an error leaves everything as it was. Errors: those of
  /// `acquire_arguments`, invalid_argument (another number of arguments or results), the backend's.
  /// Threads: blocks for holds, for the events of arguments, and for the run.
  template <plan_kernel Kernel>
  [[nodiscard]] Error execute(std::span<buffer_type* const> arguments,
                              std::span<buffer_type> results, Kernel& kernel,
                              const LaunchOptions& options = {}) noexcept {
    return start(arguments, results, kernel, nullptr, options);
  }
  /// Runs the program on host streams; kernels that touch different memory run at once.
  ///
  /// With events that the host can make it returns when all is enqueued: kernel and executor must
  /// live until the results are ready. With others it runs here, helped by the streams. Errors: as
  /// above.
  template <plan_kernel Kernel>
  [[nodiscard]] Error execute(std::span<buffer_type* const> arguments,
                              std::span<buffer_type> results, Kernel& kernel, HostStreams& streams,
                              const LaunchOptions& options = {}) noexcept {
    return start(arguments, results, kernel, &streams, options);
  }

 private:
  using State = detail::RunState<Backend, Event>;
  using Holds = LaunchHolds<buffer_type>;
  using Made = detail::Table<std::optional<buffer_type>>;
  static constexpr bool is_promised = State::is_promised;

  PlanExecutor(const PlannedProgram& program, Backend backend, Alignment alignment) noexcept
      : p_(program), backend_(std::move(backend)), alignment_(alignment) {}

  PlannedProgram p_;
  HOLDFAST_NO_UNIQUE_ADDRESS Backend backend_;
  Alignment alignment_;
  detail::Table<ProgramLeaf> arguments_, results_;
  std::optional<RawBuffer<Backend, Unique>> constants_;
  detail::Table<KernelArray> constant_list_;

  // -- preparation
  // -----------------------------------------------------------------------------------

  [[nodiscard]] Error list_leaves() noexcept {
    const Module& m = *p_.module;
    const std::span<const InstructionId> parameters = m.parameters_of(m.entry);
    std::size_t count = 0;
    for (const InstructionId p : parameters)
      detail::each_leaf(m.shapes, m[p].shape, [&](std::uint32_t, ShapeId) { ++count; });
    if (Error e = arguments_.make(count); !e.ok()) return e;
    count = 0;
    for (std::uint32_t k = 0; k < parameters.size(); ++k)
      detail::each_leaf(m.shapes, m[parameters[k]].shape, [&](std::uint32_t n, ShapeId s) {
        arguments_[count++] = {
            parameters[k],     n,    s, m.shapes.byte_size(s), p_.values->value(parameters[k], n),
            ProgramLeaf::none, false};
      });
    const InstructionId root = m[m.entry].root;
    count = 0;
    detail::each_leaf(m.shapes, m[root].shape, [&](std::uint32_t, ShapeId) { ++count; });
    if (Error e = results_.make(count); !e.ok()) return e;
    const Frame& frame = p_.live->frames.back();
    std::uint32_t place = frame.results.begin;
    count = 0;
    detail::each_leaf(m.shapes, m[root].shape, [&](std::uint32_t n, ShapeId s) {
      const bool has_bytes = place < frame.results.end() && p_.live->places[place].node == n;
      results_[count++] = {root,
                           n,
                           s,
                           m.shapes.byte_size(s),
                           has_bytes ? static_cast<ValueId>(place++) : no_id<ValueId>,
                           ProgramLeaf::none,
                           false};
    });
    return link_aliases();
  }
  /// Joins results and the arguments whose memory they take over.
  [[nodiscard]] Error link_aliases() noexcept {
    const auto find = [](detail::Table<ProgramLeaf>& leaves, InstructionId i,
                         std::uint32_t node) -> ProgramLeaf* {
      for (ProgramLeaf& l : leaves)
        if (l.instruction == i && l.node == node) return &l;
      return nullptr;
    };
    const Module& m = *p_.module;
    for (const ParameterAlias& a : m.parameter_aliases) {
      ProgramLeaf* const from =
          find(arguments_, m.parameters_of(m.entry)[a.parameter], a.parameter_node);
      ProgramLeaf* const to = find(results_, m[m.entry].root, a.output_node);
      if (from == nullptr || to == nullptr || to->place == no_id<ValueId>)
        continue;  // tables and empty arrays have no memory
      if (from->size != to->size) {
        Error e = make_error_at(Errc::invalid_argument,
                                "an output and the parameter it lives in differ in size",
                                m[from->instruction].where);
        e.requested = to->size;
        e.available = from->size;
        return e;
      }
      from->donated = true;
      to->donated = true;
      to->partner = static_cast<std::uint32_t>(from - arguments_.begin());
    }
    return {};
  }
  template <class Kernel>
  [[nodiscard]] Error make_constants(Kernel& kernel) noexcept {
    const Module& m = *p_.module;
    const auto is_one = [&](const Value& v) {
      return v.kind == ValueKind::constant && !m.shapes.is_tuple(v.shape) &&
             m.shapes.byte_size(v.shape) > 0;
    };
    std::size_t count = 0;
    Bytes size = 0;
    for (const Value& v : p_.values->values)
      if (is_one(v))
        ++count,
            size = saturating_add(align_up(size, alignment_.value()), m.shapes.byte_size(v.shape));
    if (Error e = constant_list_.make(count); !e.ok()) return e;
    Result<RawBuffer<Backend, Unique>> raw =
        RawBuffer<Backend, Unique>::allocate(backend_, size, alignment_);
    if (!raw.ok()) return raw.error();
    constants_.emplace(std::move(*raw));
    count = 0;
    size = 0;
    for (const Value& v : p_.values->values) {
      if (!is_one(v)) continue;
      size = align_up(size, alignment_.value());
      const KernelArray array{v.instruction,
                              0,
                              v.node,
                              v.shape,
                              {constants_->data() + size, m.shapes.byte_size(v.shape)}};
      size += array.memory.size;
      constant_list_[count++] = array;
      if (Error e = kernel.fill_constant(array); !e.ok()) return e;
    }
    return {};
  }

  // -- one run
  // ---------------------------------------------------------------------------------------

  template <class Kernel>
  [[nodiscard]] Error start(std::span<buffer_type* const> arguments, std::span<buffer_type> results,
                            Kernel& kernel, HostStreams* streams,
                            const LaunchOptions& options) noexcept {
    static_assert(host_accessible<Backend> || copying_kernel<Kernel>);
    if (results.size() != results_.size())
      return wrong_count("room for another number of results than the program has", results.size(),
                         results_.size());
    Result<Holds> holds = acquire(arguments, options);
    if (!holds.ok()) return holds.error();
    using Run = detail::PlanRun<State, Kernel>;
    std::unique_ptr<Run> run(new (std::nothrow) Run(p_, kernel));
    if (run == nullptr) return make_error(Errc::out_of_memory, "no memory for a run");
    Made made;
    if (Error e = prepare(*holds, *run, streams == nullptr ? 1 : streams->count(), made); !e.ok()) {
      run->state.finish(e);  // before results that are half made go: they wait for it
      return e;
    }
    // From here on nothing can fail but kernels.
    give_up(arguments, *holds, made, run->state);
    const auto hand_over = [&] {
      for (std::size_t k = 0; k < results.size(); ++k) results[k] = std::move(*made[k]);
    };
    if constexpr (is_promised) {
      hand_over();
      if (streams != nullptr)
        run.release()->enqueue(*streams);
      else
        static_cast<void>(run->carry_out(nullptr));
    } else {
      if (Error e = run->carry_out(streams); !e.ok()) return e;
      hand_over();
    }
    return {};
  }
  [[nodiscard]] static Error wrong_count(const char* what, std::size_t given,
                                         std::size_t wanted) noexcept {
    Error e = make_error(Errc::invalid_argument, what);
    e.at_kind = AtKind::count;
    e.at = given;
    e.requested = static_cast<std::int64_t>(wanted);
    return e;
  }
  [[nodiscard]] Result<Holds> acquire(std::span<buffer_type* const> arguments,
                                      const LaunchOptions& options) const noexcept {
    if (arguments.size() != arguments_.size())
      return wrong_count("another number of arguments than the program has", arguments.size(),
                         arguments_.size());
    detail::Table<LaunchArgument<buffer_type>> list;
    if (Error e = list.make(arguments.size()); !e.ok()) return e;
    for (std::size_t k = 0; k < arguments.size(); ++k)
      list[k] = {arguments[k], arguments_[k].donated, arguments_[k].size};
    return acquire_arguments<buffer_type>(std::as_const(list).span(), options);
  }
  template <class Run>
  [[nodiscard]] Error prepare(Holds& holds, Run& run, std::uint32_t streams, Made& made) noexcept {
    State& state = run.state;
    if (Error e = run.memory.make(p_); !e.ok()) return e;
    if (Error e = run.machine.make(streams); !e.ok()) return e;
    if (Error e = holds.append_dependencies(state.contents, state.readers); !e.ok()) return e;
    for (const KernelArray& c : constant_list_)
      run.memory.set_base(index_of(p_.values->value(c.instruction, c.node)), c.memory.data);
    for (std::size_t k = 0; k < arguments_.size(); ++k) {
      std::byte* const data = holds[k].raw().data();
      run.memory.set_base(index_of(arguments_[k].place), data);
      if (data == nullptr && arguments_[k].size > 0)
        state.failed = make_error(Errc::internal, "an argument has no memory");
    }
    if (Error e = state.make(p_, backend_, alignment_, run.memory); !e.ok()) return e;
    if (Error e = state.before.make(results_.size()); !e.ok()) return e;
    if (Error e = state.after.make(results_.size()); !e.ok()) return e;
    if (Error e = made.make(results_.size()); !e.ok()) return e;
    for (std::size_t k = 0; k < results_.size(); ++k)
      if (Error e = make_result(k, holds, made[k], run); !e.ok()) return e;
    return {};
  }
  [[nodiscard]] static bool takes_over(Holds& holds, const ProgramLeaf& result) noexcept {
    return result.donated && holds[result.partner].kind() == HoldKind::donation &&
           holds[result.partner].raw().is_mutable();
  }
  /// Makes a result: new memory, or another owner of a donated argument's.
  template <class Run>
  [[nodiscard]] Error make_result(std::size_t k, Holds& holds, std::optional<buffer_type>& out,
                                  Run& run) noexcept {
    const ProgramLeaf& leaf = results_[k];
    const bool old = takes_over(holds, leaf);
    // Without counted holds the memory is moved in when nothing can fail any more.
    Result<raw_type> raw = raw_type::allocate(backend_, old ? 0 : leaf.size, alignment_);
    if (!raw.ok()) return raw.error();
    if constexpr (buffer_type::counts_holds)
      if (old) *raw = holds[leaf.partner].raw();
    if (!old) place_result(k, leaf, raw->block(), run);
    Result<buffer_type> buffer = buffer_type::make(std::move(*raw), run.state.definition());
    if (!buffer.ok()) return buffer.error();
    out.emplace(std::move(*buffer));
    return {};
  }
  template <class Run>
  void place_result(std::size_t k, const ProgramLeaf& leaf, Block block, Run& run) const noexcept {
    if (leaf.place == no_id<ValueId>) return;
    const Location& l = p_.plan->locations[index_of(leaf.place)];
    if (l.base == Location::Base::result) {
      run.memory.set_base(l.index, block.data);
    } else if (leaf.donated) {
      const ValueId parameter = arguments_[leaf.partner].place;
      run.state.before[k] = {run.memory.at(parameter), block};
      run.memory.set_base(index_of(parameter), block.data);
    } else {
      run.state.after[k] = {run.memory.at(leaf.place), block};
    }
  }
  /// Ends the holds on arguments as far as their owners can see: what they wait for now is the run.
  void give_up(std::span<buffer_type* const> arguments, Holds& holds, Made& made,
               const State& state) noexcept {
    if constexpr (!buffer_type::counts_holds)
      for (std::size_t r = 0; r < results_.size(); ++r)
        if (takes_over(holds, results_[r]))
          made[r]->raw() = std::move(arguments[results_[r].partner]->raw());
    for (std::size_t k = 0; k < arguments.size(); ++k) {
      if (holds[k].kind() == HoldKind::donation) {
        if constexpr (is_promised && buffer_type::counts_holds)
          holds[k].confirm(state.event());
        else
          holds[k].confirm();
      } else if constexpr (is_promised) {
        holds[k].convert(state.event());
      }
    }
  }
};

}  // namespace holdfast
