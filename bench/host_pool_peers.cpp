// SPDX-License-Identifier: Apache-2.0
// One host allocator, named by the first argument, over the rows of bench/host_pool_peers.sh: `row nanoseconds` a line, the least of
// many short runs, CPU time. `malloc` is what is preloaded. With a second argument `peak`: `row ratio`, the peak of resident bytes
// over the peak of live bytes when every page of every block is touched; with `touched`: the replays when that is so. The third is an event list for the row replay_resnet50, the
// fourth what the names of the rows to run begin with.
// Every allocator is called through one virtual function.
#include <oneapi/tbb/scalable_allocator.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <memory_resource>
#include <random>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include <boost/pool/pool.hpp>

#include "holdfast/backend/host/host_pool.hpp"

namespace {

struct Allocator {
  virtual void* get(std::size_t size) = 0;
  virtual void put(void* p, std::size_t size) = 0;
  virtual ~Allocator() = default;
};
struct Malloc final : Allocator {
  void* get(std::size_t size) override { return std::malloc(size); }
  void put(void* p, std::size_t) override { std::free(p); }
};
struct Tbb final : Allocator {
  void* get(std::size_t size) override { return scalable_malloc(size); }
  void put(void* p, std::size_t) override { scalable_free(p); }
};
template <class Resource>
struct Pmr final : Allocator {
  Resource resource;
  template <class... Args>
  explicit Pmr(Args&&... args) : resource(args...) {}
  void* get(std::size_t size) override { return resource.allocate(size, 64); }
  void put(void* p, std::size_t size) override { resource.deallocate(p, size, 64); }
};
struct BoostPool final : Allocator {  // one pool for each exact size, the last one found kept at hand
  std::map<std::size_t, std::unique_ptr<boost::pool<>>> pools;
  std::size_t last = 0;
  boost::pool<>* at = nullptr;
  boost::pool<>* find(std::size_t size) {
    if (size == last) return at;
    auto& q = pools[size];
    if (!q) q = std::make_unique<boost::pool<>>(size, size > (1 << 20) ? 1 : 32, size > (1 << 20) ? 4 : 0);
    last = size;
    return at = q.get();
  }
  void* get(std::size_t size) override { return find(size)->malloc(); }
  void put(void* p, std::size_t size) override { find(size)->free(p); }
};
struct Pool final : Allocator {
  holdfast::HostHeap heap;
  holdfast::HostPool pool = heap.pool();
  explicit Pool(double idle_share) : heap(std::move(*holdfast::HostHeap::make({.idle_share = idle_share}))) {}
  void* get(std::size_t size) override {
    const auto block = pool.allocate(static_cast<holdfast::Bytes>(size), holdfast::Alignment(64));
    return block.ok() ? block->data : nullptr;
  }
  void put(void* p, std::size_t size) override { pool.deallocate({static_cast<std::byte*>(p), static_cast<holdfast::Bytes>(size)}); }
};

std::string name;
std::string rows;
bool asked(const std::string& row) { return row.starts_with(rows); }
std::unique_ptr<Allocator> make() {
  namespace pmr = std::pmr;
  if (name == "HostPool") return std::make_unique<Pool>(holdfast::HostPoolOptions{}.idle_share);
  if (name == "HostPool 25%") return std::make_unique<Pool>(0.25);
  if (name == "TBB") return std::make_unique<Tbb>();
  if (name == "boost::pool") return std::make_unique<BoostPool>();
  if (name == "pmr sync") return std::make_unique<Pmr<pmr::synchronized_pool_resource>>();
  if (name == "pmr unsync") return std::make_unique<Pmr<pmr::unsynchronized_pool_resource>>();
  if (name == "pmr unsync 64M")
    return std::make_unique<Pmr<pmr::unsynchronized_pool_resource>>(pmr::pool_options{64, std::size_t{64} << 20});
  return std::make_unique<Malloc>();
}

// CPU nanoseconds of this thread: others on the machine only show in the caches.
double clock_ns() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}
template <class T>
void keep(T& value) {
  asm volatile("" : "+r"(value) : : "memory");
}

// The least time of `body`, which does `items` items, over runs of about 0.2 ms within about 10 ms, at least three.
template <class Body>
double least(double items, Body body) {
  double start = clock_ns();
  body();
  double once = clock_ns() - start;
  start = clock_ns();
  body();
  once = std::min(once, clock_ns() - start);
  const int times = once > 2e5 ? 1 : static_cast<int>(2e5 / (once + 1)) + 1;
  double best = 1e18;
  const double begin = clock_ns();
  for (int n = 0; n < 3 || clock_ns() - begin < 1e7; ++n) {
    start = clock_ns();
    for (int i = 0; i < times; ++i) body();
    best = std::min(best, (clock_ns() - start) / times);
  }
  return best / items;
}

struct Event {
  std::uint32_t id;
  bool take;
  std::size_t size;
};
// About 200 blocks alive of 24 sizes between `low` and `high`, evenly by logarithm; two frees of three among the 8 newest.
std::vector<Event> synthetic(std::uint32_t n, double low, double high) {
  std::mt19937_64 random(7);
  std::vector<std::size_t> classes, size;
  for (int i = 0; i < 24; ++i)
    classes.push_back(static_cast<std::size_t>(std::exp(std::log(low) + std::log(high / low) * std::uniform_real_distribution<>(0, 1)(random))));
  std::vector<Event> events;
  std::vector<std::uint32_t> alive;
  for (std::uint32_t i = 0; i < n; ++i) {
    if (alive.size() >= 200) {
      const std::size_t k = random() % 3 != 0 ? alive.size() - 1 - random() % 8 : random() % alive.size();
      events.push_back({alive[k], false, size[alive[k]]});
      alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(k));
    }
    size.push_back(classes[random() % 24]);
    events.push_back({i, true, size[i]});
    alive.push_back(i);
  }
  for (const std::uint32_t i : alive) events.push_back({i, false, size[i]});
  return events;
}
std::vector<Event> recorded(const char* path) {
  std::vector<Event> events;
  std::FILE* f = path != nullptr ? std::fopen(path, "r") : nullptr;
  char line[128], op = 0;
  unsigned id = 0;
  std::size_t size = 0;
  while (f != nullptr && std::fgets(line, sizeof line, f) != nullptr)
    if (std::sscanf(line, "%c,%u,%zu", &op, &id, &size) == 3) events.push_back({id, op == 'a', size});
  if (f != nullptr) std::fclose(f);
  return events;
}

struct Trace {
  const char* row;
  std::vector<Event> events;
};
template <class Use>
void play(Allocator& a, const std::vector<Event>& events, std::vector<void*>& p, Use use) {
  for (const Event& e : events) {
    if (e.take) {
      p[e.id] = a.get(e.size);
      use(p[e.id], e.size);
    } else {
      a.put(p[e.id], e.size);
    }
  }
}

void row(const char* kind, std::size_t size, double (*measure)(std::size_t)) {
  const std::string title = std::string(kind) + "_" + std::to_string(size);
  if (!asked(title)) return;
  std::printf("%s %.3f\n", title.c_str(), measure(size));
  std::fflush(stdout);
}

double pair(std::size_t size) {
  const auto a = make();
  return least(16, [&] {
    for (int i = 0; i < 16; ++i) {
      void* p = a->get(size);
      keep(p);
      a->put(p, size);
    }
  });
}
double lifo(std::size_t size) {
  const auto a = make();
  void* p[16];
  return least(16, [&] {
    for (void*& x : p) {
      x = a->get(size);
      keep(x);
    }
    for (int i = 15; i >= 0; --i) a->put(p[i], size);
  });
}
double touch(std::size_t size) {  // the first byte of every page, of a block that was used before; a page
  const auto a = make();
  return least(static_cast<double>(size / 4096), [&] {
    auto* p = static_cast<char*>(a->get(size));
    for (std::size_t i = 0; i < size; i += 4096) *const_cast<volatile char*>(p + i) = 1;
    a->put(p, size);
  });
}
double remote(std::size_t size) {  // a batch made on one thread is freed on another; CPU time of both
  const std::size_t n = size > (1 << 20) ? 32 : 256;
  const auto a = make();
  std::vector<void*> p(n);
  std::binary_semaphore go(0), done(0);
  bool stop = false;
  double freed = 0;
  std::thread other([&] {
    for (;;) {
      go.acquire();
      if (stop) return;
      const double begin = clock_ns();
      for (void* x : p) a->put(x, size);
      freed = clock_ns() - begin;
      done.release();
    }
  });
  double best = 1e18;
  const double until = clock_ns() + 1e7;
  for (int i = 0; i < 30 || (i < 2000 && clock_ns() < until); ++i) {
    const double begin = clock_ns();
    for (void*& x : p) {
      x = a->get(size);
      keep(x);
    }
    const double taken = clock_ns() - begin;
    go.release();
    done.acquire();
    best = std::min(best, taken + freed);
  }
  stop = true;
  go.release();
  other.join();
  return best / static_cast<double>(n);
}

double resident() {
  long pages = 0, all = 0;
  std::FILE* f = std::fopen("/proc/self/statm", "r");
  if (f == nullptr || std::fscanf(f, "%ld %ld", &all, &pages) != 2) std::abort();
  std::fclose(f);
  return static_cast<double>(pages) * 4096;
}
// Two passes, so that what the first one leaves behind counts; resident bytes are read while they can be at their highest.
void peak(const Trace& t) {
  std::vector<void*> p(t.events.size());
  const auto a = make();
  void* warm = a->get(64);
  a->put(warm, 64);
  const double before = resident();
  double most = 0, live = 0, most_live = 0;
  for (int pass = 0; pass < 2; ++pass)
    for (const Event& e : t.events) {
      if (!e.take) {
        a->put(p[e.id], e.size);
        live -= static_cast<double>(e.size);
        continue;
      }
      p[e.id] = a->get(e.size);
      for (std::size_t i = 0; i < e.size; i += 4096) *(static_cast<char*>(p[e.id]) + i) = 1;
      live += static_cast<double>(e.size);
      most_live = std::max(most_live, live);
      if (live > 0.8 * most_live) most = std::max(most, resident() - before);
    }
  std::printf("%s %.3f\n", t.row, most / most_live);
}

}  // namespace

int main(int count, char** arguments) {
  name = count > 1 ? arguments[1] : "malloc";
  rows = count > 4 ? arguments[4] : "";
  const bool boost_pool = name == "boost::pool", one_thread = name.find("unsync") != std::string::npos;
  const Trace traces[] = {{"replay_small", synthetic(8000, 64, 4096)},
                          {"replay_mixed", synthetic(8000, 64, 1 << 20)},
                          {"replay_large", synthetic(4000, 65536, 16 << 20)},
                          {"replay_resnet50", recorded(count > 3 ? arguments[3] : nullptr)}};
  const bool peaks = count > 2 && std::strcmp(arguments[2], "peak") == 0, touched = count > 2 && std::strcmp(arguments[2], "touched") == 0;
  for (const Trace& t : traces) {
    if (t.events.empty() || !asked(t.row) || (boost_pool && &t >= traces + 2)) continue;  // a pool for each exact size takes too much there
    if (peaks) {
      if (fork() == 0) {  // what one trace leaves would serve the next
        peak(t);
        std::fflush(stdout);
        _exit(0);
      }
      wait(nullptr);
      continue;
    }
    const auto a = make();
    std::vector<void*> p(t.events.size());
    const double ns = least(static_cast<double>(t.events.size()) / 2, [&] {
      play(*a, t.events, p, [&](void*& x, std::size_t size) {
        keep(x);
        if (touched)
          for (std::size_t i = 0; i < size; i += 4096) *(static_cast<volatile char*>(x) + i) = 1;
      });
    });
    std::printf("%s %.3f\n", t.row, ns);
  }
  if (peaks || touched) return 0;
  for (std::size_t size = 64; size <= 64 << 20; size *= 4) row("pair", size, pair);
  for (const std::size_t size : {64, 4096, 65536, 1 << 20, 16 << 20})
    if (!(boost_pool && size > (1 << 20))) row("lifo16", size, lifo);
  for (const std::size_t size : {65536, 1 << 20, 16 << 20, 64 << 20}) row("touch", size, touch);
  if (!boost_pool && !one_thread)
    for (const std::size_t size : {64, 4096, 65536, 1 << 20, 16 << 20}) row("remote", size, remote);
}
