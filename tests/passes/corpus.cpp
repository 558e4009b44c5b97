// SPDX-License-Identifier: Apache-2.0
// All passes on every module of the corpus: each run is verified, and what changed still plans.
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "holdfast/graph/alias.hpp"
#include "holdfast/hlo/proto_reader.hpp"
#include "holdfast/passes/host_transfer_asyncifier.hpp"
#include "holdfast/passes/memory_space_propagation.hpp"
#include "holdfast/passes/placement_annotations.hpp"
#include "holdfast/passes/verifier.hpp"
#include "holdfast/plan/buffer_assignment.hpp"
#include "holdfast/plan/liveness.hpp"
#include "holdfast/plan/plan_offsets.hpp"
#include "support/passes.hpp"
#include "support/shared.hpp"

using namespace holdfast;

namespace {

std::vector<std::string> listed(const std::string& folder, std::string_view command) {
  std::vector<std::string> files;
  std::FILE* names = popen(("cd '" + folder + "' && " + std::string(command)).c_str(), "r");
  REQUIRE(names != nullptr);
  char line[4096];
  while (std::fgets(line, sizeof line, names) != nullptr)
    files.emplace_back(line, std::string_view(line).find('\n'));
  pclose(names);
  return files;
}

/// The heap of a module in the order in which it stands; -1 when it has no plan.
Bytes heap_of(const Module& m) {
  const Result<ValueTable> values = analyze_values(m);
  if (!values.ok()) return -1;
  const Result<Liveness> live = analyze_liveness(m, *values);
  if (!live.ok()) return -1;
  BufferSet buffers(m, *values, *live);
  const Result<BufferAssignment> plan = assign_buffers(m, *live, buffers, FastPlanner{}, {});
  if (!plan.ok()) return -1;
  Bytes sum = 0;
  for (const Arena& a : plan->entry_arenas()) sum += a.size;
  return sum;
}

std::size_t calls_to(const Module& m, std::string_view target) {
  std::size_t count = 0;
  for (const Instruction& i : m.instructions)
    count += i.opcode == Opcode::custom_call && m.attribute(i, "custom_call_target") == target;
  return count;
}

}  // namespace

TEST_CASE("corpus: every module of the corpus is verified before and behind each pass, and plans") {
  const std::string index = testing::shared_path("data/hlo/index.json");
  if (index.empty()) return;
  const std::string folder = index.substr(0, index.rfind('/'));
  std::size_t read = 0, replaced = 0;
  std::string changed_modules;
  for (const std::string& file : listed(folder, "ls */before.hlo* */after.hlo* | grep -v pb")) {
    if (testing::quick() && file.starts_with("large_")) continue;
    CAPTURE(file);
    const std::string text = testing::read_file(folder + "/" + file);
    Module m = testing::parse(text);
    const Error good = verify_module(m);
    REQUIRE_MESSAGE(good.ok(), testing::sentence(good));
    const std::size_t annotated = calls_to(m, "\"annotate_device_placement\"");
    const Result<bool> placed = run_verified(m, PlacementAnnotations<>{});
    REQUIRE(placed.ok());
    CHECK(*placed == (annotated > 0));
    CHECK(calls_to(m, "\"annotate_device_placement\"") == 0);
    CHECK(calls_to(m, "\"MoveToHost\"") + calls_to(m, "\"MoveToDevice\"") == annotated);
    const Result<bool> spread = run_verified(m, MemorySpacePropagation<>{});
    REQUIRE(spread.ok());
    const Result<bool> split = run_verified(m, HostTransferAsyncifier<>{});
    REQUIRE(split.ok());
    CHECK(!*split);
    ++read;
    replaced += annotated;
    if (!*placed && !*spread && !*split) {
      CHECK(testing::print(m) == text);
      continue;
    }
    changed_modules += file + " ";
    // Nothing that changed here needs other memory: markers stand for annotations, fusions keep
    // their outsides.
    CHECK(heap_of(m) >= 0);
    CHECK(heap_of(m) == heap_of(testing::parse(std::string_view(text))));
    const std::string after = testing::print(m);
    const Module again = testing::parse(after);
    CHECK(verify_module(again).ok());
    CHECK(heap_of(again) == heap_of(m));
  }
  CHECK(read >= (testing::quick() ? 100u : 114u));
  CHECK(replaced == 142);
  CHECK(changed_modules ==
        "gpu_host_offload_optimizer/after.hlo gpu_host_offload_optimizer/before.hlo "
        "host_offload_activations/before.hlo host_offload_optimizer/before.hlo ");
}

TEST_CASE("corpus: the protos are verified and changed as their texts are") {
  const std::string index = testing::shared_path("data/hlo/index.json");
  if (index.empty()) return;
  const std::string folder = index.substr(0, index.rfind('/'));
  std::string changed;
  std::size_t read = 0;
  for (const std::string& file : listed(folder, "ls */after.hlo.pb*")) {
    CAPTURE(file);
    const std::string bytes = testing::read_file(folder + "/" + file);
    Result<Module> m = parse_hlo_proto(bytes);
    REQUIRE(m.ok());
    REQUIRE(verify_module(*m).ok());
    const Result<bool> placed = run_verified(*m, PlacementAnnotations<>{});
    const Result<bool> spread = run_verified(*m, MemorySpacePropagation<>{});
    const Result<bool> split = run_verified(*m, HostTransferAsyncifier<>{});
    REQUIRE((placed.ok() && spread.ok() && split.ok()));
    CHECK(!*placed);
    CHECK(!*split);
    if (*spread) changed += file + " ";
    ++read;
  }
  CHECK(read >= 10);
  CHECK(changed == "gpu_host_offload_optimizer/after.hlo.pb ");
}
