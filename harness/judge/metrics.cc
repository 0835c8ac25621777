// Numbers that are reported and never decide, and the tensors that they are computed from.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "harness/judge/internal.h"

namespace assay::judge {
namespace {

double HalfToDouble(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 31) return mantissa ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

template <class T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

double ValueAt(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::kF64:
      return Load<double>(at);
    case DType::kF32:
      return Load<float>(at);
    case DType::kBF16: {
      const uint32_t bits = static_cast<uint32_t>(Load<uint16_t>(at)) << 16;
      float value;
      std::memcpy(&value, &bits, sizeof value);
      return value;
    }
    case DType::kF16:
      return HalfToDouble(Load<uint16_t>(at));
    case DType::kI64:
      return static_cast<double>(Load<int64_t>(at));
    case DType::kI32:
      return Load<int32_t>(at);
    case DType::kI16:
      return Load<int16_t>(at);
    case DType::kI8:
      return Load<int8_t>(at);
    case DType::kU32:
      return Load<uint32_t>(at);
    case DType::kU16:
      return Load<uint16_t>(at);
    case DType::kU64:
      return static_cast<double>(Load<uint64_t>(at));
    default:
      return static_cast<double>(Load<uint8_t>(at));
  }
}

// log Σ exp of a row, and its largest element.
double LogSum(const double* row, int64_t n) {
  const double top = *std::max_element(row, row + n);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(row[i] - top);
  return top + std::log(sum);
}

}  // namespace

std::string PowerText(double value) {
  if (value == 0 || !std::isfinite(value)) return fmt::format("{}", value);
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent);
  if (mantissa == 0.5) return fmt::format("2^{}", exponent - 1);
  return fmt::format("{:.3g}", value);
}

ToleranceFacts Tolerance::Facts() const {
  ToleranceFacts facts;
  facts.u_acc = PowerText(u_acc);
  facts.depth = depth;
  facts.c = c;
  for (const Term& term : terms) facts.terms.push_back(term.name);
  return facts;
}

std::string Tolerance::Print() const {
  std::string text;
  for (const Term& term : terms) text += fmt::format("{}: {}\n", term.name, term.derivation);
  return text;
}

reference::Tensor ToTensor(const TapValue& value) {
  reference::Tensor tensor;
  tensor.shape = value.shape;
  const size_t size = static_cast<size_t>(SizeOf(value.dtype).count());
  const size_t n = value.bytes.size() / size;
  tensor.data.resize(n);
  if (value.dtype == DType::kF32) {  // the usual ones without a switch an element
    for (size_t i = 0; i < n; ++i) tensor.data[i] = Load<float>(value.bytes.data() + 4 * i);
  } else {
    for (size_t i = 0; i < n; ++i) {
      tensor.data[i] = ValueAt(value.dtype, value.bytes.data() + size * i);
    }
  }
  return tensor;
}

void AddLogitMetrics(const reference::Tensor& oracle, const reference::Tensor& kernel,
                     Metrics* metrics) {
  const int64_t rows = oracle.rows(), n = oracle.columns();
  if (rows == 0 || n == 0 || oracle.data.size() != kernel.data.size()) return;
  double sum = 0, squares = 0;
  int64_t agree = 0, counted = 0;
  const auto finite = [n](const double* row) {
    return std::all_of(row, row + n, [](double v) { return std::isfinite(v); });
  };
  for (int64_t r = 0; r < rows; ++r) {
    const double* y = oracle.data.data() + r * n;
    const double* k = kernel.data.data() + r * n;
    if (!finite(y)) continue;  // no distribution that could be compared with
    ++counted;
    if (!finite(k)) {
      sum = std::numeric_limits<double>::infinity();
      continue;
    }
    agree += std::max_element(y, y + n) - y == std::max_element(k, k + n) - k;
    const double ly = LogSum(y, n), lk = LogSum(k, n);
    double kld = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double log_p = y[i] - ly;
      const double p = std::exp(log_p);
      if (p > 0) kld += p * (log_p - (k[i] - lk));
    }
    sum += kld;
    squares += kld * kld;
  }
  if (counted == 0) return;
  const double count = static_cast<double>(counted), mean = sum / count;
  metrics->kld = mean;
  metrics->top1 = static_cast<double>(agree) / count;
  if (counted > 1 && std::isfinite(mean)) {
    const double variance = std::max(0.0, (squares - count * mean * mean) / (count - 1));
    metrics->kld_stderr = std::sqrt(variance / count);
  }
}

}  // namespace assay::judge
