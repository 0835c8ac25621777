// report.md, junit.xml, and how the files are written.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness/store/random_cell.h"
#include "reports/html.h"
#include "reports/junit.h"
#include "reports/markdown.h"
#include "reports/render.h"
#include "reports/synthetic_run.h"
#include "reports/view.h"

namespace assay::reports {
namespace {

namespace fs = std::filesystem;

int CountOf(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// A checker of well-formedness for what we write: one root, tags closed in order, attributes in
// double quotes and given once, only the five named entities, only characters that XML 1.0 allows.
// Empty: well-formed.
class XmlChecker {
 public:
  std::string Check(const std::string& text) {
    text_ = text;
    if (text_.rfind("<?xml version=\"1.0\" encoding=\"UTF-8\"?>", 0) != 0) return "no declaration";
    at_ = text_.find("?>") + 2;
    while (at_ < text_.size() && wrong_.empty()) {
      if (text_[at_] == '<') {
        Tag();
      } else {
        Character(open_.empty());
      }
    }
    if (wrong_.empty() && (!open_.empty() || roots_ != 1)) wrong_ = "not one closed root";
    return wrong_;
  }

 private:
  static bool IsName(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '-'; }
  std::string Name() {
    const size_t start = at_;
    while (at_ < text_.size() && IsName(text_[at_])) ++at_;
    if (at_ == start) wrong_ = "a name is missing at " + text_.substr(start, 20);
    return text_.substr(start, at_ - start);
  }
  bool Take(const std::string& what) {
    if (text_.compare(at_, what.size(), what) != 0) return false;
    at_ += what.size();
    return true;
  }
  void Space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  void Character(bool only_space) {
    const auto c = static_cast<unsigned char>(text_[at_]);
    if (c == '&') {
      for (const char* entity : {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"}) {
        if (Take(entity)) return;
      }
      wrong_ = "an unknown entity";
    } else if ((c < 0x20 && c != '\n' && c != '\t') || (only_space && c != '\n')) {
      wrong_ = "a character that may not stand here";
    } else if (c == '>') {
      wrong_ = "a bare >";
    } else {
      ++at_;
    }
  }
  void Tag() {
    if (Take("</")) {
      const std::string name = Name();
      if (open_.empty() || open_.back() != name) wrong_ = "closes " + name;
      if (!open_.empty()) open_.pop_back();
      if (!Take(">")) wrong_ = "a closing tag without its end";
      return;
    }
    ++at_;
    const std::string name = Name();
    if (open_.empty()) ++roots_;
    std::vector<std::string> attributes;
    for (Space(); wrong_.empty() && at_ < text_.size(); Space()) {
      if (Take("/>")) return;
      if (Take(">")) return open_.push_back(name);
      const std::string attribute = Name();
      if (std::count(attributes.begin(), attributes.end(), attribute) > 0) wrong_ = "twice";
      attributes.push_back(attribute);
      if (!Take("=\"")) wrong_ = "an attribute without a value";
      while (wrong_.empty() && at_ < text_.size() && text_[at_] != '"') {
        if (text_[at_] == '<') wrong_ = "< in an attribute";
        if (wrong_.empty()) Character(false);
      }
      if (!Take("\"")) wrong_ = "an attribute without its end";
    }
  }

  std::string text_, wrong_;
  size_t at_ = 0;
  std::vector<std::string> open_;
  int roots_ = 0;
};

TEST(XmlChecker, SeesWhatIsWrong) {
  const std::string head = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  EXPECT_EQ(XmlChecker().Check(head + "<a b=\"c\"><d/>x &amp;</a>\n"), "");
  for (const char* bad :
       {"<a>", "<a></b>", "<a></a><c></c>", "<a b=c></a>", "<a b=\"<\"></a>", "<a>&nbsp;</a>",
        "<a>\x1b</a>", "<a b=\"1\" b=\"2\"></a>", "<a b=\"</a>", "x<a></a>", "<a>></a>", ""}) {
    EXPECT_NE(XmlChecker().Check(head + bad), "") << bad;
  }
  EXPECT_NE(XmlChecker().Check("<a></a>"), "");
}

RunRecord RandomRun(uint64_t seed) {
  RunRecord record = SyntheticRun();
  CellMaker maker(seed);
  for (int i = 0; i < 30; ++i) record.cells.push_back(maker.Make());
  record.cells.back().engine_output = "]]> <!-- \xff\xfe \x01 & --> \uFFFE";
  record.summary = Summary{record.Count(), 1};
  return record;
}

TEST(JUnit, OneCaseForEachCell) {
  const RunRecord record = SyntheticRun();
  const std::string xml = RenderJUnit(record);
  EXPECT_EQ(XmlChecker().Check(xml), "");
  EXPECT_EQ(CountOf(xml, "<testcase "), 81);
  EXPECT_EQ(CountOf(xml, "<failure "), 3);
  EXPECT_EQ(CountOf(xml, "<error "), 1);
  EXPECT_EQ(CountOf(xml, "<skipped "), 17);
  EXPECT_EQ(CountOf(xml, "tests=\"81\" failures=\"3\" errors=\"1\" skipped=\"17\""), 2);
  EXPECT_NE(xml.find("type=\"FAIL loader\" message=\"FAIL moe k2-mini-int4-g32 tp=4 avx2 "
                     "fault=K03/rank0: the first wrong op is L1.moe.e5.down on rank 1"),
            std::string::npos);
  EXPECT_NE(xml.find("REFUSED, as expected: attn.k: 2 key-value heads"), std::string::npos);
}

TEST(JUnit, IsWellFormedWhateverTheTextsHold) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    ASSERT_EQ(XmlChecker().Check(RenderJUnit(RandomRun(seed))), "") << seed;
  }
  EXPECT_EQ(XmlChecker().Check(RenderJUnit(RunRecord())), "");
}

TEST(Markdown, SaysTheSameAsThePage) {
  const std::string text = RenderMarkdown(SyntheticRun());
  for (const char* part :
       {"# Of 81 cells, 2 failed, 1 mistrusted, 1 broken by the machine\n",
        "- collected 81 = executed 51 + refused 12 + skipped 1 + not executed 16 + infra 1\n",
        "### FAIL moe k2-mini-int4-g32 tp=4 avx2 fault=K03/rank0: the first wrong op is "
        "L1.moe.e5.down on rank 1: loader: scales of rank 0 on rank 1\n",
        "- path: layer `1` → op `moe.e5.down` → rank `1` → expert `5` → group `[17, 5]`\n",
        "- of the first wrong op: error / tolerance 31044", "- of the end result: cosine 0.9412",
        "- tolerance of the first wrong op: c = 71", "- memory: 16.0 GiB\n",
        "- expected 0.012329 (`3c4a`), got 0.047119 (`3d41`)\n",
        "```\n./assay run 'moe model=k2-mini-int4-g32 layer=1 tp=4 tier=avx2 fault=K03/rank0'\n```",
        "| moe | ct-int4-g32 | avx2 | PASS | PASS | **FAIL** (1 FAIL, 1 PASS) | PASS |\n",
        "NOT\\_EXECUTED", "SKIPPED", "REFUSED", "**INFRA**", "**MISTRUSTED**",
        "- 16 cells: tier avx512\\_vnni"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part;
  }
}

TEST(Markdown, NamesTheOtherCellsByWhatDiffers) {
  RunRecord record;
  for (const char* more : {"", " rows=1", " rows=2", " rows=3", " rows=4", " rows=5", " rows=6"}) {
    record.cells.push_back(FailingExpert());
    record.cells.back().problem += more;
  }
  EXPECT_NE(RenderMarkdown(record).find("- the same in 6 more cells: `rows=1`, `rows=2`, `rows=3`, "
                                        "`rows=4`, `rows=5`, … and 1 more\n"),
            std::string::npos);
  record.cells.resize(2);
  EXPECT_NE(RenderMarkdown(record).find("- the same in 1 more cell: `rows=1`\n"),
            std::string::npos);
}

TEST(Markdown, NothingFromOutsideBecomesMarkup) {
  RunRecord record;
  CellResult cell = FailingExpert();
  cell.problem = "moe model=<script>|x|`y`** tp=2 tier=a|b method=[l](http://x)";
  cell.repro = "``` <script> ```` \n# head";
  cell.divergences[0].tap = "a`b``c|<img>\n- item";
  cell.divergences[0].signature.text = "![p](http://x) <b>";
  record.cells = {cell};
  record.summary = Summary{record.Count(), 1};
  const std::string text = RenderMarkdown(record);
  EXPECT_EQ(text.find("\n- item"), std::string::npos);
  // The block's fence is longer than any in the text; that alone may hold the text as it is.
  const size_t fence = text.find("\n`````\n");
  ASSERT_NE(fence, std::string::npos);
  const size_t end = text.find("\n`````\n", fence + 1);
  ASSERT_NE(end, std::string::npos);
  const std::string rest = text.substr(0, fence) + text.substr(end);
  EXPECT_EQ(rest.find("<script>"), std::string::npos);
  EXPECT_EQ(rest.find("<b>"), std::string::npos);
  EXPECT_EQ(CountOf(rest, "](http"), CountOf(rest, "\\](http"));
  EXPECT_EQ(rest.find("# head"), std::string::npos);
  // A row of the table has its own bars only.
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("| moe", 0) != 0) continue;
    size_t bars = 0;
    for (size_t i = 0; i < line.size(); ++i)
      bars += line[i] == '|' && (i == 0 || line[i - 1] != '\\');
    EXPECT_EQ(bars, 5u) << line;
  }
}

class Files : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/reportsXXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { fs::remove_all(dir_); }
  std::string Contents(const std::string& name) const {
    std::ifstream in(dir_ + "/" + name, std::ios::binary);
    std::stringstream out;
    out << in.rdbuf();
    return out.str();
  }
  std::string dir_;
};

TEST_F(Files, AllAreWrittenAndReplaceOldOnes) {
  std::ofstream(dir_ + "/report.html") << "old";
  const RunRecord record = SyntheticRun();
  const Status status = RenderAll(record, dir_);
  ASSERT_TRUE(status.ok()) << status.error().message;
  EXPECT_EQ(Contents("report.html"), RenderHtml(record));
  EXPECT_EQ(Contents("report.md"), RenderMarkdown(record));
  EXPECT_EQ(Contents("junit.xml"), RenderJUnit(record));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 3);
}

TEST_F(Files, AFailureIsOneLineAndLeavesNoRest) {
  const Status nowhere = RenderAll(SyntheticRun(), dir_ + "/none");
  ASSERT_FALSE(nowhere.ok());
  EXPECT_EQ(nowhere.error().message,
            "cannot write " + dir_ + "/none/report.html: No such file or directory");
  // A folder of that name cannot be replaced by a file.
  fs::create_directories(dir_ + "/report.html/x");
  EXPECT_FALSE(RenderAll(SyntheticRun(), dir_).ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 1);
}

// What the reports show must survive the file: rendering what was read gives the same bytes.
TEST_F(Files, RenderingFromTheFileGivesTheSame) {
  const RunRecord record = RandomRun(4);
  auto writer = ResultsWriter::Create(dir_ + "/run", record.header);
  ASSERT_TRUE(writer.ok());
  for (const CellResult& cell : record.cells) ASSERT_TRUE(writer->Append(cell).ok());
  ASSERT_TRUE(writer->Finish(record.summary->totals, record.summary->seconds).ok());
  const Result<RunRecord> read = ReadResults(dir_ + "/run");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(RenderHtml(*read), RenderHtml(record));
  EXPECT_EQ(RenderMarkdown(*read), RenderMarkdown(record));
  EXPECT_EQ(RenderJUnit(*read), RenderJUnit(record));
}

TEST(Demands, ThatWereNotMetAreRedInEveryFile) {
  RunRecord record;
  record.cells = {SyntheticRun().cells[0]};
  record.summary = Summary{record.Count(), 1};
  const std::string quiet[] = {RenderHtml(record), RenderMarkdown(record), RenderJUnit(record)};
  const std::string line = "--require tier=avx512: no cell was executed so <1 asked for it>";
  record.complaints = {line};
  const std::string told[] = {RenderHtml(record), RenderMarkdown(record), RenderJUnit(record)};
  for (const std::string& text : quiet) EXPECT_EQ(text.find("--require"), std::string::npos);
  for (const std::string& text : told) {
    EXPECT_NE(text.find("--require tier=avx512"), std::string::npos);
    EXPECT_EQ(text.find("<1 asked"), std::string::npos) << "escaped";
  }
  EXPECT_NE(told[0].find("1 demand not met</h1>"), std::string::npos);
  EXPECT_NE(told[1].find("1 demand not met"), std::string::npos);
  EXPECT_NE(told[2].find("tests=\"2\" failures=\"1\""), std::string::npos) << told[2];
}

TEST(Label, SaysThatACellRanEmulated) {
  CellResult cell = FailingExpert();
  EXPECT_EQ(Label(cell).find("emulated"), std::string::npos);
  cell.executed->how = "emulated (portable intrinsics)";
  EXPECT_NE(Label(cell).find("avx2 emulated"), std::string::npos) << Label(cell);
}

}  // namespace
}  // namespace assay::reports
