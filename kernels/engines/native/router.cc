// Grouped top-k routing of the DeepSeek-V3 class, in fp32 (models.md, common parts).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/engines/native/blocks.h"
#include "kernels/engines/native/contract_types.h"
#include "kernels/engines/native/ops.h"
#include "kernels/loaders/engine_error.h"

namespace assay::kernels::native {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();
// Keeps 0/0 out of the renormalisation; the model's own constant.
constexpr float kRenormaliseEpsilon = 1e-20f;

// The `count` largest of `values`, lowest index first on ties, in order of size. NaN counts as
// lowest, so that every input gives `count` different indices.
std::vector<int32_t> Largest(const std::vector<float>& values, int64_t count) {
  std::vector<bool> taken(values.size());
  std::vector<int32_t> chosen;
  while (static_cast<int64_t>(chosen.size()) < count) {
    int64_t best = -1;
    for (size_t i = 0; i < values.size(); ++i) {
      if (taken[i]) continue;
      const auto rank = [&](size_t j) { return std::isnan(values[j]) ? kLowest : values[j]; };
      if (best < 0 || rank(i) > rank(static_cast<size_t>(best))) best = static_cast<int64_t>(i);
    }
    taken[static_cast<size_t>(best)] = true;
    chosen.push_back(static_cast<int32_t>(best));
  }
  return chosen;
}

// Experts of one token by corrected score c: the best groups by the sum of their two largest c,
// then the best experts of those.
std::vector<int32_t> ChooseExperts(const ModelConfig& config, const std::vector<float>& corrected) {
  const int64_t size = config.experts / config.groups;
  std::vector<float> groups;
  for (int64_t g = 0; g < config.groups; ++g) {
    const std::vector<float> members(corrected.begin() + g * size,
                                     corrected.begin() + (g + 1) * size);
    float sum = 0;
    for (int32_t best : Largest(members, std::min<int64_t>(2, size))) {
      sum += members[static_cast<size_t>(best)];
    }
    groups.push_back(sum);
  }
  // Experts of the other groups cannot be chosen at all, not even where scores are −inf or NaN.
  std::vector<int32_t> kept = Largest(groups, config.topk_group);
  std::sort(kept.begin(), kept.end());
  std::vector<float> candidates;
  std::vector<int32_t> experts;
  for (int32_t g : kept) {
    for (int64_t e = g * size; e < (g + 1) * size; ++e) {
      candidates.push_back(corrected[static_cast<size_t>(e)]);
      experts.push_back(static_cast<int32_t>(e));
    }
  }
  std::vector<int32_t> ids;
  for (int32_t i : Largest(candidates, config.top_k))
    ids.push_back(experts[static_cast<size_t>(i)]);
  std::sort(ids.begin(), ids.end());
  return ids;
}

// The layer's correction bias as fp32; empty if the model has none.
std::vector<float> CorrectionBias(Session& s, int rank, const std::string& op) {
  const auto place = s.config().topk_method == "noaux_tc" ? s.rank(rank).parameters.Get(op)
                                                          : s.rank(rank).parameters.Find(op);
  if (place.parameter == nullptr) return {};
  const Array<float>& bias = place.parameter->floats;
  return {bias.data(), bias.data() + bias.count()};
}

void CheckExperts(const ModelConfig& config, const std::string& tap, const Matrix& x) {
  if (config.experts > 0 && x.columns == config.experts) return;
  throw EngineError(ASSAY_FAILED, fmt::format("{}: input has {} columns, the model {} experts", tap,
                                              x.columns, config.experts));
}

}  // namespace

Matrix RouterScoresOp(Session& s, int rank, const std::string& tap, const Matrix& logits) {
  CheckExperts(s.config(), tap, logits);
  Matrix scores(s.memory(), logits.rows, logits.columns, kRouterType);
  s.dispatcher().elementwise().sigmoid(logits.data(), logits.count(), scores.data());
  s.dispatcher().RecordElementwise(tap, rank, "sigmoid");
  return s.Finish(tap, rank, std::move(scores));
}

std::vector<int32_t> RouterIdsOp(Session& s, int rank, const std::string& tap,
                                 const Matrix& scores) {
  CheckExperts(s.config(), tap, scores);
  const std::vector<float> bias =
      CorrectionBias(s, rank, LayerTap(ParseTap(tap).layer, "router.scores"));
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < scores.rows; ++i) {
    std::vector<float> corrected(scores.row(i), scores.row(i) + scores.columns);
    for (size_t e = 0; e < bias.size(); ++e) corrected[e] += bias[e];
    const std::vector<int32_t> chosen = ChooseExperts(s.config(), corrected);
    ids.insert(ids.end(), chosen.begin(), chosen.end());
  }
  s.dispatcher().RecordUntiered(tap, rank, "grouped_top_k");
  s.EmitIds(tap, rank, ids, scores.rows);
  return ids;
}

Matrix RouterWeightsOp(Session& s, int rank, const std::string& tap, const Matrix& scores,
                       const std::vector<int32_t>& ids) {
  const ModelConfig& c = s.config();
  CheckExperts(c, tap, scores);
  CheckIds(c, ids, scores.rows);
  Matrix weights(s.memory(), scores.rows, c.top_k, kRouterType);
  const auto scaling = static_cast<float>(c.routed_scaling);
  for (int64_t i = 0; i < scores.rows; ++i) {
    float* w = weights.row(i);
    float sum = 0;
    for (int64_t j = 0; j < c.top_k; ++j) {
      w[j] = scores.row(i)[ids[static_cast<size_t>(i * c.top_k + j)]];
      sum += w[j];
    }
    for (int64_t j = 0; j < c.top_k; ++j) {
      if (c.norm_topk) w[j] /= sum + kRenormaliseEpsilon;
      w[j] *= scaling;
    }
  }
  s.dispatcher().RecordUntiered(tap, rank, "renormalise");
  return s.Finish(tap, rank, std::move(weights));
}

std::vector<Routing> RouteBlock(Session& s, int64_t layer, const Matrices& normed) {
  std::vector<Routing> routing;
  for (int rank = 0; rank < s.tp(); ++rank) {
    const auto tap = [&](std::string_view rest) { return LayerTap(layer, rest); };
    const Matrix logits =
        LinearOp(s, rank, tap("router.logits"), normed[static_cast<size_t>(rank)]);
    const Matrix scores = RouterScoresOp(s, rank, tap("router.scores"), logits);
    Routing chosen;
    if (!s.routing_forced()) {
      chosen.ids = RouterIdsOp(s, rank, tap("router.ids"), scores);
      chosen.weights = RouterWeightsOp(s, rank, tap("router.weights"), scores, chosen.ids);
    }
    routing.push_back(std::move(chosen));
  }
  return routing;
}

void CheckIds(const ModelConfig& config, const std::vector<int32_t>& ids, int64_t rows) {
  if (static_cast<int64_t>(ids.size()) != rows * config.top_k) {
    throw EngineError(ASSAY_FAILED, fmt::format("router.ids: {} ids, must be {} a row for {} rows",
                                                ids.size(), config.top_k, rows));
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool first = static_cast<int64_t>(i) % config.top_k == 0;
    if (ids[i] < 0 || ids[i] >= config.experts || (!first && ids[i] <= ids[i - 1])) {
      throw EngineError(
          ASSAY_FAILED,
          fmt::format("router.ids: {} in row {}; allowed are ascending ids below {}", ids[i],
                      static_cast<int64_t>(i) / config.top_k, config.experts));
    }
  }
}

}  // namespace assay::kernels::native
