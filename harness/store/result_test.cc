#include "harness/store/result.h"

#include <gtest/gtest.h>

#include <cmath>

#include "harness/store/random_cell.h"

namespace assay {
namespace {

constexpr char kWhere[] = "out/results.jsonl:17";

// The example of the specification, in its order, with the additions where they belong.
constexpr char kExample[] =
    R"({"type":"cell","problem":"moe model=k2-mini-int4-g32 layer=1 tp=2 tier=avx2 tokens=5 fault=K03/rank0","model_hash":"ab12",)"
    R"("verdict":"FAIL","reason":"local error above its bound",)"
    R"("executed":{"kernel":"dot","tier":"avx2","how":"hardware","layout":"row","act":"a16","tp":2,"threads":2,"engine":"native@1a2b3c","ranks_differ":[]},)"
    R"("mode":"bounded","metrics":{"cosine":0.94,"rel_l2":0.35,"max_abs":1.2,"max_ratio":31000,"kld":null,"kld_stderr":null,"top1":null,"three_way":null,"condition":null,"mean_ratio":null,"nmse":null,"allclose_excess":null,"ambiguous":0,"noise_floor":null,"floor_runs":null,"tolerance":{"u_acc":"2^-24","depth":71,"c":71,"terms":["acc","out"]}},)"
    R"("divergences":[{"layer":1,"op":"down","tap":"L1.moe.e5.down","class":"loader","rank":1,"expert":5,"step":0,"tensor":"L1.moe.e5.down.scale","unit":"group","index":[17,5],"local_index":[17,1],"expected":0.0123,"got":0.0471,"bits":["3c49","3d40"],)"
    R"("propagated":["L1.moe.out"],"cleared":["kernel"],)"
    R"("signature":{"id":"scales-of-another-rank","text":"scales of rank 0 on rank 1","evidence":"384 of 384 groups equal rank 0's"}}],)"
    R"("ops":[{"tap":"L1.moe.e5.down","step":0,"local":31000,"accumulated":null,"floor":null,"cosine":0.94,"rel_l2":0.35}],)"
    R"("ms":12.4,"attempts":1,"repro":"./assay run '…'"})";

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(CellJson, ReadsAndWritesTheSpecificationsExample) {
  const Result<CellResult> cell = CellFromJson(kExample, kWhere);
  ASSERT_TRUE(cell.ok()) << cell.error().message;
  EXPECT_EQ(cell->verdict, Verdict::kFail);
  EXPECT_EQ(cell->metrics.max_ratio, 3.1e4);
  EXPECT_FALSE(cell->metrics.kld.has_value());
  ASSERT_EQ(cell->divergences.size(), 1u);
  EXPECT_EQ(cell->divergences[0].local_index, (std::vector<int64_t>{17, 1}));
  EXPECT_EQ(cell->divergences[0].signature.id, "scales-of-another-rank");
  EXPECT_EQ(cell->divergences[0].step, 0);
  EXPECT_EQ(ToJson(*cell), kExample);
}

// What the first version of the format wrote, without the fields that were added since.
TEST(CellJson, ReadsACellWithoutTheAdditions) {
  std::string line = kExample;
  for (
      const char* added :
      {R"("kld_stderr":null,"top1":null,"three_way":null,"condition":null,"mean_ratio":null,"nmse":null,"allclose_excess":null,)",
       R"("cleared":["kernel"],)", R"("step":0,)", R"("step":0,)"}) {
    line = Replaced(line, added, "");
  }
  const Result<CellResult> cell = CellFromJson(line, kWhere);
  ASSERT_TRUE(cell.ok()) << cell.error().message;
  EXPECT_TRUE(cell->divergences[0].cleared.empty());
  EXPECT_FALSE(cell->divergences[0].step.has_value());
}

TEST(CellJson, PassesOverKeysOfLaterVersions) {
  const std::string line = Replaced(kExample, R"("ms":)", R"("later":{"a":[1]},"ms":)");
  EXPECT_TRUE(CellFromJson(line, kWhere).ok());
}

TEST(CellJson, AnyCellComesBackAsItWas) {
  CellMaker maker(7);
  for (int i = 0; i < 2000; ++i) {
    const CellResult cell = maker.Make();
    const std::string line = ToJson(cell);
    ASSERT_EQ(line.find('\n'), std::string::npos);
    const Result<CellResult> back = CellFromJson(line, kWhere);
    ASSERT_TRUE(back.ok()) << back.error().message << "\n" << line;
    ASSERT_EQ(ToJson(*back), line);
    // ToJson is the comparison; these guard against its leaving something out.
    ASSERT_EQ(back->problem, cell.problem);
    ASSERT_EQ(back->reason, cell.reason);
    ASSERT_EQ(back->verdict, cell.verdict);
    ASSERT_EQ(back->ms, cell.ms);
    ASSERT_EQ(back->executed.has_value(), cell.executed.has_value());
    ASSERT_EQ(back->ops.size(), cell.ops.size());
    for (size_t k = 0; k < cell.ops.size(); ++k) {
      const std::optional<double>&want = cell.ops[k].local, &got = back->ops[k].local;
      ASSERT_EQ(got.has_value(), want.has_value());
      if (!want) continue;
      if (std::isnan(*want)) {
        ASSERT_TRUE(std::isnan(*got));
      } else {
        ASSERT_EQ(*got, *want);
        ASSERT_EQ(std::signbit(*got), std::signbit(*want));
      }
    }
    ASSERT_EQ(back->divergences.size(), cell.divergences.size());
    for (size_t k = 0; k < cell.divergences.size(); ++k) {
      ASSERT_EQ(back->divergences[k].index, cell.divergences[k].index);
      ASSERT_EQ(back->divergences[k].rank, cell.divergences[k].rank);
      ASSERT_EQ(back->divergences[k].step, cell.divergences[k].step);
      ASSERT_EQ(back->divergences[k].propagated, cell.divergences[k].propagated);
      ASSERT_EQ(back->divergences[k].signature.text, cell.divergences[k].signature.text);
    }
    ASSERT_EQ(back->engine_output, cell.engine_output);
  }
}

TEST(CellJson, BytesThatAreNotUtf8BecomeReplacementCharacters) {
  CellResult cell;
  cell.problem = "load model=m";
  cell.engine_output = "a\xff\xfe z";
  const Result<CellResult> back = CellFromJson(ToJson(cell), kWhere);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->engine_output, "a\uFFFD\uFFFD z");
}

struct HostileLine {
  std::string line, says;
};

TEST(CellJson, HostileLinesGetOneClearMessage) {
  const auto with = [](const std::string& from, const std::string& to) {
    return Replaced(kExample, from, to);
  };
  std::string wide = "{\"type\":\"cell\"";
  for (int i = 0; i < 5000; ++i) wide += ",\"k" + std::to_string(i) + "\":1";
  const std::vector<HostileLine> lines = {
      {"", "not JSON"},
      {"{", "not JSON"},
      {"null", "one JSON object"},
      {"[1,2]", "one JSON object"},
      {std::string("\0\0\0", 3), "not JSON"},
      {std::string(1000000, '['), "nested deeper than 32 levels"},
      {"{\"a\":" + std::string(100000, '['), "nested deeper than 32 levels"},
      {wide + "}", "more than 4096 keys"},
      {"{}", "type is missing"},
      {R"({"type":"dog"})", R"(type must be "run", "cell" or "summary", not "dog")"},
      {R"({"type":"run","run_id":"1","revision":"r","dirty":false,"machine":null,"engines":null,"selection":"","seed":1})",
       R"(a line of type "cell" must stand here)"},
      {with(R"("ms":12.4,)", ""), "ms is missing"},
      {with(R"("ms":12.4)", R"("ms":-1)"), "ms must be a finite number from 0"},
      {with(R"("ms":12.4)", R"("ms":"nan")"), "ms must be a finite number from 0"},
      {with(R"("ms":12.4)", R"("ms":1e999)"), "not JSON"},
      {with(R"("ms":12.4)", R"("ms":1,"ms":2)"), R"(the key "ms" is given twice)"},
      {with(R"("attempts":1)", R"("attempts":0)"), "attempts must be an integer from 1 to"},
      {with(R"("attempts":1)", R"("attempts":1.5)"), "attempts must be an integer"},
      {with(R"("attempts":1)", R"("attempts":99999999999)"), "attempts must be an integer"},
      {with(R"("verdict":"FAIL")", R"("verdict":"fail")"), R"(not "fail")"},
      {with(R"("verdict":"FAIL")", R"("verdict":7)"), "verdict must be a string, not 7"},
      {with(R"("cosine":0.94)", R"("cosine":"0.94")"), "metrics.cosine must be a number"},
      {with(R"("executed":{)", R"("executed":[],"x":{)"), "executed must be an object or null"},
      {with(R"("tp":2)", R"("tp":18446744073709551615)"), "executed.tp must be an integer"},
      {with(R"("layer":1)", R"("layer":-2)"), "divergences[0].layer must be an integer"},
      {with(R"("expert":5,"step":0)", R"("expert":5,"step":-1)"),
       "divergences[0].step must be an integer"},
      {with(R"("index":[17,5])", R"("index":[17,"5"])"), "divergences[0].index must be a list"},
      {with(R"("bits":["3c49","3d40"])", R"("bits":["3c49"])"), "two strings"},
      {with(R"("ops":[{)", R"("ops":[3,{)"), "ops must be a list of objects, not 3"},
      {with("\"ab12\"", "\"\xff\""), "not JSON"},
  };
  for (const HostileLine& hostile : lines) {
    const Result<CellResult> cell = CellFromJson(hostile.line, kWhere);
    ASSERT_FALSE(cell.ok()) << hostile.line.substr(0, 200);
    const std::string& message = cell.error().message;
    EXPECT_EQ(message.rfind(std::string(kWhere) + ": ", 0), 0u) << message;
    EXPECT_NE(message.find(hostile.says), std::string::npos) << message;
    EXPECT_LT(message.size(), 400u);
    for (const char c : message) EXPECT_TRUE(c >= ' ' && c <= '~') << message;
  }
}

// No byte changed anywhere may crash the reader; what it still reads it can write again.
TEST(CellJson, SurvivesAnyChangedByte) {
  const std::string example = kExample;
  int refused = 0;
  for (size_t at = 0; at < example.size(); ++at) {
    for (const char byte : {'\0', '"', '{', '9', '\xff', ',', ']'}) {
      std::string line = example;
      line[at] = byte;
      const Result<CellResult> cell = CellFromJson(line, kWhere);
      if (!cell.ok()) {
        ++refused;
      } else {
        ASSERT_TRUE(CellFromJson(ToJson(*cell), kWhere).ok());
      }
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(RunJson, HeaderComesBackWithMachineAsItWas) {
  RunHeader header;
  header.run_id = "r1";
  header.revision = "1a2b";
  header.selection = "tp=2";
  header.machine_json = R"({"cpu":"X","tiers":["avx2"]})";
  header.dirty = true;
  header.seed = -3;
  const std::string line = ToJson(header);
  EXPECT_NE(line.find(R"("machine":{"cpu":"X","tiers":["avx2"]},"engines":null)"),
            std::string::npos);
  const Result<RunHeader> back = HeaderFromJson(line, kWhere);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->machine_json, header.machine_json);
  EXPECT_EQ(back->seed, -3);
  EXPECT_TRUE(back->dirty);
  EXPECT_FALSE(HeaderFromJson(Replaced(line, "true", "1"), kWhere).ok());
}

TEST(RunJson, TheFrozenListComesBack) {
  RunHeader header;
  const auto plain = HeaderFromJson(ToJson(header), kWhere);
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  EXPECT_FALSE(plain->cells.has_value());  // as earlier versions wrote it
  header.cells = CellList{7, HashCells({"a"}), 2, 3, 2, HashCells({"b"})};
  header.emulate = "always";
  header.requirements = {"tier=avx512,how=emulated"};
  header.merged = {"r1", "r2"};
  const std::string line = ToJson(header);
  const auto back = HeaderFromJson(line, kWhere);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->cells, header.cells);
  EXPECT_EQ(back->emulate, header.emulate);
  EXPECT_EQ(back->requirements, header.requirements);
  EXPECT_EQ(back->merged, header.merged);
  for (const auto& [from, to] : {std::pair("\"shard\":2", "\"shard\":4"),
                                 {"\"shard\":2", "\"shard\":0"},
                                 {"\"own_count\":2", "\"own_count\":8"},
                                 {"\"shards\":3", "\"shards\":null"}}) {
    EXPECT_FALSE(HeaderFromJson(Replaced(line, from, to), kWhere).ok()) << to;
  }
}

TEST(RunJson, SummaryComesBack) {
  Totals totals;
  for (int i = 0; i < 7; ++i) totals.Add(static_cast<Verdict>(i));
  totals.registered = 7;
  const Result<Summary> back = SummaryFromJson(SummaryJson(totals, 1.25), kWhere);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->totals, totals);
  EXPECT_EQ(back->seconds, 1.25);
}

TEST(RunJson, FlattensFactsForPrinting) {
  using Facts = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(FlattenJson(R"({"cpu":{"model":"X","cores":2},"tiers":["a","b"],"gpu":null})"),
            (Facts{{"cpu.model", "X"}, {"cpu.cores", "2"}, {"tiers", "a b"}}));
  EXPECT_EQ(FlattenJson("plain text"), (Facts{{"", "plain text"}}));
  EXPECT_EQ(FlattenJson(R"([{"name":"e","revision":"1"}])"),
            (Facts{{"name", "e"}, {"revision", "1"}}));
  EXPECT_TRUE(FlattenJson("").empty());
  FlattenJson(std::string(200000, '[') + std::string(200000, ']'));  // must come back
}

TEST(Verdicts, NamesGoBothWays) {
  for (int i = 0; i < 7; ++i) {
    const auto verdict = static_cast<Verdict>(i);
    EXPECT_EQ(VerdictFromName(NameOf(verdict)), verdict);
  }
  EXPECT_EQ(VerdictFromName("pass"), std::nullopt);
  EXPECT_EQ(VerdictFromName(""), std::nullopt);
}

struct ExitCase {
  std::vector<Verdict> verdicts;
  bool unmet;
  int code;
};

TEST(Verdicts, ExitCodeTable) {
  using enum Verdict;
  const std::vector<ExitCase> cases = {
      {{}, false, 125},
      {{kPass}, false, 0},
      {{kRefused}, false, 0},
      {{kPass, kRefused, kSkipped, kNotExecuted}, false, 0},
      {{kSkipped}, false, 125},
      {{kNotExecuted}, false, 125},
      {{kSkipped, kNotExecuted}, false, 125},
      {{kNotExecuted}, true, 1},
      {{}, true, 1},
      {{kPass}, true, 1},
      {{kFail}, false, 1},
      {{kMistrusted}, false, 1},
      {{kInfra}, false, 1},
      {{kInfra, kSkipped}, false, 1},
      {{kPass, kPass, kPass, kFail}, false, 1},
  };
  for (const ExitCase& one : cases) {
    Totals totals;
    for (const Verdict verdict : one.verdicts) totals.Add(verdict);
    totals.registered = totals.collected;
    EXPECT_TRUE(totals.adds_up());
    EXPECT_EQ(ExitCode(totals, one.unmet), one.code) << testing::PrintToString(one.verdicts.size());
  }
}

TEST(Verdicts, LostCellsAreAFinding) {
  Totals totals;
  totals.Add(Verdict::kPass);
  totals.registered = 2;
  EXPECT_FALSE(totals.all_collected());
  EXPECT_EQ(ExitCode(totals, false), 1);
  totals.registered = 1;
  EXPECT_EQ(ExitCode(totals, false), 0);
  ++totals.skipped;
  EXPECT_FALSE(totals.adds_up());
  EXPECT_EQ(ExitCode(totals, false), 1);
}

}  // namespace
}  // namespace assay
