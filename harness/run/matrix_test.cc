// Matrix files: what is read, what is refused and how it is said; and what the default one covers.
#include "harness/run/matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include "harness/run/cell.h"
#include "kernels/registry.h"

namespace assay::run {
namespace {

constexpr const char* kDefault = "matrix/default.json";

ModelStore& Models() {
  static ModelStore models;
  return models;
}

std::string Write(const std::string& text) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/matrix.json";
  std::ofstream(path, std::ios::trunc) << text;
  return path;
}

std::string File(const std::string& row) { return Write("{\"rows\": [" + row + "]}"); }

// A good row, with one of its parts replaced.
std::string Row(const std::string& cross = R"("model": ["llama-mini"])", int legal = 1,
                const std::string& more = "", const std::string& name = "loads") {
  return R"({"name": ")" + name + R"(", "kind": "load", "cross": {)" + cross + R"(}, "legal": )" +
         std::to_string(legal) + more + "}";
}

void ExpectSays(const Error& error, const std::vector<std::string>& parts) {
  EXPECT_EQ(error.message.find('\n'), std::string::npos) << error.message;
  for (const std::string& part : parts) {
    EXPECT_NE(error.message.find(part), std::string::npos)
        << "'" << part << "' not in: " << error.message;
  }
}

void ExpectUnreadable(const std::string& path, const std::vector<std::string>& parts) {
  const auto rows = ReadMatrix(path);
  ASSERT_FALSE(rows.ok()) << "was read; expected: " << parts[0];
  ExpectSays(rows.error(), {path});
  ExpectSays(rows.error(), parts);
}

void ExpectNoCells(const std::string& row, const std::vector<std::string>& parts) {
  const std::string path = File(row);
  const auto rows = ReadMatrix(path);
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  const auto cells = ExpandMatrix(*rows, &Models());
  ASSERT_FALSE(cells.ok()) << row;
  ExpectSays(cells.error(), {path, "row " + (*rows)[0].name});
  ExpectSays(cells.error(), parts);
}

std::vector<MatrixCell> Expand(const std::string& path) {
  const auto rows = ReadMatrix(path);
  if (!rows) {
    ADD_FAILURE() << rows.error().message;
    return {};
  }
  auto cells = ExpandMatrix(*rows, &Models());
  if (cells) return std::move(*cells);
  ADD_FAILURE() << cells.error().message;
  return {};
}

TEST(Matrix, CrossesKeysInCanonicalOrder) {
  const auto cells =
      Expand(File(Row(R"("tier": ["scalar", "avx2"], "tp": [1, 3], "model": ["llama-mini"])", 4)));
  std::vector<std::string> printed;
  for (const MatrixCell& cell : cells) printed.push_back(PrintMinimal(cell.problem));
  EXPECT_EQ(printed,
            (std::vector<std::string>{"load model=llama-mini method=bf16 tier=scalar",
                                      "load model=llama-mini method=bf16 tier=avx2",
                                      "load model=llama-mini method=bf16 tp=3 tier=scalar",
                                      "load model=llama-mini method=bf16 tp=3 tier=avx2"}));
}

TEST(Matrix, FilesThatAreNoMatrix) {
  ExpectUnreadable("/no/such/matrix.json", {"cannot be read"});
  ExpectUnreadable("/", {"cannot be read"});
  ExpectUnreadable(Write(""), {});
  ExpectUnreadable(Write("{\"rows\": [}"), {"not JSON", "column"});
  ExpectUnreadable(Write("{\"rows\": []} x"), {"not JSON"});
  ExpectUnreadable(Write("[1, 2]"), {"a list of rows"});
  ExpectUnreadable(Write("{\"rows\": {}}"), {"a list of rows"});
  ExpectUnreadable(Write("{\"rows\": []}"), {"a list of rows"});
  ExpectUnreadable(Write("{\"row\": []}"), {"a list of rows"});
  ExpectUnreadable(Write("{\"rows\": [" + Row() + "], \"skip\": []}"),
                   {"unknown key skip", "skips"});
  ExpectUnreadable(Write("{\"rows\": [" + Row() + "], \"rows\": []}"), {"rows twice"});
  ExpectUnreadable(Write(std::string(100000, '[')), {"not JSON"});
  ExpectUnreadable(Write(std::string("{\"rows\": [\0]}", 13)), {"not JSON"});
  ExpectUnreadable(Write("{\"rows\": [\"\xff\"]}"), {"not JSON"});
}

TEST(Matrix, RowsThatAreWrong) {
  ExpectUnreadable(File("5"), {"row 0", "must be an object"});
  ExpectUnreadable(File(Row() + ", null"), {"row 1", "must be an object"});
  ExpectUnreadable(File(R"({"name": "x", "kind": "load", "legal": 1})"), {"row 0", "cross"});
  ExpectUnreadable(File(R"({"name": 3, "kind": "load", "cross": {}, "legal": 1})"),
                   {"a row needs"});
  ExpectUnreadable(File(R"({"name": "x", "kind": "load", "cross": {}, "legal": 1.5})"),
                   {"a row needs", "legal"});
  ExpectUnreadable(File(Row(R"("model": [])")), {"row 0", "model must be a list"});
  ExpectUnreadable(File(Row(R"("model": "k2-mini")")), {"model must be a list"});
  ExpectUnreadable(File(Row(R"("model": [null])")), {"a value of model is null"});
  ExpectUnreadable(File(Row(R"("model": [["a"]])")), {"a value of model"});
  ExpectUnreadable(File(Row(R"("model": ["llama-mini tp=3"])")), {"without spaces"});
  ExpectUnreadable(File(Row(R"("model": [""])")), {"a value of model"});
  ExpectUnreadable(File(Row(R"("modle": ["llama-mini"])")), {"cross has modle"});
  ExpectUnreadable(File(Row(R"("tp": [1], "tp": [2])")), {"tp twice"});
  ExpectUnreadable(File(Row(R"("model": ["llama-mini"])", 1, R"(, "tagz": [])")),
                   {"row 0", "unknown key tagz", "tags"});
  ExpectUnreadable(File(Row(R"("model": ["llama-mini"])", 1, R"(, "tags": [1])")),
                   {"tags must be a list of strings"});
  ExpectUnreadable(File(Row(R"("model": ["llama-mini"])", 1, R"(, "tags": "x")")), {"tags"});
  ExpectUnreadable(File(Row(R"("model": ["llama-mini"])", 1, R"(, "kernels": "all")")),
                   {"kernels", "registry"});
  ExpectUnreadable(File(Row(R"("model": ["llama-mini"])", 1, R"(, "kernels": 1)")), {"kernels"});
  ExpectUnreadable(File(Row() + "," + Row()), {"two rows are named loads"});
}

TEST(Matrix, MoreCellsThanAnybodyWants) {
  std::string numbers = "1";
  for (int i = 2; i <= 1001; ++i) numbers += ", " + std::to_string(i);
  ExpectUnreadable(File(Row("\"model\": [\"llama-mini\"], \"tp\": [" + numbers + "], \"seed\": [" +
                            numbers + "]")),
                   {"row 0", "more than 1000000 cells"});
}

TEST(Matrix, CellsThatAreWrong) {
  ExpectNoCells(Row(R"("tp": [1])"), {"model= is missing"});
  ExpectNoCells(Row(R"("model": ["llama-mini"], "tp": ["two"])"), {"tp=two"});
  ExpectNoCells(Row(R"("model": ["llama-mini"], "tp": [-1])"), {"tp=-1"});
  ExpectNoCells(Row(R"("model": ["llama-mini"], "tier": ["avx3"])"), {"tier=avx3", "avx2"});
  ExpectNoCells(Row(R"("model": ["llama-mini"], "layer": [99])"), {"layer=99"});
  ExpectNoCells(Row(R"("model": ["k9-mini"])"), {"k9-mini", "not on this machine"});
  ExpectNoCells(Row(R"("model": ["llama-mini", "llama-mini"])"), {"two cells", "the same"});
  ExpectNoCells(R"({"name": "x", "kind": "laod", "cross": {"model": ["llama-mini"]}, "legal": 1})",
                {"unknown kind laod", "load"});
}

TEST(Matrix, StatedCountsMustAgree) {
  const auto check = [](int stated) {
    const auto rows = ReadMatrix(File(Row(R"("model": ["llama-mini"], "tp": [1, 2, 3])", stated)));
    const auto cells = ExpandMatrix(*rows, &Models());
    EXPECT_TRUE(cells.ok());
    return CheckLegal(*rows, *cells);
  };
  EXPECT_EQ(check(2), "");  // tp=2 is illegal
  const std::string wrong = check(3);
  for (const char* part : {"matrix.json", "row loads", "states 3", "finds 2"}) {
    EXPECT_NE(wrong.find(part), std::string::npos) << wrong;
  }
}

TEST(Matrix, RegistryRowsHaveACellForEachKernelOfTheMethod) {
  const auto row = [](const std::string& cross) {
    return R"({"name": "x", "kind": "linear", "kernels": "registry", "legal": 1, "cross": {)"
           R"("model": ["k2-mini-int4-g32"], "layer": [1], )" +
           cross + "}}";
  };
  auto cells = Expand(File(row(R"("op": ["moe.down", "attn.q"])")));
  for (const MatrixCell& cell :
       Expand(File(row(R"("op": ["moe.down"], "expert": [1], "method": ["gguf-q4_1", )"
                       R"("gguf-q8_0", "deepseek-v4-mxfp4"])")))) {
    cells.push_back(cell);
  }
  std::map<std::string, std::set<std::string>> by_method;
  for (const MatrixCell& cell : cells) {
    by_method[cell.problem.Get("method")].insert(cell.problem.Get("kernel"));
  }
  std::map<std::string, std::set<std::string>> registered;
  for (const kernels::LinearKernel& kernel : kernels::LinearKernels()) {
    registered[std::string(kernel.method)].insert(std::string(kernel.name));
  }
  EXPECT_EQ(by_method, registered);
  for (const MatrixCell& cell : cells) {
    const std::string kernel = cell.problem.Get("kernel");
    EXPECT_TRUE(kernel.ends_with(cell.problem.Get("tier"))) << kernel;
    EXPECT_EQ(kernel.find("a8row") != std::string::npos, cell.problem.Get("act") == "a8row");
  }
  // A row that says which gets those alone.
  for (const MatrixCell& cell : Expand(File(
           row(R"("op": ["moe.down"], "expert": [1], "act": ["a8g32"], "tier": ["scalar"])")))) {
    EXPECT_EQ(cell.problem.Get("kernel"), "linear_ct_int4_g32_a8g32_row_scalar");
  }
}

TEST(Matrix, TheDefaultCoversEveryKernel) {
  const auto rows = ReadMatrix(kDefault);
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  const auto cells = ExpandMatrix(*rows, &Models());
  ASSERT_TRUE(cells.ok()) << cells.error().message;
  EXPECT_EQ(CheckLegal(*rows, *cells), "");
  EXPECT_EQ(KernelsWithoutCells(*cells), std::vector<std::string>{});
  const auto legal = std::count_if(cells->begin(), cells->end(),
                                   [](const MatrixCell& cell) { return cell.legal; });
  EXPECT_GE(legal, 1000);
  EXPECT_LT(legal, static_cast<int64_t>(cells->size())) << "no illegal cell";
  std::set<std::string> kinds, models;
  for (const MatrixCell& cell : *cells) {
    kinds.insert(cell.problem.kind);
    models.insert(cell.problem.Get("model"));
  }
  EXPECT_EQ(kinds.size(), Kinds().size() - 1) << "all kinds but lora";
  EXPECT_GE(models.size(), 6u);
  // The check itself can fail.
  EXPECT_EQ(KernelsWithoutCells({}).size(), kernels::LinearKernels().size());
}

TEST(Matrix, ModelsThatAreFetchedNeedNotBeHere) {
  setenv("ASSAY_MODELS", "/no/such/folder", 1);
  ModelStore models;
  const auto rows = ReadMatrix(File(Row(R"("model": ["smollm2", "llama-mini"], "tp": [1, 2])", 9)));
  const auto cells = ExpandMatrix(*rows, &models);
  ASSERT_TRUE(cells.ok()) << cells.error().message;
  EXPECT_EQ(cells->size(), 4u);
  EXPECT_FALSE((*cells)[0].known);
  EXPECT_TRUE((*cells)[2].known);
  EXPECT_EQ(CheckLegal(*rows, *cells), "");
  const CellResult cell = ExecuteCell((*cells)[0].problem, &models, {}).result;
  EXPECT_EQ(NameOf(cell.verdict), "NOT_EXECUTED");
  EXPECT_NE(cell.reason.find("./assay golden fetch smollm2"), std::string::npos) << cell.reason;
  unsetenv("ASSAY_MODELS");
}

TEST(Matrix, Filters) {
  const auto matches = [](const std::string& problem, const std::string& filter) {
    const auto parsed = ParseFilter(filter);
    EXPECT_TRUE(parsed.ok()) << filter;
    return parsed.ok() && Matches(*ParseProblem(problem), {*parsed});
  };
  const std::string amx = "load model=k2-mini tp=4 tier=amx_int8 method=ct-int4-g32";
  EXPECT_TRUE(matches(amx, "tier=amx"));
  EXPECT_TRUE(matches(amx, "tier=avx2,amx_int8"));
  EXPECT_TRUE(matches(amx, "method=ct-int4"));
  EXPECT_FALSE(matches(amx, "tier=avx"));
  EXPECT_FALSE(matches(amx, "model=k2"));  // only tier and method match by prefix
  EXPECT_TRUE(matches(amx, "tp=2,4"));
  EXPECT_FALSE(matches(amx, "tp=40"));
  EXPECT_TRUE(matches(amx, "kind=load"));
  EXPECT_FALSE(matches(amx, "kind=linear"));
  EXPECT_TRUE(matches(amx, "attn_tp=4"));  // its default is tp
  EXPECT_TRUE(matches(amx, "seed=1"));
  EXPECT_FALSE(matches("load model=k2-mini", "tier=avx2"));
  EXPECT_TRUE(Matches(*ParseProblem(amx), {}));
  // Many are and-ed.
  EXPECT_FALSE(Matches(*ParseProblem(amx), {*ParseFilter("tp=4"), *ParseFilter("kind=act")}));
}

TEST(Matrix, FiltersThatAreWrong) {
  const auto error = [](const std::string& filter) {
    const auto parsed = ParseFilter(filter);
    EXPECT_FALSE(parsed.ok()) << filter;
    return parsed.ok() ? "" : parsed.error().message;
  };
  EXPECT_NE(error("teir=avx2").find("did you mean tier?"), std::string::npos);
  EXPECT_NE(error("xyzzy=1").find("allowed are kind"), std::string::npos);
  for (const char* filter : {"tp", "tp=", "tp=,", ""}) {
    EXPECT_NE(error(filter).find("a filter is key=value"), std::string::npos) << filter;
  }
}

TEST(Matrix, Skips) {
  const auto skips = ReadSkips(Write("{\"rows\": [" + Row() +
                                     R"(], "skips": [{"cells": ["model=llama-mini", "tp=3"],)"
                                     R"( "reason": "its file is too large"}]})"));
  ASSERT_TRUE(skips.ok()) << skips.error().message;
  ASSERT_EQ(skips->size(), 1u);
  EXPECT_TRUE(Matches(*ParseProblem("load model=llama-mini tp=3"), (*skips)[0].filters));
  EXPECT_FALSE(Matches(*ParseProblem("load model=llama-mini tp=1"), (*skips)[0].filters));
  EXPECT_EQ(ReadSkips(File(Row()))->size(), 0u);
  const auto wrong = [](const std::string& skip, const std::vector<std::string>& parts) {
    const auto read = ReadSkips(Write("{\"rows\": [" + Row() + "], \"skips\": " + skip + "}"));
    ASSERT_FALSE(read.ok()) << skip;
    ExpectSays(read.error(), parts);
  };
  wrong("{}", {"skips must be a list"});
  wrong("[3]", {"skip 0", "needs cells"});
  wrong(R"([{"cells": ["tp=3"]}])", {"skip 0", "a reason"});
  wrong(R"([{"cells": ["tp=3"], "reason": ""}])", {"skip 0", "a reason"});
  wrong(R"([{"cells": [], "reason": "x"}])", {"skip 0", "needs cells"});
  wrong(R"([{"cells": ["pt=3"], "reason": "x"}])", {"skip 0", "did you mean tp?"});
  wrong(R"([{"cells": ["tp=3"], "reason": "x", "why": 1}])", {"skip 0", "unknown key why"});
}

}  // namespace
}  // namespace assay::run
