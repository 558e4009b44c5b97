// SPDX-License-Identifier: Apache-2.0
// The double as a driver library, with the entries that load and launch the program's checking
// kernel.
#include <string_view>

#include "libcuda.cpp"
#include "pattern_launch.hpp"

#define EXPORTED extern "C" [[gnu::visibility("default")]] CUresult

// A module is its text, a function its place there.
EXPORTED cuModuleLoadData(CUmodule* module, const void* image) {
  const std::string_view text(static_cast<const char*>(image));
  if (text.find(".version ") == text.npos || text.find(".target ") == text.npos)
    return CUDA_ERROR_INVALID_PTX;
  *module = reinterpret_cast<CUmodule>(const_cast<void*>(image));
  return CUDA_SUCCESS;
}
EXPORTED cuModuleUnload(CUmodule module) {
  return module == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
EXPORTED cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  const char* const at = std::strstr(reinterpret_cast<const char*>(module),
                                     (".entry " + std::string(name) + "(").c_str());
  if (at == nullptr) return CUDA_ERROR_NOT_FOUND;
  *function = reinterpret_cast<CUfunction>(const_cast<char*>(at));
  return CUDA_SUCCESS;
}
EXPORTED cuLaunchKernel(CUfunction function, unsigned grid, unsigned y, unsigned z, unsigned block,
                        unsigned by, unsigned bz, unsigned, CUstream stream, void** arguments,
                        void**) {
  if (function == nullptr || grid == 0 || block == 0 || block > 1024 || y * z * by * bz != 1)
    return CUDA_ERROR_INVALID_VALUE;
  program::PatternArguments a(0, {}, PatternCheck::full, nullptr);
  std::uint64_t* const to[] = {&a.at, &a.units, &a.last, &a.paged, &a.shift, &a.first, &a.wrong};
  for (std::size_t k = 0; k < std::size(to); ++k)
    *to[k] = *static_cast<const std::uint64_t*>(arguments[k]);
  launch_pattern(world(), stream, a);
  return CUDA_SUCCESS;
}
