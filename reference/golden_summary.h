// What large goldens store of the logits of every position instead of all of them: the eight
// largest, logsumexp, and sixteen projections on random signs.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>

#include "harness/units/status.h"
#include "reference/golden_file.h"
#include "reference/tensor.h"

namespace assay::reference {

// Names in the file, before ".PROMPT".
constexpr std::array<std::string_view, 4> kSummaryNames = {"top8_ids", "top8", "logsumexp",
                                                           "projections"};

// Of logits [T, V]: top8_ids and top8 [T, 8] (falling, the lowest id first among equals),
// logsumexp [T], projections [T, 16]: Σ_v ±logits[v], the sign minus where bit k of z(v) is set,
// z = splitmix64's output for the state v.
std::map<std::string, Tensor> Summarise(const Tensor& logits);

// All four are there, with these shapes. Error: names the one that is not.
Status CheckSummary(const GoldenTensors& summary, int64_t tokens, int64_t vocabulary);

// What two double-precision evaluations of a summary of the same logits may differ by: twice
// 2^-53·terms·Σ|terms|. logsumexp: (terms + roundings of exp and log)·2^-53·(1 + |value|). 0 for
// what is only chosen.
double SummaryRounding(const std::string& name, const Tensor& logits);

// The last position's logits, [1, V].
Tensor LastRow(const Tensor& logits);

}  // namespace assay::reference
