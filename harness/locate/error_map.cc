// Small pictures of an error.
#include <algorithm>
#include <cmath>

#include "harness/locate/internal.h"

namespace assay::locate {
namespace {

constexpr int64_t kMostRows = 32, kMostColumns = 64;

// Cells for an extent: as many as there are units, or as few units a cell as will do.
int64_t UnitsACell(int64_t units, int64_t most) { return (units + most - 1) / most; }

ErrorMap Empty(int64_t rows, int64_t columns, std::string row_unit, std::string column_unit,
               std::string value) {
  ErrorMap map;
  map.rows_a_cell = std::max<int64_t>(UnitsACell(rows, kMostRows), 1);
  map.columns_a_cell = std::max<int64_t>(UnitsACell(columns, kMostColumns), 1);
  map.rows = (rows + map.rows_a_cell - 1) / map.rows_a_cell;
  map.columns = (columns + map.columns_a_cell - 1) / map.columns_a_cell;
  map.row_unit = std::move(row_unit);
  map.column_unit = std::move(column_unit);
  map.value = std::move(value);
  map.cells.assign(static_cast<size_t>(map.rows * map.columns), 0.0);
  return map;
}

size_t CellOf(const ErrorMap& map, int64_t row, int64_t column) {
  return static_cast<size_t>(row / map.rows_a_cell * map.columns + column / map.columns_a_cell);
}

double RatioOf(double y, double k, double bound) {
  if (y == k || (std::isnan(y) && std::isnan(k))) return 0;
  if (!std::isfinite(y) || !std::isfinite(k)) return INFINITY;
  const double error = std::abs(k - y);
  return bound > 0 ? error / bound : INFINITY;
}

}  // namespace

std::optional<ErrorMap> MapOf(const judge::OpJudgement& j) {
  const bool drawn = j.oracle.shape.size() > 1 && j.oracle.shape == j.kernel.shape &&
                     !j.oracle.data.empty() && j.tolerance.bound.size() == j.oracle.data.size() &&
                     j.oracle.data.size() == j.kernel.data.size();
  if (!drawn) return std::nullopt;
  const int64_t columns = j.oracle.columns();
  const bool groups = j.node->tap.ends_with(".x_scale");
  ErrorMap map = Empty(j.oracle.rows(), columns, j.node->expert >= 0 ? "row" : "token",
                       groups ? "group" : "column", "ratio");
  for (int64_t i = 0; i < static_cast<int64_t>(j.oracle.data.size()); ++i) {
    double& cell = map.cells[CellOf(map, i / columns, i % columns)];
    cell = std::max(cell, RatioOf(j.oracle.data[i], j.kernel.data[i], j.tolerance.bound[i]));
  }
  return map;
}

std::optional<ErrorMap> MapOf(const ShardCase& wrong) {
  const Values &want = wrong.want, &got = wrong.got;
  if (want.rows == 0 || want.columns == 0 || want.bits.size() != got.bits.size()) {
    return std::nullopt;
  }
  const std::string& unit = wrong.expected->unit;
  // Words of one group are one column: the parameter's scales say how many groups there are.
  int64_t groups = wrong.columns();
  std::string name = unit == "group" || unit == "block" ? "group" : unit;
  if (SuffixOf(wrong.component) == ".weight") {
    auto scale = wrong.oracle->ExpectedSlice(ParameterOf(wrong.component) + ".scale", wrong.where);
    const auto count = scale.ok() ? static_cast<int64_t>(scale->columns.size()) : 0;
    if (count > 0 && want.columns % count == 0) {
      groups = count;
      name = "group";
    }
  }
  if (name == "element") name = "column";
  const int64_t each = want.columns / groups;
  ErrorMap map = Empty(want.rows, groups, "row", name, "wrong");
  std::vector<int64_t> total(map.cells.size(), 0);
  for (int64_t i = 0; i < want.rows * want.columns; ++i) {
    const size_t cell = CellOf(map, i / want.columns, i % want.columns / each);
    ++total[cell];
    map.cells[cell] += want.bits[i] != got.bits[i];
  }
  for (size_t i = 0; i < total.size(); ++i) {
    if (total[i] > 0) map.cells[i] /= static_cast<double>(total[i]);
  }
  return map;
}

}  // namespace assay::locate
