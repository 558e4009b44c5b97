// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/event/host_event.hpp"
#include "holdfast/execute/host_streams.hpp"
#include "holdfast/execute/pattern_kernel.hpp"
#include "holdfast/execute/plan_executor.hpp"
#include "intervals.hpp"
#include "machine_memory.hpp"
#include "progress.hpp"
#include "report.hpp"
#if __has_include(<cuda.h>)
#include "cuda_place.hpp"
#endif

namespace program {

using namespace holdfast;
using namespace holdfast::literals;

namespace {

/// The machine's memory.
struct HostPlace {
  using Memory = SystemMemory;
  using Event = HostEvent;
  using Patterns = HostPatterns;
  static Error open() { return {}; }
  static Memory memory() { return {}; }
  static Patterns patterns() { return {}; }
  static Bytes available() { return available_memory(); }
};

#if !__has_include(<cuda.h>)
/// This program was built without CUDA's header.
struct CudaPlace : HostPlace {
  static Error open() {
    return make_error(Errc::unsupported, "this program was built without CUDA");
  }
};
#endif

template <class Place>
using ExecutorOf = PlanExecutor<typename Place::Memory, typename Place::Event>;

/// Runs of the program that it may take until every branch was taken.
constexpr int most_runs = 4096;

/// The checking kernel, which also keeps the progress line going.
template <class Patterns>
struct ShownKernel : BasicPatternKernel<Patterns> {
  using BasicPatternKernel<Patterns>::BasicPatternKernel;
  [[nodiscard]] Error run(const KernelCall& call) noexcept {
    if (std::atomic_ref(calls).fetch_add(1, std::memory_order_relaxed) % 64 == 0 && single)
      progress("running");
    return BasicPatternKernel<Patterns>::run(call);
  }
  std::uint64_t calls = 0;
  bool single = true;
};

/// What a run needs beside the program's own tables.
struct Need {
  Bytes values = 0;  ///< all of them together
  Bytes memory = 0;  ///< arguments, results, arenas and constants
};

template <class Executor>
Need need_of(const Planned& p, const Executor& executor) {
  Need n;
  for (const Place& place : p.live.places)
    if (place.kind != PlaceKind::callee && !p.module.shapes.is_tuple(place.shape))
      n.values =
          saturating_add(n.values, std::max<Bytes>(p.module.shapes.byte_size(place.shape), 0));
  n.memory = executor.constant_bytes();
  for (const ProgramLeaf& a : executor.arguments()) n.memory = saturating_add(n.memory, a.size);
  for (const ProgramLeaf& r : executor.results())
    if (!r.donated) n.memory = saturating_add(n.memory, r.size);
  for (const Arena& a : p.assignment.entry_arenas()) n.memory = saturating_add(n.memory, a.size);
  return n;
}

int too_large(const Input& input, Bytes need, Bytes available) {
  std::fprintf(stderr, "%s: the plan needs %lld bytes (%s), this machine has %lld (%s) available\n",
               input.file.c_str(), static_cast<long long>(need), human(need).c_str(),
               static_cast<long long>(available), human(available).c_str());
  return no_plan;
}

/// Gives new arguments with patterns in them. Errors: out_of_memory.
template <class Executor, class Kernel, class Memory, class Buffer>
Error make_arguments(const Executor& executor, Kernel& kernel, Memory memory,
                     std::vector<Buffer>& out) {
  out.clear();
  for (const ProgramLeaf& a : executor.arguments()) {
    Result<Buffer> b = Buffer::allocate(memory, a.size);
    if (!b.ok()) return b.error();
    Result<typename Buffer::scoped_hold> hold = b->hold(HoldKind::usage);
    if (!hold.ok()) return hold.error();
    if (Error e = kernel.write({a.instruction, 0, a.node, a.shape, hold->raw().block()}); !e.ok())
      return e;
    hold->convert();
    out.push_back(std::move(*b));
  }
  return {};
}

/// Tests what a run has left behind: its results, the arguments that are still there, the
/// constants.
template <class Executor, class Kernel, class Buffer>
Error check_after(const Executor& executor, Kernel& kernel, InstructionId root,
                  std::vector<Buffer>& arguments, std::vector<Buffer>& results) {
  const auto test = [&](const ProgramLeaf& leaf, Buffer& buffer) {
    Result<typename Buffer::scoped_hold> hold = buffer.hold(HoldKind::usage);
    if (!hold.ok()) return hold.error();
    const Error e =
        kernel.check({leaf.instruction, 0, leaf.node, leaf.shape, hold->raw().block()}, root);
    hold->convert();
    return e;
  };
  for (std::size_t k = 0; k < results.size(); ++k) {
    if (Error e = results[k].block_for_operations(); !e.ok()) return e;
    if (Error e = test(executor.results()[k], results[k]); !e.ok()) return e;
  }
  for (std::size_t k = 0; k < arguments.size(); ++k)
    if (!executor.arguments()[k].donated)
      if (Error e = test(executor.arguments()[k], arguments[k]); !e.ok()) return e;
  Error failure;
  executor.each_constant([&](const KernelArray& c) {
    if (failure.ok()) failure = kernel.check(c, root);
  });
  return failure;
}

template <class Executor, class Kernel, class Memory>
Error run_program(const Planned& p, Executor& executor, Kernel& kernel, Memory memory,
                  HostStreams* streams) {
  using Buffer = typename Executor::buffer_type;
  std::vector<Buffer> arguments;
  std::vector<Buffer*> pointers;
  std::vector<Buffer> results(executor.results().size());
  for (int n = 0; n < most_runs; ++n) {
    for (Buffer& r : results) r = Buffer();
    if (Error e = make_arguments(executor, kernel, memory, arguments); !e.ok()) return e;
    pointers.clear();
    for (Buffer& a : arguments) pointers.push_back(&a);
    const Error e = streams == nullptr ? executor.execute(pointers, results, kernel)
                                       : executor.execute(pointers, results, kernel, *streams);
    if (!e.ok()) return e;
    const Error after =
        check_after(executor, kernel, p.module[p.module.entry].root, arguments, results);
    // A program without results has no event to say that it failed.
    if (!after.ok() || kernel.fault().kind != PatternFault::Kind::none)
      return after.ok() ? make_error(Errc::internal, "a check failed") : after;
    if (kernel.has_taken_all_branches()) return {};
  }
  return make_error(Errc::internal, "a branch was not reached");
}

template <class Place>
int run_module(const Input& input, const Options& options) {
  int status = done;
  Place place;
  if (const Error e = place.open(); !e.ok()) return print_error(input, e), no_plan;
  const std::unique_ptr<Planned> p = plan_module(input, options, status);
  if (p == nullptr) return status;
  const PlannedProgram program{&p->module, &p->values, &p->live, &p->assignment};
  Json j = plan_json(*p);
  j["backend"] = options.backend;
  j["measured_peak_bytes"] = Bytes{0};
  j["values_checked"] = 0;
  j["verified"] = false;
  const auto finish = [&](int exit) {
    end_progress();
    return write_json(options, j) ? exit : static_cast<int>(usage);
  };
  if (options.limit >= 0 && p->summary.peak_bytes > options.limit) {
    end_progress();
    is_within_limit(input, *p, options);
    return finish(no_plan);
  }

  using Executor = ExecutorOf<Place>;
  ShownKernel<typename Place::Patterns> kernel(program, PatternCheck::full, options.trips, 1,
                                               place.patterns());
  kernel.single = options.streams == 1;
  Result<Executor> executor = Executor::make(program, place.memory(), kernel,
                                             Alignment(std::max<Bytes>(options.alignment, 64)));
  if (!executor.ok())
    return print_error(input, executor.error()),
           finish(executor.error().code == Errc::out_of_memory ? no_plan : bad_input);
  const Need need = need_of(*p, *executor);
  if (need.memory > place.available())
    return end_progress(), finish(too_large(input, need.memory, place.available()));
  if (options.check == "page" || (options.check.empty() && need.values >= 4_GiB))
    kernel.set_check(PatternCheck::page);

  HostStreams streams;
  if (options.streams > 1)
    if (const Error e = streams.start(options.streams); !e.ok())
      return print_error(input, e), finish(no_plan);
  const Error e =
      run_program(*p, *executor, kernel, place.memory(), options.streams > 1 ? &streams : nullptr);
  end_progress();
  j["measured_peak_bytes"] = kernel.measured_peak();
  j["values_checked"] = kernel.values_checked();
  if (!e.ok() && kernel.fault().kind == PatternFault::Kind::none) {
    if (e.code == Errc::out_of_memory)
      return finish(too_large(input, need.memory, place.available()));
    print_error(input, e);
    return finish(not_verified);
  }
  if (!e.ok()) {
    std::string text;
    StringSink sink{&text};
    static_cast<void>(write_fault(sink, p->module, kernel.fault()));
    std::fprintf(stderr, "%s: %s\n", input.file.c_str(), text.c_str());
    return finish(not_verified);
  }
  if (kernel.measured_peak() != p->summary.heap_bytes) {
    std::fprintf(stderr, "%s: the run wrote %lld bytes of its arenas, the plan has %lld\n",
                 input.file.c_str(), static_cast<long long>(kernel.measured_peak()),
                 static_cast<long long>(p->summary.heap_bytes));
    return finish(not_verified);
  }
  j["verified"] = true;
  if (options.json != "-" && options.csv != "-") {
    print_summary(*p);
    std::printf(
        "  run on %s: planned heap %lld, measured %lld, %llu values checked, all as planned\n",
        options.backend.c_str(), static_cast<long long>(p->summary.heap_bytes),
        static_cast<long long>(kernel.measured_peak()),
        static_cast<unsigned long long>(kernel.values_checked()));
  }
  if (!options.csv.empty() && !write_output(options.csv, offsets_csv(*p))) return finish(usage);
  return finish(done);
}

}  // namespace

int run_command(const Options& options) {
  Input input;
  if (!read_input(options.file, input)) return bad_input;
  if (input.kind == InputKind::csv && options.backend == "host")
    return run_intervals(input, options);
  if (input.kind == InputKind::csv) {
    std::fprintf(stderr, "%s: a table of intervals runs on the host only\n", input.file.c_str());
    return usage;
  }
  return options.backend == "cuda" ? run_module<CudaPlace>(input, options)
                                   : run_module<HostPlace>(input, options);
}

}  // namespace program
