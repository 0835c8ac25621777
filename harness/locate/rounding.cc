// Errors of the last place.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/locate/internal.h"

namespace assay::locate {
namespace {

// Of right elements too: what was cut off is never further from zero, but for what the op's sum
// itself may be off.
bool NoneRoundedUp(const Field& field) {
  for (int64_t i = 0; i < field.rows() * field.columns(); ++i) {
    const double y = field.oracle(i), k = field.kernel(i);
    if (!std::isfinite(y) || !std::isfinite(k)) continue;
    const double before = std::max(0.0, field.Slack(i, y) - field.HalfUlp(y));
    const double further = std::signbit(k) == std::signbit(y) || y == 0
                               ? std::abs(k) - std::abs(y)
                               : -std::abs(k) - std::abs(y);
    if (further > before || -further > 2 * field.HalfUlp(y) + before) return false;
  }
  return true;
}

}  // namespace

// Wrong by the last place of the output's type at most: a rounding, not a value.
std::optional<Signature> LastPlace(const Field& field, DType out) {
  const double ulp = 2 * UnitRoundoff(out);  // of a value's magnitude, at most
  int64_t towards_zero = 0;
  for (int64_t i = 0; i < field.rows() * field.columns(); ++i) {
    if (!field.wrong(i)) continue;
    const double y = field.oracle(i), k = field.kernel(i);
    if (!std::isfinite(y) || !std::isfinite(k) || std::abs(k - y) > ulp * std::abs(y))
      return std::nullopt;
    towards_zero += std::abs(k) < std::abs(y);
  }
  if (field.wrong_count() == 0) return std::nullopt;
  if (towards_zero == field.wrong_count() && field.wrong_count() > 1 && NoneRoundedUp(field)) {
    return Signature{"truncated-rounding", "cut off instead of rounded to nearest",
                     fmt::format("{} of {} elements are wrong, none is further from zero than its "
                                 "exact value",
                                 field.wrong_count(), field.rows() * field.columns())};
  }
  return Signature{
      "rounding", "wrong in the last place: another rounding point or mode",
      fmt::format("{} of {} wrong elements are nearer to zero", towards_zero, field.wrong_count())};
}

}  // namespace assay::locate
