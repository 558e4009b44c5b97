// SPDX-License-Identifier: Apache-2.0
#include "holdfast/execute/plan_executor.hpp"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "execute/planned_text.hpp"
#include "holdfast/backend/simulated/machine.hpp"
#include "holdfast/buffer/transfer.hpp"
#include "holdfast/event/host_event.hpp"
#include "holdfast/event/immediate_event.hpp"
#include "holdfast/hold/local_hold.hpp"
#include "holdfast/hold/no_hold.hpp"
#include "holdfast/hold/striped_hold.hpp"

using namespace holdfast;
using holdfast::testing::CountingMemory;
using holdfast::testing::Counts;
using holdfast::testing::PlannedText;

namespace {

/// Computes on s32; `fail` names an instruction whose kernel fails.
struct IntKernel : ProgramControl {
  const Module* m = nullptr;
  std::string_view fail = {};
  std::atomic<int> calls{0};
  std::atomic<bool> closed{false};  ///< kernels wait until it is opened

  explicit IntKernel(const PlannedText& p, std::string_view failing = {})
      : m(&p.module), fail(failing) {}

  Error fill_constant(const KernelArray& a) noexcept {
    const std::string text(m->attribute((*m)[a.instruction], ""));
    for (int& v : a.as<int>()) v = std::atoi(text.c_str());
    return {};
  }
  Error run(const KernelCall& c) noexcept {
    ++calls;
    closed.wait(true);
    if (c.what().name == fail) return make_error(Errc::internal, "test error.");
    const auto a = c.operand(0).as<int>();
    const auto r = c.results[0].as<int>();
    const auto b = c.what().operands.count > 1 ? c.operand(1).as<int>() : a;
    if (c.what().opcode == Opcode::compare)
      return *c.results[0].memory.data = std::byte{a[0] < b[0]}, Error{};
    for (std::size_t k = 0; k < r.size(); ++k) switch (c.what().opcode) {
        case Opcode::add:
          r[k] = a[k] + b[k];
          break;
        case Opcode::subtract:
          r[k] = a[k] - b[k];
          break;
        case Opcode::multiply:
          r[k] = a[k] * b[k];
          break;
        case Opcode::negate:
          r[k] = -a[k];
          break;
        case Opcode::copy:
          r[k] = a[k];
          break;
        case Opcode::broadcast:
          r[k] = a[0];
          break;
        default:
          return make_error(Errc::unsupported, "no kernel for this operation");
      }
    return {};
  }
};

template <class Event = HostEvent, class Hold = SharedHold, class Backend = SystemMemory>
struct Bench {
  using Executor = PlanExecutor<Backend, Event, Hold>;
  using Buffer = typename Executor::buffer_type;

  PlannedText p;
  IntKernel kernel;
  Executor executor;
  Backend backend;
  std::vector<Buffer> results;

  explicit Bench(std::string_view text, Backend b = {}, std::string_view fail = {})
      : p(text),
        kernel(p, fail),
        executor(std::move(*Executor::make(p.program(), b, kernel))),
        backend(b),
        results(executor.results().size()) {}

  Buffer buffer(std::vector<int> values) {
    auto raw = std::move(
        *Executor::raw_type::allocate(backend, static_cast<Bytes>(values.size() * sizeof(int))));
    auto copied = raw.copy_in(0, std::as_bytes(std::span(values)));
    REQUIRE(copied.ok());
    CHECK(copied->wait().ok());
    return std::move(*Buffer::make(std::move(raw)));
  }
  static std::vector<int> read(Buffer& b) {
    std::vector<int> values(static_cast<std::size_t>(b.size()) / sizeof(int));
    CHECK(b.block_for_operations().ok());
    auto hold = b.hold(HoldKind::usage);
    REQUIRE(hold.ok());
    if (b.size() > 0) std::memcpy(values.data(), hold->raw().data(), values.size() * sizeof(int));
    return values;
  }
  static const std::byte* address(Buffer& b) { return b.hold(HoldKind::usage)->raw().data(); }
  Error run(std::vector<Buffer*> arguments, const LaunchOptions& options = {}) {
    return executor.execute(arguments, results, kernel, options);
  }
};

constexpr std::string_view sums = R"(
HloModule sums, is_scheduled=true
ENTRY e {
  a = s32[4] parameter(0)
  b = s32[4] parameter(1)
  s = s32[4] add(a, b)
  d = s32[4] subtract(a, b)
  n = s32[4] negate(s)
  m = s32[4] multiply(n, d)
  ROOT r = (s32[4], s32[4]) tuple(m, s)
})";

constexpr std::string_view update = R"(
HloModule update, is_scheduled=true, input_output_alias={ {}: (0, {}, may-alias) }
ENTRY e {
  a = s32[4] parameter(0)
  b = s32[4] parameter(1)
  ROOT r = s32[4] add(a, b)
})";

/// 5 rounds of x, y = y, x + y, with the program's own counter and predicate.
constexpr std::string_view fibonacci = R"(
HloModule fibonacci, is_scheduled=true
cond {
  s = (s32[2], s32[2], s32[]) parameter(0)
  n = s32[] get-tuple-element(s), index=2
  limit = s32[] constant(5)
  ROOT more = pred[] compare(n, limit), direction=LT
}
body {
  s = (s32[2], s32[2], s32[]) parameter(0)
  x = s32[2] get-tuple-element(s), index=0
  y = s32[2] get-tuple-element(s), index=1
  n = s32[] get-tuple-element(s), index=2
  z = s32[2] add(x, y)
  one = s32[] constant(1)
  m = s32[] add(n, one)
  ROOT t = (s32[2], s32[2], s32[]) tuple(y, z, m)
}
ENTRY e {
  x = s32[2] parameter(0)
  y = s32[2] parameter(1)
  zero = s32[] constant(0)
  i = (s32[2], s32[2], s32[]) tuple(x, y, zero)
  w = (s32[2], s32[2], s32[]) while(i), condition=cond, body=body
  ROOT r = s32[2] get-tuple-element(w), index=0
})";

constexpr std::string_view choice = R"(
HloModule choice, is_scheduled=true
twice {
  p = s32[4] parameter(0)
  ROOT a = s32[4] add(p, p)
}
minus {
  p = s32[4] parameter(0)
  ROOT a = s32[4] negate(p)
}
same {
  ROOT p = s32[4] parameter(0)
}
ENTRY e {
  i = s32[] parameter(0)
  p = s32[4] parameter(1)
  ROOT c = s32[4] conditional(i, p, p, p), branch_computations={twice, minus, same}
})";

/// f(x) = (-x, x), called three times: it has memory of its own, in its callers' arenas.
constexpr std::string_view calls = R"(
HloModule calls, is_scheduled=true
g {
  x = s32[4] parameter(0)
  y = s32[4] add(x, x)
  z = s32[4] multiply(y, x)
  ROOT n = s32[4] subtract(z, y)
}
f {
  x = s32[4] parameter(0)
  a = s32[4] call(x), to_apply=g
  b = s32[4] call(a), to_apply=g
  ROOT t = (s32[4], s32[4]) tuple(b, x)
}
ENTRY e {
  p = s32[4] parameter(0)
  c = (s32[4], s32[4]) call(p), to_apply=f
  c0 = s32[4] get-tuple-element(c), index=0
  d = (s32[4], s32[4]) call(c0), to_apply=f
  d0 = s32[4] get-tuple-element(d), index=0
  d1 = s32[4] get-tuple-element(d), index=1
  ROOT r = s32[4] add(d0, d1)
})";

template <class E, class H>
struct Policies {
  using event_type = E;
  using hold_type = H;
};
#define POLICIES                                                                                \
  Policies<HostEvent, SharedHold>, Policies<HostEvent, LocalHold>, Policies<HostEvent, NoHold>, \
      Policies<ImmediateEvent, SharedHold>, Policies<ImmediateEvent, NoHold>

template <class P, class Backend = SystemMemory>
using BenchOf = Bench<typename P::event_type, typename P::hold_type, Backend>;

}  // namespace

TEST_CASE_TEMPLATE(
    "plan_executor: kernels compute on planned memory, and results come back as buffers", P,
    POLICIES) {
  BenchOf<P> t(sums);
  CHECK(t.executor.arguments().size() == 2);
  CHECK(t.executor.results().size() == 2);
  auto a = t.buffer({1, 2, 3, 4});
  auto b = t.buffer({10, 20, 30, 40});
  for (int round = 0; round < 3; ++round) {
    REQUIRE(t.run({&a, &b}).ok());
    CHECK(t.read(t.results[0]) == std::vector{99, 396, 891, 1584});
    CHECK(t.read(t.results[1]) == std::vector{11, 22, 33, 44});
    CHECK(t.read(a) == std::vector{1, 2, 3, 4});
  }
  REQUIRE(t.run({&a, &a}).ok());  // one buffer may be read twice
  CHECK(t.read(t.results[1]) == std::vector{2, 4, 6, 8});
}

TEST_CASE_TEMPLATE(
    "plan_executor: T-D10 an aliased argument is donated: gone, and the result lies at its address",
    P, POLICIES) {
  BenchOf<P> t(update);
  CHECK(t.executor.arguments()[0].donated);
  CHECK_FALSE(t.executor.arguments()[1].donated);
  auto a = t.buffer({1, 2, 3, 4});
  auto b = t.buffer({1, 1, 1, 1});
  const std::byte* const at = t.address(a);
  REQUIRE(t.run({&a, &b}).ok());
  CHECK(a.is_deleted());
  CHECK(t.read(t.results[0]) == std::vector{2, 3, 4, 5});
  CHECK(t.address(t.results[0]) == at);
  const Error again = t.run({&a, &b});
  CHECK(status_kind(again) == StatusKind::invalid_argument);
  CHECK(again.at == 0);
  auto carried = std::move(t.results[0]);
  REQUIRE(t.run({&carried, &b}).ok());
  CHECK(t.read(t.results[0]) == std::vector{3, 4, 5, 6});
}

TEST_CASE(
    "plan_executor: T-D1 a buffer that is donated and used in one call is refused, and stays") {
  Bench<> t(update);
  auto a = t.buffer({1, 2, 3, 4});
  const Error e = t.run({&a, &a});
  CHECK(e.code == Errc::invalid_argument);
  CHECK(e.at == 1);
  CHECK_FALSE(a.is_deleted());
  CHECK(a.counts() == HoldCounts{});
  CHECK(t.read(a) == std::vector{1, 2, 3, 4});
}

TEST_CASE(
    "plan_executor: T-D4 an argument that may not be donated is copied, and stays as it was") {
  Bench<> t(update);
  auto a = t.buffer({1, 2, 3, 4});
  auto b = t.buffer({5, 5, 5, 5});
  const std::uint32_t denied[] = {0};
  REQUIRE(t.run({&a, &b}, {.not_donated = denied}).ok());
  CHECK_FALSE(a.is_deleted());
  CHECK(t.read(a) == std::vector{1, 2, 3, 4});
  CHECK(t.read(t.results[0]) == std::vector{6, 7, 8, 9});
  CHECK(t.address(t.results[0]) != t.address(a));
  REQUIRE(t.run({&a, &b}).ok());
  CHECK(a.is_deleted());
}

TEST_CASE(
    "plan_executor: T-D12 constant memory is not written: it is copied, and its buffer is gone") {
  Bench<> t(update);
  alignas(64) int constant[16] = {7, 8, 9, 10};
  auto raw = RawBuffer<SystemMemory>::import_foreign(
      SystemMemory{}, {reinterpret_cast<std::byte*>(constant), 16}, {});
  REQUIRE(raw.ok());
  auto a = std::move(*Bench<>::Buffer::make(*raw));
  auto b = t.buffer({1, 1, 1, 1});
  REQUIRE(t.run({&a, &b}).ok());
  CHECK(a.is_deleted());
  CHECK(t.read(t.results[0]) == std::vector{8, 9, 10, 11});
  CHECK(constant[0] == 7);
}

TEST_CASE(
    "plan_executor: T-D5 a kernel's error is the results' error; a donated argument is gone all "
    "the same, a used one stays") {
  Bench<> t(update, {}, "r");
  auto a = t.buffer({1, 2, 3, 4});
  auto b = t.buffer({1, 1, 1, 1});
  CHECK(t.run({&a, &b}).ok());
  const Error e = t.results[0].block_for_operations();
  CHECK(status_kind(e) == StatusKind::internal);
  CHECK(std::string_view(e.what) == "test error.");
  CHECK(a.is_deleted());
  CHECK(t.read(b) == std::vector{1, 1, 1, 1});
  CHECK(status_kind(t.run({&a, &b})) == StatusKind::invalid_argument);

  Bench<ImmediateEvent> at_once(update, {}, "r");
  auto c = at_once.buffer({1, 2, 3, 4});
  auto d = at_once.buffer({1, 1, 1, 1});
  CHECK(std::string_view(at_once.run({&c, &d}).what) == "test error.");
  CHECK(c.is_deleted());
  CHECK_FALSE(d.is_deleted());
}

TEST_CASE(
    "plan_executor: T-D3 the error of an argument's contents is the results' error, and no kernel "
    "runs") {
  Bench<> t(sums);
  auto failed = HostEvent::make_failed(make_error(Errc::internal, "injected error"));
  auto raw = *RawBuffer<SystemMemory>::allocate(SystemMemory{}, 16);
  auto a = std::move(*Bench<>::Buffer::make(raw, {&*failed, 1}));
  auto b = t.buffer({1, 1, 1, 1});
  t.kernel.calls = 0;
  CHECK(t.run({&a, &b}).ok());
  for (auto& r : t.results)
    CHECK(std::string_view(r.block_for_operations().what) == "injected error");
  CHECK(t.kernel.calls == 0);
  CHECK(t.read(b) == std::vector{1, 1, 1, 1});
}

TEST_CASE(
    "plan_executor: the run waits for arguments that are still being written, in the background "
    "where there are streams") {
  Bench<> t(sums);
  auto promise = std::move(*HostPromise::make());
  const HostEvent written = promise.get_event();
  auto raw = *RawBuffer<SystemMemory>::allocate(SystemMemory{}, 16);
  auto a = std::move(*Bench<>::Buffer::make(raw, {&written, 1}));
  auto b = t.buffer({1, 1, 1, 1});
  HostStreams streams;
  REQUIRE(streams.start(2).ok());
  Bench<>::Buffer* arguments[] = {&a, &b};
  REQUIRE(t.executor.execute(arguments, t.results, t.kernel, streams).ok());
  CHECK_FALSE(t.results[0].ready_event()->ready());
  const int values[] = {5, 6, 7, 8};
  CHECK(raw.copy_in(0, std::as_bytes(std::span(values))).ok());
  CHECK(promise.set().ok());
  CHECK(t.read(t.results[1]) == std::vector{6, 7, 8, 9});
}

TEST_CASE(
    "plan_executor: wrong counts and sizes are refused with the argument's number, and nothing is "
    "held") {
  Bench<> t(sums);
  auto a = t.buffer({1, 2, 3, 4});
  auto small = t.buffer({1});
  Bench<>::Buffer* one[] = {&a};
  CHECK(t.executor.execute(one, t.results, t.kernel).code == Errc::invalid_argument);
  std::vector<Bench<>::Buffer> few(1);
  Bench<>::Buffer* two[] = {&a, &a};
  CHECK(t.executor.execute(two, few, t.kernel).code == Errc::invalid_argument);
  const Error e = t.run({&a, &small});
  CHECK(e.code == Errc::invalid_argument);
  CHECK(e.at == 1);
  Bench<>::Buffer* none[] = {&a, nullptr};
  CHECK(t.executor.execute(none, t.results, t.kernel).code == Errc::invalid_argument);
  CHECK(a.counts() == HoldCounts{});
}

TEST_CASE_TEMPLATE(
    "plan_executor: every allocation that fails leaves arguments as they were and no memory behind",
    P, POLICIES) {
  Counts counts;
  {
    BenchOf<P, CountingMemory> t(update, CountingMemory{&counts});
    auto a = t.buffer({1, 2, 3, 4});
    auto b = t.buffer({1, 1, 1, 1});
    const int before = counts.alive;
    int failures = 0;
    for (int n = 0;; ++n) {
      counts.fail_at = counts.allocations + n;
      const Error e = t.run({&a, &b});
      if (e.ok()) break;
      ++failures;
      CHECK(e.code == Errc::out_of_memory);
      CHECK(counts.alive == before);
      CHECK_FALSE(a.is_deleted());
      CHECK(a.counts() == HoldCounts{});
      CHECK(t.read(a) == std::vector{1, 2, 3, 4});
    }
    counts.fail_at = -1;
    CHECK(failures >= 1);
    CHECK(t.read(t.results[0]) == std::vector{2, 3, 4, 5});
  }
  CHECK(counts.alive == 0);
}

TEST_CASE("plan_executor: arenas go when the run ends, before its results are ready") {
  Counts counts;
  Bench<HostEvent, SharedHold, CountingMemory> t(sums, CountingMemory{&counts});
  auto a = t.buffer({1, 2, 3, 4});
  auto b = t.buffer({1, 1, 1, 1});
  const int before = counts.alive;
  REQUIRE(t.run({&a, &b}).ok());
  CHECK(counts.alive == before + 2);  // the two results
}

TEST_CASE(
    "plan_executor: T9.4 a parameter that is returned as it came comes back in memory of its own") {
  Bench<> t(R"(
HloModule same, is_scheduled=true
ENTRY e {
  a = s32[4] parameter(0)
  n = s32[4] negate(a)
  ROOT r = (s32[4], s32[4], s32[4]) tuple(a, n, a)
})");
  auto a = t.buffer({1, 2, 3, 4});
  REQUIRE(t.run({&a}).ok());
  CHECK(t.read(t.results[0]) == std::vector{1, 2, 3, 4});
  CHECK(t.read(t.results[1]) == std::vector{-1, -2, -3, -4});
  CHECK(t.read(t.results[2]) == std::vector{1, 2, 3, 4});
  CHECK(t.address(t.results[0]) != t.address(a));
  CHECK(t.address(t.results[0]) != t.address(t.results[2]));
}

TEST_CASE(
    "plan_executor: a loop runs as long as its condition says, and what it carries moves on each "
    "round") {
  Bench<> t(fibonacci);
  auto x = t.buffer({0, 1});
  auto y = t.buffer({1, 1});
  REQUIRE(t.run({&x, &y}).ok());
  CHECK(t.read(t.results[0]) == std::vector{5, 8});
}

TEST_CASE("plan_executor: a conditional runs the branch that its index names") {
  Bench<> t(choice);
  auto p = t.buffer({1, 2, 3, 4});
  const std::vector<int> expected[] = {{2, 4, 6, 8}, {-1, -2, -3, -4}, {1, 2, 3, 4}, {1, 2, 3, 4}};
  for (int index = 0; index < 4; ++index) {
    auto i = t.buffer({index});
    REQUIRE(t.run({&i, &p}).ok());
    CHECK(t.read(t.results[0]) == expected[index]);
  }
}

TEST_CASE(
    "plan_executor: shared computations run in the memory that each call gives them, also one in "
    "the other") {
  Bench<> t(calls);
  const auto g = [](int x) { return 2 * x * x - 2 * x; };
  auto p = t.buffer({1, 2, 0, -1});
  REQUIRE(t.run({&p}).ok());
  std::vector<int> expected;
  for (const int x : {1, 2, 0, -1}) {
    const int c = g(g(x));
    expected.push_back(g(g(c)) + c);
  }
  CHECK(t.read(t.results[0]) == expected);
}

TEST_CASE(
    "plan_executor: case 23 crossing, results that lie crosswise in the parts of a parameter are "
    "swapped") {
  Bench<> t(R"(
HloModule crossing, is_scheduled=true, input_output_alias={ {0}: (0, {0}, may-alias), {1}: (0, {1}, may-alias) }
ENTRY e {
  x = (s32[2], s32[2]) parameter(0)
  x0 = s32[2] get-tuple-element(x), index=0
  x1 = s32[2] get-tuple-element(x), index=1
  ROOT r = (s32[2], s32[2]) tuple(x1, x0)
})");
  auto a = t.buffer({1, 2});
  auto b = t.buffer({11, 12});
  const std::byte* const first = t.address(a);
  REQUIRE(t.run({&a, &b}).ok());
  CHECK(t.read(t.results[0]) == std::vector{11, 12});
  CHECK(t.read(t.results[1]) == std::vector{1, 2});
  CHECK(t.address(t.results[0]) == first);
}

TEST_CASE("plan_executor: arrays without elements and tokens take part without memory") {
  Bench<> t(R"(
HloModule empty, is_scheduled=true
ENTRY e {
  a = s32[0,7] parameter(0)
  b = s32[2] parameter(1)
  n = s32[0,7] negate(a)
  m = s32[2] negate(b)
  ROOT r = (s32[0,7], s32[2]) tuple(n, m)
})");
  auto a = t.buffer({});
  auto b = t.buffer({3, 4});
  REQUIRE(t.run({&a, &b}).ok());
  CHECK(t.results[0].size() == 0);
  CHECK(t.read(t.results[1]) == std::vector{-3, -4});
}

TEST_CASE_TEMPLATE("plan_executor: many streams compute what one does", P,
                   Policies<HostEvent, SharedHold>, Policies<ImmediateEvent, SharedHold>) {
  // Sixteen independent chains that are added up pair by pair.
  std::string text = "HloModule wide, is_scheduled=true\nENTRY e {\n  p = s32[1000] parameter(0)\n";
  for (int c = 0; c < 16; ++c) {
    const std::string n = std::to_string(c);
    text += "  k" + n + " = s32[] constant(" + n + ")\n  b" + n + " = s32[1000] broadcast(k" + n +
            "), dimensions={}\n";
    text += "  m" + n + " = s32[1000] multiply(p, b" + n + ")\n  d" + n +
            " = s32[1000] subtract(m" + n + ", b" + n + ")\n";
  }
  std::string sum = "d0";
  for (int c = 1; c < 16; ++c) {
    const std::string next = c == 15 ? "r" : "t" + std::to_string(c);
    text += std::string(c == 15 ? "  ROOT " : "  ") + next + " = s32[1000] add(" + sum + ", d" +
            std::to_string(c) + ")\n";
    sum = next;
  }
  text += "}\n";
  BenchOf<P> t(text);
  std::vector<int> values(1000);
  for (int k = 0; k < 1000; ++k) values[static_cast<std::size_t>(k)] = k;
  auto p = t.buffer(values);
  for (const std::uint32_t count : {1u, 2u, 5u}) {
    HostStreams streams;
    REQUIRE(streams.start(count).ok());
    for (int round = 0; round < 20; ++round) {
      typename BenchOf<P>::Buffer* arguments[] = {&p};
      REQUIRE(t.executor.execute(arguments, t.results, t.kernel, streams).ok());
      const std::vector<int> got = t.read(t.results[0]);
      bool right = true;
      for (int k = 0; k < 1000; ++k)
        right = right && got[static_cast<std::size_t>(k)] == 120 * k - 120;
      CHECK(right);
    }
  }
}

TEST_CASE(
    "plan_executor: runs that are put in one after the other pass results on without waiting") {
  Bench<> t(update);
  HostStreams streams;
  REQUIRE(streams.start(3).ok());
  auto a = t.buffer({0, 0, 0, 0});
  auto b = t.buffer({1, 2, 3, 4});
  for (int round = 0; round < 100; ++round) {
    Bench<>::Buffer* arguments[] = {&a, &b};
    REQUIRE(t.executor.execute(arguments, t.results, t.kernel, streams).ok());
    a = std::move(t.results[0]);
  }
  CHECK(t.read(a) == std::vector{100, 200, 300, 400});
}

TEST_CASE(
    "plan_executor: with many streams the first error in program order wins, and what depends on "
    "it does not run") {
  Bench<> t(sums, {}, "n");
  auto a = t.buffer({1, 2, 3, 4});
  auto b = t.buffer({1, 1, 1, 1});
  HostStreams streams;
  REQUIRE(streams.start(4).ok());
  Bench<>::Buffer* arguments[] = {&a, &b};
  REQUIRE(t.executor.execute(arguments, t.results, t.kernel, streams).ok());
  for (auto& r : t.results) CHECK(std::string_view(r.block_for_operations().what) == "test error.");
  CHECK(t.kernel.calls <= 3);
  CHECK(t.read(a) == std::vector{1, 2, 3, 4});
}

TEST_CASE(
    "plan_executor: an external hold forbids the donation, or makes a copy where the caller says "
    "so (T-D11)") {
  Bench<> t(update);
  auto a = t.buffer({1, 2, 3, 4});
  auto b = t.buffer({1, 1, 1, 1});
  auto external = a.hold(HoldKind::external);
  REQUIRE(external.ok());
  CHECK(t.run({&a, &b}).code == Errc::held);
  CHECK_FALSE(a.is_deleted());
  LaunchOptions copies;
  copies.copy_if_referenced = true;
  REQUIRE(t.run({&a, &b}, copies).ok());
  CHECK_FALSE(a.is_deleted());
  CHECK(t.read(a) == std::vector{1, 2, 3, 4});
  CHECK(t.read(t.results[0]) == std::vector{2, 3, 4, 5});
}

TEST_CASE(
    "plan_executor: the end of a run belongs to the machine of its memory: a host that waits for a "
    "copy of the result drives it") {
  using Pinned = SimulatedMachine::host_memory_type;
  SimulatedOptions slow;  // copies take longer than the questions that are asked on the way
  slow.longest_delay = 1 << 20;
  SimulatedMachine machine(slow);
  Pinned pinned = *machine.add_host_memory(1 << 20);
  {
    Bench<SimulatedEvent, SharedHold, Pinned> t(sums, pinned);
    HostStreams streams;
    REQUIRE(streams.start(2).ok());
    const std::vector<int> values{1, 2, 3, 4};
    std::vector<int> out(4);
    auto raw = *RawBuffer<Pinned>::allocate(pinned, 16);
    const SimulatedEvent written = *raw.copy_in(0, std::as_bytes(std::span(values)));
    auto a = std::move(*decltype(t)::Buffer::make(std::move(raw), {&written, 1}));
    auto b = t.buffer({5, 6, 7, 8});
    t.kernel.closed = true;
    decltype(t)::Buffer* const arguments[] = {&a, &b};
    REQUIRE(t.executor.execute(arguments, t.results, t.kernel, streams).ok());
    SimulatedEvent copied;
    CHECK(t.results[0]
              .use("copy",
                   [&](const RawBuffer<Pinned>& r, std::span<const SimulatedEvent> after) noexcept {
                     auto e = copy_out<RawBuffer<Pinned>, SimulatedEvent>(
                         r, 0, std::as_writable_bytes(std::span(out)), after);
                     if (e.ok()) copied = *e;
                     return e;
                   })
              .ok());
    CHECK(!copied.ready());
    t.kernel.closed = false;
    t.kernel.closed.notify_all();
    CHECK(copied.wait_until(Deadline::after(std::chrono::seconds(5))).ok());
    CHECK(out == std::vector{24, 32, 40, 48});
  }
  machine.drain();
}

TEST_CASE_TEMPLATE(
    "plan_executor: an argument deleted during the run keeps its memory until the end", P,
    Policies<HostEvent, SharedHold>, Policies<HostEvent, StripedHold>) {
  Counts counts;
  using Planned = BenchOf<P, CountingMemory>;
  using Buffer = typename Planned::Buffer;
  Planned t(sums, CountingMemory{&counts});
  HostStreams streams;
  REQUIRE(streams.start(2).ok());
  HostPromise written = *HostPromise::make();
  const HostEvent definition[] = {written.get_event()};
  auto raw = std::move(*Planned::Executor::raw_type::allocate(t.backend, 16));
  std::byte* const data = raw.data();
  auto a = std::move(*Buffer::make(std::move(raw), definition));
  auto b = t.buffer({5, 6, 7, 8});
  Buffer* const arguments[] = {&a, &b};
  REQUIRE(t.executor.execute(arguments, t.results, t.kernel, streams).ok());
  CHECK(a.release().ok());  // the run waits for its contents, which come after the deletion
  CHECK(a.is_deleted());
  const int values[4] = {1, 2, 3, 4};
  std::memcpy(data, values, 16);
  CHECK(written.set().ok());
  CHECK(t.read(t.results[0]) == std::vector{24, 32, 40, 48});
}

namespace {

/// Memory that the host is not to touch, and what touches it.
struct FarMemory : SystemMemory {
  static constexpr bool host_accessible = false;
};
struct FarPatterns : HostPatterns {
  int* copies = nullptr;
  int fail_at = -1;
  Error copy(Block to, const std::byte* from) noexcept {
    if ((*copies)++ == fail_at) return make_error(Errc::device_fault, "a copy failed");
    std::memmove(to.data, from, static_cast<std::size_t>(to.size));
    return {};
  }
};
using FarKernel = BasicPatternKernel<FarPatterns>;
static_assert(copying_kernel<FarKernel> && !copying_kernel<PatternKernel>);

}  // namespace

TEST_CASE(
    "plan_executor: in memory that the host cannot touch the kernel makes the copies, and one that "
    "fails ends the run") {
  const PlannedText p(R"(HloModule loop, input_output_alias={ {}: (0, {}, may-alias) }
body {
  s = (f32[70], f32[70]) parameter(0)
  a = f32[70] get-tuple-element(s), index=0
  b = f32[70] get-tuple-element(s), index=1
  c = f32[70] custom-call(a, b), custom_call_target="C"
  ROOT t = (f32[70], f32[70]) tuple(b, c)
}
condition {
  s = (f32[70], f32[70]) parameter(0)
  a = f32[70] get-tuple-element(s), index=0
  ROOT p = pred[] custom-call(a), custom_call_target="P"
}
ENTRY e {
  x = f32[70] parameter(0)
  y = f32[70] parameter(1)
  s = (f32[70], f32[70]) tuple(x, y)
  w = (f32[70], f32[70]) while(s), condition=condition, body=body
  r = f32[70] get-tuple-element(w), index=1
  ROOT o = f32[70] custom-call(r, x), custom_call_target="C"
}
)");
  using Executor = PlanExecutor<FarMemory, HostEvent>;
  int made = 0;
  const auto run = [&](int fail_at) {
    made = 0;
    FarPatterns patterns;
    patterns.copies = &made;
    patterns.fail_at = fail_at;
    FarKernel kernel(p.program(), PatternCheck::full, 2, 1, patterns);
    Executor executor = std::move(*Executor::make(p.program(), FarMemory{}, kernel));
    std::vector<Executor::buffer_type> results;
    const Errc code = testing::run_once(p, executor, FarMemory{}, kernel, results, [](Block) {}).code;
    CHECK(kernel.fault().kind == PatternFault::Kind::none);
    return code;
  };
  CHECK(run(-1) == Errc::ok);
  const int all = made;
  CHECK(all > 2);
  for (int n = 0; n < all; ++n) {
    CHECK(run(n) == Errc::device_fault);
    CHECK(made == n + 1);
  }
}
