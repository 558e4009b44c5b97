// SPDX-License-Identifier: Apache-2.0
#include "holdfast/core/result.hpp"

#include <memory>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "support/death.hpp"

using namespace holdfast;

namespace {

constexpr int last_errc = static_cast<int>(Errc::internal);

/// Counts its live objects, so that a value destroyed twice or never shows.
struct Counted {
  static inline int alive = 0;
  int number = 0;
  explicit Counted(int n) noexcept : number(n) { ++alive; }
  Counted(Counted&& other) noexcept : number(std::exchange(other.number, -1)) { ++alive; }
  ~Counted() { --alive; }
};

constexpr Result<int> half(int n) noexcept {
  if (n % 2 != 0) return make_error(Errc::invalid_argument, "odd");
  return n / 2;
}
static_assert(half(8).ok() && *half(8) == 4);
static_assert(!half(7).ok() && half(7).error().code == Errc::invalid_argument);

constexpr std::size_t length_of(Result<std::vector<int>> r) { return r.ok() ? r->size() : 0; }
static_assert(length_of(std::vector<int>(3, 0)) == 3, "a result of a type with a destructor works in constant expressions");
static_assert(length_of(make_error(Errc::corrupt, "x")) == 0);

static_assert(std::is_trivially_copyable_v<Error> && sizeof(Error) <= 48);
static_assert(std::is_trivially_destructible_v<Result<int>>);
static_assert(!std::is_copy_constructible_v<Result<std::unique_ptr<int>>>);
static_assert(std::is_nothrow_move_constructible_v<Result<std::unique_ptr<int>>>);

}  // namespace

TEST_CASE("result: a default error is no error") {
  constexpr Error none;
  CHECK(none.ok());
  CHECK(none.what == nullptr);
  CHECK(none.site == nullptr);
  CHECK(none.requested == -1);
  CHECK(none.available == -1);
  CHECK(status_kind(none) == StatusKind::ok);
}

TEST_CASE("result: every reason has its own word and a kind of the table") {
  std::set<std::string_view> words;
  for (int c = 0; c <= last_errc; ++c) {
    const auto code = static_cast<Errc>(c);
    CAPTURE(c);
    CHECK_FALSE(errc_name(code).empty());
    words.insert(errc_name(code));
    const StatusKind kind = status_kind(make_error(code, "x"));
    CHECK(kind != StatusKind::unknown);
    CHECK((kind == StatusKind::ok) == (code == Errc::ok));
  }
  CHECK(words.size() == static_cast<std::size_t>(last_errc) + 1);
  CHECK(errc_name(Errc::ok) == "ok");
  CHECK(errc_name(Errc::wrong_state) == "wrong_state");
  CHECK(errc_name(Errc::internal) == "internal");
}

TEST_CASE("result: the kinds are those that the specification names") {
  const auto kind = [](Errc code) { return status_kind(make_error(code, "x")); };
  for (const Errc code : {Errc::invalid_argument, Errc::corrupt, Errc::donated, Errc::deleted, Errc::held})
    CHECK(kind(code) == StatusKind::invalid_argument);
  for (const Errc code : {Errc::out_of_memory, Errc::over_budget, Errc::infeasible})
    CHECK(kind(code) == StatusKind::resource_exhausted);
  CHECK(kind(Errc::would_block) == StatusKind::unavailable);
  CHECK(kind(Errc::deadline) == StatusKind::deadline_exceeded);
  CHECK(kind(Errc::wrong_state) == StatusKind::failed_precondition);
  CHECK(kind(Errc::not_found) == StatusKind::not_found);
  CHECK(kind(Errc::already_exists) == StatusKind::already_exists);
  CHECK(kind(Errc::permission_denied) == StatusKind::permission_denied);
  CHECK(kind(Errc::aborted) == StatusKind::aborted);
  CHECK(kind(Errc::unsupported) == StatusKind::unimplemented);
  CHECK(kind(Errc::device_fault) == StatusKind::internal);
  CHECK(kind(Errc::internal) == StatusKind::internal);
}

TEST_CASE("result: a stage changes the kind only in the three cases of runtime.md 2.7, and never the reason") {
  for (int c = 1; c <= last_errc; ++c) {
    Error e = make_error(static_cast<Errc>(c), "x");
    const StatusKind plain = status_kind(e);
    for (const Stage stage : {Stage::none, Stage::parse, Stage::verify, Stage::plan, Stage::allocation}) {
      e.stage = stage;
      CHECK(status_kind(e) == plain);
    }
    e.stage = Stage::buffer_allocation;
    CHECK(status_kind(e) == StatusKind::failed_precondition);
    e.stage = Stage::execute;
    CHECK(status_kind(e) == StatusKind::internal);
    e.stage = Stage::dynamic_shape;
    CHECK(status_kind(e) == StatusKind::internal);
    CHECK(e.code == static_cast<Errc>(c));
  }
  Error fine;
  for (const Stage stage : {Stage::buffer_allocation, Stage::execute, Stage::dynamic_shape}) {
    fine.stage = stage;
    CHECK(status_kind(fine) == StatusKind::ok);
  }
}

TEST_CASE("result: a place keeps its line and column, a byte offset its 64 bits") {
  Error e = make_error(Errc::corrupt, "x");
  e.at_kind = AtKind::line_column;
  e.at = make_place(4294967295u, 17);
  CHECK(e.line() == 4294967295u);
  CHECK(e.column() == 17);
  const Error far = make_error_at(Errc::corrupt, "x", ~std::uint64_t{0});
  CHECK(far.at_kind == AtKind::byte_offset);
  CHECK(far.at == ~std::uint64_t{0});
  CHECK(far.code == Errc::corrupt);
}

TEST_CASE("result: HOLDFAST_SITE names this file and line, one address for a place") {
  const auto here = [] { return HOLDFAST_SITE; };
  const Site* first = here();
  CHECK(first == here());
  CHECK(first->line == __LINE__ - 3);
  CHECK(std::string(first->file).find("result.cpp") != std::string::npos);
}

TEST_CASE("result: a value is made once, moved, and destroyed once") {
  {
    Result<Counted> made = Counted(5);
    CHECK(Counted::alive == 1);
    Result<Counted> moved = std::move(made);
    CHECK(Counted::alive == 2);
    CHECK(moved->number == 5);
    CHECK((*made).number == -1);
    const Counted taken = std::move(moved).value();
    CHECK(taken.number == 5);
  }
  CHECK(Counted::alive == 0);
  {
    Result<Counted> failed = make_error(Errc::held, "held");
    Result<Counted> still = std::move(failed);
    CHECK(Counted::alive == 0);
    CHECK(still.error().code == Errc::held);
    CHECK_FALSE(static_cast<bool>(still));
  }
  CHECK(Counted::alive == 0);
}

TEST_CASE("result: the value of a failure and a failure without a reason are broken preconditions") {
  CHECK(testing::aborts([] {
    Result<int> r = make_error(Errc::held, "held");
    return r.value();
  }));
  CHECK(testing::aborts([] {
    const Result<int> r = make_error(Errc::held, "held");
    return *r.operator->();
  }));
  CHECK(testing::aborts([] { return Result<int>(Error{}).ok(); }));
}
