// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <utility>

#include "holdfast/buffer/raw_buffer.hpp"
#include "holdfast/core/array_shape.hpp"
#include "holdfast/core/block.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/event/event_list.hpp"

namespace holdfast {

/// The memory of a flat tuple as a program sees it: a table of addresses and one block a leaf, in order.
///
/// It owns a share of every leaf. Threads: as a value. Source: PJRT shaped buffer.
template <class Raw>
class TupleMemory {
 public:
  /// Makes the table for leaves whose memory is there, one array each.
  ///
  /// Errors: invalid_argument (not one memory of the right size a leaf), the backend's own. Threads: blocks until the
  /// addresses are known.
  [[nodiscard]] static Result<TupleMemory> make(typename Raw::backend_type backend, std::span<const ArrayShape> shapes,
                                                std::span<const Raw> leaves) noexcept
    requires host_accessible<typename Raw::backend_type>
  {
    if (shapes.size() != leaves.size()) return make_error(Errc::invalid_argument, "a tuple has one memory for each leaf");
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      if (leaves[i].size() == shapes[i].device_size()) continue;
      Error e = make_error(Errc::invalid_argument, "a leaf's memory is not as large as its array");
      e.at_kind = AtKind::argument;
      e.at = i;
      e.requested = shapes[i].device_size();
      e.available = leaves[i].size();
      return e;
    }
    TupleMemory tuple;
    Result<Raw> table = Raw::allocate(std::move(backend), static_cast<Bytes>(leaves.size() * sizeof(void*)));
    if (!table.ok()) return table.error();
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      const Result<std::byte*> address = leaves[i].address();
      if (!address.ok()) return address.error();
      std::memcpy(table->data() + i * sizeof(void*), &*address, sizeof(void*));
    }
    if (Error e = tuple.blocks_.push_back(std::move(*table)); !e.ok()) return e;
    if (Error e = tuple.blocks_.append(leaves); !e.ok()) return e;
    return Result<TupleMemory>(std::move(tuple));
  }
  /// The table, then the leaves: as many as the tuple has shapes inside it, itself included.
  [[nodiscard]] std::span<const Raw> blocks() const noexcept { return blocks_.span(); }
  [[nodiscard]] const Raw& table() const noexcept { return blocks_.span().front(); }
  [[nodiscard]] std::span<const Raw> leaves() const noexcept { return blocks_.span().subspan(1); }

 private:
  SmallList<Raw> blocks_;
};

}  // namespace holdfast
