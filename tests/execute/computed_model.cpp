// SPDX-License-Identifier: Apache-2.0
// Models that are really computed: a plan within a limit gives the same bytes as one without.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "../../examples/data/fit.hpp"
#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/event/host_event.hpp"
#include "holdfast/execute/plan_executor.hpp"
#include "holdfast/graph/attribute_text.hpp"
#include "holdfast/plan/rematerialize.hpp"
#include "support/hlo.hpp"
#include "support/shared.hpp"

using namespace holdfast;

namespace {

using Executor = PlanExecutor<SystemMemory, HostEvent>;

/// Computes dense models of f32, with counters and predicates; row-major, sums in one order.
struct Computing : ProgramControl {
  const Module& m;
  explicit Computing(const Module& module) : m(module) {}

  [[nodiscard]] Error fill_constant(const KernelArray& a) const noexcept {
    const double value =
        std::strtod(std::string(m.attribute(m[a.instruction], "")).c_str(), nullptr);
    if (m.shapes[a.shape].type == ElementType::s32)
      std::fill(a.as<int>().begin(), a.as<int>().end(), static_cast<int>(value));
    else
      std::fill(a.as<float>().begin(), a.as<float>().end(), static_cast<float>(value));
    return {};
  }
  [[nodiscard]] Error run(const KernelCall& c) const noexcept {
    const Instruction& i = c.what();
    switch (i.opcode) {
      case Opcode::add:
        return m.shapes[i.shape].type == ElementType::s32
                   ? zip<int>(c, [](int a, int b) { return a + b; })
                   : zip<float>(c, [](float a, float b) { return a + b; });
      case Opcode::subtract:
        return zip<float>(c, [](float a, float b) { return a - b; });
      case Opcode::multiply:
        return zip<float>(c, [](float a, float b) { return a * b; });
      case Opcode::maximum:
        return zip<float>(c, [](float a, float b) { return std::max(a, b); });
      case Opcode::compare:
        return compare(c);
      case Opcode::select: {
        const auto r = c.results[0].as<float>();
        const auto yes = c.operand(1).as<float>(), no = c.operand(2).as<float>();
        for (std::size_t k = 0; k < r.size(); ++k)
          r[k] = c.operand(0).as<char>()[k] != 0 ? yes[k] : no[k];
        return {};
      }
      case Opcode::broadcast:
        return broadcast(c);
      case Opcode::reduce:
        return reduce(c);
      case Opcode::dot:
        return dot(c);
      case Opcode::copy:
      case Opcode::copy_start:
        std::memcpy(c.results[0].memory.data, c.operand(0).memory.data,
                    static_cast<std::size_t>(c.operand(0).memory.size));
        return {};
      case Opcode::copy_done:
        return {};
      default:
        return make_error(Errc::unsupported, "no kernel for this operation");
    }
  }

 private:
  template <class T, class F>
  static Error zip(const KernelCall& c, F f) noexcept {
    const auto r = c.results[0].as<T>();
    for (std::size_t k = 0; k < r.size(); ++k)
      r[k] = f(c.operand(0).as<T>()[k], c.operand(1).as<T>()[k]);
    return {};
  }
  [[nodiscard]] Error compare(const KernelCall& c) const noexcept {
    const auto r = c.results[0].as<char>();
    const bool less = m.attribute(c.what(), "direction") == "LT";
    for (std::size_t k = 0; k < r.size(); ++k)
      r[k] = less ? c.operand(0).as<int>()[k] < c.operand(1).as<int>()[k]
                  : c.operand(0).as<float>()[k] > c.operand(1).as<float>()[k];
    return {};
  }
  /// Strides of an operand's dimensions in the flat order of its elements.
  [[nodiscard]] std::size_t size_of(ShapeId shape, std::size_t from) const noexcept {
    std::size_t out = 1;
    const auto d = m.shapes.dimensions(shape);
    for (std::size_t k = from; k < d.size(); ++k) out *= static_cast<std::size_t>(d[k]);
    return out;
  }
  /// A scalar, or a row beside the last dimension: what these models have.
  [[nodiscard]] Error broadcast(const KernelCall& c) const noexcept {
    const auto a = c.operand(0).as<float>(), r = c.results[0].as<float>();
    for (std::size_t k = 0; k < r.size(); ++k) r[k] = a[a.size() == 1 ? 0 : k % a.size()];
    return {};
  }
  /// Over all dimensions, or the first of two.
  [[nodiscard]] Error reduce(const KernelCall& c) const noexcept {
    const auto a = c.operand(0).as<float>(), r = c.results[0].as<float>();
    std::fill(r.begin(), r.end(), c.operand(1).as<float>()[0]);
    for (std::size_t k = 0; k < a.size(); ++k) r[k % r.size()] += a[k];
    return {};
  }
  [[nodiscard]] Error dot(const KernelCall& c) const noexcept {
    const KernelArray &a = c.operand(0), &b = c.operand(1);
    std::int64_t x = 0, y = 0;
    NumberList(m.attribute(c.what(), "lhs_contracting_dims")).next(x);
    NumberList(m.attribute(c.what(), "rhs_contracting_dims")).next(y);
    const auto of = [&](const KernelArray& k, std::int64_t contracted, bool other) {
      const auto d = m.shapes.dimensions(k.shape);
      if (d.size() == 1) return other ? std::size_t{1} : static_cast<std::size_t>(d[0]);
      return static_cast<std::size_t>(
          d[static_cast<std::size_t>(other ? 1 - contracted : contracted)]);
    };
    const std::size_t rows = of(a, x, true), columns = of(b, y, true), inner = of(a, x, false);
    const std::size_t a_row = x == 0 ? 1 : inner, a_step = x == 0 ? rows : 1;
    const std::size_t b_column = y == 0 ? 1 : inner, b_step = y == 0 ? columns : 1;
    for (std::size_t p = 0; p < rows; ++p)
      for (std::size_t q = 0; q < columns; ++q) {
        float sum = 0;
        for (std::size_t k = 0; k < inner; ++k)
          sum += a.as<float>()[p * a_row + k * a_step] * b.as<float>()[q * b_column + k * b_step];
        c.results[0].as<float>()[p * columns + q] = sum;
      }
    return {};
  }
};

using Content = std::vector<std::byte>;

/// Plans and runs a module: its results, and the plan's peak.
std::vector<Content> compute(const Module& m, Bytes& peak) {
  const ValueTable values = *analyze_values(m);
  const Liveness live = *analyze_liveness(m, values);
  BufferSet buffers(m, values, live);
  const BufferAssignment plan = *assign_buffers(m, live, buffers, PlanOffsets{});
  peak = summarize_plan(m, values, live, buffers, plan).peak_bytes;
  Computing kernel(m);
  Executor executor = *Executor::make({&m, &values, &live, &plan}, SystemMemory{}, kernel);
  std::vector<Executor::buffer_type> arguments, results(executor.results().size());
  std::vector<Executor::buffer_type*> pointers;
  std::uint32_t state = 1;
  for (const ProgramLeaf& leaf : executor.arguments()) {
    Executor::raw_type raw = *Executor::raw_type::allocate(SystemMemory{}, leaf.size);
    std::vector<float> data(static_cast<std::size_t>(leaf.size) / sizeof(float));
    for (float& x : data)
      x = static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) / 16777216.0f - 0.5f;
    REQUIRE(raw.copy_in(0, std::as_bytes(std::span(data))).ok());
    arguments.push_back(*Executor::buffer_type::make(raw));
  }
  for (auto& a : arguments) pointers.push_back(&a);
  const Error e = executor.execute(pointers, results, kernel);
  REQUIRE_MESSAGE(e.ok(), e.what);
  std::vector<Content> out;
  for (std::size_t k = 0; k < results.size(); ++k) {
    REQUIRE(results[k].block_for_operations().ok());
    Content bytes(static_cast<std::size_t>(executor.results()[k].size));
    REQUIRE(results[k].hold(HoldKind::usage)->raw().copy_out(0, bytes).ok());
    out.push_back(std::move(bytes));
  }
  return out;
}

std::string mlp_text() {
  return testing::read_file(testing::data_path("../../examples/data/mlp_train.hlo"));
}

/// One gradient of six layers that share their weights: activations wait for their way back.
std::string deep_text() {
  const std::string f = "f32[32,32]";
  std::string out = "HloModule deep, is_scheduled=true\nENTRY e {\n h0 = " + f +
                    " parameter(0)\n w = " + f + " parameter(1)\n y = " + f +
                    " parameter(2)\n none = f32[] constant(0)\n zero = " + f +
                    " broadcast(none), dimensions={}\n";
  const auto line = [&](const std::string& name, int k, const std::string& rest) {
    out += " " + name + std::to_string(k) + " = " + f + " " + rest + "\n";
  };
  const auto at = [](const char* name, int k) { return name + std::to_string(k); };
  for (int k = 1; k <= 6; ++k) {
    line("a", k,
         "dot(" + at("h", k - 1) + ", w), lhs_contracting_dims={1}, rhs_contracting_dims={0}");
    line("h", k, "maximum(" + at("a", k) + ", zero)");
  }
  line("d", 6, "subtract(h6, y)");
  for (int k = 6; k >= 1; --k) {
    out += " c" + std::to_string(k) + " = pred[32,32] compare(" + at("a", k) +
           ", zero), direction=GT\n";
    line("e", k, "select(" + at("c", k) + ", " + at("d", k) + ", zero)");
    line("g", k,
         "dot(" + at("h", k - 1) + ", " + at("e", k) +
             "), lhs_contracting_dims={0}, rhs_contracting_dims={0}");
    line("sum", k, k == 6 ? "add(g6, zero)" : "add(" + at("sum", k + 1) + ", " + at("g", k) + ")");
    line("d", k - 1,
         "dot(" + at("e", k) + ", w), lhs_contracting_dims={1}, rhs_contracting_dims={1}");
  }
  return out + " ROOT all = (" + f + ", " + f + ") tuple(sum1, d0)\n}\n";
}

}  // namespace

TEST_CASE("computed_model: the examples within a limit give the same bytes as without") {
  const std::string mlp = mlp_text(), deep = deep_text();
  std::uint32_t recomputed = 0, offloaded = 0, reduced = 0;
  for (const std::string_view text : {fit_text, std::string_view(mlp), std::string_view(deep)})
    for (const double part : {0.9, 0.8, 0.6})
      for (const int allowed : {1, 2, 3}) {  // recomputation, copies, both
        const Module as_given = testing::parse(text);
        Bytes peak = 0, least = 0;
        const std::vector<Content> wanted = compute(as_given, peak);
        Module m = testing::parse(text);
        RematerializeOptions options;
        options.limit = static_cast<Bytes>(static_cast<double>(peak) * part);
        options.recompute = (allowed & 1) != 0, options.offload = (allowed & 2) != 0;
        // A machine on which everything is worth its while, so that small models change at all.
        options.machine.host_link = 1e15;
        const Result<Rematerialized> r = rematerialize(m, options);
        REQUIRE(r.ok());
        const std::vector<Content> got = compute(m, least);
        CHECK(least == r->peak);
        CHECK(got == wanted);
        reduced += r->peak < peak ? 1 : 0;
        recomputed += r->recomputed, offloaded += r->offloaded;
        for (const Content& result : wanted)  // numbers, and not all the same
          CHECK(std::any_of(result.begin(), result.end(),
                            [](std::byte b) { return b != std::byte{0}; }));
      }
  CHECK(reduced >= 6);
  CHECK(recomputed >= 6);
  CHECK(offloaded >= 6);
}
