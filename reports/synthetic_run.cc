#include "reports/synthetic_run.h"

#include <fmt/format.h>

namespace assay::reports {
namespace {

struct Model {
  const char *name, *method;
  int largest_tp;  // of attention
  const char* why;
};
constexpr Model kModels[] = {
    {"k2-mini", "bf16", 8, ""},
    {"k2-mini-int4-g32", "ct-int4-g32", 8, ""},
    {"qwen3-mini", "bf16", 2,
     "attn.k: 2 key-value heads cannot be cut into {} ranks; largest legal TP is 2"},
    {"llama-mini", "bf16", 3, "attn.q: 6 heads cannot be cut into {} ranks; largest legal TP is 3"},
};

std::string Problem(const char* kind, const Model& model, int tp, const char* tier) {
  return fmt::format(
      "{} engine=native kernel=dot16 model={} method={} act=a16 tp={} attn_tp={} tier={} threads=2 "
      "tokens=5 fill=lognormal seed=1",
      kind, model.name, model.method, tp, tp, tier);
}

CellResult Cell(const char* kind, const Model& model, int tp, const char* tier) {
  CellResult cell;
  cell.problem = Problem(kind, model, tp, tier);
  cell.model_hash = "5f1d0c2ab7e94410";
  cell.verdict = Verdict::kPass;
  cell.mode = "bounded";
  cell.executed = Executed{fmt::format("native.{}.a16.{}", model.method, tier),
                           tier,
                           "hardware",
                           "row",
                           "a16",
                           "native@7c1e90f",
                           tp,
                           2,
                           {}};
  cell.metrics.cosine = 0.99999982;
  cell.metrics.rel_l2 = 2.1e-4;
  cell.metrics.max_abs = 3.4e-3;
  cell.metrics.max_ratio = 0.41;
  cell.metrics.allclose_excess = 0.18;
  cell.metrics.ambiguous = 0;
  cell.metrics.tolerance = ToleranceFacts{"2^-24", 71, 71, {"acc", "out"}};
  cell.ms = 9.5 + 3 * tp;
  cell.repro = fmt::format("./assay run '{} model={} tp={} tier={}'", kind, model.name, tp, tier);
  return cell;
}

void DidNotRun(CellResult* cell, Verdict verdict, std::string reason) {
  cell->verdict = verdict;
  cell->reason = std::move(reason);
  cell->executed.reset();
  cell->mode.clear();
  cell->metrics = Metrics();
}

CellResult PlainCell(const char* kind, const Model& model, int tp, const char* tier) {
  CellResult cell = Cell(kind, model, tp, tier);
  if (tp > model.largest_tp) {
    DidNotRun(&cell, Verdict::kRefused, fmt::format(fmt::runtime(model.why), tp));
  } else if (std::string(tier) == "avx512_vnni") {
    DidNotRun(&cell, Verdict::kNotExecuted,
              "tier avx512_vnni: this CPU has no AVX512_VNNI, and emulation is not installed");
  }
  return cell;
}

}  // namespace

CellResult FailingExpert() {
  CellResult cell = Cell("moe", kModels[1], 4, "avx2");
  cell.verdict = Verdict::kFail;
  cell.reason = "a shard is not what the checkpoint and the plan say";
  cell.metrics.cosine = 0.9412;
  cell.metrics.rel_l2 = 0.3517;
  cell.metrics.max_abs = 1.204;
  cell.metrics.max_ratio = 31044;
  cell.metrics.three_way = 812;
  cell.metrics.condition = 5.2;
  Divergence first;
  first.layer = 1;
  first.op = "down";
  first.tap = "L1.moe.e5.down";
  first.cls = "loader";
  first.rank = 1;
  first.expert = 5;
  first.tensor = "L1.moe.e5.down.scale";
  first.unit = "group";
  first.index = {17, 5};
  first.local_index = {17, 1};
  first.expected = 0.012329;
  first.got = 0.047119;
  first.bits = {"3c4a", "3d41"};
  first.propagated = {"L1.moe.partial",  "L1.moe.out", "L1.mlp.out",
                      "L1.residual_mlp", "final_norm", "logits"};
  first.signature = {"scales-of-another-rank", "scales of rank 0 on rank 1",
                     "384 of 384 groups equal rank 0's"};
  first.cleared = {"layout", "kernel", "collective"};
  first.map = ErrorMap{96, 2, "row", "group", 1, 1, "wrong", std::vector<double>(192, 1.0)};
  for (size_t i = 0; i < first.map->cells.size(); i += 7) first.map->cells[i] = 0;
  cell.divergences.push_back(first);
  first.map.reset();
  first.rank = 2;
  first.local_index = {17, 0};
  first.signature.text = "scales of rank 0 on rank 2";
  cell.divergences.push_back(first);
  cell.ops = {{"L1.post_norm", 0, 0.21, std::nullopt, 1.0, 3.1e-8},
              {"L1.router.logits", 0, 0.18, std::nullopt, 1.0, 6.2e-8},
              {"L1.moe.e5.gate@r1", 0, 0.37, std::nullopt, 0.9999998, 1.9e-4},
              {"L1.moe.e5.up@r1", 0, 0.33, std::nullopt, 0.9999998, 2.0e-4},
              {"L1.moe.e5.act@r1", 0, 0.44, std::nullopt, 0.9999997, 2.4e-4},
              {"L1.moe.e5.down@r0", 0, 0.29, std::nullopt, 0.9999998, 1.8e-4},
              {"L1.moe.e5.down@r1", 0, 31044, std::nullopt, 0.9412, 0.3517},
              {"L1.moe.e5.down@r2", 0, 28710, std::nullopt, 0.9377, 0.3601},
              {"L1.moe.partial@r1", 0, 0.52, 2210.0, 0.9655, 0.2712},
              {"L1.moe.out", 0, 0.48, 1377.0, 0.9801, 0.2033}};
  cell.repro = "./assay run 'moe model=k2-mini-int4-g32 layer=1 tp=4 tier=avx2 fault=K03/rank0'";
  cell.problem += " layer=1 fault=K03/rank0";
  return cell;
}

CellResult FailingModel() {
  const Model model = {"smollm2", "gguf-q4_1", 3, ""};
  CellResult cell = Cell("model", model, 1, "avx2");
  cell.verdict = Verdict::kFail;
  cell.reason = "local error above its bound";
  cell.metrics.max_ratio = 512;
  cell.metrics.noise_floor = 4e-3;
  cell.metrics.floor_runs = 59;
  constexpr int kLayers = 30, kWrong = 12;
  for (int layer = 0; layer < kLayers; ++layer) {
    const double grown = layer < kWrong ? 1e-3 * (1 + layer) : 0.3 + 0.01 * layer;
    const bool wrong = layer == kWrong;
    const auto row = [&](const char* op, double local, double rel, std::optional<double> sum) {
      cell.ops.push_back({fmt::format("L{}.{}", layer, op), 0, local, sum, 1 - rel * rel / 2, rel,
                          sum ? std::optional<double>(2e-3 * (1 + layer)) : std::nullopt});
    };
    row("attn.out", 0.2 + 0.01 * layer, 1.7e-3, std::nullopt);
    row("mlp.act", wrong ? 512 : 0.5, wrong ? 0.42 : 2e-3, std::nullopt);
    row("residual_mlp", 0.9, 1.5e-3, grown);
  }
  cell.ops.push_back({"logits", 0, 0.4, 0.6, 0.9999, 1e-3, 4e-3});
  Divergence first;
  first.layer = kWrong;
  first.op = "act";
  first.tap = fmt::format("L{}.mlp.act", kWrong);
  first.cls = "kernel";
  first.rank = 0;
  first.unit = "element";
  first.index = first.local_index = {3, 17};
  first.expected = 7;
  first.got = 11.25;
  first.signature = {"clamp-missing", "the clamp of gate and up is missing",
                     "all 61 elements beyond the limit equal the function without it"};
  first.map =
      ErrorMap{33, 64, "token", "column", 1, 24, "ratio", std::vector<double>(33 * 64, 0.4)};
  for (size_t i = 0; i < first.map->cells.size(); i += 13) {
    first.map->cells[i] = static_cast<double>(2 * i);
  }
  cell.divergences.push_back(first);
  cell.repro = "./assay run 'model model=smollm2 tp=1 tier=avx2 prompt=t33 limit=7 fault=K40/none'";
  cell.problem += " prompt=t33 fault=K40/none";
  return cell;
}

CellResult FailingLoad() {
  CellResult cell = Cell("load", kModels[1], 2, "scalar");
  cell.verdict = Verdict::kFail;
  cell.reason = "a legal cell was refused: 2048 must match 4096";
  cell.mode = "exact";
  cell.metrics = Metrics();
  Divergence first;
  first.layer = 1;
  first.op = "gate";
  first.tap = "L1.moe.e0.gate";
  first.cls = "loader";
  first.expert = 0;
  first.tensor = "L1.moe.e0.gate.weight";
  first.unit = "word";
  first.expected = 2048;
  first.got = 4096;
  first.signature = {"wrong-representation",
                     "axis k in words: 2048 packed bytes, but the parameter has 4096 elements",
                     "both extents fit gate.weight, packed and unpacked; no other component fits"};
  cell.divergences.push_back(first);
  cell.problem += " fault=K02/representation";
  cell.repro =
      "./assay run 'load model=k2-mini-int4-g32 tp=2 tier=scalar fault=K02/representation'";
  cell.engine_output =
      "RuntimeError: The size of tensor a (2048) must match the size of tensor b "
      "(4096)\n  in load(layer=1, rank=0)\n";
  return cell;
}

RunRecord SyntheticRun() {
  RunRecord record;
  record.header = {
      "20260301-101500-7c1e90f",
      "7c1e90f2d4a8b35e61f09c77d2416b8ae3905f1c",
      "kind=load,moe,model",
      R"({"name":"bench-3","cpu":"AMD EPYC 7B13","cores":2,"memory_bytes":17179869184,)"
      R"("tiers":["scalar","avx2"]})",
      R"([{"name":"native","revision":"7c1e90f"}])",
      true,
      1};
  for (const Model& model : kModels) {
    for (const char* kind : {"load", "moe", "model"}) {
      const bool has_experts = std::string(model.name).rfind("k2", 0) == 0;
      if (std::string(kind) == "moe" && !has_experts) continue;
      for (const char* tier : {"scalar", "avx2", "avx512_vnni"}) {
        const bool only_loads = std::string(kind) == "load";
        if (only_loads && std::string(tier) != "scalar") continue;
        if (std::string(tier) == "avx512_vnni" && !has_experts) continue;
        for (const int tp : {1, 2, 4, 8}) {
          record.cells.push_back(PlainCell(kind, model, tp, tier));
        }
      }
    }
  }
  const auto replace = [&](const std::string& start, const CellResult& with) {
    for (CellResult& cell : record.cells) {
      if (cell.problem == start) cell = with;
    }
  };
  replace(Problem("moe", kModels[1], 4, "avx2"), FailingExpert());
  replace(Problem("load", kModels[1], 2, "scalar"), FailingLoad());
  // A second cell in a square of its own degree, so that one square stands for two.
  record.cells.push_back(Cell("moe", kModels[1], 4, "avx2"));
  record.cells.back().problem += " layer=2";

  CellResult zeros = Cell("model", kModels[0], 8, "scalar");
  zeros.verdict = Verdict::kMistrusted;
  zeros.reason = "4080 of 4096 outputs prove nothing: their tolerance exceeds their value";
  replace(Problem("model", kModels[0], 8, "scalar"), zeros);
  CellResult slow = Cell("model", kModels[3], 2, "scalar");
  DidNotRun(&slow, Verdict::kInfra, "timed out after 60 s");
  slow.attempts = 2;
  replace(Problem("model", kModels[3], 2, "scalar"), slow);
  CellResult left_out = Cell("model", kModels[3], 1, "scalar");
  DidNotRun(&left_out, Verdict::kSkipped, "allow-listed: covered by the avx2 cell on this machine");
  replace(Problem("model", kModels[3], 1, "scalar"), left_out);
  record.summary = Summary{record.Count(), 14.2};
  return record;
}

}  // namespace assay::reports
