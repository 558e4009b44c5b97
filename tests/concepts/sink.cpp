// SPDX-License-Identifier: Apache-2.0
#include "holdfast/concepts/sink.hpp"

#include <limits>
#include <string>
#include <type_traits>

#include <doctest/doctest.h>

using namespace holdfast;

namespace {

struct TextSink {
  std::string text;
  Error write(std::string_view more) noexcept {
    text += more;
    return {};
  }
};
/// Refuses from the n-th write on.
struct FullSink {
  int room = 0;
  int writes = 0;
  Error write(std::string_view) noexcept {
    ++writes;
    return room-- > 0 ? Error{} : make_error(Errc::over_budget, "full");
  }
};
struct MayThrow {
  Error write(std::string_view) { return {}; }
};
struct NoError {
  void write(std::string_view) noexcept {}
};
struct NotText {
  Error write(int) noexcept { return {}; }
};
struct OnlyConst {
  Error write(std::string_view) const noexcept { return {}; }
};

static_assert(sink<NullSink> && sink<TextSink> && sink<FullSink> && sink<OnlyConst>);
static_assert(!sink<MayThrow>, "a sink's write is noexcept");
static_assert(!sink<NoError>, "a sink's write says whether it worked");
static_assert(!sink<NotText>, "a sink takes text");
static_assert(!sink<int>);
static_assert(std::is_empty_v<NullSink>);

std::string number(std::int64_t value) {
  TextSink out;
  CHECK(write_number(out, value).ok());
  return out.text;
}
std::string sentence(const Error& e) {
  TextSink out;
  CHECK(write_error(out, e).ok());
  return out.text;
}
Error with_stage(Stage stage) {
  Error e = make_error(Errc::internal, "boom");
  e.stage = stage;
  return e;
}

constexpr bool null_sink_works_in_constant_expressions() {
  NullSink out;
  return write_error(out, make_error(Errc::held, "held")).ok();
}
static_assert(null_sink_works_in_constant_expressions());

}  // namespace

TEST_CASE("sink: every 64-bit number is written in decimal") {
  CHECK(number(0) == "0");
  CHECK(number(7) == "7");
  CHECK(number(-1) == "-1");
  CHECK(number(1234567890) == "1234567890");
  CHECK(number(std::numeric_limits<std::int64_t>::max()) == "9223372036854775807");
  CHECK(number(std::numeric_limits<std::int64_t>::min()) == "-9223372036854775808");
}

TEST_CASE("sink: an error's sentence has the prefix of its stage (runtime.md 2.7) and its text") {
  CHECK(sentence(with_stage(Stage::none)) == "boom");
  CHECK(sentence(with_stage(Stage::allocation)) == "boom");
  CHECK(sentence(with_stage(Stage::buffer_allocation)) == "Error in buffer allocation: boom");
  CHECK(sentence(with_stage(Stage::execute)) == "Error Execute: boom");
  CHECK(sentence(with_stage(Stage::dynamic_shape)) == "Cannot read dynamic shape due to error in device buffer: boom");
}

TEST_CASE("sink: an error without a text says its reason") {
  CHECK(sentence(make_error(Errc::over_budget, nullptr)) == "over_budget");
}

TEST_CASE("sink: an error's sentence ends with the numbers that apply") {
  Error e = make_error(Errc::out_of_memory, "no memory");
  e.requested = 1024;
  CHECK(sentence(e) == "no memory (requested 1024)");
  e.available = 0;
  CHECK(sentence(e) == "no memory (requested 1024, available 0)");
  e.requested = -1;
  CHECK(sentence(e) == "no memory (available 0)");
  e.native = -12;
  CHECK(sentence(e) == "no memory (available 0) [native -12]");
  e.native = 0;
  e.available = -1;
  e.at_kind = AtKind::argument;
  e.at = 3;
  CHECK(sentence(e) == "no memory [argument 3]");
  e.at_kind = AtKind::count;
  CHECK(sentence(e) == "no memory [count 3]");
  e.at_kind = AtKind::limit;
  CHECK(sentence(e) == "no memory [limit 3]");
  e.at_kind = AtKind::byte_offset;  // the reader's caller says where, in the form of its input
  CHECK(sentence(e) == "no memory");
}

TEST_CASE("sink: the first failure of a sink ends the sentence and is returned") {
  Error e = with_stage(Stage::execute);
  e.requested = 1;
  for (int room = 0; room < 4; ++room) {
    FullSink out{room};
    CAPTURE(room);
    CHECK(write_error(out, e).code == Errc::over_budget);
    CHECK(out.writes == room + 1);
  }
}
