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
    physical_[++last_] = {size, device, fd, 0, false, shared};
    *out = last_;
    return CUDA_SUCCESS;
  }
  CUresult release(CUmemGenericAllocationHandle handle) {
    const auto p = physical_.find(handle);
    if (p == physical_.end() || p->second.released) return CUDA_ERROR_INVALID_VALUE;
    p->second.released = true;
    drop(p);
    return CUDA_SUCCESS;
  }
  CUresult export_file(int* out, CUmemGenericAllocationHandle handle) {
    const auto p = physical_.find(handle);
    if (p == physical_.end() || p->second.released || !p->second.shared) return CUDA_ERROR_INVALID_VALUE;
    *out = ::fcntl(p->second.fd, F_DUPFD_CLOEXEC, 0);
    return *out >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUresult import_file(CUmemGenericAllocationHandle* out, int file) {
    struct stat about {};
    if (::fcntl(file, F_GET_SEALS) < 0 || ::fstat(file, &about) != 0 || about.st_size == 0) return CUDA_ERROR_INVALID_VALUE;
    const int fd = ::fcntl(file, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    physical_[++last_] = {static_cast<std::size_t>(about.st_size), -1, fd, 0, false, false};
    *out = last_;
    return CUDA_SUCCESS;
  }
  CUresult map(CUdeviceptr at, std::size_t size, std::size_t offset, CUmemGenericAllocationHandle handle) {
    const auto p = physical_.find(handle);
    if (p == physical_.end() || p->second.released || offset != 0 || size == 0 || size % granularity_ != 0 || at % granularity_ != 0 ||
        size > p->second.size || !inside_reservation(at, size) || mapped_in(at, size))
      return CUDA_ERROR_INVALID_VALUE;
    if (::mmap(pointer(at), size, PROT_NONE, MAP_SHARED | MAP_FIXED, p->second.fd, 0) == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    mapped_[at] = {size, handle, false};
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
    int device, fd, mappings;  // device -1: another process's memory
    bool released, shared;
  };
  struct Mapping {
    std::size_t size;
    CUmemGenericAllocationHandle handle;
    bool accessible;
  };
  static void* pointer(CUdeviceptr at) { return reinterpret_cast<void*>(at); }
  void drop(std::map<CUmemGenericAllocationHandle, Physical>::iterator p) {
    if (!p->second.released || p->second.mappings != 0) return;
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
