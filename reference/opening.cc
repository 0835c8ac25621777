// Parameters opened: their decoders, their stored tensors and where these lie, and whether all that
// the model needs is there.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "reference/weights.h"

namespace assay::reference {
namespace {

// A decoder and the views that it reads.
struct OpenedParts {
  OpenedParts(const TensorSource& source, const Parameter& parameter, bool headers)
      : finder(source, parameter, headers) {}
  ParameterFinder finder;
  std::unique_ptr<Decoder> decoder;
};

}  // namespace

WeightStore::WeightStore(const ModelConfig& config, const Graph& graph, const TensorSource& source)
    : config_(config), graph_(graph), source_(source), quant_(config.quant) {
  if (quant_.method.empty() && !quant_.description.empty()) quant_.method = "ascend";
  quant_.description.clear();
}

// A description has an entry for every tensor of the file: only this module's are copied.
QuantConfig WeightStore::SchemeOf(const Parameter& parameter) const {
  QuantConfig scheme = quant_.For(parameter.source);
  const auto& all = config_.quant.description;
  for (auto entry = all.lower_bound(parameter.source);
       entry != all.end() && entry->first.starts_with(parameter.source); ++entry) {
    scheme.description.insert(*entry);
  }
  return scheme;
}

Result<std::shared_ptr<const Decoder>> WeightStore::Open(const Parameter& parameter) const {
  return OpenParts(parameter, false);
}

Result<std::shared_ptr<const Decoder>> WeightStore::OpenHeaders(const Parameter& parameter) const {
  return OpenParts(parameter, true);
}

Result<std::shared_ptr<const Decoder>> WeightStore::OpenParts(const Parameter& parameter,
                                                              bool headers) const {
  auto opened = std::make_shared<OpenedParts>(source_, parameter, headers);
  auto decoder = OpenDecoder(opened->finder, SchemeOf(parameter), parameter.rows.extent,
                             parameter.columns.extent);
  if (!decoder) {
    const std::string& problem = opened->finder.problem();
    return problem.empty() ? decoder.error() : Error{problem};
  }
  opened->decoder = std::move(*decoder);
  return std::shared_ptr<const Decoder>(opened, opened->decoder.get());
}

Result<WeightStore::Stored> WeightStore::Bias(const Parameter& parameter) const {
  Stored bias;
  bias.part.suffix = bias.part.file_suffix = "bias";
  bias.part.unit = "element";
  bias.part.column_along = Along::kNone;
  std::optional<Grid> grid;
  if (parameter.fused.stem.empty()) {
    if (const TensorView* view = source_.Find(parameter.bias_source); view != nullptr) {
      grid = WholeGrid(*view);
    }
  } else {
    const ParameterFinder finder(source_, parameter, true);
    grid = finder.Locate("bias");
    if (!grid && !finder.problem().empty()) return Error{finder.problem()};
  }
  const std::string name =
      parameter.fused.stem.empty() ? parameter.bias_source : parameter.fused.stem + "_bias";
  if (!grid) return Error{name + ": missing, the config asks for it"};
  const TensorView& view = *grid->whole;
  const size_t extents = parameter.fused.stem.empty() ? 1 : 2;
  if (!IsFloating(view.dtype) || view.shape.size() != extents ||
      grid->rows != parameter.rows.extent) {
    return Error{fmt::format("{}: {} {}, must be a floating type, {} values{}", view.name,
                             NameOf(view.dtype), PrintShape(view.shape), parameter.rows.extent,
                             extents == 2 ? " for each expert" : "")};
  }
  bias.part.view = &view;
  bias.grid = *grid;
  return bias;
}

// One tensor of plain values: as many as [rows, columns], in whatever shape.
Result<WeightStore::Stored> WeightStore::StoredExact(const Parameter& parameter) const {
  const TensorView* view = source_.Find(parameter.exact);
  if (view == nullptr) return Error{parameter.exact + ": missing"};
  int64_t values = 1;
  for (const int64_t extent : view->shape) values *= extent;
  const int64_t rows = parameter.rows.extent, columns = parameter.columns.extent;
  const bool fits = values == rows * columns || (parameter.longer && values > rows * columns);
  if (IsBlock(view->dtype) || !fits) {
    return Error{fmt::format("{}: {} {}, must have {}{} plain values", view->name,
                             NameOf(view->dtype), PrintShape(view->shape),
                             parameter.longer ? "at least " : "", rows * columns)};
  }
  Stored stored;
  stored.part.suffix = "weight";
  stored.part.view = view;
  stored.part.unit = "element";
  stored.grid = {view, rows, columns, 0, columns, 1};
  return stored;
}

Result<std::vector<WeightStore::Stored>> WeightStore::StoredOf(const Parameter& parameter) const {
  std::vector<Stored> all;
  if (!parameter.exact.empty()) {
    auto exact = StoredExact(parameter);
    if (!exact) return exact.error();
    all.push_back(std::move(*exact));
  } else if (parameter.has_weight) {
    const auto decoder = OpenHeaders(parameter);
    if (!decoder) return decoder.error();
    const ParameterFinder finder(source_, parameter, true);
    for (const StoredPart& part : (*decoder)->parts()) {
      const auto grid = finder.Locate(part.file_suffix);
      if (!grid) return Error{parameter.source + "." + part.file_suffix + ": missing"};
      all.push_back({part, *grid});
      all.back().part.view = grid->whole;
    }
  }
  if (parameter.has_bias) {
    auto bias = Bias(parameter);
    if (!bias) return bias.error();
    all.push_back(std::move(*bias));
  }
  return all;
}

bool WeightStore::Present(const Parameter& parameter) const {
  if (!parameter.exact.empty()) return source_.Find(parameter.exact) != nullptr;
  if (parameter.has_bias && source_.Find(parameter.bias_source) != nullptr) return true;
  if (!parameter.has_weight) return false;
  const ParameterFinder finder(source_, parameter, true);
  // The names that methods have for a weight. Whether one takes it is for the opening to say.
  for (const char* weight : {"weight", "weight_packed", "qweight", "blocks"}) {
    if (finder.Find(weight) != nullptr) return true;
  }
  return !finder.problem().empty();
}

bool IsBiasOfZeros(const TensorSource& source, std::string_view name) {
  constexpr std::string_view kBias = ".bias";
  const TensorView* view = source.Find(name);
  if (view == nullptr || !name.ends_with(kBias)) return false;
  const std::string module(name.substr(0, name.size() - kBias.size()));
  return source.Find(module + ".qweight") != nullptr &&
         std::all_of(view->bytes.begin(), view->bytes.end(),
                     [](std::byte b) { return b == std::byte{0}; });
}

// `biases`: tensors that are some parameter's bias.
Status WeightStore::CheckParameter(const Parameter& parameter,
                                   const std::set<std::string>& biases) const {
  const auto stored = StoredOf(parameter);
  if (!stored) return stored.error();
  if (!parameter.has_weight || !parameter.exact.empty()) return Ok();
  // A vector's values are read without a decoder's rows.
  if (parameter.vector && stored->size() != (parameter.has_bias ? 2 : 1)) {
    return Error{parameter.source + ": a norm's weight cannot be quantised"};
  }
  const std::string bias = parameter.source + ".bias";
  if (!parameter.has_bias && source_.Find(bias) != nullptr && !biases.contains(bias) &&
      !IsBiasOfZeros(source_, bias)) {
    return Error{fmt::format("{}: is in the file, but the config says that there is none", bias)};
  }
  return Ok();
}

Status WeightStore::Check() {
  std::unordered_map<int64_t, bool> layer_present;
  std::set<std::string> biases;
  for (const Parameter& parameter : graph_.parameters) {
    bool& present = layer_present[parameter.layer];
    present = present || Present(parameter);
    if (parameter.has_bias) biases.insert(parameter.bias_source);
  }
  bool any = false;
  for (const Parameter& parameter : graph_.parameters) {
    if (!layer_present[parameter.layer]) continue;
    any = true;
    if (const Status status = CheckParameter(parameter, biases); !status) return status;
  }
  if (!any) {
    return Error{fmt::format("no tensor of the model is there; {} was looked for",
                             graph_.parameters.front().source + ".weight")};
  }
  return Ok();
}

Result<int64_t> WeightStore::SplitUnit(const std::string& mlp, const Where& where) const {
  int64_t unit = 1;
  if (mlp.empty() || where.rank == -1 || where.degrees.split == Split::kEven) return unit;
  for (const char* part : {".gate", ".up", ".down"}) {
    const auto found = graph_.parameter_index.find(mlp + part);
    if (found == graph_.parameter_index.end()) continue;
    const auto stored = StoredOf(graph_.parameters[found->second]);
    if (!stored) return stored.error();
    const Along along = std::string_view(part) == ".down" ? Along::kColumns : Along::kRows;
    for (const Stored& tensor : *stored) {
      const StoredPart& p = tensor.part;
      if (p.replicated) continue;
      if (p.row_along == along) unit = std::lcm(unit, p.elements_per_row);
      if (p.column_along == along && !p.whole_row) unit = std::lcm(unit, p.elements_per_column);
    }
  }
  return unit;
}

}  // namespace assay::reference
