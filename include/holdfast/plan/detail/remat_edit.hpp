// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/core/result.hpp"
#include "holdfast/graph/module_editor.hpp"
#include "holdfast/plan/detail/remat_choice.hpp"

namespace holdfast::detail {

/// Writes chosen changes into a module.
///
/// Walks each computation once and lets every reader use the newest copy of what it reads; tuples
/// and elements of them are made anew where they lead to one. What nobody reads any more goes.
class RematEditor {
 public:
  constexpr RematEditor(Module& module, const RematRules& rules)
      : m_(module),
        rules_(rules),
        operands_(module.operand_ids),
        edit_(module),
        old_(static_cast<std::uint32_t>(module.instructions.size())) {
    for (std::uint32_t k = 0; k < old_; ++k) newest_.push_back({static_cast<InstructionId>(k), 0});
  }

  /// Makes the changes; the module is in order again.
  ///
  /// Errors: those of interning a shape.
  constexpr Error run(std::span<const RematEdit> edits) {
    for (std::uint32_t e = 0; e < edits.size(); ++e) add_events(edits[e], e);
    std::vector<std::uint32_t> position(old_, 0);
    for (std::size_t k = 0; k < m_.instruction_ids.size(); ++k)
      position[index_of(m_.instruction_ids[k])] = static_cast<std::uint32_t>(k);
    std::sort(events_.begin(), events_.end(), [&](const Event& a, const Event& b) {
      const std::uint32_t x = position[index_of(a.at)], y = position[index_of(b.at)];
      if (x != y) return x < y;
      if (a.kind != b.kind) return a.kind < b.kind;
      const std::uint32_t u = position[index_of(a.unit)], w = position[index_of(b.unit)];
      return u != w ? u < w : a.edit < b.edit;
    });
    away_.resize(edits.size(), InstructionId{});
    on_host_.resize(edits.size(), InstructionId{});
    std::vector<char> touched(m_.computations.size(), 0);
    for (const Event& e : events_) touched[index_of(m_[e.at].computation)] = 1;
    std::size_t next = 0;
    const std::vector<InstructionId> order = m_.instruction_ids;
    for (const InstructionId id : order) {
      if (touched[index_of(m_[id].computation)] == 0) continue;
      for (; next < events_.size() && events_[next].at == id && events_[next].kind != Kind::leave;
           ++next)
        if (Error e = carry_out(events_[next], edits); !e.ok()) return e;
      if (!is_forwarding(m_[id].opcode) || rules_.is_ordered(id)) read_newest(id);
      for (; next < events_.size() && events_[next].at == id; ++next)
        if (Error e = carry_out(events_[next], edits); !e.ok()) return e;
    }
    for (std::uint32_t c = 0; c < touched.size(); ++c)
      if (touched[c] != 0)
        if (const InstructionId root = m_[static_cast<ComputationId>(c)].root;
            is_forwarding(m_[root].opcode))
          read_newest(root);
    erase_dead();
    edit_.finish();
    return {};
  }

 private:
  /// In this order where several stand before one instruction.
  enum class Kind : std::uint8_t { left, back, arrived, again, leave };
  struct Event {
    InstructionId at{}, unit{};
    Kind kind = Kind::again;
    std::uint32_t edit = 0;
  };
  struct Newest {
    InstructionId id{};
    std::uint32_t age = 0;  // of the copies that it was made with
  };
  struct Element {
    InstructionId tuple{};
    std::uint32_t number = 0;
    InstructionId id{};
  };

  Module& m_;
  const RematRules& rules_;
  const std::vector<InstructionId> operands_;  // as they were
  ModuleEditor edit_;
  std::vector<Newest> newest_;  // by instruction that the module had
  std::uint32_t old_;
  std::uint32_t age_ = 0;
  std::vector<Event> events_;
  std::vector<InstructionId> away_;     // by edit: the copy on its way
  std::vector<InstructionId> on_host_;  // by edit: the copy that is there
  std::vector<Element> elements_;       // of tuples, that came back from the host
  std::vector<InstructionId> suspects_;

  constexpr void add_events(const RematEdit& e, std::uint32_t number) {
    if (e.dropped) return;
    for (const InstructionId i : e.chain) events_.push_back({e.before, i, Kind::again, number});
    if (!e.chain.empty()) return;
    if (e.leaves(number)) {
      events_.push_back({e.leave_after, e.unit, Kind::leave, number});
      events_.push_back({e.left_before, e.unit, Kind::left, number});
    }
    events_.push_back({e.return_before, e.unit, Kind::back, number});
    events_.push_back({e.before, e.unit, Kind::arrived, number});
  }
  constexpr InstructionId insert(InstructionId at, bool behind, const Instruction& like,
                                 std::string_view suffix, std::span<const InstructionId> operands,
                                 bool same_attributes) {
    Instruction made = like;
    made.name = new_name(like.name, suffix);
    std::vector<Attribute> attributes;
    if (same_attributes)
      attributes.assign(m_.attributes.begin() + like.attributes.begin,
                        m_.attributes.begin() + like.attributes.end());
    const std::vector<ComputationId> called = callees(made, m_[at].computation);
    return behind ? edit_.insert_after(at, made, operands, attributes, called)
                  : edit_.insert_before(at, made, operands, attributes, called);
  }
  constexpr std::string_view new_name(std::string_view like, std::string_view suffix) {
    std::vector<char> stem(like.begin(), like.end());
    stem.insert(stem.end(), suffix.begin(), suffix.end());
    return edit_.unique_name({stem.data(), stem.size()});
  }
  /// What a copy of an instruction calls: fusions have computations of their own.
  constexpr std::vector<ComputationId> callees(const Instruction& i, ComputationId caller) {
    std::vector<ComputationId> out(m_.called_ids.begin() + i.called.begin,
                                   m_.called_ids.begin() + i.called.end());
    if (i.opcode == Opcode::fusion)
      for (ComputationId& c : out) c = copy_of(c, caller);
    return out;
  }
  /// Copies a fused computation, with those of fusions inside: as deep as the module nests them.
  constexpr ComputationId copy_of(ComputationId from, ComputationId caller) {
    const std::vector<InstructionId> body(m_.instructions_of(from).begin(),
                                          m_.instructions_of(from).end());
    std::vector<std::vector<ComputationId>> called;
    for (const InstructionId id : body) called.push_back(callees(Instruction(m_[id]), caller));
    const ComputationId to = edit_.add_computation(caller, new_name(m_[from].name, ".remat"));
    std::vector<std::pair<InstructionId, InstructionId>> copies;  // sorted by the first
    const auto copy = [&](InstructionId id) {
      return std::lower_bound(copies.begin(), copies.end(), std::pair{id, InstructionId{}})->second;
    };
    for (std::size_t k = 0; k < body.size(); ++k) {
      Instruction made = m_[body[k]];
      made.name = new_name(made.name, ".remat");
      std::vector<InstructionId> operands(m_.operands(made).begin(), m_.operands(made).end());
      for (InstructionId& o : operands) o = copy(o);
      const std::vector<Attribute> attributes(m_.attributes.begin() + made.attributes.begin,
                                              m_.attributes.begin() + made.attributes.end());
      const std::pair<InstructionId, InstructionId> both{
          body[k], edit_.append(to, made, operands, attributes, called[k])};
      copies.insert(std::upper_bound(copies.begin(), copies.end(), both), both);
    }
    Computation& c = m_[to];
    c.root = copy(m_[from].root);
    c.thread = m_[from].thread, c.is_fusion = true;
    return to;
  }

  constexpr Error carry_out(const Event& e, std::span<const RematEdit> edits) {
    const bool behind = e.kind == Kind::leave;
    const Instruction unit = m_[e.unit];
    switch (e.kind) {
      case Kind::again: {
        const auto given = operands(e.unit);
        std::vector<InstructionId> now(given.begin(), given.end());
        for (InstructionId& o : now) o = newest(o, e.at);
        newest_[index_of(e.unit)] = {insert(e.at, false, unit, ".remat", now, true), ++age_};
        suspects_.push_back(e.unit);
        suspects_.push_back(newest_[index_of(e.unit)].id);
        std::erase_if(elements_, [&](const Element& x) { return x.tuple == e.unit; });
        return {};
      }
      case Kind::leave: {
        InstructionId from = newest_[index_of(e.unit)].id;
        InstructionId at = e.at;
        const bool element = m_.shapes.is_tuple(unit.shape);
        if (element)
          at = from = insert(at, true, element_of(unit, edits[e.edit].element), ".to_host",
                             {{from}}, false);
        const Result<ShapeId> shape = with_space(m_[from].shape, MemorySpace::host);
        if (!shape.ok()) return shape.error();
        const Result<InstructionId> start =
            copy_start(at, behind, *shape, m_[from].shape, from, ".to_host", unit);
        if (!start.ok()) return start.error();
        away_[e.edit] = *start;
        return {};
      }
      case Kind::left:
        on_host_[e.edit] = copy_done(e.at, away_[e.edit], ".to_host", unit);
        return {};
      case Kind::back: {
        const RematEdit& first = edits[edits[e.edit].host];
        const InstructionId from =
            first.at_host != no_id<InstructionId> ? first.at_host : on_host_[edits[e.edit].host];
        const ShapeId home = m_.shapes.is_tuple(unit.shape)
                                 ? m_.shapes.children_of(unit.shape)[edits[e.edit].element]
                                 : unit.shape;
        const Result<InstructionId> start =
            copy_start(e.at, behind, home, m_[from].shape, from, ".from_host", unit);
        if (!start.ok()) return start.error();
        away_[e.edit] = *start;
        return {};
      }
      case Kind::arrived: {
        const InstructionId done = copy_done(e.at, away_[e.edit], ".from_host", unit);
        ++age_;
        if (m_.shapes.is_tuple(unit.shape))
          elements_.push_back({e.unit, edits[e.edit].element, done});
        else
          newest_[index_of(e.unit)] = {done, age_};
        return {};
      }
    }
    return {};
  }
  constexpr Instruction element_of(const Instruction& tuple, std::uint32_t number) const {
    Instruction out;
    out.name = tuple.name, out.where = tuple.where;
    out.opcode = Opcode::get_tuple_element, out.number = number;
    out.shape = m_.shapes.children_of(tuple.shape)[number];
    return out;
  }
  constexpr Result<InstructionId> copy_start(InstructionId at, bool behind, ShapeId to,
                                             ShapeId from, InstructionId operand,
                                             std::string_view suffix, const Instruction& unit) {
    Shape context;
    context.type = ElementType::u32;
    context.dimensions = {static_cast<std::uint32_t>(m_.shapes.numbers.size()), 0};
    const Result<ShapeId> number = m_.shapes.intern(context, context.dimensions.begin);
    if (!number.ok()) return number.error();
    const auto mark = static_cast<std::uint32_t>(m_.shapes.children.size());
    m_.shapes.children.insert(m_.shapes.children.end(), {to, from, *number});
    const Result<ShapeId> tuple = m_.shapes.intern_tuple(mark);
    if (!tuple.ok()) return tuple.error();
    Instruction made;
    made.name = unit.name, made.where = unit.where;
    made.opcode = Opcode::copy_start, made.shape = *tuple;
    return insert(at, behind, made, suffix, {{operand}}, false);
  }
  constexpr InstructionId copy_done(InstructionId at, InstructionId start, std::string_view suffix,
                                    const Instruction& unit) {
    Instruction made;
    made.name = unit.name, made.where = unit.where;
    made.opcode = Opcode::copy_done, made.shape = m_.shapes.children_of(m_[start].shape)[0];
    return insert(at, false, made, suffix, {{start}}, false);
  }
  /// The same array in another memory space; without a layout it gets the usual one.
  constexpr Result<ShapeId> with_space(ShapeId id, MemorySpace space) {
    Shape s = m_.shapes[id];
    Layout layout;
    const auto mark = static_cast<std::uint32_t>(m_.shapes.numbers.size());
    const auto copy = [&](IndexRange run) {
      const auto begin = static_cast<std::uint32_t>(m_.shapes.numbers.size());
      for (std::uint32_t k = run.begin; k < run.end(); ++k) {
        const std::int64_t n = m_.shapes.numbers[k];
        m_.shapes.numbers.push_back(n);
      }
      return IndexRange{begin, run.count};
    };
    if (s.has_layout) layout = m_.shapes.layouts[s.layout];
    s.dimensions = copy(s.dimensions);
    if (s.has_layout) {
      layout.minor_to_major = copy(layout.minor_to_major);
      layout.tiles = copy(layout.tiles), layout.splits = copy(layout.splits);
    } else {
      layout.minor_to_major = {static_cast<std::uint32_t>(m_.shapes.numbers.size()),
                               s.dimensions.count};
      for (std::uint32_t d = s.dimensions.count; d-- > 0;) m_.shapes.numbers.push_back(d);
    }
    layout.space = space;
    return m_.shapes.intern(s, mark, &layout);
  }

  [[nodiscard]] constexpr std::span<const InstructionId> operands(InstructionId i) const noexcept {
    return {operands_.data() + m_[i].operands.begin, m_[i].operands.count};
  }
  /// Lets an instruction read the newest copies.
  constexpr void read_newest(InstructionId id) {
    if (age_ == 0) return;
    for (std::uint32_t k = 0; k < m_[id].operands.count; ++k) {
      const InstructionId o = operands(id)[k];
      if (const InstructionId now = newest(o, id); now != o)
        edit_.set_operand(id, k, now), suspects_.push_back(o);
    }
  }
  /// The newest copy of an instruction's result; what only forwards is made anew before `at` where
  /// it has to be.
  constexpr InstructionId newest(InstructionId wanted, InstructionId at) {
    const auto stale = [&](InstructionId i) {
      return index_of(i) < old_ && is_forwarding(m_[i].opcode) && !rules_.is_ordered(i) &&
             newest_[index_of(i)].age < age_;
    };
    std::vector<InstructionId> stack;
    if (stale(wanted)) stack.push_back(wanted);
    while (!stack.empty()) {
      const InstructionId i = stack.back();
      bool ready = true;
      for (const InstructionId o : operands(i))
        if (stale(o)) stack.push_back(o), ready = false;
      if (!ready) continue;
      stack.pop_back();
      Newest& n = newest_[index_of(i)];
      if (n.age == age_) continue;
      n.age = age_;
      if (const InstructionId back = element(i); back != no_id<InstructionId>) {
        n.id = back;
        continue;
      }
      std::vector<InstructionId> now(operands(i).begin(), operands(i).end());
      for (InstructionId& o : now) o = newest_[index_of(o)].id;
      if (!std::ranges::equal(now, m_.operands(m_[n.id])))
        n.id = insert(at, false, Instruction(m_[i]), ".remat", now, true);
    }
    return newest_[index_of(wanted)].id;
  }
  constexpr InstructionId element(InstructionId i) const {
    if (m_[i].opcode == Opcode::get_tuple_element)
      for (const Element& e : elements_)
        if (e.tuple == operands(i)[0] && e.number == m_[i].number) return e.id;
    return no_id<InstructionId>;
  }

  /// Erases what was read before and is not any more.
  constexpr void erase_dead() {
    std::vector<std::uint32_t> readers(m_.instructions.size(), 0);
    for (const Instruction& i : m_.instructions)
      for (const InstructionId o : m_.operands(i)) ++readers[index_of(o)];
    for (const Computation& c : m_.computations)
      if (c.instructions.count != 0) ++readers[index_of(c.root)];
    while (!suspects_.empty()) {
      const InstructionId i = suspects_.back();
      suspects_.pop_back();
      if (readers[index_of(i)] != 0) continue;
      if (index_of(i) < old_ &&
          (is_forwarding(m_[i].opcode) ? rules_.is_ordered(i) : !rules_.may_repeat(i)))
        continue;
      readers[index_of(i)] = 1;  // only once
      for (const InstructionId o : m_.operands(m_[i]))
        if (--readers[index_of(o)] == 0) suspects_.push_back(o);
      edit_.erase(i);
    }
  }
};

}  // namespace holdfast::detail
