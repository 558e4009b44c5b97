// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

namespace holdfast::detail {

struct CloseCore {
  template <class Core>
  void operator()(Core* core) const noexcept {
    core->close();
  }
};
/// What the one owner of a pool's core has: it ends the core by `close`.
template <class Core>
using OwnedCore = std::unique_ptr<Core, CloseCore>;

/// The owner of what the handles of a pool refer to.
template <class Pool, class Core>
class CoreOwner {
 public:
  /// A handle to it.
  [[nodiscard]] Pool pool() const noexcept { return Pool(core_.get()); }

 protected:
  explicit CoreOwner(Core* core) noexcept : core_(core) {}

 private:
  OwnedCore<Core> core_;
};

}  // namespace holdfast::detail
