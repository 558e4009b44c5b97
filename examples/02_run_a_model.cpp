// SPDX-License-Identifier: Apache-2.0
// Carries a plan out with a kernel that really computes: linear regression by gradient descent, in
// a loop of the program's own.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "data/fit.hpp"
#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/event/host_event.hpp"
#include "holdfast/execute/plan_executor.hpp"
#include "holdfast/hlo/parser.hpp"
#include "holdfast/plan/buffers.hpp"
#include "holdfast/plan/plan_offsets.hpp"

using namespace holdfast;
using Executor = PlanExecutor<SystemMemory, HostEvent>;

/// What an engine brings: a function for each operation. Memory comes from the plan, loops follow
/// the program.
struct Kernel : ProgramControl {
  const Module& m;

  Error fill_constant(const KernelArray& a) const noexcept {
    const double value =
        std::strtod(std::string(m.attribute(m[a.instruction], "")).c_str(), nullptr);
    if (m.shapes[a.shape].type == ElementType::s32)
      a.as<int>()[0] = static_cast<int>(value);
    else
      a.as<float>()[0] = static_cast<float>(value);
    return {};
  }
  template <class T>
  static Error zip(const KernelCall& c, T (*f)(T, T)) noexcept {
    for (std::size_t k = 0; k < c.results[0].as<T>().size(); ++k)
      c.results[0].as<T>()[k] = f(c.operand(0).as<T>()[k], c.operand(1).as<T>()[k]);
    return {};
  }
  Error run(const KernelCall& c) const noexcept {
    const std::span<float> a = c.operand(0).as<float>();
    const std::span<float> r = c.results[0].as<float>();
    switch (c.what().opcode) {
      case Opcode::add:
        return zip<int>(c, [](int p, int q) { return p + q; });
      case Opcode::subtract:
        return zip<float>(c, [](float p, float q) { return p - q; });
      case Opcode::multiply:
        return zip<float>(c, [](float p, float q) { return p * q; });
      case Opcode::compare:
        return *c.results[0].memory.data =
                   std::byte{c.operand(0).as<int>()[0] < c.operand(1).as<int>()[0]},
               Error{};
      case Opcode::broadcast:
        return std::fill(r.begin(), r.end(), a[0]), Error{};
      case Opcode::reduce:
        return r[0] = std::accumulate(a.begin(), a.end(), c.operand(1).as<float>()[0]), Error{};
      case Opcode::dot: {
        const bool rows = m.attribute(c.what(), "lhs_contracting_dims") == "{1}";
        std::fill(r.begin(), r.end(), 0.0f);
        for (std::size_t i = 0; i < 4; ++i)
          for (std::size_t k = 0; k < 3; ++k)
            r[rows ? i : k] += a[i * 3 + k] * c.operand(1).as<float>()[rows ? k : i];
        return {};
      }
      default:
        return make_error(Errc::unsupported, "no kernel for this operation");
    }
  }
};

int main() {
  const Module module = *parse_hlo_text(fit_text);
  const ValueTable values = *analyze_values(module);
  const Liveness live = *analyze_liveness(module, values);
  BufferSet buffers(module, values, live);
  const BufferAssignment plan = *assign_buffers(module, live, buffers, PlanOffsets{});
  Kernel kernel{{}, module};
  Executor executor = *Executor::make({&module, &values, &live, &plan}, SystemMemory{}, kernel);

  std::vector<Executor::buffer_type> arguments, results(std::size(outputs));
  std::vector<Executor::buffer_type*> pointers;
  for (const auto& in : inputs) {
    Executor::raw_type raw = *Executor::raw_type::allocate(
        SystemMemory{}, static_cast<Bytes>(in.size() * sizeof(float)));
    if (!raw.copy_in(0, std::as_bytes(std::span(in))).ok()) return EXIT_FAILURE;
    arguments.push_back(*Executor::buffer_type::make(raw));
  }
  for (auto& a : arguments) pointers.push_back(&a);
  if (!executor.execute(pointers, results, kernel).ok()) return EXIT_FAILURE;

  for (std::size_t k = 0; k < results.size(); ++k) {
    std::vector<float> got(outputs[k].size());
    if (!results[k].block_for_operations().ok()) return EXIT_FAILURE;
    if (!results[k]
             .hold(HoldKind::usage)
             ->raw()
             .copy_out(0, std::as_writable_bytes(std::span(got)))
             .ok())
      return EXIT_FAILURE;
    for (std::size_t i = 0; i < got.size(); ++i)
      if (std::abs(got[i] - outputs[k][i]) > 1e-6f) return EXIT_FAILURE;
    std::printf("%s %g%s", k == 0 ? "w" : ", loss", got[0],
                k == 0 ? "..." : " as XLA computes them");
  }
  std::printf("; w was %s\n", arguments[0].is_deleted() ? "updated in place" : "copied");
}
