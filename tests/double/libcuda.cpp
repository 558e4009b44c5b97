// SPDX-License-Identifier: Apache-2.0
// The double as a driver library: what the loader of the real driver asks for, and nothing else. It is the machine that finds
// missing synchronisation: a program that had any is told of it when it ends, and fails. HOLDFAST_SEED chooses the delays.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "double/cuda_double.hpp"

namespace {

using namespace holdfast;
using namespace holdfast::testing;

struct StandardError {
  Error write(std::string_view text) noexcept {
    std::fwrite(text.data(), 1, text.size(), stderr);
    return {};
  }
};

CudaDouble& world() {
  static auto* const made = [] {
    CudaDoubleOptions o;
    o.capacity = Bytes{2} << 30;
    if (const char* const seed = std::getenv("HOLDFAST_SEED"); seed != nullptr) o.seed = std::strtoull(seed, nullptr, 10);
    std::atexit([] {
      world().machine.drain();
      if (world().machine.watch().count() == 0) return;
      StandardError out;
      static_cast<void>(world().machine.watch().write_races(out));
      std::fflush(stdout);
      std::_Exit(1);
    });
    return new CudaDouble(o);  // a driver outlives what uses it
  }();
  return *made;
}

template <class Call, class Function>
struct Entry;
template <class Call, class... Args>
struct Entry<Call, CUresult(Args...)> {
  static CUresult call(Args... args) { return world().enter(Call{}, args...); }
};
// Null for what there is not, or not in that version yet.
template <class... Calls>
void* find(std::tuple<Calls...>*, const char* name, int version, CUdriverProcAddressQueryResult* status) {
  void* found = nullptr;
  *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  const auto look = [&](const char* its_name, int since, void* function) {
    if (std::strcmp(name, its_name) != 0) return;
    found = version >= since ? function : nullptr;
    *status = version >= since ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
  };
  (look(Calls::name, Calls::version, reinterpret_cast<void*>(&Entry<Calls, typename Calls::type>::call)), ...);
  return found;
}

}  // namespace

extern "C" [[gnu::visibility("default")]] CUresult cuGetProcAddress_v2(const char* name, void** function, int version, cuuint64_t,
                                                                      CUdriverProcAddressQueryResult* status) {
  if (version > 13000) return CUDA_ERROR_INVALID_VALUE;
  *function = find(static_cast<cuda_call::All*>(nullptr), name, version, status);
  return CUDA_SUCCESS;
}
