// The data of a cell: generated weights, the inputs of its ops or of its scope.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "harness/judge/judge.h"
#include "harness/run/weights.h"

namespace assay::run {
namespace {

using reference::Node;
using reference::Op;
using reference::Tensor;

TapValue FromTensor(const Tensor& tensor, DType dtype) {
  TapValue value{dtype, tensor.shape, {}};
  for (const double x : tensor.data) {
    const double rounded = dtype == DType::kI32 ? x : RoundTo(x, dtype);
    std::byte raw[4];
    size_t width = 4;
    if (dtype == DType::kBF16) {
      const uint16_t bits = ToBf16(rounded);
      std::memcpy(raw, &bits, width = sizeof(bits));
    } else if (dtype == DType::kI32) {
      const auto id = static_cast<int32_t>(rounded);
      std::memcpy(raw, &id, sizeof(id));
    } else {
      const auto single = static_cast<float>(rounded);
      std::memcpy(raw, &single, sizeof(single));
    }
    value.bytes.insert(value.bytes.end(), raw, raw + width);
  }
  return value;
}

// Some columns of a whole value, as a rank has them; -1 is padding and reads 0.
TapValue TakeColumns(const TapValue& whole, const std::vector<int64_t>& columns) {
  const int64_t rows = whole.shape[0];
  const int64_t width = whole.shape.size() > 1 ? whole.shape[1] : 1;
  const auto size = static_cast<size_t>(SizeOf(whole.dtype).count());
  TapValue part{whole.dtype, {rows, static_cast<int64_t>(columns.size())}, {}};
  part.bytes.resize(static_cast<size_t>(rows) * columns.size() * size);
  size_t at = 0;
  for (int64_t row = 0; row < rows; ++row) {
    for (const int64_t column : columns) {
      if (column >= 0) {
        std::memcpy(&part.bytes[at], &whole.bytes[static_cast<size_t>(row * width + column) * size],
                    size);
      }
      at += size;
    }
  }
  return part;
}

// Rows take turns through these experts, top_k each row; fewer experts than that are made up by
// their successors, so that one expert has every row.
TapValue IdsThrough(std::set<int64_t> experts, int64_t rows, int64_t top_k, int64_t all) {
  for (int64_t next = *experts.begin(); static_cast<int64_t>(experts.size()) < top_k;) {
    experts.insert(next = (next + 1) % all);
  }
  const std::vector<int64_t> turns(experts.begin(), experts.end());
  TapValue ids{DType::kI32, {rows, top_k}, {}};
  size_t turn = 0;
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<int32_t> row;
    for (int64_t i = 0; i < top_k; ++i) {
      row.push_back(static_cast<int32_t>(turns[turn++ % turns.size()]));
    }
    std::sort(row.begin(), row.end());
    const auto* begin = reinterpret_cast<const std::byte*>(row.data());
    ids.bytes.insert(ids.bytes.end(), begin, begin + row.size() * sizeof(int32_t));
  }
  return ids;
}

class InputMaker {
 public:
  explicit InputMaker(CellSpec* spec) : spec_(spec) {}

  Status Ops() {
    for (const Node* node : spec_->nodes) {
      if (auto status = OpInputs(*node); !status) return status;
    }
    return Ok();
  }

  Status Collectives() {
    const bool gather = spec_->problem.Get("collective") == "gather";
    for (const Node* node : spec_->nodes) {
      auto columns = WholeColumns(*spec_, node->tap);
      if (!columns) return columns.error();
      auto made = gather ? Columns(*node, *columns) : Partials(*node, *columns);
      if (!made) return made.error();
    }
    return Ok();
  }

  Status Scope() {
    const std::string tap = ScopeInput();
    if (tap.empty()) return Ok();
    auto columns = WholeColumns(*spec_, tap);
    if (!columns) return columns.error();
    for (int step = 0; step < static_cast<int>(spec_->steps.size()); ++step) {
      auto value = Whole(tap, step, *columns);
      if (!value) return value.error();
      spec_->given[{step, tap, -1}] = std::move(*value);
    }
    return Ok();
  }

  Status ForcedRouting() {
    const bool routes = std::any_of(spec_->nodes.begin(), spec_->nodes.end(),
                                    [](const Node* node) { return node->op == Op::kRouterIds; });
    if (spec_->problem.Get("routing") != "forced" || !routes) return Ok();
    if (spec_->steps.size() > 1 && spec_->fill != Fill::kReal) {
      return Error{"routing=forced with decodes needs fill=real", ErrorKind::kUnsupported};
    }
    std::vector<std::string> wanted;
    for (const Node* node : spec_->nodes) {
      if (node->op == Op::kRouterIds || node->op == Op::kRouterWeights) wanted.push_back(node->tap);
    }
    auto traced = ChainOf(std::move(wanted));
    if (!traced) return traced.error();
    for (size_t step = 0; step < traced->size(); ++step) {
      for (const Node* node : spec_->nodes) {
        if (node->op != Op::kRouterIds && node->op != Op::kRouterWeights) continue;
        const auto found = (*traced)[step].find(node->tap);
        if (found == (*traced)[step].end()) continue;
        spec_->given[{static_cast<int>(step), node->tap, -1}] =
            FromTensor(found->second, node->op == Op::kRouterIds ? DType::kI32 : DType::kF32);
      }
    }
    return Ok();
  }

 private:
  // Each rank's partial sum of the whole.
  Status Partials(const Node& node, int64_t columns) {
    const std::string& tap = node.inputs.at(0);
    const bool attention = node.domain == reference::Domain::kAttention;
    const int ranks = attention ? spec_->degrees.attention() : spec_->degrees.tp;
    for (int rank = 0; rank < ranks; ++rank) {
      spec_->given[{0, tap, rank}] =
          FillPartialOf(spec_->fill, spec_->seed, tap, rank, ranks, Rows(0), columns);
    }
    return Ok();
  }

  // Each rank's columns of one whole, padding 0.
  Status Columns(const Node& node, int64_t columns) {
    const TapValue whole = FillPartial(spec_->fill, spec_->seed, node.tap, Rows(0), columns);
    for (int rank = 0; rank < spec_->degrees.tp; ++rank) {
      auto part = spec_->oracle->TapColumns(node, spec_->where(rank));
      if (!part) return part.error();
      spec_->given[{0, node.tap, rank}] = TakeColumns(whole, *part);
    }
    return Ok();
  }

  int64_t Rows(int step) const {
    return static_cast<int64_t>(spec_->steps[static_cast<size_t>(step)].tokens.size());
  }

  // Of an expert's tap: the tokens that go to it, where that is known; else every row.
  int64_t RowsOf(const std::string& tap, int step) {
    const Node* node = spec_->oracle->FindNode(tap);
    if (node == nullptr || node->expert < 0) return Rows(step);
    const auto ids = spec_->given.find({step, fmt::format("L{}.router.ids", node->layer), -1});
    if (ids != spec_->given.end()) return TokensOf(ids->second, node->expert);
    if (spec_->fill != Fill::kReal || !LoadReal()) return Rows(step);
    return real_[static_cast<size_t>(step)].count(tap) == 0 ? 0 : Rows(step);
  }

  // The oracle's own chain, once. False: it could not be run; Whole() says why.
  bool LoadReal() {
    if (!real_.empty()) return true;
    auto traced = ChainOf(RealTaps());
    if (traced) real_ = std::move(*traced);
    return !real_.empty();
  }

  // Whose ops of this layer are judged.
  std::set<int64_t> ExpertsOf(int64_t layer) const {
    std::set<int64_t> experts;
    for (const Node* node : spec_->nodes) {
      if (node->layer == layer && node->expert >= 0) experts.insert(node->expert);
    }
    return experts;
  }

  std::string ScopeInput() const {
    const std::string prefix = fmt::format("L{}.", spec_->layer);
    if (spec_->scope == "attn") return prefix + "input_norm";
    if (spec_->scope == "moe" || spec_->scope == "route") return prefix + "post_norm";
    if (spec_->scope == "layer") {
      return spec_->layer == 0 ? "embed" : fmt::format("L{}.residual_mlp", spec_->layer - 1);
    }
    return "";
  }

  // What the cell takes from the oracle's own chain.
  std::vector<std::string> RealTaps() const {
    if (spec_->mode == Mode::kScope) return {ScopeInput()};
    std::set<std::string> taps;
    for (const Node* node : spec_->nodes) taps.insert(node->inputs.begin(), node->inputs.end());
    taps.erase("tokens");
    return {taps.begin(), taps.end()};
  }

  // The oracle's own chain, once, with what is given so far.
  Result<reference::Trace> ChainOf(std::vector<std::string> wanted) {
    reference::RunRequest request;
    request.steps = spec_->steps;
    request.wanted = std::move(wanted);
    // Real inputs come from the chain itself, which starts at the embedding.
    for (const auto& [key, value] : spec_->given) {
      if (key.step == 0 && spec_->fill != Fill::kReal) {
        request.given[key.tap] = judge::ToTensor(value);
      }
    }
    if (spec_->layer >= 0) request.last_layer = spec_->layer;
    return spec_->oracle->Run(request, Contract::Exact());
  }

  Result<TapValue> Whole(const std::string& tap, int step, int64_t columns) {
    if (spec_->fill != Fill::kReal) {
      const std::string name = step == 0 ? tap : fmt::format("{}#{}", tap, step);
      if (spec_->fill == Fill::kExact && spec_->eight_bit()) {
        return FillCodes(spec_->seed, name, RowsOf(tap, step), columns);
      }
      return FillActivation(spec_->fill, spec_->seed, name, RowsOf(tap, step), columns);
    }
    if (real_.empty()) {
      auto traced = ChainOf(RealTaps());
      if (!traced) return traced.error();
      real_ = std::move(*traced);
    }
    const auto found = real_[static_cast<size_t>(step)].find(tap);
    if (found == real_[static_cast<size_t>(step)].end()) {
      return Error{fmt::format("fill=real: the oracle's chain has no {}", tap)};
    }
    return FromTensor(found->second, DType::kBF16);
  }

  Status OpInputs(const Node& node) {
    for (const std::string& tap : node.inputs) {
      if (tap == "tokens") continue;
      const Node* input = spec_->oracle->FindNode(tap);
      if (input == nullptr) return Error{fmt::format("{}: unknown input {}", node.tap, tap)};
      if (input->op == Op::kRouterIds) {
        const auto& config = spec_->config;
        if (spec_->fill == Fill::kReal) {
          if (auto status = RealIds(tap); !status) return status;
        } else {
          spec_->given[{0, tap, -1}] =
              IdsThrough(ExpertsOf(node.layer), Rows(0), config.top_k, config.experts);
        }
        continue;
      }
      if (auto status = OpInput(*input); !status) return status;
    }
    return Ok();
  }

  Status RealIds(const std::string& tap) {
    auto columns = WholeColumns(*spec_, tap);
    if (!columns) return columns.error();
    auto ids = Whole(tap, 0, *columns);
    if (!ids) return ids.error();
    spec_->given[{0, tap, -1}] = FromTensor(real_[0].at(tap), DType::kI32);
    return Ok();
  }

  Status OpInput(const Node& input) {
    if (spec_->given.count({0, input.tap, -1}) || spec_->given.count({0, input.tap, 0}))
      return Ok();
    auto columns = WholeColumns(*spec_, input.tap);
    if (!columns) return columns.error();
    if (RowsOf(input.tap, 0) == 0) return Ok();  // an expert without tokens
    auto whole = Whole(input.tap, 0, *columns);
    if (!whole) return whole.error();
    if (input.spread == reference::Spread::kReplicated) {
      spec_->given[{0, input.tap, -1}] = std::move(*whole);
      return Ok();
    }
    for (int rank = 0; rank < spec_->degrees.tp; ++rank) {
      auto part = spec_->oracle->TapColumns(input, spec_->where(rank));
      if (!part) return part.error();
      spec_->given[{0, input.tap, rank}] = TakeColumns(*whole, *part);
    }
    return Ok();
  }

  CellSpec* spec_;
  reference::Trace real_;
};

}  // namespace

int64_t TokensOf(const TapValue& ids, int64_t expert) {
  const Tensor tensor = judge::ToTensor(ids);
  return std::count(tensor.data.begin(), tensor.data.end(), static_cast<double>(expert));
}

Result<int64_t> WholeColumns(const CellSpec& spec, const std::string& tap) {
  const Node* node = spec.oracle->FindNode(tap);
  if (node == nullptr) return Error{fmt::format("the oracle has no tap {}", tap)};
  auto columns = spec.oracle->TapColumns(*node, {});
  if (!columns) return columns.error();
  return static_cast<int64_t>(columns->size());
}

Status FillCell(CellSpec* spec) {
  if (auto status = FillWeights(spec); !status) return status;
  InputMaker maker(spec);
  Status made = Ok();
  if (spec->mode == Mode::kOps) made = maker.Ops();
  if (spec->mode == Mode::kCollective) made = maker.Collectives();
  if (spec->mode == Mode::kScope) made = maker.Scope();
  if (!made) return made;
  if (auto status = maker.ForcedRouting(); !status) return status;
  return PickExperts(spec);
}

}  // namespace assay::run
