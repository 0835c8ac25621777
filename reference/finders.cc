#include "reference/finders.h"

#include <fmt/format.h>

#include <cstring>

namespace assay::reference {

Grid WholeGrid(const TensorView& view) {
  Grid grid{&view, 1, 1, 0, 1, 1};
  if (!view.shape.empty()) grid.rows = view.shape[0];
  for (size_t i = 1; i < view.shape.size(); ++i) grid.columns *= view.shape[i];
  grid.row_step = grid.columns;
  return grid;
}

const TensorView* ParameterFinder::FusedTensor(std::string_view suffix) const {
  const std::string& stem = parameter_.fused.stem;
  if (suffix == "weight") {
    if (const TensorView* view = source_.Find(stem); view != nullptr) return view;
  }
  for (const char* joint : {"_", "."}) {
    if (const TensorView* view = source_.Find(fmt::format("{}{}{}", stem, joint, suffix));
        view != nullptr) {
      return view;
    }
  }
  return nullptr;
}

// Of [E, rows, ...] one expert's rows; the tensor `stem` itself may be [E, columns, rows].
std::optional<Grid> ParameterFinder::LocateFused(const TensorView& whole) const {
  const Fused& fused = parameter_.fused;
  const bool transposed = fused.transposed && whole.name == fused.stem;
  const std::vector<int64_t>& shape = whole.shape;
  if (shape.size() < 2 || shape[0] != fused.experts || (transposed && shape.size() != 3)) {
    problem_ = fmt::format("{}: {}, must begin with {} experts", whole.name, PrintShape(shape),
                           fused.experts);
    return std::nullopt;
  }
  int64_t rest = 1;
  for (size_t i = 2; i < shape.size(); ++i) rest *= shape[i];
  Grid grid{&whole, shape[1], rest, fused.expert * shape[1] * rest, rest, 1};
  if (transposed) {
    grid.rows = rest;
    grid.columns = shape[1];
    grid.row_step = 1;
    grid.column_step = rest;
  }
  if (fused.half < 0) return grid;
  if (grid.rows % 2 != 0) {
    problem_ = fmt::format("{}: {}, the {} rows of gate and up are not two halves", whole.name,
                           PrintShape(shape), grid.rows);
    return std::nullopt;
  }
  grid.rows /= 2;
  if (fused.interleaved) {
    grid.first += fused.half * grid.row_step;
    grid.row_step *= 2;
  } else {
    grid.first += fused.half * grid.rows * grid.row_step;
  }
  return grid;
}

std::optional<Grid> ParameterFinder::Locate(std::string_view suffix) const {
  if (!parameter_.fused.stem.empty()) {
    const TensorView* whole = FusedTensor(suffix);
    return whole == nullptr ? std::nullopt : LocateFused(*whole);
  }
  const TensorView* view = source_.Find(fmt::format("{}.{}", parameter_.source, suffix));
  if (view == nullptr) return std::nullopt;
  Grid grid = WholeGrid(*view);
  if (parameter_.flat && view->shape.size() > 1) {
    grid.row_step = view->shape.back();
    grid.rows = grid.row_step > 0 ? grid.rows * grid.columns / grid.row_step : 0;
    grid.columns = grid.row_step;
  }
  return grid;
}

const TensorView* ParameterFinder::View(std::string_view suffix, const Grid& grid) const {
  auto sub = std::make_unique<Sub>();
  TensorView& view = sub->view;
  view.name = grid.whole->name;
  view.dtype = grid.whole->dtype;
  view.file = grid.whole->file;
  view.shape = {grid.rows};
  if (grid.whole->shape.size() > 2) view.shape.push_back(grid.columns);
  const auto size = static_cast<size_t>(SizeOf(view.dtype).count());
  const auto values = static_cast<size_t>(grid.rows * grid.columns);
  if (grid.column_step == 1 && grid.row_step == grid.columns) {
    view.bytes = grid.whole->bytes.subspan(static_cast<size_t>(grid.first) * size, values * size);
  } else if (!headers_) {
    sub->bytes.resize(values * size);
    std::byte* to = sub->bytes.data();
    for (int64_t r = 0; r < grid.rows; ++r) {
      for (int64_t c = 0; c < grid.columns; ++c, to += size) {
        const int64_t at = grid.first + r * grid.row_step + c * grid.column_step;
        std::memcpy(to, grid.whole->bytes.data() + static_cast<size_t>(at) * size, size);
      }
    }
    view.bytes = sub->bytes;
  }
  return &subs_.emplace(suffix, std::move(sub)).first->second->view;
}

const TensorView* ParameterFinder::Find(std::string_view suffix) const {
  if (headers_ && suffix == "weight_shape") return nullptr;
  if (parameter_.fused.stem.empty() && !parameter_.flat) {
    return source_.Find(fmt::format("{}.{}", parameter_.source, suffix));
  }
  if (const auto found = subs_.find(suffix); found != subs_.end()) return &found->second->view;
  const auto grid = Locate(suffix);
  return grid ? View(suffix, *grid) : nullptr;
}

}  // namespace assay::reference
