// SPDX-License-Identifier: Apache-2.0
// Fabric handles and multicast objects on a real device, as far as this machine has them; what it
// refuses it must refuse by name, leaving nothing. tests/backend_cuda runs this on the double too.
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#ifndef HOLDFAST_TEST_MACHINE
#include "device/real_machine.hpp"
#endif
#include "holdfast/backend/cuda/multicast.hpp"
#include "holdfast/backend/cuda/shared_fabric.hpp"
#include "holdfast/backend/cuda/vmm_memory.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {

using Driver = CudaMachine::Driver;
using Memory = BasicCudaVmmMemory<Driver>;
using Object = BasicCudaMulticast<Driver>;

// Bytes through any address that the device can access.
bool round_trip(const Memory& m, Block block, std::byte value) {
  std::vector<std::byte> out(static_cast<std::size_t>(block.size), std::byte{0});
  const std::vector<std::byte> in(out.size(), value);
  const auto to = m.copy_in(block, 0, in);
  if (!to.ok() || !to->wait().ok()) return false;
  const auto from = m.copy_out(block, 0, out);
  return from.ok() && from->wait().ok() && in == out;
}
bool begins_with(const Memory& m, Block block, std::byte value) {
  std::array<std::byte, 1> out{};
  const auto from = m.copy_out(block, 0, out);
  return from.ok() && from->wait().ok() && out[0] == value;
}

}  // namespace

TEST_CASE("device: virtual memory shared by a fabric handle is the same memory where it is mapped again, or refused by name") {
  CudaMachine m;
  const auto vmm = std::move(*BasicCudaVmm<Driver>::make(m.context(), {.fabric = true}));
  Memory memory = vmm.memory();
  const Block block = *memory.allocate(3_MiB, Alignment(256));
  const ShareIdentity here{{}, 1, 5}, there{{std::byte{1}}, 1, 0};
  {
    const auto blob = memory.share_fabric(block, here);
    if (!blob.ok()) {
      CHECK(blob.error().code == Errc::unsupported);
      MESSAGE("no fabric handles: ", blob.error().what);
    } else if (const auto import = BasicCudaFabricImport<Driver>::open(m.context(), *blob, there, 5); !import.ok()) {
      CHECK(import.error().native != 0);
      MESSAGE("no import of a fabric handle: ", import.error().what, " ", import.error().native);
    } else {
      CHECK(import->block().data != block.data);
      CHECK(round_trip(memory, import->block(), std::byte{7}));
      CHECK(begins_with(memory, block, std::byte{7}));
    }
  }
  CHECK(round_trip(memory, block, std::byte{8}));
  memory.deallocate(block);
}

TEST_CASE("device: a multicast object of one device has memory as any, ten times over, or is refused by name, and nothing stays") {
  CudaMachine m;
  const auto vmm = std::move(*BasicCudaVmm<Driver>::make(m.context()));
  const BasicCudaContext<Driver>* const team[] = {&m.context()};
  std::size_t before = 0, after = 0, total = 0;
  for (int i = 0; i < 10; ++i) {
    const auto object = Object::make(team, 1_MiB);
    if (!object.ok()) {
      CHECK((object.error().code == Errc::unsupported || object.error().native != 0));
      if (i == 0) MESSAGE("no multicast object: ", object.error().what, " ", object.error().native);
    } else {
      CHECK(object->size() >= 1_MiB);
      CHECK(object->multicast(0).size == object->size());
      CHECK(object->multicast(0).data != object->unicast(0).data);
      CHECK(round_trip(vmm.memory(), {object->unicast(0).data, 1_MiB}, std::byte{3}));
    }
    if (i == 0) CHECK(m.context().state().inside(cuda_call::MemGetInfo{}, &before, &total).ok());
  }
  CHECK(m.context().state().inside(cuda_call::MemGetInfo{}, &after, &total).ok());
  CHECK(after >= before);
}
