// What tells a cell from its neighbours, instead of whole canonical strings one below the other.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "harness/store/result.h"

namespace assay::reports {

// Keys of a problem string; "" is its kind.
using Keys = std::set<std::string, std::less<>>;

// Keys that one of the two lacks or gives another value.
Keys DifferingKeys(const CellResult& a, const CellResult& b);
// Keys in which any two of them differ.
Keys VaryingKeys(const std::vector<const CellResult*>& cells);

// "tp=8 tokens=16": what `cell` has otherwise than `from`, in the order of its problem string; "no
// layer" for a key that only `from` has. The label where nothing differs.
std::string Difference(const CellResult& cell, const CellResult& from);

struct ShortWord {
  std::string text;
  bool emphasised = false;  // its key is one of `varying`
};
// The words of the label and all of `varying`: "moe k2-mini tp=4 avx2 tokens=16".
std::vector<ShortWord> ShortForm(const CellResult& cell, const Keys& varying);

}  // namespace assay::reports
