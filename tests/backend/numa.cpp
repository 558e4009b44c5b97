// SPDX-License-Identifier: Apache-2.0
// Built only where libnuma is found (option numa).
#include "holdfast/backend/host/numa.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <utility>

#include "holdfast/backend/host/host_pool.hpp"
#include "support/shared.hpp"

using namespace holdfast;
using namespace holdfast::literals;

namespace {

constexpr unsigned long mask_bits = 1024;
using NodeHeap = BasicHostHeap<NodePages>;
static_assert(memory_backend<BasicHostPool<NodePages>> && inspectable_backend<BasicHostPool<NodePages>>);

// The policy that the kernel keeps for an address, and its first 64 nodes.
std::pair<int, unsigned long> policy_at(const std::byte* p) {
  int mode = -1;
  unsigned long nodes[mask_bits / 64] = {};
  REQUIRE(::get_mempolicy(&mode, nodes, mask_bits, const_cast<std::byte*>(p), MPOL_F_ADDR) == 0);
  return {mode, nodes[0]};
}
int node_of(const std::byte* p) {
  int node = -1;
  REQUIRE(::get_mempolicy(&node, nullptr, 0, const_cast<std::byte*>(p), MPOL_F_NODE | MPOL_F_ADDR) == 0);
  return node;
}
// A node that this process may use; -1: none.
int some_node() {
  if (::numa_available() < 0) return -1;
  for (int node = 0; node <= ::numa_max_node(); ++node)
    if (::numa_bitmask_isbitset(::numa_all_nodes_ptr, static_cast<unsigned>(node)) != 0) return node;
  return -1;
}

}  // namespace

TEST_CASE("numa: a pool on a node gives memory with that node's policy, touched pages lie there, and a purge changes nothing of it") {
  const int node = some_node();
  if (node < 0 || node >= 64) return testing::skip_case("no NUMA in this kernel");
  for (const NodePolicy wanted : {NodePolicy::prefer, NodePolicy::bind}) {
    const Result<NodePages> pages = NodePages::make(node, wanted);
    REQUIRE(pages.ok());
    CHECK(pages->node() == node);
    HostPoolOptions options;
    options.region_size = 64_MiB;
    NodeHeap heap = std::move(*NodeHeap::make(options, *pages));
    auto pool = heap.pool();
    const int mode = wanted == NodePolicy::bind ? MPOL_BIND : MPOL_PREFERRED;
    for (const Bytes size : {Bytes{100}, 1_MiB, 80_MiB}) {  // the last one in a region of its own
      const Block block = *pool.allocate(size, Alignment(64));
      CHECK(policy_at(block.data) == std::pair(mode, 1ul << node));
      std::memset(block.data, 1, static_cast<std::size_t>(size));
      if (wanted == NodePolicy::bind) CHECK(node_of(block.data + size - 1) == node);
      pool.deallocate(block);
      pool.trim(0);
    }
    const Block again = *pool.allocate(80_MiB, Alignment(64));
    CHECK(again.data[0] == std::byte{0});
    CHECK(policy_at(again.data) == std::pair(mode, 1ul << node));
    pool.deallocate(again);
  }
}

TEST_CASE("numa: a node that does not exist is not found") {
  if (some_node() < 0) {
    CHECK(NodePages::make(0).error().code == Errc::unsupported);
    return;
  }
  for (const int node : {-1, ::numa_max_node() + 1, 1023, 1024, 1 << 30}) {
    if (node <= ::numa_max_node() && node >= 0) continue;
    const Result<NodePages> pages = NodePages::make(node);
    REQUIRE(!pages.ok());
    CHECK(pages.error().code == Errc::not_found);
    CHECK(static_cast<std::int64_t>(pages.error().at) == node);
    CHECK(pages.error().available == ::numa_max_node() + 1);
  }
}
