// SPDX-License-Identifier: Apache-2.0
// Host memory that takes back exactly what it gave, fails where told, and is inspectable: one pointer to its log.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "holdfast/backend/host/system_memory.hpp"

namespace holdfast::testing {

/// What a strict memory gave and got back.
struct StrictLog {
  struct Call {
    Bytes size, alignment;
    Tag tag;
  };
  std::mutex lock;
  std::vector<Call> calls;               ///< all requests, refused ones too
  std::map<std::byte*, Bytes> live;
  long fail_at = 0;                      ///< the call of this number fails, 1: the first; and all after it if `fail_on`
  bool fail_on = false;
  Bytes capacity = max_bytes;            ///< of what is live
  int wrong = 0;                         ///< releases of what it did not give, or not so large
  [[nodiscard]] Bytes live_bytes() const {
    Bytes sum = 0;
    for (const auto& [data, size] : live) sum += size;
    return sum;
  }
};

class StrictMemory {
 public:
  static constexpr MemorySpace space = MemorySpace::host;
  explicit StrictMemory(StrictLog& log) noexcept : log_(&log) {}

  Result<Block> allocate(Bytes size, Alignment alignment, Tag tag) noexcept {
    const std::lock_guard<std::mutex> guard(log_->lock);
    if (size == 0) return Block{};
    log_->calls.push_back({size, alignment.value(), tag});
    const long call = static_cast<long>(log_->calls.size());
    const bool told = log_->fail_at != 0 && (call == log_->fail_at || (log_->fail_on && call > log_->fail_at));
    if (size > 0 && (told || size > log_->capacity - log_->live_bytes())) return make_error(Errc::out_of_memory, "told to fail");
    Result<Block> block = SystemMemory{}.allocate(size, alignment);
    if (block.ok()) log_->live[block->data] = size;
    return block;
  }
  Result<Block> allocate(Bytes size, Alignment alignment) noexcept { return allocate(size, alignment, Tag{}); }
  void deallocate(Block block) noexcept {
    if (block.data == nullptr) return;
    const std::lock_guard<std::mutex> guard(log_->lock);
    const auto at = log_->live.find(block.data);
    if (at == log_->live.end() || at->second != block.size) {
      ++log_->wrong;
      return;
    }
    log_->live.erase(at);
    std::memset(block.data, 0xEE, static_cast<std::size_t>(block.size));
    SystemMemory{}.deallocate(block);
  }
  template <class Visitor>
  void visit_blocks(Visitor visitor) noexcept {
    for (const auto& [data, size] : log_->live) visitor(Block{data, size}, Tag{});
  }
  Bytes largest_free() noexcept { return log_->capacity == max_bytes ? 0 : log_->capacity - log_->live_bytes(); }
  Bytes trim(Bytes) noexcept { return 0; }

 private:
  StrictLog* log_;
};
static_assert(tagging_backend<StrictMemory> && inspectable_backend<StrictMemory>);

}  // namespace holdfast::testing
