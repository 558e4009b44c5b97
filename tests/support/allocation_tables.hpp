// SPDX-License-Identifier: Apache-2.0
// Buffer assignments put together by hand, one call an allocation or a trace.
#pragma once

#include <initializer_list>
#include <utility>

#include "holdfast/plan/allocation_table.hpp"

namespace holdfast::testing {

struct Tables {
  AllocationTable table;
  using Buffers = std::initializer_list<std::pair<std::int64_t, Bytes>>;  ///< id and size

  Tables& temp(std::int64_t index, Bytes size, Buffers buffers, std::int64_t color = 0) {
    return add({.index = index, .size = size, .color = color}, buffers);
  }
  Tables& parameter(std::int64_t index, Bytes size, Buffers buffers, std::int64_t color = 0) {
    return add({.index = index, .size = size, .color = color, .is_parameter = true}, buffers);
  }
  Tables& live_out(std::int64_t index, Bytes size, Buffers buffers, std::int64_t color = 0) {
    return add({.index = index, .size = size, .color = color, .maybe_live_out = true}, buffers);
  }
  /// A parameter that an output is aliased with.
  Tables& donated(std::int64_t index, Bytes size, Buffers buffers, std::int64_t color = 0) {
    return add({.index = index,
                .size = size,
                .color = color,
                .is_parameter = true,
                .is_aliased = true,
                .maybe_live_out = true},
               buffers);
  }
  Tables& constant(std::int64_t index, Bytes size, Buffers buffers) {
    return add({.index = index, .size = size, .is_constant = true}, buffers);
  }
  Tables& thread_local_(std::int64_t index, Bytes size, Buffers buffers) {
    return add({.index = index, .size = size, .is_thread_local = true}, buffers);
  }

  Tables& trace(std::initializer_list<HeapEvent> events) {
    table.traces.push_back({.events = {static_cast<std::uint32_t>(table.events.size()),
                                       static_cast<std::uint32_t>(events.size())}});
    table.events.insert(table.events.end(), events);
    return *this;
  }
  Tables& add(Allocation a, Buffers buffers) {
    a.assigned = {static_cast<std::uint32_t>(table.assigned.size()),
                  static_cast<std::uint32_t>(buffers.size())};
    for (const auto& [id, size] : buffers) {
      table.assigned.push_back({id, 0, size});
      table.buffers.push_back({.id = id, .size = size, .color = a.color});
    }
    table.allocations.push_back(a);
    return *this;
  }
};

}  // namespace holdfast::testing
