// SPDX-License-Identifier: Apache-2.0
// Any bytes as a share blob, as they are and with their checksum put right: refused, or a block inside its allocation that is
// written as those bytes, and that its own process and others of another generation may not open.
#include "holdfast/core/share_blob.hpp"

#include <algorithm>
#include <cstdint>
#include <span>

#include "support/demand.hpp"

using namespace holdfast;
using testing::demand;

namespace {

void check(std::span<const std::byte> bytes) {
  const Result<ShareBlob> blob = read_share_blob(bytes);
  if (!blob.ok()) {
    const bool other_version = bytes.size() > 3 && bytes[3] != static_cast<std::byte>(detail::share_blob_version);
    return demand(blob.error().what != nullptr && (blob.error().code == Errc::corrupt || (other_version && blob.error().code == Errc::unsupported)));
  }
  const ShareBlobBytes again = write_share_blob(*blob);
  demand(std::ranges::equal(again, bytes));
  const ShareHandle& h = blob->handle;
  demand(h.size > 0 && h.offset >= 0 && h.size <= blob->whole && h.offset <= blob->whole - h.size);
  ShareIdentity self = blob->from;
  demand(check_share(*blob, self, self.generation).code == Errc::wrong_state);
  ++self.process;
  demand(check_share(*blob, self, self.generation).ok());
  demand(check_share(*blob, self, self.generation + 1).code == Errc::wrong_state);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  check(bytes);
  if (size != share_blob_bytes) return 0;
  ShareBlobBytes right{};
  std::ranges::copy(bytes, right.begin());
  const std::uint32_t sum = detail::share_checksum(std::span<const std::byte>(right).first(share_blob_bytes - 4));
  for (std::size_t i = 0; i < 4; ++i) right[share_blob_bytes - 4 + i] = static_cast<std::byte>((sum >> (8 * i)) & 0xFF);
  check(right);
  return 0;
}
