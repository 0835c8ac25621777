// How far honest rounding may carry a whole chain from the reference (numerics.md §1.4): the noise
// floor, from oracle chains that are perturbed op by op, and what exceeds it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "harness/abi/contract.h"
#include "reference/oracle.h"

namespace assay::judge {

// Accumulated error decides beyond so many times the floor (numerics.md §1.4).
inline constexpr double kFloorFactor = 3;
// With 59 runs the largest of them is above the 95th percentile of honest chains with 95 %
// confidence (0.95^59 < 0.05): enough to decide. Fewer are reported only.
inline constexpr int kDecidingRuns = 59;
inline constexpr int kReportedRuns = 5;

struct FloorRequest {
  const reference::Oracle* oracle = nullptr;
  // The cell's chain: steps, layers, input, what is given (forced routing), wanted taps, degrees.
  // What routers choose is taken from the unperturbed chain where it is not given.
  reference::RunRequest base;
  Contract contract;  // as the cell's: act, order and wire set
  uint64_t seed = 1;
  // Multiply-adds that all chains together may cost. Decides how many there are; time never does.
  uint64_t budget_macs = 0;
};

struct Floor {
  int runs = 0;
  bool decides = false;  // runs == kDecidingRuns
  // Largest rel-L2 of (tap, step) against the unperturbed chain over all runs.
  std::map<std::pair<std::string, int>, double> rel_l2;
  std::string
      derivation;  // R, the multiply-adds of all chains, the budget, what was perturbed, the gate
};

// Multiply-adds of one chain, from the graph's extents alone: nothing is run.
Result<uint64_t> ChainMacs(const reference::Oracle& oracle, const reference::RunRequest& request);
// How many runs a budget allows: 59, 5 or 0. Two more chains are the reference and the magnitudes.
int RunsWithin(uint64_t chain_macs, uint64_t budget_macs);

// The same request gives the same floor, bit for bit. With no runs, derivation says why.
Result<Floor> NoiseFloor(const FloorRequest& request);

// A tap's accumulated error, rel-L2 of the engine's against the reference chain's.
struct Accumulated {
  std::string tap;
  int step = 0;
  double rel_l2 = 0;
};
struct BeyondFloor {
  std::string tap;
  int step = 0;
  double rel_l2 = 0, floor = 0;
};
// Those beyond kFloorFactor times their floor, in the order given; empty where the floor does not
// decide. A tap that the floor does not know is left out.
std::vector<BeyondFloor> JudgeAccumulated(const Floor& floor,
                                          const std::vector<Accumulated>& accumulated);

}  // namespace assay::judge
