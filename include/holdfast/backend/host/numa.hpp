// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <numa.h>
#include <numaif.h>

#include <array>
#include <cstdint>

#include "holdfast/backend/host/page_source.hpp"
#include "holdfast/core/result.hpp"

namespace holdfast {

/// What happens when a node has no memory left.
enum class NodePolicy : std::uint8_t {
  prefer,  ///< other nodes help out
  bind,    ///< none does: the system ends a process that then touches more
};

/// The system's memory on one NUMA node. Links with libnuma.
///
/// `BasicHostHeap<NodePages>::make(options, *NodePages::make(node))` is a pool there. What a source reserved keeps its policy when it
/// is purged. Its room is the whole machine's. Threads: any.
class NodePages {
 public:
  /// Errors: unsupported (a kernel without NUMA), not_found (no such node, or none that this process may use; `at` and `available` are the node and how many there are).
  [[nodiscard]] static Result<NodePages> make(int node, NodePolicy policy = NodePolicy::prefer) noexcept {
    if (::numa_available() < 0) return make_error(Errc::unsupported, "the kernel has no NUMA memory policy");
    if (node < 0 || node >= most_nodes || node > ::numa_max_node() ||
        ::numa_bitmask_isbitset(::numa_all_nodes_ptr, static_cast<unsigned>(node)) == 0) {
      Error e = make_error(Errc::not_found, "no such NUMA node for this process");
      e.at_kind = AtKind::count;
      e.at = static_cast<std::uint64_t>(node);
      e.available = ::numa_max_node() + 1;
      return e;
    }
    return NodePages(node, policy);
  }

  [[nodiscard]] std::byte* reserve(Bytes size) noexcept {
    std::byte* p = SystemPages{}.reserve(size);
    if (p == nullptr) return nullptr;
    std::array<unsigned long, most_nodes / bits> mask{};
    mask[static_cast<unsigned>(node_) / bits] = 1ul << (static_cast<unsigned>(node_) % bits);
    if (::mbind(p, static_cast<unsigned long>(size), policy_ == NodePolicy::bind ? MPOL_BIND : MPOL_PREFERRED, mask.data(), most_nodes, 0) == 0)
      return p;
    SystemPages{}.release(p, size);
    return nullptr;
  }
  void release(std::byte* data, Bytes size) noexcept { SystemPages{}.release(data, size); }
  [[nodiscard]] bool purge(std::byte* data, Bytes size) noexcept { return SystemPages{}.purge(data, size); }
  void advise_huge(std::byte* data, Bytes size) noexcept { SystemPages{}.advise_huge(data, size); }
  [[nodiscard]] MemoryRoom room() noexcept { return SystemPages{}.room(); }

  [[nodiscard]] int node() const noexcept { return node_; }

 private:
  static constexpr unsigned bits = 8 * sizeof(unsigned long);
  static constexpr int most_nodes = 1024;

  NodePages(int node, NodePolicy policy) noexcept : node_(node), policy_(policy) {}

  int node_;
  NodePolicy policy_;
};
static_assert(metered_page_source<NodePages>);

}  // namespace holdfast
