// SPDX-License-Identifier: Apache-2.0
// The command line: `holdfast plan FILE`, `holdfast run FILE`, `holdfast replay FILE`.
#include <string>

#include <CLI/CLI.hpp>

#include "holdfast/core/config.hpp"
#include "options.hpp"

namespace {

/// Reads a size such as 16GiB, 1.5GB or 4096; an empty text says it is one.
std::string size_text(std::string& text) {
  static const std::map<std::string, double> units = {{"", 1},
                                                      {"B", 1},
                                                      {"KB", 1e3},
                                                      {"MB", 1e6},
                                                      {"GB", 1e9},
                                                      {"TB", 1e12},
                                                      {"KIB", 1024.0},
                                                      {"MIB", 1048576.0},
                                                      {"GIB", 1073741824.0},
                                                      {"TIB", 1099511627776.0},
                                                      {"K", 1024.0},
                                                      {"M", 1048576.0},
                                                      {"G", 1073741824.0},
                                                      {"T", 1099511627776.0}};
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  std::string unit(end);
  while (!unit.empty() && unit.front() == ' ') unit.erase(0, 1);
  for (char& c : unit) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const auto found = units.find(unit);
  if (end == text.c_str() || found == units.end() || !(number >= 0) ||
      number * found->second >= 9.2e18)
    return "not a size: " + text;
  // Whole numbers of bytes are kept exact.
  text = unit.empty() && text.find_first_not_of("0123456789") == std::string::npos
             ? text
             : std::to_string(static_cast<long long>(number * found->second));
  return {};
}

std::string power_of_two(const std::string& text) {
  const long long n = std::atoll(text.c_str());
  return n > 0 && (n & (n - 1)) == 0 ? std::string() : "not a power of two: " + text;
}

void add_shared(CLI::App& command, program::Options& o) {
  command
      .add_option(
          "FILE", o.file,
          "HLO text, HloProto or HloModuleProto bytes, or an interval CSV; - is standard input")
      ->required();
  command.add_option("--json", o.json, "writes the figures as JSON; - is standard output");
  command.add_option("--csv", o.csv, "writes the offsets");
  command
      .add_option("--scheduler", o.scheduler,
                  "the order: as-given for a scheduled module, else best")
      ->check(CLI::IsMember({"as-given", "list", "dfs", "bfs", "post-order", "best", "search"}));
  command
      .add_option("--alignment", o.alignment,
                  "of every buffer: 64 for HLO, the file's own or 1 for CSV")
      ->check(CLI::Validator(power_of_two, "N"));
  command.add_option("--limit", o.limit, "of peak_bytes, such as 16GiB")
      ->transform(CLI::Validator(size_text, "BYTES"));
  command
      .add_option("--effort", o.effort,
                  "seconds for the search, counted in steps; a plan that meets its bound stops at once")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--pointer-size", o.pointer_size, "bytes of an entry of a tuple's table")
      ->check(CLI::IsMember({4, 8}));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"holdfast: plans the memory of accelerator programs and carries plans out"};
  app.set_version_flag("--version", std::to_string(HOLDFAST_VERSION_MAJOR) + "." +
                                        std::to_string(HOLDFAST_VERSION_MINOR) + "." +
                                        std::to_string(HOLDFAST_VERSION_PATCH));
  app.require_subcommand(1);
  program::Options o;
  CLI::App* plan = app.add_subcommand("plan", "plans a program's memory and prints what it costs");
  CLI::App* run =
      app.add_subcommand("run", "plans, then carries the plan out on memory and checks every byte");
  add_shared(*plan, o);
  add_shared(*run, o);
  run->add_option("--backend", o.backend, "where it runs")->check(CLI::IsMember({"host", "cuda"}));
  run->add_option(
         "--check", o.check,
         "every byte, or the ends of each value and of its pages; full up to 4 GiB of values")
      ->check(CLI::IsMember({"full", "page"}));
  run->add_option("--trips", o.trips, "rounds of a loop")->check(CLI::Range(1u, 1000000u));
  run->add_option("--streams", o.streams, "host streams")->check(CLI::Range(1u, 64u));
  CLI::App* replay =
      app.add_subcommand("replay", "carries a log of allocations out on a pool and checks each block");
  replay
      ->add_option("FILE", o.file,
                   "a recorder's log, RMM's log, or op,id,size with a and f; - is standard input")
      ->required();
  replay->add_option("--json", o.json, "writes the figures as JSON; - is standard output");
  replay->add_option("--backend", o.replay_backend, "whose memory")
      ->check(CLI::IsMember({"host-pool", "bfc", "system"}));
  replay
      ->add_option("--check", o.check,
                   "every byte, the ends of each block and of its pages, or none; full up to 4 GiB")
      ->check(CLI::IsMember({"full", "page", "none"}));
  replay->add_option("--limit", o.limit, "of the pool, such as 16GiB")
      ->transform(CLI::Validator(size_text, "BYTES"));
  replay->add_option("--alignment", o.alignment, "of every block: 64")
      ->check(CLI::Validator(power_of_two, "N"));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? program::done : program::usage;
  }
  if (*replay) return program::replay_command(o);
  return *plan ? program::plan_command(o) : program::run_command(o);
}
