#include "reports/curves.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace assay::reports {
namespace {

constexpr size_t kLayersForCurve = 3;  // fewer: the ops themselves are the places
constexpr size_t kPlacesAtMost = 400;  // more would be less than two pixels each
constexpr double kGate = 3;            // accumulated error over noise floor (numerics.md §4)

// The layer of "L12.moe.out@r1"; −1 where the tap has none.
int64_t LayerOf(std::string_view tap) {
  if (tap.empty() || tap[0] != 'L') return -1;
  int64_t layer = -1;
  const auto [end, error] = std::from_chars(tap.data() + 1, tap.data() + tap.size(), layer);
  const bool whole = error == std::errc() && end != tap.data() + tap.size() && *end == '.';
  return whole ? layer : -1;
}

std::string_view WithoutRank(std::string_view tap) { return tap.substr(0, tap.find("@r")); }

using Value = std::optional<double>;

// The worse of two; NaN is worst of all.
Value Worse(const Value& a, const Value& b, bool larger) {
  if (!a) return b;
  if (!b) return a;
  if (std::isnan(*a) || std::isnan(*b)) return std::numeric_limits<double>::quiet_NaN();
  return larger ? std::max(*a, *b) : std::min(*a, *b);
}

struct Place {
  std::string name, tap;  // tap: of its first op, with the rank
  Value local, rel_l2, cosine, accumulated, floor;
};

void Add(const OpRow& row, Place* place) {
  place->local = Worse(place->local, row.local, true);
  place->rel_l2 = Worse(place->rel_l2, row.rel_l2, true);
  place->cosine = Worse(place->cosine, row.cosine, false);
  // The layer's last op that has them: where the chain stands after the layer.
  if (row.accumulated) {
    place->accumulated = row.accumulated;
    place->floor = row.floor;
  }
}

std::vector<Place> PlacesOf(const std::vector<OpRow>& rows, bool layers) {
  std::vector<Place> places;
  int64_t before = std::numeric_limits<int64_t>::min();
  for (const OpRow& row : rows) {
    const int64_t layer = LayerOf(row.tap);
    if (layers && layer < 0) continue;
    if (!layers || layer != before) {
      places.emplace_back();
      places.back().tap = row.tap;
      places.back().name = layers ? std::to_string(layer) : std::string(WithoutRank(row.tap));
    }
    before = layer;
    Add(row, &places.back());
  }
  return places;
}

void SpanLogarithmic(Chart* chart) {
  double low = std::numeric_limits<double>::infinity(), high = 0;
  const auto include = [&](double value) {
    if (!std::isfinite(value) || value <= 0) return;
    low = std::min(low, value);
    high = std::max(high, value);
  };
  for (const Series& series : chart->series) {
    for (const Value& value : series.values) {
      if (value) include(*value);
    }
  }
  if (chart->limit) include(*chart->limit);
  if (high == 0) low = high = 1;
  // Roundings of zero would take most of the axis; what matters lies within twelve decades.
  constexpr double kDecades = 12;
  double bottom = std::floor(std::log10(low)), top = std::ceil(std::log10(high));
  if (top <= bottom) top = bottom + 1;
  bottom = std::max(bottom, top - kDecades);
  chart->low = std::pow(10.0, bottom);
  chart->high = std::pow(10.0, top);
}

void SpanCosine(Chart* chart) {
  double least = 1;
  for (const Value& value : chart->series[0].values) {
    if (value && std::isfinite(*value)) least = std::min(least, *value);
  }
  // At least a hundredth, so that rounding noise does not look like a cliff.
  chart->high = 1;
  chart->low = std::floor(std::min(least, 0.99) * 100) / 100;
}

bool Computed(const Series& series) {
  return std::any_of(series.values.begin(), series.values.end(),
                     [](const Value& value) { return value.has_value(); });
}

std::vector<Value> Each(const std::vector<Place>& places, Value Place::*member, double factor = 1) {
  std::vector<Value> out;
  for (const Place& place : places) {
    const Value& value = place.*member;
    out.push_back(value ? Value(*value * factor) : Value());
  }
  return out;
}

// The place of the first divergence; of an op that is there for several ranks, its own rank's.
std::optional<size_t> CulpritOf(const CellResult& cell, const std::vector<Place>& places,
                                bool layers) {
  if (cell.divergences.empty()) return std::nullopt;
  const Divergence& first = cell.divergences.front();
  const auto find = [&](const auto& is) -> std::optional<size_t> {
    const auto at = std::find_if(places.begin(), places.end(), is);
    if (at == places.end()) return std::nullopt;
    return static_cast<size_t>(at - places.begin());
  };
  if (layers) {
    const std::string layer = std::to_string(first.layer.value_or(LayerOf(first.tap)));
    return find([&](const Place& place) { return place.name == layer; });
  }
  const std::string own = first.tap + "@r" + std::to_string(first.rank.value_or(0));
  const auto exact = find([&](const Place& place) { return place.tap == own; });
  return exact ? exact : find([&](const Place& place) { return place.name == first.tap; });
}

}  // namespace

std::optional<double> Chart::Height(double value) const {
  if (std::isnan(value)) return std::nullopt;
  double share = 0;
  if (!logarithmic) {
    share = (value - low) / (high - low);
  } else if (value > 0) {
    share = std::log(value / low) / std::log(high / low);
  }
  return std::clamp(share, 0.0, 1.0);
}

Curves CurvesOf(const CellResult& cell) {
  Curves curves;
  std::vector<int64_t> layers;
  for (const OpRow& row : cell.ops) {
    const int64_t layer = LayerOf(row.tap);
    if (layer >= 0 && (layers.empty() || layers.back() != layer)) layers.push_back(layer);
  }
  std::sort(layers.begin(), layers.end());
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  curves.layers = layers.size() >= kLayersForCurve;
  const std::vector<Place> places = PlacesOf(cell.ops, curves.layers);
  if (places.size() < 2 || places.size() > kPlacesAtMost) return curves;
  for (const Place& place : places) curves.places.push_back(place.name);
  curves.culprit = CulpritOf(cell, places, curves.layers);

  Chart ratio;
  ratio.title = "error / tolerance";
  ratio.logarithmic = true;
  ratio.limit = 1;
  ratio.limit_name = "tolerance";
  ratio.series = {
      {curves.layers ? "worst op of the layer" : "each op", Each(places, &Place::local)}};
  Chart rel;
  rel.title = "relative L2";
  rel.logarithmic = true;
  rel.series = {{"local", Each(places, &Place::rel_l2)},
                {"accumulated", Each(places, &Place::accumulated)},
                {"3 × noise floor", Each(places, &Place::floor, kGate)}};
  Chart cosine;
  cosine.title = "cosine";
  cosine.series = {
      {curves.layers ? "worst op of the layer" : "each op", Each(places, &Place::cosine)}};
  for (Chart* chart : {&ratio, &rel, &cosine}) {
    chart->series.erase(std::remove_if(chart->series.begin(), chart->series.end(),
                                       [](const Series& s) { return !Computed(s); }),
                        chart->series.end());
    if (chart->series.empty()) continue;
    chart->logarithmic ? SpanLogarithmic(chart) : SpanCosine(chart);
    curves.charts.push_back(std::move(*chart));
  }
  return curves;
}

}  // namespace assay::reports
