// compressed-tensors pack-quantized (formats.md §1): codes of 2 to 8 bits in int32 words along k,
// scales by groups of a row or one a row, zero points packed along n, group numbers by input.
#include <fmt/format.h>

#include <cstring>

#include "harness/shard/methods/method.h"

namespace assay::shard {
namespace {

// How codes lie in words along an axis. The library of today fills b words with 32 codes; before,
// a word held as many whole codes as fit.
StoredAxis Packed(Along along, int64_t extent, int bits, bool old_packing) {
  if (old_packing || 32 % bits == 0) return {along, extent, 32 / bits, "word", 1};
  int64_t codes = 32, words = bits;
  while (codes % 2 == 0 && words % 2 == 0) codes /= 2, words /= 2;
  return {along, extent, codes, "word", words};
}

struct Codes {
  int bits = 4;
  bool old_packing = false;
};

// The config says how many bits, the width which packing. Where the config is silent the width says
// both: 4 bits, if they fit, else the only number that does.
Result<Codes> PackingOf(const Linear& linear, const Part& packed) {
  const int64_t words = packed.shape.size() == 2 ? packed.shape[1] : -1;
  const auto fits = [&](int bits, bool old_packing) {
    return Packed(Along::kK, linear.spec.k, bits, old_packing).stored() == words;
  };
  if (!linear.quant.method.empty() && linear.quant.bits != 0) {
    const int bits = linear.quant.bits;
    if (bits < 2 || bits > 8) {
      return Unsupported(fmt::format("{}: config's num_bits is {}; known are 2 to 8",
                                     Where(*packed.tensor), bits));
    }
    const bool old_packing = !fits(bits, false) && fits(bits, true);
    if (words < 0 || old_packing || fits(bits, false)) return Codes{bits, old_packing};
    return Error{fmt::format(
        "{}: axis k has {} words, but config's num_bits {} over {} elements needs {} words",
        Where(*packed.tensor), words, bits, linear.spec.k,
        Packed(Along::kK, linear.spec.k, bits, false).stored())};
  }
  std::vector<Codes> possible;
  for (const int bits : {4, 2, 3, 5, 6, 7, 8}) {
    if (fits(bits, false)) {
      possible.push_back({bits, false});
    } else if (fits(bits, true)) {
      possible.push_back({bits, true});
    }
    if (bits == 4 && !possible.empty()) return possible[0];
  }
  if (possible.size() == 1) return possible[0];
  if (possible.empty()) return Codes{};  // the shape is what is wrong
  return Unsupported(
      fmt::format("{}: {} words hold {} elements of {} bits or of {}; the config does not say",
                  Where(*packed.tensor), words, linear.spec.k, possible[0].bits, possible[1].bits));
}

// The group along k; 0: one scale a row. The config decides; where it states nothing, the scale's
// width does, which is unambiguous but at k = g, where both mean the same.
Result<int64_t> GroupOf(const Linear& linear, const Part& scale) {
  const QuantConfig& quant = linear.quant;
  const int64_t k = linear.spec.k;
  if (quant.strategy == "channel") return int64_t{0};
  if (!quant.strategy.empty() && quant.strategy != "group") {
    return Unsupported(fmt::format("{}: config's strategy is '{}'; known are 'group' and 'channel'",
                                   Where(*scale.tensor), quant.strategy));
  }
  int64_t group = quant.group_size;
  if (group < 0) group = k;
  if (group == 0) {
    const int64_t stored = scale.shape.size() == 2 ? scale.shape[1] : 0;
    if (stored <= 0 || k % stored != 0) {
      return Error{fmt::format("{}: axis k has {} groups, which do not divide K = {} elements",
                               Where(*scale.tensor), stored, k)};
    }
    if (stored == 1 && quant.strategy.empty()) return int64_t{0};
    group = k / stored;
  }
  if (k % group != 0) {
    return Error{fmt::format("{}: axis k has {} elements, no whole number of groups of {}",
                             Where(*scale.tensor), k, group)};
  }
  return group;
}

// A disagreement of group size and scale says both in elements too.
Status CheckScale(const Linear& linear, const Part& scale, int64_t group) {
  if (Status s = CheckScaleType(scale); !s) return s;
  const int64_t groups = group == 0 ? 1 : linear.spec.k / group;
  if (scale.shape.size() != 2 || scale.shape[1] == groups) return Ok();
  return Error{
      fmt::format("{}: axis k has {} groups, but config's {} over {} elements needs {} groups",
                  Where(*scale.tensor), scale.shape[1],
                  group == 0 ? "strategy channel" : fmt::format("group_size {}", group),
                  linear.spec.k, groups)};
}

// weight_shape = (N, K), which the packed width alone does not say. The library writes I64, some
// producers I32.
Status CheckStatedShape(const Linear& linear, const Part& shape) {
  if (Status s = CheckType(shape, {DType::kI64, DType::kI32}); !s) return s;
  const TensorView& view = *shape.tensor;
  if (Status s = CheckGrid(shape, {Along::kN, 2, 1, "element", 1}, Whole()); !s) return s;
  if (linear.headers_only) return Ok();
  int64_t stated[2];
  if (view.dtype == DType::kI64) {
    std::memcpy(stated, view.bytes.data(), sizeof stated);
  } else {
    int32_t narrow[2];
    std::memcpy(narrow, view.bytes.data(), sizeof narrow);
    stated[0] = narrow[0], stated[1] = narrow[1];
  }
  const int64_t implied[2] = {linear.spec.n, linear.spec.k};
  for (int axis = 0; axis < 2; ++axis) {
    if (stated[axis] != implied[axis]) {
      return Error{fmt::format("{}: says that axis {} has {} elements; config implies {} elements",
                               Where(view), axis == 0 ? "n" : "k", stated[axis], implied[axis])};
    }
  }
  return Ok();
}

// What the config says and the tensors deny, or the other way round.
Status CheckConfig(const Linear& linear, const Part& packed, const Part* zero, const Part* order) {
  const QuantConfig& quant = linear.quant;
  if (quant.method.empty()) return Ok();  // the file alone says how it is stored
  if (!quant.weight_type.empty() && quant.weight_type != "int") {
    return Error{fmt::format("{}: I32 words hold integers, but config's weight type is '{}'",
                             Where(*packed.tensor), quant.weight_type)};
  }
  if (zero == nullptr && !quant.symmetric) {
    return Error{fmt::format("{}: config says symmetric: false, but {} is missing",
                             Where(*packed.tensor), linear.parts.NameOf("weight_zero_point"))};
  }
  if (zero != nullptr && quant.symmetric) {
    return Error{
        fmt::format("{}: zero points, but config says symmetric: true", Where(*zero->tensor))};
  }
  if (order == nullptr && quant.actorder == "group") {
    return Error{fmt::format("{}: config says actorder: group, but {} is missing",
                             Where(*packed.tensor), linear.parts.NameOf("weight_g_idx"))};
  }
  if (order != nullptr && quant.actorder != "group") {
    return Error{
        fmt::format("{}: an order of inputs, but config's actorder is {}; only 'group' has one",
                    Where(*order->tensor),
                    quant.actorder.empty() ? "none" : fmt::format("'{}'", quant.actorder))};
  }
  return Ok();
}

Status AddOrder(const Linear& linear, const Part& order, int64_t group, Lister* lister) {
  const int64_t k = linear.spec.k;
  if (Status s = CheckType(order, {DType::kI32}); !s) return s;
  if (group == 0) {
    return Error{fmt::format("{}: an order of inputs, but one scale a row", Where(*order.tensor))};
  }
  if (Status s = lister->Add(order, "g_idx", AlongK(linear.spec), Whole()); !s) return s;
  if (linear.headers_only) return Ok();
  bool trivial = false;
  return CheckGroupIndex(order, k, group, k / group, &trivial);
}

}  // namespace

Status ListCtInt(const Linear& linear, std::vector<Listed>* out) {
  const Spec& spec = linear.spec;
  const Part& packed = *linear.parts.Find("weight_packed");
  const Part* zero = linear.parts.Find("weight_zero_point");
  const Part* order = linear.parts.Find("weight_g_idx");
  if (Status s = CheckConfig(linear, packed, zero, order); !s) return s;
  const auto scale = NeedPart(linear, "weight_scale");
  if (!scale) return scale.error();
  const auto shape = NeedPart(linear, "weight_shape");
  if (!shape) return shape.error();
  if (Status s = CheckStatedShape(linear, **shape); !s) return s;
  const auto packing = PackingOf(linear, packed);
  if (!packing) return packing.error();
  const auto group = GroupOf(linear, **scale);
  if (!group) return group.error();
  if (Status s = CheckScale(linear, **scale, *group); !s) return s;

  Scheme scheme;
  scheme.family = MethodFamily::kCtInt;
  scheme.bits = packing->bits;
  scheme.old_packing = packing->old_packing;
  scheme.granularity = *group == 0 ? Granularity::kChannel : Granularity::kGroup;
  // A config that states the strategy without a size means one group, whatever k is.
  const bool one =
      *group == spec.k && linear.quant.strategy == "group" && linear.quant.group_size <= 0;
  scheme.group = one ? -1 : *group;
  scheme.asymmetric = zero != nullptr;
  scheme.actorder = order != nullptr;
  Lister lister(linear, out);
  lister.SetMethod(scheme, *group);
  const auto words = [&](Along along, int64_t extent) {
    return Packed(along, extent, packing->bits, packing->old_packing);
  };
  // Under act-order a rank's inputs belong to any group: all groups stay on every rank.
  const StoredAxis groups = *group == 0        ? Whole(1, "group")
                            : order != nullptr ? Whole(spec.k / *group, "group")
                                               : AlongK(spec, *group, "group");
  if (Status s = lister.Add(packed, "weight", AlongN(spec), words(Along::kK, spec.k)); !s) return s;
  if (Status s = lister.Add(**scale, "scale", AlongN(spec), groups); !s) return s;
  if (zero != nullptr) {
    if (Status s = CheckType(*zero, {DType::kI32}); !s) return s;
    if (Status s = lister.Add(*zero, "zero", words(Along::kN, spec.n), groups); !s) return s;
  }
  return order == nullptr ? Ok() : AddOrder(linear, *order, *group, &lister);
}

}  // namespace assay::shard
