// SPDX-License-Identifier: Apache-2.0
// The run side under real threads for a while: HOLDFAST_STRESS_SECONDS, 2 unless set. Meant for the thread sanitizer.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "holdfast/buffer/launch.hpp"
#include "holdfast/buffer/tracked_buffer.hpp"
#include "holdfast/event/host_event.hpp"
#include "holdfast/hold/shared_hold.hpp"
#include "holdfast/hold/striped_hold.hpp"
#include "support/gate.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

double seconds() {
  const char* set = std::getenv("HOLDFAST_STRESS_SECONDS");
  return set != nullptr ? std::atof(set) : 2;
}

// Readers, donors, launches, externals and deleters on a few buffers that are made anew when they are gone. Each buffer's
// bytes hold one number in every byte: a reader that sees two numbers saw a writer.
template <class Hold>
void play() {
  using Buffer = TrackedBuffer<LoggedMemory, HostEvent, Hold>;
  constexpr int buffers = 3, threads = 4;
  constexpr Bytes size = 64;
  MemoryLog log;
  std::atomic<bool> stop{false}, torn{false};
  std::atomic<std::uint64_t> done{0};
  {
    struct Slot {
      Buffer buffer;
    };
    std::vector<Slot> slots;
    for (int i = 0; i < buffers; ++i) {
      auto b = std::move(*Buffer::allocate(LoggedMemory(log), size));
      std::memset(b.hold(HoldKind::usage)->raw().data(), 1, size);
      slots.push_back({std::move(b)});
    }
    std::vector<std::thread> pool;
    for (int t = 0; t < threads; ++t) {
      pool.emplace_back([&, t] {
        std::mt19937 random(static_cast<unsigned>(t));
        std::optional<ScopedHold<Buffer>> kept;
        while (!stop.load(std::memory_order_relaxed)) {
          Buffer& b = slots[random() % buffers].buffer;
          const auto same = [&](const std::byte* p) {
            for (Bytes i = 1; i < size; ++i)
              if (p[i] != p[0]) torn = true;
          };
          const unsigned what = random() % 32;
          if (what < 20) {
            auto u = b.hold(HoldKind::usage);
            if (!u.ok()) continue;
            same(u->raw().data());
            HostPromise p = *HostPromise::make();
            if (what < 10) {
              u->convert(p.get_event());
              static_cast<void>(p.set());
            } else if (what < 15) {
              u->convert();
            }
          } else if (what < 24) {
            auto d = b.hold(HoldKind::donation, what == 20 ? Deadline::after(std::chrono::microseconds(50)) : Deadline::never());
            if (!d.ok()) continue;
            for (const HostEvent& e : d->usage_events()) static_cast<void>(e.wait());
            std::memset(d->raw().data(), static_cast<int>(random() % 250), size);
          } else if (what < 27) {
            auto x = b.hold(HoldKind::external);
            if (x.ok() && what == 24) {
              kept.reset();
              kept.emplace(std::move(*x));
            }
          } else if (what < 28) {
            kept.reset();
          } else if (what < 31) {
            const LaunchArgument<Buffer> arguments[] = {{&slots[0].buffer, what == 28}, {&slots[1].buffer}, {&slots[2].buffer, what == 29}};
            auto launch = acquire_arguments<Buffer>(arguments);
            if (launch.ok()) same((*launch)[0].raw().data());
          } else {
            static_cast<void>(b.ready_event());
          }
          done.fetch_add(1, std::memory_order_relaxed);
        }
      });
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds()));
    stop = true;
    for (auto& t : pool) t.join();
  }
  CHECK(!torn.load());
  CHECK(done.load() > 100);
  CHECK(log.frees == buffers);
  CHECK(log.live_bytes == 0);
}

}  // namespace

TEST_CASE("stress: readers, donors, launches and external holds never see a writer and free everything once") { play<SharedHold>(); }
TEST_CASE("stress: the same on striped holds") { play<StripedHold>(); }
