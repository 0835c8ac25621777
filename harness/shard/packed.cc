// compressed-tensors pack-quantized int4 (formats.md §1): an int32 word holds eight consecutive
// weights of a row, the scale one value per group of a row (or one per row: channel).
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "harness/shard/listing.h"

namespace assay::shard {
namespace {

constexpr Packing kInt4Words{Elements(8), Bytes(4)};
constexpr int64_t kBits = 4;

struct Tensors {
  const TensorView* packed = nullptr;
  const TensorView* scale = nullptr;
  const TensorView* shape = nullptr;
};

Error Unsupported(std::string message) {
  return Error{std::move(message), ErrorKind::kUnsupported};
}

// Variants of the format that other tensors or the config announce.
Status CheckVariant(const Spec& spec, const QuantConfig& quant, const TensorSource& source,
                    const TensorView& packed) {
  for (const char* suffix : {".weight_zero_point", ".weight_g_idx", ".weight_global_scale"}) {
    if (const TensorView* other = source.Find(spec.source + suffix)) {
      return Unsupported(
          fmt::format("{}: int4 is known here without zero points, activation order "
                      "and global scales",
                      Where(*other)));
    }
  }
  if (packed.dtype != DType::kI32) {
    return Unsupported(fmt::format("{}: stored as {}; int4 is packed in I32 words of 8",
                                   Where(packed), NameOf(packed.dtype)));
  }
  if (quant.method.empty()) return Ok();  // the file alone says how it is stored
  if (quant.bits != 0 && quant.bits != kBits) {
    return Unsupported(
        fmt::format("{}: config's num_bits is {}; known is {}", Where(packed), quant.bits, kBits));
  }
  if (!quant.weight_type.empty() && quant.weight_type != "int") {
    return Unsupported(fmt::format("{}: config's weight type is '{}'; known is 'int'",
                                   Where(packed), quant.weight_type));
  }
  if (!quant.symmetric) {
    return Error{
        fmt::format("{}: config says symmetric: false, but {}.weight_zero_point is "
                    "missing",
                    Where(packed), spec.source)};
  }
  return Ok();
}

Result<Tensors> FindTensors(const Spec& spec, const TensorSource& source) {
  Tensors t;
  for (auto [suffix, into] :
       {std::pair{".weight_packed", &t.packed}, std::pair{".weight_scale", &t.scale},
        std::pair{".weight_shape", &t.shape}}) {
    const auto found = Need(source, spec.source + suffix, spec.name);
    if (!found) return found.error();
    *into = *found;
  }
  return t;
}

// weight_shape = (N, K), which the packed width alone does not say. The library writes I64, some
// producers I32.
Status CheckStatedShape(const Spec& spec, const TensorView& shape, bool headers_only) {
  if (shape.dtype != DType::kI64 && shape.dtype != DType::kI32) {
    return Error{
        fmt::format("{}: stored as {}, must be I64 or I32", Where(shape), NameOf(shape.dtype))};
  }
  if (Status s = CheckShape(shape, {2}, "element"); !s) return s;
  if (headers_only) return Ok();
  int64_t stated[2];
  if (shape.dtype == DType::kI64) {
    std::memcpy(stated, shape.bytes.data(), sizeof stated);
  } else {
    int32_t narrow[2];
    std::memcpy(narrow, shape.bytes.data(), sizeof narrow);
    std::copy(std::begin(narrow), std::end(narrow), stated);
  }
  const int64_t implied[2] = {spec.n, spec.k};
  for (int axis = 0; axis < 2; ++axis) {
    if (stated[axis] != implied[axis]) {
      return Error{fmt::format("{}: says that axis {} has {} elements; config implies {} elements",
                               Where(shape), axis == 0 ? "n" : "k", stated[axis], implied[axis])};
    }
  }
  return Ok();
}

// The group along K; 0 for one scale a row. The config decides; where it states nothing, the
// scale's width does, which is unambiguous except at K = g, where both mean the same.
Result<Elements> GroupOf(const Spec& spec, const QuantConfig& quant, const TensorView& scale) {
  if (quant.strategy == "channel") return Elements(0);
  if (!quant.strategy.empty() && quant.strategy != "group") {
    return Unsupported(fmt::format("{}: config's strategy is '{}'; known are 'group' and 'channel'",
                                   Where(scale), quant.strategy));
  }
  int64_t group = quant.group_size;
  if (group == 0) {
    const int64_t stored = scale.shape.size() == 2 ? scale.shape[1] : 0;
    if (stored <= 0 || spec.k % stored != 0) {
      return Error{fmt::format("{}: axis k has {} groups, which do not divide K = {} elements",
                               Where(scale), stored, spec.k)};
    }
    if (stored == 1) return Elements(0);
    group = spec.k / stored;
  }
  if (group != 32 && group != 64 && group != 128) {
    return Unsupported(
        fmt::format("{}: a group of {} elements; known are 32, 64 and 128", Where(scale), group));
  }
  if (spec.k % group != 0) {
    return Error{fmt::format("{}: axis k has {} elements, no whole number of groups of {}",
                             Where(scale), spec.k, group)};
  }
  return Elements(group);
}

// A disagreement of group size and scale says both in elements too.
Status CheckScale(const Spec& spec, const TensorView& scale, Elements group) {
  if (scale.dtype != DType::kBF16 && scale.dtype != DType::kF16 && scale.dtype != DType::kF32) {
    return Error{fmt::format("{}: stored as {}, must be BF16, F16 or F32", Where(scale),
                             NameOf(scale.dtype))};
  }
  const int64_t groups = group.count() == 0 ? 1 : spec.k / group.count();
  if (scale.shape.size() == 2 && scale.shape[1] != groups) {
    return Error{fmt::format(
        "{}: axis k has {} groups, but config's {} over {} elements needs {} groups", Where(scale),
        scale.shape[1],
        group.count() == 0 ? "strategy channel" : fmt::format("group_size {}", group.count()),
        spec.k, groups)};
  }
  return CheckShape(scale, {spec.n, groups}, "group");
}

// One scale a row stays whole where the columns are cut.
Cut ScaleCut(Cut weight, Elements group) {
  const bool columns = weight == Cut::kColumns || weight == Cut::kHeadColumns;
  return columns && group.count() == 0 ? Cut::kWhole : weight;
}

}  // namespace

Status ResolvePacked(const Spec& spec, const QuantConfig& quant, const TensorSource& source,
                     bool headers_only, std::vector<Listed>* out) {
  const TensorView* packed = source.Find(spec.source + ".weight_packed");
  if (Status s = CheckVariant(spec, quant, source, *packed); !s) return s;
  const auto tensors = FindTensors(spec, source);
  if (!tensors) return tensors.error();
  if (Status s = CheckStatedShape(spec, *tensors->shape, headers_only); !s) return s;
  const int64_t words = (spec.k + kInt4Words.elements.count() - 1) / kInt4Words.elements.count();
  if (Status s = CheckShape(*packed, {spec.n, words}, "word"); !s) return s;
  const auto group = GroupOf(spec, quant, *tensors->scale);
  if (!group) return group.error();
  if (Status s = CheckScale(spec, *tensors->scale, *group); !s) return s;

  Component weight;
  weight.name = spec.name + ".weight";
  weight.source = packed->name;
  weight.dtype = packed->dtype;
  weight.rows = spec.n;
  weight.columns = words;
  weight.packing = kInt4Words;
  weight.unit = "word";
  weight.column_elements = kInt4Words.elements;
  weight.group = *group;
  weight.row_elements = Elements(spec.k);

  Component scale = weight;
  scale.name = spec.name + ".scale";
  scale.source = tensors->scale->name;
  scale.dtype = tensors->scale->dtype;
  scale.columns = tensors->scale->shape[1];
  scale.packing = {Elements(1), SizeOf(scale.dtype)};
  scale.unit = "group";
  scale.column_elements = group->count() == 0 ? Elements(spec.k) : *group;

  out->push_back({std::move(weight), spec.cut, spec.segment});
  out->push_back({std::move(scale), ScaleCut(spec.cut, *group), spec.segment});
  return Ok();
}

}  // namespace assay::shard
