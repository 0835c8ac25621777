#include "kernels/methods/affine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/methods/numbers.h"

namespace assay::kernels {

Result<Affine> ChooseAffine(double least, double most, const AffineRule& rule) {
  // Zero is always in the range, so that a zero weight stays zero.
  least = std::min(least, 0.0);
  most = std::max(most, 0.0);
  const double amax = std::max(-least, most);
  if (amax == 0) return Affine{rule.zero_group, rule.zero};
  Affine affine{0, rule.zero};
  // In float, as the producers calculate it.
  double scale = static_cast<float>(amax) / static_cast<float>(rule.divisor);
  int from_zero = 0;
  if (rule.asymmetric) {
    scale = (static_cast<float>(most) - static_cast<float>(least)) /
            static_cast<float>(rule.code_max - rule.code_min);
  }
  std::optional<double> stored = StoredScale(scale, rule.scale_dtype);
  if (stored && rule.asymmetric) {
    const double zero = RoundEven(rule.code_min - least / *stored);
    from_zero = static_cast<int>(
        std::clamp(zero, static_cast<double>(rule.code_min), static_cast<double>(rule.code_max)));
    affine.zero = from_zero;
    if (from_zero < rule.zero_min) {
      // Nothing is below zero by half a step: the lowest code is given up for a zero that fits.
      affine.zero = rule.zero_min;
      stored = StoredScale(most / (rule.code_max - rule.zero_min), rule.scale_dtype);
    }
  }
  if (!stored) {
    return Error{fmt::format("a largest magnitude of {} needs a scale beyond {}", amax,
                             NameOf(rule.scale_dtype))};
  }
  affine.scale = *stored;
  return affine;
}

int CodeOf(double steps, int zero, int least, int most) {
  const double code = (std::isnan(steps) ? 0 : RoundEven(steps)) + zero;
  if (!(code > least)) return least;
  return code < most ? static_cast<int>(code) : most;
}

}  // namespace assay::kernels
