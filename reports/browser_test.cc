// Looks at the page in a headless Chromium. Where none is installed it says so, and checks what can
// be checked without one.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "reports/html.h"
#include "reports/synthetic_run.h"
#include "reports/text.h"

namespace assay::reports {
namespace {

namespace fs = std::filesystem;

int CountOf(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Cells of the heat maps whose text begins with `word`.
int CountSquares(const std::string& dom, const std::string& word) {
  int count = 0;
  for (size_t at = dom.find("<td><span class=\"tp\">"); at != std::string::npos;
       at = dom.find("<td><span class=\"tp\">", at + 1)) {
    const size_t square = dom.find(" class=\"v ", at);
    const size_t text = dom.find('>', square) + 1;
    const size_t end = text + word.size();
    count += square < dom.find("</td>", at) && dom.compare(text, word.size(), word) == 0 &&
             dom[end] == '<';
  }
  return count;
}

std::string FindChromium() {
  for (const char* path : {"/usr/bin/chromium", "/usr/bin/chromium-browser",
                           "/usr/bin/google-chrome", "/opt/google/chrome/chrome"}) {
    if (access(path, X_OK) == 0) return path;
  }
  return "";
}

class Browser : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/browserXXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
    chromium_ = FindChromium();
    if (chromium_.empty()) {
      std::printf("NOT RUN in a browser: no Chromium is installed; checking the text instead\n");
    }
  }
  void TearDown() override {
    std::error_code ignored;  // the browser's helpers may still be writing their profile
    fs::remove_all(dir_, ignored);
  }

  // The document as it stands after loading and running scripts.
  std::string Dom(const std::string& html) {
    std::ofstream(dir_ + "/page.html", std::ios::binary) << html;
    const std::string command =
        "HOME='" + dir_ + "' timeout 100 '" + chromium_ +
        "' --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run "
        "--disable-background-networking --disable-component-update --user-data-dir='" +
        dir_ + "/profile' --window-size=1280,1600 --dump-dom 'file://" + dir_ + "/page.html' 2>'" +
        dir_ + "/errors'";
    std::FILE* pipe = popen(command.c_str(), "r");
    EXPECT_NE(pipe, nullptr);
    std::string out;
    char buffer[65536];
    while (const size_t count = std::fread(buffer, 1, sizeof(buffer), pipe)) {
      out.append(buffer, count);
    }
    EXPECT_EQ(pclose(pipe), 0) << "chromium failed; its last words are in " << dir_ << "/errors";
    return out;
  }

  std::string TitleOf(const std::string& dom) {
    const size_t start = dom.find("<title>"), end = dom.find("</title>");
    if (start == std::string::npos || end == std::string::npos) return "no title";
    return dom.substr(start + 7, end - start - 7);
  }

  std::string dir_, chromium_;
};

TEST_F(Browser, ThePageHoldsWhatTheRunSays) {
  const RunRecord record = SyntheticRun();
  const std::string html = RenderHtml(record);
  const std::string dom = chromium_.empty() ? html : Dom(html);
  EXPECT_NE(dom.find("<h1>Of 81 cells, 2 failed, 1 mistrusted, 1 broken by the machine</h1>"),
            std::string::npos);
  EXPECT_NE(dom.find("The first wrong op is L1.moe.e5.down on rank 1: loader: scales of rank 0 on "
                     "rank 1"),
            std::string::npos);
  EXPECT_EQ(CountOf(dom, "class=\"heat\""), 4);
  EXPECT_EQ(CountOf(dom, "<article class=\"finding"), 3);
  // 80 squares stand for 81 cells, and each begins with its word.
  int squares = 0;
  for (const char* word :
       {"PASS", "FAIL", "REFUSED", "MISTRUSTED", "SKIPPED", "NOT_EXECUTED", "INFRA"}) {
    const int count = CountSquares(dom, word);
    EXPECT_GE(count, 1) << word;
    squares += count;
  }
  EXPECT_EQ(squares, 80);
  // The browser writes quotes in text as they are, we write them as entities.
  EXPECT_EQ(CountOf(dom, "<pre><code>./assay run '") + CountOf(dom, "<pre><code>./assay run &#39;"),
            4);
}

// Sums up the curves and maps as the browser laid them out.
constexpr char kDrawings[] = R"js(<script>
const wide=[...document.querySelectorAll('svg')].filter(s=>s.getBoundingClientRect().width>=100);
const marks=[...document.querySelectorAll('.mark')].map(m=>{
  const box=m.getBoundingClientRect(),all=m.ownerSVGElement.getBoundingClientRect();
  return Math.floor((box.left+box.width/2-all.left)/all.width*30)});
const dots=document.querySelectorAll('.curve path.dot').length;
document.title=`${wide.length} drawings, marks ${marks}, ${dots} series`;</script>)js";

TEST_F(Browser, AFailingModelsCurvesMarkItsLayer) {
  RunRecord record;
  record.cells = {FailingModel()};
  record.summary = Summary{record.Count(), 1};
  const std::string html = RenderHtml(record);
  for (const char* text : {"Along the layers", "layer <b>12</b>", "op <b>mlp.act</b>",
                           "the clamp of gate and up is missing", "Where in L12.mlp.act",
                           "33 tokens", "1536 columns, 24 a cell", "3 × noise floor"}) {
    EXPECT_NE(html.find(text), std::string::npos) << text;
  }
  if (chromium_.empty()) {
    EXPECT_NE(html.find("class=\"mark\" x=\"400.0\""), std::string::npos);
    return;
  }
  std::string shown = html;  // without the policy the page's own test may run
  const size_t policy = shown.find("<meta http-equiv");
  shown.erase(policy, shown.find('>', policy) + 1 - policy);
  shown.insert(shown.find("</body>"), kDrawings);
  EXPECT_EQ(TitleOf(Dom(shown)), "4 drawings, marks 12,12,12, 5 series");
}

constexpr char kEvil[] = "<script>document.title='owned'</script>";

TEST_F(Browser, AScriptInAProblemStringDoesNotRun) {
  RunRecord record = SyntheticRun();
  record.cells[0].problem = std::string("moe model=") + kEvil;
  record.cells[1].verdict = Verdict::kFail;
  record.cells[1].reason = record.cells[1].engine_output = kEvil;
  record.summary->totals = record.Count();
  const std::string html = RenderHtml(record);
  if (chromium_.empty()) {
    EXPECT_EQ(html.find("<script"), std::string::npos);
    EXPECT_NE(html.find("default-src 'none'"), std::string::npos);
    return;
  }
  const std::string dom = Dom(html);
  EXPECT_EQ(TitleOf(dom).rfind("Of 81 cells", 0), 0u) << TitleOf(dom);
  EXPECT_EQ(CountOf(dom, "<script"), 0);

  // The second fence: were the escape forgotten, the page's policy would still hold it back.
  std::string forgotten = html;
  forgotten.insert(forgotten.find("</main>"), kEvil);
  EXPECT_NE(TitleOf(Dom(forgotten)), "owned");
  // And the check can fail: without the policy the same script does run.
  const size_t policy = forgotten.find("<meta http-equiv");
  forgotten.erase(policy, forgotten.find('>', policy) + 1 - policy);
  EXPECT_EQ(TitleOf(Dom(forgotten)), "owned");
}

// By how much the page's content is wider than the page.
constexpr char kExcess[] = "(e.scrollWidth-e.clientWidth)+' px of '+e.clientWidth";
// Squares whose word takes more than a line or sticks out, and empty ones that are shown.
constexpr char kSquares[] =
    "(()=>{var r=d.createRange();return [...d.querySelectorAll('.heat td .v')].filter(v=>{"
    "r.selectNode(v.firstChild);return r.getClientRects().length!=1||v.scrollWidth>v.clientWidth})"
    ".length+' broken, '+[...d.querySelectorAll('.heat td.none')].filter(n=>n.offsetWidth>0)"
    ".length+' empty, '+[...d.querySelectorAll('.heat')].filter(h=>h.scrollWidth>h.clientWidth)"
    ".length+' scrolled'})()";

// The page in a frame of `width`; the outer page's title says what `question`, an expression over
// its document d and root element e, comes to.
std::string Framed(const std::string& html, int width, const std::string& question = kExcess) {
  return "<!doctype html><meta charset=utf-8><title>x</title><iframe style=\"border:0;height:900px;"
         "width:" +
         std::to_string(width) +
         "px\" onload=\"var d=this.contentDocument,e=d.documentElement;document.title=" +
         Escaped(question) + "\" srcdoc=\"" + Escaped(html, /*lines=*/true) + "\"></iframe>";
}

TEST_F(Browser, NothingSticksOutOnAPhone) {
  RunRecord record = SyntheticRun();
  record.cells.push_back(FailingExpert());
  record.cells.back().divergences[0].tap = std::string(300, 'w');
  record.cells.back().ops[0].tap = std::string(300, 'w');
  record.cells.back().problem = "moe model=" + std::string(300, 'w');
  record.header.selection = std::string(300, 'w');
  const std::string html = RenderHtml(record);
  if (chromium_.empty()) {
    EXPECT_NE(html.find("width=device-width"), std::string::npos);
    EXPECT_NE(html.find("overflow-wrap:anywhere"), std::string::npos);
    return;
  }
  for (const int width : {400, 1200}) {
    const std::string title = TitleOf(Dom(Framed(html, width)));
    EXPECT_EQ(title.rfind("0 px of ", 0), 0u) << title << " at " << width;
  }
  // The check can fail.
  std::string wide = html;
  wide.insert(wide.find("</main>"), "<p style=\"width:700px\">x</p>");
  const std::string title = TitleOf(Dom(Framed(wide, 400)));
  EXPECT_NE(title.find(" px of "), std::string::npos) << title;
  EXPECT_NE(title.rfind("0 px of ", 0), 0u) << title;
}

TEST_F(Browser, AVerdictStandsOnOneLineInItsSquare) {
  RunRecord record;
  for (const Verdict verdict : {Verdict::kNotExecuted, Verdict::kMistrusted}) {
    for (const char* tp : {"1", "2", "3", "4", "6", "8", "16", "32"}) {
      record.cells.emplace_back();
      record.cells.back().problem = fmt::format(
          "model model=m method=ct-int4-g32 tier=avx512_vnni tp={} x={}", tp, NameOf(verdict));
      record.cells.back().verdict = verdict;
    }
    record.cells.pop_back();
    record.cells.back().problem += " tier=avx2";
  }
  record.cells.push_back(record.cells[0]);
  record.cells.back().problem = "load model=m method=ct-int4-g32 tier=avx512_vnni tp=32";
  const std::string html = RenderHtml(record);
  if (chromium_.empty()) {
    EXPECT_NE(html.find("min-width:984px"), std::string::npos);
    return;
  }
  for (const int width : {1100, 1280}) {
    EXPECT_EQ(TitleOf(Dom(Framed(html, width, kSquares))), "0 broken, 8 empty, 0 scrolled")
        << width;
  }
  EXPECT_EQ(TitleOf(Dom(Framed(html, 400, kSquares))), "0 broken, 0 empty, 0 scrolled");
  // The check can fail.
  std::string narrow = html;
  narrow.insert(narrow.find("</style>"),
                ".heat td .v{overflow-wrap:anywhere;white-space:normal;"
                "width:40px}");
  EXPECT_NE(TitleOf(Dom(Framed(narrow, 1280, kSquares))), "0 broken, 8 empty, 0 scrolled");
}

}  // namespace
}  // namespace assay::reports
