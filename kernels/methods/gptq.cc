// GPTQ and AWQ: stored transposed. GPTQ packs codes along k and stores zero − 1 (v2: zero); AWQ
// packs along n, columns of a word in an order of its own.
#include <algorithm>

#include "kernels/methods/affine.h"
#include "kernels/methods/family.h"
#include "kernels/methods/numbers.h"
#include "kernels/methods/words.h"

namespace assay::kernels {
namespace {

// Where column j of a word of eight comes from is kAwqOrder[j]; the place of a column is the
// inverse.
constexpr int kAwqOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};
constexpr int kAwqPlace[8] = {0, 4, 1, 5, 2, 6, 3, 7};

bool IsAwq(const Scheme& s) { return s.family == MethodFamily::kAwq; }
int64_t PerWord(const Scheme& s) { return 32 / s.bits; }

int64_t GroupOf(const Scheme& s, int64_t k) {
  return s.granularity == Granularity::kGroup && s.group > 0 ? s.group : k;
}

// Which place along n's words column i has.
int64_t ZeroPlace(const Scheme& s, int64_t i) {
  return IsAwq(s) ? i / 8 * 8 + kAwqPlace[i % 8] : i;
}

Status Fits(const Scheme& s, int64_t n, int64_t k) {
  if (Status good = MustDivide("n", n, "word", PerWord(s)); !good.ok()) return good;
  return IsAwq(s) ? Ok() : MustDivide("k", k, "word", PerWord(s));
}

Result<std::vector<PartSpec>> GptqParts(const Scheme& s, int64_t n, int64_t k) {
  if (Status good = Fits(s, n, k); !good.ok()) return good.error();
  const int64_t group = GroupOf(s, k), groups = k / group, word = PerWord(s);
  if (Status good = MustDivide("k", k, "group", group); !good.ok()) return good.error();
  std::vector<PartSpec> parts = {{".qweight", "weight", DType::kI32, {k / word, n}},
                                 {".scales", "scale", DType::kF16, {groups, n}},
                                 {".qzeros", "zero", DType::kI32, {groups, n / word}},
                                 {".g_idx", "g_idx", DType::kI32, {k}}};
  if (IsAwq(s)) {
    parts[0].shape = {k, n / word};
    parts.pop_back();
  }
  return parts;
}

struct GptqGiven {
  std::vector<double> scales;  // [groups, n]
  const TensorView* zeros = nullptr;
  std::vector<int64_t> group_of;
  int64_t groups = 1;
};

Status ReadOrder(const Scheme& s, const PartViews& parts, GptqGiven* given) {
  if (IsAwq(s)) return Ok();
  const auto k = static_cast<int64_t>(given->group_of.size());
  const Result<const TensorView*> order =
      Need(parts, {".g_idx", {DType::kI32, DType::kI64}, {{k}}, !s.actorder});
  if (!order.ok()) return order.error();
  if (*order == nullptr) return Ok();
  Result<std::vector<int64_t>> group_of = ReadGroups(**order, given->groups);
  if (!group_of.ok()) return group_of.error();
  if (!s.actorder && *group_of != given->group_of) {
    return Bad(**order, "it permutes columns, which the method without act-order does not");
  }
  given->group_of = std::move(*group_of);
  return Ok();
}

Result<GptqGiven> ReadGiven(const Scheme& s, const PartViews& parts, int64_t n, int64_t k) {
  if (Status good = Fits(s, n, k); !good.ok()) return good.error();
  GptqGiven given;
  const int64_t group = GroupOf(s, k);
  given.groups = (k + group - 1) / group;
  const Result<const TensorView*> scale =
      Need(parts, {".scales", kFloatTypes, {{given.groups, n}}});
  if (!scale.ok()) return scale.error();
  Result<std::vector<double>> scales = ReadFinite(**scale);
  if (!scales.ok()) return scales.error();
  given.scales = std::move(*scales);
  const Result<const TensorView*> zeros =
      Need(parts, {".qzeros", {DType::kI32}, {{given.groups, n / PerWord(s)}}});
  if (!zeros.ok()) return zeros.error();
  given.zeros = *zeros;
  given.group_of = PlainGroups(k, group);
  if (Status good = ReadOrder(s, parts, &given); !good.ok()) return good.error();
  return given;
}

Affine GroupAt(const Scheme& s, const GptqGiven& given, int64_t n, int64_t group, int64_t column) {
  const std::byte* row = given.zeros->bytes.data() + group * (n / PerWord(s)) * 4;
  const uint32_t stored = CodeRun(row, 1, {s.bits}).Get(ZeroPlace(s, column));
  const bool less_one = !IsAwq(s) && !s.v2;
  return {given.scales[static_cast<size_t>(group * n + column)],
          static_cast<int>(stored) + (less_one ? 1 : 0)};
}

// The groups of every column at once: they are read once a row of k.
std::vector<Affine> AllGroups(const Scheme& s, const GptqGiven& given, int64_t n) {
  std::vector<Affine> groups;
  groups.reserve(static_cast<size_t>(given.groups * n));
  for (int64_t g = 0; g < given.groups; ++g) {
    for (int64_t c = 0; c < n; ++c) groups.push_back(GroupAt(s, given, n, g, c));
  }
  return groups;
}

// The words of logical row `n` of GPTQ run down a column; of AWQ a word holds eight rows.
uint32_t ReadCode(const Scheme& s, const std::byte* words, int64_t n, int64_t row, int64_t column) {
  if (!IsAwq(s)) return CodeRun(words + 4 * row, n, {s.bits}).Get(column);
  return CodeRun(words + column * (n / PerWord(s)) * 4, 1, {s.bits}).Get(ZeroPlace(s, row));
}

void WriteCode(const Scheme& s, std::byte* words, int64_t n, int64_t row, int64_t column,
               uint32_t code) {
  if (!IsAwq(s)) {
    CodeSink(words + 4 * row, n, {s.bits}).Put(column, code);
  } else {
    CodeSink(words + column * (n / PerWord(s)) * 4, 1, {s.bits}).Put(ZeroPlace(s, row), code);
  }
}

Status GptqDecode(const Scheme& s, const PartViews& parts, int64_t n, int64_t k, double* out) {
  if (Status good = Fits(s, n, k); !good.ok()) return good;
  const int64_t word = PerWord(s);
  const std::vector<int64_t> shape =
      IsAwq(s) ? std::vector<int64_t>{k, n / word} : std::vector<int64_t>{k / word, n};
  const Result<const TensorView*> packed = Need(parts, {".qweight", {DType::kI32}, {shape}});
  if (!packed.ok()) return packed.error();
  const Result<GptqGiven> given = ReadGiven(s, parts, n, k);
  if (!given.ok()) return given.error();
  const std::vector<Affine> groups = AllGroups(s, *given, n);
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t c = 0; c < k; ++c) {
      const Affine& group = groups[static_cast<size_t>(given->group_of[c] * n + r)];
      const auto code = static_cast<int>(ReadCode(s, (*packed)->bytes.data(), n, r, c));
      out[r * k + c] = (code - group.zero) * group.scale;
    }
  }
  return Ok();
}

AffineRule RuleOf(const Scheme& s) {
  const int most = (1 << s.bits) - 1;
  // v1 stores zero − 1 without a sign: a zero point of 0 has no code. GPTQ's group of zeros counts
  // as one from −1 to 1.
  return {.code_min = 0,
          .code_max = most,
          .asymmetric = s.asymmetric,
          .zero = (most + 1) / 2,
          .divisor = most / 2.0,
          .zero_group = IsAwq(s) ? 1 : StoredScale(2.0 / most, DType::kF16).value(),
          .scale_dtype = DType::kF16,
          .zero_min = IsAwq(s) || s.v2 ? 0 : 1};
}

Status GptqChoose(const Scheme& s, const Values& w, const PackOptions& options, Parts* parts) {
  const AffineRule rule = RuleOf(s);
  const int64_t group = GroupOf(s, w.k), groups = w.k / group;
  const std::vector<int64_t> group_of =
      s.actorder ? ShuffledGroups(w.k, group, options.seed) : PlainGroups(w.k, group);
  PackedPart* scale = FindPart(parts, ".scales");
  PackedPart* zero = FindPart(parts, ".qzeros");
  const int less = IsAwq(s) || s.v2 ? 0 : 1;
  Extremes extremes(groups);
  for (int64_t r = 0; r < w.n; ++r) {
    extremes.Clear();
    for (int64_t c = 0; c < w.k; ++c) extremes.Add(group_of[c], w.At(r, c));
    for (int64_t g = 0; g < groups; ++g) {
      const Result<Affine> affine = ChooseAffine(extremes.least(g), extremes.most(g), rule);
      if (!affine.ok()) return affine.error();
      StoreValue(DType::kF16, affine->scale, scale->bytes.data(), g * w.n + r);
      CodeSink(zero->bytes.data() + g * (w.n / PerWord(s)) * 4, 1, {s.bits})
          .Put(ZeroPlace(s, r), static_cast<uint32_t>(affine->zero - less));
    }
  }
  if (PackedPart* order = FindPart(parts, ".g_idx")) StoreGroups(group_of, order);
  return Ok();
}

Status GptqEncode(const Scheme& s, const Values& w, const PartViews& parts, PackedPart* out) {
  const Result<GptqGiven> given = ReadGiven(s, parts, w.n, w.k);
  if (!given.ok()) return given.error();
  const std::vector<Affine> groups = AllGroups(s, *given, w.n);
  for (int64_t r = 0; r < w.n; ++r) {
    for (int64_t c = 0; c < w.k; ++c) {
      const Affine& group = groups[static_cast<size_t>(given->group_of[c] * w.n + r)];
      const int code = CodeOf(w.Over(r, c, group.scale), group.zero, 0, (1 << s.bits) - 1);
      WriteCode(s, out->bytes.data(), w.n, r, c, static_cast<uint32_t>(code));
    }
  }
  return Ok();
}

static_assert([] {
  for (int j = 0; j < 8; ++j) {
    if (kAwqPlace[kAwqOrder[j]] != j) return false;
  }
  return true;
}());

}  // namespace

const FamilyRow kGptqRow = {GptqParts, {}, GptqDecode, GptqChoose, GptqEncode, nullptr};
const FamilyRow kAwqRow = {GptqParts, {}, GptqDecode, GptqChoose, GptqEncode, nullptr};

}  // namespace assay::kernels
