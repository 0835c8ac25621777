// Figures of a cell's ops along the data flow, as curves: per layer where there are several, else
// per op.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "harness/store/result.h"

namespace assay::reports {

// A series over the same places as its chart's; nullopt: not computed there.
struct Series {
  std::string name;
  std::vector<std::optional<double>> values;
};

struct Chart {
  std::string title;
  bool logarithmic = false;
  // What the axis spans, ascending; of a logarithmic one both are powers of ten. Values beyond it
  // (zero, infinity) stand at its edge.
  double low = 0, high = 1;
  std::optional<double> limit;  // a line not to be crossed
  std::string limit_name;
  std::vector<Series> series;

  // 0 at the bottom, 1 at the top; nullopt for NaN.
  std::optional<double> Height(double value) const;
};

struct Curves {
  bool layers = false;              // places are layers, not ops
  std::vector<std::string> places;  // "0", "1" … or taps, in data-flow order
  std::optional<size_t> culprit;    // the place of the first divergence
  std::vector<Chart> charts;        // error over tolerance, rel L2, cosine
};

// Empty charts: fewer than two places, for which a table says more.
Curves CurvesOf(const CellResult& cell);

}  // namespace assay::reports
