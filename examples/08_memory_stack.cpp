// SPDX-License-Identifier: Apache-2.0
// Buffers on a stack of layers: a pool, a limit, red zones around every block, and counters. A kernel that writes one element too
// far is found, with whose block it was.
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "holdfast/backend/host/host_pool.hpp"
#include "holdfast/backend/layer/guarded.hpp"
#include "holdfast/backend/layer/limited.hpp"
#include "holdfast/backend/layer/observed.hpp"
#include "holdfast/backend/stack.hpp"
#include "holdfast/buffer/tracked_buffer.hpp"
#include "holdfast/trace/counters.hpp"

using namespace holdfast;
using namespace holdfast::literals;

// Keeps the last fault; without a reporter of its own a guard ends the program.
struct LastFault {
  GuardFault* fault;
  void on_fault(const GuardFault& f) noexcept { *fault = f; }
};

using Limit = Stack<HostPool, Limited>;
using Memory = Stack<HostPool, Limited, Guarded<LastFault>, Observed<Counters>>;  // source first

// Fills a vector, and one element more than it has.
void faulty_kernel(float* x, Bytes count) {
  for (Bytes i = 0; i <= count; ++i) x[i] = 0.5f * static_cast<float>(i);
}

int main() {
  Result<HostHeap> heap = HostHeap::make();
  if (!heap.ok()) return EXIT_FAILURE;
  GuardFault fault;
  MemoryLimit limit(1_MiB);
  Guard<Limit, LastFault> guard({}, LastFault{&fault});
  Counters counters;
  Memory memory = make_stack<Memory>(heap->pool(), limit, guard, counters);  // the layers' states, in the stack's order

  auto activations = TrackedBuffer<Memory>::allocate(memory, 4000 * Bytes{sizeof(float)});
  if (!activations.ok()) return EXIT_FAILURE;
  const auto refused = TrackedBuffer<Memory>::allocate(memory, 2_MiB);  // an error value, not an exception
  {
    const auto use = activations->hold(HoldKind::usage);
    if (!use.ok()) return EXIT_FAILURE;
    faulty_kernel(reinterpret_cast<float*>(use->raw().data()), 4000);
  }
  const std::size_t faults = guard.check();

  std::printf("%zu fault: %lld bytes at offset %lld of a block of %lld; peak %lld bytes, %lld request refused (%s)\n", faults,
              static_cast<long long>(fault.damaged), static_cast<long long>(fault.offset), static_cast<long long>(fault.block.size),
              static_cast<long long>(counters.figures().bytes.peak), static_cast<long long>(counters.figures().failures),
              refused.error().what);
  return faults == 1 && fault.kind == GuardFaultKind::overrun && fault.offset == 16000 ? EXIT_SUCCESS : EXIT_FAILURE;
}
