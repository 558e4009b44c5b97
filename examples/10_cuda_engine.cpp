// SPDX-License-Identifier: Apache-2.0
// An engine's loop on a CUDA device: inputs come through locked memory while the device works, a state is donated from step to step,
// and what is dropped lives until the device is done with it. The driver is loaded at run time; where there is none it is skipped.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/backend/bfc/stream_pool.hpp"
#include "holdfast/backend/cuda/host_memory.hpp"
#include "holdfast/backend/cuda/segment_memory.hpp"
#include "holdfast/buffer/tracked_buffer.hpp"
#include "holdfast/concepts/sink.hpp"

namespace {

using namespace holdfast;
using namespace holdfast::literals;

// Device memory: a best-fit pool in the order of streams, over a range of addresses that gets memory as it is needed.
using DeviceHeap = BfcStreamHeap<CudaSegmentMemory, CudaEvent, BestFit, ExactSplit, ExactGrowth>;
using Buffer = TrackedBuffer<DeviceHeap::Pool, CudaEvent, SharedHold>;
// Locked host memory: under a pool, as locking pages is slow.
using StagingHeap = BfcHeap<CudaHostMemory>;
using Staging = TrackedBuffer<StagingHeap::Pool, CudaEvent, SharedHold>;

constexpr int steps = 12;
constexpr Bytes size = 4_MiB, half = size / 2;

// What an engine hands around: handles, all of them.
struct Engine {
  CudaStreamRef compute, copies;
  DeviceHeap::Pool memory;
  StagingHeap::Pool staging;
};

// The input of a step, as some loader would give it.
void fill(std::span<std::byte> bytes, int step) {
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 4096 + static_cast<std::size_t>(step));
}

// Puts a step's input on the device. The caller has it at once; its contents are valid after the copy.
Result<Buffer> upload(Engine& engine, int step) {
  Result<Staging> staging = Staging::allocate(engine.staging, size, Alignment(256));
  if (!staging.ok()) return staging.error();
  auto from = staging->hold(HoldKind::usage);
  if (!from.ok()) return from.error();
  const std::span<std::byte> bytes(from->raw().data(), static_cast<std::size_t>(size));
  fill(bytes, step);

  return Buffer::allocate_on(engine.memory, engine.copies, size, Alignment(256), [&](Block to) noexcept {
    Result<CudaEvent> copied = engine.memory.copy_in(engine.copies, to, 0, bytes);
    if (copied.ok()) from->convert(*copied);  // the locked memory goes back to its pool after the copy
    return copied;
  });
}

// state = [upper half of state, lower half of input]. Where these copies stand an engine launches kernels, on `stream.native()`.
Result<CudaEvent> shift(DeviceHeap::Pool memory, const CudaStreamRef& stream, Block state, Block input) {
  Result<Block> scratch = memory.allocate(stream, half, Alignment(256), Tag{"scratch", 0});
  if (!scratch.ok()) return scratch.error();
  Error e = memory.copy(stream, *scratch, 0, state, half, half).error();
  if (e.ok()) e = memory.copy(stream, state, 0, *scratch, 0, half).error();
  memory.deallocate(stream, *scratch);  // in the stream's order: its next step has it again without a wait
  if (!e.ok()) return e;
  return memory.copy(stream, state, half, input, 0, half);
}

// One step, in place: the new state has the memory of the old one, which is gone.
Result<Buffer> step(Engine& engine, Buffer state, Buffer& input) {
  CudaStreamRef& compute = engine.compute;
  if (Error e = input.wait_until_ready_on(compute); !e.ok()) return e;
  auto reader = input.hold(HoldKind::usage);
  if (!reader.ok()) return reader.error();
  auto donation = state.hold(HoldKind::donation);
  if (!donation.ok()) return donation.error();
  for (const CudaEvent& e : donation->definition_events())
    if (Error failure = e.wait_on(compute); !failure.ok()) return failure;
  for (const CudaEvent& e : donation->usage_events())  // its readers, here the other stream's copy
    if (Error failure = e.wait_on(compute); !failure.ok()) return failure;

  Buffer::raw_type raw = donation->raw();
  Result<CudaEvent> done = shift(engine.memory, compute, raw.block(), reader->raw().block());
  if (!done.ok()) return static_cast<void>(compute.synchronize()), done.error();  // before the holds go: some of it may be enqueued
  reader->convert(*done);
  donation->confirm(*done);
  return Buffer::make(std::move(raw), {&*done, 1});
}

// Reads a buffer back while it is already being deleted. Gives the bytes once they are there.
Error download(Engine& engine, Buffer buffer, std::vector<std::byte>& to) {
  Result<Staging> staging = Staging::allocate(engine.staging, buffer.size(), Alignment(256));
  if (!staging.ok()) return staging.error();
  auto into = staging->hold(HoldKind::usage);
  if (!into.ok()) return into.error();
  const std::span<std::byte> bytes(into->raw().data(), static_cast<std::size_t>(buffer.size()));
  CudaEvent copied;
  Error e = buffer.use("download called on a buffer that is gone",
                       [&](const Buffer::raw_type& raw, std::span<const CudaEvent> definition) noexcept -> Result<CudaEvent> {
                         for (const CudaEvent& d : definition)
                           if (Error failure = d.wait_on(engine.copies); !failure.ok()) return failure;
                         auto made = engine.memory.copy_out(engine.copies, raw.block(), 0, bytes);
                         if (made.ok()) copied = *made;
                         return made;
                       });
  if (!e.ok()) return e;
  if (e = buffer.release(); !e.ok()) return e;  // never waits for the device: the memory goes when the copy has read it
  if (e = copied.wait(); !e.ok()) return e;
  to.assign(bytes.begin(), bytes.end());
  return {};
}

Error run(const CudaContext& context, std::vector<std::byte>& result) {
  Result<CudaStream> compute = context.make_stream(), copies = context.make_stream();
  if (!compute.ok()) return compute.error();
  if (!copies.ok()) return copies.error();
  Result<CudaSegment> segment = CudaSegment::reserve(context, 1_GiB);
  if (!segment.ok()) return segment.error();
  BfcStreamOptions options;
  options.pool.region = segment->granule();
  Result<DeviceHeap> device = DeviceHeap::make(CudaSegmentMemory(*segment), options);
  if (!device.ok()) return device.error();
  Result<StagingHeap> staging = StagingHeap::make(CudaHostMemory(context), {});
  if (!staging.ok()) return staging.error();
  Engine engine{*compute, *copies, device->pool(), staging->pool()};

  Result<Buffer> first = upload(engine, 0);
  if (!first.ok()) return first.error();
  Buffer state = std::move(*first);
  std::array<CudaEvent, 2> in_flight;  // the host is at most two steps ahead
  for (int k = 1; k <= steps; ++k) {
    CudaEvent& slot = in_flight[static_cast<std::size_t>(k % 2)];
    if (Error e = slot.wait(); !e.ok()) return e;  // and runs continuations: what was dropped and is done with goes back
    Result<Buffer> input = upload(engine, k);
    if (!input.ok()) return input.error();
    Result<Buffer> next = step(engine, std::move(state), *input);
    if (!next.ok()) return next.error();
    state = std::move(*next);
    if (Error e = slot.record(*compute); !e.ok()) return e;
  }  // the input is deleted here, while the step still reads it
  if (Error e = download(engine, std::move(state), result); !e.ok()) return e;
  if (Error e = context.synchronize(); !e.ok()) return e;  // and runs the continuations: all buffers are back

  const BfcStatistics figures = device->pool().statistics();
  const BfcStreamStatistics order = device->pool().stream_statistics();
  std::printf("%d steps of %lld bytes: %lld bytes of memory mapped, %llu waits of streams, %llu of the host by the pool\n", steps,
              static_cast<long long>(size), static_cast<long long>(segment->mapped()), static_cast<unsigned long long>(order.waits),
              static_cast<unsigned long long>(order.host_waits));
  if (figures.in_use != 0) return make_error(Errc::internal, "blocks are still out");
  return context.unreported();  // a failure of a call that gives something back
}

// What the steps leave, computed here.
bool is_right(std::span<const std::byte> result) {
  std::vector<std::byte> last(static_cast<std::size_t>(size)), before(last.size());
  fill(before, steps - 1);
  fill(last, steps);
  const std::size_t n = last.size() / 2;
  return result.size() == last.size() && std::equal(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(n), result.begin()) &&
         std::equal(last.begin(), last.begin() + static_cast<std::ptrdiff_t>(n), result.begin() + static_cast<std::ptrdiff_t>(n));
}

struct Printer {
  Error write(std::string_view text) noexcept {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return {};
  }
};
int tell(const char* title, const Error& error, int status) {
  Printer out;
  std::printf("%s", title);
  static_cast<void>(write_error(out, error));
  std::printf("\n");
  return status;
}

}  // namespace

int main() {
  Result<CudaContext> context = CudaContext::make();
  if (!context.ok()) {
    const bool skipped = context.error().code == Errc::unsupported;  // no driver, too old a one, no device
    return tell(skipped ? "skipped: " : "failed: ", context.error(), skipped ? 77 : 1);
  }
  std::vector<std::byte> result;
  if (Error e = run(*context, result); !e.ok()) return tell("failed: ", e, 1);
  if (is_right(result)) return 0;
  std::printf("failed: the bytes that came back are wrong\n");
  return 1;
}
