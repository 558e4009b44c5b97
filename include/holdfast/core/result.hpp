// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

#include "holdfast/core/config.hpp"
#include "holdfast/core/units.hpp"

namespace holdfast {

/// Why a call failed.
enum class Errc : std::uint8_t {
  ok,
  invalid_argument,   ///< a value the caller gave is wrong: bounds, alignment, shape, clash in one call
  corrupt,            ///< untrusted input is malformed
  donated,            ///< the buffer was donated
  deleted,            ///< the buffer was deleted
  held,               ///< an external hold forbids the donation
  out_of_memory,      ///< the source or the machine has no more
  over_budget,        ///< a limit or a fixed count that somebody set
  infeasible,         ///< no plan fits
  would_block,        ///< a `try_` call would have to wait
  deadline,           ///< a call with a deadline ran out of time
  wrong_state,        ///< called in the wrong order; ranks disagree; double free
  not_found,
  already_exists,
  permission_denied,
  aborted,            ///< a dead epoch, clique or communicator; cancelled
  unsupported,        ///< this build, driver, library or kernel cannot
  device_fault,       ///< the device or a kernel failed
  internal,           ///< an inconsistency that is nobody's input; also a user's own failure put on an event
};

/// Where an error surfaced; gives its text a prefix and, for three stages, its kind.
enum class Stage : std::uint8_t { none, parse, verify, plan, allocation, buffer_allocation, execute, dynamic_shape };

/// The canonical status kinds that specifications and other runtimes name.
enum class StatusKind : std::uint8_t {
  ok = 0,
  cancelled = 1,
  unknown = 2,
  invalid_argument = 3,
  deadline_exceeded = 4,
  not_found = 5,
  already_exists = 6,
  permission_denied = 7,
  resource_exhausted = 8,
  failed_precondition = 9,
  aborted = 10,
  out_of_range = 11,
  unimplemented = 12,
  internal = 13,
  unavailable = 14,
  data_loss = 15,
};

/// What `Error::at` means.
enum class AtKind : std::uint8_t { none, byte_offset, line_column, argument, count, range, limit };

/// A failure as a value: trivially copyable, no allocation, everything needed for one clear sentence.
///
/// Units: `requested` and `available` are bytes, or counts where `at_kind` is `count`.
struct [[nodiscard]] Error {
  Errc code = Errc::ok;
  Stage stage = Stage::none;
  AtKind at_kind = AtKind::none;
  std::int32_t native = 0;       ///< CUDA, NCCL or errno number; 0: none
  std::int64_t requested = -1;   ///< -1: does not apply
  std::int64_t available = -1;   ///< -1: does not apply
  std::uint64_t at = 0;          ///< by `at_kind`; a line and column are packed by `make_place`
  const char* what = nullptr;    ///< a string literal
  const Site* site = nullptr;

  /// True when there is no error.
  [[nodiscard]] constexpr bool ok() const noexcept { return code == Errc::ok; }
  [[nodiscard]] constexpr std::uint32_t line() const noexcept { return static_cast<std::uint32_t>(at >> 32); }
  [[nodiscard]] constexpr std::uint32_t column() const noexcept { return static_cast<std::uint32_t>(at); }
};
static_assert(std::is_trivially_copyable_v<Error> && sizeof(Error) <= 48);

/// Makes an error of a reason and a literal text.
[[nodiscard]] constexpr Error make_error(Errc code, const char* what) noexcept {
  Error e;
  e.code = code;
  e.what = what;
  return e;
}

/// Makes an error at a byte offset of untrusted input.
[[nodiscard]] constexpr Error make_error_at(Errc code, const char* what, std::uint64_t byte_offset) noexcept {
  Error e = make_error(code, what);
  e.at_kind = AtKind::byte_offset;
  e.at = byte_offset;
  return e;
}

/// Packs a line and column, both counted from 1.
[[nodiscard]] constexpr std::uint64_t make_place(std::uint32_t line, std::uint32_t column) noexcept {
  return (static_cast<std::uint64_t>(line) << 32) | column;
}

/// Gives the canonical kind of an error; tests of the specification compare this.
[[nodiscard]] constexpr StatusKind status_kind(const Error& e) noexcept {
  if (!e.ok() && (e.stage == Stage::execute || e.stage == Stage::dynamic_shape)) return StatusKind::internal;
  if (!e.ok() && e.stage == Stage::buffer_allocation) return StatusKind::failed_precondition;
  switch (e.code) {
    case Errc::ok: return StatusKind::ok;
    case Errc::invalid_argument:
    case Errc::corrupt:
    case Errc::donated:
    case Errc::deleted:
    case Errc::held: return StatusKind::invalid_argument;
    case Errc::out_of_memory:
    case Errc::over_budget:
    case Errc::infeasible: return StatusKind::resource_exhausted;
    case Errc::would_block: return StatusKind::unavailable;
    case Errc::deadline: return StatusKind::deadline_exceeded;
    case Errc::wrong_state: return StatusKind::failed_precondition;
    case Errc::not_found: return StatusKind::not_found;
    case Errc::already_exists: return StatusKind::already_exists;
    case Errc::permission_denied: return StatusKind::permission_denied;
    case Errc::aborted: return StatusKind::aborted;
    case Errc::unsupported: return StatusKind::unimplemented;
    case Errc::device_fault:
    case Errc::internal: return StatusKind::internal;
  }
  return StatusKind::unknown;
}

/// Gives the word of a reason, as in the enumeration.
[[nodiscard]] constexpr std::string_view errc_name(Errc code) noexcept {
  constexpr std::string_view names[] = {"ok", "invalid_argument", "corrupt", "donated", "deleted", "held", "out_of_memory",
                                        "over_budget", "infeasible", "would_block", "deadline", "wrong_state", "not_found",
                                        "already_exists", "permission_denied", "aborted", "unsupported", "device_fault",
                                        "internal"};
  return names[static_cast<std::size_t>(code)];
}

namespace detail {

template <class T, bool Trivial = std::is_trivially_destructible_v<T>>
union ResultStorage {
  char none;
  T value;
  constexpr ResultStorage() noexcept : none{} {}
};

template <class T>
union ResultStorage<T, false> {
  char none;
  T value;
  constexpr ResultStorage() noexcept : none{} {}
  constexpr ~ResultStorage() {}
};

template <class T, bool Trivial = std::is_trivially_destructible_v<T>>
struct ResultBase {
  ResultStorage<T> storage_;
  Error error_;
};

template <class T>
struct ResultBase<T, false> {
  ResultStorage<T> storage_;
  Error error_;
  constexpr ~ResultBase() {
    if (error_.ok()) std::destroy_at(std::addressof(storage_.value));
  }
};

}  // namespace detail

/// Either a value or the reason why there is none.
///
/// Reading the value of a failed result is a broken precondition. Threads: as its value.
template <class T>
class [[nodiscard]] Result : private detail::ResultBase<T> {
 public:
  using value_type = T;

  // Two, not one by value: nvcc's front end moves a returned local only into a reference.
  constexpr Result(T&& value) noexcept { std::construct_at(std::addressof(this->storage_.value), std::move(value)); }
  constexpr Result(const T& value) noexcept
    requires std::copy_constructible<T>
  {
    std::construct_at(std::addressof(this->storage_.value), value);
  }
  constexpr Result(Error error) noexcept {
    HOLDFAST_ASSERT(!error.ok());
    this->error_ = error;
  }
  constexpr Result(Result&& other) noexcept {
    if (other.error_.ok())
      std::construct_at(std::addressof(this->storage_.value), std::move(other.storage_.value));
    this->error_ = other.error_;
  }
  Result& operator=(Result&&) = delete;

  [[nodiscard]] constexpr bool ok() const noexcept { return this->error_.ok(); }
  [[nodiscard]] constexpr explicit operator bool() const noexcept { return ok(); }
  /// The reason; `ok` when there is a value.
  [[nodiscard]] constexpr const Error& error() const noexcept { return this->error_; }
  [[nodiscard]] constexpr T& value() & noexcept {
    HOLDFAST_ASSERT(ok());
    return this->storage_.value;
  }
  [[nodiscard]] constexpr const T& value() const& noexcept {
    HOLDFAST_ASSERT(ok());
    return this->storage_.value;
  }
  [[nodiscard]] constexpr T&& value() && noexcept {
    HOLDFAST_ASSERT(ok());
    return std::move(this->storage_.value);
  }
  [[nodiscard]] constexpr T& operator*() & noexcept { return value(); }
  [[nodiscard]] constexpr const T& operator*() const& noexcept { return value(); }
  [[nodiscard]] constexpr T&& operator*() && noexcept { return std::move(*this).value(); }
  [[nodiscard]] constexpr T* operator->() noexcept { return std::addressof(value()); }
  [[nodiscard]] constexpr const T* operator->() const noexcept { return std::addressof(value()); }
};

}  // namespace holdfast
