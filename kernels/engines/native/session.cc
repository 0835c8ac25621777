#include "kernels/engines/native/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>

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

Reduction ReadReduction(const std::string& wish) {
  if (wish.empty()) return {};
  if (const auto reduction = ReductionFromName(wish)) return *reduction;
  std::string known;
  for (const Reduction& reduction : Reductions()) known += " " + NameOf(reduction);
  Unsupported(fmt::format("reduce '{}'; known are{}", wish, known));
}

float ReadLimit(std::string_view text) {
  if (text == "inf") return std::numeric_limits<float>::infinity();
  double limit = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), limit);
  // Of a float's normal range: beyond it the conversion is undefined, below it the clamp is lost.
  constexpr double kLeast = std::numeric_limits<float>::min();
  constexpr double kMost = std::numeric_limits<float>::max();
  if (error != std::errc() || end != text.data() + text.size() || !(limit >= kLeast) ||
      limit > kMost) {
    Refuse(fmt::format("limit is '{}'; allowed is a number from {} to {}, or inf", text, kLeast,
                       kMost));
  }
  return static_cast<float>(limit);
}

// assay_open's "key=value key=value".
void ReadOptions(std::string_view options, Settings* s) {
  while (!options.empty()) {
    const std::string_view option = options.substr(0, options.find(' '));
    options.remove_prefix(std::min(options.size(), option.size() + 1));
    if (option.empty()) continue;
    const size_t equals = std::min(option.find('='), option.size());
    const std::string_view key = option.substr(0, equals);
    const std::string_view value = option.substr(std::min(equals + 1, option.size()));
    if (key == "limit") {
      s->act_limit = ReadLimit(value);
    } else if (key == "emulate") {
      s->wishes.emulate = std::string(value);
    } else {
      Unsupported(fmt::format("option '{}'; known are limit and emulate", option));
    }
  }
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
  s.reduction = ReadReduction(Text(request.reduce));
  const std::string routing = Text(request.routing);
  if (!routing.empty() && routing != "model" && routing != "forced") {
    Unsupported(fmt::format("routing '{}'; known are model and forced", routing));
  }
  s.routing_forced = routing == "forced";
  s.config = ValueOrThrow(ParseModelConfig(Text(request.config_json), "config.json"));
  CheckModel(s.config);
  s.wishes.tier = Text(request.tier);
  s.wishes.kernel = Text(request.kernel);
  s.wishes.method = Text(request.method);
  s.wishes.layout = Text(request.layout);
  s.wishes.act = Text(request.act);
  s.wishes.threads = request.threads;
  s.act_limit = static_cast<float>(s.config.act_limit);
  ReadOptions(Text(request.options), &s);
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
