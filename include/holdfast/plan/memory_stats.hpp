// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/concepts/sink.hpp"
#include "holdfast/graph/module.hpp"
#include "holdfast/plan/allocation_table.hpp"
#include "holdfast/plan/heap_replay.hpp"

namespace holdfast {

/// What a compiled program needs of memory, in XLA's words.
///
/// At least generated_code + argument + output - alias + temp of the device's memory is needed to
/// run it. Units: bytes throughout. Threads: as a vector. Source: XLA CompiledMemoryStats.
struct CompiledMemoryStats {
  Bytes generated_code_size_in_bytes = 0;
  Bytes argument_size_in_bytes = 0;
  Bytes output_size_in_bytes = 0;
  Bytes alias_size_in_bytes = 0;  ///< of arguments that are outputs too: counted in all three
  Bytes temp_size_in_bytes = 0;
  Bytes host_generated_code_size_in_bytes = 0;
  Bytes host_argument_size_in_bytes = 0;
  Bytes host_output_size_in_bytes = 0;
  Bytes host_alias_size_in_bytes = 0;
  Bytes host_temp_size_in_bytes = 0;
  Bytes peak_memory_in_bytes =
      0;  ///< XLA's figure: `MemoryPeaks::compat_peak`; without a trace it leaves temp out
  Bytes total_size_in_bytes = 0;
  Bytes total_allocation_bytes = 0;
  Bytes indefinite_allocations = 0;  ///< bytes, despite the name
  Bytes peak_unpadded_heap_bytes = 0;
  std::vector<char> serialized_buffer_assignment;
  std::vector<char> unknown_fields;  ///< of the proto it was read from, as written

  friend constexpr bool operator==(const CompiledMemoryStats&,
                                   const CompiledMemoryStats&) = default;
};

/// Writes the statistics as XLA's DebugString does: ten fields, without peak and totals.
///
/// Errors: the first failure of the sink.
template <sink S>
constexpr Error render_memory_stats(S& out, const CompiledMemoryStats& stats) noexcept {
  const std::pair<std::string_view, Bytes> fields[] = {
      {"CompiledMemoryStats(generated_code_size_in_bytes=", stats.generated_code_size_in_bytes},
      {", argument_size_in_bytes=", stats.argument_size_in_bytes},
      {", output_size_in_bytes=", stats.output_size_in_bytes},
      {", alias_size_in_bytes=", stats.alias_size_in_bytes},
      {", temp_size_in_bytes=", stats.temp_size_in_bytes},
      {", host_generated_code_size_in_bytes=", stats.host_generated_code_size_in_bytes},
      {", host_argument_size_in_bytes=", stats.host_argument_size_in_bytes},
      {", host_output_size_in_bytes=", stats.host_output_size_in_bytes},
      {", host_alias_size_in_bytes=", stats.host_alias_size_in_bytes},
      {", host_temp_size_in_bytes=", stats.host_temp_size_in_bytes},
  };
  for (const auto& [text, value] : fields) {
    if (const Error e = out.write(text); !e.ok()) return e;
    if (const Error e = write_number(out, value); !e.ok()) return e;
  }
  return out.write(")");
}

/// The largest memory a program holds at one time, by several reckonings; device memory of space 0
/// only.
struct MemoryPeaks {
  Bytes indefinite = 0;    ///< parameters, constants and live-outs, each allocation once
  Bytes temp = 0;          ///< temporary allocations
  Bytes heap = 0;          ///< most bytes alive in the heap traces
  bool has_trace = false;  ///< whether there was a trace to replay
  Bytes true_peak =
      0;  ///< indefinite + max(heap, temp): enough to run, unlike XLA's figure without traces
  Bytes compat_peak = 0;  ///< as XLA computes it from a serialised assignment: all spaces, largest
                          ///< buffer of each allocation
};

namespace detail {

constexpr Error sizes_do_not_fit() noexcept {
  return make_error(Errc::over_budget, "sizes do not fit into 64 bits");
}

/// Where an allocation lies: by the spaces of its buffers, or by its own when it has none.
constexpr Result<bool> is_in_host_memory(const AllocationTable& table,
                                         const LogicalBufferIndex& index, const Allocation& a) {
  constexpr auto host = static_cast<std::int64_t>(MemorySpace::host);
  if (a.assigned.empty()) return a.color == host;
  std::size_t in_host = 0;
  for (const AssignedBuffer& b : table.assigned_to(a)) {
    const std::uint32_t buffer = index.find(b.buffer);
    if (buffer == LogicalBufferIndex::none)
      return make_error(Errc::corrupt, "allocation names a buffer that is not there");
    in_host += table.buffers[buffer].color == host;
  }
  if (in_host != 0 && in_host != a.assigned.count)
    return make_error(Errc::corrupt, "allocation holds values of host and of device memory");
  return in_host != 0;
}

}  // namespace detail

/// Marks the parameters that the module aliases with an output, as files of older XLA do not.
constexpr void derive_aliases(AllocationTable& table, const Module& module) {
  if (std::ranges::any_of(table.allocations, &Allocation::is_aliased)) return;
  std::vector<std::uint64_t> aliased;
  for (const ParameterAlias& a : module.parameter_aliases)
    aliased.push_back((std::uint64_t{a.parameter} << 32) | a.parameter_node);
  std::sort(aliased.begin(), aliased.end());
  const auto parameters = module.parameters_of(module.entry);
  for (Allocation& a : table.allocations) {
    if (!a.is_parameter || a.parameter_number < 0 ||
        a.parameter_number >= static_cast<std::int64_t>(parameters.size()))
      continue;
    const auto number = static_cast<std::uint32_t>(a.parameter_number);
    const std::uint32_t node = module.shapes.node_of_path(module[parameters[number]].shape,
                                                          table.numbers_of(a.parameter_index));
    a.is_aliased =
        std::binary_search(aliased.begin(), aliased.end(), (std::uint64_t{number} << 32) | node);
  }
}

/// Sums the allocations up: argument, output, alias and temp, for device and host. Leaves code,
/// peak and totals alone.
///
/// Errors: corrupt (host and device values in one allocation, an unknown buffer), over_budget (a
/// sum beyond 64 bits); `stats` is then unchanged. Source: runtime.md 6.2.
constexpr Error populate_memory_stats(CompiledMemoryStats& stats, const AllocationTable& table) {
  struct Sums {
    Bytes argument = 0, output = 0, alias = 0, temp = 0;
  } sums[2];
  const LogicalBufferIndex index(table);
  for (const Allocation& a : table.allocations) {
    const Result<bool> host = detail::is_in_host_memory(table, index, a);
    if (!host.ok()) return host.error();
    Sums& to = sums[*host ? 1 : 0];
    const auto add = [&a](bool counts, Bytes& sum) {
      return !counts || checked_add(sum, a.size, sum);
    };
    if (!add(a.is_parameter, to.argument) || !add(a.is_parameter && a.is_aliased, to.alias) ||
        !add(a.maybe_live_out, to.output) || !add(a.is_temp(), to.temp))
      return detail::sizes_do_not_fit();
  }
  stats.argument_size_in_bytes = sums[0].argument,
  stats.host_argument_size_in_bytes = sums[1].argument;
  stats.output_size_in_bytes = sums[0].output, stats.host_output_size_in_bytes = sums[1].output;
  stats.alias_size_in_bytes = sums[0].alias, stats.host_alias_size_in_bytes = sums[1].alias;
  stats.temp_size_in_bytes = sums[0].temp, stats.host_temp_size_in_bytes = sums[1].temp;
  return {};
}

/// Finds the peaks of a buffer assignment by replaying its heap traces one after another.
///
/// Errors: corrupt (a trace that frees what does not live), over_budget. Source: runtime.md 6.3,
/// passes.md 9.4.
[[nodiscard]] constexpr Result<MemoryPeaks> measure_peaks(const AllocationTable& table) {
  MemoryPeaks out;
  Bytes largest_buffers = 0;
  const LogicalBufferIndex index(table);
  for (const Allocation& a : table.allocations) {
    Bytes largest = 0;
    for (const AssignedBuffer& b : table.assigned_to(a)) {
      const std::uint32_t buffer = index.find(b.buffer);
      if (buffer == LogicalBufferIndex::none)
        return make_error(Errc::corrupt, "allocation names a buffer that is not there");
      largest = std::max(largest, table.buffers[buffer].size);
    }
    if (a.is_indefinite() && !checked_add(largest_buffers, largest, largest_buffers))
      return detail::sizes_do_not_fit();
    if (a.color != 0) continue;
    if (a.is_indefinite() && !checked_add(out.indefinite, a.size, out.indefinite))
      return detail::sizes_do_not_fit();
    if (a.is_temp() && !checked_add(out.temp, a.size, out.temp)) return detail::sizes_do_not_fit();
  }
  HeapReplay all(table, index);
  Bytes all_spaces = 0;
  for (const HeapTrace& t : table.traces) {
    const Result<HeapPeak> peak = all.run(t);
    if (!peak.ok()) return peak.error();
    all_spaces = std::max(all_spaces, peak->size);
    const std::uint32_t first =
        t.events.empty() ? LogicalBufferIndex::none : index.find(table.events_of(t)[0].buffer);
    if (first == LogicalBufferIndex::none || table.buffers[first].color != 0) continue;
    out.has_trace = true;
    HeapReplay alone(table, index);
    const Result<HeapPeak> own = alone.run(t);
    if (!own.ok()) return own.error();
    out.heap = std::max(out.heap, own->size);
  }
  if (!checked_add(out.indefinite, std::max(out.heap, out.temp), out.true_peak) ||
      !checked_add(largest_buffers, all_spaces, out.compat_peak))
    return detail::sizes_do_not_fit();
  return out;
}

/// Sets peak and totals in XLA's reckoning. Its peak counts host memory too: measured on XLA's own
/// GPU assignments.
///
/// Errors: those of `measure_peaks`; `stats` is then unchanged. Source: runtime.md 6.3,
/// passes.md 9.4.
constexpr Error populate_peaks(CompiledMemoryStats& stats, const AllocationTable& table) {
  const Result<MemoryPeaks> peaks = measure_peaks(table);
  if (!peaks.ok()) return peaks.error();
  Bytes total = 0;
  for (const Allocation& a : table.allocations)
    if (a.color == 0 && !checked_add(total, a.size, total)) return detail::sizes_do_not_fit();
  stats.peak_memory_in_bytes = peaks->compat_peak;
  stats.total_allocation_bytes = total;
  stats.indefinite_allocations = peaks->indefinite;
  stats.peak_unpadded_heap_bytes = peaks->heap;
  return {};
}

/// Makes all statistics from a serialised buffer assignment, which they keep. Code size is the
/// executable's own business.
///
/// `module` adds the aliases that files of older XLA leave out. Errors: corrupt, over_budget. Cost:
/// O(n log n).
[[nodiscard]] constexpr Result<CompiledMemoryStats> make_memory_stats(
    std::string_view buffer_assignment, const Module* module = nullptr) {
  Result<AllocationTable> table = parse_buffer_assignment(buffer_assignment);
  if (!table.ok()) return table.error();
  if (module != nullptr) derive_aliases(*table, *module);
  CompiledMemoryStats stats;
  if (const Error e = populate_memory_stats(stats, *table); !e.ok()) return e;
  if (const Error e = populate_peaks(stats, *table); !e.ok()) return e;
  stats.serialized_buffer_assignment.assign(buffer_assignment.begin(), buffer_assignment.end());
  return stats;
}

}  // namespace holdfast
