// SPDX-License-Identifier: Apache-2.0
#include "holdfast/core/intrusive_ptr.hpp"

#include <doctest/doctest.h>

#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

using namespace holdfast;

namespace {

struct Object : RefCounted<Object> {
  explicit Object(int& g) : gone(g) {}
  ~Object() { ++gone; }
  int& gone;
};
using Ptr = IntrusivePtr<Object>;
static_assert(sizeof(Ptr) == sizeof(void*) && std::is_nothrow_copy_assignable_v<Ptr> && !std::is_convertible_v<Object*, Ptr>);

}  // namespace

TEST_CASE("intrusive_ptr: the last of its owners deletes the object, copies and moves keep count") {
  int gone = 0;
  {
    Ptr a(new Object(gone));
    Ptr b = a, c, d;
    CHECK(c == nullptr);
    c = b;
    d = std::move(b);
    CHECK(b == nullptr);
    CHECK(d == a);
    CHECK(d.get() == &*a);
    a = Ptr();
    c = std::move(c);
    const Ptr& same = c;
    c = same;
    CHECK(gone == 0);
    c = Ptr(new Object(gone));
    CHECK(gone == 0);
    CHECK(c != d);
    d = c;
    CHECK(gone == 1);
  }
  CHECK(gone == 2);
}

TEST_CASE("intrusive_ptr: the first owner counts others in, alone or not") {
  int gone = 0;
  Ptr first(new Object(gone));
  first->retain_by_first();
  Ptr second(first.get());
  first->retain_by_first();
  Ptr third(first.get());
  first = Ptr();
  second = Ptr();
  CHECK(gone == 0);
  third = Ptr();
  CHECK(gone == 1);
}

TEST_CASE("intrusive_ptr: threads that share an object delete it once") {
  int gone = 0;
  {
    Ptr shared(new Object(gone));
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([own = shared]() mutable {
        for (int i = 0; i < 1000; ++i) {
          const Ptr copy = own;
          own = copy;
        }
      });
    shared = Ptr();
    for (std::thread& t : threads) t.join();
  }
  CHECK(gone == 1);
}
