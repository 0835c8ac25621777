// Kinds of mistake in rounding, sums, rows and activations, each planted in an engine that is right
// without it; every id that comes out must be in the closed list.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <regex>
#include <set>

#include "harness/judge/floor.h"
#include "harness/judge/testing/test_model.h"
#include "harness/locate/locate.h"

namespace assay::locate {
namespace {

using assay::testing::Encode;
using assay::testing::Engine;
using assay::testing::Prefill;
using assay::testing::RequestFor;
using assay::testing::Sizes;
using assay::testing::TestModel;
using reference::Node;
using reference::Tensor;

const std::set<std::string>& ClosedList() {
  static const std::set<std::string> kIds = [] {
    std::ifstream file("harness/locate/signatures.md");
    std::set<std::string> ids{"unknown"};  // "none of these"
    const std::regex id("`([a-z-]+)`");
    for (std::string line; std::getline(file, line);) {
      if (line.rfind("| `", 0) != 0) continue;
      const std::string cell = line.substr(0, line.find('|', 1));
      for (std::sregex_iterator at(cell.begin(), cell.end(), id), end; at != end; ++at) {
        ids.insert((*at)[1]);
      }
    }
    return ids;
  }();
  return kIds;
}

struct Rig {
  TestModel model;
  int tp;
  Engine engine;
  std::vector<reference::Step> steps = Prefill(9);
  Contract contract = assay::testing::TestContract();
  std::function<void(EngineTrace*)> change;

  explicit Rig(int tp_ = 2, Sizes sizes = {}) : model(31, sizes), tp(tp_), engine(model, tp_, 31) {}

  std::vector<Divergence> Run() {
    EngineTrace trace = engine.Run(steps);
    if (change) change(&trace);
    LocateRequest request;
    request.judge = RequestFor(model, trace, tp, steps);
    request.judge.contract = contract;
    auto judged = judge::JudgeTrace(request.judge);
    EXPECT_TRUE(judged.ok()) << (judged.ok() ? "" : judged.error().message);
    if (!judged.ok()) return {};
    request.judgements = &*judged;
    auto found = Locate(request);
    EXPECT_TRUE(found.ok()) << (found.ok() ? "" : found.error().message);
    if (!found.ok()) return {};
    for (const Divergence& d : *found) {
      EXPECT_EQ(ClosedList().count(d.signature.id), 1u) << d.signature.id;
    }
    return *found;
  }
  Divergence First() {
    const auto found = Run();
    EXPECT_FALSE(found.empty());
    return found.empty() ? Divergence{} : found[0];
  }
  void Plant(const std::string& path, std::function<void(Tensor*)> how) {
    engine.hook = [=](const Node& node, int rank, Tensor* value) {
      if (node.path == path && rank == 1) how(value);
    };
  }
};

// To bf16, in a direction: towards zero or away from it.
double Directed(double v, bool away) {
  if (v == 0) return v;
  const double unit = std::ldexp(1.0, std::ilogb(v) - 7);
  return (away ? std::copysign(std::ceil(std::abs(v) / unit), v) : std::trunc(v / unit)) * unit;
}

TEST(Signatures, TheClosedListIsRead) {
  EXPECT_GT(ClosedList().size(), 40u);
  EXPECT_EQ(ClosedList().count("no-such-id"), 0u);
}

TEST(Signatures, RoundingThatIsCutOffIsFoundOnOneOpAndTold) {
  for (const bool away : {false, true}) {
    Rig rig;
    rig.Plant("moe.act", [&](Tensor* v) {
      for (double& x : v->data) x = Directed(x, away);
    });
    const Divergence d = rig.First();
    EXPECT_EQ(d.op, "act");
    EXPECT_EQ(d.cls, "kernel");
    EXPECT_EQ(d.signature.id, away ? "rounding" : "truncated-rounding") << d.signature.text;
    EXPECT_EQ(d.cleared, std::vector<std::string>{"loader"}) << "no weight lies behind it";
  }
}

TEST(Signatures, AClampLeftOut) {
  Sizes sizes;
  sizes.limit = 0.75;
  Rig rig(2, sizes);
  EXPECT_TRUE(rig.Run().empty()) << "the clamp is honoured";
  rig.engine.limit = INFINITY;
  const Divergence d = rig.First();
  EXPECT_EQ(d.op, "act");
  EXPECT_EQ(d.signature.id, "clamp-missing") << d.signature.text;
  // Clamped elsewhere is not left out.
  rig.engine.limit = 1.5;
  EXPECT_NE(rig.First().signature.id, "clamp-missing");
}

// What moe.out is where ranks add otherwise.
void AddOtherwise(EngineTrace* trace, int tp, const std::string& order, DType wire, bool first) {
  std::vector<Tensor> parts;
  for (int r = 0; r < tp; ++r) {
    parts.push_back(judge::ToTensor(trace->taps.at({0, "L1.moe.partial", r})));
    for (double& v : parts.back().data) v = first ? RoundTo(v, wire) : v;
  }
  std::vector<const Tensor*> of;
  for (const Tensor& part : parts) of.push_back(&part);
  auto sum = reference::ModelReduce(of, "all_reduce", order, first ? DType::kF32 : wire);
  ASSERT_TRUE(sum.ok());
  for (int r = 0; r < tp; ++r) {
    trace->taps[{0, "L1.moe.out", r}] = {DType::kF32, parts[0].shape,
                                         Encode((*sum)[0].data, DType::kF32)};
  }
}

TEST(Signatures, SumsThatTravelOrAreAddedOtherwise) {
  struct Case {
    const char *order, *id;
    DType wire;
    bool first;
  };
  const Case cases[] = {{"sequential", nullptr, DType::kF32, false},
                        {"sequential", "wire-rounded", DType::kBF16, false},
                        {"sequential", "wire-rounded", DType::kBF16, true},
                        {"ring", "wire-rounded", DType::kBF16, false},
                        {"ring", "reduce-order", DType::kF32, false},
                        {"tree", "reduce-order", DType::kF32, false}};
  for (const Case& c : cases) {
    Rig rig(4);
    rig.contract.reduce_exact = true;
    rig.contract.rounding["reduce"] = DType::kF32;
    rig.change = [&](EngineTrace* trace) {
      AddOtherwise(trace, 4, c.order, c.wire, c.first);
      for (int r = 0; r < 4; ++r) trace->taps.erase({0, "L1.residual_mlp", r});
      for (int r = 0; r < 4; ++r) trace->taps.erase({0, "logits", r});
    };
    const auto found = rig.Run();
    ASSERT_EQ(found.empty(), c.id == nullptr) << c.order;
    if (c.id == nullptr) continue;
    EXPECT_EQ(found[0].tap, "L1.moe.out");
    EXPECT_EQ(found[0].cls, "collective");
    EXPECT_EQ(found[0].cleared, (std::vector<std::string>{"loader", "kernel"}));
    EXPECT_EQ(found[0].signature.id, c.id) << c.order << ": " << found[0].signature.text;
    EXPECT_NE(found[0].signature.text.find(c.order), std::string::npos);
  }
}

TEST(Signatures, ARowOfATileFromTheRowBeforeIt) {
  for (const bool copied : {true, false}) {
    Rig rig;
    rig.Plant("attn.q", [&](Tensor* v) {
      for (int64_t row = 3; row < v->rows(); row += 4) {
        for (int64_t c = 0; c < 8; ++c) {
          v->data[row * 8 + c] =
              copied ? v->data[(row - 1) * 8 + c] : 5 + std::sin(row * 7.0 + c * c);
        }
      }
    });
    const Divergence d = rig.First();
    EXPECT_EQ(d.signature.id, "token-row") << d.signature.text;
    EXPECT_EQ(d.signature.text,
              copied ? "row 3 is the result of row 2's input" : "only rows 3 modulo 4 are wrong");
    EXPECT_EQ(d.index, (std::vector<int64_t>{3, 0}));
  }
}

// Codes of expert 2's down on rank 1.
Rig WithCodes(std::function<void(Tensor* codes, Tensor* scales)> how) {
  Rig rig;
  rig.engine.act = "a8g32";
  rig.engine.codes = [how](const Node& node, int rank, Tensor* codes, Tensor* scales) {
    if (node.tap == "L1.moe.e2.down" && rank == 1) how(codes, scales);
  };
  return rig;
}

TEST(Signatures, AWrongCodeIsAnOpOfItsOwn) {
  auto make = [] { return WithCodes([](Tensor* codes, Tensor*) { codes->data[33] += 3; }); };
  Rig rig = make();
  rig.engine.model = &rig.model;
  const auto found = rig.Run();
  ASSERT_EQ(found.size(), 1u) << "the product is not blamed";
  const Divergence& d = found[0];
  EXPECT_EQ(d.op, "x_q");
  EXPECT_EQ(d.tap, "L1.moe.e2.down.x_q");
  EXPECT_EQ(d.cls, "kernel");
  EXPECT_EQ(d.rank, 1);
  EXPECT_EQ(d.layer, 1);
  EXPECT_EQ(d.expert, 2);
  EXPECT_EQ(d.unit, "element");
  EXPECT_EQ(d.local_index, (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(d.index, (std::vector<int64_t>{1, 33})) << "rank 1 has columns 32 to 63";
  ASSERT_FALSE(d.propagated.empty());
  EXPECT_EQ(d.propagated[0], "L1.moe.e2.down");
  EXPECT_NE(std::find(d.propagated.begin(), d.propagated.end(), "L1.moe.out"), d.propagated.end());
  EXPECT_EQ(d.cleared, std::vector<std::string>{"loader"});
}

TEST(Signatures, AWrongScaleNamesItsGroup) {
  Rig rig = WithCodes([](Tensor* codes, Tensor* scales) {
    scales->data[1] *= 2;
    for (int i = 32; i < 64; ++i) codes->data[i] = std::nearbyint(codes->data[i] / 2);
  });
  rig.engine.model = &rig.model;
  const Divergence d = rig.First();
  EXPECT_EQ(d.op, "x_scale");
  EXPECT_EQ(d.unit, "group");
  EXPECT_EQ(d.local_index, (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(d.index, (std::vector<int64_t>{1, 1})) << "rank 1 has the second group of the row";
  EXPECT_EQ(d.propagated[0], "L1.moe.e2.down.x_q");
}

TEST(Signatures, CodesThatAreCutOff) {
  Rig rig;
  rig.engine.act = "a8row";
  rig.change = [](EngineTrace* trace) {  // of the very quotient
    const Tensor x = judge::ToTensor(trace->taps.at({0, "L1.moe.e2.act", 1}));
    const Tensor s = judge::ToTensor(trace->taps.at({0, "L1.moe.e2.down.x_scale", 1}));
    Tensor codes = x;
    for (int64_t i = 0; i < static_cast<int64_t>(x.data.size()); ++i) {
      const auto scale = static_cast<float>(s.data[i / x.columns()]);
      codes.data[i] = std::trunc(static_cast<float>(x.data[i]) / scale);
    }
    trace->taps[{0, "L1.moe.e2.down.x_q", 1}].bytes = Encode(codes.data, DType::kI8);
  };
  const Divergence d = rig.First();
  EXPECT_EQ(d.tap, "L1.moe.e2.down.x_q");
  EXPECT_EQ(d.signature.id, "act-rounding") << d.signature.text;
  EXPECT_NE(d.signature.text.find("towards zero"), std::string::npos);
}

TEST(Signatures, OneScaleARowIsAGroupsMistake) {
  Rig rig(1);
  rig.engine.act = "a8g32";
  rig.engine.codes = [](const Node& node, int, Tensor* codes, Tensor* scales) {
    if (node.tap != "L1.moe.e2.down") return;
    for (size_t row = 0; row < scales->data.size() / 2; ++row) {
      const double s = std::max(scales->data[2 * row], scales->data[2 * row + 1]);
      for (size_t i = 0; i < 64; ++i) {
        double& code = codes->data[64 * row + i];
        code = std::nearbyint(code * scales->data[2 * row + i / 32] / s);
      }
      scales->data[2 * row] = scales->data[2 * row + 1] = s;
    }
  };
  const Divergence d = rig.First();
  EXPECT_EQ(d.op, "x_scale");
  EXPECT_EQ(d.signature.id, "group-scale") << d.signature.text;
}

TEST(Signatures, CodesOfAKernelThatTakesNoneAreItsSelections) {
  Rig rig;
  rig.engine.act = "a8g32";
  rig.change = [](EngineTrace* trace) {
    for (ExecutedRecord& record : trace->executed) record.act = "a16";
  };
  const Divergence d = rig.First();
  EXPECT_EQ(d.signature.id, "act-contradicted");
  EXPECT_EQ(d.cls, "selection");
}

TEST(ErrorMap, ShowsWhereAnOpIsWrong) {
  Rig rig;
  rig.steps = Prefill(70);
  rig.Plant("attn.q", [](Tensor* v) { v->data[41 * 8 + 5] += 9; });
  const Divergence d = rig.First();
  ASSERT_TRUE(d.map);
  EXPECT_EQ(d.map->value, "ratio");
  EXPECT_EQ(d.map->row_unit, "token");
  EXPECT_EQ(d.map->column_unit, "column");
  EXPECT_EQ(d.map->rows_a_cell, 3);
  EXPECT_EQ(d.map->rows, 24);
  EXPECT_EQ(d.map->columns, 8);
  ASSERT_EQ(d.map->cells.size(), 24u * 8);
  for (int64_t i = 0; i < 24 * 8; ++i) {
    EXPECT_EQ(d.map->cells[i] > 1, i == 41 / 3 * 8 + 5) << i;
  }
}

TEST(AccumulationOnly, NamesTapsAndFloorAndNoFirstOp) {
  judge::Floor floor;
  floor.derivation = "R = 59";
  const Divergence d = AccumulationOnly({{"L1.moe.out", 1, 9, 1}, {"logits", 1, 40, 2}}, floor);
  EXPECT_EQ(d.signature.id, "accumulation");
  EXPECT_EQ(ClosedList().count(d.signature.id), 1u);
  EXPECT_TRUE(d.op.empty() && d.tap.empty());
  EXPECT_EQ(d.step, 1);
  EXPECT_NE(d.signature.evidence.find("L1.moe.out"), std::string::npos);
  EXPECT_NE(d.signature.evidence.find("R = 59"), std::string::npos);
}

}  // namespace
}  // namespace assay::locate
