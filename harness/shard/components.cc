// Finds what the config implies in the file, and checks every extent before it is used.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "harness/shard/listing.h"

namespace assay::shard {
namespace {

Error Unsupported(std::string message) {
  return Error{std::move(message), ErrorKind::kUnsupported};
}

bool IsDense(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32;
}

Status ResolveDense(const std::string& name, const TensorView& tensor, const Spec& spec, Cut cut,
                    std::vector<Listed>* out) {
  if (!IsDense(tensor.dtype)) {
    return Unsupported(fmt::format("{}: stored as {}; a dense tensor here is BF16, F16 or F32",
                                   Where(tensor), NameOf(tensor.dtype)));
  }
  const bool vector = spec.storage == Storage::kVector;
  const auto expected =
      vector ? std::vector<int64_t>{spec.n} : std::vector<int64_t>{spec.n, spec.k};
  if (Status shape = CheckShape(tensor, expected, "element"); !shape) return shape;
  Component c;
  c.name = name;
  c.source = tensor.name;
  c.dtype = tensor.dtype;
  c.rows = spec.n;
  c.columns = vector ? 1 : spec.k;
  c.packing = {Elements(1), SizeOf(tensor.dtype)};
  c.unit = "element";
  c.row_elements = Elements(c.columns);
  out->push_back({std::move(c), cut, spec.segment});
  return Ok();
}

// One tensor that is the whole parameter, dense or in blocks.
Status ResolveTable(const std::string& name, const TensorView& tensor, const Spec& spec,
                    std::vector<Listed>* out) {
  return IsBlock(tensor.dtype) ? ResolveBlocks(name, tensor, spec, out)
                               : ResolveDense(name, tensor, spec, spec.cut, out);
}

// A bias of a row-parallel layer counts once; of a column-parallel one it follows the rows.
Cut BiasCut(Cut weight) {
  return weight == Cut::kColumns || weight == Cut::kHeadColumns ? Cut::kOnce : weight;
}

Status ResolveBias(const Spec& spec, const TensorSource& source, std::vector<Listed>* out) {
  const std::string name = spec.source + ".bias";
  if (!spec.bias) {
    if (const TensorView* tensor = source.Find(name)) {
      return Error{fmt::format("{}: is in the file, but config says that {} has no bias",
                               Where(*tensor), spec.name)};
    }
    return Ok();
  }
  const auto tensor = Need(source, name, spec.name + ".bias");
  if (!tensor) return tensor.error();
  Spec vector = spec;
  vector.storage = Storage::kVector;
  return ResolveDense(spec.name + ".bias", **tensor, vector, BiasCut(spec.cut), out);
}

// What other producers put beside or instead of a weight (formats.md §1 to §6).
constexpr std::array<std::string_view, 12> kForeign = {".qweight",
                                                       ".qzeros",
                                                       ".scales",
                                                       ".g_idx",
                                                       ".weight_scale",
                                                       ".weight_scale_inv",
                                                       ".weight_scale_2",
                                                       ".weight_offset",
                                                       ".weight_global_scale",
                                                       ".weight_zero_point",
                                                       ".deq_scale",
                                                       ".quant_bias"};

// A weight with a tensor `scale` beside it: DeepSeek-V4 stores MXFP4 so, and FP8 likewise.
Status ResolveScaled(const Spec& spec, const TensorView& weight, const TensorView& scale,
                     bool headers_only, std::vector<Listed>* out) {
  if (weight.dtype == DType::kI8 && scale.dtype == DType::kF8E8M0) {
    return ResolveMxfp4(spec, weight, scale, headers_only, out);
  }
  return Unsupported(
      fmt::format("{}: stored as {} beside a weight of {}; known here is a scale of F8_E8M0 beside "
                  "a weight of I8, DeepSeek-V4's MXFP4",
                  Where(scale), NameOf(scale.dtype), NameOf(weight.dtype)));
}

Status ResolveLinear(const Spec& spec, const QuantConfig& quant, const TensorSource& source,
                     bool headers_only, std::vector<Listed>* out) {
  const TensorView* weight = source.Find(spec.source + ".weight");
  const TensorView* packed = source.Find(spec.source + ".weight_packed");
  if (weight != nullptr && packed != nullptr) {
    return Error{fmt::format("{}: stored twice, also as {}", Where(*weight), Where(*packed))};
  }
  if (packed != nullptr) {
    if (Status s = ResolvePacked(spec, quant, source, headers_only, out); !s) return s;
    return ResolveBias(spec, source, out);
  }
  for (std::string_view suffix : kForeign) {
    if (const TensorView* other = source.Find(spec.source + std::string(suffix))) {
      return Unsupported(
          fmt::format("{}: belongs to a method that is not known here; known are dense weights, "
                      "compressed-tensors int4 (weight_packed), DeepSeek-V4's MXFP4 (I8 with a "
                      "scale of F8_E8M0) and GGUF's blocks",
                      Where(*other)));
    }
  }
  const auto found = Need(source, spec.source + ".weight", spec.name + ".weight");
  if (!found) return found.error();
  Status s = Ok();
  if (const TensorView* scale = source.Find(spec.source + ".scale")) {
    s = ResolveScaled(spec, **found, *scale, headers_only, out);
  } else {
    s = ResolveTable(spec.name + ".weight", **found, spec, out);
  }
  return s.ok() ? ResolveBias(spec, source, out) : s;
}

// Members of a merged parameter lie in one tensor of the engine: same type, same unit, same group.
// GGUF's quantisers give members of different types on purpose (v finer than q and k): those are
// not merged.
Status CheckSegments(std::vector<Listed>& listed) {
  std::map<std::string, const Component*, std::less<>> first;
  std::set<std::string, std::less<>> apart;
  for (const Listed& entry : listed) {
    if (entry.segment.empty()) continue;
    const Component& c = entry.component;
    const std::string suffix = c.name.substr(c.name.rfind('.'));
    const auto [it, inserted] = first.emplace(entry.segment + suffix, &c);
    const Component& other = *it->second;
    if (!inserted && (c.dtype != other.dtype || c.unit != other.unit || c.group != other.group)) {
      if (c.unit == "block" || other.unit == "block") {
        apart.insert(entry.segment);
        continue;
      }
      return Error{fmt::format(
          "{} is stored as {} by {}s, group {}, but {} as {} by {}s, group {}; they are joined to "
          "{} and must be stored the same way",
          c.source, NameOf(c.dtype), c.unit, c.group.count(), other.source, NameOf(other.dtype),
          other.unit, other.group.count(), entry.segment)};
    }
  }
  for (Listed& entry : listed) {
    if (apart.contains(entry.segment)) entry.segment.clear();
  }
  return Ok();
}

}  // namespace

std::string Where(const TensorView& tensor) {
  return tensor.file.empty() ? tensor.name : fmt::format("{} ({})", tensor.name, tensor.file);
}

Result<const TensorView*> Need(const TensorSource& source, const std::string& name,
                               const std::string& implied_by) {
  if (const TensorView* tensor = source.Find(name)) return tensor;
  return Error{
      fmt::format("{}: missing from the checkpoint; config implies it as {}", name, implied_by)};
}

Status CheckShape(const TensorView& tensor, const std::vector<int64_t>& expected,
                  const std::string& column_unit) {
  if (tensor.shape.size() != expected.size()) {
    return Error{fmt::format("{}: has {} axes [{}], expected {} [{}]", Where(tensor),
                             tensor.shape.size(), fmt::join(tensor.shape, ", "), expected.size(),
                             fmt::join(expected, ", "))};
  }
  int64_t bytes = SizeOf(tensor.dtype).count();
  for (size_t i = 0; i < expected.size(); ++i) {
    const std::string unit = i == 1 ? column_unit : "element";
    if (tensor.shape[i] != expected[i]) {
      return Error{fmt::format("{}: axis {} has {} {}s, expected {} {}s", Where(tensor),
                               i == 1 ? "k" : "n", tensor.shape[i], unit, expected[i], unit)};
    }
    if (__builtin_mul_overflow(bytes, expected[i], &bytes)) {
      return Error{fmt::format("{}: [{}] of {} has more bytes than an int64 counts", Where(tensor),
                               fmt::join(expected, ", "), NameOf(tensor.dtype))};
    }
  }
  if (tensor.bytes.size() != static_cast<uint64_t>(bytes)) {
    return Error{fmt::format("{}: has {} bytes, its shape and type {} need {}", Where(tensor),
                             tensor.bytes.size(), NameOf(tensor.dtype), bytes)};
  }
  return Ok();
}

Status ResolveSpec(const Spec& spec, const QuantConfig& quant, const TensorSource& source,
                   bool headers_only, std::vector<Listed>* out) {
  if (spec.storage == Storage::kLinear) {
    return ResolveLinear(spec, quant, source, headers_only, out);
  }
  if (spec.optional && source.Find(spec.source) == nullptr) return Ok();
  const auto tensor = Need(source, spec.source, spec.name);
  if (!tensor) return tensor.error();
  if (spec.storage == Storage::kTable) return ResolveTable(spec.name, **tensor, spec, out);
  return ResolveDense(spec.name, **tensor, spec, spec.cut, out);
}

Result<std::vector<Listed>> ListAll(const ModelConfig& config, const TensorSource& source,
                                    const Selection& selection) {
  const auto widths = CheckWidths(config);
  if (!widths) return widths.error();
  if (Status s = CheckSelection(config, selection); !s) return s.error();
  std::vector<Listed> listed;
  const auto resolve = [&](const std::vector<Spec>& specs) -> Status {
    for (const Spec& spec : specs) {
      Status s = ResolveSpec(spec, config.quant, source, selection.headers_only, &listed);
      if (!s) return s;
    }
    return Ok();
  };
  const bool all = selection.layer < 0;
  if (all) {
    if (Status s = resolve({EmbedSpec(config)}); !s) return s.error();
  }
  const int64_t begin = all ? 0 : selection.layer;
  const int64_t end = all ? config.layers : selection.layer + 1;
  for (int64_t layer = begin; layer < end; ++layer) {
    if (Status s = resolve(LayerSpecs(config, *widths, layer, selection)); !s) return s.error();
  }
  if (all) {
    if (Status s = resolve(HeadSpecs(config)); !s) return s.error();
  }
  if (Status s = CheckSegments(listed); !s) return s.error();
  return listed;
}

Result<std::vector<Component>> ListComponents(const ModelConfig& config, const TensorSource& source,
                                              const Selection& selection) {
  auto listed = ListAll(config, source, selection);
  if (!listed) return listed.error();
  std::vector<Component> components;
  components.reserve(listed->size());
  for (Listed& entry : *listed) components.push_back(std::move(entry.component));
  return components;
}

}  // namespace assay::shard
