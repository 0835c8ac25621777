#include "kernels/engines/native/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/collectives/sequential.h"
#include "kernels/engines/native/blocks.h"
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

// The graph that the blocks compute, and nothing that only looks like it.
void CheckModel(const ModelConfig& c) {
  if (c.family == Family::kUnknown) {
    Unsupported(fmt::format("architecture '{}' is unknown to this engine", c.architecture));
  }
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

void CheckReduce(const std::string& wish) {
  if (wish.empty()) return;
  for (const CollectiveRow& row : Collectives()) {
    if (wish == row.order || wish == fmt::format("{}:{}", row.order, row.wire)) return;
  }
  Unsupported(fmt::format("reduce '{}'; known is sequential:fp32", wish));
}

}  // namespace

Settings ReadSettings(const assay_open& request) {
  Settings s;
  if (request.tp < 1 || request.tp > kMostRanks) {
    Refuse(fmt::format("tp is {}; allowed is 1 to {}", request.tp, kMostRanks));
  }
  const int attn_tp = request.attn_tp == 0 ? request.tp : request.attn_tp;
  if (attn_tp < 1 || request.tp % attn_tp != 0) {
    Refuse(fmt::format("attn_tp is {}, which does not divide tp {}", request.attn_tp, request.tp));
  }
  s.degrees = {request.tp, attn_tp == request.tp ? 0 : attn_tp};
  if (request.pools > 1 || request.pools < 0) {
    Unsupported(fmt::format("{} pools inside a rank; known is 1", request.pools));
  }
  CheckReduce(Text(request.reduce));
  const std::string routing = Text(request.routing);
  if (!routing.empty() && routing != "model" && routing != "forced") {
    Unsupported(fmt::format("routing '{}'; known are model and forced", routing));
  }
  s.routing_forced = routing == "forced";
  s.config = ValueOrThrow(ParseModelConfig(Text(request.config_json), "config.json"));
  CheckModel(s.config);
  s.wishes = {Text(request.tier),   Text(request.kernel), Text(request.method),
              Text(request.layout), Text(request.act),    request.threads};
  return s;
}

Session::Session(const assay_open& request, const assay_host* host, const Interceptor* hooks)
    : settings_(ReadSettings(request)),
      memory_(host),
      hooks_(hooks),
      dispatcher_(settings_.wishes, &memory_, hooks),
      loader_(
          settings_.config, settings_.degrees, &memory_,
          [this](std::string_view method) { return dispatcher_.Choose(method); }, hooks),
      rope_(settings_.config,
            settings_.config.is_mla() ? settings_.config.qk_rope : settings_.config.head_dim),
      ranks_(static_cast<size_t>(tp())) {
  for (Rank& rank : ranks_) rank.cache.resize(static_cast<size_t>(config().layers));
}

int Session::CheckedRank(int rank) const {
  if (rank >= 0 && rank < tp()) return rank;
  throw EngineError(ASSAY_FAILED,
                    fmt::format("rank {} of a session with ranks 0 to {}", rank, tp() - 1));
}

void Session::Load(const assay_load& request) {
  CheckedRank(request.rank);
  const std::vector<assay_tensor> tensors = CopyTensors(request.tensors, request.tensor_count);
  assay_load copy = request;
  copy.tensors = tensors.data();
  loader_.Load(copy, &rank(request.rank).parameters);
}

void Session::Reset() {
  for (Rank& rank : ranks_) {
    for (KvCache& cache : rank.cache) cache.Truncate(0);
  }
}

void Session::Reduce(const assay_reduce& request) {
  if (request.output == nullptr) throw EngineError(ASSAY_FAILED, "output is NULL");
  Matrices parts;
  for (const assay_tensor& input : CopyTensors(request.inputs, request.rank_count)) {
    parts.push_back(ReadMatrix(memory_, input));
  }
  if (parts.empty()) throw EngineError(ASSAY_FAILED, "nothing to reduce: rank_count is 0");
  WriteMatrix(ReduceParts(*this, Text(request.tap), parts), request.output);
  dispatcher_.RecordUntiered(Text(request.tap), -1, kSequentialName);
}

void Session::Emit(const std::string& tap, int rank, const Matrix& value,
                   std::vector<int64_t> shape) const {
  const assay_host& host = memory_.host();
  if (!emits_ || host.tap == nullptr) return;
  if (shape.empty()) shape = {value.rows, value.columns};
  std::vector<std::byte> bytes = BytesOf(value);
  assay_tensor tensor{};
  tensor.size = sizeof tensor;
  tensor.name = tap.c_str();
  tensor.rank = rank;
  tensor.dtype = static_cast<uint32_t>(value.type);
  tensor.ndim = static_cast<uint32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), tensor.shape);
  tensor.data = bytes.data();
  tensor.bytes = bytes.size();
  host.tap(host.context, &tensor);
}

void Session::EmitIds(const std::string& tap, int rank, const std::vector<int32_t>& ids,
                      int64_t rows) const {
  const assay_host& host = memory_.host();
  if (!emits_ || host.tap == nullptr) return;
  std::vector<int32_t> copy = ids;
  assay_tensor tensor{};
  tensor.size = sizeof tensor;
  tensor.name = tap.c_str();
  tensor.rank = rank;
  tensor.dtype = ASSAY_I32;
  tensor.ndim = 2;
  tensor.shape[0] = rows;
  tensor.shape[1] = rows == 0 ? 0 : static_cast<int64_t>(ids.size()) / rows;
  tensor.data = copy.data();
  tensor.bytes = copy.size() * sizeof(int32_t);
  host.tap(host.context, &tensor);
}

Matrix Session::Finish(const std::string& tap, int rank, Matrix value) const {
  value.Round();
  Emit(tap, rank, value);
  return value;
}

std::vector<assay_tensor> CopyTensors(const assay_tensor* first, uint32_t count) {
  if (count > 0 && first == nullptr) {
    throw EngineError(ASSAY_FAILED, fmt::format("{} tensors are said to be there, at NULL", count));
  }
  std::vector<assay_tensor> tensors(count);
  const auto* at = reinterpret_cast<const std::byte*>(first);
  for (assay_tensor& tensor : tensors) {
    size_t size = 0;
    std::memcpy(&size, at, sizeof size);
    if (size == 0) size = sizeof tensor;
    std::memcpy(&tensor, at, std::min(size, sizeof tensor));
    at += size;
  }
  return tensors;
}

}  // namespace assay::kernels::native
