#include "kernels/engines/native/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/engines/native/blocks.h"
#include "kernels/loaders/engine_error.h"

namespace assay::kernels::native {
Session::Session(const assay_open& request, const assay_host* host, const Interceptor* hooks)
    : settings_(ReadSettings(request, hooks)),
      memory_(host),
      hooks_(hooks),
      dispatcher_(settings_.wishes, &memory_, hooks),
      loader_(settings_.config, settings_.degrees, dispatcher_.mode(), LinearKernels(), &memory_,
              hooks),
      ranks_(static_cast<size_t>(tp())) {
  const ModelConfig& c = settings_.config;
  if (settings_.only_loads.empty()) rope_.emplace(c, c.is_mla() ? c.qk_rope : c.head_dim);
  for (Rank& rank : ranks_) rank.cache.resize(static_cast<size_t>(c.layers));
}

void Session::NeedRuns() const {
  if (!settings_.only_loads.empty()) throw EngineError(ASSAY_UNSUPPORTED, settings_.only_loads);
}

bool Session::Contributes(int64_t expert, int rank) const {
  const shard::Degrees& d = settings_.degrees;
  if (d.hybrid >= 0) return expert < d.hybrid || rank == 0;
  if (d.ep == 1) return true;
  // Slots are dealt out in equal runs; without a map slot i is expert i.
  const auto& map = d.experts.physical_to_logical;
  const int64_t slots = (map.empty() ? config().experts : static_cast<int64_t>(map.size())) / d.ep;
  const int ranks = d.tp / d.ep;
  if (slots == 0 || ranks == 0) {
    throw EngineError(ASSAY_REFUSED, fmt::format("ep is {} with tp {} and {} experts", d.ep, d.tp,
                                                 config().experts));
  }
  const int64_t first =
      map.empty() ? expert : std::find(map.begin(), map.end(), expert) - map.begin();
  return first / slots == rank / ranks;
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
  // Once every rank was loaded, loading again replaces; keys and values of the old weights go. The
  // ABI does not say when a rank's loads are over: with one rank each load after the first replaces
  // what it names, so that a tensor in two loads of a first round is no error there.
  const bool replaces = std::all_of(ranks_.begin(), ranks_.end(),
                                    [](const Rank& r) { return !r.parameters.empty(); });
  loader_.Load(copy, replaces, &rank(request.rank).parameters);
  if (replaces) Reset();
}

void Session::Reset() {
  for (Rank& rank : ranks_) {
    for (KvCache& cache : rank.cache) cache.Truncate(0);
  }
}

void Session::EmitBytes(const std::string& tap, int rank, uint32_t dtype,
                        std::vector<int64_t> shape, void* data) const {
  const assay_host& host = memory_.host();
  if (host.tap == nullptr) return;
  assay_tensor tensor{};
  tensor.size = sizeof tensor;
  tensor.name = tap.c_str();
  tensor.rank = rank;
  tensor.dtype = dtype;
  tensor.ndim = static_cast<uint32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), tensor.shape);
  tensor.data = data;
  tensor.bytes = static_cast<uint64_t>(SizeOf(static_cast<DType>(dtype)).count());
  for (int64_t extent : shape) tensor.bytes *= static_cast<uint64_t>(extent);
  host.tap(host.context, &tensor);
}

void Session::Emit(const std::string& tap, int rank, const Matrix& value,
                   std::vector<int64_t> shape) const {
  if (!emits_ || memory_.host().tap == nullptr) return;
  if (shape.empty()) shape = {value.rows, value.columns};
  std::vector<std::byte> bytes = BytesOf(value);
  EmitBytes(tap, rank, static_cast<uint32_t>(value.type), std::move(shape), bytes.data());
}

void Session::EmitIds(const std::string& tap, int rank, const std::vector<int32_t>& ids,
                      int64_t rows) const {
  if (!emits_ || memory_.host().tap == nullptr) return;
  std::vector<int32_t> copy = ids;
  const int64_t columns = rows == 0 ? 0 : static_cast<int64_t>(ids.size()) / rows;
  EmitBytes(tap, rank, ASSAY_I32, {rows, columns}, copy.data());
}

void Session::EmitCodes(const std::string& tap, int rank, const QuantisedRows& x) const {
  if (memory_.host().tap == nullptr) return;
  std::vector<int8_t> codes(x.codes.data(), x.codes.data() + x.codes.count());
  EmitBytes(tap + ".x_q", rank, ASSAY_I8, {x.rows, x.columns}, codes.data());
  // A row's one scale stands in each of its 32s.
  const int64_t held = x.columns / 32, step = x.group / 32, given = held / step;
  std::vector<float> scales;
  for (int64_t i = 0; i < x.rows * given; ++i) {
    scales.push_back(x.scales[i / given * held + i % given * step]);
  }
  EmitBytes(tap + ".x_scale", rank, ASSAY_F32, {x.rows, given}, scales.data());
}

void Session::Round(const std::string& tap, int rank, Matrix* value) const {
  if (hooks_ != nullptr) {
    RoundCall call{tap, rank, value->type, {value->data(), static_cast<size_t>(value->count())}};
    hooks_->BeforeRound(call);
    if (call.done) return;
  }
  value->Round();
}

Matrix Session::Finish(const std::string& tap, int rank, Matrix value) const {
  Round(tap, rank, &value);
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
