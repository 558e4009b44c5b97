// SPDX-License-Identifier: Apache-2.0
// What tests/peer/dlpack.py calls through ctypes: buffers that are made, exported, imported and asked; a shared object.
#include "holdfast/interop/dlpack.hpp"

#include <cstdint>
#include <new>
#include <utility>

#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/buffer/tracked_buffer.hpp"
#include "holdfast/event/host_event.hpp"

using namespace holdfast;

namespace {

// System memory that counts what it took back.
struct CountedMemory : SystemMemory {
  static inline std::int64_t frees = 0;
  void deallocate(Block block) noexcept {
    if (block.data != nullptr) ++frees;
    SystemMemory::deallocate(block);
  }
};
using Buffer = ShapedBuffer<TrackedBuffer<CountedMemory, HostEvent, SharedHold>>;

template <class Managed>
Managed* export_as(Buffer* b) {
  auto made = dlpack::export_tensor<Managed>(*b);
  if (!made.ok() || !made->ready.wait().ok()) return nullptr;
  return made->tensor.release();
}
template <class Managed>
Buffer* import_from(Managed* tensor, bool is_mutable) {
  auto made = dlpack::import_tensor<Buffer::buffer_type>(dlpack::OwnedTensor<Managed>(tensor), CountedMemory{}, {}, {}, is_mutable);
  return made.ok() ? new (std::nothrow) Buffer(std::move(*made)) : nullptr;
}

}  // namespace

extern "C" {
// A buffer of elements of `width` bytes that count up, as s8, s32, f32 (type 0, 1, 2).
Buffer* hf_make(int type, int rank, const std::int64_t* dimensions) {
  constexpr ElementType types[] = {ElementType::s8, ElementType::s32, ElementType::f32};
  const auto shape = ArrayShape::make(types[type], {dimensions, static_cast<std::size_t>(rank)});
  if (!shape.ok()) return nullptr;
  auto b = Buffer::allocate({}, *shape);
  if (!b.ok()) return nullptr;
  auto hold = b->buffer().hold(HoldKind::usage);
  for (std::int64_t i = 0; i < shape->count(); ++i) {
    std::byte* const at = hold->raw().data() + i * shape->host_size() / shape->count();
    if (type == 0) *at = static_cast<std::byte>(i);
    if (type == 1) *reinterpret_cast<std::int32_t*>(at) = static_cast<std::int32_t>(i);
    if (type == 2) *reinterpret_cast<float*>(at) = static_cast<float>(i);
  }
  hold->drop();
  return new (std::nothrow) Buffer(std::move(*b));
}
void hf_destroy(Buffer* b) { delete b; }
void* hf_export(Buffer* b) { return export_as<dlpack::ManagedTensor>(b); }
void* hf_export_versioned(Buffer* b) { return export_as<dlpack::ManagedTensorVersioned>(b); }
Buffer* hf_import(void* t, int is_mutable) { return import_from(static_cast<dlpack::ManagedTensor*>(t), is_mutable != 0); }
Buffer* hf_import_versioned(void* t, int is_mutable) { return import_from(static_cast<dlpack::ManagedTensorVersioned*>(t), is_mutable != 0); }
void* hf_address(Buffer* b) { return b->buffer().hold(HoldKind::usage)->raw().data(); }
std::int64_t hf_size(Buffer* b) { return b->on_device_size(); }
int hf_dimension(Buffer* b, int d) { return static_cast<int>(b->shape().dimensions[static_cast<std::size_t>(d)]); }
int hf_minor(Buffer* b, int k) { return static_cast<int>(b->shape().minor(static_cast<std::size_t>(k))); }
int hf_externals(Buffer* b) { return static_cast<int>(b->buffer().counts().external); }
int hf_donates(Buffer* b) { return b->buffer().try_hold(HoldKind::donation).ok(); }
int hf_is_mutable(Buffer* b) { return b->buffer().hold(HoldKind::usage)->raw().is_mutable(); }
std::int64_t hf_frees() { return CountedMemory::frees; }
}
