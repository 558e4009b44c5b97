// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "holdfast/core/block.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/core/units.hpp"

namespace holdfast {

/// How shared memory is opened.
enum class ShareKind : std::uint32_t { cuda_ipc = 1, cuda_file = 2, cuda_fabric = 3, cuda_pool = 4, multicast_file = 5, multicast_fabric = 6 };

/// Who shares memory: a process of a host, and the generation of what it shares, which it counts up when that starts anew.
struct ShareIdentity {
  std::array<std::byte, 16> host{};
  std::uint64_t process = 0;
  std::uint64_t generation = 0;
  friend constexpr bool operator==(const ShareIdentity&, const ShareIdentity&) noexcept = default;
};

/// Shared memory as it is described to another process: a block of an allocation, and whose it is.
struct ShareBlob {
  ShareKind kind = ShareKind::cuda_ipc;
  ShareIdentity from;
  Bytes whole = 0;     ///< the allocation
  ShareHandle handle;  ///< the block in it; the bytes are the driver's, none for a file, which travels by itself
  std::array<std::byte, 16> device{};  ///< the uuid of where it lies
  std::uint64_t allocation = 0;        ///< a number that no other allocation of that process has, before or after
  friend constexpr bool operator==(const ShareBlob& a, const ShareBlob& b) noexcept {
    return a.same_allocation(b) && a.handle.size == b.handle.size && a.handle.offset == b.handle.offset;
  }
  /// Blocks of one allocation that are opened in one way.
  [[nodiscard]] constexpr bool same_allocation(const ShareBlob& b) const noexcept {
    return kind == b.kind && from == b.from && device == b.device && allocation == b.allocation && whole == b.whole && handle.bytes == b.handle.bytes;
  }
};

/// Units: bytes of a written blob.
inline constexpr std::size_t share_blob_bytes = 156;
using ShareBlobBytes = std::array<std::byte, share_blob_bytes>;

namespace detail {
inline constexpr std::uint32_t share_blob_magic = 0x534648;  // "HFS"
inline constexpr std::uint32_t share_blob_version = '2';     // '1' had no device and no allocation

// Numbers and bytes one after the other, the numbers with their low byte first.
struct ShareCursor {
  std::size_t at = 0;
  constexpr void put(ShareBlobBytes& out, std::uint64_t value, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) out[at++] = static_cast<std::byte>((value >> (8 * i)) & 0xFF);
  }
  [[nodiscard]] constexpr std::uint64_t get(std::span<const std::byte> in, std::size_t count) noexcept {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < count; ++i) value |= std::to_integer<std::uint64_t>(in[at++]) << (8 * i);
    return value;
  }
};
// FNV-1a: against damage, not against malice.
[[nodiscard]] constexpr std::uint32_t share_checksum(std::span<const std::byte> bytes) noexcept {
  std::uint32_t h = 2166136261u;
  for (const std::byte b : bytes) h = (h ^ std::to_integer<std::uint32_t>(b)) * 16777619u;
  return h;
}
[[nodiscard]] constexpr bool share_lies_inside(const ShareBlob& blob) noexcept {
  Bytes end = 0;
  return blob.handle.size > 0 && checked_add(blob.handle.offset, blob.handle.size, end) && end <= blob.whole;
}
}  // namespace detail

/// Writes a blob for another process.
[[nodiscard]] constexpr ShareBlobBytes write_share_blob(const ShareBlob& blob) noexcept {
  ShareBlobBytes out{};
  detail::ShareCursor c;
  c.put(out, detail::share_blob_magic, 3);
  c.put(out, detail::share_blob_version, 1);
  c.put(out, static_cast<std::uint32_t>(blob.kind), 4);
  for (const std::byte b : blob.from.host) out[c.at++] = b;
  c.put(out, blob.from.process, 8);
  c.put(out, blob.from.generation, 8);
  for (const std::byte b : blob.device) out[c.at++] = b;
  c.put(out, blob.allocation, 8);
  c.put(out, static_cast<std::uint64_t>(blob.whole), 8);
  c.put(out, static_cast<std::uint64_t>(blob.handle.size), 8);
  c.put(out, static_cast<std::uint64_t>(blob.handle.offset), 8);
  for (const std::byte b : blob.handle.bytes) out[c.at++] = b;
  c.put(out, detail::share_checksum(std::span<const std::byte>(out).first(c.at)), 4);
  return out;
}

/// Reads a blob, which may come from anywhere.
///
/// Errors: unsupported (another version of the format), corrupt (its length, damage, a kind or sizes that no blob has).
[[nodiscard]] constexpr Result<ShareBlob> read_share_blob(std::span<const std::byte> bytes) noexcept {
  detail::ShareCursor c;
  if (bytes.size() < 4 || c.get(bytes, 3) != detail::share_blob_magic) return make_error(Errc::corrupt, "these bytes are no share blob");
  if (c.get(bytes, 1) != detail::share_blob_version) return make_error(Errc::unsupported, "the share blob is of another version of its format");
  if (bytes.size() != share_blob_bytes) return make_error(Errc::corrupt, "a share blob has another length");
  c.at = share_blob_bytes - 4;
  if (c.get(bytes, 4) != detail::share_checksum(bytes.first(share_blob_bytes - 4))) return make_error(Errc::corrupt, "a share blob is damaged");
  c.at = 4;
  ShareBlob blob;
  const std::uint64_t kind = c.get(bytes, 4);
  if (kind < static_cast<std::uint64_t>(ShareKind::cuda_ipc) || kind > static_cast<std::uint64_t>(ShareKind::multicast_fabric))
    return make_error(Errc::corrupt, "a share blob is of no known kind");
  blob.kind = static_cast<ShareKind>(kind);
  for (std::byte& b : blob.from.host) b = bytes[c.at++];
  blob.from.process = c.get(bytes, 8);
  blob.from.generation = c.get(bytes, 8);
  for (std::byte& b : blob.device) b = bytes[c.at++];
  blob.allocation = c.get(bytes, 8);
  blob.whole = static_cast<Bytes>(c.get(bytes, 8));
  blob.handle.size = static_cast<Bytes>(c.get(bytes, 8));
  blob.handle.offset = static_cast<Bytes>(c.get(bytes, 8));
  for (std::byte& b : blob.handle.bytes) b = bytes[c.at++];
  if (!detail::share_lies_inside(blob)) return make_error(Errc::corrupt, "a shared block does not lie in its allocation");
  return blob;
}

/// Tells whether a process may open what a blob describes, given the generation that its owner has now.
///
/// Errors: corrupt (sizes), unsupported (another host's, unless shared by fabric), wrong_state (its own; another generation's:
/// what was shared is no more).
[[nodiscard]] constexpr Error check_share(const ShareBlob& blob, const ShareIdentity& self, std::uint64_t generation) noexcept {
  if (!detail::share_lies_inside(blob)) return make_error(Errc::corrupt, "a shared block does not lie in its allocation");
  const bool same_host = blob.from.host == self.host;
  const bool by_fabric = blob.kind == ShareKind::cuda_fabric || blob.kind == ShareKind::multicast_fabric;
  if (!same_host && !by_fabric) return make_error(Errc::unsupported, "the shared memory is another host's");
  if (same_host && blob.from.process == self.process) return make_error(Errc::wrong_state, "shared memory is opened in the process that shares it");
  if (blob.from.generation != generation) return make_error(Errc::wrong_state, "the shared memory is of another generation of its owner");
  return {};
}

}  // namespace holdfast
