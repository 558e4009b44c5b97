// SPDX-License-Identifier: Apache-2.0
// Does memory leak, and where? A pool is watched over ten steps of a program that forgets a block
// in each; the report names its owner.
#include <cstdio>
#include <string_view>
#include <utility>

#include "holdfast/backend/host/host_pool.hpp"
#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/backend/layer/observed.hpp"
#include "holdfast/backend/stack.hpp"
#include "holdfast/trace/leak_report.hpp"

using namespace holdfast;

namespace {

// The switch: with Observed<NoObserver>, or the bare pool, nothing is left of the checks.
using Live = LiveSet<SystemMemory>;
using Watched = Stack<HostPool, Observed<Live>>;

struct Output {
  Error write(std::string_view text) noexcept {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return {};
  }
};

void train_step(Watched& memory) {
  const Block activations = *memory.allocate(1 << 20, Alignment(64), {"activations", 0});
  const Block gradients = *memory.allocate(1 << 18, Alignment(64), {"gradients", 0});
  // The history grows for ever: nobody gives this one back.
  static_cast<void>(memory.allocate(4096, Alignment(64), {"loss history", 0}));
  memory.deallocate(gradients);
  memory.deallocate(activations);
}

}  // namespace

int main() {
  Result<HostHeap> heap = HostHeap::make();
  if (!heap.ok()) return 1;
  Live live{SystemMemory{}};
  Watched memory = make_stack<Watched>(heap->pool(), live);
  GrowthWatch<SystemMemory> watch;
  Output out;

  const Block weights = *memory.allocate(1 << 22, Alignment(64), {"weights", 0});
  LeakSummary found;
  for (std::uint32_t step = 1; step <= 10; ++step) {
    live.set_step(step);
    train_step(memory);
    const auto now = Checkpoint<SystemMemory>::take(live);
    if (!now.ok() || !watch.note(*now).ok()) return 1;
    if (step == 10 && !write_leaks(*now, watch, {}, out, &found).ok()) return 1;
  }
  // A release of what is gone is an error that knows the block's past.
  memory.deallocate(weights);
  static_cast<void>(live.remove(weights));
  live.visit_faults([&](const LiveFault& fault) { static_cast<void>(write_fault(fault, out)); });

  const bool good = found.count(LeakVerdict::suspicious) == 1 && live.figures().faults[0] == 1;
  std::printf("%s\n", good ? "one leak and one double release found" : "something was missed");
  return good ? 0 : 1;
}
