#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Breaks the run side in one place at a time and checks that a test notices.

Usage: tests/mutate.py [NUMBER...]   (no meson test: it compiles a test for each of the mutants, minutes in all)
"""
import os, pathlib, shutil, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TESTS = {
    'model': ['model/explorer.cpp', 'model/hold.cpp'], 'mevent': ['model/explorer.cpp', 'model/event.cpp'],
    'mbuf': ['model/explorer.cpp', 'model/buffer.cpp'], 'mstr': ['model/explorer.cpp', 'model/striped_hold.cpp'],
    'tb': ['buffer/tracked_buffer.cpp'], 'raw': ['buffer/raw_buffer.cpp'], 'rules': ['hold/hold_rules.cpp'],
    'launch': ['buffer/launch.cpp'], 'mslot': ['model/explorer.cpp', 'model/slot_list.cpp'], 'slots': ['backend/slot_pool.cpp'],
    'layers': ['fault/layers.cpp'], 'limit': ['backend/limited.cpp'], 'retry': ['backend/retrying.cpp'], 'guard': ['backend/guarded.cpp'],
    'mrec': ['model/explorer.cpp', 'model/recorder.cpp'], 'count': ['trace/counters.cpp'], 'hash': ['core/hash_table.cpp'],
    'live': ['trace/live_set.cpp'], 'groups': ['trace/checkpoint.cpp'], 'grow': ['trace/growth.cpp'], 'leaks': ['trace/leak_report.cpp'],
    'frag': ['trace/fragmentation.cpp'], 'log': ['trace/memory_log.cpp'], 'replay': ['trace/replay.cpp'], 'stacks': ['trace/stack_table.cpp'],
    'aligned': ['backend/aligned.cpp'], 'pinned': ['backend/pinned_pool.cpp'], 'later': ['backend/deferred.cpp'],
    'streams': ['backend/bfc_stream_pool.cpp'], 'leases': ['backend/share_leases.cpp'], 'socket': ['backend/share_socket.cpp'],
}
# (what is broken, header, text, replacement, the tests that must fail)
MUTANTS = [
('drop the wake-up (hold)','hold/shared_hold.hpp',"      if (wake) Sync::notify_all(word_);\n      return next;","      return next;",'model'),
('drop the wake-up (event)','event/host_event.hpp',"    if ((old & sleeping) != 0) Sync::notify_all(word_);\n","",'mevent'),
('convert without adding the event','buffer/detail/shared_guard.hpp',"return added = contents_.usage.add(std::forward<E>(event)).ok();","return added = true;",'tb'),
('confirm without clearing','hold/hold_rules.hpp',"return s.without(HoldState::donation).with(HoldState::donated);","return s.without(HoldState::donation);",'rules'),
('confirm without clearing (model)','hold/hold_rules.hpp',"return s.without(HoldState::donation).with(HoldState::donated);","return s.without(HoldState::donation);",'model'),
('confirm keeps the donation bit','hold/hold_rules.hpp',"return s.without(HoldState::donation).with(HoldState::donated);","return s.with(HoldState::donated);",'model'),
('external checked after waiting','hold/hold_rules.hpp',"if (s.external() != 0) return {Verdict::refused, s};","if (s.external() != 0 && s.usage() == 0) return {Verdict::refused, s};",'rules'),
('free before usage events','buffer/detail/shared_guard.hpp',"void let_go() noexcept { last_.start(*this); }","void let_go() noexcept { finish(); }",'tb'),
('free before usage events (model)','buffer/detail/shared_guard.hpp',"node.start(std::as_const(static_cast<LastWait&>(node).guard->contents().usage).span(),\n                 [](WhenReady<Event>& last) noexcept { static_cast<LastWait&>(last).guard->finish(); });","static_cast<LastWait&>(node).guard->finish();",'tb'),
('bounds by addition','buffer/bounds.hpp',"return offset >= 0 && length >= 0 && offset <= size && length <= size - offset;","return offset >= 0 && length >= 0 && static_cast<Bytes>(static_cast<std::uint64_t>(offset) + static_cast<std::uint64_t>(length)) <= size;",'raw'),
('slice without keeping memory','buffer/raw_buffer.hpp',"    RawBuffer part = *this;\n","    RawBuffer part; part.control_ = control_; part.offset_ = offset_;\n",'raw'),
('notify before state (event)','event/host_event.hpp',"    if (!error.ok()) error_ = error;\n","    if (!error.ok()) error_ = error;\n    { const std::uintptr_t s = word_.load(std::memory_order_relaxed); if ((s & sleeping) != 0) { Sync::notify_all(word_); word_.exchange(error.ok() ? succeeded : failed, std::memory_order_acq_rel); return; } }\n",'mevent'),
('acquire is relaxed','hold/shared_hold.hpp',"std::memory_order_acquire, std::memory_order_relaxed)) return {};","std::memory_order_relaxed, std::memory_order_relaxed)) return {};",'model'),
('drop is not release','hold/shared_hold.hpp',"    if (word_.compare_exchange_strong(w, next.bits(), std::memory_order_acq_rel, std::memory_order_relaxed)) return next;","    if (word_.compare_exchange_strong(w, next.bits(), std::memory_order_acquire, std::memory_order_relaxed)) return next;",'model'),
('await_idle relaxed','hold/shared_hold.hpp',"std::uint64_t w = word_.load(std::memory_order_acquire);\n      if (HoldState(w).usage() == 0) return true;","std::uint64_t w = word_.load(std::memory_order_relaxed);\n      if (HoldState(w).usage() == 0) return true;",'model'),
('event completes relaxed','event/host_event.hpp',"word_.exchange(error.ok() ? succeeded : failed, std::memory_order_acq_rel)","word_.exchange(error.ok() ? succeeded : failed, std::memory_order_relaxed)",'mevent'),
('event push without publish','event/host_event.hpp',"std::memory_order_release, std::memory_order_acquire));\n    return true;","std::memory_order_relaxed, std::memory_order_relaxed));\n    return true;",'mevent'),
('waiting bit cleared after the change','hold/shared_hold.hpp',"[[unlikely]] Sync::notify_all(word_);\n  }","[[unlikely]] {\n      word_.fetch_sub(HoldState::waiting, std::memory_order_relaxed);\n      Sync::notify_all(word_);\n    }\n  }",'mbuf'),
('usage ignores a pending donation','hold/hold_rules.hpp',"if (s.has(S::donation)) return {Verdict::wait, s};\n  if (s.has(S::deleted | S::donated)) return {Verdict::refused, s};\n  switch","if (s.has(S::donation) && kind != HoldKind::usage) return {Verdict::wait, s};\n  if (s.has(S::deleted | S::donated)) return {Verdict::refused, s};\n  switch",'model'),
('lock bit ignored in convert','hold/shared_hold.hpp',"      if (HoldState(w).has(HoldState::locked)) {\n        park(w, Deadline::never());\n      } else if","      if",'model'),
('deletion does not wait for usage','hold/shared_hold.hpp',"      if (step.verdict == hold_rules::Verdict::claimed) static_cast<void>(await_idle(deadline));\n","",'model'),
('contents dropped by both','hold/hold_rules.hpp',"return s.has(HoldState::settled) && s.external() == 0;","return s.has(HoldState::settled);",'model'),
('striped: no bias while gathering','hold/striped_hold.hpp',"static constexpr std::uint64_t gathering = std::uint64_t{1} << 22;","static constexpr std::uint64_t gathering = 0;",'mstr'),
('striped: a late end does not look again','hold/striped_hold.hpp',"      if (!HoldState(w).has(alone)) return false;\n","",'mstr'),
('drop the wake-up (subtraction)','hold/shared_hold.hpp',"    if (before.has(HoldState::waiting) && hold_rules::wakes(before, after)) [[unlikely]] Sync::notify_all(word_);\n","    static_cast<void>(after);\n",'model'),
('drop the wake-up (lock takes the waiting bit off)','hold/shared_hold.hpp',"        if (HoldState(w).has(HoldState::waiting)) Sync::notify_all(word_);\n        return;","        return;",'model'),
('the end of usage is not release','hold/shared_hold.hpp',"before(word_.fetch_sub(ended, std::memory_order_acq_rel))","before(word_.fetch_sub(ended, std::memory_order_acquire))",'model'),
('the lock does not acquire','hold/shared_hold.hpp',"word_.fetch_or(HoldState::locked, std::memory_order_acquire)","word_.fetch_or(HoldState::locked, std::memory_order_relaxed)",'model'),
('a promise counts alone beside handles','core/intrusive_ptr.hpp',"if (owners_.load(std::memory_order_acquire) == 1) owners_.store(2","if (owners_.load(std::memory_order_acquire) <= 2) owners_.store(2",'mevent'),
('clash test skipped','buffer/launch.hpp',"  if (clashing != nullptr) {","  if (false) {",'launch'),
('the slot list has no tag','backend/host/detail/slot_list.hpp',"((before >> 32) + 1) << 32","(before >> 32) << 32",'mslot'),
('a slot goes out without acquire','backend/host/detail/slot_list.hpp',"want, std::memory_order_acquire, std::memory_order_acquire)) return i;","want, std::memory_order_relaxed, std::memory_order_relaxed)) return i;",'mslot'),
('a slot comes back without release','backend/host/detail/slot_list.hpp',"std::memory_order_acq_rel, std::memory_order_relaxed)) return closed_of","std::memory_order_acquire, std::memory_order_relaxed)) return closed_of",'mslot'),
('a closed pool is destroyed by its owner too','backend/host/detail/slot_list.hpp',"return out_of(h) == 0;\n  }\n  /// How","return true;\n  }\n  /// How",'mslot'),
('any generation releases','backend/host/detail/slot_core.hpp',"std::uint64_t g = id.generation;","std::uint64_t g = r.generation.load(relaxed);",'slots'),
('a waiter is passed over','backend/host/detail/slot_core.hpp',"if constexpr (waits) woken = waiters_.pop();","",'slots'),
('the last waiter first','backend/host/detail/slot_waiters.hpp',"Waiter* w = first_;","Waiter* w = last_;",'slots'),
('poison is not looked at','backend/host/detail/slot_core.hpp',"if (!poisoned(taken.data))","if (false)",'slots'),
('a limit forgets a refused request','backend/layer/limited.hpp',"        this->state().give(size);\n      return block;","        static_cast<void>(0);\n      return block;",'layers'),
('a limit by addition','backend/layer/limited.hpp',"live > limit || size > limit - live","static_cast<std::uint64_t>(live) + static_cast<std::uint64_t>(size) > static_cast<std::uint64_t>(limit) + 1",'limit'),
('the peak counts refused requests','backend/layer/limited.hpp',"if (block.ok())\n        this->state().confirm();","this->state().confirm();\n      if (block.ok())\n        static_cast<void>(0);",'limit'),
('the source gets the unrounded size back','backend/layer/aligned.hpp',"{block.data, align_up(block.size, N)}","block",'aligned'),
('a release before the wait is missed','backend/layer/retrying.hpp',"      return request.seen = now, true;  // at once","      return request.seen = now + 1, true;  // at once",'retry'),
('two dumps','backend/layer/retrying.hpp',"if constexpr (requires { handler.on_give_up(request); }) handler.on_give_up(request);","if constexpr (requires { handler.on_give_up(request); }) handler.on_give_up(request), handler.on_give_up(request);",'retry'),
('no look at quarantine when it goes','backend/layer/guarded.hpp',"      inspect(*r);\n      const Record gone","      const Record gone",'guard'),
('no zone behind','backend/layer/guarded.hpp',"look(r, r.data + r.size, options_.zone, zone_byte, GuardFaultKind::overrun)","0u",'guard'),
('a cached block of any alignment','backend/host/detail/pinned_core.hpp',"cache_[i].size == whole && number(cache_[i].data) % static_cast<std::uintptr_t>(alignment) == 0","cache_[i].size == whole",'pinned'),
('the reserve is locked too','backend/host/detail/pinned_core.hpp',"room.bytes - options_.reserve","room.bytes",'pinned'),
('what is pending is released','backend/layer/deferred.hpp',"if (!n->event.ready()) {","if (false) {",'later'),
('a slot is read while it is written','trace/recorder.hpp',"return slot.state.load(std::memory_order_relaxed) == 2 * n + 2;","return true;",'mrec'),
('two writers in a slot','trace/recorder.hpp',"if (state % 2 != 0 || state > 2 * n ||","if (state > 2 * n ||",'mrec'),
('the peak of the whole is lost','trace/counters.hpp',"    bytes_.raise(before.bytes.peak);\n","",'count'),
('an entry before its home','core/hash_table.hpp',"< ((i - hole) & mask)","<= ((i - hole) & mask)",'hash'),
('an unrecorded block keeps the old record','trace/live_set.hpp',"if (place->released == 0) count(*place, -1);","",'live'),
('a size of 0 is another size','trace/live_set.hpp',"block.size == 0 || ","",'live'),
('the newest block is the first','trace/checkpoint.hpp',"if (one.first < g->first)","if (one.first > g->first)",'groups'),
('a fall does not begin anew','trace/growth.hpp',"      if (g.bytes < known->last) known->bytes = known->blocks = {};\n","",'grow'),
('any line will do','trace/growth.hpp',"g->bytes.r2() >= rules.r2 &&","",'grow'),
('what is gone is watched','trace/growth.hpp',"return g.round != round_;","return false;",'grow'),
('rows by bytes alone','trace/leak_report.hpp',"if (va != vb) return va > vb;","",'leaks'),
('holes without the free block before','trace/fragmentation.hpp',"arena[i > 0 && arena[i - 1].free ? i - 1 : i].offset","arena[i].offset",'frag'),
('quantiles one too low','trace/fragmentation.hpp',"(sizes.size() * percent + 99) / 100 - 1","sizes.size() * percent / 100 - 1",'frag'),
('names run into each other','trace/memory_log.hpp',"      if (!known) live = nullptr;\n","",'log'),
('faults of a log with losses','trace/memory_log.hpp',"if (live != nullptr && log.lost == 0) e.fault","if (live != nullptr) e.fault",'log'),
('what is left is not tested','trace/replay.hpp',"report_.error.ok() ? release(b) :","false ? release(b) :",'replay'),
('a stack over two chunks','trace/stack_table.hpp',"if (chunk_of(at) != chunk_of(at + words - 1))","if (false)",'stacks'),
('what is left of a run is safe','backend/bfc/detail/space.hpp',"        index.move(chunks_.all(), c, stop, chunks_[c].end() - stop);\n        break;","        index.move(chunks_.all(), c, stop, chunks_[c].end() - stop);\n        if (chunks_[c].freed_at != 0) unqueue(c), chunks_[c].freed_at = 0;\n        break;",'streams'),
('a run is waited for at its first chunk','backend/bfc/detail/stream_core.hpp',"      if (Error e = wait(chunks()[last].freed_at, asker); !e.ok()) return failure_ = e, 0;\n      if","      if (Error e = last == first ? wait(chunks()[last].freed_at, asker) : Error{}; !e.ok()) return failure_ = e, 0;\n      if",'streams'),
('safe one free too early','backend/bfc/detail/stream_core.hpp',"Stamps::make(s, slots_[s].done + 1)","Stamps::make(s, slots_[s].done + 2)",'streams'),
('the older number of two is kept','backend/bfc/detail/space.hpp',"    if (mine < other) {","    if (mine == 0) {",'streams'),
('a slot keeps what its last stream waited for','backend/bfc/detail/stream_core.hpp',"slots_[s].waits[i] = 0;","static_cast<void>(0);",'streams'),
('a free without a mark is safe at once','backend/bfc/detail/stream_core.hpp',"if (stream_wait<Event>(stream).ok()) return raise(s, number), 0;","return raise(s, number), 0;",'streams'),
('chunks of different streams are joined','backend/bfc/detail/stream_marks.hpp',"return slot(a) == slot(b) || (!shared && (slot(a) == 0 || slot(b) == 0));","return true;",'streams'),
('safe chunks are tied to pending ones','backend/bfc/detail/stream_marks.hpp',"(!shared && (slot(a) == 0 || slot(b) == 0))","slot(a) == 0 || slot(b) == 0",'streams'),
('regions go back unseen','backend/bfc/detail/stream_core.hpp',"this->unused(r) && passed(r)","this->unused(r)",'streams'),
('the end waits for nobody','backend/bfc/detail/stream_core.hpp',"if (const std::uint32_t c = queue(s).newest; c != 0 && ","if (const std::uint32_t c = queue(s).newest; false && ",'streams'),
('a mark that is needed is dropped','backend/bfc/detail/stream_marks.hpp',"if (marks_[i].number < wanted) continue;","if (marks_[i].number <= wanted) continue;",'streams'),
('waits for the mark behind','backend/bfc/detail/stream_marks.hpp',"if (marks_[middle].number < number)","if (marks_[middle].number <= number)",'streams'),
('done one free too early','backend/bfc/detail/stream_core.hpp',"return number <= slots_[s].done ||","return number <= slots_[s].done + 1 ||",'streams'),
('a retired stream is known by its handle','backend/bfc/detail/stream_core.hpp',"    slots_[s].attached = false;\n    slots_[s].stream = Stream{};\n","",'streams'),
('an event that failed has passed','backend/bfc/detail/stream_marks.hpp',"    return e.passed();","    return e.ready();",'streams'),
('what failed to be waited for is taken','backend/bfc/detail/stream_core.hpp',"      if (Error e = wait(chunks()[c].freed_at, asker); !e.ok()) return failure_ = e, 0;\n      return","      if (Error e = wait(chunks()[c].freed_at, asker); !e.ok()) failure_ = e;\n      return",'streams'),
('the host takes what a stream comes after','backend/bfc/detail/stream_core.hpp',"    if (asker.stream == nullptr) {\n      ++figures_.host_waits;","    if (false) {\n      ++figures_.host_waits;",'streams'),
('a block is given back with its first lease','backend/host/share_leases.hpp',"if (gone.released && !lent)","if (gone.released)",'leases'),
('a block goes that its owner has still','backend/host/share_leases.hpp',"if (gone.released && !lent)","if (!lent)",'leases'),
('other files than a share announces','backend/host/share_socket.hpp',"count != (flags & 1) + (flags >> 1)","false",'socket'),
('a longer message is a share','backend/host/share_socket.hpp',"got != static_cast<ssize_t>(detail::share_message_bytes) || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0","got < static_cast<ssize_t>(detail::share_message_bytes)",'socket'),
]


def main(chosen):
    survived = 0
    with tempfile.TemporaryDirectory() as tmp:
        for number, (name, header, text, broken, tests) in enumerate(MUTANTS):
            if chosen and number not in chosen:
                continue
            include = pathlib.Path(tmp) / 'include'
            shutil.rmtree(include, ignore_errors=True)
            shutil.copytree(ROOT / 'include', include)
            path = include / 'holdfast' / header
            source = path.read_text()
            if text not in source:
                verdict = 'PATTERN NOT FOUND'
            else:
                path.write_text(source.replace(text, broken))
                binary = pathlib.Path(tmp) / 'test'
                made = subprocess.run([os.environ.get('CXX', 'g++'), '-std=c++20', '-O1', '-w', f'-I{include}', f'-I{ROOT}/tests',
                                       '-DHOLDFAST_SHARED="absent"', f'-DHOLDFAST_TEST_DATA="{ROOT}/tests/data"', str(ROOT / 'tests/main.cpp'),
                                       *(str(ROOT / 'tests' / t) for t in TESTS[tests]), '-pthread', '-o', str(binary)],
                                      capture_output=True, text=True)
                if made.returncode:
                    verdict = 'DOES NOT COMPILE'
                else:
                    try:
                        code = subprocess.run([str(binary)], capture_output=True, timeout=120).returncode
                    except subprocess.TimeoutExpired:
                        code = 'timeout'
                    verdict = f'killed ({code})' if code else 'SURVIVED'
            survived += not verdict.startswith('killed')
            print(f'{number:2} {verdict:18} {name} [{tests}]', flush=True)
    print(f'{survived} not killed')
    return survived != 0


if __name__ == '__main__':
    sys.exit(main({int(a) for a in sys.argv[1:]}))
