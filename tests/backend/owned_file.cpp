// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/host/owned_file.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>

#include <utility>

using namespace holdfast;

TEST_CASE("owned file: it is closed when its owner goes, moved or not, and not when it was released") {
  const auto is_open = [](int file) { return ::fcntl(file, F_GETFD) >= 0; };
  const int one = ::open("/dev/null", O_RDONLY | O_CLOEXEC), two = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  REQUIRE(one >= 0);
  REQUIRE(two >= 0);
  {
    OwnedFile a(FileNumber{one});
    OwnedFile b(FileNumber{two});
    CHECK(b.release().number == two);
    b = std::move(a);
    CHECK(a->number == -1);
    CHECK(is_open(one));
  }
  CHECK(!is_open(one));
  CHECK(is_open(two));
  ::close(two);
}
