// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/host/share_socket.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "support/open_files.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {
struct Sockets {
  explicit Sockets(int kind = SOCK_SEQPACKET) {
    int both[2];
    REQUIRE(::socketpair(AF_UNIX, kind | SOCK_CLOEXEC, 0, both) == 0);
    a = OwnedFile(FileNumber{both[0]});
    b = OwnedFile(FileNumber{both[1]});
  }
  OwnedFile a, b;
};
ShareBlob sample() {
  ShareBlob b;
  b.kind = ShareKind::cuda_file;
  b.whole = 4096;
  b.handle.size = 100;
  b.allocation = 7;
  return b;
}
OwnedFile memory(char first) {
  OwnedFile f(FileNumber{::memfd_create("memory", MFD_CLOEXEC)});
  REQUIRE(::pwrite(f->number, &first, 1, 0) == 1);
  return f;
}
char first_of(const OwnedFile& f) {
  char c = 0;
  return ::pread(f->number, &c, 1, 0) == 1 ? c : '?';
}
// A message of any bytes with any number of files.
void send_raw(int socket, const void* bytes, std::size_t size, int file, std::size_t files) {
  iovec data{const_cast<void*>(bytes), size};
  std::vector<char> control(CMSG_SPACE(files * sizeof(int)) + sizeof(cmsghdr));
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (files != 0) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(files * sizeof(int));
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(files * sizeof(int));
    for (std::size_t i = 0; i < files; ++i) std::memcpy(CMSG_DATA(head) + i * sizeof(int), &file, sizeof file);
  }
  REQUIRE(::sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(size));
}
std::array<std::byte, share_blob_bytes + 1> message(unsigned flags, const ShareBlob& blob) {
  std::array<std::byte, share_blob_bytes + 1> bytes;
  bytes[0] = static_cast<std::byte>(flags);
  std::ranges::copy(write_share_blob(blob), bytes.begin() + 1);
  return bytes;
}
}  // namespace

TEST_CASE("share socket: a blob arrives with the files that were sent with it, each in its place, closed on exec") {
  const int before = open_files();
  {
    const Sockets s;
    const OwnedFile file = memory('f'), lease = memory('l');
    for (const int f : {-1, file->number})
      for (const int l : {-1, lease->number}) {
        REQUIRE(send_share(s.a->number, sample(), f, l).ok());
        const ReceivedShare got = std::move(*receive_share(s.b->number));
        CHECK(got.blob == sample());
        CHECK((got.file->number >= 0) == (f >= 0));
        CHECK((got.lease->number >= 0) == (l >= 0));
        if (f >= 0) CHECK(first_of(got.file) == 'f');
        if (l >= 0) CHECK(first_of(got.lease) == 'l');
        if (f >= 0) CHECK(got.file->number != f);
        if (f >= 0) CHECK((::fcntl(got.file->number, F_GETFD) & FD_CLOEXEC) != 0);
      }
  }
  CHECK(open_files() == before);
}

TEST_CASE("share socket: MD1 between processes: the receiver's file is the sender's memory, after the sender has closed it") {
  Sockets s;
  const ::pid_t child = ::fork();
  if (child == 0) {
    s.a = OwnedFile();
    const Result<ReceivedShare> got = receive_share(s.b->number);
    const char answer = 'z';
    ::_exit(got.ok() && first_of(got->file) == 'x' && ::pwrite(got->file->number, &answer, 1, 0) == 1 ? 0 : 1);
  }
  const OwnedFile kept = memory('x');
  {
    const OwnedFile sent(FileNumber{::fcntl(kept->number, F_DUPFD_CLOEXEC, 0)});
    REQUIRE(send_share(s.a->number, sample(), sent->number, -1).ok());
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(first_of(kept) == 'z');
}

TEST_CASE("share socket: hostile messages: any length, other files than announced, far too many of them; all are closed") {
  const Sockets s;
  const OwnedFile file = memory('f');
  const int before = open_files();
  const auto refused = [&](const void* bytes, std::size_t size, std::size_t files) {
    send_raw(s.a->number, bytes, size, file->number, files);
    const Error e = receive_share(s.b->number).error();
    CHECK((e.code == Errc::corrupt || e.code == Errc::unsupported));
    CHECK(open_files() == before);
  };
  const auto right = message(1, sample());
  std::vector<std::byte> any(right.begin(), right.end());
  any.resize(400);
  for (std::size_t n = 1; n < 400; n += n < 170 ? 1 : 61)
    if (n != right.size()) refused(any.data(), n, 1);
  for (unsigned flags = 0; flags < 256; ++flags)
    for (std::size_t files = 0; files < 4; ++files)
      if (flags > 3 || files != (flags & 1) + (flags >> 1)) refused(message(flags, sample()).data(), right.size(), files);
  for (const std::size_t files : {3, 16, 200}) refused(right.data(), right.size(), files);
  for (std::size_t at = 1; at < right.size(); ++at) {
    auto bad = right;
    bad[at] ^= std::byte{0x40};
    refused(bad.data(), bad.size(), 1);
  }
  send_raw(s.a->number, right.data(), right.size(), file->number, 1);
  CHECK(receive_share(s.b->number).ok());
}

TEST_CASE("share socket: an end that is closed, no socket, one that does not wait and no more files are told apart") {
  Sockets s;
  CHECK(send_share(-1, sample(), -1, -1).code == Errc::invalid_argument);
  CHECK(send_share(s.a->number, sample(), 1000000, -1).code == Errc::invalid_argument);
  REQUIRE(::fcntl(s.b->number, F_SETFL, O_NONBLOCK) == 0);
  CHECK(receive_share(s.b->number).error().code == Errc::would_block);
  const OwnedFile file = memory('f');
  REQUIRE(send_share(s.a->number, sample(), file->number, -1).ok());
  rlimit before{}, none{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  none = before;
  none.rlim_cur = 0;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const Error e = receive_share(s.b->number).error();
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(e.code == Errc::corrupt);  // the file was lost on the way
  s.a = OwnedFile();
  CHECK(receive_share(s.b->number).error().code == Errc::aborted);
  Sockets t;
  t.b = OwnedFile();
  CHECK(send_share(t.a->number, sample(), -1, -1).code == Errc::aborted);
  const OwnedFile plain = memory('p');
  CHECK(receive_share(plain->number).error().code == Errc::invalid_argument);
}
