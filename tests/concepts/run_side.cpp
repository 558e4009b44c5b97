// SPDX-License-Identifier: Apache-2.0
// For each concept of the run side one valid type, and one invalid type per requirement that lacks just that.
#include <doctest/doctest.h>

#include <atomic>

#include "holdfast/concepts/event.hpp"
#include "holdfast/concepts/hold_policy.hpp"
#include "holdfast/concepts/lock.hpp"
#include "holdfast/concepts/memory_backend.hpp"
#include "holdfast/concepts/observer.hpp"
#include "holdfast/concepts/ownership.hpp"
#include "holdfast/concepts/sync.hpp"
#include "holdfast/hold/shared_hold.hpp"

using namespace holdfast;

namespace {

// --- memory_backend ----------------------------------------------------------------------------------------------------
struct Good {
  static constexpr MemorySpace space = MemorySpace::device;
  Result<Block> allocate(Bytes, Alignment) noexcept { return Block{}; }
  void deallocate(Block) noexcept {}
};
static_assert(memory_backend<Good> && !host_accessible<Good> && host_accessible<EmptyMemory>);
struct NoSpace {
  Result<Block> allocate(Bytes, Alignment) noexcept { return Block{}; }
  void deallocate(Block) noexcept {}
};
struct Throwing : Good {
  Result<Block> allocate(Bytes, Alignment) { return Block{}; }
};
struct BareBlock : Good {
  Block allocate(Bytes, Alignment) noexcept { return {}; }
};
struct NoDeallocate {
  static constexpr MemorySpace space = MemorySpace::device;
  Result<Block> allocate(Bytes, Alignment) noexcept { return Block{}; }
};
struct NotCopyable : Good {
  NotCopyable(const NotCopyable&) = delete;
};
static_assert(!memory_backend<NoSpace> && !memory_backend<Throwing> && !memory_backend<BareBlock> &&
              !memory_backend<NoDeallocate> && !memory_backend<NotCopyable>);

struct Stream {};
struct Ordered : Good {
  using stream_type = Stream;
  using Good::allocate;
  using Good::deallocate;
  Result<Block> allocate(Stream&, Bytes, Alignment) noexcept { return Block{}; }
  void deallocate(Stream&, Block) noexcept {}
};
struct OrderedWithoutFree : Good {
  using stream_type = Stream;
  using Good::allocate;
  Result<Block> allocate(Stream&, Bytes, Alignment) noexcept { return Block{}; }
};
static_assert(stream_ordered_backend<Ordered> && !stream_ordered_backend<Good> && !stream_ordered_backend<OrderedWithoutFree>);

struct Done {
  static bool ready() noexcept { return true; }
  static Error wait() noexcept { return {}; }
};
struct Copying : Good {
  using event_type = Done;
  Result<Done> copy_in(Block, Bytes, std::span<const std::byte>) noexcept { return Done{}; }
  Result<Done> copy_out(Block, Bytes, std::span<std::byte>) noexcept { return Done{}; }
  Result<Done> copy(Block, Bytes, Block, Bytes, Bytes) noexcept { return Done{}; }
};
struct CopyingOneWay : Good {
  using event_type = Done;
  Result<Done> copy_in(Block, Bytes, std::span<const std::byte>) noexcept { return Done{}; }
};
struct StreamCopying : Ordered {
  using event_type = Done;
  Result<Done> copy_in(Stream&, Block, Bytes, std::span<const std::byte>) noexcept { return Done{}; }
  Result<Done> copy_out(Stream&, Block, Bytes, std::span<std::byte>) noexcept { return Done{}; }
  Result<Done> copy(Stream&, Block, Bytes, Block, Bytes, Bytes) noexcept { return Done{}; }
};
static_assert(copying_backend<Copying> && copying_backend<StreamCopying> && !copying_backend<Good> && !copying_backend<CopyingOneWay>);

struct Tagging : Good {
  using Good::allocate;
  Result<Block> allocate(Bytes, Alignment, Tag) noexcept { return Block{}; }
};
static_assert(tagging_backend<Tagging> && !tagging_backend<Good>);

struct Mapping {
  using mapping_type = Block;
  Result<Block> reserve(Bytes) noexcept { return Block{}; }
  Error commit(Block) noexcept { return {}; }
  Error protect(Block, Access) noexcept { return {}; }
  void release(Block) noexcept {}
};
struct MappingWithoutProtect {
  using mapping_type = Block;
  Result<Block> reserve(Bytes) noexcept { return Block{}; }
  Error commit(Block) noexcept { return {}; }
  void release(Block) noexcept {}
};
static_assert(mapping_backend<Mapping> && !mapping_backend<MappingWithoutProtect>);

struct Sharing : Good {
  Result<ShareHandle> export_handle(Block) noexcept { return ShareHandle{}; }
  Result<Block> import_handle(const ShareHandle&) noexcept { return Block{}; }
};
struct ExportOnly : Good {
  Result<ShareHandle> export_handle(Block) noexcept { return ShareHandle{}; }
};
static_assert(sharing_backend<Sharing> && !sharing_backend<ExportOnly>);

struct Inspectable : Good {
  template <class Visitor>
  void visit_blocks(Visitor&&) noexcept {}
  Bytes largest_free() noexcept { return 0; }
  Bytes trim(Bytes) noexcept { return 0; }
};
static_assert(inspectable_backend<Inspectable> && !inspectable_backend<Good>);

// --- event -------------------------------------------------------------------------------------------------------------
struct NoWait {
  static bool ready() noexcept { return true; }
};
struct NoReady {
  static Error wait() noexcept { return {}; }
};
struct Pinned : Done {
  Pinned(Pinned&&) = delete;
};
struct Notifying : Done {
  static bool then(Continuation&) noexcept { return false; }
};
struct Recording : Done {
  static Error record(Stream&) noexcept { return {}; }
  static Error wait_on(Stream&) noexcept { return {}; }
};
struct RecordOnly : Done {
  static Error record(Stream&) noexcept { return {}; }
};
static_assert(event<Done> && !event<NoWait> && !event<NoReady> && !event<Pinned>);
static_assert(notifying_event<Notifying> && !notifying_event<Done>);
static_assert(stream_event<Recording, Stream> && !stream_event<RecordOnly, Stream> && !stream_event<Recording, int>);
static_assert(!promised_event<Notifying>);
struct NoExecute {};
static_assert(executor<InlineExecutor> && !executor<NoExecute>);

// --- hold_policy, ownership, lock, sync, observer ------------------------------------------------------------------------
struct Policy {
  static constexpr bool concurrent = false;
  using ownership_type = Unique;
  static Error acquire(HoldKind, Deadline) noexcept { return {}; }
  template <class F>
  static void convert(F) noexcept {}
  static bool drop(HoldKind) noexcept { return false; }
  static void confirm() noexcept {}
  static Error release(Deadline) noexcept { return {}; }
  static bool settle() noexcept { return false; }
  static bool emptied() noexcept { return false; }
  static bool orphan() noexcept { return false; }
  static HoldCounts counts() noexcept { return {}; }
};
struct PolicyWithoutAbort : Policy {
  static void drop(HoldKind) noexcept {}
};
struct PolicyWithoutConcurrent {
  using ownership_type = Unique;
};
struct PolicyThatMayThrow : Policy {
  static Error acquire(HoldKind, Deadline) { return {}; }
};
static_assert(hold_policy<Policy> && !hold_policy<PolicyWithoutAbort> && !hold_policy<PolicyWithoutConcurrent> && !hold_policy<PolicyThatMayThrow>);

struct SharedWithoutSync {
  static constexpr bool shared = true;
};
static_assert(ownership<Shared> && ownership<Unique> && !ownership<SharedWithoutSync> && !ownership<int>);

struct LockOnly {
  static void lock() noexcept {}
};
static_assert(lock<NoLock> && !lock<LockOnly>);

struct SyncWithoutNotify {
  template <class T>
  using atomic = std::atomic<T>;
  template <class T>
  static void wait(std::atomic<T>&, T) noexcept {}
};
static_assert(holdfast::sync<StdSync> && holdfast::sync<NoSync> && !holdfast::sync<SyncWithoutNotify>);

struct Deaf : NoObserver {
  void on_failure(int) noexcept {}
};
static_assert(observer<NoObserver> && !observer<Deaf>);

}  // namespace

TEST_CASE("concepts: every requirement of the run side's concepts is one that a type can lack (static_assert)") {
  CHECK(memory_backend<Good>);
}
