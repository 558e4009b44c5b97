// SPDX-License-Identifier: Apache-2.0
// Builds modules without text, and generates random valid ones: XLA accepts what the printer makes
// of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/graph/module.hpp"

namespace holdfast::testing {

/// How an array lies; an empty order is row-major.
struct Placing {
  std::vector<std::int64_t> order = {};
  MemorySpace space = MemorySpace::device;
  std::vector<std::int64_t> tiles = {};  // rank, sizes...
  std::int64_t element_bits = 0;
};

/// Puts a module together; computations may be opened inside one another.
class ModuleBuilder {
 public:
  Module module;

  ShapeId array(ElementType type, const std::vector<std::int64_t>& dims,
                const Placing& placing = {}, std::uint64_t dynamic = 0) {
    ShapeTable& t = module.shapes;
    const auto mark = static_cast<std::uint32_t>(t.numbers.size());
    const auto run = [&](const std::vector<std::int64_t>& v) {
      const IndexRange r{static_cast<std::uint32_t>(t.numbers.size()),
                         static_cast<std::uint32_t>(v.size())};
      t.numbers.insert(t.numbers.end(), v.begin(), v.end());
      return r;
    };
    Shape s;
    s.type = type;
    s.dynamic = dynamic;
    s.dimensions = run(dims);
    std::vector<std::int64_t> order = placing.order;
    if (order.empty())
      for (std::size_t d = dims.size(); d-- > 0;) order.push_back(static_cast<std::int64_t>(d));
    Layout l;
    l.minor_to_major = run(order);
    l.tiles = run(placing.tiles);
    l.space = placing.space;
    l.element_bits = placing.element_bits;
    return *t.intern(s, mark, is_array(type) ? &l : nullptr);
  }
  ShapeId scalar(ElementType type) { return array(type, {}); }
  ShapeId token() { return array(ElementType::token, {}); }
  ShapeId tuple(const std::vector<ShapeId>& parts) {
    const auto mark = static_cast<std::uint32_t>(module.shapes.children.size());
    module.shapes.children.insert(module.shapes.children.end(), parts.begin(), parts.end());
    return *module.shapes.intern_tuple(mark);
  }

  void open(std::string_view name) { open_.push_back({std::string(name), {}, 0}); }
  /// Ends the computation opened last.
  ComputationId close(InstructionId root, std::string_view thread = {},
                      bool is_async_wrapper = false) {
    Open& o = open_.back();
    const auto id = static_cast<ComputationId>(module.computations.size());
    Computation c;
    c.name = module.own(o.name);
    c.thread = module.own(thread);
    c.is_async_wrapper = is_async_wrapper;
    c.root = root;
    c.instructions = {static_cast<std::uint32_t>(module.instruction_ids.size()),
                      static_cast<std::uint32_t>(o.list.size())};
    c.parameters.begin = static_cast<std::uint32_t>(module.parameter_ids.size());
    module.instruction_ids.insert(module.instruction_ids.end(), o.list.begin(), o.list.end());
    for (const InstructionId i : o.list) {
      module[i].computation = id;
      if (module[i].opcode == Opcode::parameter) module.parameter_ids.push_back(i);
    }
    c.parameters.count =
        static_cast<std::uint32_t>(module.parameter_ids.size()) - c.parameters.begin;
    module.computations.push_back(c);
    open_.pop_back();
    return id;
  }

  using Attributes = std::vector<std::pair<std::string, std::string>>;
  /// Adds an instruction to the computation opened last; its name is its word and its id.
  InstructionId add(Opcode opcode, ShapeId shape, const std::vector<InstructionId>& operands = {},
                    const Attributes& attributes = {},
                    const std::vector<ComputationId>& called = {}) {
    const auto id = static_cast<InstructionId>(module.instructions.size());
    Instruction i;
    i.opcode = opcode;
    i.shape = shape;
    i.name = module.own(std::string(opcode_word(opcode)) + "." + std::to_string(index_of(id)));
    i.operands = append(module.operand_ids, operands);
    i.called = append(module.called_ids, called);
    i.attributes.begin = static_cast<std::uint32_t>(module.attributes.size());
    i.attributes.count = static_cast<std::uint32_t>(attributes.size());
    for (const auto& [key, value] : attributes)
      module.attributes.push_back({module.own(key), module.own(value)});
    module.instructions.push_back(i);
    open_.back().list.push_back(id);
    return id;
  }
  InstructionId parameter(ShapeId shape) {
    const InstructionId id = add(Opcode::parameter, shape);
    module[id].number = open_.back().parameters++;
    return id;
  }
  InstructionId element(InstructionId of, std::uint32_t index) {
    const InstructionId id =
        add(Opcode::get_tuple_element, module.shapes.children_of(module[of].shape)[index], {of});
    module[id].number = index;
    return id;
  }
  InstructionId make_tuple(const std::vector<InstructionId>& parts) {
    std::vector<ShapeId> shapes;
    for (const InstructionId p : parts) shapes.push_back(module[p].shape);
    return add(Opcode::tuple, tuple(shapes), parts);
  }
  InstructionId constant(ShapeId shape, std::string_view literal) {
    return add(Opcode::constant, shape, {}, {{"", std::string(literal)}});
  }
  void alias(InstructionId id, std::vector<OperandAlias> pairs) {
    module[id].aliases = append(module.operand_aliases, pairs);
  }
  void control(InstructionId before, InstructionId after) {
    std::vector<InstructionId> all(module.controls(module[after]).begin(),
                                   module.controls(module[after]).end());
    all.push_back(before);
    module[after].controls = append(module.control_ids, all);
  }
  [[nodiscard]] const std::vector<InstructionId>& list() const { return open_.back().list; }
  [[nodiscard]] bool is_open() const { return !open_.empty(); }

 private:
  struct Open {
    std::string name;
    std::vector<InstructionId> list;
    std::uint32_t parameters;
  };
  template <class T>
  static IndexRange append(std::vector<T>& pool, const std::vector<T>& more) {
    const IndexRange r{static_cast<std::uint32_t>(pool.size()),
                       static_cast<std::uint32_t>(more.size())};
    pool.insert(pool.end(), more.begin(), more.end());
    return r;
  }
  std::vector<Open> open_;
};

/// Generates one module a seed: under 60 instructions, every operation that memory work knows,
/// random layouts, spaces, schedules, aliases, donors and control edges; the call graph is flat.
class ModuleGenerator {
 public:
  explicit ModuleGenerator(std::uint64_t seed) : random_(seed) {}

  Module operator()() {
    Module& m = b_.module;
    m.name = m.own("generated");
    m.is_scheduled = one_in(2);
    if (one_in(4)) m.replica_count = 2;
    b_.open("main");
    const auto parameters = 1 + pick(3);
    for (std::size_t i = 0; i < parameters; ++i) keep(b_.parameter(some_array()));
    keep(b_.parameter(b_.array(ElementType::f32, {8})));
    while (m.instructions.size() < 34) step();
    std::vector<InstructionId> results;
    for (const InstructionId v : values_)
      if (one_in(3)) results.push_back(v);
    for (int i = 0; i < 3; ++i) {
      const auto& all = b_.list();
      const std::size_t x = pick(all.size()), y = pick(all.size());
      if (x < y && m[all[y]].opcode != Opcode::parameter) b_.control(all[x], all[y]);
    }
    m.entry = b_.close(b_.make_tuple(results));
    tables(results);
    return std::move(b_.module);
  }

 private:
  std::size_t pick(std::size_t below) { return static_cast<std::size_t>(random_() % below); }
  bool one_in(std::size_t n) { return pick(n) == 0; }
  void keep(InstructionId id) { values_.push_back(id); }
  ShapeId shape(InstructionId id) const { return b_.module[id].shape; }
  std::vector<std::int64_t> dims(InstructionId id) const {
    const auto d = b_.module.shapes.dimensions(shape(id));
    return {d.begin(), d.end()};
  }
  ElementType type(InstructionId id) const { return b_.module.shapes[shape(id)].type; }
  static std::string braces(const std::vector<std::int64_t>& v) {
    std::string out = "{";
    for (const std::int64_t d : v) out += (out.size() > 1 ? "," : "") + std::to_string(d);
    return out + "}";
  }
  InstructionId value() { return values_[pick(values_.size())]; }
  InstructionId vector8() {  // a plain f32[8], for operations with fixed shapes
    const ShapeId wanted = b_.array(ElementType::f32, {8});
    for (std::size_t i = 0; i < 20; ++i)
      if (const InstructionId v = value(); shape(v) == wanted) return v;
    for (const InstructionId v : values_)
      if (shape(v) == wanted) return v;  // there is a parameter
    return values_.front();
  }
  InstructionId zero(ElementType t) {
    return b_.constant(b_.scalar(t), t == ElementType::pred ? "false" : "0");
  }
  InstructionId token() { return b_.add(Opcode::after_all, b_.token()); }

  Placing placing(std::size_t rank, ElementType t) {
    Placing p;
    for (std::size_t d = 0; d < rank; ++d) p.order.push_back(static_cast<std::int64_t>(d));
    std::shuffle(p.order.begin(), p.order.end(), random_);
    constexpr MemorySpace spaces[] = {MemorySpace::device, MemorySpace::device, MemorySpace::device,
                                      MemorySpace::fast, MemorySpace::host};
    p.space = spaces[pick(5)];
    if (rank == 2 && one_in(4)) p.tiles = {2, 8, 128, 2, 2, 1};
    if (t == ElementType::s4 && one_in(2)) p.element_bits = 4;
    return p;
  }
  ShapeId some_array() {
    constexpr ElementType types[] = {ElementType::f32, ElementType::bf16, ElementType::s32,
                                     ElementType::u8, ElementType::s4};
    const ElementType t = types[pick(5)];
    std::vector<std::int64_t> d(pick(4));
    for (std::int64_t& size : d) size = static_cast<std::int64_t>(1 + pick(16));
    return b_.array(t, d, placing(d.size(), t));
  }
  // The same array with another layout.
  ShapeId placed_anew(InstructionId v) {
    return b_.array(type(v), dims(v), placing(dims(v).size(), type(v)));
  }

  ComputationId binary(std::string_view name, ElementType t, Opcode op) {
    b_.open(std::string(name) + "." + std::to_string(b_.module.instructions.size()));
    const InstructionId x = b_.parameter(b_.scalar(t)), y = b_.parameter(b_.scalar(t));
    if (op != Opcode::compare) return b_.close(b_.add(op, b_.scalar(t), {x, y}));
    return b_.close(b_.add(op, b_.scalar(ElementType::pred), {x, y}, {{"direction", "GE"}}));
  }
  ComputationId add() { return binary("add", ElementType::f32, Opcode::add); }
  ComputationId negation(ShapeId s, std::string_view name, std::string_view thread = {}) {
    b_.open(std::string(name) + "." + std::to_string(b_.module.instructions.size()));
    const InstructionId p = b_.parameter(s);
    return b_.close(b_.add(Opcode::negate, s, {p}), thread);
  }

  void step() {
    switch (pick(30)) {
      case 0:
        return keep(b_.add(Opcode::negate, shape(vector8()), {vector8()},
                           {{"metadata", "{op_name=\"a/\\\"b\\\"\" source_line=7}"}}));
      case 1:
        return elementwise();
      case 2:
        return copy();
      case 3:
        return loop();
      case 4:
        return conditional();
      case 5:
        return call();
      case 6:
      case 7:
        return fusion();
      case 8:
        return custom_call();
      case 9:
        return tuple_and_element();
      case 10:
        return async_short();
      case 11:
        return async_general();
      case 12:
        return copy_pair();
      case 13:
        return transfers();
      case 14:
        return feeds();
      case 15:
        return slices();
      case 16:
        return dimension_sizes();
      case 17:
        return reductions();
      case 18:
        return scatter();
      case 19:
        return select_and_scatter();
      case 20:
        return sort();
      case 21:
        return collectives();
      case 22:
        return keep(b_.constant(b_.array(ElementType::s32, {3}), "{1, -2, 3}"));
      case 23:
        return keep(b_.constant(b_.array(ElementType::f32, {8}), "{0, 1, 2, 3, 4, 5, 6, inf}"));
      case 24:
        return keep(b_.add(Opcode::broadcast, b_.array(ElementType::f32, {8}),
                           {zero(ElementType::f32)}, {{"dimensions", "{}"}}));
      case 25:
        return keep(b_.add(Opcode::bitcast, shape(vector8()), {vector8()}));
      case 26:
        return moves();
      case 27:
        return joins();
      case 28:
        return keep(b_.add(Opcode::opt_barrier, shape(vector8()), {vector8()}));
      default:
        return keep(
            b_.add(Opcode::iota, b_.array(ElementType::s32, {5}), {}, {{"iota_dimension", "0"}}));
    }
  }
  void copy() {
    const InstructionId v = value();
    keep(b_.add(Opcode::copy, placed_anew(v), {v}));
  }
  void moves() {
    const InstructionId v = vector8();
    const InstructionId r = b_.add(Opcode::reshape, b_.array(ElementType::f32, {2, 4}), {v});
    const InstructionId t = b_.add(Opcode::transpose, b_.array(ElementType::f32, {4, 2}), {r},
                                   {{"dimensions", "{1,0}"}});
    keep(b_.add(Opcode::reverse, shape(t), {t}, {{"dimensions", "{0}"}}));
    keep(b_.add(Opcode::convert, b_.array(ElementType::bf16, {4, 2}), {t}));
    if (one_in(2))
      keep(b_.add(Opcode::pad, b_.array(ElementType::f32, {10}), {v, zero(ElementType::f32)},
                  {{"padding", "1_1"}}));
  }
  void joins() {
    const InstructionId v = vector8(), w = vector8();
    keep(b_.add(Opcode::concatenate, b_.array(ElementType::f32, {16}), {v, w},
                {{"dimensions", "{0}"}}));
    const InstructionId p =
        b_.add(Opcode::compare, b_.array(ElementType::pred, {8}), {v, w}, {{"direction", "LT"}});
    keep(b_.add(Opcode::select, shape(v), {p, v, w}));
    keep(b_.add(Opcode::dot, b_.scalar(ElementType::f32), {v, w},
                {{"lhs_contracting_dims", "{0}"}, {"rhs_contracting_dims", "{0}"}}));
  }
  void elementwise() {
    const InstructionId v = value();
    keep(b_.add(one_in(2) ? Opcode::add : Opcode::multiply, shape(v), {v, v}));
  }
  void loop() {
    Module& m = b_.module;
    const ShapeId counter = b_.scalar(ElementType::s32);
    const InstructionId v = vector8(), w = value();
    const InstructionId init = b_.make_tuple({zero(ElementType::s32), v, w});
    const ShapeId state = shape(init);
    b_.open("condition." + std::to_string(m.instructions.size()));
    InstructionId p = b_.parameter(state);
    const InstructionId limit = b_.constant(counter, "4");
    const ComputationId condition =
        b_.close(b_.add(Opcode::compare, b_.scalar(ElementType::pred), {b_.element(p, 0), limit},
                        {{"direction", "LT"}}));
    b_.open("body." + std::to_string(m.instructions.size()));
    p = b_.parameter(state);
    const InstructionId i = b_.element(p, 0), x = b_.element(p, 1), y = b_.element(p, 2);
    const InstructionId next = b_.add(Opcode::add, counter, {i, b_.constant(counter, "1")});
    const InstructionId moved = one_in(2) ? x : b_.add(Opcode::negate, shape(x), {x});
    const ComputationId body = b_.close(b_.make_tuple({next, moved, y}));
    const InstructionId done = b_.add(Opcode::while_, state, {init}, {}, {body, condition});
    keep(b_.element(done, 1));
    if (one_in(2)) keep(b_.element(done, 2));
  }
  void conditional() {
    const InstructionId v = vector8();
    const bool boolean = one_in(2);
    const std::size_t n = boolean ? 2 : 1 + pick(3);
    std::vector<ComputationId> branches;
    std::vector<InstructionId> operands{zero(boolean ? ElementType::pred : ElementType::s32)};
    for (std::size_t k = 0; k < n; ++k)
      branches.push_back(negation(shape(v), "branch")), operands.push_back(v);
    keep(b_.add(Opcode::conditional, shape(v), operands, {}, branches));
  }
  void call() {
    const InstructionId v = value();
    keep(b_.add(Opcode::call, shape(v), {v}, {}, {negation(shape(v), "callee")}));
  }
  void fusion() {
    const InstructionId v = value();
    b_.open("fused." + std::to_string(b_.module.instructions.size()));
    const InstructionId p = b_.parameter(shape(v)), q = b_.parameter(shape(v));
    const InstructionId s = b_.add(Opcode::add, shape(v), {p, q});
    const ComputationId c = b_.close(b_.add(Opcode::multiply, shape(v), {s, p}));
    const InstructionId f =
        b_.add(Opcode::fusion, shape(v), {v, v}, {{"backend_config", "{\"outer\":[\"}\"]}"}}, {c});
    constexpr FusionKind kinds[] = {FusionKind::loop, FusionKind::input, FusionKind::output,
                                    FusionKind::custom};
    b_.module[f].fusion_kind = kinds[pick(4)];
    b_.module[c].is_fusion = true;
    if (one_in(3)) b_.alias(f, {{0, 1, 0}});
    keep(f);
  }
  void custom_call() {
    const InstructionId v = vector8(), t = b_.make_tuple({value(), v});
    const InstructionId c = b_.add(
        Opcode::custom_call, b_.tuple({shape(v), b_.scalar(ElementType::s32)}), {v, t},
        {{"custom_call_target", "\"gen\""}, {"api_version", "API_VERSION_STATUS_RETURNING"}});
    b_.module[c].has_side_effect = one_in(2);
    if (one_in(2)) b_.alias(c, {{1, 1, 2}});
    keep(b_.element(c, 0));
  }
  void tuple_and_element() {
    const InstructionId inner = b_.make_tuple({value()}),
                        t = b_.make_tuple({inner, value(), vector8(), vector8(), vector8(),
                                           vector8(), vector8()});
    keep(b_.element(b_.element(t, 0), 0));
  }
  void async_short() {
    const InstructionId v = vector8(), i = zero(ElementType::s32);
    const ShapeId out = b_.array(ElementType::f32, {3});
    b_.open("async_wrapped." + std::to_string(b_.module.instructions.size()));
    const InstructionId p = b_.parameter(shape(v)), q = b_.parameter(shape(i));
    const ComputationId c =
        b_.close(b_.add(Opcode::dynamic_slice, out, {p, q},
                        {{"dynamic_slice_sizes", "{3}"}, {"metadata", "{op_name=\"s\"}"}}),
                 "side", true);
    const ShapeId state =
        b_.tuple({b_.tuple({shape(v), shape(i)}), out, b_.scalar(ElementType::u32)});
    InstructionId s =
        b_.add(Opcode::async_start, state, {v, i},
               {{"async_execution_thread", "\"side\""}, {"metadata", "{op_name=\"s\"}"}}, {c});
    if (one_in(2)) s = b_.add(Opcode::async_update, state, {s}, {}, {c});
    keep(b_.add(Opcode::async_done, out, {s}, {}, {c}));
  }
  void async_general() {
    const InstructionId v = vector8();
    b_.open("async_body." + std::to_string(b_.module.instructions.size()));
    const InstructionId p = b_.parameter(shape(v));
    const InstructionId n = b_.add(Opcode::negate, shape(v), {p});
    const ComputationId c = b_.close(b_.add(Opcode::abs, shape(v), {n}));
    const ShapeId state = b_.tuple({b_.tuple({shape(v)}), shape(v), b_.scalar(ElementType::s32)});
    const InstructionId s = b_.add(Opcode::async_start, state, {v}, {}, {c});
    keep(b_.add(Opcode::async_done, shape(v), {s}, {}, {c}));
  }
  void copy_pair() {
    const InstructionId v = value();
    const ShapeId to = placed_anew(v);
    const InstructionId s =
        b_.add(Opcode::copy_start, b_.tuple({to, shape(v), b_.scalar(ElementType::u32)}), {v},
               {{"cross_program_prefetch_index", "0"}});
    keep(b_.add(Opcode::copy_done, to, {s}));
  }
  void transfers() {
    const InstructionId v = vector8(), t = token();
    const ShapeId state = b_.tuple({shape(v), b_.scalar(ElementType::u32), b_.token()});
    const InstructionId s = b_.add(Opcode::send, state, {v, t}, {{"channel_id", "1"}});
    const InstructionId d = b_.add(Opcode::send_done, b_.token(), {s}, {{"channel_id", "1"}});
    const InstructionId r = b_.add(Opcode::recv, state, {d}, {{"channel_id", "2"}});
    keep(b_.element(
        b_.add(Opcode::recv_done, b_.tuple({shape(v), b_.token()}), {r}, {{"channel_id", "2"}}),
        0));
  }
  void feeds() {
    const InstructionId t = token();
    const ShapeId s = b_.array(ElementType::f32, {8});
    const InstructionId in =
        b_.add(Opcode::infeed, b_.tuple({s, b_.token()}), {t}, {{"infeed_config", "\"c\""}});
    keep(b_.element(in, 0));
    b_.add(Opcode::outfeed, b_.token(), {vector8(), t}, {{"outfeed_shape", "f32[8]{0}"}});
  }
  void slices() {
    const InstructionId v = vector8(), i = zero(ElementType::s32);
    const InstructionId part =
        b_.add(Opcode::slice, b_.array(ElementType::f32, {3}), {v}, {{"slice", "{[1:4]}"}});
    const InstructionId other =
        b_.add(Opcode::dynamic_slice, shape(part), {v, i}, {{"dynamic_slice_sizes", "{3}"}});
    keep(b_.add(Opcode::dynamic_update_slice, shape(v), {v, one_in(2) ? part : other, i}));
  }
  void dimension_sizes() {
    const InstructionId v = vector8(), n = b_.constant(b_.scalar(ElementType::s32), "3");
    const InstructionId d =
        b_.add(Opcode::set_dimension_size, b_.array(ElementType::f32, {8}, {}, 1), {v, n},
               {{"dimensions", "{0}"}});
    keep(b_.add(Opcode::get_dimension_size, b_.scalar(ElementType::s32), {d},
                {{"dimensions", "{0}"}}));
  }
  void reductions() {
    const InstructionId v = vector8(), z = zero(ElementType::f32);
    if (one_in(3))
      return keep(b_.add(Opcode::map, shape(v), {v, v}, {{"dimensions", "{0}"}}, {add()}));
    if (one_in(2))
      return keep(
          b_.add(Opcode::reduce_window, shape(v), {v, z}, {{"window", "{size=1}"}}, {add()}));
    keep(b_.add(Opcode::reduce, b_.scalar(ElementType::f32), {v, z}, {{"dimensions", "{0}"}},
                {add()}));
  }
  void scatter() {
    const InstructionId v = vector8();
    const InstructionId at = b_.constant(b_.array(ElementType::s32, {2, 1}), "{ { 0 }, { 5 } }");
    const InstructionId by = b_.constant(b_.array(ElementType::f32, {2}), "{1, 2}");
    keep(b_.add(Opcode::scatter, shape(v), {v, at, by},
                {{"update_window_dims", "{}"},
                 {"inserted_window_dims", "{0}"},
                 {"scatter_dims_to_operand_dims", "{0}"},
                 {"index_vector_dim", "1"}},
                {add()}));
  }
  void select_and_scatter() {
    const InstructionId v = vector8();
    const ComputationId ge = binary("ge", ElementType::f32, Opcode::compare);
    keep(b_.add(Opcode::select_and_scatter, shape(v), {v, v, zero(ElementType::f32)},
                {{"window", "{size=1}"}}, {ge, add()}));
  }
  void sort() {
    const InstructionId v = vector8();
    keep(b_.add(Opcode::sort, shape(v), {v}, {{"dimensions", "{0}"}, {"is_stable", "true"}},
                {binary("order", ElementType::f32, Opcode::compare)}));
  }
  void collectives() {
    const InstructionId v = vector8();
    switch (pick(3)) {
      case 0:
        return keep(b_.add(Opcode::all_reduce, shape(v), {v}, {{"replica_groups", "{}"}}, {add()}));
      case 1: {
        const InstructionId s =
            b_.add(Opcode::all_reduce_start, shape(v), {v}, {{"replica_groups", "{}"}}, {add()});
        return keep(b_.add(Opcode::all_reduce_done, shape(v), {s}));
      }
      default:
        return keep(b_.add(Opcode::reduce_scatter, b_.array(ElementType::f32, {4}), {v},
                           {{"replica_groups", "{{0,1}}"}, {"dimensions", "{0}"}}, {add()}));
    }
  }
  // Aliases of parameters and results that have one shape, and donors among the rest.
  void tables(const std::vector<InstructionId>& results) {
    Module& m = b_.module;
    std::vector<bool> taken(results.size(), false);
    const auto parameters = m.parameters_of(m.entry);
    for (std::uint32_t p = 0; p < parameters.size(); ++p) {
      bool aliased = false;
      for (std::uint32_t k = 0; k < results.size() && !aliased; ++k) {
        if (taken[k] || m[results[k]].shape != m[parameters[p]].shape || one_in(2)) continue;
        m.parameter_aliases.push_back({k + 1, p, 0, one_in(2)});
        taken[k] = aliased = true;
      }
      if (!aliased && one_in(3)) m.donors.push_back({p, 0});
    }
  }

  std::mt19937_64 random_;
  ModuleBuilder b_;
  std::vector<InstructionId> values_;  // arrays of the entry that anything may use
};

}  // namespace holdfast::testing
