// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "holdfast/buffer/raw_buffer.hpp"
#include "holdfast/event/combine.hpp"
#include "holdfast/event/event_list.hpp"
#include "holdfast/execute/detail/machine.hpp"
#include "holdfast/execute/detail/table.hpp"
#include "holdfast/execute/host_streams.hpp"
#include "holdfast/execute/kernel.hpp"

namespace holdfast {

/// One array that a program takes or gives.
struct ProgramLeaf {
  static constexpr std::uint32_t none = 0xFFFFFFFFu;
  InstructionId instruction{};  ///< the parameter, or the root
  std::uint32_t node = 0;
  ShapeId shape{};
  Bytes size = 0;
  ValueId place{};  ///< in the plan; no id where it has no bytes
  std::uint32_t partner =
      none;              ///< of a donated result: the argument in whose memory it comes back
  bool donated = false;  ///< argument: an output takes its memory over; result: it is that output
};

namespace detail {

template <class Event, bool Promised = promised_event<Event>>
struct DonePromise {};
template <class Event>
struct DonePromise<Event, true> {
  typename Event::promise_type promise;
  Event event;
};

/// What a run owns and waits for, whatever its kernel.
template <memory_backend Backend, event Event>
class RunState {
 public:
  static constexpr bool is_promised = promised_event<Event>;

  struct Copy {
    const std::byte* from = nullptr;
    Block to;
  };
  Table<Copy> before;  ///< by result: an argument that is not given away, into the memory that the
                       ///< plan writes over
  Table<Copy> after;   ///< by result: a parameter that is returned as it came, so that each buffer
                       ///< has its own memory

  /// Makes the entry's arenas and the event of the run's end; `contents` and `readers` are listed
  /// before. Errors: the backend's, out_of_memory.
  [[nodiscard]] Error make(const PlannedProgram& p, Backend& backend, Alignment alignment,
                           RunMemory& memory) noexcept {
    const std::span<const Arena> arenas = p.plan->entry_arenas();
    if (Error e = arenas_.make(arenas.size()); !e.ok()) return e;
    if (Error e = blocks_.make(arenas.size()); !e.ok()) return e;
    for (std::size_t a = 0; a < arenas.size(); ++a) {
      Result<RawBuffer<Backend, Unique>> raw =
          RawBuffer<Backend, Unique>::allocate(backend, arenas[a].size, alignment);
      if (!raw.ok()) return raw.error();
      arenas_[a].emplace(std::move(*raw));
      blocks_[a] = arenas_[a]->block();
      memory.set_arena(p.plan->arenas_of.back().begin + static_cast<std::uint32_t>(a),
                       blocks_[a].data);
    }
    if constexpr (is_promised) {
      Result<typename Event::promise_type> promise = make_promise(backend);
      if (!promise.ok()) return promise.error();
      done_.promise = std::move(*promise);
      done_.event = done_.promise.get_event();
    }
    return {};
  }
  /// The event of the run's end.
  [[nodiscard]] const Event& event() const noexcept requires is_promised { return done_.event; }
  [[nodiscard]] std::span<const Event> definition() const noexcept {
    if constexpr (is_promised)
      return {&done_.event, 1};
    else
      return {};
  }
  [[nodiscard]] std::span<const Block> arenas() const noexcept { return blocks_.span(); }

  EventList<Event> contents;  ///< that have to be there; the first failed one is the run's error
  EventList<Event> readers;   ///< of donated memory, to be waited for
  Error failed;               ///< why the run must not begin

  /// Waits for what is listed. Errors: `failed`, or the first failed contents.
  [[nodiscard]] Error wait() noexcept {
    static_cast<void>(wait_all(std::as_const(readers).span()));
    const Error late = wait_all(std::as_const(contents).span());
    return failed.ok() ? late : failed;
  }
  /// Ends the run: arenas go first, then who waits is told.
  void finish(const Error& error) noexcept {
    static_cast<void>(arenas_.make(0));
    if constexpr (is_promised)
      if (done_.promise.pending())
        static_cast<void>(error.ok() ? done_.promise.set() : done_.promise.set_error(error));
  }

 private:
  // Of the machine of the backend, or else of what the run waits for: a host that waits for the end
  // then drives it.
  [[nodiscard]] auto make_promise(Backend& backend) const noexcept requires is_promised {
    if constexpr (requires { backend.make_promise(); })
      return promise_of<Event>(backend);
    else
      return promise_like(contents.empty() ? readers.span() : contents.span());
  }

  Table<std::optional<RawBuffer<Backend, Unique>>> arenas_;
  Table<Block> blocks_;
  DonePromise<Event> done_;
};

/// One run with its kernel; as a node of a queue it ends itself.
template <class State, plan_kernel Kernel>
class PlanRun : private Continuation {
 public:
  PlanRun(const PlannedProgram& program, Kernel& kernel) noexcept
      : machine(program, memory, kernel), kernel_(kernel) {}

  RunMemory memory;
  Machine<Kernel> machine;
  State state;

  /// Waits for arguments, runs, and ends the run. Errors: the first, which is put on the run's
  /// event too.
  Error carry_out(HostStreams* streams) noexcept {
    Error e = state.wait();
    if (e.ok()) e = copy(state.before);
    if (e.ok()) {
      if constexpr (watching_kernel<Kernel>) kernel_.on_start(state.arenas());
      const bool lent =
          streams != nullptr && machine.uses_streams() && streams->lend(machine.window());
      e = machine.run();
      if (lent) streams->withdraw(machine.window());
    }
    if (e.ok()) e = copy(state.after);
    state.finish(e);
    return e;
  }
  /// Runs on the streams and then deletes itself.
  void enqueue(HostStreams& streams) noexcept {
    streams_ = &streams;
    this->run = [](Continuation& node) noexcept {
      auto& self = static_cast<PlanRun&>(node);
      static_cast<void>(self.carry_out(self.streams_));
      delete &self;
    };
    streams.execute(*this);
  }

 private:
  [[nodiscard]] Error copy(const Table<typename State::Copy>& copies) noexcept {
    for (const auto& c : copies)
      if (c.to.size > 0)
        if (Error e = copy_with(kernel_, c.to, c.from); !e.ok()) return e;
    return {};
  }
  Kernel& kernel_;
  HostStreams* streams_ = nullptr;
};

}  // namespace detail
}  // namespace holdfast
