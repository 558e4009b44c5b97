// SPDX-License-Identifier: Apache-2.0
// Reservations, physical memory and mappings as cuda.h describes them, on real pages: bytes are where they are mapped, and
// a touch without access faults.
#pragma once

#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <map>

namespace holdfast::testing {

class VirtualMemory {
 public:
  static constexpr std::size_t page = 4096;
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
  CUresult create(CUmemGenericAllocationHandle* out, std::size_t size, int device, bool shared) {
    if (size == 0 || size % granularity_ != 0) return CUDA_ERROR_INVALID_VALUE;
    const int fd = ::memfd_create("device memory", MFD_CLOEXEC);
    if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(size)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
    physical_[++last_] = {size, device, fd, 0, 1, shared};
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
    if (p == physical_.end() || p->second.references == 0 || !p->second.shared) return CUDA_ERROR_INVALID_VALUE;
    *out = ::fcntl(p->second.fd, F_DUPFD_CLOEXEC, 0);
    return *out >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUresult import_file(CUmemGenericAllocationHandle* out, int file) {
    struct stat about {};
    if (::fcntl(file, F_GET_SEALS) < 0 || ::fstat(file, &about) != 0 || about.st_size == 0) return CUDA_ERROR_INVALID_VALUE;
    const int fd = ::fcntl(file, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    physical_[++last_] = {static_cast<std::size_t>(about.st_size), -1, fd, 0, 1, false};
    *out = last_;
    return CUDA_SUCCESS;
  }
  CUresult map(CUdeviceptr at, std::size_t size, std::size_t offset, CUmemGenericAllocationHandle handle) {
    const auto p = physical_.find(handle);
    if (p == physical_.end() || p->second.references == 0 || offset != 0 || size == 0 || size % granularity_ != 0 || at % granularity_ != 0 ||
        size > p->second.size || !inside_reservation(at, size) || mapped_in(at, size))
      return CUDA_ERROR_INVALID_VALUE;
    if (::mmap(pointer(at), size, PROT_NONE, MAP_SHARED | MAP_FIXED, p->second.fd, 0) == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    mapped_[at] = {size, handle, false, ++last_};
    ++p->second.mappings;
    return CUDA_SUCCESS;
  }
  CUresult unmap(CUdeviceptr at, std::size_t size) {
    if (!exactly_mapped(at, size)) return CUDA_ERROR_INVALID_VALUE;
    for (auto m = mapped_.find(at); m != mapped_.end() && m->first < at + size; m = mapped_.erase(m)) {
      const auto p = physical_.find(m->second.handle);
      --p->second.mappings;
      drop(p);
    }
    ::mmap(pointer(at), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return CUDA_SUCCESS;
  }
  CUresult set_access(CUdeviceptr at, std::size_t size, bool readable, bool writable) {
    if (!exactly_mapped(at, size)) return CUDA_ERROR_INVALID_VALUE;
    ::mprotect(pointer(at), size, (readable ? PROT_READ : 0) | (writable ? PROT_WRITE : 0));
    for (auto m = mapped_.find(at); m != mapped_.end() && m->first < at + size; ++m) m->second.accessible = readable;
    return CUDA_SUCCESS;
  }
  /// The mapping that an address lies in; false: none.
  struct Found {
    CUdeviceptr base;
    std::size_t size;
    CUmemGenericAllocationHandle handle;
    unsigned long long id;
    bool shared;
  };
  bool find(CUdeviceptr p, Found& out) const {
    auto m = mapped_.upper_bound(p);
    if (m == mapped_.begin() || (--m, p - m->first >= m->second.size)) return false;
    out = {m->first, m->second.size, m->second.handle, m->second.id, physical_.at(m->second.handle).shared};
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
    out->requestedHandleTypes = p->second.shared ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
    return CUDA_SUCCESS;
  }
  /// A range is mapped and accessible without a gap.
  bool backed(CUdeviceptr at, std::size_t size) const {
    Found f{};
    for (const CUdeviceptr end = at + size; at < end; at = f.base + f.size)
      if (!find(at, f) || !mapped_.at(f.base).accessible) return false;
    return true;
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
  std::size_t granularity() const { return granularity_; }

 private:
  struct Physical {
    std::size_t size;
    int device, fd, mappings, references;  // device -1: another process's memory
    bool shared;
  };
  struct Mapping {
    std::size_t size;
    CUmemGenericAllocationHandle handle;
    bool accessible;
    unsigned long long id;  // of this and no other mapping
  };
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
