// SPDX-License-Identifier: Apache-2.0
#include "holdfast/interop/std_allocator.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <list>
#include <map>
#include <vector>

#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/backend/simulated/machine.hpp"

using namespace holdfast;

namespace {
struct alignas(256) Wide {
  int value = 0;
};
// Comparable and stateful: pinned memory of a machine.
using Pinned = SimulatedMachine::host_memory_type;
}  // namespace

TEST_CASE("std_allocator: containers of every kind live in the backend's memory, aligned") {
  std::vector<Wide, BackendAllocator<Wide, SystemMemory>> wide(10);
  CHECK(reinterpret_cast<std::uintptr_t>(wide.data()) % 256 == 0);
  static_assert(sizeof(BackendAllocator<int, SystemMemory>) == 1);
  SimulatedMachine machine;
  Pinned pinned = *machine.add_host_memory(1 << 16);
  {
    std::list<int, BackendAllocator<int, Pinned>> list{BackendAllocator<int, Pinned>(pinned)};
    std::map<int, int, std::less<int>, BackendAllocator<std::pair<const int, int>, Pinned>> map{BackendAllocator<std::pair<const int, int>, Pinned>(pinned)};
    for (int i = 0; i < 50; ++i) {
      list.push_back(i);
      map[i] = i;
    }
    CHECK(pinned.available() < pinned.capacity());
    CHECK(map.size() == list.size());
  }
  CHECK(pinned.available() == pinned.capacity());
}

TEST_CASE("std_allocator: equal are those of one backend, of any element type; what does not fit throws") {
  SimulatedMachine machine;
  Pinned a = *machine.add_host_memory(1 << 12), b = *machine.add_host_memory(1 << 12);
  CHECK(BackendAllocator<int, Pinned>(a) == BackendAllocator<char, Pinned>(a));
  CHECK(!(BackendAllocator<int, Pinned>(a) == BackendAllocator<int, Pinned>(b)));
  CHECK(BackendAllocator<int, SystemMemory>() == BackendAllocator<char, SystemMemory>());
  BackendAllocator<std::uint64_t, Pinned> limited(a);
  CHECK_THROWS_AS(static_cast<void>(limited.allocate(1 << 12)), std::bad_alloc);
  CHECK_THROWS_AS(static_cast<void>(limited.allocate(~std::size_t{0} / 8 + 2)), std::bad_alloc);  // wraps to 8 bytes
  CHECK_THROWS_AS(static_cast<void>(limited.allocate(~std::size_t{0})), std::bad_alloc);
  CHECK(a.available() == a.capacity());
}
