// What the oracle's tests share: opening a shipped model, data from a seed, changed sources.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/checkpoint/checkpoint.h"
#include "harness/checkpoint/tensor_source.h"
#include "reference/oracle.h"

namespace assay::reference::testing_support {

struct Opened {
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<Oracle> oracle;
  const ModelConfig& config() const { return checkpoint->config(); }
};

// `place` is "checkpoints" or "quantised". A model that cannot be opened fails the test.
inline Opened OpenModel(const std::string& name, const std::string& place = "checkpoints") {
  Opened opened;
  auto checkpoint = Checkpoint::Open("goldens/" + place + "/" + name);
  if (!checkpoint) {
    ADD_FAILURE() << checkpoint.error().message;
    std::abort();
  }
  opened.checkpoint = std::move(*checkpoint);
  auto oracle = Oracle::Create(opened.config(), *opened.checkpoint);
  if (!oracle) {
    ADD_FAILURE() << oracle.error().message;
    std::abort();
  }
  opened.oracle = std::move(*oracle);
  return opened;
}

inline uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}
// In [-1, 1), a function of (seed, index) alone.
inline double Uniform(uint64_t seed, uint64_t index) {
  return static_cast<double>(Mix(Mix(seed) ^ index) >> 11) * 0x1p-52 - 1;
}
inline Tensor RandomTensor(uint64_t seed, std::vector<int64_t> shape) {
  Tensor tensor;
  int64_t n = 1;
  for (const int64_t extent : shape) n *= extent;
  tensor.shape = std::move(shape);
  for (int64_t i = 0; i < n; ++i) {
    tensor.data.push_back(Uniform(seed, static_cast<uint64_t>(i)));
  }
  return tensor;
}

// A source with some tensors replaced or taken away.
class Overlay : public TensorSource {
 public:
  explicit Overlay(const TensorSource& base) : base_(base) {}
  MemorySource changed;
  std::set<std::string, std::less<>> removed;

  const TensorView* Find(std::string_view name) const override {
    if (removed.contains(name)) return nullptr;
    const TensorView* view = changed.Find(name);
    return view != nullptr ? view : base_.Find(name);
  }
  std::vector<std::string> Names() const override {
    std::set<std::string> names;
    for (const std::string& name : base_.Names()) names.insert(name);
    for (const std::string& name : changed.Names()) names.insert(name);
    for (const std::string& name : removed) names.erase(name);
    return {names.begin(), names.end()};
  }
  void Zero(const std::string& name) {
    const TensorView* view = base_.Find(name);
    changed.Put(name, view->dtype, view->shape, std::vector<std::byte>(view->bytes.size()));
  }

 private:
  const TensorSource& base_;
};

inline std::vector<std::byte> FloatBytes(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

}  // namespace assay::reference::testing_support
