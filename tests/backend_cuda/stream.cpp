// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/cuda/stream.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "double/cuda_world.hpp"

using namespace holdfast;
using namespace holdfast::testing;

// 0 and nullptr are no streams, and a reference never owns.
template <class C, class T>
concept takes = requires(C& c, T handle) { c.stream(handle); } || requires(C& c, T handle) { c.adopt_stream(handle); };
static_assert(takes<DoubleContext, CUstream> && !takes<DoubleContext, int> && !takes<DoubleContext, std::nullptr_t>);
static_assert(std::is_trivially_copyable_v<DoubleStreamRef> && !std::is_copy_constructible_v<DoubleStream>);
static_assert(std::is_nothrow_move_constructible_v<DoubleStream> && std::is_convertible_v<const DoubleStream&, const DoubleStreamRef&>);

TEST_CASE("cuda stream: it is made, waited for and destroyed with its owner; no context stays current") {
  CudaWorld w;
  {
    const DoubleStream s = w.stream();
    CHECK(s);
    CHECK(*s.idle());
    bool ran = false;
    w.cuda.launch(s.native(), "kernel", {}, [&ran] { ran = true; });
    CHECK(s.synchronize().ok());
    CHECK(ran);
    CHECK(w.cuda.count("cuStreamDestroy") == 0);
  }
  CHECK(w.cuda.count("cuStreamDestroy") == 1);
}

TEST_CASE("cuda stream: who asks often enough sees that all is done, and may count on it") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    CudaWorld w(seed);
    const DoubleStream s = w.stream();
    std::vector<std::byte> bytes(8);
    const Block block{bytes.data(), 8};
    int ran = 0, asked = 0;
    for (int i = 0; i < 3; ++i) w.cuda.launch(s.native(), "kernel", {writes(block)}, [&ran] { ++ran; });
    while (!*s.idle()) REQUIRE(++asked < 1000);
    CHECK(ran == 3);
    CHECK(asked > 0);
    w.cuda.host_writes(bytes);
    for (int i = 0; i < 2; ++i) {  // a question from before says nothing of what came later
      w.cuda.launch(s.native(), "kernel", {writes(block)}, [&ran] { ++ran; });
      while (!*s.idle()) {
      }
      CHECK(ran == 4 + i);
    }
  }
}

TEST_CASE("cuda stream: destroyed with work pending it does not block, and the work is done") {
  CudaWorld w;
  bool ran = false;
  {
    const DoubleStream s = w.stream();
    w.cuda.launch(s.native(), "kernel", {}, [&ran] { ran = true; });
  }
  CHECK(!ran);
  CHECK(w.context->synchronize().ok());
  CHECK(ran);
}

TEST_CASE("cuda stream: native handles go in and out: lent, taken over, given up") {
  CudaWorld w;
  DoubleStream s = w.stream();
  const DoubleStreamRef lent = *w.context->stream(s.native());
  CHECK(lent == s.ref());
  DoubleStream taken = std::move(*w.context->adopt_stream(s.release()));
  CHECK(!s);
  CHECK(taken.ref() == lent);
  CHECK(w.context->stream(CUstream{}).error().code == Errc::invalid_argument);
  CHECK(w.context->adopt_stream(CUstream{}).error().code == Errc::invalid_argument);
  s = std::move(taken);
  CHECK(s.ref() == lent);
}

TEST_CASE("cuda stream: two streams that had the same handle, one after the other, are not equal") {
  CudaWorld w;
  DoubleStreamRef old;
  {
    const DoubleStream s = w.stream();
    old = s;
  }
  const DoubleStream s = w.stream();
  REQUIRE(s.native() == old.native());
  CHECK(!(s.ref() == old));
}

TEST_CASE("cuda stream: it waits for an event that another library made") {
  CudaWorld w;
  const DoubleStream a = w.stream(), b = w.stream();
  int order = 0, first = 0, second = 0;
  CUevent foreign = nullptr;
  const DoubleDriver driver = w.cuda.driver();
  REQUIRE(driver(cuda_call::CtxPushCurrent{}, w.context->native()) == CUDA_SUCCESS);
  REQUIRE(driver(cuda_call::EventCreate{}, &foreign, static_cast<unsigned>(CU_EVENT_DISABLE_TIMING)) == CUDA_SUCCESS);
  w.cuda.launch(a.native(), "first", {}, [&] { first = ++order; });
  REQUIRE(driver(cuda_call::EventRecord{}, foreign, a.native()) == CUDA_SUCCESS);
  CHECK(b.ref().wait(foreign).ok());
  w.cuda.launch(b.native(), "second", {}, [&] { second = ++order; });
  CHECK(b.synchronize().ok());
  CHECK(first == 1);
  CHECK(second == 2);
  REQUIRE(driver(cuda_call::EventDestroy{}, foreign) == CUDA_SUCCESS);
  CUcontext popped = nullptr;
  REQUIRE(driver(cuda_call::CtxPopCurrent{}, &popped) == CUDA_SUCCESS);
}

TEST_CASE("cuda context: a device that is not there, a driver that fails: an error with the call's name, nothing is kept") {
  CudaDouble cuda;
  CHECK(DoubleContext::make(cuda.driver(), 2).error().native == CUDA_ERROR_INVALID_DEVICE);
  CHECK(says(DoubleContext::make(cuda.driver(), -1).error(), "cuDeviceGet failed"));
  cuda.fail_at(2, CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(says(DoubleContext::make(cuda.driver(), 0).error(), "cuDevicePrimaryCtxRetain failed"));
  CHECK(cuda.leaks() == "");
}

TEST_CASE("cuda context: peers are enabled once and again, a pair that cannot is refused") {
  for (const bool can : {true, false}) {
    CudaDoubleOptions o;
    o.peers = can;
    CudaWorld w(o);
    for (int i = 0; i < 2; ++i) CHECK(w.context->enable_peer(*w.other).code == (can ? Errc::ok : Errc::unsupported));
  }
}
