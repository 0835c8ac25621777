// How a problem divides parameters over ranks: the shard planner's degrees, the oracle's, and what
// an engine is told.
#include <fmt/format.h>

#include <charconv>

#include "harness/run/problem_keys.h"
#include "harness/run/resolve_steps.h"

namespace assay::run {
namespace {

// "5,3,2"; every number was checked when the problem was read, but for its size.
Result<std::vector<int64_t>> Numbers(std::string_view key, std::string_view text) {
  std::vector<int64_t> numbers;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    int64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size()) {
      return Error{fmt::format("{}: {} is no number", key, word)};
    }
    numbers.push_back(value);
    if (comma == std::string_view::npos) return numbers;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

Status ResolveDegrees(CellSpec* spec) {
  const Problem& problem = spec->problem;
  shard::Degrees& degrees = spec->degrees;
  degrees.tp = problem.GetInt("tp");
  degrees.dp = problem.GetInt("dp");
  degrees.ep = problem.GetInt("ep");
  degrees.attn_tp = problem.Has("attn_tp") ? problem.GetInt("attn_tp") : 0;
  degrees.lm_head_dp = problem.Get("lm_head") == "dp";
  if (degrees.dp > 1 && degrees.attn_tp != 0) {
    return Error{fmt::format("attn_tp={}: with dp={} it is tp / dp", degrees.attn_tp, degrees.dp)};
  }
  if (degrees.lm_head_dp && degrees.dp == 1) return Error{"lm_head=dp: that needs dp= above 1"};
  const std::string split = problem.Get("split");
  if (split == "ceil") degrees.split = shard::Split::kCeil;
  if (split.starts_with("list:")) {
    degrees.split = shard::Split::kList;
    auto list = Numbers("split", std::string_view(split).substr(5));
    if (!list) return list.error();
    degrees.list = std::move(*list);
  }
  const std::string placement = problem.Get("placement");
  if (placement.starts_with("hybrid:")) {
    auto count = Numbers("placement", std::string_view(placement).substr(7));
    if (!count) return count.error();
    degrees.hybrid = count->front();
  } else if (placement != "cpu") {
    return Error{fmt::format("placement={}: built are cpu and hybrid:N", placement),
                 ErrorKind::kUnsupported};
  }
  if (const std::string experts = problem.Get("experts"); !experts.empty()) {
    auto map = Numbers("experts", experts);
    if (!map) return map.error();
    degrees.experts.physical_to_logical = std::move(*map);
  }
  return Ok();
}

reference::Parallel CellSpec::parallel() const {
  reference::Parallel parallel;
  parallel.tp = degrees.tp;
  parallel.attn_tp = degrees.attention();
  parallel.dp = degrees.dp;
  parallel.ep = degrees.ep;
  parallel.lm_head_dp = degrees.lm_head_dp;
  parallel.split = degrees.split == shard::Split::kCeil   ? reference::Split::kCeil
                   : degrees.split == shard::Split::kList ? reference::Split::kList
                                                          : reference::Split::kEven;
  parallel.list = degrees.list;
  parallel.hybrid = degrees.hybrid;
  parallel.physical_to_logical = degrees.experts.physical_to_logical;
  return parallel;
}

std::vector<std::string> DegreeOptions(const Problem& problem) {
  std::vector<std::string> options;
  for (const char* key : {"split", "dp", "ep", "experts", "lm_head", "placement"}) {
    if (problem.Has(key) && problem.Get(key) != FindRule(key)->info.fallback) {
      options.push_back(fmt::format("{}={}", key, problem.Get(key)));
    }
  }
  return options;
}

}  // namespace assay::run
