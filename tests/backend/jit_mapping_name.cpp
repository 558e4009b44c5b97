// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/jit/mapping_name.hpp"

#include <doctest/doctest.h>

#include <string>

#include "holdfast/backend/jit/memory_mapper.hpp"
#include "support/jit.hpp"

using namespace holdfast;
using namespace holdfast::testing;

TEST_CASE("mapping_name: program and id, in printable ASCII") {
  static_assert(MappingName::make("fusion", "12").view() == "jit:fusion:12");
  CHECK(MappingName::make("fusion", "").view() == "jit:fusion");
  CHECK(MappingName::make("a b/c\n\xC3\xA9", "1").view() == "jit:a_b_c___:1");
  CHECK(MappingName::make("x[1]`$\\", "2").anonymous().view() == "jit:x_1____:2");
  CHECK(std::string(MappingName::make("", "").c_str()) == "jit:");
}

TEST_CASE("mapping_name: 300 bytes become 249 that the kernel takes, and the id stays (JM2)") {
  for (std::size_t length = 200; length <= 320; ++length)
    for (const std::string id : {"7", "unique-id-0123456789"}) {
      const std::string program(length, 'p');
      const MappingName name = MappingName::make(program, id);
      const std::size_t whole = 4 + length + 1 + id.size();
      CHECK(name.view().size() == std::min<std::size_t>(whole, 249));
      CHECK(name.view().starts_with("jit:p"));
      CHECK(name.view().ends_with(":" + id));
      CHECK((name.view().find("..") != std::string_view::npos) == (whole > 249));
      CHECK(name.anonymous().view().size() == 79);
      CHECK(name.anonymous().view().ends_with(id));
    }
  CHECK(MappingName::make("p", std::string(300, 'i')).view().size() == 249);
  call_log = {};
  BasicMemoryMapper<FaultyCalls> mapper({MapMode::dual_memfd, CodeFile::memfd}, MappingName::make(std::string(300, 'q'), "id42"));
  Result<CodeBlock> block = mapper.reserve(1);
  REQUIRE(block.ok());
  CHECK(mapper.commit(*block).ok());
  CHECK(name_at(block->run) == "/memfd:" + std::string(mapper.name().view()) + " (deleted)");
  mapper.release(*block);
}
