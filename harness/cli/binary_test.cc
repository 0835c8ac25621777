// The program as a script sees it: exit codes, what is on standard output, files left behind.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "harness/cli/testing/program.h"

namespace assay::cli {
namespace {

namespace fs = std::filesystem;
using testing::Invoke;
using testing::ReadAll;
using Json = nlohmann::json;
using Ran = testing::Ended;
using Words = std::vector<std::string>;

constexpr const char* kOneModel =
    R"({"rows": [{"name": "a", "kind": "load", "cross": {"model": ["llama-mini"], )"
    R"("tp": [1, 2, 3, 4], "tier": ["scalar"], "seed": [1, 2]}, "legal": 4}]})";

std::string Temporary(const std::string& name) {
  return std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
}

std::string Write(const std::string& name, const std::string& text) {
  const std::string path = Temporary(name);
  std::ofstream(path, std::ios::trunc | std::ios::binary) << text;
  return path;
}

// Bad usage: exit 2, nothing on standard output, one line that says what.
void ExpectUsage(const Words& words, const Words& says) {
  const Ran ran = Invoke(words);
  EXPECT_EQ(ran.code, 2) << words[0] << "\n" << ran.out << ran.error;
  EXPECT_EQ(ran.out, "");
  EXPECT_TRUE(ran.error.starts_with("assay: ")) << ran.error;
  EXPECT_EQ(std::count(ran.error.begin(), ran.error.end(), '\n'), 1) << ran.error;
  for (const std::string& text : says) {
    EXPECT_NE(ran.error.find(text), std::string::npos) << "'" << text << "' not in: " << ran.error;
  }
}

Ran RunCell(const std::string& problem, const Words& more = {}) {
  const std::string out = Temporary("out");
  fs::remove_all(out);
  Words words{"run", problem, "--out", out};
  words.insert(words.end(), more.begin(), more.end());
  return Invoke(words);
}

std::vector<Json> Cells(const std::string& dir) {
  std::vector<Json> cells;
  std::istringstream lines(ReadAll(dir + "/results.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json json = Json::parse(line, nullptr, false);
    EXPECT_FALSE(json.is_discarded()) << line;
    if (json.is_object() && json["type"] == "cell") cells.push_back(json);
  }
  return cells;
}

std::multiset<std::string> Problems(const std::string& dir) {
  std::multiset<std::string> problems;
  for (const Json& cell : Cells(dir)) problems.insert(cell["problem"].get<std::string>());
  return problems;
}

TEST(Binary, Help) {
  for (const Words& words : {Words{}, Words{"help"}, Words{"--help"}}) {
    const Ran ran = Invoke(words);
    EXPECT_EQ(ran.code, 0);
    EXPECT_EQ(ran.error, "");
    for (const char* text : {"Usage: ./assay VERB", "golden", "mutate", "125"}) {
      EXPECT_NE(ran.out.find(text), std::string::npos) << text;
    }
  }
  for (const char* verb : {"run", "list", "doctor", "golden", "mutate", "report"}) {
    const Ran ran = Invoke({verb, "--help"});
    EXPECT_EQ(ran.code, 0) << verb;
    EXPECT_NE(ran.out.find("Example: ./assay " + std::string(verb)), std::string::npos) << ran.out;
  }
}

TEST(Binary, AMisspeltFaultIsNotPassedOver) {
  ExpectUsage({"mutate", "--list", "--kind", "K03,K99"}, {"no such fault K99"});
  EXPECT_EQ(Invoke({"mutate", "--list", "--kind", "K03,K41/missing"}).code, 0);
}

TEST(Binary, HelpForOneThing) {
  EXPECT_EQ(Invoke({"help", "run"}).out, Invoke({"run", "--help"}).out);
  const Ran ran = Invoke({"help", "problem"});
  EXPECT_EQ(ran.code, 0);
  for (const char* text : {"collective", "attn_tp", "fill", "sequential:fp32"}) {
    EXPECT_NE(ran.out.find(text), std::string::npos) << text;
  }
}

TEST(Binary, UnknownVerbsAndOptions) {
  ExpectUsage({"rnu"}, {"unknown verb rnu", "did you mean run?", "golden"});
  ExpectUsage({"xyzzyplugh"}, {"unknown verb", "allowed are run"});
  ExpectUsage({"certify"}, {"certify is not built yet"});
  ExpectUsage({"run", "--jbos", "2"}, {"--jbos", "did you mean --jobs?"});
  ExpectUsage({"golden", "verfy"}, {"verfy", "allowed is verify"});
  ExpectUsage({"golden", "record"}, {"not built yet"});
  ExpectUsage({"mutate", "--kind", "K99"}, {"K99", "mutate --list"});
  ExpectUsage({"report"}, {"report", "results.jsonl"});
  ExpectUsage({"report", "/no/such"}, {"/no/such"});
  ExpectUsage({"list", "teir=avx2"}, {"did you mean tier?"});
}

TEST(Binary, ExitCodesOfRuns) {
  const std::string fault = "moe model=k2-mini-int4-g32 layer=1 tp=4 tier=scalar fault=K03/rank0";
  EXPECT_EQ(RunCell("load model=k2-mini tp=2").code, 0);
  EXPECT_EQ(RunCell("load model=llama-mini tp=2").code, 0);  // refused, as it must be
  const Ran failed = RunCell(fault);
  EXPECT_EQ(failed.code, 1);
  EXPECT_NE(failed.out.find("scales-of-another-rank"), std::string::npos) << failed.out;
  EXPECT_EQ(RunCell("load model=k2-mini tier=amx_int8").code, 125);
  EXPECT_EQ(RunCell("load model=k9-mini").code, 125);
  EXPECT_EQ(RunCell("load model=k2-mini", {"--require", "tier=amx"}).code, 1);
  EXPECT_EQ(RunCell("load model=k2-mini tier=scalar", {"--require", "tier=scalar"}).code, 0);
  EXPECT_EQ(RunCell("load model=k2-mini tier=amx_int8", {"--require", "tier=amx"}).code, 1)
      << "1 goes before 125";
}

TEST(Binary, BadInputIsTwoWithoutAFileLeftBehind) {
  const std::string out = Temporary("out");
  fs::remove_all(out);
  const auto run = [&](const std::string& problem) { return Words{"run", problem, "--out", out}; };
  ExpectUsage(run("load model=k2-mini tp=zero"), {"tp=zero"});
  ExpectUsage(run("load model=k2-mini tp=1000000"), {"tp=1000000", "1 to 1024"});
  ExpectUsage(run("load model=k2-mini layer=7777"), {"layer=7777"});
  ExpectUsage(run("load model=%zz"), {"%zz"});
  ExpectUsage(run("load model=%00"), {"%00"});
  ExpectUsage(run("load model=/dev/zero"), {"/dev/zero"});
  ExpectUsage(run("linear model=k2-mini layer=0 tokens=1048576"), {"tokens=1048576"});
  ExpectUsage(run("linear model=k2-mini layer=0 tokens=99999999999999999999"), {"tokens="});
  ExpectUsage(run("model model=llama-mini prompt=/dev/zero"), {"regular file"});
  ExpectUsage(run("load model=k2-mini engine=/etc/passwd"), {"/etc/passwd"});
  ExpectUsage({"run", "--emulate", "perhaps"}, {"--emulate perhaps"});
  ExpectUsage({"run", "--shard", "4/3"}, {"--shard 4/3"});
  ExpectUsage({"run", "--require", "teir=x"}, {"--require teir=x"});
  ExpectUsage({"run", "--matrix", Write("bad.json", "{")}, {"bad.json", "not JSON"});
  EXPECT_FALSE(fs::exists(out));
}

TEST(Binary, OutTakesANewOrAnEmptyFolder) {
  const std::string dir = Temporary("full");
  fs::create_directories(dir);
  std::ofstream(dir + "/file") << "mine";
  ExpectUsage({"run", "load model=k2-mini", "--out", dir}, {"full", "empty"});
  EXPECT_EQ(ReadAll(dir + "/file"), "mine");
  fs::remove(dir + "/file");
  EXPECT_EQ(Invoke({"run", "load model=k2-mini", "--out", dir}).code, 0);
  for (const char* file : {"results.jsonl", "report.html", "report.md", "junit.xml"}) {
    EXPECT_GT(fs::file_size(dir + "/" + file), 0u) << file;
  }
  ExpectUsage({"run", "load model=k2-mini", "--out", dir}, {"full"});
}

TEST(Binary, JsonIsAllThereIsOnStandardOutput) {
  const auto json = [](const Words& words, int code) {
    const Ran ran = Invoke(words);
    EXPECT_EQ(ran.code, code) << ran.error;
    const Json parsed = Json::parse(ran.out, nullptr, false);
    EXPECT_FALSE(parsed.is_discarded()) << ran.out.substr(0, 500);
    return parsed;
  };
  const Json faults = json({"mutate", "--list", "--json"}, 0);
  ASSERT_TRUE(faults.is_array());
  EXPECT_GE(faults.size(), 6u);
  for (const Json& fault : faults) {
    for (const char* key : {"fault", "problem", "class", "first"}) EXPECT_TRUE(fault.contains(key));
  }
  const Json doctor = json({"doctor", "--json"}, 0);
  EXPECT_TRUE(doctor["tiers"].is_array());
  EXPECT_FALSE(doctor["models"].empty());
  // One golden, one that the oracle does not know.
  const std::string dir = Temporary("some");
  for (const char* folder : {"goldens", "checkpoints"}) {
    for (const char* name : {"llama-mini", "v4-mini"}) {
      const std::string path = std::string(folder) + "/" + name;
      fs::create_directories(fs::path(dir) / folder);
      fs::copy(fs::path("goldens") / path, fs::path(dir) / path,
               fs::copy_options::recursive | fs::copy_options::skip_existing);
    }
  }
  const Json golden = json({"golden", "verify", dir, "--json"}, 0);
  std::set<std::string> verdicts;
  for (const Json& row : golden["rows"]) verdicts.insert(row["verdict"].get<std::string>());
  EXPECT_EQ(verdicts, (std::set<std::string>{"NOT_EXECUTED", "PASS"}));
  const Json score = json({"mutate", "--kind", "K41", "--json"}, 0);
  EXPECT_EQ(score["mutants"], 1);
  EXPECT_EQ(score["located"], 1);
  EXPECT_EQ(score["false_alarms"], 0);
  EXPECT_EQ(score["rows"].size(), 1u);
}

// What the host lacks is neither missed nor an alarm.
TEST(Binary, AScoreSpeaksOfWhatWasExecuted) {
  const auto score = [](const char* kind, int code) {
    const Ran ran = Invoke({"mutate", "--kind", kind, "--json"}, {{"ASSAY_FAKE_TIERS", "scalar"}});
    EXPECT_EQ(ran.code, code) << ran.error;
    return Json::parse(ran.out, nullptr, false);
  };
  const Json none = score("K41", 125);  // avx2 both
  EXPECT_EQ(none["mutants"], 1);
  EXPECT_EQ(none["visible"], 0);
  EXPECT_EQ(none["clean_cells"], 0);
  EXPECT_EQ(none["false_alarms"], 0);
  const Json blind = score("K21", 125);  // scalar where it cannot show
  EXPECT_EQ(blind["visible"], 0);
  EXPECT_EQ(blind["clean_cells"], 1);
  EXPECT_EQ(blind["false_alarms"], 0);
}

TEST(Binary, ShardsPartitionTheSelection) {
  const std::string matrix = Write("one.json", kOneModel);
  std::multiset<std::string> joined;
  for (const char* shard : {"1/3", "2/3", "3/3"}) {
    const std::string out = Temporary("shard");
    fs::remove_all(out);
    EXPECT_EQ(Invoke({"run", "--matrix", matrix, "--shard", shard, "--out", out}).code, 0);
    const auto part = Problems(out);
    EXPECT_GE(part.size(), 2u);
    joined.insert(part.begin(), part.end());
  }
  const std::string whole = Temporary("whole");
  EXPECT_EQ(Invoke({"run", "--matrix", matrix, "--out", whole}).code, 0);
  EXPECT_EQ(joined, Problems(whole));
  EXPECT_EQ(joined.size(), 8u);
}

TEST(Binary, AResumedRunEndsAsAWholeOne) {
  const std::string matrix = Write("a b.json", kOneModel), dir = Temporary("torn");
  fs::remove_all(dir);
  ASSERT_EQ(Invoke({"run", "--matrix", matrix, "--shard", "1/1", "--out", dir}).code, 0);
  const auto whole = Problems(dir);
  const std::string file = dir + "/results.jsonl", text = ReadAll(file);
  size_t header = text.find('\n');
  for (const size_t size : {text.size() / 2, text.size() - 2, header + 1}) {
    std::ofstream(file, std::ios::trunc | std::ios::binary) << text.substr(0, size);
    const Ran ran = Invoke({"run", "--resume", dir});
    EXPECT_EQ(ran.code, 0) << ran.error;
    EXPECT_EQ(Problems(dir), whole);
    EXPECT_NE(ran.out.find("registered 8 = collected 8"), std::string::npos) << ran.out;
    EXPECT_NE(ReadAll(file).find("\"summary\""), std::string::npos);
  }
  ExpectUsage({"run", "tp=1", "--resume", dir}, {"--resume", "recorded"});
  // Without a record the run starts afresh with the selection given.
  const std::string fresh = Temporary("fresh");
  fs::remove_all(fresh);
  EXPECT_EQ(Invoke({"run", "load model=k2-mini", "--resume", fresh}).code, 0);
  EXPECT_EQ(Problems(fresh).size(), 1u);
}

TEST(Binary, OneEngineOverASelection) {
  const std::string out = Temporary("engine");
  fs::remove_all(out);
  const std::string engine = "harness/abi/example/libexample.so";
  const Ran ran = Invoke({"run", "kind=linear", "model=k2-mini", "tp=1,2", "tier=scalar",
                          "tokens=1", "--engine", engine, "--out", out});
  EXPECT_EQ(ran.code, 0) << ran.out << ran.error;
  const auto problems = Problems(out);
  EXPECT_GE(problems.size(), 10u);
  EXPECT_EQ(std::set<std::string>(problems.begin(), problems.end()).size(), problems.size());
  size_t executed = 0;
  for (const Json& cell : Cells(out)) {
    if (cell["executed"].is_null()) {
      EXPECT_EQ(cell["verdict"], "NOT_EXECUTED") << cell["reason"];
      continue;
    }
    ++executed;
    EXPECT_EQ(cell["executed"]["engine"], "example@1");
  }
  EXPECT_GE(executed, 10u);
}

TEST(Binary, NoColourWhereThereIsNoTerminal) {
  for (const char* value : {"", "1"}) {
    const std::string out = Temporary("colour");
    fs::remove_all(out);
    const Ran ran = Invoke({"run", "load model=k2-mini", "--out", out},
                           {{"NO_COLOR", value}, {"TERM", "xterm-256color"}});
    EXPECT_EQ(ran.code, 0);
    EXPECT_EQ((ran.out + ran.error).find('\x1b'), std::string::npos);
  }
}

TEST(Binary, ListSaysWhatRunWouldRun) {
  const Ran ran = Invoke({"list", "kind=collective", "fill=exact"});
  EXPECT_EQ(ran.code, 0);
  std::istringstream lines(ran.out);
  std::set<std::string> problems;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(line.starts_with("collective model=k2-mini ")) << line;
    EXPECT_NE(line.find(" fill=exact"), std::string::npos) << line;
    EXPECT_TRUE(problems.insert(line).second) << "twice: " << line;
  }
  EXPECT_GE(problems.size(), 15u);
  const Ran coverage = Invoke({"list", "--coverage"});
  EXPECT_EQ(coverage.code, 0) << coverage.out;
  EXPECT_EQ(Invoke({"list", "kind=load", "--coverage"}).code, 1) << "no cell for any kernel";
}

TEST(Binary, ReportsAreRenderedAgain) {
  const std::string out = Temporary("again");
  fs::remove_all(out);
  ASSERT_EQ(Invoke({"run", "load model=k2-mini", "--out", out}).code, 0);
  const std::string html = ReadAll(out + "/report.html");
  fs::remove(out + "/report.html");
  const Ran ran = Invoke({"report", out});
  EXPECT_EQ(ran.code, 0) << ran.error;
  EXPECT_EQ(ReadAll(out + "/report.html"), html);
}

}  // namespace
}  // namespace assay::cli
