// SPDX-License-Identifier: Apache-2.0
// The system's pages with a log: what is reserved, what was asked for, and a refusal at the n-th call or from there on.
#pragma once

#include <algorithm>
#include <atomic>

#include "holdfast/backend/host/page_source.hpp"

namespace holdfast::testing {

/// What all `CountedPages` saw since `reset`; its pools call one at a time.
struct PageLog {
  std::atomic<long> calls{0}, open{0}, refuse_at{0}, purges{0}, refuse_purge_at{0};
  std::atomic<bool> refuse_after{false};
  std::atomic<Bytes> reserved{0}, smallest{max_bytes}, purged{0};
  void reset() {
    calls = open = refuse_at = purges = refuse_purge_at = 0;
    refuse_after = false;
    reserved = purged = 0;
    smallest = max_bytes;
  }
};
inline PageLog page_log;

struct CountedPages {
  std::byte* reserve(Bytes size) noexcept {
    const long call = ++page_log.calls;
    page_log.smallest = std::min(page_log.smallest.load(), size);
    if (page_log.refuse_at != 0 && (call == page_log.refuse_at || (page_log.refuse_after && call > page_log.refuse_at))) return nullptr;
    std::byte* p = SystemPages{}.reserve(size);
    if (p != nullptr) ++page_log.open, page_log.reserved += size;
    return p;
  }
  void release(std::byte* data, Bytes size) noexcept {
    --page_log.open;
    page_log.reserved -= size;
    SystemPages{}.release(data, size);
  }
  bool purge(std::byte* data, Bytes size) noexcept {
    const long call = ++page_log.purges;
    if (page_log.refuse_purge_at != 0 && (call == page_log.refuse_purge_at || (page_log.refuse_after && call > page_log.refuse_purge_at)))
      return false;
    page_log.purged += size;
    return SystemPages{}.purge(data, size);
  }
  void advise_huge(std::byte* data, Bytes size) noexcept { SystemPages{}.advise_huge(data, size); }
};

/// What a metered source says, and how often it was asked.
struct Meter {
  MemoryRoom room;
  long asked = 0;
};
inline Meter meter;

struct MeteredPages : CountedPages {
  MemoryRoom room() noexcept {
    ++meter.asked;
    return meter.room;
  }
};

}  // namespace holdfast::testing
