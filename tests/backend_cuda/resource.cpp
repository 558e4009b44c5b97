// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/cuda/resource.hpp"

#include <array>
#include <new>
#include <utility>

#include <doctest/doctest.h>

#include "double/cuda_world.hpp"
#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/backend/layer/aligned.hpp"
#include "holdfast/backend/stack.hpp"
#include "holdfast/buffer/tracked_buffer.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {

namespace mr = ::cuda::mr;
using Device = BasicCudaDeviceMemory<DoubleDriver>;
using Pool = BasicCudaPool<DoubleDriver>;
using PoolMemory = BasicCudaPoolMemory<DoubleDriver>;
using Pinned = BasicCudaHostMemory<DoubleDriver>;
using Managed = BasicCudaManagedMemory<DoubleDriver>;
using OnPool = CudaResource<PoolMemory>;

// CCCL's two names for each concept.
#if CCCL_VERSION < 3001000
template <class R>
concept plain = mr::resource<R>;
template <class R>
concept ordered = mr::async_resource<R>;
using AnyOrdered = mr::async_resource_ref<mr::device_accessible>;
#else
template <class R>
concept plain = mr::synchronous_resource<R>;
template <class R>
concept ordered = mr::resource<R>;
using AnyOrdered = mr::resource_ref<mr::device_accessible>;
#endif
template <class R, class P>
concept has = ::cuda::has_property<R, P>;

static_assert(plain<CudaResource<Device>> && !ordered<CudaResource<Device>> && ordered<OnPool>);
static_assert(has<OnPool, mr::device_accessible> && !has<OnPool, mr::host_accessible>);
static_assert(has<CudaResource<Pinned>, mr::device_accessible> &&
              has<CudaResource<Pinned>, mr::host_accessible>);
static_assert(has<CudaResource<Managed>, mr::device_accessible> &&
              has<CudaResource<Managed>, mr::host_accessible>);
static_assert(!has<CudaResource<SystemMemory>, mr::device_accessible> &&
              has<CudaResource<SystemMemory>, mr::host_accessible>);
static_assert(has<CudaResource<Stack<Pinned, Aligned<64>>>, mr::device_accessible>);
static_assert(ordered<CudaResource<Stack<PoolMemory, Aligned<64>>>>);
static_assert(!std::is_constructible_v<OnPool, PoolMemory>, "streams are a context's");
static_assert(sizeof(CudaResource<SystemMemory>) == 1);

// A resource of someone else's: CCCL's old form, and the new one.
enum class Mood { well, bad_alloc, cuda_error, other, null };
struct OldForm {
  explicit OldForm(OnPool* on) : inner(on) {}
  OnPool* inner;
  Mood mood = Mood::well;
  std::size_t asked = 0, told = 0;  // the alignments
  void* answer(void* p) {
    switch (mood) {
      case Mood::bad_alloc:
        throw std::bad_alloc();
      case Mood::cuda_error:
        throw ::cuda::cuda_error(cudaErrorIllegalAddress, "failed");
      case Mood::other:
        throw 7;
      default:
        return p;
    }
  }
  void* allocate(std::size_t n, std::size_t a) {
    return asked = a, mood == Mood::well ? inner->allocate(n, a) : answer(nullptr);
  }
  void deallocate(void* p, std::size_t n, std::size_t a) {
    told = a, answer(nullptr), inner->deallocate(p, n, a);
  }
  void* allocate_async(std::size_t n, std::size_t a, ::cuda::stream_ref s) {
    return asked = a, mood == Mood::well ? inner->allocate_async(n, a, s) : answer(nullptr);
  }
  void deallocate_async(void* p, std::size_t n, std::size_t a, ::cuda::stream_ref s) {
    told = a, inner->deallocate_async(p, n, a, s);
  }
  bool operator==(const OldForm& o) const { return inner == o.inner; }
  friend void get_property(const OldForm&, mr::device_accessible) noexcept {}
};
struct NewForm : private OldForm {
  using OldForm::OldForm;
  using OldForm::told;
  int calls = 0;
  void* allocate_sync(std::size_t n, std::size_t a) { return ++calls, inner->allocate_sync(n, a); }
  void deallocate_sync(void* p, std::size_t n, std::size_t a) noexcept {
    ++calls, told = a, inner->deallocate_sync(p, n, a);
  }
  void* allocate(::cuda::stream_ref s, std::size_t n, std::size_t a) {
    return ++calls, inner->allocate(s, n, a);
  }
  void deallocate(::cuda::stream_ref s, void* p, std::size_t n, std::size_t a) noexcept {
    ++calls, told = a, inner->deallocate(s, p, n, a);
  }
  bool operator==(const NewForm& o) const { return inner == o.inner; }
  friend void get_property(const NewForm&, mr::device_accessible) noexcept {}
};
template <class R>
using Memory = BasicCudaResourceMemory<DoubleDriver, R>;
static_assert(stream_ordered_backend<Memory<OldForm>> && stream_ordered_backend<Memory<NewForm>> &&
              copying_backend<Memory<OldForm>>);
static_assert(memory_backend<Memory<CudaResource<Device>>> &&
              !stream_ordered_backend<Memory<CudaResource<Device>>>);
static_assert(Memory<CudaResource<Pinned>>::space == MemorySpace::device &&
              host_accessible<Memory<CudaResource<Pinned>>>);
static_assert(Memory<CudaResource<SystemMemory>>::space == MemorySpace::host);

struct ResourceWorld : CudaWorld {
  using CudaWorld::CudaWorld;
  Pool pool = std::move(*Pool::make(*context));
  OnPool on_pool{pool.memory(), *context};
};

const ::cuda::stream_ref cccl_default(cudaStream_t{});

// A driver whose default stream is one of the double's, which has none.
struct DefaultStream {
  DoubleDriver driver;
  CUstream legacy = nullptr;
  CUstream map(CUstream s) const noexcept { return s == CU_STREAM_LEGACY ? legacy : s; }
  template <class T>
  T map(T x) const noexcept {
    return x;
  }
  template <class Call, class... Args>
  CUresult operator()(Call call, Args... args) const noexcept {
    return driver(call, map(args)...);
  }
  void pause(const std::atomic<std::uint32_t>& word, std::uint32_t old,
             Deadline deadline) const noexcept {
    driver.pause(word, old, deadline);
  }
  holdfast::detail::CudaContexts& contexts() const noexcept { return driver.contexts(); }
};

}  // namespace

TEST_CASE(
    "cuda resource: a type-erased resource of CCCL gives the backend's memory and takes it back") {
  ResourceWorld w;
  const DoubleStream s = w.stream();
  AnyOrdered any(w.on_pool);
#if CCCL_VERSION < 3001000
  void* const p = any.allocate(1000, 256);
  void* const q = any.allocate_async(2000, 256, to_stream_ref(s.ref()));
  CHECK(w.pool.memory().used() == 3000);
  any.deallocate_async(q, 2000, 256, to_stream_ref(s.ref()));
  any.deallocate(p, 1000, 256);
#else
  void* const p = any.allocate_sync(1000, 256);
  void* const q = any.allocate(to_stream_ref(s.ref()), 2000, 256);
  CHECK(w.pool.memory().used() == 3000);
  any.deallocate(to_stream_ref(s.ref()), q, 2000, 256);
  any.deallocate_sync(p, 1000, 256);
#endif
  CHECK(w.pool.memory().used() == 0);
}

TEST_CASE(
    "cuda resource: what the backend refuses is std::bad_alloc, as are sizes and alignments that "
    "none has") {
  CudaDoubleOptions o;
  o.capacity = 4_MiB;
  CudaWorld w(o);
  CudaResource<Device> r{Device(*w.context)};
  CHECK_THROWS_AS(static_cast<void>(r.allocate(8 << 20, 256)), std::bad_alloc);
  CHECK_THROWS_AS(static_cast<void>(r.allocate(~std::size_t{0}, 256)), std::bad_alloc);
  CHECK_THROWS_AS(static_cast<void>(r.allocate_sync(64, 3)), std::bad_alloc);
  CHECK_THROWS_AS(static_cast<void>(r.allocate(64, 0)), std::bad_alloc);
  CHECK_THROWS_AS(static_cast<void>(r.allocate(64, ~std::size_t{0} / 2 + 1)), std::bad_alloc);
  void* const none = r.allocate(0, 256);
  CHECK(none == nullptr);
  r.deallocate(none, 0);
  CHECK(w.cuda.used(0) == 0);
}

TEST_CASE(
    "cuda resource: a stream that the driver does not know gets nothing, and gives nothing back") {
  ResourceWorld w;
  DoubleStream s = w.stream();
  const ::cuda::stream_ref gone = to_stream_ref(s.ref());
  void* const p = w.on_pool.allocate_async(512, 256, gone);
  CHECK(s.synchronize().ok());
  s = DoubleStream();
  CHECK_THROWS_AS(static_cast<void>(w.on_pool.allocate_async(512, 256, gone)), std::bad_alloc);
  w.on_pool.deallocate_async(p, 512, 256, gone);
  CHECK(w.pool.memory().used() == 512);
  CHECK(!w.context->unreported().ok());
  w.expected_unreported = w.context->unreported().code;
  w.cuda.misuse.clear();
  w.on_pool.deallocate(p, 512);
}

TEST_CASE("cuda resource: CCCL's default stream is the legacy one") {
  CudaWorld w;
  const DoubleStream s = w.stream();
  const auto c =
      std::move(*BasicCudaContext<DefaultStream>::make({w.cuda.driver(), s.native()}, 0));
  const auto pool = std::move(*BasicCudaPool<DefaultStream>::make(c));
  CudaResource<BasicCudaPoolMemory<DefaultStream>> r(pool.memory(), c);
  void* const p = r.allocate(cccl_default, 512);
  CHECK(from_stream_ref(c, cccl_default)->id() == s.id());
  r.deallocate(cccl_default, p, 512);
  CHECK(native_stream(to_stream_ref(s.ref())) == s.native());
  CHECK(c.unreported().ok());
}

TEST_CASE("cuda resource: equal are those of one backend; without equality each is itself alone") {
  ResourceWorld w;
  const Pool second = std::move(*Pool::make(*w.context));
  CHECK(w.on_pool == OnPool(w.pool.memory(), *w.context));
  CHECK(!(w.on_pool == OnPool(second.memory(), *w.context)));
  using Layered = Stack<PoolMemory, Aligned<64>>;
  const CudaResource<Layered> a(Layered(w.pool.memory()), *w.context), b = a;
  CHECK(a == a);
  CHECK((a == b) == std::equality_comparable<Layered>);
}

TEST_CASE_TEMPLATE(
    "cuda resource: tracked buffers stand on a resource of either form, with events and copies", R,
    OldForm, NewForm) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    ResourceWorld w(seed);
    R foreign(&w.on_pool);
    using M = Memory<R>;
    using Buffer = TrackedBuffer<M, DoubleEvent, SharedHold>;
    M m(*w.context, foreign);
    Buffer b = std::move(*Buffer::allocate(m, 64));
    std::array<std::byte, 64> in{}, out{};
    in.fill(std::byte{42});
    {
      auto hold = std::move(*b.hold(HoldKind::usage));
      auto put = std::move(*m.copy_in(hold.raw().block(), 0, in));
      CHECK(put.wait().ok());
      auto got = std::move(*m.copy_out(hold.raw().block(), 0, out));
      CHECK(got.wait().ok());
      hold.convert();
    }
    CHECK(in == out);
    const DoubleStream s = w.stream();
    const Block block = *m.allocate(s, 1_MiB, Alignment(64));
    CHECK(foreign.told == 0);
    m.deallocate(s, block);
    CHECK(foreign.told == 256);  // what was asked for
  }
}

TEST_CASE(
    "cuda resource: what a foreign resource throws or lacks is an error with its code, and nothing "
    "is kept") {
  ResourceWorld w;
  OldForm foreign(&w.on_pool);
  Memory<OldForm> m(*w.context, foreign);
  const struct {
    Mood mood;
    Errc code;
    int native;
  } known[] = {{Mood::bad_alloc, Errc::out_of_memory, 0},
               {Mood::null, Errc::out_of_memory, 0},
               {Mood::cuda_error, Errc::device_fault, cudaErrorIllegalAddress},
               {Mood::other, Errc::internal, 0}};
  const DoubleStream s = w.stream();
  for (const auto& k : known) {
    foreign.mood = k.mood;
    for (const Error& e :
         {m.allocate(100, Alignment(16)).error(), m.allocate(s, 100, Alignment(16)).error()}) {
      CHECK(e.code == k.code);
      CHECK(e.native == k.native);
      CHECK(e.stage == Stage::allocation);
      CHECK(e.requested == 100);
    }
  }
  foreign.mood = Mood::well;
  CHECK(m.allocate(-1, Alignment(16)).error().code == Errc::invalid_argument);
  CHECK(m.allocate(100, Alignment(512)).error().code == Errc::unsupported);
  CHECK(*m.allocate(0, Alignment(16)) == Block{});
  m.deallocate(Block{});
  CHECK(w.pool.memory().used() == 0);
}

TEST_CASE("cuda resource: what a release throws is the context's unreported error") {
  ResourceWorld w;
  OldForm foreign(&w.on_pool);
  Memory<OldForm> m(*w.context, foreign);
  const Block block = *m.allocate(100, Alignment(16));
  foreign.mood = Mood::other;
  m.deallocate(block);
  CHECK(says(w.context->unreported(), "the cuda::mr resource threw"));
  w.expected_unreported = Errc::internal;
  foreign.mood = Mood::well;
  m.deallocate(block);
}
