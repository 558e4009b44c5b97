// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/cuda/vmm_memory.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "double/cuda_world.hpp"
#include "holdfast/backend/cuda/vmm_segment.hpp"
#include "holdfast/buffer/tracked_buffer.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {
using Vmm = BasicCudaVmm<DoubleDriver>;
using Memory = BasicCudaVmmMemory<DoubleDriver>;
static_assert(stream_ordered_backend<Memory> && copying_backend<Memory>);

Vmm make(CudaWorld& w, const CudaVmmOptions& o = {}) { return std::move(*Vmm::make(*w.context, o)); }
std::vector<std::string> since(const CudaWorld& w, std::uint64_t from) {
  std::vector<std::string> names;
  for (std::size_t i = static_cast<std::size_t>(from); i < w.cuda.log.size(); ++i)
    if (!is_around(w.cuda.log[i])) names.push_back(w.cuda.log[i]);
  return names;
}
using Names = std::vector<std::string>;
}  // namespace

TEST_CASE("cuda vmm: VM1 where fabric handles are not permitted, or not supported, file handles are asked for") {
  for (const CUresult refusal : {CUDA_ERROR_NOT_PERMITTED, CUDA_ERROR_NOT_SUPPORTED}) {
    CudaDoubleOptions o;
    o.fabric = refusal;
    CudaWorld w(o);
    const Vmm vmm = make(w, {.fabric = true});
    Memory m = vmm.memory();
    const Block b = *m.allocate(1, Alignment(1));
    CHECK(w.cuda.count("cuMemCreate") == 2);
    m.deallocate(b);
  }
}

TEST_CASE("cuda vmm: VM1 out of memory is an error at once, no second try") {
  CudaDoubleOptions o;
  o.fabric = CUDA_ERROR_OUT_OF_MEMORY;
  CudaWorld w(o);
  const Vmm vmm = make(w, {.fabric = true});
  const Error e = vmm.memory().allocate(1, Alignment(1)).error();
  CHECK(e.code == Errc::out_of_memory);
  CHECK(e.requested == 1);
  CHECK(e.available == o.capacity);
  CHECK(says(e, "cuMemCreate failed"));
  CHECK(w.cuda.count("cuMemCreate") == 1);
  CHECK(w.cuda.count("cuMemAddressReserve") == 0);
}

TEST_CASE("cuda vmm: VM2 a failed map releases and frees the addresses, and unmaps nothing") {
  CudaWorld w;
  const Vmm vmm = make(w);
  const auto before = w.cuda.calls();
  w.cuda.fail_at(4, CUDA_ERROR_INVALID_VALUE);
  const Error e = vmm.memory().allocate(1, Alignment(1)).error();
  CHECK(says(e, "cuMemMap failed"));
  CHECK(e.native == CUDA_ERROR_INVALID_VALUE);
  CHECK(since(w, before) == Names{"cuDeviceGetAttribute", "cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemRelease", "cuMemAddressFree"});
  CHECK(vmm.memory().held() == 0);
}

TEST_CASE("cuda vmm: VM3 a block goes in this order: wait for all work, unmap, release, free the addresses") {
  CudaWorld w;
  const Vmm vmm = make(w);
  Memory m = vmm.memory();
  const DoubleStream s = w.stream();
  const Block b = *m.allocate(3_MiB, Alignment(256));
  CHECK(m.held() == 4_MiB);
  w.cuda.launch(s.native(), "still running", {writes(b)}, [b] { std::memset(b.data, 1, static_cast<std::size_t>(b.size)); });
  const auto before = w.cuda.calls();
  m.deallocate(b);  // pending work: a race if it did not wait
  CHECK(since(w, before) == Names{"cuCtxSynchronize", "cuMemUnmap", "cuMemRelease", "cuMemAddressFree"});
  CHECK(m.held() == 0);
}

TEST_CASE("cuda vmm: VM4 released in a stream's order, the same size is had again there before the stream is done, without a call") {
  CudaWorld w;
  const Vmm vmm = make(w);
  Memory m = vmm.memory();
  const DoubleStream s = w.stream(), other = w.stream();
  const Block a = *m.allocate(s, 2_MiB, Alignment(256));
  w.cuda.launch(s.native(), "use", {writes(a)}, [a] { std::memset(a.data, 1, 64); });
  m.deallocate(s, a);
  const auto before = w.cuda.calls();
  const Block b = *m.allocate(s, 2_MiB - 5, Alignment(256));
  CHECK(w.cuda.calls() == before);
  CHECK(b.data == a.data);
  w.cuda.launch(s.native(), "use again", {writes(b)}, [b] { std::memset(b.data, 2, 64); });
  m.deallocate(s, b);
  const Block c = *m.allocate(other, 2_MiB, Alignment(256));  // waits, does not make more
  CHECK(c.data == a.data);
  CHECK(w.cuda.count("cuMemCreate") == 1);
  CHECK(w.cuda.count("cuStreamWaitEvent") == 1);
  w.cuda.launch(other.native(), "use elsewhere", {writes(c)}, [c] { std::memset(c.data, 3, 64); });
  m.deallocate(other, c);
  const Block d = *m.allocate(2_MiB, Alignment(256));  // no stream to wait with: other memory
  CHECK(d.data != c.data);
  m.deallocate(d);
}

TEST_CASE("cuda vmm: VM5 of a budget of 10 MiB in granules of 2 MiB the sixth is refused, until one comes back") {
  CudaWorld w;
  const Vmm vmm = make(w, {.budget = 10_MiB});
  Memory m = vmm.memory();
  const DoubleStream s = w.stream();
  std::vector<Block> blocks;
  for (int i = 0; i < 5; ++i) blocks.push_back(*m.allocate(s, 2_MiB, Alignment(256)));
  const Error e = m.allocate(s, 2_MiB, Alignment(256)).error();
  CHECK(status_kind(e) == StatusKind::resource_exhausted);
  CHECK(e.code == Errc::over_budget);
  CHECK(e.available == 0);
  w.work(s);
  m.deallocate(s, blocks.back());
  blocks.pop_back();
  CHECK(m.held() == 10_MiB);
  CHECK(m.allocate(s, 4_MiB, Alignment(256)).error().code == Errc::over_budget);  // the stream has not passed it
  CHECK(s.synchronize().ok());
  CHECK(m.allocate(s, 3_MiB, Alignment(256)).error().code == Errc::over_budget);
  CHECK(m.held() == 8_MiB);  // given back, though it was not enough
  blocks.push_back(*m.allocate(s, 2_MiB, Alignment(256)));
  for (const Block& b : blocks) m.deallocate(s, b);
}

TEST_CASE("cuda vmm: memory waiting to go is given back when the device has no more, and when it is trimmed") {
  CudaWorld w;
  const Vmm vmm = make(w);
  Memory m = vmm.memory();
  const DoubleStream s = w.stream();
  const Block a = *m.allocate(s, 40_MiB, Alignment(256));
  m.deallocate(s, a);
  CHECK(s.synchronize().ok());
  const Block b = *m.allocate(s, 30_MiB, Alignment(256));
  CHECK(m.held() == 30_MiB);
  m.deallocate(s, b);
  CHECK(m.trim(30_MiB) == 0);
  CHECK(s.synchronize().ok());
  CHECK(m.trim(0) == 30_MiB);
  CHECK(w.cuda.used(0) == 0);
}

TEST_CASE("cuda vmm: unmapping that does not wait for a kernel is found as a race") {
  CudaWorld w;
  const DoubleStream s = w.stream();
  const Vmm vmm = make(w);
  Memory m = vmm.memory();
  const Block b = *m.allocate(2_MiB, Alignment(256));
  w.cuda.launch(s.native(), "kernel", {writes(b)}, [] {});
  w.cuda.fail_at(4, CUDA_ERROR_UNKNOWN);  // the wait for the context, after what is around it
  m.deallocate(b);
  CHECK(w.cuda.failed_call == "cuCtxSynchronize");
  CHECK(w.cuda.races().find("cuMemUnmap") != std::string::npos);
  w.check_races = false;
  w.expected_unreported = Errc::internal;
}

TEST_CASE("cuda vmm: sizes and alignments that no memory has") {
  CudaWorld w;
  const Vmm vmm = make(w);
  Memory m = vmm.memory();
  CHECK(m.allocate(-1, Alignment(1)).error().code == Errc::invalid_argument);
  CHECK(m.allocate(max_bytes, Alignment(1)).error().code == Errc::out_of_memory);
  CHECK(*m.allocate(0, Alignment(1)) == Block{});
  const Block b = *m.allocate(1, Alignment(16_MiB));
  CHECK(detail::cuda_aligned(detail::cuda_address(b.data), Alignment(16_MiB)));
  m.deallocate(b);
  CHECK(Vmm::make(*w.context, {.budget = -1}).error().code == Errc::invalid_argument);
}

TEST_CASE("cuda vmm: another device has what is let to it: blocks that are out, that wait to go, that come later") {
  CudaWorld w;
  const Vmm vmm = make(w);
  Memory m = vmm.memory();
  auto segment = std::move(*BasicCudaSegment<DoubleDriver>::reserve(*w.context, 8_MiB));
  CHECK(segment.map(0, 2_MiB).ok());
  const DoubleStream s = w.stream(), theirs = std::move(*w.other->make_stream());
  const Block out = *m.allocate(2_MiB, Alignment(256)), stale = *m.allocate(s, 4_MiB, Alignment(256));
  m.deallocate(s, stale);
  CHECK(w.context->enable_peer(*w.other).ok());
  CHECK(w.other->enable_peer(*w.context).ok());
  const auto touch = [&](Block b) {
    w.cuda.launch(theirs.native(), "their kernel", {writes(b)}, [b] { *b.data = std::byte{1}; });
    CHECK(theirs.synchronize().ok());
    return std::exchange(w.cuda.misuse, "");
  };
  CHECK(touch(out) == "a device touches a mapping without access; ");  // that contexts see each other is not enough
  CHECK(vmm.allow(*w.other).ok());
  CHECK(segment.allow(*w.other).ok());
  CHECK(segment.map(2_MiB, 4_MiB).ok());
  CHECK(s.synchronize().ok());
  const Block later = *m.allocate(2_MiB, Alignment(256)), again = *m.allocate(s, 4_MiB, Alignment(256));
  CHECK(again.data == stale.data);
  CHECK(s.synchronize().ok());
  auto moved = std::move(segment);
  for (const Block b : {out, later, again, Block{moved.range().data, 2_MiB}, Block{moved.range().data + 2_MiB, 4_MiB}}) CHECK(touch(b) == "");
  for (const Block b : {out, later, again}) m.deallocate(b);
  CudaDoubleOptions apart;
  apart.peers = false;
  CudaWorld far(apart);
  CHECK(make(far).allow(*far.other).code == Errc::unsupported);
}

TEST_CASE("cuda vmm: memory is made for network cards to reach where the device can let them, and elsewhere all the same") {
  for (const bool can : {true, false}) {
    CudaDoubleOptions o;
    o.rdma = can;
    CudaWorld w(o);
    const Vmm vmm = make(w);
    auto segment = std::move(*BasicCudaSegment<DoubleDriver>::reserve(*w.context, 2_MiB));
    CHECK(segment.map(0, 2_MiB).ok());
    vmm.memory().deallocate(*vmm.memory().allocate(1, Alignment(1)));
    CHECK(w.cuda.for_network_cards == (can ? 2 : 0));
  }
}

TEST_CASE("cuda vmm: what a finished event still holds back is had before a request fails") {
  CudaWorld w;
  const Vmm vmm = make(w, {.budget = 2_MiB});
  using Buffer = TrackedBuffer<Memory, DoubleEvent, SharedHold>;
  const DoubleStream s = w.stream();
  {
    Buffer b = std::move(*Buffer::allocate(vmm.memory(), 1000));
    w.work(s);
    b.hold(HoldKind::usage)->convert(w.mark(s));
  }
  CHECK(vmm.memory().held() == 2_MiB);
  w.cuda.machine.drain();  // the device is done; nobody has asked
  const Result<Block> next = vmm.memory().allocate(2_MiB, Alignment(256));
  REQUIRE(next.ok());
  vmm.memory().deallocate(*next);
}
