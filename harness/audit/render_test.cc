#include "harness/audit/render.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "harness/audit/text.h"

namespace assay::audit {
namespace {

using nlohmann::json;

Report Example() {
  Report report;
  report.path = "/models/k2";
  report.model = "DeepseekV3ForCausalLM";
  report.known = true;
  report.files = 2;
  report.bytes = 3'000'000;
  report.degrees = {1, 7};
  report.methods = {{"ct-int4-g32", 2, 2'999'000}, {"bf16", 1, 1000}, {"gone", 0, 0}};
  report.placements = {{{"whole", true, ""}, {"whole", true, ""}},
                       {{"k[tp] g32 u4x8", true, ""},
                        {"", false, "axis k has 64 groups, which do not divide by tp 7"}},
                       {{"", std::nullopt, "nobody"}, {"", std::nullopt, "nobody"}}};
  report.tensors = {{"a.norm.weight", DType::kBF16, {500}, 1000, 1, 0},
                    {"a.0.down.weight_packed", DType::kI32, {7168, 256}, 1'499'000, 0, 1},
                    {"a.1.down.weight_packed", DType::kI32, {7168, 256}, 1'500'000, 0, 1}};
  DegreeRow one;
  one.legal = true;
  one.cut = 2;
  one.whole = 1;
  one.bytes = {3'000'000};
  DegreeRow seven;
  seven.tp = 7;
  seven.legal = false;
  seven.refused = 2;
  seven.why = "a.0.down.weight_packed: axis k has 64 groups, which do not divide by tp 7";
  report.tps = {one, seven};
  report.largest_legal_tp = 8;
  report.legal_degrees = {1, 2, 4, 8};
  report.findings = {{"nan", "a.0.down.weight_scale", "/models/k2/model.safetensors",
                      "holds a NaN scale at row 17, group 5; a scale is positive"}};
  report.notes = {{"unused", "b", "/models/k2/model.safetensors", "nobody takes it"}};
  report.hidden = {{"K03", 7, "one group", 2, "a.0.down.weight_scale"},
                   {"K17", 0, "no bias", 0, ""}};
  report.speed = {3'000'000, 0.001, 2};
  return report;
}

json Read(const Report& report) {
  std::string text;
  WriteJson(report, [&](std::string_view part) { text += part; });
  return json::parse(text);
}

TEST(Json, IsWhatItPromises) {
  const json got = Read(Example());
  ASSERT_EQ(got["tensors"].size(), 3u);
  const json& tensor = got["tensors"][1];
  EXPECT_EQ(tensor["name"], "a.0.down.weight_packed");
  EXPECT_EQ(tensor["method"], "ct-int4-g32");
  EXPECT_EQ(tensor["shape"], json::array({7168, 256}));
  EXPECT_EQ(tensor["tp"]["1"], json({{"plan", "k[tp] g32 u4x8"}, {"legal", true}, {"why", ""}}));
  EXPECT_EQ(tensor["tp"]["7"]["legal"], false);
  EXPECT_EQ(
      got["findings"],
      json::array({{{"kind", "nan"},
                    {"tensor", "a.0.down.weight_scale"},
                    {"file", "/models/k2/model.safetensors"},
                    {"detail", "holds a NaN scale at row 17, group 5; a scale is positive"}}}));
  EXPECT_EQ(got["largest_legal_tp"], 8);
  EXPECT_EQ(got["bytes_per_rank"]["1"], json::array({3'000'000}));
  EXPECT_TRUE(got["bytes_per_rank"]["7"].is_null());
  EXPECT_EQ(got["hidden"][0]["tp"], 7);
  EXPECT_TRUE(got["hidden"][1]["tp"].is_null());
}

TEST(Json, UnknownIsNull) {
  Report report = Example();
  report.largest_legal_tp.reset();
  for (TensorRow& row : report.tensors) row.placement = 2;
  const json got = Read(report);
  EXPECT_TRUE(got["largest_legal_tp"].is_null());
  EXPECT_TRUE(got["tensors"][0]["tp"]["1"]["legal"].is_null());
  EXPECT_TRUE(Read(Report()).contains("tensors"));
}

// Names come from files: nothing of them breaks out.
TEST(Rendering, HostileNamesStayText) {
  Report report = Example();
  const std::string hostile = "x\"<script>\x1b[31m\n\\\xff";
  report.path = report.model = hostile;
  report.tensors[0].name = report.findings[0].tensor = report.findings[0].file = hostile;
  report.notes[0].detail = report.hidden[0].first = report.tps[1].why = hostile;
  const json got = Read(report);
  EXPECT_EQ(got["findings"][0]["tensor"], "x\"<script>\x1b[31m\n\\\xef\xbf\xbd");
  const std::string terminal = RenderTerminal(report, false), html = RenderHtml(report);
  EXPECT_EQ(terminal.find('\x1b'), terminal.npos);
  EXPECT_EQ(html.find("<script>"), html.npos);
  EXPECT_EQ(html.find('\x1b'), html.npos);
  EXPECT_EQ(FindingLine(report.findings[0]).find('\n'), std::string::npos);
}

TEST(Terminal, TablesFitEightyColumnsAndNamesAreWhole) {
  Report report = Example();
  const std::string name(200, 'n');
  report.findings[0].tensor = name;
  report.hidden[0].text = "a long text " + std::string(30, ' ') + std::string(70, 'w') + " ends";
  const std::string text = RenderTerminal(report, false);
  std::istringstream lines(text);
  bool seen = false;
  for (std::string line; std::getline(lines, line);) {
    const bool of_tensor =
        line.starts_with("nan ") || line.starts_with("unused ") || line.starts_with("TP 7: ");
    seen = seen || line == FindingLine(report.findings[0]);
    if (!of_tensor) {
      EXPECT_LE(line.size(), 80u) << line;
    }
  }
  EXPECT_TRUE(seen) << text;
  for (const char* part : {"ct-int4-g32", "REFUSED", "largest legal TP 8 (1, 2, 4, 8)", "K03  TP 7",
                           "K17  any TP", "1 finding"}) {
    EXPECT_NE(text.find(part), text.npos) << part;
  }
  EXPECT_EQ(text.find("gone"), text.npos);
}

TEST(Terminal, ColoursOnlyWhereAskedFor) {
  EXPECT_EQ(RenderTerminal(Example(), false).find('\x1b'), std::string::npos);
  EXPECT_NE(RenderTerminal(Example(), true).find("\x1b["), std::string::npos);
}

TEST(Html, IsOneFileWithoutScripts) {
  const std::string html = RenderHtml(Example());
  EXPECT_TRUE(html.starts_with("<!doctype html>"));
  for (const char* forbidden : {"<script", "http://", "https://", "<link", "url("}) {
    EXPECT_EQ(html.find(forbidden), html.npos) << forbidden;
  }
  for (const char* part : {"a.0.down.weight_scale", "row 17, group 5", "width=device-width",
                           "prefers-color-scheme:dark", "k[tp] g32 u4x8", "1 finding"}) {
    EXPECT_NE(html.find(part), html.npos) << part;
  }
}

TEST(Forms, GatherWhatDiffersOnlyInNumbers) {
  const Report report = Example();
  const auto forms = FormsOf(report);
  ASSERT_EQ(forms.size(), 2u);
  const auto packed =
      std::find_if(forms.begin(), forms.end(), [](const Form& form) { return form.tensors == 2; });
  ASSERT_NE(packed, forms.end());
  EXPECT_EQ(packed->pattern, "a.#.down.weight_packed");
  EXPECT_EQ(packed->bytes, 2'999'000);
}

TEST(Hidden, SeveralDegreesAreOneRow) {
  Report report = Example();
  report.hidden.push_back({"K03", 9, "one group", 2, "a.0.down.weight_scale"});
  const auto rows = HiddenRowsOf(report);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].degrees, (std::vector<int>{7, 9}));
  EXPECT_TRUE(rows[1].degrees.empty());
}

TEST(Text, Sizes) {
  EXPECT_EQ(SizeText(0), "0 B");
  EXPECT_EQ(SizeText(1023), "1023 B");
  EXPECT_EQ(SizeText(1024), "1.0 KiB");
  EXPECT_EQ(SizeText(1024 * 1024 - 1), "1.0 MiB");
  EXPECT_EQ(SizeText(INT64_MAX), "8192.0 PiB");
}

}  // namespace
}  // namespace assay::audit
