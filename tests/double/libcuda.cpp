// SPDX-License-Identifier: Apache-2.0
// The double as a driver library: what the loader of the real driver asks for, and nothing else.
#include <cstring>

#include "double/cuda_double.hpp"

namespace {

using namespace holdfast;
using namespace holdfast::testing;

CudaDouble& world() {
  static auto* const made = [] {
    CudaDoubleOptions o;
    o.capacity = Bytes{2} << 30;
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
