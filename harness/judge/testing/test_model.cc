#include "harness/judge/testing/test_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace assay::testing {

using reference::Domain;
using reference::Node;
using reference::Op;
using reference::Slice;
using reference::Spread;
using reference::Tensor;
using reference::Where;

namespace {

// Uniform in [0, 1), a function of (seed, name, index).
double Uniform(uint64_t seed, std::string_view name, uint64_t index) {
  uint64_t h = seed * 0x9E3779B97F4A7C15u + index + 1;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  h ^= h >> 33;
  h *= 0xff51afd7ed558ccdu;
  h ^= h >> 33;
  h *= 0xc4ceb9fe1a85ec53u;
  h ^= h >> 33;
  return static_cast<double>(h >> 11) * std::ldexp(1.0, -53);
}

double Bf16At(const std::byte* at) {
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

int64_t Extent(const TensorView& view, size_t axis) {
  return view.shape.size() > axis ? view.shape[axis] : 1;
}

}  // namespace

std::vector<std::byte> Encode(const std::vector<double>& values, DType dtype) {
  const size_t size = static_cast<size_t>(SizeOf(dtype).count());
  std::vector<std::byte> bytes(values.size() * size);
  for (size_t i = 0; i < values.size(); ++i) {
    std::byte* at = bytes.data() + i * size;
    if (dtype == DType::kBF16) {
      const float f = static_cast<float>(RoundTo(values[i], dtype));
      uint32_t bits;
      std::memcpy(&bits, &f, 4);
      const uint16_t top = static_cast<uint16_t>(bits >> 16);
      std::memcpy(at, &top, 2);
    } else if (dtype == DType::kF32) {
      const float f = static_cast<float>(values[i]);
      std::memcpy(at, &f, 4);
    } else if (dtype == DType::kI8) {
      *at = static_cast<std::byte>(static_cast<int8_t>(values[i]));
    } else if (dtype == DType::kI32) {
      const int32_t v = static_cast<int32_t>(values[i]);
      std::memcpy(at, &v, 4);
    } else {
      std::memcpy(at, &values[i], 8);
    }
  }
  return bytes;
}

std::vector<double> DecodeWeight(const TensorSource& source, const std::string& parameter,
                                 int64_t* rows, int64_t* columns) {
  const TensorView* weight = source.Find(parameter + ".weight");
  const TensorView* scale = source.Find(parameter + ".scale");
  *rows = Extent(*weight, 0);
  *columns = Extent(*weight, 1) * (weight->dtype == DType::kI32 ? 8 : 1);
  std::vector<double> values;
  values.reserve(static_cast<size_t>(*rows * *columns));
  for (int64_t r = 0; r < *rows; ++r) {
    for (int64_t c = 0; c < *columns; ++c) {
      if (scale == nullptr) {
        values.push_back(Bf16At(weight->bytes.data() + 2 * (r * *columns + c)));
        continue;
      }
      uint32_t word;
      std::memcpy(&word, weight->bytes.data() + 4 * (r * *columns / 8 + c / 8), 4);
      const int code = static_cast<int>(word >> (4 * (c % 8)) & 15) - 8;
      const int64_t groups = Extent(*scale, 1);
      const int64_t group = c / (*columns / groups);
      values.push_back(code * Bf16At(scale->bytes.data() + 2 * (r * groups + group)));
    }
  }
  return values;
}

void TestModel::AddBf16(const std::string& name, int64_t rows, int64_t columns, char axis) {
  std::vector<double> values;
  for (int64_t i = 0; i < rows * columns; ++i) {
    const double u = Uniform(seed_, name, static_cast<uint64_t>(i));
    values.push_back(sizes_.exact ? std::floor(u * 63) - 31 : 2 * u - 1);
  }
  stored_.push_back(
      {name, DType::kBF16, rows, columns, "element", 1, axis, Encode(values, DType::kBF16)});
}

void TestModel::AddFourBit(const std::string& name, int64_t rows, int64_t columns) {
  std::vector<std::byte> words(static_cast<size_t>(rows * columns / 2));
  for (size_t i = 0; i < words.size(); ++i) {
    words[i] = static_cast<std::byte>(Uniform(seed_, name, i) * 256);
  }
  stored_.push_back({name + ".weight", DType::kI32, rows, columns / 8, "word", 8, 'k', words});
  std::vector<double> scales;
  for (int64_t i = 0; i < rows * columns / sizes_.group; ++i) {
    const double u = Uniform(seed_, name + ".scale", static_cast<uint64_t>(i));
    scales.push_back(sizes_.exact ? 1 : std::exp(1.2 * (u - 0.5)) / 8);
  }
  stored_.push_back({name + ".scale", DType::kBF16, rows, columns / sizes_.group, "group",
                     sizes_.group, 'k', Encode(scales, DType::kBF16)});
}

TestModel::TestModel(uint64_t seed, Sizes sizes) : seed_(seed), sizes_(sizes) {
  AddBf16("embed.weight", sizes_.vocab, sizes_.hidden, 'w');
  AddBf16("L1.attn.q.weight", 8, sizes_.hidden, 'w');
  AddBf16("L1.attn.k.weight", 8, sizes_.hidden, 'w');
  AddBf16("L1.attn.v.weight", 8, sizes_.hidden, 'w');
  AddBf16("L1.post_norm.weight", sizes_.hidden, 1, 'w');
  AddBf16("L1.router.logits.weight", sizes_.experts, sizes_.hidden, 'w');
  for (int64_t e = 0; e < sizes_.experts; ++e) {
    const std::string expert = fmt::format("L1.moe.e{}.", e);
    AddBf16(expert + "gate.weight", sizes_.inter, sizes_.hidden, 'n');
    AddBf16(expert + "up.weight", sizes_.inter, sizes_.hidden, 'n');
    AddFourBit(expert + "down", sizes_.hidden, sizes_.inter);
  }
  AddBf16("logits.weight", sizes_.vocab, sizes_.hidden, 'n');
  BuildGraph();
}

void TestModel::BuildGraph() {
  auto add = [&](std::string tap, std::string path, std::string cls, Op op,
                 std::vector<std::string> inputs, std::string weight = "",
                 Spread spread = Spread::kReplicated, int64_t expert = -1) {
    Node node;
    node.tap = std::move(tap);
    node.path = std::move(path);
    node.op_class = std::move(cls);
    node.op = op;
    node.layer = node.tap[0] == 'L' ? 1 : -1;
    node.expert = expert;
    node.inputs = std::move(inputs);
    node.weight = std::move(weight);
    node.spread = spread;
    node.domain = spread == Spread::kReplicated ? Domain::kNone : Domain::kTensor;
    node.cuts_contraction = spread == Spread::kPartial && op == Op::kLinear;
    graph_.push_back(std::move(node));
  };
  add("embed", "embed", "embed", Op::kEmbed, {"tokens"}, "embed");
  for (const char* name : {"q", "k", "v"}) {
    const std::string path = fmt::format("attn.{}", name);
    add("L1." + path, path, "linear", Op::kLinear, {"embed"}, "L1." + path);
  }
  add("L1.attn.scores", "attn.scores", "scores", Op::kScores, {"L1.attn.q", "L1.attn.k"});
  add("L1.attn.ctx", "attn.ctx", "ctx", Op::kContext, {"L1.attn.scores", "L1.attn.v"});
  add("L1.post_norm", "post_norm", "norm", Op::kRmsNorm, {"embed"}, "L1.post_norm");
  add("L1.router.logits", "router.logits", "router", Op::kLinear, {"L1.post_norm"},
      "L1.router.logits");
  add("L1.router.scores", "router.scores", "router", Op::kRouterScores, {"L1.router.logits"});
  add("L1.router.ids", "router.ids", "router", Op::kRouterIds, {"L1.router.scores"});
  add("L1.router.weights", "router.weights", "router", Op::kRouterWeights,
      {"L1.router.scores", "L1.router.ids"});
  std::vector<std::string> combined{"L1.router.ids", "L1.router.weights"};
  for (int64_t e = 0; e < sizes_.experts; ++e) {
    const std::string x = fmt::format("L1.moe.e{}.", e);
    for (const char* name : {"gate", "up"}) {
      add(x + name, fmt::format("moe.{}", name), "linear", Op::kLinear,
          {"L1.post_norm", "L1.router.ids"}, x + name, Spread::kColumns, e);
    }
    add(x + "act", "moe.act", "act", Op::kActivation, {x + "gate", x + "up"}, "", Spread::kColumns,
        e);
    add(x + "down", "moe.down", "partial", Op::kLinear, {x + "act"}, x + "down", Spread::kPartial,
        e);
    combined.push_back(x + "down");
  }
  add("L1.moe.partial", "moe.partial", "combine", Op::kCombine, combined, "", Spread::kPartial);
  add("L1.moe.out", "moe.out", "reduce", Op::kReduce, {"L1.moe.partial"});
  add("L1.residual_mlp", "residual_mlp", "residual", Op::kAdd, {"embed", "L1.moe.out"});
  add("logits", "logits", "logits", Op::kLinear, {"L1.residual_mlp"}, "logits", Spread::kColumns);
}

const Node* TestModel::FindNode(std::string_view tap) const {
  for (const Node& node : graph_) {
    if (node.tap == tap) return &node;
  }
  return nullptr;
}

Result<std::vector<int64_t>> TestModel::TapColumns(const Node& node, const Where& where) const {
  int64_t n = sizes_.hidden;
  if (node.op_class == "logits") n = sizes_.vocab;
  if (node.path == "router.logits" || node.path == "router.scores") n = sizes_.experts;
  if (node.path == "router.ids" || node.path == "router.weights") n = sizes_.top_k;
  if (node.path == "attn.ctx") n = 8;
  if (node.path == "attn.scores") n = 1;
  if (node.path == "moe.gate" || node.path == "moe.up" || node.path == "moe.act") n = sizes_.inter;
  if (node.path == "attn.q" || node.path == "attn.k" || node.path == "attn.v") n = 8;
  std::vector<int64_t> columns;
  int64_t begin = 0, end = n;
  if (where.rank >= 0 && node.spread == Spread::kColumns) {
    const int64_t each = (n + where.degrees.tp - 1) / where.degrees.tp;
    begin = where.rank * each;
    end = begin + each;
  }
  for (int64_t c = begin; c < end; ++c) columns.push_back(c < n ? c : -1);
  return columns;
}

std::vector<std::string> TestModel::Components(int64_t) const {
  std::vector<std::string> names;
  for (const Stored& s : stored_) names.push_back(s.name);
  return names;
}

Result<Slice> TestModel::ExpectedSlice(std::string_view component, const Where& where) const {
  const auto s = std::find_if(stored_.begin(), stored_.end(),
                              [&](const Stored& one) { return one.name == component; });
  if (s == stored_.end()) return Error{fmt::format("no component {}", component)};
  Slice slice;
  slice.dtype = s->dtype;
  slice.unit = s->unit;
  slice.elements_per_column = s->elements_per_column;
  const int64_t tp = where.rank < 0 ? 1 : where.degrees.tp, rank = std::max(where.rank, 0);
  auto cut = [&](int64_t n, bool cuts) {
    const int64_t each = cuts ? (n + tp - 1) / tp : n;
    std::vector<int64_t> at;
    for (int64_t i = 0; i < each; ++i) {
      const int64_t global = (cuts ? rank * each : 0) + i;
      at.push_back(global < n ? global : -1);
    }
    return at;
  };
  slice.rows = cut(s->rows, s->axis == 'n');
  slice.columns = cut(s->columns, s->axis == 'k');
  const size_t size = static_cast<size_t>(SizeOf(s->dtype).count());
  for (const int64_t r : slice.rows) {
    for (const int64_t c : slice.columns) {
      for (size_t i = 0; i < size; ++i) {
        slice.bytes.push_back(r < 0 || c < 0 ? std::byte{0}
                                             : s->bytes[(r * s->columns + c) * size + i]);
      }
    }
  }
  return slice;
}

Result<std::string> TestModel::SourceName(std::string_view component) const {
  return "model." + std::string(component);
}

}  // namespace assay::testing
