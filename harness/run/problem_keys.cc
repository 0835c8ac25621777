#include "harness/run/problem_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "harness/units/scheme.h"

namespace assay::run {
namespace {

using Words = std::vector<std::string_view>;

const Words kTiers = {"scalar",      "avx2",        "avxvnni",     "avx512",
                      "avx512_vnni", "avx512_vbmi", "avx512_bf16", "amx_int8",
                      "amx_bf16",    "cuda_sm80",   "cuda_sm90a"};
const Words kActs = {"a16",     "a32",    "a8row",  "a8static", "a8g32", "a8g128", "af8row",
                     "af8g128", "amxfp8", "amxfp4", "anvfp4",   "q8_0",  "q8_1",   "q8_k"};
const Words kFills = {"exact", "normal", "lognormal", "extreme", "real"};
const Words kSchedules = {"sequential", "ring", "tree"};
const Words kWires = {"fp32", "bf16", "int8", "int4"};
const Words kCollectives = {"all_reduce", "reduce_scatter", "gather"};

// Types that a GGUF file can hold; not all of them can be read.
const Words kGgufTypes = {"f32",   "f16",    "bf16",   "q4_0",   "q4_1",    "q5_0",  "q5_1",
                          "q8_0",  "q8_1",   "q2_k",   "q3_k",   "q4_k",    "q5_k",  "q6_k",
                          "q8_k",  "iq1_s",  "iq1_m",  "iq2_xs", "iq2_xxs", "iq2_s", "iq3_xxs",
                          "iq3_s", "iq4_nl", "iq4_xs", "tq1_0",  "tq2_0",   "mxfp4", "nvfp4"};

std::vector<std::string> Strings(const Words& words) { return {words.begin(), words.end()}; }

bool Contains(const Words& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// A decimal count without sign or leading zeros, within int.
std::optional<int64_t> ParseCount(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return {};
  if (text[0] == '-' || (text[0] == '0' && text.size() > 1)) return {};
  if (value > std::numeric_limits<int>::max()) return {};
  return value;
}

bool IsAtLeast(std::string_view text, int64_t least) {
  const auto value = ParseCount(text);
  return value && *value >= least;
}

Error BadValue(const KeyRule& rule, const std::string& value, const std::string& allowed,
               const std::vector<std::string>& candidates = {}) {
  return Error{fmt::format("{}={}: unknown value{}; allowed: {}", rule.info.name, value,
                           Suggestion(value, candidates), allowed)};
}

Result<std::string> CheckNumber(const KeyRule& rule, const std::string& value) {
  if (value == "inf") return value;
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  // Of a float's normal range, in which kernels compute.
  constexpr double kLeast = std::numeric_limits<float>::min();
  constexpr double kMost = std::numeric_limits<float>::max();
  if (error != std::errc() || end != value.data() + value.size() || !(number >= kLeast) ||
      number > kMost) {
    return BadValue(rule, value, "a positive number that fp32 has, inf");
  }
  return fmt::format("{}", number);
}

bool IsKnownMethod(const std::string& value) {
  if (value.starts_with("gguf-")) return Contains(kGgufTypes, std::string_view(value).substr(5));
  return ParseScheme(value).has_value();
}

Result<std::string> CheckMethod(const KeyRule& rule, const std::string& value) {
  if (IsKnownMethod(value)) return value;
  std::vector<std::string> others, candidates = KnownSchemes();
  for (const std::string& id : candidates) {
    if (!id.starts_with("gguf-")) others.push_back(id);
  }
  for (std::string_view type : kGgufTypes) candidates.push_back(fmt::format("gguf-{}", type));
  return BadValue(rule, value,
                  fmt::format("{} (other group and block sizes too), gguf- with {}",
                              fmt::join(others, " "), fmt::join(kGgufTypes, " ")),
                  candidates);
}

bool IsListOfUnits(std::string_view text) {
  int64_t total = 0;
  while (true) {
    const size_t comma = text.find(',');
    const auto units = ParseCount(text.substr(0, comma));
    if (!units) return false;
    total += *units;
    if (comma == std::string_view::npos) return total > 0;
    text.remove_prefix(comma + 1);
  }
}

Result<std::string> CheckSplit(const KeyRule& rule, const std::string& value) {
  if (value == "even" || value == "ceil") return value;
  if (value.starts_with("list:") && IsListOfUnits(std::string_view(value).substr(5))) return value;
  return BadValue(rule, value, "even, ceil, list:5,3,2 (units of each rank)", {"even", "ceil"});
}

Result<std::string> CheckPlacement(const KeyRule& rule, const std::string& value) {
  if (value == "cpu" || value == "gpu") return value;
  if (value.starts_with("hybrid:") && IsAtLeast(std::string_view(value).substr(7), 1)) return value;
  return BadValue(rule, value, "cpu, gpu, hybrid:N", {"cpu", "gpu", "hybrid:1"});
}

// "0,1,-1,0": the logical expert of each slot, -1 an empty one.
Result<std::string> CheckExperts(const KeyRule& rule, const std::string& value) {
  std::string_view rest = value;
  while (true) {
    const size_t comma = rest.find(',');
    const std::string_view slot = rest.substr(0, comma);
    if (slot != "-1" && !ParseCount(slot)) {
      return BadValue(rule, value, "0,1,-1,0 (the expert of each slot, -1: an empty one)");
    }
    if (comma == std::string_view::npos) return value;
    rest.remove_prefix(comma + 1);
  }
}

Result<std::string> CheckReduce(const KeyRule& rule, const std::string& value) {
  const size_t colon = value.find(':');
  const std::string_view wire =
      colon == std::string::npos ? "fp32" : std::string_view(value).substr(colon + 1);
  const std::string schedule = value.substr(0, colon);
  if (Contains(kSchedules, schedule) && Contains(kWires, wire)) {
    return fmt::format("{}:{}", schedule, wire);
  }
  std::vector<std::string> candidates;
  for (std::string_view s : kSchedules) {
    for (std::string_view w : kWires) candidates.push_back(fmt::format("{}:{}", s, w));
  }
  if (colon == std::string::npos) candidates = Strings(kSchedules);
  return BadValue(rule, value,
                  fmt::format("{}, with :{}", fmt::join(kSchedules, ", "), fmt::join(kWires, " :")),
                  candidates);
}

Result<std::string> CheckTier(const KeyRule& rule, const std::string& value, bool native_engine) {
  if (Contains(kTiers, value)) return value;
  const bool name =
      value.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
  if (!native_engine && name) return value;
  return BadValue(rule, value, fmt::format("{}", fmt::join(kTiers, ", ")), Strings(kTiers));
}

// K03/rank0: the kind's number, then the point of its parameters.
bool IsFault(std::string_view value) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return value.size() > 4 && value[0] == 'K' && digit(value[1]) && digit(value[2]) &&
         value[3] == '/';
}

std::vector<KeyRule> MakeRules() {
  const auto text = Values::kText;
  return {
      {{"engine", "native", "engine under test: a name, or the path of a library"}, text},
      {{"kernel", "", "class or registry name; the engine's own choice"}, text},
      {{"model", "", "a shipped name, or the path of a checkpoint; required"}, text},
      {{"layer", "all", "one layer"}, Values::kIndex},
      {{"expert", "all", "one expert"}, Values::kIndex},
      {{"op", "all", "one op by its tap without layer and expert, as moe.down"}, text},
      {{"method", "", "how the weights are stored; the checkpoint's own, or made for one op"},
       Values::kMethod},
      {{"group", "", "quantisation group along K; the checkpoint's own"}, Values::kGroup},
      {{"layout", "", "a layout's tag; the kernel's"}, text},
      {{"tp", "1", "tensor-parallel degree"}, Values::kCount},
      {{"pools", "1", "CPU sub-pools inside a rank"}, Values::kCount},
      {{"ep", "1", "expert-parallel degree"}, Values::kCount},
      {{"experts", "", "logical expert of each slot of the ep ranks: 0,1,-1,0"}, Values::kExperts},
      {{"dp", "1", "data-parallel degree of attention"}, Values::kCount},
      {{"attn_tp", "", "attention's own degree; = tp / dp"}, Values::kCount},
      {{"lm_head", "tp", "how the output matrix is cut"}, Values::kChoice, {"tp", "dp"}},
      {{"split", "even", "how units are shared out: even, ceil, list:5,3,2"}, Values::kSplit},
      {{"placement", "cpu", "where experts run: cpu, gpu, hybrid:N"}, Values::kPlacement},
      {{"prefill_threshold", "", "tokens from which prefill runs on the GPU"}, Values::kSize},
      {{"reduce", "sequential:fp32", "order and wire type of sums over ranks"}, Values::kReduce},
      {{"collective", "", "of kind collective: all_reduce, reduce_scatter, gather (op=logits)"},
       Values::kChoice,
       kCollectives},
      {{"tier", "", "instruction set; the best the host has"}, Values::kTier},
      {{"threads", "", "all cores"}, Values::kCount},
      {{"graph", "eager", "CUDA graphs"}, Values::kChoice, {"eager", "captured", "replayed"}},
      {{"act", "", "activation quantiser; the kernel's"}, Values::kChoice, kActs},
      {{"limit", "", "clamp of gate and up; the model's"}, Values::kNumber},
      {{"beta", "", "SiTU's beta; the model's"}, Values::kNumber},
      {{"linear_beta", "", "SiTUv2's beta of up; the model's"}, Values::kNumber},
      {{"tokens", "5", "5, 33+1 (prefill, then decode), 4x1 (a batch of decodes)"},
       Values::kTokens},
      {{"prompt", "", "t1, t5, t33, or a file of token ids"}, text},
      {{"chunk", "", "tokens of a prefill chunk"}, Values::kCount},
      {{"prefix", "", "tokens of a prefix that is in the cache"}, Values::kSize},
      {{"reload", "0", "1: other weights are loaded first, then these"},
       Values::kChoice,
       {"0", "1"}},
      {{"routing", "model", "by the model, or forced"}, Values::kChoice, {"model", "forced"}},
      {{"fill", "", "data; real for model and layer, else lognormal"}, Values::kChoice, kFills},
      {{"seed", "1", "of generated data"}, Values::kSize},
      {{"fault", "none", "a mutation: assay mutate --list"}, Values::kFault},
  };
}

Result<std::string> CheckCounted(const KeyRule& rule, const std::string& value) {
  const bool all = rule.values == Values::kIndex && value == "all";
  const bool channel = rule.values == Values::kGroup && value == "channel";
  const bool from_zero = rule.values == Values::kIndex || rule.values == Values::kSize;
  if (all || channel || IsAtLeast(value, from_zero ? 0 : 1)) return value;
  const char* extra = rule.values == Values::kIndex   ? "all, "
                      : rule.values == Values::kGroup ? "channel, "
                                                      : "";
  return BadValue(
      rule, value,
      fmt::format("{}{} to {}", extra, from_zero ? 0 : 1, std::numeric_limits<int>::max()));
}

}  // namespace

const std::vector<KeyRule>& KeyRules() {
  static const std::vector<KeyRule> kRules = MakeRules();
  return kRules;
}

const KeyRule* FindRule(std::string_view key) {
  for (const KeyRule& rule : KeyRules()) {
    if (rule.info.name == key) return &rule;
  }
  return nullptr;
}

std::string Suggestion(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string nearest = Nearest(word, candidates);
  return nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest);
}

Result<Tokens> ParseTokens(std::string_view text) {
  Tokens tokens;
  const size_t mark = text.find_first_of("+x");
  const auto first = ParseCount(text.substr(0, mark));
  const bool two = mark != std::string_view::npos;
  const int64_t second = two ? ParseCount(text.substr(mark + 1)).value_or(0) : 0;
  if (!first || *first < 1 || (two && second < 1)) {
    return Error{
        fmt::format("tokens={}: unknown value; allowed: 5 (a prefill), 33+1 (a prefill, then "
                    "decodes), 4x1 (a batch of decodes)",
                    text)};
  }
  const bool batch = two && text[mark] == 'x';
  tokens.sequences = batch ? *first : 1;
  tokens.prefill = batch ? 0 : *first;
  tokens.decodes = second;
  if (tokens.total() > kMostTokens) {
    return Error{fmt::format("tokens={}: {} tokens; allowed: at most {}", text, tokens.total(),
                             kMostTokens)};
  }
  return tokens;
}

Result<std::string> CheckValue(const KeyRule& rule, const std::string& value, bool native_engine) {
  if (value.empty()) return Error{fmt::format("{}=: a value is missing", rule.info.name)};
  switch (rule.values) {
    case Values::kText:
      return value;
    case Values::kChoice:
      if (Contains(rule.allowed, value)) return value;
      return BadValue(rule, value, fmt::format("{}", fmt::join(rule.allowed, ", ")),
                      Strings(rule.allowed));
    case Values::kCount:
    case Values::kSize:
    case Values::kIndex:
    case Values::kGroup:
      return CheckCounted(rule, value);
    case Values::kNumber:
      return CheckNumber(rule, value);
    case Values::kMethod:
      return CheckMethod(rule, value);
    case Values::kSplit:
      return CheckSplit(rule, value);
    case Values::kPlacement:
      return CheckPlacement(rule, value);
    case Values::kExperts:
      return CheckExperts(rule, value);
    case Values::kReduce:
      return CheckReduce(rule, value);
    case Values::kTier:
      return CheckTier(rule, value, native_engine);
    case Values::kTokens: {
      const auto tokens = ParseTokens(value);
      if (!tokens) return tokens.error();
      return value;
    }
    case Values::kFault:
      if (value == "none" || IsFault(value)) return value;
      return BadValue(rule, value,
                      "none, or a kind and a point as K03/rank0 (assay mutate --list)");
  }
  return value;
}

}  // namespace assay::run
