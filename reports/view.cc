#include "reports/view.h"

#include <fmt/format.h>

#include <algorithm>

#include "reports/text.h"

namespace assay::reports {
namespace {

// %20 and the like; a percent sign that encodes nothing stays.
std::string Decoded(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 &&
        digit(text[i + 2]) >= 0) {
      out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string TermText(const std::string& term) {
  static const std::map<std::string, std::string, std::less<>> kWords = {
      {"acc", "rounding of the sum, c·u·Σ|terms|"},
      {"out", "rounding of the output's type"},
      {"exp", "the exponential's own error"},
      {"function", "the function's own error"},
      {"wire", "rounding on the way between ranks"},
      {"propagated", "what the inputs' errors may become"},
      {"subnormal", "half the smallest subnormal"},
  };
  const auto word = kWords.find(term);
  return word == kWords.end() ? term : term + " (" + word->second + ")";
}

// What makes two findings the same mistake: everything but the rank and the element.
std::string GroupKey(const CellResult& cell) {
  std::string key = fmt::format("{}|", NameOf(cell.verdict));
  if (cell.divergences.empty()) return key + cell.reason;
  const Divergence& first = cell.divergences.front();
  return key + fmt::format("{}|{}|{}|{}|{}", View(cell.problem).Get("model"), first.tap,
                           first.tensor, first.cls, first.signature.id);
}

}  // namespace

std::string ProblemView::Get(std::string_view key, std::string_view fallback) const {
  const auto at = keys.find(key);
  return at == keys.end() ? std::string(fallback) : at->second;
}

ProblemView View(std::string_view problem) {
  ProblemView view;
  while (!problem.empty()) {
    const size_t space = problem.find(' ');
    const std::string_view word = problem.substr(0, space);
    problem.remove_prefix(space == std::string_view::npos ? problem.size() : space + 1);
    const size_t equals = word.find('=');
    if (equals != std::string_view::npos) {
      view.keys.emplace(word.substr(0, equals), Decoded(word.substr(equals + 1)));
    } else if (view.kind.empty()) {
      view.kind = word;
    }
  }
  return view;
}

std::string Label(const CellResult& cell) {
  const ProblemView view = View(cell.problem);
  const std::string tp = view.Get("tp", "1"), attn_tp = view.Get("attn_tp", tp);
  std::string out = fmt::format("{} {} tp={}", view.kind, view.Get("model", "?"), tp);
  if (attn_tp != tp) out += " attn_tp=" + attn_tp;
  if (const std::string tier = view.Get("tier"); !tier.empty()) out += " " + tier;
  const std::string fault = view.Get("fault", "none");
  if (fault != "none" && !fault.empty()) out += " fault=" + fault;
  return out;
}

std::string Culprit(const Divergence& divergence) {
  std::string out = !divergence.tap.empty() ? divergence.tap : divergence.tensor;
  if (divergence.rank && *divergence.rank >= 0 && !out.empty()) {
    out += fmt::format(" on rank {}", *divergence.rank);
  }
  for (const std::string& part : {divergence.cls, divergence.signature.text}) {
    if (!part.empty()) out += (out.empty() ? "" : ": ") + part;
  }
  return out;
}

std::string Finding(const CellResult& cell) {
  if (cell.divergences.empty()) return cell.reason.empty() ? "no reason was given" : cell.reason;
  const Divergence& first = cell.divergences.front();
  std::string out = !first.tap.empty()      ? "the first wrong op is "
                    : !first.tensor.empty() ? "the first wrong tensor is "
                                            : "";
  out += Culprit(first);
  if (first.signature.text.empty() && !cell.reason.empty()) out += ": " + cell.reason;
  return out;
}

std::string Sentence(const CellResult& cell) {
  return fmt::format("{} {}: {}", NameOf(cell.verdict), Label(cell), Finding(cell));
}

std::vector<std::pair<std::string, std::string>> Path(const Divergence& divergence) {
  std::vector<std::pair<std::string, std::string>> out;
  std::string op = divergence.tap.empty() ? divergence.op : divergence.tap;
  if (divergence.layer) {
    out.emplace_back("layer", std::to_string(*divergence.layer));
    const std::string prefix = fmt::format("L{}.", *divergence.layer);
    if (op.rfind(prefix, 0) == 0) op.erase(0, prefix.size());
  }
  if (!op.empty()) out.emplace_back("op", op);
  if (divergence.rank && *divergence.rank >= 0) {
    out.emplace_back("rank", std::to_string(*divergence.rank));
  }
  if (divergence.expert) out.emplace_back("expert", std::to_string(*divergence.expert));
  if (!divergence.index.empty()) {
    out.emplace_back(divergence.unit.empty() ? "element" : divergence.unit,
                     IndexText(divergence.index));
  }
  return out;
}

std::string ToleranceText(const ToleranceFacts& facts) {
  std::vector<std::string> terms;
  for (const std::string& term : facts.terms) terms.push_back(TermText(term));
  return fmt::format("c = {}, depth d = {}, u = {}; tolerance = {}", NumberText(facts.c),
                     NumberText(facts.depth), facts.u_acc,
                     terms.empty() ? "0" : Joined(terms, " + "));
}

std::vector<std::pair<std::string, std::string>> MetricTexts(const Metrics& metrics) {
  std::vector<std::pair<std::string, std::string>> out;
  const auto add = [&](const char* name, const std::optional<double>& value) {
    if (value) out.emplace_back(name, NumberText(value));
  };
  add("largest error / tolerance", metrics.max_ratio);
  add("cosine", metrics.cosine);
  add("rel L2", metrics.rel_l2);
  add("max abs error", metrics.max_abs);
  add("KL divergence", metrics.kld);
  add("its standard error", metrics.kld_stderr);
  add("top-1 agreement", metrics.top1);
  add("three-way ratio", metrics.three_way);
  add("condition of the worst element", metrics.condition);
  add("noise floor", metrics.noise_floor);
  if (metrics.ambiguous) {
    out.emplace_back("ambiguous decisions", std::to_string(*metrics.ambiguous));
  }
  return out;
}

bool IsRed(Verdict verdict) {
  return verdict == Verdict::kFail || verdict == Verdict::kMistrusted || verdict == Verdict::kInfra;
}

const std::vector<Verdict>& WorstFirst() {
  using enum Verdict;
  static const std::vector<Verdict> kOrder = {kFail,    kMistrusted, kInfra, kNotExecuted,
                                              kSkipped, kRefused,    kPass};
  return kOrder;
}

int Severity(Verdict verdict) {
  const auto& order = WorstFirst();
  return static_cast<int>(order.end() - std::find(order.begin(), order.end(), verdict));
}

int64_t CountOf(const Totals& totals, Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass:
      return totals.pass;
    case Verdict::kFail:
      return totals.fail;
    case Verdict::kRefused:
      return totals.refused;
    case Verdict::kMistrusted:
      return totals.mistrusted;
    case Verdict::kSkipped:
      return totals.skipped;
    case Verdict::kNotExecuted:
      return totals.not_executed;
    case Verdict::kInfra:
      return totals.infra;
  }
  return 0;
}

std::string Meaning(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass:
      return "computes what the checkpoint says";
    case Verdict::kFail:
      return "computes something else, or refuses what is legal";
    case Verdict::kRefused:
      return "illegal for this checkpoint, and refused with the right error";
    case Verdict::kMistrusted:
      return "passed, but on data that proves little";
    case Verdict::kSkipped:
      return "left out for an allow-listed reason";
    case Verdict::kNotExecuted:
      return "selected, but could not run on this machine";
    case Verdict::kInfra:
      return "timed out, killed from outside, out of memory, or a file was missing";
  }
  return "";
}

std::string Headline(const RunRecord& record) {
  const Totals totals = record.Count();
  std::vector<std::string> red;
  if (totals.fail > 0) red.push_back(fmt::format("{} failed", totals.fail));
  if (totals.mistrusted > 0) red.push_back(fmt::format("{} mistrusted", totals.mistrusted));
  if (totals.infra > 0) red.push_back(fmt::format("{} broken by the machine", totals.infra));
  std::string out;
  if (!red.empty()) {
    out = fmt::format("Of {}, {}", Counted(totals.collected, "cell"), Joined(red, ", "));
  } else if (totals.executed + totals.refused == 0) {
    out = "Nothing was executed";
  } else if (totals.executed == 0) {
    out = fmt::format("{} refused as expected, none executed", Counted(totals.refused, "cell"));
  } else {
    out = fmt::format("{} executed, no finding", Counted(totals.executed, "cell"));
  }
  if (!totals.all_collected()) {
    out += fmt::format("; {} of {} cells have no verdict", totals.registered - totals.collected,
                       totals.registered);
  }
  return record.finished() ? out : out + " (unfinished run)";
}

std::vector<std::string> TotalsLines(const Totals& t) {
  const auto sign = [](bool equal) { return equal ? "=" : "is not"; };
  const int64_t parts = t.executed + t.refused + t.skipped + t.not_executed + t.infra;
  const int64_t judged = t.pass + t.fail + t.mistrusted;
  return {
      fmt::format("registered {} {} collected {}", t.registered, sign(t.registered == t.collected),
                  t.collected),
      fmt::format("collected {} {} executed {} + refused {} + skipped {} + not executed {} + "
                  "infra {}",
                  t.collected, sign(t.collected == parts), t.executed, t.refused, t.skipped,
                  t.not_executed, t.infra),
      fmt::format("executed {} {} PASS {} + FAIL {} + MISTRUSTED {}", t.executed,
                  sign(t.executed == judged), t.pass, t.fail, t.mistrusted),
  };
}

std::vector<std::pair<std::string, std::string>> RunFacts(const RunRecord& record) {
  const RunHeader& header = record.header;
  std::vector<std::pair<std::string, std::string>> out;
  out.emplace_back("revision", header.revision + (header.dirty ? " + local changes" : ""));
  const auto add = [&](const std::string& what, const std::string& json) {
    for (const auto& [name, value] : FlattenJson(json)) {
      std::string title = name.empty() ? what : name == "name" ? what : name;
      std::replace(title.begin(), title.end(), '_', ' ');
      out.emplace_back(title == "revision" ? what + " " + title : title, value);
    }
  };
  add("machine", header.machine_json);
  add("engine", header.engines_json);
  out.emplace_back("selection", header.selection.empty() ? "everything" : header.selection);
  out.emplace_back("seed", std::to_string(header.seed));
  out.emplace_back("run", header.run_id);
  if (record.summary) out.emplace_back("took", DurationText(record.summary->seconds));
  if (!record.torn.empty()) out.emplace_back("torn last line", record.torn);
  return out;
}

std::vector<Group> GroupFindings(const RunRecord& record) {
  std::vector<Group> out;
  std::map<std::string, size_t> seen;
  for (const CellResult& cell : record.cells) {
    if (!IsRed(cell.verdict)) continue;
    const auto [at, is_new] = seen.emplace(GroupKey(cell), out.size());
    if (is_new) out.emplace_back();
    out[at->second].cells.push_back(&cell);
  }
  std::stable_sort(out.begin(), out.end(), [](const Group& a, const Group& b) {
    return Severity(a.cells.front()->verdict) > Severity(b.cells.front()->verdict);
  });
  return out;
}

std::vector<Reason> GroupByReason(const RunRecord& record, Verdict verdict) {
  std::vector<Reason> out;
  std::map<std::string, size_t> seen;
  for (const CellResult& cell : record.cells) {
    if (cell.verdict != verdict) continue;
    const std::string text = cell.reason.empty() ? "no reason was given" : cell.reason;
    const auto [at, is_new] = seen.emplace(text, out.size());
    if (is_new) out.push_back({text, {}});
    out[at->second].cells.push_back(&cell);
  }
  std::stable_sort(out.begin(), out.end(), [](const Reason& a, const Reason& b) {
    return a.cells.size() > b.cells.size();
  });
  return out;
}

}  // namespace assay::reports
