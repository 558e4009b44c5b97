// SPDX-License-Identifier: Apache-2.0
// Runs a libFuzzer target without libFuzzer: over each file of the folders named as arguments, and over damaged copies.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Input = std::vector<std::uint8_t>;

void run(const Input& input) { LLVMFuzzerTestOneInput(input.data(), input.size()); }

/// Cuts and flips at up to `steps` evenly spread places: the cheapest damage that a real file suffers.
void run_damaged(const Input& input, std::size_t steps) {
  const std::size_t stride = std::max<std::size_t>(1, input.size() / steps);
  for (std::size_t at = 0; at < input.size(); at += stride) {
    run(Input(input.begin(), input.begin() + static_cast<std::ptrdiff_t>(at)));
    Input flipped = input;
    flipped[at] = static_cast<std::uint8_t>(flipped[at] ^ (1u << (at % 8)));
    run(flipped);
  }
}

}  // namespace

int main(int argc, char** argv) {
  run({});
  int files = 0;
  for (int i = 1; i < argc; ++i) {
    std::error_code absent;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i], absent)) {
      if (!entry.is_regular_file()) continue;
      std::printf("%s\n", entry.path().filename().c_str());
      std::fflush(stdout);  // a crash then names its input
      std::ifstream stream(entry.path(), std::ios::binary);
      const Input input{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
      run(input);
      run_damaged(input, input.size() < 4096 ? 64 : 8);
      ++files;
    }
  }
  std::printf("%d passed, 0 failed, %d skipped\n", files, files == 0 ? 1 : 0);
  return 0;
}
