// concepts: the seams of the run side, one concept family a file, each with a model that does nothing.
// In the flow: above core; backends, buffers, holds and reports are written against these.
// A concept here states members and meaning; its conformance suite is in tests/contract.
// Plan-side seams lie beside their data in graph/ and plan/.
// Nothing here allocates, waits or does input and output.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>

#include "holdfast/core/result.hpp"

namespace holdfast {

/// Something that takes text.
template <class S>
concept sink = requires(S& s, std::string_view text) {
  { s.write(text) } noexcept -> std::same_as<Error>;
};

/// Swallows all text: the default of calls that take a diagnostic sink.
struct NullSink {
  constexpr Error write(std::string_view) noexcept { return {}; }
};
static_assert(sink<NullSink>);

/// Writes a number in decimal.
template <sink S>
constexpr Error write_number(S& out, std::int64_t value) noexcept {
  char digits[20] = {};
  std::size_t at = sizeof digits;
  std::uint64_t rest = value < 0 ? ~static_cast<std::uint64_t>(value) + 1 : static_cast<std::uint64_t>(value);
  do digits[--at] = static_cast<char>('0' + rest % 10);
  while ((rest /= 10) != 0);
  if (value < 0) digits[--at] = '-';
  return out.write({digits + at, sizeof digits - at});
}

/// Writes the full sentence of an error: prefix of its stage, text, numbers.
///
/// Errors: the first failure of the sink.
template <sink S>
constexpr Error write_error(S& out, const Error& e) noexcept {
  Error failure;
  const auto put = [&](std::string_view text) {
    if (failure.ok()) failure = out.write(text);
  };
  const auto put_number = [&](std::int64_t n) {
    if (failure.ok()) failure = write_number(out, n);
  };
  switch (e.stage) {
    case Stage::buffer_allocation: put("Error in buffer allocation: "); break;
    case Stage::execute: put("Error Execute: "); break;
    case Stage::dynamic_shape: put("Cannot read dynamic shape due to error in device buffer: "); break;
    default: break;
  }
  put(e.what != nullptr ? std::string_view(e.what) : errc_name(e.code));
  if (e.at_kind == AtKind::range) {
    put(" "), put_number(static_cast<std::int64_t>(e.at));
    put(" and length "), put_number(e.requested);
    put(" in a buffer of "), put_number(e.available), put(" bytes");
    return failure;
  }
  if (e.requested >= 0) put(" (requested "), put_number(e.requested);
  if (e.available >= 0) put(e.requested >= 0 ? ", available " : " (available "), put_number(e.available);
  if (e.requested >= 0 || e.available >= 0) put(")");
  if (e.at_kind == AtKind::argument) put(" [argument "), put_number(static_cast<std::int64_t>(e.at)), put("]");
  if (e.at_kind == AtKind::count) put(" [count "), put_number(static_cast<std::int64_t>(e.at)), put("]");
  if (e.at_kind == AtKind::limit) put(" [limit "), put_number(static_cast<std::int64_t>(e.at)), put("]");
  if (e.native != 0) put(" [native "), put_number(e.native), put("]");
  return failure;
}

}  // namespace holdfast
