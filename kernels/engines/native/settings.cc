#include "kernels/engines/native/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>

#include "kernels/loaders/engine_error.h"

namespace assay::kernels::native {
namespace {

constexpr int kMostRanks = 1024;

std::string Text(const char* text) { return text == nullptr ? "" : text; }

[[noreturn]] void Unsupported(std::string message) {
  throw EngineError(ASSAY_UNSUPPORTED, std::move(message));
}
[[noreturn]] void Refuse(std::string message) {
  throw EngineError(ASSAY_REFUSED, std::move(message));
}

// Families that the blocks compute.
bool Runs(Family family) {
  return family == Family::kLlama || family == Family::kQwen2 || family == Family::kQwen3 ||
         family == Family::kDeepseekV3;
}

// The graph that the blocks compute, and nothing that only looks like it.
void CheckModel(const ModelConfig& c) {
  if (c.hidden_act != "silu" && !c.hidden_act.empty()) {
    Unsupported(fmt::format("hidden_act '{}'; known is silu", c.hidden_act));
  }
  if (c.experts > 0) {
    if (c.scoring != "sigmoid") {
      Unsupported(fmt::format("scoring_func '{}'; known is sigmoid", c.scoring));
    }
    if (c.top_k < 1 || c.top_k > c.experts || c.groups < 1 || c.experts % c.groups != 0 ||
        c.topk_group < 1 || c.topk_group > c.groups ||
        c.top_k > c.topk_group * (c.experts / c.groups)) {
      Refuse(fmt::format("{} of {} experts cannot be chosen from {} of {} groups", c.top_k,
                         c.experts, c.topk_group, c.groups));
    }
  }
  const int64_t rotated = c.is_mla() ? c.qk_rope : c.head_dim;
  if (rotated % 2 != 0) Refuse(fmt::format("RoPE rotates pairs; {} elements are odd", rotated));
}

Reduction ReadReduction(const std::string& wish) {
  if (wish.empty()) return {};
  if (const auto reduction = ReductionFromName(wish)) return *reduction;
  std::string known;
  for (const Reduction& reduction : Reductions()) known += " " + NameOf(reduction);
  Unsupported(fmt::format("reduce '{}'; known are{}", wish, known));
}

// A limit or a beta.
float ReadSize(std::string_view key, std::string_view text, bool or_inf) {
  if (or_inf && text == "inf") return std::numeric_limits<float>::infinity();
  double limit = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), limit);
  // Of a float's normal range: beyond it the conversion is undefined, below it the clamp is lost.
  constexpr double kLeast = std::numeric_limits<float>::min();
  constexpr double kMost = std::numeric_limits<float>::max();
  if (error != std::errc() || end != text.data() + text.size() || !(limit >= kLeast) ||
      limit > kMost) {
    Refuse(fmt::format("{} is '{}'; allowed is a number from {} to {}{}", key, text, kLeast, kMost,
                       or_inf ? ", or inf" : ""));
  }
  return static_cast<float>(limit);
}

// The config's where its activation is SiTU, and has checked them; a linear_beta without one is a
// SiTU whose beta was forgotten.
void SettleSitu(std::optional<float> beta, std::optional<float> linear_beta, Settings* s) {
  const ModelConfig& c = s->config;
  if (c.hidden_act.starts_with("situ")) {
    if (!beta && c.situ_beta) beta = static_cast<float>(*c.situ_beta);
    if (!linear_beta && c.situ_linear_beta) linear_beta = static_cast<float>(*c.situ_linear_beta);
  }
  if (linear_beta && !beta) Refuse("linear_beta without beta, which has no default");
  if (beta) {
    s->situ = {*beta, linear_beta.value_or(std::numeric_limits<float>::infinity())};
  }
}

int64_t ReadCount(std::string_view key, std::string_view text, int64_t least) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least ||
      value > shard::kMaxTp) {
    Refuse(fmt::format("{} is '{}'; allowed is {} to {}", key, text, least, shard::kMaxTp));
  }
  return value;
}

std::vector<int64_t> ReadCounts(std::string_view key, std::string_view text, int64_t least) {
  std::vector<int64_t> counts;
  while (true) {
    const size_t comma = std::min(text.find(','), text.size());
    int64_t value = 0;
    const std::string_view word = text.substr(0, comma);
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size() || value < least) {
      Refuse(fmt::format("{}: '{}' is no number from {}", key, word, least));
    }
    counts.push_back(value);
    if (comma == text.size()) return counts;
    text.remove_prefix(comma + 1);
  }
}

// "ceil", "list:5,3,2".
void ReadSplit(std::string_view value, shard::Degrees* degrees) {
  constexpr std::string_view kList = "list:";
  if (value == "even") return;
  if (value == "ceil") {
    degrees->split = shard::Split::kCeil;
  } else if (value.starts_with(kList)) {
    degrees->split = shard::Split::kList;
    degrees->list = ReadCounts("split", value.substr(kList.size()), 0);
  } else {
    Unsupported(fmt::format("split={}; known are even, ceil and list:N,N", value));
  }
}

// "cpu", "hybrid:2".
void ReadPlacement(std::string_view value, shard::Degrees* degrees) {
  constexpr std::string_view kHybrid = "hybrid:";
  if (value == "cpu") return;
  if (!value.starts_with(kHybrid)) {
    Unsupported(fmt::format("placement={}; known are cpu and hybrid:N", value));
  }
  degrees->hybrid = ReadCount("placement", value.substr(kHybrid.size()), 0);
}

// assay_open's "key=value key=value".
void ReadOptions(std::string_view options, Settings* s) {
  std::optional<float> beta, linear_beta;
  shard::Degrees& degrees = s->degrees;
  while (!options.empty()) {
    const std::string_view option = options.substr(0, options.find(' '));
    options.remove_prefix(std::min(options.size(), option.size() + 1));
    if (option.empty()) continue;
    const size_t equals = std::min(option.find('='), option.size());
    const std::string_view key = option.substr(0, equals);
    const std::string_view value = option.substr(std::min(equals + 1, option.size()));
    if (key == "limit") {
      s->act_limit = ReadSize(key, value, true);
    } else if (key == "beta") {
      beta = ReadSize(key, value, false);
    } else if (key == "linear_beta") {
      linear_beta = ReadSize(key, value, true);
    } else if (key == "emulate") {
      s->wishes.emulate = std::string(value);
    } else if (key == "split") {
      ReadSplit(value, &degrees);
    } else if (key == "dp") {
      degrees.dp = static_cast<int>(ReadCount(key, value, 1));
    } else if (key == "ep") {
      degrees.ep = static_cast<int>(ReadCount(key, value, 1));
    } else if (key == "experts") {
      degrees.experts.physical_to_logical = ReadCounts(key, value, -1);
    } else if (key == "lm_head" && (value == "tp" || value == "dp")) {
      degrees.lm_head_dp = value == "dp";
    } else if (key == "placement") {
      ReadPlacement(value, &degrees);
    } else {
      Unsupported(fmt::format(
          "option '{}'; known are limit, beta, linear_beta, emulate, split, dp, ep, experts, "
          "lm_head and placement",
          option));
    }
  }
  SettleSitu(beta, linear_beta, s);
}

// The ranks that share one attention are said twice where attention is data parallel.
void SettleAttention(const assay_open& request, shard::Degrees* degrees) {
  const int tp = degrees->tp;
  if (tp % degrees->dp != 0) {
    Refuse(fmt::format("dp is {}, which does not divide tp {}", degrees->dp, tp));
  }
  const int attn_tp = request.attn_tp == 0 ? tp / degrees->dp : request.attn_tp;
  if (attn_tp < 1 || tp % attn_tp != 0) {
    Refuse(fmt::format("attn_tp is {}, which does not divide tp {}", request.attn_tp, tp));
  }
  if (degrees->dp > 1 && attn_tp != tp / degrees->dp) {
    Refuse(fmt::format("attn_tp is {} with tp {} and dp {}; it must be {}", attn_tp, tp,
                       degrees->dp, tp / degrees->dp));
  }
  degrees->attn_tp = degrees->dp > 1 || attn_tp == tp ? 0 : attn_tp;
}

std::string WhyOnlyLoads(const Settings& s) {
  const ModelConfig& c = s.config;
  if (!Runs(c.family)) {
    return fmt::format("{} ({}) is loaded here, and not run", c.architecture, c.model_type);
  }
  if (s.degrees.dp > 1) return "attention that is data parallel is loaded here, and not run";
  if (s.degrees.lm_head_dp) return "an output matrix over dp is loaded here, and not run";
  return "";
}

}  // namespace

Settings ReadSettings(const assay_open& request, const Interceptor* hooks) {
  Settings s;
  if (request.tp < 1 || request.tp > kMostRanks) {
    Refuse(fmt::format("tp is {}; allowed is 1 to {}", request.tp, kMostRanks));
  }
  s.degrees.tp = request.tp;
  if (request.pools > 1 || request.pools < 0) {
    Unsupported(fmt::format("{} pools inside a rank; known is 1", request.pools));
  }
  s.reduction = ReadReduction(Text(request.reduce));
  const std::string routing = Text(request.routing);
  if (!routing.empty() && routing != "model" && routing != "forced") {
    Unsupported(fmt::format("routing '{}'; known are model and forced", routing));
  }
  s.routing_forced = routing == "forced";
  s.config = ValueOrThrow(ParseModelConfig(Text(request.config_json), "config.json"));
  if (s.config.family == Family::kUnknown) {
    Unsupported(fmt::format("architecture '{}' is unknown to this engine", s.config.architecture));
  }
  if (Runs(s.config.family)) CheckModel(s.config);
  if (hooks != nullptr) hooks->OnConfig(s.config);
  s.wishes.tier = Text(request.tier);
  s.wishes.kernel = Text(request.kernel);
  s.wishes.method = Text(request.method);
  s.wishes.layout = Text(request.layout);
  s.wishes.act = Text(request.act);
  s.wishes.threads = request.threads;
  s.act_limit = static_cast<float>(s.config.act_limit);
  ReadOptions(Text(request.options), &s);
  SettleAttention(request, &s.degrees);
  s.only_loads = WhyOnlyLoads(s);
  return s;
}

}  // namespace assay::kernels::native
