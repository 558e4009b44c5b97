// SPDX-License-Identifier: Apache-2.0
// DLPack tensors on a CUDA device: who waits for whom across streams, and when memory goes.
#include "holdfast/interop/dlpack.hpp"

#include <cstdint>
#include <cstring>
#include <utility>

#include <doctest/doctest.h>

#include "double/cuda_world.hpp"
#include "holdfast/backend/cuda/host_memory.hpp"
#include "holdfast/backend/cuda/pool_memory.hpp"
#include "holdfast/buffer/tracked_buffer.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

using Pool = BasicCudaPool<DoubleDriver>;
using Memory = BasicCudaPoolMemory<DoubleDriver>;
using Buffer = TrackedBuffer<Memory, DoubleEvent, SharedHold>;
using Shaped = ShapedBuffer<Buffer>;
using dlpack::DeviceType;
constexpr dlpack::Device cuda0{DeviceType::cuda, 0};

// A pool outlives its buffers, which go when the events of their last uses are told.
struct PoolWorld : CudaWorld {
  using CudaWorld::CudaWorld;
  ~PoolWorld() { CHECK(context->synchronize().ok()); }
  Pool pool = std::move(*Pool::make(*context));
};
template <class B, class M>
ShapedBuffer<B> make(M memory, std::span<const DoubleEvent> definition = {}) {
  const ArrayShape shape = *ArrayShape::make(ElementType::f32, {{8, 32}});
  return std::move(*ShapedBuffer<B>::make(
      shape, std::move(*B::make(*B::raw_type::allocate(memory, 1024, Alignment(64)), definition))));
}
void fill(CudaWorld& w, const DoubleStreamRef& s, Block b, int value) {
  w.cuda.launch(s.native(), "write", {writes(b)},
                [b, value] { std::memset(b.data, value, static_cast<std::size_t>(b.size)); });
}
Block block_of(const dlpack::Tensor& t) { return {static_cast<std::byte*>(t.data), 1024}; }

}  // namespace

TEST_CASE(
    "dlpack cuda: a consumer's stream reads what the producer's wrote, in every order of streams") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    PoolWorld w(seed);
    const DoubleStream producer = w.stream(), consumer = w.stream();
    Memory m = w.pool.memory();
    Shaped b = make<Buffer>(m);
    const Block block = b.buffer().hold(HoldKind::usage)->raw().block();
    fill(w, producer, block, 7);
    const DoubleEvent written[] = {w.mark(producer)};
    Shaped defined = std::move(*Shaped::make(
        b.shape(), std::move(*Buffer::make(b.buffer().hold(HoldKind::usage)->raw(), written))));
    auto out = std::move(*dlpack::export_tensor<dlpack::ManagedTensorVersioned>(defined, cuda0));
    CHECK(out.tensor.get()->dl_tensor.device == cuda0);
    CHECK(block_of(out.tensor.get()->dl_tensor) == block);
    CHECK(dlpack::order_consumer(out.ready, dlpack::stream_number(consumer)).ok());
    int seen = 0;
    w.cuda.launch(consumer.native(), "read", {reads(block)},
                  [&] { seen = std::to_integer<int>(block.data[1023]); });
    CHECK(consumer.synchronize().ok());
    CHECK(seen == 7);
  }
}

TEST_CASE("dlpack cuda: without the wait the race detector finds the consumer") {
  PoolWorld w;
  const DoubleStream producer = w.stream(), consumer = w.stream();
  Shaped b = make<Buffer>(w.pool.memory());
  auto out = std::move(*dlpack::export_tensor<dlpack::ManagedTensor>(b, cuda0));
  const Block block = block_of(out.tensor.get()->dl_tensor);
  fill(w, producer, block, 7);
  out.ready = w.mark(producer);
  CHECK(dlpack::order_consumer(out.ready, -1).ok());  // it said that it orders itself
  w.cuda.launch(consumer.native(), "read", {reads(block)}, [] {});
  CHECK(w.context->synchronize().ok());
  CHECK(w.cuda.races() != "");
  w.check_races = false;
}

TEST_CASE(
    "dlpack cuda: stream numbers that stand for no stream are refused, contents that failed are "
    "not passed on") {
  PoolWorld w;
  const DoubleStream s = w.stream();
  w.work(s);
  const DoubleEvent pending = w.mark(s);
  CHECK(dlpack::order_consumer(pending, 0).code == Errc::invalid_argument);
  CHECK(dlpack::order_consumer(pending, -2).code == Errc::invalid_argument);
  CHECK(w.cuda.count("cuStreamWaitEvent") == 0);
  CHECK(dlpack::order_consumer(pending, dlpack::stream_number(s.ref())).ok());
  CHECK(w.cuda.count("cuStreamWaitEvent") == 1);
  CHECK(s.synchronize().ok());
  CHECK(dlpack::order_consumer(pending, dlpack::stream_number(s.ref()))
            .ok());  // done: nothing to wait for
  CHECK(w.cuda.count("cuStreamWaitEvent") == 1);
  DoublePromise promise = std::move(*w.context->make_promise());
  const DoubleEvent failed = promise.get_event();
  CHECK(promise.set_error(make_error(Errc::internal, "no contents")).ok());
  CHECK(says(dlpack::order_consumer(failed, dlpack::stream_number(s.ref())), "no contents"));
}

TEST_CASE("dlpack cuda: 1 and 2 are the driver's default streams, as it writes them") {
  CHECK(reinterpret_cast<std::intptr_t>(CU_STREAM_LEGACY) == 1);
  CHECK(reinterpret_cast<std::intptr_t>(CU_STREAM_PER_THREAD) == 2);
  PoolWorld w;
  const DoubleStream s = w.stream();
  w.work(s);
  const DoubleEvent pending = w.mark(s);
  // The double has no default streams: the handle arrives at the driver as it is.
  CHECK(dlpack::order_consumer(pending, 1).native == CUDA_ERROR_INVALID_HANDLE);
  CHECK(w.cuda.misuse != "");
  w.cuda.misuse.clear();
}

TEST_CASE(
    "dlpack cuda: a tensor of another library is valid after its stream's mark, and deleted after "
    "the last use") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    PoolWorld w(seed);
    const DoubleStream theirs = w.stream(), ours = w.stream();
    Memory m = w.pool.memory();
    struct Foreign {
      dlpack::ManagedTensor managed;
      std::int64_t shape[1] = {256};
      Memory memory;
      Block block;
      int deletions = 0;
    } foreign;
    foreign.memory = m;
    foreign.block = *m.allocate(1024, Alignment(256));
    foreign.managed.dl_tensor = {foreign.block.data, cuda0,   1, {dlpack::TypeCode::float_, 32, 1},
                                 foreign.shape,      nullptr, 0};
    foreign.managed.manager_ctx = &foreign;
    foreign.managed.deleter = [](dlpack::ManagedTensor* t) {
      auto& self = *static_cast<Foreign*>(t->manager_ctx);
      ++self.deletions;
      self.memory.deallocate(self.block);
    };
    // The producer makes `ours` wait, as it was asked for on that stream; its mark defines the
    // contents here.
    fill(w, theirs, foreign.block, 3);
    CHECK(w.mark(theirs).wait_on(ours.ref()).ok());
    const DoubleEvent definition[] = {w.mark(ours)};
    Shaped in = std::move(*dlpack::import_tensor<Buffer>(dlpack::OwnedTensor(&foreign.managed), m,
                                                         definition, cuda0));
    {
      auto hold = std::move(*in.buffer().hold(HoldKind::usage));
      w.cuda.launch(ours.native(), "read", {reads(foreign.block)}, [] {});
      hold.convert(w.mark(ours));
    }
    CHECK(in.buffer().release().ok());
    if (w.cuda.live(foreign.block.data)) CHECK(foreign.deletions == 0);
    CHECK(ours.synchronize().ok());
    while (w.context->run_completions()) {
    }
    CHECK(foreign.deletions == 1);
    CHECK(!w.cuda.live(foreign.block.data));
  }
}

TEST_CASE(
    "dlpack cuda: a tensor says which device it is on: the memory's own number, managed and locked "
    "memory by their names") {
  PoolWorld w;
  Shaped b = make<Buffer>(w.pool.memory());
  const auto code = [](auto& from, DeviceType type, int id) {
    return dlpack::export_tensor<dlpack::ManagedTensor>(from, {type, id}).error().code;
  };
  CHECK(code(b, DeviceType::cuda, 0) == Errc::ok);
  CHECK(code(b, DeviceType::cuda, 1) == Errc::invalid_argument);
  CHECK(code(b, DeviceType::cpu, 0) == Errc::invalid_argument);
  CHECK(code(b, DeviceType::cuda_managed, 0) == Errc::invalid_argument);
  using Managed = BasicCudaManagedMemory<DoubleDriver>;
  auto managed = make<TrackedBuffer<Managed, DoubleEvent, SharedHold>>(Managed(*w.context));
  CHECK(code(managed, DeviceType::cuda_managed, 0) == Errc::ok);
  CHECK(code(managed, DeviceType::cuda, 0) == Errc::ok);
  using Pinned = BasicCudaHostMemory<DoubleDriver>;
  auto pinned = make<TrackedBuffer<Pinned, DoubleEvent, SharedHold>>(Pinned(*w.context));
  CHECK(code(pinned, DeviceType::cuda_host, 0) == Errc::ok);
  CHECK(code(pinned, DeviceType::cpu, 0) == Errc::ok);
  CHECK(code(pinned, DeviceType::cuda, 0) == Errc::invalid_argument);
}
