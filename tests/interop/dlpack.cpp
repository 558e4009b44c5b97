// SPDX-License-Identifier: Apache-2.0
#include "holdfast/interop/dlpack.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <type_traits>
#include <vector>

#include "support/places.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::testing;

#define COUNTING_HOLDS SharedHold, LocalHold, StripedHold
#define BOTH_FORMS dlpack::ManagedTensor, dlpack::ManagedTensorVersioned

namespace {

template <class Hold>
using Buffer = TrackedBuffer<LoggedMemory, HostEvent, Hold>;
using SharedBuffer = Buffer<SharedHold>;

ArrayShape array(ElementType type, std::vector<std::int64_t> dimensions) { return *ArrayShape::make(type, dimensions); }
template <class B>
ShapedBuffer<B> make(MemoryLog& log, const ArrayShape& shape, std::span<const HostEvent> definition = {}) {
  return std::move(*ShapedBuffer<B>::make(shape, std::move(*B::make(*B::raw_type::allocate(LoggedMemory(log), buffer_size(shape)), definition))));
}

// A tensor of another library: counts its deletions.
template <class Managed>
struct Foreign {
  explicit Foreign(std::vector<std::int64_t> dimensions, std::vector<std::int64_t> steps = {})
      : shape(std::move(dimensions)), strides(std::move(steps)) {
    managed.manager_ctx = this;
    managed.deleter = [](Managed* m) { ++static_cast<Foreign*>(m->manager_ctx)->deletions; };
    managed.dl_tensor = {bytes, {}, static_cast<std::int32_t>(shape.size()), {dlpack::TypeCode::float_, 32, 1}, shape.data(),
                         strides.empty() ? nullptr : strides.data(), 0};
  }
  auto import(MemoryLog& log, bool is_mutable = false) {
    return dlpack::import_tensor<SharedBuffer>(dlpack::OwnedTensor<Managed>(&managed), LoggedMemory(log), {}, {}, is_mutable);
  }
  alignas(64) std::byte bytes[4096] = {};
  std::vector<std::int64_t> shape, strides;
  Managed managed;
  int deletions = 0;
};

}  // namespace

TEST_CASE_TEMPLATE("dlpack: an exported tensor has the buffer's address and shape, and its deleter is the external hold's end", Managed,
                   BOTH_FORMS) {
  MemoryLog log;
  std::int64_t frees = 0;
  auto b = make<SharedBuffer>(log, array(ElementType::f32, {2, 3, 4}));
  std::byte* const data = b.buffer().hold(HoldKind::usage)->raw().data();
  auto first = dlpack::export_tensor<Managed>(b), second = dlpack::export_tensor<Managed>(b);  // case 02: jax#4636, twice
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  CHECK(first->ready.ready());
  const dlpack::Tensor& t = first->tensor.get()->dl_tensor;
  CHECK(t.data == data);
  CHECK(t.ndim == 3);
  CHECK(std::vector<std::int64_t>(t.shape, t.shape + 3) == std::vector<std::int64_t>{2, 3, 4});
  CHECK(std::vector<std::int64_t>(t.strides, t.strides + 3) == std::vector<std::int64_t>{12, 4, 1});
  CHECK(t.dtype == dlpack::DataType{dlpack::TypeCode::float_, 32, 1});
  CHECK(t.byte_offset == 0);
  CHECK(b.buffer().counts().external == 2);
  const Error held = b.buffer().hold(HoldKind::donation).error();
  CHECK(held.code == Errc::held);
  CHECK(held.at == 2);
  { auto gone = std::move(second->tensor); }
  CHECK(b.buffer().counts().external == 1);
  CHECK(b.buffer().release().ok());
  CHECK(log.frees == frees);
  std::memset(t.data, 1, 96);  // still there
  std::thread other([&] { auto gone = std::move(first->tensor); });
  other.join();
  CHECK(log.frees == frees + 1);
  CHECK(status_kind(dlpack::export_tensor<Managed>(b).error()) == StatusKind::invalid_argument);
}

TEST_CASE_TEMPLATE("dlpack: every hold policy exports; the contents' event travels along, failed or not", Hold, COUNTING_HOLDS) {
  for (const bool fails : {false, true}) {
    MemoryLog log;
    HostPromise written = *HostPromise::make();
    const HostEvent definition[] = {written.get_event()};
    auto b = make<Buffer<Hold>>(log, array(ElementType::s8, {5}), definition);
    auto out = dlpack::export_tensor<dlpack::ManagedTensor>(b);
    REQUIRE(out.ok());
    CHECK(!out->ready.ready());
    // Imported again with the event, it is a buffer that is valid when the first is.
    const HostEvent ready[] = {out->ready};
    auto in = dlpack::import_tensor<Buffer<Hold>>(std::move(out->tensor), LoggedMemory(log), ready);
    REQUIRE(in.ok());
    CHECK(!in->buffer().ready_event()->ready());
    CHECK((fails ? written.set_error(make_error(Errc::internal, "copy failed")) : written.set()).ok());
    CHECK(says(in->buffer().ready_event()->wait(), "copy failed") == fails);
    CHECK(in->buffer().hold(HoldKind::usage)->raw().data() == b.buffer().hold(HoldKind::usage)->raw().data());
    CHECK(b.buffer().counts().external == 1);
    CHECK(in->buffer().release().ok());
    CHECK(b.buffer().counts().external == 0);
  }
}

TEST_CASE("dlpack: an exported mutable buffer has no content identity any more, a constant one says that it is read only") {
  MemoryLog log;
  auto b = make<SharedBuffer>(log, array(ElementType::s32, {4}));
  CHECK(b.buffer().hold(HoldKind::usage)->raw().content_identity() != 0);
  auto out = dlpack::export_tensor<dlpack::ManagedTensorVersioned>(b);
  CHECK(out->tensor.get()->version.major == 1);
  CHECK(out->tensor.get()->flags == 0);
  CHECK(b.buffer().hold(HoldKind::usage)->raw().content_identity() == 0);
  alignas(64) static std::byte foreign[64];
  auto constant = std::move(*ShapedBuffer<SharedBuffer>::make(
      array(ElementType::s32, {4}), std::move(*SharedBuffer::make(*SharedBuffer::raw_type::import_foreign(LoggedMemory(log), {foreign, 16}, {})))));
  CHECK(dlpack::export_tensor<dlpack::ManagedTensor>(constant).error().code == Errc::permission_denied);
  auto read_only = dlpack::export_tensor<dlpack::ManagedTensorVersioned>(constant);
  REQUIRE(read_only.ok());
  CHECK(read_only->tensor.get()->flags == dlpack::flag_read_only);
  CHECK(constant.buffer().hold(HoldKind::usage)->raw().content_identity() != 0);
}

TEST_CASE("dlpack: a layout goes out as strides and comes back, packed and padded elements say which they are") {
  MemoryLog log;
  ArrayShape columns = array(ElementType::f64, {2, 1, 5});
  for (const std::uint8_t d : {std::uint8_t{0}, std::uint8_t{2}, std::uint8_t{1}}) columns.minor_to_major.push_back(d);
  ArrayShape packed = array(ElementType::s4, {3, 4}), wide = array(ElementType::s2, {4});
  packed.element_bits = 4;
  wide.element_bits = 4;
  for (const ArrayShape& s : {columns, packed, array(ElementType::s4, {3}), array(ElementType::f32, {}), array(ElementType::bf16, {0, 3})}) {
    auto b = make<SharedBuffer>(log, s);
    auto out = dlpack::export_tensor<dlpack::ManagedTensorVersioned>(b);
    REQUIRE(out.ok());
    auto in = dlpack::import_tensor<SharedBuffer>(std::move(out->tensor), LoggedMemory(log), {}, {}, true);
    REQUIRE(in.ok());
    CHECK(in->shape() == s);
  }
  auto padded = make<SharedBuffer>(log, array(ElementType::s4, {3})), odd = make<SharedBuffer>(log, wide);
  CHECK(dlpack::export_tensor<dlpack::ManagedTensor>(padded).error().code == Errc::unsupported);
  CHECK(dlpack::export_tensor<dlpack::ManagedTensorVersioned>(odd).error().code == Errc::unsupported);
  ArrayShape tiled = array(ElementType::f32, {3}), dynamic = array(ElementType::f32, {3});
  tiled.tile.push_back(4);
  dynamic.dynamic = 1;
  for (const ArrayShape& s : {tiled, dynamic, array(ElementType::u1, {8})}) {
    auto b = make<SharedBuffer>(log, s);
    CHECK(dlpack::export_tensor<dlpack::ManagedTensorVersioned>(b).error().code == Errc::unsupported);
    CHECK(b.buffer().counts() == HoldCounts{});
  }
  CHECK(dlpack::export_tensor<dlpack::ManagedTensor>(padded, {dlpack::DeviceType::cuda, 0}).error().code == Errc::invalid_argument);
}

TEST_CASE_TEMPLATE("dlpack: an imported tensor is used where it lies and deleted once, after the last owner and event", Managed, BOTH_FORMS) {
  MemoryLog log;
  Foreign<Managed> f({4, 8});
  f.managed.dl_tensor.byte_offset = 64;
  HostPromise reader = *HostPromise::make();
  {
    auto in = f.import(log);
    REQUIRE(in.ok());
    CHECK(in->shape() == array(ElementType::f32, {4, 8}));
    auto use = in->buffer().hold(HoldKind::usage);
    CHECK(use->raw().data() == f.bytes + 64);
    CHECK(!use->raw().is_mutable());
    use->convert(reader.get_event());
  }
  CHECK(f.deletions == 0);
  CHECK(reader.set().ok());
  CHECK(f.deletions == 1);
  CHECK(log.allocations == 0);
  auto writable = f.import(log, true);
  CHECK(writable->buffer().hold(HoldKind::usage)->raw().is_mutable());
}

TEST_CASE_TEMPLATE("dlpack: hostile tensors are refused with a reason, and deleted", Managed, BOTH_FORMS) {
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  const struct {
    const char* what;
    void (*change)(Foreign<Managed>&);
    Errc code;
  } rows[] = {
      {"negative rank", [](auto& f) { f.managed.dl_tensor.ndim = -1; }, Errc::invalid_argument},
      {"smallest rank", [](auto& f) { f.managed.dl_tensor.ndim = std::numeric_limits<std::int32_t>::min(); }, Errc::invalid_argument},
      {"rank beyond the limit", [](auto& f) { f.managed.dl_tensor.ndim = 17; }, Errc::over_budget},
      {"largest rank", [](auto& f) { f.managed.dl_tensor.ndim = std::numeric_limits<std::int32_t>::max(); }, Errc::over_budget},
      {"no shape", [](auto& f) { f.managed.dl_tensor.shape = nullptr; }, Errc::invalid_argument},
      {"negative dimension", [](auto& f) { f.shape[0] = -1; }, Errc::invalid_argument},
      {"smallest dimension", [](auto& f) { f.shape[1] = -most - 1; }, Errc::invalid_argument},
      {"size that overflows", [](auto& f) { f.shape = {most, most}, f.managed.dl_tensor.shape = f.shape.data(); }, Errc::over_budget},
      {"size that wraps to small", [](auto& f) { f.shape[0] = 1LL << 32, f.shape[1] = 1LL << 32; }, Errc::over_budget},
      {"overflow behind a 0", [](auto& f) { f.shape = {0, most, most}, f.managed.dl_tensor.shape = f.shape.data(), f.managed.dl_tensor.ndim = 3; },
       Errc::over_budget},
      {"no data", [](auto& f) { f.managed.dl_tensor.data = nullptr; }, Errc::invalid_argument},
      {"offset that overflows", [](auto& f) { f.managed.dl_tensor.byte_offset = ~std::uint64_t{0}; }, Errc::invalid_argument},
      {"offset to the end of memory", [](auto& f) { f.managed.dl_tensor.byte_offset = ~reinterpret_cast<std::uintptr_t>(f.bytes); }, Errc::invalid_argument},
      {"misaligned offset", [](auto& f) { f.managed.dl_tensor.byte_offset = 4; }, Errc::invalid_argument},
      {"zero strides", [](auto& f) { f.strides = {0, 0}, f.managed.dl_tensor.strides = f.strides.data(); }, Errc::unsupported},
      {"negative strides", [](auto& f) { f.strides = {8, -1}, f.managed.dl_tensor.strides = f.strides.data(); }, Errc::unsupported},
      {"overflowing strides", [](auto& f) { f.strides = {most, 1}, f.managed.dl_tensor.strides = f.strides.data(); }, Errc::unsupported},
      {"strides with gaps", [](auto& f) { f.strides = {16, 1}, f.managed.dl_tensor.strides = f.strides.data(); }, Errc::unsupported},
      {"strides that overlap", [](auto& f) { f.strides = {4, 1}, f.managed.dl_tensor.strides = f.strides.data(); }, Errc::unsupported},
      {"another device", [](auto& f) { f.managed.dl_tensor.device.type = dlpack::DeviceType::cuda; }, Errc::invalid_argument},
      {"another device number", [](auto& f) { f.managed.dl_tensor.device.id = 1; }, Errc::invalid_argument},
      {"no device", [](auto& f) { f.managed.dl_tensor.device.type = static_cast<dlpack::DeviceType>(0); }, Errc::invalid_argument},
      {"lanes", [](auto& f) { f.managed.dl_tensor.dtype.lanes = 4; }, Errc::unsupported},
      {"no lanes", [](auto& f) { f.managed.dl_tensor.dtype.lanes = 0; }, Errc::unsupported},
      {"odd bits", [](auto& f) { f.managed.dl_tensor.dtype.bits = 31; }, Errc::unsupported},
      {"opaque", [](auto& f) { f.managed.dl_tensor.dtype.code = dlpack::TypeCode::opaque; }, Errc::unsupported},
      {"unknown type", [](auto& f) { f.managed.dl_tensor.dtype.code = static_cast<dlpack::TypeCode>(255); }, Errc::unsupported},
  };
  for (const auto& row : rows) {
    CAPTURE(row.what);
    MemoryLog log;
    Foreign<Managed> f({4, 8});
    row.change(f);
    const Error e = f.import(log).error();
    CHECK(e.code == row.code);
    CHECK(f.deletions == 1);
  }
  MemoryLog log;
  CHECK(dlpack::import_tensor<SharedBuffer>(dlpack::OwnedTensor<Managed>(), LoggedMemory(log)).error().code == Errc::invalid_argument);
  Foreign<Managed> careless({4, 8});
  careless.managed.deleter = nullptr;
  CHECK(careless.import(log).ok());
}

TEST_CASE("dlpack: a tensor of another major version is only deleted, and read-only memory is never written") {
  MemoryLog log;
  Foreign<dlpack::ManagedTensorVersioned> next({4}), constant({4});
  next.managed.version.major = 2;
  next.managed.dl_tensor.ndim = -7;
  CHECK(next.import(log).error().code == Errc::unsupported);
  CHECK(next.deletions == 1);
  constant.managed.flags = dlpack::flag_read_only;
  CHECK(constant.import(log, true).error().code == Errc::permission_denied);
  CHECK(constant.deletions == 1);
  auto in = constant.import(log);
  REQUIRE(in.ok());
  const std::byte bytes[4] = {};
  CHECK(in->buffer().hold(HoldKind::usage)->raw().copy_in(0, bytes).error().code == Errc::permission_denied);
}

TEST_CASE("dlpack: random tensors are refused or lie inside what they claim, each element at its own place") {
  std::mt19937 random(7);
  const auto pick = [&](std::initializer_list<std::int64_t> of) { return of.begin()[random() % of.size()]; };
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::int64_t shape[5], strides[5];
    for (int d = 0; d < 5; ++d) {
      shape[d] = pick({1, 2, 3, 1, 2, round % 7 == 0 ? most : 4, round % 11 == 0 ? -1 : 1, round % 13 == 0 ? 0 : 2});
      strides[d] = pick({1, 2, 3, 4, 6, 8, 12, round % 5 == 0 ? -1 : 1, round % 17 == 0 ? most : 2});
    }
    alignas(64) static std::byte bytes[8192];
    const dlpack::Tensor t{bytes, {}, static_cast<std::int32_t>(random() % 6), {dlpack::TypeCode::int_, 16, 1}, shape, random() % 3 == 0 ? nullptr : strides, 0};
    const auto view = dlpack::read_tensor(t, false, {});
    if (!view.ok()) continue;
    ++accepted;
    const ArrayShape& s = view->shape;
    REQUIRE(s.check().ok());
    std::int64_t product = 1;
    for (int d = 0; d < t.ndim; ++d) product *= shape[d];
    CHECK(s.device_size() == product * 2);
    if (product == 0 || t.strides == nullptr || product > 4096) continue;
    // By brute force: the element's place is the sum of its strides.
    std::vector<std::int64_t> index(s.rank(), 0);
    for (std::int64_t n = 0; n < product; ++n) {
      std::int64_t rest = n, place = 0;
      for (std::size_t d = s.rank(); d-- > 0;) {
        index[d] = rest % shape[d];
        rest /= shape[d];
        place += index[d] * strides[d];
      }
      REQUIRE(s.element_offset(index) == place);
      REQUIRE(place < product);
    }
  }
  CHECK(accepted > 1000);
}
