// SPDX-License-Identifier: Apache-2.0
// Every call of the driver fails once at each place where it is made: nothing leaks, nothing is half made, and an error that
// names the call and carries its code reaches somebody.
#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "double/cuda_world.hpp"
#include "holdfast/backend/cuda/device_memory.hpp"
#include "holdfast/backend/cuda/dma_buf.hpp"
#include "holdfast/backend/cuda/host_memory.hpp"
#include "holdfast/backend/cuda/import_cache.hpp"
#include "holdfast/backend/cuda/ipc.hpp"
#include "holdfast/backend/cuda/multicast.hpp"
#include "holdfast/backend/cuda/pool_ipc.hpp"
#include "holdfast/backend/cuda/pool_memory.hpp"
#include "holdfast/backend/cuda/segment_memory.hpp"
#include "holdfast/backend/cuda/share.hpp"
#include "holdfast/backend/cuda/vmm_memory.hpp"
#include "holdfast/backend/cuda/vmm_segment.hpp"
#include "holdfast/backend/host/share_leases.hpp"
#include "holdfast/buffer/tracked_buffer.hpp"
#include "holdfast/event/combine.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {

// What a scenario was told.
struct Told {
  std::vector<Error> errors;
  bool operator()(const Error& e) {
    if (!e.ok()) errors.push_back(e);
    return e.ok();
  }
  template <class T>
  bool operator()(const Result<T>& r) {
    return (*this)(r.error());
  }
};

struct Scenario {
  std::string name;
  void (*run)(DoubleContext& context, CudaDouble& cuda, Told& told);
};

void streams_and_events(DoubleContext& context, CudaDouble& cuda, Told& told) {
  auto a = context.make_stream();
  if (!told(a)) return;
  auto b = context.make_stream();
  if (!told(b)) return;
  cuda.launch(a->native(), "work", {}, [] {});
  auto first = DoubleEvent::recorded_on(*a);
  if (told(first)) {
    CountingNode node;
    const bool queued = first->then(node);
    told(first->wait_on(*b));
    told(first->wait_on_native(b->native()));
    told(first->wait());
    CHECK(node.count == (queued ? 1 : 0));
  }
  told(b->idle());
  told(b->synchronize());
  auto lent = context.stream(a->native());
  told(lent);
  auto back = context.adopt_stream(a->release());
  told(back);
  told(context.synchronize());
}

template <class Memory>
void blocks(DoubleContext& context, Memory m, Told& told) {
  std::array<std::byte, 100> host{};
  auto x = m.allocate(100, Alignment(256));
  if (!told(x)) return;
  if constexpr (copying_backend<Memory>) {
    auto in = m.copy_in(*x, 0, host);
    if (told(in)) told(in->wait());
    auto out = m.copy_out(*x, 0, host);
    if (told(out)) told(out->wait());
    auto over = m.copy(*x, 0, *x, 50, 50);
    if (told(over)) told(over->wait());
  }
  if constexpr (stream_ordered_backend<Memory>) {
    auto s = context.make_stream();
    if (told(s)) {
      for (int i = 0; i < 2; ++i) {
        auto y = m.allocate(*s, 1000, Alignment(256));
        if (told(y)) m.deallocate(*s, *y);
      }
      told(s->synchronize());
    }
    static_cast<void>(m.trim(0));
  }
  // An event that failed does not say that the work has ended.
  told(context.synchronize());
  m.deallocate(*x);
}
void device_memory(DoubleContext& c, CudaDouble&, Told& told) { blocks(c, BasicCudaDeviceMemory<DoubleDriver>(c), told); }
void managed_memory(DoubleContext& c, CudaDouble&, Told& told) { blocks(c, BasicCudaManagedMemory<DoubleDriver>(c), told); }
void host_memory(DoubleContext& c, CudaDouble&, Told& told) { blocks(c, BasicCudaHostMemory<DoubleDriver>(c), told); }
void pool_memory(DoubleContext& c, CudaDouble&, Told& told) {
  auto pool = BasicCudaPool<DoubleDriver>::make(c, {.limit = 8_MiB});
  if (!told(pool)) return;
  blocks(c, pool->memory(), told);
  CHECK(pool->memory().used() <= 0);  // -1: that was the call that failed
}
void vmm_memory(DoubleContext& c, CudaDouble&, Told& told) {
  auto vmm = BasicCudaVmm<DoubleDriver>::make(c, {.budget = 8_MiB, .fabric = true});
  if (!told(vmm)) return;
  blocks(c, vmm->memory(), told);
}
void segment(DoubleContext& c, CudaDouble&, Told& told) {
  auto s = BasicCudaSegment<DoubleDriver>::reserve(c, 16_MiB);
  if (!told(s)) return;
  if (told(s->map(0, 6_MiB))) std::memset(s->range().data, 1, 6_MiB);
  static_cast<void>(s->unmap(2_MiB, 2_MiB));
  told(s->map(2_MiB, 6_MiB));
}
void segment_memory(DoubleContext& c, CudaDouble&, Told& told) {
  auto s = BasicCudaSegment<DoubleDriver>::reserve(c, 8_MiB);
  if (told(s)) blocks(c, BasicCudaSegmentMemory<DoubleDriver>(*s), told);
}
void registration(DoubleContext& c, CudaDouble&, Told& told) {
  static std::array<std::byte, 4096> bytes;
  auto r = BasicCudaRegistration<DoubleDriver>::make(c, {bytes.data(), 4096});
  told(r);
}
void peers(DoubleContext& c, CudaDouble& cuda, Told& told) {
  auto other = DoubleContext::make(cuda.driver(), 1);
  if (!told(other)) return;
  told(c.enable_peer(*other));
  auto pool = BasicCudaPool<DoubleDriver>::make(c);
  if (told(pool)) told(pool->allow(*other));
  auto vmm = BasicCudaVmm<DoubleDriver>::make(c);
  if (told(vmm)) {
    const auto before = vmm->memory().allocate(100, Alignment(256));
    told(before);
    told(vmm->allow(*other));
    const auto after = vmm->memory().allocate(100, Alignment(256));
    told(after);
    if (before.ok()) vmm->memory().deallocate(*before);
    if (after.ok()) vmm->memory().deallocate(*after);
  }
  auto segment = BasicCudaSegment<DoubleDriver>::reserve(c, 4_MiB);
  if (told(segment)) {
    told(segment->map(0, 2_MiB));
    told(segment->allow(*other));
    told(segment->map(2_MiB, 2_MiB));
  }
  told(other->unreported());
}
void ipc(DoubleContext& c, CudaDouble&, Told& told) {
  CudaDoubleOptions few;
  few.capacity = 1_MiB;
  CudaWorld elsewhere(few);
  BasicCudaDeviceMemory<DoubleDriver> theirs(*elsewhere.context), mine(c);
  const Block block = *theirs.allocate(1000, Alignment(256));
  {
    const ShareHandle handle = *export_cuda_block(*elsewhere.context, block);
    auto import = BasicCudaImport<DoubleDriver>::open(c, handle);
    told(import);
  }
  theirs.deallocate(block);
  auto own = mine.allocate(100, Alignment(256));
  if (!told(own)) return;
  told(export_cuda_block(c, *own));
  mine.deallocate(*own);
}
void peer_ipc(DoubleContext& c, CudaDouble&, Told& told) {
  CudaDoubleOptions few;
  few.capacity = 1_MiB;
  CudaWorld elsewhere(few);
  const ShareIdentity self{{}, 1, 0}, other{{}, 2, 0};
  BasicCudaDeviceMemory<DoubleDriver> theirs(*elsewhere.other);
  const Block block = *theirs.allocate(1000, Alignment(256));
  {
    const ShareBlob blob = *share_cuda_block(*elsewhere.other, block, other);
    auto import = BasicCudaImport<DoubleDriver>::open(c, blob, self, 0);
    told(import);
  }
  theirs.deallocate(block);
}
void files(DoubleContext& c, CudaDouble&, Told& told) {
  CudaDoubleOptions few;
  few.capacity = 4_MiB;
  CudaWorld elsewhere(few);
  const ShareIdentity self{{}, 1, 0}, other{{}, 2, 0};
  auto theirs = std::move(*BasicCudaVmm<DoubleDriver>::make(*elsewhere.context));
  const Block block = *theirs.memory().allocate(1000, Alignment(256));
  {
    const CudaSharedFile shared = *theirs.memory().share(block, other);
    auto import = BasicCudaFileImport<DoubleDriver>::open(c, shared.file(), shared.blob(), self, 0);
    if (told(import)) std::memset(import->block().data, 1, 1000);
  }
  theirs.memory().deallocate(block);
  auto vmm = BasicCudaVmm<DoubleDriver>::make(c);
  if (!told(vmm)) return;
  auto own = vmm->memory().allocate(100, Alignment(256));
  if (!told(own)) return;
  told(vmm->memory().share(*own, self));
  vmm->memory().deallocate(*own);
}
void fabric(DoubleContext& c, CudaDouble&, Told& told) {
  CudaDoubleOptions few;
  few.capacity = 4_MiB;
  CudaWorld elsewhere(few);
  const ShareIdentity self{{}, 1, 0}, other{{std::byte{1}}, 1, 0};
  auto theirs = std::move(*BasicCudaVmm<DoubleDriver>::make(*elsewhere.context, {.fabric = true}));
  const Block block = *theirs.memory().allocate(1000, Alignment(256));
  {
    auto import = BasicCudaFabricImport<DoubleDriver>::open(c, *theirs.memory().share_fabric(block, other), self, 0);
    if (told(import)) std::memset(import->block().data, 1, 1000);
  }
  theirs.memory().deallocate(block);
  auto vmm = BasicCudaVmm<DoubleDriver>::make(c, {.fabric = true});
  if (!told(vmm)) return;
  auto own = vmm->memory().allocate(100, Alignment(256));
  if (!told(own)) return;
  told(vmm->memory().share_fabric(*own, self));
  vmm->memory().deallocate(*own);
}
void shared_pools(DoubleContext& c, CudaDouble&, Told& told) {
  CudaDoubleOptions few;
  few.capacity = 4_MiB;
  CudaWorld elsewhere(few);
  const ShareIdentity self{{}, 1, 0}, other{{}, 2, 0};
  auto theirs = std::move(*BasicCudaPool<DoubleDriver>::make(*elsewhere.context, {.file_handles = true}));
  const Block block = *theirs.memory().allocate(1000, Alignment(256));
  {
    const OwnedFile file = *share_cuda_pool(theirs.memory());
    const ShareBlob blob = *share_cuda_pool_block(theirs.memory(), block, other);
    auto pool = BasicCudaPoolImport<DoubleDriver>::open(c, file->number, blob, self, 0);
    if (told(pool)) {
      told(pool->block(blob, self, 0));
      auto import = pool->block(blob, self, 0);
      auto s = c.make_stream();
      if (told(import) && told(s)) {
        import->release(*s);
        told(s->synchronize());
      }
    }
    told(c.synchronize());  // whatever failed: the release has ended
  }
  theirs.memory().deallocate(block);
  auto own = BasicCudaPool<DoubleDriver>::make(c, {.file_handles = true});
  if (!told(own)) return;
  auto mine = own->memory().allocate(100, Alignment(256));
  if (!told(mine)) return;
  if (told(share_cuda_pool(own->memory()))) told(share_cuda_pool_block(own->memory(), *mine, self));
  own->memory().deallocate(*mine);
}
void dma_buf(DoubleContext& c, CudaDouble&, Told& told) {
  BasicCudaDeviceMemory<DoubleDriver> m(c);
  auto b = m.allocate(64_KiB, Alignment(256));
  if (!told(b)) return;
  told(export_cuda_dma_buf(c, {b->data + 10000, 1000}));
  m.deallocate(*b);
}
template <class Memory>
void share_of(DoubleContext& c, Memory memory, Told& told) {
  const ShareIdentity self{{}, 1, 0}, other{{}, 2, 0};
  auto b = memory.allocate(1000, Alignment(256));
  if (!told(b)) return;
  {
    CudaDoubleOptions few;
    few.capacity = 4_MiB;
    auto shared = share_cuda(c, *b, self);
    if (told(shared)) {
      CudaWorld elsewhere(few);
      CHECK(BasicCudaShared<DoubleDriver>::open(*elsewhere.context, shared->file(), shared->blob(), other, 0).ok());
    }
  }
  memory.deallocate(*b);
}
void sharing(DoubleContext& c, CudaDouble&, Told& told) {
  share_of(c, BasicCudaDeviceMemory<DoubleDriver>(c), told);
  auto pool = BasicCudaPool<DoubleDriver>::make(c, {.file_handles = true});
  if (told(pool)) share_of(c, pool->memory(), told);
  auto vmm = BasicCudaVmm<DoubleDriver>::make(c);
  if (told(vmm)) share_of(c, vmm->memory(), told);
}
// With a device of another process in the team, which offers the object or joins.
void shared_multicast(DoubleContext& c, CudaDouble&, Told& told) {
  using Team = BasicCudaMulticastTeam<DoubleDriver>;
  using Object = BasicCudaMulticast<DoubleDriver>;
  CudaWorld elsewhere;
  const ShareIdentity self{{}, 1, 0}, other{{}, 2, 0};
  const DoubleContext *const here[] = {&c}, *const there[] = {&*elsewhere.other};
  const CudaMulticastOptions both{.devices = 2, .file_handles = true, .fabric = true};
  const auto use = [&](Team a, Team b) {
    auto ours = Object::make(std::move(a));
    if (told(ours)) std::memset(ours->unicast(0).data, 1, 100);
    CHECK(Object::make(std::move(b)).ok());
  };
  auto offered = Team::make(here, 1, both);
  if (told(offered)) {
    told(offered->share_fabric(self));
    auto shared = offered->share(self);
    if (told(shared)) use(std::move(*offered), std::move(*Team::open(there, shared->file(), shared->blob(), other, 0)));
  }
  Team theirs = std::move(*Team::make(there, 1, both));
  auto joined = Team::open(here, *theirs.share_fabric(other), self, 0);
  if (told(joined)) use(std::move(*joined), std::move(theirs));
}
void multicast(DoubleContext& c, CudaDouble& cuda, Told& told) {
  auto other = DoubleContext::make(cuda.driver(), 1);
  if (!told(other)) return;
  const DoubleContext* const team[] = {&c, &*other};
  {
    auto m = BasicCudaMulticast<DoubleDriver>::make(team, 1_MiB);
    if (told(m)) std::memset(m->unicast(1).data, 1, 1_MiB);
    auto one = BasicCudaVmm<DoubleDriver>::make(c), two = BasicCudaVmm<DoubleDriver>::make(*other);
    if (!told(one) || !told(two)) return;
    auto a = one->memory().allocate(1_KiB, Alignment(256)), b = two->memory().allocate(1_KiB, Alignment(256));
    told(a), told(b);
    if (a.ok() && b.ok()) told(BasicCudaMulticast<DoubleDriver>::over(team, std::array{*a, *b}));
    if (a.ok()) one->memory().deallocate(*a);
    if (b.ok()) two->memory().deallocate(*b);
  }
  told(other->unreported());
}
void import_cache(DoubleContext& c, CudaDouble&, Told& told) {
  CudaDoubleOptions few;
  few.capacity = 4_MiB;
  CudaWorld elsewhere(few);
  const ShareIdentity self{{}, 1, 0}, other{{}, 2, 0};
  auto pool = std::move(*BasicCudaPool<DoubleDriver>::make(*elsewhere.context, {.file_handles = true}));
  auto vmm = std::move(*BasicCudaVmm<DoubleDriver>::make(*elsewhere.context));
  BasicCudaImportCache<DoubleDriver> cache(c);
  const auto import = [&](auto memory) {
    ShareLeases<decltype(memory)> leases(memory);
    const Block block = *memory.allocate(1000, Alignment(256));
    {
      const CudaSharedFile shared = *share_cuda(*elsewhere.context, block, other);
      auto whole = cache.open(shared.file(), shared.blob(), self, 0, std::move(*leases.lend(block)));
      auto again = cache.open(shared.file(), shared.blob(), self, 0, std::move(*leases.lend(block)));
      told(whole);
      CHECK((told(again) || !whole.ok()));
    }
    CHECK(leases.collect() == 0);
    CHECK(cache.size() == 0);
    leases.deallocate(block);
  };
  import(BasicCudaDeviceMemory<DoubleDriver>(*elsewhere.context));
  import(pool.memory());
  import(vmm.memory());
}
void buffers(DoubleContext& c, CudaDouble& cuda, Told& told) {
  auto pool = BasicCudaPool<DoubleDriver>::make(c);
  if (!told(pool)) return;
  {
    auto s = c.make_stream();
    if (!told(s)) return;
    using Buffer = TrackedBuffer<BasicCudaPoolMemory<DoubleDriver>, DoubleEvent, SharedHold>;
    cuda.launch(s->native(), "producer", {}, [] {});
    auto raw = Buffer::raw_type::allocate(pool->memory(), 1000);
    if (!told(raw)) return;
    auto written = DoubleEvent::recorded_on(*s);
    if (!told(written)) return;
    const DoubleEvent definition[] = {*written};
    auto b = Buffer::make(std::move(*raw), definition);
    if (!told(b)) return;
    told(b->wait_until_ready_on(s->ref()));
    auto read = DoubleEvent::recorded_on(*s);
    if (told(read)) b->hold(HoldKind::usage)->convert(*read);
    auto ready = b->ready_event();
    if (told(ready)) told(ready->wait());
    told(b->block_for_operations());
    told(b->release());
  }
  told(c.synchronize());
  c.run_completions();
  CHECK(pool->memory().used() <= 0);
}

const Scenario scenarios[] = {
    {"streams and events", streams_and_events}, {"device memory", device_memory}, {"managed memory", managed_memory},
    {"host memory", host_memory},               {"pool memory", pool_memory},     {"vmm memory", vmm_memory},
    {"segment", segment},                       {"registration", registration},   {"peers", peers},
    {"buffers", buffers},                       {"ipc", ipc},
    {"files", files},                           {"segment memory", segment_memory},
    {"ipc of a peer", peer_ipc},                {"shared pools", shared_pools},
    {"dma-buf", dma_buf},                       {"sharing", sharing},
    {"multicast", multicast},                   {"fabric", fabric},
    {"shared multicast", shared_multicast},     {"import cache", import_cache},
};

// Many are made: little memory each.
CudaDoubleOptions small() {
  CudaDoubleOptions o;
  o.capacity = 12_MiB;
  return o;
}
bool names(const std::vector<Error>& errors, const std::string& call, CUresult code) {
  for (const Error& e : errors)
    if (e.native == static_cast<int>(code) && std::string(e.what).find(call) == 0) return true;
  return false;
}

}  // namespace

TEST_CASE("cuda faults: every call fails once wherever it is made: no leak, nothing half made, the error names the call and the code") {
  std::set<std::string> hit;
  std::uint64_t places = 0;
  const int files = open_files();
  for (const CUresult code : {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_LAUNCH_FAILED})
    for (const Scenario& scenario : scenarios)
      for (std::uint64_t n = 1;; ++n) {
        REQUIRE(open_files() == files);
        CudaDouble cuda(small());
        Told told;
        cuda.fail_at(n, code);
        {
          auto context = DoubleContext::make(cuda.driver(), 0);
          if (told(context)) {
            scenario.run(*context, cuda, told);
            told(context->unreported());
          }
        }
        if (cuda.failed_call.empty()) break;
        CAPTURE(scenario.name);
        CAPTURE(n);
        CAPTURE(cuda.failed_call);
        hit.insert(cuda.failed_call);
        ++places;
        CHECK(cuda.leaks() == "");
        CHECK(cuda.misuse == "");
        // The context's own end has nobody left to tell.
        const bool ends = told.errors.empty() && (cuda.failed_call == "cuDevicePrimaryCtxRelease" || cuda.failed_call == "cuEventDestroy" ||
                                                  cuda.failed_call == "cuStreamDestroy" || cuda.failed_call == "cuCtxPushCurrent" || cuda.failed_call == "cuCtxGetCurrent" ||
                                                  cuda.failed_call == "cuThreadExchangeStreamCaptureMode" ||
                                                  cuda.failed_call == "cuCtxPopCurrent" || cuda.failed_call == "cuStreamSynchronize");
        CHECK((ends || names(told.errors, cuda.failed_call, code)));
      }
  std::string missed;
  cuda_call_names([&](const char* name) {
    if (hit.count(name) == 0) missed += std::string(name) + " ";
  });
  CHECK(missed == "cuInit cuDriverGetVersion cuMemGetInfo ");  // the last: its failure is no news
  CHECK(places > 400);
}

TEST_CASE("cuda faults: without that call nobody was told of a failure, and nothing is kept") {
  for (const Scenario& scenario : scenarios) {
    CudaDouble cuda;
    Told told;
    {
      auto context = DoubleContext::make(cuda.driver(), 0);
      scenario.run(*context, cuda, told);
      told(context->unreported());
    }
    CAPTURE(scenario.name);
    CHECK(told.errors.empty());
    CHECK(cuda.leaks() == "");
    CHECK(cuda.misuse == "");
    CHECK(cuda.races() == "");
  }
}

TEST_CASE("cuda faults: when even the question how much is free fails, out of memory is still that") {
  CudaWorld w;
  BasicCudaDeviceMemory<DoubleDriver> m(*w.context);
  w.cuda.fail_at(10, CUDA_ERROR_UNKNOWN);  // current?, push, relaxed, alloc, not relaxed, pop; current?, push, relaxed, the question
  const Error e = m.allocate(65_MiB, Alignment(1)).error();
  CHECK(w.cuda.failed_call == "cuMemGetInfo");
  CHECK(e.code == Errc::out_of_memory);
  CHECK(e.native == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(e.available == -1);
}
