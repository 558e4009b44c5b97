// SPDX-License-Identifier: Apache-2.0
// A user's whole program; built in each way that a user may take the library in.
#include CONSUMER_INCLUDE

int main() {
  static_assert(holdfast::align_up(100, 64) == 128);
  return holdfast::make_error(holdfast::Errc::held, "held").ok() ? 1 : 0;
}
