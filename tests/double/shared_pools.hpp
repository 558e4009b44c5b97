// SPDX-License-Identifier: Apache-2.0
// Pools of one process that others, which other doubles are, have opened, as cuda.h and the programming guide describe them.
// An imported block lies where its owner has it; who may touch it is checked by whoever runs work.
#pragma once

#include <cuda.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

namespace holdfast::testing {

class SharedPools {
 public:
  SharedPools() = default;
  SharedPools(SharedPools&&) = delete;
  ~SharedPools() { clear(); }

  // --- of the owner ---

  /// A number for a pool that can be exported.
  std::uint64_t name_pool() {
    names().pools[++names().last] = this;
    return names().last;
  }
  static CUresult export_file(int* out, std::uint64_t pool) {
    const int file = ::memfd_create("memory pool", MFD_CLOEXEC);
    if (file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    if (::write(file, &pool, sizeof pool) != sizeof pool) return ::close(file), CUDA_ERROR_OUT_OF_MEMORY;
    return *out = file, CUDA_SUCCESS;
  }
  /// A number for a block of such a pool.
  static std::uint64_t name_block(std::uint64_t pool, CUdeviceptr at, std::size_t size) {
    names().blocks[++names().last] = {pool, at, size, 0};
    return names().last;
  }
  /// Its owner frees it; false: others have it still.
  static bool forget_block(std::uint64_t block) {
    const auto b = names().blocks.find(block);
    if (b == names().blocks.end()) return true;
    const bool unused = b->second.importers == 0;
    names().blocks.erase(b);
    return unused;
  }

  // --- of those who open them ---

  /// The pool that a file stands for; 0: none, or one of this process.
  std::uint64_t open_file(int file) const {
    std::uint64_t pool = 0;
    if (::pread(file, &pool, sizeof pool, 0) != sizeof pool) return 0;
    const auto p = names().pools.find(pool);
    return p == names().pools.end() || p->second == this ? 0 : pool;
  }
  CUresult open_block(CUdeviceptr* out, CUmemoryPool into, std::uint64_t pool, std::uint64_t block) {
    const auto b = names().blocks.find(block);
    if (b == names().blocks.end() || b->second.pool != pool) return CUDA_ERROR_INVALID_VALUE;
    if (imported_.count(b->second.at) != 0) return CUDA_ERROR_ALREADY_MAPPED;
    ++b->second.importers;
    imported_[b->second.at] = {b->second.size, block, into};
    return *out = b->second.at, CUDA_SUCCESS;
  }
  struct Imported {
    std::size_t size;
    std::uint64_t block;
    CUmemoryPool pool;
  };
  /// The imported block that an address lies in; null: none.
  const Imported* find(CUdeviceptr p, CUdeviceptr* base = nullptr) const {
    auto i = imported_.upper_bound(p);
    if (i == imported_.begin() || (--i, p - i->first >= i->second.size)) return nullptr;
    if (base != nullptr) *base = i->first;
    return &i->second;
  }
  /// It is freed here; the number is to be told `done` when that has happened.
  std::uint64_t close_block(CUdeviceptr at) {
    const std::uint64_t block = imported_.at(at).block;
    imported_.erase(at);
    return block;
  }
  static void done(std::uint64_t block) {
    const auto b = names().blocks.find(block);
    if (b != names().blocks.end()) --b->second.importers;
  }
  std::size_t imported() const { return imported_.size(); }
  /// The process ends.
  void clear() {
    for (auto& [at, i] : imported_) done(i.block);
    imported_.clear();
    std::erase_if(names().pools, [this](const auto& p) { return p.second == this; });
  }

 private:
  struct Block {
    std::uint64_t pool;
    CUdeviceptr at;
    std::size_t size;
    int importers;
  };
  struct Names {
    std::uint64_t last = 0;
    std::map<std::uint64_t, const SharedPools*> pools;
    std::map<std::uint64_t, Block> blocks;
  };
  static Names& names() {
    static Names all;
    return all;
  }
  std::map<CUdeviceptr, Imported> imported_;
};

}  // namespace holdfast::testing
