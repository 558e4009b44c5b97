// SPDX-License-Identifier: Apache-2.0
// Memory of each kind shared with another process on the real driver: this program started anew,
// because a process that was forked from one that uses the driver cannot use it.
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "device/real_machine.hpp"
#include "holdfast/backend/cuda/device_memory.hpp"
#include "holdfast/backend/cuda/dma_buf.hpp"
#include "holdfast/backend/cuda/import_cache.hpp"
#include "holdfast/backend/cuda/pool_memory.hpp"
#include "holdfast/backend/cuda/vmm_memory.hpp"
#include "holdfast/backend/host/process_identity.hpp"
#include "holdfast/backend/host/share_leases.hpp"
#include "holdfast/backend/host/share_socket.hpp"

using namespace holdfast;
using namespace holdfast::literals;

namespace {

constexpr const char* importer = "HOLDFAST_TEST_IMPORTER";  // the number of its socket
constexpr Bytes size = 1_MiB + 512;

std::vector<std::byte> pattern(unsigned seed) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(i * 31 + i / 256 + seed);
  return bytes;
}
std::vector<std::byte> read(CudaDeviceMemory memory, Block b) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(b.size));
  const auto copied = memory.copy_out(b, 0, bytes);
  return copied.ok() && copied->wait().ok() ? bytes : std::vector<std::byte>();
}
bool write(CudaDeviceMemory memory, Block b, const std::vector<std::byte>& bytes) {
  const auto copied = memory.copy_in(b, 0, bytes);
  return copied.ok() && copied->wait().ok();
}

// The process that imports, while this lives.
struct Importer {
  Importer() {
    int both[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, both) == 0);
    socket = OwnedFile(FileNumber{both[0]});
    const OwnedFile theirs(FileNumber{both[1]});
    constexpr int number = 100;
    posix_spawn_file_actions_t actions;
    REQUIRE(::posix_spawn_file_actions_init(&actions) == 0);
    REQUIRE(::posix_spawn_file_actions_adddup2(&actions, theirs->number, number) == 0);
    ::setenv(importer, std::to_string(number).c_str(), 1);
    std::string program = "/proc/self/exe", which = "--test-case=cuda device: the importing process";
    char* const arguments[] = {program.data(), which.data(), nullptr};
    REQUIRE(::posix_spawn(&child, program.c_str(), &actions, nullptr, arguments, environ) == 0);
    ::unsetenv(importer);
    ::posix_spawn_file_actions_destroy(&actions);
  }
  ~Importer() {
    socket = OwnedFile();
    int status = -1;
    CHECK(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  // What it says of a share: "good", or what went wrong.
  std::string ask(const CudaSharedFile& shared, int lease) {
    const Error e = send_share(socket->number, shared.blob(), shared.file(), lease);
    if (!e.ok()) return e.what;
    char text[200];
    const ssize_t n = ::recv(socket->number, text, sizeof text, 0);
    return n > 0 ? std::string(text, static_cast<std::size_t>(n)) : "no answer";
  }
  OwnedFile socket;
  ::pid_t child = 0;
};

template <class Memory>
void shared_and_back(const CudaContext& context, Memory memory, ShareKind kind) {
  const CudaDeviceMemory plain(context);
  const Block b = *memory.allocate(size, Alignment(256));
  REQUIRE(write(plain, b, pattern(1)));
  const Result<CudaSharing> ways = find_cuda_sharing(context, b.data + 1000);
  REQUIRE(ways.ok());
  CHECK(ways->ipc == (kind == ShareKind::cuda_ipc));
  CHECK(ways->file == (kind == ShareKind::cuda_file));
  CHECK((ways->pool != nullptr) == (kind == ShareKind::cuda_pool));
  if (ways->dma_buf) CHECK(export_cuda_dma_buf(context, {b.data, 4096}).ok());

  Importer other;
  ShareLeases<Memory> leases(memory);
  {
    const OwnedFile lease = std::move(*leases.lend(b));
    const Result<ShareIdentity> self = process_identity(1);
    REQUIRE(self.ok());
    const Result<CudaSharedFile> shared = share_cuda(context, b, *self);
    REQUIRE(shared.ok());
    CHECK(shared->blob().kind == kind);
    CHECK(other.ask(*shared, lease->number) == "good");
  }
  CHECK(leases.wait(Deadline::after(std::chrono::seconds(5))).ok());
  CHECK(read(plain, b) == pattern(2));
  leases.deallocate(b);
}

}  // namespace

TEST_CASE("cuda device: MD1 memory of each kind is read and written by another process, whose lease ends with its import") {
  const CudaContext context = std::move(*CudaContext::make());
  int major = 0;
  REQUIRE(RealDriver::load()->operator()(cuda_call::DeviceGetAttribute{}, &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                         context.device()) == CUDA_SUCCESS);
  const bool is_double = major == 1;  // of tests/double, whose processes share virtual memory only
  {
    const CudaVmm vmm = std::move(*CudaVmm::make(context));
    shared_and_back(context, vmm.memory(), ShareKind::cuda_file);
    if (!is_double) {
      shared_and_back(context, CudaDeviceMemory(context), ShareKind::cuda_ipc);
      const CudaPool pool = std::move(*CudaPool::make(context, {.file_handles = true}));
      shared_and_back(context, pool.memory(), ShareKind::cuda_pool);
    }
  }
  CHECK(context.unreported().ok());
}

// Run by the case above in a process of its own.
TEST_CASE("cuda device: the importing process") {
  const char* const number = std::getenv(importer);
  if (number == nullptr) return;
  const OwnedFile socket(FileNumber{std::atoi(number)});
  const CudaContext context = std::move(*CudaContext::make());
  const CudaDeviceMemory plain(context);
  CudaImportCache cache(context);
  for (;;) {
    Result<ReceivedShare> got = receive_share(socket->number);
    if (!got.ok()) {
      CHECK(got.error().code == Errc::aborted);  // no more
      break;
    }
    std::string said = "good";
    {
      const int file = got->file->number;
      const auto import = cache.open(file, got->blob, *process_identity(0), 1, std::move(got->lease));
      const auto again = cache.open(file, got->blob, *process_identity(0), 1);
      if (!import.ok() || !again.ok()) said = (import.ok() ? again.error() : import.error()).what;
      else if (import->block() != again->block()) said = "opened twice it is at two places";
      else if (read(plain, import->block()) != pattern(1)) said = "other bytes than were written";
      else if (!write(plain, again->block(), pattern(2))) said = "not written";
    }
    if (cache.size() != 0 || !context.unreported().ok()) said += ", and not closed";
    CHECK(::send(socket->number, said.data(), said.size(), MSG_NOSIGNAL) > 0);
  }
}
