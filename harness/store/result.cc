#include "harness/store/result.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>

namespace assay {
namespace {

struct NamedVerdict {
  Verdict verdict;
  std::string_view name;
};
constexpr std::array<NamedVerdict, 7> kVerdicts = {{
    {Verdict::kPass, "PASS"},
    {Verdict::kFail, "FAIL"},
    {Verdict::kRefused, "REFUSED"},
    {Verdict::kMistrusted, "MISTRUSTED"},
    {Verdict::kSkipped, "SKIPPED"},
    {Verdict::kNotExecuted, "NOT_EXECUTED"},
    {Verdict::kInfra, "INFRA"},
}};

constexpr int kExitGood = 0;
constexpr int kExitFinding = 1;

}  // namespace

std::string_view NameOf(Verdict verdict) {
  for (const NamedVerdict& entry : kVerdicts) {
    if (entry.verdict == verdict) return entry.name;
  }
  return "?";  // not a value of the enumeration: a cast from outside
}

std::optional<Verdict> VerdictFromName(std::string_view name) {
  for (const NamedVerdict& entry : kVerdicts) {
    if (entry.name == name) return entry.verdict;
  }
  return std::nullopt;
}

std::string HashCells(std::vector<std::string> problems) {
  std::sort(problems.begin(), problems.end());
  std::string text;
  for (const std::string& problem : problems) text += problem + "\n";
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

void Totals::Add(Verdict verdict) {
  ++collected;
  switch (verdict) {
    case Verdict::kPass:
      ++pass, ++executed;
      break;
    case Verdict::kFail:
      ++fail, ++executed;
      break;
    case Verdict::kMistrusted:
      ++mistrusted, ++executed;
      break;
    case Verdict::kRefused:
      ++refused;
      break;
    case Verdict::kSkipped:
      ++skipped;
      break;
    case Verdict::kNotExecuted:
      ++not_executed;
      break;
    case Verdict::kInfra:
      ++infra;
      break;
  }
}

bool Totals::adds_up() const {
  return executed == pass + fail + mistrusted &&
         collected == executed + refused + skipped + not_executed + infra;
}

int ExitCode(const Totals& totals, bool requirement_unmet) {
  const bool finding = totals.fail > 0 || totals.mistrusted > 0 || totals.infra > 0;
  const bool lost_cells = !totals.adds_up() || !totals.all_collected();
  if (finding || lost_cells || requirement_unmet) return kExitFinding;
  // An expected refusal is an answer, so it counts as executed; without any answer the run proves
  // nothing, and that must not be green.
  if (totals.executed + totals.refused == 0) return kExitNothingExecuted;
  return kExitGood;
}

}  // namespace assay
