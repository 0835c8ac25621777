#include "kernels/engines/native/rope_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/loaders/engine_error.h"

namespace assay::kernels::native {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

// m(a) = 0.1·a·ln(factor) + 1, 1 where the context is not stretched.
double Magnitude(double factor, double a) {
  return factor <= 1 ? 1.0 : 0.1 * a * std::log(factor) + 1.0;
}

double OriginalPositions(const ModelConfig& config) {
  const int64_t original = config.rope.original_max_position;
  return static_cast<double>(original > 0 ? original : config.max_position);
}

// Between plain and interpolated frequencies, a ramp over the dimensions (YaRN).
void ApplyYarn(const ModelConfig& config, double dim, std::vector<double>* frequencies) {
  const RopeConfig& rope = config.rope;
  const auto dimension_of = [&](double rotations) {
    return dim * std::log(OriginalPositions(config) / (rotations * kTwoPi)) /
           (2 * std::log(rope.theta));
  };
  double low = dimension_of(rope.beta_fast);
  double high = dimension_of(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;  // keeps the ramp finite
  for (size_t i = 0; i < frequencies->size(); ++i) {
    double& f = (*frequencies)[i];
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    f = f / rope.factor * ramp + f * (1 - ramp);
  }
}

double YarnFactor(const RopeConfig& rope) {
  if (rope.attention_factor) return *rope.attention_factor;
  if (rope.mscale.value_or(0) != 0 && rope.mscale_all_dim.value_or(0) != 0) {
    return Magnitude(rope.factor, *rope.mscale) / Magnitude(rope.factor, *rope.mscale_all_dim);
  }
  return Magnitude(rope.factor, 1);
}

// Long waves are stretched, short ones kept, those between mixed (Llama 3.1).
void ApplyLlama3(const ModelConfig& config, std::vector<double>* frequencies) {
  const RopeConfig& rope = config.rope;
  const double original = OriginalPositions(config);
  for (double& f : *frequencies) {
    const double wave = kTwoPi / f;
    if (wave > original / rope.low_freq_factor) {
      f /= rope.factor;
    } else if (wave >= original / rope.high_freq_factor) {
      const double smooth =
          (original / wave - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
      f = (1 - smooth) * f / rope.factor + smooth * f;
    }
  }
}

}  // namespace

RopeTable::RopeTable(const ModelConfig& config, int64_t dim) {
  const RopeConfig& rope = config.rope;
  for (int64_t i = 0; i < dim / 2; ++i) {
    frequencies_.push_back(
        std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(dim)));
  }
  if (rope.type == "yarn") {
    ApplyYarn(config, static_cast<double>(dim), &frequencies_);
    factor_ = YarnFactor(rope);
  } else if (rope.type == "llama3") {
    ApplyLlama3(config, &frequencies_);
  } else if (rope.type == "linear") {
    for (double& f : frequencies_) f /= rope.factor;
  } else if (rope.type != "default") {
    throw EngineError(
        ASSAY_UNSUPPORTED,
        fmt::format("rope type '{}'; known are default, linear, llama3, yarn", rope.type));
  }
}

void RopeTable::Grow(int64_t position) {
  const auto half = static_cast<int64_t>(frequencies_.size());
  for (int64_t p = half == 0 ? position : static_cast<int64_t>(cos_.size()) / half; p <= position;
       ++p) {
    for (double f : frequencies_) {
      const double angle = static_cast<double>(p) * f;
      cos_.push_back(static_cast<float>(std::cos(angle) * factor_));
      sin_.push_back(static_cast<float>(std::sin(angle) * factor_));
    }
  }
}

const float* RopeTable::Cos(int64_t position) {
  Grow(position);
  return cos_.data() + position * static_cast<int64_t>(frequencies_.size());
}

const float* RopeTable::Sin(int64_t position) {
  Grow(position);
  return sin_.data() + position * static_cast<int64_t>(frequencies_.size());
}

double SoftmaxScale(const ModelConfig& config) {
  if (!config.is_mla()) return 1 / std::sqrt(static_cast<double>(config.head_dim));
  const double scale = 1 / std::sqrt(static_cast<double>(config.qk_nope + config.qk_rope));
  const RopeConfig& rope = config.rope;
  if (rope.type == "default" || rope.mscale_all_dim.value_or(0) == 0) return scale;
  const double m = Magnitude(rope.factor, *rope.mscale_all_dim);
  return scale * m * m;
}

}  // namespace assay::kernels::native
