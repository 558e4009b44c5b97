// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/bfc/memory_dump.hpp"

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "support/bfc_fakes.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {
// A message's fields; numbers in decimal.
std::multimap<std::uint32_t, std::string> fields(std::string_view bytes) {
  std::multimap<std::uint32_t, std::string> all;
  WireReader reader(bytes);
  for (WireField f; reader.next(f);)
    all.emplace(f.number, f.kind == WireKind::bytes ? std::string(f.bytes) : std::to_string(static_cast<std::int64_t>(f.value)));
  CHECK(reader.error().ok());
  return all;
}
using Fields = std::multimap<std::uint32_t, std::string>;
}  // namespace

TEST_CASE("bfc_memory_dump: chunks, bins, a snapshot and statistics under the numbers of the proto") {
  FakeLog log;
  auto heap = std::move(*BfcHeap<FakeMemory>::make({&log}, {.name = "GPU_0_bfc", .limit = 4096, .region = 4096}));
  auto pool = heap.pool();
  const Block a = *pool.allocate(1000, Alignment(1), Tag{"dot"}), b = *pool.allocate(1024, Alignment(1));
  pool.deallocate(a);
  const std::vector<char> bytes = serialize_bfc_memory_dump(pool.snapshot(), 77, 5);
  const Fields dump = fields({bytes.data(), bytes.size()});
  CHECK(dump.find(1)->second == "GPU_0_bfc");
  CHECK(dump.count(2) == 21);
  std::vector<Fields> bins, chunks;
  for (auto [it, end] = dump.equal_range(2); it != end; ++it) bins.push_back(fields(it->second));
  for (auto [it, end] = dump.equal_range(3); it != end; ++it) chunks.push_back(fields(it->second));
  CHECK(bins[0].empty());
  CHECK(bins[2] == Fields{{1, "2"}, {2, "1024"}, {3, "2048"}, {4, "1"}, {5, "2"}});
  CHECK(bins[3] == Fields{{1, "3"}, {3, "2048"}, {5, "1"}});
  CHECK(chunks == std::vector<Fields>{{{1, "1099511627776"}, {2, "1024"}, {4, "2"}},
                                      {{1, "1099511628800"}, {2, "1024"}, {3, "1024"}, {4, "-1"}, {7, "2"}, {8, "1"}, {9, "5"}},
                                      {{1, "1099511629824"}, {2, "2048"}, {4, "3"}}});
  CHECK(fields(dump.find(4)->second) == Fields{{1, "77"}, {2, "1024"}});
  CHECK(fields(dump.find(5)->second) == Fields{{1, "2"}, {2, "1024"}, {3, "2048"}, {4, "1024"}, {5, "1051372203"}});  // 1/3 as a float
  pool.deallocate(b);
}
