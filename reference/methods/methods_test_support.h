// What the tests of storage methods share: tensors by suffix, the config that an id stands for, and
// a decoder's whole matrix.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "harness/checkpoint/tensor_source.h"
#include "harness/units/scheme.h"
#include "reference/methods/method.h"

namespace assay::reference::testing_support {

// The tensors of one parameter by their suffix, its own or a source's.
class Parts : public PartFinder {
 public:
  Parts() = default;
  // Every tensor of the source under its name without `prefix`.
  explicit Parts(const TensorSource& source, const std::string& prefix = "") {
    for (const std::string& name : source.Names()) {
      if (name.starts_with(prefix)) Set(name.substr(prefix.size()), *source.Find(name));
    }
  }
  const TensorView* Find(std::string_view suffix) const override {
    const auto found = views_.find(suffix);
    return found == views_.end() ? nullptr : found->second.get();
  }
  std::string Name() const override { return "layer"; }

  void Set(const std::string& suffix, const TensorView& view) {
    views_[suffix] = std::make_unique<TensorView>(view);
  }
  void Remove(const std::string& suffix) { views_.erase(suffix); }
  TensorView& At(const std::string& suffix) { return *views_.at(suffix); }
  // Bytes of its own, to be changed.
  template <class T>
  void Put(const std::string& suffix, DType dtype, std::vector<int64_t> shape,
           const std::vector<T>& values) {
    auto& bytes = owned_.emplace_back(std::make_unique<std::vector<std::byte>>());
    bytes->resize(values.size() * sizeof(T));
    std::memcpy(bytes->data(), values.data(), bytes->size());
    views_[suffix] = std::make_unique<TensorView>(
        TensorView{"layer." + suffix, dtype, std::move(shape), *bytes, "memory"});
  }
  // A copy of the tensor's bytes that the test may change, in place of the tensor.
  std::vector<std::byte>& Own(const std::string& suffix) {
    TensorView& view = At(suffix);
    auto& bytes = owned_.emplace_back(std::make_unique<std::vector<std::byte>>());
    bytes->assign(view.bytes.begin(), view.bytes.end());
    view.bytes = *bytes;
    return *bytes;
  }

 private:
  std::map<std::string, std::unique_ptr<TensorView>, std::less<>> views_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> owned_;
};

// The module's config of a checkpoint that is stored by this method.
inline QuantConfig ConfigOf(const std::string& id) {
  const auto scheme = ParseScheme(id);
  QuantConfig config;
  if (!scheme) {
    ADD_FAILURE() << id << " is no method";
    return config;
  }
  config.bits = scheme->bits;
  config.group_size = std::max<int64_t>(scheme->group, 0);
  config.symmetric = !scheme->asymmetric;
  config.block_n = scheme->block_n;
  config.block_k = scheme->block_k;
  config.fnuz = scheme->fnuz;
  config.v2 = scheme->v2;
  constexpr const char* kStrategies[] = {"", "tensor", "channel", "group", "block"};
  config.strategy = kStrategies[static_cast<int>(scheme->granularity)];
  switch (scheme->family) {
    case MethodFamily::kCtInt:
      config.format = "pack-quantized";
      config.actorder = scheme->actorder ? "group" : "";
      break;
    case MethodFamily::kCtW8a8:
      config.format = "int-quantized";
      break;
    case MethodFamily::kCtFp8:
      config.format = "float-quantized";
      break;
    case MethodFamily::kCtMxfp4:
    case MethodFamily::kCtMxfp8:
    case MethodFamily::kCtNvfp4:
      config.format = id.substr(3) + "-pack-quantized";
      break;
    case MethodFamily::kGptq:
      config.method = "gptq";
      config.desc_act = scheme->actorder;
      return config;
    case MethodFamily::kAwq:
      config.method = "awq";
      return config;
    case MethodFamily::kDeepseekFp8:
      config.method = "fp8";
      return config;
    case MethodFamily::kModelSlimW8a8:
    case MethodFamily::kModelSlimW4a8:
      config.method = "ascend";
      return config;
    case MethodFamily::kModelOptNvfp4:
      config.method = "modelopt";
      return config;
    case MethodFamily::kQuarkMxfp4:
      config.method = "quark";
      return config;
    case MethodFamily::kGptOssMxfp4:
    case MethodFamily::kDeepseekV4Mxfp4:
      config.method = "mxfp4";
      return config;
    case MethodFamily::kDense:
    case MethodFamily::kGguf:
      return {};
  }
  config.method = "compressed-tensors";
  config.weight_type =
      scheme->family == MethodFamily::kCtInt || scheme->family == MethodFamily::kCtW8a8 ? "int"
                                                                                        : "float";
  return config;
}

inline std::unique_ptr<Decoder> MustOpen(const PartFinder& parts, const QuantConfig& config,
                                         int64_t rows, int64_t columns,
                                         const Decoder* whole = nullptr) {
  auto decoder = OpenDecoder(parts, config, rows, columns, whole);
  if (!decoder) {
    ADD_FAILURE() << decoder.error().message;
    std::abort();
  }
  return std::move(*decoder);
}
inline Error ErrorOf(const PartFinder& parts, const QuantConfig& config, int64_t rows,
                     int64_t columns) {
  const auto decoder = OpenDecoder(parts, config, rows, columns);
  return decoder ? Error{"no error"} : decoder.error();
}

inline std::vector<double> AllRows(const Decoder& decoder) {
  std::vector<double> all(static_cast<size_t>(decoder.rows() * decoder.columns()));
  for (int64_t n = 0; n < decoder.rows(); ++n) {
    decoder.Row(n, all.data() + n * decoder.columns());
  }
  return all;
}

// As numbers, or NaN both; signs of zeros too.
inline bool SameDouble(double a, double b) {
  if (a != a || b != b) return a != a && b != b;
  return a == b && std::signbit(a) == std::signbit(b);
}
inline int64_t Differing(const std::vector<double>& a, const std::vector<double>& b) {
  int64_t differing = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) differing += !SameDouble(a[i], b[i]);
  return differing;
}

}  // namespace assay::reference::testing_support
