// The heat map: TP × method × tier for each model and kind.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "harness/store/result.h"

namespace assay::reports {

// A square stands for all cells that share model, kind, method, tier and degree.
struct Square {
  std::array<int64_t, 7> counts{};  // by Verdict
  int64_t total = 0;
  const CellResult* worst = nullptr;  // the first of the worst verdict
  // "FAIL 1, PASS 6", worst first; only those that occur.
  std::string CountsText() const;
};

// A column: ranks, and the attention's own degree where it differs.
struct Degree {
  int64_t tp = 1, attn_tp = 1;
  friend auto operator<=>(const Degree&, const Degree&) = default;
  std::string Text() const;  // "TP 8", "TP 8, attn 1"
};

struct HeatRow {
  std::string kind, method, tier;
  std::map<Degree, Square> squares;
};

struct HeatMap {
  std::string model;
  std::vector<HeatRow> rows;    // by kind, method, tier, each in the run's order
  std::vector<Degree> degrees;  // columns, ascending
};

// One map for each model, in the run's order. A cell without a readable degree stands at TP 1.
std::vector<HeatMap> HeatMaps(const std::vector<CellResult>& cells);

}  // namespace assay::reports
