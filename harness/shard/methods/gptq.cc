// GPTQ and AWQ (formats.md §3): stored transposed, [K, N], with words along K (GPTQ) or N (AWQ).
#include <fmt/format.h>

#include <algorithm>

#include "harness/shard/methods/method.h"

namespace assay::shard {
namespace {

// The group along k: the config's; -1 or silence of a config that is GPTQ's is one group; without a
// config, what the scales' rows say. 0: one scale for all of k.
Result<int64_t> GroupOf(const Linear& linear, const Part& scales) {
  const QuantConfig& quant = linear.quant;
  if (quant.group_size > 0) return quant.group_size;
  if (!quant.method.empty()) return int64_t{0};
  const int64_t groups = scales.shape.size() == 2 ? scales.shape[0] : 0;
  if (groups == 1) return int64_t{0};
  if (groups <= 0 || linear.spec.k % groups != 0) {
    return Error{fmt::format("{}: axis k has {} groups, which do not divide K = {} elements",
                             Where(*scales.tensor), groups, linear.spec.k)};
  }
  return linear.spec.k / groups;
}

// Four or eight bits: the config's, or what the words of qweight hold.
Result<int> BitsOf(const Linear& linear, const Part& qweight, int64_t words, int64_t extent) {
  int bits = linear.quant.bits;
  if (linear.quant.method.empty() || bits == 0) {
    bits = words > 0 && (extent + words - 1) / words <= 4 ? 8 : 4;
  }
  if (bits == 4 || bits == 8) return bits;
  return Unsupported(
      fmt::format("{}: config's bits is {}; known are 4 and 8", Where(*qweight.tensor), bits));
}

Status CheckMethod(const Linear& linear, const Part& qweight, std::string_view method) {
  const std::string& stated = linear.quant.method;
  if (stated.empty() || stated == method || stated == "auto-round") return Ok();
  return Error{fmt::format("{}: lies as {} stores it, but config's method is '{}'",
                           Where(*qweight.tensor), method, stated)};
}

// A bias of zeros, which GPTQ's library writes where the model has none.
Status PassOverZeroBias(const Linear& linear) {
  if (linear.spec.bias) return Ok();
  const Part* bias = linear.parts.Find("bias");
  if (bias == nullptr || linear.headers_only) return Ok();
  const auto& bytes = bias->tensor->bytes;
  if (std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; })) {
    return Ok();
  }
  return Error{fmt::format("{}: is in the file and not zero, but config says that {} has no bias",
                           Where(*bias->tensor), linear.spec.name)};
}

struct Order {
  const Part* part = nullptr;
  bool permutes = false;
};

// With desc_act, or numbers that are not i / g, inputs of one group are anywhere.
Result<Order> OrderOf(const Linear& linear, int64_t group) {
  Order order;
  order.part = linear.parts.Find("g_idx");
  order.permutes = linear.quant.desc_act;
  if (order.part == nullptr) {
    if (!order.permutes) return order;
    return Error{
        fmt::format("{}: missing, and config says desc_act: true", linear.parts.NameOf("g_idx"))};
  }
  const Spec& spec = linear.spec;
  if (Status s = CheckType(*order.part, {DType::kI32}); !s) return s.error();
  if (Status s = CheckGrid(*order.part, AlongK(spec), Whole()); !s) return s.error();
  if (linear.headers_only) return order;
  bool trivial = false;
  const int64_t groups = AlongK(spec, group).stored();
  if (Status s = CheckGroupIndex(*order.part, spec.k, group, groups, &trivial); !s) {
    return s.error();
  }
  order.permutes = order.permutes || !trivial;
  return order;
}

}  // namespace

Status ListGptq(const Linear& linear, std::vector<Listed>* out) {
  const Spec& spec = linear.spec;
  const Part& qweight = *linear.parts.Find("qweight");
  if (Status s = CheckMethod(linear, qweight, "gptq"); !s) return s;
  if (Status s = CheckType(qweight, {DType::kI32}); !s) return s;
  if (Status s = PassOverZeroBias(linear); !s) return s;
  const auto scales = NeedPart(linear, "scales");
  if (!scales) return scales.error();
  const auto qzeros = NeedPart(linear, "qzeros");
  if (!qzeros) return qzeros.error();
  const auto bits =
      BitsOf(linear, qweight, qweight.shape.size() == 2 ? qweight.shape[0] : 0, spec.k);
  if (!bits) return bits.error();
  const auto stated = GroupOf(linear, **scales);
  if (!stated) return stated.error();
  const int64_t group = *stated == 0 ? spec.k : *stated, per_word = 32 / *bits;
  const auto order = OrderOf(linear, group);
  if (!order) return order.error();

  Scheme scheme;
  scheme.family = MethodFamily::kGptq;
  scheme.bits = *bits;
  scheme.granularity = *stated == 0 ? Granularity::kChannel : Granularity::kGroup;
  scheme.group = *stated;
  scheme.asymmetric = !linear.quant.symmetric;
  const bool permutes = order->permutes && *stated != 0;
  scheme.actorder = permutes;
  scheme.v2 = linear.quant.v2;
  Lister lister(linear, out);
  lister.SetMethod(scheme, *stated);
  const int64_t count = AlongK(spec, group).stored();
  const StoredAxis groups =
      *stated == 0 || permutes ? Whole(count, "group") : AlongK(spec, group, "group");
  const StoredAxis words = AlongN(spec, per_word, "word");
  if (Status s = lister.Add(qweight, "weight", AlongK(spec, per_word, "word"), AlongN(spec)); !s) {
    return s;
  }
  if (Status s = CheckScaleType(**scales); !s) return s;
  if (Status s = lister.Add(**scales, "scale", groups, AlongN(spec)); !s) return s;
  if (Status s = CheckType(**qzeros, {DType::kI32}); !s) return s;
  if (Status s = lister.Add(**qzeros, "zero", groups, words); !s) return s;
  return order->part == nullptr ? Ok() : lister.Add(*order->part, "g_idx", AlongK(spec), Whole());
}

Status ListAwq(const Linear& linear, std::vector<Listed>* out) {
  const Spec& spec = linear.spec;
  const Part& qweight = *linear.parts.Find("qweight");
  if (Status s = CheckMethod(linear, qweight, "awq"); !s) return s;
  if (Status s = CheckType(qweight, {DType::kI32}); !s) return s;
  if (!linear.quant.method.empty() && linear.quant.bits != 0 && linear.quant.bits != 4) {
    return Unsupported(fmt::format("{}: config's bits is {}; known of AWQ is 4",
                                   Where(*qweight.tensor), linear.quant.bits));
  }
  const auto scales = NeedPart(linear, "scales");
  if (!scales) return scales.error();
  const Part* qzeros = linear.parts.Find("qzeros");
  const auto stated = GroupOf(linear, **scales);
  if (!stated) return stated.error();
  const int64_t group = *stated == 0 ? spec.k : *stated;
  constexpr int64_t kPerWord = 8;

  Scheme scheme;
  scheme.family = MethodFamily::kAwq;
  scheme.bits = 4;
  scheme.granularity = Granularity::kGroup;
  scheme.group = group;
  // The library writes zero points of symmetric files too.
  scheme.asymmetric = linear.quant.method.empty() ? qzeros != nullptr : !linear.quant.symmetric;
  if (scheme.asymmetric && qzeros == nullptr) {
    return Error{fmt::format("{}: config says zero_point: true, but {} is missing",
                             Where(*qweight.tensor), linear.parts.NameOf("qzeros"))};
  }
  Lister lister(linear, out);
  lister.SetMethod(scheme, group);
  const StoredAxis groups = *stated == 0 ? Whole(1, "group") : AlongK(spec, group, "group");
  const StoredAxis words = AlongN(spec, kPerWord, "word");
  if (Status s = lister.Add(qweight, "weight", AlongK(spec), words); !s) return s;
  if (Status s = CheckScaleType(**scales); !s) return s;
  if (Status s = lister.Add(**scales, "scale", groups, AlongN(spec)); !s) return s;
  if (qzeros == nullptr) return Ok();
  if (Status s = CheckType(*qzeros, {DType::kI32}); !s) return s;
  return lister.Add(*qzeros, "zero", groups, words);
}

}  // namespace assay::shard
