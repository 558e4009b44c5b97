// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "holdfast/backend/host/owned_file.hpp"
#include "holdfast/core/share_blob.hpp"

namespace holdfast {

/// What came with a blob: the file that stands for the memory and the end of a lease, if there are such.
struct ReceivedShare {
  ShareBlob blob;
  OwnedFile file, lease;
};

namespace detail {

inline constexpr std::size_t share_message_bytes = share_blob_bytes + 1;  // which files come with it, the blob
[[nodiscard]] inline Error share_socket_error(int code, const char* what) noexcept {
  Error e = make_error(code == EAGAIN || code == EWOULDBLOCK                              ? Errc::would_block
                       : code == EPIPE || code == ECONNRESET                              ? Errc::aborted
                       : code == EMFILE || code == ENFILE || code == ETOOMANYREFS         ? Errc::over_budget
                       : code == EBADF || code == ENOTSOCK || code == EINVAL              ? Errc::invalid_argument
                                                                                          : Errc::internal,
                       what);
  e.native = code;
  return e;
}

}  // namespace detail

/// Sends a blob to the process at the other end of a Unix socket that keeps messages apart (SOCK_SEQPACKET), with the files
/// that belong to it, which stay the caller's; -1: there is none.
///
/// Errors: aborted (nobody is there any more), would_block (a socket that does not wait), invalid_argument (no such socket or
/// file), over_budget (too many files on the way), internal. Threads: blocks while the socket is full.
[[nodiscard]] inline Error send_share(int socket, const ShareBlob& blob, int file, int lease) noexcept {
  std::array<std::byte, detail::share_message_bytes> bytes;
  bytes[0] = static_cast<std::byte>((file >= 0 ? 1 : 0) | (lease >= 0 ? 2 : 0));
  std::ranges::copy(write_share_blob(blob), bytes.begin() + 1);
  int files[2];
  std::size_t count = 0;
  for (const int f : {file, lease})
    if (f >= 0) files[count++] = f;

  iovec data{bytes.data(), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof files)] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (count != 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(head), files, count * sizeof(int));
  }
  for (;;) {
    const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
    if (sent == static_cast<ssize_t>(bytes.size())) return {};
    if (sent >= 0) return make_error(Errc::invalid_argument, "the socket does not keep messages apart");
    if (errno != EINTR) return detail::share_socket_error(errno, "a share was not sent");
  }
}

/// Receives what `send_share` sent, from a process that is not trusted: whatever files come are closed unless the message is
/// whole and they are what it announces.
///
/// Errors: aborted (the other end is closed), would_block, corrupt (any other message), those of `read_share_blob`, as above.
/// Threads: blocks until there is a message.
[[nodiscard]] inline Result<ReceivedShare> receive_share(int socket) noexcept {
  std::array<std::byte, detail::share_message_bytes + 1> bytes;  // a longer message shows
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  iovec data{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR) got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (got < 0) return detail::share_socket_error(errno, "a share was not received");

  OwnedFile files[2];
  std::size_t count = 0;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = 0; at + CMSG_LEN(sizeof(int)) <= head->cmsg_len; at += sizeof(int)) {
      int file = -1;
      std::memcpy(&file, CMSG_DATA(head) + at, sizeof file);
      OwnedFile owned(FileNumber{file});
      if (count < 2) files[count++] = std::move(owned);
    }
  }
  if (got == 0) return make_error(Errc::aborted, "the other end of the socket is closed");
  if (got != static_cast<ssize_t>(detail::share_message_bytes) || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
    return make_error(Errc::corrupt, "a message is no share");
  const unsigned flags = std::to_integer<unsigned>(bytes[0]);
  if (flags > 3 || count != (flags & 1) + (flags >> 1)) return make_error(Errc::corrupt, "a share has not the files that it announces");
  const Result<ShareBlob> blob = read_share_blob(std::span<const std::byte>(bytes).subspan(1, share_blob_bytes));
  if (!blob.ok()) return blob.error();
  ReceivedShare share{*blob, {}, {}};
  std::size_t next = 0;
  if ((flags & 1) != 0) share.file = std::move(files[next++]);
  if ((flags & 2) != 0) share.lease = std::move(files[next]);
  return share;
}

}  // namespace holdfast
