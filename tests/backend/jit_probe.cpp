// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/jit/probe.hpp"

#include <doctest/doctest.h>

#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <cerrno>
#include <string>

#include "support/jit.hpp"
#include "support/shared.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {
using Mapper = BasicMemoryMapper<FaultyCalls>;
// The system's calls with a probe of their own: a child is more restricted than this process, whose answer is kept.
struct ChildCalls : SystemCalls {};
using ChildMapper = BasicMemoryMapper<ChildCalls>;
}  // namespace

TEST_CASE("probe: a mode asked for by name fails with the kind of its own errno, twice the same, and leaves nothing (cases/11)") {
  struct Row {
    int error;
    StatusKind kind;
    const char* text;
  };
  for (const Row row : {Row{ENOSYS, StatusKind::unimplemented, "memfd_create: Function not implemented"},
                        Row{EPERM, StatusKind::permission_denied, "memfd_create: Operation not permitted"},
                        Row{EACCES, StatusKind::permission_denied, "memfd_create: Permission denied"},
                        Row{EMFILE, StatusKind::resource_exhausted, "memfd_create: Too many open files"},
                        Row{ENFILE, StatusKind::resource_exhausted, "memfd_create: Too many open files in system"}}) {
    call_log = {};
    call_log.memory_file_error = row.error;
    const CodeFootprint before;
    for (int turn = 0; turn < 2; ++turn)
      for (const MapMode mode : {MapMode::dual_memfd, MapMode::mprotect_memfd}) {
        StringSink text;
        const Result<Mapper> mapper = make_mapper<FaultyCalls>({.mode = mode}, text);
        REQUIRE(!mapper.ok());
        CHECK(status_kind(mapper.error()) == row.kind);
        CHECK(mapper.error().native == row.error);
        CHECK(says(mapper.error(), row.text));
        CHECK(text.text == sentence(mapper.error()));  // said once
      }
    CHECK(CodeFootprint() == before);
    Result<Mapper> anonymous = make_mapper<FaultyCalls>({.mode = MapMode::mprotect_anon});  // the caller's other choice
    REQUIRE(anonymous.ok());
    CHECK(round_trip(*anonymous, 42) == 42);
    call_log.memory_file_error = 0;  // descriptors are free again
    CHECK(make_mapper<FaultyCalls>({.mode = MapMode::dual_memfd}).ok());
  }
}

TEST_CASE("probe: where executable pages are refused nothing stays mapped or open (cases/11)") {
  for (const int refused : {EACCES, EPERM}) {
    call_log = {};
    call_log.execute_error = refused;
    const CodeFootprint before;
    for (const MapMode mode : {MapMode::dual_memfd, MapMode::mprotect_memfd, MapMode::mprotect_anon}) {
      const Result<Mapper> mapper = make_mapper<FaultyCalls>({.mode = mode});
      REQUIRE(!mapper.ok());
      CHECK(mapper.error().code == Errc::permission_denied);
    }
    CHECK(call_log.open.empty());
    CHECK(CodeFootprint() == before);
  }
}

TEST_CASE("probe: automatic takes the next way when one is refused, and lists them all when all are (JM4)") {
  call_log = {};
  call_log.memory_file_error = ENOSYS;
  constexpr Backing shared{MapMode::dual_memfd, CodeFile::shared}, anonymous{MapMode::mprotect_anon, CodeFile::none};
  JitCapabilities found = probe_code_memory<FaultyCalls>();
  CHECK(found.backing == (try_backing(shared).ok() ? shared : anonymous));  // containers often mount shared memory noexec
  call_log.shared_file_error = EACCES;
  found = probe_code_memory<FaultyCalls>("/tmp");
  CHECK((found.backing == Backing{MapMode::dual_memfd, CodeFile::directory} || found.backing.mode == MapMode::mprotect_anon));
  call_log.directory_error = EOPNOTSUPP;
  found = probe_code_memory<FaultyCalls>("/tmp");
  CHECK(found.backing == anonymous);
  REQUIRE(found.attempts.size() == 4);
  CHECK(found.attempts[0].error.native == ENOSYS);
  CHECK(found.attempts[1].error.native == EACCES);
  CHECK(found.attempts[2].error.native == EOPNOTSUPP);
  CHECK(found.attempts[3].error.ok());

  call_log.execute_error = EACCES;
  const CodeFootprint before;
  found = probe_code_memory<FaultyCalls>("/tmp");
  CHECK(found.backing.mode == MapMode::refuse);
  CHECK(found.attempts.size() == 5);
  StringSink text;
  CHECK(write_attempts(text, found).ok());
  CHECK(text.text.find("dual_memfd: memfd_create: Function not implemented") != std::string::npos);
  CHECK(text.text.find("dual_shared_memory: shm_open for code memory failed") != std::string::npos);
  CHECK(text.text.find("mprotect_anon: mprotect for code memory failed (requested 4096) [native 13]") != std::string::npos);
  CHECK(CodeFootprint() == before);

  StringSink list;  // the process's cached answer of these calls is this first one
  const Result<Mapper> refused = make_mapper<FaultyCalls>({.directory = "/tmp"}, list);
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == Errc::permission_denied);
  CHECK(list.text == text.text);
  call_log = {};  // what was refused for lack of descriptors is asked again
  Result<Mapper> now = make_mapper<FaultyCalls>();
  REQUIRE(now.ok());
  CHECK(now->mode() == MapMode::dual_memfd);
  CHECK(round_trip(*now, 9) == 9);
}

TEST_CASE("probe: mode refuse makes no code memory") {
  Result<MemoryMapper> mapper = make_mapper({.mode = MapMode::refuse});
  REQUIRE(mapper.ok());
  CHECK(mapper->reserve(1).error().code == Errc::permission_denied);
}

TEST_CASE("probe: a file-size limit is a refusal, not a signal") {
  const int result = run_child([] {
    const rlimit none{0, 0};
    if (setrlimit(RLIMIT_FSIZE, &none) != 0) return 1;
    const JitCapabilities found = probe_code_memory<ChildCalls>();
    if (found.attempts[0].error.native != EFBIG || status_kind(found.attempts[0].error) != StatusKind::resource_exhausted) return 2;
    Result<ChildMapper> named = make_mapper<ChildCalls>({.mode = MapMode::dual_memfd});
    if (named.ok() || named.error().native != EFBIG) return 3;
    Result<ChildMapper> mapper = make_mapper<ChildCalls>();
    return mapper.ok() && mapper->mode() == MapMode::mprotect_anon && round_trip(*mapper, 42) == 42 ? 0 : 4;
  });
  CHECK(result == 0);
}

TEST_CASE("probe: under seccomp without memfd_create, or without executable pages, code runs another way or is refused clearly "
          "(JM4, cases/11)") {
  for (const int error : {ENOSYS, EPERM, EMFILE}) {
    CAPTURE(error);
    check_child_status(run_child([error] {
      if (!deny_call(SYS_memfd_create, error)) return 77;
      const int descriptors = count_descriptors();
      const Result<ChildMapper> named = make_mapper<ChildCalls>({.mode = MapMode::dual_memfd});
      if (named.ok() || named.error().native != error) return 1;
      Result<ChildMapper> any = make_mapper<ChildCalls>();
      if (!any.ok() || any->backing().file == CodeFile::memfd || round_trip(*any, 42) != 42) return 2;
      return count_descriptors() == descriptors ? 0 : 3;
    }));
  }
  check_child_status(run_child([] {
    if (!deny_execute()) return 77;
    const CodeFootprint before;
    StringSink text;
    const Result<ChildMapper> mapper = make_mapper<ChildCalls>({}, text);
    if (mapper.ok() || mapper.error().code != Errc::permission_denied || mapper.error().native != EACCES) return 1;
    return CodeFootprint() == before && text.text.find("mprotect_memfd: ") != std::string::npos ? 0 : 2;
  }));
}

TEST_CASE("probe: without a descriptor left a file is out of reach, anonymous code runs, and files work again later (cases/11)") {
  check_child_status(run_child([] {
    rlimit before{};
    if (getrlimit(RLIMIT_NOFILE, &before) != 0) return 77;
    const rlimit none{0, before.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &none) != 0) return 77;
    for (int turn = 0; turn < 2; ++turn) {
      const Result<ChildMapper> named = make_mapper<ChildCalls>({.mode = MapMode::dual_memfd});
      if (named.ok() || status_kind(named.error()) != StatusKind::resource_exhausted || named.error().native != EMFILE) return 1;
    }
    const JitCapabilities found = probe_code_memory<ChildCalls>();
    if (found.backing.mode != MapMode::mprotect_anon || found.attempts[1].error.native != EMFILE) return 2;
    if (setrlimit(RLIMIT_NOFILE, &before) != 0) return 3;
    Result<ChildMapper> again = make_mapper<ChildCalls>({.mode = MapMode::dual_memfd});
    return again.ok() && round_trip(*again, 42) == 42 ? 0 : 4;
  }));
}

TEST_CASE("probe: files of a noexec tmpfs are no code memory: the next way is taken") {
  check_child_status(run_child([] {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", "/dev/shm", "tmpfs", MS_NOEXEC | MS_NOSUID, nullptr) != 0)
      return 77;
    if (!deny_call(SYS_memfd_create, ENOSYS)) return 77;
    const JitCapabilities found = probe_code_memory<ChildCalls>("/dev/shm");
    if (found.attempts.size() != 4 || found.backing.mode != MapMode::mprotect_anon) return 1;
    for (const std::size_t i : {std::size_t{1}, std::size_t{2}})
      if (found.attempts[i].error.code != Errc::permission_denied) return 2;
    Result<ChildMapper> mapper = make_mapper<ChildCalls>({.directory = "/dev/shm"});
    return mapper.ok() && round_trip(*mapper, 42) == 42 ? 0 : 3;
  }));
}
