// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "double/cuda_double.hpp"
#include "holdfast/backend/cuda/context.hpp"
#include "holdfast/core/share_blob.hpp"
#include "support/open_files.hpp"

namespace holdfast::testing {

using DoubleContext = BasicCudaContext<DoubleDriver>;
using DoubleStream = BasicCudaStream<DoubleDriver>;
using DoubleStreamRef = BasicCudaStreamRef<DoubleDriver>;
using DoubleEvent = BasicCudaEvent<DoubleDriver>;
using DoublePromise = BasicCudaPromise<DoubleDriver>;

/// Tells whether a call is one that the library makes around another, for the context and for captures.
inline bool is_around(const std::string& call) {
  return call.find("cuCtxP") == 0 || call == "cuCtxGetCurrent" || call == "cuThreadExchangeStreamCaptureMode";
}

/// A node that counts its runs.
struct CountingNode : Continuation {
  CountingNode() {
    run = [](Continuation& self) noexcept { static_cast<CountingNode&>(self).count += 1; };
  }
  int count = 0;
};

/// A share blob with a byte changed, and the checksum made right again: what a hostile process can send.
[[nodiscard]] inline ShareBlobBytes tampered(const ShareBlob& blob, std::size_t at, std::byte with) {
  ShareBlobBytes bytes = write_share_blob(blob);
  bytes[at] ^= with;
  const std::uint32_t sum = detail::share_checksum(std::span<const std::byte>(bytes).first(share_blob_bytes - 4));
  for (std::size_t i = 0; i < 4; ++i) bytes[share_blob_bytes - 4 + i] = static_cast<std::byte>((sum >> (8 * i)) & 0xFF);
  return bytes;
}
/// Opens a blob with every byte changed in some ways; `open(blob)` tells the block, or why there is none. Returns how many
/// were opened, each inside of the memory that is really there.
template <class Open>
std::size_t opened_of_tampered(const ShareBlob& blob, Open open) {
  std::size_t opened = 0;
  for (std::size_t at = 0; at < share_blob_bytes - 4; ++at)
    for (const unsigned with : {0x01u, 0x80u, 0xFFu}) {
      const Result<ShareBlob> read = read_share_blob(tampered(blob, at, static_cast<std::byte>(with)));
      if (!read.ok()) continue;
      const Result<Block> got = open(*read);
      if (got.ok()) {
        ++opened;
        CHECK(read->handle.offset + got->size <= blob.whole);
      }
    }
  return opened;
}

/// A driver's double and contexts on its devices; when it goes, nothing may have leaked, raced or been misused.
struct CudaWorld {
  explicit CudaWorld(std::uint64_t seed = 1) : CudaWorld(seeded(seed)) {}
  explicit CudaWorld(const CudaDoubleOptions& o) : cuda(o) {
    context.emplace(std::move(*DoubleContext::make(cuda.driver(), 0)));
    if (o.devices > 1) other.emplace(std::move(*DoubleContext::make(cuda.driver(), 1)));
  }
  ~CudaWorld() {
    CHECK(context->unreported().code == expected_unreported);
    other.reset();
    context.reset();
    if (check_races) CHECK(cuda.races() == expected_races);
    CHECK(cuda.leaks() == "");
    CHECK(cuda.misuse == "");
  }
  static CudaDoubleOptions seeded(std::uint64_t seed) {
    CudaDoubleOptions o;
    o.seed = seed;
    return o;
  }
  DoubleStream stream() { return std::move(*context->make_stream()); }
  DoubleEvent mark(const DoubleStreamRef& s) { return std::move(*DoubleEvent::recorded_on(s)); }
  /// Some work, so that marks after it are pending.
  void work(const DoubleStreamRef& s, std::initializer_list<MemoryTouch> touches = {}) {
    cuda.launch(s.native(), "work", touches, [] {});
  }

  CudaDouble cuda;
  std::optional<DoubleContext> context, other;
  Errc expected_unreported = Errc::ok;
  std::string expected_races;
  bool check_races = true;
};

}  // namespace holdfast::testing
