// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "holdfast/core/result.hpp"
#include "holdfast/graph/module.hpp"

namespace holdfast {

/// How a computation is reached from the entry.
enum class CallContext : std::uint8_t {
  dead,      ///< not at all
  frame,     ///< the entry, and what several `call`s share: it gets memory of its own
  flat,      ///< one caller by call, while, conditional or async-start: it lives in its caller's memory
  embedded,  ///< inside fusion, reduce, sort, custom-call...: its values are the kernel's own business
};

/// Who calls each computation, and in which context.
struct CallGraph {
  std::vector<CallContext> context;    ///< by computation
  std::vector<InstructionId> caller;   ///< the one caller of a flat computation

  [[nodiscard]] constexpr CallContext operator[](ComputationId c) const noexcept { return context[index_of(c)]; }
  /// Tells whether the values of a computation need memory that a plan gives.
  [[nodiscard]] constexpr bool is_planned(ComputationId c) const noexcept {
    return (*this)[c] == CallContext::frame || (*this)[c] == CallContext::flat;
  }
};

/// Tells whether an opcode runs the computations it calls as a part of its own program.
[[nodiscard]] constexpr bool is_control_flow(Opcode opcode) noexcept {
  return opcode == Opcode::call || opcode == Opcode::while_ || opcode == Opcode::conditional ||
         opcode == Opcode::async_start;
}

/// Finds the context of every computation.
///
/// Errors: corrupt (a callee stands behind its caller), unsupported (a computation is both embedded and
/// control flow, or a loop body, branch or asynchronous computation has two callers).
[[nodiscard]] constexpr Result<CallGraph> make_call_graph(const Module& module) {
  CallGraph graph;
  const std::size_t count = module.computations.size();
  graph.context.resize(count, CallContext::dead);
  graph.caller.resize(count, no_id<InstructionId>);
  if (index_of(module.entry) >= count) return make_error(Errc::corrupt, "the module has no entry computation");
  graph.context[index_of(module.entry)] = CallContext::frame;
  for (std::size_t n = index_of(module.entry) + 1; n-- > 0;) {
    const auto c = static_cast<ComputationId>(n);
    if (graph[c] == CallContext::dead) continue;
    for (const InstructionId id : module.instructions_of(c)) {
      const Instruction& i = module[id];
      if (i.called.empty() || i.opcode == Opcode::async_update || i.opcode == Opcode::async_done) continue;
      const bool embedded = graph[c] == CallContext::embedded || !is_control_flow(i.opcode);
      for (const ComputationId callee : module.called(i)) {
        if (index_of(callee) >= n) return make_error_at(Errc::corrupt, "a computation is called before it is defined", i.where);
        CallContext& context = graph.context[index_of(callee)];
        if (context == CallContext::dead) {
          context = embedded ? CallContext::embedded : CallContext::flat;
          graph.caller[index_of(callee)] = id;
        } else if (embedded != (context == CallContext::embedded)) {
          return make_error_at(Errc::unsupported, "a computation is called both by control flow and by a kernel", i.where);
        } else if (!embedded) {
          const bool shared = context == CallContext::frame || module[graph.caller[index_of(callee)]].opcode == Opcode::call;
          if (!shared || i.opcode != Opcode::call)
            return make_error_at(Errc::unsupported, "the call graph is not flat: a loop body or branch has two callers", i.where);
          context = CallContext::frame;
        }
      }
    }
  }
  return graph;
}

}  // namespace holdfast
