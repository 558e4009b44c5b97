// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "holdfast/core/shape.hpp"

/// The structures of DLPack 1.1 and of its form without a version, laid out as its C header lays them out.
namespace holdfast::dlpack {

enum class DeviceType : std::int32_t {
  cpu = 1, cuda = 2, cuda_host = 3, opencl = 4, vulkan = 7, metal = 8, vpi = 9, rocm = 10, rocm_host = 11, extension = 12,
  cuda_managed = 13, one_api = 14, web_gpu = 15, hexagon = 16, maia = 17,
};
struct Device {
  DeviceType type = DeviceType::cpu;
  std::int32_t id = 0;
  friend constexpr bool operator==(const Device&, const Device&) noexcept = default;
};

enum class TypeCode : std::uint8_t {
  int_ = 0, uint_ = 1, float_ = 2, opaque = 3, bfloat = 4, complex = 5, bool_ = 6, f8e3m4 = 7, f8e4m3 = 8, f8e4m3b11fnuz = 9,
  f8e4m3fn = 10, f8e4m3fnuz = 11, f8e5m2 = 12, f8e5m2fnuz = 13, f8e8m0fnu = 14, f6e2m3fn = 15, f6e3m2fn = 16, f4e2m1fn = 17,
};
struct DataType {
  TypeCode code = TypeCode::int_;
  std::uint8_t bits = 0;
  std::uint16_t lanes = 1;
  friend constexpr bool operator==(const DataType&, const DataType&) noexcept = default;
};

/// A view of an array; `strides` is null for a row-major one. Units: `shape` and `strides` are elements.
struct Tensor {
  void* data = nullptr;
  Device device;
  std::int32_t ndim = 0;
  DataType dtype;
  std::int64_t* shape = nullptr;
  std::int64_t* strides = nullptr;
  std::uint64_t byte_offset = 0;
};

/// A tensor and who frees it; the form without a version.
struct ManagedTensor {
  Tensor dl_tensor;
  void* manager_ctx = nullptr;
  void (*deleter)(ManagedTensor* self) = nullptr;
};

struct Version {
  std::uint32_t major = 1;
  std::uint32_t minor = 1;
};
inline constexpr std::uint64_t flag_read_only = 1, flag_is_copied = 2, flag_subbyte_padded = 4;

/// The form with a version and flags.
struct ManagedTensorVersioned {
  Version version;
  void* manager_ctx = nullptr;
  void (*deleter)(ManagedTensorVersioned* self) = nullptr;
  std::uint64_t flags = 0;
  Tensor dl_tensor;
};
static_assert(sizeof(void*) != 8 || (sizeof(Tensor) == 48 && offsetof(Tensor, shape) == 24 && offsetof(Tensor, byte_offset) == 40 &&
                                     sizeof(ManagedTensor) == 64 && sizeof(ManagedTensorVersioned) == 80 &&
                                     offsetof(ManagedTensorVersioned, dl_tensor) == 32));

namespace detail {
struct TypePair {
  ElementType type;
  DataType dtype;
};
inline constexpr TypePair types[] = {
    {ElementType::pred, {TypeCode::bool_, 8, 1}}, {ElementType::s2, {TypeCode::int_, 2, 1}}, {ElementType::s4, {TypeCode::int_, 4, 1}},
    {ElementType::s8, {TypeCode::int_, 8, 1}}, {ElementType::s16, {TypeCode::int_, 16, 1}}, {ElementType::s32, {TypeCode::int_, 32, 1}},
    {ElementType::s64, {TypeCode::int_, 64, 1}}, {ElementType::u2, {TypeCode::uint_, 2, 1}}, {ElementType::u4, {TypeCode::uint_, 4, 1}},
    {ElementType::u8, {TypeCode::uint_, 8, 1}}, {ElementType::u16, {TypeCode::uint_, 16, 1}}, {ElementType::u32, {TypeCode::uint_, 32, 1}},
    {ElementType::u64, {TypeCode::uint_, 64, 1}}, {ElementType::f16, {TypeCode::float_, 16, 1}},
    {ElementType::f32, {TypeCode::float_, 32, 1}}, {ElementType::f64, {TypeCode::float_, 64, 1}},
    {ElementType::bf16, {TypeCode::bfloat, 16, 1}}, {ElementType::c64, {TypeCode::complex, 64, 1}},
    {ElementType::c128, {TypeCode::complex, 128, 1}}, {ElementType::f8e3m4, {TypeCode::f8e3m4, 8, 1}},
    {ElementType::f8e4m3, {TypeCode::f8e4m3, 8, 1}}, {ElementType::f8e4m3b11fnuz, {TypeCode::f8e4m3b11fnuz, 8, 1}},
    {ElementType::f8e4m3fn, {TypeCode::f8e4m3fn, 8, 1}}, {ElementType::f8e4m3fnuz, {TypeCode::f8e4m3fnuz, 8, 1}},
    {ElementType::f8e5m2, {TypeCode::f8e5m2, 8, 1}}, {ElementType::f8e5m2fnuz, {TypeCode::f8e5m2fnuz, 8, 1}},
    {ElementType::f8e8m0fnu, {TypeCode::f8e8m0fnu, 8, 1}}, {ElementType::f4e2m1fn, {TypeCode::f4e2m1fn, 4, 1}},
};
}  // namespace detail

/// The element type of a DLPack type; `invalid` for what has none here (vectors of lanes, opaque, 6 bits).
[[nodiscard]] constexpr ElementType element_type_of(DataType dtype) noexcept {
  for (const detail::TypePair& p : detail::types)
    if (p.dtype == dtype) return p.type;
  return ElementType::invalid;
}
/// The DLPack type of an element type; 0 bits for what has none.
[[nodiscard]] constexpr DataType data_type_of(ElementType type) noexcept {
  for (const detail::TypePair& p : detail::types)
    if (p.type == type) return p.dtype;
  return DataType{TypeCode::opaque, 0, 1};
}

}  // namespace holdfast::dlpack
