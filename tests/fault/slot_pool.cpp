// SPDX-License-Identifier: Apache-2.0
// A slot pool over a backend that fails at the n-th call, for every n, once and for ever.
#include "holdfast/backend/host/slot_pool.hpp"

#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include "support/strict_memory.hpp"

using namespace holdfast;
using namespace holdfast::testing;

TEST_CASE("fault: a pool whose growth is refused at any block keeps its slots, tells the refusal and grows later") {
  using Pool = SlotPool<StrictMemory, CacheLineSlots, GrowWhenFull>;
  SlotPoolOptions o;
  o.size = 8;
  o.count = 4;
  o.max_count = 18;  // five blocks, the last of two slots
  for (const bool for_ever : {false, true})
    for (long n = 1; n <= 6; ++n) {
      StrictLog log;
      log.fail_at = n;
      log.fail_on = for_ever;
      {
        Result<Pool> made = Pool::make(StrictMemory(log), o);
        CHECK(made.ok() == (n > 1));
        if (made.ok()) {
          std::vector<Pool::Slot> held;
          int refused = 0;
          while (held.size() < 18 && refused < 3) {
            auto slot = made->acquire();
            if (slot.ok()) {
              held.push_back(std::move(*slot));
              continue;
            }
            CHECK(slot.error().code == Errc::out_of_memory);
            ++refused;
          }
          CHECK(refused == (n > 5 ? 0 : for_ever ? 3 : 1));
          const SlotPoolStatistics s = made->statistics();
          CHECK(s.in_use == static_cast<std::int64_t>(held.size()));
          CHECK(s.capacity == (for_ever && n <= 5 ? 4 * (n - 1) : 18));
          CHECK(s.failures == refused);
        }
      }
      CHECK(log.live.empty());
      CHECK(log.wrong == 0);
    }
}
