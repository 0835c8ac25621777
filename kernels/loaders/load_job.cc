#include "kernels/loaders/load_job.h"

#include <fmt/format.h>

#include <cstring>

#include "kernels/loaders/engine_error.h"

namespace assay::kernels {
namespace {

constexpr Packing kInt4Words{Elements(8), Bytes(4)};
constexpr Packing kMxfp4Bytes{Elements(2), Bytes(1)};
constexpr Elements kMxfp4Group(32);
// NaN in every floating type, and no code that a loader would write everywhere.
constexpr int kPoison = 0xFF;
constexpr int64_t kWeightAlignment = 64;

bool IsDense(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32;
}

// K in units that it must be a whole number of.
int64_t Whole(const std::string& tensor, Elements k, Elements unit, std::string_view name) {
  if (k.count() % unit.count() == 0) return k.count() / unit.count();
  EngineError error(ASSAY_REFUSED,
                    fmt::format("{}: axis k has {} elements, no whole number of {}s of {}", tensor,
                                k.count(), name, unit.count()));
  error.tensor = tensor;
  error.axis = "k";
  error.got = k.count();
  error.expected = unit.count();
  error.got_unit = error.expected_unit = "element";
  throw error;
}

ParameterSpec Spec(const Expected& e, std::string_view part, std::string_view suffix) {
  ParameterSpec spec;
  spec.component = fmt::format("{}.{}", e.op, part);
  spec.source = e.source + std::string(suffix);
  spec.rows = e.n;
  spec.columns = e.k;
  spec.packing = {Elements(1), SizeOf(spec.dtype)};
  spec.unit = "element";
  return spec;
}

void SetBlocks(DType block, Elements k, ParameterSpec* spec) {
  spec->dtype = block;
  spec->columns = Whole(spec->source, k, ElementsOf(block), "block");
  spec->packing = {ElementsOf(block), SizeOf(block)};
  spec->unit = "block";
}

ParameterSpec ScaleSpec(const Expected& e, std::string_view suffix, DType dtype, Elements group) {
  ParameterSpec scale = Spec(e, "scale", suffix);
  scale.dtype = dtype;
  scale.columns = Whole(scale.source, Elements(e.k), group, "group");
  scale.packing = {Elements(1), SizeOf(dtype)};
  scale.unit = "group";
  return scale;
}

// A vector's type: any floating one, converted at load.
DType FloatingOf(const TensorSource& tensors, const std::string& name, DType otherwise) {
  const TensorView* tensor = tensors.Find(name);
  return tensor != nullptr && IsDense(tensor->dtype) ? tensor->dtype : otherwise;
}

std::vector<ParameterSpec> CtPackedSpecs(const Expected& e, const QuantConfig& quant) {
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
  ParameterSpec weight = Spec(e, "weight", ".weight_packed");
  weight.dtype = DType::kI32;
  weight.columns = Whole(weight.source, Elements(e.k), kInt4Words.elements, "word");
  weight.packing = kInt4Words;
  weight.unit = "word";
  return {weight, ScaleSpec(e, ".weight_scale", DType::kBF16, Elements(quant.group_size))};
}

std::vector<ParameterSpec> Mxfp4Specs(const Expected& e) {
  ParameterSpec weight = Spec(e, "weight", ".weight");
  weight.dtype = DType::kI8;
  weight.columns = Whole(weight.source, Elements(e.k), kMxfp4Bytes.elements, "word");
  weight.packing = kMxfp4Bytes;
  weight.unit = "word";
  return {weight, ScaleSpec(e, ".scale", DType::kF8E8M0, kMxfp4Group)};
}

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
  if (tensor.dtype > static_cast<uint32_t>(DType::kNvfp4Block)) {
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

Storage StorageOf(const Expected& e, const TensorSource& tensors) {
  const auto find = [&](std::string_view suffix) {
    return tensors.Find(e.source + std::string(suffix));
  };
  if (find(".weight_packed") != nullptr || find(".weight_scale") != nullptr) {
    return {Storage::Kind::kCtPacked, DType::kI32};
  }
  const TensorView* weight = find(".weight");
  if (find(".scale") != nullptr || (weight != nullptr && weight->dtype == DType::kI8)) {
    return {Storage::Kind::kMxfp4, DType::kI8};
  }
  if (weight != nullptr && IsBlock(weight->dtype)) return {Storage::Kind::kBlocks, weight->dtype};
  return {};
}

ParameterSpec VectorOrTableSpec(const Expected& e, const TensorSource& tensors) {
  ParameterSpec spec = Spec(e, e.part, "");
  spec.vector = e.kind == Expected::Kind::kVector;
  // The correction bias is fp32 in the released models.
  spec.dtype = FloatingOf(tensors, spec.source, e.part == "bias" ? DType::kF32 : DType::kBF16);
  spec.packing = {Elements(1), SizeOf(spec.dtype)};
  const TensorView* tensor = tensors.Find(spec.source);
  if (!spec.vector && tensor != nullptr && IsBlock(tensor->dtype)) {
    SetBlocks(tensor->dtype, Elements(e.k), &spec);
  }
  return spec;
}

std::vector<ParameterSpec> LinearSpecs(const Expected& e, const Storage& storage,
                                       const TensorSource& tensors, const QuantConfig& quant) {
  std::vector<ParameterSpec> specs;
  if (storage.kind == Storage::Kind::kCtPacked) {
    specs = CtPackedSpecs(e, quant);
  } else if (storage.kind == Storage::Kind::kMxfp4) {
    specs = Mxfp4Specs(e);
  } else {
    specs = {Spec(e, "weight", ".weight")};
    if (storage.kind == Storage::Kind::kBlocks) {
      SetBlocks(storage.block, Elements(e.k), &specs.front());
    }
  }
  if (e.bias) {
    ParameterSpec bias = Spec(e, "bias", ".bias");
    bias.vector = true;
    bias.columns = 1;
    bias.dtype = FloatingOf(tensors, bias.source, DType::kBF16);
    bias.packing = {Elements(1), SizeOf(bias.dtype)};
    specs.push_back(bias);
  }
  return specs;
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
  if (IsBlock(plan.component.dtype)) {
    return MethodName(plan.component.dtype);
  }
  if (plan.component.dtype == DType::kI8) return "deepseek-v4-mxfp4";
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

Array<float> FloatsOf(Memory& memory, const Part& part) {
  Array<float> floats(memory, CheckedProduct(part.shape.rows, part.shape.columns));
  ToFloats(part.shape.dtype, part.bytes.data(), floats.count(), floats.data());
  return floats;
}

Array<std::byte> Poisoned(Memory& memory, int64_t bytes) {
  Array<std::byte> array(memory, bytes, kWeightAlignment);
  std::memset(array.data(), kPoison, static_cast<size_t>(bytes));
  return array;
}

}  // namespace assay::kernels
