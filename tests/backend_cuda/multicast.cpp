// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/cuda/multicast.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "double/cuda_world.hpp"
#include "holdfast/backend/cuda/device_memory.hpp"
#include "holdfast/backend/cuda/vmm_memory.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {
using Multicast = BasicCudaMulticast<DoubleDriver>;
using Team = BasicCudaMulticastTeam<DoubleDriver>;

CudaDoubleOptions with_devices(int n) {
  CudaDoubleOptions o;
  o.devices = n;
  return o;
}
// A context of each device.
struct Devices : CudaWorld {
  explicit Devices(int n) : Devices(with_devices(n)) {}
  explicit Devices(const CudaDoubleOptions& o) : CudaWorld(o) {
    team.push_back(&*context);
    if (other) team.push_back(&*other);
    for (int i = 2; i < o.devices; ++i) more.push_back(std::move(*DoubleContext::make(cuda.driver(), i)));
    for (const DoubleContext& c : more) team.push_back(&c);
  }
  std::vector<DoubleContext> more;
  std::vector<const DoubleContext*> team;
};
std::vector<std::string> since(const CudaWorld& w, std::uint64_t from) {
  std::vector<std::string> names;
  for (std::size_t i = static_cast<std::size_t>(from); i < w.cuda.log.size(); ++i)
    if (!is_around(w.cuda.log[i])) names.push_back(w.cuda.log[i]);
  return names;
}
std::size_t at(const std::vector<std::string>& names, std::string_view name, bool last = false) {
  std::size_t found = names.size();
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == name && (last || found == names.size())) found = i;
  return found;
}
std::byte end_of(Block b) { return b.data[b.size - 1]; }
}  // namespace

TEST_CASE("cuda multicast: CM7 one object, all four devices added before any memory is bound or mapped, four addresses, each rank its own") {
  Devices w(4);
  const auto before = w.cuda.calls();
  const Multicast m = std::move(*Multicast::make(w.team, 1_MiB));
  const auto names = since(w, before);
  CHECK(w.cuda.count("cuMulticastCreate") == 1);
  CHECK(w.cuda.count("cuMulticastAddDevice") == 4);
  CHECK(w.cuda.count("cuMulticastBindMem") == 4);
  CHECK(at(names, "cuMulticastAddDevice", true) < at(names, "cuMulticastBindMem"));
  CHECK(at(names, "cuMulticastAddDevice", true) < at(names, "cuMemMap"));
  CHECK(m.count() == 4);
  CHECK(m.size() == 4_MiB);  // what the driver recommends
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(w.cuda.used(static_cast<int>(i)) == 4_MiB);
    CHECK(m.unicast(i).size == 4_MiB);
    CHECK(m.multicast(i).size == 4_MiB);
    for (std::size_t k = 0; k < i; ++k) CHECK(m.multicast(i).data != m.multicast(k).data);
  }
}

TEST_CASE("cuda multicast: what one device stores through its multicast address all devices have; a load adds up what they have") {
  Devices w(3);
  const Multicast m = std::move(*Multicast::make(w.team, 4_MiB));
  const DoubleStream s = w.stream();
  for (std::size_t i = 0; i < 3; ++i) std::memset(m.unicast(i).data, static_cast<int>(i), 4_MiB);
  w.cuda.multimem_store(s.native(), "multimem.st", {m.multicast(0).data + 2_MiB, 2_MiB}, std::byte{9});
  std::uint32_t sum = 0;
  w.cuda.multimem_sum(s.native(), "multimem.ld_reduce", m.multicast(0).data + 64, &sum);
  CHECK(s.synchronize().ok());
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(m.unicast(i).data[2_MiB - 1] == static_cast<std::byte>(i));
    CHECK(m.unicast(i).data[2_MiB] == std::byte{9});
    CHECK(end_of(m.unicast(i)) == std::byte{9});
  }
  CHECK(sum == 0x03030303);
}

TEST_CASE("cuda multicast: a device uses its own multicast address; another's, and one of plain memory, are found as mistakes") {
  Devices w(2);
  const Multicast m = std::move(*Multicast::make(w.team, 1));
  const DoubleStream s = w.stream(), t = std::move(*w.other->make_stream());
  w.cuda.multimem_store(t.native(), "right", m.multicast(1), std::byte{1});
  CHECK(t.synchronize().ok());
  CHECK(w.cuda.misuse == "");
  w.cuda.multimem_store(s.native(), "wrong", m.multicast(1), std::byte{2});
  CHECK(std::exchange(w.cuda.misuse, "") == "a multimem access by a device that has none; ");
  w.cuda.multimem_store(s.native(), "wrong", m.unicast(0), std::byte{2});
  CHECK(std::exchange(w.cuda.misuse, "") == "a multimem access of what is no multicast address; ");
  w.cuda.launch(s.native(), "st.global", {writes({m.multicast(0).data, 1})}, [] {});
  CHECK(std::exchange(w.cuda.misuse, "") == "a plain access at a multicast address; ");
  BasicCudaDeviceMemory<DoubleDriver> plain(*w.context);
  CHECK(says(plain.copy_in(s, m.multicast(0), 0, std::vector<std::byte>(8)).error(), "cuMemcpyAsync failed"));
  CHECK(std::exchange(w.cuda.misuse, "") == "a plain access at a multicast address; ");
  CHECK(s.synchronize().ok());
  CHECK(end_of(m.unicast(0)) == std::byte{1});
}

TEST_CASE("cuda multicast: it goes in this order: wait for all devices, unmap the object everywhere, unbind, then the memory, the object last") {
  Devices w(2);
  std::optional<Multicast> m = std::move(*Multicast::make(w.team, 1));
  const DoubleStream t = std::move(*w.other->make_stream());
  w.cuda.multimem_store(t.native(), "still running", m->multicast(1), std::byte{1});
  const auto before = w.cuda.calls();
  m.reset();  // pending work: a race if it did not wait
  CHECK(since(w, before) == std::vector<std::string>{"cuCtxSynchronize", "cuCtxSynchronize",                                          //
                                                     "cuMemUnmap", "cuMemAddressFree", "cuMemUnmap", "cuMemAddressFree",              //
                                                     "cuMulticastUnbind", "cuMemUnmap", "cuMemRelease", "cuMemAddressFree",           //
                                                     "cuMulticastUnbind", "cuMemUnmap", "cuMemRelease", "cuMemAddressFree", "cuMemRelease"});
}

TEST_CASE("cuda multicast: CM15 over blocks that there are it has the size of their memory, 2 MiB, not that of the request, 1 KiB") {
  Devices w(2);
  const auto first = std::move(*BasicCudaVmm<DoubleDriver>::make(*w.context)), second = std::move(*BasicCudaVmm<DoubleDriver>::make(*w.other));
  auto a = first.memory(), b = second.memory();
  const Block blocks[] = {*a.allocate(1_KiB, Alignment(256)), *b.allocate(1_KiB, Alignment(256))};
  {
    Multicast m = std::move(*Multicast::over(w.team, blocks));
    CHECK(m.size() == 2_MiB);
    CHECK(m.unicast(1).data == blocks[1].data);
    CHECK(w.cuda.count("cuMemCreate") == 2);
    const DoubleStream s = w.stream();
    w.cuda.multimem_store(s.native(), "multimem.st", {m.multicast(0).data, 1_KiB}, std::byte{4});
    CHECK(s.synchronize().ok());
    CHECK(end_of(blocks[0]) == std::byte{4});
    CHECK(end_of(blocks[1]) == std::byte{4});
    m = Multicast{};
  }
  CHECK(end_of(blocks[1]) == std::byte{4});  // the caller's still
  const Error e = Multicast::over(w.team, std::vector<Block>{blocks[0], blocks[0]}).error();  // both on one device
  CHECK(says(e, "cuMulticastBindAddr failed"));
  BasicCudaDeviceMemory<DoubleDriver> plain(*w.context);
  const Block no[] = {*plain.allocate(1_KiB, Alignment(256)), blocks[1]};
  CHECK(says(Multicast::over(w.team, no).error(), "whole granules of an allocation, or over all of it"));
  plain.deallocate(no[0]);
  const Block granule[] = {*plain.allocate(2_MiB, Alignment(256)), {blocks[1].data, 2_MiB}};
  CHECK(says(Multicast::over(w.team, granule).error(), "cuMulticastBindAddr failed"));
  plain.deallocate(granule[0]);
  a.deallocate(blocks[0]);
  b.deallocate(blocks[1]);
}

TEST_CASE("cuda multicast: a part of a granule of a larger allocation is not bound: what lies beside it is somebody else's") {
  Devices w(2);
  const auto first = std::move(*BasicCudaVmm<DoubleDriver>::make(*w.context)), second = std::move(*BasicCudaVmm<DoubleDriver>::make(*w.other));
  auto a = first.memory(), b = second.memory();
  const Block x = *a.allocate(4_MiB, Alignment(256)), y = *b.allocate(4_MiB, Alignment(256));
  for (const Bytes offset : {Bytes{0}, 2_MiB}) {
    const Block parts[] = {{x.data + offset, 1_KiB}, {y.data + offset, 1_KiB}};
    CHECK(Multicast::over(w.team, parts).error().code == Errc::invalid_argument);
    const Block granules[] = {{x.data + offset, 2_MiB}, {y.data + offset, 2_MiB}};
    CHECK(Multicast::over(w.team, granules)->unicast(1) == granules[1]);
  }
  a.deallocate(x);
  b.deallocate(y);
  CHECK(w.cuda.virtual_memory.allocations() == 0);
}

TEST_CASE("cuda multicast: CM8 where a device has none, or the driver is older, it is unimplemented, and nothing is half made") {
  CudaDoubleOptions none = with_devices(2);
  none.multicast = false;
  Devices w(none);
  const Error e = Multicast::make(w.team, 1).error();
  CHECK(status_kind(e) == StatusKind::unimplemented);
  CHECK(says(e, "a device has no multicast"));
  CHECK(w.cuda.count("cuMulticastGetGranularity") == 0);
  CHECK(w.cuda.virtual_memory.allocations() == 0);
  Devices old(2);
  old.cuda.fail_at(3, CUDA_ERROR_NOT_SUPPORTED);  // as of an entry that the driver lacks
  const Error lacks = Multicast::make(old.team, 1).error();
  CHECK(lacks.code == Errc::unsupported);
  CHECK(says(lacks, "cuMulticastGetGranularity failed"));
}

TEST_CASE("cuda multicast: teams and sizes that no object has") {
  Devices w(2);
  const auto made = [](std::vector<const DoubleContext*> team, Bytes size) { return Multicast::make(team, size).error(); };
  CHECK(made({}, 1).code == Errc::invalid_argument);
  CHECK(made(w.team, 0).code == Errc::invalid_argument);
  CHECK(made(w.team, -1).code == Errc::invalid_argument);
  CHECK(made(w.team, max_bytes).code == Errc::out_of_memory);
  CHECK(says(made({&*w.context, &*w.context}, 1), "a device is in a multicast object's team once"));
  CHECK(w.cuda.count("cuMulticastCreate") == 0);
  const Error much = made(w.team, 100_MiB);
  CHECK(much.code == Errc::out_of_memory);
  CHECK(much.requested == 100_MiB);
  CHECK(much.available == 64_MiB);
  CHECK(says(Multicast::over(w.team, std::vector<Block>{{nullptr, 1}}).error(), "a block of each device"));
  CHECK(says(Multicast::over(w.team, std::vector<Block>{{nullptr, 1}, {nullptr, 2}}).error(), "blocks of one size"));
  for (const std::size_t devices : {std::size_t{1}, std::size_t{1} << 40})
    CHECK(says(Team::make(w.team, 1, {.devices = devices}).error(), "no such number of devices"));
  CHECK(Multicast::over({}, {}).error().code == Errc::invalid_argument);
  CHECK(Multicast::make(Multicast::team_type()).error().code == Errc::invalid_argument);
  CHECK(w.cuda.used(0) == 0);
  CHECK(w.cuda.virtual_memory.allocations() == 0);
}

TEST_CASE("cuda multicast: a moved object is one; what it was moved from is empty, and a team without memory goes too") {
  Devices w(2);
  Multicast m = std::move(*Multicast::make(w.team, 1));
  const Block block = m.multicast(1);
  Multicast moved = std::move(m);
  CHECK(moved.multicast(1) == block);
  CHECK(m.count() == 0);
  m = std::move(moved);
  CHECK(m.multicast(1) == block);
  const Team alone = std::move(*Team::make(w.team, 1));
  CHECK(alone.size() == 4_MiB);
  CHECK(w.cuda.leaks().find("2 multicast objects") != std::string::npos);  // what was not given back is shown
  CHECK(w.cuda.leaks().find("4 mappings") != std::string::npos);
  CHECK(w.cuda.virtual_memory.allocations() == 4);
}

namespace {
const ShareIdentity mine{{std::byte{1}}, 10, 3}, theirs{{std::byte{1}}, 11, 0}, far_away{{std::byte{2}}, 10, 0};

// Two processes with a device each.
struct Processes {
  CudaWorld here, there;
  const DoubleContext* first[1] = {&*here.context};
  const DoubleContext* second[1] = {&*there.other};
  explicit Processes(const CudaDoubleOptions& o = {}) : here(o), there(o) {}
  Team offered(const CudaMulticastOptions& o) { return std::move(*Team::make(first, 1_MiB, o)); }
  // Both bind; a store here reaches the memory there.
  void use(Team a, Team b) {
    const Multicast ours = std::move(*Multicast::make(std::move(a))), others = std::move(*Multicast::make(std::move(b)));
    CHECK(ours.count() == 1);
    CHECK(ours.size() == others.size());
    const DoubleStream s = here.stream();
    here.cuda.multimem_store(s.native(), "multimem.st", ours.multicast(0), std::byte{6});
    CHECK(s.synchronize().ok());
    CHECK(end_of(ours.unicast(0)) == std::byte{6});
    CHECK(end_of(others.unicast(0)) == std::byte{6});
  }
};
}  // namespace

TEST_CASE("cuda multicast: processes with a device each join one team by a file, or by a fabric handle from another host") {
  Processes p;
  Team team = p.offered({.devices = 2, .file_handles = true, .fabric = true});
  CHECK(team.size() == 4_MiB);
  {
    const CudaSharedFile shared = *team.share(mine);
    const ShareBlob blob = *read_share_blob(write_share_blob(shared.blob()));
    p.use(std::move(team), std::move(*Team::open(p.second, shared.file(), blob, theirs, 3)));
  }
  team = p.offered({.devices = 2, .fabric = true});
  const ShareBlob blob = *read_share_blob(write_share_blob(*team.share_fabric(mine)));
  CHECK(team.share(mine).error().code == Errc::unsupported);
  p.use(std::move(team), std::move(*Team::open(p.second, blob, far_away, 3)));
}

TEST_CASE("cuda multicast: MD2 of a shared object stale generations, other kinds, sizes and devices are refused, and nothing stays") {
  Processes p;
  const Team team = p.offered({.devices = 2, .file_handles = true, .fabric = true});
  const CudaSharedFile shared = *team.share(mine);
  const auto opened = [&](const ShareBlob& b, std::uint64_t generation) { return Team::open(p.second, shared.file(), b, theirs, generation).error(); };
  CHECK(opened(shared.blob(), 4).code == Errc::wrong_state);
  ShareBlob bad = shared.blob();
  bad.kind = ShareKind::cuda_file;
  CHECK(opened(bad, 3).code == Errc::corrupt);
  bad.kind = ShareKind::multicast_fabric;  // of what another host may open, but not by a file
  CHECK(opened(bad, 3).code == Errc::corrupt);
  bad = shared.blob();
  bad.whole += 1;
  CHECK(opened(bad, 3).code == Errc::corrupt);
  CHECK(Team::open(p.second, shared.blob(), theirs, 3).error().code == Errc::corrupt);
  bad = *team.share_fabric(mine);
  bad.handle.bytes[0] ^= std::byte{1};
  CHECK(says(Team::open(p.second, bad, far_away, 3).error(), "cuMemImportFromShareableHandle failed"));
  const DoubleContext* const same_device[] = {&*p.there.context};
  CHECK(says(Team::open(same_device, shared.file(), shared.blob(), theirs, 3).error(), "cuMulticastAddDevice failed"));
  CHECK(Team::open({}, shared.file(), shared.blob(), theirs, 3).error().code == Errc::invalid_argument);
  // A file of memory, said to be of an object.
  const auto vmm = std::move(*BasicCudaVmm<DoubleDriver>::make(*p.here.context));
  auto memory = vmm.memory();
  const Block block = *memory.allocate(4_MiB, Alignment(256));
  const CudaSharedFile plain = *memory.share(block, mine);
  CHECK(says(Team::open(p.second, plain.file(), shared.blob(), theirs, 3).error(), "cuMulticastAddDevice failed"));
  memory.deallocate(block);
  CHECK(p.there.cuda.virtual_memory.allocations() == 0);
}

TEST_CASE("cuda multicast: VM1 where the driver permits no fabric handles the object is there with a file alone, and says so; made for neither, too") {
  CudaDoubleOptions o;
  o.fabric = CUDA_ERROR_NOT_PERMITTED;
  Processes p(o);
  Team team = p.offered({.devices = 2, .file_handles = true, .fabric = true});
  CHECK(says(team.share_fabric(mine).error(), "the driver permits none"));
  const CudaSharedFile shared = *team.share(mine);
  p.use(std::move(team), std::move(*Team::open(p.second, shared.file(), shared.blob(), theirs, 3)));
  const Team closed = p.offered({});
  CHECK(closed.share(mine).error().code == Errc::unsupported);
  CHECK(closed.share_fabric(mine).error().code == Errc::unsupported);
}

TEST_CASE("cuda multicast: memory bound before another process has joined is what the driver waits for; here it is found") {
  Processes p;
  Team team = p.offered({.devices = 2, .file_handles = true});
  const Error e = Multicast::make(std::move(team)).error();
  CHECK(says(e, "cuMulticastBindMem failed"));
  CHECK(std::exchange(p.here.cuda.misuse, "") == "a bind that blocks until all devices were added to a multicast object; ");
  CHECK(p.here.cuda.virtual_memory.allocations() == 0);
}
