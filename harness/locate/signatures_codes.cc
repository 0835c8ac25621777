// What kind of mistake 8-bit activations show: their scales, their codes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/locate/internal.h"

namespace assay::locate {
namespace {

using reference::Tensor;

// One scale a row where each group has its own.
std::optional<Signature> GroupScale(const judge::OpJudgement& j, const Field& field) {
  const int64_t groups = j.oracle.columns();
  if (groups < 2 || field.wrong_count() == 0) return std::nullopt;
  for (int64_t row = 0; row < j.oracle.rows(); ++row) {
    const double* due = j.oracle.data.data() + row * groups;
    const double largest = *std::max_element(due, due + groups);
    for (int64_t g = 0; g < groups; ++g) {
      if (RoundTo(largest, DType::kF32) != j.kernel.data[row * groups + g]) return std::nullopt;
    }
  }
  return Signature{"group-scale", "one scale a row, each group has its own",
                   fmt::format("{} rows of {} groups", j.oracle.rows(), groups)};
}

// Codes rounded otherwise, told from x over the scale.
std::optional<Signature> ActRounding(const OpCase& wrong, const Field& field) {
  const judge::OpJudgement& j = *wrong.judgement;
  const TapValue* x_tap = FindTap(*wrong.request, j.node->inputs[0], j.rank, j.step);
  const TapValue* s_tap = FindTap(*wrong.request, j.node->inputs.back(), j.rank, j.step);
  if (x_tap == nullptr || s_tap == nullptr || field.wrong_count() == 0) return std::nullopt;
  const Tensor x = judge::ToTensor(*x_tap), s = judge::ToTensor(*s_tap);
  // An expert's rows are not those of what it reads.
  if (x.shape != j.kernel.shape || s.columns() == 0 || x.columns() % s.columns() != 0) {
    return std::nullopt;
  }
  const int64_t k = x.columns(), size = k / s.columns();
  struct Mode {
    const char* text;
    double (*round)(double);
  };
  const Mode modes[] = {
      {"cut off towards zero", [](double v) { return std::trunc(v); }},
      {"rounded down", [](double v) { return std::floor(v); }},
      {"rounded up", [](double v) { return std::ceil(v); }},
      {"ties away from zero", [](double v) { return std::round(v); }},
  };
  for (const Mode& mode : modes) {
    bool all = true;
    for (int64_t i = 0; i < field.rows() * field.columns() && all; ++i) {
      const double scale = s.data[i / k * s.columns() + i % k / size];
      const double quotient = static_cast<float>(x.data[i]) / static_cast<float>(scale);
      // What int8 holds, not the codes' own ±127: rounded wrongly, a quotient a little below -127
      // becomes -128.
      all = scale == 0 || j.kernel.data[i] == std::clamp(mode.round(quotient), -128.0, 127.0);
    }
    if (!all) continue;
    return Signature{"act-rounding", fmt::format("codes are {}", mode.text),
                     fmt::format("{} of {} codes are wrong", field.wrong_count(),
                                 field.rows() * field.columns())};
  }
  return std::nullopt;
}

}  // namespace

Signature CodesSignature(const OpCase& wrong) {
  const judge::OpJudgement& j = *wrong.judgement;
  if (j.oracle.data.empty()) {
    const bool contradicted = j.reason.rfind("shown, but", 0) == 0;
    return {contradicted ? "act-contradicted" : "wrong-shape",
            contradicted ? "8-bit activations are shown of a kernel that takes none"
                         : "another shape or type than the op's activations have",
            j.reason};
  }
  const Field field(j, DType::kF32);
  const bool codes = j.node->tap.ends_with(".x_q");
  if (auto s = codes ? ActRounding(wrong, field) : GroupScale(j, field)) return *s;
  if (!codes) {
    if (auto s = LastPlace(field, DType::kF32)) return *s;
  }
  if (auto s = FieldSignature(field, wrong.request->degrees.tp)) return *s;
  return {"unknown", "no known pattern", j.reason};
}

}  // namespace assay::locate
