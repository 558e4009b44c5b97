// SPDX-License-Identifier: Apache-2.0
// Reservations, physical memory and mappings as cuda.h describes them, on real pages: bytes are where they are mapped, and
// a touch without access faults.
#pragma once

#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace holdfast::testing {

struct MulticastObject;  // double/multicast.hpp

class VirtualMemory {
 public:
  static constexpr std::size_t page = 4096;
  static constexpr int no_device = -1;  // another process's memory, and a multicast object
  struct Physical {
    std::size_t size;
    int device, fd, mappings, references;
    bool by_file, by_fabric;
    std::shared_ptr<MulticastObject> multicast;  // null: memory
  };
  struct Mapping {
    std::size_t size;
    CUmemGenericAllocationHandle handle;
    bool accessible;
    unsigned long long id;  // of this and no other mapping
    std::vector<int> devices;
  };
  explicit VirtualMemory(std::size_t granularity) : granularity_(granularity) {}
  ~VirtualMemory() {
    for (auto& [at, size] : reserved_) ::munmap(pointer(at), size);
    for (auto& [handle, p] : physical_) ::close(p.fd);
  }

  CUresult reserve(CUdeviceptr* out, std::size_t size, std::size_t alignment) {
    if (size == 0 || size % page != 0 || (alignment & (alignment - 1)) != 0) return CUDA_ERROR_INVALID_VALUE;
    const std::size_t align = alignment > granularity_ ? alignment : granularity_;
    if (size > (std::size_t{1} << 46)) return CUDA_ERROR_OUT_OF_MEMORY;
    void* const got = ::mmap(nullptr, size + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (got == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    const auto start = reinterpret_cast<std::uintptr_t>(got), at = (start + align - 1) & ~(align - 1);
    if (at != start) ::munmap(got, at - start);
    if (at + size != start + size + align) ::munmap(pointer(at + size), start + align - at);
    reserved_[at] = size;
    *out = at;
    return CUDA_SUCCESS;
  }
  CUresult free(CUdeviceptr at, std::size_t size) {
    const auto r = reserved_.find(at);
    if (r == reserved_.end() || r->second != size || mapped_in(at, size)) return CUDA_ERROR_INVALID_VALUE;
    ::munmap(pointer(at), size);
    reserved_.erase(r);
    return CUDA_SUCCESS;
  }
  CUresult create(CUmemGenericAllocationHandle* out, std::size_t size, int device, bool by_file, bool by_fabric,
                  std::shared_ptr<MulticastObject> multicast = nullptr) {
    if (size == 0 || size % granularity_ != 0) return CUDA_ERROR_INVALID_VALUE;
    const int fd = ::memfd_create("device memory", MFD_CLOEXEC);
    if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(size)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
    if (multicast != nullptr && (by_file || by_fabric)) multicasts()[inode(fd)] = multicast;
    physical_[++last_] = {size, device, fd, 0, 1, by_file, by_fabric, std::move(multicast)};
    *out = last_;
    return CUDA_SUCCESS;
  }
  CUresult release(CUmemGenericAllocationHandle handle) {
    const auto p = physical_.find(handle);
    if (p == physical_.end() || p->second.references == 0) return CUDA_ERROR_INVALID_VALUE;
    --p->second.references;
    drop(p);
    return CUDA_SUCCESS;
  }
  CUresult export_file(int* out, CUmemGenericAllocationHandle handle) {
    const auto p = physical_.find(handle);
    if (p == physical_.end() || p->second.references == 0 || !p->second.by_file) return CUDA_ERROR_INVALID_VALUE;
    *out = ::fcntl(p->second.fd, F_DUPFD, 0);
    return *out >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUresult import_file(CUmemGenericAllocationHandle* out, int file) {
    struct stat about {};
    if (::fcntl(file, F_GET_SEALS) < 0 || ::fstat(file, &about) != 0 || about.st_size == 0) return CUDA_ERROR_INVALID_VALUE;
    const int fd = ::fcntl(file, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    const auto m = multicasts().find(about.st_ino);
    physical_[++last_] = {static_cast<std::size_t>(about.st_size), no_device, fd, 0, 1, false, false,
                          m != multicasts().end() ? m->second.lock() : nullptr};
    *out = last_;
    return CUDA_SUCCESS;
  }
  /// A fabric handle names the process and the file in it, so that processes of any host of the fabric find it; a process
  /// of the same user here stands for one elsewhere.
  CUresult export_fabric(CUmemFabricHandle* out, CUmemGenericAllocationHandle handle) {
    const auto p = physical_.find(handle);
    if (p == physical_.end() || p->second.references == 0 || !p->second.by_fabric) return CUDA_ERROR_INVALID_VALUE;
    const FabricName name{fabric_mark, static_cast<std::uint64_t>(::getpid()), static_cast<std::uint64_t>(p->second.fd), inode(p->second.fd)};
    *out = {};
    std::memcpy(out->data, &name, sizeof name);
    return CUDA_SUCCESS;
  }
  CUresult import_fabric(CUmemGenericAllocationHandle* out, const CUmemFabricHandle& handle) {
    FabricName name;
    std::memcpy(&name, handle.data, sizeof name);
    if (name.mark != fabric_mark) return CUDA_ERROR_INVALID_VALUE;
    const std::string path = "/proc/" + std::to_string(name.process) + "/fd/" + std::to_string(name.fd);
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    const CUresult code = fd >= 0 && inode(fd) == name.inode ? import_file(out, fd) : CUDA_ERROR_INVALID_VALUE;
    if (fd >= 0) ::close(fd);
    return code;
  }
  CUresult map(CUdeviceptr at, std::size_t size, std::size_t offset, CUmemGenericAllocationHandle handle) {
    const auto p = physical_.find(handle);
    if (p == physical_.end() || p->second.references == 0 || offset != 0 || size == 0 || size % granularity_ != 0 || at % granularity_ != 0 ||
        size > p->second.size || !inside_reservation(at, size) || mapped_in(at, size))
      return CUDA_ERROR_INVALID_VALUE;
    if (::mmap(pointer(at), size, PROT_NONE, MAP_SHARED | MAP_FIXED, p->second.fd, 0) == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    mapped_[at] = {size, handle, false, ++last_, {}};
    ++p->second.mappings;
    return CUDA_SUCCESS;
  }
  CUresult unmap(CUdeviceptr at, std::size_t size) {
    if (!exactly_mapped(at, size)) return CUDA_ERROR_INVALID_VALUE;
    for (auto m = mapped_.find(at); m != mapped_.end() && m->first < at + size; m = mapped_.erase(m)) let_go(m->second.handle);
    ::mmap(pointer(at), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return CUDA_SUCCESS;
  }
  /// A multicast object has no bytes of its own: its pages stay closed to all but multimem instructions.
  CUresult set_access(CUdeviceptr at, std::size_t size, int device, bool readable, bool writable) {
    if (!exactly_mapped(at, size)) return CUDA_ERROR_INVALID_VALUE;
    for (auto m = mapped_.find(at); m != mapped_.end() && m->first < at + size; ++m) {
      if (object(m->second.handle) == nullptr)
        ::mprotect(pointer(m->first), m->second.size, (readable ? PROT_READ : 0) | (writable ? PROT_WRITE : 0));
      m->second.accessible = readable;
      std::erase(m->second.devices, device);
      if (readable) m->second.devices.push_back(device);
    }
    return CUDA_SUCCESS;
  }
  /// The mapping that an address lies in; false: none.
  struct Found {
    CUdeviceptr base;
    std::size_t size;
    CUmemGenericAllocationHandle handle;
    unsigned long long id;
    bool shared;
    int device;
  };
  bool find(CUdeviceptr p, Found& out) const {
    auto m = mapped_.upper_bound(p);
    if (m == mapped_.begin() || (--m, p - m->first >= m->second.size)) return false;
    const Physical& memory = physical_.at(m->second.handle);
    out = {m->first, m->second.size, m->second.handle, m->second.id, memory.by_file, memory.device};
    return true;
  }
  CUresult retain(CUmemGenericAllocationHandle* out, CUdeviceptr p) {
    Found found{};
    if (!find(p, found)) return CUDA_ERROR_INVALID_VALUE;
    ++physical_.at(found.handle).references;
    return *out = found.handle, CUDA_SUCCESS;
  }
  CUresult properties(CUmemAllocationProp* out, CUmemGenericAllocationHandle handle) const {
    const auto p = physical_.find(handle);
    if (p == physical_.end() || p->second.references == 0) return CUDA_ERROR_INVALID_VALUE;
    *out = {};
    out->type = CU_MEM_ALLOCATION_TYPE_PINNED;
    out->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    out->location.id = p->second.device;
    out->requestedHandleTypes = static_cast<CUmemAllocationHandleType>((p->second.by_file ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0) |
                                                                       (p->second.by_fabric ? CU_MEM_HANDLE_TYPE_FABRIC : 0));
    return CUDA_SUCCESS;
  }
  /// A range is mapped and accessible without a gap.
  bool backed(CUdeviceptr at, std::size_t size) const {
    Found f{};
    for (const CUdeviceptr end = at + size; at < end; at = f.base + f.size)
      if (!find(at, f) || !mapped_.at(f.base).accessible) return false;
    return true;
  }

  // --- for multicast objects ---
  Physical* live(CUmemGenericAllocationHandle handle) {
    const auto p = physical_.find(handle);
    return p != physical_.end() && p->second.references != 0 ? &p->second : nullptr;
  }
  /// The object that a handle stands for, released or not; null for memory.
  MulticastObject* object(CUmemGenericAllocationHandle handle) { return physical_.at(handle).multicast.get(); }
  const Mapping* mapping_at(CUdeviceptr p, CUdeviceptr* start) const {
    auto m = mapped_.upper_bound(p);
    if (m == mapped_.begin() || (--m, p - m->first >= m->second.size)) return nullptr;
    return *start = m->first, &m->second;
  }
  template <class F>
  void each_mapping(CUmemGenericAllocationHandle handle, F f) const {
    for (const auto& [at, m] : mapped_)
      if (m.handle == handle) f(at, m);
  }
  /// Keeps memory as a mapping does.
  void retain(CUmemGenericAllocationHandle handle) { ++physical_.at(handle).mappings; }
  void let_go(CUmemGenericAllocationHandle handle) {
    const auto p = physical_.find(handle);
    --p->second.mappings;
    drop(p);
  }

  /// Physical bytes of a device, mapped or not.
  std::size_t physical(int device) const {
    std::size_t sum = 0;
    for (auto& [handle, p] : physical_) sum += p.device == device ? p.size : 0;
    return sum;
  }
  std::size_t reservations() const { return reserved_.size(); }
  std::size_t mappings() const { return mapped_.size(); }
  std::size_t allocations() const { return physical_.size(); }
  std::size_t multicast_objects() const {
    std::size_t n = 0;
    for (auto& [handle, p] : physical_) n += p.multicast != nullptr ? 1 : 0;
    return n;
  }
  std::size_t granularity() const { return granularity_; }

 private:
  struct FabricName {
    std::uint64_t mark = 0, process = 0, fd = 0, inode = 0;
  };
  static constexpr std::uint64_t fabric_mark = 0x6361'6272'6966;
  // The objects that processes of this program have shared, by their files.
  static std::map<ino_t, std::weak_ptr<MulticastObject>>& multicasts() {
    static std::map<ino_t, std::weak_ptr<MulticastObject>> all;
    return all;
  }
  static ino_t inode(int fd) {
    struct stat about {};
    return ::fstat(fd, &about) == 0 ? about.st_ino : 0;
  }
  static void* pointer(CUdeviceptr at) { return reinterpret_cast<void*>(at); }
  void drop(std::map<CUmemGenericAllocationHandle, Physical>::iterator p) {
    if (p->second.references != 0 || p->second.mappings != 0) return;
    ::close(p->second.fd);
    physical_.erase(p);
  }
  bool inside_reservation(CUdeviceptr at, std::size_t size) const {
    auto r = reserved_.upper_bound(at);
    return r != reserved_.begin() && (--r, at - r->first + size <= r->second);
  }
  bool mapped_in(CUdeviceptr at, std::size_t size) const {
    auto m = mapped_.upper_bound(at + size - 1);
    return m != mapped_.begin() && (--m, m->first + m->second.size > at);
  }
  // The range is one or more whole mappings without a gap.
  bool exactly_mapped(CUdeviceptr at, std::size_t size) const {
    CUdeviceptr end = at;
    for (auto m = mapped_.find(at); m != mapped_.end() && m->first == end && end < at + size; ++m) end += m->second.size;
    return size != 0 && end == at + size;
  }

  const std::size_t granularity_;
  std::map<CUdeviceptr, std::size_t> reserved_;
  std::map<CUdeviceptr, Mapping> mapped_;
  std::map<CUmemGenericAllocationHandle, Physical> physical_;
  CUmemGenericAllocationHandle last_ = 0x1000;
};

}  // namespace holdfast::testing
