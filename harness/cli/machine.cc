#include "harness/cli/machine.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

namespace assay::cli {

bool Machine::HasAll(const std::vector<std::string>& wanted) const {
  return std::all_of(wanted.begin(), wanted.end(), [this](const std::string& flag) {
    return std::find(flags.begin(), flags.end(), flag) != flags.end();
  });
}

Machine ReadMachine() {
  Machine machine;
  machine.cores = static_cast<int>(std::thread::hardware_concurrency());
  machine.memory_bytes =
      static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(sysconf(_SC_PAGESIZE));
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || colon + 2 > line.size()) continue;
    const std::string value = line.substr(colon + 2);
    if (line.starts_with("model name") && machine.cpu.empty()) machine.cpu = value;
    if (line.starts_with("flags") && machine.flags.empty()) {
      std::istringstream words(value);
      for (std::string word; words >> word;) machine.flags.push_back(word);
    }
  }
  return machine;
}

std::string MachineJson(const Machine& machine, const std::vector<std::string>& tiers) {
  nlohmann::ordered_json json;
  json["cpu"] = machine.cpu;
  json["cores"] = machine.cores;
  json["memory_bytes"] = machine.memory_bytes;
  json["tiers"] = tiers;
  return json.dump();
}

}  // namespace assay::cli
