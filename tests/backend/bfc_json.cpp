// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/bfc/json.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "support/bfc_fakes.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {
struct Text {
  std::string text;
  int left = -1;
  Error write(std::string_view more) noexcept {
    if (left == 0) return make_error(Errc::internal, "the sink is full");
    if (left > 0) --left;
    return text += more, Error{};
  }
};
}  // namespace

TEST_CASE("bfc_json: a snapshot as JSON, its names escaped") {
  FakeLog log;
  auto heap = std::move(*BfcHeap<FakeMemory, BestFit, ExactSplit, TwoEnded>::make({&log}, {.name = "a\"\\<b>\n", .limit = 4096}));
  auto pool = heap.pool();
  const Block a = *pool.allocate(1000, Alignment(1), BfcEnd::lower, Tag{"w&1", 3}), b = *pool.allocate(256, Alignment(1), BfcEnd::upper);
  const Block c = *pool.allocate(512, Alignment(1), BfcEnd::upper);
  pool.set_now(9);
  pool.deallocate(b);
  Text out;
  REQUIRE(write_bfc_json(out, pool.snapshot()).ok());
  CHECK(out.text ==
        "{\"name\":\"a\\\"\\\\\\u003cb\\u003e\\u000a\",\"two_ended\":true,\"limit_bytes\":4096,\"reserved_bytes\":4096,"
        "\"peak_reserved_bytes\":4096,\"in_use_bytes\":1536,\"peak_in_use_bytes\":1792,\"requested_bytes\":1512,"
        "\"peak_requested_bytes\":1768,\"alignment_waste_bytes\":24,\"split_waste_bytes\":0,\"free_bytes\":2560,"
        "\"largest_free_bytes\":2304,\"largest_allocation_bytes\":1024,\"allocations\":3,"
        "\"regions\":[{\"address\":\"0x10000000000\",\"bytes\":4096,\"chunks\":["
        "{\"offset\":0,\"bytes\":1024,\"used\":true,\"requested_bytes\":1000,\"id\":1,\"tag\":\"w\\u00261\",\"tag_number\":3,\"end\":\"lower\"},"
        "{\"offset\":1024,\"bytes\":2304,\"used\":false,\"end\":\"gap\"},"
        "{\"offset\":3328,\"bytes\":512,\"used\":true,\"requested_bytes\":512,\"id\":3,\"tag\":null,\"tag_number\":0,\"end\":\"upper\"},"
        "{\"offset\":3840,\"bytes\":256,\"used\":false,\"freed_at\":9,\"end\":\"upper\"}]}]}\n");
  for (const int left : {0, 3, 40}) {
    Text full;
    full.left = left;
    CHECK(write_bfc_json(full, pool.snapshot()).code == Errc::internal);
  }
  pool.deallocate(a);
  pool.deallocate(c);
}
