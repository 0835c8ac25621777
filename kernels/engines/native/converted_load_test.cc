// Every storage method in every layout that there is for it, at several degrees: what lies in
// memory is what the plan says, byte for byte, and what was chosen says so.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "harness/units/scheme.h"
#include "kernels/engines/native/native.h"
#include "kernels/engines/native/test_shards.h"
#include "kernels/layouts/layouts.h"
#include "kernels/methods/convert.h"

namespace assay::kernels::native {
namespace {

// A shipped checkpoint whose linears were converted to a method.
struct Made {
  Made(const Shipped& from, const std::string& id) {
    ConvertOptions options;
    auto made = MakeConverted(*from.checkpoint, from.source.config_json, *ParseScheme(id), options);
    if (!made.ok()) {
      why = made.error().message;
      return;
    }
    converted = std::move(*made);
    const auto config = ParseModelConfig(converted.config_json, "test");
    EXPECT_TRUE(config.ok()) << (config.ok() ? "" : config.error().message);
    source = {converted.config_json, *config, converted.source.get()};
    source.config.prefix = from.source.config.prefix;
    source.config.lm_head = from.source.config.lm_head;
  }
  Converted converted;
  Source source;
  std::string why;  // not made
};

std::vector<std::string> TagsOf(const std::string& method) {
  std::set<std::string> tags;
  for (const Layout& layout : Layouts()) {
    if (layout.method == method && layout.part != "act") tags.emplace(layout.tag);
  }
  return {tags.begin(), tags.end()};
}

Wishes At(int tp, const std::string& method, const std::string& layout) {
  Wishes wishes;
  wishes.tp = tp;
  wishes.attn_tp = 1;
  wishes.method = method;
  wishes.layout = layout;
  return wishes;
}

// Which components' bytes a layout moved, over all degrees of one model in one method.
struct Seen {
  int loaded = 0, repacked = 0, joined = 0, of_method = 0, gate_up = 0;
  std::map<std::string, int> repacked_by;  // tag
};

void LoadEverywhere(const Made& made, const std::string& method, Seen* seen) {
  for (const std::string& layout : TagsOf(method)) {
    for (const int tp : {1, 2, 3, 4, 8}) {
      // What a repack moves does not depend on how many ranks there are.
      if (layout != "row" && tp > 2) continue;
      SCOPED_TRACE(method + " layout " + layout + " tp " + std::to_string(tp));
      Driver driver(NativeEngine());
      ASSERT_EQ(driver.Open(made.source.config_json, At(tp, method, layout)), ASSAY_OK)
          << driver.error().message;
      std::string why;
      const shard::Degrees degrees{.tp = tp, .attn_tp = tp == 1 ? 0 : 1};
      const Held held = LoadAndCompare(driver, made.source, degrees, &why);
      seen->loaded += held.compared > 0 ? 1 : 0;
      const auto gate_up = held.gate_up.find(method);
      seen->gate_up += gate_up == held.gate_up.end() ? 0 : gate_up->second;
      seen->of_method += held.of.count(method) > 0 ? held.of.at(method) : 0;
      seen->repacked += held.repacked;
      seen->repacked_by[layout] += held.repacked;
      seen->joined += held.joined;
    }
  }
}

class Converted : public testing::TestWithParam<std::string> {};

TEST_P(Converted, IsHeldByteForByteInEveryLayout) {
  const std::string& method = GetParam();
  Seen seen;
  int models = 0;
  for (const char* path : {"goldens/checkpoints/llama-mini", "goldens/checkpoints/k2-mini",
                           "goldens/checkpoints/gptoss-mini", "goldens/checkpoints/v4-mini"}) {
    const Shipped shipped(path);
    const Made made(shipped, method);
    if (!made.why.empty()) continue;
    ++models;
    SCOPED_TRACE(path);
    LoadEverywhere(made, method, &seen);
  }
  EXPECT_GE(models, 1);
  EXPECT_GT(seen.loaded, 0);
  // Files state the group's size where the method has one group a row.
  if (method == "ct-int4-one-group") return;
  EXPECT_GT(seen.of_method, 0);
  for (const auto& [tag, repacked] : seen.repacked_by) {
    // Nothing is woven where gate and up cannot be one matrix.
    const bool moves = tag != "row" && (tag != "gate-up-rows" || seen.gate_up > 0);
    EXPECT_EQ(repacked > 0, moves) << tag;
  }
}

std::string NameOfCase(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(),
      [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Methods, Converted, testing::ValuesIn(KnownSchemes()), NameOfCase);

}  // namespace
}  // namespace assay::kernels::native
