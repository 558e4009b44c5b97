// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "holdfast/backend/cuda/context.hpp"
#include "holdfast/backend/cuda/detail/cuda_mapping.hpp"
#include "holdfast/backend/cuda/shared_fabric.hpp"
#include "holdfast/backend/cuda/shared_file.hpp"
#include "holdfast/core/owned.hpp"
#include "holdfast/core/share_blob.hpp"

namespace holdfast {

/// How a multicast object is made.
struct CudaMulticastOptions {
  std::size_t devices = 0;    ///< of the whole team, those of other processes included; 0: those that are given
  bool file_handles = false;  ///< other processes of this host can join
  bool fabric = false;        ///< those of other hosts of the fabric too; where the driver refuses that, file handles alone
};

/// A multicast object and the devices of this process that are in its team: what memory can be bound to, later.
///
/// Devices are only added here and memory is bound only by `BasicCudaMulticast`, which takes a team: never the other way about.
/// Threads: as a value. The contexts must outlive it.
template <cuda_driver Driver>
class BasicCudaMulticastTeam {
 public:
  using context_type = BasicCudaContext<Driver>;
  using contexts_type = std::span<const context_type* const>;

  constexpr BasicCudaMulticastTeam() noexcept = default;

  /// Makes an object for memory of so many bytes on each device, rounded up to what the driver recommends.
  ///
  /// Errors: unsupported (a device or the driver has no multicast), invalid_argument (no devices, one twice, more than the
  /// team has, sizes), the driver's own; out_of_memory. Then nothing stays.
  [[nodiscard]] static Result<BasicCudaMulticastTeam> make(contexts_type contexts, Bytes size, const CudaMulticastOptions& options = {}) noexcept {
    return make(contexts, size, options, CU_MULTICAST_GRANULARITY_RECOMMENDED);
  }
  /// Joins the team of another process with devices of this one, by a file and its blob; see `check_share`. The file stays
  /// the caller's. Errors: those of `check_share`; corrupt (another kind, a size that no object has), as `make`.
  [[nodiscard]] static Result<BasicCudaMulticastTeam> open(contexts_type contexts, int file, const ShareBlob& blob, const ShareIdentity& self,
                                                           std::uint64_t generation) noexcept {
    return open(contexts, reinterpret_cast<void*>(static_cast<std::intptr_t>(file)), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                ShareKind::multicast_file, blob, self, generation);
  }
  /// The same by a blob with a fabric handle, from any host of the fabric.
  [[nodiscard]] static Result<BasicCudaMulticastTeam> open(contexts_type contexts, const ShareBlob& blob, const ShareIdentity& self,
                                                           std::uint64_t generation) noexcept {
    CUmemFabricHandle native = detail::cuda_fabric_handle(blob);
    return open(contexts, &native, CU_MEM_HANDLE_TYPE_FABRIC, ShareKind::multicast_fabric, blob, self, generation);
  }

  /// Makes a file that stands for the object, for another process of this host. Errors: unsupported (made without), the driver's.
  [[nodiscard]] Result<CudaSharedFile> share(const ShareIdentity& self) const noexcept {
    if ((object_->shared_by & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0)
      return make_error(Errc::unsupported, "the multicast object was not made to be shared by a file");
    Result<OwnedFile> file = detail::cuda_export_file(*object_->states[0], object_->handle);
    if (!file.ok()) return file.error();
    return CudaSharedFile(std::move(*file), described(ShareKind::multicast_file, self));
  }
  /// Names it for another process of any host of the fabric. Errors: unsupported (made without, or the driver permitted none
  /// then), the driver's own.
  [[nodiscard]] Result<ShareBlob> share_fabric(const ShareIdentity& self) const noexcept {
    if ((object_->shared_by & CU_MEM_HANDLE_TYPE_FABRIC) == 0)
      return make_error(Errc::unsupported, "the multicast object has no fabric handle: none was asked for, or the driver permits none");
    ShareBlob blob = described(ShareKind::multicast_fabric, self);
    if (Error e = detail::cuda_export_fabric(*object_->states[0], object_->handle, blob.handle); !e.ok()) return e;
    return blob;
  }

  /// Bytes of each device's memory.
  [[nodiscard]] Bytes size() const noexcept { return object_->size; }
  /// Devices of this process.
  [[nodiscard]] std::size_t count() const noexcept { return object_->count; }

  // For what binds memory.
  using State = detail::CudaState<Driver>;
  [[nodiscard]] State& state(std::size_t i) const noexcept { return *object_->states[i]; }
  [[nodiscard]] detail::CudaHandle native() const noexcept { return object_->handle; }
  [[nodiscard]] Bytes granule() const noexcept { return object_->granule; }
  [[nodiscard]] unsigned shared_by() const noexcept { return object_->shared_by; }
  [[nodiscard]] static Result<BasicCudaMulticastTeam> make(contexts_type contexts, Bytes size, const CudaMulticastOptions& options,
                                                           CUmulticastGranularity_flags rounded) noexcept {
    const std::size_t devices = options.devices == 0 ? contexts.size() : options.devices;
    if (devices < contexts.size() || devices > 0xFFFF'FFFF) return make_error(Errc::invalid_argument, "a multicast object's team has no such number of devices");
    BasicCudaMulticastTeam made{};
    if (Error e = made.take(contexts, size); !e.ok()) return e;
    CUmulticastObjectProp props{};
    props.numDevices = static_cast<unsigned>(devices);
    made.object_->shared_by = detail::cuda_handle_types(options.file_handles, options.fabric);
    if (Error e = made.measure(props, size, rounded); !e.ok()) return e;
    if (!checked_align_up(size, made.object_->granule, made.object_->size))
      return detail::cuda_bad_request(size, Errc::out_of_memory, "no memory is that large");
    props.size = static_cast<std::size_t>(made.object_->size);
    Error e = detail::cuda_with_handles(made.object_->shared_by, [&](unsigned asked) noexcept {
      props.handleTypes = asked;
      return made.object_->states[0]->call(cuda_call::MulticastCreate{}, &made.object_->handle, &props);
    });
    if (e.ok()) e = made.join();
    if (!e.ok()) return e;
    return made;
  }

 private:
  [[nodiscard]] static Result<BasicCudaMulticastTeam> open(contexts_type contexts, void* native, CUmemAllocationHandleType type, ShareKind kind,
                                                           const ShareBlob& blob, const ShareIdentity& self, std::uint64_t generation) noexcept {
    if (Error e = check_share(blob, self, generation); !e.ok()) return e;
    if (blob.kind != kind) return make_error(Errc::corrupt, "the shared memory is of another kind");
    BasicCudaMulticastTeam made{};
    if (Error e = made.take(contexts, blob.whole); !e.ok()) return e;
    CUmulticastObjectProp props{};
    props.numDevices = static_cast<unsigned>(contexts.size());  // those of others are not known here
    made.object_->shared_by = static_cast<unsigned>(type);
    if (Error e = made.measure(props, blob.whole, CU_MULTICAST_GRANULARITY_MINIMUM); !e.ok()) return e;
    if (blob.whole % made.object_->granule != 0) return make_error(Errc::corrupt, "a shared multicast object has no such size");
    made.object_->size = blob.whole;
    if (Error e = made.object_->states[0]->call(cuda_call::MemImportFromShareableHandle{}, &made.object_->handle, native, type); !e.ok()) return e;
    if (Error e = made.join(); !e.ok()) return e;
    return made;
  }
  // Keeps the devices of the contexts, all of which have multicast.
  [[nodiscard]] Error take(contexts_type contexts, Bytes size) noexcept {
    if (contexts.empty()) return make_error(Errc::invalid_argument, "a multicast object is for some devices");
    if (size <= 0) return detail::cuda_bad_request(size, Errc::invalid_argument, "a multicast object has some bytes");
    for (std::size_t i = 0; i < contexts.size(); ++i)
      for (std::size_t k = 0; k < i; ++k)
        if (contexts[i]->device() == contexts[k]->device())
          return make_error(Errc::invalid_argument, "a device is in a multicast object's team once");
    for (const context_type* c : contexts) {
      int has = 0;
      if (Error e = c->state().call(cuda_call::DeviceGetAttribute{}, &has, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, c->device()); !e.ok())
        return e;
      if (has == 0) return make_error(Errc::unsupported, "a device has no multicast");
    }
    object_->states.reset(new (std::nothrow) State*[contexts.size()]);
    if (object_->states == nullptr) return make_error(Errc::out_of_memory, "no memory for a multicast object's team");
    object_->count = contexts.size();
    for (std::size_t i = 0; i < object_->count; ++i) object_->states[i] = &contexts[i]->state();
    return {};
  }
  [[nodiscard]] Error measure(CUmulticastObjectProp& props, Bytes size, CUmulticastGranularity_flags which) noexcept {
    props.size = static_cast<std::size_t>(size);
    props.handleTypes = object_->shared_by;
    std::size_t granule = 0;
    if (Error e = object_->states[0]->call(cuda_call::MulticastGetGranularity{}, &granule, &props, which); !e.ok()) return e;
    object_->granule = static_cast<Bytes>(granule);
    return {};
  }
  [[nodiscard]] Error join() noexcept {
    for (std::size_t i = 0; i < object_->count; ++i)
      if (Error e = object_->states[i]->call(cuda_call::MulticastAddDevice{}, object_->handle, object_->states[i]->device); !e.ok()) return e;
    return {};
  }
  [[nodiscard]] ShareBlob described(ShareKind kind, const ShareIdentity& self) const noexcept {
    ShareBlob blob{kind, self, object_->size, {}};
    blob.handle.size = object_->size;
    return blob;
  }

  struct Object {
    std::unique_ptr<State*[]> states;
    std::size_t count = 0;
    detail::CudaHandle handle = 0;
    Bytes size = 0, granule = 1;
    unsigned shared_by = 0;  // handles that others can open
    void close() noexcept {
      if (handle != 0) states[0]->note(states[0]->call(cuda_call::MemRelease{}, handle));
    }
  };
  Owned<Object> object_;
};

/// Memory of several devices behind one multicast object: what a kernel stores through a multicast address (`multimem`)
/// reaches the memory of all, what it loads is reduced over all.
///
/// Each device has two blocks: its own memory, as any; and the object at an address of its own, for `multimem` instructions
/// only. Where other processes are in the team, kernels start when all have bound their memory, and no process lets go before
/// all kernels have ended: they agree on both. Threads: as a value; its end waits for all work of the contexts, which must
/// outlive it. Source: backends.md 2.4.
template <cuda_driver Driver>
class BasicCudaMulticast {
 public:
  using team_type = BasicCudaMulticastTeam<Driver>;
  using contexts_type = typename team_type::contexts_type;

  constexpr BasicCudaMulticast() noexcept = default;

  /// Makes memory of so many bytes on each device and binds it. Errors: those of the team's `make`; out_of_memory, the driver's
  /// own. Then nothing stays.
  [[nodiscard]] static Result<BasicCudaMulticast> make(contexts_type contexts, Bytes size) noexcept {
    Result<team_type> team = team_type::make(contexts, size);
    if (!team.ok()) return team.error();
    return make(std::move(*team));
  }
  /// The same with a team. Threads: blocks until the other processes of the team have added their devices.
  [[nodiscard]] static Result<BasicCudaMulticast> make(team_type team) noexcept {
    return bound(std::move(team), [](Bound& all, std::size_t i) noexcept { return all.bind_own(i); });
  }
  /// Binds memory that there is: a block of each device, in the contexts' order, from the driver's virtual memory or a
  /// stream-ordered pool, of the same size, in whole granules of the driver's, or all that its allocation is used for: that is
  /// then bound whole. They stay the caller's and must outlive this.
  ///
  /// Errors: as above; invalid_argument (not a block for each device, of different sizes, or a part of its last granule).
  [[nodiscard]] static Result<BasicCudaMulticast> over(contexts_type contexts, std::span<const Block> blocks) noexcept {
    if (blocks.size() != contexts.size()) return make_error(Errc::invalid_argument, "a multicast object is over a block of each device");
    for (const Block& b : blocks)
      if (b.size != blocks[0].size) return make_error(Errc::invalid_argument, "a multicast object is over blocks of one size");
    Result<team_type> team = team_type::make(contexts, blocks.empty() ? 0 : blocks[0].size, {}, CU_MULTICAST_GRANULARITY_MINIMUM);
    if (!team.ok()) return team.error();
    return bound(std::move(*team), [blocks](Bound& all, std::size_t i) noexcept { return all.bind_block(i, blocks[i]); });
  }

  /// Bytes of each block.
  [[nodiscard]] Bytes size() const noexcept { return bound_->team.size(); }
  /// Devices of this process.
  [[nodiscard]] std::size_t count() const noexcept { return bound_->team.count(); }
  /// The memory of the i-th device.
  [[nodiscard]] Block unicast(std::size_t i) const noexcept { return bound_->parts[i].unicast; }
  /// All of them, for the i-th device's `multimem` instructions.
  [[nodiscard]] Block multicast(std::size_t i) const noexcept { return bound_->parts[i].multicast; }

 private:
  struct Part {
    Block unicast, multicast;
    detail::CudaHandle memory = 0;  // 0: the caller's
    bool bound = false;
  };
  struct Bound {
    team_type team;
    std::unique_ptr<Part[]> parts;

    // Takes back what there is of every part; the team gives back the object after it.
    void close() noexcept {
      if (parts == nullptr) return;
      // A kernel of any device may use the memory of all; where it may run on, all stays.
      bool idle = true;
      for (std::size_t i = 0; i < team.count(); ++i) idle = team.state(i).drain() && idle;
      if (!idle) return;
      for (std::size_t i = 0; i < team.count(); ++i)
        if (parts[i].multicast.data != nullptr)
          detail::cuda_unmap(team.state(i), parts[i].multicast, team.native(), detail::CudaHandleOwner::caller);
      for (std::size_t i = 0; i < team.count(); ++i) {
        auto& state = team.state(i);
        if (parts[i].bound)
          state.note(state.call(cuda_call::MulticastUnbind{}, team.native(), state.device, std::size_t{0}, static_cast<std::size_t>(team.size())));
        if (parts[i].memory != 0) detail::cuda_unmap(state, parts[i].unicast, parts[i].memory);
      }
    }
    [[nodiscard]] Error bind_own(std::size_t i) noexcept {
      auto& state = team.state(i);
      unsigned shared_by = team.shared_by();
      detail::CudaHandle memory = 0;
      if (Error e = detail::cuda_create(state, team.size(), shared_by, memory); !e.ok()) return detail::cuda_refusal(state, e, team.size());
      const Result<Block> mapped = detail::cuda_map(state, memory, team.size(), team.granule());
      if (!mapped.ok()) return mapped.error();
      parts[i].unicast = *mapped;
      parts[i].memory = memory;
      Error e = state.call(cuda_call::MulticastBindMem{}, team.native(), std::size_t{0}, memory, std::size_t{0},
                           static_cast<std::size_t>(team.size()), 0ull);
      parts[i].bound = e.ok();
      return e;
    }
    [[nodiscard]] Error bind_block(std::size_t i, Block block) noexcept {
      if (block.size != team.size()) {  // whose is the rest of its last granule?
        CUdeviceptr base = 0;
        std::size_t whole = 0;
        if (Error e = team.state(i).inside(cuda_call::MemGetAddressRange{}, &base, &whole, detail::cuda_address(block.data)); !e.ok()) return e;
        if (base != detail::cuda_address(block.data) || whole != static_cast<std::size_t>(team.size()))
          return make_error(Errc::invalid_argument, "a multicast object is over whole granules of an allocation, or over all of it");
      }
      Error e = team.state(i).call(cuda_call::MulticastBindAddr{}, team.native(), std::size_t{0}, detail::cuda_address(block.data),
                                   static_cast<std::size_t>(team.size()), 0ull);
      parts[i].unicast = {block.data, team.size()};
      parts[i].bound = e.ok();
      return e;
    }
    [[nodiscard]] Error map(std::size_t i) noexcept {
      const Result<Block> mapped = detail::cuda_map(team.state(i), team.native(), team.size(), team.granule(), detail::CudaHandleOwner::caller);
      if (mapped.ok()) parts[i].multicast = *mapped;
      return mapped.error();
    }
  };

  template <class Bind>
  [[nodiscard]] static Result<BasicCudaMulticast> bound(team_type team, Bind bind) noexcept {
    if (team.count() == 0) return make_error(Errc::invalid_argument, "a multicast object is for some devices");
    BasicCudaMulticast made;
    Bound& all = *made.bound_.operator->();
    all.team = std::move(team);
    all.parts.reset(new (std::nothrow) Part[all.team.count()]);
    if (all.parts == nullptr) return make_error(Errc::out_of_memory, "no memory for a multicast object's parts");
    for (std::size_t i = 0; i < all.team.count(); ++i) {
      Error e = bind(all, i);
      if (e.ok()) e = all.map(i);
      if (!e.ok()) return e;
    }
    return made;
  }

  Owned<Bound> bound_;
};

/// The multicast of this machine's driver.
using CudaMulticastTeam = BasicCudaMulticastTeam<RealDriver>;
using CudaMulticast = BasicCudaMulticast<RealDriver>;

}  // namespace holdfast
