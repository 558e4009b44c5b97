// SPDX-License-Identifier: Apache-2.0
// Pins nothing, but knows what is pinned, and refuses where told; a meter that says what it is told.
#pragma once

#include <map>
#include <mutex>

#include "holdfast/backend/host/memory_limit.hpp"
#include "holdfast/backend/layer/pinned.hpp"

namespace holdfast::testing {

struct FakePinner {
  std::mutex lock;
  std::map<std::byte*, Bytes> pinned;
  Bytes bytes = 0, peak = 0, limit = max_bytes;
  int calls = 0, fail_at = 0, wrong = 0;

  Error pin(Block pages) noexcept {
    const std::lock_guard<std::mutex> guard(lock);
    if (++calls == fail_at || pages.size > limit - bytes) {
      Error e = make_error(Errc::over_budget, "told to fail");
      e.native = 12;
      return e;
    }
    if (pages.size % 4096 != 0 || reinterpret_cast<std::uintptr_t>(pages.data) % 4096 != 0) ++wrong;
    pinned[pages.data] = pages.size;
    bytes += pages.size;
    if (bytes > peak) peak = bytes;
    return {};
  }
  void unpin(Block pages) noexcept {
    const std::lock_guard<std::mutex> guard(lock);
    const auto at = pinned.find(pages.data);
    if (at == pinned.end() || at->second != pages.size) {
      ++wrong;
      return;
    }
    pinned.erase(at);
    bytes -= pages.size;
  }
};

struct FakeMeter {
  MemoryRoom* left;
  int* asked;
  MemoryRoom room() noexcept { return ++*asked, *left; }
};

}  // namespace holdfast::testing
