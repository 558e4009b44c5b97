// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/graph/module.hpp"

namespace holdfast {

/// Changes which instructions a module has: inserts, replaces and erases them, then puts its tables
/// in order.
///
/// Instructions keep their order; ids stay good until `finish`, which renumbers instructions and
/// computations. Until then the module may only be asked by id, and there is no way back: check
/// first, edit then. References into the module end with every edit. Threads: as a vector. Cost:
/// O(1) an edit; construction and `finish` are linear in the module.
class ModuleEditor {
 public:
  explicit constexpr ModuleEditor(Module& module)
      : m_(module), link_(module.instructions.size(), Link{}), old_(module.computations.size()) {
    for (std::size_t c = 0; c < old_; ++c) {
      ends_.push_back({});
      for (const InstructionId id : m_.instructions_of(static_cast<ComputationId>(c)))
        put(id, no_id<InstructionId>, static_cast<ComputationId>(c));
    }
  }

  /// Adds an instruction to the computation of `at`, just before it in the order.
  ///
  /// `made` gives the fields; its lists are the spans. Its name has to be new: `unique_name`.
  constexpr InstructionId insert_before(InstructionId at, const Instruction& made,
                                        std::span<const InstructionId> operands,
                                        std::span<const Attribute> attributes = {},
                                        std::span<const ComputationId> called = {}) {
    const InstructionId id = make(made, m_[at].computation, operands, attributes, called);
    put(id, at, m_[at].computation);
    return id;
  }
  /// Adds an instruction to the computation of `at`, just behind it in the order.
  constexpr InstructionId insert_after(InstructionId at, const Instruction& made,
                                       std::span<const InstructionId> operands,
                                       std::span<const Attribute> attributes = {},
                                       std::span<const ComputationId> called = {}) {
    const InstructionId id = make(made, m_[at].computation, operands, attributes, called);
    put(id, link_[index_of(at)].next, m_[at].computation);
    return id;
  }
  /// Adds an instruction at the end of a computation and makes it the root: how a new computation
  /// is filled.
  constexpr InstructionId append(ComputationId computation, const Instruction& made,
                                 std::span<const InstructionId> operands,
                                 std::span<const Attribute> attributes = {},
                                 std::span<const ComputationId> called = {}) {
    const InstructionId id = make(made, computation, operands, attributes, called);
    put(id, no_id<InstructionId>, computation);
    m_[computation].root = id;
    return id;
  }
  /// Adds an empty computation that `caller`, one of the module's own, may call.
  constexpr ComputationId add_computation(ComputationId caller, std::string_view name) {
    const auto id = static_cast<ComputationId>(m_.computations.size());
    Computation made;
    made.name = name;
    m_.computations.push_back(made);
    ends_.push_back({});
    added_.push_back({caller, id});
    return id;
  }

  /// Lets `to` take the place of `from` as operand, control predecessor and root, and erases
  /// `from`.
  ///
  /// Nothing that is inserted may use `from`. The control predecessors of `from` are not passed on.
  constexpr void replace(InstructionId from, InstructionId to) {
    if (m_[m_[from].computation].root == from) m_[m_[from].computation].root = to;
    link_[index_of(from)].instead = to;
    erase(from);
  }
  /// Gives one user another operand; the operand stands before it in the order.
  constexpr void set_operand(InstructionId user, std::uint32_t k, InstructionId to) noexcept {
    m_.operand_ids[m_[user].operands.begin + k] = to;
  }
  /// Orders two instructions of one computation that stand in that order already.
  constexpr void add_control(InstructionId before, InstructionId after) {
    const IndexRange run = m_[after].controls;
    const auto begin = static_cast<std::uint32_t>(m_.control_ids.size());
    for (std::uint32_t k = run.begin; k < run.end(); ++k) {
      const InstructionId id = m_.control_ids[k];
      m_.control_ids.push_back(id);
    }
    m_.control_ids.push_back(before);
    m_[after].controls = {begin, run.count + 1};
  }
  /// Takes an instruction out. It is no root, nobody uses it any more; its control edges go.
  constexpr void erase(InstructionId id) {
    const Link link = link_[index_of(id)];
    Ends& ends = ends_[index_of(m_[id].computation)];
    (link.previous != none ? link_[index_of(link.previous)].next : ends.first) = link.next;
    (link.next != none ? link_[index_of(link.next)].previous : ends.last) = link.previous;
  }

  /// Makes a name that no instruction and no computation has: the stem and a number.
  constexpr std::string_view unique_name(std::string_view stem) {
    if (number_ == 0) {
      number_ = 1;
      for (const Instruction& i : m_.instructions) note_number(i.name);
      for (const Computation& c : m_.computations) note_number(c.name);
    }
    std::vector<char> text(stem.begin(), stem.end());
    text.push_back('.');
    char digits[20] = {};
    std::size_t at = sizeof digits;
    for (std::uint64_t n = number_++; n != 0; n /= 10)
      digits[--at] = static_cast<char>('0' + n % 10);
    text.insert(text.end(), digits + at, digits + sizeof digits);
    return m_.own({text.data(), text.size()});
  }

  /// Puts the tables in order: everything has a new id, and nothing erased is left.
  constexpr void finish() {
    std::sort(added_.begin(), added_.end(), [](const Added& a, const Added& b) {
      return a.caller != b.caller ? a.caller < b.caller : a.made < b.made;
    });
    std::vector<ComputationId> order;
    std::vector<ComputationId> place(m_.computations.size(), ComputationId{});
    std::size_t next = 0;
    const auto take = [&](ComputationId c) {
      place[index_of(c)] = static_cast<ComputationId>(order.size());
      order.push_back(c);
    };
    for (std::size_t c = 0; c < old_; ++c) {
      for (; next < added_.size() && index_of(added_[next].caller) == c; ++next)
        take(added_[next].made);
      take(static_cast<ComputationId>(c));
    }
    std::uint32_t count = 0;
    std::vector<InstructionId> number(m_.instructions.size(), none);
    for (const ComputationId c : order)
      for (InstructionId id = first(c); id != none; id = link_[index_of(id)].next)
        number[index_of(id)] = static_cast<InstructionId>(count++);
    rebuild(order, place, number);
  }

 private:
  static constexpr InstructionId none = no_id<InstructionId>;
  struct Link {
    InstructionId previous = none, next = none;
    InstructionId instead = none;  // who replaced it
  };
  struct Ends {
    InstructionId first = none, last = none;
  };
  struct Added {
    ComputationId caller, made;
  };

  [[nodiscard]] constexpr InstructionId first(ComputationId c) const noexcept {
    return ends_[index_of(c)].first;
  }
  constexpr void put(InstructionId id, InstructionId before, ComputationId c) noexcept {
    Ends& ends = ends_[index_of(c)];
    const InstructionId behind = before != none ? link_[index_of(before)].previous : ends.last;
    link_[index_of(id)].previous = behind;
    link_[index_of(id)].next = before;
    (behind != none ? link_[index_of(behind)].next : ends.first) = id;
    (before != none ? link_[index_of(before)].previous : ends.last) = id;
  }
  template <class T>
  static constexpr IndexRange append_to(std::vector<T>& pool, std::span<const T> list) {
    const std::vector<T> kept(list.begin(), list.end());  // the list may lie in the pool
    const IndexRange out{static_cast<std::uint32_t>(pool.size()),
                         static_cast<std::uint32_t>(list.size())};
    pool.insert(pool.end(), kept.begin(), kept.end());
    return out;
  }
  constexpr InstructionId make(Instruction made, ComputationId c,
                               std::span<const InstructionId> operands,
                               std::span<const Attribute> attributes,
                               std::span<const ComputationId> called) {
    made.computation = c;
    made.operands = append_to(m_.operand_ids, operands);
    made.attributes = append_to(m_.attributes, attributes);
    made.called = append_to(m_.called_ids, called);
    made.controls = made.aliases = {};
    m_.instructions.push_back(made);
    link_.push_back({});
    return static_cast<InstructionId>(m_.instructions.size() - 1);
  }
  constexpr void note_number(std::string_view name) noexcept {
    std::uint64_t value = 0, scale = 1;
    std::size_t k = name.size();
    for (; k > 0 && name.size() - k < 18 && name[k - 1] >= '0' && name[k - 1] <= '9'; --k) {
      value += scale * static_cast<std::uint64_t>(name[k - 1] - '0');
      scale *= 10;
    }
    if (k > 0 && name[k - 1] == '.') number_ = std::max(number_, value + 1);
  }
  [[nodiscard]] constexpr InstructionId resolve(InstructionId id) const noexcept {
    while (link_[index_of(id)].instead != none) id = link_[index_of(id)].instead;
    return id;
  }

  template <class T, class F>
  static constexpr IndexRange copy_run(const std::vector<T>& from, IndexRange run,
                                       std::vector<T>& to, F&& f) {
    const auto begin = static_cast<std::uint32_t>(to.size());
    for (std::uint32_t k = run.begin; k < run.end(); ++k) to.push_back(f(from[k]));
    return {begin, run.count};
  }
  constexpr void rebuild(const std::vector<ComputationId>& order,
                         const std::vector<ComputationId>& place,
                         const std::vector<InstructionId>& number) {
    Module made;
    for (const ComputationId c : order) {
      Computation& to = made.computations.emplace_back(m_[c]);
      to.instructions.begin = static_cast<std::uint32_t>(made.instructions.size());
      to.parameters = {static_cast<std::uint32_t>(made.parameter_ids.size()), 0};
      for (InstructionId id = first(c); id != none; id = link_[index_of(id)].next) {
        const Instruction& i = m_[id];
        if (i.opcode != Opcode::parameter) continue;
        const std::size_t at = to.parameters.begin + std::size_t{i.number};
        if (made.parameter_ids.size() <= at) made.parameter_ids.resize(at + 1, none);
        made.parameter_ids[at] = number[index_of(id)];
      }
      to.parameters.count =
          static_cast<std::uint32_t>(made.parameter_ids.size()) - to.parameters.begin;
      for (InstructionId id = first(c); id != none; id = link_[index_of(id)].next) {
        Instruction i = m_[id];
        i.computation = place[index_of(c)];
        i.operands = copy_run(m_.operand_ids, i.operands, made.operand_ids,
                              [&](InstructionId o) { return number[index_of(resolve(o))]; });
        const auto controls = m_.controls(i);
        i.controls.begin = static_cast<std::uint32_t>(made.control_ids.size());
        for (const InstructionId o : controls)
          if (const InstructionId now = number[index_of(resolve(o))]; now != none)
            made.control_ids.push_back(now);
        i.controls.count = static_cast<std::uint32_t>(made.control_ids.size()) - i.controls.begin;
        i.called = copy_run(m_.called_ids, i.called, made.called_ids,
                            [&](ComputationId k) { return place[index_of(k)]; });
        const auto same = [](const auto& x) { return x; };
        i.attributes = copy_run(m_.attributes, i.attributes, made.attributes, same);
        i.aliases = copy_run(m_.operand_aliases, i.aliases, made.operand_aliases, same);
        made.instruction_ids.push_back(static_cast<InstructionId>(made.instructions.size()));
        made.instructions.push_back(i);
      }
      to.instructions.count =
          static_cast<std::uint32_t>(made.instructions.size()) - to.instructions.begin;
      to.root = number[index_of(resolve(to.root))];
    }
    m_.entry = place[index_of(m_.entry)];
    m_.computations = std::move(made.computations);
    m_.instructions = std::move(made.instructions);
    m_.instruction_ids = std::move(made.instruction_ids);
    m_.parameter_ids = std::move(made.parameter_ids);
    m_.operand_ids = std::move(made.operand_ids);
    m_.control_ids = std::move(made.control_ids);
    m_.called_ids = std::move(made.called_ids);
    m_.operand_aliases = std::move(made.operand_aliases);
    m_.attributes = std::move(made.attributes);
  }

  Module& m_;
  std::vector<Link> link_;    // by instruction
  std::vector<Ends> ends_;    // by computation
  std::vector<Added> added_;  // computations
  std::size_t old_ = 0;       // computations that the module had
  std::uint64_t number_ = 0;  // of the next new name; 0: not looked yet
};

}  // namespace holdfast
