// SPDX-License-Identifier: Apache-2.0
#include "holdfast/interop/pmr.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "holdfast/backend/host/system_memory.hpp"
#include "support/gate.hpp"

using namespace holdfast;
using namespace holdfast::testing;

TEST_CASE("pmr: containers take and give back memory of the backend, aligned as they ask") {
  MemoryLog log;
  {
    BackendResource<LoggedMemory> resource{LoggedMemory(log)};
    std::pmr::vector<std::pmr::string> texts(&resource);
    for (int i = 0; i < 100; ++i) texts.emplace_back("a text that is longer than what a string keeps inside itself");
    CHECK(log.live_bytes > 6000);
    CHECK(texts.back().get_allocator().resource() == &resource);
  }
  CHECK(log.live_bytes == 0);
  BackendResource<SystemMemory> system;
  for (const std::size_t alignment : {1u, 64u, 4096u}) {
    void* p = system.allocate(100, alignment);
    CHECK(reinterpret_cast<std::uintptr_t>(p) % alignment == 0);
    system.deallocate(p, 100, alignment);
  }
}

TEST_CASE("pmr: 0 bytes have an address, what the backend refuses throws, and it is equal to itself alone") {
  MemoryLog log;
  BackendResource<LoggedMemory> a{LoggedMemory(log)}, b{LoggedMemory(log)};
  void* none = a.allocate(0, 1);
  CHECK(none != nullptr);
  a.deallocate(none, 0, 1);
  CHECK(a == a);
  CHECK(!(a == b));
  log.fail_at = log.allocations.load();
  CHECK_THROWS_AS(static_cast<void>(a.allocate(8, 8)), std::bad_alloc);
  CHECK_THROWS_AS(static_cast<void>(a.allocate(~std::size_t{0}, 8)), std::bad_alloc);
  BackendResource<EmptyMemory> empty;
  CHECK_THROWS_AS(static_cast<void>(empty.allocate(8, 8)), std::bad_alloc);
  CHECK(log.live_bytes == 0);
}
