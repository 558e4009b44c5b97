// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/graph/attribute_text.hpp"
#include "holdfast/graph/module.hpp"

namespace holdfast {

/// How fast a machine is taken to be.
///
/// Units: operations a second, bytes a second each way, seconds. The defaults are a small
/// accelerator's: only their ratios decide what is cheap.
struct MachineSpeed {
  double operations = 1e13;   ///< on single elements
  double memory = 1e12;       ///< to and from device memory
  double host_link = 2.5e10;  ///< device to host, and back at the same time
  double launch = 2e-6;       ///< of one kernel
};

/// Estimates how long each instruction runs: the longer of moving its bytes and computing, and a
/// launch.
///
/// Bytes: what it reads and writes, each once; inside a fusion nothing is moved. Operations: an
/// element of the result each, 8 for transcendental functions; 2 a multiply-add of dot and
/// convolution; an element of the operands for reductions; n log2 n for sort and fft; n times the
/// matrix for its factors. A loop runs its `known_trip_count`, else once; of a conditional's
/// branches the longest counts. Units: seconds. Threads: as a vector. Cost: linear to make.
class TimeModel {
 public:
  constexpr explicit TimeModel(const Module& module, const MachineSpeed& machine = {})
      : m_(module),
        machine_(machine),
        seconds_(module.instructions.size(), 0),
        runs_(module.computations.size(), 0) {
    std::vector<double> operations(module.computations.size(),
                                   0);  // of one element, or of a fusion
    std::vector<double> time(module.computations.size(), 0);
    for (std::size_t c = 0; c < module.computations.size(); ++c)
      for (const InstructionId id : module.instructions_of(static_cast<ComputationId>(c))) {
        const Instruction& i = module[id];
        const double work = operations_of(i, operations);
        double& t = seconds_[index_of(id)];
        t = is_free(i.opcode) ? 0 : called_seconds(i, time);
        if (i.opcode == Opcode::copy_start) t = crossing_seconds(i);
        if (!is_free(i.opcode) && t == 0)
          t = machine.launch + std::max(bytes_of(i) / machine.memory, work / machine.operations);
        operations[c] += work;
        time[c] += t;
      }
    if (runs_.empty()) return;
    total_ = time[index_of(module.entry)];
    runs_[index_of(module.entry)] = 1;
    for (std::size_t c = runs_.size(); c-- > 0;)
      for (const InstructionId id : module.instructions_of(static_cast<ComputationId>(c)))
        for (const ComputationId callee : module.called(module[id]))
          runs_[index_of(callee)] = std::max(runs_[index_of(callee)], runs_[c] * trips(module[id]));
  }

  /// How long an instruction runs.
  [[nodiscard]] constexpr double seconds(InstructionId i) const noexcept {
    return seconds_[index_of(i)];
  }
  /// How long the module runs.
  [[nodiscard]] constexpr double total() const noexcept { return total_; }
  [[nodiscard]] constexpr const MachineSpeed& machine() const noexcept { return machine_; }
  /// How often a computation runs, as far as that is known.
  [[nodiscard]] constexpr double runs(ComputationId c) const noexcept { return runs_[index_of(c)]; }
  /// How long copying to the host, or back, takes.
  [[nodiscard]] constexpr double copy_seconds(double bytes) const noexcept {
    return bytes / machine_.host_link;
  }

 private:
  const Module& m_;
  MachineSpeed machine_;
  std::vector<double> seconds_;  // by instruction
  std::vector<double> runs_;     // by computation
  double total_ = 0;

  static constexpr bool is_free(Opcode opcode) noexcept {
    switch (opcode) {
      case Opcode::parameter:
      case Opcode::constant:
      case Opcode::tuple:
      case Opcode::get_tuple_element:
      case Opcode::bitcast:
      case Opcode::opt_barrier:
      case Opcode::domain:
      case Opcode::add_dependency:
      case Opcode::after_all:
      case Opcode::async_done:
      case Opcode::async_update:
      case Opcode::copy_done:
        return true;
      default:
        return false;
    }
  }
  static constexpr bool is_transcendental(Opcode opcode) noexcept {
    switch (opcode) {
      case Opcode::acos:
      case Opcode::acosh:
      case Opcode::asin:
      case Opcode::asinh:
      case Opcode::atan2:
      case Opcode::atanh:
      case Opcode::cbrt:
      case Opcode::cosh:
      case Opcode::cosine:
      case Opcode::divide:
      case Opcode::erf:
      case Opcode::exponential:
      case Opcode::exponential_minus_one:
      case Opcode::log:
      case Opcode::log_plus_one:
      case Opcode::logistic:
      case Opcode::power:
      case Opcode::remainder:
      case Opcode::rsqrt:
      case Opcode::sine:
      case Opcode::sinh:
      case Opcode::sqrt:
      case Opcode::tan:
      case Opcode::tanh:
        return true;
      default:
        return false;
    }
  }

  /// Of a copy between host and device; 0 for others.
  [[nodiscard]] constexpr double crossing_seconds(const Instruction& i) const noexcept {
    if (i.operands.count != 1 || !m_.shapes.is_tuple(i.shape)) return 0;
    const ShapeId from = m_[m_.operands(i)[0]].shape;
    const ShapeId to = m_.shapes.children_of(i.shape)[0];
    if ((m_.shapes.space(from) == MemorySpace::host) == (m_.shapes.space(to) == MemorySpace::host))
      return 0;
    return copy_seconds(static_cast<double>(std::max<Bytes>(m_.shapes.byte_size(from), 0)));
  }
  [[nodiscard]] constexpr double elements(ShapeId shape) const noexcept {
    double sum = 0;
    for (std::uint32_t n = 0, count = m_.shapes.node_count(shape); n < count; ++n) {
      const ShapeId s = m_.shapes.node(shape, n);
      if (!is_array(m_.shapes[s].type)) continue;
      double product = 1;
      for (const std::int64_t d : m_.shapes.dimensions(s))
        product *= static_cast<double>(std::max<std::int64_t>(d, 0));
      sum += product;
    }
    return sum;
  }
  [[nodiscard]] constexpr double bytes_of(const Instruction& i) const noexcept {
    double sum = 0;
    const auto add = [&](ShapeId shape) {
      for (std::uint32_t n = 0, count = m_.shapes.node_count(shape); n < count; ++n)
        if (const ShapeId s = m_.shapes.node(shape, n); !m_.shapes.is_tuple(s))
          sum += static_cast<double>(std::max<Bytes>(m_.shapes.byte_size(s), 0));
    };
    add(i.shape);
    for (const InstructionId o : m_.operands(i)) add(m_[o].shape);
    return sum;
  }
  /// The product of the dimensions of an operand that an attribute lists.
  [[nodiscard]] constexpr double listed(const Instruction& i, std::size_t operand,
                                        std::string_view key) const noexcept {
    const auto dimensions = m_.shapes.dimensions(m_[m_.operands(i)[operand]].shape);
    double product = 1;
    NumberList list(m_.attribute(i, key));
    for (std::int64_t d = 0; list.next(d);)
      if (d >= 0 && static_cast<std::size_t>(d) < dimensions.size())
        product *= static_cast<double>(dimensions[static_cast<std::size_t>(d)]);
    return product;
  }
  /// Multiply-adds of one element of a convolution: its kernel without the output features.
  [[nodiscard]] constexpr double kernel_size(const Instruction& i) const noexcept {
    const ShapeId kernel = m_[m_.operands(i)[1]].shape;
    const std::string_view labels = m_.attribute(i, "dim_labels");
    const std::size_t begin = labels.find('_'), feature = labels.find('o', begin);
    if (begin == std::string_view::npos || feature == std::string_view::npos)
      return elements(kernel);
    const auto dimensions = m_.shapes.dimensions(kernel);
    const std::size_t d = feature - begin - 1;
    return d < dimensions.size() && dimensions[d] > 0
               ? elements(kernel) / static_cast<double>(dimensions[d])
               : elements(kernel);
  }
  [[nodiscard]] constexpr double window_size(const Instruction& i) const noexcept {
    double product = 1, number = 0;
    const std::string_view window = field_of(m_.attribute(i, "window"), "size");
    for (std::size_t k = 0; k <= window.size(); ++k) {
      const bool digit = k < window.size() && window[k] >= '0' && window[k] <= '9';
      if (digit)
        number = number * 10 + (window[k] - '0');
      else if (number > 0)
        product *= std::exchange(number, 0);
    }
    return product;
  }

  [[nodiscard]] constexpr double operations_of(const Instruction& i,
                                               const std::vector<double>& operations) const {
    const auto ops = m_.operands(i);
    const double out = elements(i.shape);
    const auto in = [&] {
      double sum = 0;
      for (const InstructionId o : ops) sum += elements(m_[o].shape);
      return sum;
    };
    const auto log2 = [](double n) {
      double steps = 1;
      for (; n > 2; n /= 2) ++steps;
      return steps;
    };
    switch (i.opcode) {
      case Opcode::dot:
        return ops.empty() ? out : 2 * out * listed(i, 0, "lhs_contracting_dims");
      case Opcode::convolution:
        return ops.size() < 2 ? out : 2 * out * kernel_size(i);
      case Opcode::reduce:
      case Opcode::scatter:
      case Opcode::select_and_scatter:
        return in();
      case Opcode::reduce_window:
        return out * window_size(i);
      case Opcode::sort:
      case Opcode::fft:
      case Opcode::topk:
        return in() * log2(in());
      case Opcode::cholesky:
      case Opcode::triangular_solve: {
        const auto dimensions = m_.shapes.dimensions(i.shape);
        return out * (dimensions.empty() ? 1.0 : static_cast<double>(dimensions.back()));
      }
      case Opcode::fusion:
        return i.called.count == 1 ? operations[index_of(m_.called(i)[0])] : out;
      default:
        return is_free(i.opcode) ? 0 : is_transcendental(i.opcode) ? 8 * out : out;
    }
  }

  /// The time of what control flow calls; 0 for kernels.
  [[nodiscard]] constexpr double called_seconds(const Instruction& i,
                                                const std::vector<double>& time) const noexcept {
    switch (i.opcode) {
      case Opcode::call:
      case Opcode::async_start:
      case Opcode::conditional: {
        double most = 0;
        for (const ComputationId c : m_.called(i)) most = std::max(most, time[index_of(c)]);
        return most;
      }
      case Opcode::while_: {
        double round = 0;
        for (const ComputationId c : m_.called(i)) round += time[index_of(c)];
        return round * trips(i);
      }
      default:
        return 0;
    }
  }
  [[nodiscard]] constexpr double trips(const Instruction& i) const noexcept {
    if (i.opcode != Opcode::while_) return 1;
    const std::string_view config = m_.attribute(i, "backend_config");
    const std::size_t at = config.find("known_trip_count");
    if (at == std::string_view::npos) return 1;
    double n = 0;
    for (std::size_t k = at; k < config.size() && config[k] != '}'; ++k)
      if (config[k] >= '0' && config[k] <= '9') n = n * 10 + (config[k] - '0');
    return std::clamp(n, 1.0, 1e9);
  }
};

}  // namespace holdfast
