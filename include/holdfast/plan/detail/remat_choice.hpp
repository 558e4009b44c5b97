// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/plan/detail/remat_change.hpp"
#include "holdfast/plan/detail/remat_rules.hpp"
#include "holdfast/plan/detail/remat_time_line.hpp"

namespace holdfast::detail {

/// Chooses changes until the load is below a target, each the best by bytes saved at the peak a second added.
///
/// A change is tried on the load and taken back if it only moves the peak. Cost: a look at every
/// value for each of up to `most_peaks` moments.
class RematChoice {
 public:
  static constexpr std::uint32_t most_peaks = 2048;

  constexpr RematChoice(const Module& module, const ValueTable& values, const TimeModel& time,
                        const RematRules& rules, RematTimeLine& line, const RematLimits& limits,
                        double link_seconds)
      : m_(module),
        t_(values),
        time_(time),
        rules_(rules),
        line_(line),
        limits_(limits),
        link_seconds_(link_seconds),
        mark_(module.instructions.size(), 0),
        hole_of_(values.values.size(), none),
        pin_of_(values.values.size(), none) {
    for (std::uint32_t v = 0; v < values.values.size(); ++v)
      if (line.bytes(static_cast<ValueId>(v)) > 0) values_.push_back(static_cast<ValueId>(v));
  }

  /// Gives the changes that bring the load to `target`, or as near as it gets.
  constexpr std::vector<RematEdit> run(Bytes target) {
    for (std::uint32_t n = 0; n < most_peaks && line_.load.most() > target; ++n)
      if (!lower(line_.load.peak(), target)) break;
    for (std::uint32_t e = 0; limits_.wait_for_copies && e < edits_.size(); ++e)
      if (edits_[e].chain.empty()) hide(edits_[e], e, target);
    return std::move(edits_);
  }
  /// How long the link to the host is busy.
  [[nodiscard]] constexpr double link_seconds() const noexcept { return link_seconds_; }

 private:
  static constexpr std::uint32_t none = 0xFFFFFFFFu;
  struct Delta {
    std::uint32_t begin, end;
    Bytes bytes;
  };
  struct Hole {
    ValueId value{};
    std::uint32_t begin = 0, end = 0, edit = 0, next = none;
  };
  struct Pin {
    std::uint32_t moment = 0;
    InstructionId user{};
    std::uint32_t next = none;
  };
  struct Trial {
    RematEdit edit;
    std::vector<Delta> deltas;
    std::vector<Hole> holes;
    std::vector<std::pair<ValueId, std::uint32_t>> longer;  // lives until a later moment
    std::vector<ValueId> pins;
    std::vector<std::uint32_t> adopted;  // edits that come earlier with this one
    double link = 0;
  };
  enum class Way : std::uint8_t { chain, keep, host };
  struct Score {
    double value = 0;
    ValueId v{};
    Way way = Way::chain;
  };

  const Module& m_;
  const ValueTable& t_;
  const TimeModel& time_;
  const RematRules& rules_;
  RematTimeLine& line_;
  const RematLimits& limits_;
  double link_seconds_;
  std::vector<ValueId> values_;
  std::vector<RematEdit> edits_;
  std::vector<Hole> holes_;
  std::vector<Pin> pins_;
  std::vector<std::uint32_t> mark_;     // by instruction: number of the trial whose chain it is in
  std::vector<std::uint32_t> hole_of_;  // by value, linked
  std::vector<std::uint32_t> pin_of_;   // by value, linked
  std::uint32_t trial_ = 0;

  template <class F>
  constexpr void each_value(InstructionId i, F&& f) const {
    for (std::uint32_t n = 0, count = m_.shapes.node_count(m_[i].shape); n < count; ++n)
      f(t_.value(i, n), n);
  }
  constexpr Bytes size(InstructionId i) const {
    Bytes sum = 0;
    each_value(i, [&](ValueId v, std::uint32_t) {
      if (!m_.shapes.is_tuple(t_[v].shape) && t_[v].instruction == i)
        sum += std::max<Bytes>(m_.shapes.byte_size(t_[v].shape), 0);
    });
    return sum;
  }

  /// Makes changes until one moment is below the target. False: none helps.
  constexpr bool lower(std::uint32_t moment, Bytes target) {
    std::vector<Score> scores;
    for (const ValueId v : values_) {
      if (line_.begin(v) > moment || line_.until(v) <= moment) continue;
      for (const Way way : {Way::chain, Way::keep, Way::host})
        if (Trial t; try_way(way, v, moment, t))
          scores.push_back(
              {static_cast<double>(t.edit.bytes) / std::max(t.edit.seconds, 1e-9), v, way});
    }
    std::sort(scores.begin(), scores.end(), [](const Score& a, const Score& b) {
      return a.value != b.value ? a.value > b.value : a.v != b.v ? a.v < b.v : a.way < b.way;
    });
    bool changed = false;
    for (const Score& s : scores) {
      if (line_.load.most(moment, moment + 1) <= target) break;
      if (Trial t; try_way(s.way, s.v, moment, t) && commit(t, target)) changed = true;
    }
    return changed;
  }
  constexpr bool try_way(Way way, ValueId v, std::uint32_t moment, Trial& out) {
    if (way == Way::host ? !limits_.offload || !try_host(v, moment, out)
                         : !limits_.recompute || !try_again(v, moment, way, out))
      return false;
    Bytes saved = 0;
    for (const Delta& d : out.deltas)
      if (d.begin <= moment && moment < d.end) saved -= d.bytes;
    out.edit.bytes = saved;
    return saved > 0;
  }
  constexpr bool commit(Trial& t, Bytes target) {
    const Bytes before = line_.load.most();
    for (const Delta& d : t.deltas) line_.load.add(d.begin, d.end, d.bytes);
    for (const Delta& d : t.deltas)
      if (d.bytes > 0 && line_.load.most(d.begin, d.end) > std::max(target, before - 1)) {
        for (const Delta& back : t.deltas) line_.load.add(back.begin, back.end, -back.bytes);
        return false;
      }
    const auto edit = static_cast<std::uint32_t>(edits_.size());
    for (const std::uint32_t a : t.adopted) {
      edits_[a].dropped = true;
      for (Hole& h : holes_)
        if (h.edit == a) h.end = line_.first(t.edit.before) - 1, h.edit = edit;
    }
    for (Hole h : t.holes) {
      h.edit = edit, h.next = std::exchange(hole_of_[index_of(h.value)],
                                            static_cast<std::uint32_t>(holes_.size()));
      holes_.push_back(h);
    }
    for (const auto& [v, until] : t.longer) line_.live_until(v, until);
    for (const ValueId v : t.pins) {
      pins_.push_back({line_.first(t.edit.before) - 1, t.edit.before, pin_of_[index_of(v)]});
      pin_of_[index_of(v)] = static_cast<std::uint32_t>(pins_.size() - 1);
    }
    if (t.edit.host == none) t.edit.host = edit;
    link_seconds_ += t.link;
    edits_.push_back(std::move(t.edit));
    return true;
  }

  /// The first reader of a value behind a moment, and the last moment of those before it.
  struct Readers {
    std::uint32_t last = 0;
    std::uint32_t next = none;  // moment
    InstructionId user{};
    bool during = false;  // one of them runs at the moment itself
  };
  constexpr Readers readers(ValueId v, std::uint32_t moment) const {
    Readers r{line_.last(t_[v].instruction)};
    const auto uses = line_.uses(v);
    auto u = std::upper_bound(uses.begin(), uses.end(), moment,
                              [](std::uint32_t m, const auto& use) { return m < use.moment; });
    if (u != uses.end()) r.next = u->moment, r.user = u->user;
    if (u != uses.begin()) r.last = std::max(r.last, (--u)->last);
    r.during = r.last >= moment;
    for (std::uint32_t p = pin_of_[index_of(v)]; p != none; p = pins_[p].next) {
      if (pins_[p].moment > moment && pins_[p].moment < r.next)
        r.next = pins_[p].moment + 1, r.user = pins_[p].user;
      if (pins_[p].moment < moment) r.last = std::max(r.last, pins_[p].moment);
      if (pins_[p].moment == moment) r.during = true;
    }
    return r;
  }
  constexpr const Hole* hole_at(ValueId v, std::uint32_t moment) const {
    for (std::uint32_t h = hole_of_[index_of(v)]; h != none; h = holes_[h].next)
      if (holes_[h].begin <= moment && moment < holes_[h].end) return &holes_[h];
    return nullptr;
  }

  constexpr bool try_again(ValueId v, std::uint32_t moment, Way way, Trial& out) {
    const InstructionId unit = t_[v].instruction;
    if (!rules_.may_repeat(unit) || line_.escapes(v) || hole_at(v, moment) != nullptr) return false;
    Readers r{0, none};
    each_value(unit, [&](ValueId w, std::uint32_t) {
      if (line_.bytes(w) == 0) return;
      if (const Readers next = readers(w, moment); next.next < r.next) r = next;
    });
    if (r.next == none || line_.first(unit) >= moment || r.next - 1 <= moment) return false;
    const std::uint32_t at = r.next - 1;
    out.edit.unit = unit, out.edit.before = r.user;
    Bytes kept = 0;
    bool moved = true;
    each_value(unit, [&](ValueId w, std::uint32_t) {
      if (line_.escapes(w) || readers(w, at).last > line_.last(unit)) moved = false;
      if (line_.bytes(w) == 0 || line_.escapes(w) || readers(w, at).next == none) return;
      const std::uint32_t from = readers(w, at).last + 1;
      if (from >= at || !line_.holds(w, from - 1, at + 1) || hole_at(w, at - 1) != nullptr) return;
      out.deltas.push_back({from, at, -line_.bytes(w)});
      out.holes.push_back({w, from, at});
      kept += line_.bytes(w);
    });
    if (out.holes.empty()) return false;
    ++trial_;
    if (!visit(unit, at, way, m_[unit].computation, out, kept)) return false;
    const double runs = time_.runs(m_[unit].computation);
    for (const InstructionId i : out.edit.chain) out.edit.seconds += time_.seconds(i) * runs;
    out.edit.moved = moved;
    if (moved) out.edit.seconds -= time_.seconds(unit) * runs;  // the first time falls away
    for (const std::uint32_t a : out.adopted) out.edit.seconds -= edits_[a].seconds;
    if (const Bytes more = transient(out.edit.chain) - kept; more > 0)
      out.deltas.push_back({at, at + 1, more});
    return true;
  }
  /// Appends what has to be computed at a moment to have a result there. Depth: `chain`.
  constexpr bool visit(InstructionId unit, std::uint32_t at, Way way, ComputationId c, Trial& out,
                       Bytes& kept) {
    mark_[index_of(unit)] = trial_;
    ++pending_;
    bool ok = pending_ + out.edit.chain.size() <= limits_.chain;
    for (const InstructionId o : m_.operands(m_[unit])) {
      if (!ok) break;
      for (std::uint32_t n = 0, count = m_.shapes.node_count(m_[o].shape); ok && n < count; ++n) {
        const ValueId w = t_.value(o, n);
        if (m_.shapes.is_tuple(t_[w].shape) || line_.is_always_there(w) ||
            line_.begin(w) == RematTimeLine::never)
          continue;
        const InstructionId x = t_[w].instruction;
        const Hole* hole = hole_at(w, at);
        if (line_.begin(w) < at && at <= line_.until(w) && hole == nullptr) {
          out.pins.push_back(w);
          continue;
        }
        if (mark_[index_of(x)] == trial_) continue;
        const bool here = m_[x].computation == c && line_.is_direct(o, n);
        if (way == Way::chain && here && rules_.may_repeat(x)) {
          if (hole != nullptr) adopt(*hole, at, out, kept);
          ok = visit(x, at, way, c, out, kept);
        } else {
          const bool on_host = m_.shapes.space(t_[w].shape) == MemorySpace::host;
          ok = hole == nullptr && here && (line_.bytes(w) > 0 || on_host) && line_.until(w) < at;
          if (!ok) break;
          out.deltas.push_back({line_.until(w) + 1, at + 1, line_.bytes(w)});
          out.longer.push_back({w, at});
          out.pins.push_back(w);
        }
      }
    }
    --pending_;
    if (ok) out.edit.chain.push_back(unit);
    return ok;
  }
  std::size_t pending_ = 0;

  /// What another change computes again later anyway is kept from now on.
  constexpr void adopt(const Hole& hole, std::uint32_t at, Trial& out, Bytes& kept) {
    const RematEdit& e = edits_[hole.edit];
    if (e.chain.size() != 1 ||
        std::find(out.adopted.begin(), out.adopted.end(), hole.edit) != out.adopted.end())
      return;
    out.adopted.push_back(hole.edit);
    for (const Hole& h : holes_) {
      if (h.edit != hole.edit || h.begin > at || h.end <= at) continue;
      out.deltas.push_back({at, h.end, line_.bytes(h.value)});
      kept += line_.bytes(h.value);
    }
  }
  /// The most that a chain holds at a time, each result until its last reader in the chain.
  constexpr Bytes transient(const std::vector<InstructionId>& chain) const {
    std::vector<std::size_t> last(chain.size(), chain.size());
    const auto place = [&](InstructionId i) {
      return static_cast<std::size_t>(std::find(chain.begin(), chain.end(), i) - chain.begin());
    };
    for (std::size_t k = 0; k < chain.size(); ++k)
      for (const InstructionId o : m_.operands(m_[chain[k]]))
        each_value(o, [&](ValueId w, std::uint32_t) {
          if (const std::size_t maker = place(t_[w].instruction); maker < k) last[maker] = k;
        });
    Bytes now = 0, most = 0;
    for (std::size_t k = 0; k < chain.size(); ++k) {
      now += size(chain[k]);
      most = std::max(most, now);
      for (std::size_t maker = 0; maker < k; ++maker)
        if (last[maker] == k) now -= size(chain[maker]);
    }
    return most;
  }

  constexpr bool try_host(ValueId v, std::uint32_t moment, Trial& out) {
    const InstructionId unit = line_.giver(v);
    const Instruction& i = m_[unit];
    if (i.opcode == Opcode::copy_done) {
      out.edit.at_host = m_.operands(m_[m_.operands(i)[0]])[0];
      if (m_.shapes.space(m_[out.edit.at_host].shape) != MemorySpace::host) return false;
    } else if (!RematRules::may_move(i.opcode)) {
      return false;
    }
    const Shape& shape = m_.shapes[t_[v].shape];
    if (line_.escapes(v) || hole_at(v, moment) != nullptr || !is_array(shape.type) ||
        shape.dynamic != 0 || m_.shapes.space(t_[v].shape) != MemorySpace::device)
      return false;
    if (m_.shapes.is_tuple(i.shape)) {
      const auto children = m_.shapes.children_of(i.shape);
      while (out.edit.element < children.size() &&
             m_.shapes.child_node(i.shape, out.edit.element) != t_[v].node)
        ++out.edit.element;
      if (out.edit.element == children.size()) return false;
    }
    const Readers r = readers(v, moment);
    if (r.next == none || r.during || line_.last(unit) >= moment) return false;
    const ComputationId c = i.computation;
    const auto line = line_.line(c);
    // The copies leave and return between the last reader before and the first behind.
    const std::size_t low = line_.place(c, r.last + 1), high = line_.place(c, r.next);
    if (low == 0 || high >= line.size()) return false;
    const std::size_t behind = line_.place(c, moment + 2);  // the first that it may return before
    if (behind <= low || behind > high) return false;
    const double copy = time_.copy_seconds(static_cast<double>(line_.bytes(v))),
                 runs = time_.runs(c), busy = time_.total();
    RematEdit& e = out.edit;
    e.unit = unit, e.before = r.user, e.host = none;
    for (std::uint32_t h = hole_of_[index_of(v)]; h != none; h = holes_[h].next)
      if (edits_[holes_[h].edit].chain.empty() && holes_[h].begin <= r.last)
        e.host = edits_[holes_[h].edit].host;
    const bool leaves = e.host == none && e.at_host == no_id<InstructionId>;
    e.leave_after = line[low - 1], e.left_before = line[low], e.return_before = r.user;
    const std::size_t left = leaves ? hidden_left(line_, line, low, behind - 1, copy) : low,
                      back = hidden_return(line_, line, behind, high, copy);
    e.wait =
        (leaves ? waits(line_, line, low, left, copy) : 0.0) + waits(line_, line, back, high, copy);
    if (!limits_.wait_for_copies) {
      if (e.wait > 0) return false;
      e.left_before = line[left], e.return_before = line[back];
    }
    out.link = copy * runs;
    e.seconds = (e.wait + 2 * time_.machine().launch) * runs +
                std::max(0.0, link_seconds_ + out.link - busy) -
                std::max(0.0, link_seconds_ - busy);
    const std::uint32_t from = line_.first(e.left_before) - 1,
                        to = line_.first(e.return_before) - 1;
    if (from >= to || !line_.holds(v, from, to)) return false;
    out.deltas.push_back({from, to, -line_.bytes(v)});
    out.holes.push_back({v, from, to});
    return true;
  }
  /// Lets the copies of a change take their time beside other work, as far as both ends find room.
  constexpr void hide(RematEdit& e, std::uint32_t number, Bytes target) {
    const ComputationId c = m_[e.unit].computation;
    const RematTimeLine::Line line = line_.line(c);
    const bool element = m_.shapes.is_tuple(m_[e.unit].shape);
    const ValueId v =
        t_.value(e.unit, element ? m_.shapes.child_node(m_[e.unit].shape, e.element) : 0);
    const Bytes bytes = line_.bytes(v), room = std::max(target, line_.load.most()) - bytes;
    const double copy = time_.copy_seconds(static_cast<double>(bytes));
    const std::size_t low = line_.place(c, line_.first(e.left_before)),
                      high = line_.place(c, line_.first(e.before));
    const auto moment = [&](std::size_t k) { return line_.first(line[k]) - 1; };
    const auto most = [&](std::size_t from, std::size_t to) {
      return line_.load.most(moment(from), moment(to));
    };
    std::size_t left = low, back = high;
    if (e.leaves(number)) {
      left = hidden_left(line_, line, low, high - 1, copy);
      left = least_that(low, left, [&](std::size_t k) { return most(low, k + 1) > room; });
      line_.load.add(moment(low), moment(left), bytes);
    }
    back = hidden_return(line_, line, left + 1, high, copy);
    back = least_that(back, high, [&](std::size_t k) { return most(k, high) <= room; });
    line_.load.add(moment(back), moment(high), bytes);
    const double wait = (e.leaves(number) ? waits(line_, line, low, left, copy) : 0.0) +
                        waits(line_, line, back, high, copy);
    e.seconds += (wait - e.wait) * time_.runs(c);
    e.left_before = line[left], e.return_before = line[back];
  }
};

}  // namespace holdfast::detail
