// Writes a small linear in every method, with the values that Decode reads from it, for
// vendor_check.py. vendor_write FOLDER
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <fstream>

#include "harness/checkpoint/gguf_writer.h"
#include "harness/checkpoint/safetensors.h"
#include "kernels/methods/quant_json.h"
#include "kernels/methods/storage.h"

namespace assay::kernels {
namespace {

constexpr int64_t kN = 64, kK = 512;

std::vector<float> Weights() {
  std::vector<float> w(static_cast<size_t>(kN * kK));
  uint64_t state = 99;
  for (float& value : w) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const double uniform = static_cast<double>(state >> 11) * 0x1p-53 - 0.5;
    value = static_cast<float>(0.05 * uniform * std::exp(3 * std::fabs(uniform)));
  }
  for (int64_t c = 0; c < kK; ++c) w[static_cast<size_t>(2 * kK + c)] = 0;
  return w;
}

Status WriteGguf(const std::string& path, const PackedPart& part) {
  GgufWriter writer;
  writer.PutText("general.architecture", "assay");
  writer.PutTensor({"m.weight", part.spec.dtype, part.spec.shape, part.bytes});
  std::ofstream file(path, std::ios::binary);
  file << writer.Bytes();
  file.close();
  return file ? Ok() : Status(Error{path + ": cannot be written"});
}

Status WriteOne(const std::string& folder, const std::string& id) {
  const Scheme scheme = ParseScheme(id).value();
  const std::vector<float> w = Weights();
  const auto parts = Pack(scheme, w.data(), kN, kK);
  if (!parts.ok()) return parts.error();
  std::vector<double> values(w.size());
  const PartViews views = ViewsOf(*parts, "m");
  if (Status good = Decode(scheme, views, kN, kK, values.data()); !good.ok()) return good;
  std::vector<TensorView> tensors = {
      {"values", DType::kF64, {kN, kK}, std::as_bytes(std::span(values)), "memory"}};
  if (scheme.family == MethodFamily::kGguf) {
    const Status good = WriteGguf(fmt::format("{}/{}.gguf", folder, id), parts->front());
    if (!good.ok()) return good;
  } else {
    for (const auto& [suffix, view] : views) tensors.push_back(view);
  }
  return WriteSafetensors(
      fmt::format("{}/{}.safetensors", folder, id), tensors,
      {{"method", id}, {"config", QuantConfigJson(scheme, {"lm_head"}, {{"m", kN, kK}})}});
}

}  // namespace
}  // namespace assay::kernels

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "vendor_write FOLDER\n");
    return 2;
  }
  for (const std::string& id : assay::KnownSchemes()) {
    const assay::Status good = assay::kernels::WriteOne(argv[1], id);
    if (good.ok()) continue;
    std::fprintf(stderr, "%s: %s\n", id.c_str(), good.error().message.c_str());
    return 1;
  }
}
