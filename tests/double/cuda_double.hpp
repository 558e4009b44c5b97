// SPDX-License-Identifier: Apache-2.0
// CUDA's driver on the host: the same entry points, served by a simulated machine whose streams are late, reordered and
// watched for races. It does what cuda.h says; where that is silent it does what finds more mistakes.
// tests/backend_cuda/rules.cpp holds it to the documentation, a line a rule.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "double/captures.hpp"
#include "double/multicast.hpp"
#include "double/shared_pools.hpp"
#include "double/slots.hpp"
#include "double/virtual_memory.hpp"
#include "holdfast/backend/cuda/driver.hpp"
#include "holdfast/backend/simulated/race_checked.hpp"
#include "support/texts.hpp"

namespace holdfast::testing {

class CudaDouble;

/// The driver's policy, for the library's types.
struct DoubleDriver {
  CudaDouble* world = nullptr;
  template <class Call, class... Args>
  CUresult operator()(Call call, Args... args) const noexcept;
  void pause(const std::atomic<std::uint32_t>& word, std::uint32_t old, Deadline deadline) const noexcept;
  holdfast::detail::CudaContexts& contexts() const noexcept;
};

template <class... Calls, class F>
void visit_names(std::tuple<Calls...>*, F f) {
  (f(Calls::name), ...);
}
/// Calls `f(name)` for every entry point.
template <class F>
void cuda_call_names(F f) {
  visit_names(static_cast<cuda_call::All*>(nullptr), f);
}

struct CudaDoubleOptions {
  std::uint64_t seed = 1;
  int devices = 2;
  Bytes capacity = Bytes{64} << 20;
  std::size_t granularity = std::size_t{2} << 20;
  bool peers = true;                      // devices can access each other
  CUresult fabric = CUDA_SUCCESS;         // what cuMemCreate says to fabric handles
  bool dma_buf = true;                    // what the attribute says
  bool rdma = true;                       // what its attribute says
  int first_device = 0;                   // of the machine's, whose uuids they have
  bool multicast = true;                  // devices have it
};

class CudaDouble {
 public:
  explicit CudaDouble(const CudaDoubleOptions& o = {}) : options(o), machine(simulated(o)), virtual_memory(o.granularity) {
    contexts().clear();
    for (int i = 0; i < o.devices; ++i) {
      devices_.push_back(std::make_unique<Device>());
      devices_.back()->index = i;
      devices_.back()->sim = *machine.add_device(o.capacity);
    }
  }
  CudaDouble(CudaDouble&&) = delete;

  [[nodiscard]] DoubleDriver driver() { return {this}; }

  // --- what tests do to it ---

  /// A kernel: a function that runs in its turn, and what it touches.
  template <class F>
  void launch(CUstream stream, std::string_view name, std::initializer_list<MemoryTouch> touches, F f) {
    const std::scoped_lock lock(mutex_);
    Stream* s = streams_.find(stream);
    if (s == nullptr) return misused("launch on a stream that is no more");
    if (!check_access(s->device, {touches.begin(), touches.size()})) return;
    static_cast<void>(s->sim.launch(name, touches, std::move(f)));
  }
  /// A kernel that stores through a multicast address (multimem.st): the bytes reach the memory of each device of the team.
  void multimem_store(CUstream stream, std::string_view name, Block at, std::byte value) {
    multimem(stream, name, at, Touch::write, [at, value](const MulticastCalls::Reached& r) {
      const std::vector<std::byte> bytes(static_cast<std::size_t>(at.size), value);
      for (const auto& p : r.places) static_cast<void>(::pwrite(p.file->fd, bytes.data(), bytes.size(), static_cast<off_t>(p.offset)) + 0);
    });
  }
  /// A kernel that adds up what the devices have at a multicast address (multimem.ld_reduce).
  void multimem_sum(CUstream stream, std::string_view name, const std::byte* at, std::uint32_t* sum) {
    multimem(stream, name, {const_cast<std::byte*>(at), sizeof *sum}, Touch::read, [sum](const MulticastCalls::Reached& r) {
      *sum = 0;
      for (const auto& p : r.places) {
        std::uint32_t one = 0;
        static_cast<void>(::pread(p.file->fd, &one, sizeof one, static_cast<off_t>(p.offset)) + 0);
        *sum += one;
      }
    });
  }
  /// Nothing that is enqueued from now on runs before the promise is set.
  RaceCheckedMachine::promise_type hold(CUstream stream) {
    RaceCheckedMachine::promise_type promise = std::move(*machine.make_promise());
    static_cast<void>(promise.get_event().wait_on(streams_.find(stream)->sim));
    return promise;
  }
  /// The program captures a stream into a graph.
  void begin_capture(CUstream stream, CUstreamCaptureMode mode) { streams_.find(stream)->capture = captures_.begin(mode); }
  /// True if nothing has spoilt it.
  bool end_capture(CUstream stream) {
    const std::shared_ptr<Capture> ends = streams_.find(stream)->capture;
    captures_.end(ends);
    streams_.visit([&](Stream& s) {
      if (s.capture == ends) s.capture = nullptr;
    });
    return ends->valid;
  }
  /// A kernel that kills the context with a code when its turn comes.
  void launch_faulty(CUstream stream, CUresult code) {
    Stream* s = streams_.find(stream);
    Device* d = s->device;
    SimulatedFault sticks{SimulatedCall::launch, 0, Error{}, true, true};
    const auto die = [d, code]() noexcept {
      d->dead.store(code);
      return failure(code);
    };
    static_cast<void>(s->sim.enqueue("a faulty kernel", std::span<const MemoryTouch>{}, die, sticks));
  }
  /// The n-th call from now fails with a code; a call that gives something back does it all the same, as the error may be
  /// of earlier work ("may also return error codes from previous, asynchronous launches").
  void fail_at(std::uint64_t n, CUresult code) {
    calls_until_failure_ = n;
    failure_code_ = code;
    failed_call.clear();
  }

  /// After a fault: what a process would take with it when it ends is gone, so that nothing of it is missed.
  void forgive() {
    machine.drain();
    for (auto& d : devices_) d->dead.store(CUDA_SUCCESS);
    streams_ = {};
    events_ = {};
    pools_ = {};
    allocations_.clear();
    registered_.clear();
    shared_pools.clear();
    forgiven_ = true;
  }

  // --- what tests look at ---

  std::vector<std::string> log;      // the names of all calls
  std::string failed_call;           // the call that `fail_at` hit
  std::string misuse;                // what no caller should do
  int for_network_cards = 0;         // allocations that were asked to be reached by them
  std::uint64_t calls() const { return log.size(); }
  std::size_t count(std::string_view name) const {
    return static_cast<std::size_t>(std::count(log.begin(), log.end(), name));
  }
  std::string races() {
    machine.drain();
    StringSink out;
    static_cast<void>(machine.watch().write_races(out));
    return out.text;
  }
  /// What was taken and not given back.
  std::string leaks() {
    machine.drain();
    std::string out;
    const auto add = [&](std::string_view what, std::size_t n) {
      if (n != 0) out += std::to_string(n) + " " + std::string(what) + "; ";
    };
    int retained = 0;
    for (auto& d : devices_) retained += d->retained;
    add("contexts", static_cast<std::size_t>(retained));
    add("contexts still current", contexts().size());
    add("capture modes changed", Captures::mode() != CU_STREAM_CAPTURE_MODE_GLOBAL);
    add("streams", streams_.live());
    add("events", events_.live());
    add("allocations", allocations_.size());
    add("pools", pools_.live());
    add("registered ranges", registered_.size());
    add("opened handles", opened_.size());
    add("imported blocks", shared_pools.imported());
    add("reservations", virtual_memory.reservations());
    add("mappings", virtual_memory.mappings());
    add("physical allocations", virtual_memory.allocations());
    add("multicast objects among them", virtual_memory.multicast_objects());
    return out;
  }
  /// Bytes that a device has given out, one way or another.
  Bytes used(int device) {
    Device& d = *devices_[static_cast<std::size_t>(device)];
    return d.sim.capacity() - d.sim.available() + static_cast<Bytes>(virtual_memory.physical(device));
  }
  bool live(const void* p) const { return allocations_.count(address(p)) != 0; }
  void misused(std::string_view what) { misuse += std::string(what) + "; "; }
  void host_reads(std::span<const std::byte> bytes) { machine.host_reads("the host reads", bytes); }
  void host_writes(std::span<const std::byte> bytes) { machine.host_writes("the host writes", bytes); }

  const CudaDoubleOptions options;
  RaceCheckedMachine machine;
  VirtualMemory virtual_memory;
  SharedPools shared_pools;
  holdfast::detail::CudaContexts contexts_of_library;
  MulticastCalls multicast{virtual_memory};

  // For the policy. After `forgive` all calls succeed and do nothing but manage contexts.
  template <class Call, class... Args>
  CUresult enter(Call call, Args... args) {
    const std::scoped_lock lock(mutex_);
    log.emplace_back(Call::name);
    if (in_host_function()) return misused(std::string(Call::name) + " called in a host function"), CUDA_ERROR_NOT_PERMITTED;
    const bool fails = calls_until_failure_ != 0 && --calls_until_failure_ == 0;
    if (fails) failed_call = Call::name;
    if (fails && !gives_back<Call>) return failure_code_;
    if (needs_context<Call> && contexts().empty()) return misused(std::string(Call::name) + " without a context"), CUDA_ERROR_INVALID_CONTEXT;
    if (reports_faults<Call> && !contexts().empty())
      if (const CUresult dead = device_of(contexts().back())->dead.load(); dead != CUDA_SUCCESS) return dead;
    if (forgiven_ && reports_faults<Call>) return CUDA_SUCCESS;
    if (may_be_unsafe<Call>)
      if (const CUresult refused = captures_.permit(); refused != CUDA_SUCCESS) return refused;
    const CUresult code = run(call, args...);
    misuse += std::exchange(multicast.misuse, {});
    return fails ? failure_code_ : code;
  }

 private:
  using SimStream = RaceCheckedStream;
  using SimEvent = RaceCheckedEvent;
  struct Device {
    int index = 0;
    RaceCheckedDevice sim;
    int retained = 0;
    std::atomic<CUresult> dead{CUDA_SUCCESS};
    std::vector<int> peers;
    std::vector<RaceCheckedStream> orphans;  // destroyed, perhaps with work to do
  };
  struct Stream {
    SimStream sim;
    Device* device = nullptr;
    unsigned long long id = 0;
    SimEvent asked{};  // the end as of the last cuStreamQuery
    std::shared_ptr<Capture> capture;
  };
  struct Event {
    SimEvent sim;
    Device* device = nullptr;
    std::shared_ptr<Capture> capture;
  };
  struct Pool {
    Device* device = nullptr;
    std::size_t most = 0, used = 0, used_high = 0, reserved = 0, reserved_high = 0;
    cuuint64_t threshold = 0;
    bool destroyed = false;
    std::size_t outstanding = 0;
    std::uint64_t number = 0;  // of a pool that can be shared
    bool shared = false, imported = false;
    std::vector<int> granted;  // besides its own device
  };
  enum class Kind { device, managed, pool, pinned };
  struct Allocation {
    Kind kind;
    Block block;
    Device* device;
    Pool* pool;
    std::uint64_t exported = 0;
    std::uint64_t pool_export = 0;
    unsigned long long id = 0;
  };
  struct Opened {
    std::size_t size = 0;
    int count = 0;
  };

  // Calls whose description lists CUDA_ERROR_INVALID_CONTEXT without tying it to the null stream.
  template <class Call>
  static constexpr bool needs_context =
      std::is_same_v<Call, cuda_call::CtxSynchronize> || std::is_same_v<Call, cuda_call::CtxEnablePeerAccess> ||
      std::is_same_v<Call, cuda_call::StreamCreate> || std::is_same_v<Call, cuda_call::StreamDestroy> ||
      std::is_same_v<Call, cuda_call::StreamQuery> || std::is_same_v<Call, cuda_call::StreamSynchronize> ||
      std::is_same_v<Call, cuda_call::StreamWaitEvent> || std::is_same_v<Call, cuda_call::EventCreate> ||
      std::is_same_v<Call, cuda_call::EventDestroy> || std::is_same_v<Call, cuda_call::EventRecord> ||
      std::is_same_v<Call, cuda_call::EventSynchronize> || std::is_same_v<Call, cuda_call::LaunchHostFunc> ||
      std::is_same_v<Call, cuda_call::MemGetInfo> || std::is_same_v<Call, cuda_call::MemAlloc> ||
      std::is_same_v<Call, cuda_call::MemFree> || std::is_same_v<Call, cuda_call::MemAllocManaged> ||
      std::is_same_v<Call, cuda_call::MemHostAlloc> || std::is_same_v<Call, cuda_call::MemFreeHost> ||
      std::is_same_v<Call, cuda_call::MemHostRegister> || std::is_same_v<Call, cuda_call::MemHostUnregister> ||
      std::is_same_v<Call, cuda_call::MemcpyAsync> || std::is_same_v<Call, cuda_call::MemGetAddressRange> ||
      std::is_same_v<Call, cuda_call::IpcGetMemHandle> || std::is_same_v<Call, cuda_call::IpcOpenMemHandle> ||
      std::is_same_v<Call, cuda_call::IpcCloseMemHandle> || std::is_same_v<Call, cuda_call::PointerGetAttribute>;
  // Which calls are "potentially unsafe" while streams are captured is said of few (cudaMalloc, cuEventQuery): here of all but
  // those that only enqueue.
  template <class Call>
  static constexpr bool may_be_unsafe =
      std::is_same_v<Call, cuda_call::EventQuery> ||
      (needs_context<Call> && !std::is_same_v<Call, cuda_call::EventRecord> && !std::is_same_v<Call, cuda_call::StreamWaitEvent> &&
       !std::is_same_v<Call, cuda_call::LaunchHostFunc> && !std::is_same_v<Call, cuda_call::MemcpyAsync>);
  template <class Call>
  static constexpr bool gives_back =
      std::is_same_v<Call, cuda_call::DevicePrimaryCtxRelease> || std::is_same_v<Call, cuda_call::CtxPopCurrent> ||
      std::is_same_v<Call, cuda_call::StreamDestroy> || std::is_same_v<Call, cuda_call::EventDestroy> ||
      std::is_same_v<Call, cuda_call::MemFree> || std::is_same_v<Call, cuda_call::MemFreeHost> ||
      std::is_same_v<Call, cuda_call::MemHostUnregister> || std::is_same_v<Call, cuda_call::MemPoolDestroy> ||
      std::is_same_v<Call, cuda_call::MemFreeAsync> || std::is_same_v<Call, cuda_call::MemAddressFree> ||
      std::is_same_v<Call, cuda_call::MemRelease> || std::is_same_v<Call, cuda_call::MemUnmap> ||
      std::is_same_v<Call, cuda_call::IpcCloseMemHandle> || std::is_same_v<Call, cuda_call::MulticastUnbind>;
  // Of a context that died everything says so but what manages contexts.
  template <class Call>
  static constexpr bool reports_faults =
      !(std::is_same_v<Call, cuda_call::Init> || std::is_same_v<Call, cuda_call::DriverGetVersion> ||
        std::is_same_v<Call, cuda_call::DeviceGet> || std::is_same_v<Call, cuda_call::DeviceGetCount> || std::is_same_v<Call, cuda_call::DeviceGetUuid> ||
        std::is_same_v<Call, cuda_call::DevicePrimaryCtxRetain> || std::is_same_v<Call, cuda_call::DevicePrimaryCtxRelease> ||
        std::is_same_v<Call, cuda_call::CtxPushCurrent> || std::is_same_v<Call, cuda_call::CtxPopCurrent> ||
        std::is_same_v<Call, cuda_call::CtxGetCurrent> || std::is_same_v<Call, cuda_call::ThreadExchangeStreamCaptureMode>);

  static SimulatedOptions simulated(const CudaDoubleOptions& o) {
    SimulatedOptions s;
    s.seed = o.seed;
    return s;
  }
  static std::vector<CUcontext>& contexts() {
    static thread_local std::vector<CUcontext> stack;
    return stack;
  }
  static bool& in_host_function() {
    static thread_local bool inside = false;
    return inside;
  }
  static Error failure(CUresult code) {
    Error e = make_error(Errc::device_fault, "the kernel failed");
    e.native = code;
    return e;
  }
  static CUresult code_of(const Error& e) {
    if (e.ok()) return CUDA_SUCCESS;
    if (e.native != 0) return static_cast<CUresult>(e.native);
    if (e.code == Errc::out_of_memory) return CUDA_ERROR_OUT_OF_MEMORY;
    return e.code == Errc::invalid_argument ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_UNKNOWN;
  }
  static CUdeviceptr address(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }
  static std::byte* pointer(CUdeviceptr p) { return reinterpret_cast<std::byte*>(p); }
  static CUcontext context_of(Device* d) { return reinterpret_cast<CUcontext>(d); }
  static Device* device_of(CUcontext c) { return reinterpret_cast<Device*>(c); }
  Device* device(int i) { return i < 0 || i >= static_cast<int>(devices_.size()) ? nullptr : devices_[static_cast<std::size_t>(i)].get(); }
  Device* current() { return device_of(contexts().back()); }
  Stream* stream(CUstream s) {
    Stream* found = streams_.find(s);
    if (found == nullptr) misused("a stream that is no more");
    return found;
  }
  Event* event(CUevent e) {
    Event* found = events_.find(e);
    if (found == nullptr) misused("an event that is no more");
    return found;
  }
  static std::size_t round_up(std::size_t n) { return (n + (std::size_t{2} << 20) - 1) & ~((std::size_t{2} << 20) - 1); }
  void synchronized(Device* d) {
    pools_.visit([&](Pool& p) {
      if (p.device == d && p.number == 0) p.reserved = std::min(p.reserved, std::max<std::size_t>(p.threshold, round_up(p.used)));
    });
  }

  // --- contexts ---
  CUresult run(cuda_call::Init, unsigned flags) { return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }
  CUresult run(cuda_call::DriverGetVersion, int* v) { return *v = 13000, CUDA_SUCCESS; }
  CUresult run(cuda_call::DeviceGetCount, int* n) { return *n = options.devices, CUDA_SUCCESS; }
  CUresult run(cuda_call::DeviceGet, CUdevice* d, int i) {
    if (device(i) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    return *d = i, CUDA_SUCCESS;
  }
  CUresult run(cuda_call::DeviceGetAttribute, int* value, CUdevice_attribute which, CUdevice d) {
    if (device(d) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    *value = which == CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED && !options.multicast ? 0 : 1;
    if (which == CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED) *value = options.dma_buf;
    if (which == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) *value = options.rdma;
    return CUDA_SUCCESS;
  }
  CUresult run(cuda_call::DeviceGetUuid, CUuuid* out, CUdevice d) {
    if (device(d) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    std::memset(out->bytes, 0xD0, sizeof out->bytes);
    out->bytes[15] = static_cast<char>(options.first_device + d);
    return CUDA_SUCCESS;
  }
  CUresult run(cuda_call::DeviceCanAccessPeer, int* can, CUdevice a, CUdevice b) {
    if (device(a) == nullptr || device(b) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    return *can = options.peers && a != b ? 1 : 0, CUDA_SUCCESS;
  }
  CUresult run(cuda_call::DevicePrimaryCtxRetain, CUcontext* c, CUdevice i) {
    Device* d = device(i);
    if (d == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    ++d->retained;
    return *c = context_of(d), CUDA_SUCCESS;
  }
  CUresult run(cuda_call::DevicePrimaryCtxRelease, CUdevice i) {
    Device* d = device(i);
    if (d == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (d->retained == 0) return misused("a context released once too often"), CUDA_ERROR_INVALID_CONTEXT;
    return --d->retained, CUDA_SUCCESS;
  }
  CUresult run(cuda_call::CtxGetCurrent, CUcontext* c) { return *c = contexts().empty() ? nullptr : contexts().back(), CUDA_SUCCESS; }
  CUresult run(cuda_call::ThreadExchangeStreamCaptureMode, CUstreamCaptureMode* mode) { return captures_.exchange(mode); }
  CUresult run(cuda_call::CtxPushCurrent, CUcontext c) {
    if (c == nullptr || device_of(c)->retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
    return contexts().push_back(c), CUDA_SUCCESS;
  }
  CUresult run(cuda_call::CtxPopCurrent, CUcontext* c) {
    if (contexts().empty()) return CUDA_ERROR_INVALID_CONTEXT;
    *c = contexts().back();
    return contexts().pop_back(), CUDA_SUCCESS;
  }
  // A call that "necessarily conflicts" with a capture spoils it.
  static CUresult spoil(Capture& c, CUresult code) { return c.valid = false, code; }
  CUresult run(cuda_call::CtxSynchronize) {
    CUresult captured = CUDA_SUCCESS;
    streams_.visit([&](Stream& s) {
      if (s.device == current() && s.capture != nullptr) captured = spoil(*s.capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    });
    if (captured != CUDA_SUCCESS) return captured;
    Error first;
    const auto finish = [&](const SimStream& s) {
      if (Error e = s.synchronize(); !e.ok() && first.ok()) first = e;
    };
    streams_.visit([&](Stream& s) {
      if (s.device == current()) finish(s.sim);
    });
    for (const SimStream& s : current()->orphans) finish(s);
    synchronized(current());
    return code_of(first);
  }
  CUresult run(cuda_call::CtxEnablePeerAccess, CUcontext peer, unsigned flags) {
    Device* d = current();
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (peer == nullptr || peer == context_of(d)) return CUDA_ERROR_INVALID_CONTEXT;
    if (!options.peers) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    const int other = device_of(peer)->index;
    if (std::count(d->peers.begin(), d->peers.end(), other) != 0) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    return d->peers.push_back(other), CUDA_SUCCESS;
  }

  // --- streams and events ---
  CUresult run(cuda_call::StreamCreate, CUstream* out, unsigned) {
    *out = streams_.take(Stream{current()->sim.make_stream(), current(), ++last_stream_id_, {}, nullptr});
    return CUDA_SUCCESS;
  }
  CUresult run(cuda_call::StreamDestroy, CUstream s) {  // what it has to do still is done, by the machine
    Stream* found = stream(s);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    found->device->orphans.push_back(found->sim);
    return streams_.give(s), CUDA_SUCCESS;
  }
  CUresult run(cuda_call::StreamGetId, CUstream s, unsigned long long* id) {
    Stream* found = stream(s);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return *id = found->id, CUDA_SUCCESS;
  }
  CUresult run(cuda_call::StreamIsCapturing, CUstream s, CUstreamCaptureStatus* status) {
    Stream* found = stream(s);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *status = found->capture == nullptr ? CU_STREAM_CAPTURE_STATUS_NONE
              : found->capture->valid   ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                        : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return CUDA_SUCCESS;
  }
  CUresult run(cuda_call::StreamQuery, CUstream s) {
    Stream* found = stream(s);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (found->capture != nullptr) return spoil(*found->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (!found->asked.ready()) return CUDA_ERROR_NOT_READY;  // so that who asks in a loop does not add to what it asks about
    const bool idle = found->sim.queue().first == nullptr;
    if (const Error e = found->asked.record(found->sim); !e.ok()) return code_of(e);
    return idle || found->asked.ready() ? code_of(found->asked.wait()) : CUDA_ERROR_NOT_READY;
  }
  CUresult run(cuda_call::StreamSynchronize, CUstream s) {
    Stream* found = stream(s);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (found->capture != nullptr) return spoil(*found->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    const Error e = found->sim.synchronize();
    synchronized(found->device);
    return code_of(e);
  }
  CUresult run(cuda_call::StreamWaitEvent, CUstream s, CUevent e, unsigned flags) {
    Stream* waiter = stream(s);
    Event* awaited = event(e);
    if (waiter == nullptr || awaited == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (awaited->capture != nullptr) {  // the waiter joins the capture
      if (waiter->capture == nullptr) waiter->capture = awaited->capture;
      return waiter->capture == awaited->capture ? CUDA_SUCCESS : spoil(*waiter->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    if (waiter->capture != nullptr) return spoil(*waiter->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    return code_of(awaited->sim.wait_on(waiter->sim));
  }
  CUresult run(cuda_call::EventCreate, CUevent* out, unsigned flags) {
    if ((flags & CU_EVENT_INTERPROCESS) != 0 && (flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_INVALID_VALUE;
    return *out = events_.take(Event{{}, current(), nullptr}), CUDA_SUCCESS;
  }
  CUresult run(cuda_call::EventDestroy, CUevent e) {
    return event(e) != nullptr && events_.give(e) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  }
  CUresult run(cuda_call::EventRecord, CUevent e, CUstream s) {
    Event* mark = event(e);
    Stream* where = stream(s);
    if (mark == nullptr || where == nullptr || mark->device != where->device) return CUDA_ERROR_INVALID_HANDLE;
    mark->capture = where->capture;
    if (where->capture != nullptr) return CUDA_SUCCESS;
    return code_of(mark->sim.record(where->sim));
  }
  CUresult run(cuda_call::EventQuery, CUevent e) {
    Event* mark = event(e);
    if (mark == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (mark->capture != nullptr) return spoil(*mark->capture, CUDA_ERROR_CAPTURED_EVENT);
    if (!mark->sim.ready()) return CUDA_ERROR_NOT_READY;
    const CUresult dead = mark->device->dead.load();
    return dead != CUDA_SUCCESS ? dead : code_of(mark->sim.wait());
  }
  CUresult run(cuda_call::EventSynchronize, CUevent e) {
    Event* mark = event(e);
    if (mark == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (mark->capture != nullptr) return spoil(*mark->capture, CUDA_ERROR_CAPTURED_EVENT);
    const Error error = mark->sim.wait();
    synchronized(mark->device);
    return code_of(error);
  }
  CUresult run(cuda_call::LaunchHostFunc, CUstream s, CUhostFn f, void* data) {
    Stream* where = stream(s);
    if (where == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (where->capture != nullptr) return CUDA_SUCCESS;  // a node of the graph
    const auto call = [f, data]() noexcept {
      in_host_function() = true;
      f(data);
      in_host_function() = false;
    };
    return code_of(where->sim.launch("a host function", {}, call).error());
  }
  CUresult run(cuda_call::MemcpyAsync, CUdeviceptr to, CUdeviceptr from, std::size_t n, CUstream s) {
    Stream* where = stream(s);
    if (where == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (where->capture != nullptr) return CUDA_SUCCESS;  // a node of the graph
    const auto size = static_cast<Bytes>(n);
    const MemoryTouch touches[] = {reads({pointer(from), size}), writes({pointer(to), size})};
    if (!check_access(where->device, touches)) return CUDA_ERROR_INVALID_VALUE;
    const auto copy = [to, from, n]() noexcept { std::memmove(pointer(to), pointer(from), n); };
    return code_of(where->sim.launch("cuMemcpyAsync", touches, copy).error());
  }

  // --- memory ---
  bool has_room(Device* d, std::size_t n) {
    return static_cast<Bytes>(n) >= 0 && d->sim.available() - static_cast<Bytes>(virtual_memory.physical(d->index)) >= static_cast<Bytes>(n);
  }
  CUresult keep(CUdeviceptr* out, const Result<Block>& block, Kind kind, Device* d, Pool* pool) {
    if (!block.ok()) return code_of(block.error());
    *out = address(block->data);
    allocations_[*out] = {kind, *block, d, pool, 0, 0, ++last_buffer_};
    return CUDA_SUCCESS;
  }
  CUresult take(CUdeviceptr* out, std::size_t n, Kind kind) {
    if (n == 0) return CUDA_ERROR_INVALID_VALUE;
    if (!has_room(current(), n)) return CUDA_ERROR_OUT_OF_MEMORY;
    return keep(out, current()->sim.allocate(static_cast<Bytes>(n), Alignment(256)), kind, current(), nullptr);
  }
  CUresult run(cuda_call::MemGetInfo, std::size_t* free, std::size_t* total) {
    *total = static_cast<std::size_t>(current()->sim.capacity());
    *free = static_cast<std::size_t>(current()->sim.available()) - virtual_memory.physical(current()->index);
    return CUDA_SUCCESS;
  }
  CUresult run(cuda_call::MemAlloc, CUdeviceptr* out, std::size_t n) { return take(out, n, Kind::device); }
  CUresult run(cuda_call::MemAllocManaged, CUdeviceptr* out, std::size_t n, unsigned flags) {
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) return CUDA_ERROR_INVALID_VALUE;
    return take(out, n, Kind::managed);
  }
  // "May" synchronise, says cuda.h, so it does not: who relies on it is found.
  CUresult run(cuda_call::MemFree, CUdeviceptr p) {
    if (is_imported(p)) return close_imported(p, nullptr), CUDA_SUCCESS;
    const auto a = allocations_.find(p);
    if (a == allocations_.end() || a->second.kind == Kind::pinned) return misused("a wrong address freed"), CUDA_ERROR_INVALID_VALUE;
    a->second.device->sim.deallocate(a->second.block);
    forget(a);
    return CUDA_SUCCESS;
  }
  CUresult run(cuda_call::MemHostAlloc, void** out, std::size_t n, unsigned) {
    if (pinned_.size() == 0) pinned_.push_back(*machine.add_host_memory(options.capacity));
    if (n == 0) return *out = nullptr, CUDA_SUCCESS;
    CUdeviceptr p = 0;
    const CUresult code = keep(&p, pinned_[0].allocate(static_cast<Bytes>(n), Alignment(4096)), Kind::pinned, nullptr, nullptr);
    if (code == CUDA_SUCCESS) *out = pointer(p);
    return code;
  }
  CUresult run(cuda_call::MemFreeHost, void* p) {
    const auto a = allocations_.find(address(p));
    if (a == allocations_.end() || a->second.kind != Kind::pinned) return misused("a wrong host address freed"), CUDA_ERROR_INVALID_VALUE;
    pinned_[0].deallocate(a->second.block);
    forget(a);
    return CUDA_SUCCESS;
  }
  CUresult run(cuda_call::MemHostRegister, void* p, std::size_t n, unsigned) {
    if (p == nullptr || n == 0) return CUDA_ERROR_INVALID_VALUE;
    const CUdeviceptr at = address(p);
    for (auto& [start, size] : registered_)
      if (at < start + size && start < at + n) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    return registered_[at] = n, CUDA_SUCCESS;
  }
  CUresult run(cuda_call::MemHostUnregister, void* p) {
    const auto r = registered_.find(address(p));
    if (r == registered_.end()) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    machine.host_writes("cuMemHostUnregister", {pointer(r->first), r->second});
    return registered_.erase(r), CUDA_SUCCESS;
  }

  // --- pools ---
  CUresult run(cuda_call::MemPoolCreate, CUmemoryPool* out, const CUmemPoolProps* props) {
    Device* d = device(props->location.id);
    if (props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED || props->location.type != CU_MEM_LOCATION_TYPE_DEVICE || d == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    for (const unsigned char c : props->reserved)
      if (c != 0) return CUDA_ERROR_INVALID_VALUE;
    if (props->handleTypes != CU_MEM_HANDLE_TYPE_NONE && props->handleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
      return CUDA_ERROR_NOT_SUPPORTED;
    Pool p;
    p.device = d;
    p.most = props->maxSize;
    if (props->handleTypes != CU_MEM_HANDLE_TYPE_NONE) p.number = shared_pools.name_pool();
    return *out = pools_.take(p), CUDA_SUCCESS;
  }
  CUresult run(cuda_call::MemPoolDestroy, CUmemoryPool p) {
    Pool* pool = pools_.find(p);
    if (pool == nullptr || pool->destroyed) return CUDA_ERROR_INVALID_VALUE;
    pool->destroyed = true;
    if (pool->outstanding == 0) pools_.give(p);
    return CUDA_SUCCESS;
  }
  CUresult run(cuda_call::MemPoolTrimTo, CUmemoryPool p, std::size_t keep_bytes) {
    Pool* pool = pools_.find(p);
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (pool->number != 0) return CUDA_SUCCESS;  // pools for sharing give nothing back
    pool->reserved = std::min(pool->reserved, std::max(round_up(pool->used), keep_bytes));
    return CUDA_SUCCESS;
  }
  CUresult run(cuda_call::MemPoolSetAttribute, CUmemoryPool p, CUmemPool_attribute which, void* value) {
    Pool* pool = pools_.find(p);
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (which == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) return pool->threshold = *static_cast<cuuint64_t*>(value), CUDA_SUCCESS;
    if (which != CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && which != CU_MEMPOOL_ATTR_USED_MEM_HIGH) return CUDA_SUCCESS;  // how it reuses
    if (*static_cast<cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
    (which == CU_MEMPOOL_ATTR_USED_MEM_HIGH ? pool->used_high : pool->reserved_high) = 0;
    return CUDA_SUCCESS;
  }
  CUresult run(cuda_call::MemPoolGetAttribute, CUmemoryPool p, CUmemPool_attribute which, void* value) {
    Pool* pool = pools_.find(p);
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto* out = static_cast<cuuint64_t*>(value);
    switch (which) {
      case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: *out = pool->threshold; break;
      case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: *out = pool->reserved; break;
      case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: *out = pool->reserved_high; break;
      case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: *out = pool->used; break;
      case CU_MEMPOOL_ATTR_USED_MEM_HIGH: *out = pool->used_high; break;
      default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  }
  CUresult run(cuda_call::MemPoolSetAccess, CUmemoryPool p, const CUmemAccessDesc* map, std::size_t n) {
    Pool* pool = pools_.find(p);
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t i = 0; i < n; ++i)
      if (device(map[i].location.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    for (std::size_t i = 0; i < n; ++i) pool->granted.push_back(map[i].location.id);
    return CUDA_SUCCESS;
  }
  CUresult run(cuda_call::MemAllocFromPoolAsync, CUdeviceptr* out, std::size_t n, CUmemoryPool p, CUstream s) {
    Pool* pool = pools_.find(p);
    Stream* where = stream(s);
    if (pool == nullptr || pool->destroyed || pool->imported || where == nullptr || n == 0) return CUDA_ERROR_INVALID_VALUE;
    if (!has_room(pool->device, n) || (pool->most != 0 && n > pool->most - std::min(pool->most, pool->used))) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult code = keep(out, pool->device->sim.allocate(where->sim, static_cast<Bytes>(n), Alignment(256)), Kind::pool, pool->device, pool);
    if (code != CUDA_SUCCESS) return code;
    ++pool->outstanding;
    pool->used += n;
    pool->used_high = std::max(pool->used_high, pool->used);
    pool->reserved = std::max(pool->reserved, round_up(pool->used));
    pool->reserved_high = std::max(pool->reserved_high, pool->reserved);
    return CUDA_SUCCESS;
  }
  CUresult run(cuda_call::MemFreeAsync, CUdeviceptr p, CUstream s) {
    const auto a = allocations_.find(p);
    Stream* where = stream(s);
    if (where != nullptr && is_imported(p)) return close_imported(p, where), CUDA_SUCCESS;
    if (where == nullptr || a == allocations_.end() || a->second.kind != Kind::pool)
      return misused("a wrong address freed in a stream"), CUDA_ERROR_INVALID_VALUE;
    a->second.device->sim.deallocate(where->sim, a->second.block);
    forget(a);
    return CUDA_SUCCESS;
  }
  void forget(std::map<CUdeviceptr, Allocation>::iterator a) {
    exports().erase(a->second.exported);
    if (!SharedPools::forget_block(a->second.pool_export)) misused("a block freed that other processes have imported");
    if (Pool* pool = a->second.pool; pool != nullptr) {
      pool->used -= static_cast<std::size_t>(a->second.block.size);
      if (--pool->outstanding == 0 && pool->destroyed) pools_.give(reinterpret_cast<CUmemoryPool>(pool));
    }
    allocations_.erase(a);
  }

  // --- other processes, which other doubles are ---
  struct Export {
    CudaDouble* from;
    Allocation allocation;
  };
  static std::map<std::uint64_t, Export>& exports() {
    static std::map<std::uint64_t, Export> all;
    return all;
  }
  CUresult run(cuda_call::MemGetAddressRange, CUdeviceptr* base, std::size_t* size, CUdeviceptr p) {
    const auto find = [&](const auto& ranges, auto size_of) {
      auto r = ranges.upper_bound(p);
      if (r == ranges.begin() || (--r, p - r->first >= size_of(r->second))) return false;
      if (base != nullptr) *base = r->first;
      if (size != nullptr) *size = size_of(r->second);
      return true;
    };
    const bool found = find(allocations_, [](const Allocation& a) { return static_cast<std::size_t>(a.block.size); }) ||
                       find(opened_, [](const Opened& o) { return o.size; });
    if (found) return CUDA_SUCCESS;
    VirtualMemory::Found mapping{};
    CUdeviceptr imported = 0;
    if (const SharedPools::Imported* i = shared_pools.find(p, &imported); i != nullptr) mapping = {imported, i->size, 0, 0, false, 0};
    else if (!virtual_memory.find(p, mapping)) return CUDA_ERROR_NOT_FOUND;
    if (base != nullptr) *base = mapping.base;
    if (size != nullptr) *size = mapping.size;
    return CUDA_SUCCESS;
  }
  CUresult run(cuda_call::IpcGetMemHandle, CUipcMemHandle* out, CUdeviceptr p) {
    const auto a = allocations_.find(p);
    if (a == allocations_.end() || a->second.kind != Kind::device) return CUDA_ERROR_INVALID_VALUE;
    if (a->second.exported == 0) {
      static std::uint64_t last = 0;
      a->second.exported = ++last;
      exports()[last] = {this, a->second};
    }
    *out = {};
    std::memcpy(out->reserved, &a->second.exported, sizeof a->second.exported);
    return CUDA_SUCCESS;
  }
  CUresult run(cuda_call::IpcOpenMemHandle, CUdeviceptr* out, CUipcMemHandle handle, unsigned flags) {
    std::uint64_t number = 0;
    std::memcpy(&number, handle.reserved, sizeof number);
    const auto e = exports().find(number);
    if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || e == exports().end()) return CUDA_ERROR_INVALID_VALUE;
    if (e->second.from == this) return CUDA_ERROR_INVALID_CONTEXT;
    *out = address(e->second.allocation.block.data);
    Opened& o = opened_[*out];
    o.size = static_cast<std::size_t>(e->second.allocation.block.size);
    ++o.count;
    return CUDA_SUCCESS;
  }
  CUresult run(cuda_call::IpcCloseMemHandle, CUdeviceptr p) {
    const auto o = opened_.find(p);
    if (o == opened_.end()) return misused("memory closed that was not open"), CUDA_ERROR_INVALID_VALUE;
    if (--o->second.count == 0) opened_.erase(o);
    return CUDA_SUCCESS;
  }

  // --- pools of other processes ---
  bool is_imported(CUdeviceptr p) const {
    CUdeviceptr base = 0;
    return shared_pools.find(p, &base) != nullptr && base == p;
  }
  void close_imported(CUdeviceptr p, Stream* where) {
    const SharedPools::Imported i = *shared_pools.find(p);
    const Block block{pointer(p), static_cast<Bytes>(i.size)};
    const std::uint64_t number = shared_pools.close_block(p);
    const MemoryTouch ends[] = {writes(block)};
    if (where != nullptr) static_cast<void>(where->sim.launch("cuMemFreeAsync", ends, [number]() noexcept { SharedPools::done(number); }));
    else machine.host_writes("cuMemFree", {block.data, i.size}), SharedPools::done(number);
    if (Pool* pool = pools_.find(i.pool); pool != nullptr) {
      pool->used -= i.size;
      if (--pool->outstanding == 0 && pool->destroyed) pools_.give(i.pool);
    }
  }
  // False: pages that nothing but multimem instructions may touch.
  bool check_access(const Device* d, std::span<const MemoryTouch> touches) {
    for (const MemoryTouch& t : touches) {
      CUdeviceptr start = 0;
      if (const VirtualMemory::Mapping* m = virtual_memory.mapping_at(address(t.block.data), &start); m != nullptr) {
        if (virtual_memory.object(m->handle) != nullptr) return misused("a plain access at a multicast address"), false;
        if (std::count(m->devices.begin(), m->devices.end(), d->index) == 0) misused("a device touches a mapping without access");
        continue;
      }
      const SharedPools::Imported* i = shared_pools.find(address(t.block.data));
      const Pool* pool = i == nullptr ? nullptr : pools_.find(i->pool);
      if (pool != nullptr && std::count(pool->granted.begin(), pool->granted.end(), d->index) == 0)
        misused("a device touches an imported block without access");
    }
    return true;
  }
  CUresult run(cuda_call::MemPoolExportToShareableHandle, void* out, CUmemoryPool p, CUmemAllocationHandleType type, unsigned long long flags) {
    Pool* pool = pools_.find(p);
    if (pool == nullptr || pool->number == 0 || pool->imported || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0)
      return CUDA_ERROR_INVALID_VALUE;
    pool->shared = true;
    return SharedPools::export_file(static_cast<int*>(out), pool->number);
  }
  // Of no device of its own: whoever touches it needs access.
  CUresult run(cuda_call::MemPoolImportFromShareableHandle, CUmemoryPool* out, void* file, CUmemAllocationHandleType type, unsigned long long flags) {
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    Pool p;
    p.number = shared_pools.open_file(static_cast<int>(reinterpret_cast<std::intptr_t>(file)));
    p.imported = true;
    return p.number == 0 ? CUDA_ERROR_INVALID_VALUE : (*out = pools_.take(p), CUDA_SUCCESS);
  }
  CUresult run(cuda_call::MemPoolExportPointer, CUmemPoolPtrExportData* out, CUdeviceptr p) {
    const auto a = allocations_.find(p);
    if (a == allocations_.end() || a->second.kind != Kind::pool || !a->second.pool->shared) return CUDA_ERROR_INVALID_VALUE;
    if (a->second.pool_export == 0)
      a->second.pool_export = SharedPools::name_block(a->second.pool->number, p, static_cast<std::size_t>(a->second.block.size));
    *out = {};
    std::memcpy(out->reserved, &a->second.pool_export, sizeof a->second.pool_export);
    return CUDA_SUCCESS;
  }
  CUresult run(cuda_call::MemPoolImportPointer, CUdeviceptr* out, CUmemoryPool p, CUmemPoolPtrExportData* data) {
    Pool* pool = pools_.find(p);
    if (pool == nullptr || !pool->imported) return CUDA_ERROR_INVALID_VALUE;
    std::uint64_t number = 0;
    std::memcpy(&number, data->reserved, sizeof number);
    const CUresult code = shared_pools.open_block(out, p, pool->number, number);
    if (code != CUDA_SUCCESS) return code;
    ++pool->outstanding;
    pool->used += shared_pools.find(*out)->size;
    return CUDA_SUCCESS;
  }

  // --- what memory is ---
  CUresult run(cuda_call::MemRetainAllocationHandle, CUmemGenericAllocationHandle* out, void* p) { return virtual_memory.retain(out, address(p)); }
  CUresult run(cuda_call::MemGetAllocationPropertiesFromHandle, CUmemAllocationProp* out, CUmemGenericAllocationHandle h) {
    return virtual_memory.properties(out, h);
  }
  CUresult run(cuda_call::PointerGetAttribute, void* data, CUpointer_attribute which, CUdeviceptr p) {
    auto a = allocations_.upper_bound(p);
    const bool allocated = a != allocations_.begin() && (--a, p - a->first < static_cast<std::size_t>(a->second.block.size));
    VirtualMemory::Found mapping{};
    const bool mapped = !allocated && virtual_memory.find(p, mapping);
    if (!allocated && !mapped) return CUDA_ERROR_INVALID_VALUE;
    const Pool* pool = allocated ? a->second.pool : nullptr;
    const bool by_file = allocated ? pool != nullptr && pool->number != 0 : mapping.shared;
    switch (which) {
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *static_cast<int*>(data) = !allocated ? mapping.device : a->second.device != nullptr ? a->second.device->index : 0;
        break;
      case CU_POINTER_ATTRIBUTE_BUFFER_ID: *static_cast<unsigned long long*>(data) = allocated ? a->second.id : mapping.id; break;
      case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: *static_cast<bool*>(data) = allocated && a->second.kind == Kind::device; break;
      case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *static_cast<unsigned long long*>(data) = by_file ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
        break;
      case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *static_cast<CUmemoryPool*>(data) = reinterpret_cast<CUmemoryPool>(const_cast<Pool*>(pool));
        break;
      default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  }
  CUresult run(cuda_call::MemGetHandleForAddressRange, void* out, CUdeviceptr p, std::size_t n, CUmemRangeHandleType type, unsigned long long flags) {
    if (type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags != 0 || n == 0 || (p | n) % VirtualMemory::page != 0) return CUDA_ERROR_INVALID_VALUE;
    if (!options.dma_buf) return CUDA_ERROR_NOT_SUPPORTED;
    auto a = allocations_.upper_bound(p);
    const bool plain = a != allocations_.begin() && (--a, a->second.kind == Kind::device) &&
                       p - a->first + n <= static_cast<std::size_t>(a->second.block.size);
    if (!plain && !virtual_memory.backed(p, n)) return CUDA_ERROR_INVALID_VALUE;
    const int file = ::memfd_create("dma-buf", MFD_CLOEXEC);
    return file < 0 ? CUDA_ERROR_OUT_OF_MEMORY : (*static_cast<int*>(out) = file, CUDA_SUCCESS);
  }

  // --- virtual memory ---
  CUresult run(cuda_call::MemGetAllocationGranularity, std::size_t* out, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
    return *out = options.granularity, CUDA_SUCCESS;
  }
  CUresult run(cuda_call::MemAddressReserve, CUdeviceptr* out, std::size_t n, std::size_t alignment, CUdeviceptr, unsigned long long flags) {
    return flags != 0 ? CUDA_ERROR_INVALID_VALUE : virtual_memory.reserve(out, n, alignment);
  }
  CUresult run(cuda_call::MemAddressFree, CUdeviceptr p, std::size_t n) { return virtual_memory.free(p, n); }
  CUresult run(cuda_call::MemCreate, CUmemGenericAllocationHandle* out, std::size_t n, const CUmemAllocationProp* props, unsigned long long flags) {
    Device* d = device(props->location.id);
    if (d == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (flags != 0 || props->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
    if (props->allocFlags.gpuDirectRDMACapable != 0 && !options.rdma) return CUDA_ERROR_INVALID_VALUE;
    for_network_cards += props->allocFlags.gpuDirectRDMACapable;
    if ((props->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) != 0 && options.fabric != CUDA_SUCCESS) return options.fabric;
    if (!has_room(d, n)) return CUDA_ERROR_OUT_OF_MEMORY;
    const auto may = [&](CUmemAllocationHandleType type) { return (props->requestedHandleTypes & type) != 0; };
    return virtual_memory.create(out, n, d->index, may(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), may(CU_MEM_HANDLE_TYPE_FABRIC));
  }
  CUresult run(cuda_call::MemExportToShareableHandle, void* out, CUmemGenericAllocationHandle h, CUmemAllocationHandleType type,
               unsigned long long flags) {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (type == CU_MEM_HANDLE_TYPE_FABRIC) return virtual_memory.export_fabric(static_cast<CUmemFabricHandle*>(out), h);
    return type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? virtual_memory.export_file(static_cast<int*>(out), h) : CUDA_ERROR_INVALID_VALUE;
  }
  CUresult run(cuda_call::MemImportFromShareableHandle, CUmemGenericAllocationHandle* out, void* native, CUmemAllocationHandleType type) {
    if (type == CU_MEM_HANDLE_TYPE_FABRIC)
      return options.fabric != CUDA_SUCCESS ? options.fabric : virtual_memory.import_fabric(out, *static_cast<CUmemFabricHandle*>(native));
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
    return virtual_memory.import_file(out, static_cast<int>(reinterpret_cast<std::intptr_t>(native)));
  }
  CUresult run(cuda_call::MemRelease, CUmemGenericAllocationHandle h) { return multicast.released(h), virtual_memory.release(h); }
  CUresult run(cuda_call::MemMap, CUdeviceptr p, std::size_t n, std::size_t offset, CUmemGenericAllocationHandle h, unsigned long long flags) {
    if (!multicast.may_map(h)) return CUDA_ERROR_TIMEOUT;
    return flags != 0 ? CUDA_ERROR_INVALID_VALUE : virtual_memory.map(p, n, offset, h);
  }
  // Waits for nothing: pending work on the range is a race with the host.
  CUresult run(cuda_call::MemUnmap, CUdeviceptr p, std::size_t n) {
    const CUresult code = virtual_memory.unmap(p, n);
    if (code == CUDA_SUCCESS) machine.host_writes("cuMemUnmap", {pointer(p), n});
    else misused("a wrong range unmapped");
    return code;
  }
  CUresult run(cuda_call::MemSetAccess, CUdeviceptr p, std::size_t n, const CUmemAccessDesc* map, std::size_t count) {
    if (count == 0 || device(map[0].location.id) == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t i = 0; i < count; ++i) {
      const auto flags = map[i].flags;
      if (device(map[i].location.id) == nullptr) return CUDA_ERROR_INVALID_VALUE;
      if (const CUresult code = virtual_memory.set_access(p, n, map[i].location.id, (flags & CU_MEM_ACCESS_FLAGS_PROT_READ) != 0,
                                                          flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
          code != CUDA_SUCCESS)
        return code;
    }
    return CUDA_SUCCESS;
  }

  // --- multicast ---
  CUresult run(cuda_call::MulticastGetGranularity, std::size_t* out, const CUmulticastObjectProp*, CUmulticastGranularity_flags which) {
    if (!options.multicast) return CUDA_ERROR_NOT_SUPPORTED;
    return *out = multicast.granularity(which), CUDA_SUCCESS;
  }
  CUresult run(cuda_call::MulticastCreate, CUmemGenericAllocationHandle* out, const CUmulticastObjectProp* props) {
    if (!options.multicast) return CUDA_ERROR_NOT_SUPPORTED;
    if ((props->handleTypes & CU_MEM_HANDLE_TYPE_FABRIC) != 0 && options.fabric != CUDA_SUCCESS) return options.fabric;
    return multicast.create(out, *props, options.devices);
  }
  CUresult run(cuda_call::MulticastAddDevice, CUmemGenericAllocationHandle h, CUdevice d) {
    return device(d) != nullptr ? multicast.add_device(h, d) : CUDA_ERROR_INVALID_DEVICE;
  }
  CUresult run(cuda_call::MulticastBindMem, CUmemGenericAllocationHandle h, std::size_t at, CUmemGenericAllocationHandle memory,
               std::size_t offset, std::size_t n, unsigned long long flags) {
    return flags != 0 ? CUDA_ERROR_INVALID_VALUE : multicast.bind(h, at, memory, offset, n);
  }
  CUresult run(cuda_call::MulticastBindAddr, CUmemGenericAllocationHandle h, std::size_t at, CUdeviceptr p, std::size_t n,
               unsigned long long flags) {
    return flags != 0 ? CUDA_ERROR_INVALID_VALUE : multicast.bind_address(h, at, p, n);
  }
  // Waits for nothing, as cuMemUnmap.
  CUresult run(cuda_call::MulticastUnbind, CUmemGenericAllocationHandle h, CUdevice d, std::size_t at, std::size_t n) {
    const auto written = [&](Block lost) { machine.host_writes("cuMulticastUnbind", {lost.data, static_cast<std::size_t>(lost.size)}); };
    return device(d) != nullptr ? multicast.unbind(h, d, at, n, written) : CUDA_ERROR_INVALID_DEVICE;
  }
  template <class F>
  void multimem(CUstream stream, std::string_view name, Block at, Touch touch, F f) {
    Stream* s = streams_.find(stream);
    if (s == nullptr) return misused("launch on a stream that is no more");
    // The kernel owns nothing: where it does, the host is taken to have seen its end.
    const auto& reached = reached_.emplace_back(std::make_unique<MulticastCalls::Reached>(multicast.reach(s->device->index, at, touch)));
    misuse += std::exchange(multicast.misuse, {});
    static_cast<void>(s->sim.launch(name, std::span<const MemoryTouch>(reached->touches), [r = reached.get(), f] { f(*r); }));
  }

  std::recursive_mutex mutex_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<RaceCheckedMachine::host_memory_type> pinned_;
  Captures captures_;
  Slots<CUstream, Stream> streams_;
  Slots<CUevent, Event> events_;
  Slots<CUmemoryPool, Pool> pools_;
  std::map<CUdeviceptr, Allocation> allocations_;
  std::map<CUdeviceptr, std::size_t> registered_;
  std::map<CUdeviceptr, Opened> opened_;
  std::vector<std::unique_ptr<MulticastCalls::Reached>> reached_;
  bool forgiven_ = false;
  unsigned long long last_stream_id_ = 0;
  unsigned long long last_buffer_ = 0x100000000;  // apart from those of mappings
  std::uint64_t calls_until_failure_ = 0;
  CUresult failure_code_ = CUDA_SUCCESS;
};

template <class Call, class... Args>
CUresult DoubleDriver::operator()(Call call, Args... args) const noexcept {
  return world->enter(call, args...);
}
inline holdfast::detail::CudaContexts& DoubleDriver::contexts() const noexcept { return world->contexts_of_library; }
// The machine runs when somebody waits: this is waiting.
inline void DoubleDriver::pause(const std::atomic<std::uint32_t>& word, std::uint32_t old, Deadline deadline) const noexcept {
  if (!world->machine.pump()) StdSync::wait_until(word, old, deadline);
}

}  // namespace holdfast::testing
