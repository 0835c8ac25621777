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

int64_t Volume(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (const int64_t extent : shape) n *= extent;
  return n;
}

bool HasFloatingScales(const Decoder& decoder) {
  for (const StoredPart& part : decoder.parts()) {
    if (part.suffix == "scale") return IsFloating(part.view->dtype);
  }
  return false;
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
    for (size_t k = 0; k < row->size(); ++k) {
      (*row)[k] = column_list_[k] < 0 ? 0.0 : whole[column_list_[k]];
    }
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
                                                  const Where& where,
                                                  const std::string& what) const {
  const auto unit = SplitUnit(parameter.mlp, where);
  if (!unit) return unit.error();
  return AxisIndices(axis, *unit, where, what);
}

Result<WeightRows> WeightStore::Rows(const Parameter& parameter, const Where& where,
                                     const Contract& contract, const TensorSource* shard) const {
  auto decoder = Open(parameter);
  if (!decoder) return decoder.error();
  WeightRows rows;
  if (parameter.expert >= 0 && where.rank != -1) {
    const auto held = HeldOf(parameter.expert, config_.experts, where, parameter.name);
    if (!held) return held.error();
    if (*held == Held::kAbsent) {
      return Error{fmt::format("{}: rank {} does not hold this expert", parameter.name, where.rank),
                   ErrorKind::kRefused};
    }
  }
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
      auto row_list = Indices(parameter, parameter.rows, where, parameter.name + ", axis n");
      if (!row_list) return row_list.error();
      auto column_list = Indices(parameter, parameter.columns, where, parameter.name + ", axis k");
      if (!column_list) return column_list.error();
      rows.whole_ = false;
      rows.rows_ = static_cast<int64_t>(row_list->size());
      rows.columns_ = static_cast<int64_t>(column_list->size());
      rows.row_list_ = std::move(*row_list);
      rows.column_list_ = std::move(*column_list);
      const bool padded = std::count(rows.column_list_.begin(), rows.column_list_.end(), -1) > 0;
      rows.contiguous_ =
          !padded && std::adjacent_find(rows.column_list_.begin(), rows.column_list_.end(),
                                        [](int64_t a, int64_t b) { return b != a + 1; }) ==
                         rows.column_list_.end();
    }
  }
  // A shard's scales that are NaN in a type that has one are what the rank computes with.
  const bool shown = !rows.views_.empty() && HasFloatingScales(*rows.decoder_);
  if (const Status values = rows.decoder_->CheckValues(); !values && !shown) return values.error();
  rows.dequant_ = contract.dequant;
  rows.daz_ = contract.daz;
  return rows;
}

Result<WeightRows> WeightStore::ShardRows(const Parameter& parameter, const Where& where,
                                          const Decoder& whole, const TensorSource& shard) const {
  WeightRows rows;
  ShardFinder finder;
  finder.name = parameter.name;
  for (const StoredPart& part : whole.parts()) {
    const std::string component = parameter.name + "." + part.suffix;
    const TensorView* view = shard.Find(component);
    if (view == nullptr) return Error{component + ": missing from the rank's shard"};
    const auto slice = LegalSlice({&parameter, part.suffix}, where, nullptr);
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
  }
  const auto local_rows = Indices(parameter, parameter.rows, where, parameter.name + ", axis n");
  if (!local_rows) return local_rows.error();
  const auto local_columns =
      Indices(parameter, parameter.columns, where, parameter.name + ", axis k");
  if (!local_columns) return local_columns.error();
  rows.rows_ = static_cast<int64_t>(local_rows->size());
  rows.columns_ = static_cast<int64_t>(local_columns->size());
  auto decoder = OpenDecoder(finder, SchemeOf(parameter), rows.rows_, rows.columns_, &whole);
  if (!decoder) return decoder.error();
  rows.decoder_ = std::move(*decoder);
  return rows;
}

Result<std::vector<double>> WeightStore::Vector(const Parameter& parameter, std::string_view suffix,
                                                const Where& where,
                                                const TensorSource* shard) const {
  const std::string component = fmt::format("{}.{}", parameter.name, suffix);
  if (shard != nullptr && shard->Find(component) != nullptr) {
    const TensorView* view = shard->Find(component);
    const auto mine = Indices(parameter, parameter.rows, where, parameter.name + ", axis n");
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
    view = bias->part.view;
  } else {
    const auto decoder = Open(parameter);
    if (!decoder) return decoder.error();
    view = (*decoder)->parts()[0].view;
  }
  std::vector<double> whole(static_cast<size_t>(parameter.rows.extent));
  DecodeFloats(*view, 0, parameter.rows.extent, whole.data());
  if (where.rank == -1) return whole;
  const auto mine = Indices(parameter, parameter.rows, where, parameter.name + ", axis n");
  if (!mine) return mine.error();
  std::vector<double> values;
  for (const int64_t n : *mine) values.push_back(n < 0 ? 0.0 : whole[static_cast<size_t>(n)]);
  return values;
}

}  // namespace assay::reference
