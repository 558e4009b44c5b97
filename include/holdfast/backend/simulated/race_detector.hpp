// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "holdfast/backend/simulated/access_map.hpp"
#include "holdfast/backend/simulated/vector_clock.hpp"
#include "holdfast/backend/simulated/watch.hpp"
#include "holdfast/concepts/sink.hpp"

namespace holdfast {

/// What is wrong with a pair of accesses.
enum class RaceKind : std::uint8_t {
  unordered,       ///< at least one writes, and nothing orders them
  freed_in_use,    ///< one releases what the other uses, and nothing orders them
  use_after_free,  ///< the second uses what the first has released
};

/// Two accesses to the same bytes that are wrong together; `first` ran first this time.
struct Race {
  RaceKind kind = RaceKind::unordered;
  AccessSite first, second;
  Block bytes;  ///< from the first to the last byte that both touch, all times together
};

/// Finds accesses that no event orders, whatever order they ran in: a watch with a vector clock for each actor.
///
/// It reports a missing synchronisation whether or not the bytes came out wrong this time. Each pair of names of two actors
/// is one race, however often it comes again; the first `limit` are kept as values.
/// Threads: the caller serialises. Cost: of an access, the ranges it covers; of an order, the actors.
/// Source: Flanagan and Freund, FastTrack (2009), over ranges instead of words, and keeping all unordered accesses.
class RaceDetector {
 public:
  static constexpr bool enabled = true;
  using clock_type = VectorClock;
  static constexpr std::size_t limit = 256;

  RaceDetector() noexcept { static_cast<void>(add_actor("host", 0)); }

  /// The races kept, in the order found.
  [[nodiscard]] std::span<const Race> races() const noexcept { return races_; }
  /// The races found, kept or not; past the limit the same pair counts each time. Units: count.
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  /// Forgets the races, not the accesses.
  void clear() noexcept {
    races_.clear();
    count_ = 0;
  }

  /// Writes one race as one sentence. Errors: the sink's.
  template <sink S>
  Error write_race(S& out, const Race& race) const noexcept {
    constexpr std::string_view kinds[] = {"unordered", "freed in use", "use after free"};
    Error e = write_all(out, kinds[static_cast<std::size_t>(race.kind)], ": ");
    if (e.ok()) e = write_site(out, race.first);
    if (e.ok()) e = out.write(" and ");
    if (e.ok()) e = write_site(out, race.second);
    if (e.ok()) e = out.write(" touch ");
    if (e.ok()) e = write_place(out, race.bytes);
    if (!e.ok()) return e;
    return race.kind == RaceKind::use_after_free ? Error{} : out.write(", and no event orders them");
  }
  /// Writes all races that were kept, a line each. Errors: the sink's.
  template <sink S>
  Error write_races(S& out) const noexcept {
    for (const Race& race : races_) {
      if (Error e = write_race(out, race); !e.ok()) return e;
      if (Error e = out.write("\n"); !e.ok()) return e;
    }
    return {};
  }
  /// The name of an actor, empty if it was given none.
  [[nodiscard]] std::string_view actor_name(ActorId actor) const noexcept { return actors_[index_of(actor)].name; }

  // As a watch.
  ActorId add_actor(std::string_view name, std::uint64_t number) noexcept {
    actors_.push_back(Actor{name, number, {}, {}});
    return static_cast<ActorId>(actors_.size() - 1);
  }
  void name_region(std::string_view name, std::uint64_t number, Block block) noexcept {
    regions_.push_back(Region{name, number, block});
  }
  [[nodiscard]] VectorClock release(ActorId actor) noexcept { return actors_[index_of(actor)].clock; }
  void acquire(ActorId actor, const VectorClock& clock) noexcept { actors_[index_of(actor)].clock.join(clock); }
  void begin(ActorId actor, std::string_view name) noexcept {
    actors_[index_of(actor)].clock.advance(actor);
    actors_[index_of(actor)].operation = name;
  }
  void touch(ActorId actor, const MemoryTouch& t) noexcept {
    const Actor& who = actors_[index_of(actor)];
    const AccessSite site{who.operation, actor, t.touch, who.clock.at(actor)};
    accesses_.visit(t.block, [&](Block bytes, LastAccess& last) noexcept {
      check(bytes, last, site, who.clock);
      note(last, site, who.clock);
    });
  }

 private:
  struct Actor {
    std::string_view name;
    std::uint64_t number;
    VectorClock clock;
    std::string_view operation;
  };
  struct Region {
    std::string_view name;
    std::uint64_t number;
    Block block;
  };

  [[nodiscard]] static bool before(const AccessSite& earlier, const VectorClock& now) noexcept {
    return earlier.number <= now.at(earlier.actor);
  }
  void check(Block bytes, const LastAccess& last, const AccessSite& site, const VectorClock& now) noexcept {
    if (last.freed.exists() && !before(last.freed, now)) {
      report(RaceKind::freed_in_use, last.freed, site, bytes);
    } else if (last.is_free && site.touch != Touch::allocate) {
      report(RaceKind::use_after_free, last.freed, site, bytes);
    }
    const RaceKind kind = site.touch == Touch::free ? RaceKind::freed_in_use : RaceKind::unordered;
    for (const AccessSite& s : last.sites)
      if ((s.touch != Touch::read || site.touch != Touch::read) && !before(s, now)) report(kind, s, site, bytes);
  }
  // What comes after this access comes after all that lie before it, so these need not be kept; only a read does not
  // stand for a write before it. An access that raced is kept: it may race with more than one.
  static void note(LastAccess& last, const AccessSite& site, const VectorClock& now) noexcept {
    if (site.touch == Touch::free) {
      last.sites.clear();
      last.freed = site;
      last.is_free = true;
      return;
    }
    std::erase_if(last.sites, [&](const AccessSite& s) noexcept {
      return (site.touch != Touch::read || s.touch == Touch::read) && before(s, now);
    });
    last.sites.push_back(site);
    if (site.touch == Touch::allocate) last.is_free = false;
  }
  [[nodiscard]] static bool same(const AccessSite& a, const AccessSite& b) noexcept {
    return a.actor == b.actor && a.touch == b.touch && a.operation == b.operation;
  }
  void report(RaceKind kind, const AccessSite& first, const AccessSite& second, Block bytes) noexcept {
    for (Race& known : races_) {
      if (known.kind != kind) continue;
      if (!(same(known.first, first) && same(known.second, second)) && !(same(known.first, second) && same(known.second, first)))
        continue;
      std::byte* const end = std::max(known.bytes.data + known.bytes.size, bytes.data + bytes.size);
      known.bytes.data = std::min(known.bytes.data, bytes.data);
      known.bytes.size = end - known.bytes.data;
      return;
    }
    ++count_;
    if (races_.size() < limit) races_.push_back(Race{kind, first, second, bytes});
  }

  template <sink S, class... Text>
  static Error write_all(S& out, Text... texts) noexcept {
    Error e;
    static_cast<void>(((e = out.write(texts), e.ok()) && ...));
    return e;
  }
  template <sink S>
  static Error write_named(S& out, std::string_view name, std::string_view kind, std::uint64_t number) noexcept {
    if (!name.empty()) return out.write(name);
    if (Error e = write_all(out, kind, " "); !e.ok()) return e;
    return write_number(out, static_cast<std::int64_t>(number));
  }
  template <sink S>
  Error write_site(S& out, const AccessSite& site) const noexcept {
    constexpr std::string_view touches[] = {"read", "write", "allocation", "release"};
    const Actor& actor = actors_[index_of(site.actor)];
    Error e = write_all(out, touches[static_cast<std::size_t>(site.touch)], " by '", site.operation, "' (");
    if (e.ok()) e = write_named(out, actor.name, "stream", actor.number);
    if (e.ok()) e = out.write(" #");
    if (e.ok()) e = write_number(out, static_cast<std::int64_t>(site.number));
    return e.ok() ? out.write(")") : e;
  }
  template <sink S>
  Error write_place(S& out, Block bytes) const noexcept {
    Error e = write_number(out, bytes.size);
    for (const Region& region : regions_) {
      const auto start = reinterpret_cast<std::uintptr_t>(region.block.data);
      const auto at = reinterpret_cast<std::uintptr_t>(bytes.data);
      if (at < start || at - start >= static_cast<std::uintptr_t>(region.block.size)) continue;
      if (e.ok()) e = out.write(" bytes at ");
      if (e.ok()) e = write_number(out, static_cast<std::int64_t>(at - start));
      if (e.ok()) e = out.write(" of ");
      return e.ok() ? write_named(out, region.name, "device", region.number) : e;
    }
    return e.ok() ? out.write(" bytes of the host") : e;
  }

  std::vector<Actor> actors_;
  std::vector<Region> regions_;
  AccessMap accesses_;
  std::vector<Race> races_;
  std::uint64_t count_ = 0;
};
static_assert(order_watch<RaceDetector>);

}  // namespace holdfast
