// Scopes: from a block to the model (assay_run).
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "kernels/engines/native/blocks.h"
#include "kernels/engines/native/ops.h"
#include "kernels/loaders/engine_error.h"

namespace assay::kernels::native {
namespace {

constexpr int64_t kMostPositions = int64_t{1} << 24;

// One assay_run, read and checked.
struct Call {
  std::string scope;
  int64_t layer = -1;
  std::vector<int32_t> tokens;
  int64_t first_position = 0;
  std::vector<assay_tensor> inputs;
};

Call ReadCall(const Session& s, const assay_run& request) {
  Call call;
  call.scope = request.scope == nullptr ? "" : request.scope;
  call.layer = request.layer;
  call.first_position = request.first_position;
  call.inputs = CopyTensors(request.inputs, request.input_count);
  if (request.token_count < 0 || (request.tokens == nullptr && call.scope == "model")) {
    throw EngineError(ASSAY_FAILED, "no tokens");
  }
  if (request.tokens != nullptr) {
    call.tokens.assign(request.tokens, request.tokens + request.token_count);
  }
  const bool model = call.scope == "model";
  if (!model && (call.layer < 0 || call.layer >= s.config().layers)) {
    throw EngineError(ASSAY_FAILED, fmt::format("layer {} of a model with layers 0 to {}",
                                                call.layer, s.config().layers - 1));
  }
  return call;
}

const assay_tensor* FindInput(const Call& call, const std::string& tap, int rank) {
  const assay_tensor* found = nullptr;
  for (const assay_tensor& input : call.inputs) {
    if (input.name == nullptr || tap != input.name) continue;
    if (input.rank == rank) return &input;
    if (input.rank == -1) found = &input;
  }
  return found;
}

// The tap as each rank has it; every rank's is [T, hidden].
Matrices ReadInput(Session& s, const Call& call, const std::string& tap) {
  Matrices values;
  for (int rank = 0; rank < s.tp(); ++rank) {
    const assay_tensor* input = FindInput(call, tap, rank);
    if (input == nullptr) {
      throw EngineError(ASSAY_FAILED,
                        fmt::format("scope {} needs input {} of rank {}", call.scope, tap, rank));
    }
    values.push_back(ReadMatrix(s.memory(), *input));
    const Matrix& value = values.back();
    if (value.columns != s.config().hidden || value.rows != values.front().rows) {
      throw EngineError(ASSAY_FAILED,
                        fmt::format("{}: [{}, {}], must be [{}, {}]", tap, value.rows,
                                    value.columns, values.front().rows, s.config().hidden));
    }
  }
  const auto tokens = static_cast<int64_t>(call.tokens.size());
  if (tokens > 0 && tokens != values.front().rows) {
    throw EngineError(ASSAY_FAILED,
                      fmt::format("{}: {} rows for {} tokens", tap, values.front().rows, tokens));
  }
  return values;
}

std::vector<Routing> ReadRouting(Session& s, const Call& call, int64_t layer, int64_t rows) {
  std::vector<Routing> routing;
  for (int rank = 0; rank < s.tp(); ++rank) {
    const assay_tensor* ids = FindInput(call, LayerTap(layer, "router.ids"), rank);
    const assay_tensor* weights = FindInput(call, LayerTap(layer, "router.weights"), rank);
    if (ids == nullptr || weights == nullptr) {
      throw EngineError(ASSAY_FAILED, fmt::format("forced routing needs inputs L{0}.router.ids and "
                                                  "L{0}.router.weights",
                                                  layer));
    }
    Routing chosen{ReadIds(*ids), ReadMatrix(s.memory(), *weights)};
    CheckIds(s.config(), chosen.ids, rows);
    if (chosen.weights.rows != rows || chosen.weights.columns != s.config().top_k) {
      throw EngineError(ASSAY_FAILED, fmt::format("router.weights: [{}, {}], must be [{}, {}]",
                                                  chosen.weights.rows, chosen.weights.columns, rows,
                                                  s.config().top_k));
    }
    routing.push_back(std::move(chosen));
  }
  return routing;
}

Matrices NormBlock(Session& s, const std::string& tap, const Matrices& x) {
  Matrices normed;
  for (int rank = 0; rank < s.tp(); ++rank) {
    normed.push_back(NormOp(s, rank, tap, x[static_cast<size_t>(rank)]));
  }
  return normed;
}

Matrices AddBlock(Session& s, const std::string& tap, const Matrices& a, const Matrices& b) {
  Matrices sum;
  for (int rank = 0; rank < s.tp(); ++rank) {
    const auto r = static_cast<size_t>(rank);
    sum.push_back(AddOp(s, rank, tap, a[r], b[r]));
  }
  return sum;
}

Matrices MlpBlock(Session& s, const Call& call, int64_t layer, const Matrices& normed) {
  if (!s.config().is_moe(layer)) return DenseBlock(s, layer, normed);
  if (!s.routing_forced()) return MoeBlock(s, layer, normed, nullptr);
  const std::vector<Routing> forced = ReadRouting(s, call, layer, normed.front().rows);
  return MoeBlock(s, layer, normed, &forced);
}

Matrices LayerBlock(Session& s, const Call& call, int64_t layer, const Matrices& residual) {
  const Matrices normed = NormBlock(s, LayerTap(layer, "input_norm"), residual);
  const Matrices attention = AttentionBlock(s, layer, normed, call.first_position);
  const Matrices middle = AddBlock(s, LayerTap(layer, "residual_attn"), residual, attention);
  const Matrices mlp = MlpBlock(s, call, layer, NormBlock(s, LayerTap(layer, "post_norm"), middle));
  return AddBlock(s, LayerTap(layer, "residual_mlp"), middle, mlp);
}

Matrix ModelBlock(Session& s, const Call& call) {
  Matrices residual = EmbedBlock(s, call.tokens);
  for (int64_t layer = 0; layer < s.config().layers; ++layer) {
    residual = LayerBlock(s, call, layer, residual);
  }
  return LogitsBlock(s, NormBlock(s, "final_norm", residual));
}

Matrices ScopeInput(Session& s, const Call& call) {
  if (call.scope == "layer") {
    const std::string before = call.layer == 0 ? "embed" : LayerTap(call.layer - 1, "residual_mlp");
    return ReadInput(s, call, before);
  }
  return ReadInput(s, call,
                   LayerTap(call.layer, call.scope == "attn" ? "input_norm" : "post_norm"));
}

void NeedMoe(const Session& s, const Call& call, bool moe) {
  if (s.config().is_moe(call.layer) == moe) return;
  throw EngineError(ASSAY_UNSUPPORTED, fmt::format("layer {} is {}, not for scope {}", call.layer,
                                                   moe ? "dense" : "of experts", call.scope));
}

Matrix RunScope(Session& s, const Call& call) {
  if (call.scope == "model") return ModelBlock(s, call);
  const Matrices in = ScopeInput(s, call);
  const int64_t rows = in.front().rows;
  const auto first = [](Matrices all) { return std::move(all.front()); };
  if (call.scope == "attn") return first(AttentionBlock(s, call.layer, in, call.first_position));
  if (call.scope == "layer") return first(LayerBlock(s, call, call.layer, in));
  NeedMoe(s, call, call.scope != "mlp");
  if (call.scope == "mlp") return first(DenseBlock(s, call.layer, in));
  if (call.scope == "moe") return first(MlpBlock(s, call, call.layer, in));
  if (call.scope == "experts") {
    return first(ExpertsBlock(s, call.layer, in, ReadRouting(s, call, call.layer, rows)));
  }
  std::vector<Routing> routing = RouteBlock(s, call.layer, in);
  if (s.routing_forced()) routing = ReadRouting(s, call, call.layer, rows);
  return std::move(routing.front().weights);
}

bool IsScope(const std::string& scope) {
  for (const char* known : {"attn", "route", "mlp", "moe", "experts", "layer", "model"}) {
    if (scope == known) return true;
  }
  return false;
}

}  // namespace

void Session::Run(const assay_run& request) {
  NeedRuns();
  const Call call = ReadCall(*this, request);
  if (!IsScope(call.scope)) {
    throw EngineError(ASSAY_UNSUPPORTED, fmt::format("scope '{}' is unknown", call.scope));
  }
  // Layers whose keys and values this call adds to.
  const bool model = call.scope == "model";
  const bool attends = model || call.scope == "attn" || call.scope == "layer";
  const int64_t begin = model ? 0 : call.layer;
  const int64_t end = !attends ? begin : model ? config().layers : call.layer + 1;
  const int64_t most = config().max_position > 0 ? config().max_position : kMostPositions;
  const int64_t rows = std::max<int64_t>(request.token_count, 0);
  if (attends && (call.first_position < 0 || call.first_position > most - rows)) {
    throw EngineError(ASSAY_REFUSED,
                      fmt::format("positions {} to {}; the model has {}", call.first_position,
                                  call.first_position + rows - 1, most));
  }
  const auto rewind = [&] {
    for (Rank& rank : ranks_) {
      for (int64_t l = begin; l < end; ++l) {
        rank.cache[static_cast<size_t>(l)].Truncate(call.first_position);
      }
    }
  };
  for (int64_t l = begin; l < end; ++l) {
    const int64_t held = ranks_.front().cache[static_cast<size_t>(l)].length();
    if (call.first_position > held) {
      throw EngineError(ASSAY_FAILED, fmt::format("first_position is {}, layer {} holds {}",
                                                  call.first_position, l, held));
    }
  }
  rewind();
  emits_ = true;
  try {
    const Matrix result = RunScope(*this, call);
    if (request.output != nullptr) WriteMatrix(result, request.output);
  } catch (...) {
    emits_ = false;
    rewind();  // a call that failed leaves no keys behind
    throw;
  }
  emits_ = false;
}

}  // namespace assay::kernels::native
