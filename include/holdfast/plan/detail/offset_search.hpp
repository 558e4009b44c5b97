// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "holdfast/core/units.hpp"
#include "holdfast/plan/detail/offset_problem.hpp"
#include "holdfast/plan/stop.hpp"

namespace holdfast::detail {

/// How a search for a plan within a capacity ended.
enum class SearchEnd : std::uint8_t { found, impossible, gave_up };

/// A backtracking search for offsets within a capacity, over independent stretches of time.
///
/// Time is cut into sections, one for each largest set of ranges alive together. The floor of a section is the lowest level that
/// what is unplaced could reach there. A maximal stretch of equal floors between higher ones is a valley: pushed down as far as
/// they go, the remaining groups leave something on any section of a valley's floor, or waste a known height there, which the
/// section's slack must allow. A branch places one group or takes the waste; what no longer overlaps is searched apart, and
/// sets of groups over floors that were found dead are remembered.
/// Threads: a value. Cost: exponential in the worst case, bounded by nodes; a node costs O(groups and sections of its stretch).
class OffsetSearch {
 public:
  /// The most ranges of one stretch of time that it serves: memory grows with the square.
  static constexpr std::size_t most_ranges = 8192;

  [[nodiscard]] static constexpr bool serves(const OffsetInput& in) noexcept {
    std::size_t count = 0;
    std::int64_t reach = 0;
    for (const std::uint32_t r : in.by_begin) {
      count = count == 0 || in.ranges[r].begin >= reach ? 1 : count + 1;
      reach = count == 1 ? in.ranges[r].end : std::max(reach, in.ranges[r].end);
      if (count > most_ranges) return false;
    }
    return true;
  }

  constexpr explicit OffsetSearch(const OffsetInput& in) : in_(in) {
    make_units();
    section_count_ = make_sections(in, left_, right_);
    make_groups();
  }

  /// The largest peak up to `capacity` that pushed-down offsets can have.
  [[nodiscard]] constexpr Bytes round_down(Bytes capacity) const noexcept {
    return any_loss_ ? capacity : capacity - capacity % unit_;
  }
  /// The least peak from `bound` on that pushed-down offsets can have.
  [[nodiscard]] constexpr Bytes round_up(Bytes bound) const noexcept {
    return any_loss_ ? bound : align_up(bound, unit_);
  }
  /// What it takes to place everything once without a wrong choice.
  [[nodiscard]] constexpr std::int64_t descent() const noexcept { return descent(groups_.size()); }

  /// Looks for offsets whose highest end is at most `capacity`; on success they are in `offsets`.
  ///
  /// Restarts with another order of choices until `nodes` are used up or `stop` says so; `round` is the number of restarts
  /// made for this capacity and goes on from there. Units: `nodes` counts branches, those of long stretches several times,
  /// and is lowered by those used.
  template <class Stop>
  constexpr SearchEnd run(Bytes capacity, std::int64_t& nodes, unsigned& round, const Stop& stop, std::span<Bytes> offsets) {
    if (capacity != capacity_) {
      set_capacity(capacity);
      std::size_t slots = 64;
      while (slots < 8 * groups_.size() && slots < most_dead) slots *= 2;
      dead_.assign(slots, Key{});
      buried_ = 0;
    }
    used_nodes_ = 0;
    const unsigned first_round = round;
    std::vector<std::uint32_t> all(groups_.size(), 0);
    std::iota(all.begin(), all.end(), 0u);
    // What never overlaps is searched one stretch after the other, each with its own restarts.
    std::size_t from = 0;
    while (from < all.size()) {
      std::size_t to = from;
      std::uint32_t reach = 0;
      do reach = std::max(reach, groups_[to++].right);
      while (to < all.size() && groups_[to].left < reach);
      SearchEnd end = SearchEnd::gave_up;
      double budget = 4.0 * static_cast<double>(descent(to - from));
      for (unsigned r = rule_count; r <= first_round && budget < 1e15; r += rule_count) budget *= 1.3;
      for (round = first_round; end == SearchEnd::gave_up; ++round) {
        if (nodes <= 0 || stop()) return SearchEnd::gave_up;
        reset(from, to);
        make_keys(round);
        std::int64_t allowed = std::min(nodes, static_cast<std::int64_t>(budget));
        const std::int64_t before = allowed;
        end = search(std::span(all).subspan(from, to - from), allowed, stop);
        nodes -= before - allowed;
        if (round % rule_count == rule_count - 1) budget *= 1.3;
      }
      if (end == SearchEnd::impossible) return end;
      from = to;
    }
    for (const Group& g : groups_) {
      const Bytes level = mirrored_ ? limit_ - g.level - g.size : g.level;
      offsets[g.id] = level * unit_;
    }
    return SearchEnd::found;
  }

 private:
  using Level = std::int64_t;  // in units
  static constexpr std::int64_t stop_every = 64;
  static constexpr unsigned rule_count = 4;
  static constexpr std::uint32_t skip = 0xFFFFFFFFu;
  static constexpr std::size_t most_dead = 1u << 20;
  static constexpr Level never = max_bytes / 4;

  struct Part {
    std::uint32_t left;
    std::uint32_t right;
    Level size;
  };
  struct Group {
    std::uint32_t id = 0;
    std::uint32_t left = 0;   // first section of any part
    std::uint32_t right = 0;  // past the last one
    std::uint32_t first_part = 0;
    std::uint32_t part_count = 0;
    bool fixed = false;
    Level size = 0;   // of the largest part
    Level least = 0;  // of the smallest part
    Level alignment = 1;
    Level release = 0;  // no level below
    Level highest = 0;  // no level above
    Bytes bytes = 0;    // the largest part, not rounded
    Level level = 0;    // where it is placed
  };
  struct Item {
    std::uint32_t group;
    Level floor;  // the lowest level that it could have now
  };
  struct Undo {
    std::uint32_t section;
    Level floor;
    Level rest;
  };
  struct Key {
    std::uint64_t a = 0;
    std::uint64_t b = 0;
    friend constexpr bool operator==(const Key&, const Key&) noexcept = default;
  };
  struct Stretch {
    std::size_t begin;
    std::size_t end;
  };
  struct Change {
    std::uint32_t left = 0;
    std::uint32_t right = 0;
    Level top = 0;
    bool exact = false;  // one part: floors of what overlaps rise to `top` at least
  };
  struct Frame {
    Stretch items{};
    std::size_t items_end = 0;    // where the items of its choices begin
    std::size_t choices = 0;      // choices_[choices .. choices_end)
    std::size_t choices_end = 0;
    std::size_t next_choice = 0;
    std::size_t children = 0;     // stretches_[children .. children_end)
    std::size_t children_end = 0;
    std::size_t next_child = 0;
    std::size_t entered = 0;      // what was changed before it
    std::size_t raised = 0;       // and before its choice
    std::uint32_t section = 0;
    Level level = 0;
    Level waste = 0;
    Key key{};
    Change change{};
  };

  // A branch looks at every group of its stretch.
  [[nodiscard]] static constexpr std::int64_t cost(std::size_t groups) noexcept {
    return 1 + static_cast<std::int64_t>(groups / 128);
  }
  [[nodiscard]] static constexpr std::int64_t descent(std::size_t groups) noexcept {
    return (static_cast<std::int64_t>(groups) + 4) * cost(groups / 2);
  }

  constexpr void make_units() {
    Bytes rough = 0;
    for (const Bytes a : in_.alignment) rough = std::gcd(rough, a);
    if (rough == 0) rough = 1;
    Bytes unit = 0;
    for (const std::uint32_t r : in_.member) unit = std::gcd(unit, align_up(in_.ranges[r].size, rough));
    for (const Bytes f : in_.fixed)
      if (f > 0) unit = std::gcd(unit, f);
    if (unit == 0) unit = 1;
    // An alignment that the unit keeps anyway is none; one that it does not keep makes the unit smaller.
    for (const Bytes a : in_.alignment)
      if (a > 0 && unit % a != 0) unit = std::gcd(unit, a);
    unit_ = unit;
  }

  constexpr void make_groups() {
    bool aligned = true;
    bool same_sizes = true;
    for (std::uint32_t id = 0; id < in_.group_count(); ++id) {
      const std::span<const std::uint32_t> members = in_.members(id);
      if (members.empty()) continue;
      Group g;
      g.id = id;
      g.left = left_[members.front()];
      g.right = right_[members.back()];
      g.first_part = static_cast<std::uint32_t>(parts_.size());
      g.least = never;
      for (const std::uint32_t r : members) {
        const Level size = (in_.ranges[r].size - 1) / unit_ + 1;
        g.size = std::max(g.size, size);
        g.least = std::min(g.least, size);
        g.bytes = std::max(g.bytes, in_.ranges[r].size);
        any_loss_ = any_loss_ || size * unit_ != in_.ranges[r].size;
        if (g.part_count > 0 && parts_.back().right == left_[r] && parts_.back().size == size) {
          parts_.back().right = right_[r];
        } else {
          parts_.push_back({left_[r], right_[r], size});
          ++g.part_count;
        }
      }
      g.alignment = unit_ % in_.alignment[id] == 0 ? 1 : in_.alignment[id] / unit_;
      g.fixed = in_.is_fixed(id);
      if (g.fixed) g.release = in_.fixed[id] / unit_;
      aligned = aligned && g.alignment == 1;
      same_sizes = same_sizes && g.size == g.least;
      ordered_ = ordered_ || g.part_count > 1 || g.fixed;
      groups_.push_back(g);
    }
    // Upside down the topmost block, which alone keeps its unrounded size, is the first to be placed.
    mirrored_ = aligned && same_sizes && !in_.any_fixed;
    std::sort(groups_.begin(), groups_.end(), [](const Group& a, const Group& b) {
      return a.left != b.left ? a.left < b.left : a.id < b.id;
    });
    if (in_.any_fixed)
      for (std::uint32_t i = 0; i < groups_.size(); ++i)
        if (groups_[i].fixed) fixed_.push_back(i);
    load_.assign(section_count_, 0);
    for (const Part& p : parts_)
      for (std::uint32_t s = p.left; s < p.right; ++s) load_[s] += p.size;
    keys_.assign(groups_.size(), 0);
    most_.assign(groups_.size(), 0);
    for (std::uint32_t i = 0; i < groups_.size(); ++i)
      for (const Part& p : parts(groups_[i]))
        for (std::uint32_t s = p.left; s < p.right; ++s) most_[i] = std::max(most_[i], load_[s]);
    floor_.assign(section_count_, 0);
    rest_.assign(section_count_, 0);
    lowest_.assign(section_count_, 0);
    count_.assign(static_cast<std::size_t>(section_count_) + 1, 0);
    valley_.assign(section_count_, 0);
    least_.assign(section_count_, 0);
  }

  constexpr void set_capacity(Bytes capacity) {
    capacity_ = capacity;
    limit_ = capacity / unit_ + (capacity % unit_ != 0 ? 1 : 0);
    for (Group& g : groups_) {
      g.highest = g.bytes <= capacity ? (capacity - g.bytes) / unit_ : -1;
      if (!mirrored_) continue;
      g.release = limit_ - g.size - g.highest;
      g.highest = limit_ - g.size;
    }
  }

  constexpr void reset(std::size_t from, std::size_t to) {
    items_.clear();
    choices_.clear();
    stretches_.clear();
    undo_.clear();
    frames_.clear();
    for (std::size_t i = from; i < to; ++i)
      for (std::uint32_t s = groups_[i].left; s < groups_[i].right; ++s) {
        floor_[s] = 0;
        rest_[s] = load_[s];
      }
  }

  [[nodiscard]] constexpr std::uint64_t random() noexcept {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return random_;
  }

  // Which group a branch tries first: four rules in turn, blurred more and more differently after the first four rounds.
  constexpr void make_keys(unsigned round) {
    random_ = 88172645463325252ull + round;
    fill_first_ = round % rule_count == 0;
    Level largest = 1;
    for (const Group& g : groups_) largest = std::max(largest, g.size);
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      const double width = groups_[i].right - groups_[i].left;
      const double size = static_cast<double>(groups_[i].size);
      double key = 0;
      switch (round % rule_count) {
        case 0: key = width * size; break;
        case 1: key = width + size / static_cast<double>(largest + 1); break;
        case 2: key = size + width / (section_count_ + 1.0); break;
        default: key = static_cast<double>(most_[i]) * (section_count_ + 1.0) + width; break;
      }
      if (round >= rule_count) key *= 0.4 + 2.3 * static_cast<double>(random() >> 40) / 16777216.0;
      keys_[i] = key;
    }
  }

  [[nodiscard]] constexpr std::span<const Part> parts(const Group& g) const noexcept {
    return {parts_.data() + g.first_part, g.part_count};
  }
  [[nodiscard]] constexpr bool overlaps(const Group& a, std::uint32_t left, std::uint32_t right) const noexcept {
    return a.left < right && left < a.right;
  }

  // The lowest level from `base` on that a group could have, given its alignment and the fixed groups.
  [[nodiscard]] constexpr Level settle(std::uint32_t index, Level base) const noexcept {
    const Group& g = groups_[index];
    Level level = std::max(base, g.release);
    if (g.fixed) return level == g.release ? level : never;
    if (g.alignment != 1) level = align_up(level, g.alignment);
    for (bool moved = !fixed_.empty(); moved;) {
      moved = false;
      for (const std::uint32_t f : fixed_)
        for (const Part& p : parts(groups_[f]))
          for (const Part& q : parts(g))
            if (p.left < q.right && q.left < p.right && groups_[f].release < level + q.size &&
                level < groups_[f].release + p.size) {
              level = align_up(groups_[f].release + p.size, g.alignment);
              moved = true;
            }
    }
    return level;
  }

  [[nodiscard]] constexpr Level highest_floor(const Group& g) const noexcept {
    Level most = 0;
    for (const Part& p : parts(g))
      for (std::uint32_t s = p.left; s < p.right; ++s) most = std::max(most, floor_[s]);
    return most;
  }

  constexpr void set_floor(std::uint32_t s, Level floor, Level rest) {
    undo_.push_back({s, floor_[s], rest_[s]});
    floor_[s] = floor;
    rest_[s] = rest;
  }
  constexpr void undo_to(std::size_t mark) {
    while (undo_.size() > mark) {
      floor_[undo_.back().section] = undo_.back().floor;
      rest_[undo_.back().section] = undo_.back().rest;
      undo_.pop_back();
    }
  }

  // Brings the floors of a stretch up to date after a change; false when something no longer fits.
  constexpr bool update(Stretch stretch, const Change& change) {
    std::uint32_t from = section_count_;
    std::uint32_t to = 0;
    std::uint32_t first = section_count_;
    std::uint32_t last = 0;
    for (std::size_t i = stretch.begin; i < stretch.end; ++i) {
      Item& item = items_[i];
      const Group& g = groups_[item.group];
      first = std::min(first, g.left);
      last = std::max(last, g.right);
      if (!overlaps(g, change.left, change.right)) continue;
      const bool simple = change.exact && g.part_count == 1;
      const Level floor = settle(item.group, std::max(item.floor, simple ? change.top : highest_floor(g)));
      if (floor == item.floor) continue;
      item.floor = floor;
      if (floor > g.highest) return false;
      from = std::min(from, g.left);
      to = std::max(to, g.right);
    }
    from = std::min(from, std::max(first, change.left));
    to = std::max(to, std::min(last, change.right));
    for (std::uint32_t s = from; s < to; ++s) lowest_[s] = never;
    for (std::size_t i = stretch.begin; i < stretch.end; ++i) {
      const Item& item = items_[i];
      if (!overlaps(groups_[item.group], from, to)) continue;
      for (const Part& p : parts(groups_[item.group])) {
        const std::uint32_t end = std::min(p.right, to);
        for (std::uint32_t s = std::max(p.left, from); s < end; ++s) lowest_[s] = std::min(lowest_[s], item.floor);
      }
    }
    for (std::uint32_t s = from; s < to; ++s) {
      if (lowest_[s] == never) continue;
      if (lowest_[s] > floor_[s]) set_floor(s, lowest_[s], rest_[s]);
      if (floor_[s] + rest_[s] > limit_) return false;
    }
    return true;
  }

  [[nodiscard]] static constexpr std::uint64_t mix(std::uint64_t x) noexcept {
    x ^= x >> 32;
    x *= 0x9E3779B97F4A7C15ull;
    x ^= x >> 29;
    return x;
  }

  // Two independent 64-bit sums over what is unplaced and the floors below it: a false match is out of reach.
  [[nodiscard]] constexpr Key key_of(Stretch stretch, std::uint32_t left, std::uint32_t right) const noexcept {
    Key key{0x243F6A8885A308D3ull, 0x13198A2E03707344ull};
    for (std::size_t i = stretch.begin; i < stretch.end; ++i) {
      key.a = mix(key.a + items_[i].group + 1);
      key.b = (key.b ^ items_[i].group) * 0xD6E8FEB86659FD93ull;
    }
    for (std::uint32_t s = left; s < right; ++s) {
      const std::uint64_t f = static_cast<std::uint64_t>(floor_[s]) + 1;
      key.a = mix(key.a + f);
      key.b = (key.b ^ (f * 0xA0761D6478BD642Full)) * 0xD6E8FEB86659FD93ull;
      key.b ^= key.b >> 31;
    }
    key.a |= 1;
    return key;
  }

  // Chooses the section to branch on and lists what may lie on its floor; false when the stretch is dead.
  constexpr bool open(Frame& frame) {
    const Stretch stretch = frame.items;
    std::uint32_t left = section_count_;
    std::uint32_t right = 0;
    for (std::size_t i = stretch.begin; i < stretch.end; ++i) {
      left = std::min(left, groups_[items_[i].group].left);
      right = std::max(right, groups_[items_[i].group].right);
    }
    frame.key = key_of(stretch, left, right);
    if (dead_[slot(dead_, frame.key)] == frame.key) return false;

    // A valley is numbered by its first section; others get no number.
    Level lowest = never;
    for (std::uint32_t s = left; s < right; ++s) lowest = std::min(lowest, floor_[s]);
    for (std::uint32_t a = left; a < right;) {
      std::uint32_t z = a + 1;
      while (z < right && floor_[z] == floor_[a]) ++z;
      const bool low = (a == left || floor_[a - 1] > floor_[a]) && (z == right || floor_[z] > floor_[a]);
      Level wall = never;
      if (a > left) wall = std::min(wall, floor_[a - 1]);
      if (z < right) wall = std::min(wall, floor_[z]);
      least_[a] = wall - floor_[a];
      const std::uint32_t number = low && (!ordered_ || floor_[a] == lowest) ? a : skip;
      for (; a < z; ++a) {
        valley_[a] = number;
        count_[a] = 0;
      }
    }
    count_[right] = 0;
    for (std::size_t i = stretch.begin; i < stretch.end; ++i) {
      const Group& g = groups_[items_[i].group];
      if (ordered_) {
        if (items_[i].floor != lowest) continue;
        for (const Part& p : parts(g)) {
          ++count_[p.left];
          --count_[p.right];
        }
        continue;
      }
      const std::uint32_t v = valley_[g.left];
      if (v == skip || valley_[g.right - 1] != v) continue;
      least_[v] = std::min(least_[v], g.least);
      if (items_[i].floor != floor_[v]) {
        least_[v] = std::min(least_[v], items_[i].floor - floor_[v]);
        continue;
      }
      ++count_[g.left];
      --count_[g.right];
    }
    std::uint64_t best = ~0ull;
    std::int32_t running = 0;
    for (std::uint32_t s = left; s < right; ++s) {
      running += count_[s];
      if (valley_[s] == skip) continue;
      const Level slack = limit_ - floor_[s] - rest_[s];
      const bool loose = slack > 0 && (ordered_ || least_[valley_[s]] <= slack);
      const bool edge = s == valley_[s] || s + 1 == right || valley_[s + 1] != valley_[s];
      const std::uint64_t cost = (loose ? 1ull << 40 : 0) + (static_cast<std::uint64_t>(running) << 1) + (edge ? 0 : 1);
      if (cost >= best) continue;
      best = cost;
      frame.section = s;
    }
    const std::uint32_t s = frame.section;
    frame.level = floor_[s];
    std::uint32_t a = s;
    std::uint32_t z = s + 1;
    while (a > left && valley_[a - 1] == valley_[s]) --a;
    while (z < right && valley_[z] == valley_[s]) ++z;

    frame.choices = choices_.size();
    frame.waste = never;
    for (std::size_t i = stretch.begin; i < stretch.end; ++i) {
      const Item& item = items_[i];
      const Group& g = groups_[item.group];
      if (!ordered_ && !overlaps(g, a, z)) continue;
      if (!covers(g, s)) {
        frame.waste = std::min(frame.waste, item.floor + g.least - frame.level);
        continue;
      }
      if (item.floor != frame.level) {
        frame.waste = std::min(frame.waste, item.floor - frame.level);
        continue;
      }
      bool twin = false;
      for (std::size_t c = frame.choices; c < choices_.size() && !twin; ++c) twin = same(groups_[choices_[c]], g);
      if (!twin) choices_.push_back(item.group);
    }
    std::sort(choices_.begin() + static_cast<std::ptrdiff_t>(frame.choices), choices_.end(),
              [&](std::uint32_t x, std::uint32_t y) {
                if (fill_first_) {
                  const bool fx = groups_[x].left == a && groups_[x].right == z;
                  const bool fy = groups_[y].left == a && groups_[y].right == z;
                  if (fx != fy) return fx;
                }
                return keys_[x] != keys_[y] ? keys_[x] > keys_[y] : x < y;
              });
    if (frame.waste <= limit_ - floor_[s] - rest_[s]) choices_.push_back(skip);
    frame.choices_end = choices_.size();
    frame.next_choice = frame.choices;
    return true;
  }

  [[nodiscard]] constexpr bool covers(const Group& g, std::uint32_t s) const noexcept {
    if (s < g.left || s >= g.right) return false;
    if (g.part_count == 1) return true;
    for (const Part& p : parts(g))
      if (p.left <= s && s < p.right) return true;
    return false;
  }

  [[nodiscard]] constexpr bool same(const Group& a, const Group& b) const noexcept {
    return a.part_count == 1 && b.part_count == 1 && a.left == b.left && a.right == b.right && a.size == b.size &&
           a.alignment == b.alignment && a.release == b.release && a.highest == b.highest && a.fixed == b.fixed;
  }

  // Makes the frame's next choice and the stretches that are left of it.
  constexpr void choose(Frame& frame) {
    const std::uint32_t x = choices_[frame.next_choice++];
    frame.children = stretches_.size();
    Stretch child{items_.size(), items_.size()};
    if (x == skip) {
      const std::uint32_t s = frame.section;
      set_floor(s, frame.level + frame.waste, rest_[s]);
      frame.change = {s, s + 1, floor_[s], true};
      for (std::size_t i = frame.items.begin; i < frame.items.end; ++i) items_.push_back(Item(items_[i]));
      child.end = items_.size();
      stretches_.push_back(child);
    } else {
      Group& g = groups_[x];
      g.level = frame.level;
      for (const Part& p : parts(g))
        for (std::uint32_t s = p.left; s < p.right; ++s) set_floor(s, frame.level + p.size, rest_[s] - p.size);
      frame.change = {g.left, g.right, frame.level + g.size, g.part_count == 1};
      std::uint32_t reach = 0;
      for (std::size_t i = frame.items.begin; i < frame.items.end; ++i) {
        const Item item = items_[i];
        if (item.group == x) continue;
        if (groups_[item.group].left >= reach && items_.size() != child.begin) {
          child.end = items_.size();
          stretches_.push_back(child);
          child.begin = items_.size();
        }
        reach = std::max(reach, groups_[item.group].right);
        items_.push_back(item);
      }
      child.end = items_.size();
      if (child.end != child.begin) stretches_.push_back(child);
      // What is small fails or succeeds soon.
      std::sort(stretches_.begin() + static_cast<std::ptrdiff_t>(frame.children), stretches_.end(),
                [](const Stretch& p, const Stretch& q) {
                  return p.end - p.begin != q.end - q.begin ? p.end - p.begin < q.end - q.begin : p.begin < q.begin;
                });
    }
    frame.children_end = stretches_.size();
    frame.next_child = frame.children;
  }

  template <class Stop>
  constexpr SearchEnd search(std::span<const std::uint32_t> all, std::int64_t& nodes, const Stop& stop) {
    for (const std::uint32_t g : all) {
      const Level floor = settle(g, 0);
      if (floor > groups_[g].highest) return SearchEnd::impossible;
      items_.push_back({g, floor});
    }
    Stretch next{0, items_.size()};
    Change change{0, section_count_, 0, true};
    for (;;) {
      nodes -= cost(next.end - next.begin);
      if (nodes < 0 || (++used_nodes_ % stop_every == 0 && stop())) return SearchEnd::gave_up;
      Frame frame;
      frame.items = next;
      frame.items_end = items_.size();
      frame.entered = undo_.size();
      bool failed = !update(next, change) || !open(frame);
      if (failed) {
        undo_to(frame.entered);
      } else {
        frame.raised = undo_.size();
        frames_.push_back(frame);
      }
      // Climb until a frame has something left to search.
      for (;;) {
        if (frames_.empty()) return failed ? SearchEnd::impossible : SearchEnd::found;
        Frame& top = frames_.back();
        const bool fresh = top.next_choice == top.choices;
        if (!failed && !fresh && top.next_child == top.children_end) {
          close(top);
          continue;
        }
        if (failed && !fresh) {
          undo_to(top.raised);
          stretches_.resize(top.children, Stretch{});
          items_.resize(top.items_end, Item{});
        }
        if ((failed || fresh) && top.next_choice == top.choices_end) {
          bury(top.key);
          undo_to(top.entered);
          choices_.resize(top.choices, 0u);
          frames_.pop_back();
          failed = true;
          continue;
        }
        if (failed || fresh) choose(top);
        failed = false;
        if (top.next_child == top.children_end) continue;
        next = stretches_[top.next_child++];
        change = top.change;
        break;
      }
    }
  }

  // Drops a frame all of whose stretches are placed.
  constexpr void close(const Frame& frame) {
    choices_.resize(frame.choices, 0u);
    stretches_.resize(frame.children, Stretch{});
    items_.resize(frame.items_end, Item{});
    frames_.pop_back();
  }

  [[nodiscard]] constexpr std::size_t slot(const std::vector<Key>& table, const Key& key) const noexcept {
    return static_cast<std::size_t>(key.a >> 1) & (table.size() - 1);
  }

  constexpr void bury(const Key& key) {
    if (++buried_ * 2 > dead_.size() && dead_.size() < most_dead) {
      std::vector<Key> larger(dead_.size() * 4, Key{});
      for (const Key& k : dead_) larger[slot(larger, k)] = k;
      dead_.swap(larger);
    }
    dead_[slot(dead_, key)] = key;
  }

  const OffsetInput& in_;
  Bytes unit_ = 1;
  std::uint32_t section_count_ = 0;
  bool ordered_ = false;   // branch on the lowest floor only: groups with gaps or fixed offsets leave holes elsewhere
  bool any_loss_ = false;  // some size is no multiple of the unit
  bool mirrored_ = false;  // levels count down from the capacity
  bool fill_first_ = false;
  Bytes capacity_ = -1;
  Level limit_ = 0;   // the capacity, rounded up
  std::int64_t used_nodes_ = 0;
  std::size_t buried_ = 0;
  std::uint64_t random_ = 0;
  std::vector<std::uint32_t> left_, right_;  // sections of each range
  std::vector<Part> parts_;
  std::vector<Group> groups_;  // by first section
  std::vector<std::uint32_t> fixed_;
  std::vector<Level> load_, most_, floor_, rest_, lowest_, least_;
  std::vector<std::int32_t> count_;
  std::vector<std::uint32_t> valley_;
  std::vector<double> keys_;
  std::vector<Key> dead_;
  std::vector<Item> items_;
  std::vector<std::uint32_t> choices_;
  std::vector<Stretch> stretches_;
  std::vector<Undo> undo_;
  std::vector<Frame> frames_;
};

}  // namespace holdfast::detail
