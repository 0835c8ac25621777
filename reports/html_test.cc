#include "reports/html.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "reports/html_parts.h"
#include "reports/synthetic_run.h"

namespace assay::reports {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The text between the first `from` and the `to` behind it.
std::string Between(const std::string& text, const std::string& from, const std::string& to) {
  const size_t start = text.find(from);
  if (start == std::string::npos) return "";
  const size_t end = text.find(to, start + from.size());
  return text.substr(start + from.size(), end - start - from.size());
}

constexpr char kEvil[] = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&\x1b\xff";

RunRecord HostileRun() {
  RunRecord record = SyntheticRun();
  CellResult cell = FailingExpert();
  cell.problem = std::string("mo<b>e model=") + kEvil + " tp=" + kEvil + " tier=" + kEvil +
                 " method=" + kEvil + " fault=" + kEvil;
  cell.model_hash = cell.reason = cell.mode = cell.repro = cell.engine_output = kEvil;
  cell.executed = Executed{kEvil, kEvil, kEvil, kEvil, kEvil, kEvil, 2, 2, {1}};
  cell.metrics.tolerance = ToleranceFacts{kEvil, 1, 1, {kEvil}};
  for (Divergence& divergence : cell.divergences) {
    divergence.op = divergence.tap = divergence.cls = divergence.tensor = divergence.unit = kEvil;
    divergence.bits = {kEvil, kEvil};
    divergence.propagated = divergence.cleared = {kEvil};
    divergence.signature = {kEvil, kEvil, kEvil};
  }
  for (OpRow& row : cell.ops) row.tap = kEvil;
  cell.divergences[0].map->row_unit = cell.divergences[0].map->column_unit = kEvil;
  cell.divergences[0].map->value = kEvil;
  record.cells.push_back(cell);
  for (const Verdict verdict : WorstFirst()) {
    CellResult other = cell;
    other.verdict = verdict;
    record.cells.push_back(other);
  }
  record.header = {kEvil, kEvil, kEvil, kEvil, kEvil, true, 1};
  record.torn = kEvil;
  record.summary = Summary{record.Count(), 1};
  return record;
}

// Every tag of the page by name, closing ones with their slash. Fails on markup that no renderer of
// ours writes.
std::vector<std::string> TagsOf(const std::string& html) {
  std::vector<std::string> tags;
  for (size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    const size_t end = html.find('>', at);
    EXPECT_NE(end, std::string::npos);
    if (end == std::string::npos) break;
    tags.push_back(html.substr(at + 1, html.find_first_of(" >", at) - at - 1));
    at = end;
  }
  return tags;
}

TEST(Html, EveryVerdictWordIsInASquare) {
  const std::string html = RenderHtml(SyntheticRun());
  const std::string map = html.substr(html.find("id=\"map\""));
  for (const Verdict verdict : WorstFirst()) {
    const std::string square =
        "\">" + std::string(NameOf(verdict));  // a link's or a span's text begins with the word
    EXPECT_TRUE(Has(Between(map, "<tbody>", "Not executed</h2>"), square)) << NameOf(verdict);
  }
  EXPECT_FALSE(Has(map, "no reason was given"));
  EXPECT_TRUE(Has(map, "title=\"PASS model qwen3-mini tp=2 avx2\""));
  EXPECT_TRUE(Has(map, "FAIL<small>1 FAIL, 1 PASS</small>"));
}

TEST(Html, FirstScreenTellsTheCulprit) {
  const std::string html = RenderHtml(SyntheticRun());
  EXPECT_EQ(Between(html, "<h1>", "</h1>"),
            "Of 81 cells, 2 failed, 1 mistrusted, 1 broken by the machine");
  const size_t finding = html.find(
      "The first wrong op is L1.moe.e5.down on rank 1: loader: scales of rank 0 on rank 1");
  ASSERT_NE(finding, std::string::npos);
  EXPECT_LT(finding, html.find("id=\"map\""));
  for (const char* part :
       {"layer <b>1</b>",
        "op <b>moe.e5.down</b>",
        "rank <b>1</b>",
        "expert <b>5</b>",
        "group <b>[17, 5]</b>",
        "<strong>0.012329</strong>",
        "<strong>0.047119</strong>",
        "<code>3c4a</code>",
        "<code>scales-of-another-rank</code>",
        "384 of 384 groups equal rank 0&#39;s",
        "layout, kernel, collective",
        "<code>L1.residual_mlp</code>",
        "c = 71, depth d = 71, u = 2^-24",
        "<pre><code>./assay run &#39;moe model=k2-mini-int4-g32 layer=1 tp=4 tier=avx2 "
        "fault=K03/rank0&#39;</code></pre>",
        "<b title=\"7c1e90f2d4a8b35e61f09c77d2416b8ae3905f1c + local changes\">7c1e90f2d4a8 + "
        "local "
        "changes</b>",
        "AMD EPYC 7B13",
        "memory <b>16.0 GiB</b>",
        "<span>registered 81</span> <span>=</span> <span>collected 81</span>",
        "of the first wrong op: error / tolerance 31044",
        "<br>of the end result: cosine 0.9412",
        "of the first wrong op: c = 71",
        "selected, but not run: no such tier, kernel or model here",
        "first wrong",
        "href=\"#finding-2\""}) {
    EXPECT_TRUE(Has(html, part)) << part;
  }
}

TEST(Html, RefusalsAndTheUnexecutedAreListedByReason) {
  const std::string html = RenderHtml(SyntheticRun());
  EXPECT_TRUE(Has(html,
                  "attn.k: 2 key-value heads cannot be cut into 4 ranks; largest legal TP is 2"
                  "<details><summary>3 cells</summary>"));
  EXPECT_TRUE(Has(html, "emulation is not installed<details><summary>16 cells</summary>"));
  EXPECT_TRUE(Has(html, "allow-listed: covered by the avx2 cell"));
}

TEST(Html, ListsShowWhatTellsTheCellsApart) {
  RunRecord record = SyntheticRun();
  record.cells.push_back(FailingExpert());
  record.cells.back().problem += " rows=7";
  const std::string html = RenderHtml(record);
  const std::string same = Between(html, "The same finding in 1 more cell</summary>", "</details>");
  EXPECT_TRUE(Has(same, ">moe k2-mini-int4-g32 tp=4 avx2 fault=K03/rank0 <b>rows=7</b></code>"))
      << same;
  EXPECT_TRUE(Has(same, "<code title=\"moe engine=native ")) << same;  // the whole string
  const std::string refused =
      Between(html, "cannot be cut into 4 ranks; largest legal TP is 2<details>", "</ul>");
  EXPECT_TRUE(Has(refused, "><b>load</b> qwen3-mini tp=4 <b>scalar</b></code>")) << refused;
}

TEST(Html, KernelNamesArePartsOfTheirOwn) {
  RunRecord record;
  record.cells = {FailingExpert()};
  record.cells[0].executed->kernel = "linear_bf16_row_avx2,linear_ct_int4_g32_split16_avx2";
  EXPECT_TRUE(Has(RenderHtml(record),
                  "<dd><span class=\"part\">linear_bf16_row_avx2,</span> <span class=\"part\">"
                  "linear_ct_int4_g32_split16_avx2,</span> <span class=\"part\">tier avx2"));
}

TEST(Html, TheFirstWrongRowIsMarkedWhicheverRankWasKept) {
  RunRecord record;
  record.cells = {FailingExpert()};
  record.cells[0].divergences[0].rank = 0;
  record.cells[0].ops = {{"L1.moe.e5.up", 0, 0.3, {}, {}, {}},
                         {"L1.moe.e5.down@r1", 0, 9, {}, {}, {}}};
  const std::string html = RenderHtml(record);
  EXPECT_TRUE(Has(html, "<code>L1.moe.e5.down@r1</code> first wrong"));
  EXPECT_FALSE(Has(html, "<code>L1.moe.e5.up</code> first wrong"));
}

TEST(Html, NothingFromOutsideBecomesMarkup) {
  const std::string html = RenderHtml(HostileRun());
  EXPECT_FALSE(Has(html, "<script"));
  EXPECT_FALSE(Has(html, "<img"));
  EXPECT_FALSE(Has(html, "<b>e model"));
  EXPECT_TRUE(Has(html, "&lt;script&gt;alert(1)&lt;/script&gt;"));
  EXPECT_FALSE(Has(html, "\x1b"));
  EXPECT_FALSE(Has(html, "\xff"));
  const std::vector<std::string> ours = {
      "!doctype", "html",  "head",    "meta",    "title",     "style", "body",    "main",
      "header",   "div",   "h1",      "h2",      "h3",        "h4",    "p",       "span",
      "b",        "i",     "section", "article", "ol",        "ul",    "li",      "strong",
      "small",    "code",  "pre",     "dl",      "dt",        "dd",    "br",      "table",
      "thead",    "tbody", "tr",      "th",      "td",        "a",     "details", "summary",
      "svg",      "path",  "rect",    "figure",  "figcaption"};
  for (std::string tag : TagsOf(html)) {
    if (tag[0] == '/') tag.erase(0, 1);
    EXPECT_NE(std::find(ours.begin(), ours.end(), tag), ours.end()) << tag;
  }
}

TEST(Html, TagsAreClosedInOrder) {
  for (const RunRecord& record : {SyntheticRun(), HostileRun(), RunRecord()}) {
    std::vector<std::string> open;
    for (const std::string& tag : TagsOf(RenderHtml(record))) {
      if (tag == "!doctype" || tag == "meta" || tag == "br") continue;
      if (tag[0] != '/') {
        open.push_back(tag);
        continue;
      }
      ASSERT_FALSE(open.empty()) << tag;
      ASSERT_EQ("/" + open.back(), tag);
      open.pop_back();
    }
    EXPECT_TRUE(open.empty());
  }
}

TEST(Html, LoadsNothing) {
  const std::string html = RenderHtml(HostileRun());
  EXPECT_TRUE(Has(html, "default-src 'none'; style-src 'unsafe-inline'"));
  for (const char* part :
       {"http://", "https://", "url(", "@import", "<link", " src=x>", "javascript:"}) {
    EXPECT_FALSE(Has(html, part)) << part;
  }
}

TEST(Html, BothSchemesAndNarrowScreens) {
  const std::string html = RenderHtml(SyntheticRun());
  EXPECT_TRUE(Has(html, "prefers-color-scheme:dark"));
  EXPECT_TRUE(Has(html, "width=device-width"));
  EXPECT_TRUE(Has(html, "max-width:640px"));
}

// WCAG's relative luminance.
double Luminance(const std::string& hex) {
  double out = 0;
  const double weights[] = {0.2126, 0.7152, 0.0722};
  const bool brief = hex.size() == 3;
  for (size_t i = 0; i < 3; ++i) {
    const std::string digits = brief ? std::string(2, hex[i]) : hex.substr(2 * i, 2);
    const double c = std::stoi(digits, nullptr, 16) / 255.0;
    out += weights[i] * (c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4));
  }
  return out;
}

TEST(Html, EveryColourPairCanBeRead) {
  const std::string style(kStyle);
  for (const size_t scheme : {style.find(":root{"), style.rfind(":root{")}) {
    const auto colour = [&](const std::string& name) {
      const size_t at = style.find("--" + name + ":#", scheme) + name.size() + 4;
      return Luminance(style.substr(at, style.find_first_of(";}", at) - at));
    };
    const std::vector<std::pair<std::string, std::string>> pairs = {
        {"page", "ink"},      {"card", "ink"},    {"page", "soft"},       {"card", "soft"},
        {"card", "link"},     {"code", "ink"},    {"code", "soft"},       {"pass", "pass-ink"},
        {"fail", "fail-ink"}, {"mis", "mis-ink"}, {"infra", "infra-ink"}, {"not", "not-ink"},
        {"skip", "skip-ink"}, {"ref", "ref-ink"}};
    for (const auto& [ground, ink] : pairs) {
      const double a = colour(ground), b = colour(ink);
      EXPECT_GE((std::max(a, b) + 0.05) / (std::min(a, b) + 0.05), 4.5) << ground << " " << ink;
    }
  }
}

TEST(Html, ManyFindingsAreFoldedAndAllThere) {
  RunRecord record;
  for (int i = 0; i < 40; ++i) {
    CellResult cell = FailingExpert();
    cell.divergences[0].tap = "L" + std::to_string(i) + ".moe.out";
    record.cells.push_back(cell);
  }
  record.summary = Summary{record.Count(), 1};
  const std::string html = RenderHtml(record);
  for (int i = 1; i <= 40; ++i) {
    const std::string id = "id=\"finding-" + std::to_string(i) + "\"";
    EXPECT_TRUE(
        Has(html, (i <= 3 ? "<article class=\"finding\" " : "<details class=\"finding\" ") + id));
  }
}

TEST(Html, AnEmptyRunSaysSo) {
  RunRecord record;
  const std::string html = RenderHtml(record);
  EXPECT_TRUE(Has(html, "<h1>Nothing was executed (unfinished run)</h1>"));
}

}  // namespace
}  // namespace assay::reports
