// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <span>

#include "holdfast/core/block.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/core/types.hpp"
#include "holdfast/core/units.hpp"

namespace holdfast {

/// Something that makes and takes back memory in one memory space.
///
/// A model is a copyable handle: empty when it has no state, else one pointer to its pool. `allocate` of 0 bytes gives
/// `Block{nullptr, 0}`; a negative size is `invalid_argument`; `deallocate` takes exactly a block that it gave.
template <class B>
concept memory_backend = std::copyable<B> && requires(B& backend, Bytes size, Alignment alignment, Block block) {
  { B::space } -> std::convertible_to<MemorySpace>;
  { backend.allocate(size, alignment) } noexcept -> std::same_as<Result<Block>>;
  { backend.deallocate(block) } noexcept -> std::same_as<void>;
};

/// A backend whose allocation and release take their place in the order of a stream.
template <class B>
concept stream_ordered_backend =
    memory_backend<B> && requires(B& backend, typename B::stream_type& stream, Bytes size, Alignment alignment, Block block) {
      { backend.allocate(stream, size, alignment) } noexcept -> std::same_as<Result<Block>>;
      { backend.deallocate(stream, block) } noexcept -> std::same_as<void>;
    };

namespace detail {

template <class B>
concept plain_copying = requires(B& b, Block to, Block from, Bytes n, std::span<const std::byte> in, std::span<std::byte> out) {
  { b.copy_in(to, n, in) } noexcept -> std::same_as<Result<typename B::event_type>>;
  { b.copy_out(from, n, out) } noexcept -> std::same_as<Result<typename B::event_type>>;
  { b.copy(to, n, from, n, n) } noexcept -> std::same_as<Result<typename B::event_type>>;
};

template <class B>
concept stream_copying = requires(B& b, typename B::stream_type& s, Block to, Block from, Bytes n,
                                  std::span<const std::byte> in, std::span<std::byte> out) {
  { b.copy_in(s, to, n, in) } noexcept -> std::same_as<Result<typename B::event_type>>;
  { b.copy_out(s, from, n, out) } noexcept -> std::same_as<Result<typename B::event_type>>;
  { b.copy(s, to, n, from, n, n) } noexcept -> std::same_as<Result<typename B::event_type>>;
};

}  // namespace detail

/// A backend that moves bytes itself and says with an event when they have arrived; offsets are checked by the caller.
template <class B>
concept copying_backend = memory_backend<B> && (detail::plain_copying<B> || (stream_ordered_backend<B> && detail::stream_copying<B>));

/// A backend that is told whose memory a block will be.
template <class B>
concept tagging_backend = memory_backend<B> && requires(B& backend, Bytes size, Alignment alignment, Tag tag) {
  { backend.allocate(size, alignment, tag) } noexcept -> std::same_as<Result<Block>>;
};

/// Whether a request may run what events hold back, which may release memory of the same backend on the same thread: a lock around it
/// is a `ReentrantLock`.
template <class B>
inline constexpr bool runs_continuations = requires { requires B::runs_continuations; };

/// A backend that reserves addresses first and backs or protects them later.
template <class B>
concept mapping_backend = requires(B& backend, Bytes size, typename B::mapping_type mapping, Access access) {
  { backend.reserve(size) } noexcept -> std::same_as<Result<typename B::mapping_type>>;
  { backend.commit(mapping) } noexcept -> std::same_as<Error>;
  { backend.protect(mapping, access) } noexcept -> std::same_as<Error>;
  { backend.release(mapping) } noexcept;
};

/// A backend whose blocks another process can open.
template <class B>
concept sharing_backend = memory_backend<B> && requires(B& backend, Block block, const ShareHandle& handle) {
  { backend.export_handle(block) } noexcept -> std::same_as<Result<ShareHandle>>;
  { backend.import_handle(handle) } noexcept -> std::same_as<Result<Block>>;
};

namespace detail {
struct AnyVisitor {
  template <class... Args>
  void operator()(Args&&...) const noexcept {}
};
}  // namespace detail

/// A backend that shows what it holds and gives back what it does not need.
template <class B>
concept inspectable_backend = memory_backend<B> && requires(B& backend, Bytes size, detail::AnyVisitor visitor) {
  { backend.visit_blocks(visitor) } noexcept;
  { backend.largest_free() } noexcept -> std::same_as<Bytes>;
  { backend.trim(size) } noexcept -> std::same_as<Bytes>;
};

/// Tells whether the host may read and write the backend's memory through its address.
template <class B>
inline constexpr bool host_accessible = B::space == MemorySpace::host;
template <class B>
  requires requires { B::host_accessible; }
inline constexpr bool host_accessible<B> = B::host_accessible;

/// A backend without memory: the do-nothing model. Threads: any.
struct EmptyMemory {
  static constexpr MemorySpace space = MemorySpace::host;

  /// Gives the empty block for 0 bytes. Errors: invalid_argument (negative), out_of_memory (anything else).
  [[nodiscard]] Result<Block> allocate(Bytes size, Alignment) noexcept {
    if (size == 0) return Block{};
    Error e = make_error(size < 0 ? Errc::invalid_argument : Errc::out_of_memory, "EmptyMemory has no memory");
    e.stage = Stage::allocation;
    e.requested = size;
    e.available = 0;
    return e;
  }
  void deallocate(Block) noexcept {}
};
static_assert(memory_backend<EmptyMemory>);

}  // namespace holdfast
