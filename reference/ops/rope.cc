#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "reference/ops/ops.h"

namespace assay::reference::ops {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

double MScale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

void Llama3(const RopeConfig& c, double original, RopeTable* table) {
  for (double& f : table->inverse_frequency) {
    const double wavelength = kTwoPi / f;
    if (wavelength > original / c.low_freq_factor) {
      f /= c.factor;
    } else if (wavelength >= original / c.high_freq_factor) {
      const double smooth =
          (original / wavelength - c.low_freq_factor) / (c.high_freq_factor - c.low_freq_factor);
      f = (1 - smooth) * f / c.factor + smooth * f;
    }
  }
}

// The dimension whose angle makes `rotations` turns over the original context.
double CorrectionDim(double rotations, double dim, double theta, double original) {
  return dim * std::log(original / (rotations * kTwoPi)) / (2 * std::log(theta));
}

void Yarn(const RopeConfig& c, int64_t dim, double original, RopeTable* table) {
  const auto d = static_cast<double>(dim);
  double low = CorrectionDim(c.beta_fast, d, c.theta, original);
  double high = CorrectionDim(c.beta_slow, d, c.theta, original);
  if (c.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, d - 1);
  if (low == high) high += 0.001;  // as Hugging Face does, against a division by zero
  for (size_t i = 0; i < table->inverse_frequency.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    const double f = table->inverse_frequency[i];
    table->inverse_frequency[i] = f / c.factor * ramp + f * (1 - ramp);
  }
  // Zero counts as not given, as in Python's `if mscale and mscale_all_dim`.
  if (c.attention_factor.has_value()) {
    table->factor = *c.attention_factor;
  } else if (c.mscale.value_or(0) != 0 && c.mscale_all_dim.value_or(0) != 0) {
    table->factor = MScale(c.factor, *c.mscale) / MScale(c.factor, *c.mscale_all_dim);
  } else {
    table->factor = MScale(c.factor, 1);
  }
}

}  // namespace

Result<RopeTable> MakeRopeTable(const RopeConfig& config, int64_t dim, int64_t max_position) {
  const double original = static_cast<double>(
      config.original_max_position > 0 ? config.original_max_position : max_position);
  const bool scaled = config.type != "default";
  if (!(config.theta > 1) || (scaled && !(config.factor > 0)) || dim <= 0 || dim % 2 != 0) {
    return Error{
        fmt::format("rope \"{}\": theta {}, factor {}, {} dimensions: theta must be above "
                    "1, factor positive, dimensions even",
                    config.type, config.theta, config.factor, dim)};
  }
  RopeTable table;
  for (int64_t i = 0; i < dim; i += 2) {
    table.inverse_frequency.push_back(
        1.0 / std::pow(config.theta, static_cast<double>(i) / static_cast<double>(dim)));
  }
  if (!scaled) return table;
  if (config.type == "linear") {
    for (double& f : table.inverse_frequency) f /= config.factor;
    return table;
  }
  if (config.type != "llama3" && config.type != "yarn") {
    return Error{fmt::format("rope type \"{}\" is not known to the oracle (default, linear, "
                             "llama3, yarn are)",
                             config.type),
                 ErrorKind::kUnsupported};
  }
  if (!(original > 0) || !(config.beta_fast > 0) || !(config.beta_slow > 0) ||
      !(config.low_freq_factor > 0) || !(config.high_freq_factor > config.low_freq_factor)) {
    return Error{
        fmt::format("rope \"{}\": original_max_position_embeddings, beta_fast, beta_slow, "
                    "low_freq_factor must be positive, high_freq_factor above "
                    "low_freq_factor",
                    config.type)};
  }
  if (config.type == "llama3") {
    Llama3(config, original, &table);
  } else {
    Yarn(config, dim, original, &table);
  }
  return table;
}

Evaluation Rope(const Input& x, const RopeTable& table, const RopeLayout& layout,
                int64_t first_position, DType table_type, bool bounds) {
  const int64_t rows = x.value->rows(), columns = x.value->columns();
  const auto pairs = static_cast<int64_t>(table.inverse_frequency.size());
  const bool errors = bounds && x.error != nullptr;
  Evaluation e;
  e.value = *x.value;
  if (bounds) e.function = Zeros(x.value->shape);
  if (errors) e.propagated = *x.error;
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t i = 0; i < pairs; ++i) {
      const double angle =
          static_cast<double>(first_position + t) * table.inverse_frequency[static_cast<size_t>(i)];
      const double c = RoundTo(std::cos(angle) * table.factor, table_type);
      const double s = RoundTo(std::sin(angle) * table.factor, table_type);
      for (int64_t begin = layout.block - 2 * pairs; begin < columns; begin += layout.block) {
        const int64_t row = t * columns + begin;
        const auto a = static_cast<size_t>(row + (layout.interleaved ? 2 * i : i));
        const auto b = static_cast<size_t>(row + (layout.interleaved ? 2 * i + 1 : i + pairs));
        const double x1 = x.value->data[a], x2 = x.value->data[b];
        e.value.data[a] = x1 * c - x2 * s;
        e.value.data[b] = x2 * c + x1 * s;
        if (bounds) e.function.data[a] = e.function.data[b] = std::fabs(x1) + std::fabs(x2);
        if (!errors) continue;
        const double e1 = x.error->data[a], e2 = x.error->data[b];
        e.propagated.data[a] = std::fabs(c) * e1 + std::fabs(s) * e2;
        e.propagated.data[b] = std::fabs(c) * e2 + std::fabs(s) * e1;
      }
    }
  }
  return e;
}

}  // namespace assay::reference::ops
