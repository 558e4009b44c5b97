// SPDX-License-Identifier: Apache-2.0
// What `holdfast run --backend cuda` does around its kernel, on the double: a plan is carried out
// on device memory. The kernel itself is assembled and carried out by tests/cli/pattern_ptx.py.
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "../../examples/holdfast/device_patterns.hpp"
#include "double/cuda_machine.hpp"
#include "execute/planned_text.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

using Pool = BasicCudaPool<DoubleDriver>;
using Memory = BasicCudaPoolMemory<DoubleDriver>;

using Device = program::PatternDevice<DoubleDriver, DoubleLaunch>;
using Kernel = BasicPatternKernel<program::DevicePatterns<Device>>;
using Executor = PlanExecutor<Memory, DoubleEvent>;
static_assert(copying_kernel<Kernel> && !host_accessible<Memory>);

struct DeviceWorld : CudaWorld {
  explicit DeviceWorld(std::uint64_t seed = 1) : CudaWorld(seed) { REQUIRE(device->make().ok()); }
  ~DeviceWorld() {
    CHECK(context->synchronize().ok());
    while (context->run_completions()) {
    }
    device.reset();
  }
  Pool pool = std::move(*Pool::make(*context));
  std::unique_ptr<Device> device =
      std::make_unique<Device>(pool.memory(), stream(), DoubleLaunch{&cuda});
};

constexpr char loop[] = R"(HloModule loop, input_output_alias={ {}: (0, {}, may-alias) }
body {
  s = (f32[700], f32[700]) parameter(0)
  a = f32[700] get-tuple-element(s), index=0
  b = f32[700] get-tuple-element(s), index=1
  c = f32[700] custom-call(a, b), custom_call_target="C"
  ROOT t = (f32[700], f32[700]) tuple(b, c)
}
condition {
  s = (f32[700], f32[700]) parameter(0)
  a = f32[700] get-tuple-element(s), index=0
  ROOT p = pred[] custom-call(a), custom_call_target="P"
}
ENTRY e {
  x = f32[700] parameter(0)
  y = f32[700] parameter(1)
  k = f32[700] constant({...})
  z = f32[700] custom-call(y, k), custom_call_target="C"
  s = (f32[700], f32[700]) tuple(x, z)
  w = (f32[700], f32[700]) while(s), condition=condition, body=body
  r = f32[700] get-tuple-element(w), index=1
  ROOT o = f32[700] custom-call(r, x), custom_call_target="C"
}
)";

// Carries the program out; `spoil` is called between the kernel's writes of arguments and the run.
template <class F>
Error run(DeviceWorld& w, const PlannedText& p, Kernel& kernel,
          std::vector<Executor::buffer_type>& results, F spoil) {
  Result<Executor> executor = Executor::make(p.program(), w.pool.memory(), kernel);
  REQUIRE(executor.ok());
  return testing::run_once(p, *executor, w.pool.memory(), kernel, results, spoil);
}

}  // namespace

TEST_CASE(
    "pattern device: it writes and finds what the host's pattern is, at every size, and the first "
    "wrong byte") {
  DeviceWorld w;
  Memory m = w.pool.memory();
  for (const Bytes size : {1, 7, 8, 9, 63, 64, 4088, 4095, 4096, 4097, 4104, 8191, 12288, 20001})
    for (const PatternCheck check : {PatternCheck::full, PatternCheck::page}) {
      const Block block = *m.allocate(size, Alignment(8));
      std::memset(block.data, 0, static_cast<std::size_t>(size));
      CHECK(w.device->write(5, block, check).ok());
      CHECK(BytePattern(5).compare(block, check) == size);
      CHECK(*w.device->compare(5, block, check) == size);
      CHECK(*w.device->compare(6, block, check) == BytePattern(6).compare(block, check));
      for (const Bytes at : {Bytes{0}, size / 2, size - 1}) {
        block.data[at] ^= std::byte{1};
        CHECK(*w.device->compare(5, block, check) == BytePattern(5).compare(block, check));
        block.data[at] ^= std::byte{1};
      }
      m.deallocate(block);
    }
}

TEST_CASE(
    "pattern device: a loop's plan runs on device memory, copies and all, whatever the streams "
    "do") {
  const PlannedText p(loop);
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    DeviceWorld w(seed);
    Kernel kernel(p.program(), PatternCheck::full, 2, 1, {w.device.get()});
    std::vector<Executor::buffer_type> results;
    CHECK(run(w, p, kernel, results, [](Block) {}).ok());
    CHECK(kernel.fault().kind == PatternFault::Kind::none);
    CHECK(kernel.values_checked() > 10);
    Bytes heap = 0;
    for (const Arena& a : p.plan.entry_arenas()) heap += a.size;
    CHECK(kernel.measured_peak() == heap);
  }
}

TEST_CASE(
    "pattern device: a byte that somebody else wrote is found, a driver that fails is an error of "
    "the run") {
  const PlannedText p(loop);
  {
    DeviceWorld w;
    Kernel kernel(p.program(), PatternCheck::full, 2, 1, {w.device.get()});
    std::vector<Executor::buffer_type> results;
    CHECK(!run(w, p, kernel, results, [](Block b) { b.data[13] ^= std::byte{1}; }).ok());
    CHECK(kernel.fault().kind == PatternFault::Kind::not_there);
    CHECK(kernel.fault().offset == 13);
  }
  for (std::uint64_t n = 1; n <= 150; ++n) {
    DeviceWorld w;
    Kernel kernel(p.program(), PatternCheck::full, 2, 1, {w.device.get()});
    std::vector<Executor::buffer_type> results;
    int calls = 0;
    const Error e = run(w, p, kernel, results, [&](Block) {
      if (++calls == 2) w.cuda.fail_at(n, CUDA_ERROR_UNKNOWN);
    });
    CAPTURE(w.cuda.failed_call);
    REQUIRE(w.cuda.failed_call != "");
    const Error late = w.context->unreported();  // of calls that give something back
    CHECK((e.ok() ? late : e).native == CUDA_ERROR_UNKNOWN);
    CHECK(kernel.fault().kind == PatternFault::Kind::none);
    w.expected_unreported = late.code;
    // Nobody knows what is still going on after a wait that failed.
    if (w.cuda.failed_call == "cuStreamSynchronize" || w.cuda.failed_call == "cuCtxGetCurrent" ||
        w.cuda.failed_call == "cuCtxPushCurrent")
      w.check_races = false;
  }
}
