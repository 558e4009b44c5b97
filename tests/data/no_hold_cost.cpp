// SPDX-License-Identifier: Apache-2.0
// Compiled and disassembled by tests/layout/no_hold_cost.cpp: a tracked buffer without holds beside a bare holder.
#include <new>

#include "holdfast/buffer/tracked_buffer.hpp"
#include "holdfast/hold/no_hold.hpp"

using namespace holdfast;

extern "C" {
void* get(Bytes size, Bytes alignment) noexcept;
void put(void* p, Bytes size) noexcept;
void use(std::byte* p, Bytes size) noexcept;
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

struct Bare {
  std::byte* data;
  Bytes size;
  ~Bare() {
    if (data != nullptr) put(data, size);
  }
};
using Tracked = TrackedBuffer<Source, ImmediateEvent, NoHold>;

extern "C" {
void bare_make(Bare* b, std::byte* p, Bytes n) { new (b) Bare{p, n}; }
void tracked_make(Tracked* b, std::byte* p, Bytes n) {
  new (b) Tracked(std::move(*Tracked::make(std::move(*RawBuffer<Source, Unique>::adopt({}, Block{p, n})))));
}

void bare_use(Bare& b) { use(b.data, b.size); }
void tracked_use(Tracked& b) { use(b.raw().data(), b.size()); }

void bare_destroy(Bare* b) { b->~Bare(); }
void tracked_destroy(Tracked* b) { b->~Tracked(); }

int bare_whole(Bytes n) {
  void* p = get(n, 64);
  if (p == nullptr) return -1;
  Bare b{static_cast<std::byte*>(p), n};
  use(b.data, b.size);
  return 0;
}
int tracked_whole(Bytes n) {
  auto b = Tracked::allocate({}, n);
  if (!b.ok()) return -1;
  use(b->raw().data(), b->size());
  return 0;
}
}
