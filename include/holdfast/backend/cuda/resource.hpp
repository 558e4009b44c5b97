// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

#include <cuda/version>

// CCCL declares parts of `cuda::mr` only for who asks: before 3.1 all of it.
#ifndef LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#if CCCL_VERSION < 3001000 && defined(_CUDA_MEMORY_RESOURCE)
#error "define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE before <cuda/memory_resource>"
#endif
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#endif
#include <cuda/memory_resource>
#include <cuda/stream_ref>

#include "holdfast/backend/cuda/device_memory.hpp"
#include "holdfast/backend/cuda/host_memory.hpp"
#include "holdfast/backend/cuda/pool_memory.hpp"

// Neighbours of CCCL: `cuda::mr` resources, `cuda::stream_ref`. Its include folder must be on the
// path (nvcc's own is include/cccl). What throws is the foreign contract's, on either side of it.

namespace holdfast {

/// Tells whether kernels may touch the backend's memory; specialise it for a backend of your own.
template <class B>
inline constexpr bool device_accessible = B::space == MemorySpace::device;
template <class Driver>
inline constexpr bool device_accessible<BasicCudaHostMemory<Driver>> = true;
template <class B>
requires requires { typename B::up_type; }
inline constexpr bool device_accessible<B> = device_accessible<typename B::up_type>;

/// A stream as CCCL names it.
template <cuda_driver Driver>
[[nodiscard]] ::cuda::stream_ref to_stream_ref(const BasicCudaStreamRef<Driver>& stream) noexcept {
  return ::cuda::stream_ref(stream.native());
}
/// The native stream of CCCL's name; its default one is the legacy stream, which waits for those
/// of each thread too.
[[nodiscard]] inline CUstream native_stream(::cuda::stream_ref stream) noexcept {
  return stream.get() != nullptr ? stream.get() : CU_STREAM_LEGACY;
}
/// A stream of the context, as the library names it. Errors: the driver's.
template <cuda_driver Driver>
[[nodiscard]] Result<BasicCudaStreamRef<Driver>> from_stream_ref(
    const BasicCudaContext<Driver>& context, ::cuda::stream_ref stream) noexcept {
  return context.stream(native_stream(stream));
}

namespace detail {

// Where a resource finds its streams; a backend without streams needs none.
template <class Backend>
struct ResourceStreams {
  ResourceStreams() noexcept = default;
};
template <stream_ordered_backend Backend>
struct ResourceStreams<Backend> {
  using Stream = typename Backend::stream_type;
  typename Stream::State* state;
  [[nodiscard]] Result<Stream> find(::cuda::stream_ref stream) const noexcept {
    return Stream::make(*state, native_stream(stream));
  }
};

template <class R>
concept reaches_host = ::cuda::has_property<R, ::cuda::mr::host_accessible>;
template <class R>
concept reaches_device = ::cuda::has_property<R, ::cuda::mr::device_accessible>;
template <class R>
concept names_sync = requires(R& r, void* p, std::size_t n) {
  r.allocate_sync(n, n);
  r.deallocate_sync(p, n, n);
};
template <class R>
concept orders_by_stream = requires(R& r, std::size_t n, ::cuda::stream_ref s) {
  requires(names_sync<R> && requires { r.allocate(s, n, n); }) || requires {
    r.allocate_async(n, n, s);
  };
};

}  // namespace detail

/// A backend as a `cuda::mr` resource, of the toolkit's CCCL (`resource`, `async_resource`) and of
/// later ones (`synchronous_resource`, `resource`): it has the members of both.
///
/// Throws `std::bad_alloc` when the backend fails, as its contract demands. Holds the backend, not
/// the memory. Equal when the backends are, else only to itself. Threads: as the backend.
template <memory_backend Backend>
class CudaResource {
  static constexpr bool is_ordered = stream_ordered_backend<Backend>;

 public:
  explicit CudaResource(Backend backend) noexcept requires(!is_ordered)
      : backend_(std::move(backend)) {}
  /// `context`: whose streams it will be given; it must outlive the resource.
  template <cuda_driver Driver>
  requires std::same_as<typename Backend::stream_type, BasicCudaStreamRef<Driver>> CudaResource(
      Backend backend, const BasicCudaContext<Driver>& context)
  noexcept : backend_(std::move(backend)), streams_{&context.state()} {}

  /// Gives memory that later work on all streams may use.
  [[nodiscard]] void* allocate(std::size_t size, std::size_t alignment = default_size) {
    return take(size, alignment);
  }
  /// Takes memory back: whoever calls has seen the end of all its uses.
  void deallocate(void* p, std::size_t size, std::size_t = default_size) noexcept {
    backend_.deallocate(block(p, size));
  }
  [[nodiscard]] void* allocate_sync(std::size_t size, std::size_t alignment = default_size) {
    return take(size, alignment);
  }
  void deallocate_sync(void* p, std::size_t size, std::size_t = default_size) noexcept {
    backend_.deallocate(block(p, size));
  }

  /// Gives memory in the order of a stream. Stream: enqueues the allocation.
  [[nodiscard]] void* allocate_async(std::size_t size, std::size_t alignment,
                                     ::cuda::stream_ref stream) requires is_ordered {
    auto found = streams_.find(stream);
    if (!found.ok()) HOLDFAST_THROW(std::bad_alloc());
    return take(size, alignment, *found);
  }
  /// Takes memory back in the order of a stream. A stream that the driver does not know keeps it;
  /// that failure is the context's `unreported`. Stream: enqueues the release.
  void deallocate_async(void* p, std::size_t size, std::size_t,
                        ::cuda::stream_ref stream) noexcept requires is_ordered {
    if (auto found = streams_.find(stream); found.ok())
      backend_.deallocate(*found, block(p, size));
    else
      streams_.state->note(found.error());
  }
  [[nodiscard]] void* allocate(::cuda::stream_ref stream, std::size_t size,
                               std::size_t alignment = default_size) requires is_ordered {
    return allocate_async(size, alignment, stream);
  }
  void deallocate(::cuda::stream_ref stream, void* p, std::size_t size,
                  std::size_t alignment = default_size) noexcept requires is_ordered {
    deallocate_async(p, size, alignment, stream);
  }

  [[nodiscard]] const Backend& backend() const noexcept { return backend_; }
  friend bool operator==(const CudaResource& a, const CudaResource& b) noexcept {
    if constexpr (std::equality_comparable<Backend>)
      return a.backend_ == b.backend_;
    else
      return &a == &b;
  }
  friend constexpr void get_property(const CudaResource&, ::cuda::mr::device_accessible) noexcept
      requires device_accessible<Backend> {}
  friend constexpr void get_property(
      const CudaResource&, ::cuda::mr::host_accessible) noexcept requires host_accessible<Backend> {
  }

 private:
  static constexpr std::size_t default_size = alignof(std::max_align_t);

  template <class... Stream>
  [[nodiscard]] void* take(std::size_t size, std::size_t alignment, Stream&... stream) {
    constexpr auto most = static_cast<std::size_t>(max_bytes);
    if (size <= most && alignment <= most && is_power_of_two(static_cast<Bytes>(alignment)))
      if (const Result<Block> b = backend_.allocate(stream..., static_cast<Bytes>(size),
                                                    Alignment(static_cast<Bytes>(alignment)));
          b.ok())
        return b->data;
    HOLDFAST_THROW(std::bad_alloc());
  }
  [[nodiscard]] static Block block(void* p, std::size_t size) noexcept {
    return {static_cast<std::byte*>(p), static_cast<Bytes>(size)};
  }

  HOLDFAST_NO_UNIQUE_ADDRESS Backend backend_;
  HOLDFAST_NO_UNIQUE_ADDRESS detail::ResourceStreams<Backend> streams_;
};

/// A `cuda::mr` resource as a backend, of either of CCCL's forms; what it throws is an `Error`.
///
/// A handle to the resource, with which resource and context must outlive all memory. All requests
/// are made with one alignment, which the resource is told again at the release.
/// Threads: as the resource.
template <cuda_driver Driver, class Resource>
class BasicCudaResourceMemory
    : public detail::CudaCopies<BasicCudaResourceMemory<Driver, Resource>, Driver> {
  static constexpr bool is_new_form = detail::names_sync<Resource>;
  static constexpr bool is_ordered = detail::orders_by_stream<Resource>;

 public:
  static constexpr bool host_accessible = detail::reaches_host<Resource>;
  static constexpr MemorySpace space =
      detail::reaches_device<Resource> ? MemorySpace::device : MemorySpace::host;
  static_assert(space == MemorySpace::device || host_accessible,
                "the resource does not say who may touch its memory");
  using context_type = BasicCudaContext<Driver>;
  using stream_type = BasicCudaStreamRef<Driver>;

  /// No resource: to be assigned before use.
  constexpr BasicCudaResourceMemory() noexcept = default;
  BasicCudaResourceMemory(const context_type& context, Resource& resource,
                          Alignment alignment = Alignment(256)) noexcept
      : state_(&context.state()), resource_(&resource), alignment_(alignment) {}

  /// Gives the resource's memory. Errors: invalid_argument (negative size), unsupported (an
  /// alignment above the handle's), out_of_memory (std::bad_alloc), the native one of CCCL's
  /// cuda_error, internal (anything else it throws). Threads: may run continuations.
  [[nodiscard]] Result<Block> allocate(Bytes size, Alignment alignment) noexcept {
    return ask(size, alignment, [&]() {
      if constexpr (is_new_form)
        return resource_->allocate_sync(count(size), count(alignment_.value()));
      else
        return resource_->allocate(count(size), count(alignment_.value()));
    });
  }
  /// Takes memory back: whoever calls has seen the end of all its uses. What the resource throws is
  /// the context's `unreported`.
  void deallocate(Block block) noexcept {
    if (block.data == nullptr) return;
    state_->note(guarded([&]() {
      if constexpr (is_new_form)
        resource_->deallocate_sync(block.data, count(block.size), count(alignment_.value()));
      else
        resource_->deallocate(block.data, count(block.size), count(alignment_.value()));
    }));
  }
  /// The same in the order of a stream. Stream: enqueues the allocation, the release.
  [[nodiscard]] Result<Block> allocate(const stream_type& stream, Bytes size,
                                       Alignment alignment) noexcept requires is_ordered {
    return ask(size, alignment, [&]() {
      const ::cuda::stream_ref to = to_stream_ref(stream);
      if constexpr (is_new_form)
        return resource_->allocate(to, count(size), count(alignment_.value()));
      else
        return resource_->allocate_async(count(size), count(alignment_.value()), to);
    });
  }
  void deallocate(const stream_type& stream, Block block) noexcept requires is_ordered {
    if (block.data == nullptr) return;
    state_->note(guarded([&]() {
      const ::cuda::stream_ref to = to_stream_ref(stream);
      if constexpr (is_new_form)
        resource_->deallocate(to, block.data, count(block.size), count(alignment_.value()));
      else
        resource_->deallocate_async(block.data, count(block.size), count(alignment_.value()), to);
    }));
  }

  friend bool operator==(const BasicCudaResourceMemory& a,
                         const BasicCudaResourceMemory& b) noexcept {
    return a.state_ == b.state_ && a.resource_ == b.resource_ && a.alignment_ == b.alignment_;
  }
  // For copies.
  [[nodiscard]] detail::CudaState<Driver>& state() const noexcept { return *state_; }

 private:
  [[nodiscard]] static std::size_t count(Bytes n) noexcept { return static_cast<std::size_t>(n); }

  template <class F>
  [[nodiscard]] Result<Block> ask(Bytes size, Alignment alignment, F request) noexcept {
    if (size < 0)
      return detail::cuda_bad_request(size, Errc::invalid_argument,
                                      "a negative number of bytes was asked for");
    if (alignment.value() > alignment_.value())
      return detail::cuda_bad_request(size, Errc::unsupported,
                                      "the resource is asked for a smaller alignment");
    if (size == 0) return Block{};
    void* p = nullptr;
    const auto once = [&]() noexcept {
      const Error e = guarded([&]() { p = request(); });
      return e.ok() && p == nullptr ? no_more() : e;
    };
    Error e = once();
    if (e.code == Errc::out_of_memory && state_->run_completions()) e = once();
    if (!e.ok()) return detail::cuda_refusal(*state_, e, size);
    const Block block{static_cast<std::byte*>(p), size};
    if (detail::cuda_aligned(detail::cuda_address(p), alignment)) return block;
    deallocate(block);
    return detail::cuda_bad_request(size, Errc::internal, "the resource's memory is not aligned");
  }
  [[nodiscard]] static Error no_more() noexcept {
    return make_error(Errc::out_of_memory, "the cuda::mr resource has no more memory");
  }
  /// Makes an error of what a foreign call throws. Without exceptions there is nothing to be made.
  template <class F>
  [[nodiscard]] static Error guarded(F f) noexcept {
#if HOLDFAST_HAS_EXCEPTIONS
    try {
      f();
    } catch (const std::bad_alloc&) {
      return no_more();
    } catch (const ::cuda::cuda_error& thrown) {
      return native_error(thrown);
    } catch (...) {
      return make_error(Errc::internal, "the cuda::mr resource threw");
    }
#else
    f();
#endif
    return {};
  }
  template <class Thrown>
  [[nodiscard]] static Error native_error(const Thrown& thrown) noexcept {
    Error e = make_error(Errc::internal, "the cuda::mr resource threw a cuda::cuda_error");
    if constexpr (requires { thrown.status(); }) {
      e.native = static_cast<std::int32_t>(thrown.status());
    } else {  // CCCL 3.0 says it only in its text
      constexpr char start[] = "cudaError ";
      if (const char* text = thrown.what(); std::strncmp(text, start, sizeof start - 1) == 0)
        e.native = static_cast<std::int32_t>(std::strtol(text + sizeof start - 1, nullptr, 10));
    }
    if (e.native != 0) e.code = cuda_errc(static_cast<CUresult>(e.native));
    return e;
  }

  detail::CudaState<Driver>* state_ = nullptr;
  Resource* resource_ = nullptr;
  Alignment alignment_{256};
};

#if CCCL_VERSION < 3001000
static_assert(
    ::cuda::mr::resource_with<CudaResource<CudaDeviceMemory>, ::cuda::mr::device_accessible> &&
    !::cuda::mr::async_resource<CudaResource<CudaDeviceMemory>> &&
    ::cuda::mr::async_resource_with<CudaResource<CudaPoolMemory>, ::cuda::mr::device_accessible>);
#else
static_assert(
    ::cuda::mr::synchronous_resource_with<CudaResource<CudaDeviceMemory>,
                                          ::cuda::mr::device_accessible> &&
    !::cuda::mr::resource<CudaResource<CudaDeviceMemory>> &&
    ::cuda::mr::resource_with<CudaResource<CudaPoolMemory>, ::cuda::mr::device_accessible>);
#endif

/// A resource on this machine's driver, as a backend.
template <class Resource>
using CudaResourceMemory = BasicCudaResourceMemory<RealDriver, Resource>;
static_assert(stream_ordered_backend<CudaResourceMemory<CudaResource<CudaPoolMemory>>> &&
              copying_backend<CudaResourceMemory<CudaResource<CudaPoolMemory>>>);

}  // namespace holdfast
