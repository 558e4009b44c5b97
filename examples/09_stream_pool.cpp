// SPDX-License-Identifier: Apache-2.0
// One pool for all streams of a device: blocks are taken and given back in the order of the streams, and nobody waits on the host.
// Two mistakes of an engine that uses it, one forgotten wait and one free on the wrong stream, are found and named.
#include <cstddef>
#include <cstdio>
#include <string_view>
#include <vector>

#include "holdfast/backend/bfc/stream_pool.hpp"
#include "holdfast/backend/simulated/race_checked.hpp"

namespace {

using namespace holdfast;
using namespace holdfast::literals;

enum class Mistake { none, forgotten_wait, free_on_wrong_stream };

constexpr int layers = 24;
constexpr Bytes layer_size = 64_KiB;

// The engine: layer by layer weights are copied in on one stream and used on the other; the pool has room for four layers beside the
// state, so that each later one takes an earlier one's place and its stream waits for that one's free.
template <class Pool, class Device>
Error run_layers(Pool pool, Device device, Mistake mistake) {
  auto copies = device.make_stream("copies"), compute = device.make_stream("compute");
  const std::vector<std::byte> weights(layer_size, std::byte{2});
  Result<Block> state = pool.allocate(compute, layer_size, Alignment(256), Tag{"state", 0});
  if (!state.ok()) return state.error();
  for (int i = 0; i < layers; ++i) {
    Result<Block> w = pool.allocate(copies, layer_size, Alignment(256), Tag{"weights", 0});
    if (!w.ok()) return w.error();
    auto uploaded = pool.copy_in(copies, *w, 0, weights, "upload weights");
    if (!uploaded.ok()) return uploaded.error();
    if (!(mistake == Mistake::forgotten_wait && i == 2))
      if (Error e = uploaded->wait_on(compute); !e.ok()) return e;
    auto done = compute.launch("matmul", {reads(*w), writes(*state)}, [from = *w, to = *state]() noexcept {
      for (Bytes k = 0; k < to.size; ++k) to.data[k] ^= from.data[k];
    });
    if (!done.ok()) return done.error();
    // In the order of the stream that used them last. On the other one the next upload would have them at once.
    pool.deallocate(mistake == Mistake::free_on_wrong_stream && i == 2 ? copies : compute, *w);
  }
  pool.deallocate(compute, *state);
  return compute.synchronize();
}

struct Printer {
  Error write(std::string_view text) noexcept {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return {};
  }
};

// Whether `matmul` and another operation of a given name are the only ones that no event orders.
bool names_both(const RaceDetector& watch, std::string_view other) {
  for (const Race& race : watch.races()) {
    const std::string_view a = race.first.operation, b = race.second.operation;
    if (!(a == "matmul" && b == other) && !(b == "matmul" && a == other)) return false;
  }
  return !watch.races().empty();
}

// The engine under twenty orders of its work. False: it failed, or what was found is not what is wrong with it.
bool try_out(const char* title, Mistake mistake, std::string_view other) {
  BfcStreamStatistics figures;
  int found = 0;
  std::printf("%s:\n", title);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SimulatedOptions options;
    options.seed = seed;
    RaceCheckedMachine machine(options);
    Result<RaceCheckedDevice> device = machine.add_device(1_MiB, "device");
    if (!device.ok()) return false;
    {
      BfcStreamOptions sizes;
      sizes.pool.limit = sizes.pool.region = 5 * layer_size;
      auto heap = BfcStreamHeap<RaceCheckedDevice, RaceCheckedEvent>::make(*device, sizes);
      if (!heap.ok() || !run_layers(heap->pool(), *device, mistake).ok()) return false;
      figures = heap->pool().stream_statistics();
    }
    machine.drain();
    if (machine.watch().count() == 0) continue;
    Printer out;
    if (found++ == 0) static_cast<void>(machine.watch().write_races(out));
    if (!names_both(machine.watch(), other)) return false;
  }
  std::printf("  %d of 20 seeds with a race; %d layers, waits of streams %llu, of the host %llu\n", found, layers,
              static_cast<unsigned long long>(figures.waits), static_cast<unsigned long long>(figures.host_waits));
  return found == (mistake == Mistake::none ? 0 : 20) && figures.waits <= layers - 4 && figures.host_waits == 0;
}

}  // namespace

int main() {
  const bool right = try_out("as it should be", Mistake::none, "");
  const bool waits = try_out("a wait forgotten", Mistake::forgotten_wait, "upload weights");
  const bool frees = try_out("a free on the wrong stream", Mistake::free_on_wrong_stream, "upload weights");
  return right && waits && frees ? 0 : 1;
}
