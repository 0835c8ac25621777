// The machine as results and doctor describe it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace assay::cli {

struct Machine {
  std::string cpu;
  int cores = 0;
  int64_t memory_bytes = 0;
  std::vector<std::string> flags;  // of /proc/cpuinfo
  bool HasAll(const std::vector<std::string>& wanted) const;
};

Machine ReadMachine();
std::string MachineJson(const Machine& machine, const std::vector<std::string>& tiers);

}  // namespace assay::cli
