// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/cuda/host_memory.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstring>

#include "double/cuda_world.hpp"
#include "holdfast/backend/cuda/device_memory.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

using Host = BasicCudaHostMemory<DoubleDriver>;
using Managed = BasicCudaManagedMemory<DoubleDriver>;
using Registration = BasicCudaRegistration<DoubleDriver>;
static_assert(memory_backend<Host> && host_accessible<Host> && memory_backend<Managed> && host_accessible<Managed>);

TEST_CASE("cuda host memory: locked memory is the host's to use and streams' to copy from and to") {
  CudaWorld w;
  Host host(*w.context), write_combined(*w.context, true);
  BasicCudaDeviceMemory<DoubleDriver> device(*w.context);
  const Block a = *host.allocate(1000, Alignment(4096)), b = *write_combined.allocate(1000, Alignment(64)), d = *device.allocate(1000, Alignment(256));
  std::memset(a.data, 7, 1000);
  w.cuda.host_writes({a.data, 1000});
  CHECK(device.copy_in(d, 0, {a.data, 1000})->wait().ok());
  CHECK(device.copy_out(d, 0, std::span(b.data, 1000))->wait().ok());
  w.cuda.host_reads({b.data, 1000});
  CHECK(std::memcmp(a.data, b.data, 1000) == 0);
  device.deallocate(d);
  host.deallocate(a);
  write_combined.deallocate(b);
}

TEST_CASE("cuda host memory: out of it, the text says that it is the host's locked memory, not the device's") {
  CudaWorld w;
  Host host(*w.context);
  const Error e = host.allocate(65_MiB, Alignment(1)).error();
  CHECK(e.code == Errc::out_of_memory);
  CHECK(e.requested == 65_MiB);
  CHECK(says(e, "out of pinned host memory"));
  CHECK(host.allocate(1, Alignment(1_GiB)).error().code == Errc::unsupported);
}

TEST_CASE("cuda host memory: freed while a copy reads it, it is found as a race") {
  CudaWorld w;
  Host host(*w.context);
  BasicCudaDeviceMemory<DoubleDriver> device(*w.context);
  const DoubleStream s = w.stream();
  const Block a = *host.allocate(1000, Alignment(64)), d = *device.allocate(1000, Alignment(256));
  w.cuda.host_writes({a.data, 1000});
  auto later = w.cuda.hold(s.native());
  const DoubleEvent copied = *device.copy_in(s, d, 0, {a.data, 1000});
  host.deallocate(a);
  static_cast<void>(later.set());
  CHECK(copied.wait().ok());
  device.deallocate(d);
  CHECK(w.cuda.races().find("cuMemcpyAsync") != std::string::npos);
  w.check_races = false;
}

TEST_CASE("cuda managed memory: host and device use the same bytes in turn") {
  CudaWorld w;
  Managed m(*w.context);
  const DoubleStream s = w.stream();
  const Block a = *m.allocate(1000, Alignment(256));
  std::memset(a.data, 1, 1000);
  w.cuda.host_writes({a.data, 1000});
  w.cuda.launch(s.native(), "double it", {writes(a)}, [a] { std::memset(a.data, 2, 1000); });
  CHECK(s.synchronize().ok());
  w.cuda.host_reads({a.data, 1000});
  CHECK(a.data[999] == std::byte{2});
  m.deallocate(a);
  CHECK(m.allocate(65_MiB, Alignment(1)).error().code == Errc::out_of_memory);
}

TEST_CASE("cuda registration: foreign memory is locked while it lives, once") {
  CudaWorld w;
  alignas(4096) static std::array<std::byte, 8192> mine{};
  const Block whole{mine.data(), 8192}, part{mine.data() + 100, 10};
  {
    const Registration r = std::move(*Registration::make(*w.context, whole));
    CHECK(r.block() == whole);
    CHECK(Registration::make(*w.context, part).error().code == Errc::already_exists);
  }
  const Registration again = std::move(*Registration::make(*w.context, part));
  for (const Block bad : {Block{}, Block{mine.data(), 0}, Block{mine.data(), -1}})
    CHECK(Registration::make(*w.context, bad).error().code == Errc::invalid_argument);
}
