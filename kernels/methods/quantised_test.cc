// Every quantised weight of goldens/quantised: Pack makes the producer's own bytes from the model
// that it was made of, and they decode to within half a step of it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "harness/checkpoint/safetensors.h"
#include "kernels/methods/numbers.h"
#include "kernels/methods/storage.h"

namespace assay::kernels {
namespace {

using Files = std::vector<std::unique_ptr<SafetensorsFile>>;

Files Open(std::initializer_list<std::string> paths) {
  Files files;
  for (const std::string& path : paths) {
    auto file = SafetensorsFile::Open("goldens/" + path + ".safetensors");
    EXPECT_TRUE(file.ok()) << (file.ok() ? "" : file.error().message);
    if (file.ok()) files.push_back(std::move(*file));
  }
  return files;
}

const TensorView* Find(const Files& files, const std::string& name) {
  for (const auto& file : files) {
    if (const TensorView* view = file->Find(name)) return view;
  }
  return nullptr;
}

std::vector<float> Floats(const TensorView& view) {
  std::vector<float> values(view.bytes.size() / 2);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] =
        static_cast<float>(LoadValue(DType::kBF16, view.bytes.data(), static_cast<int64_t>(i)));
  }
  return values;
}

bool Same(const PackedPart& ours, const TensorView& theirs) {
  return ours.spec.dtype == theirs.dtype && ours.spec.shape == theirs.shape &&
         ours.bytes.size() == theirs.bytes.size() &&
         std::memcmp(ours.bytes.data(), theirs.bytes.data(), ours.bytes.size()) == 0;
}

// Whether `module`, whose weight is w, is stored as Pack would store it.
void ExpectTheirBytes(const Scheme& scheme, const Files& quantised, const std::string& module,
                      const std::vector<float>& w, int64_t n, int64_t k) {
  SCOPED_TRACE(module);
  const auto parts = Pack(scheme, w.data(), n, k);
  ASSERT_TRUE(parts.ok()) << parts.error().message;
  PartViews views;
  for (const PackedPart& part : *parts) {
    const TensorView* theirs = Find(quantised, module + part.spec.suffix);
    ASSERT_NE(theirs, nullptr) << part.spec.suffix;
    EXPECT_TRUE(Same(part, *theirs)) << part.spec.suffix;
    views[part.spec.suffix] = *theirs;
  }
  std::vector<double> values(w.size());
  const Status status = Decode(scheme, views, n, k, values.data());
  ASSERT_TRUE(status.ok()) << status.error().message;
  double error = 0, size = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    error += (values[i] - w[i]) * (values[i] - w[i]);
    size += static_cast<double>(w[i]) * w[i];
  }
  // Quantised, and not something else: four bits leave some tenths, and never nothing.
  EXPECT_GT(error, 0);
  EXPECT_LT(error, 0.04 * size);
}

TEST(Quantised, Int4OfKimi) {
  const Files dense = Open({"checkpoints/k2-mini/model"}),
              quantised = Open({"quantised/k2-mini-int4-g32/model-00001-of-00002",
                                "quantised/k2-mini-int4-g32/model-00002-of-00002"});
  int modules = 0;
  for (const auto& [name, view] : dense[0]->tensors()) {
    if (name.find(".experts.") == std::string::npos) continue;
    ++modules;
    ExpectTheirBytes(ParseScheme("ct-int4-g32").value(), quantised, name.substr(0, name.size() - 7),
                     Floats(view), view.shape[0], view.shape[1]);
  }
  EXPECT_EQ(modules, 2 * 6 * 3);
}

TEST(Quantised, BlocksOfFp8) {
  const Files dense = Open({"checkpoints/qwen3moe-mini/model"}),
              quantised = Open({"quantised/qwen3moe-mini-fp8/model"});
  int modules = 0;
  for (const auto& [name, view] : dense[0]->tensors()) {
    if (!name.ends_with("_proj.weight")) continue;
    ++modules;
    ExpectTheirBytes(ParseScheme("deepseek-fp8-block32").value(), quantised,
                     name.substr(0, name.size() - 7), Floats(view), view.shape[0], view.shape[1]);
  }
  EXPECT_EQ(modules, 3 * (4 + 7 * 3));
}

// [E, in, out] in the dense checkpoint; [E, out, in/32, 16] in the quantised one.
TEST(Quantised, Mxfp4OfGptOss) {
  const Files dense = Open({"checkpoints/gptoss-mini/model"}),
              quantised = Open({"quantised/gptoss-mini-mxfp4/model"});
  const Scheme scheme = ParseScheme("gptoss-mxfp4").value();
  int experts = 0;
  for (const auto& [name, view] : dense[0]->tensors()) {
    if (!name.ends_with("_proj") || view.shape.size() != 3) continue;
    const std::vector<float> all = Floats(view);
    const int64_t k = view.shape[1], n = view.shape[2];
    for (int64_t e = 0; e < view.shape[0]; ++e, ++experts) {
      std::vector<float> w(static_cast<size_t>(n * k));
      for (int64_t i = 0; i < n * k; ++i) w[i] = all[e * n * k + i % k * n + i / k];
      const auto parts = Pack(scheme, w.data(), n, k);
      ASSERT_TRUE(parts.ok()) << parts.error().message;
      for (const PackedPart& part : *parts) {
        const TensorView* theirs = Find(quantised, name + part.spec.suffix);
        ASSERT_NE(theirs, nullptr);
        EXPECT_EQ(std::vector<int64_t>(theirs->shape.begin() + 1, theirs->shape.end()),
                  part.spec.shape);
        EXPECT_EQ(std::memcmp(theirs->bytes.data() + e * static_cast<int64_t>(part.bytes.size()),
                              part.bytes.data(), part.bytes.size()),
                  0)
            << name << part.spec.suffix << " of expert " << e;
      }
    }
  }
  EXPECT_EQ(experts, 3 * 2 * 5);
}

TEST(Quantised, ADifferenceIsSeen) {
  const Files dense = Open({"checkpoints/k2-mini/model"});
  const TensorView& view = *Find(dense, "model.layers.1.mlp.experts.0.down_proj.weight");
  std::vector<float> w = Floats(view);
  const Scheme scheme = ParseScheme("ct-int4-g32").value();
  const auto parts = Pack(scheme, w.data(), view.shape[0], view.shape[1]);
  TensorView packed = ViewsOf(*parts, "m").at(".weight_packed");
  EXPECT_TRUE(Same(parts->front(), packed));
  w[5] += 0.5F;
  const auto other = Pack(scheme, w.data(), view.shape[0], view.shape[1]);
  EXPECT_FALSE(Same(other->front(), packed));
}

}  // namespace
}  // namespace assay::kernels
