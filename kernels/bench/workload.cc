#include "kernels/bench/workload.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "kernels/bench/pool.h"
#include "kernels/layouts/layouts.h"
#include "kernels/methods/methods.h"

namespace assay::kernels::bench {
namespace {

constexpr int64_t kStep = 32;  // elements of an activation scale
constexpr int64_t kLine = 64;

// Any codes will do; scales must be ordinary numbers, or their cost would be timed. Bytes of the
// checkpoint's storage.
std::byte Anything(int64_t i) {
  return static_cast<std::byte>(static_cast<uint64_t>(i) * 2654435761u >> 13);
}

void FillWords(std::vector<std::byte>* bytes, uint16_t first) {  // 16-bit floats near `first`
  for (size_t i = 0; i + 1 < bytes->size(); i += 2) {
    const auto bits = static_cast<uint16_t>(first + i / 2 % 64);
    std::memcpy(bytes->data() + i, &bits, sizeof bits);
  }
}

std::vector<std::byte> Stored(const Method& method, bool scale, int64_t values) {
  const DType dtype = scale ? method.scale_dtype : method.weight_dtype;
  std::vector<std::byte> bytes(static_cast<size_t>(values * SizeOf(dtype).count()));
  if (dtype == DType::kBF16) {
    FillWords(&bytes, 0x3F00);
    return bytes;
  }
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = Anything(static_cast<int64_t>(i));
  if (dtype == DType::kF8E8M0) {
    for (std::byte& b : bytes) b = (b & std::byte{7}) | std::byte{120};
  }
  if (!IsBlock(dtype)) return bytes;
  const uint16_t half = 0x3800;  // ½, the scale, and a minimum where there is one
  const auto block = static_cast<size_t>(SizeOf(dtype).count());
  for (size_t at = 0; at < bytes.size(); at += block) {
    std::memcpy(bytes.data() + at, &half, sizeof half);
    if (dtype == DType::kQ4_1) std::memcpy(bytes.data() + at + 2, &half, sizeof half);
  }
  return bytes;
}

bool IsMx(std::string_view act) { return act == "amxfp8" || act == "amxfp4"; }

}  // namespace

Workload::Workload(const LinearKernel& row, Shape shape, int64_t m, int64_t working_set)
    : row_(row), shape_(shape), m_(m), y_(static_cast<size_t>(m * shape.n)) {
  FillWeights(working_set);
  FillActivations();
}

void Workload::FillWeights(int64_t working_set) {
  const Method* method = FindMethod(row_.method);
  if (method == nullptr) std::abort();
  group_ = method->group.count();
  const StoredShape weight{method->weight_dtype, shape_.n,
                           shape_.k / method->packing.elements.count()};
  const StoredShape scale{method->scale_dtype, shape_.n, group_ == 0 ? 0 : shape_.k / group_};
  const Layout* layout = FindLayout(row_.layout, row_.method, "weight");
  codes_ = layout->bytes(weight);
  std::vector<std::byte> packed(static_cast<size_t>(codes_));
  layout->pack(weight, Stored(*method, false, weight.rows * weight.columns).data(), packed.data());
  if (group_ > 0) {
    layout = FindLayout(row_.layout, row_.method, "scale");
    scales_ = layout->bytes(scale);
    packed.resize(static_cast<size_t>(bytes()));
    layout->pack(scale, Stored(*method, true, scale.rows * scale.columns).data(),
                 packed.data() + codes_);
  }
  // Codes and scales on cache lines of their own, as the loader lays them.
  const auto lines = [](int64_t count) { return (count + kLine - 1) / kLine; };
  stride_ = (lines(codes_) + lines(scales_)) * kLine;
  copies_ = std::max<int64_t>(1, working_set / stride_);
  memory_.resize(static_cast<size_t>(copies_ * stride_ / kLine));
  for (int64_t copy = 0; copy < copies_; ++copy) {
    std::byte* at = memory_[0].bytes + copy * stride_;
    std::memcpy(at, packed.data(), static_cast<size_t>(codes_));
    std::memcpy(at + lines(codes_) * kLine, packed.data() + codes_, static_cast<size_t>(scales_));
  }
}

void Workload::FillActivations() {
  const auto count = static_cast<size_t>(m_ * shape_.k);
  if (row_.act == "a16") {
    bf16_.resize(count);
    for (size_t i = 0; i < count; ++i) bf16_[i] = static_cast<uint16_t>(0x3F00 + i % 64);
    return;
  }
  if (IsMx(row_.act)) {
    x_codes_.resize(row_.act == "amxfp4" ? count / 2 : count);
    for (size_t i = 0; i < x_codes_.size(); ++i) x_codes_[i] = static_cast<int8_t>(i % 120);
    x_bytes_.assign(count / kStep, 120);
    return;
  }
  x_codes_.resize(count);
  x_scales_.assign(count / kStep, 0.01F);
  x_sums_.resize(count / kStep);
  for (size_t i = 0; i < count; ++i) {
    x_codes_[i] = static_cast<int8_t>(static_cast<int>(i % 255) - 127);
    x_sums_[i / kStep] += x_codes_[i];
  }
}

WeightView Workload::View() const {
  const std::byte* copy = memory_[0].bytes + pass_ % copies_ * stride_;
  const int64_t scales_at = (codes_ + kLine - 1) / kLine * kLine;
  return {row_.layout, shape_.n, shape_.k, copy, group_ > 0 ? copy + scales_at : nullptr, group_};
}

void Workload::Pass(Pool& pool, int threads) {
  const WeightView view = View();
  Activations x{.bf16 = row_.act == "a16" ? bf16_.data() : nullptr,
                .codes = x_codes_.data(),
                .scales = x_scales_.data(),
                .sums = x_sums_.data()};
  x.e4m3 = reinterpret_cast<const uint8_t*>(x_codes_.data());
  x.e2m1 = reinterpret_cast<const std::byte*>(x_codes_.data());
  x.e8m0 = x_bytes_.data();
  const int64_t tiles = (shape_.n + row_.row_tile - 1) / row_.row_tile;
  const auto cut = [&](int64_t t) {
    return std::min(shape_.n, tiles * t / threads * row_.row_tile);
  };
  pool.Run([&](int t) { row_.run(view, x, m_, cut(t), cut(t + 1), y_.data(), shape_.n); });
  ++pass_;
}

}  // namespace assay::kernels::bench
