// Finds what the config implies in the file, and checks every extent before it is used.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "harness/shard/listing.h"
#include "harness/shard/methods/method.h"

namespace assay::shard {
namespace {

// Axes of 1 say nothing: a convolution's [D, 1, 4], A_log's [1, 1, heads, 1].
std::vector<int64_t> WithoutOnes(std::vector<int64_t> shape) {
  for (size_t axis = 0; axis < shape.size() && shape.size() > 2;) {
    if (shape[axis] == 1) {
      shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
    } else {
      ++axis;
    }
  }
  return shape;
}

// The tensor as the parameter sees it.
Result<Part> PartOf(const TensorView& tensor, const Spec& spec) {
  Part part;
  part.suffix = "weight";
  part.tensor = &tensor;
  part.shape = spec.storage == Storage::kDense ? WithoutOnes(tensor.shape) : tensor.shape;
  auto& shape = part.shape;
  if (spec.lead > 0) {
    if (shape.size() != 3 || shape[0] != spec.lead || shape[1] != spec.n / spec.lead) {
      return Error{fmt::format("{}: is [{}], expected [{}, {}, …]", Where(tensor),
                               fmt::join(shape, ", "), spec.lead, spec.n / spec.lead)};
    }
    shape = {spec.n, shape[2]};
  }
  if (spec.longer && !shape.empty() && shape[0] > spec.n) {
    shape[0] = spec.n;
    part.row_step = 1;
  }
  return part;
}

Status ListVector(const Linear& linear, std::string_view suffix, std::vector<Listed>* out) {
  const auto part = NeedPart(linear, "weight");
  if (!part) return part.error();
  const DType dtype = (*part)->tensor->dtype;
  if (linear.spec.storage == Storage::kIds) {
    if (Status s = CheckType(**part, {DType::kI64, DType::kI32}); !s) return s;
  } else if (dtype != DType::kBF16 && dtype != DType::kF16 && dtype != DType::kF32) {
    return Unsupported(fmt::format("{}: stored as {}; a dense tensor here is BF16, F16 or F32",
                                   Where(*(*part)->tensor), NameOf(dtype)));
  }
  Scheme scheme;
  scheme.dtype = dtype;
  Lister lister(linear, out);
  lister.SetMethod(scheme, 0);
  const Spec& spec = linear.spec;
  return lister.Add(**part, suffix, AlongN(spec), spec.k == 1 ? Whole() : AlongK(spec));
}

// One tensor that is the whole parameter.
Status ListTensor(const Spec& spec, const TensorSource& source, const Selection& selection,
                  std::vector<Listed>* out) {
  if ((spec.optional || selection.present_only) && source.Find(spec.source) == nullptr) return Ok();
  const auto tensor = Need(source, spec.source, spec.name);
  if (!tensor) return tensor.error();
  auto part = PartOf(**tensor, spec);
  if (!part) return part.error();
  const size_t dot = spec.name.rfind('.');
  Spec stem = spec;
  stem.name.resize(dot);
  const PartSet parts = PartSet::Of(std::move(*part));
  const QuantConfig none;
  const Linear linear{stem, parts, none, selection.headers_only};
  const bool block = IsBlock((*tensor)->dtype);
  if (spec.storage == Storage::kTable && block) return ListBlocks(linear, out);
  return ListVector(linear, std::string_view(spec.name).substr(dot + 1), out);
}

// ModelSlim's shift of a norm, which lies beside its weight.
Status ListShift(const Spec& spec, const TensorSource& source, const Selection& selection,
                 std::vector<Listed>* out) {
  constexpr std::string_view kWeight = "weight", kBias = "bias";
  Spec shift = spec;
  shift.name.replace(spec.name.size() - kWeight.size(), kWeight.size(), kBias);
  shift.source.replace(spec.source.size() - kWeight.size(), kWeight.size(), kBias);
  shift.optional = true;
  return ListTensor(shift, source, selection, out);
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
    if (!inserted && (c.dtype != other.dtype || c.unit != other.unit || c.group != other.group ||
                      c.method != other.method)) {
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

Status ResolveSpec(const Spec& spec, const QuantConfig& quant, const TensorSource& source,
                   const Selection& selection, std::vector<Listed>* out) {
  if (spec.storage == Storage::kLinear) return ListLinear(spec, quant, source, selection, out);
  if (Status s = ListTensor(spec, source, selection, out); !s) return s;
  const bool described = !quant.description.empty();
  return spec.shift && described ? ListShift(spec, source, selection, out) : Ok();
}

Result<std::vector<Listed>> ListAll(const ModelConfig& config, const TensorSource& source,
                                    const Selection& selection) {
  const auto widths = CheckWidths(config);
  if (!widths) return widths.error();
  if (Status s = CheckSelection(config, selection); !s) return s.error();
  std::vector<Listed> listed;
  const auto resolve = [&](const std::vector<Spec>& specs) -> Status {
    for (const Spec& spec : specs) {
      Status s = ResolveSpec(spec, config.quant, source, selection, &listed);
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
    if (Status s = resolve(LayerSpecs(config, *widths, layer, selection, source)); !s)
      return s.error();
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
