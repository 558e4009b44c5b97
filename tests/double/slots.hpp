// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>
#include <vector>

namespace holdfast::testing {

/// Records behind opaque handles of a driver. A handle that was given back comes again first, as real drivers do.
template <class Handle, class Record>
class Slots {
 public:
  Handle take(Record record) {
    Slot* slot = nullptr;
    if (free_.empty()) {
      slot = all_.emplace_back(std::make_unique<Slot>()).get();
    } else {
      slot = free_.back();
      free_.pop_back();
    }
    slot->record = std::move(record);
    slot->alive = true;
    return reinterpret_cast<Handle>(slot);
  }
  /// Null for what is no live handle.
  Record* find(Handle handle) {
    for (auto& slot : all_)
      if (reinterpret_cast<Handle>(slot.get()) == handle && slot->alive) return &slot->record;
    return nullptr;
  }
  bool give(Handle handle) {
    if (find(handle) == nullptr) return false;
    auto* slot = reinterpret_cast<Slot*>(handle);
    slot->alive = false;
    slot->record = Record{};
    free_.push_back(slot);
    return true;
  }
  std::size_t live() const { return all_.size() - free_.size(); }
  template <class F>
  void visit(F f) {
    for (auto& slot : all_)
      if (slot->alive) f(slot->record);
  }

 private:
  struct Slot {
    Record record{};
    bool alive = false;
  };
  std::vector<std::unique_ptr<Slot>> all_;
  std::vector<Slot*> free_;
};

}  // namespace holdfast::testing
