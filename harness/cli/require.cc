#include "harness/cli/require.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "harness/run/matrix.h"

namespace assay::cli {
namespace {

constexpr std::string_view kHardware = "hardware";

bool Asks(const run::Problem& problem, const Requirement& requirement) {
  return std::all_of(requirement.begin(), requirement.end(), [&](const auto& item) {
    if (item.first == "how") return true;
    const std::string value = run::ValueOf(problem, item.first);
    const bool prefix = item.first == "tier" || item.first == "method";
    return prefix ? value.starts_with(item.second) : value == item.second;
  });
}

bool IsExecuted(const CellResult& cell) {
  return cell.verdict == Verdict::kPass || cell.verdict == Verdict::kFail ||
         cell.verdict == Verdict::kMistrusted;
}

bool Meets(const CellResult& cell, const Requirement& requirement) {
  if (!IsExecuted(cell) || !cell.executed) return false;
  const auto tier = requirement.find("tier");
  if (tier != requirement.end() && !cell.executed->tier.starts_with(tier->second)) return false;
  const auto how = requirement.find("how");
  const std::string wanted = how != requirement.end()    ? how->second
                             : tier != requirement.end() ? std::string(kHardware)
                                                         : "";
  // Whoever takes a tier emulated takes its hardware.
  const bool better =
      tier != requirement.end() && wanted == "emulated" && cell.executed->how == kHardware;
  return better || cell.executed->how.starts_with(wanted);
}

std::string Text(const Requirement& requirement) {
  std::string text;
  for (const auto& [key, value] : requirement) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", key, value);
  }
  return text;
}

}  // namespace

Result<Requirement> ParseRequirement(std::string_view text) {
  Requirement requirement;
  std::stringstream items{std::string(text)};
  for (std::string item; std::getline(items, item, ',');) {
    const size_t equals = item.find('=');
    const std::string key = item.substr(0, equals);
    const bool known = key == "how" || key == "kind" ||
                       std::any_of(run::Keys().begin(), run::Keys().end(),
                                   [&](const run::KeyInfo& info) { return info.name == key; });
    if (equals == std::string::npos || equals + 1 == item.size() || !known) {
      return Error{
          fmt::format("--require {}: allowed is K=V with a key of the problem string, kind "
                      "or how",
                      text)};
    }
    if (!requirement.emplace(key, item.substr(equals + 1)).second) {
      return Error{fmt::format("--require {}: {} is given twice", text, key)};
    }
  }
  if (requirement.empty()) return Error{"--require: nothing is required"};
  return requirement;
}

std::vector<std::string> Unmet(const std::vector<Requirement>& requirements,
                               const std::vector<CellResult>& cells) {
  std::vector<std::string> lines;
  for (const Requirement& requirement : requirements) {
    int64_t asked = 0, met = 0, refused = 0;
    for (const CellResult& cell : cells) {
      auto problem = run::ParseProblem(cell.problem);
      if (!problem || !Asks(*problem, requirement)) continue;
      ++asked;
      met += Meets(cell, requirement) ? 1 : 0;
      refused += cell.verdict == Verdict::kRefused ? 1 : 0;
    }
    if (met == 0) {
      lines.push_back(fmt::format("required {}: no cell was executed so ({} asked for it)",
                                  Text(requirement), asked));
    } else if (met + refused < asked) {
      lines.push_back(
          fmt::format("required {}: {} of {} cells that asked for it were not executed so",
                      Text(requirement), asked - met - refused, asked));
    }
  }
  return lines;
}

}  // namespace assay::cli
