// SPDX-License-Identifier: Apache-2.0
// Reads a file or standard input, tells its kind by its content, and says where an error is.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "holdfast/concepts/sink.hpp"
#include "holdfast/core/result.hpp"

namespace program {

enum class InputKind { text, proto, csv };

/// A file's name, bytes and kind. The bytes outlive every module that is read from them.
struct Input {
  std::string file;  ///< `-` is standard input
  std::string bytes;
  InputKind kind = InputKind::text;
};

/// Reads a file whole. False, after a message, when it cannot be read.
bool read_input(const std::string& file, Input& out);

/// Takes text into a string.
struct StringSink {
  std::string* text;
  holdfast::Error write(std::string_view part) noexcept {
    return text->append(part), holdfast::Error{};
  }
};
/// Writes to a stream of the C library.
struct FileSink {
  std::FILE* file;
  holdfast::Error write(std::string_view part) noexcept {
    return std::fwrite(part.data(), 1, part.size(), file) == part.size()
               ? holdfast::Error{}
               : holdfast::make_error(holdfast::Errc::internal, "cannot write");
  }
};

/// Writes an error as `FILE:LINE:COLUMN: what`, `FILE:+BYTE: what` for protos, to standard error.
void print_error(const Input& input, const holdfast::Error& error);

/// Writes text to a file, or to standard output for `-`. False, after a message, when it cannot.
bool write_output(const std::string& file, std::string_view text);

}  // namespace program
