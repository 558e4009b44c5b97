// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "holdfast/backend/cuda/cuda_event.hpp"
#include "holdfast/event/sequencing_event.hpp"

namespace holdfast {

/// A CUDA stream as `SequencingEvent` and `SyncPoints` want one; without a stream it is the null stream, which has no marks.
///
/// Threads: as a value. The context must outlive it.
template <cuda_driver Driver>
class BasicCudaRecordingStream {
 public:
  using stream_type = BasicCudaStreamRef<Driver>;
  /// A mark: of the driver's own, which the pool of events numbers anew.
  class driver_event {
   public:
    [[nodiscard]] bool passed() const noexcept { return event_.ready(); }

   private:
    friend BasicCudaRecordingStream;
    explicit driver_event(BasicCudaEvent<Driver> event) noexcept : event_(std::move(event)) {}
    BasicCudaEvent<Driver> event_;
  };

  constexpr BasicCudaRecordingStream() noexcept = default;
  constexpr BasicCudaRecordingStream(const stream_type& stream) noexcept : stream_(stream) {}

  /// Marks what is enqueued so far. Errors: wrong_state (no stream), the driver's. Stream: records the mark.
  [[nodiscard]] Result<driver_event> record() noexcept {
    if (!stream_) return make_error(Errc::wrong_state, "the null stream has no marks");
    Result<BasicCudaEvent<Driver>> made = BasicCudaEvent<Driver>::recorded_on(stream_);
    if (!made.ok()) return made.error();
    return driver_event(std::move(*made));
  }
  /// Makes later work wait for a mark; without a stream the host waits. Errors: the driver's. Stream: enqueues at most one wait.
  [[nodiscard]] Error wait(const driver_event& mark) noexcept { return stream_ ? mark.event_.wait_on(stream_) : mark.event_.wait(); }

  [[nodiscard]] const stream_type& stream() const noexcept { return stream_; }
  friend constexpr bool operator==(const BasicCudaRecordingStream&, const BasicCudaRecordingStream&) noexcept = default;

 private:
  stream_type stream_;
};

/// The recording streams of this machine's driver.
using CudaRecordingStream = BasicCudaRecordingStream<RealDriver>;
static_assert(recording_stream<CudaRecordingStream>);

}  // namespace holdfast
