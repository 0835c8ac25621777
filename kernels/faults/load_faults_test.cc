// Each fault of a loader changes the parameters that it says, on the ranks that it says, in the
// cell that shows it, and nothing else; and nothing at all in the one that cannot.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <ostream>
#include <regex>
#include <set>
#include <sstream>

#include "harness/shard/plan.h"
#include "harness/units/scheme.h"
#include "kernels/engines/native/native.h"
#include "kernels/engines/native/test_driver.h"
#include "kernels/faults/faults.h"
#include "kernels/methods/convert.h"

namespace assay::kernels {
namespace {

using native::Driver;
using native::Wishes;

// A cell as far as loading goes: "load model=k2-mini method=ct-mxfp4 layer=1 op=mlp tp=2".
struct Cell {
  std::map<std::string, std::string> keys;
  explicit Cell(std::string_view text) {
    std::istringstream words{std::string(text)};
    for (std::string word; words >> word;) {
      const size_t at = word.find('=');
      if (at != std::string::npos) keys[word.substr(0, at)] = word.substr(at + 1);
    }
  }
  std::string Get(const std::string& key) const {
    const auto found = keys.find(key);
    return found == keys.end() ? "" : found->second;
  }
  int Number(const std::string& key, int otherwise) const {
    return Get(key).empty() ? otherwise : std::stoi(Get(key));
  }
  // The harness changes the data, and has tests for it.
  bool needs_harness() const { return !Get("fill").empty() || !Get("reload").empty(); }
};

// A shipped checkpoint, in another method where the cell names one.
struct Model {
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<TensorSource> converted;
  std::string config_json;
  ModelConfig config;
  const TensorSource& source() const { return converted ? *converted : *checkpoint; }

  explicit Model(const Cell& cell) {
    const std::string name = cell.Get("model"), method = cell.Get("method");
    const bool quantised =
        name == "k2-mini-int4-g32" || name == "gptoss-mini-mxfp4" || name == "qwen3moe-mini-fp8";
    checkpoint =
        native::OpenCheckpoint((quantised ? "goldens/quantised/" : "goldens/checkpoints/") + name);
    config_json = checkpoint->config_json();
    config = checkpoint->config();
    if (method.empty()) return;
    auto made = MakeConverted(*checkpoint, config_json, *ParseScheme(method));
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
    if (!made.ok()) return;
    converted = std::move(made->source);
    config_json = made->config_json;
    auto parsed = ParseModelConfig(config_json, name);
    EXPECT_TRUE(parsed.ok());
    parsed->prefix = config.prefix;
    parsed->lm_head = config.lm_head;
    config = *parsed;
  }
};

shard::Degrees DegreesOf(const Cell& cell) {
  shard::Degrees degrees;
  degrees.tp = cell.Number("tp", 1);
  degrees.attn_tp = cell.Number("attn_tp", 0);
  degrees.ep = cell.Number("ep", 1);
  const std::string split = cell.Get("split");
  if (split == "ceil") degrees.split = shard::Split::kCeil;
  if (split.starts_with("list:")) {
    degrees.split = shard::Split::kList;
    std::istringstream units(split.substr(5));
    for (std::string unit; std::getline(units, unit, ',');)
      degrees.list.push_back(std::stoll(unit));
  }
  return degrees;
}

shard::Selection SelectionOf(const Cell& cell) {
  shard::Selection selection;
  selection.layer = cell.Number("layer", -1);
  if (cell.Get("op") == "attn") selection.mlp = false;
  if (cell.Get("op") == "mlp") selection.attention = false;
  if (!cell.Get("expert").empty()) selection.experts = {cell.Number("expert", 0)};
  return selection;
}

// What a rank holds of a component, and how it was chosen; empty: nothing.
std::string HeldBy(Driver& driver, int rank, const std::string& component) {
  assay_shard shard;
  if (driver.Export(rank, component, &shard) != ASSAY_OK) return "";
  std::string held = std::string(shard.method) + " " + shard.layout + " " +
                     std::to_string(shard.rows) + "x" + std::to_string(shard.columns) + " ";
  const char* data = static_cast<const char*>(shard.data);
  if (std::string_view(shard.layout) != "row" || shard.total_rows == 0) {
    return held + std::string(data, data + shard.bytes);
  }
  const uint64_t row = shard.bytes / static_cast<uint64_t>(shard.total_rows);
  data += row * static_cast<uint64_t>(shard.first_row);
  return held + std::string(data, data + row * static_cast<uint64_t>(shard.rows));
}

using Differing = std::map<std::string, std::set<int>>;

// Components that the faulty engine holds otherwise than the healthy one, and on which ranks.
Differing Compare(const Fault& fault, const Cell& cell) {
  const Model model(cell);
  const auto plan =
      shard::PlanModel(model.config, model.source(), DegreesOf(cell), SelectionOf(cell));
  EXPECT_TRUE(plan.ok() && plan->plan.has_value())
      << (plan.ok() ? plan->refusal->Message() : plan.error().message);
  if (!plan.ok() || !plan->plan) return {};
  std::set<std::string> names;
  for (const shard::ComponentPlan& component : plan->plan->components) {
    const std::string& source = component.component.source;
    names.insert(source);
    const std::string shape = source.substr(0, source.rfind('.')) + ".weight_shape";
    if (model.source().Find(shape) != nullptr) names.insert(shape);
  }
  Wishes wishes;
  wishes.tp = cell.Number("tp", 1);
  wishes.attn_tp = cell.Number("attn_tp", 0);
  wishes.layout = cell.Get("layout");
  // A layout binds the method that is stated.
  if (!wishes.layout.empty()) {
    wishes.method = cell.Get("method").empty() ? "ct-int4-g32" : cell.Get("method");
  }
  for (const char* key : {"split", "ep"}) {
    if (cell.Get(key).empty()) continue;
    wishes.options += (wishes.options.empty() ? "" : " ") + std::string(key) + "=" + cell.Get(key);
  }
  Driver healthy(NativeEngine()), faulty(FaultyEngine(fault.name));
  for (Driver* driver : {&healthy, &faulty}) {
    EXPECT_EQ(driver->Open(model.config_json, wishes), ASSAY_OK) << driver->error().message;
    for (int rank = 0; rank < wishes.tp; ++rank) {
      EXPECT_EQ(driver->Load(rank, model.source(), {names.begin(), names.end()},
                             cell.Number("layer", -1)),
                ASSAY_OK)
          << driver->error().message;
    }
  }
  Differing differing;
  for (const shard::ComponentPlan& component : plan->plan->components) {
    for (int rank = 0; rank < wishes.tp; ++rank) {
      const std::string& name = component.component.name;
      if (HeldBy(healthy, rank, name) != HeldBy(faulty, rank, name)) differing[name].insert(rank);
    }
  }
  return differing;
}

// What a fault may change, as an expression over components; and ranks that must not be touched.
struct Reach {
  const char* fault;
  const char* components;
  std::set<int> healthy = {};
  friend std::ostream& operator<<(std::ostream& out, const Reach& reach) {
    return out << reach.fault;
  }
};

const Reach kReaches[] = {
    {"K01/floor", R"(.*e\d\.down\.(weight|scale))"},
    {"K01/clamped", R"(.*e\d\.down\.(weight|scale))", {0, 1, 2, 3}},
    {"K01/even-split", R"(.*e\d\.down\.(weight|scale))"},
    {"K01/shared-block", R"(.*e\d\.down\.(weight|scale))", {0}},
    {"K01/block-rows", R"(.*e\d\.up\.scale)", {0}},
    {"K02/three-bits", R"(.*\.down\.weight)", {0, 1}},
    {"K02/elements", R"(.*\.down\.weight)", {0}},
    {"K02/eight-bits", R"(.*\.down\.weight)", {0}},
    {"K02/zero-rows", R"(.*\.gate\.zero)", {0}},
    {"K03/uncut", R"(.*\.down\.scale)"},
    {"K03/one-group", R"(.*\.down\.scale)", {0}},
    {"K03/cut-actorder", R"(.*\.down\.scale)"},
    {"K03/expert-stride", R"(.*e[1-6]\.down\.scale)"},
    {"K04/contiguous", R"(.*\.down\.g_idx)"},
    {"K04/local-groups", R"(.*\.down\.g_idx)", {0}},
    {"K04/sorted", R"(.*\.down\.g_idx)"},
    {"K05/transposed", R"(.*attn\.(q|out)\.scale)"},
    {"K05/row-pairs", R"(.*\.up\.scale)"},
    {"K05/group-shift", R"(.*\.down\.scale)"},
    {"K05/stride", R"(.*\.gate\.scale)"},
    {"K05/marlin-order", R"(.*e\d\.(gate|up|down)\.scale)"},
    {"K05/rope", R"(.*attn\.q\.scale)"},
    {"K06/plus-one", R"(.*\.gate\.zero)"},
    {"K06/minus-one", R"(.*\.down\.zero)"},
    {"K06/three-bits", R"(.*\.gate\.zero)"},
    {"K06/symmetric-zero", R"(.*\.gate\.zero)"},
    {"K06/dummy-zeros", R"(.*\.(gate|up|down)\..*)"},
    {"K07/signs", R"(.*\.gate\.weight)"},
    {"K07/awq-order", R"(.*\.gate\.zero)"},
    {"K07/half-order", R"(.*\.gate\.scale)"},
    {"K07/block-order", R"(.*\.down\.weight)"},
    {"K08/slab", R"(.*\.(gate|up)\.weight)"},
    {"K08/interleaved", R"(.*\.(gate|up)\.weight)"},
    {"K08/halves", R"(.*\.(gate|up)\.(weight|scale|bias))"},
    {"K08/aiter", R"(.*\.(gate|up)\.weight)"},
    {"K09/query-by-key", R"(.*attn\.q\.weight)", {0}},
    {"K09/key-modulo", R"(.*attn\.k\.weight)", {0, 3}},
    {"K09/grouped", R"(.*attn\.q\.weight)", {0}},
    {"K09/heads", R"(.*attn\.q\.weight)"},
    {"K09/latent-heads", R"(.*attn\.kv_b\.weight)"},
    {"K09/decays", R"(.*attn\.a_log\.weight)", {0}},
    {"K10/cut", R"(.*attn\.q_norm\.weight)"},
    {"K10/part-written", R"(.*attn\.k_norm\.weight)"},
    {"K11/floor", R"((embed|logits)\.weight)", {0}},
    {"K11/blocks", R"(logits\.weight)", {0}},
    {"K11/one-side", R"(logits\.weight)"},
    {"K11/tied-twice", R"(logits\.weight)"},
    {"K11/head-skipped", R"(logits\.weight)"},
    {"K12/first-slot", R"(.*(attn\.k|attn\.v|up)\.scale)"},
    {"K12/largest", R"(.*attn\.(q|k|v)\.scale)"},
    {"K12/local-largest", R"(.*\.gate\.global_scale)"},
    {"K13/missing", R"(L1\.moe\.e2\.up\.weight)"},
    {"K13/last-expert", R"(L1\.moe\.e8\..*)"},
    {"K13/not-mine", R"(L1\.moe\.e2\..*)", {0, 2, 3}},
    {"K13/twice", R"(L1\.moe\.e3\.gate\.weight)"},
    {"K13/buffer", R"(.*e[0-4]\.up\.weight)"},
    {"K14/overlap", R"(L1\.moe\.e1\.up\.scale)"},
    {"K14/element-size", R"(.*\.up\.scale)"},
    {"K14/race", R"(L1\.moe\.e2\.gate\.weight)"},
    {"K15/floor", R"(.*\.scale)"},
    {"K15/nearest", R"(.*\.scale)"},
    {"K16/fnuz-twice", R"(.*\.scale)"},
    {"K16/negative-zero", R"(.*\.weight)"},
    {"K16/clamped", R"(.*\.weight)"},
    {"K17/bias-cut", R"(.*attn\.out\.bias)"},
    {"K17/bias-twice", R"(.*attn\.q\.bias)"},
    {"K18/unwritten", R"(.*\.down\.(weight|scale))", {0}},
    {"K18/one", R"(.*\.down\.scale)", {0}},
    {"K18/at-the-end", R"(.*\.(gate|up)\.(weight|scale|bias))", {0}},
    {"K18/tiles", R"(.*\.down\.scale)"},
    {"K18/doubled", R"(.*\.(gate|up)\.(weight|scale|bias))", {0}},
    {"K19/by-names", R"(.*\.(gate|up|down)\..*)"},
    {"K19/split-keys", R"(.*attn\.kv_b\..*)"},
    {"K19/placeholder", R"(.*attn\.kv_b\.weight)"},
    {"K19/ignored-list", R"(.*router\.logits\..*)"},
    {"K19/one-group", R"(.*\.(gate|up|down)\..*)"},
    {"K19/version", R"(.*\.(gate|up|down)\..*)"},
    {"K19/replaced", R"(.*\.(gate|up|down)\..*)"},
};

std::vector<Reach> Reaches() { return {std::begin(kReaches), std::end(kReaches)}; }

class LoadFaults : public testing::TestWithParam<Reach> {};

TEST_P(LoadFaults, ChangeWhatTheySayAndNothingElse) {
  const Fault* fault = FindFault(GetParam().fault);
  ASSERT_NE(fault, nullptr);
  const Differing differing = Compare(*fault, Cell(fault->problem));
  EXPECT_FALSE(differing.empty());
  const std::regex allowed(GetParam().components);
  for (const auto& [component, ranks] : differing) {
    EXPECT_TRUE(std::regex_match(component, allowed)) << component;
    for (const int rank : GetParam().healthy) EXPECT_EQ(ranks.count(rank), 0u) << component;
  }
  // The coordinates that it claims to determine are among them.
  std::string tensor;
  int rank = -1;
  for (const FirstField& field : fault->first) {
    if (field.name == "tensor") tensor = field.json.substr(1, field.json.size() - 2);
    if (field.name == "rank") rank = std::stoi(std::string(field.json));
  }
  const auto found = differing.find(tensor);
  ASSERT_NE(found, differing.end()) << tensor;
  EXPECT_EQ(*found->second.begin(), rank);
}

TEST_P(LoadFaults, ChangeNothingWhereTheyCannotShow) {
  const Fault* fault = FindFault(GetParam().fault);
  ASSERT_NE(fault, nullptr);
  EXPECT_TRUE(Compare(*fault, Cell(fault->blind)).empty());
}

INSTANTIATE_TEST_SUITE_P(All, LoadFaults, testing::ValuesIn(Reaches()), [](const auto& test) {
  std::string name = test.param.fault;
  for (char& c : name) {
    if (!isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
});

TEST(LoadFaults, EveryOneIsInTheTable) {
  std::set<std::string_view> known;
  for (const Reach& reach : kReaches) known.insert(reach.fault);
  for (const Fault& fault : Faults()) {
    if (!fault.problem.starts_with("load ") || Cell(fault.problem).needs_harness()) continue;
    EXPECT_EQ(known.count(fault.name), 1u) << fault.name;
  }
}

}  // namespace
}  // namespace assay::kernels
