// SPDX-License-Identifier: Apache-2.0
// Any bytes are a module, a buffer assignment, statistics, or an error: never a crash, a hang or an
// inconsistent module.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/hlo/proto_reader.hpp"
#include "holdfast/plan/memory_stats_proto.hpp"
#include "support/check_module.hpp"
#include "support/proto_mutator.hpp"

using namespace holdfast;

namespace {

void require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

void read_module(std::string_view bytes) {
  for (const ProtoKind kind : {ProtoKind::detect, ProtoKind::hlo_module}) {
    const Result<Module> m = parse_hlo_proto(bytes, {.kind = kind});
    if (!m.ok()) {
      require(m.error().code == Errc::corrupt || m.error().code == Errc::over_budget ||
                  m.error().code == Errc::unsupported,
              "code of an error");
      require(m.error().at_kind == AtKind::byte_offset, "place of an error");
      continue;
    }
    const char* const wrong = testing::inconsistency(*m);
    require(wrong == nullptr, wrong);
  }
  static_cast<void>(find_buffer_assignment(bytes));
}

void read_assignment(std::string_view bytes) {
  const Result<AllocationTable> t = parse_buffer_assignment(bytes);
  if (!t.ok()) return;
  static_cast<void>(check_allocations(*t));
  static_cast<void>(viewer_peak(*t));
  const Result<CompiledMemoryStats> s = make_memory_stats(bytes);
  if (s.ok()) {
    require(s->alias_size_in_bytes <= s->argument_size_in_bytes, "alias beyond argument");
    require(s->indefinite_allocations <= s->total_allocation_bytes, "indefinite beyond total");
  }
  const std::vector<char> once = render_buffer_assignment(*t);
  const Result<AllocationTable> again = parse_buffer_assignment({once.data(), once.size()});
  require(again.ok() && render_buffer_assignment(*again) == once, "assignment written and read");
}

void read_stats(std::string_view bytes) {
  const Result<StoredMemoryStats> s = parse_memory_stats(bytes);
  if (!s.ok()) return;
  const std::vector<char> once = serialize_memory_stats(s->stats);
  const Result<StoredMemoryStats> again = parse_memory_stats({once.data(), once.size()});
  require(again.ok() && again->stats == s->stats, "statistics written and read");
}

}  // namespace

// Of libFuzzer; absent where the corpus is only replayed.
extern "C" __attribute__((weak)) std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size,
                                                              std::size_t limit);

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t limit, unsigned seed) {
  if (seed % 8 == 0) return LLVMFuzzerMutate(data, size, limit);
  const std::string out = holdfast::testing::ProtoMutator{}(
      {reinterpret_cast<const char*>(data), size}, seed, [](std::string_view leaf) {
        std::string bytes(leaf);
        bytes.resize(leaf.size() + 16);
        bytes.resize(LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(bytes.data()), leaf.size(),
                                      bytes.size()));
        return bytes;
      });
  if (out.size() > limit) return LLVMFuzzerMutate(data, size, limit);
  std::memcpy(data, out.data(), out.size());
  return out.size();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  read_module(bytes);
  read_assignment(bytes);
  read_stats(bytes);
  return 0;
}
