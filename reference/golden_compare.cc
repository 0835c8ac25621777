// One prompt of one golden: the oracle's chains against what the files hold.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reference/golden.h"
#include "reference/golden_bound.h"
#include "reference/golden_names.h"
#include "reference/golden_summary.h"

namespace assay::reference {
namespace {

// The prompt under comparison, and the first thing that was wrong with it.
class Comparison {
 public:
  Comparison(const Oracle& oracle, const ModelConfig& config, const GoldenInfo& info,
             const GoldenPrompt& prompt)
      : oracle_(oracle), config_(config), info_(info), prompt_(prompt) {
    row_.name = prompt.name;
    row_.prompt = prompt.prompt;
  }
  GoldenRow Run();

 private:
  Status Read();
  Status ReadTaps();
  Result<Trace> Chain(bool decode, bool absorbed) const;
  Status CompareAll();
  Status CompareTaps(const std::map<std::string, Tensor>& values, const std::string& how);
  Result<double> Relative(const GoldenTensor& golden, const Tensor& value,
                          const std::string& what) const;
  Status CompareLogits(const Tensor& logits, const std::string& how, std::optional<double>* rel);
  Status CompareSummary(const Tensor& logits, const std::string& how, std::optional<double>* rel);
  Status CompareGreedy(const Tensor& logits) const;
  // As the golden's maker has a tap: Hugging Face's order of rows.
  Tensor InGoldenOrder(const std::string& tap, const Tensor& value) const;
  std::string Where(const std::string& file) const { return prompt_.folder + "/" + file; }

  const Oracle& oracle_;
  const ModelConfig& config_;
  const GoldenInfo& info_;
  const GoldenPrompt& prompt_;
  GoldenRow row_;
  std::vector<int32_t> tokens_;
  GoldenTensor logits_;    // of every position, or of the last one beside a summary of all
  GoldenTensors summary_;  // by the summary's names
  GoldenTensors taps_;
  bool has_taps_ = false;
  Amplification amplification_;
};

double Largest(const Tensor& tensor) {
  double largest = 0;
  for (const double value : tensor.data) largest = std::max(largest, std::fabs(value));
  return largest;
}

// Rows of all steps, one after the other.
std::map<std::string, Tensor> Join(const Trace& trace) {
  std::map<std::string, Tensor> all = trace[0];
  for (size_t step = 1; step < trace.size(); ++step) {
    for (const auto& [tap, value] : trace[step]) {
      Tensor& whole = all[tap];
      if (whole.shape.empty()) whole.shape = {0};
      whole.shape[0] += value.rows();
      whole.data.insert(whole.data.end(), value.data.begin(), value.data.end());
    }
  }
  return all;
}

Status Comparison::Read() {
  tokens_ = info_.prompts.at(prompt_.prompt);
  const std::string path = Where("logits.safetensors");
  auto tensors = ReadGoldenTensors(path);
  if (!tensors) return tensors.error();
  const auto logits = tensors->find("logits." + prompt_.prompt);
  if (logits == tensors->end()) {
    return Error{fmt::format("{}: logits.{} is missing", path, prompt_.prompt)};
  }
  const auto tokens = tensors->find("tokens." + prompt_.prompt);
  if (tokens != tensors->end()) {
    const Tensor& said = tokens->second.value;
    if (!std::equal(said.data.begin(), said.data.end(), tokens_.begin(), tokens_.end())) {
      return Error{fmt::format("{}: tokens.{} are not those of golden.json", path, prompt_.prompt)};
    }
  }
  logits_ = std::move(logits->second);
  if (logits_.integer()) return Error{fmt::format("{}: logits must be floating values", path)};
  for (const std::string_view name : kSummaryNames) {
    const std::string full = fmt::format("{}.{}", name, prompt_.prompt);
    const auto found = tensors->find(full);
    if (found != tensors->end()) summary_[std::string(name)] = std::move(found->second);
  }
  if (!summary_.empty()) {
    const Status shapes =
        CheckSummary(summary_, static_cast<int64_t>(tokens_.size()), config_.vocab);
    if (!shapes) return Error{fmt::format("{}: {}", path, shapes.error().message)};
  }
  return ReadTaps();
}

Status Comparison::ReadTaps() {
  const std::string path = Where("taps-" + prompt_.prompt + ".safetensors");
  if (!FileExists(path)) return Ok();
  auto taps = ReadGoldenTensors(path);
  if (!taps) return taps.error();
  taps_ = std::move(*taps);
  has_taps_ = true;
  for (const auto& [name, tensor] : taps_) {
    const auto tap = TapOfGoldenName(name, config_.layers);
    if (!tap || oracle_.FindNode(*tap) == nullptr) {
      return Error{fmt::format("{}: tap \"{}\" is not known", path, name)};
    }
  }
  std::vector<bool> is_moe;
  for (int64_t layer = 0; layer < config_.layers; ++layer) is_moe.push_back(config_.is_moe(layer));
  for (const std::string& name : MainGoldenNames(config_.layers, is_moe)) {
    if (!taps_.contains(name)) return Error{fmt::format("{}: tap \"{}\" is missing", path, name)};
  }
  return Ok();
}

Result<Trace> Comparison::Chain(bool decode, bool absorbed) const {
  RunRequest request;
  request.mla_absorbed = absorbed;
  request.observe = prompt_.observe;
  request.wanted = {"logits"};
  for (const auto& [name, tensor] : taps_) {
    request.wanted.push_back(*TapOfGoldenName(name, config_.layers));
  }
  if (!decode) {
    request.steps = {{tokens_, 0}};
  } else {
    for (size_t t = 0; t < tokens_.size(); ++t) {
      request.steps.push_back({{tokens_[t]}, static_cast<int64_t>(t)});
    }
  }
  return oracle_.Run(request, Contract::Exact());
}

// Error: shapes differ, or integers do.
Result<double> Comparison::Relative(const GoldenTensor& golden, const Tensor& value,
                                    const std::string& what) const {
  if (golden.value.rows() != value.rows() || golden.value.columns() != value.columns()) {
    return Error{fmt::format("{}: the golden has {} rows of {} values, the oracle {} of {}", what,
                             golden.value.rows(), golden.value.columns(), value.rows(),
                             value.columns())};
  }
  double largest_difference = 0;
  for (size_t i = 0; i < value.data.size(); ++i) {
    const double difference = std::fabs(value.data[i] - golden.value.data[i]);
    if (!std::isfinite(difference)) return Error{what + ": the oracle's value is not finite"};
    if (golden.integer() && difference != 0) {
      return Error{fmt::format("{}: row {}: the golden chose {}, the oracle {}", what,
                               static_cast<int64_t>(i) / value.columns(), golden.value.data[i],
                               value.data[i])};
    }
    largest_difference = std::max(largest_difference, difference);
  }
  if (largest_difference == 0) return 0.0;
  const double largest = Largest(golden.value);
  return largest == 0 ? INFINITY : largest_difference / largest;
}

Status Comparison::CompareLogits(const Tensor& all, const std::string& how,
                                 std::optional<double>* rel) {
  // Where there is a summary of every position, the logits may be the last one's alone.
  const bool last = !summary_.empty() && logits_.value.rows() == 1;
  const Tensor logits = last ? LastRow(all) : all;
  const auto found = Relative(logits_, logits, "logits, " + how);
  if (!found) return found.error();
  *rel = std::max(rel->value_or(0), *found);
  row_.logits_bound =
      GoldenBound(logits_.dtype, amplification_.deviation["logits"], Largest(logits_.value));
  if (*found <= row_.logits_bound) return Ok();
  return Error{fmt::format("logits, {}: relative difference {:.3g}, allowed is {:.3g}", how, *found,
                           row_.logits_bound)};
}

// The summary of every position, each with a bound of its own; the logits' figure includes them.
Status Comparison::CompareSummary(const Tensor& logits, const std::string& how,
                                  std::optional<double>* rel) {
  Status first = Ok();
  for (const auto& [name, value] : Summarise(logits)) {
    const GoldenTensor& golden = summary_.at(name);
    const std::string what = fmt::format("{} of the logits, {}", name, how);
    const auto found = Relative(golden, value, what);
    if (!found) {
      if (first.ok()) first = found.error();
      continue;
    }
    if (!golden.integer()) *rel = std::max(rel->value_or(0), *found);
    const double largest = Largest(golden.value);
    const double bound = GoldenBound(golden.dtype, amplification_.deviation[name], largest) +
                         SummaryRounding(name, logits) / largest;
    if (*found <= bound || !first.ok()) continue;
    first = Error{
        fmt::format("{}: relative difference {:.3g}, allowed is {:.3g}", what, *found, bound)};
  }
  return first;
}

// A Llama's rows of q and k in a GGUF file: row 2j + i of a head is Hugging Face's row i·d/2 + j.
Tensor Comparison::InGoldenOrder(const std::string& tap, const Tensor& value) const {
  const bool permuted = config_.container == Container::kGguf && config_.rope_interleave &&
                        (tap.ends_with(".attn.q") || tap.ends_with(".attn.k"));
  if (!permuted) return value;
  Tensor out = value;
  const int64_t d = config_.head_dim, columns = value.columns();
  for (int64_t n = 0; n < static_cast<int64_t>(value.data.size()); ++n) {
    const int64_t within = n % columns % d;
    const int64_t from = n - within + 2 * (within % (d / 2)) + within / (d / 2);
    out.data[static_cast<size_t>(n)] = value.data[static_cast<size_t>(from)];
  }
  return out;
}

// The first wrong tap in data-flow order is the one to name.
Status Comparison::CompareTaps(const std::map<std::string, Tensor>& values,
                               const std::string& how) {
  std::map<const Node*, std::string> wrong;
  for (const auto& [name, golden] : taps_) {
    const std::string tap = *TapOfGoldenName(name, config_.layers);
    const auto value = values.find(tap);
    if (value == values.end()) return Error{fmt::format("{}: the oracle did not give it", tap)};
    const Node* node = oracle_.FindNode(tap);
    const auto rel =
        Relative(golden, InGoldenOrder(tap, value->second), fmt::format("{}, {}", tap, how));
    if (!rel) {
      wrong.emplace(node, rel.error().message);
      continue;
    }
    const double bound =
        GoldenBound(golden.dtype, amplification_.deviation[tap], Largest(golden.value));
    if (*rel > bound) {
      wrong.emplace(node, fmt::format("{}, {}: relative difference {:.3g}, allowed is {:.3g}", tap,
                                      how, *rel, bound));
    }
    if (!row_.taps_max_rel || *rel > *row_.taps_max_rel) {
      row_.taps_max_rel = *rel;
      row_.taps_bound = bound;
      row_.worst_tap = tap;
    }
  }
  // Nodes lie in data-flow order in one array.
  const auto first = std::min_element(wrong.begin(), wrong.end(), [](const auto& a, const auto& b) {
    return std::less<const Node*>()(a.first, b.first);
  });
  if (first == wrong.end()) return Ok();
  return Error{first->second};
}

Status Comparison::CompareGreedy(const Tensor& logits) const {
  const auto found = info_.greedy.find(prompt_.prompt);
  if (found == info_.greedy.end()) return Ok();
  const std::vector<int32_t>& greedy = found->second;
  if (greedy.size() != static_cast<size_t>(logits.rows())) {
    return Error{fmt::format("golden.json: greedy.{} has {} choices for {} tokens", prompt_.prompt,
                             greedy.size(), logits.rows())};
  }
  for (int64_t t = 0; t < logits.rows(); ++t) {
    const auto row = logits.data.begin() + t * logits.columns();
    const auto best = std::max_element(row, row + logits.columns()) - row;
    if (best != greedy[static_cast<size_t>(t)]) {
      return Error{fmt::format("greedy choice of row {}: the golden chose {}, the oracle {}", t,
                               greedy[static_cast<size_t>(t)], best)};
    }
  }
  return Ok();
}

Status Comparison::CompareAll() {
  if (const Status status = Read(); !status) return status;
  const auto plain = Chain(false, false);
  if (!plain) return plain.error();
  RunRequest request;
  request.steps = {{tokens_, 0}};
  for (const auto& [tap, value] : (*plain)[0]) request.wanted.push_back(tap);
  auto amplification =
      MeasureAmplification(oracle_, request, *plain, summary_.empty() ? nullptr : Summarise);
  if (!amplification) return amplification.error();
  amplification_ = std::move(*amplification);
  row_.derivation = PrintGoldenBound(amplification_);

  // Every comparison is made, so that the row has all its numbers; the first failure is told.
  Status first = Ok();
  const auto note = [&](Status status) {
    if (first.ok() && !status.ok()) first = std::move(status);
  };
  for (const bool absorbed : {false, true}) {
    if (absorbed && !config_.is_mla()) continue;
    for (const bool decode : {false, true}) {
      if (decode && !info_.has_decode.at(prompt_.prompt)) continue;
      const auto trace = !decode && !absorbed ? plain : Chain(decode, absorbed);
      if (!trace) return trace.error();
      const auto values = Join(*trace);
      const std::string how =
          fmt::format("{}{}", decode ? "decode" : "prefill", absorbed ? ", absorbed" : "");
      if (has_taps_) note(CompareTaps(values, how));
      note(CompareLogits(values.at("logits"), how,
                         decode ? &row_.decode_max_rel : &row_.logits_max_rel));
      if (!summary_.empty()) {
        note(CompareSummary(values.at("logits"), how,
                            decode ? &row_.decode_max_rel : &row_.logits_max_rel));
      }
      note(CompareGreedy(values.at("logits")));
    }
  }
  return first;
}

GoldenRow Comparison::Run() {
  const Status status = CompareAll();
  row_.verdict = status.ok() ? GoldenVerdict::kPass : GoldenVerdict::kFail;
  if (!status.ok()) row_.reason = status.error().message;
  return row_;
}

}  // namespace

GoldenRow VerifyPrompt(const Oracle& oracle, const ModelConfig& config, const GoldenInfo& info,
                       const GoldenPrompt& prompt) {
  return Comparison(oracle, config, info, prompt).Run();
}

}  // namespace assay::reference
