// SPDX-License-Identifier: Apache-2.0
// What the peer scripts ask of the text reader and printer:
//   hlo_text time FILE N     reads a text N times: instructions, seconds of the fastest
//   hlo_text print FILE      writes what was read; with `bare` behind: without %, signatures, and
//                            with operand shapes
//   hlo_text passes FILE     writes what all passes make of it; with `proto` behind: of a proto
//   hlo_text generate SEED   writes a generated module
//   hlo_text limit FILE BYTES  writes the module as it is when its plan is brought below a limit
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "holdfast/hlo/parser.hpp"
#include "holdfast/hlo/printer.hpp"
#include "holdfast/hlo/proto_reader.hpp"
#include "holdfast/passes/host_transfer_asyncifier.hpp"
#include "holdfast/passes/memory_space_propagation.hpp"
#include "holdfast/passes/placement_annotations.hpp"
#include "holdfast/passes/verifier.hpp"
#include "holdfast/plan/rematerialize.hpp"
#include "support/module_generator.hpp"

using namespace holdfast;

namespace {

struct FileSink {
  std::FILE* file;
  Error write(std::string_view text) noexcept {
    return std::fwrite(text.data(), 1, text.size(), file) == text.size()
               ? Error{}
               : make_error(Errc::internal, "cannot write");
  }
};

std::string read(const char* path) {
  std::string text;
  std::FILE* f = std::fopen(path, "rb");
  if (f == nullptr) return text;
  char chunk[1 << 16];
  for (std::size_t n = 0; (n = std::fread(chunk, 1, sizeof chunk, f)) > 0;) text.append(chunk, n);
  std::fclose(f);
  return text;
}

int refuse(const std::string& text, const Error& e) {
  FileSink err{stderr};
  static_cast<void>(write_parse_error(err, text, e));
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view command = argc > 2 ? argv[1] : "";
  FileSink out{stdout};
  if (command == "generate") {
    const Module m = testing::ModuleGenerator(std::strtoull(argv[2], nullptr, 10))();
    return print_hlo_text(m, out).ok() ? 0 : 1;
  }
  if (command != "time" && command != "print" && command != "passes" && command != "limit") return 1;
  const std::string text = read(argv[2]);
  if (command == "print" || command == "passes") {
    const bool proto = command == "passes" && argc > 3;
    Result<Module> m = proto ? parse_hlo_proto(text) : parse_hlo_text(text);
    if (!m.ok()) return refuse(text, m.error());
    const auto run = [&](auto pass) {
      const Result<bool> changed = run_verified(*m, pass);
      if (!changed.ok()) std::fprintf(stderr, "%s\n", changed.error().what);
      return changed.ok();
    };
    if (command == "passes" && !(run(PlacementAnnotations<>{}) && run(MemorySpacePropagation<>{}) &&
                                 run(HostTransferAsyncifier<>{})))
      return 3;
    PrintOptions options;
    options.elide_above = -1;
    if (argc > 3 && !proto)
      options.percent = options.signature = false, options.operand_shapes = true;
    return print_hlo_text(*m, out, options).ok() ? 0 : 1;
  }
  if (command == "limit") {
    Result<Module> m = parse_hlo_text(text);
    if (!m.ok()) return refuse(text, m.error());
    RematerializeOptions options;
    options.limit = argc > 3 ? std::strtoll(argv[3], nullptr, 10) : 0;
    if (!rematerialize(*m, options).ok()) return 2;
    PrintOptions all;
    all.elide_above = -1;
    return print_hlo_text(*m, out, all).ok() ? 0 : 1;
  }
  double best = 1e9;
  std::size_t instructions = 0;
  for (int i = 0, n = argc > 3 ? std::atoi(argv[3]) : 1; i < n; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const Result<Module> m = parse_hlo_text(text);
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    if (!m.ok()) return refuse(text, m.error());
    instructions = m->instructions.size();
  }
  std::printf("%zu %.9f\n", instructions, best);
  return 0;
}
