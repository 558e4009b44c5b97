// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/jit/mapper_registry.hpp"

#include <doctest/doctest.h>

#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include "support/jit.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {
MapperOptions anonymous(std::string_view) noexcept { return {.mode = MapMode::mprotect_anon}; }
MapperOptions refusing(std::string_view) noexcept { return {.mode = MapMode::refuse}; }
}  // namespace

TEST_CASE("mapper_registry: a second factory replaces the first, which is given back (JM5)") {
  MapperRegistry registry;
  CHECK((registry.set_factory(anonymous) == nullptr));
  CHECK((registry.set_factory(refusing) == anonymous));
  CHECK((registry.factory() == refusing));
  CHECK(registry.mapper("r")->operator*().mode() == MapMode::refuse);
  CHECK((registry.set_factory(nullptr) == refusing));
  CHECK((mapper_registry().factory() == nullptr));
  CHECK(&mapper_registry() == &mapper_registry());
}

TEST_CASE("mapper_registry: the same name is the same mapper, another name another; without a factory the default one (JM6)") {
  MapperRegistry registry;
  Result<MapperHandle<>> a = registry.mapper("matmul"), b = registry.mapper("matmul"), c = registry.mapper("softmax");
  REQUIRE((a.ok() && b.ok() && c.ok()));
  CHECK(&**a == &**b);
  CHECK(&**a != &**c);
  CHECK(*a == *b);
  CHECK((*a)->name().view() == "jit:matmul");
  CHECK((*a)->backing() == jit_capabilities().backing);
  CHECK(registry.mapper(std::string(300, 'x')).ok());
  std::string shares_of;
  registry.visit([&](const MemoryMapper&, std::uint32_t shares) { shares_of += std::to_string(shares); });
  CHECK(shares_of == "12");  // the newest first
}

TEST_CASE("mapper_registry: the last share unloads a mapper, and the next who asks gets a new one") {
  MapperRegistry registry;
  MapperHandle<> kept;
  CHECK(!kept);
  {
    Result<MapperHandle<>> first = registry.mapper("unload");
    REQUIRE(first.ok());
    kept = *first;
  }
  CHECK(kept);
  registry.set_factory(anonymous);
  CHECK((*registry.mapper("unload"))->mode() == jit_capabilities().backing.mode);  // made before
  kept = MapperHandle<>();
  CHECK((*registry.mapper("unload"))->mode() == MapMode::mprotect_anon);
  int regions = 0;
  registry.visit([&](const MemoryMapper&, std::uint32_t) { ++regions; });
  CHECK(regions == 0);
}

TEST_CASE("mapper_registry: a mapper that cannot be made is an error, and later another try") {
  call_log = {};
  call_log.memory_file_error = ENOSYS;
  BasicMapperRegistry<FaultyCalls> registry;
  registry.set_factory([](std::string_view) noexcept { return MapperOptions{.mode = MapMode::dual_memfd}; });
  StringSink text;
  CHECK(registry.mapper("r", text).error().code == Errc::unsupported);
  CHECK(text.text.find("memfd_create") != std::string::npos);
  call_log.memory_file_error = 0;
  CHECK(registry.mapper("r").ok());
}

TEST_CASE("mapper_registry: the leak report has name, bytes, blocks and age of what is still held") {
  MapperRegistry registry;
  MapperHandle<> a = *registry.mapper("leaky"), b = *registry.mapper("clean");
  Result<CodeBlock> x = a->reserve(1), y = a->reserve(5000), z = b->reserve(1);
  REQUIRE((x.ok() && y.ok() && z.ok()));
  b->release(*z);
  StringSink text;
  CHECK(registry.write_leaks(text).ok());
  CHECK(text.text.starts_with("jit:leaky: 12288 bytes in 2 blocks, "));
  CHECK(text.text.ends_with(" s\n"));
  CHECK(std::stoi(text.text.substr(36)) <= 60);
  a->release(*x), a->release(*y);
  text.text.clear();
  CHECK(registry.write_leaks(text).ok());
  CHECK(text.text.empty());
}

TEST_CASE("mapper_registry: threads that take and drop the same names always have a live mapper") {
  MapperRegistry registry;
  registry.set_factory(anonymous);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&registry, t] {
      for (int i = 0; i < 200; ++i) {
        Result<MapperHandle<>> handle = registry.mapper((i + t) % 2 == 0 ? "even" : "odd");
        if (!handle.ok()) std::abort();
        MapperHandle<> copy = *handle;
        Result<CodeBlock> block = copy->reserve(4096);
        if (!block.ok()) std::abort();
        copy->release(*block);
      }
    });
  for (std::thread& t : threads) t.join();
  int regions = 0;
  registry.visit([&](const MemoryMapper&, std::uint32_t) { ++regions; });
  CHECK(regions == 0);
}
