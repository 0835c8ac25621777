// The engine under test of these tests: fp32 sums in a seeded order, rounded as TestContract says.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/judge/testing/test_model.h"

namespace assay::testing {
namespace {

using reference::Node;
using reference::Op;
using reference::Step;
using reference::Tensor;

class Pass {
 public:
  Pass(const Engine& engine, const std::vector<Step>& steps)
      : engine_(engine), steps_(steps), random_(engine.order) {}

  EngineTrace Run() {
    const Contract contract = TestContract();
    for (int step = 0; step < static_cast<int>(steps_.size()); ++step) {
      for (const Node& node : engine_.model->graph()) {
        for (int rank = 0; rank < engine_.tp; ++rank) {
          Tensor value = Compute(node, rank, step);
          if (value.shape.empty()) continue;
          if (engine_.hook) engine_.hook(node, rank, &value);
          const DType type = node.op == Op::kRouterIds
                                 ? DType::kI32
                                 : contract.RoundingOf(node.path, node.op_class);
          TapValue tap{type, value.shape, Encode(value.data, type)};
          values_[{step, node.tap, rank}] = judge::ToTensor(tap);
          trace_.taps[{step, node.tap, rank}] = std::move(tap);
        }
      }
    }
    trace_.shards = engine_.shards;
    return std::move(trace_);
  }

 private:
  const Tensor* Value(const std::string& tap, int rank, int step) const {
    const auto found = values_.find({step, tap, rank});
    return found == values_.end() ? nullptr : &found->second;
  }

  // fp32, in an order of its own for each sum.
  float Dot(std::vector<std::pair<double, double>> terms) {
    if (engine_.order != 0) std::shuffle(terms.begin(), terms.end(), random_);
    float sum = 0;
    for (const auto& [x, w] : terms) sum += static_cast<float>(x) * static_cast<float>(w);
    return sum;
  }

  MemorySource Weights(const std::string& parameter, int rank) const {
    MemorySource source;
    for (const char* suffix : {".weight", ".scale"}) {
      const auto found = engine_.shards.find({parameter + suffix, rank});
      if (found == engine_.shards.end()) continue;
      source.Put(parameter + suffix, found->second.dtype,
                 {found->second.rows, found->second.columns}, found->second.bytes);
    }
    return source;
  }

  // The activations of a 4-bit weight in 8 bits, in float: codes and scales are shown, and the
  // product is of what they stand for.
  Tensor Quantised(const Node& node, const Tensor& x, int rank, int step) {
    const int64_t k = x.columns(), group = engine_.act == "a8row" ? k : 32, groups = k / group;
    Tensor codes = x, scales{{x.rows(), groups}, {}};
    for (int64_t g = 0; g < x.rows() * groups; ++g) {
      float amax = 0;
      for (int64_t i = 0; i < group; ++i) {
        amax = std::max(amax, std::abs(static_cast<float>(x.data[g * group + i])));
      }
      const float scale = amax / 127;
      scales.data.push_back(scale);
      for (int64_t i = g * group; i < (g + 1) * group; ++i) {
        codes.data[i] = scale == 0 ? 0 : std::nearbyint(static_cast<float>(x.data[i]) / scale);
      }
    }
    if (engine_.codes) engine_.codes(node, rank, &codes, &scales);
    trace_.taps[{step, node.tap + ".x_q", rank}] = {DType::kI8, codes.shape,
                                                    Encode(codes.data, DType::kI8)};
    trace_.taps[{step, node.tap + ".x_scale", rank}] = {DType::kF32, scales.shape,
                                                        Encode(scales.data, DType::kF32)};
    Tensor stands = codes;
    for (int64_t i = 0; i < static_cast<int64_t>(stands.data.size()); ++i) {
      stands.data[i] *= scales.data[i / group];
    }
    return stands;
  }

  Tensor Linear(const Node& node, int rank, int step) {
    const Tensor* x = Value(node.inputs[0], rank, step);
    if (x == nullptr) return {};
    Tensor stands;
    if (engine_.act != "a16" && node.path == "moe.down") {
      stands = Quantised(node, *x, rank, step);
      x = &stands;
      trace_.executed.push_back({node.tap, "test", "scalar", "row", engine_.act, "", rank, 1});
    }
    const Tensor* ids = node.inputs.size() > 1 ? Value(node.inputs[1], rank, step) : nullptr;
    int64_t n = 0, k = 0;
    const MemorySource source = Weights(node.weight, rank);
    const std::vector<double> w = DecodeWeight(source, node.weight, &n, &k);
    Tensor y;
    int64_t rows = 0;
    for (int64_t row = 0; row < x->rows(); ++row) {
      if (ids != nullptr) {
        const double* at = &ids->data[row * ids->columns()];
        if (std::count(at, at + ids->columns(), static_cast<double>(node.expert)) == 0) continue;
      }
      ++rows;
      for (int64_t c = 0; c < n; ++c) {
        std::vector<std::pair<double, double>> terms;
        if (stands.data.empty()) {
          for (int64_t i = 0; i < k; ++i) terms.emplace_back(x->data[row * k + i], w[c * k + i]);
          y.data.push_back(Dot(std::move(terms)));
        } else {  // code times scale is no float: one rounding a product, as with integer sums
          float sum = 0;
          for (int64_t i = 0; i < k; ++i) {
            sum += static_cast<float>(x->data[row * k + i] * w[c * k + i]);
          }
          y.data.push_back(sum);
        }
      }
    }
    if (rows > 0) y.shape = {rows, n};
    return y;
  }

  Tensor Combine(const Node& node, int rank, int step) {
    const Tensor &ids = *Value(node.inputs[0], rank, step),
                 &weights = *Value(node.inputs[1], rank, step);
    const int64_t h = engine_.model->sizes().hidden;
    Tensor y{{ids.rows(), h}, std::vector<double>(static_cast<size_t>(ids.rows() * h), 0)};
    for (size_t e = 0; e + 2 < node.inputs.size(); ++e) {
      const Tensor* down = Value(node.inputs[e + 2], rank, step);
      int64_t local = 0;
      for (int64_t i = 0; i < static_cast<int64_t>(ids.data.size()); ++i) {
        if (ids.data[i] != static_cast<double>(e)) continue;
        const int64_t row = i / ids.columns();
        for (int64_t c = 0; c < h; ++c) {
          const float product =
              static_cast<float>(weights.data[i]) * static_cast<float>(down->data[local * h + c]);
          y.data[row * h + c] = static_cast<float>(y.data[row * h + c]) + product;
        }
        ++local;
      }
    }
    return y;
  }

  // Keys or values of all steps so far.
  Tensor Rows(const std::string& tap, int rank, int step) const {
    Tensor all = *Value(tap, rank, 0);
    for (int s = 1; s <= step; ++s) {
      const Tensor& more = *Value(tap, rank, s);
      all.data.insert(all.data.end(), more.data.begin(), more.data.end());
      all.shape[0] += more.rows();
    }
    return all;
  }

  Tensor Attend(const Node& node, int rank, int step) {
    const Tensor first = *Value(node.inputs[0], rank, step);
    const Tensor rows = Rows(node.inputs[1], rank, step);
    const int64_t d = rows.columns(), keys = rows.rows();
    Tensor y;
    for (int64_t t = 0; t < first.rows(); ++t) {
      if (node.op == Op::kScores) {
        for (int64_t j = 0; j < keys; ++j) {
          std::vector<std::pair<double, double>> terms;
          for (int64_t i = 0; i < d; ++i) {
            terms.emplace_back(first.data[t * d + i], rows.data[j * d + i]);
          }
          const float scale = 1 / std::sqrt(static_cast<float>(d));
          const float sum = Dot(std::move(terms)) * scale;
          y.data.push_back(j > steps_[step].first_position + t ? -INFINITY : sum);
        }
      } else {
        const double* s = &first.data[t * keys];
        const float top = static_cast<float>(*std::max_element(s, s + keys));
        float total = 0;
        std::vector<float> p;
        for (int64_t j = 0; j < keys; ++j) {
          p.push_back(std::exp(static_cast<float>(s[j]) - top));
          total += p.back();
        }
        for (int64_t i = 0; i < d; ++i) {
          std::vector<std::pair<double, double>> terms;
          for (int64_t j = 0; j < keys; ++j) {
            terms.emplace_back(p[j] / total, rows.data[j * d + i]);
          }
          y.data.push_back(Dot(std::move(terms)));
        }
      }
    }
    y.shape = node.op == Op::kScores ? std::vector<int64_t>{first.rows(), 1, keys}
                                     : std::vector<int64_t>{first.rows(), d};
    return y;
  }

  Tensor Norm(const Node& node, int rank, int step) {
    Tensor x = *Value(node.inputs[0], rank, step);
    int64_t n = 0, one = 0;
    const MemorySource source = Weights(node.weight, rank);
    const std::vector<double> w = DecodeWeight(source, node.weight, &n, &one);
    for (int64_t row = 0; row < x.rows(); ++row) {
      std::vector<std::pair<double, double>> terms;
      double* at = &x.data[row * n];
      for (int64_t i = 0; i < n; ++i) terms.emplace_back(at[i], at[i]);
      const float mean = Dot(std::move(terms)) / static_cast<float>(n);
      const float r = 1 / std::sqrt(mean + 1e-6f);
      for (int64_t i = 0; i < n; ++i) {
        at[i] = static_cast<float>(at[i]) * r * static_cast<float>(w[i]);
      }
    }
    return x;
  }

  Tensor Sum(const Node& node, int rank, int step) const {
    std::vector<const Tensor*> parts;
    if (node.op == Op::kAdd) {
      for (const std::string& tap : node.inputs) parts.push_back(Value(tap, rank, step));
    } else {
      std::vector<int> ranks(static_cast<size_t>(engine_.tp));
      std::iota(ranks.begin(), ranks.end(), 0);
      if (engine_.reduce_ranks) ranks = engine_.reduce_ranks(node);
      for (const int r : ranks) parts.push_back(Value(node.inputs[0], r, step));
    }
    Tensor y = *parts[0];
    for (size_t i = 1; i < parts.size(); ++i) {
      for (size_t j = 0; j < y.data.size(); ++j) {
        y.data[j] = static_cast<float>(y.data[j]) + static_cast<float>(parts[i]->data[j]);
      }
    }
    return y;
  }

  Tensor Discrete(const Node& node, int rank, int step) const {
    std::vector<reference::Input> inputs;
    for (const std::string& tap : node.inputs) inputs.push_back({Value(tap, rank, step), nullptr});
    auto e = engine_.model->Evaluate(node, inputs, {{engine_.tp, engine_.tp}, rank}, steps_[step],
                                     TestContract(), nullptr);
    return e->value;
  }

  Tensor Compute(const Node& node, int rank, int step) {
    switch (node.op) {
      case Op::kEmbed: {
        int64_t n = 0, k = 0;
        const MemorySource source = Weights("embed", rank);
        const std::vector<double> w = DecodeWeight(source, "embed", &n, &k);
        Tensor y{{static_cast<int64_t>(steps_[step].tokens.size()), k}, {}};
        for (const int32_t t : steps_[step].tokens) {
          y.data.insert(y.data.end(), w.begin() + t * k, w.begin() + (t + 1) * k);
        }
        return y;
      }
      case Op::kRmsNorm:
        return Norm(node, rank, step);
      case Op::kLinear:
        return Linear(node, rank, step);
      case Op::kScores:
      case Op::kContext:
        return Attend(node, rank, step);
      case Op::kCombine:
        return Combine(node, rank, step);
      case Op::kReduce:
      case Op::kAdd:
        return Sum(node, rank, step);
      case Op::kActivation: {
        const Tensor* g = Value(node.inputs[0], rank, step);
        if (g == nullptr) return {};
        Tensor y = *g;
        const Tensor& u = *Value(node.inputs[1], rank, step);
        for (size_t i = 0; i < y.data.size(); ++i) {
          const auto limit = static_cast<float>(engine_.limit);
          const float x = std::min(static_cast<float>(y.data[i]), limit);
          const float up = std::min(std::max(static_cast<float>(u.data[i]), -limit), limit);
          y.data[i] = x / (1 + std::exp(-x)) * up;
        }
        return y;
      }
      case Op::kRouterScores: {
        Tensor y = *Value(node.inputs[0], rank, step);
        for (double& v : y.data) v = 1 / (1 + std::exp(-static_cast<float>(v)));
        return y;
      }
      default:
        return Discrete(node, rank, step);
    }
  }

  const Engine& engine_;
  const std::vector<Step>& steps_;
  std::mt19937_64 random_;
  std::map<TapKey, Tensor> values_;
  EngineTrace trace_;
};

}  // namespace

Contract TestContract() {
  Contract c;
  c.name = "test";
  for (const char* name :
       {"embed", "norm", "linear", "rope", "act", "ctx", "reduce", "residual", "moe.down"}) {
    c.rounding[name] = DType::kBF16;
  }
  c.rounding["default"] = DType::kF32;
  return c;
}

Engine::Engine(const TestModel& model_, int tp_, uint64_t order_)
    : model(&model_), tp(tp_), order(order_), limit(model_.sizes().limit) {
  for (const std::string& component : model_.Components(-1)) {
    for (int rank = 0; rank < tp; ++rank) {
      auto slice = model_.ExpectedSlice(component, {{tp, tp}, rank});
      ExportedShard shard;
      shard.layout = "row";
      shard.dtype = slice->dtype;
      shard.rows = shard.total_rows = static_cast<int64_t>(slice->rows.size());
      shard.columns = static_cast<int64_t>(slice->columns.size());
      shard.bytes = slice->bytes;
      shards[{component, rank}] = std::move(shard);
    }
  }
}

EngineTrace Engine::Run(const std::vector<Step>& steps) const { return Pass(*this, steps).Run(); }

std::vector<Step> Prefill(int64_t tokens) {
  Step step;
  for (int64_t t = 0; t < tokens; ++t) step.tokens.push_back(static_cast<int32_t>(t * 5 % 19));
  return {step};
}

judge::JudgeRequest RequestFor(const TestModel& model, const EngineTrace& trace, int tp,
                               const std::vector<Step>& steps) {
  judge::JudgeRequest request;
  request.oracle = &model;
  request.trace = &trace;
  request.contract = TestContract();
  request.degrees = {tp, tp};
  request.steps = steps;
  for (const Node& node : model.graph()) request.nodes.push_back(&node);
  return request;
}

}  // namespace assay::testing
