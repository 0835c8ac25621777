// How text becomes lines of a terminal; shared by what a cell and what a run says there.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "reports/terminal.h"

namespace assay::reports {

// Visible text in the characters that the terminal has.
std::string Shown(std::string_view text, const Style& style);

// Colours the verdict's word, which the text begins with.
std::string Painted(std::string text, Verdict verdict, const Style& style);

std::string Lines(const std::vector<std::string>& lines);

// "FAIL model … : …" on one line, its middle cut if need be: for the run's progress.
std::string BriefLine(const CellResult& cell, const Style& style);

}  // namespace assay::reports
