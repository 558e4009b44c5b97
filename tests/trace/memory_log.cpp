// SPDX-License-Identifier: Apache-2.0
#include "holdfast/trace/memory_log.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "support/shared.hpp"
#include "support/texts.hpp"

using namespace holdfast;

namespace {

MemoryLog read(std::string_view text) {
  Result<MemoryLog> log = read_memory_log(text);
  REQUIRE_MESSAGE(log.ok(), (log.error().what != nullptr ? log.error().what : "?"));
  return std::move(*log);
}

/// Where and why a text is no log.
std::string refusal(std::string_view text) {
  const Result<MemoryLog> log = read_memory_log(text);
  if (log.ok()) return "read";
  CHECK(log.error().code == Errc::corrupt);
  CHECK(log.error().at_kind == AtKind::byte_offset);
  const std::uint64_t place = place_of(text, log.error().at);
  return std::to_string(place >> 32) + ":" + std::to_string(place & 0xFFFFFFFF) + " " +
         log.error().what;
}

/// The events in short: op, block, size, fault.
std::string brief(const MemoryLog& log) {
  std::string out;
  for (const LogEvent& e : log.events) {
    out += "afFm"[e.op == LogOp::allocate  ? 0
                  : e.op == LogOp::release ? 1
                  : e.op == LogOp::failure ? 2
                                           : 3];
    if (e.op <= LogOp::release)
      out += e.block == MemoryLog::no_block ? "-" : std::to_string(e.block);
    out += ":" + std::to_string(e.size);
    if (e.fault != LogFault::none) out += "!" + std::to_string(static_cast<int>(e.fault));
    out += " ";
  }
  return out;
}

}  // namespace

TEST_CASE("memory_log: op, id and size; columns stand anywhere, and names come again") {
  CHECK(brief(read("op,id,size\na,7,100\na,8,50\nf,7,100\na,7,20\nf,8,\nf,7,0\n")) ==
        "a0:100 a1:50 f0:100 a2:20 f1:50 f2:20 ");
  CHECK(brief(read("size , note,ID,op\r\n10,x,q,alloc\r\n\r\n10,\"a \"\"b\"\", c\",q,free\r\n")) ==
        "a0:10 f0:10 ");
  CHECK(brief(read("\n\nop,id,size")).empty());
  CHECK(brief(read("op,id,size\nmark,step,\na,,5\nf,,5")) == "m:0 a0:5 f0:5 ");
}

TEST_CASE("memory_log: RMM's log, with null pointers, failures and streams") {
  const MemoryLog log = read(
      "Thread,Time,Action,Pointer,Size,Stream\n"
      "140199,12:34:56:789012,allocate,0x7f3d24000000,1024,0x0\n"
      "140199,12:34:56:789100,allocate,(nil),0,0x0\n"
      "140200,12:34:56:789200,allocate failure,(nil),99999999999,0x1\n"
      "140200,12:34:56:789250,allocate,0x0,64,0x1\n"
      "140200,12:34:56:789300,free,0x0,0,0x1\n"
      "140200,12:34:56:789300,free,0x7f3d24000000,1024,0x1\n");
  CHECK(brief(log) == "a0:1024 a-:0 F:99999999999 F:64 f-:0 f0:1024 ");
  CHECK(log.block_count == 1);
  CHECK(live_peak(log) == 1024);
}

TEST_CASE(
    "memory_log: an event that contradicts the earlier ones is kept with its fault and its place") {
  const std::string_view text = "op,id,size\na,1,10\na,1,10\nf,2,10\nf,1,11\nf,1,10\n";
  const MemoryLog log = read(text);
  CHECK(brief(log) == "a0:10 a1:10!1 f-:10!3 f1:10!4 f-:10!2 ");
  for (std::size_t i = 1; i < 5; ++i) {
    const Error e = log.error_of(log.events[i]);
    CHECK(e.code == Errc::corrupt);
    CHECK(place_of(text, e.at) == make_place(static_cast<std::uint32_t>(i) + 2, 1));
  }
  CHECK(log.error_of(log.events[0]).ok());
}

TEST_CASE("memory_log: after lost events a release without its allocation is none") {
  const MemoryLog log = read("op,id,size\nlost,,5\nf,1,10\na,2,10\na,2,20\nf,2,20\nf,2,20\n");
  CHECK(brief(log) == "m:10 a0:10 a1:20 f1:20 m:20 ");
  CHECK(log.lost == 7);
}

TEST_CASE("memory_log: what is no log is refused with its place") {
  CHECK(refusal("") == "1:1 no header with columns op, id and size, or Action, Pointer and Size");
  CHECK(refusal("op,id\na,1\n").starts_with("1:1 no header"));
  CHECK(refusal("op,id,\"size\na,1,2\n").starts_with("1:1 no header"));
  CHECK(refusal("op,id,size\nb,1,2\n") == "2:1 neither an allocation nor a release");
  CHECK(refusal("op,id,size\na,1,2\n,1,2\n").starts_with("3:1 neither"));
  CHECK(refusal("op,id,size\na,1,2\na,2\n").starts_with("3:1 not a whole number"));
  CHECK(refusal("op,id,size\na,1,-2\n") == "2:5 not a whole number of 63 bits");
  CHECK(refusal("op,id,size\na,1,9223372036854775808\n").starts_with("2:5 not"));
  CHECK(refusal("op,id,size\na,1,2x\n").starts_with("2:5 not"));
  CHECK(refusal("op,id,size\nf,1,x\n").starts_with("2:5 not"));
  CHECK(refusal("op,id,size\na,\"1,2\n").starts_with("2:3 a quote is not closed"));
  CHECK(refusal("op,id,size\na,\"1\"x,2\n").starts_with("2:6 text behind a quote"));
  CHECK(refusal("op,id,size\na,1,9223372036854775807\n") == "read");
  CHECK_FALSE(is_memory_log("id,lower,upper,size\n1,2,3,4\n"));
  CHECK(is_memory_log("op,id,size\n"));
  CHECK(is_memory_log("Thread,Time,Action,Pointer,Size,Stream\n"));
}

TEST_CASE("memory_log: sums that do not fit saturate") {
  CHECK(live_peak(read("op,id,size\na,1,9223372036854775807\na,2,1\n")) == max_bytes);
  CHECK(live_peak(read("op,id,size\na,1,5\nf,1,5\na,2,4\n")) == 5);
}

TEST_CASE("memory_log: a recorder's own log comes back, names and losses included") {
  alignas(64) std::array<std::byte, 8 * 64> memory{};
  struct Ticks : NoClock {
    [[nodiscard]] std::int64_t now() const noexcept { return 12; }
  };
  BasicRecorder<StdSync, Ticks> r(Block{memory.data(), 8 * 64});
  const auto at = [](std::uintptr_t a, Bytes size) {
    return Block{reinterpret_cast<std::byte*>(a), size};
  };
  r.on_allocate(at(0x10, 1), {});
  r.on_allocate(at(0xabc0, 100), {"a \"b\",\nc", 0xFFFFFFFFFFFFFFFFu});
  r.on_allocate(at(0x20, 64), {"t", 3});
  r.on_hold(HoldKind::external, -1);
  Error e = make_error(Errc::over_budget, "limit");
  e.requested = 4096;
  r.on_failure(e);
  r.on_deallocate(at(0x20, 64));
  r.on_allocate({}, {});
  r.on_deallocate(at(0xabc0, 100));
  testing::StringSink out;
  REQUIRE(write_memory_log(r, out).ok());
  CHECK(out.text.find(",allocate,0xabc0,100,\"a \"\"b\"\", c\",0xffffffffffffffff\n") !=
        std::string::npos);
  CHECK(out.text.find(",hold,0x0,-1,\"external\",0x0\n") != std::string::npos);
  CHECK(out.text.find(",failure,0x0,4096,\"over_budget\",0x0\n") != std::string::npos);
  CHECK(std::count(out.text.begin(), out.text.end(), '\n') == 9);
  CHECK(brief(read(out.text)) == "a0:1 a1:100 a2:64 F:4096 f2:64 a-:0 f1:100 ");
  r.on_deallocate(at(0x10, 1));  // the first allocation is overwritten
  out.text.clear();
  REQUIRE(write_memory_log(r, out).ok());
  const MemoryLog log = read(out.text);
  CHECK(log.lost == 2);
  CHECK(brief(log) == "a0:100 a1:64 F:4096 f1:64 a-:0 f0:100 m:1 ");
}

TEST_CASE("memory_log: the first failure of a sink ends the writing") {
  struct Full {
    int left;
    Error write(std::string_view) noexcept {
      return left-- > 0 ? Error{} : make_error(Errc::internal, "full");
    }
  };
  alignas(64) std::array<std::byte, 64> memory{};
  Recorder r(Block{memory.data(), 64});
  r.on_allocate({memory.data(), 1}, {});
  for (int n = 0; n < 10; ++n) {
    Full out{n};
    CHECK(write_memory_log(r, out).code == Errc::internal);
    CHECK(out.left == -1);
  }
}

TEST_CASE("memory_log: the traces of the corpus, each with the peak that its list gives") {
  const struct {
    const char* file;
    std::uint32_t blocks;
    Bytes peak;
  } traces[] = {{"mindspore_resnet50.events.csv", 1042, 1'515'472'556},
                {"mindspore_pangu_2.6B.events.csv.gz", 18692, 5'530'099'775},
                {"iopddl_G_1.events.csv", 816, 3'030'937'746},
                {"xla_train_12.events.csv", 433, 114'452'480},
                {"xla_trinf_16.events.csv", 179, 5'767'168},
                {"xla_conv_24.events.csv", 332, 237'895'680}};
  for (const auto& t : traces) {
    const std::string path = testing::shared_path(std::string("data/traces/") + t.file);
    if (path.empty()) return;
    const MemoryLog log = read(testing::read_file(path));
    CHECK_MESSAGE(log.block_count == t.blocks, t.file);
    CHECK_MESSAGE(live_peak(log) == t.peak, t.file);
    CHECK(std::all_of(log.events.begin(), log.events.end(),
                      [](const LogEvent& e) { return e.fault == LogFault::none; }));
  }
}

TEST_CASE("memory_log: case 26 is a log whose faults are its rows 9 and 10") {
  const std::string path = testing::shared_path("cases/26-leak-trace/events.csv");
  if (path.empty()) return;
  const std::string text = testing::read_file(path);
  const MemoryLog log = read(text);
  REQUIRE(log.events.size() == 17);
  for (std::size_t i = 0; i < 17; ++i)
    CHECK(log.events[i].fault == (i == 8   ? LogFault::double_release
                                  : i == 9 ? LogFault::foreign
                                           : LogFault::none));
  CHECK(log.events[5].size == 700);  // given as 0
  CHECK(live_peak(log) == 2200);
}
