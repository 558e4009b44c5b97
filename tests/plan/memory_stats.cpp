// SPDX-License-Identifier: Apache-2.0
#include "holdfast/plan/memory_stats.hpp"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "holdfast/hlo/parser.hpp"
#include "holdfast/hlo/proto_reader.hpp"
#include "holdfast/plan/memory_stats_proto.hpp"
#include "support/allocation_tables.hpp"
#include "support/shared.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace std::string_view_literals;
using holdfast::testing::data_path;
using holdfast::testing::read_file;
using holdfast::testing::shared_path;
using holdfast::testing::Tables;
using Kind = HeapEvent::Kind;

namespace {

std::string text(const std::vector<char>& bytes) { return {bytes.begin(), bytes.end()}; }

CompiledMemoryStats stats_of(const AllocationTable& table) {
  const std::vector<char> bytes = render_buffer_assignment(table);
  const Result<CompiledMemoryStats> s = make_memory_stats({bytes.data(), bytes.size()});
  REQUIRE(s.ok());
  CHECK(text(s->serialized_buffer_assignment) == text(bytes));
  return *s;
}
CompiledMemoryStats stats_of_file(std::string_view name) {
  const std::string bytes = read_file(data_path("plan/" + std::string(name) + ".assignment.pb"));
  const Result<CompiledMemoryStats> s = make_memory_stats(bytes);
  REQUIRE(s.ok());
  return *s;
}
/// argument, output, alias, temp and peak in one comparison.
struct Five {
  Bytes argument, output, alias, temp, peak;
  friend bool operator==(const Five&, const Five&) = default;
};
Five five(const CompiledMemoryStats& s) {
  return {s.argument_size_in_bytes, s.output_size_in_bytes, s.alias_size_in_bytes,
          s.temp_size_in_bytes, s.peak_memory_in_bytes};
}
/// What holds for every module (case 14). XLA's own peak is exempt from the second where there is
/// no trace.
void check_invariants(const CompiledMemoryStats& s, const MemoryPeaks& p, Bytes constants = 0) {
  const Bytes held = s.argument_size_in_bytes + s.output_size_in_bytes - s.alias_size_in_bytes;
  CHECK(p.true_peak >= held);
  CHECK(p.true_peak <= held + constants + s.temp_size_in_bytes);
  CHECK(s.alias_size_in_bytes <= std::min(s.argument_size_in_bytes, s.output_size_in_bytes));
  const std::vector<char> bytes = serialize_memory_stats(s);
  const Result<StoredMemoryStats> back = parse_memory_stats({bytes.data(), bytes.size()});
  REQUIRE(back.ok());
  CHECK(back->stats == s);
}

constexpr bool works_in_a_constant_expression() {
  AllocationTable t;
  t.allocations.push_back({.index = 0, .size = 64, .is_parameter = true});
  t.allocations.push_back({.index = 1, .size = 32});
  const std::vector<char> bytes = render_buffer_assignment(t);
  const Result<CompiledMemoryStats> s = make_memory_stats({bytes.data(), bytes.size()});
  if (!s.ok() || s->argument_size_in_bytes != 64 || s->temp_size_in_bytes != 32) return false;
  const std::vector<char> proto = serialize_memory_stats(*s);
  const Result<StoredMemoryStats> back = parse_memory_stats({proto.data(), proto.size()});
  return back.ok() && back->stats == *s;
}
static_assert(works_in_a_constant_expression());

}  // namespace

TEST_CASE("memory_stats: rms of f32[128,128] on CPU, thread-locals counted nowhere (T-M1)") {
  Tables t;
  t.parameter(0, 65536, {{1, 65536}})
      .parameter(1, 65536, {{2, 65536}})
      .live_out(2, 65536, {{3, 65536}});
  t.thread_local_(3, 4, {{4, 4}})
      .thread_local_(4, 4, {{5, 4}})
      .thread_local_(5, 4, {{6, 4}})
      .temp(6, 512, {{7, 512}});
  CHECK(five(stats_of(t.table)) == Five{131072, 65536, 0, 512, 196608});
  CHECK(five(stats_of_file("tm1_rms")) == Five{131072, 65536, 0, 512, 196608});  // XLA's own file
  Tables donated;
  donated.donated(0, 65536, {{1, 65536}})
      .parameter(1, 65536, {{2, 65536}})
      .temp(2, 512, {{3, 512}});
  CHECK(five(stats_of(donated.table)) == Five{131072, 65536, 65536, 512, 131072});
  CHECK(five(stats_of_file("tm1_rms_donated")) == Five{131072, 65536, 65536, 512, 131072});
}

TEST_CASE(
    "memory_stats: ((a@b)@c)@a has a peak without its temporaries, the true peak has them (T-M2)") {
  Tables t;
  for (std::int64_t i = 0; i < 3; ++i) t.parameter(i, 262144, {{i + 1, 262144}});
  t.live_out(3, 262144, {{4, 262144}}).temp(4, 262144, {{5, 262144}});
  CHECK(five(stats_of(t.table)) == Five{786432, 262144, 0, 262144, 1048576});
  CHECK(five(stats_of_file("tm2_products")) == Five{786432, 262144, 0, 262144, 1048576});
  const Result<MemoryPeaks> p = measure_peaks(t.table);
  REQUIRE(p.ok());
  CHECK_FALSE(p->has_trace);
  CHECK(p->true_peak == 1048576 + 262144);
  check_invariants(stats_of(t.table), *p);
}

TEST_CASE(
    "memory_stats: an identity has argument and output, a donated one only one buffer (T-M3)") {
  Tables t;
  t.parameter(0, 16384, {{1, 16384}}).live_out(1, 16384, {{2, 16384}});
  CHECK(five(stats_of(t.table)) == Five{16384, 16384, 0, 0, 32768});
  CHECK(five(stats_of_file("tm3_identity")) == Five{16384, 16384, 0, 0, 32768});
  Tables donated;
  donated.donated(0, 16384, {{1, 16384}, {2, 16384}});
  CHECK(five(stats_of(donated.table)) == Five{16384, 16384, 16384, 0, 16384});
  CHECK(five(stats_of_file("tm3_identity_donated")) == Five{16384, 16384, 16384, 0, 16384});
}

TEST_CASE("memory_stats: a scan's output counts the tuple table, its peak the constants (T-M4)") {
  Tables t;
  t.parameter(0, 16384, {{1, 16384}}).live_out(1, 16384, {{2, 16384}}).live_out(2, 32, {{3, 32}});
  t.add({.index = 3, .size = 16, .is_tuple = true, .maybe_live_out = true}, {{4, 16}})
      .temp(4, 17064, {{5, 17064}});
  for (std::int64_t i = 0; i < 4; ++i) t.constant(5 + i, 4, {{6 + i, 4}});
  CHECK(five(stats_of(t.table)) == Five{16384, 16432, 0, 17064, 32832});
  CHECK(five(stats_of_file("tm4_scan")) ==
        Five{16384, 16432, 0, 16544, 32832});  // another body than the catalogue's
  check_invariants(stats_of(t.table), *measure_peaks(t.table), 16);
}

TEST_CASE("memory_stats: sort and product of f32[256,256], eight constants in the peak (T-M5)") {
  Tables t;
  t.parameter(0, 262144, {{1, 262144}})
      .live_out(1, 262144, {{2, 262144}})
      .temp(2, 524288, {{3, 262144}, {4, 262144}});
  for (std::int64_t i = 0; i < 8; ++i) t.constant(3 + i, 4, {{5 + i, 4}});
  CHECK(five(stats_of(t.table)) == Five{262144, 262144, 0, 524288, 524320});
  CHECK(five(stats_of_file("tm5_sort")) ==
        Five{262144, 262144, 0, 262144, 524304});  // axis 0, four constants
}

TEST_CASE("memory_stats: a 32-element tuple result is 128 bytes and a table of 256 (T-M6)") {
  Tables t;
  t.parameter(0, 4, {{1, 4}});
  for (std::int64_t i = 0; i < 32; ++i) t.live_out(1 + i, 4, {{2 + i, 4}});
  t.add({.index = 33, .size = 256, .is_tuple = true, .maybe_live_out = true}, {{34, 256}});
  const CompiledMemoryStats s = stats_of(t.table);
  CHECK(s.output_size_in_bytes == 384);
  CHECK(s.host_output_size_in_bytes == 0);
  CHECK(s.peak_memory_in_bytes == 388);
}

TEST_CASE("memory_stats: a result in pinned host memory counts for the host alone (T-M7, T9.6)") {
  Tables t;
  t.parameter(0, 16, {{1, 16}}).live_out(1, 16, {{2, 16}}, 5);
  t.add(
      {
          .index = 2,
          .size = 8,
          .is_tuple = true,
          .maybe_live_out = false,
      },
      {{3, 8}});
  const CompiledMemoryStats s = stats_of(t.table);
  CHECK(s.output_size_in_bytes == 0);
  CHECK(s.host_output_size_in_bytes == 16);
  CHECK(s.peak_memory_in_bytes > 0);
  CHECK(s.total_allocation_bytes > 0);
  CHECK(s.indefinite_allocations > 0);
  Tables temp;
  temp.temp(0, 256, {{1, 256}}, 5);
  CHECK(stats_of(temp.table).host_temp_size_in_bytes == 256);
  CHECK(stats_of(temp.table).temp_size_in_bytes == 0);
  Tables empty;  // no values: the allocation's own colour says where it is
  empty.live_out(0, 8, {}, 5).live_out(1, 4, {}, 0);
  CHECK(stats_of(empty.table).host_output_size_in_bytes == 8);
  CHECK(stats_of(empty.table).output_size_in_bytes == 4);
}

TEST_CASE(
    "memory_stats: one temporary of 1024 bytes with its trace has a peak of 1024, and survives the "
    "bytes (T-M8)") {
  Tables t;
  t.temp(0, 1024, {{1, 1024}}).trace({{Kind::alloc, 1}, {Kind::free, 1}});
  const CompiledMemoryStats s = stats_of(t.table);
  CHECK(s.peak_memory_in_bytes == 1024);
  CHECK(s.peak_unpadded_heap_bytes == 1024);
  CHECK(s.total_allocation_bytes == 1024);
  CHECK(s.indefinite_allocations == 0);
  const std::vector<char> proto = serialize_memory_stats(s);
  const Result<StoredMemoryStats> back = parse_memory_stats({proto.data(), proto.size()});
  REQUIRE(back.ok());
  const Result<AllocationTable> again =
      parse_buffer_assignment({back->stats.serialized_buffer_assignment.data(),
                               back->stats.serialized_buffer_assignment.size()});
  REQUIRE(again.ok());
  CHECK(again->traces.size() == 1);
  CHECK(text(render_buffer_assignment(*again)) == text(s.serialized_buffer_assignment));
}

TEST_CASE(
    "memory_stats: fields 14 to 18 survive a round trip, the old layout with only 15 is told apart "
    "(T-M9)") {
  CompiledMemoryStats s;
  s.generated_code_size_in_bytes = 1, s.argument_size_in_bytes = 2, s.output_size_in_bytes = 3,
  s.alias_size_in_bytes = 4, s.temp_size_in_bytes = 5;
  s.host_generated_code_size_in_bytes = 7, s.host_argument_size_in_bytes = 8,
  s.host_output_size_in_bytes = 9, s.host_alias_size_in_bytes = 10;
  s.host_temp_size_in_bytes = 11, s.peak_memory_in_bytes = 14, s.total_size_in_bytes = 15,
  s.total_allocation_bytes = 16;
  s.indefinite_allocations = 17, s.peak_unpadded_heap_bytes = 18;
  s.serialized_buffer_assignment = {'x', '\0', 'y'};
  const std::vector<char> bytes = serialize_memory_stats(s);
  CHECK(
      text(bytes) ==
      "\x08\x01\x10\x02\x18\x03\x20\x04\x28\x05\x38\x07\x40\x08\x48\x09\x50\x0a\x58\x0b\x6a\x03x\0y\x70\x0e\x78\x0f\x80\x01\x10\x88\x01\x11\x90\x01\x12"sv);
  const Result<StoredMemoryStats> back = parse_memory_stats({bytes.data(), bytes.size()});
  REQUIRE(back.ok());
  CHECK(back->stats == s);
  CHECK_FALSE(back->total_is_ambiguous);
  const Result<StoredMemoryStats> old = parse_memory_stats("\x10\x02\x78\x0f"sv);
  REQUIRE(old.ok());
  CHECK(old->total_is_ambiguous);
  CHECK(old->stats.total_size_in_bytes == 15);
  CHECK_FALSE(parse_memory_stats("\x10\x02"sv)->total_is_ambiguous);
  CHECK_FALSE(parse_memory_stats("\x78\x0f\x88\x01\x11"sv)->total_is_ambiguous);
}

TEST_CASE(
    "memory_stats: negative numbers of ten bytes, and fields of another kind or number, are kept "
    "(case 14)") {
  CompiledMemoryStats s;
  s.temp_size_in_bytes = -1;
  const std::vector<char> bytes = serialize_memory_stats(s);
  CHECK(parse_memory_stats({bytes.data(), bytes.size()})->stats.temp_size_in_bytes == -1);
  // 6 as message (retired), 5 as bytes (wrong kind), 1000 as varint
  const std::string_view odd = "\x10\x02\x32\x01q\x2a\x01z\xc0\x3e\x05"sv;
  const Result<StoredMemoryStats> r = parse_memory_stats(odd);
  REQUIRE(r.ok());
  CHECK(r->stats.argument_size_in_bytes == 2);
  CHECK(text(serialize_memory_stats(r->stats)) == odd);
  for (std::size_t n = 1; n < odd.size(); ++n) {
    const Result<StoredMemoryStats> cut = parse_memory_stats(odd.substr(0, n));
    CHECK((cut.ok() || cut.error().code == Errc::corrupt));
  }
}

TEST_CASE(
    "memory_stats: the text is XLA's DebugString, peak and totals left out (runtime.md 6.4)") {
  Tables t;
  t.parameter(0, 65536, {{1, 65536}})
      .parameter(1, 65536, {{2, 65536}})
      .live_out(2, 65536, {{3, 65536}})
      .temp(3, 512, {{4, 512}});
  holdfast::testing::StringSink out;
  REQUIRE(render_memory_stats(out, stats_of(t.table)).ok());
  CHECK(out.text ==
        "CompiledMemoryStats(generated_code_size_in_bytes=0, argument_size_in_bytes=131072, "
        "output_size_in_bytes=65536, "
        "alias_size_in_bytes=0, temp_size_in_bytes=512, host_generated_code_size_in_bytes=0, "
        "host_argument_size_in_bytes=0, "
        "host_output_size_in_bytes=0, host_alias_size_in_bytes=0, host_temp_size_in_bytes=0)");
}

TEST_CASE(
    "memory_stats: populating resets what it sums and leaves code, peak and totals alone "
    "(runtime.md 6.2)") {
  CompiledMemoryStats s;
  s.generated_code_size_in_bytes = 100, s.peak_memory_in_bytes = 200, s.total_size_in_bytes = 300;
  s.argument_size_in_bytes = 1, s.host_temp_size_in_bytes = 2;
  Tables t;
  t.parameter(0, 64, {{1, 64}});
  REQUIRE(populate_memory_stats(s, t.table).ok());
  CHECK(s.argument_size_in_bytes == 64);
  CHECK(s.host_temp_size_in_bytes == 0);
  CHECK(s.generated_code_size_in_bytes == 100);
  CHECK(s.peak_memory_in_bytes == 200);
  CHECK(s.total_size_in_bytes == 300);
}

TEST_CASE(
    "memory_stats: host and device values in one allocation are an error, and nothing is changed "
    "(runtime.md 6.2)") {
  Tables t;
  t.temp(0, 64, {{1, 32}, {2, 32}});
  t.table.buffers[1].color = 5;
  CompiledMemoryStats s;
  s.temp_size_in_bytes = 9;
  CHECK(status_kind(populate_memory_stats(s, t.table)) == StatusKind::invalid_argument);
  CHECK(s.temp_size_in_bytes == 9);
  t.table.buffers[1].color = 1;  // another device space is no host
  CHECK(populate_memory_stats(s, t.table).ok());
}

TEST_CASE("memory_stats: only a parameter counts as alias (runtime.md 6.2)") {
  Tables t;
  t.donated(0, 64, {{1, 64}}).live_out(1, 32, {{2, 32}});
  t.table.allocations[1].is_aliased = true;
  CHECK(stats_of(t.table).alias_size_in_bytes == 64);
}

TEST_CASE("memory_stats: sums beyond 64 bits are errors") {
  Tables t;
  t.parameter(0, max_bytes, {}).parameter(1, 1, {});
  CompiledMemoryStats s;
  CHECK(populate_memory_stats(s, t.table).code == Errc::over_budget);
  CHECK(populate_peaks(s, t.table).code == Errc::over_budget);
}

TEST_CASE("memory_stats: freeing a dead buffer is an invalid argument (runtime.md 6.3)") {
  Tables t;
  t.temp(0, 64, {{1, 64}}).trace({{Kind::free, 1}});
  CHECK(status_kind(measure_peaks(t.table).error()) == StatusKind::invalid_argument);
}

TEST_CASE(
    "memory_stats: XLA's peak takes the largest buffer of an allocation and all spaces, ours the "
    "space at hand (passes.md 9.4)") {
  Tables t;
  t.parameter(0, 128, {{1, 64}, {2, 100}}).temp(1, 64, {{3, 64}}).temp(2, 500, {{4, 500}}, 5);
  t.trace({{Kind::alloc, 3}, {Kind::free, 3}}).trace({{Kind::alloc, 4}, {Kind::free, 4}});
  const Result<MemoryPeaks> p = measure_peaks(t.table);
  REQUIRE(p.ok());
  CHECK(p->compat_peak == 100 + 500);
  CHECK(p->heap == 64);
  CHECK(p->has_trace);
  CHECK(p->true_peak == 128 + 64);
}

TEST_CASE("memory_stats: older files do not mark aliased parameters, the module does (P.3)") {
  const Result<Module> m = parse_hlo_text(
      "HloModule m, is_scheduled=true, input_output_alias={ {1}: (0, {1}, may-alias) }\n"
      "ENTRY e { p = (f32[2]{0}, f32[4]{0}) parameter(0)\n a = f32[2]{0} get-tuple-element(p), "
      "index=0\n"
      " b = f32[4]{0} get-tuple-element(p), index=1\n ROOT t = (f32[2]{0}, f32[4]{0}) tuple(a, b) "
      "}");
  REQUIRE(m.ok());
  Tables t;
  t.parameter(0, 16, {{1, 16}}).parameter(1, 8, {{2, 8}}).parameter(2, 16, {{3, 16}});
  t.table.numbers = {0, 1};
  t.table.allocations[1].parameter_index = {0, 1};
  t.table.allocations[2].parameter_index = {1, 1};
  const std::vector<char> bytes = render_buffer_assignment(t.table);
  CHECK(make_memory_stats({bytes.data(), bytes.size()})->alias_size_in_bytes == 0);
  CHECK(make_memory_stats({bytes.data(), bytes.size()}, &*m)->alias_size_in_bytes == 16);
}

TEST_CASE("memory_stats: the statistics are saved to a file and loaded from it") {
  struct FileSink {
    std::FILE* file;
    Error write(std::string_view part) noexcept {
      return std::fwrite(part.data(), 1, part.size(), file) == part.size()
                 ? Error{}
                 : make_error(Errc::permission_denied, "write failed");
    }
  };
  CompiledMemoryStats s = stats_of_file("tm4_scan");
  s.generated_code_size_in_bytes = 4096;
  const char* folder = std::getenv("TMPDIR");
  const std::string path = std::string(folder != nullptr ? folder : "/tmp") +
                           "/holdfast_memory_stats_" + std::to_string(std::rand()) + ".pb";
  FileSink out{std::fopen(path.c_str(), "wb")};
  REQUIRE(out.file != nullptr);
  CHECK(save_memory_stats(out, s).ok());
  std::fclose(out.file);
  const std::string bytes = read_file(path);
  std::remove(path.c_str());
  const Result<StoredMemoryStats> back = parse_memory_stats(bytes);
  REQUIRE(back.ok());
  CHECK(back->stats == s);
}

TEST_CASE("memory_stats: executable metadata holds them in field 1 (runtime.md 6.5)") {
  const Result<StoredMemoryStats> r =
      parse_executable_memory_stats("\x0a\x02\x10\x02\x12\x00\x0a\x02\x18\x03"sv);
  REQUIRE(r.ok());
  CHECK(r->stats.argument_size_in_bytes == 2);
  CHECK(r->stats.output_size_in_bytes == 3);
  CHECK(parse_executable_memory_stats("\x12\x00"sv).error().code == Errc::not_found);
  CHECK(parse_executable_memory_stats("\x0a\x05\x10"sv).error().code == Errc::corrupt);
}

TEST_CASE(
    "memory_stats: the protos of the corpus give XLA's own figures to the byte (index.json)") {
  const std::string index_path = shared_path("data/hlo/index.json");
  if (index_path.empty()) return;
  const std::string index = read_file(index_path);
  const auto figure = [&](std::string_view name, std::string_view key) {
    const std::size_t module = index.find("\"name\": \"" + std::string(name) + "\"");
    const std::size_t at = index.find("\"memory_analysis\"", module);
    const std::size_t value = index.find("\"" + std::string(key) + "\": ", at);
    REQUIRE(value != std::string::npos);
    return static_cast<Bytes>(std::strtoll(index.c_str() + value + key.size() + 4, nullptr, 10));
  };
  for (const std::string_view name :
       {"fft_navier_stokes", "gpu_host_offload_optimizer", "gpu_mlp_train_sgd", "gpu_spmd_mlp_dp",
        "linalg_customcalls", "mlp_fwd_nodonate", "mlp_train_sgd", "quant_int4_fp8", "spmd_mlp_dp",
        "switch_experts", "decode_kv_cache"}) {
    CAPTURE(name);
    const std::string folder = holdfast::testing::detail::below(
        "HOLDFAST_SHARED", HOLDFAST_SHARED, "data/hlo/" + std::string(name) + "/after.hlo.pb");
    const std::string bytes =
        read_file(holdfast::testing::detail::exists(folder) ? folder : folder + ".xz");
    const Result<std::string_view> assignment = find_buffer_assignment(bytes);
    REQUIRE(assignment.ok());
    Result<AllocationTable> table = parse_buffer_assignment(*assignment);
    REQUIRE(table.ok());
    CHECK(check_allocations(*table).ok());
    const bool gpu = name.starts_with("gpu_");
    if (!gpu) table->traces.clear();  // the executable's own copy has none on CPU
    CompiledMemoryStats s;
    REQUIRE(populate_memory_stats(s, *table).ok());
    REQUIRE(populate_peaks(s, *table).ok());
    CHECK(s.argument_size_in_bytes == figure(name, "argument_size"));
    CHECK(s.output_size_in_bytes == figure(name, "output_size"));
    CHECK(s.alias_size_in_bytes == figure(name, "alias_size"));
    CHECK(s.temp_size_in_bytes == figure(name, "temp_size"));
    CHECK(s.host_argument_size_in_bytes == figure(name, "host_argument_size"));
    CHECK(s.host_output_size_in_bytes == figure(name, "host_output_size"));
    CHECK(s.host_alias_size_in_bytes == figure(name, "host_alias_size"));
    CHECK(s.host_temp_size_in_bytes == figure(name, "host_temp_size"));
    CHECK(s.peak_memory_in_bytes == figure(name, "peak_memory"));
    const Result<MemoryPeaks> p = measure_peaks(*table);
    REQUIRE(p.ok());
    if (name != "gpu_host_offload_optimizer")
      check_invariants(s, *p,
                       p->indefinite - (s.argument_size_in_bytes + s.output_size_in_bytes -
                                        s.alias_size_in_bytes));
  }
}
