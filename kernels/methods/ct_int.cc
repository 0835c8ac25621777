// compressed-tensors pack-quantized: codes of 2 to 8 bits, stored plus 2^(bits − 1), in words along
// k; zero points, stored the same way, in words along n.
#include <fmt/format.h>

#include <limits>

#include "kernels/methods/affine.h"
#include "kernels/methods/family.h"
#include "kernels/methods/numbers.h"
#include "kernels/methods/words.h"

namespace assay::kernels {
namespace {

WordLayout LayoutOf(const Scheme& s) { return {s.bits, !s.old_packing}; }

// Elements of k of one scale.
int64_t GroupOf(const Scheme& s, int64_t k) {
  return s.granularity == Granularity::kGroup && s.group > 0 ? s.group : k;
}

Result<std::vector<PartSpec>> CtIntParts(const Scheme& s, int64_t n, int64_t k) {
  const int64_t group = GroupOf(s, k), groups = k / group;
  if (Status good = MustDivide("k", k, "group", group); !good.ok()) return good.error();
  const WordLayout layout = LayoutOf(s);
  std::vector<PartSpec> parts = {{".weight_packed", "weight", DType::kI32, {n, layout.Words(k)}},
                                 {".weight_scale", "scale", DType::kBF16, {n, groups}}};
  if (s.asymmetric) {
    parts.push_back({".weight_zero_point", "zero", DType::kI32, {layout.Words(n), groups}});
  }
  if (s.actorder) parts.push_back({".weight_g_idx", "g_idx", DType::kI32, {k}});
  parts.push_back({".weight_shape", "", DType::kI64, {2}});
  return parts;
}

// Everything but the codes, as a file or Pack has it.
struct CtIntGiven {
  std::vector<double> scales;  // [n, groups]
  const TensorView* zeros = nullptr;
  std::vector<int64_t> group_of;  // [k]
  int64_t groups = 1;
};

Status CheckShapePart(const PartViews& parts, int64_t n, int64_t k) {
  const Result<const TensorView*> shape =
      Need(parts, {".weight_shape", {DType::kI64, DType::kI32}, {{2}}, true});
  if (!shape.ok()) return shape.error();
  if (*shape == nullptr) return Ok();
  const double rows = LoadValue((*shape)->dtype, (*shape)->bytes.data(), 0),
               columns = LoadValue((*shape)->dtype, (*shape)->bytes.data(), 1);
  if (rows == static_cast<double>(n) && columns == static_cast<double>(k)) return Ok();
  return Bad(**shape,
             fmt::format("it says [{}, {}], but the linear is [{}, {}]", rows, columns, n, k));
}

Result<CtIntGiven> ReadGiven(const Scheme& s, const PartViews& parts, int64_t n, int64_t k) {
  CtIntGiven given;
  const int64_t group = GroupOf(s, k);
  if (Status good = MustDivide("k", k, "group", group); !good.ok()) return good.error();
  given.groups = k / group;
  std::vector<std::vector<int64_t>> shapes = {{n, given.groups}};
  if (given.groups == 1) shapes.push_back({n});
  const Result<const TensorView*> scale = Need(parts, {".weight_scale", kFloatTypes, shapes});
  if (!scale.ok()) return scale.error();
  Result<std::vector<double>> scales = ReadFinite(**scale);
  if (!scales.ok()) return scales.error();
  given.scales = std::move(*scales);
  if (s.asymmetric) {
    const Result<const TensorView*> zeros =
        Need(parts, {".weight_zero_point", {DType::kI32}, {{LayoutOf(s).Words(n), given.groups}}});
    if (!zeros.ok()) return zeros.error();
    given.zeros = *zeros;
  }
  given.group_of = PlainGroups(k, group);
  const Result<const TensorView*> order =
      Need(parts, {".weight_g_idx", {DType::kI32, DType::kI64}, {{k}}, !s.actorder});
  if (!order.ok()) return order.error();
  if (*order != nullptr) {
    Result<std::vector<int64_t>> group_of = ReadGroups(**order, given.groups);
    if (!group_of.ok()) return group_of.error();
    if (!s.actorder && *group_of != given.group_of) {
      return Bad(**order, "it permutes columns, which the method without act-order does not");
    }
    given.group_of = std::move(*group_of);
  }
  if (Status good = CheckShapePart(parts, n, k); !good.ok()) return good.error();
  return given;
}

Affine GroupAt(const Scheme& s, const CtIntGiven& given, int64_t row, int64_t group) {
  Affine affine{given.scales[static_cast<size_t>(row * given.groups + group)], 0};
  if (given.zeros != nullptr) {
    const CodeRun zeros(given.zeros->bytes.data() + 4 * group, given.groups, LayoutOf(s));
    affine.zero = static_cast<int>(zeros.Get(row)) - (1 << (s.bits - 1));
  }
  return affine;
}

Status CtIntDecode(const Scheme& s, const PartViews& parts, int64_t n, int64_t k, double* out) {
  const WordLayout layout = LayoutOf(s);
  const int64_t words = layout.Words(k);
  const Result<const TensorView*> packed =
      Need(parts, {".weight_packed", {DType::kI32}, {{n, words}}});
  if (!packed.ok()) return packed.error();
  const Result<CtIntGiven> given = ReadGiven(s, parts, n, k);
  if (!given.ok()) return given.error();
  std::vector<Affine> groups(static_cast<size_t>(given->groups));
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t g = 0; g < given->groups; ++g) groups[g] = GroupAt(s, *given, r, g);
    const CodeRun run((*packed)->bytes.data() + r * words * 4, 1, layout);
    for (int64_t c = 0; c < k; ++c) {
      const Affine& group = groups[given->group_of[c]];
      const int code = static_cast<int>(run.Get(c)) - (1 << (s.bits - 1));
      out[r * k + c] = (code - group.zero) * group.scale;
    }
  }
  return Ok();
}

Status CtIntChoose(const Scheme& s, const Values& w, const PackOptions& options, Parts* parts) {
  const int64_t group = GroupOf(s, w.k), groups = w.k / group;
  const int half = 1 << (s.bits - 1);
  AffineRule rule{.code_min = -half,
                  .code_max = half - 1,
                  .asymmetric = s.asymmetric,
                  .divisor = (2.0 * half - 1) / 2,
                  .zero_group = std::numeric_limits<float>::epsilon() * 0x1p16,  // bf16's epsilon
                  .scale_dtype = DType::kBF16};
  rule.zero_min = rule.code_min;
  const std::vector<int64_t> group_of =
      s.actorder ? ShuffledGroups(w.k, group, options.seed) : PlainGroups(w.k, group);
  PackedPart* scale = FindPart(parts, ".weight_scale");
  PackedPart* zero = FindPart(parts, ".weight_zero_point");
  Extremes extremes(groups);
  for (int64_t r = 0; r < w.n; ++r) {
    extremes.Clear();
    for (int64_t c = 0; c < w.k; ++c) extremes.Add(group_of[c], w.At(r, c));
    for (int64_t g = 0; g < groups; ++g) {
      const Result<Affine> affine = ChooseAffine(extremes.least(g), extremes.most(g), rule);
      if (!affine.ok()) return affine.error();
      StoreValue(DType::kBF16, affine->scale, scale->bytes.data(), r * groups + g);
      if (zero == nullptr) continue;
      CodeSink(zero->bytes.data() + 4 * g, groups, LayoutOf(s))
          .Put(r, static_cast<uint32_t>(affine->zero + half));
    }
  }
  if (s.actorder) StoreGroups(group_of, FindPart(parts, ".weight_g_idx"));
  const int64_t shape[2] = {w.n, w.k};
  std::memcpy(FindPart(parts, ".weight_shape")->bytes.data(), shape, sizeof shape);
  return Ok();
}

Status CtIntEncode(const Scheme& s, const Values& w, const PartViews& parts, PackedPart* out) {
  const Result<CtIntGiven> given = ReadGiven(s, parts, w.n, w.k);
  if (!given.ok()) return given.error();
  const WordLayout layout = LayoutOf(s);
  const int half = 1 << (s.bits - 1);
  std::vector<Affine> groups(static_cast<size_t>(given->groups));
  for (int64_t r = 0; r < w.n; ++r) {
    for (int64_t g = 0; g < given->groups; ++g) groups[g] = GroupAt(s, *given, r, g);
    CodeSink sink(out->bytes.data() + r * layout.Words(w.k) * 4, 1, layout);
    for (int64_t c = 0; c < w.k; ++c) {
      const Affine& group = groups[given->group_of[c]];
      const int code = CodeOf(w.Over(r, c, group.scale), group.zero, -half, half - 1);
      sink.Put(c, static_cast<uint32_t>(code + half));
    }
  }
  return Ok();
}

}  // namespace

const FamilyRow kCtIntRow = {CtIntParts,  {{".weight_g_idx"}}, CtIntDecode,
                             CtIntChoose, CtIntEncode,         nullptr};

}  // namespace assay::kernels
