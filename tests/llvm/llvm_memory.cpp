// SPDX-License-Identifier: Apache-2.0
#include "holdfast/interop/llvm_memory.hpp"

#include <doctest/doctest.h>

#include <llvm/AsmParser/Parser.h>
#include <llvm/ExecutionEngine/JITSymbol.h>
#include <llvm/ExecutionEngine/MCJIT.h>
#include <llvm/ExecutionEngine/Orc/ExecutionUtils.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/ExecutionEngine/Orc/EPCEHFrameRegistrar.h>
#include <llvm/ExecutionEngine/Orc/RTDyldObjectLinkingLayer.h>
#include <llvm/ExecutionEngine/RuntimeDyld.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Object/ELFObjectFile.h>
#include <llvm/Object/SymbolSize.h>
#include <llvm/Support/DynamicLibrary.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/TargetSelect.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "holdfast/backend/jit/gdb_symbols.hpp"
#include "holdfast/backend/jit/probe.hpp"
#include "support/jit.hpp"
#include "support/shared.hpp"

using namespace holdfast;
using namespace holdfast::testing;

extern "C" {
[[gnu::noinline]] int host_twice(int x) { return 2 * x; }
static int host_thrice(int x) { return 3 * x; }
static void host_throw(int x) {
  if (x >= 0) throw x;
}
static int host_value = 1000;
}

namespace {
using FaultyMapper = BasicMemoryMapper<FaultyCalls>;

// The object of tests/data/llvm/module.cpp; null, after a visible skip, where no compiler is.
const llvm::object::ObjectFile* module_object() {
  static const auto made = []() -> std::unique_ptr<llvm::object::OwningBinary<llvm::object::ObjectFile>> {
    llvm::sys::DynamicLibrary::LoadLibraryPermanently(nullptr);  // what the module needs of the C++ runtime is this program's
    char path[] = "/tmp/holdfast_llvm_XXXXXX";
    const int fd = mkstemp(path);
    if (fd < 0) return nullptr;
    close(fd);
    const std::string command = "${CXX:-c++} -c -x c++ -O1 -fPIC -mno-red-zone '" + data_path("llvm/module.cpp") + "' -o " + path + " 2>/dev/null";
    std::unique_ptr<llvm::object::OwningBinary<llvm::object::ObjectFile>> result;
    if (std::system(command.c_str()) == 0)
      if (auto buffer = llvm::MemoryBuffer::getFile(path)) {
        auto object = llvm::object::ObjectFile::createObjectFile((*buffer)->getMemBufferRef());
        if (object) result = std::make_unique<llvm::object::OwningBinary<llvm::object::ObjectFile>>(std::move(*object), std::move(*buffer));
        else llvm::consumeError(object.takeError());
      }
    unlink(path);
    return result;
  }();
  if (made == nullptr) skip_case("no compiler for the test's object");
  return made == nullptr ? nullptr : made->getBinary();
}

const std::map<std::string, void*>& host_symbols() {
  static const std::map<std::string, void*> symbols = {{"host_twice", reinterpret_cast<void*>(host_twice)},
                                                       {"host_thrice", reinterpret_cast<void*>(host_thrice)},
                                                       {"host_throw", reinterpret_cast<void*>(host_throw)},
                                                       {"host_value", &host_value}};
  return symbols;
}

// Resolves what the module needs of this program.
template <class Base>
struct Resolving : Base {
  using Base::Base;
  std::uint64_t getSymbolAddress(const std::string& name) override {
    const auto at = host_symbols().find(name);
    return at != host_symbols().end() ? reinterpret_cast<std::uint64_t>(at->second) : Base::getSymbolAddress(name);
  }
};

int call(std::uint64_t address, int x) { return reinterpret_cast<int (*)(int)>(address)(x); }

// Runs all ten functions, found by `find`, and looks at the map list.
template <class Find>
void check_functions(Find find) {
  CHECK(call(find("first"), 1) == 2);
  CHECK(call(find("doubled"), 21) == 42);
  CHECK(call(find("tripled"), 2) == 7);
  CHECK(call(find("counted"), 3) == 8);
  CHECK(call(find("counted"), 1) == 9);
  for (int i = 0; i < 5; ++i) CHECK(call(find("looked_up"), i) == 10 * (i + 1));
  CHECK(call(find("chosen"), 1) == 2);
  CHECK(call(find("chosen"), 4) == 50);
  CHECK(call(find("pushed"), 4) == 1008);
  CHECK(call(find("caught"), 7) == 70);
  CHECK(call(find("caught"), -1) == -1);
  CHECK(call(find("caught"), 101) == -2);
  const int before = call(find("counted"), 0);
  int thrown = 0;
  try {
    call(find("through"), 33);
  } catch (int e) {
    thrown = e;
  }
  CHECK(thrown == 33);
  CHECK(call(find("counted"), 0) == before + 1);  // the destructor ran on the way
  CHECK(call(find("all"), 1) == 2 + 2 + 4 + 20 + 2 + 10 + 1002);
  const std::string access = access_at(reinterpret_cast<const void*>(find("all")));
  CHECK(access.starts_with("r-x"));
  CHECK(!any_writable_and_executable());
}

// RuntimeDyld over a memory manager: load, link, run.
template <class Memory>
void run_with_runtime_dyld(Memory& memory, const llvm::object::ObjectFile& object) {
  llvm::RuntimeDyld linker(memory, memory);
  REQUIRE(linker.loadObject(object) != nullptr);
  CHECK(!any_writable_and_executable());
  linker.finalizeWithMemoryManagerLocking();
  REQUIRE_MESSAGE(!linker.hasError(), linker.getErrorString().str());
  check_functions([&](const char* name) { return linker.getSymbol(name).getAddress(); });
  linker.deregisterEHFrames();
}

constexpr Backing ways[] = {{MapMode::dual_memfd, CodeFile::memfd}, {MapMode::mprotect_anon, CodeFile::none}, {MapMode::mprotect_memfd, CodeFile::memfd}};

// An Orc JIT whose objects JITLink puts into `memory`.
llvm::Expected<std::unique_ptr<llvm::orc::LLJIT>> make_jit(llvm::jitlink::JITLinkMemoryManager& memory) {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  return llvm::orc::LLJITBuilder()
      .setObjectLinkingLayerCreator([&](llvm::orc::ExecutionSession& session, const llvm::Triple&) {
        auto layer = std::make_unique<llvm::orc::ObjectLinkingLayer>(session, memory);
        layer->addPlugin(std::make_unique<llvm::orc::EHFrameRegistrationPlugin>(session, std::make_unique<llvm::jitlink::InProcessEHFrameRegistrar>()));
        return layer;
      })
      .create();
}

llvm::Error add_module(llvm::orc::LLJIT& jit, const llvm::object::ObjectFile& object) {
  llvm::orc::SymbolMap symbols;
  for (const auto& [name, address] : host_symbols())
    symbols[jit.mangleAndIntern(name)] = {llvm::orc::ExecutorAddr::fromPtr(address), llvm::JITSymbolFlags::Exported};
  if (auto e = jit.getMainJITDylib().define(llvm::orc::absoluteSymbols(symbols))) return e;
  auto process = llvm::orc::DynamicLibrarySearchGenerator::GetForCurrentProcess(jit.getDataLayout().getGlobalPrefix());
  if (!process) return process.takeError();
  jit.getMainJITDylib().addGenerator(std::move(*process));
  return jit.addObjectFile(llvm::MemoryBuffer::getMemBufferCopy(object.getData(), "module"));
}
std::string text_of(llvm::Error e) { return llvm::toString(std::move(e)); }
}  // namespace

TEST_CASE("llvm_memory: the module has ten functions and the relocations 64, PC32, PLT32, GOTPCREL and GOTPCRELX") {
  const llvm::object::ObjectFile* object = module_object();
  if (object == nullptr) return;
  std::set<std::string> types;
  int functions = 0;
  for (const auto& section : object->sections())
    for (const auto& relocation : section.relocations()) {
      llvm::SmallString<32> name;
      relocation.getTypeName(name);
      types.insert(std::string(name));
    }
  for (const auto& symbol : object->symbols()) {
    auto type = symbol.getType();
    auto flags = symbol.getFlags();
    REQUIRE((type && flags));
    functions += *type == llvm::object::SymbolRef::ST_Function && (*flags & llvm::object::SymbolRef::SF_Global) != 0;
  }
  CHECK(functions == 10);
  for (const char* type : {"R_X86_64_64", "R_X86_64_PC32", "R_X86_64_PLT32", "R_X86_64_GOTPCREL", "R_X86_64_GOTPCRELX", "R_X86_64_REX_GOTPCRELX"})
    CHECK_MESSAGE(types.count(type) == 1, type);
}

TEST_CASE("llvm_memory: RuntimeDyld loads, links and runs the module in every mode; exceptions pass (SM10, SM12)") {
  const llvm::object::ObjectFile* object = module_object();
  if (object == nullptr) return;
  for (const Backing way : ways) {
    CAPTURE(backing_name(way));
    const CodeFootprint before;
    {
      MemoryMapper mapper(way, MappingName::make("dyld", "1"));
      Resolving<LlvmSectionMemory<>> memory(mapper);
      run_with_runtime_dyld(memory, *object);
      CHECK(memory.error().ok());
      if (way.file == CodeFile::memfd) CHECK(!maps_named("/memfd:jit:dyld:1").empty());
      int sections = 0;
      bool text = false;
      memory.visit_sections([&](const Section& s) { ++sections, text = text || std::string_view(s.name) == ".text"; });
      CHECK(sections >= 5);
      CHECK(text);
    }
    CHECK(CodeFootprint() == before);
  }
}

TEST_CASE("llvm_memory: several objects have an arena each, and are finalised together") {
  const llvm::object::ObjectFile* object = module_object();
  if (object == nullptr) return;
  MemoryMapper mapper({MapMode::dual_memfd, CodeFile::memfd}, MappingName::make("two", "1"));
  Resolving<LlvmSectionMemory<>> memory(mapper);
  llvm::RuntimeDyld one(memory, memory), two(memory, memory);
  REQUIRE(one.loadObject(*object) != nullptr);
  REQUIRE(two.loadObject(*object) != nullptr);
  one.resolveRelocations();
  two.resolveRelocations();
  one.registerEHFrames();
  two.registerEHFrames();
  REQUIRE(!one.hasError());
  REQUIRE(!two.hasError());
  REQUIRE(!memory.finalizeMemory());
  CHECK(maps_named("/memfd:jit:two:1").size() == 2);
  check_functions([&](const char* name) { return one.getSymbol(name).getAddress(); });
  check_functions([&](const char* name) { return two.getSymbol(name).getAddress(); });
  CHECK(!memory.finalizeMemory());
}

TEST_CASE("llvm_memory: a batch packs objects into one arena at 2 MiB; what does not fit is an error") {
  const llvm::object::ObjectFile* object = module_object();
  if (object == nullptr) return;
  MemoryMapper mapper({MapMode::dual_memfd, CodeFile::memfd}, MappingName::make("batch", "1"));
  for (const bool enough : {true, false}) {
    Resolving<LlvmSectionMemory<>> memory(mapper);
    const Bytes room = enough ? 1 << 16 : 1;
    REQUIRE(memory.reserve_batch({{room, 64}, {room, 64}, {room, 64}}).ok());
    CHECK(memory.reserve_batch({}).code == Errc::wrong_state);
    std::vector<std::unique_ptr<llvm::RuntimeDyld>> linkers;
    for (int i = 0; i < 40; ++i) {
      linkers.push_back(std::make_unique<llvm::RuntimeDyld>(memory, memory));
      REQUIRE(linkers.back()->loadObject(*object) != nullptr);
      linkers.back()->resolveRelocations();
    }
    CHECK(mapper.statistics().blocks == 1);
    std::string why;
    CHECK(memory.finalizeMemory(&why) == !enough);
    CHECK((why.find("segment is full") != std::string::npos) == !enough);
    if (!enough) continue;
    for (const auto& linker : linkers) CHECK(call(linker->getSymbol("tripled").getAddress(), 2) == 7);
    std::uintptr_t lowest = ~std::uintptr_t{0};
    memory.visit_sections([&](const Section& s) { lowest = std::min(lowest, reinterpret_cast<std::uintptr_t>(s.run)); });
    CHECK(lowest % (1 << 21) == 0);
  }
}

TEST_CASE("llvm_memory: LLVM's SectionMemoryManager runs the module over a mapper, without a page writable and executable") {
  const llvm::object::ObjectFile* object = module_object();
  if (object == nullptr) return;
  for (const Backing way : {Backing{MapMode::mprotect_anon, CodeFile::none}, Backing{MapMode::mprotect_memfd, CodeFile::memfd}}) {
    const CodeFootprint before;
    {
      MemoryMapper mapper(way, MappingName::make("section", "1"));
      LlvmMemoryMapper<> adapter(mapper);
      {
        struct Manager : llvm::SectionMemoryManager {
          using llvm::SectionMemoryManager::SectionMemoryManager;
        };
        Resolving<Manager> memory(&adapter);
        run_with_runtime_dyld(memory, *object);
        if (way.file == CodeFile::memfd) CHECK(!maps_named("/memfd:jit:section:1").empty());
      }
      CHECK(mapper.statistics().live == 0);
    }
    CHECK(CodeFootprint() == before);
  }
}

TEST_CASE("llvm_memory: the mapper for SectionMemoryManager refuses what is writable and executable, two views, and what the system refuses") {
  using Manager = llvm::SectionMemoryManager;
  constexpr unsigned read_write = llvm::sys::Memory::MF_READ | llvm::sys::Memory::MF_WRITE, execute = llvm::sys::Memory::MF_EXEC;
  call_log = {};
  FaultyMapper mapper({MapMode::mprotect_anon, CodeFile::none});
  LlvmMemoryMapper<FaultyMapper> adapter(mapper);
  std::error_code failure;
  CHECK(adapter.allocateMappedMemory(Manager::AllocationPurpose::Code, 4096, nullptr, read_write | execute, failure).base() == nullptr);
  CHECK(failure == std::errc::permission_denied);
  llvm::sys::MemoryBlock block = adapter.allocateMappedMemory(Manager::AllocationPurpose::Code, 5000, nullptr, read_write, failure);
  CHECK(!failure);
  CHECK(block.allocatedSize() == 8192);
  CHECK(adapter.protectMappedMemory(block, read_write | execute) == std::errc::permission_denied);
  CHECK(!adapter.protectMappedMemory(llvm::sys::MemoryBlock(static_cast<char*>(block.base()) + 100, 4000), llvm::sys::Memory::MF_READ | execute));
  CHECK(access_at(block.base()) == "r-xp");
  call_log.read_only_error = EACCES;
  CHECK(adapter.protectMappedMemory(block, llvm::sys::Memory::MF_READ) == std::errc::permission_denied);
  llvm::sys::MemoryBlock near = adapter.allocateMappedMemory(Manager::AllocationPurpose::RWData, 1, &block, read_write, failure);
  CHECK(std::abs(static_cast<char*>(near.base()) - static_cast<char*>(block.base())) < (std::ptrdiff_t{1} << 31));
  CHECK(!adapter.releaseMappedMemory(near));
  CHECK(!adapter.releaseMappedMemory(block));
  CHECK(block.base() == nullptr);
  call_log = {};
  call_log.fail_at = 1;
  CHECK(adapter.allocateMappedMemory(Manager::AllocationPurpose::Code, 1, nullptr, read_write, failure).base() == nullptr);
  CHECK(failure == std::errc::not_enough_memory);
  call_log = {};
  FaultyMapper dual({MapMode::dual_memfd, CodeFile::memfd});
  LlvmMemoryMapper<FaultyMapper> twice(dual);
  CHECK(twice.allocateMappedMemory(Manager::AllocationPurpose::Code, 1, nullptr, read_write, failure).base() == nullptr);
  CHECK(failure == std::errc::operation_not_supported);
}

TEST_CASE("llvm_memory: a fault at every call of RuntimeDyld's memory is an error of finalizeMemory, not the end of the process, and leaks "
          "nothing") {
  const llvm::object::ObjectFile* object = module_object();
  if (object == nullptr) return;
  for (const Backing way : ways) {
    const auto attempt = [&](std::string& message) {
      FaultyMapper mapper(way, MappingName::make("fault", "4"));
      Resolving<LlvmSectionMemory<FaultyMapper>> memory(mapper);
      llvm::RuntimeDyld linker(memory, memory);
      CHECK(linker.loadObject(*object) != nullptr);
      linker.resolveRelocations();
      linker.registerEHFrames();
      const bool failed = memory.finalizeMemory(&message);
      CHECK(failed == !memory.error().ok());
      return failed;
    };
    call_log = {};
    std::string message;
    REQUIRE(!attempt(message));
    const long calls = call_log.calls;
    for (long n = 1; n <= calls; ++n) {
      CAPTURE(n);
      const CodeFootprint before;
      call_log = {};
      call_log.fail_at = n;
      message.clear();
      CHECK(attempt(message));
      CHECK(!message.empty());
      CHECK(call_log.open.empty());
      CHECK(CodeFootprint() == before);
    }
  }
  call_log = {};
}

TEST_CASE("llvm_memory: JITLink links and runs the module in every mode; exceptions pass; all goes back") {
  const llvm::object::ObjectFile* object = module_object();
  if (object == nullptr) return;
  for (const Backing way : ways) {
    CAPTURE(backing_name(way));
    const CodeFootprint before;
    {
      MemoryMapper mapper(way, MappingName::make("jitlink", "1"));
      JitLinkMemory<> memory(mapper);
      auto jit = make_jit(memory);
      REQUIRE_MESSAGE(!!jit, text_of(jit.takeError()));
      const std::string added = text_of(add_module(**jit, *object));
      REQUIRE_MESSAGE(added.empty(), added);
      check_functions([&](const char* name) {
        auto found = (*jit)->lookup(name);
        REQUIRE_MESSAGE(!!found, text_of(found.takeError()));
        return found->getValue();
      });
      if (way.file == CodeFile::memfd) CHECK(!maps_named("/memfd:jit:jitlink:1").empty());
      CHECK(mapper.statistics().blocks > 0);
      jit->reset();
      CHECK(mapper.statistics().blocks == 0);
    }
    CHECK(CodeFootprint() == before);
  }
}

TEST_CASE("llvm_memory: JITLink's segments are written in one place, run in another, and are given back when they are not finalised") {
  using llvm::jitlink::SimpleSegmentAlloc;
  using llvm::orc::MemProt;
  const auto read_execute = static_cast<MemProt>(5), read_write = static_cast<MemProt>(3), all = static_cast<MemProt>(7);
  const std::vector<std::byte> code = return_constant(42);
  for (const Backing way : ways) {
    const CodeFootprint before;
    MemoryMapper mapper(way, MappingName::make("segments", "1"));
    JitLinkMemory<> memory(mapper);
    auto refused = SimpleSegmentAlloc::Create(memory, nullptr, {{all, {64, llvm::Align(8)}}});
    REQUIRE(!refused);
    CHECK(text_of(refused.takeError()).find("writable and executable") != std::string::npos);
    CHECK(mapper.statistics().blocks == 0);
    for (const bool finalised : {false, true}) {
      auto made = SimpleSegmentAlloc::Create(memory, nullptr, {{read_execute, {200, llvm::Align(128)}}, {read_write, {10, llvm::Align(8)}}});
      REQUIRE(!!made);
      const auto text = made->getSegInfo(read_execute), data = made->getSegInfo(read_write);
      CHECK(text.Addr.getValue() % 128 == 0);
      CHECK(data.Addr > text.Addr);
      std::memcpy(text.WorkingMem.data() + entry, code.data(), code.size());
      CHECK(mapper.statistics().blocks == 1);
      if (!finalised) continue;
      auto live = made->finalize();
      REQUIRE(!!live);
      CHECK(call(text.Addr.getValue() + entry, 0) == 42);
      CHECK(!any_writable_and_executable());
      CHECK(text_of(memory.deallocate(std::move(*live))).empty());
    }
    CHECK(mapper.statistics().blocks == 0);
    CHECK(CodeFootprint() == before);
  }
}

TEST_CASE("llvm_memory: MCJIT and Orc's older layer run what they compile in code memory") {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  const char* text = "@n = global i32 40\ndefine i32 @answer() {\n %v = load i32, ptr @n\n %r = add i32 %v, 2\n ret i32 %r\n}\n";
  for (const Backing way : ways) {
    MemoryMapper mapper(way, MappingName::make("engine", "1"));
    {
      llvm::LLVMContext context;
      llvm::SMDiagnostic problem;
      auto memory = std::make_unique<LlvmSectionMemory<>>(mapper);
      LlvmSectionMemory<>& seen = *memory;
      const std::unique_ptr<llvm::ExecutionEngine> engine(llvm::EngineBuilder(llvm::parseAssemblyString(text, problem, context))
                                                              .setEngineKind(llvm::EngineKind::JIT)
                                                              .setMCJITMemoryManager(std::move(memory))
                                                              .create());
      REQUIRE(engine != nullptr);
      engine->finalizeObject();
      CHECK(seen.error().ok());
      const std::uint64_t answer = engine->getFunctionAddress("answer");
      CHECK(call(answer, 0) == 42);
      CHECK(access_at(reinterpret_cast<const void*>(answer)).starts_with("r-x"));
      CHECK(!any_writable_and_executable());
    }
    CHECK(mapper.statistics().blocks == 0);
    {
      auto context = std::make_unique<llvm::LLVMContext>();
      llvm::SMDiagnostic problem;
      auto module = llvm::parseAssemblyString(text, problem, *context);
      auto jit = llvm::orc::LLJITBuilder()
                     .setObjectLinkingLayerCreator([&](llvm::orc::ExecutionSession& session, const llvm::Triple&) {
                       return std::make_unique<llvm::orc::RTDyldObjectLinkingLayer>(session, [&] { return std::make_unique<LlvmSectionMemory<>>(mapper); });
                     })
                     .create();
      REQUIRE(!!jit);
      REQUIRE(text_of((*jit)->addIRModule(llvm::orc::ThreadSafeModule(std::move(module), std::move(context)))).empty());
      auto found = (*jit)->lookup("answer");
      REQUIRE(!!found);
      CHECK(call(found->getValue(), 0) == 42);
      CHECK(!any_writable_and_executable());
    }
    CHECK(mapper.statistics().blocks == 0);
  }
}

TEST_CASE("llvm_memory: a function of the module calls the program (the child of the next case)") {
  const llvm::object::ObjectFile* object = module_object();
  if (object == nullptr) return;
  MemoryMapper mapper({MapMode::dual_memfd, CodeFile::memfd}, MappingName::make("names", "1"));
  Resolving<LlvmSectionMemory<>> memory(mapper);
  llvm::RuntimeDyld linker(memory, memory);
  REQUIRE(linker.loadObject(*object) != nullptr);
  linker.finalizeWithMemoryManagerLocking();
  REQUIRE(!linker.hasError());
  std::vector<JitSymbol> symbols;
  for (const auto& [name, symbol] : llvm::object::computeSymbolSizes(*object)) {
    auto text = name.getName();
    auto type = name.getType();
    REQUIRE((text && type));
    if (*type != llvm::object::SymbolRef::ST_Function || symbol == 0) continue;
    symbols.push_back({std::string_view(text->data(), text->size()), reinterpret_cast<const std::byte*>(linker.getSymbol(*text).getAddress()),
                       static_cast<Bytes>(symbol)});
  }
  CHECK(symbols.size() == 10);
  Result<GdbSymbols> known = GdbSymbols::make(symbols);
  REQUIRE(known.ok());
  CHECK(call(linker.getSymbol("doubled").getAddress(), 21) == 42);
}

TEST_CASE("llvm_memory: gdb names the module's function in its back trace") {
  if (quick()) return;
  if (std::system("command -v gdb >/dev/null 2>&1") != 0) return skip_case("no gdb");
  const TemporaryFolder folder;
  const std::string output = folder.path + "/gdb";
  const std::string command = "timeout 150 gdb -nx -batch -iex 'set debuginfod enabled off' -ex 'break host_twice' -ex run -ex 'bt 3' --args " +
                              self_path() + " -tc='llvm_memory: a function of the module calls*' >" + output + " 2>&1";
  static_cast<void>(std::system(command.c_str()));
  const std::string text = read_file(output);
  if (text.find("Breakpoint 1, ") == std::string::npos) return skip_case("gdb cannot run a program here");
  CHECK_MESSAGE(text.find("in doubled ()") != std::string::npos, text);
}

TEST_CASE("llvm_memory: a fault at every call of JITLink's memory is an error of the lookup and leaks nothing") {
  const llvm::object::ObjectFile* object = module_object();
  if (object == nullptr) return;
  for (const Backing way : ways) {
    const auto attempt = [&](long fail_at) {
      call_log = {};
      FaultyMapper mapper(way, MappingName::make("fault", "5"));
      JitLinkMemory<FaultyMapper> memory(mapper);
      auto jit = make_jit(memory);
      REQUIRE(!!jit);
      REQUIRE(text_of(add_module(**jit, *object)).empty());
      (*jit)->getExecutionSession().setErrorReporter([](llvm::Error e) { llvm::consumeError(std::move(e)); });
      call_log = {};
      call_log.fail_at = fail_at;
      auto found = (*jit)->lookup("all");
      const bool ok = !!found;
      if (!ok) llvm::consumeError(found.takeError());
      if (ok) CHECK(call(found->getValue(), 1) == 1042);
      const long calls = call_log.calls;
      call_log.fail_at = 0;
      jit->reset();
      CHECK(mapper.statistics().live == 0);
      return ok ? calls : -1;
    };
    const long calls = attempt(0);
    REQUIRE(calls >= 5);
    for (long n = 1; n <= calls; ++n) {
      CAPTURE(n);
      const CodeFootprint before;
      CHECK(attempt(n) == -1);
      CHECK(call_log.open.empty());
      CHECK(CodeFootprint() == before);
    }
  }
  call_log = {};
}
