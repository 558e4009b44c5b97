// SPDX-License-Identifier: Apache-2.0
// An engine's own code on a simulated device: a wait that it forgets is found and named, whatever order the work ran in.
#include <cstddef>
#include <cstdio>
#include <string_view>
#include <vector>

#include "holdfast/backend/simulated/race_checked.hpp"

namespace {

using namespace holdfast;

// The engine: written against any device of the library's shape; here a layer streams its weights in while the last one
// computes. `forgetful` leaves out the wait that makes the kernel start after its weights are there.
template <class Device>
Error run_layers(Device device, int layers, bool forgetful) {
  auto copies = device.make_stream("copies"), compute = device.make_stream("compute");
  const std::vector<std::byte> weights(4096, std::byte{2});
  Result<Block> state = device.allocate(4096, Alignment(64), Tag{"state", 0});
  if (!state.ok()) return state.error();
  for (int i = 0; i < layers; ++i) {
    Result<Block> w = device.allocate(copies, 4096, Alignment(64), Tag{"layer weights", 0});
    if (!w.ok()) return w.error();
    auto uploaded = device.copy_in(copies, *w, 0, weights, "upload weights");
    if (!uploaded.ok()) return uploaded.error();
    if (!(forgetful && i == 2))
      if (Error e = uploaded->wait_on(compute); !e.ok()) return e;
    auto done = compute.launch("matmul", {reads(*w), writes(*state)}, [from = *w, to = *state]() noexcept {
      for (Bytes k = 0; k < to.size; ++k) to.data[k] ^= from.data[k];
    });
    if (!done.ok()) return done.error();
    if (Error e = done->wait_on(copies); !e.ok()) return e;
    device.deallocate(copies, *w);
  }
  if (Error e = compute.synchronize(); !e.ok()) return e;
  return copies.synchronize();
}

struct Printer {
  Error write(std::string_view text) noexcept {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return {};
  }
};

// The pairs of operations that no event orders, over some seeds; told for the first seed that has any.
std::size_t races_under_some_seeds(bool forgetful) {
  std::size_t wrong_seeds = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SimulatedOptions options;
    options.seed = seed;
    RaceCheckedMachine machine(options);
    Result<RaceCheckedDevice> device = machine.add_device(1 << 20);
    if (!device.ok() || !run_layers(*device, 4, forgetful).ok()) return 0;
    machine.drain();
    if (machine.watch().count() == 0) continue;
    Printer out;
    if (wrong_seeds++ == 0) static_cast<void>(machine.watch().write_races(out));
  }
  return wrong_seeds;
}

}  // namespace

int main() {
  const std::size_t with_waits = races_under_some_seeds(false), forgetful = races_under_some_seeds(true);
  std::printf("seeds with a race: %zu of 20 with all waits, %zu of 20 with one forgotten\n", with_waits, forgetful);
  return with_waits == 0 && forgetful == 20 ? 0 : 1;
}
