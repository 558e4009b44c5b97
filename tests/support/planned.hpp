// SPDX-License-Identifier: Apache-2.0
// A module taken from text through the whole plan side, with look-ups by name for tests.
#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/hlo/parser.hpp"
#include "holdfast/plan/buffer_assignment.hpp"
#include "holdfast/plan/plan_offsets.hpp"

namespace holdfast::testing {

struct Planned {
  std::string text;
  Module module;
  ValueTable values;
  Liveness live;
  std::unique_ptr<BufferSet> buffers;
  BufferAssignment assignment;

  explicit Planned(std::string_view source, Bytes alignment = 1, bool reuse_results = true,
                   BufferSet::Sharing sharing = BufferSet::Sharing::all)
      : text(source) {
    Result<Module> m = parse_hlo_text(text);
    if (!m.ok()) FAIL(m.error().what << " at " << m.error().line() << ":" << m.error().column());
    module = std::move(*m);
    Result<ValueTable> v = analyze_values(module);
    if (!v.ok()) FAIL(v.error().what);
    values = std::move(*v);
    Result<Liveness> l = analyze_liveness(module, values);
    REQUIRE(l.ok());
    live = std::move(*l);
    buffers = std::make_unique<BufferSet>(module, values, live, sharing);
    Result<BufferAssignment> a = assign_buffers(module, live, *buffers, PlanOffsets{}, {alignment, reuse_results});
    REQUIRE(a.ok());
    assignment = std::move(*a);
  }

  InstructionId find(std::string_view name) const {
    for (std::uint32_t i = 0; i < module.instructions.size(); ++i)
      if (module.instructions[i].name == name) return static_cast<InstructionId>(i);
    FAIL("no instruction named " << std::string(name));
    return no_id<InstructionId>;
  }
  ValueId value(std::string_view name, std::uint32_t node = 0) const { return values.value(find(name), node); }
  /// Whether two places share memory.
  bool same(std::string_view a, std::string_view b, std::uint32_t a_node = 0, std::uint32_t b_node = 0) const {
    return buffers->root(value(a, a_node)) == buffers->root(value(b, b_node));
  }
  /// The step at which an instruction runs in its frame.
  std::uint32_t step_of(std::string_view name, StepKind kind = StepKind::execute) const {
    const InstructionId id = find(name);
    const Frame& f = live.frames[live.frame_of[index_of(module[id].computation)]];
    const auto steps = live.steps_of(f);
    for (std::uint32_t s = 0; s < steps.size(); ++s)
      if (steps[s].instruction == id && steps[s].kind == kind) return s;
    FAIL("no step of " << std::string(name));
    return 0;
  }
  /// First and last step at which a value is needed, over all its pieces.
  std::pair<std::uint32_t, std::uint32_t> life(std::string_view name, std::uint32_t node = 0) const {
    const ValueId v = value(name, node);
    std::uint32_t begin = 0xFFFFFFFFu;
    std::uint32_t end = 0;
    for (const LivePiece& p : live.pieces)
      if (p.value == v) begin = std::min(begin, p.begin), end = std::max(end, p.end);
    REQUIRE(begin < end);
    return {begin, end - 1};
  }
  Bytes heap() const {
    Bytes sum = 0;
    for (const Arena& a : assignment.entry_arenas()) sum += a.size;
    return sum;
  }
  Location location(std::string_view name, std::uint32_t node = 0) const {
    return assignment.locations[index_of(value(name, node))];
  }
};

}  // namespace holdfast::testing
