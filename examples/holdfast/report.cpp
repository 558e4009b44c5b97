// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <cstdio>
#include <vector>

namespace program {

using namespace holdfast;

namespace {

std::string op_name(const Module& m, const Instruction& i) {
  const std::string_view metadata = m.attribute(i, "metadata");
  constexpr std::string_view key = "op_name=\"";
  const std::size_t at = metadata.find(key);
  if (at == std::string_view::npos) return {};
  std::string out;
  for (std::size_t k = at + key.size(); k < metadata.size() && metadata[k] != '"'; ++k) {
    if (metadata[k] == '\\' && k + 1 < metadata.size()) ++k;
    out += metadata[k];
  }
  return out;
}

std::string shape_index(const ShapeTable& shapes, ShapeId shape, std::uint32_t node) {
  if (node == 0) return {};
  std::vector<std::int64_t> path;
  shapes.path_of_node(shape, node, path);
  std::string out = "{";
  for (std::size_t k = 0; k < path.size(); ++k)
    out += (k != 0 ? "," : "") + std::to_string(path[k]);
  return out + "}";
}

}  // namespace

std::string shape_text(const Module& m, ShapeId shape) {
  const Shape& s = m.shapes[shape];
  if (s.type == ElementType::tuple) return "tuple of " + std::to_string(s.children.count);
  std::string out(element_name(s.type));
  out += '[';
  const auto dimensions = m.shapes.dimensions(shape);
  for (std::size_t k = 0; k < dimensions.size(); ++k) {
    if (k != 0) out += ',';
    if (((s.dynamic >> k) & 1) != 0) out += "<=";
    out += dimensions[k] == unbounded_dimension ? "?" : std::to_string(dimensions[k]);
  }
  out += ']';
  if (m.shapes.space(shape) != MemorySpace::device)
    out += "{S(" + std::to_string(static_cast<int>(m.shapes.space(shape))) + ")}";
  return out;
}

std::string place_name(const Planned& p, ValueId place) {
  const Place& at = p.live.places[index_of(place)];
  const Instruction& i = p.module[at.instruction];
  std::string name(i.name);
  if (at.kind != PlaceKind::callee) name += shape_index(p.module.shapes, i.shape, at.node);
  switch (at.kind) {
    case PlaceKind::value:
      return name;
    case PlaceKind::result:
      return "result " + name;
    case PlaceKind::spare:
      return "spare place at " + name;
    case PlaceKind::callee:
      return "memory of the computation that " + name + " calls";
  }
  return name;
}

std::string human(Bytes bytes) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 6) value /= 1024, ++unit;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
  return text;
}

Json empty_json() {
  Json j;
  j["module"] = "";
  for (const char* key : {"instructions", "computations"}) j[key] = 0;
  j["scheduler"] = "";
  for (const char* key :
       {"argument_bytes", "output_bytes", "alias_bytes", "temp_bytes", "generated_code_bytes",
        "host_argument_bytes", "host_output_bytes", "host_alias_bytes", "host_temp_bytes",
        "peak_bytes", "live_peak_bytes", "lower_bound_bytes", "any_order_lower_bound_bytes",
        "as_given_peak_bytes", "heap_bytes"})
    j[key] = Bytes{0};
  j["proven_optimal"] = false;
  j["floor_bytes"] = Bytes{0};
  for (const char* key : {"recomputed", "offloaded"}) j[key] = 0;
  j["added_seconds"] = 0.0;
  for (const char* key : {"parse_seconds", "schedule_seconds", "plan_seconds"}) j[key] = 0.0;
  j["buffers_at_peak"] = Json::array();
  return j;
}

// Of the order used, or with `search` of every order.
bool is_proven(const Planned& p) {
  if (p.scheduler != "search") return p.summary.proven_optimal;
  return p.summary.heap_bytes <= p.any_order_bound_bytes;
}

Json plan_json(const Planned& p) {
  Json j = empty_json();
  const PlanSummary& s = p.summary;
  j["module"] = std::string(p.module.name);
  j["instructions"] = p.module.instructions.size();
  j["computations"] = p.module.computations.size();
  j["scheduler"] = p.scheduler;
  j["argument_bytes"] = s.stats.argument_size_in_bytes;
  j["output_bytes"] = s.stats.output_size_in_bytes;
  j["alias_bytes"] = s.stats.alias_size_in_bytes;
  j["temp_bytes"] = s.stats.temp_size_in_bytes;
  j["generated_code_bytes"] = s.stats.generated_code_size_in_bytes;
  j["host_argument_bytes"] = s.stats.host_argument_size_in_bytes;
  j["host_output_bytes"] = s.stats.host_output_size_in_bytes;
  j["host_alias_bytes"] = s.stats.host_alias_size_in_bytes;
  j["host_temp_bytes"] = s.stats.host_temp_size_in_bytes;
  j["peak_bytes"] = s.peak_bytes;
  j["live_peak_bytes"] = s.live_peak_bytes;
  j["lower_bound_bytes"] = s.lower_bound_bytes;
  j["as_given_peak_bytes"] = p.as_given_peak_bytes;
  j["heap_bytes"] = s.heap_bytes;
  j["any_order_lower_bound_bytes"] = p.any_order_bound_bytes;
  j["proven_optimal"] = is_proven(p);
  j["floor_bytes"] = p.limited.floor;
  j["recomputed"] = p.limited.recomputed;
  j["offloaded"] = p.limited.offloaded;
  j["added_seconds"] = p.limited.added_seconds;
  j["parse_seconds"] = p.parse_seconds;
  j["schedule_seconds"] = p.schedule_seconds;
  j["plan_seconds"] = p.plan_seconds;
  for (const PeakHolder& h : s.at_peak) {
    const Place& place = p.live.places[index_of(h.place)];
    const Instruction& i = p.module[place.instruction];
    j["buffers_at_peak"].push_back({{"name", place_name(p, h.place)},
                                    {"opcode", std::string(p.module.opcode_word_of(i))},
                                    {"shape", shape_text(p.module, place.shape)},
                                    {"bytes", h.bytes},
                                    {"op_name", op_name(p.module, i)}});
  }
  return j;
}

bool write_json(const Options& options, const Json& json) {
  if (options.json.empty()) return true;
  // Names of the input need not be UTF-8.
  return write_output(options.json,
                      json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

void print_summary(const Planned& p) {
  const PlanSummary& s = p.summary;
  const auto line = [](const char* what, Bytes bytes) {
    std::printf("  %-12s %16lld  %s\n", what, static_cast<long long>(bytes), human(bytes).c_str());
  };
  std::printf("%.*s: %zu instructions in %zu computations, order %s\n",
              static_cast<int>(p.module.name.size()), p.module.name.data(),
              p.module.instructions.size(), p.module.computations.size(), p.scheduler.c_str());
  line("arguments", s.stats.argument_size_in_bytes);
  line("outputs", s.stats.output_size_in_bytes);
  line("aliased", s.stats.alias_size_in_bytes);
  line("temporaries", s.stats.temp_size_in_bytes);
  if (s.stats.host_argument_size_in_bytes + s.stats.host_output_size_in_bytes +
          s.stats.host_temp_size_in_bytes >
      0)
    line("on the host", s.stats.host_argument_size_in_bytes + s.stats.host_output_size_in_bytes -
                            s.stats.host_alias_size_in_bytes + s.stats.host_temp_size_in_bytes);
  line("peak", s.peak_bytes);
  line("live peak", s.live_peak_bytes);
  std::printf("  heap %lld bytes, lower bound %lld%s\n", static_cast<long long>(s.heap_bytes),
              static_cast<long long>(s.lower_bound_bytes),
              !is_proven(p)             ? ""
              : p.scheduler == "search" ? ": proven optimal for every order"
                                        : ": proven optimal for this order");
  if (p.limited.changed())
    std::printf("  for the limit %u instructions recomputed, %u values kept on the host: %.6f s\n",
                p.limited.recomputed, p.limited.offloaded, p.limited.added_seconds);
  std::printf("  read %.3f s, scheduled %.3f s, planned %.3f s\n", p.parse_seconds,
              p.schedule_seconds, p.plan_seconds);
  std::printf("  largest at the peak:\n");
  for (std::size_t k = 0; k < s.at_peak.size() && k < 5; ++k) {
    const Place& place = p.live.places[index_of(s.at_peak[k].place)];
    std::printf("    %10s  %s %s\n", human(s.at_peak[k].bytes).c_str(),
                shape_text(p.module, place.shape).c_str(),
                place_name(p, s.at_peak[k].place).c_str());
  }
}

void print_peak(const Planned& p, std::size_t most) {
  const PlanSummary& s = p.summary;
  for (std::size_t k = 0; k < s.at_peak.size() && k < most; ++k)
    std::fprintf(stderr, "  %lld bytes: %s %s\n", static_cast<long long>(s.at_peak[k].bytes),
                 shape_text(p.module, p.live.places[index_of(s.at_peak[k].place)].shape).c_str(),
                 place_name(p, s.at_peak[k].place).c_str());
}

std::string offsets_csv(const Planned& p) {
  std::string out = "trace,group,size,start,end,offset,name\n";
  const std::uint32_t frame = static_cast<std::uint32_t>(p.live.frames.size() - 1);
  std::vector<char> seen(p.live.places.size(), 0);
  const auto row = [&](const Location& l, std::uint32_t group, Bytes size, std::uint32_t begin,
                       std::uint32_t end, ValueId place) {
    if (l.base != Location::Base::arena) return;
    std::string name = place_name(p, place);
    for (char& c : name)
      if (c == ',') c = '.';
    out += std::to_string(l.index - p.assignment.arenas_of.back().begin) + "," +
           std::to_string(group) + "," + std::to_string(size) + "," + std::to_string(begin) + "," +
           std::to_string(end) + "," + std::to_string(l.offset) + "," + name + "\n";
  };
  for (const LivePiece& piece : p.live.pieces_of(p.live.frames[frame])) {
    const ValueId root = p.buffers().root(piece.value);
    if (p.live.places[index_of(piece.value)].kind == PlaceKind::callee) {
      for (const CalleeArena& c : p.assignment.callees)
        if (c.place == piece.value)
          row(c.location, index_of(root), p.assignment.arenas[c.arena].size, piece.begin, piece.end,
              piece.value);
    } else if (seen[index_of(root)] == 0) {
      seen[index_of(root)] = 1;
      for (const BufferPiece& b : p.buffers().pieces(root))
        row(p.assignment.locations[index_of(root)], index_of(root), p.buffers().size(root), b.begin,
            b.end, b.first);
    }
  }
  return out;
}

}  // namespace program
