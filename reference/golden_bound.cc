#include "reference/golden_bound.h"

#include <fmt/format.h>

#include <cmath>

namespace assay::reference {
namespace {

// Roundings of one elementary function in libm (1 ulp is 2 u) and of the few operations around it:
// a sigmoid has exp, 1 +, 1 /; then two products and a scale.
constexpr double kFunctionRoundings = 8;
// Roundings of an inverse frequency (pow, division, YaRN's mix); times the angle they are an
// absolute error of it.
constexpr double kFrequencyRoundings = 8;

constexpr int kRuns = 3;
// Multiply-adds beyond which one run must do.
constexpr double kLargeChain = 2e9;

// splitmix64: the sign of a move is a function of (run, tap, element) alone.
uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}
uint64_t HashOf(const std::string& text) {
  uint64_t hash = 0;
  for (const char c : text) hash = Mix(hash ^ static_cast<unsigned char>(c));
  return hash;
}

// Roundings that scale with Evaluation::function.
double FunctionRoundings(const Node& node, const Evaluation& e, const Step& step) {
  const auto terms = static_cast<double>(e.terms);
  switch (node.op) {
    case Op::kRmsNorm:
    case Op::kHeadNorm:
      return terms / 2 + kFunctionRoundings;  // the square root halves the sum's relative error
    case Op::kRope:
      return kFunctionRoundings +
             kFrequencyRoundings * static_cast<double>(step.first_position +
                                                       static_cast<int64_t>(step.tokens.size()));
    case Op::kContext:
      return terms + kFunctionRoundings;  // the softmax's own sum
    default:
      return kFunctionRoundings;
  }
}

void Widen(const std::map<std::string, Tensor>& moved, const std::map<std::string, Tensor>& plain,
           std::map<std::string, double>* deviations) {
  for (const auto& [tap, value] : moved) {
    const auto found = plain.find(tap);
    if (found == plain.end() || found->second.data.size() != value.data.size()) continue;
    double& deviation = (*deviations)[tap];
    for (size_t i = 0; i < value.data.size(); ++i) {
      const double d = std::fabs(value.data[i] - found->second.data[i]);
      if (d > deviation) deviation = d;
    }
  }
}

}  // namespace

double DoubleError(const Node& node, const Evaluation& e, size_t element, const Step& step) {
  if (node.op == Op::kRouterIds || (e.magnitude.data.empty() && e.function.data.empty())) return 0;
  double sum = std::fabs(e.value.data[element]);
  if (!e.magnitude.data.empty()) {
    // The softmax scale, the routed scaling: a factor computed once, rounded a few times.
    const double factor = node.op == Op::kScores ? kFunctionRoundings : 1;
    sum += (static_cast<double>(e.terms) + factor) * e.magnitude.data[element];
  }
  if (!e.function.data.empty()) sum += FunctionRoundings(node, e, step) * e.function.data[element];
  return UnitRoundoff(DType::kF64) * sum;
}

Result<Amplification> MeasureAmplification(const Oracle& oracle, const RunRequest& request,
                                           const Trace& plain, Derive derive) {
  Amplification result;
  std::map<std::string, Tensor> plain_derived;
  if (derive != nullptr) plain_derived = derive(plain[0].at("logits"));
  for (int run = 0; run < kRuns; ++run) {
    RunRequest moved = request;
    double products = 0;
    moved.observe = [&](const Node& node, int step, Evaluation* e) {
      const uint64_t seed = Mix(HashOf(node.tap) ^ static_cast<uint64_t>(run));
      const Step& at = request.steps[static_cast<size_t>(step)];
      products += static_cast<double>(e->terms) * static_cast<double>(e->value.data.size());
      for (size_t i = 0; i < e->value.data.size(); ++i) {
        if (!std::isfinite(e->value.data[i])) continue;  // masked scores
        const double error = DoubleError(node, *e, i, at);
        e->value.data[i] += (Mix(seed ^ i) & 1) != 0 ? error : -error;
      }
    };
    const auto trace = oracle.Run(moved, Contract::Exact());
    if (!trace) return trace.error();
    Widen((*trace)[0], plain[0], &result.deviation);
    if (derive != nullptr) {
      Widen(derive((*trace)[0].at("logits")), plain_derived, &result.deviation);
    }
    ++result.runs;
    if (products > kLargeChain) break;
  }
  return result;
}

double GoldenBound(DType stored, double deviation, double largest) {
  if (stored == DType::kI32 || stored == DType::kI64) return 0;  // choices are equal or wrong
  const double rounding = stored == DType::kF64 ? 0.0 : UnitRoundoff(stored);
  return rounding + (deviation == 0 ? 0.0 : 2 * deviation / largest);
}

std::string PrintGoldenBound(const Amplification& amplification) {
  return fmt::format(
      "rounding of the stored type (F64 0, F32 2^-24 of the largest value) + 2·(largest deviation "
      "in {} chain{} whose every result was moved by ±2^-53·(terms·Σ|terms| + roundings·|f| + "
      "|y|))",
      amplification.runs, amplification.runs == 1 ? "" : "s");
}

}  // namespace assay::reference
