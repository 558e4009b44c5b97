// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <thread>

/// libstdc++ and the allocator take cheaper paths until a process has had a second thread; an engine's has.
inline void become_threaded() {
  static std::once_flag once;
  std::call_once(once, [] { std::thread([] {}).join(); });
}
