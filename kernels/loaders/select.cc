#include "kernels/loaders/select.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "harness/units/scheme.h"
#include "kernels/layouts/aiter.h"
#include "kernels/layouts/layouts.h"

namespace assay::kernels {
namespace {

constexpr std::string_view kUnquantised = "bf16";
constexpr std::string_view kA16 = "a16";
constexpr std::string_view kAiter = "aiter";
constexpr std::string_view kMarlin = "marlin";
constexpr std::string_view kAbsorbed = "mla-absorb";

bool IsFourBitFloat(MethodFamily family) {
  return family == MethodFamily::kCtMxfp4 || family == MethodFamily::kGptOssMxfp4 ||
         family == MethodFamily::kDeepseekV4Mxfp4 || family == MethodFamily::kQuarkMxfp4;
}

std::string Of(std::string_view format, std::string_view variant) {
  return fmt::format("{}:{}", format, variant);
}

std::string_view Granular(Granularity granularity) {
  switch (granularity) {
    case Granularity::kNone:
      return "whole";
    case Granularity::kTensor:
      return "tensor";
    case Granularity::kChannel:
      return "channel";
    case Granularity::kGroup:
      return "group";
    case Granularity::kBlock:
      return "block";
  }
  return "?";
}

bool Has(const ParameterFacts& facts, std::string_view part) {
  return std::find(facts.parts.begin(), facts.parts.end(), part) != facts.parts.end();
}

// Producers store MXFP4 and NVFP4 in forms of their own: the path is the producer's.
std::string PathOfLinear(const Scheme& s) {
  switch (s.family) {
    case MethodFamily::kDense:
      return "dense";
    case MethodFamily::kCtInt:
      return Of(s.old_packing ? "ct-old-int" : "ct-int",
                s.actorder ? "actorder" : Granular(s.granularity));
    case MethodFamily::kCtW8a8:
      return Of("ct-w8a8", Granular(s.granularity));
    case MethodFamily::kCtFp8:
      return Of("ct-fp8", Granular(s.granularity));
    case MethodFamily::kCtMxfp4:
      return "mxfp4:ct";
    case MethodFamily::kCtMxfp8:
      return "mxfp8:ct";
    case MethodFamily::kCtNvfp4:
      return "nvfp4:ct";
    case MethodFamily::kDeepseekFp8:
      return "fp8:deepseek";
    case MethodFamily::kGptq:
      return Of(s.v2 ? "gptq-v2" : "gptq", s.actorder ? "actorder" : Granular(s.granularity));
    case MethodFamily::kAwq:
      return "awq";
    case MethodFamily::kGptOssMxfp4:
      return "mxfp4:gptoss";
    case MethodFamily::kDeepseekV4Mxfp4:
      return "mxfp4:deepseek-v4";
    case MethodFamily::kQuarkMxfp4:
      return "mxfp4:quark";
    case MethodFamily::kModelOptNvfp4:
      return "nvfp4:modelopt";
    case MethodFamily::kModelSlimW8a8:
      return "modelslim:w8a8";
    case MethodFamily::kModelSlimW4a8:
      return Of("modelslim", s.granularity == Granularity::kGroup ? "w4a8-group" : "w4a8");
    case MethodFamily::kGguf:
      return "gguf";
  }
  return "?";
}

bool IsNvfp4(MethodFamily family) {
  return family == MethodFamily::kCtNvfp4 || family == MethodFamily::kModelOptNvfp4;
}

// The loader's path, and what beside the method made it this one.
void ChoosePath(const ParameterFacts& facts, const Scheme& scheme, Choice* choice) {
  switch (facts.kind) {
    case ModuleKind::kVector:
      choice->path = "vector";
      return;
    case ModuleKind::kTable:
      choice->path = "table";
      return;
    case ModuleKind::kKvBHalf:
      choice->path = Of(PathOfLinear(scheme), "split-kv_b");
      choice->why = "the file has k_b and v_b in place of kv_b";
      return;
    default:
      break;
  }
  choice->path = PathOfLinear(scheme);
  if (facts.kind == ModuleKind::kKvB && scheme.family == MethodFamily::kDense) {
    choice->why = "kv_b lies in one piece, in floating point";
  } else if (facts.kind == ModuleKind::kExpert && IsNvfp4(scheme.family)) {
    // A fused kernel of NVFP4 experts has the activation inside.
    choice->path = fmt::format("{}:experts-{}", choice->path, facts.hidden_act);
    choice->why = fmt::format("experts with hidden_act {}", facts.hidden_act);
  } else if (facts.whole_k > 0 && scheme.group == facts.whole_k &&
             scheme.family == MethodFamily::kCtInt) {
    choice->why = "one group is the whole row, and the config says group, not channel";
  } else if (facts.whole_k > 0 && scheme.granularity == Granularity::kChannel) {
    choice->why = "one scale a row, as the config says";
  }
}

bool NeedsGateUp(std::string_view tag) {
  return tag == "aiter-interleaved" || tag == "aiter-gfx1250-interleaved" || tag == "gate-up-rows";
}

// What a tag that weaves gate and up together is for everything else.
std::string_view WithoutGateUp(std::string_view tag) {
  if (tag == "aiter-interleaved") return "aiter-klane";
  if (tag == "aiter-gfx1250-interleaved") return "aiter-gfx1250";
  return "row";
}

std::optional<AiterMode> ModeOf(std::string_view act) {
  if (act.empty()) return std::nullopt;
  if (act.starts_with("a4") || act == "amxfp4") return AiterMode::kA4W4;
  return act.starts_with("a8") || act == "amxfp8" ? AiterMode::kA8W4 : AiterMode::kA16W4;
}

// The tag that is demanded of the parameter; empty: its kernel's own.
std::string Demanded(const ParameterFacts& facts, const Mode& mode, const Scheme& scheme,
                     std::string* why) {
  if (facts.placement == Placement::kGpu && LayoutOfPart(kMarlin, facts.method, "weight")) {
    *why = "placed on gpu";
    return std::string(kMarlin);
  }
  // Activations in FP8 or FP4 under E8M0 scales are AITER's modes, and each has its layout.
  const bool mx = mode.act.starts_with("amx") && mode.kernel.empty();
  const bool states = facts.method == mode.method && !mode.layout.empty();
  if (!states && !(mx && IsFourBitFloat(scheme.family))) return "";
  std::string tag = states ? mode.layout : std::string(kAiter);
  if (tag == kAiter) {
    if (!IsFourBitFloat(scheme.family)) return "row";
    const AiterLayouts layouts = AiterLayoutFor(ModeOf(mode.act));
    tag = layouts.gate_up;
    *why = fmt::format("AITER with {}", mode.act.empty() ? kA16 : std::string_view(mode.act));
    if (!facts.gate_up) return std::string(layouts.down);
  }
  if (NeedsGateUp(tag) && !facts.gate_up) return std::string(WithoutGateUp(tag));
  if (tag == kAbsorbed && facts.kind != ModuleKind::kKvB) return "row";
  return tag;
}

bool IsLinear(ModuleKind kind) {
  switch (kind) {
    case ModuleKind::kRouter:
    case ModuleKind::kAttention:
    case ModuleKind::kKvB:
    case ModuleKind::kDense:
    case ModuleKind::kExpert:
    case ModuleKind::kLatent:
    case ModuleKind::kHead:
      return true;
    default:
      return false;
  }
}

// The row for a method's weights in a layout ("": any).
const LinearKernel* ChooseKernel(std::string_view method, std::string_view layout, const Mode& mode,
                                 std::span<const LinearKernel> kernels) {
  const bool named = method == mode.method && !mode.kernel.empty();
  const bool keeps = method == kUnquantised || mode.act.empty();
  const std::string_view act = keeps ? kA16 : std::string_view(mode.act);
  for (const LinearKernel& row : kernels) {
    if (row.tier != mode.tier || row.how != mode.how || !Takes(row, method)) continue;
    if (named && row.name != mode.kernel) continue;
    if (!layout.empty() && row.layout != layout) continue;
    // A kernel that was asked for by name brings its own.
    if (row.act != act && !(named && mode.act.empty())) continue;
    return &row;
  }
  return nullptr;
}

bool Ends(std::string_view op, std::string_view end) { return op.ends_with(end); }

}  // namespace

std::string_view NameOf(ModuleKind kind) {
  constexpr std::string_view kNames[] = {"vector", "table",     "router", "attention",
                                         "kv_b",   "kv_b half", "dense",  "expert",
                                         "latent", "head",      "other"};
  return kNames[static_cast<size_t>(kind)];
}

ModuleKind KindOf(std::string_view op, int64_t columns) {
  if (op == "embed") return ModuleKind::kTable;
  if (op == "logits") return ModuleKind::kHead;
  if (Ends(op, ".router.logits")) return ModuleKind::kRouter;
  if (op.find(".moe.e") != std::string_view::npos) return ModuleKind::kExpert;
  if (op.find(".moe.latent_") != std::string_view::npos && !Ends(op, "_norm")) {
    return ModuleKind::kLatent;
  }
  if (op.find(".mlp.") != std::string_view::npos || op.find(".shared.") != std::string_view::npos) {
    return ModuleKind::kDense;
  }
  if (Ends(op, ".attn.kv_b")) return ModuleKind::kKvB;
  if (Ends(op, ".attn.k_b") || Ends(op, ".attn.v_b")) return ModuleKind::kKvBHalf;
  if (columns == 1) return ModuleKind::kVector;
  if (op.find(".attn.") != std::string_view::npos && !Ends(op, "_conv")) {
    return ModuleKind::kAttention;
  }
  return ModuleKind::kOther;
}

std::string Choice::Print() const {
  return fmt::format("{}: {} by {}, layout {}, {}{}", parameter, method, path, layout,
                     kernel.empty() ? "no kernel" : "kernel " + kernel,
                     why.empty() ? "" : fmt::format(" ({})", why));
}

const LinearKernel* FindKernel(std::span<const LinearKernel> kernels, std::string_view name,
                               const Mode& mode) {
  for (const LinearKernel& row : kernels) {
    if (row.name == name && row.tier == mode.tier && row.how == mode.how) return &row;
  }
  return nullptr;
}

Choice Select(const ParameterFacts& facts, const Mode& mode,
              std::span<const LinearKernel> kernels) {
  Choice choice;
  choice.parameter = facts.name;
  choice.method = facts.method;
  const std::optional<Scheme> scheme = ParseScheme(facts.method);
  if (!scheme) {
    choice.path = "stored";
    choice.why = "values of no storage method";
    return choice;
  }
  ChoosePath(facts, *scheme, &choice);
  if (!IsLinear(facts.kind)) return choice;
  std::string why;
  const std::string demanded = Demanded(facts, mode, *scheme, &why);
  if (!why.empty()) choice.why += choice.why.empty() ? why : "; " + why;
  // A kernel computes from codes and scales alone.
  const bool plain = !Has(facts, "zero") && !Has(facts, "g_idx");
  const LinearKernel* row = plain ? ChooseKernel(facts.method, demanded, mode, kernels) : nullptr;
  if (row != nullptr) {
    choice.layout = row->layout;
    choice.kernel = row->name;
  } else if (!demanded.empty() && LayoutOfPart(demanded, facts.method, "weight") != nullptr) {
    choice.layout = demanded;
  }
  return choice;
}

Status CheckMode(const Mode& mode, std::span<const LinearKernel> kernels) {
  const auto unsupported = [](std::string message) {
    return Error{std::move(message), ErrorKind::kUnsupported};
  };
  if (!mode.kernel.empty() && FindKernel(kernels, mode.kernel, mode) == nullptr) {
    return unsupported(fmt::format("no kernel '{}' of tier {}", mode.kernel, NameOf(mode.tier)));
  }
  const auto scheme = ParseScheme(mode.method);
  if (!scheme) return unsupported(fmt::format("method '{}' is unknown", mode.method));
  const bool built = std::any_of(kernels.begin(), kernels.end(), [&](const LinearKernel& row) {
    return Takes(row, mode.method) && row.tier == mode.tier && row.how == mode.how;
  });
  const auto said = [](std::string_view key, const std::string& value) {
    return value.empty() ? std::string() : fmt::format(" {} {}", key, value);
  };
  // What only a kernel can promise. Nothing in bf16 alone can have its activations quantised.
  const bool bf16 = mode.method == kUnquantised;
  const bool acts = !mode.act.empty() && mode.act != kA16 && (built || bf16);
  const LinearKernel* any = ChooseKernel(mode.method, "", mode, kernels);
  if ((acts && (any == nullptr || bf16)) || (!mode.kernel.empty() && any == nullptr)) {
    return unsupported(fmt::format("no kernel for method {} of tier {}{}{}", mode.method,
                                   NameOf(mode.tier), said("named", mode.kernel),
                                   said("with act", mode.act)));
  }
  if (mode.layout.empty()) return Ok();
  const bool aiter = mode.layout == kAiter && IsFourBitFloat(scheme->family);
  if (!mode.kernel.empty()) {
    if (ChooseKernel(mode.method, mode.layout, mode, kernels) != nullptr) return Ok();
    return unsupported(fmt::format("kernel {} does not take layout {}", mode.kernel, mode.layout));
  }
  if (aiter || LayoutOfPart(mode.layout, mode.method, "weight") != nullptr) return Ok();
  return unsupported(fmt::format("no layout '{}' of method {} is built", mode.layout, mode.method));
}

}  // namespace assay::kernels
