// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "holdfast/backend/cuda/share.hpp"
#include "holdfast/backend/host/owned_file.hpp"
#include "holdfast/concepts/lock.hpp"
#include "holdfast/core/owned.hpp"
#include "holdfast/event/event_list.hpp"

namespace holdfast {

template <cuda_driver Driver>
class BasicCudaImportCache;

/// A block of another process, one of the users of a mapping that a cache holds; then, when it goes, its lease ends.
///
/// Threads: as a value. The cache must outlive it.
template <cuda_driver Driver>
class BasicCudaCachedImport {
 public:
  constexpr BasicCudaCachedImport() noexcept = default;
  [[nodiscard]] Block block() const noexcept { return use_->block; }

 private:
  friend class BasicCudaImportCache<Driver>;
  using Cache = BasicCudaImportCache<Driver>;
  struct Use {
    Cache* cache = nullptr;
    typename Cache::Entry* entry = nullptr;
    Block block;
    OwnedFile lease;
    void close() noexcept {
      if (cache != nullptr) cache->leave(*entry);
      lease = OwnedFile();  // its owner may give the memory back now
    }
  };
  Owned<Use> use_;
};

/// The allocations of other processes that are open here, each once: whoever opens a block of one shares its mapping, and the
/// last user closes it.
///
/// An allocation is known by its owner, the owner's generation and its number there, which is of no other, before or after; so
/// what was freed and made anew at the same address is another. A blob is believed whose it says it is: where that is not
/// sure, whoever receives it asks the system who sent it. Threads: any; one at a time opens or closes. The context must
/// outlive it. Cost: linear in the open allocations. Source: backends.md 10.2.
template <cuda_driver Driver>
class BasicCudaImportCache {
 public:
  using context_type = BasicCudaContext<Driver>;
  using import_type = BasicCudaCachedImport<Driver>;

  explicit BasicCudaImportCache(const context_type& context) noexcept : context_(context) {}
  BasicCudaImportCache(const BasicCudaImportCache&) = delete;
  BasicCudaImportCache& operator=(const BasicCudaImportCache&) = delete;

  /// Opens a block, or finds its allocation open. The file stays the caller's; the lease, if its owner sent one with it, ends
  /// when the import goes, or at once when this fails.
  ///
  /// Errors: as `BasicCudaShared::open`, of an allocation that is open too; out_of_memory.
  [[nodiscard]] Result<import_type> open(int file, const ShareBlob& blob, const ShareIdentity& self, std::uint64_t generation,
                                         OwnedFile lease = {}) noexcept {
    if (Error e = check_share(blob, self, generation); !e.ok()) return e;
    const LockGuard<WordLock> guard(lock_);
    Entry* found = nullptr;
    for (const std::unique_ptr<Entry>& e : entries_.span())
      if (e->whole.same_allocation(blob)) found = e.get();
    if (found == nullptr) {
      std::unique_ptr<Entry> fresh(new (std::nothrow) Entry);
      if (fresh == nullptr) return make_error(Errc::out_of_memory, "no memory for an import");
      fresh->whole = blob;
      fresh->whole.handle.offset = 0;
      fresh->whole.handle.size = blob.whole;
      Result<BasicCudaShared<Driver>> shared = BasicCudaShared<Driver>::open(context_, file, fresh->whole, self, generation);
      if (!shared.ok()) return shared.error();
      fresh->shared = std::move(*shared);
      found = fresh.get();
      if (Error e = entries_.push_back(std::move(fresh)); !e.ok()) return e;
    }
    ++found->users;
    import_type made;
    made.use_ = Owned<typename import_type::Use>({this, found, {found->shared.block().data + blob.handle.offset, blob.handle.size}, std::move(lease)});
    return made;
  }
  /// How many allocations are open.
  [[nodiscard]] std::size_t size() noexcept {
    const LockGuard<WordLock> guard(lock_);
    return entries_.size();
  }

 private:
  friend import_type;
  struct Entry {
    ShareBlob whole;
    BasicCudaShared<Driver> shared;
    std::size_t users = 0;
  };
  // Under the lock also while it closes: opened anew it must not meet itself.
  void leave(Entry& entry) noexcept {
    const LockGuard<WordLock> guard(lock_);
    if (--entry.users == 0) entries_.remove_if([&](const std::unique_ptr<Entry>& e) noexcept { return e.get() == &entry; });
  }

  const context_type& context_;
  WordLock lock_;
  SmallList<std::unique_ptr<Entry>> entries_;
};

/// The imports of this machine's driver.
using CudaCachedImport = BasicCudaCachedImport<RealDriver>;
using CudaImportCache = BasicCudaImportCache<RealDriver>;

}  // namespace holdfast
