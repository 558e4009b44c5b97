// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <llvm/ExecutionEngine/JITLink/JITLink.h>
#include <llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h>
#include <llvm/ExecutionEngine/Orc/Shared/AllocationActions.h>
#include <llvm/ExecutionEngine/RTDyldMemoryManager.h>
#include <llvm/ExecutionEngine/RuntimeDyld.h>
#include <llvm/ExecutionEngine/SectionMemoryManager.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "holdfast/backend/jit/contiguous_sections.hpp"
#include "holdfast/backend/jit/memory_mapper.hpp"
#include "holdfast/concepts/sink.hpp"

namespace holdfast {

namespace detail {

struct LlvmText {
  std::string text;
  Error write(std::string_view part) noexcept {
    text.append(part);
    return {};
  }
};
[[nodiscard]] inline std::string llvm_text(const Error& e) {
  LlvmText out;
  static_cast<void>(write_error(out, e));
  return std::move(out.text);
}
[[nodiscard]] inline llvm::Error llvm_error(const Error& e) {
  return llvm::make_error<llvm::StringError>(llvm_text(e), llvm::inconvertibleErrorCode());
}

}  // namespace detail

/// LLVM 19's RuntimeDyld (MCJIT, Orc's RTDyldObjectLinkingLayer) over contiguous sections, an arena for each object.
///
/// What cannot be reserved is an error of `finalizeMemory` and of `error`: LLVM itself ends the process when a section gets
/// no memory, so until then the object lies in scratch memory that is never executable. Code that includes this header is
/// compiled as LLVM was (Debian: without RTTI). The mapper outlives it. Threads: as a value.
template <class Mapper = MemoryMapper>
class LlvmSectionMemory : public llvm::RTDyldMemoryManager {
 public:
  using sections_type = ContiguousSections<Mapper>;

  explicit LlvmSectionMemory(Mapper& mapper, ReserveOptions options = {}) : mapper_(&mapper), options_(options) {}
  ~LlvmSectionMemory() override = default;

  /// Why memory could not be had, or made executable; MCJIT does not look at the result of `finalizeMemory`.
  [[nodiscard]] const Error& error() const noexcept { return error_; }
  /// Shows the sections of all objects.
  template <class Visitor>
  void visit_sections(Visitor visitor) const {
    for (const auto& arena : arenas_) arena->visit_sections(visitor);
  }

  /// Packs all objects that are loaded until the next `finalizeMemory` into one arena whose code starts at 2 MiB.
  ///
  /// Errors: wrong_state (a batch is open), as `ContiguousSections::reserve`. What does not fit is an error of `finalizeMemory`.
  [[nodiscard]] Error reserve_batch(const SectionSizes& sizes) {
    if (in_batch_) return make_error(Errc::wrong_state, "a batch is open");
    auto arena = std::make_unique<sections_type>(*mapper_);
    ReserveOptions options = options_;
    options.huge_pages = true;
    if (const Error e = arena->reserve(sizes, options); !e.ok()) return e;
    arenas_.push_back(std::move(arena));
    in_batch_ = true;
    return {};
  }

  bool needsToReserveAllocationSpace() override { return !in_batch_; }
  void reserveAllocationSpace(std::uintptr_t code, llvm::Align code_align, std::uintptr_t read_only, llvm::Align read_only_align,
                              std::uintptr_t data, llvm::Align data_align) override {
    auto arena = std::make_unique<sections_type>(*mapper_);
    const Error e = arena->reserve({request(code, code_align), request(read_only, read_only_align), request(data, data_align)}, options_);
    if (!e.ok()) keep(e);
    arenas_.push_back(std::move(arena));
  }

  std::uint8_t* allocateCodeSection(std::uintptr_t size, unsigned alignment, unsigned id, llvm::StringRef name) override {
    return allocate(SectionKind::code, size, alignment, id, name);
  }
  std::uint8_t* allocateDataSection(std::uintptr_t size, unsigned alignment, unsigned id, llvm::StringRef name, bool read_only) override {
    return allocate(read_only ? SectionKind::read_only : SectionKind::read_write, size, alignment, id, name);
  }

  using llvm::RTDyldMemoryManager::notifyObjectLoaded;
  /// Tells the linker where sections run that are written elsewhere.
  void notifyObjectLoaded(llvm::RuntimeDyld& linker, const llvm::object::ObjectFile&) override {
    for (const Section& s : placed_)
      if (s.write != s.run) linker.mapSectionAddress(s.write, reinterpret_cast<std::uint64_t>(s.run));
    placed_.clear();
  }

  void registerEHFrames(std::uint8_t*, std::uint64_t address, std::size_t size) override {
    auto* frames = reinterpret_cast<std::byte*>(address);
    for (auto& arena : arenas_) {
      const Block whole = arena->reservation();
      if (whole.data == nullptr || frames < whole.data || frames >= whole.data + whole.size) continue;
      if (const Error e = arena->register_frames(frames, static_cast<Bytes>(size)); !e.ok()) keep(e);
      return;
    }
  }
  void deregisterEHFrames() override {
    for (auto& arena : arenas_) arena->deregister_frames();
  }

  /// Makes what was loaded since the last call executable. Gives true, as LLVM does, when it failed.
  bool finalizeMemory(std::string* message = nullptr) override {
    in_batch_ = false;
    for (auto& arena : arenas_)
      if (error_.ok() && arena->state() == sections_type::State::reserved)
        if (const Error e = arena->finalise(); !e.ok()) keep(e);
    if (!error_.ok() && message != nullptr) *message = detail::llvm_text(error_);
    return !error_.ok();
  }

 private:
  [[nodiscard]] static Bytes bytes(std::uint64_t size) noexcept { return static_cast<Bytes>(std::min<std::uint64_t>(size, max_bytes)); }
  // LLVM rounds each section up to the largest alignment of its kind; one more covers what it forgets.
  [[nodiscard]] static SectionRequest request(std::uintptr_t size, llvm::Align align) noexcept {
    return {saturating_add(bytes(size), bytes(align.value())), bytes(align.value())};
  }
  void keep(const Error& e) noexcept {
    if (error_.ok()) error_ = e;
  }

  std::uint8_t* allocate(SectionKind kind, std::uintptr_t size, unsigned alignment, unsigned id, llvm::StringRef name) {
    const Bytes wanted = std::max<Bytes>(bytes(size), 1), align = alignment == 0 ? 16 : alignment;  // LLVM tells sections apart by address
    if (!arenas_.empty()) {
      const Result<Section> section = arenas_.back()->allocate(kind, wanted, align, id, std::string_view(name.data(), name.size()));
      if (section.ok()) {
        placed_.push_back(*section);
        return reinterpret_cast<std::uint8_t*>(section->write);
      }
      keep(section.error());
    } else {
      keep(make_error(Errc::wrong_state, "LLVM allocated a section before it reserved room"));
    }
    scratch_.emplace_back(new (std::nothrow) std::uint8_t[static_cast<std::size_t>(saturating_add(wanted, align))]());
    std::uint8_t* p = scratch_.back().get();
    if (p == nullptr) return nullptr;
    const auto over = reinterpret_cast<std::uintptr_t>(p) % static_cast<std::uintptr_t>(align);
    return over == 0 ? p : p + (static_cast<std::uintptr_t>(align) - over);
  }

  Mapper* mapper_;
  ReserveOptions options_;
  Error error_;
  bool in_batch_ = false;
  std::vector<std::unique_ptr<sections_type>> arenas_;
  std::vector<Section> placed_;
  std::vector<std::unique_ptr<std::uint8_t[]>> scratch_;
};

/// A mapper for LLVM's own SectionMemoryManager, which writes code where it runs: over a mapper of a flip mode
/// (`mprotect_anon`, `mprotect_memfd`).
///
/// Never gives pages that are writable and executable: a request for them is EACCES. Threads: any, on different blocks.
template <class Mapper = MemoryMapper>
class LlvmMemoryMapper final : public llvm::SectionMemoryManager::MemoryMapper {
 public:
  explicit LlvmMemoryMapper(Mapper& mapper) : mapper_(&mapper) {}

  llvm::sys::MemoryBlock allocateMappedMemory(llvm::SectionMemoryManager::AllocationPurpose purpose, std::size_t size,
                                              const llvm::sys::MemoryBlock* near, unsigned flags, std::error_code& failure) override {
    failure = {};
    if (size == 0) return {};
    if (mapper_->mode() == MapMode::dual_memfd) return refuse(failure, std::errc::operation_not_supported);
    if (is_both(flags)) return refuse(failure, std::errc::permission_denied);
    if (size > static_cast<std::size_t>(max_bytes)) return refuse(failure, std::errc::not_enough_memory);
    Result<CodeBlock> block = mapper_->reserve(static_cast<Bytes>(size), {.near = near != nullptr ? near->base() : nullptr});
    if (!block.ok()) return failed(failure, block.error());
    const bool code = purpose == llvm::SectionMemoryManager::AllocationPurpose::Code;
    if (const Error e = mapper_->commit(*block, code ? Access::read_execute : Access::read_write); !e.ok()) {
      mapper_->release(*block);
      return failed(failure, e);
    }
    return {block->run, static_cast<std::size_t>(block->size)};
  }
  std::error_code protectMappedMemory(const llvm::sys::MemoryBlock& block, unsigned flags) override {
    if (block.base() == nullptr || block.allocatedSize() == 0) return {};
    if (is_both(flags)) return std::make_error_code(std::errc::permission_denied);
    const Access access = (flags & llvm::sys::Memory::MF_EXEC) != 0    ? Access::read_execute
                          : (flags & llvm::sys::Memory::MF_WRITE) != 0 ? Access::read_write
                          : (flags & llvm::sys::Memory::MF_READ) != 0  ? Access::read
                                                                       : Access::none;
    // LLVM gives parts of blocks, not always whole pages.
    const auto page = static_cast<std::uintptr_t>(mapper_->page_size());
    const auto begin = reinterpret_cast<std::uintptr_t>(block.base()) / page * page;
    const auto end = (reinterpret_cast<std::uintptr_t>(block.base()) + block.allocatedSize() + page - 1) / page * page;
    auto* run = reinterpret_cast<std::byte*>(begin);
    std::error_code failure;
    if (const Error e = mapper_->protect({run, run, static_cast<Bytes>(end - begin)}, access); !e.ok()) failed(failure, e);
    return failure;
  }
  std::error_code releaseMappedMemory(llvm::sys::MemoryBlock& block) override {
    CodeBlock code{nullptr, static_cast<std::byte*>(block.base()), static_cast<Bytes>(block.allocatedSize())};
    mapper_->release(code);
    block = {};
    return {};
  }

 private:
  [[nodiscard]] static bool is_both(unsigned flags) noexcept {
    return (flags & llvm::sys::Memory::MF_WRITE) != 0 && (flags & llvm::sys::Memory::MF_EXEC) != 0;
  }
  static llvm::sys::MemoryBlock refuse(std::error_code& failure, std::errc why) noexcept {
    failure = std::make_error_code(why);
    return {};
  }
  static llvm::sys::MemoryBlock failed(std::error_code& failure, const Error& e) noexcept {
    failure = std::error_code(e.native != 0 ? e.native : static_cast<int>(std::errc::not_enough_memory), std::generic_category());
    return {};
  }
  Mapper* mapper_;
};

/// JITLink's memory over contiguous sections, an arena for each graph.
///
/// Segments that a graph wants writable and executable are an error. What is only needed while finalising stays until the
/// graph is deallocated. The mapper outlives it, and it its allocations. Threads: any.
template <class Mapper = MemoryMapper>
class JitLinkMemory final : public llvm::jitlink::JITLinkMemoryManager {
 public:
  explicit JitLinkMemory(Mapper& mapper, ReserveOptions options = {}) : mapper_(&mapper), options_(options) {}

  using llvm::jitlink::JITLinkMemoryManager::allocate;
  void allocate(const llvm::jitlink::JITLinkDylib*, llvm::jitlink::LinkGraph& graph, OnAllocatedFunction done) override {
    llvm::jitlink::BasicLayout layout(graph);
    auto allocation = std::make_unique<Allocation>(*mapper_);
    SectionRequest totals[3];
    for (auto& [group, segment] : layout.segments()) {
      const llvm::orc::MemProt protection = group.getMemProt();
      if (has(protection, llvm::orc::MemProt::Write) && has(protection, llvm::orc::MemProt::Exec))
        return done(detail::llvm_error(make_error(Errc::permission_denied, "a section asks to be writable and executable")));
      const SectionRequest parts[] = {totals[static_cast<std::size_t>(kind_of(protection))], request(segment)};
      const Result<SectionRequest> total = total_of(parts);
      if (!total.ok()) return done(detail::llvm_error(total.error()));
      totals[static_cast<std::size_t>(kind_of(protection))] = *total;
    }
    if (const Error e = allocation->sections.reserve({totals[0], totals[1], totals[2]}, options_); !e.ok()) return done(detail::llvm_error(e));
    for (auto& [group, segment] : layout.segments()) {
      const SectionRequest wanted = request(segment);
      const Result<Section> place = allocation->sections.allocate(kind_of(group.getMemProt()), wanted.size, wanted.alignment, 0, graph.getName());
      if (!place.ok()) return done(detail::llvm_error(place.error()));
      segment.Addr = llvm::orc::ExecutorAddr::fromPtr(place->run);
      segment.WorkingMem = reinterpret_cast<char*>(place->write);  // fresh pages are the zeros that follow the content
    }
    if (llvm::Error e = layout.apply()) return done(std::move(e));
    done(std::make_unique<InFlight>(std::move(allocation), graph));
  }

  using llvm::jitlink::JITLinkMemoryManager::deallocate;
  void deallocate(std::vector<FinalizedAlloc> allocations, OnDeallocatedFunction done) override {
    llvm::Error failure = llvm::Error::success();
    while (!allocations.empty()) {
      const std::unique_ptr<Allocation> last(allocations.back().release().toPtr<Allocation*>());
      failure = llvm::joinErrors(std::move(failure), llvm::orc::shared::runDeallocActions(last->actions));
      allocations.pop_back();
    }
    done(std::move(failure));
  }

 private:
  // Call frames are registered by the graph's own actions.
  struct Allocation {
    explicit Allocation(Mapper& mapper) : sections(mapper) {}
    ContiguousSections<Mapper, ProtectAsMapped, NoFrames> sections;
    std::vector<llvm::orc::shared::WrapperFunctionCall> actions;
  };

  class InFlight final : public InFlightAlloc {
   public:
    InFlight(std::unique_ptr<Allocation> allocation, llvm::jitlink::LinkGraph& graph) : allocation_(std::move(allocation)), graph_(&graph) {}
    void abandon(OnAbandonedFunction done) override {
      allocation_.reset();
      done(llvm::Error::success());
    }
    void finalize(OnFinalizedFunction done) override {
      const auto give_up = [&](llvm::Error e) {
        allocation_.reset();
        done(std::move(e));
      };
      if (const Error e = allocation_->sections.finalise(); !e.ok()) return give_up(detail::llvm_error(e));
      auto actions = llvm::orc::shared::runFinalizeActions(graph_->allocActions());
      if (!actions) return give_up(actions.takeError());
      allocation_->actions = std::move(*actions);
      done(FinalizedAlloc(llvm::orc::ExecutorAddr::fromPtr(allocation_.release())));
    }

   private:
    std::unique_ptr<Allocation> allocation_;
    llvm::jitlink::LinkGraph* graph_;
  };

  [[nodiscard]] static bool has(llvm::orc::MemProt protection, llvm::orc::MemProt bit) noexcept {
    return (static_cast<unsigned>(protection) & static_cast<unsigned>(bit)) != 0;
  }
  [[nodiscard]] static SectionKind kind_of(llvm::orc::MemProt protection) noexcept {
    return has(protection, llvm::orc::MemProt::Exec)    ? SectionKind::code
           : has(protection, llvm::orc::MemProt::Write) ? SectionKind::read_write
                                                        : SectionKind::read_only;
  }
  template <class Segment>
  [[nodiscard]] static SectionRequest request(const Segment& segment) noexcept {
    const std::uint64_t size = segment.ContentSize > ~segment.ZeroFillSize ? ~std::uint64_t{0} : segment.ContentSize + segment.ZeroFillSize;
    return {static_cast<Bytes>(std::min<std::uint64_t>(size, max_bytes)), static_cast<Bytes>(segment.Alignment.value())};
  }

  Mapper* mapper_;
  ReserveOptions options_;
};

}  // namespace holdfast
