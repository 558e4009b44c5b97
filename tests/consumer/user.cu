// SPDX-License-Identifier: Apache-2.0
// A user's CUDA source: kernels of its own on the library's streams and memory, and the same pool under code that takes CCCL's
// memory resources. Where there is no GPU it says so and is done.
#include <cstdio>
#include <utility>
#include <vector>

#include "holdfast/backend/bfc/stream_pool.hpp"
#include "holdfast/backend/cuda/device_memory.hpp"
#include "holdfast/backend/cuda/resource.hpp"
#include "holdfast/buffer/tracked_buffer.hpp"

using namespace holdfast;
using Heap = BfcStreamHeap<CudaDeviceMemory, CudaEvent>;
using Buffer = TrackedBuffer<Heap::Pool, CudaEvent, SharedHold>;
#if CCCL_VERSION < 3001000
using AnyMemory = cuda::mr::async_resource_ref<cuda::mr::device_accessible>;
#else
using AnyMemory = cuda::mr::resource_ref<cuda::mr::device_accessible>;
#endif

constexpr int count = 1 << 20, block_size = 256;
constexpr Bytes bytes = count * Bytes{sizeof(float)};

__global__ void fill(float* x, float value) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) x[i] = value;
}
__global__ void add(const float* a, const float* b, float* sum) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) sum[i] = a[i] + b[i];
}

// The event of what was launched on a stream; where that failed, what was launched before it is waited for.
Result<CudaEvent> launched(const CudaStreamRef& stream) noexcept {
  if (cudaError_t e = cudaGetLastError(); e != cudaSuccess) {
    static_cast<void>(stream.synchronize());
    Error failure = make_error(Errc::device_fault, "a kernel could not be launched");
    failure.native = static_cast<int>(e);
    return failure;
  }
  return CudaEvent::recorded_on(stream);
}

Result<Buffer> filled(Heap::Pool pool, const CudaStreamRef& stream, float value) {
  return Buffer::allocate_on(pool, stream, bytes, Alignment(256), [&](Block to) noexcept {
    fill<<<count / block_size, block_size, 0, stream.native()>>>(reinterpret_cast<float*>(to.data), value);
    return launched(stream);
  });
}

// x + value, in scratch memory that foreign code asks a resource for.
Result<Buffer> plus(Heap::Pool pool, AnyMemory scratch, const CudaStreamRef& stream, Buffer& x, float value) {
  Result<Buffer::scoped_hold> in = x.hold(HoldKind::usage);
  if (!in.ok()) return in.error();
  if (Error e = x.wait_until_ready_on(stream); !e.ok()) return e;
  Result<Buffer> sum = Buffer::allocate_on(pool, stream, bytes, Alignment(256), [&](Block to) noexcept {
#if CCCL_VERSION < 3001000
    auto* const values = static_cast<float*>(scratch.allocate_async(bytes, 256, to_stream_ref(stream)));
#else
    auto* const values = static_cast<float*>(scratch.allocate(to_stream_ref(stream), bytes, 256));
#endif
    fill<<<count / block_size, block_size, 0, stream.native()>>>(values, value);
    add<<<count / block_size, block_size, 0, stream.native()>>>(reinterpret_cast<const float*>(in->raw().data()), values,
                                                                reinterpret_cast<float*>(to.data));
#if CCCL_VERSION < 3001000
    scratch.deallocate_async(values, bytes, 256, to_stream_ref(stream));
#else
    scratch.deallocate(to_stream_ref(stream), values, bytes, 256);
#endif
    Result<CudaEvent> done = launched(stream);
    if (done.ok()) in->convert(*done);
    return done;
  });
  return sum;
}

Error run(const CudaContext& context) {
  Result<CudaStream> a = context.make_stream(), b = context.make_stream();
  if (!a.ok() || !b.ok()) return a.ok() ? b.error() : a.error();
  Result<Heap> heap = Heap::make(CudaDeviceMemory(context));
  if (!heap.ok()) return heap.error();
  CudaResource<Heap::Pool> resource(heap->pool(), context);
  Result<Buffer> x = filled(heap->pool(), *a, 1.5f);
  if (!x.ok()) return x.error();
  Result<Buffer> y = plus(heap->pool(), resource, *b, *x, 2.0f);
  if (!y.ok()) return y.error();
  std::vector<float> result(count);
  if (Error e = y->block_for_operations(); !e.ok()) return e;
  Result<Buffer::scoped_hold> out = y->hold(HoldKind::usage);
  if (!out.ok()) return out.error();
  Result<CudaEvent> copied = out->raw().copy_out(0, std::as_writable_bytes(std::span(result)));
  if (!copied.ok()) return copied.error();
  if (Error e = copied->wait(); !e.ok()) return e;
  for (const float f : result)
    if (f != 3.5f) return make_error(Errc::internal, "the sum is wrong");
  return {};
}

int main() {
  Result<CudaContext> context = CudaContext::make();
  const Error e = context.ok() ? run(*context) : context.error();
  std::printf("%s\n", e.ok() ? "ran on the device" : e.what);
  return e.ok() || e.code == Errc::unsupported ? 0 : 1;
}
