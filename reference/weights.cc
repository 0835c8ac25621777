#include "reference/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "reference/sharding.h"

namespace assay::reference {
namespace {

// Decoded matrices that are kept: each at most 16 MiB, together at most 256 MiB.
constexpr int64_t kLargestKept = int64_t{2} << 20;
constexpr int64_t kKeptTogether = int64_t{32} << 20;

class SourceFinder : public PartFinder {
 public:
  SourceFinder(const TensorSource& source, std::string name)
      : source_(source), name_(std::move(name)) {}
  const TensorView* Find(std::string_view suffix) const override {
    return source_.Find(name_ + "." + std::string(suffix));
  }
  std::string Name() const override { return name_; }

 private:
  const TensorSource& source_;
  std::string name_;
};

// The headers of a parameter's tensors. weight_shape says in the data what they say already; to
// read it for every expert of a large checkpoint would take a page of the disk for each, so it is
// read where the parameter is used.
class HeaderFinder : public SourceFinder {
 public:
  using SourceFinder::SourceFinder;
  const TensorView* Find(std::string_view suffix) const override {
    return suffix == "weight_shape" ? nullptr : SourceFinder::Find(suffix);
  }
};

// A rank's shard under Assay's names, seen as if it were a checkpoint of its own.
class ShardFinder : public PartFinder {
 public:
  std::string name;
  std::map<std::string, const TensorView*, std::less<>> views;  // by the checkpoint's suffix
  const TensorView* Find(std::string_view suffix) const override {
    const auto found = views.find(suffix);
    return found == views.end() ? nullptr : found->second;
  }
  std::string Name() const override { return name; }
};

int64_t Volume(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (const int64_t extent : shape) n *= extent;
  return n;
}

double FlushSubnormal(double value) {
  return std::fabs(value) < double{std::numeric_limits<float>::min()} ? std::copysign(0.0, value)
                                                                      : value;
}

}  // namespace

void WeightRows::Cut(const double* whole, std::vector<double>* row) const {
  row->resize(static_cast<size_t>(columns_));
  if (whole_ || contiguous_) {
    const int64_t first = whole_ || column_list_.empty() ? 0 : column_list_.front();
    std::copy(whole + first, whole + first + columns_, row->begin());
  } else {
    for (size_t k = 0; k < row->size(); ++k) (*row)[k] = whole[column_list_[k]];
  }
}

const double* WeightRows::Row(int64_t local, Scratch* scratch) const {
  if (whole_ && decoded_ != nullptr) return decoded_->data() + local * columns_;
  const int64_t global = whole_ ? local : row_list_[static_cast<size_t>(local)];
  std::vector<double>& row = scratch->row;
  if (global < 0) {
    row.assign(static_cast<size_t>(columns_), 0.0);
    return row.data();
  }
  if (decoded_ != nullptr) {
    Cut(decoded_->data() + global * decoder_->columns(), &row);
  } else if (whole_) {
    row.resize(static_cast<size_t>(columns_));
    decoder_->Row(global, row.data());
  } else {
    scratch->whole.resize(static_cast<size_t>(decoder_->columns()));
    decoder_->Row(global, scratch->whole.data());
    Cut(scratch->whole.data(), &row);
  }
  if (decoder_->quantised() && dequant_ != DType::kF64) {
    for (double& value : row) value = RoundTo(value, dequant_);
  }
  if (daz_) {
    for (double& value : row) value = FlushSubnormal(value);
  }
  return row.data();
}

const double* WeightRows::Minima(int64_t local, Scratch* scratch) const {
  if (dequant_ != DType::kF64) return nullptr;
  const int64_t global = whole_ ? local : row_list_[static_cast<size_t>(local)];
  if (global < 0) return nullptr;
  scratch->whole.resize(static_cast<size_t>(decoder_->columns()));
  if (!decoder_->Minima(global, scratch->whole.data())) return nullptr;
  Cut(scratch->whole.data(), &scratch->minima);
  return scratch->minima.data();
}

Result<std::shared_ptr<const Decoder>> WeightStore::Open(const Parameter& parameter) const {
  return OpenParts(parameter, SourceFinder(source_, parameter.source));
}

Result<std::shared_ptr<const Decoder>> WeightStore::OpenHeaders(const Parameter& parameter) const {
  return OpenParts(parameter, HeaderFinder(source_, parameter.source));
}

Result<std::shared_ptr<const Decoder>> WeightStore::OpenParts(const Parameter& parameter,
                                                              const PartFinder& parts) const {
  auto opened = OpenDecoder(parts, config_.quant, parameter.rows.extent, parameter.columns.extent);
  if (!opened) return opened.error();
  return std::shared_ptr<const Decoder>(std::move(*opened));
}

Result<const TensorView*> WeightStore::Bias(const Parameter& parameter) const {
  const TensorView* view = source_.Find(parameter.bias_source);
  if (view == nullptr) return Error{parameter.bias_source + ": missing, the config asks for it"};
  if (!IsFloating(view->dtype) || view->shape != std::vector<int64_t>{parameter.rows.extent}) {
    return Error{fmt::format("{}: {} {}, must be a floating type, [{}]", view->name,
                             NameOf(view->dtype), PrintShape(view->shape), parameter.rows.extent)};
  }
  return view;
}

bool WeightStore::Present(const Parameter& parameter) const {
  return source_.Find(parameter.source + ".weight") != nullptr ||
         source_.Find(parameter.source + ".weight_packed") != nullptr ||
         (parameter.has_bias && source_.Find(parameter.bias_source) != nullptr);
}

Status WeightStore::CheckParameter(const Parameter& parameter) const {
  if (parameter.has_weight) {
    const auto decoder = OpenHeaders(parameter);
    if (!decoder) return decoder.error();
    // A vector's values are read without a decoder's rows.
    if (parameter.vector && (*decoder)->parts().size() != 1) {
      return Error{parameter.source + ": a norm's weight cannot be quantised"};
    }
  }
  if (parameter.has_bias) {
    const auto bias = Bias(parameter);
    if (!bias) return bias.error();
  } else if (parameter.has_weight && source_.Find(parameter.source + ".bias") != nullptr) {
    return Error{fmt::format("{}.bias: is in the file, but the config says that there is none",
                             parameter.source)};
  }
  return Ok();
}

Status WeightStore::Check() {
  std::unordered_map<int64_t, bool> layer_present;
  for (const Parameter& parameter : graph_.parameters) {
    layer_present[parameter.layer] = layer_present[parameter.layer] || Present(parameter);
  }
  bool any = false;
  for (const Parameter& parameter : graph_.parameters) {
    if (!layer_present[parameter.layer]) continue;
    any = true;
    if (const Status status = CheckParameter(parameter); !status) return status;
  }
  if (!any) {
    return Error{fmt::format("no tensor of the model is there; {} was looked for",
                             graph_.parameters.front().source + ".weight")};
  }
  return Ok();
}

std::shared_ptr<const std::vector<double>> WeightStore::Decoded(const Parameter& parameter,
                                                                const Decoder& decoder) const {
  const int64_t size = decoder.rows() * decoder.columns();
  if (size > kLargestKept) return nullptr;
  const std::lock_guard lock(mutex_);
  if (const auto found = cache_.find(&parameter); found != cache_.end()) return found->second;
  if (cached_ + size > kKeptTogether) return nullptr;
  auto values = std::make_shared<std::vector<double>>(static_cast<size_t>(size));
  for (int64_t n = 0; n < decoder.rows(); ++n) {
    decoder.Row(n, values->data() + n * decoder.columns());
  }
  cached_ += size;
  cache_.emplace(&parameter, values);
  return values;
}

Result<std::vector<int64_t>> WeightStore::Indices(const Parameter& parameter, const Axis& axis,
                                                  const Where& where, const char* axis_name) const {
  return AxisIndices(axis, config_.heads, config_.kv_heads, where,
                     fmt::format("{}, axis {}", parameter.name, axis_name));
}

Result<WeightRows> WeightStore::Rows(const Parameter& parameter, const Where& where,
                                     const Contract& contract, const TensorSource* shard) const {
  auto decoder = Open(parameter);
  if (!decoder) return decoder.error();
  WeightRows rows;
  if (shard != nullptr && shard->Find(parameter.name + ".weight") != nullptr) {
    auto foreign = ShardRows(parameter, where, **decoder, *shard);
    if (!foreign) return foreign.error();
    rows = std::move(*foreign);
  } else {
    rows.decoder_ = *decoder;
    const bool altered =
        contract.daz || ((*decoder)->quantised() && contract.dequant != DType::kF64);
    if (!altered || where.rank != -1) rows.decoded_ = Decoded(parameter, **decoder);
    rows.rows_ = (*decoder)->rows();
    rows.columns_ = (*decoder)->columns();
    if (where.rank != -1) {
      auto row_list = Indices(parameter, parameter.rows, where, "n");
      if (!row_list) return row_list.error();
      auto column_list = Indices(parameter, parameter.columns, where, "k");
      if (!column_list) return column_list.error();
      rows.whole_ = false;
      rows.rows_ = static_cast<int64_t>(row_list->size());
      rows.columns_ = static_cast<int64_t>(column_list->size());
      rows.row_list_ = std::move(*row_list);
      rows.column_list_ = std::move(*column_list);
      rows.contiguous_ = std::adjacent_find(rows.column_list_.begin(), rows.column_list_.end(),
                                            [](int64_t a, int64_t b) { return b != a + 1; }) ==
                         rows.column_list_.end();
    }
  }
  if (const Status values = rows.decoder_->CheckValues(); !values) return values.error();
  rows.dequant_ = contract.dequant;
  rows.daz_ = contract.daz;
  return rows;
}

Result<WeightRows> WeightStore::ShardRows(const Parameter& parameter, const Where& where,
                                          const Decoder& whole, const TensorSource& shard) const {
  WeightRows rows;
  ShardFinder finder;
  finder.name = parameter.name;
  int64_t local_rows = 0, local_columns = 0;
  for (const StoredPart& part : whole.parts()) {
    const std::string component = parameter.name + "." + part.suffix;
    const TensorView* view = shard.Find(component);
    if (view == nullptr) return Error{component + ": missing from the rank's shard"};
    const auto slice = SliceAt({&parameter, part.suffix}, where);
    if (!slice) return slice.error();
    const std::vector<int64_t> shape = {static_cast<int64_t>(slice->rows.size()),
                                        static_cast<int64_t>(slice->columns.size())};
    const auto bytes = static_cast<size_t>(Volume(shape) * SizeOf(slice->dtype).count());
    if (view->dtype != slice->dtype || view->bytes.size() != bytes) {
      return Error{fmt::format("{}: the rank's shard is {} of {} bytes, must be {} {}", component,
                               NameOf(view->dtype), view->bytes.size(), NameOf(slice->dtype),
                               PrintShape(shape))};
    }
    rows.views_.push_back(std::make_unique<TensorView>(*view));
    rows.views_.back()->shape = shape;
    finder.views[part.file_suffix] = rows.views_.back().get();
    if (part.suffix == "weight") {
      local_rows = shape[0];
      const auto columns = Indices(parameter, parameter.columns, where, "k");
      if (!columns) return columns.error();
      local_columns = static_cast<int64_t>(columns->size());
    }
  }
  auto decoder = OpenDecoder(finder, config_.quant, local_rows, local_columns);
  if (!decoder) return decoder.error();
  rows.decoder_ = std::move(*decoder);
  rows.rows_ = local_rows;
  rows.columns_ = local_columns;
  return rows;
}

Result<std::vector<double>> WeightStore::Vector(const Parameter& parameter, std::string_view suffix,
                                                const Where& where,
                                                const TensorSource* shard) const {
  const std::string component = fmt::format("{}.{}", parameter.name, suffix);
  if (shard != nullptr && shard->Find(component) != nullptr) {
    const TensorView* view = shard->Find(component);
    const auto mine = Indices(parameter, parameter.rows, where, "n");
    if (!mine) return mine.error();
    const auto bytes = mine->size() * static_cast<size_t>(SizeOf(view->dtype).count());
    if (!IsFloating(view->dtype) || view->bytes.size() != bytes) {
      return Error{fmt::format("{}: the rank's shard is {} of {} bytes, must be {} values",
                               component, NameOf(view->dtype), view->bytes.size(), mine->size())};
    }
    std::vector<double> values(mine->size());
    DecodeFloats(*view, 0, static_cast<int64_t>(values.size()), values.data());
    return values;
  }
  const TensorView* view = nullptr;
  if (suffix == "bias") {
    const auto bias = Bias(parameter);
    if (!bias) return bias.error();
    view = *bias;
  } else {
    const auto decoder = Open(parameter);
    if (!decoder) return decoder.error();
    view = (*decoder)->parts()[0].view;
  }
  std::vector<double> whole(static_cast<size_t>(parameter.rows.extent));
  DecodeFloats(*view, 0, parameter.rows.extent, whole.data());
  if (where.rank == -1) return whole;
  const auto mine = Indices(parameter, parameter.rows, where, "n");
  if (!mine) return mine.error();
  std::vector<double> values;
  for (const int64_t n : *mine) values.push_back(n < 0 ? 0.0 : whole[static_cast<size_t>(n)]);
  return values;
}

}  // namespace assay::reference
