// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>
#include <new>
#include <string_view>
#include <type_traits>
#include <utility>

#include "holdfast/backend/jit/memory_mapper.hpp"
#include "holdfast/backend/jit/probe.hpp"
#include "holdfast/concepts/lock.hpp"
#include "holdfast/concepts/sink.hpp"
#include "holdfast/core/intrusive_ptr.hpp"

namespace holdfast {

/// Says how the mapper of a region is to be made; the registry gives it the region's name.
using MapperFactory = MapperOptions (*)(std::string_view region) noexcept;

template <jit_system_calls Calls>
class BasicMapperRegistry;

/// A share of a region's mapper; the last one unloads it. Threads: different shares on any threads.
template <jit_system_calls Calls = SystemCalls>
class MapperHandle {
 public:
  using mapper_type = BasicMemoryMapper<Calls>;

  MapperHandle() noexcept = default;

  [[nodiscard]] mapper_type& operator*() const noexcept { return entry_->mapper; }
  [[nodiscard]] mapper_type* operator->() const noexcept { return &entry_->mapper; }
  [[nodiscard]] explicit operator bool() const noexcept { return entry_ != nullptr; }
  friend bool operator==(const MapperHandle&, const MapperHandle&) noexcept = default;

 private:
  friend class BasicMapperRegistry<Calls>;
  struct Entry {
    mapper_type mapper;
    BasicMapperRegistry<Calls>* registry;
    MappingName region;
    std::atomic<std::uint32_t> shares{1};
    Entry* next = nullptr;
    void retain() noexcept { shares.fetch_add(1, std::memory_order_relaxed); }
    void drop() noexcept { registry->drop(this); }
  };
  explicit MapperHandle(Entry* entry) noexcept : entry_(entry) {}
  IntrusivePtr<Entry> entry_;
};

/// The mappers of a process by the name of their region: the same name is the same mapper for as long as somebody has it.
///
/// Two regions whose first 249 bytes of name are equal are one. Outlives its handles. Threads: any; the factory is read and
/// replaced without a lock. Source: XLA's registry of JIT mappers.
template <jit_system_calls Calls = SystemCalls>
class BasicMapperRegistry {
 public:
  using handle_type = MapperHandle<Calls>;

  constexpr BasicMapperRegistry() noexcept = default;
  BasicMapperRegistry(const BasicMapperRegistry&) = delete;
  BasicMapperRegistry& operator=(const BasicMapperRegistry&) = delete;

  /// Says how mappers are made from now on, and gives the factory that did so far; null stands for the default options.
  MapperFactory set_factory(MapperFactory next) noexcept { return factory_.exchange(next, std::memory_order_acq_rel); }
  [[nodiscard]] MapperFactory factory() const noexcept { return factory_.load(std::memory_order_acquire); }

  /// Gives the mapper of a region, which is made for the first who asks. Errors: `make_mapper`'s; out_of_memory.
  template <sink S = NullSink>
  [[nodiscard]] Result<handle_type> mapper(std::string_view region, S&& diagnosis = {}) noexcept {
    const MappingName name = MappingName::make(region, "");
    LockGuard<WordLock> guard(lock_);
    for (Entry* e = first_; e != nullptr; e = e->next)
      if (e->region.view() == name.view()) {
        e->retain();
        return handle_type(e);
      }
    const MapperFactory make = factory();
    MapperOptions options = make != nullptr ? make(region) : MapperOptions{};
    options.program = region;
    Result<BasicMemoryMapper<Calls>> made = make_mapper<Calls>(options, diagnosis);
    if (!made.ok()) return made.error();
    auto* entry = new (std::nothrow) Entry{std::move(*made), this, name};
    if (entry == nullptr) return make_error(Errc::out_of_memory, "Out of memory allocating");
    entry->next = std::exchange(first_, entry);
    return handle_type(entry);
  }

  /// Shows each loaded region: its mapper and the number of its shares.
  template <class Visitor>
  void visit(Visitor visitor) noexcept {
    LockGuard<WordLock> guard(lock_);
    for (auto* e = first_; e != nullptr; e = e->next) visitor(std::as_const(e->mapper), e->shares.load(std::memory_order_relaxed));
  }

  /// Writes a line for each region that still holds memory: name, bytes, blocks, and seconds since it last held nothing.
  template <sink S>
  Error write_leaks(S& out) noexcept {
    Error failure;
    const auto put = [&](auto text_or_number) {
      if (!failure.ok()) return;
      if constexpr (std::is_integral_v<decltype(text_or_number)>) failure = write_number(out, text_or_number);
      else failure = out.write(text_or_number);
    };
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    visit([&](const BasicMemoryMapper<Calls>& mapper, std::uint32_t) {
      const MapperStatistics s = mapper.statistics();
      if (s.blocks == 0) return;
      put(mapper.name().view()), put(std::string_view(": ")), put(s.live), put(std::string_view(" bytes in ")), put(s.blocks);
      put(std::string_view(" blocks, ")), put(now.tv_sec + 1 - s.held_since), put(std::string_view(" s\n"));
    });
    return failure;
  }

 private:
  friend class MapperHandle<Calls>;
  using Entry = typename handle_type::Entry;

  // Only under the lock does a count come down to nothing or up from the list, so an entry that is found is alive.
  void drop(Entry* entry) noexcept {
    std::uint32_t shares = entry->shares.load(std::memory_order_relaxed);
    while (shares > 1)
      if (entry->shares.compare_exchange_weak(shares, shares - 1, std::memory_order_acq_rel, std::memory_order_relaxed)) return;
    LockGuard<WordLock> guard(lock_);
    if (entry->shares.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    Entry** at = &first_;
    while (*at != entry) at = &(*at)->next;
    *at = entry->next;
    delete entry;
  }

  std::atomic<MapperFactory> factory_{nullptr};
  WordLock lock_;
  Entry* first_ = nullptr;
};

/// The registry of this system's mappers.
using MapperRegistry = BasicMapperRegistry<>;

/// The process's registry.
[[nodiscard]] inline MapperRegistry& mapper_registry() noexcept {
  static constinit MapperRegistry registry;
  return registry;
}

}  // namespace holdfast
