// One op on one rank (assay_op): the tap names the op, its inputs are the taps that it takes.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "kernels/engines/native/blocks.h"
#include "kernels/engines/native/contract_types.h"
#include "kernels/engines/native/ops.h"
#include "kernels/loaders/engine_error.h"

namespace assay::kernels::native {
namespace {

struct OpCall {
  Session& s;
  int rank;
  std::string tap;
  TapName name;
  std::vector<assay_tensor> inputs;
  assay_tensor* output;

  // The input of that path ("router.ids"), else the one at `index`; nullptr if there is neither.
  const assay_tensor* Find(std::string_view path, size_t index) const {
    for (const assay_tensor& input : inputs) {
      if (input.name != nullptr && ParseTap(input.name).path == path) return &input;
    }
    return index < inputs.size() ? &inputs[index] : nullptr;
  }
  const assay_tensor& Need(std::string_view path, size_t index) const {
    if (const assay_tensor* input = Find(path, index)) return *input;
    throw EngineError(ASSAY_FAILED, fmt::format("{}: input {} is missing", tap, path));
  }
  Matrix Read(std::string_view path, size_t index, bool last_axis = false) const {
    return ReadMatrix(s.memory(), Need(path, index), last_axis);
  }
  void Give(const Matrix& value) const { WriteMatrix(value, output); }
};

using Handler = void (*)(const OpCall&);

void Embed(const OpCall& op) {
  const std::vector<int32_t> tokens = ReadIds(op.Need("tokens", 0));
  op.Give(EmbedBlock(op.s, tokens)[static_cast<size_t>(op.rank)]);
}

void Norm(const OpCall& op) { op.Give(NormOp(op.s, op.rank, op.tap, op.Read("", 0))); }

// kv_a is the latent and behind it the part that is rotated.
void LatentNorm(const OpCall& op) {
  const Matrix kv_a = op.Read("attn.kv_a", 0);
  op.Give(NormOp(op.s, op.rank, op.tap, ColumnsOf(op.s.memory(), kv_a, 0, op.s.config().kv_lora)));
}

void Linear(const OpCall& op) { op.Give(LinearOp(op.s, op.rank, op.tap, op.Read("", 0))); }

// gate and up of an expert take the rows that are routed to it.
void ExpertLinear(const OpCall& op) {
  Matrix x = op.Read("post_norm", 0);
  const assay_tensor* ids = op.Find("router.ids", op.inputs.size());
  if (ids != nullptr) {
    const std::vector<int32_t> chosen = ReadIds(*ids);
    CheckIds(op.s.config(), chosen, x.rows);
    x = RowsOf(op.s.memory(), x, RowsOfExpert(chosen, op.s.config().top_k, op.name.expert).rows);
  }
  op.Give(LinearOp(op.s, op.rank, op.tap, x));
}

void QueryRope(const OpCall& op) {
  const ModelConfig& c = op.s.config();
  const HeadShape shape = HeadShapeOf(op.s);
  op.Give(RopeOp(op.s, op.rank, op.tap, op.Read("", 0),
                 {shape.heads, shape.key_dim, c.is_mla() ? c.qk_nope : 0}, 0));
}

void KeyRope(const OpCall& op) {
  const ModelConfig& c = op.s.config();
  Matrix x = op.Read("", 0);
  if (c.is_mla()) {
    x = ColumnsOf(op.s.memory(), x, c.kv_lora, c.qk_rope);
    op.Give(RopeOp(op.s, op.rank, op.tap, x, {1, c.qk_rope, 0}, 0));
  } else {
    const HeadShape shape = HeadShapeOf(op.s);
    op.Give(RopeOp(op.s, op.rank, op.tap, x, {shape.kv_heads, shape.key_dim, 0}, 0));
  }
}

void Scores(const OpCall& op) {
  const HeadShape shape = HeadShapeOf(op.s);
  const Matrix q = op.Read("attn.q_rot", 0);
  Matrix keys = op.Read("attn.k_rot", 1);
  if (op.s.config().is_mla()) keys = MlaKeys(op.s, op.Read("attn.kv_b", 2), keys, shape);
  op.Give(ScoresOp(op.s, op.rank, op.tap, q, keys, shape));
}

void Context(const OpCall& op) {
  const HeadShape shape = HeadShapeOf(op.s);
  const Matrix scores = op.Read("attn.scores", 0);
  const bool mla = op.s.config().is_mla();
  Matrix values = op.Read(mla ? "attn.kv_b" : "attn.v", 1);
  if (mla) values = MlaValues(op.s, values, shape);
  op.Give(ContextOp(op.s, op.rank, op.tap, scores, values, shape));
}

void Act(const OpCall& op) {
  op.Give(ActOp(op.s, op.rank, op.tap, op.Read("", 0), op.Read("", 1)));
}

void RouterScores(const OpCall& op) {
  op.Give(RouterScoresOp(op.s, op.rank, op.tap, op.Read("router.logits", 0)));
}

void RouterIds(const OpCall& op) {
  WriteIds(RouterIdsOp(op.s, op.rank, op.tap, op.Read("router.scores", 0)), op.output);
}

void RouterWeights(const OpCall& op) {
  op.Give(RouterWeightsOp(op.s, op.rank, op.tap, op.Read("router.scores", 0),
                          ReadIds(op.Need("router.ids", 1))));
}

// {router.ids, router.weights, e0.down, e1.down, …}; an expert without rows is left out or empty.
void Combine(const OpCall& op) {
  const ModelConfig& c = op.s.config();
  const Matrix weights = op.Read("router.weights", 1);
  const std::vector<int32_t> ids = ReadIds(op.Need("router.ids", 0));
  CheckIds(c, ids, weights.rows);
  Matrices down(static_cast<size_t>(c.experts));
  for (const assay_tensor& input : op.inputs) {
    if (input.name == nullptr || input.data == nullptr) continue;
    const TapName name = ParseTap(input.name);
    if (name.path != "moe.down" || name.expert < 0 || name.expert >= c.experts) continue;
    down[static_cast<size_t>(name.expert)] = ReadMatrix(op.s.memory(), input);
  }
  op.Give(CombineOp(op.s, op.rank, op.tap, ids, weights, down, c.hidden));
}

void Reduce(const OpCall& op) {
  Matrices parts;
  for (const assay_tensor& input : op.inputs) parts.push_back(ReadMatrix(op.s.memory(), input));
  if (parts.empty()) throw EngineError(ASSAY_FAILED, op.tap + ": no inputs");
  op.Give(ReduceParts(op.s, op.tap, parts).front());
  op.s.dispatcher().RecordUntiered(op.tap, op.rank, ReductionName("all_reduce", op.s.reduction()));
}

void Add(const OpCall& op) {
  op.Give(AddOp(op.s, op.rank, op.tap, op.Read("", 0), op.Read("", 1)));
}

// Of an expert layer the sum of routed and shared experts, of a dense one the sum over ranks.
void MlpOut(const OpCall& op) {
  if (!op.s.config().is_moe(op.name.layer)) return Reduce(op);
  if (op.s.config().shared_experts > 0) return Add(op);
  op.Give(op.Read("moe.out", 0));
  op.s.dispatcher().RecordUntiered(op.tap, op.rank, "copy");
}

const std::map<std::string_view, Handler>& Handlers() {
  static const std::map<std::string_view, Handler> kHandlers = {
      {"embed", Embed},           {"input_norm", Norm},
      {"post_norm", Norm},        {"final_norm", Norm},
      {"attn.q_a_norm", Norm},    {"attn.q_norm", Norm},
      {"attn.k_norm", Norm},      {"attn.kv_a_norm", LatentNorm},
      {"attn.q_a", Linear},       {"attn.kv_a", Linear},
      {"attn.kv_b", Linear},      {"attn.q", Linear},
      {"attn.k", Linear},         {"attn.v", Linear},
      {"attn.partial", Linear},   {"attn.q_rot", QueryRope},
      {"attn.k_rot", KeyRope},    {"attn.scores", Scores},
      {"attn.ctx", Context},      {"attn.out", Reduce},
      {"router.logits", Linear},  {"router.scores", RouterScores},
      {"router.ids", RouterIds},  {"router.weights", RouterWeights},
      {"moe.gate", ExpertLinear}, {"moe.up", ExpertLinear},
      {"moe.act", Act},           {"moe.down", Linear},
      {"moe.partial", Combine},   {"moe.out", Reduce},
      {"shared.gate", Linear},    {"shared.up", Linear},
      {"shared.act", Act},        {"shared.down", Linear},
      {"shared.out", Reduce},     {"mlp.gate", Linear},
      {"mlp.up", Linear},         {"mlp.act", Act},
      {"mlp.down", Linear},       {"mlp.out", MlpOut},
      {"residual_attn", Add},     {"residual_mlp", Add},
      {"logits", Linear},
  };
  return kHandlers;
}

}  // namespace

void Session::RunOp(const assay_op& request) {
  NeedRuns();
  const std::string tap = request.tap == nullptr ? "" : request.tap;
  if (request.output_count != 1 || request.outputs == nullptr) {
    throw EngineError(ASSAY_UNSUPPORTED,
                      fmt::format("{}: {} outputs; an op here has 1", tap, request.output_count));
  }
  OpCall call{*this,
              CheckedRank(request.rank),
              tap,
              ParseTap(tap),
              CopyTensors(request.inputs, request.input_count),
              request.outputs};
  const auto handler = Handlers().find(call.name.path);
  if (handler == Handlers().end()) {
    throw EngineError(ASSAY_UNSUPPORTED, fmt::format("op '{}' is unknown", tap));
  }
  handler->second(call);
}

}  // namespace assay::kernels::native
