#include "reports/view.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

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

// What makes two findings the same mistake: everything but the rank and the element.
std::string GroupKey(const CellResult& cell) {
  std::string key = fmt::format("{}|", NameOf(cell.verdict));
  if (cell.divergences.empty()) return key + cell.reason;
  const Divergence& first = cell.divergences.front();
  return key + fmt::format("{}|{}|{}|{}|{}", View(cell.problem).Get("model"), first.tap,
                           first.tensor, first.cls, first.signature.id);
}

// Tensors have dotted names; a key of config.json or of the problem has none.
bool IsConfigKey(const Divergence& divergence) {
  return divergence.cls == "loader" && divergence.tensor.find('.') == std::string::npos;
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
      const std::string key(word.substr(0, equals));
      if (view.keys.emplace(key, Decoded(word.substr(equals + 1))).second) {
        view.order.push_back(key);
      }
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
  if (cell.executed && cell.executed->how.starts_with("emulated")) out += " emulated";
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
  std::string out = !first.tap.empty()     ? "the first wrong op is "
                    : first.tensor.empty() ? ""
                    : IsConfigKey(first)   ? "the first finding is about "
                                           : "the first wrong tensor is ";
  out += Culprit(first);
  if (first.signature.text.empty() && !cell.reason.empty()) out += ": " + cell.reason;
  return out;
}

std::string CellText(const CellResult& cell) {
  std::string out = Label(cell);
  if (IsRed(cell.verdict) || !cell.executed || !cell.reason.empty()) out += ": " + Finding(cell);
  return out;
}

std::string FurtherReason(const CellResult& cell) {
  if (cell.divergences.empty()) return "";  // it is the finding
  // The harness writes what is nowhere in particular as ": loader: …", and all ranks as rank -1.
  std::string told = cell.reason;
  if (told.rfind(": ", 0) == 0) told.erase(0, 2);
  constexpr std::string_view kAllRanks = " on rank -1";
  if (const size_t at = told.find(kAllRanks); at != std::string::npos) {
    told.erase(at, kAllRanks.size());
  }
  const std::string& evidence = cell.divergences.front().signature.evidence;
  if (told == evidence || Finding(cell).find(told) != std::string::npos) return "";
  // What an engine said stands behind the reason and is the evidence too.
  if (!evidence.empty() && told.ends_with(": " + evidence)) {
    return told.substr(0, told.size() - evidence.size() - 2);
  }
  return cell.reason;
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
  if (divergence.step.value_or(0) > 0) {
    out.emplace_back("decode", std::to_string(*divergence.step));  // the prefill needs no word
  }
  if (!divergence.index.empty()) {
    out.emplace_back(divergence.unit.empty() ? "element" : divergence.unit,
                     IndexText(divergence.index));
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
      return "selected, but not run: no such tier, kernel or model here";
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
  if (!record.complaints.empty()) {
    out += "; " + Counted(static_cast<int64_t>(record.complaints.size()), "demand") + " not met";
  }
  return record.finished() ? out : out + " (unfinished run)";
}

std::vector<std::vector<std::string>> TotalsWords(const Totals& t) {
  using Parts = std::vector<std::pair<const char*, int64_t>>;
  const auto equation = [](const char* name, int64_t sum, const Parts& parts) {
    int64_t added = 0;
    for (const auto& [part, count] : parts) added += count;
    std::vector<std::string> words = {fmt::format("{} {}", name, sum)};
    const char* sign = added == sum ? "=" : "is not";
    for (const auto& [part, count] : parts) {
      words.emplace_back(std::exchange(sign, "+"));
      words.push_back(fmt::format("{} {}", part, count));
    }
    return words;
  };
  return {
      equation("registered", t.registered, {{"collected", t.collected}}),
      equation("collected", t.collected,
               {{"executed", t.executed},
                {"refused", t.refused},
                {"skipped", t.skipped},
                {"not executed", t.not_executed},
                {"infra", t.infra}}),
      equation("executed", t.executed,
               {{"PASS", t.pass}, {"FAIL", t.fail}, {"MISTRUSTED", t.mistrusted}}),
  };
}

std::vector<std::string> TotalsLines(const Totals& totals) {
  std::vector<std::string> out;
  for (const std::vector<std::string>& words : TotalsWords(totals)) {
    out.push_back(Joined(words, " "));
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> RunFacts(const RunRecord& record) {
  const RunHeader& header = record.header;
  std::vector<std::pair<std::string, std::string>> out;
  out.emplace_back("revision", header.revision + (header.dirty ? " + local changes" : ""));
  const auto add = [&](const std::string& what, const std::string& json) {
    for (const auto& [name, value] : FlattenJson(json)) {
      std::string title = name.empty() ? what : name == "name" ? what : name;
      std::replace(title.begin(), title.end(), '_', ' ');
      if (title == "memory bytes") {
        out.emplace_back("memory", BytesText(value));
      } else {
        out.emplace_back(title == "revision" ? what + " " + title : title, value);
      }
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
