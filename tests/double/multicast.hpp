// SPDX-License-Identifier: Apache-2.0
// Multicast objects as cuda.h describes them: a team of devices, and memory of each that is bound at the same offset. Only
// multimem instructions are valid at an address where one is mapped (PTX ISA, Multimem Addresses), so its pages are closed
// to all else; what they store reaches the memory of all devices.
#pragma once

#include <cuda.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "double/virtual_memory.hpp"
#include "holdfast/backend/simulated/watch.hpp"

namespace holdfast::testing {

/// An open file of its own.
struct OwnFile {
  explicit OwnFile(int file) : fd(::fcntl(file, F_DUPFD_CLOEXEC, 0)) {}
  OwnFile(OwnFile&&) = delete;
  ~OwnFile() { ::close(fd); }
  const int fd;
};

/// What all processes share that have a handle to one object.
struct MulticastObject {
  struct Bound {
    int device;
    std::size_t at, size, memory_offset;
    CUmemGenericAllocationHandle memory;  // of its process
    const VirtualMemory* process;
    std::shared_ptr<OwnFile> file;
    bool covers(std::size_t offset, std::size_t n) const { return at <= offset && offset + n <= at + size; }
  };
  unsigned devices;
  std::size_t size;
  bool shared;
  std::vector<int> team;
  std::vector<Bound> bound;
  bool complete() const { return team.size() == devices; }
};

/// One process's calls on such objects. What the documentation calls blocking or undefined is `misuse`.
class MulticastCalls {
 public:
  using Handle = CUmemGenericAllocationHandle;
  explicit MulticastCalls(VirtualMemory& memory) : memory_(memory) {}

  std::size_t granularity(CUmulticastGranularity_flags which) const {
    return which == CU_MULTICAST_GRANULARITY_MINIMUM ? memory_.granularity() : 2 * memory_.granularity();
  }
  CUresult create(Handle* out, const CUmulticastObjectProp& props, int devices) {
    if (props.numDevices == 0 || props.numDevices > static_cast<unsigned>(devices) || props.flags != 0 || !whole(props.size) || props.size == 0)
      return CUDA_ERROR_INVALID_VALUE;
    const bool shared = props.handleTypes != 0;
    auto made = std::make_shared<MulticastObject>(MulticastObject{props.numDevices, props.size, shared, {}, {}});
    const bool by_file = (props.handleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
    const bool by_fabric = (props.handleTypes & CU_MEM_HANDLE_TYPE_FABRIC) != 0;
    return memory_.create(out, props.size, VirtualMemory::no_device, by_file, by_fabric, std::move(made));
  }
  CUresult add_device(Handle handle, int device) {
    MulticastObject* const o = find(handle);
    if (o == nullptr || o->complete() || std::count(o->team.begin(), o->team.end(), device) != 0) return CUDA_ERROR_INVALID_VALUE;
    return o->team.push_back(device), CUDA_SUCCESS;
  }
  CUresult bind(Handle handle, std::size_t at, Handle memory, std::size_t memory_offset, std::size_t size) {
    MulticastObject* const o = find(handle);
    VirtualMemory::Physical* const p = memory_.live(memory);
    if (o == nullptr || p == nullptr || p->multicast != nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!complete(*o, "a bind")) return CUDA_ERROR_TIMEOUT;
    if (size == 0 || !whole(size) || !whole(at) || !whole(memory_offset) || !inside(at, size, o->size) || !inside(memory_offset, size, p->size))
      return CUDA_ERROR_INVALID_VALUE;
    if (std::count(o->team.begin(), o->team.end(), p->device) == 0) return CUDA_ERROR_INVALID_DEVICE;
    if (o->shared && !p->by_file && !p->by_fabric) return CUDA_ERROR_INVALID_VALUE;
    for (const auto& b : o->bound)
      if (b.device == p->device && at < b.at + b.size && b.at < at + size) return CUDA_ERROR_INVALID_VALUE;
    o->bound.push_back({p->device, at, size, memory_offset, memory, &memory_, std::make_shared<OwnFile>(p->fd)});
    memory_.retain(memory);
    return CUDA_SUCCESS;
  }
  CUresult bind_address(Handle handle, std::size_t at, CUdeviceptr p, std::size_t size) {
    CUdeviceptr start = 0;
    const VirtualMemory::Mapping* const m = memory_.mapping_at(p, &start);
    return m != nullptr ? bind(handle, at, m->handle, p - start, size) : CUDA_ERROR_INVALID_VALUE;
  }
  /// `written(range)` of every place where what loses its memory is mapped.
  template <class F>
  CUresult unbind(Handle handle, int device, std::size_t at, std::size_t size, F written) {
    MulticastObject* const o = find(handle);
    if (o == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto b = std::find_if(o->bound.begin(), o->bound.end(), [&](const auto& x) {
      return x.process == &memory_ && x.device == device && x.at == at && x.size == size;
    });
    if (b == o->bound.end()) return misuse += "an unbind of what was not bound so; ", CUDA_ERROR_INVALID_VALUE;
    memory_.each_mapping(handle, [&](CUdeviceptr p, const auto&) { written(block(p + at, size)); });
    const Handle memory = b->memory;
    o->bound.erase(b);
    memory_.let_go(memory);
    return CUDA_SUCCESS;
  }
  bool may_map(Handle handle) {
    MulticastObject* const o = find(handle);
    return o == nullptr || complete(*o, "a map");
  }
  /// Before a handle goes.
  void released(Handle handle) {
    MulticastObject* const o = find(handle);
    if (o == nullptr || memory_.live(handle)->references != 1) return;
    for (std::size_t i = o->bound.size(); i-- > 0;) {
      const auto b = o->bound[i];
      if (b.process != &memory_) continue;
      misuse += "a multicast object released with memory bound to it; ";
      o->bound.erase(o->bound.begin() + static_cast<std::ptrdiff_t>(i));
      memory_.let_go(b.memory);
    }
  }

  /// What a multimem instruction at an address reaches: the memory of each device of the team, and where that can be seen.
  struct Reached {
    struct Place {
      std::shared_ptr<OwnFile> file;
      std::size_t offset;
    };
    std::vector<Place> places;
    std::vector<MemoryTouch> touches;
  };
  Reached reach(int device, Block at, Touch touch) {
    Reached out;
    CUdeviceptr start = 0;
    const auto p = reinterpret_cast<CUdeviceptr>(at.data);
    const auto size = static_cast<std::size_t>(at.size);
    const VirtualMemory::Mapping* const m = memory_.mapping_at(p, &start);
    MulticastObject* const o = m != nullptr ? memory_.object(m->handle) : nullptr;
    if (o == nullptr || p - start + size > m->size) return misuse += "a multimem access of what is no multicast address; ", out;
    if (std::count(m->devices.begin(), m->devices.end(), device) == 0) return misuse += "a multimem access by a device that has none; ", out;
    out.touches.push_back({at, touch});
    const std::size_t offset = p - start;
    for (const auto& b : o->bound) {
      if (!b.covers(offset, size)) continue;
      const std::size_t in_memory = offset - b.at + b.memory_offset;
      out.places.push_back({b.file, in_memory});
      if (b.process == &memory_)
        memory_.each_mapping(b.memory, [&](CUdeviceptr q, const VirtualMemory::Mapping& mapped) {
          if (in_memory + size <= mapped.size) out.touches.push_back({block(q + in_memory, size), touch});
        });
    }
    if (out.places.size() != o->devices) misuse += "a multimem access where a device has no memory bound; ", out.places.clear();
    return out;
  }

  std::string misuse;

 private:
  static Block block(CUdeviceptr p, std::size_t size) { return {reinterpret_cast<std::byte*>(p), static_cast<Bytes>(size)}; }
  static bool inside(std::size_t at, std::size_t size, std::size_t all) { return at <= all && size <= all - at; }
  bool whole(std::size_t n) const { return n % memory_.granularity() == 0; }
  MulticastObject* find(Handle handle) {
    VirtualMemory::Physical* const p = memory_.live(handle);
    return p != nullptr ? p->multicast.get() : nullptr;
  }
  // The driver waits for the devices that others add; where nobody will it would wait for ever.
  bool complete(const MulticastObject& o, const char* what) {
    if (!o.complete()) misuse += std::string(what) + " that blocks until all devices were added to a multicast object; ";
    return o.complete();
  }

  VirtualMemory& memory_;
};

}  // namespace holdfast::testing
