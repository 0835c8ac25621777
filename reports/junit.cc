#include "reports/junit.h"

#include <fmt/format.h>

#include "reports/text.h"
#include "reports/view.h"

namespace assay::reports {
namespace {

constexpr size_t kOutputShown = 65536;

std::string Details(const CellResult& cell) {
  std::string out;
  for (const Divergence& divergence : cell.divergences) {
    out += Culprit(divergence) + "\n";
    for (const auto& [name, value] : Path(divergence)) out += "  " + name + " " + value + "\n";
    const auto [expected, got] = ValueTexts(divergence.expected, divergence.got);
    if (divergence.expected || divergence.got) {
      out += fmt::format("  expected {}, got {}\n", expected, got);
    }
    if (!divergence.signature.evidence.empty()) {
      out += fmt::format("  {}: {}\n", divergence.signature.id, divergence.signature.evidence);
    }
  }
  if (!cell.repro.empty()) out += cell.repro + "\n";
  return Escaped(out, /*lines=*/true);
}

std::string Outcome(const CellResult& cell) {
  const auto element = [&](const char* name) {
    const std::string type =
        cell.divergences.empty() || cell.divergences.front().cls.empty()
            ? std::string(NameOf(cell.verdict))
            : fmt::format("{} {}", NameOf(cell.verdict), cell.divergences.front().cls);
    return fmt::format("      <{} type=\"{}\" message=\"{}\">{}</{}>\n", name, Escaped(type),
                       Escaped(Sentence(cell)), Details(cell), name);
  };
  switch (cell.verdict) {
    case Verdict::kFail:
    case Verdict::kMistrusted:
      return element("failure");
    case Verdict::kInfra:
      return element("error");
    case Verdict::kSkipped:
    case Verdict::kNotExecuted:
      return fmt::format("      <skipped message=\"{}: {}\"/>\n", NameOf(cell.verdict),
                         Escaped(cell.reason));
    case Verdict::kPass:
    case Verdict::kRefused:
      break;
  }
  return "";
}

std::string Case(const CellResult& cell) {
  const ProblemView view = View(cell.problem);
  std::string out = fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"{:.6f}\">\n",
                                Escaped(view.kind + "." + view.Get("model", "none")),
                                Escaped(cell.problem), cell.ms / 1000);
  out += Outcome(cell);
  std::string printed;
  if (cell.verdict == Verdict::kRefused) printed = "REFUSED, as expected: " + cell.reason + "\n";
  printed += cell.engine_output.substr(0, kOutputShown);
  if (!printed.empty()) {
    out += fmt::format("      <system-out>{}</system-out>\n", Escaped(printed, /*lines=*/true));
  }
  return out + "    </testcase>\n";
}

}  // namespace

std::string RenderJUnit(const RunRecord& record) {
  const Totals totals = record.Count();
  const auto complaints = static_cast<int64_t>(record.complaints.size());
  double seconds = 0;
  for (const CellResult& cell : record.cells) seconds += cell.ms / 1000;
  const std::string counts =
      fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.6f}\"",
                  totals.collected + complaints, totals.fail + totals.mistrusted + complaints,
                  totals.infra, totals.skipped + totals.not_executed, seconds);
  std::string out = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"assay\" {}>\n"
      "  <testsuite name=\"assay\" {}>\n    <properties>\n",
      counts, counts);
  for (const auto& [name, value] : RunFacts(record)) {
    out +=
        fmt::format("      <property name=\"{}\" value=\"{}\"/>\n", Escaped(name), Escaped(value));
  }
  out += "    </properties>\n";
  for (const CellResult& cell : record.cells) out += Case(cell);
  for (const std::string& line : record.complaints) {
    out += fmt::format(
        "    <testcase classname=\"run\" name=\"demand: {0}\" time=\"0\">\n      <failure "
        "message=\"{0}\"/>\n    </testcase>\n",
        Escaped(line));
  }
  return out + "  </testsuite>\n</testsuites>\n";
}

}  // namespace assay::reports
