// SPDX-License-Identifier: Apache-2.0
// The double held to the documentation: a line a rule, with the name of the API. `documented`: the comment of that function,
// type or code in cuda.h of CUDA 13.0 says so, or the page that the line names. `reported`: it is silent, but a report that the
// line names shows it on a device. `assumed`: it is silent, or says "may" or "undefined"; not verified on a
// device. The double then does what finds more mistakes of its callers.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "double/cuda_double.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {

enum class Source { documented, reported, assumed };

// A double with a context current, a stream and an event.
struct Driver {
  explicit Driver(const CudaDoubleOptions& o = {}) : cuda(o) {
    (*this)(cuda_call::DevicePrimaryCtxRetain{}, &context, CUdevice{0});
    (*this)(cuda_call::CtxPushCurrent{}, context);
    (*this)(cuda_call::StreamCreate{}, &a, 1u);
    (*this)(cuda_call::StreamCreate{}, &b, 1u);
    (*this)(cuda_call::EventCreate{}, &event, static_cast<unsigned>(CU_EVENT_DISABLE_TIMING));
    props.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    pool_props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    pool_props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location = props.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  template <class Call, class... Args>
  CUresult operator()(Call c, Args... args) {
    return cuda.driver()(c, args...);
  }
  void work(CUstream s) {
    cuda.launch(s, "work", {}, [this] { ++ran; });
  }
  CUdeviceptr alloc(std::size_t n) {
    CUdeviceptr p = 0;
    (*this)(cuda_call::MemAlloc{}, &p, n);
    return p;
  }
  CUmemoryPool pool(std::size_t most = 0) {
    CUmemoryPool p = nullptr;
    pool_props.maxSize = most;
    (*this)(cuda_call::MemPoolCreate{}, &p, &pool_props);
    return p;
  }
  CUdeviceptr from_pool(CUmemoryPool p, CUstream s, std::size_t n) {
    CUdeviceptr out = 0;
    (*this)(cuda_call::MemAllocFromPoolAsync{}, &out, n, p, s);
    return out;
  }
  // A pool that others may open, and a file for it.
  CUmemoryPool shared_pool(int* file = nullptr) {
    pool_props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    const CUmemoryPool p = pool();
    int unused = -1;
    (*this)(cuda_call::MemPoolExportToShareableHandle{}, static_cast<void*>(file != nullptr ? file : &unused), p,
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ull);
    ::close(unused);
    return p;
  }
  CUresult import_pool(CUmemoryPool* out, int file, unsigned long long flags = 0) {
    return (*this)(cuda_call::MemPoolImportFromShareableHandle{}, out, reinterpret_cast<void*>(static_cast<std::intptr_t>(file)),
                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, flags);
  }
  cuuint64_t attribute(CUmemoryPool p, CUmemPool_attribute which) {
    cuuint64_t value = 0;
    (*this)(cuda_call::MemPoolGetAttribute{}, p, which, static_cast<void*>(&value));
    return value;
  }
  CUdeviceptr reserve(std::size_t n) {
    CUdeviceptr p = 0;
    (*this)(cuda_call::MemAddressReserve{}, &p, n, std::size_t{0}, CUdeviceptr{0}, 0ull);
    return p;
  }
  CUmemGenericAllocationHandle create(std::size_t n) {
    CUmemGenericAllocationHandle h = 0;
    (*this)(cuda_call::MemCreate{}, &h, n, &props, 0ull);
    return h;
  }
  CUresult map(CUdeviceptr p, std::size_t n, CUmemGenericAllocationHandle h) { return (*this)(cuda_call::MemMap{}, p, n, std::size_t{0}, h, 0ull); }
  CUmemGenericAllocationHandle multicast(unsigned team, std::size_t n, unsigned long long types = 0) {
    const CUmulticastObjectProp p{team, n, types, 0};
    CUmemGenericAllocationHandle h = 0;
    (*this)(cuda_call::MulticastCreate{}, &h, &p);
    return h;
  }
  // With both devices in its team.
  CUmemGenericAllocationHandle team_of_two(std::size_t n, unsigned long long types = 0) {
    const auto h = multicast(2, n, types);
    add(h, 0);
    add(h, 1);
    return h;
  }
  CUresult add(CUmemGenericAllocationHandle h, CUdevice device) { return (*this)(cuda_call::MulticastAddDevice{}, h, device); }
  CUmemGenericAllocationHandle create_on(CUdevice device, std::size_t n) {
    props.location.id = device;
    const auto h = create(n);
    props.location.id = 0;
    return h;
  }
  CUresult bind(CUmemGenericAllocationHandle h, std::size_t at, CUmemGenericAllocationHandle memory, std::size_t offset, std::size_t n) {
    return (*this)(cuda_call::MulticastBindMem{}, h, at, memory, offset, n, 0ull);
  }
  CUresult unbind(CUmemGenericAllocationHandle h, CUdevice device, std::size_t at, std::size_t n) {
    return (*this)(cuda_call::MulticastUnbind{}, h, device, at, n);
  }
  // What was misused since it was asked last.
  std::string misuse() { return std::exchange(cuda.misuse, {}); }
  CUresult set_access(CUdeviceptr p, std::size_t n) { return (*this)(cuda_call::MemSetAccess{}, p, n, &access, std::size_t{1}); }

  CudaDouble cuda;
  CUcontext context = nullptr;
  CUstream a = nullptr, b = nullptr;
  CUevent event = nullptr;
  CUmemAllocationProp props{};
  CUmemPoolProps pool_props{};
  CUmemAccessDesc access{};
  int ran = 0;
};
// Two processes: a pool of one, a block in it, opened in the other.
struct SharedPool {
  explicit SharedPool(Driver& opener) : d(opener) {
    pool = there.shared_pool(&file);
    block = there.from_pool(pool, there.a, 1000);
    there(cuda_call::MemPoolExportPointer{}, &data, block);
    there(cuda_call::StreamSynchronize{}, there.a);
    d(cuda_call::CtxPushCurrent{}, d.context);  // the last double made has cleared the thread's contexts
    d.import_pool(&opened, file);
  }
  ~SharedPool() { ::close(file); }
  CUresult open(CUdeviceptr* p) { return d(cuda_call::MemPoolImportPointer{}, p, opened, &data); }
  void grant() { d(cuda_call::MemPoolSetAccess{}, opened, static_cast<const CUmemAccessDesc*>(&d.access), std::size_t{1}); }
  Driver& d;
  Driver there;
  int file = -1;
  CUmemoryPool pool = nullptr, opened = nullptr;
  CUdeviceptr block = 0;
  CUmemPoolPtrExportData data{};
};
using namespace cuda_call;
constexpr std::size_t granule = std::size_t{2} << 20;

struct Rule {
  const char* api;
  const char* rule;
  Source source;
  bool (*holds)(Driver& d);
};

const Rule rules[] = {
    // contexts
    {"cuInit", "flags must be 0", Source::documented, [](Driver& d) { return d(Init{}, 0u) == CUDA_SUCCESS && d(Init{}, 1u) == CUDA_ERROR_INVALID_VALUE; }},
    {"cuDriverGetVersion", "1000 times the major number and 10 times the minor one", Source::documented,
     [](Driver& d) { int v = 0; return d(DriverGetVersion{}, &v) == CUDA_SUCCESS && v == 13000; }},
    {"cuDeviceGetCount", "the devices that cuDeviceGet numbers from 0", Source::documented,
     [](Driver& d) { int n = 0; return d(DeviceGetCount{}, &n) == CUDA_SUCCESS && n == 2; }},
    {"cuDeviceGetAttribute", "of no device it is CUDA_ERROR_INVALID_DEVICE", Source::documented,
     [](Driver& d) { int v = 0; return d(DeviceGetAttribute{}, &v, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, CUdevice{9}) == CUDA_ERROR_INVALID_DEVICE; }},
    {"cuDeviceGet", "an ordinal outside of the devices is CUDA_ERROR_INVALID_DEVICE", Source::documented,
     [](Driver& d) { CUdevice x = 0; return d(DeviceGet{}, &x, 2) == CUDA_ERROR_INVALID_DEVICE && d(DeviceGet{}, &x, 1) == CUDA_SUCCESS; }},
    {"cuDevicePrimaryCtxRelease", "of a context that is not retained it is CUDA_ERROR_INVALID_CONTEXT", Source::documented,
     [](Driver& d) { return d(DevicePrimaryCtxRelease{}, CUdevice{1}) == CUDA_ERROR_INVALID_CONTEXT; }},
    {"cuDevicePrimaryCtxRetain", "the retained context is not made current", Source::documented,
     [](Driver& d) {
       CUcontext other = nullptr, popped = nullptr;
       return d(DevicePrimaryCtxRetain{}, &other, CUdevice{1}) == CUDA_SUCCESS && d(CtxPopCurrent{}, &popped) == CUDA_SUCCESS && popped == d.context;
     }},
    {"cuCtxPopCurrent", "what was current before the push is current again; with nothing pushed it is an error", Source::documented,
     [](Driver& d) {
       CUcontext other = nullptr, p = nullptr;
       d(DevicePrimaryCtxRetain{}, &other, CUdevice{1});
       d(CtxPushCurrent{}, other);
       const bool inner = d(CtxPopCurrent{}, &p) == CUDA_SUCCESS && p == other;
       return inner && d(CtxPopCurrent{}, &p) == CUDA_SUCCESS && p == d.context && d(CtxPopCurrent{}, &p) == CUDA_ERROR_INVALID_CONTEXT;
     }},
    {"cuMemAlloc", "without a current context it is CUDA_ERROR_INVALID_CONTEXT, as all calls that list it", Source::documented,
     [](Driver& d) {
       CUcontext p = nullptr;
       CUdeviceptr x = 0;
       d(CtxPopCurrent{}, &p);
       return d(MemAlloc{}, &x, std::size_t{1}) == CUDA_ERROR_INVALID_CONTEXT && d(StreamCreate{}, &d.a, 0u) == CUDA_ERROR_INVALID_CONTEXT;
     }},
    {"cuCtxSynchronize", "it waits for all work of the context, that of destroyed streams included", Source::documented,
     [](Driver& d) {
       d.work(d.a);
       d.work(d.b);
       d(StreamDestroy{}, d.b);
       return d(CtxSynchronize{}) == CUDA_SUCCESS && d.ran == 2;
     }},
    {"cuCtxEnablePeerAccess", "a second time it is CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED; of the context itself INVALID_CONTEXT", Source::documented,
     [](Driver& d) {
       CUcontext other = nullptr;
       d(DevicePrimaryCtxRetain{}, &other, CUdevice{1});
       return d(CtxEnablePeerAccess{}, other, 0u) == CUDA_SUCCESS && d(CtxEnablePeerAccess{}, other, 0u) == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED &&
              d(CtxEnablePeerAccess{}, d.context, 0u) == CUDA_ERROR_INVALID_CONTEXT && d(CtxEnablePeerAccess{}, other, 1u) == CUDA_ERROR_INVALID_VALUE;
     }},
    {"cuDeviceCanAccessPeer", "of a device and itself it is 0", Source::assumed,
     [](Driver& d) { int can = 7; return d(DeviceCanAccessPeer{}, &can, CUdevice{0}, CUdevice{0}) == CUDA_SUCCESS && can == 0; }},

    // streams and events
    {"cuStreamDestroy", "it returns at once, and the work is done all the same", Source::documented,
     [](Driver& d) {
       d.work(d.a);
       const bool at_once = d(StreamDestroy{}, d.a) == CUDA_SUCCESS && d.ran == 0;
       d(CtxSynchronize{});
       return at_once && d.ran == 1;
     }},
    {"cuStreamCreate", "a handle may be that of a stream destroyed before (rapidsai/rmm issue 649)", Source::reported,
     [](Driver& d) {
       CUstream again = nullptr;
       d(StreamDestroy{}, d.b);
       return d(StreamCreate{}, &again, 0u) == CUDA_SUCCESS && again == d.b;
     }},
    {"cuStreamGetId", "the number is unique for the life of the program", Source::documented,
     [](Driver& d) {
       unsigned long long before = 0, after = 0;
       d(StreamGetId{}, d.b, &before);
       d(StreamDestroy{}, d.b);
       d(StreamCreate{}, &d.b, 0u);
       return d(StreamGetId{}, d.b, &after) == CUDA_SUCCESS && before != after;
     }},
    {"cuStreamQuery", "CUDA_ERROR_NOT_READY while work is pending, CUDA_SUCCESS then", Source::documented,
     [](Driver& d) {
       auto later = d.cuda.hold(d.a);
       d.work(d.a);
       const bool pending = d(StreamQuery{}, d.a) == CUDA_ERROR_NOT_READY;
       static_cast<void>(later.set());
       d(StreamSynchronize{}, d.a);
       return pending && d(StreamQuery{}, d.a) == CUDA_SUCCESS && d.ran == 1;
     }},
    {"cuEventQuery", "an event that was never recorded is done", Source::documented, [](Driver& d) { return d(EventQuery{}, d.event) == CUDA_SUCCESS; }},
    {"cuStreamWaitEvent", "an event that was never recorded is nothing to wait for", Source::documented,
     [](Driver& d) { return d(StreamWaitEvent{}, d.a, d.event, 0u) == CUDA_SUCCESS && d(StreamSynchronize{}, d.a) == CUDA_SUCCESS; }},
    {"cuEventRecord", "work that comes after it is not part of it", Source::documented,
     [](Driver& d) {
       d(EventRecord{}, d.event, d.a);
       auto later = d.cuda.hold(d.a);
       d.work(d.a);
       const bool done = d(EventSynchronize{}, d.event) == CUDA_SUCCESS && d.ran == 0;
       static_cast<void>(later.set());
       return done;
     }},
    {"cuEventRecord", "event and stream of different contexts are CUDA_ERROR_INVALID_HANDLE", Source::documented,
     [](Driver& d) {
       CUcontext other = nullptr;
       CUstream s = nullptr;
       d(DevicePrimaryCtxRetain{}, &other, CUdevice{1});
       d(CtxPushCurrent{}, other);
       d(StreamCreate{}, &s, 0u);
       return d(EventRecord{}, d.event, s) == CUDA_ERROR_INVALID_HANDLE;
     }},
    {"cuStreamWaitEvent", "it means the record before the call; a later record does not change it", Source::documented,
     [](Driver& d) {
       d(EventRecord{}, d.event, d.a);
       d(StreamWaitEvent{}, d.b, d.event, 0u);
       auto later = d.cuda.hold(d.a);
       d(EventRecord{}, d.event, d.a);
       d.work(d.b);
       const bool ran = d(StreamSynchronize{}, d.b) == CUDA_SUCCESS && d.ran == 1;
       static_cast<void>(later.set());
       return ran;
     }},
    {"cuStreamWaitEvent", "the event may be of another device", Source::documented,
     [](Driver& d) {
       CUcontext other = nullptr;
       CUstream s = nullptr;
       d(DevicePrimaryCtxRetain{}, &other, CUdevice{1});
       d(CtxPushCurrent{}, other);
       d(StreamCreate{}, &s, 0u);
       auto later = d.cuda.hold(d.a);
       d(EventRecord{}, d.event, d.a);
       const bool taken = d(StreamWaitEvent{}, s, d.event, 0u) == CUDA_SUCCESS;
       d.work(s);
       d.cuda.machine.drain();
       const bool waits = d.ran == 0;
       static_cast<void>(later.set());
       d.cuda.machine.drain();
       return taken && waits && d.ran == 1;
     }},
    {"cuEventDestroy", "an event may be destroyed before it is complete; who waits for it waits on", Source::documented,
     [](Driver& d) {
       auto later = d.cuda.hold(d.a);
       d(EventRecord{}, d.event, d.a);
       d(StreamWaitEvent{}, d.b, d.event, 0u);
       d.work(d.b);
       const bool at_once = d(EventDestroy{}, d.event) == CUDA_SUCCESS;
       d.cuda.machine.drain();
       const bool waits = d.ran == 0;
       static_cast<void>(later.set());
       d.cuda.machine.drain();
       return at_once && waits && d.ran == 1;
     }},
    {"cuEventCreate", "an event between processes must not keep time", Source::documented,
     [](Driver& d) {
       CUevent e = nullptr;
       return d(EventCreate{}, &e, static_cast<unsigned>(CU_EVENT_INTERPROCESS)) == CUDA_ERROR_INVALID_VALUE &&
              d(EventCreate{}, &e, static_cast<unsigned>(CU_EVENT_INTERPROCESS) | CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
     }},
    {"cuStreamSynchronize", "a destroyed stream's handle is refused (it is undefined)", Source::assumed,
     [](Driver& d) { return d(StreamDestroy{}, d.a) == CUDA_SUCCESS && d(StreamSynchronize{}, d.a) == CUDA_ERROR_INVALID_HANDLE; }},
    {"cuLaunchHostFunc", "it runs after the work before it and holds up the work after it", Source::documented,
     [](Driver& d) {
       d.work(d.a);
       d(LaunchHostFunc{}, d.a, static_cast<CUhostFn>([](void* p) { static_cast<Driver*>(p)->ran *= 10; }), static_cast<void*>(&d));
       d.work(d.a);
       return d(StreamSynchronize{}, d.a) == CUDA_SUCCESS && d.ran == 11;
     }},
    {"cuLaunchHostFunc", "the function must not make any call: CUDA_ERROR_NOT_PERMITTED", Source::documented,
     [](Driver& d) {
       const CUhostFn call = [](void* p) {
         auto& self = *static_cast<Driver*>(p);
         self.ran = static_cast<int>(self(EventQuery{}, self.event));
       };
       d(LaunchHostFunc{}, d.a, call, static_cast<void*>(&d));
       return d(StreamSynchronize{}, d.a) == CUDA_SUCCESS && d.ran == CUDA_ERROR_NOT_PERMITTED;
     }},
    {"cuLaunchHostFunc", "the function is not called in the event of an error in the context", Source::documented,
     [](Driver& d) {
       d.cuda.launch_faulty(d.a, CUDA_ERROR_ILLEGAL_ADDRESS);
       d(LaunchHostFunc{}, d.a, static_cast<CUhostFn>([](void* p) { static_cast<Driver*>(p)->ran = 1; }), static_cast<void*>(&d));
       return d(StreamSynchronize{}, d.a) == CUDA_ERROR_ILLEGAL_ADDRESS && d.ran == 0;
     }},
    {"CUDA_ERROR_ILLEGAL_ADDRESS", "any further work returns the same error", Source::documented,
     [](Driver& d) {
       CUdeviceptr p = 0;
       CUstream s = nullptr;
       d.cuda.launch_faulty(d.a, CUDA_ERROR_ILLEGAL_ADDRESS);
       d(CtxSynchronize{});
       return d(MemAlloc{}, &p, std::size_t{1}) == CUDA_ERROR_ILLEGAL_ADDRESS && d(StreamCreate{}, &s, 0u) == CUDA_ERROR_ILLEGAL_ADDRESS &&
              d(EventRecord{}, d.event, d.b) == CUDA_ERROR_ILLEGAL_ADDRESS && d(CtxSynchronize{}) == CUDA_ERROR_ILLEGAL_ADDRESS;
     }},
    {"CUDA_ERROR_ILLEGAL_ADDRESS", "contexts of other devices are not concerned", Source::assumed,
     [](Driver& d) {
       CUcontext other = nullptr;
       CUdeviceptr p = 0;
       d.cuda.launch_faulty(d.a, CUDA_ERROR_ILLEGAL_ADDRESS);
       d(CtxSynchronize{});
       d(DevicePrimaryCtxRetain{}, &other, CUdevice{1});
       d(CtxPushCurrent{}, other);
       return d(MemAlloc{}, &p, std::size_t{1}) == CUDA_SUCCESS;
     }},
    {"cuMemcpyAsync", "the kind of copy follows from the addresses; it runs in the order of its stream", Source::documented,
     [](Driver& d) {
       char in[4] = "abc", out[4] = "";
       const CUdeviceptr p = d.alloc(4), q = d.alloc(4);
       const auto host = [](char* c) { return reinterpret_cast<CUdeviceptr>(c); };
       d(MemcpyAsync{}, p, host(in), std::size_t{4}, d.a);
       d(MemcpyAsync{}, q, p, std::size_t{4}, d.a);
       d(MemcpyAsync{}, host(out), q, std::size_t{4}, d.a);
       const bool late = out[0] == '\0';
       return late && d(StreamSynchronize{}, d.a) == CUDA_SUCCESS && std::string(out) == "abc";
     }},
    {"cuMemcpyAsync", "pageable memory is read when the copy runs (the driver may stage it at once)", Source::assumed,
     [](Driver& d) {
       char in[2] = "a", out[2] = "";
       const CUdeviceptr p = d.alloc(2);
       d(MemcpyAsync{}, p, reinterpret_cast<CUdeviceptr>(in), std::size_t{2}, d.a);
       in[0] = 'b';
       d(MemcpyAsync{}, reinterpret_cast<CUdeviceptr>(out), p, std::size_t{2}, d.a);
       return d(StreamSynchronize{}, d.a) == CUDA_SUCCESS && out[0] == 'b';
     }},

    // memory
    {"cuMemAlloc", "0 bytes are CUDA_ERROR_INVALID_VALUE", Source::documented,
     [](Driver& d) { CUdeviceptr p = 0; return d(MemAlloc{}, &p, std::size_t{0}) == CUDA_ERROR_INVALID_VALUE; }},
    {"cuMemAlloc", "more than there is is CUDA_ERROR_OUT_OF_MEMORY, and nothing is taken", Source::documented,
     [](Driver& d) {
       CUdeviceptr p = 0;
       return d(MemAlloc{}, &p, std::size_t{65} << 20) == CUDA_ERROR_OUT_OF_MEMORY && d(MemAlloc{}, &p, ~std::size_t{0}) == CUDA_ERROR_OUT_OF_MEMORY &&
              d.cuda.used(0) == 0;
     }},
    {"cuMemAlloc", "blocks are aligned to 256 bytes (CUDA C++ programming guide, device memory accesses)", Source::documented,
     [](Driver& d) { return d.alloc(1) % 256 == 0 && d.alloc(1) % 256 == 0; }},
    {"cuMemAlloc", "the memory is not cleared", Source::documented,
     [](Driver& d) { return *reinterpret_cast<unsigned char*>(d.alloc(1)) != 0; }},
    {"cuMemFree", "an address that no call gave is CUDA_ERROR_INVALID_VALUE, as one freed before", Source::documented,
     [](Driver& d) {
       const CUdeviceptr p = d.alloc(100);
       return d(MemFree{}, p + 1) == CUDA_ERROR_INVALID_VALUE && d(MemFree{}, p) == CUDA_SUCCESS && d(MemFree{}, p) == CUDA_ERROR_INVALID_VALUE;
     }},
    {"cuMemFree", "it does not wait for work (it \"may perform implicit synchronization\")", Source::assumed,
     [](Driver& d) {
       const CUdeviceptr p = d.alloc(100);
       auto later = d.cuda.hold(d.a);
       d.work(d.a);
       const bool at_once = d(MemFree{}, p) == CUDA_SUCCESS && d.ran == 0;
       static_cast<void>(later.set());
       return at_once;
     }},
    {"cuMemGetInfo", "free and total bytes of the context's device", Source::documented,
     [](Driver& d) {
       std::size_t free = 0, total = 0;
       d.alloc(1 << 20);
       return d(MemGetInfo{}, &free, &total) == CUDA_SUCCESS && total == std::size_t{64} << 20 && free == total - (1 << 20);
     }},
    {"cuMemAllocManaged", "0 bytes and flags that are neither GLOBAL nor HOST are CUDA_ERROR_INVALID_VALUE; cuMemFree takes it back", Source::documented,
     [](Driver& d) {
       CUdeviceptr p = 0;
       return d(MemAllocManaged{}, &p, std::size_t{0}, static_cast<unsigned>(CU_MEM_ATTACH_GLOBAL)) == CUDA_ERROR_INVALID_VALUE &&
              d(MemAllocManaged{}, &p, std::size_t{1}, 0u) == CUDA_ERROR_INVALID_VALUE &&
              d(MemAllocManaged{}, &p, std::size_t{1}, static_cast<unsigned>(CU_MEM_ATTACH_GLOBAL)) == CUDA_SUCCESS && d(MemFree{}, p) == CUDA_SUCCESS;
     }},
    {"cuMemHostAlloc", "the host uses it; cuMemFreeHost takes it back, cuMemFree does not", Source::documented,
     [](Driver& d) {
       void* p = nullptr;
       if (d(MemHostAlloc{}, &p, std::size_t{100}, 0u) != CUDA_SUCCESS) return false;
       std::memset(p, 1, 100);
       return d(MemFree{}, reinterpret_cast<CUdeviceptr>(p)) == CUDA_ERROR_INVALID_VALUE && d(MemFreeHost{}, p) == CUDA_SUCCESS;
     }},
    {"cuMemHostRegister", "a range that overlaps a registered one is CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", Source::documented,
     [](Driver& d) {
       static char bytes[100];
       return d(MemHostRegister{}, static_cast<void*>(bytes), std::size_t{100}, 0u) == CUDA_SUCCESS &&
              d(MemHostRegister{}, static_cast<void*>(bytes + 99), std::size_t{10}, 0u) == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
     }},
    {"cuMemHostUnregister", "it must be the address of the registration: else CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", Source::documented,
     [](Driver& d) {
       static char bytes[100];
       d(MemHostRegister{}, static_cast<void*>(bytes), std::size_t{100}, 0u);
       return d(MemHostUnregister{}, static_cast<void*>(bytes + 1)) == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED &&
              d(MemHostUnregister{}, static_cast<void*>(bytes)) == CUDA_SUCCESS;
     }},

    // other processes
    {"cuMemGetAddressRange", "base and size of the allocation that an address lies in; of none CUDA_ERROR_NOT_FOUND", Source::documented,
     [](Driver& d) {
       const CUdeviceptr p = d.alloc(1000);
       CUdeviceptr base = 0;
       std::size_t size = 0;
       return d(MemGetAddressRange{}, &base, &size, p + 999) == CUDA_SUCCESS && base == p && size == 1000 &&
              d(MemGetAddressRange{}, &base, &size, p + 1000) == CUDA_ERROR_NOT_FOUND;
     }},
    {"cuIpcGetMemHandle", "of the base of an allocation of cuMemAlloc only; another one at the same address has another handle", Source::documented,
     [](Driver& d) {
       CUipcMemHandle one{}, two{};
       const CUdeviceptr p = d.alloc(1000);
       if (d(IpcGetMemHandle{}, &one, p) != CUDA_SUCCESS || d(IpcGetMemHandle{}, &two, p + 1) != CUDA_ERROR_INVALID_VALUE) return false;
       d(MemFree{}, p);
       return d.alloc(1000) == p && d(IpcGetMemHandle{}, &two, p) == CUDA_SUCCESS && std::memcmp(&one, &two, sizeof one) != 0;
     }},
    {"cuIpcOpenMemHandle", "opened again the address is the same, and as many closes are needed", Source::documented,
     [](Driver& d) {
       Driver there;
       CUipcMemHandle h{};
       CUdeviceptr a = 0, b = 0;
       there(IpcGetMemHandle{}, &h, there.alloc(1000));
       d(CtxPushCurrent{}, d.context);
       const auto open = [&](CUdeviceptr* p) { return d(IpcOpenMemHandle{}, p, h, static_cast<unsigned>(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)); };
       return open(&a) == CUDA_SUCCESS && open(&b) == CUDA_SUCCESS && a == b && d(IpcCloseMemHandle{}, a) == CUDA_SUCCESS &&
              d(IpcCloseMemHandle{}, a) == CUDA_SUCCESS && d(IpcCloseMemHandle{}, a) == CUDA_ERROR_INVALID_VALUE;
     }},
    {"cuIpcOpenMemHandle", "in the process that exported it it is CUDA_ERROR_INVALID_CONTEXT", Source::assumed,
     [](Driver& d) {
       CUipcMemHandle h{};
       CUdeviceptr p = 0;
       d(IpcGetMemHandle{}, &h, d.alloc(1000));
       return d(IpcOpenMemHandle{}, &p, h, static_cast<unsigned>(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)) == CUDA_ERROR_INVALID_CONTEXT;
     }},

    // pools
    {"cuMemPoolCreate", "the kind must be PINNED and what is reserved zero", Source::documented,
     [](Driver& d) {
       CUmemoryPool p = nullptr;
       CUmemPoolProps wrong = d.pool_props, dirty = d.pool_props;
       wrong.allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
       dirty.reserved[3] = 1;
       const auto make = [&](const CUmemPoolProps* props) { return d(MemPoolCreate{}, &p, props); };
       return make(&wrong) == CUDA_ERROR_INVALID_VALUE && make(&dirty) == CUDA_ERROR_INVALID_VALUE && make(&d.pool_props) == CUDA_SUCCESS;
     }},
    {"CUmemPoolProps::maxSize", "a pool does not grow beyond it", Source::documented,
     [](Driver& d) {
       CUdeviceptr p = 0;
       const CUmemoryPool pool = d.pool(1000);
       return d.from_pool(pool, d.a, 1000) != 0 && d(MemAllocFromPoolAsync{}, &p, std::size_t{1}, pool, d.a) == CUDA_ERROR_OUT_OF_MEMORY;
     }},
    {"cuMemAllocFromPoolAsync", "the address is there at once, the memory in the order of the stream", Source::documented,
     [](Driver& d) {
       auto later = d.cuda.hold(d.a);
       const CUdeviceptr p = d.from_pool(d.pool(), d.a, 1000);
       const bool at_once = p != 0;
       static_cast<void>(later.set());
       return at_once && d(StreamSynchronize{}, d.a) == CUDA_SUCCESS;
     }},
    {"cuMemFreeAsync", "a later request on the same stream may have the memory at once", Source::documented,
     [](Driver& d) {
       const CUmemoryPool pool = d.pool();
       auto later = d.cuda.hold(d.a);
       const CUdeviceptr p = d.from_pool(pool, d.a, 1000);
       d(MemFreeAsync{}, p, d.a);
       const bool again = d.from_pool(pool, d.a, 1000) == p;
       static_cast<void>(later.set());
       return again;
     }},
    {"CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES", "for another stream's request the driver may add a wait for the release", Source::documented,
     [](Driver& d) {
       const CUmemoryPool pool = d.pool();
       auto later = d.cuda.hold(d.a);
       const CUdeviceptr p = d.from_pool(pool, d.a, std::size_t{60} << 20);
       d(MemFreeAsync{}, p, d.a);
       const bool had = d.from_pool(pool, d.b, std::size_t{60} << 20) == p;
       d.work(d.b);
       d.cuda.machine.drain();
       const bool waits = d.ran == 0;
       static_cast<void>(later.set());
       d.cuda.machine.drain();
       return had && waits && d.ran == 1;
     }},
    {"cuMemFreeAsync", "an address of cuMemAlloc is refused", Source::assumed,
     [](Driver& d) { return d(MemFreeAsync{}, d.alloc(10), d.a) == CUDA_ERROR_INVALID_VALUE; }},
    {"cuMemAllocFromPoolAsync", "0 bytes are CUDA_ERROR_INVALID_VALUE", Source::assumed,
     [](Driver& d) { CUdeviceptr p = 0; return d(MemAllocFromPoolAsync{}, &p, std::size_t{0}, d.pool(), d.a) == CUDA_ERROR_INVALID_VALUE; }},
    {"cuMemFree", "it takes memory of a pool back too, without any synchronization", Source::documented,
     [](Driver& d) {
       const CUdeviceptr p = d.from_pool(d.pool(), d.a, 1000);
       d(StreamSynchronize{}, d.a);
       return d(MemFree{}, p) == CUDA_SUCCESS;
     }},
    {"cuMemPoolDestroy", "with memory out it returns at once, and goes with the last of it", Source::documented,
     [](Driver& d) {
       const CUmemoryPool pool = d.pool();
       const CUdeviceptr p = d.from_pool(pool, d.a, 1000);
       const bool at_once = d(MemPoolDestroy{}, pool) == CUDA_SUCCESS && d.cuda.leaks().find("1 pools") != std::string::npos;
       d(MemFreeAsync{}, p, d.a);
       return at_once && d.cuda.leaks().find("pools") == std::string::npos;
     }},
    {"CU_MEMPOOL_ATTR_RELEASE_THRESHOLD", "0 unless set: what is idle goes back at the next synchronize", Source::documented,
     [](Driver& d) {
       const CUmemoryPool pool = d.pool();
       d(MemFreeAsync{}, d.from_pool(pool, d.a, 3 << 20), d.a);
       const bool held = d.attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 4 << 20;
       d(StreamSynchronize{}, d.a);
       return held && d.attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0 && d.attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) == 4 << 20;
     }},
    {"cuMemPoolTrimTo", "it releases down to a size, but nothing that is out", Source::documented,
     [](Driver& d) {
       const CUmemoryPool pool = d.pool();
       const CUdeviceptr out = d.from_pool(pool, d.a, 2 << 20);
       d(MemFreeAsync{}, d.from_pool(pool, d.a, 6 << 20), d.a);
       d(MemPoolTrimTo{}, pool, std::size_t{4} << 20);
       const bool down = d.attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 4 << 20;
       d(MemPoolTrimTo{}, pool, std::size_t{0});
       return down && d.attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 2 << 20 && d(MemFreeAsync{}, out, d.a) == CUDA_SUCCESS;
     }},
    {"cuMemPoolSetAccess", "a device that is not there is refused", Source::assumed,
     [](Driver& d) {
       const CUmemoryPool pool = d.pool();
       d.access.location.id = 1;
       const bool taken = d(MemPoolSetAccess{}, pool, static_cast<const CUmemAccessDesc*>(&d.access), std::size_t{1}) == CUDA_SUCCESS;
       d.access.location.id = 9;
       return taken && d(MemPoolSetAccess{}, pool, static_cast<const CUmemAccessDesc*>(&d.access), std::size_t{1}) != CUDA_SUCCESS;
     }},
    {"cuMemGetAllocationGranularity", "what sizes are multiples of", Source::documented,
     [](Driver& d) {
       std::size_t n = 0;
       return d(MemGetAllocationGranularity{}, &n, static_cast<const CUmemAllocationProp*>(&d.props), CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS &&
              d.create(n) != 0 && d.create(n / 2) == 0;
     }},
    {"cuMemPoolSetAttribute", "a high watermark may be set to 0 and to nothing else", Source::documented,
     [](Driver& d) {
       const CUmemoryPool pool = d.pool();
       cuuint64_t one = 1, zero = 0;
       return d(MemPoolSetAttribute{}, pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, static_cast<void*>(&one)) == CUDA_ERROR_INVALID_VALUE &&
              d(MemPoolSetAttribute{}, pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, static_cast<void*>(&zero)) == CUDA_SUCCESS;
     }},
    {"CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT", "reserves whole steps of 2 MiB", Source::assumed,
     [](Driver& d) {
       const CUmemoryPool pool = d.pool();
       d.from_pool(pool, d.a, 1);
       return d.attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 2 << 20;
     }},

    // virtual memory
    {"cuMemAddressReserve", "the size is of whole host pages, the alignment a power of two or 0", Source::documented,
     [](Driver& d) {
       CUdeviceptr p = 0;
       const auto ask = [&](std::size_t n, std::size_t alignment) { return d(MemAddressReserve{}, &p, n, alignment, CUdeviceptr{0}, 0ull); };
       return ask(4095, 0) == CUDA_ERROR_INVALID_VALUE && ask(4096, 3) == CUDA_ERROR_INVALID_VALUE && ask(4096, 0) == CUDA_SUCCESS;
     }},
    {"cuMemCreate", "the size is of whole granules", Source::documented,
     [](Driver& d) {
       CUmemGenericAllocationHandle h = 0;
       return d(MemCreate{}, &h, std::size_t{4096}, &d.props, 0ull) == CUDA_ERROR_INVALID_VALUE && d(MemCreate{}, &h, granule, &d.props, 0ull) == CUDA_SUCCESS;
     }},
    {"cuMemCreate", "physical memory counts though nothing maps it", Source::documented,
     [](Driver& d) { d.create(16 * granule); CUmemGenericAllocationHandle h = 0; return d(MemCreate{}, &h, 17 * granule, &d.props, 0ull) == CUDA_ERROR_OUT_OF_MEMORY; }},
    {"cuMemMap", "it maps into reservations only, and only where nothing is mapped", Source::documented,
     [](Driver& d) {
       const CUdeviceptr p = d.reserve(2 * granule);
       const auto h = d.create(granule);
       return d.map(p + 2 * granule, granule, h) == CUDA_ERROR_INVALID_VALUE && d.map(p, granule, h) == CUDA_SUCCESS && d.map(p, granule, h) == CUDA_ERROR_INVALID_VALUE;
     }},
    {"cuMemMap", "the offset must be zero, address and size of whole granules", Source::documented,
     [](Driver& d) {
       const CUdeviceptr p = d.reserve(2 * granule);
       const auto h = d.create(granule);
       return d(MemMap{}, p, granule, std::size_t{4096}, h, 0ull) == CUDA_ERROR_INVALID_VALUE && d.map(p + 4096, granule, h) == CUDA_ERROR_INVALID_VALUE &&
              d.map(p, 4096, h) == CUDA_ERROR_INVALID_VALUE;
     }},
    {"cuMemSetAccess", "the range must be mapped as a whole", Source::documented,
     [](Driver& d) {
       const CUdeviceptr p = d.reserve(2 * granule);
       d.map(p, granule, d.create(granule));
       return d.set_access(p, 2 * granule) == CUDA_ERROR_INVALID_VALUE && d.set_access(p, granule) == CUDA_SUCCESS;
     }},
    {"cuMemUnmap", "what is unmapped and mapped elsewhere has its bytes; all mappings start without access", Source::documented,
     [](Driver& d) {
       const CUdeviceptr p = d.reserve(2 * granule);
       const auto h = d.create(granule);
       d.map(p, granule, h);
       d.set_access(p, granule);
       std::memset(reinterpret_cast<void*>(p), 9, granule);
       d(MemUnmap{}, p, granule);
       return d.map(p + granule, granule, h) == CUDA_SUCCESS && d.set_access(p + granule, granule) == CUDA_SUCCESS &&
              *reinterpret_cast<char*>(p + 2 * granule - 1) == 9;
     }},
    {"cuMemUnmap", "a part of a mapping cannot be unmapped", Source::documented,
     [](Driver& d) {
       const CUdeviceptr p = d.reserve(2 * granule);
       d.map(p, 2 * granule, d.create(2 * granule));
       return d(MemUnmap{}, p, granule) == CUDA_ERROR_INVALID_VALUE && d(MemUnmap{}, p, 2 * granule) == CUDA_SUCCESS;
     }},
    {"cuMemUnmap", "it does not wait for kernels", Source::assumed,
     [](Driver& d) {
       const CUdeviceptr p = d.reserve(granule);
       d.map(p, granule, d.create(granule));
       auto later = d.cuda.hold(d.a);
       d.work(d.a);
       const bool at_once = d(MemUnmap{}, p, granule) == CUDA_SUCCESS && d.ran == 0;
       static_cast<void>(later.set());
       return at_once;
     }},
    {"cuMemRelease", "the handle may go while it is mapped; the memory goes with the last mapping", Source::documented,
     [](Driver& d) {
       const CUdeviceptr p = d.reserve(granule);
       const auto h = d.create(granule);
       d.map(p, granule, h);
       const bool released = d(MemRelease{}, h) == CUDA_SUCCESS && d.cuda.used(0) == static_cast<Bytes>(granule);
       d(MemUnmap{}, p, granule);
       return released && d.cuda.used(0) == 0;
     }},
    {"cuMemAddressFree", "address and size must be those of the reservation", Source::documented,
     [](Driver& d) {
       const CUdeviceptr p = d.reserve(2 * granule);
       return d(MemAddressFree{}, p, granule) == CUDA_ERROR_INVALID_VALUE && d(MemAddressFree{}, p, 2 * granule) == CUDA_SUCCESS;
     }},
    {"cuMemAddressFree", "with something mapped it is CUDA_ERROR_INVALID_VALUE", Source::assumed,
     [](Driver& d) {
       const CUdeviceptr p = d.reserve(granule);
       d.map(p, granule, d.create(granule));
       return d(MemAddressFree{}, p, granule) == CUDA_ERROR_INVALID_VALUE;
     }},
    {"cuMemCreate", "fabric handles may be CUDA_ERROR_NOT_PERMITTED or NOT_SUPPORTED while file handles are not", Source::documented,
     [](Driver&) {
       CudaDoubleOptions o;
       o.fabric = CUDA_ERROR_NOT_PERMITTED;
       Driver d(o);
       CUmemGenericAllocationHandle h = 0;
       d.props.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
       const bool refused = d(MemCreate{}, &h, granule, &d.props, 0ull) == CUDA_ERROR_NOT_PERMITTED;
       d.props.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
       return refused && d(MemCreate{}, &h, granule, &d.props, 0ull) == CUDA_SUCCESS;
     }},
    {"cuMemExportToShareableHandle", "each file is one of its own, and keeps the memory when the allocation was released", Source::documented,
     [](Driver& d) {
       Driver there;
       d.props.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
       const CUmemGenericAllocationHandle h = d.create(granule);
       int one = -1, two = -1;
       const auto share = [&](int* file) {
         return d(MemExportToShareableHandle{}, static_cast<void*>(file), h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ull) == CUDA_SUCCESS;
       };
       if (!share(&one) || !share(&two) || one == two || d(MemRelease{}, h) != CUDA_SUCCESS) return false;
       ::close(one);
       CUmemGenericAllocationHandle got = 0;
       const CUresult imported = there(MemImportFromShareableHandle{}, &got, reinterpret_cast<void*>(static_cast<std::intptr_t>(two)),
                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
       ::close(two);
       const CUdeviceptr p = there.reserve(granule);
       return imported == CUDA_SUCCESS && there.map(p, granule, got) == CUDA_SUCCESS && there.set_access(p, granule) == CUDA_SUCCESS;
     }},
    {"cuMemExportToShareableHandle", "of memory that was not made for it it is CUDA_ERROR_INVALID_VALUE", Source::assumed,
     [](Driver& d) {
       int file = -1;
       return d(MemExportToShareableHandle{}, static_cast<void*>(&file), d.create(granule), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ull) ==
              CUDA_ERROR_INVALID_VALUE;
     }},
    {"cuMemImportFromShareableHandle", "a file that is closed or stands for no memory is CUDA_ERROR_INVALID_VALUE", Source::assumed,
     [](Driver& d) {
       int ends[2];
       if (::pipe(ends) != 0) return false;
       CUmemGenericAllocationHandle h = 0;
       const auto import = [&](int file) {
         return d(MemImportFromShareableHandle{}, &h, reinterpret_cast<void*>(static_cast<std::intptr_t>(file)), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
       };
       const CUresult open = import(ends[0]);
       ::close(ends[0]);
       ::close(ends[1]);
       return open == CUDA_ERROR_INVALID_VALUE && import(ends[0]) == CUDA_ERROR_INVALID_VALUE;
     }},

    // pools of other processes; "guide": the CUDA programming guide, IPC memory pools
    {"cuMemPoolExportToShareableHandle", "of a pool that was made with a handle type; flags must be 0", Source::documented,
     [](Driver& d) {
       int file = -1;
       const CUmemoryPool plain = d.pool(), shared = d.shared_pool();
       const auto share = [&](CUmemoryPool p, unsigned long long flags) {
         return d(MemPoolExportToShareableHandle{}, static_cast<void*>(&file), p, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, flags);
       };
       if (share(plain, 0) != CUDA_ERROR_INVALID_VALUE || share(shared, 1) != CUDA_ERROR_INVALID_VALUE || share(shared, 0) != CUDA_SUCCESS) return false;
       ::close(file);
       return true;
     }},
    {"cuMemPoolExportPointer", "of a block of a pool that was exported already", Source::documented,
     [](Driver& d) {
       CUmemPoolPtrExportData data{};
       d.pool_props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
       return d(MemPoolExportPointer{}, &data, d.from_pool(d.pool(), d.a, 100)) == CUDA_ERROR_INVALID_VALUE &&
              d(MemPoolExportPointer{}, &data, d.from_pool(d.shared_pool(), d.a, 100)) == CUDA_SUCCESS &&
              d(MemPoolExportPointer{}, &data, d.alloc(100)) == CUDA_ERROR_INVALID_VALUE;
     }},
    {"cuMemPoolImportFromShareableHandle", "flags must be 0; nothing can be allocated from what it gives", Source::documented,
     [](Driver& d) {
       SharedPool s(d);
       CUmemoryPool other = nullptr;
       return s.opened != nullptr && d.import_pool(&other, s.file, 1) == CUDA_ERROR_INVALID_VALUE && d.from_pool(s.opened, d.a, 100) == 0;
     }},
    {"cuMemPoolImportFromShareableHandle", "in the process that exported it, and of a file that is none, it is CUDA_ERROR_INVALID_VALUE", Source::assumed,
     [](Driver& d) {
       SharedPool s(d);
       CUmemoryPool p = nullptr;
       return s.there.import_pool(&p, s.file) == CUDA_ERROR_INVALID_VALUE && d.import_pool(&p, 0) == CUDA_ERROR_INVALID_VALUE;
     }},
    {"cuMemPoolImportPointer", "freed with cuMemFree; its owner must not free it before", Source::documented,
     [](Driver& d) {
       SharedPool s(d);
       CUdeviceptr p = 0;
       if (s.open(&p) != CUDA_SUCCESS || d(MemFree{}, p) != CUDA_SUCCESS || s.open(&p) != CUDA_SUCCESS) return false;
       s.there(CtxPushCurrent{}, s.there.context);
       s.there(MemFree{}, s.block);
       return s.there.cuda.misuse.find("have imported") != std::string::npos;
     }},
    {"cuMemPoolImportPointer", "freed in a stream, that has to be over before its owner frees it", Source::documented,
     [](Driver& d) {
       SharedPool s(d);
       CUdeviceptr p = 0;
       s.open(&p);
       d(MemFreeAsync{}, p, d.a);
       d(StreamSynchronize{}, d.a);
       s.there(MemFreeAsync{}, s.block, s.there.a);
       const bool after = s.there.cuda.misuse.empty();
       SharedPool early(d);
       early.open(&p);
       d.work(d.a);
       d(MemFreeAsync{}, p, d.a);
       early.there(MemFreeAsync{}, early.block, early.there.a);
       return after && !early.there.cuda.misuse.empty();
     }},
    {"cuMemPoolImportPointer", "of data that is none, or of another pool, it is CUDA_ERROR_INVALID_VALUE; a second time CUDA_ERROR_ALREADY_MAPPED", Source::assumed,
     [](Driver& d) {
       SharedPool s(d), other(d);
       CUdeviceptr p = 0;
       const bool second = s.open(&p) == CUDA_SUCCESS && s.open(&p) == CUDA_ERROR_ALREADY_MAPPED;
       s.data = other.data;
       const bool foreign = s.open(&p) == CUDA_ERROR_INVALID_VALUE;
       std::memset(s.data.reserved, 0x5A, sizeof s.data.reserved);
       return second && foreign && s.open(&p) == CUDA_ERROR_INVALID_VALUE;
     }},
    {"cuMemPoolSetAccess", "guide: an imported pool inherits no access, the importer gives it; here not even its own device has it", Source::documented,
     [](Driver& d) {
       SharedPool s(d);
       CUdeviceptr p = 0;
       s.open(&p);
       const CUdeviceptr own = d.alloc(100);
       const auto copy = [&] { d(MemcpyAsync{}, own, p, std::size_t{100}, d.a); };
       s.grant();
       copy();
       const bool granted = d.cuda.misuse.empty();
       SharedPool without(d);
       without.open(&p);
       copy();
       return granted && d.cuda.misuse.find("without access") != std::string::npos;
     }},
    {"cuMemPoolTrimTo", "guide: pools for sharing give nothing back", Source::documented,
     [](Driver& d) {
       const CUmemoryPool pool = d.shared_pool();
       d(MemFreeAsync{}, d.from_pool(pool, d.a, granule), d.a);
       d(StreamSynchronize{}, d.a);
       return d(MemPoolTrimTo{}, pool, std::size_t{0}) == CUDA_SUCCESS && d.attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == granule;
     }},

    // what memory is, and whose
    {"cuDeviceGetUuid", "16 bytes that no other device has, the same in every process; of no device it is CUDA_ERROR_INVALID_DEVICE", Source::documented,
     [](Driver& d) {
       CudaDoubleOptions o;
       o.first_device = 1;
       CUuuid one{}, two{}, there{};
       const bool known = d(DeviceGetUuid{}, &one, CUdevice{0}) == CUDA_SUCCESS && d(DeviceGetUuid{}, &two, CUdevice{1}) == CUDA_SUCCESS;
       const bool none = d(DeviceGetUuid{}, &there, CUdevice{9}) == CUDA_ERROR_INVALID_DEVICE;
       Driver other(o);
       other(DeviceGetUuid{}, &there, CUdevice{0});
       return known && none && std::memcmp(&one, &two, sizeof one) != 0 && std::memcmp(&two, &there, sizeof one) == 0;
     }},
    {"cuMemRetainAllocationHandle", "of any address in a mapping it is the handle that was mapped, to be released once more; of others it fails", Source::documented,
     [](Driver& d) {
       const CUdeviceptr p = d.reserve(granule);
       const CUmemGenericAllocationHandle h = d.create(granule);
       CUmemGenericAllocationHandle got = 0;
       d.map(p, granule, h);
       return d(MemRetainAllocationHandle{}, &got, reinterpret_cast<void*>(p + 77)) == CUDA_SUCCESS && got == h && d(MemRelease{}, h) == CUDA_SUCCESS &&
              d(MemRelease{}, h) == CUDA_SUCCESS && d(MemRelease{}, h) == CUDA_ERROR_INVALID_VALUE &&
              d(MemRetainAllocationHandle{}, &got, reinterpret_cast<void*>(d.alloc(100))) == CUDA_ERROR_INVALID_VALUE;
     }},
    {"cuMemGetAllocationPropertiesFromHandle", "what the memory was made with", Source::documented,
     [](Driver& d) {
       CUmemAllocationProp got{};
       d.props.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
       return d(MemGetAllocationPropertiesFromHandle{}, &got, d.create(granule)) == CUDA_SUCCESS && got.type == CU_MEM_ALLOCATION_TYPE_PINNED &&
              got.location.id == 0 && got.requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
     }},
    {"CU_POINTER_ATTRIBUTE_BUFFER_ID", "no two allocations of a process have the same, at the same address neither", Source::documented,
     [](Driver& d) {
       const auto id = [&](CUdeviceptr p) {
         unsigned long long value = 0;
         return d(PointerGetAttribute{}, static_cast<void*>(&value), CU_POINTER_ATTRIBUTE_BUFFER_ID, p) == CUDA_SUCCESS ? value : 0;
       };
       const CUdeviceptr p = d.alloc(100), mapped = d.reserve(granule);
       d.map(mapped, granule, d.create(granule));
       const unsigned long long first = id(p);
       d(MemFree{}, p);
       return first != 0 && id(mapped) != 0 && id(mapped) == id(mapped + 5) && id(p) == 0 && d.alloc(100) == p && id(p) != first;
     }},
    {"CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL", "the device that the memory lies on, whichever context asks", Source::documented,
     [](Driver& d) {
       const auto device_of = [&](CUdeviceptr p) {
         int value = -5;
         d(PointerGetAttribute{}, static_cast<void*>(&value), CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p);
         return value;
       };
       CUcontext other = nullptr;
       d(DevicePrimaryCtxRetain{}, &other, CUdevice{1});
       d(CtxPushCurrent{}, other);
       const CUdeviceptr p = d.alloc(100), mapped = d.reserve(granule);
       CUcontext popped = nullptr;
       d(CtxPopCurrent{}, &popped);
       d.props.location.id = 1;
       d.map(mapped, granule, d.create(granule));
       return device_of(p) == 1 && device_of(mapped) == 1 && device_of(d.alloc(100)) == 0;
     }},
    {"CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE", "whether cuIpcGetMemHandle takes it", Source::documented,
     [](Driver& d) {
       const auto is = [&](CUdeviceptr p) {
         bool value = false;
         return d(PointerGetAttribute{}, static_cast<void*>(&value), CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p) == CUDA_SUCCESS && value;
       };
       return is(d.alloc(100)) && !is(d.from_pool(d.pool(), d.a, 100));
     }},
    {"CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES", "the types that the memory was made for; a pool's block has those of the pool", Source::assumed,
     [](Driver& d) {
       const auto types = [&](CUdeviceptr p) {
         unsigned long long value = 77;
         d(PointerGetAttribute{}, static_cast<void*>(&value), CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, p);
         return value;
       };
       const CUmemoryPool plain = d.pool();
       return types(d.alloc(100)) == 0 && types(d.from_pool(plain, d.a, 100)) == 0 &&
              types(d.from_pool(d.shared_pool(), d.a, 100)) == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
     }},
    {"CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE", "the pool that a block is from; of other memory null", Source::assumed,
     [](Driver& d) {
       const auto pool_of = [&](CUdeviceptr p) {
         CUmemoryPool got = nullptr;
         d(PointerGetAttribute{}, static_cast<void*>(&got), CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p);
         return got;
       };
       const CUmemoryPool pool = d.pool();
       return pool_of(d.from_pool(pool, d.a, 100)) == pool && pool_of(d.alloc(100)) == nullptr;
     }},
    {"cuPointerGetAttribute", "of no memory of the driver's it is CUDA_ERROR_INVALID_VALUE", Source::documented,
     [](Driver& d) {
       unsigned long long value = 0;
       return d(PointerGetAttribute{}, static_cast<void*>(&value), CU_POINTER_ATTRIBUTE_BUFFER_ID, reinterpret_cast<CUdeviceptr>(&value)) ==
              CUDA_ERROR_INVALID_VALUE;
     }},
    {"cuMemGetHandleForAddressRange", "whole host pages of one allocation, or of a reservation that is mapped throughout", Source::documented,
     [](Driver& d) {
       int file = -1;
       const auto get = [&](CUdeviceptr p, std::size_t n) {
         const CUresult code = d(MemGetHandleForAddressRange{}, static_cast<void*>(&file), p, n, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0ull);
         if (code == CUDA_SUCCESS) ::close(file);
         return code == CUDA_SUCCESS;
       };
       const CUdeviceptr p = (d.alloc(granule) + 4095) & ~CUdeviceptr{4095}, v = d.reserve(2 * granule);
       d.map(v, granule, d.create(granule));
       d.set_access(v, granule);
       return get(p, 8192) && !get(p + 1, 4096) && !get(p, 100) && !get(p, granule + 4096) && get(v, granule) && !get(v, 2 * granule);
     }},
    {"cuMemGetHandleForAddressRange", "without CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED it is CUDA_ERROR_NOT_SUPPORTED", Source::assumed,
     [](Driver&) {
       CudaDoubleOptions o;
       o.dma_buf = false;
       Driver d(o);
       int file = -1, can = 1;
       d(DeviceGetAttribute{}, &can, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, CUdevice{0});
       return can == 0 && d(MemGetHandleForAddressRange{}, static_cast<void*>(&file), (d.alloc(granule) + 4095) & ~CUdeviceptr{4095}, std::size_t{4096},
                            CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0ull) == CUDA_ERROR_NOT_SUPPORTED;
     }},

    // fabric
    {"cuMemExportToShareableHandle", "of a fabric handle it gives 64 bytes, for memory that was made for it (else, assumed, CUDA_ERROR_INVALID_VALUE)",
     Source::documented,
     [](Driver& d) {
       Driver there;
       CUmemFabricHandle handle{};
       const auto share = [&](CUmemGenericAllocationHandle h) {
         return d(MemExportToShareableHandle{}, static_cast<void*>(&handle), h, CU_MEM_HANDLE_TYPE_FABRIC, 0ull);
       };
       d.props.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
       const bool refused = share(d.create(granule)) == CUDA_ERROR_INVALID_VALUE;
       d.props.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
       CUmemGenericAllocationHandle got = 0;
       const bool shared = refused && sizeof handle == 64 && share(d.create(granule)) == CUDA_SUCCESS &&
                           there(MemImportFromShareableHandle{}, &got, static_cast<void*>(&handle), CU_MEM_HANDLE_TYPE_FABRIC) == CUDA_SUCCESS;
       const CUdeviceptr p = there.reserve(granule);
       return shared && there.map(p, granule, got) == CUDA_SUCCESS && there.set_access(p, granule) == CUDA_SUCCESS;
     }},
    {"cuMemImportFromShareableHandle", "of a fabric handle it is CUDA_ERROR_NOT_PERMITTED without an IMEX channel in common", Source::documented,
     [](Driver& d) {
       CudaDoubleOptions o;
       o.fabric = CUDA_ERROR_NOT_PERMITTED;
       Driver there(o);
       d.props.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
       CUmemFabricHandle handle{};
       d(MemExportToShareableHandle{}, static_cast<void*>(&handle), d.create(granule), CU_MEM_HANDLE_TYPE_FABRIC, 0ull);
       CUmemGenericAllocationHandle got = 0;
       return there(MemImportFromShareableHandle{}, &got, static_cast<void*>(&handle), CU_MEM_HANDLE_TYPE_FABRIC) == CUDA_ERROR_NOT_PERMITTED;
     }},
    {"cuMemImportFromShareableHandle", "bytes that are no fabric handle, or of memory that is gone, are CUDA_ERROR_INVALID_VALUE: a handle keeps nothing",
     Source::assumed,
     [](Driver& d) {
       d.props.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
       CUmemFabricHandle handle{}, none{};
       const auto memory = d.create(granule);
       d(MemExportToShareableHandle{}, static_cast<void*>(&handle), memory, CU_MEM_HANDLE_TYPE_FABRIC, 0ull);
       CUmemGenericAllocationHandle got = 0;
       const auto import = [&](CUmemFabricHandle& h) { return d(MemImportFromShareableHandle{}, &got, static_cast<void*>(&h), CU_MEM_HANDLE_TYPE_FABRIC); };
       const bool whole = import(none) == CUDA_ERROR_INVALID_VALUE && import(handle) == CUDA_SUCCESS && d(MemRelease{}, got) == CUDA_SUCCESS;
       d(MemRelease{}, memory);
       return whole && import(handle) == CUDA_ERROR_INVALID_VALUE;
     }},

    // multicast
    {"cuMulticastCreate", "on a device without CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED it is CUDA_ERROR_NOT_SUPPORTED", Source::assumed,
     [](Driver& has) {
       CudaDoubleOptions o;
       o.multicast = false;
       Driver d(o);
       int yes = 0, no = 1;
       has(DeviceGetAttribute{}, &yes, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, CUdevice{0});
       d(DeviceGetAttribute{}, &no, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, CUdevice{0});
       const CUmulticastObjectProp p{2, granule, 0, 0};
       CUmemGenericAllocationHandle h = 0;
       return yes == 1 && no == 0 && d(MulticastCreate{}, &h, &p) == CUDA_ERROR_NOT_SUPPORTED;
     }},
    {"cuMulticastCreate", "the size is a multiple of the minimum granularity, flags are 0 (else CUDA_ERROR_INVALID_VALUE)", Source::documented,
     [](Driver& d) {
       CUmemGenericAllocationHandle h = 0;
       const CUmulticastObjectProp odd{2, granule / 2, 0, 0}, flags{2, granule, 0, 1}, good{2, granule, 0, 0};
       return d(MulticastCreate{}, &h, &odd) == CUDA_ERROR_INVALID_VALUE && d(MulticastCreate{}, &h, &flags) == CUDA_ERROR_INVALID_VALUE &&
              d(MulticastCreate{}, &h, &good) == CUDA_SUCCESS;
     }},
    {"cuMulticastCreate", "a team of no devices, or of more than there are, is CUDA_ERROR_INVALID_VALUE", Source::assumed,
     [](Driver& d) { return d.multicast(0, granule) == 0 && d.multicast(3, granule) == 0 && d.multicast(1, granule) != 0; }},
    {"cuMulticastGetGranularity", "the recommended one is a multiple of the minimum, and may be larger than the memory's", Source::assumed,
     [](Driver& d) {
       const CUmulticastObjectProp p{2, granule, 0, 0};
       std::size_t least = 0, good = 0;
       return d(MulticastGetGranularity{}, &least, &p, CU_MULTICAST_GRANULARITY_MINIMUM) == CUDA_SUCCESS &&
              d(MulticastGetGranularity{}, &good, &p, CU_MULTICAST_GRANULARITY_RECOMMENDED) == CUDA_SUCCESS && least == granule && good == 2 * granule;
     }},
    {"cuMulticastAddDevice", "a device twice, or one more than the team has, is CUDA_ERROR_INVALID_VALUE", Source::assumed,
     [](Driver& d) {
       const auto h = d.multicast(2, granule), one = d.multicast(1, granule);
       return d.add(h, 0) == CUDA_SUCCESS && d.add(h, 0) == CUDA_ERROR_INVALID_VALUE && d.add(h, 1) == CUDA_SUCCESS && d.add(one, 0) == CUDA_SUCCESS &&
              d.add(one, 1) == CUDA_ERROR_INVALID_VALUE && d.add(h, 9) == CUDA_ERROR_INVALID_DEVICE;
     }},
    {"cuMulticastBindMem", "it blocks until all devices have been added: here that is found, as nobody else would add them", Source::documented,
     [](Driver& d) {
       const auto h = d.multicast(2, granule), memory = d.create(granule);
       d.add(h, 0);
       const bool blocks = d.bind(h, 0, memory, 0, granule) != CUDA_SUCCESS && d.misuse().find("a bind that blocks until all devices") == 0;
       d.add(h, 1);
       return blocks && d.bind(h, 0, memory, 0, granule) == CUDA_SUCCESS && d.misuse() == "";
     }},
    {"cuMemMap", "of a multicast object it blocks until all devices have been added: found, as above", Source::documented,
     [](Driver& d) {
       const auto h = d.multicast(2, granule);
       const CUdeviceptr p = d.reserve(granule);
       d.add(h, 1);
       const bool blocks = d.map(p, granule, h) != CUDA_SUCCESS && d.misuse().find("a map that blocks until all devices") == 0;
       d.add(h, 0);
       return blocks && d.map(p, granule, h) == CUDA_SUCCESS && d.misuse() == "";
     }},
    {"cuMulticastBindMem", "size and both offsets are multiples of the minimum granularity, and inside the object and the memory", Source::documented,
     [](Driver& d) {
       const auto h = d.team_of_two(2 * granule), memory = d.create(2 * granule);
       const auto refused = [&](std::size_t at, std::size_t offset, std::size_t n) { return d.bind(h, at, memory, offset, n) == CUDA_ERROR_INVALID_VALUE; };
       return refused(0, 0, granule / 2) && refused(granule / 2, 0, granule) && refused(0, granule / 2, granule) && refused(granule, 0, 2 * granule) &&
              refused(0, granule, 2 * granule) && refused(0, 0, 3 * granule) && d.bind(h, granule, memory, granule, granule) == CUDA_SUCCESS;
     }},
    {"cuMulticastBindMem", "the memory was created on a device of the team (else, assumed, CUDA_ERROR_INVALID_DEVICE)", Source::documented,
     [](Driver& d) {
       const auto h = d.multicast(1, granule);
       d.add(h, 1);
       return d.bind(h, 0, d.create_on(0, granule), 0, granule) == CUDA_ERROR_INVALID_DEVICE &&
              d.bind(h, 0, d.create_on(1, granule), 0, granule) == CUDA_SUCCESS;
     }},
    {"cuMulticastBindMem", "an object that can be shared takes only memory that can be (else, assumed, CUDA_ERROR_INVALID_VALUE)", Source::documented,
     [](Driver& d) {
       const auto h = d.team_of_two(granule, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
       const bool refused = d.bind(h, 0, d.create(granule), 0, granule) == CUDA_ERROR_INVALID_VALUE;
       d.props.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
       return refused && d.bind(h, 0, d.create(granule), 0, granule) == CUDA_SUCCESS;
     }},
    {"cuMulticastBindMem", "what is bound to a device at an offset cannot be bound over: CUDA_ERROR_INVALID_VALUE; another device's can", Source::assumed,
     [](Driver& d) {
       const auto h = d.team_of_two(2 * granule);
       return d.bind(h, 0, d.create(2 * granule), 0, 2 * granule) == CUDA_SUCCESS && d.bind(h, granule, d.create(granule), 0, granule) == CUDA_ERROR_INVALID_VALUE &&
              d.bind(h, granule, d.create_on(1, granule), 0, granule) == CUDA_SUCCESS;
     }},
    {"cuMulticastBindMem", "the memory stays when its handle is released, until it is unbound", Source::assumed,
     [](Driver& d) {
       const auto h = d.team_of_two(granule), memory = d.create(granule);
       d.bind(h, 0, memory, 0, granule);
       const bool stays = d(MemRelease{}, memory) == CUDA_SUCCESS && d.cuda.used(0) == static_cast<Bytes>(granule);
       return stays && d.unbind(h, 0, 0, granule) == CUDA_SUCCESS && d.cuda.used(0) == 0;
     }},
    {"cuMulticastBindAddr", "it binds the memory that is mapped at an address; where none is it is CUDA_ERROR_INVALID_VALUE", Source::documented,
     [](Driver& d) {
       const auto h = d.team_of_two(granule);
       const CUdeviceptr p = d.reserve(2 * granule);
       const auto bind = [&](CUdeviceptr at) { return d(MulticastBindAddr{}, h, std::size_t{0}, at, granule, 0ull); };
       d.map(p, 2 * granule, d.create(2 * granule));
       const CUdeviceptr nothing = d.reserve(granule);
       return bind(nothing) == CUDA_ERROR_INVALID_VALUE && bind(p + granule / 2) == CUDA_ERROR_INVALID_VALUE && bind(p + granule) == CUDA_SUCCESS &&
              bind(p + granule) == CUDA_ERROR_INVALID_VALUE;
     }},
    {"cuMulticastUnbind", "offset and size are those of the bind; others are undefined: here found", Source::documented,
     [](Driver& d) {
       const auto h = d.team_of_two(2 * granule), memory = d.create(2 * granule);
       d.bind(h, 0, memory, 0, 2 * granule);
       const bool found = d.unbind(h, 0, 0, granule) == CUDA_ERROR_INVALID_VALUE && d.misuse() != "" && d.unbind(h, 1, 0, 2 * granule) != CUDA_SUCCESS &&
                          d.misuse() != "";
       return found && d.unbind(h, 0, 0, 2 * granule) == CUDA_SUCCESS && d.misuse() == "";
     }},
    {"cuMulticastUnbind", "it does not wait for kernels that use the object", Source::assumed,
     [](Driver& d) {
       const auto h = d.team_of_two(granule);
       for (const int i : {0, 1}) d.bind(h, 0, d.create_on(i, granule), 0, granule);
       const CUdeviceptr p = d.reserve(granule);
       d.map(p, granule, h);
       d.set_access(p, granule);
       d.cuda.multimem_store(d.a, "multimem.st", {reinterpret_cast<std::byte*>(p), 64}, std::byte{1});
       d.cuda.machine.drain();
       const bool done = d.unbind(h, 0, 0, granule) == CUDA_SUCCESS;
       return done && d.cuda.races().find("cuMulticastUnbind") != std::string::npos && d.misuse() == "";
     }},
    {"cuMulticastCreate", "a multimem store reaches the memory of every device (assumed: all have some bound), by a mapping that its device has access to", Source::documented,
     [](Driver& d) {
       const auto h = d.team_of_two(granule);
       const CUdeviceptr p = d.reserve(granule);
       const auto memory = d.create(granule), other = d.create_on(1, granule);
       d.map(p, granule, h);
       d.bind(h, 0, memory, 0, granule);
       const auto store = [&] { d.cuda.multimem_store(d.a, "multimem.st", {reinterpret_cast<std::byte*>(p), 64}, std::byte{7}); };
       store();
       const bool no_access = d.misuse() == "a multimem access by a device that has none; ";
       d.set_access(p, granule);
       store();
       const bool not_all = d.misuse() == "a multimem access where a device has no memory bound; ";
       d.bind(h, 0, other, 0, granule);
       store();
       d(StreamSynchronize{}, d.a);
       const auto first_byte = [&](CUmemGenericAllocationHandle memory_of) {
         const CUdeviceptr q = d.reserve(granule);
         d.map(q, granule, memory_of);
         d.set_access(q, granule);
         return *reinterpret_cast<char*>(q);
       };
       return no_access && not_all && d.misuse() == "" && first_byte(memory) == 7 && first_byte(other) == 7;
     }},
    {"cuMemSetAccess", "of a multicast object it lets multimem instructions in and nothing else (PTX ISA, Multimem Addresses: undefined)",
     Source::documented,
     [](Driver& d) {
       const auto h = d.team_of_two(granule);
       const CUdeviceptr p = d.reserve(granule);
       d.map(p, granule, h);
       const bool set = d.set_access(p, granule) == CUDA_SUCCESS;
       int ends[2];
       if (::pipe(ends) != 0) return false;
       const bool closed = ::write(ends[1], reinterpret_cast<void*>(p), 1) == -1 && errno == EFAULT;
       for (const int end : ends) ::close(end);
       d.cuda.launch(d.a, "st.global", {writes({reinterpret_cast<std::byte*>(p), 1})}, [] {});
       return set && closed && d.misuse() == "a plain access at a multicast address; ";
     }},
    {"cuMemRelease", "a multicast object is released as memory is, mapped or not; here it is found if memory is bound still", Source::assumed,
     [](Driver& d) {
       const auto h = d.team_of_two(granule), mapped = d.team_of_two(granule);
       d.bind(h, 0, d.create(granule), 0, granule);
       const bool found = d(MemRelease{}, h) == CUDA_SUCCESS && d.misuse() != "";
       const CUdeviceptr p = d.reserve(granule);
       d.map(p, granule, mapped);
       return found && d(MemRelease{}, mapped) == CUDA_SUCCESS && d(MemUnmap{}, p, granule) == CUDA_SUCCESS && d.misuse() == "";
     }},
    {"cuMemImportFromShareableHandle", "an imported object is the exporter's: its team fills from all processes", Source::documented,
     [](Driver& d) {
       Driver there;
       const auto h = d.multicast(2, granule, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
       int file = -1;
       d(MemExportToShareableHandle{}, static_cast<void*>(&file), h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ull);
       CUmemGenericAllocationHandle got = 0;
       there(MemImportFromShareableHandle{}, &got, reinterpret_cast<void*>(static_cast<std::intptr_t>(file)), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
       ::close(file);
       const bool added = d.add(h, 0) == CUDA_SUCCESS && there.add(got, 0) == CUDA_ERROR_INVALID_VALUE && there.add(got, 1) == CUDA_SUCCESS;
       d.props.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
       return added && d.bind(h, 0, d.create(granule), 0, granule) == CUDA_SUCCESS && d.misuse() == "";
     }},

    // captures
    {"cuCtxGetCurrent", "the context that was pushed last; NULL where there is none, which is no error", Source::documented,
     [](Driver& d) {
       CUcontext now = nullptr, popped = nullptr;
       const bool one = d(CtxGetCurrent{}, &now) == CUDA_SUCCESS && now == d.context;
       d(CtxPopCurrent{}, &popped);
       return one && d(CtxGetCurrent{}, &now) == CUDA_SUCCESS && now == nullptr;
     }},
    {"cuStreamIsCapturing", "NONE, ACTIVE, and INVALIDATED once an error has spoilt the capture", Source::documented,
     [](Driver& d) {
       CUstreamCaptureStatus before{}, during{}, after{};
       d(StreamIsCapturing{}, d.a, &before);
       d.cuda.begin_capture(d.a, CU_STREAM_CAPTURE_MODE_GLOBAL);
       d(StreamIsCapturing{}, d.a, &during);
       d(StreamQuery{}, d.a);
       d(StreamIsCapturing{}, d.a, &after);
       return before == CU_STREAM_CAPTURE_STATUS_NONE && during == CU_STREAM_CAPTURE_STATUS_ACTIVE &&
              after == CU_STREAM_CAPTURE_STATUS_INVALIDATED && !d.cuda.end_capture(d.a);
     }},
    {"cuThreadExchangeStreamCaptureMode", "it swaps: what was is given back", Source::documented,
     [](Driver& d) {
       CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
       d(ThreadExchangeStreamCaptureMode{}, &mode);
       const bool was_global = mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
       return d(ThreadExchangeStreamCaptureMode{}, &mode) == CUDA_SUCCESS && was_global && mode == CU_STREAM_CAPTURE_MODE_RELAXED;
     }},
    {"cuThreadExchangeStreamCaptureMode", "while a thread captures, cuMemAlloc spoils it there, in the mode RELAXED it does not", Source::documented,
     [](Driver& d) {
       CUdeviceptr p = 0;
       CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
       d.cuda.begin_capture(d.a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
       d(ThreadExchangeStreamCaptureMode{}, &mode);
       const bool allowed = d(MemAlloc{}, &p, std::size_t{1}) == CUDA_SUCCESS && d.cuda.end_capture(d.a);
       d(ThreadExchangeStreamCaptureMode{}, &mode);
       d.cuda.begin_capture(d.a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
       return allowed && d(MemAlloc{}, &p, std::size_t{1}) != CUDA_SUCCESS && !d.cuda.end_capture(d.a);
     }},
    {"cuStreamBeginCapture", "another thread's cuMemAlloc spoils a capture in the mode GLOBAL, not one in THREAD_LOCAL", Source::documented,
     [](Driver& d) {
       const auto spoils = [&](CUstreamCaptureMode mode) {
         CUresult code = CUDA_SUCCESS;
         d.cuda.begin_capture(d.a, mode);
         std::thread([&] {
           CUdeviceptr p = 0;
           CUcontext popped = nullptr;
           d(CtxPushCurrent{}, d.context);
           code = d(MemAlloc{}, &p, std::size_t{1});
           d(CtxPopCurrent{}, &popped);
         }).join();
         return !d.cuda.end_capture(d.a) && code != CUDA_SUCCESS;
       };
       return spoils(CU_STREAM_CAPTURE_MODE_GLOBAL) && !spoils(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
     }},
    {"cuEventQuery", "it counts as unsafe too, though cuda.h names only cudaMalloc (pytorch/pytorch pull request 104555)", Source::reported,
     [](Driver& d) {
       d.cuda.begin_capture(d.a, CU_STREAM_CAPTURE_MODE_GLOBAL);
       return d(EventQuery{}, d.event) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && !d.cuda.end_capture(d.a);
     }},
    {"cuEventQuery", "of an event recorded inside a capture it is refused in every mode", Source::documented,
     [](Driver& d) {
       CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
       d.cuda.begin_capture(d.a, CU_STREAM_CAPTURE_MODE_RELAXED);
       d(EventRecord{}, d.event, d.a);
       d(ThreadExchangeStreamCaptureMode{}, &mode);
       const bool refused = d(EventQuery{}, d.event) == CUDA_ERROR_CAPTURED_EVENT;
       d(ThreadExchangeStreamCaptureMode{}, &mode);
       return refused && !d.cuda.end_capture(d.a);
     }},
    {"CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "a captured stream may not wait for work outside of the capture", Source::documented,
     [](Driver& d) {
       d(EventRecord{}, d.event, d.b);
       d.cuda.begin_capture(d.a, CU_STREAM_CAPTURE_MODE_RELAXED);
       return d(StreamWaitEvent{}, d.a, d.event, 0u) == CUDA_ERROR_STREAM_CAPTURE_ISOLATION && !d.cuda.end_capture(d.a);
     }},
    {"cuCtxSynchronize", "while one of the context's streams is captured it is refused, and spoils that (CUDA programming guide, stream capture)",
     Source::documented,
     [](Driver& d) {
       CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
       d.cuda.begin_capture(d.a, CU_STREAM_CAPTURE_MODE_RELAXED);
       d(ThreadExchangeStreamCaptureMode{}, &mode);
       const bool refused = d(CtxSynchronize{}) != CUDA_SUCCESS;
       d(ThreadExchangeStreamCaptureMode{}, &mode);
       return refused && !d.cuda.end_capture(d.a);
     }},
};

}  // namespace

TEST_CASE("cuda rules: the double does what the documentation says, a line a rule, and each call has a part in one") {
  std::set<std::string> called;
  for (const Rule& rule : rules) {
    CAPTURE(std::string(rule.api));
    CAPTURE(std::string(rule.rule));
    CAPTURE(std::string(rule.source == Source::documented ? "documented" : rule.source == Source::reported ? "reported" : "assumed, not verified"));
    Driver d;
    CHECK(rule.holds(d));
    called.insert(d.cuda.log.begin(), d.cuda.log.end());
  }
  cuda_call_names([&](const char* name) {
    if (called.count(name) == 0) FAIL_CHECK(name);
  });
}
