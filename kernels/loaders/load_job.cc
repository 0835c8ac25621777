#include "kernels/loaders/load_job.h"

#include <fmt/format.h>

#include <cstring>

#include "kernels/loaders/engine_error.h"

namespace assay::kernels {
namespace {

constexpr Packing kInt4Words{Elements(8), Bytes(4)};
// NaN in every floating type, and no code that a loader would write everywhere.
constexpr int kPoison = 0xFF;
constexpr int64_t kWeightAlignment = 64;

}  // namespace

const TensorView* ViewSource::Find(std::string_view name) const {
  const auto found = views_.find(name);
  return found == views_.end() ? nullptr : &found->second;
}

std::vector<std::string> ViewSource::Names() const {
  std::vector<std::string> names;
  for (const auto& entry : views_) names.push_back(entry.first);
  return names;
}

TensorView ViewOf(const assay_tensor& tensor) {
  TensorView view;
  view.name = tensor.name == nullptr ? "" : tensor.name;
  view.file = "memory";
  const auto refuse = [&](const std::string& why) {
    EngineError error(ASSAY_FAILED, fmt::format("{}: {}", view.name, why));
    error.tensor = view.name;
    throw error;
  };
  if (tensor.dtype > static_cast<uint32_t>(DType::kU64)) {
    refuse(fmt::format("type {} is unknown", tensor.dtype));
  }
  view.dtype = static_cast<DType>(tensor.dtype);
  if (tensor.ndim > 4) refuse(fmt::format("{} axes; at most 4", tensor.ndim));
  view.shape.assign(tensor.shape, tensor.shape + tensor.ndim);
  const auto bytes = StoredBytes(view.dtype, view.shape);
  if (!bytes || static_cast<uint64_t>(bytes->count()) != tensor.bytes) {
    refuse(fmt::format("its shape does not fit {} bytes", tensor.bytes));
  }
  if (tensor.data == nullptr && tensor.bytes > 0) refuse("data is NULL");
  view.bytes = {static_cast<const std::byte*>(tensor.data), static_cast<size_t>(tensor.bytes)};
  return view;
}

ParameterSpec DenseSpec(const Expected& e, const TensorSource& tensors) {
  ParameterSpec spec;
  spec.component = fmt::format("{}.{}", e.op, e.part);
  spec.source = e.kind == Expected::Kind::kLinear ? e.source + ".weight" : e.source;
  spec.rows = e.n;
  spec.columns = e.k;
  spec.vector = e.kind == Expected::Kind::kVector;
  // The correction bias is fp32 in the released models, and used in fp32 whatever it is stored as.
  if (e.part == "bias") {
    const TensorView* tensor = tensors.Find(spec.source);
    const bool brief = tensor != nullptr && tensor->dtype == DType::kBF16;
    spec.dtype = brief ? DType::kBF16 : DType::kF32;
  }
  spec.packing = {Elements(1), SizeOf(spec.dtype)};
  spec.unit = "element";
  return spec;
}

std::vector<ParameterSpec> PackedSpecs(const Expected& e, const QuantConfig& quant) {
  const bool known = quant.method == "compressed-tensors" && quant.bits == 4 && quant.symmetric &&
                     quant.group_size > 0 && quant.strategy != "channel" &&
                     quant.actorder != "group";
  if (!known) {
    throw EngineError(
        ASSAY_UNSUPPORTED,
        fmt::format("{}.weight_packed: known is compressed-tensors, symmetric 4 bit in groups; "
                    "config says '{}', {} bits, group {}, strategy '{}', actorder '{}'",
                    e.source, quant.method, quant.bits, quant.group_size, quant.strategy,
                    quant.actorder));
  }
  ParameterSpec weight;
  weight.component = e.op + ".weight";
  weight.source = e.source + ".weight_packed";
  weight.dtype = DType::kI32;
  weight.rows = e.n;
  weight.columns = ValueOrThrow(ToWords(Elements(e.k), kInt4Words)).count();
  weight.packing = kInt4Words;
  weight.unit = "word";
  ParameterSpec scale;
  scale.component = e.op + ".scale";
  scale.source = e.source + ".weight_scale";
  scale.rows = e.n;
  scale.columns = ValueOrThrow(ToGroups(Elements(e.k), Elements(quant.group_size))).count();
  scale.packing = {Elements(1), SizeOf(scale.dtype)};
  scale.unit = "group";
  return {weight, scale};
}

ParameterSpec BiasSpec(const Expected& e) {
  ParameterSpec spec;
  spec.component = e.op + ".bias";
  spec.source = e.source + ".bias";
  spec.rows = e.n;
  spec.vector = true;
  spec.packing = {Elements(1), SizeOf(spec.dtype)};
  spec.unit = "element";
  return spec;
}

std::pair<std::string_view, std::string_view> SplitComponent(std::string_view component) {
  const size_t dot = component.rfind('.');
  return {component.substr(0, dot), component.substr(dot + 1)};
}

bool IsLinear(const shard::ComponentPlan& plan) {
  const std::string_view op = SplitComponent(plan.component.name).first;
  return op != "embed" && !op.ends_with("norm") && !op.ends_with("router.scores");
}

std::string MethodOf(const shard::ComponentPlan& plan) {
  if (plan.component.packing.elements.count() == 1) return "bf16";
  return fmt::format("ct-int4-g{}", plan.component.group.count());
}

std::string ParameterName(const shard::ComponentPlan& plan) {
  if (!plan.segment_of.empty()) return plan.segment_of;
  return std::string(SplitComponent(plan.component.name).first);
}

const Layout* LayoutOf(const Parameter& parameter, std::string_view part) {
  if (parameter.kernel == nullptr || part == "bias") return nullptr;
  const LinearKernel& kernel = *parameter.kernel;
  const Layout* layout = FindLayout(kernel.layout, kernel.method, part);
  if (layout == nullptr) {
    throw EngineError(ASSAY_UNSUPPORTED,
                      fmt::format("{} takes layout {}, which is not built for {}", kernel.name,
                                  kernel.layout, part));
  }
  return layout;
}

Array<std::byte> Poisoned(Memory& memory, int64_t bytes) {
  Array<std::byte> array(memory, bytes, kWeightAlignment);
  std::memset(array.data(), kPoison, static_cast<size_t>(bytes));
  return array;
}

}  // namespace assay::kernels
