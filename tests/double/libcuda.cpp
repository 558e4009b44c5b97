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
template <class... Calls>
void* find(std::tuple<Calls...>*, const char* name) {
  void* found = nullptr;
  ((std::strcmp(name, Calls::name) == 0 ? static_cast<void>(found = reinterpret_cast<void*>(&Entry<Calls, typename Calls::type>::call)) : void()), ...);
  return found;
}

}  // namespace

extern "C" [[gnu::visibility("default")]] CUresult cuGetProcAddress_v2(const char* name, void** function, int, cuuint64_t,
                                                                      CUdriverProcAddressQueryResult* status) {
  *function = find(static_cast<cuda_call::All*>(nullptr), name);
  *status = *function != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return CUDA_SUCCESS;
}
