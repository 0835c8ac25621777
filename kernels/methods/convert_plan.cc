#include "kernels/methods/convert_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/methods/numbers.h"

namespace assay::kernels {
namespace {

constexpr std::string_view kWeight = ".weight";

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// "model.layers.12.mlp..." -> whether it lies in a numbered layer.
bool InLayers(std::string_view module) {
  constexpr std::string_view kLayers = "layers.";
  const size_t at = module.find(kLayers);
  if (at == std::string_view::npos || (at > 0 && module[at - 1] != '.')) return false;
  const size_t digit = at + kLayers.size();
  return digit < module.size() && module[digit] >= '0' && module[digit] <= '9';
}

std::string_view LastName(std::string_view module) { return module.substr(module.rfind('.') + 1); }

bool IsSlim(const Scheme& s) {
  return s.family == MethodFamily::kModelSlimW8a8 || s.family == MethodFamily::kModelSlimW4a8;
}

// "....mlp.experts.down_proj" [E, in, out] of gpt-oss.
bool IsFusedExperts(const TensorView& view) {
  return view.shape.size() == 3 && (view.name.ends_with(".experts.gate_up_proj") ||
                                    view.name.ends_with(".experts.down_proj"));
}

bool IsRoutedExpert(std::string_view module) { return Contains(module, ".experts."); }

// W8A8 with static activations is for linears; routed experts quantise theirs as they come.
bool IsStaticPart(std::string_view suffix) {
  return suffix == ".input_scale" || suffix == ".input_offset" || suffix == ".deq_scale" ||
         suffix == ".quant_bias";
}

bool HasStaticParts(const Scheme& s, std::string_view module) {
  return s.family == MethodFamily::kModelSlimW8a8 && !IsRoutedExpert(module);
}

PackOptions OptionsFor(const Scheme& s, const ConvertStep& step, const PackOptions& given) {
  PackOptions options = given;
  const std::string_view name = LastName(step.module);
  // Row-parallel linears have their correction in sixteen parts.
  const bool row = name == "down_proj" || name == "w2" || name == "o_proj";
  constexpr int64_t kParts = 16;
  if (s.family == MethodFamily::kModelSlimW4a8 && row && step.k % kParts == 0) {
    options.scale_bias_columns = kParts;
  }
  return options;
}

Result<int64_t> BytesOf(const TensorView& in, DType dtype, const std::vector<int64_t>& shape) {
  const std::optional<Bytes> bytes = StoredBytes(dtype, shape);
  if (!bytes) return Error{fmt::format("tensor {}: its size does not fit in 63 bits", in.name)};
  return bytes->count();
}

Status AddOut(ConvertStep* step, std::string name, DType dtype, std::vector<int64_t> shape) {
  const Result<int64_t> bytes = BytesOf(*step->in, dtype, shape);
  if (!bytes.ok()) return bytes.error();
  step->out.push_back({std::move(name), dtype, std::move(shape), *bytes});
  return Ok();
}

// The parts that a module gets, with the shapes that OptionsFor asks for.
Status AddParts(const Scheme& s, const ConvertOptions& options, std::vector<PartSpec> specs,
                ConvertStep* step) {
  const int64_t columns = OptionsFor(s, *step, options.pack).scale_bias_columns;
  for (PartSpec& spec : specs) {
    if (IsStaticPart(spec.suffix) && IsSlim(s) && !HasStaticParts(s, step->module)) continue;
    if (spec.suffix == ".scale_bias") spec.shape = {step->n, columns};
    if (step->experts > 0) spec.shape.insert(spec.shape.begin(), step->experts);
    if (Status good = AddOut(step, step->module + spec.suffix, spec.dtype, spec.shape);
        !good.ok()) {
      return good;
    }
  }
  step->converts = true;
  return Ok();
}

class Planner {
 public:
  Planner(const TensorSource& source, const Scheme& scheme, const ConvertOptions& options)
      : source_(source), scheme_(scheme), options_(options) {}

  Result<ConvertPlan> Plan() {
    const std::vector<std::string> names = source_.Names();
    only_experts_ = scheme_.family == MethodFamily::kDeepseekV4Mxfp4 &&
                    std::any_of(names.begin(), names.end(), [](const std::string& name) {
                      return Contains(name, ".ffn.experts.");
                    });
    for (const std::string& name : names) {
      const TensorView* view = source_.Find(name);
      if (view == nullptr) return Error{fmt::format("tensor {}: it is not there", name)};
      if (Status good = Add(*view); !good.ok()) return good.error();
    }
    if (plan_.modules.empty()) {
      return Error{
          fmt::format("{}: no linear of this model can be converted to it; {}", NameOf(scheme_),
                      scheme_.family == MethodFamily::kGptOssMxfp4
                          ? "it is for gpt-oss's fused experts"
                          : "none is chosen, or their extents do not fit"),
          ErrorKind::kRefused};
    }
    Describe();
    return std::move(plan_);
  }

 private:
  Status Add(const TensorView& view) {
    ConvertStep step;
    step.in = &view;
    plan_.in_bytes += static_cast<int64_t>(view.bytes.size());
    const bool oss = scheme_.family == MethodFamily::kGptOssMxfp4;
    if (IsFusedExperts(view)) {
      step.module = view.name;
      step.experts = view.shape[0];
      step.k = view.shape[1];
      step.n = view.shape[2];
      const std::string experts = view.name.substr(0, view.name.rfind('.'));
      const bool wanted = oss && step.experts > 0 && Wanted(step);
      if (Status good = Decide(wanted, experts, &step); !good.ok()) return good;
    } else if (view.name.ends_with(kWeight) && view.shape.size() == 2) {
      step.module = view.name.substr(0, view.name.size() - kWeight.size());
      step.n = view.shape[0];
      step.k = view.shape[1];
      if (Status good = Decide(!oss && Wanted(step), step.module, &step); !good.ok()) return good;
    } else if (Status good = AddOut(&step, view.name, view.dtype, view.shape); !good.ok()) {
      return good;
    }
    plan_.steps.push_back(std::move(step));
    return Ok();
  }

  bool Wanted(const ConvertStep& step) const {
    if (options_.convert) return options_.convert(step.module, step.n, step.k);
    if (only_experts_ && !Contains(step.module, ".ffn.experts.")) return false;
    return IsUsualLinear(scheme_, step.module);
  }

  Status Decide(bool wanted, const std::string& ignored_as, ConvertStep* step) {
    const DType dtype = step->in->dtype;
    if (wanted) {
      Result<std::vector<PartSpec>> specs = PartsOf(scheme_, step->n, step->k);
      if (specs.ok() && dtype != DType::kF32 && dtype != DType::kF16 && dtype != DType::kBF16) {
        return Error{
            fmt::format("tensor {}: it is stored as {}; only F32, F16 and BF16 can be "
                        "converted",
                        step->in->name, NameOf(dtype))};
      }
      if (specs.ok()) {
        plan_.modules.push_back({step->module, step->n, step->k});
        return AddParts(scheme_, options_, std::move(*specs), step);
      }
    }
    // An embedding is no linear, and nobody lists it.
    if (plan_.ignored.empty() || plan_.ignored.back() != ignored_as) {
      if (!Contains(ignored_as, "embed")) plan_.ignored.push_back(ignored_as);
    }
    step->experts = 0;
    return AddOut(step, step->in->name, dtype, step->in->shape);
  }

  void Describe() {
    if (!IsSlim(scheme_)) return;
    std::vector<DescribedTensor> tensors;
    for (const ConvertStep& step : plan_.steps) {
      const bool four = scheme_.family == MethodFamily::kModelSlimW4a8;
      const char* type = !step.converts                         ? "FLOAT"
                         : four                                 ? "W4A8_DYNAMIC"
                         : HasStaticParts(scheme_, step.module) ? "W8A8"
                                                                : "W8A8_DYNAMIC";
      for (const OutTensor& out : step.out) tensors.push_back({out.name, type});
    }
    plan_.description = ModelSlimDescription(scheme_, tensors);
  }

  const TensorSource& source_;
  const Scheme& scheme_;
  const ConvertOptions& options_;
  bool only_experts_ = false;
  ConvertPlan plan_;
};

std::vector<float> ReadFloats(const TensorView& view, int64_t first, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    values[static_cast<size_t>(i)] =
        static_cast<float>(LoadValue(view.dtype, view.bytes.data(), first + i));
  }
  return values;
}

// Linears that engines merge share NVFP4's global scale; an expert's gate and up need not.
std::vector<std::string> Merged(std::string_view module) {
  if (IsRoutedExpert(module)) return {};
  constexpr std::array<std::array<std::string_view, 3>, 3> kSets = {
      {{"q_proj", "k_proj", "v_proj"}, {"gate_proj", "up_proj", ""}, {"w1", "w3", ""}}};
  const std::string_view last = LastName(module);
  const std::string head(module.substr(0, module.size() - last.size()));
  for (const auto& set : kSets) {
    if (std::find(set.begin(), set.end(), last) == set.end()) continue;
    std::vector<std::string> names;
    for (const std::string_view name : set) {
      if (!name.empty()) names.push_back(head + std::string(name));
    }
    return names;
  }
  return {};
}

double SharedAmax(const TensorSource& source, const ConvertPlan& plan, const Scheme& s,
                  std::string_view module) {
  if (s.family != MethodFamily::kCtNvfp4 && s.family != MethodFamily::kModelOptNvfp4) return 0;
  double amax = 0;
  for (const std::string& name : Merged(module)) {
    const bool converted =
        std::any_of(plan.modules.begin(), plan.modules.end(),
                    [&](const ConvertedModule& other) { return other.name == name; });
    const TensorView* view = converted ? source.Find(name + std::string(kWeight)) : nullptr;
    if (view == nullptr) continue;
    for (int64_t i = 0; i < view->shape[0] * view->shape[1]; ++i) {
      const double size = std::fabs(LoadValue(view->dtype, view->bytes.data(), i));
      if (size > amax) amax = size;
    }
  }
  return std::isfinite(amax) ? amax : 0;  // Pack says where the infinity is
}

Status EmitParts(const Result<std::vector<PackedPart>>& parts, const ConvertStep& step,
                 int64_t expert, const Emit& emit) {
  if (!parts.ok()) {
    Error error = parts.error();
    error.message = fmt::format("tensor {}: {}", step.in->name, error.message);
    return error;
  }
  for (const PackedPart& part : *parts) {
    for (size_t out = 0; out < step.out.size(); ++out) {
      if (step.out[out].name != step.module + part.spec.suffix) continue;
      const auto size = static_cast<int64_t>(part.bytes.size());
      if (Status good = emit(out, expert * size, part.bytes); !good.ok()) return good;
    }
  }
  return Ok();
}

}  // namespace

bool IsUsualLinear(const Scheme& scheme, std::string_view module) {
  if (!InLayers(module)) return false;
  const std::string_view last = LastName(module);
  if (last == "gate" || last == "router" || last == "shared_expert_gate") return false;
  if (last.ends_with("norm") || last.ends_with("_res_proj") || last.starts_with("index_")) {
    return false;
  }
  if (Contains(module, ".attn.") || Contains(module, "vision") || Contains(module, "visual")) {
    return false;
  }
  return !(IsSlim(scheme) && last == "kv_b_proj");
}

Result<ConvertPlan> PlanConversion(const TensorSource& source, const Scheme& scheme,
                                   const ConvertOptions& options) {
  return Planner(source, scheme, options).Plan();
}

Status RunStep(const TensorSource& source, const ConvertPlan& plan, const ConvertStep& step,
               const Scheme& scheme, const ConvertOptions& options, const Emit& emit) {
  if (!step.converts) return emit(0, 0, step.in->bytes);
  PackOptions pack = OptionsFor(scheme, step, options.pack);
  const int64_t size = step.n * step.k;
  if (step.experts == 0) {
    std::vector<float> bias;
    const TensorView* view = source.Find(step.module + ".bias");
    if (view != nullptr && view->shape == std::vector<int64_t>{step.n} &&
        (view->dtype == DType::kF32 || view->dtype == DType::kF16 || view->dtype == DType::kBF16)) {
      bias = ReadFloats(*view, 0, step.n);
      pack.bias = bias.data();
    }
    if (pack.global_amax == 0) {
      pack.global_amax = SharedAmax(source, plan, scheme, step.module);
    }
    const std::vector<float> w = ReadFloats(*step.in, 0, size);
    return EmitParts(Pack(scheme, w.data(), step.n, step.k, pack), step, 0, emit);
  }
  for (int64_t e = 0; e < step.experts; ++e) {
    const std::vector<float> stored = ReadFloats(*step.in, e * size, size);  // [k, n]
    std::vector<float> w(stored.size());
    for (int64_t r = 0; r < step.n; ++r) {
      for (int64_t c = 0; c < step.k; ++c) w[r * step.k + c] = stored[c * step.n + r];
    }
    const Status good = EmitParts(Pack(scheme, w.data(), step.n, step.k, pack), step, e, emit);
    if (!good.ok()) return good;
  }
  return Ok();
}

}  // namespace assay::kernels
