// Tensors that no component takes, each with the reason why that is as it should be, or as a
// finding.
#include <algorithm>
#include <set>

#include "reference/weights.h"

namespace assay::reference {
namespace {

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The number after `before` in a name: "model.layers.61.eh_proj" -> 61. -1: none.
int64_t NumberAfter(std::string_view name, std::string_view before) {
  if (!name.starts_with(before)) return -1;
  name.remove_prefix(before.size());
  int64_t number = 0;
  size_t digits = 0;
  while (digits < name.size() && digits < 9 && name[digits] >= '0' && name[digits] <= '9') {
    number = 10 * number + (name[digits++] - '0');
  }
  return digits > 0 && digits < name.size() && name[digits] == '.' ? number : -1;
}

bool SameBytes(const TensorView* a, const TensorView* b) {
  return a != nullptr && b != nullptr && a->dtype == b->dtype && a->shape == b->shape &&
         std::equal(a->bytes.begin(), a->bytes.end(), b->bytes.begin(), b->bytes.end());
}

constexpr std::string_view kVision[] = {
    "vision_tower.", "vision_model.",          "vision_encoder.",  "vision.", "visual.",
    "mm_projector.", "multi_modal_projector.", "patch_merge_mlp.", "vit.",    "audio_tower.",
    "audio.",        "image_newline"};
constexpr std::string_view kShape = "weight_shape";

// `used`: sources of the components.
std::string ReasonFor(const std::string& name, const ModelConfig& config,
                      const TensorSource& source, const std::set<std::string>& used) {
  if (name.ends_with(kShape)) {
    const std::string module = name.substr(0, name.size() - kShape.size());
    return used.contains(module + "weight_packed") ? "says the shape a second time; checked" : "";
  }
  if (name.ends_with("rotary_emb.inv_freq")) return "computed from the config";
  if (config.tied && name.ends_with("lm_head.weight")) {
    const bool same =
        SameBytes(source.Find(name), source.Find(config.prefix + "embed_tokens.weight"));
    return same ? "a copy of the embedding, which is tied" : "";
  }
  if (IsUnplanned(config, name)) return std::string(kNotPlanned);
  if (IsBiasOfZeros(source, name)) return "zeros that GPTQ's packers write for a bias";
  const bool mtp_layer = NumberAfter(name, config.prefix + "layers.") >= config.layers;
  if (mtp_layer || name.starts_with("mtp.") || name.starts_with("model.mtp.")) {
    return "a layer that predicts further tokens, not one of the model's";
  }
  // Beside the decoder, not inside it.
  const bool inside = !config.prefix.empty() && name.starts_with(config.prefix + "layers.");
  for (const std::string_view vision : kVision) {
    const bool here = name.starts_with(vision) || Contains(name, "." + std::string(vision));
    if (!inside && here) return "of another tower of the model";
  }
  return "";
}

}  // namespace

std::vector<UnusedTensor> WeightStore::Unused() const {
  std::set<std::string> used;
  for (const Parameter& parameter : graph_.parameters) {
    if (!Present(parameter)) continue;
    const auto stored = StoredOf(parameter);
    if (!stored) continue;
    for (const Stored& tensor : *stored) used.insert(tensor.part.view->name);
  }
  std::vector<UnusedTensor> unused;
  for (const std::string& name : source_.Names()) {
    if (!used.contains(name)) unused.push_back({name, ReasonFor(name, config_, source_, used)});
  }
  return unused;
}

}  // namespace assay::reference
