// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "holdfast/concepts/sink.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/graph/attribute_text.hpp"
#include "holdfast/graph/graph_pass.hpp"
#include "holdfast/graph/module.hpp"

namespace holdfast {

/// Turns users' placement annotations into the markers that passes about host memory know.
///
/// A custom-call to `annotate_device_placement` becomes one to MoveToHost, MoveToDevice,
/// PinToDeviceSram or PinToDevice, with the shape of its operand and nothing but its sharding; it
/// keeps its name. An unknown placement stays, with a warning. Not in fusions. Threads: as its
/// members. Source: XLA's ConvertMemoryPlacementToInternalAnnotations, passes.md 5.
template <sink S = NullSink>
struct PlacementAnnotations {
  static constexpr std::string_view name = "placement-annotations";
  bool keep_metadata = false;
  S diagnostics{};  ///< warnings, and the name in an error

  /// Errors: internal (an annotation has another number of operands than one), invalid_argument (it
  /// changes the shape of its operand). Cost: linear.
  [[nodiscard]] constexpr Result<bool> run(Module& m) {
    struct Found {
      InstructionId id;
      std::string_view target;
    };
    std::vector<Found> found;
    for (std::size_t c = 0; c < m.computations.size(); ++c) {
      if (m.computations[c].is_fusion) continue;
      for (const InstructionId id : m.instructions_of(static_cast<ComputationId>(c))) {
        const Instruction& i = m[id];
        if (i.opcode != Opcode::custom_call ||
            m.attribute(i, "custom_call_target") != "\"annotate_device_placement\"")
          continue;
        const std::string_view target = target_of(m, i);
        if (target.empty()) continue;
        if (i.operands.count != 1) return wrong_count(m, i);
        if (!m.shapes.compatible(i.shape, m[m.operands(i)[0]].shape))
          return make_error_at(Errc::invalid_argument,
                               "annotate_device_placement changes the shape of its operand",
                               i.where);
        found.push_back({id, target});
      }
    }
    for (const Found& f : found) replace(m, m[f.id], f.target);
    return !found.empty();
  }

 private:
  /// The quoted target of the marker; empty for none.
  constexpr std::string_view target_of(const Module& m, const Instruction& i) {
    const std::string_view value =
        field_of(m.attribute(i, "frontend_attributes"), "_xla_buffer_placement");
    if (value.empty()) return {};
    std::vector<char> text;
    append_unquoted(value, text);
    const std::string_view placement(text.data(), text.size());
    if (placement == "pinned_host" || placement == "unpinned_host") return "\"MoveToHost\"";
    if (placement == "device") return "\"MoveToDevice\"";
    if (placement == "vmem") return "\"PinToDeviceSram\"";
    if (placement == "pinned_device") return "\"PinToDevice\"";
    tell({"warning: ", i.name, " has the unknown placement ", value, "\n"});
    return {};
  }
  constexpr Error wrong_count(const Module& m, const Instruction& i) {
    tell({i.name, " in ", m[i.computation].name,
          ": annotate_device_placement has to have one operand\n"});
    Error e =
        make_error_at(Errc::internal, "annotate_device_placement has to have one operand", i.where);
    e.requested = i.operands.count;
    e.available = 1;
    return e;
  }
  constexpr void replace(Module& m, Instruction& i, std::string_view target) {
    const IndexRange run = i.attributes;
    i.attributes = {static_cast<std::uint32_t>(m.attributes.size()), 0};
    m.attributes.push_back({"custom_call_target", target});
    for (std::uint32_t k = run.begin; k < run.end(); ++k) {
      const Attribute a = m.attributes[k];
      if (a.key == "sharding" || (keep_metadata && a.key == "metadata")) m.attributes.push_back(a);
    }
    i.attributes.count = static_cast<std::uint32_t>(m.attributes.size()) - i.attributes.begin;
    i.shape = m[m.operands(i)[0]].shape;
    i.has_side_effect = false;
    i.aliases = i.called = {};
  }
  constexpr void tell(std::initializer_list<std::string_view> parts) {
    for (const std::string_view part : parts) static_cast<void>(diagnostics.write(part));
  }
};
static_assert(graph_pass<PlacementAnnotations<>>);

}  // namespace holdfast
