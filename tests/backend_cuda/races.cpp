// SPDX-License-Identifier: Apache-2.0
// Programs on CUDA streams, each right and with one mistake: the detector is quiet on the right ones and finds every mistake,
// whatever the delays were.
#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "double/cuda_world.hpp"
#include "holdfast/backend/cuda/device_memory.hpp"
#include "holdfast/backend/cuda/host_memory.hpp"
#include "holdfast/backend/cuda/multicast.hpp"
#include "holdfast/backend/cuda/pool_memory.hpp"
#include "holdfast/backend/cuda/vmm_memory.hpp"
#include "holdfast/backend/cuda/vmm_segment.hpp"
#include "holdfast/buffer/tracked_buffer.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {

struct Machine : CudaWorld {
  using CudaWorld::CudaWorld;
  void write(const DoubleStreamRef& s, Block block, const char* name = "write") {
    cuda.launch(s.native(), name, {writes(block)}, [block] { std::memset(block.data, 1, static_cast<std::size_t>(block.size)); });
  }
  void read(const DoubleStreamRef& s, Block block, const char* name = "read") { cuda.launch(s.native(), name, {reads(block)}, [] {}); }
  BasicCudaPool<DoubleDriver> pool = std::move(*BasicCudaPool<DoubleDriver>::make(*context));
  BasicCudaPoolMemory<DoubleDriver> memory = pool.memory();
  DoubleStream a = stream(), b = stream();
};

struct Program {
  const char* mistake;
  const char* found;  // an operation of the race
  void (*run)(Machine& m, bool wrong);
};

const Program programs[] = {
    {"a consumer's stream does not wait for the producer", "consumer",
     [](Machine& m, bool wrong) {
       const Block x = *m.memory.allocate(1000, Alignment(256));
       m.write(m.a, x, "producer");
       if (!wrong) CHECK(m.mark(m.a).wait_on(m.b).ok());
       m.read(m.b, x, "consumer");
       CHECK(m.context->synchronize().ok());
       m.memory.deallocate(x);
     }},
    {"released in the order of a stream that does not come after the last use", "last use",
     [](Machine& m, bool wrong) {
       const Block x = *m.memory.allocate(m.a, 1000, Alignment(256));
       m.write(m.a, x);
       CHECK(m.mark(m.a).wait_on(m.b).ok());
       m.read(m.b, x, "last use");
       if (!wrong) CHECK(m.mark(m.b).wait_on(m.a).ok());
       m.memory.deallocate(m.a, x);
     }},
    {"the event is recorded on the wrong stream", "producer",
     [](Machine& m, bool wrong) {
       const Block x = *m.memory.allocate(1000, Alignment(256));
       const DoubleStream c = m.stream();
       m.write(m.a, x, "producer");
       const DoubleEvent done = m.mark(wrong ? c : m.a);
       CHECK(done.wait_on(m.b).ok());
       m.read(m.b, x, "consumer");
       CHECK(m.context->synchronize().ok());
       m.memory.deallocate(x);
     }},
    {"the event is recorded before the work", "producer",
     [](Machine& m, bool wrong) {
       const Block x = *m.memory.allocate(1000, Alignment(256));
       DoubleEvent done = m.mark(m.a);
       m.write(m.a, x, "producer");
       if (!wrong) CHECK(done.record(m.a).ok());
       CHECK(done.wait_on(m.b).ok());
       m.read(m.b, x, "consumer");
       CHECK(m.context->synchronize().ok());
       m.memory.deallocate(x);
     }},
    {"the stream waits after the use", "consumer",
     [](Machine& m, bool wrong) {
       const Block x = *m.memory.allocate(1000, Alignment(256));
       m.write(m.a, x, "producer");
       if (wrong) m.read(m.b, x, "consumer");
       CHECK(m.mark(m.a).wait_on(m.b).ok());
       if (!wrong) m.read(m.b, x, "consumer");
       CHECK(m.context->synchronize().ok());
       m.memory.deallocate(x);
     }},
    {"a stream is taken for one that had its handle before, and does not wait", "consumer",
     [](Machine& m, bool wrong) {
       const Block x = *m.memory.allocate(1000, Alignment(256));
       m.write(m.a, x, "producer");
       const DoubleEvent done = m.mark(m.a);
       CUstream waits_already = nullptr;
       {
         const DoubleStream c = m.stream();
         CHECK(done.wait_on(c).ok());
         waits_already = c.native();
       }
       const DoubleStream c = m.stream();
       CHECK(c.native() == waits_already);
       if (!(wrong && c.native() == waits_already)) CHECK(done.wait_on(c).ok());
       m.read(c, x, "consumer");
       CHECK(m.context->synchronize().ok());
       m.memory.deallocate(x);
     }},
    {"memory is used on another stream before it is allocated there", "first use",
     [](Machine& m, bool wrong) {
       m.work(m.a);
       const Block x = *m.memory.allocate(m.a, 1000, Alignment(256));
       if (!wrong) CHECK(m.mark(m.a).wait_on(m.b).ok());
       m.write(m.b, x, "first use");
       CHECK(m.context->synchronize().ok());
       m.memory.deallocate(x);
     }},
    {"the host reads what a copy has not brought yet", "the host reads",
     [](Machine& m, bool wrong) {
       static std::array<std::byte, 1000> host;
       const Block x = *m.memory.allocate(m.a, 1000, Alignment(256));
       m.write(m.a, x);
       const DoubleEvent arrived = *m.memory.copy_out(m.a, x, 0, host);
       m.memory.deallocate(m.a, x);
       if (!wrong) CHECK(arrived.wait().ok());
       m.cuda.host_reads(host);
     }},
    {"the host overwrites what a copy has not read yet", "the host writes",
     [](Machine& m, bool wrong) {
       static std::array<std::byte, 1000> host;
       m.cuda.host_writes(host);
       const Block x = *m.memory.allocate(m.a, 1000, Alignment(256));
       const DoubleEvent taken = *m.memory.copy_in(m.a, x, 0, host);
       if (!wrong) CHECK(taken.wait().ok());
       m.cuda.host_writes(host);
       m.memory.deallocate(m.a, x);
     }},
    {"pinned memory is freed under a copy", "cuMemcpyAsync",
     [](Machine& m, bool wrong) {
       BasicCudaHostMemory<DoubleDriver> pinned(*m.context);
       const Block staging = *pinned.allocate(1000, Alignment(64)), x = *m.memory.allocate(m.a, 1000, Alignment(256));
       m.cuda.host_writes({staging.data, 1000});
       const DoubleEvent taken = *m.memory.copy_in(m.a, x, 0, {staging.data, 1000});
       if (!wrong) CHECK(taken.wait().ok());
       pinned.deallocate(staging);
       m.memory.deallocate(m.a, x);
     }},
    {"plain memory is freed under a kernel", "kernel",
     [](Machine& m, bool wrong) {
       BasicCudaDeviceMemory<DoubleDriver> plain(*m.context);
       const Block x = *plain.allocate(1000, Alignment(256));
       m.write(m.a, x, "kernel");
       if (!wrong) CHECK(m.a.synchronize().ok());
       plain.deallocate(x);
     }},
    {"a granule is unmapped under a kernel", "cuMemUnmap",
     [](Machine& m, bool wrong) {
       auto segment = std::move(*BasicCudaSegment<DoubleDriver>::reserve(*m.context, 4_MiB));
       CHECK(segment.map(0, 2_MiB).ok());
       m.read(m.a, {segment.range().data, 1000}, "kernel");
       m.write(m.a, {segment.range().data, 1}, "kernel");
       if (!wrong) CHECK(m.a.synchronize().ok());
       else m.cuda.machine.drain();  // the kernel has run, but nobody has seen it
       CHECK(segment.unmap(0, 2_MiB) == 2_MiB);
     }},
    {"a device reads its memory without waiting for another's store through the multicast address", "reader",
     [](Machine& m, bool wrong) {
       const DoubleContext* const team[] = {&*m.context, &*m.other};
       const auto object = std::move(*BasicCudaMulticast<DoubleDriver>::make(team, 1));
       const DoubleStream far = std::move(*m.other->make_stream());
       m.cuda.multimem_store(m.a.native(), "multimem.st", {object.multicast(0).data, 1000}, std::byte{1});
       if (!wrong) CHECK(m.mark(m.a).wait_on(far).ok());
       m.read(far, {object.unicast(1).data + 999, 1}, "reader");
     }},
    {"a reduction over all devices does not wait for what one of them writes", "multimem.ld_reduce",
     [](Machine& m, bool wrong) {
       static std::uint32_t sum;
       const DoubleContext* const team[] = {&*m.context, &*m.other};
       const auto object = std::move(*BasicCudaMulticast<DoubleDriver>::make(team, 1));
       const DoubleStream far = std::move(*m.other->make_stream());
       m.write(far, {object.unicast(1).data, 64}, "partial sum");
       if (!wrong) CHECK(m.mark(far).wait_on(m.a).ok());
       m.cuda.multimem_sum(m.a.native(), "multimem.ld_reduce", object.multicast(0).data, &sum);
     }},
    {"a donated buffer is written before its readers are done", "in place",
     [](Machine& m, bool wrong) {
       using Buffer = TrackedBuffer<BasicCudaPoolMemory<DoubleDriver>, DoubleEvent, SharedHold>;
       Buffer x = std::move(*Buffer::allocate(m.memory, 1000));
       const Block block = x.hold(HoldKind::usage)->raw().block();
       m.write(m.a, block);
       CHECK(m.mark(m.a).wait_on(m.b).ok());
       m.read(m.b, block, "reader");
       x.hold(HoldKind::usage)->convert(m.mark(m.b));
       {
         auto donation = x.hold(HoldKind::donation);
         if (!wrong)
           for (const DoubleEvent& e : donation->usage_events()) CHECK(e.wait_on(m.a).ok());
         m.write(m.a, block, "in place");
         donation->confirm(m.mark(m.a));
       }
       CHECK(m.context->synchronize().ok());
     }},
};

}  // namespace

TEST_CASE("cuda races: right programs are quiet and each mistake is found, over seeds of delays") {
  for (const Program& program : programs)
    for (const bool wrong : {false, true})
      for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        CAPTURE(std::string(program.mistake));
        CAPTURE(wrong);
        CAPTURE(seed);
        Machine m(seed);
        m.check_races = !wrong;
        program.run(m, wrong);
        if (wrong) CHECK(m.cuda.races().find(program.found) != std::string::npos);
      }
}
