// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/host/share_leases.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

using namespace holdfast;
using namespace holdfast::literals;

namespace {
// Counts what is out.
struct Counting {
  static constexpr MemorySpace space = MemorySpace::host;
  struct State {
    std::map<std::byte*, std::unique_ptr<std::byte[]>> out;
    int wrong = 0;
  };
  State* state;
  Result<Block> allocate(Bytes size, Alignment) noexcept {
    auto made = std::make_unique<std::byte[]>(static_cast<std::size_t>(size));
    std::byte* const p = made.get();
    state->out[p] = std::move(made);
    return Block{p, size};
  }
  void deallocate(Block b) noexcept { state->wrong += state->out.erase(b.data) == 1 ? 0 : 1; }
};
static_assert(memory_backend<Counting>);

struct Lender {
  Counting::State state;
  Counting backend{&state};
  ShareLeases<Counting> leases{backend};
  Block block = *backend.allocate(100, Alignment(1));
  bool out() const { return state.out.count(block.data) == 1; }
  ~Lender() { CHECK(state.wrong == 0); }
};
// A process that does something with a lease until it is killed or ends; its own end is closed here.
template <class F>
::pid_t process(OwnedFile lease, F f) {
  const ::pid_t child = ::fork();
  if (child != 0) return child;
  f(std::move(lease));
  ::_exit(0);
}
void reap(::pid_t child) {
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
}
}  // namespace

TEST_CASE("share leases: what nobody has is given back at once; what was lent, when the last importer is done") {
  Lender l;
  l.leases.deallocate(l.block);
  CHECK(!l.out());
  l.block = *l.backend.allocate(200, Alignment(1));
  OwnedFile a = std::move(*l.leases.lend(l.block)), b = std::move(*l.leases.lend(l.block));
  CHECK(l.leases.collect() == 2);
  l.leases.deallocate(l.block);
  CHECK(l.out());
  a = OwnedFile();
  CHECK(l.leases.collect() == 1);
  CHECK(l.out());
  b = OwnedFile();
  CHECK(l.leases.collect() == 0);
  CHECK(!l.out());
}

TEST_CASE("share leases: a lease that ends before its owner is done takes nothing with it") {
  Lender l;
  static_cast<void>(OwnedFile(std::move(*l.leases.lend(l.block))));
  CHECK(l.leases.collect() == 0);
  CHECK(l.out());
  l.leases.deallocate(l.block);
  CHECK(!l.out());
}

TEST_CASE("share leases: MD3 the lease of an importer that is killed ends within a second, and its block is given back") {
  Lender l;
  OwnedFile theirs = std::move(*l.leases.lend(l.block));
  const ::pid_t child = process(OwnedFile(FileNumber{::dup(theirs->number)}), [&](OwnedFile) {
    theirs = OwnedFile();
    for (;;) ::pause();
  });
  theirs = OwnedFile();
  l.leases.deallocate(l.block);
  CHECK(l.leases.wait(Deadline::after(std::chrono::milliseconds(50))).code == Errc::deadline);
  CHECK(l.out());
  const auto start = std::chrono::steady_clock::now();
  ::kill(child, SIGKILL);
  CHECK(l.leases.wait(Deadline::after(std::chrono::seconds(1))).ok());
  const auto took = std::chrono::steady_clock::now() - start;
  CHECK(!l.out());
  MESSAGE("lease freed after ", std::chrono::duration_cast<std::chrono::microseconds>(took).count(), " us");
  reap(child);
}

TEST_CASE("share leases: an importer that writes into its lease, as it should not, keeps it no less and no longer") {
  Lender l;
  OwnedFile theirs = std::move(*l.leases.lend(l.block));
  const char noise[] = "noise";
  REQUIRE(::write(theirs->number, noise, sizeof noise) == sizeof noise);
  CHECK(l.leases.collect() == 1);
  CHECK(l.leases.wait(Deadline::after(std::chrono::milliseconds(30))).code == Errc::deadline);
  theirs = OwnedFile();
  CHECK(l.leases.collect() == 0);
  l.leases.deallocate(l.block);
}

TEST_CASE("share leases: those of lost importers can be ended; the end of the owner waits for others") {
  Lender l;
  const OwnedFile lost = std::move(*l.leases.lend(l.block));
  l.leases.deallocate(l.block);
  CHECK(l.out());
  l.leases.revoke();
  CHECK(!l.out());
  Counting::State state;
  Counting backend{&state};
  const Block block = *backend.allocate(1, Alignment(1));
  ::pid_t child = 0;
  {
    ShareLeases<Counting> leases(backend);
    child = process(std::move(*leases.lend(block)), [](OwnedFile) { ::usleep(30000); });
    leases.deallocate(block);
  }
  CHECK(state.out.empty());
  reap(child);
}

TEST_CASE("share leases: one thread waits while others lend and give back") {
  Lender l;
  OwnedFile first = std::move(*l.leases.lend(l.block));
  std::atomic<bool> done{false};
  std::thread waiter([&] {
    CHECK(l.leases.wait(Deadline::never()).ok());
    done = true;
  });
  for (int i = 0; i < 100; ++i) {
    const OwnedFile more = std::move(*l.leases.lend(l.block));
    CHECK(!done);
    first = std::move(*l.leases.lend(l.block));
  }
  l.leases.deallocate(l.block);
  CHECK(!done);
  first = OwnedFile();
  waiter.join();
  CHECK(!l.out());
}

TEST_CASE("share leases: nothing to lend is refused; a process that has no more files is told so, and everything is as it was") {
  Lender l;
  CHECK(l.leases.lend(Block{}).error().code == Errc::invalid_argument);
  rlimit before{}, none{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  none = before;
  none.rlim_cur = 0;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const Error e = l.leases.lend(l.block).error();
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(e.code == Errc::over_budget);
  CHECK(e.native == EMFILE);
  CHECK(l.leases.collect() == 0);
  l.leases.deallocate(l.block);
  CHECK(!l.out());
}

TEST_CASE("share leases: many blocks lent to many, ended in any order: each is given back once, with the last of its own leases") {
  Counting::State state;
  Counting backend{&state};
  ShareLeases<Counting> leases(backend);
  std::vector<Block> blocks;
  std::vector<std::pair<std::size_t, OwnedFile>> ends;
  for (int i = 0; i < 20; ++i) blocks.push_back(*backend.allocate(8, Alignment(1)));
  for (std::size_t i = 0; i < 60; ++i) ends.emplace_back(i * 7 % 20, std::move(*leases.lend(blocks[i * 7 % 20])));
  for (const Block b : blocks) leases.deallocate(b);
  CHECK(state.out.size() == 20);
  std::uint64_t random = 1;
  while (!ends.empty()) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    const std::size_t at = static_cast<std::size_t>(random >> 33) % ends.size();
    const std::size_t which = ends[at].first;
    ends[at] = std::move(ends.back());
    ends.pop_back();
    CHECK(leases.collect() == ends.size());
    bool lent = false;
    for (const auto& [block, end] : ends) lent = lent || block == which;
    CHECK((state.out.count(blocks[which].data) == 1) == lent);
  }
  CHECK(state.wrong == 0);
}
