// SPDX-License-Identifier: Apache-2.0
#include "input.hpp"

#include <cerrno>
#include <cstring>

#include "holdfast/core/reader.hpp"
#include "holdfast/plan/interval_csv.hpp"

namespace program {

namespace {

InputKind kind_of(std::string_view bytes) {
  const std::size_t first = bytes.find_first_not_of(" \t\r\n");
  const std::string_view rest =
      first == std::string_view::npos ? std::string_view{} : bytes.substr(first);
  if (rest.starts_with("HloModule")) return InputKind::text;
  if (holdfast::is_interval_csv(bytes)) return InputKind::csv;
  // What text never holds near its beginning, and a message's tags and lengths soon do.
  for (const char c : bytes.substr(0, 4096)) {
    const auto b = static_cast<unsigned char>(c);
    if (b < 0x20 && b != '\t' && b != '\n' && b != '\r' && b != '\f') return InputKind::proto;
  }
  return InputKind::text;
}

}  // namespace

bool read_input(const std::string& file, Input& out) {
  out.file = file;
  std::FILE* f = file == "-" ? stdin : std::fopen(file.c_str(), "rb");
  if (f == nullptr) {
    std::fprintf(stderr, "%s: %s\n", file.c_str(), std::strerror(errno));
    return false;
  }
  std::size_t size = 0;
  for (;;) {
    out.bytes.resize(size + (size < (1u << 20) ? 1u << 20 : size));
    const std::size_t n = std::fread(out.bytes.data() + size, 1, out.bytes.size() - size, f);
    size += n;
    if (n == 0) break;
  }
  out.bytes.resize(size);
  const bool failed = std::ferror(f) != 0;
  if (failed) std::fprintf(stderr, "%s: %s\n", file.c_str(), std::strerror(errno));
  if (f != stdin) std::fclose(f);
  out.kind = kind_of(out.bytes);
  return !failed;
}

void print_error(const Input& input, const holdfast::Error& error) {
  holdfast::Error e = error;
  std::string text = input.file;
  if (e.at_kind == holdfast::AtKind::byte_offset && input.kind != InputKind::proto) {
    e.at = holdfast::place_of(input.bytes, static_cast<std::size_t>(e.at));
    e.at_kind = holdfast::AtKind::line_column;
  }
  if (e.at_kind == holdfast::AtKind::line_column)
    text += ":" + std::to_string(e.line()) + ":" + std::to_string(e.column());
  if (e.at_kind == holdfast::AtKind::byte_offset) text += ":+" + std::to_string(e.at);
  text += ": ";
  StringSink sink{&text};
  static_cast<void>(holdfast::write_error(sink, e));
  std::fprintf(stderr, "%s\n", text.c_str());
}

bool write_output(const std::string& file, std::string_view text) {
  std::FILE* f = file == "-" ? stdout : std::fopen(file.c_str(), "wb");
  bool good = f != nullptr && std::fwrite(text.data(), 1, text.size(), f) == text.size();
  if (f != nullptr) good = (f == stdout ? std::fflush(f) : std::fclose(f)) == 0 && good;
  if (!good) std::fprintf(stderr, "%s: %s\n", file.c_str(), std::strerror(errno));
  return good;
}

}  // namespace program
