// The oracle's own chain of a cell and how far honest rounding may carry one from it.
#pragma once

#include <memory>
#include <string>

#include "harness/abi/child.h"
#include "harness/judge/floor.h"
#include "harness/judge/judge.h"
#include "harness/run/spec.h"

namespace assay::run {

// Multiply-adds that the chains of one cell's noise floor may cost together (judge/floor.h): some
// fifteen seconds of the oracle on two cores. The 59 runs that decide fit the whole chain of a
// shipped model (hidden sizes of some hundred) of a few dozen tokens. A fetched model of SmolLM2's
// size gets fewer: one token 59, its prompts t5 and t33 the five that are reported and decide
// nothing.
inline constexpr uint64_t kFloorBudget = 32'000'000'000;

struct Chain {
  reference::Trace trace;  // of the taps that are judged, experts' own left out
  judge::Floor floor;      // of layers and models; without runs, its derivation says why
  std::string why_not;     // what there should be and is not, and why; empty: nothing is missing
};

// The chain under the cell's contract. Where the engine's choice of experts was adopted because the
// margin is too small to tell, the chain takes that choice too. Kept in memory under everything
// that it depends on, so that cells of other degrees, tiers and engines share it. nullptr: the
// scope has no chain of its own (single ops, blocks whose inputs come in several steps). Where the
// oracle fails, `why_not` says so.
std::shared_ptr<const Chain> ChainOf(const CellSpec& spec, const abi::Outcome& outcome,
                                     const std::vector<judge::OpJudgement>& judgements);

// What a chain is kept under. Apart for tests: whatever it leaves out, two cells could share.
std::string KeyOfChain(const CellSpec& spec, const reference::RunRequest& request);

// Whether ranks must be evaluated one by one: some of them rounds, or quantises, what another one
// does not.
bool NeedsRanks(const CellSpec& spec);

}  // namespace assay::run
