// SPDX-License-Identifier: Apache-2.0
// Compiled and disassembled by tests/layout/layer_cost.cpp: a source under layers that do nothing beside the bare source.
#include "holdfast/backend/layer/locked.hpp"
#include "holdfast/backend/layer/observed.hpp"
#include "holdfast/backend/stack.hpp"

using namespace holdfast;

extern "C" {
void* get(Bytes size, Bytes alignment) noexcept;
void put(void* p, Bytes size) noexcept;
}

struct Source {
  static constexpr MemorySpace space = MemorySpace::host;
  Result<Block> allocate(Bytes size, Alignment alignment) noexcept {
    void* p = get(size, alignment.value());
    if (p == nullptr) return make_error(Errc::out_of_memory, "none");
    return Block{static_cast<std::byte*>(p), size};
  }
  void deallocate(Block block) noexcept { put(block.data, block.size); }
};
using Layered = Stack<Source, Observed<NoObserver>, Locked<NoLock>, Observed<NoObserver>>;

template <class Memory>
void* pair(Memory memory, Bytes size) {
  Result<Block> block = memory.allocate(size, Alignment(64));
  if (!block.ok()) return nullptr;
  std::byte* p = block->data;
  memory.deallocate(*block);
  return p;
}
template <class Memory>
bool take(Memory memory, Bytes size, Block& out) {
  Result<Block> block = memory.allocate(size, Alignment(64));
  if (block.ok()) out = *block;
  return block.ok();
}

extern "C" {
bool bare_take(Bytes size, Block& out) { return take(Source{}, size, out); }
bool layered_take(Bytes size, Block& out) { return take(Layered{}, size, out); }
void bare_give(Block block) { Source{}.deallocate(block); }
void layered_give(Block block) { Layered{}.deallocate(block); }
void* bare_pair(Bytes size) { return pair(Source{}, size); }
void* layered_pair(Bytes size) { return pair(Layered{}, size); }
}
