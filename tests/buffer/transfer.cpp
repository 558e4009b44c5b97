// SPDX-License-Identifier: Apache-2.0
#include "holdfast/buffer/transfer.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/buffer/pending_memory.hpp"
#include "holdfast/buffer/tracked_buffer.hpp"
#include "holdfast/event/host_event.hpp"
#include "support/gate.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

using Raw = RawBuffer<SystemMemory>;
std::span<const HostEvent> none;

std::span<const std::byte> view(const void* p, std::size_t n) { return {static_cast<const std::byte*>(p), n}; }
std::span<std::byte> room(void* p, std::size_t n) { return {static_cast<std::byte*>(p), n}; }

// A device whose copies run when the test says so, in order.
struct Device {
  struct Copy {
    void* to;
    const void* from;
    std::size_t n;
    HostPromise done;
  };
  std::vector<std::unique_ptr<Copy>> queue;
  int allocations = 0;
  void run_all(const Error& error = {}) {
    auto now = std::move(queue);  // a completion may enqueue the next copy
    queue.clear();
    for (auto& c : now) {
      if (error.ok() && c->n != 0) std::memcpy(c->to, c->from, c->n);
      static_cast<void>(error.ok() ? c->done.set() : c->done.set_error(error));
    }
  }
};
class DeviceMemory {
 public:
  static constexpr MemorySpace space = MemorySpace::device;
  using event_type = HostEvent;
  DeviceMemory() = default;
  explicit DeviceMemory(Device& d) : device_(&d) {}
  Result<Block> allocate(Bytes n, Alignment) noexcept {
    if (n > 1 << 30) return make_error(Errc::out_of_memory, "the device is full");
    ++device_->allocations;
    return Block{static_cast<std::byte*>(std::malloc(static_cast<std::size_t>(n))), n};
  }
  void deallocate(Block b) noexcept { std::free(b.data); }
  Result<HostEvent> copy_in(Block to, Bytes offset, std::span<const std::byte> from) noexcept {
    return enqueue(to.data + offset, from.data(), from.size());
  }
  Result<HostEvent> copy_out(Block from, Bytes offset, std::span<std::byte> to) noexcept {
    return enqueue(to.data(), from.data + offset, to.size());
  }
  Result<HostEvent> copy(Block to, Bytes a, Block from, Bytes b, Bytes n) noexcept {
    return enqueue(to.data + a, from.data + b, static_cast<std::size_t>(n));
  }

 private:
  Result<HostEvent> enqueue(void* to, const void* from, std::size_t n) {
    device_->queue.push_back(std::make_unique<Device::Copy>(Device::Copy{to, from, n, std::move(*HostPromise::make())}));
    return device_->queue.back()->done.get_event();
  }
  Device* device_ = nullptr;
};
static_assert(copying_backend<DeviceMemory> && !host_accessible<DeviceMemory>);
using DeviceRaw = RawBuffer<DeviceMemory>;

struct QueueExecutor {
  std::vector<Continuation*>* queue;
  void execute(Continuation& node) noexcept { queue->push_back(&node); }
};

}  // namespace

TEST_CASE("transfer: a copy after pending events runs when the last is done and moves nothing before") {
  Raw raw = *Raw::allocate({}, 8);
  std::memset(raw.data(), 0, 8);
  HostPromise p = *HostPromise::make();
  const HostEvent after[] = {p.get_event()};
  std::uint64_t in = 42, out = 0;
  HostEvent written = *copy_in<Raw, HostEvent>(raw, 0, view(&in, 8), after);
  const HostEvent then[] = {written};
  HostEvent read = *copy_out<Raw, HostEvent>(raw, 0, room(&out, 8), then);
  CHECK(!written.ready());
  raw = Raw();  // the copies keep the memory
  CHECK(p.set().ok());
  CHECK(read.wait().ok());
  CHECK(out == 42);
}

TEST_CASE("transfer: case 03 D, a copy that depends on a failed event fails with its cause and leaves the destination alone") {
  Raw raw = *Raw::allocate({}, 8);
  std::memset(raw.data(), 0x11, 8);
  std::uint64_t in = 42;
  HostPromise p = *HostPromise::make();
  const HostEvent failed[] = {*HostEvent::make_failed(make_error(Errc::internal, "copy failed"))}, later[] = {p.get_event()};
  CHECK(says(copy_in<Raw, HostEvent>(raw, 0, view(&in, 8), failed)->wait(), "copy failed"));
  HostEvent e = *copy_in<Raw, HostEvent>(raw, 0, view(&in, 8), later);
  CHECK(p.set_error(make_error(Errc::internal, "copy failed")).ok());
  CHECK(says(e.wait(), "copy failed"));
  for (int i = 0; i < 8; ++i) CHECK(raw.data()[i] == std::byte{0x11});
}

TEST_CASE("transfer: a refused range is an error of the call, not of an event") {
  Raw raw = *Raw::allocate({}, 8);
  std::byte bytes[16] = {};
  CHECK(says((copy_in<Raw, HostEvent>(raw, 1, view(bytes, 8), none).error()), "invalid offset 1"));
  CHECK(copy_out<Raw, HostEvent>(raw, 9, room(bytes, 0), none).error().code == Errc::invalid_argument);
  CHECK(copy_out<Raw, HostEvent>(Raw(), 0, room(bytes, 0), none).error().code == Errc::invalid_argument);
  CHECK(copy_in<Raw, HostEvent>(raw, 8, view(bytes, 0), none)->ready());
}

TEST_CASE("transfer: T-R3 1024 bytes of s32 47..302 go to the buffer and come back equal through 1024-aligned memory") {
  alignas(1024) std::int32_t in[256];
  alignas(1024) std::int32_t out[256] = {};
  for (int i = 0; i < 256; ++i) in[i] = 47 + i;
  Device device;
  DeviceRaw raw = *DeviceRaw::allocate(DeviceMemory(device), 1024);
  CHECK(raw.size() == 1024);
  CHECK(raw.memory_space() == MemorySpace::device);
  HostEvent written = *copy_in<DeviceRaw, HostEvent>(raw, 0, view(in, 1024), none);
  const HostEvent after[] = {written};
  HostEvent read = *copy_out<DeviceRaw, HostEvent>(raw, 0, room(out, 1024), after);
  CHECK(device.queue.size() == 1);
  device.run_all();
  CHECK(written.ready());
  CHECK(device.queue.size() == 1);
  device.run_all();
  CHECK(read.wait().ok());
  CHECK(std::memcmp(in, out, 1024) == 0);
}

TEST_CASE("transfer: T-R5 bytes go to an address that is known only after the buffer is gone") {
  std::optional<Raw> raw(*Raw::allocate({}, 8));
  const float values[2] = {41, 42};
  std::memcpy(raw->data(), values, 8);
  HostPromise known = *HostPromise::make();
  std::byte* address = nullptr;
  HostEvent done = *copy_out_when_known<Raw, HostEvent>(*raw, 0, 8, &address, known.get_event(), none);
  CHECK(says((copy_out_when_known<Raw, HostEvent>(*raw, 1, 8, &address, HostEvent(), none).error()), "invalid offset 1"));
  raw.reset();
  float out[2] = {};
  address = reinterpret_cast<std::byte*>(out);
  CHECK(!done.ready());
  CHECK(known.set().ok());
  CHECK(done.wait().ok());
  CHECK(out[0] == 41.f);
  CHECK(out[1] == 42.f);
}

TEST_CASE("transfer: T-R6 and T-R7 s32{1,2,3,4} goes device to host memory and back, and a space to itself") {
  Device device;
  const std::int32_t values[4] = {1, 2, 3, 4};
  Raw host = *Raw::allocate({}, 16), again = *Raw::allocate({}, 16);
  std::memcpy(host.data(), values, 16);
  DeviceRaw on_device = *DeviceRaw::allocate(DeviceMemory(device), 16);
  HostEvent there = *copy<Raw, DeviceRaw, HostEvent>(host, on_device, none);
  device.run_all();
  const HostEvent after[] = {there};
  HostEvent back = *copy<DeviceRaw, Raw, HostEvent>(on_device, again, after);
  device.run_all();
  CHECK(back.wait().ok());
  CHECK(std::memcmp(again.data(), values, 16) == 0);
  CHECK(again.host_pointer() == again.data());
  CHECK(on_device.host_pointer() == nullptr);
  Raw self = *Raw::allocate({}, 16);
  CHECK((copy<Raw, Raw, HostEvent>(again, self, none)->wait().ok()));
  CHECK(std::memcmp(self.data(), values, 16) == 0);
}

TEST_CASE("transfer: case 04 overlapping slices of one buffer are copied as by memmove, unequal sizes are refused") {
  Raw base = *Raw::allocate({}, 100);
  for (int i = 0; i < 100; ++i) base.data()[i] = static_cast<std::byte>(i);
  CHECK((copy<Raw, Raw, HostEvent>(*base.slice(0, 60), *base.slice(20, 60), none)->wait().ok()));
  for (int i = 0; i < 60; ++i) CHECK(base.data()[20 + i] == static_cast<std::byte>(i));
  CHECK((copy<Raw, Raw, HostEvent>(*base.slice(0, 60), *base.slice(0, 59), none).error().code == Errc::invalid_argument));
}

TEST_CASE("transfer: case 04 a batch of slices is all or none") {
  Raw base = *Raw::allocate({}, 100);
  Raw parts[3];
  const SliceRange good[] = {{0, 40}, {40, 60}, {10, 80}}, bad[] = {{0, 40}, {95, 10}};
  CHECK(base.multi_slice(bad, parts).code == Errc::invalid_argument);
  CHECK(!parts[0]);
  CHECK(base.multi_slice(good, parts).ok());
  CHECK(parts[2].data() == base.data() + 10);
  CHECK(base.multi_slice({}, {}).ok());
}

TEST_CASE("transfer: copy_to resolves definition and usage once each on every path") {
  Device device;
  Raw host = *Raw::allocate({}, 16);
  std::memset(host.data(), 3, 16);
  DeviceRaw to = *DeviceRaw::allocate(DeviceMemory(device), 16), small = *DeviceRaw::allocate(DeviceMemory(device), 8);
  for (const bool fails : {false, true}) {
    HostPromise d = *HostPromise::make(), u = *HostPromise::make();
    HostEvent defined = d.get_event(), used = u.get_event();
    copy_to<Raw, DeviceRaw, HostEvent>(host, to, none, std::move(d), std::move(u));
    CHECK(!used.ready());
    device.run_all(fails ? make_error(Errc::device_fault, "link down") : Error{});
    CHECK(defined.wait().code == (fails ? Errc::device_fault : Errc::ok));
    CHECK(used.wait().ok());
  }
  HostPromise d = *HostPromise::make(), u = *HostPromise::make();
  HostEvent defined = d.get_event(), used = u.get_event();
  copy_to<Raw, DeviceRaw, HostEvent>(host, small, none, std::move(d), std::move(u));
  CHECK(says(defined.wait(), "invalid offset 0 and length 16 in a buffer of 8 bytes"));
  CHECK(!used.wait().ok());
}

TEST_CASE("transfer: T-R11 102399 bytes are copied inline, 102400 on the worker, and bytes that may change after the call always here") {
  std::vector<std::byte> bytes(102400, std::byte{7});
  Raw raw = *Raw::allocate({}, 102400);
  std::vector<Continuation*> queue;
  int done = 0;
  const auto copy_some = [&](std::size_t n, HostSemantics s) {
    return *copy_from_host<Raw, HostEvent>(raw, std::span(bytes).first(n), s, QueueExecutor{&queue}, [&] { ++done; });
  };
  CHECK(copy_some(102399, HostSemantics::immutable_until_done).ready());
  CHECK(queue.empty());
  CHECK(copy_some(102400, HostSemantics::immutable_during_call).ready());
  CHECK(queue.empty());
  CHECK(done == 2);
  HostEvent later = copy_some(102400, HostSemantics::immutable_until_done);
  CHECK(queue.size() == 1);
  CHECK(!later.ready());
  CHECK(done == 2);
  queue[0]->run(*queue[0]);
  CHECK(later.wait().ok());
  CHECK(done == 3);
}

TEST_CASE("transfer: T-R9 in 3-byte chunks, four buffers with errors on two: each event gets exactly its own status") {
  Device device;
  const std::byte bytes[12] = {};
  std::vector<HostEvent> last;
  for (int b = 0; b < 4; ++b) {
    DeviceRaw raw = *DeviceRaw::allocate(DeviceMemory(device), 12);
    std::vector<HostEvent> chunks;
    for (Bytes at = 0; at < 12; at += 3) {
      const auto e = copy_in<DeviceRaw, HostEvent>(raw, at, view(bytes, 3), none);
      REQUIRE(e.ok());
      chunks.push_back(*e);
    }
    last.push_back(*after_all<HostEvent>(std::span<const HostEvent>(chunks)));
    raw = DeviceRaw();  // dropped before the transfer: the events keep the memory
    device.run_all(b == 1 || b == 2 ? make_error(Errc::device_fault, b == 1 ? "one" : "two") : Error{});
  }
  CHECK(last[0].wait().ok());
  CHECK(says(last[1].wait(), "one"));
  CHECK(says(last[2].wait(), "two"));
  CHECK(last[3].wait().ok());
}

// --- memory that comes later -----------------------------------------------------------------------------------------------

TEST_CASE("transfer: T-C5 and T-C6 memory comes after the buffer, whose size is known; copies wait for it") {
  Device device;
  constexpr std::string_view texts[] = {"tracked_cpu_device_buffer_test", "tuple"};
  for (const std::string_view text : texts) {
    const auto size = static_cast<Bytes>(text.size());
    auto delayed = std::move(*PendingMemory<DeviceMemory, Shared>::make(DeviceMemory(device), size));
    CHECK(delayed.buffer.size() == size);
    CHECK(delayed.buffer.data() == nullptr);
    CHECK(!delayed.buffer.allocation_ready().ready());
    HostEvent written = *copy_in<DeviceRaw, HostEvent>(delayed.buffer, 0, view(text.data(), text.size()), none);
    const HostEvent definition[] = {written};
    auto buffer = std::move(*TrackedBuffer<DeviceMemory>::make(delayed.buffer, definition));
    HostEvent ready = *buffer.ready_event();
    CHECK(device.queue.empty());
    CHECK(delayed.memory.allocate().ok());
    CHECK(delayed.memory.allocate().code == Errc::wrong_state);
    CHECK(delayed.buffer.allocation_ready().ready());
    CHECK(!ready.ready());
    device.run_all();
    CHECK(ready.wait().ok());
    CHECK(std::memcmp(delayed.buffer.data(), text.data(), text.size()) == 0);
  }
}

TEST_CASE("transfer: T-C7 a slice of memory that failed says so, with the parent's status, in every thread") {
  Device device;
  auto delayed = std::move(*PendingMemory<DeviceMemory, Shared>::make(DeviceMemory(device), 64));
  DeviceRaw slice = *delayed.buffer.slice(10, 20);
  Caller other([&] { CHECK(delayed.memory.fail(make_error(Errc::out_of_memory, "no device memory")).ok()); });
  const auto address = slice.address();
  CHECK(status_kind(address.error()) == StatusKind::resource_exhausted);
  CHECK(says(address.error(), "sliced buffer whose parent failed"));
  CHECK(says(address.error(), "RESOURCE_EXHAUSTED"));
}

TEST_CASE("transfer: T-E9 a slice of an unfulfilled buffer has an allocation event that becomes ready with the memory") {
  Device device;
  auto delayed = std::move(*PendingMemory<DeviceMemory, Shared>::make(DeviceMemory(device), 4096));
  DeviceRaw slice = *delayed.buffer.slice(0, 512);
  HostEvent ready = slice.allocation_ready();
  CHECK(!ready.ready());
  CHECK(delayed.memory.allocate().ok());
  CHECK(ready.wait().ok());
  CHECK(*slice.address() == delayed.buffer.data());
}

TEST_CASE("transfer: case 03 E, a failed allocation is told from a failed computation: FAILED_PRECONDITION, and by its text") {
  Device device;
  auto delayed = std::move(*PendingMemory<DeviceMemory, Shared>::make(DeviceMemory(device), Bytes{2} << 30));
  auto buffer = std::move(*TrackedBuffer<DeviceMemory>::make(delayed.buffer));
  HostEvent ready = *buffer.ready_event();
  CHECK(!ready.ready());
  CHECK(delayed.memory.allocate().code == Errc::out_of_memory);
  CHECK(status_kind(ready.wait()) == StatusKind::failed_precondition);
  CHECK(ready.wait().code == Errc::out_of_memory);
  CHECK(sentence(ready.wait()) == "Error in buffer allocation: the device is full");
  HostEvent aborted;
  {
    auto dropped = std::move(*PendingMemory<DeviceMemory, Shared>::make(DeviceMemory(device), 4));
    aborted = dropped.buffer.allocation_ready();
  }
  CHECK(aborted.wait().code == Errc::aborted);
}

TEST_CASE("transfer: T-C10 DeferredWrite, 64 bytes of 1 over memory of 2 after a pending event: only then is the identity another") {
  alignas(64) std::byte ones[64], twos[64];
  std::memset(ones, 1, 64);
  std::memset(twos, 2, 64);
  Raw raw = *Raw::allocate({}, 64);
  std::memset(raw.data(), 2, 64);
  const std::uint64_t before = raw.content_identity();
  HostPromise dependency = *HostPromise::make();
  const HostEvent after[] = {dependency.get_event()};
  HostEvent done = *copy_in<Raw, HostEvent>(raw, 0, ones, after);
  CHECK(!done.ready());
  CHECK(raw.content_identity() == before);
  CHECK(std::memcmp(raw.data(), twos, 64) == 0);
  CHECK(dependency.set().ok());
  CHECK(done.wait().ok());
  CHECK(std::memcmp(raw.data(), ones, 64) == 0);
  CHECK(raw.content_identity() != before);
}

TEST_CASE("transfer: a scheduled copy begins on the executor after its events and tells definition, usage and allocation once on every path") {
  enum class Path { good, dependency_fails, wrong_size, constant };
  for (const Path path : {Path::good, Path::dependency_fails, Path::wrong_size, Path::constant}) {
    Device device;
    std::vector<Continuation*> queue;
    Raw host = *Raw::allocate({}, 16);
    std::memset(host.data(), 3, 16);
    alignas(64) std::byte foreign[16] = {};
    DeviceRaw to = path == Path::constant ? *DeviceRaw::import_foreign(DeviceMemory(device), {foreign, 16}, {})
                                          : *DeviceRaw::allocate(DeviceMemory(device), path == Path::wrong_size ? 8 : 16);
    std::memset(to.data(), 0, static_cast<std::size_t>(to.size()));
    HostPromise d = *HostPromise::make(), u = *HostPromise::make(), go = *HostPromise::make();
    HostEvent defined = d.get_event(), used = u.get_event();
    const HostEvent after[] = {go.get_event()};
    int told = 0;
    Error allocation;
    schedule_copy_to<Raw, DeviceRaw, HostEvent>(host, to, after, QueueExecutor{&queue}, std::move(d), std::move(u), [&](const Error& e) noexcept {
      ++told;
      allocation = e;
      CHECK(to.data()[0] == std::byte{0});
    });
    CHECK(queue.empty());
    CHECK(static_cast<bool>((path == Path::dependency_fails ? go.set_error(make_error(Errc::internal, "copy failed")) : go.set()).ok()));
    CHECK(told == 0);
    REQUIRE(queue.size() == 1);
    queue[0]->run(*queue[0]);
    CHECK(told == 1);
    CHECK(allocation.ok() == (path == Path::good));
    if (path == Path::good) {
      CHECK(!defined.ready());
      device.run_all();
      CHECK(defined.wait().ok());
      CHECK(used.wait().ok());
      CHECK(to.data()[15] == std::byte{3});
    } else {
      CHECK(device.queue.empty());
      CHECK(defined.wait().code == allocation.code);
      CHECK(used.wait().code == allocation.code);
      CHECK(to.data()[0] == std::byte{0});
    }
    CHECK(allocation.code == (path == Path::good               ? Errc::ok
                              : path == Path::dependency_fails ? Errc::internal
                              : path == Path::constant         ? Errc::permission_denied
                                                               : Errc::invalid_argument));
  }
}
