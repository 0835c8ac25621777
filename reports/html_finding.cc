#include <fmt/format.h>

#include <algorithm>

#include "reports/html_parts.h"
#include "reports/text.h"

namespace assay::reports {
namespace {

constexpr size_t kOpsUnfolded = 16;      // longer tables are folded
constexpr size_t kOpsShown = 2000;       // the rest is in the JSON lines
constexpr size_t kPropagatedShown = 12;  // taps named before "and n more"
constexpr size_t kOutputShown = 8192;    // bytes of what the engine printed

std::string Row(std::string_view name, const std::string& value_html) {
  return fmt::format("<dt>{}</dt><dd>{}</dd>\n", Escaped(name), value_html);
}

std::string Code(std::string_view text) { return "<code>" + Escaped(text) + "</code>"; }

std::string Codes(const std::vector<std::string>& names, size_t shown) {
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), shown); ++i) {
    out += (i > 0 ? ", " : "") + Code(names[i]);
  }
  if (names.size() > shown) out += fmt::format(" and {} more", names.size() - shown);
  return out;
}

std::string PathList(const Divergence& divergence) {
  const auto steps = Path(divergence);
  if (steps.empty()) return "";
  std::string out = "<ol class=\"path\" aria-label=\"path, from coarse to fine\">";
  for (const auto& [name, value] : steps) {
    out += fmt::format("<li><span>{} <b>{}</b></span></li>", Escaped(name), Escaped(value));
  }
  return out + "</ol>\n";
}

std::string Values(const Divergence& divergence) {
  if (!divergence.expected && !divergence.got) return "";
  const auto [expected, got] = ValueTexts(divergence.expected, divergence.got);
  const auto box = [&](const char* name, const std::string& value, size_t bits) {
    std::string out = fmt::format("<div><span>{}</span><strong>{}</strong>", name, Escaped(value));
    if (divergence.bits.size() == 2) {
      out += fmt::format("<small>bits <code>{}</code></small>", Escaped(divergence.bits[bits]));
    }
    return out + "</div>";
  };
  return "<div class=\"pair\">" + box("expected", expected, 0) + box("got", got, 1) + "</div>\n";
}

std::string Facts(const Divergence& divergence) {
  std::string out;
  if (!divergence.tensor.empty()) out += Row("tensor", Code(divergence.tensor));
  if (!divergence.local_index.empty()) {
    out += Row("in the rank's shard", Code(IndexText(divergence.local_index)));
  }
  const Signature& signature = divergence.signature;
  if (!signature.id.empty()) {
    std::string text = Code(signature.id);
    if (!signature.text.empty()) text += " " + Escaped(signature.text);
    if (!signature.evidence.empty()) {
      text += fmt::format("<br><span class=\"soft\">{}</span>", Escaped(signature.evidence));
    }
    out += Row("signature", text);
  }
  if (!divergence.cleared.empty()) {
    out += Row("cleared by substitution", Escaped(Joined(divergence.cleared, ", ")));
  }
  if (!divergence.propagated.empty()) {
    out += Row("propagated to", Codes(divergence.propagated, kPropagatedShown));
  }
  return out;
}

// Lines may break between the parts of a list, not inside a kernel's name.
std::string Parts(const std::vector<std::string>& parts) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    const char* comma = i + 1 < parts.size() ? "," : "";
    out += fmt::format("{}<span class=\"part\">{}{}</span>", i > 0 ? " " : "", Escaped(parts[i]),
                       comma);
  }
  return out;
}

std::string ExecutedHtml(const Executed& e) {
  std::vector<std::string> parts;
  std::string_view kernels = e.kernel;  // of several ops, with commas between
  for (size_t comma = 0; comma != std::string_view::npos;) {
    comma = kernels.find(',');
    parts.emplace_back(kernels.substr(0, comma));
    if (comma != std::string_view::npos) kernels.remove_prefix(comma + 1);
  }
  parts.push_back(fmt::format("tier {} ({})", e.tier, e.how));
  parts.push_back("layout " + e.layout);
  parts.push_back(e.act);
  parts.push_back(fmt::format("TP {}", e.tp));
  parts.push_back(Counted(e.threads, "thread"));
  parts.push_back("engine " + e.engine);
  if (!e.ranks_differ.empty()) parts.push_back("but not on ranks " + IndexText(e.ranks_differ));
  return Parts(parts);
}

std::string CellFacts(const CellResult& cell) {
  std::string out;
  if (const std::string reason = FurtherReason(cell); !reason.empty()) {
    out += Row("reason", Escaped(reason));
  }
  if (!cell.mode.empty()) out += Row("comparison", Escaped(cell.mode));
  std::string metrics;
  for (const std::string& line : MetricLines(cell)) {
    metrics += (metrics.empty() ? "" : "<br>") + Escaped(line);
  }
  if (!metrics.empty()) out += Row("metrics", metrics);
  if (const std::string tolerance = ToleranceLine(cell); !tolerance.empty()) {
    out += Row("tolerance", Escaped(tolerance));
  }
  out += Row("executed", cell.executed ? ExecutedHtml(*cell.executed) : "nothing");
  if (cell.attempts > 1) out += Row("attempts", std::to_string(cell.attempts));
  if (!cell.model_hash.empty()) out += Row("model", Code(cell.model_hash));
  return out;
}

// The row of the first divergence; the number of rows if there is none. A tap of which only another
// rank's row was kept is that row.
size_t FirstWrong(const CellResult& cell) {
  if (cell.divergences.empty() || cell.divergences.front().tap.empty()) return cell.ops.size();
  const Divergence& first = cell.divergences.front();
  const std::string own = first.rank ? fmt::format("{}@r{}", first.tap, *first.rank) : first.tap;
  const std::string any = first.tap + "@r";
  const auto find = [&](const auto& is) {
    const auto at = std::find_if(cell.ops.begin(), cell.ops.end(),
                                 [&](const OpRow& row) { return is(row.tap); });
    return static_cast<size_t>(at - cell.ops.begin());
  };
  const size_t exact = find([&](const std::string& tap) { return tap == own; });
  if (exact < cell.ops.size()) return exact;
  return find([&](const std::string& tap) { return tap == first.tap || tap.starts_with(any); });
}

// Narrow screens have no head above the column: the cell brings its name along.
std::string NumberCell(const char* name, const std::string& text) {
  return fmt::format("<td class=\"num\" data-name=\"{}\">{}</td>", name, text);
}

std::string OpTable(const CellResult& cell) {
  if (cell.ops.empty()) return "";
  const auto beyond = [](const OpRow& row) { return row.local && !(*row.local <= 1); };
  const bool steps =
      std::any_of(cell.ops.begin(), cell.ops.end(), [](const OpRow& row) { return row.step != 0; });
  const bool floors = std::any_of(cell.ops.begin(), cell.ops.end(),
                                  [](const OpRow& row) { return row.floor.has_value(); });
  const size_t first_wrong = FirstWrong(cell);
  std::string rows;
  for (size_t i = 0; i < std::min(cell.ops.size(), kOpsShown); ++i) {
    const OpRow& row = cell.ops[i];
    const bool first = i == first_wrong;
    rows += fmt::format("<tr class=\"{}{}\"><td>{}{}</td>", beyond(row) ? "beyond " : "",
                        first ? "first" : "", Code(row.tap),
                        first         ? " first wrong"
                        : beyond(row) ? " beyond its bound"
                                      : "");
    if (steps) rows += NumberCell("step", std::to_string(row.step));
    rows += NumberCell("local", NumberText(row.local)) +
            NumberCell("accumulated", NumberText(row.accumulated)) +
            (floors ? NumberCell("noise floor", NumberText(row.floor)) : "") +
            NumberCell("cosine", NumberText(row.cosine)) +
            NumberCell("rel L2", NumberText(row.rel_l2)) + "</tr>\n";
  }
  const auto wrong = std::count_if(cell.ops.begin(), cell.ops.end(), beyond);
  std::string note;
  if (cell.ops.size() > kOpsShown) {
    note = fmt::format("<p class=\"soft\">{} more are in results.jsonl.</p>",
                       cell.ops.size() - kOpsShown);
  }
  return fmt::format(
      "<details{}><summary>{} judged, {} beyond their bound</summary>\n<div "
      "class=\"scroll\"><table class=\"ops\">"
      "<thead><tr><th>op</th>{}<th class=\"num\">local error / tolerance</th>"
      "<th class=\"num\">accumulated</th>{}<th class=\"num\">cosine</th>"
      "<th class=\"num\">rel L2</th></tr></thead>\n<tbody>\n{}</tbody></table></div>{}</details>\n",
      cell.ops.size() <= kOpsUnfolded ? " open" : "", Counted(cell.ops.size(), "op"), wrong,
      steps ? "<th class=\"num\">step</th>" : "",
      floors ? "<th class=\"num\">noise floor</th>" : "", rows, note);
}

std::string FurtherDivergences(const CellResult& cell) {
  if (cell.divergences.size() < 2) return "";
  std::string out = fmt::format("<h4>{} in this cell</h4>\n",
                                Counted(cell.divergences.size() - 1, "more finding"));
  for (size_t i = 1; i < cell.divergences.size(); ++i) {
    const Divergence& divergence = cell.divergences[i];
    out += fmt::format("<details><summary>{}</summary>{}{}<dl>{}</dl></details>\n",
                       Escaped(Culprit(divergence)), PathList(divergence), Values(divergence),
                       Facts(divergence));
  }
  return out;
}

std::string Repro(const CellResult& cell) {
  if (cell.repro.empty()) return "";
  return fmt::format("<h4>Reproduce (one click selects it)</h4>\n<pre><code>{}</code></pre>\n",
                     Escaped(cell.repro));
}

std::string Output(const CellResult& cell) {
  if (cell.engine_output.empty()) return "";
  const std::string_view text = std::string_view(cell.engine_output).substr(0, kOutputShown);
  return fmt::format(
      "<details><summary>What the engine printed{}</summary><pre>{}</pre></details>\n",
      text.size() < cell.engine_output.size() ? " (its beginning)" : "",
      Escaped(text, /*lines=*/true));
}

std::string OtherCells(const Group& group) {
  if (group.cells.size() < 2) return "";
  std::string items;
  for (size_t i = 1; i < group.cells.size(); ++i) {
    const Keys differing = DifferingKeys(*group.cells[i], *group.cells[0]);
    items += "<li>" + ShortHtml(*group.cells[i], differing) + "</li>\n";
  }
  return fmt::format("<details><summary>The same finding in {}</summary><ul>{}</ul></details>\n",
                     Counted(group.cells.size() - 1, "more cell"), items);
}

// The finding as a heading of its own; the label stands above it.
std::string Heading(const CellResult& cell) {
  std::string text = Finding(cell);
  if (text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

}  // namespace

std::string CssClass(Verdict verdict) {
  std::string out;
  for (const char c : NameOf(verdict)) {
    out += c == '_' ? '-' : static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string VerdictChip(Verdict verdict) {
  return fmt::format("<span class=\"v {}\">{}</span>", CssClass(verdict), NameOf(verdict));
}

std::string ShortHtml(const CellResult& cell, const Keys& varying) {
  std::string words;
  for (const auto& [text, emphasised] : ShortForm(cell, varying)) {
    words +=
        (words.empty() ? "" : " ") + (emphasised ? "<b>" + Escaped(text) + "</b>" : Escaped(text));
  }
  return fmt::format("<code title=\"{}\">{}</code>", Escaped(cell.problem), words);
}

std::string FindingId(size_t position) { return fmt::format("finding-{}", position + 1); }

std::string FindingArticle(const Group& group, size_t position, bool open) {
  const CellResult& cell = *group.cells.front();
  std::string body;
  if (!cell.divergences.empty()) {
    const Divergence& first = cell.divergences.front();
    body +=
        PathList(first) + Values(first) + "<dl>" + Facts(first) + "</dl>\n" + ErrorMapHtml(first);
  }
  body += CurvesHtml(cell) + Repro(cell) + "<dl>" + CellFacts(cell) + "</dl>\n" + OpTable(cell) +
          FurtherDivergences(cell) + Output(cell) + OtherCells(group) +
          fmt::format(
              "<details><summary>The whole problem string</summary><pre><code>{}</code></pre>"
              "</details>\n",
              Escaped(cell.problem));
  const std::string edge =
      cell.verdict == Verdict::kFail ? "" : " " + CssClass(cell.verdict) + "-edge";
  const std::string label =
      fmt::format("<div class=\"label\">{}<span class=\"mono\">{}</span></div><h3>{}</h3>",
                  VerdictChip(cell.verdict), Escaped(Label(cell)), Escaped(Heading(cell)));
  const std::string id = FindingId(position);
  if (open) {
    return fmt::format("<article class=\"finding{}\" id=\"{}\">{}\n{}</article>\n", edge, id, label,
                       body);
  }
  return fmt::format("<details class=\"finding{}\" id=\"{}\"><summary>{}</summary>\n{}</details>\n",
                     edge, id, label, body);
}

}  // namespace assay::reports
