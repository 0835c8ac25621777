#include "reports/terminal.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <sstream>

#include "reports/synthetic_run.h"
#include "reports/text.h"

namespace assay::reports {
namespace {

Style From(bool is_terminal, std::map<std::string, std::string> variables) {
  return StyleFrom(is_terminal, 100, [&](const char* name) {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  });
}

// Without colours, as wide as the terminal sees it.
std::vector<std::string> LinesOf(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      i = text.find('m', i);
    } else {
      plain += text[i];
    }
  }
  std::vector<std::string> lines;
  std::istringstream in(plain);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

CellResult Hostile() {
  CellResult cell = FailingExpert();
  const std::string evil = "\x1b]0;owned\x07\x1b[2J <script>\n" + std::string(300, 'w') + "\xff→";
  cell.problem += " x=" + evil;
  cell.reason = evil;
  cell.repro = "./assay run '" + evil + "'";
  Divergence& first = cell.divergences[0];
  first.tap = first.tensor = first.op = evil;
  first.signature = {evil, evil, evil};
  first.propagated = first.cleared = first.bits = {evil, evil};
  return cell;
}

TEST(Terminal, ColoursOnlyOnATerminalThatWantsThem) {
  EXPECT_TRUE(From(true, {{"TERM", "xterm"}}).colour);
  EXPECT_FALSE(From(false, {{"TERM", "xterm"}}).colour);
  EXPECT_FALSE(From(true, {{"TERM", "xterm"}, {"NO_COLOR", "1"}}).colour);
  EXPECT_TRUE(From(true, {{"TERM", "xterm"}, {"NO_COLOR", "1"}}).live);
  EXPECT_TRUE(From(true, {{"TERM", "xterm"}, {"NO_COLOR", ""}}).colour);
  EXPECT_FALSE(From(true, {{"TERM", "dumb"}}).live);
  EXPECT_EQ(From(true, {}).columns, 100);
  EXPECT_EQ(From(false, {}).columns, 80);
  EXPECT_TRUE(From(true, {{"LANG", "en_GB.UTF-8"}}).utf8);
  EXPECT_TRUE(From(true, {{"LANG", "C"}, {"LC_ALL", "C.utf8"}}).utf8);
  EXPECT_FALSE(From(true, {{"LANG", "en_GB.UTF-8"}, {"LC_ALL", "C"}}).utf8);
}

TEST(Terminal, NothingIsWiderThanTheTerminal) {
  RunRecord record = SyntheticRun();
  record.cells.push_back(Hostile());
  Totals huge = record.Count();
  huge.registered = huge.executed = huge.refused = huge.not_executed = INT64_MAX / 4;
  for (const int columns : {40, 60, 80, 81, 200}) {
    for (const bool colour : {false, true}) {
      for (const bool utf8 : {false, true}) {
        const Style style{true, colour, utf8, columns};
        std::string all = TotalsBlock(huge, 1e9, style) + ProgressLine(huge, 1e9, style) + "\n";
        for (CellResult cell : record.cells) {
          // A command is shown as it must be typed, whatever the terminal can show.
          if (!utf8) cell.repro = Joined({"./assay", "run", std::string(200, 'x')}, " ");
          all += CellLine(cell, style) + FailureBlock(cell, style);
        }
        RunRecord shown = record;
        for (CellResult& cell : shown.cells) cell.repro.clear();
        shown.cells.push_back(Hostile());
        shown.cells.back().problem = "moe x=" + std::string(300, 'w');
        shown.cells.back().repro.clear();
        shown.cells.push_back(Hostile());
        shown.cells.back().verdict = Verdict::kNotExecuted;
        all += FindingsBlock(shown, style) + ReasonsBlock(shown, style);
        if (!utf8) {
          for (const char c : all) ASSERT_LT(static_cast<unsigned char>(c), 0x80);
        }
        for (const std::string& line : LinesOf(all)) ASSERT_LE(Width(line), columns) << line;
      }
    }
  }
}

TEST(Terminal, NothingFromOutsideReachesTheTerminalAsACommand) {
  const CellResult hostile = Hostile();
  const Style plain{true, false, true, 80};
  const std::string text = CellLine(hostile, plain) + FailureBlock(hostile, plain);
  for (const char c : text) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= ' ');
  EXPECT_NE(text.find("\\x1b]0;owned\\x07"), std::string::npos);
  Style coloured = plain;
  coloured.colour = true;
  EXPECT_NE(CellLine(hostile, coloured).find("\x1b[1;31mFAIL\x1b[0m"), std::string::npos);
  EXPECT_EQ(CellLine(hostile, plain).find('\x1b'), std::string::npos);
}

TEST(Terminal, FailureBlockReadsLikeThis) {
  const std::string text = FailureBlock(FailingExpert(), Style{false, false, true, 80});
  const std::string expected =
      R"(FAIL moe k2-mini-int4-g32 tp=4 avx2 fault=K03/rank0: the first wrong op is
     L1.moe.e5.down on rank 1: loader: scales of rank 0 on rank 1
  path        layer 1 → op moe.e5.down → rank 1 → expert 5 → group [17, 5] (in
              the shard [17, 1])
  tensor      L1.moe.e5.down.scale
  expected    0.012329  (bits 3c4a)
  got         0.047119  (bits 3d41)
  signature   scales-of-another-rank: 384 of 384 groups equal rank 0's
  cleared     layout, kernel, collective
  propagated  L1.moe.partial, L1.moe.out, L1.mlp.out, L1.residual_mlp,
              final_norm, logits
  also        L1.moe.e5.down on rank 2: loader: scales of rank 0 on rank 2
)";
  EXPECT_EQ(text.substr(0, expected.size()), expected);
  EXPECT_NE(
      text.find("  metrics     of the first wrong op: error / tolerance 31044, three-way ratio\n"
                "              812, condition of the worst element 5.2\n"
                "              of the end result: cosine 0.9412, "),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("  tolerance   of the first wrong op: c = 71, "), std::string::npos) << text;
  const std::string repro =
      "  repro\n./assay run 'moe model=k2-mini-int4-g32 layer=1 tp=4 tier=avx2 fault=K03/rank0'\n";
  EXPECT_NE(text.find(repro), std::string::npos) << text;
}

// The shell is asked: the pieces must be the same words as the whole.
std::string AsTheShellReadsIt(const std::string& command) {
  const std::string script = "printf '%s|' " + command;
  std::FILE* shell = popen(script.c_str(), "r");
  EXPECT_NE(shell, nullptr);
  std::string out;
  for (int c = std::fgetc(shell); c != EOF; c = std::fgetc(shell)) out += static_cast<char>(c);
  EXPECT_EQ(pclose(shell), 0);
  return out;
}

TEST(Terminal, ABrokenCommandIsTheSameCommand) {
  const std::vector<std::string> commands = {
      "./assay run 'moe model=k2-mini-int4-g32 layer=1 tp=4 tier=avx2 fault=K03/rank0'",
      "./assay run 'moe model=/a/very/long/path/that/has/no/place/to/break/at/all/in/it tp=4'",
      "./assay run --engine ./libmine.so 'load model=m' 'x' y z 'aaaa bbbb cccc dddd'",
      "'é→é→é→é→é→é→é→é→é→é→é→é→é→é→é→é→é→é→é→é→é→é→é→é→é→é→é→'",
  };
  for (const std::string& command : commands) {
    const std::string whole = AsTheShellReadsIt(command);
    for (const int columns : {12, 20, 33, 40, 79, 80, 500}) {
      const std::string lines = CommandLines(command, columns);
      for (const std::string& line : LinesOf(lines)) ASSERT_LE(Width(line), columns) << lines;
      ASSERT_EQ(AsTheShellReadsIt(lines), whole) << lines;
    }
  }
}

TEST(Terminal, CellLineSaysWhy) {
  const Style style{false, false, true, 120};
  CellResult cell;
  cell.problem = "model model=qwen3-mini tp=4 tier=avx2";
  cell.verdict = Verdict::kRefused;
  cell.reason = "2 key-value heads cannot be cut into 4 ranks";
  EXPECT_EQ(CellLine(cell, style),
            "REFUSED model qwen3-mini tp=4 avx2: 2 key-value heads cannot be cut into 4 ranks\n");
  cell.verdict = Verdict::kPass;
  cell.reason.clear();
  cell.executed.emplace();
  cell.ms = 12.44;
  EXPECT_EQ(CellLine(cell, style), "PASS model qwen3-mini tp=4 avx2  12.4 ms\n");
}

TEST(Terminal, ACellLineWrapsAndCutsNothing) {
  const Style style{false, false, true, 80};
  CellResult cell;
  cell.problem = "linear model=lama-mini tp=3";
  cell.verdict = Verdict::kNotExecuted;
  cell.reason =
      "model=lama-mini is no checkpoint: the models are k2-mini, llama-mini; a path names any "
      "other";
  EXPECT_EQ(CellLine(cell, style),
            "NOT_EXECUTED linear lama-mini tp=3: model=lama-mini is no checkpoint: the models\n"
            "             are k2-mini, llama-mini; a path names any other\n");
  // Something ran, but not what was asked for.
  cell.executed.emplace();
  cell.ms = 3;
  cell.reason = "asked for tier avx512, avx2 ran";
  EXPECT_EQ(CellLine(cell, style),
            "NOT_EXECUTED linear lama-mini tp=3: asked for tier avx512, avx2 ran  3.0 ms\n");
  cell.reason += " and ran again";
  EXPECT_EQ(CellLine(cell, style),
            "NOT_EXECUTED linear lama-mini tp=3: asked for tier avx512, avx2 ran and ran\n"
            "             again  3.0 ms\n");
}

TEST(Terminal, ANumberStaysWithItsName) {
  const Totals totals = SyntheticRun().Count();
  for (int columns = 40; columns < 90; ++columns) {
    const std::string text = TotalsBlock(totals, 1, Style{false, false, true, columns});
    for (const char* words : {"infra 1", "not executed 16", "MISTRUSTED 1", "collected 81"}) {
      ASSERT_NE(text.find(words), std::string::npos) << text;
    }
    for (const std::string& line : LinesOf(text)) ASSERT_LE(Width(line), columns) << line;
  }
}

TEST(Terminal, ReasonsAreCounted) {
  const Style style{false, false, true, 120};
  RunRecord record;
  const auto add = [&](Verdict verdict, const std::string& reason, int count) {
    for (int i = 0; i < count; ++i) {
      record.cells.emplace_back();
      record.cells.back().problem = "load model=m tp=" + std::to_string(i);
      record.cells.back().verdict = verdict;
      record.cells.back().reason = reason;
    }
  };
  EXPECT_EQ(ReasonsBlock(record, style), "");
  add(Verdict::kPass, "", 3);
  add(Verdict::kRefused, "heads", 3);
  EXPECT_EQ(ReasonsBlock(record, style), "");
  add(Verdict::kSkipped, "allow-listed", 1);
  add(Verdict::kNotExecuted, "rare", 1);
  add(Verdict::kNotExecuted,
      "the engine has no kernel of tier avx512 for ct-int4-g32, and none can be emulated here", 8);
  add(Verdict::kInfra, "timed out", 2);  // a finding already
  EXPECT_EQ(ReasonsBlock(record, style),
            "8 NOT_EXECUTED: the engine has no kernel of tier avx512 for ct-int4-g32, and\n"
            "    none can be emulated here\n"
            "1 NOT_EXECUTED: rare\n"
            "1 SKIPPED: allow-listed\n");
  for (const char* reason : {"a", "b", "c", "d"}) add(Verdict::kNotExecuted, reason, 2);
  EXPECT_NE(ReasonsBlock(record, style)
                .find("2 NOT_EXECUTED: d\n1 NOT_EXECUTED for 1 further "
                      "reason, see the report\n1 SKIPPED"),
            std::string::npos)
      << ReasonsBlock(record, style);
  // Behind five findings nothing tells of the machine's troubles but this.
  for (int i = 0; i < 5; ++i) add(Verdict::kFail, "mistake " + std::to_string(i), 1);
  EXPECT_EQ(ReasonsBlock(record, style).rfind("2 INFRA: timed out\n8 NOT_EXECUTED", 0), 0u);
}

TEST(Terminal, FindingsNameTheOtherCellsByWhatDiffers) {
  const Style style{false, false, true, 80};
  RunRecord record;
  record.cells = {FailingExpert()};
  const auto again = [&](const std::string& more) {
    record.cells.push_back(FailingExpert());
    record.cells.back().problem += more;
  };
  EXPECT_EQ(FindingsBlock(record, style), "\n" + FailureBlock(record.cells[0], style));
  again(" rows=1");
  const std::string one = FindingsBlock(record, style);
  EXPECT_NE(one.find("  the same in 1 more cell, with\n    rows=1\n"), std::string::npos) << one;
  for (const char* more : {" rows=2", " rows=3", " rows=4", " rows=5"}) again(more);
  EXPECT_EQ(FindingsBlock(record, style).find("…"), std::string::npos);
  again(" rows=6");
  again(" rows=7");
  EXPECT_NE(FindingsBlock(record, style)
                .find("the same in 7 more cells, with\n    rows=1\n    "
                      "rows=2\n    rows=3\n    rows=4\n    rows=5\n    "
                      "… and 2 more\n"),
            std::string::npos);
  for (int i = 0; i < 5; ++i) {
    again("");
    record.cells.back().divergences[0].tap = "L" + std::to_string(i) + ".moe.out";
  }
  EXPECT_NE(FindingsBlock(record, style).find("\n1 more finding is in the report.\n"),
            std::string::npos);
  again("");
  record.cells.back().divergences[0].tap = "logits";
  EXPECT_NE(FindingsBlock(record, style).find("\n2 more findings are in the report.\n"),
            std::string::npos);
}

TEST(Terminal, TotalsAreEachPrinted) {
  EXPECT_EQ(TotalsBlock(SyntheticRun().Count(), 14.2, Style{false, false, true, 90}),
            "registered 81 = collected 81\n"
            "collected 81 = executed 51 + refused 12 + skipped 1 + not executed 16 + infra 1\n"
            "executed 51 = PASS 48 + FAIL 2 + MISTRUSTED 1\n"
            "14 s\n");
}

class Stream {
 public:
  Stream() : file_(open_memstream(&text_, &size_)) {}
  ~Stream() {
    std::fclose(file_);
    std::free(text_);
  }
  std::FILE* file() { return file_; }
  std::string text() {
    std::fflush(file_);
    return std::string(text_, size_);
  }

 private:
  char* text_ = nullptr;
  size_t size_ = 0;
  std::FILE* file_;
};

TEST(Progress, PlainLinesInALog) {
  Stream stream;
  const RunRecord record = SyntheticRun();
  Progress progress(stream.file(), Style{false, false, false, 80},
                    static_cast<int64_t>(record.cells.size()));
  double seconds = 0;
  for (const CellResult& cell : record.cells) progress.Cell(cell, seconds += 0.1);
  progress.End();
  EXPECT_EQ(progress.totals(), record.Count());
  const std::vector<std::string> lines = LinesOf(stream.text());
  EXPECT_EQ(lines.size(), 10u + 4u);  // ten tenths, four red cells
  EXPECT_EQ(lines.back(), "81/81 cells  2 FAIL  1 MISTRUSTED  1 INFRA  8.1 s");
  for (const std::string& line : lines) EXPECT_LE(Width(line), 80) << line;  // none is wrapped
  EXPECT_EQ(stream.text().find('\x1b'), std::string::npos);
  EXPECT_EQ(stream.text().find('\r'), std::string::npos);
  EXPECT_NE(stream.text().find(" left\n"), std::string::npos);
}

TEST(Progress, ASlowRunSpeaksEveryTenSeconds) {
  Stream stream;
  Progress progress(stream.file(), Style{false, false, false, 80}, 1000);
  CellResult cell;
  cell.problem = "load model=m";
  cell.verdict = Verdict::kPass;
  for (int i = 1; i <= 25; ++i) progress.Cell(cell, i);
  EXPECT_EQ(LinesOf(stream.text()).size(), 2u);
}

TEST(Progress, OneLineWrittenOverOnATerminal) {
  Stream stream;
  const RunRecord record = SyntheticRun();
  Progress progress(stream.file(), Style{true, true, true, 80},
                    static_cast<int64_t>(record.cells.size()));
  for (const CellResult& cell : record.cells) progress.Cell(cell, 1);
  progress.End();
  const std::string text = stream.text();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);  // only the red cells stay
  EXPECT_EQ(text.substr(text.size() - 4), "\r\x1b[K");
  EXPECT_NE(text.find("81/81 cells"), std::string::npos);
}

}  // namespace
}  // namespace assay::reports
