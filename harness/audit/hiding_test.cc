// Each predicate with a geometry that it is about and its twin that shows the fault.
#include "harness/audit/hiding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <ostream>
#include <set>

namespace assay::audit {
namespace {

using shard::Along;
using shard::Axis;
using shard::Range;

// A row-parallel int4 layer's scales [8, 4], groups of 32, cut over two ranks by groups.
struct World {
  ModelConfig config;
  shard::Component component;
  shard::ComponentPlan plan;
  Tally tally;
  GIdx g_idx;
  std::vector<std::byte> scalar, other_scalar;
  bool is_g_idx = false, is_scalar = false;
  int tp = 2;

  World() {
    config.vocab = 1000;
    config.heads = 8;
    config.kv_heads = 3;
    config.tied = true;
    config.o_bias = true;
    component.name = "L0.mlp.down.scale";
    component.source = "model.layers.0.mlp.down_proj.weight_scale";
    component.dtype = DType::kBF16;
    component.rows = 8;
    component.columns = 4;
    component.row_extent = Elements(8);
    component.group = component.column_elements = Elements(32);
    component.row_elements = Elements(128);
    tally.bytes = 64;
    tally.all_zero = false;
    tally.least = 0x3B00;
    tally.largest = 0x3C00;
    tally.Add(Issue::kDenormal, 3);
    Cut(Axis::kColumns, {{0, 2}}, {{2, 2}});
  }
  void Cut(Axis axis, std::vector<Range> zero, std::vector<Range> one) {
    plan.axis = axis;
    plan.degree = 2;
    plan.ranks = {std::move(zero), std::move(one)};
  }
  void Alone() {
    tp = 1;
    plan.axis = Axis::kNone;
    plan.degree = 1;
    plan.ranks = {{{0, component.rows}}};
  }

  std::vector<Hidden> Rows() const {
    Hiding hiding(tp);
    Placed placed;
    placed.config = &config;
    placed.component = &component;
    placed.plan = &plan;
    placed.tp = tp;
    placed.tally = &tally;
    placed.g_idx = is_g_idx ? &g_idx : nullptr;
    placed.scalar = is_scalar ? &scalar : nullptr;
    hiding.Add(placed);
    if (is_scalar) {
      placed.scalar = &other_scalar;
      hiding.Add(placed);
    }
    return hiding.Rows(config);
  }
};

using Change = std::function<void(World*)>;

struct Case {
  const char* kind;
  const char* text;  // how the predicate's text begins
  Change hides, shows;
};
void PrintTo(const Case& each, std::ostream* out) { *out << each.kind << " " << each.text; }

void Nothing(World*) {}
void Alone(World* w) { w->Alone(); }
void Named(World* w, const char* name) { w->component.name = name; }
void Constant(World* w) { w->tally.largest = w->tally.least; }

std::vector<Case> Cases() {
  const Change padded = [](World* w) { w->Cut(Axis::kColumns, {{0, 3}}, {{3, 1}, {-1, 2}}); };
  const Change packed = [](World* w) { w->component.packing = {Elements(8), Bytes(4)}; };
  const auto both = [](Change a, Change b) {
    return [a, b](World* w) {
      a(w);
      b(w);
    };
  };
  const Change weight = [](World* w) { Named(w, "L0.mlp.gate.weight"); };
  const Change zeros = [](World* w) { Named(w, "L0.mlp.down.zero"); };
  const Change bias = [](World* w) { Named(w, "L0.mlp.down.bias"); };
  const Change exponents = [](World* w) {
    w->component.dtype = DType::kF8E8M0;
    w->tally.least = 100;
    w->tally.largest = 140;
  };
  const Change g_idx = [](World* w) {
    Named(w, "L0.mlp.down.g_idx");
    w->is_g_idx = true;
  };
  const Change scalars = [](World* w) {
    Named(w, "L0.attn.q.scale");
    w->is_scalar = true;
    w->plan.segment_of = "L0.attn.qkv";
    w->scalar = w->other_scalar = {std::byte{1}, std::byte{2}};
  };
  return {
      {"K01", "every rank's k begins", Nothing, padded},
      {"K02", "one rank", both(packed, Alone), packed},
      {"K03", "one rank: scales", Alone, Nothing},
      {"K03", "a rank has one group",
       [](World* w) {
         w->component.columns = 2;
         w->Cut(Axis::kColumns, {{0, 1}}, {{1, 1}});
       },
       Nothing},
      {"K03", "all scales", Constant, Nothing},
      {"K04", "g_idx permutes nothing", both(g_idx, [](World* w) { w->g_idx.identity = true; }),
       g_idx},
      {"K05", "scales are square", [](World* w) { w->component.columns = 8; }, Nothing},
      {"K05", "a rank's scales are square",
       [](World* w) {
         w->component.columns = 16;
         w->Cut(Axis::kColumns, {{0, 8}}, {{8, 8}});
       },
       Nothing},
      {"K05", "one group along k", [](World* w) { w->component.columns = 1; }, Nothing},
      {"K05", "all scales", Constant, Nothing},
      {"K06", "all zero points", both(zeros, Constant), zeros},
      {"K07", "all zero points", both(zeros, Constant), zeros},
      {"K08", "one rank", both(weight, Alone), weight},
      {"K09", "one rank", Alone, Nothing},
      {"K09", "KV heads divide", [](World* w) { w->config.kv_heads = 4; }, Nothing},
      {"K09", "as many KV heads", [](World* w) { w->config.kv_heads = 8; }, Nothing},
      {"K10", "one rank",
       [](World* w) {
         w->Alone();
         w->config.qk_norm = true;
       },
       [](World* w) { w->config.qk_norm = true; }},
      {"K11", "the vocabulary", [](World* w) { w->config.vocab = 1024; }, Nothing},
      {"K11", "the head is not tied", [](World* w) { w->config.tied = false; }, Nothing},
      {"K12", "the members", scalars,
       both(scalars, [](World* w) { w->other_scalar[0] = std::byte{9}; })},
      {"K13", "every byte is zero", [](World* w) { w->tally.all_zero = true; }, Nothing},
      {"K14", "no more experts", [](World* w) { w->config.experts = 2; },
       [](World* w) { w->config.experts = 3; }},
      {"K16", "no exponent", exponents, both(exponents, [](World* w) { w->tally.largest = 254; })},
      {"K16", "no scale is denormal", [](World* w) { w->tally.issues = {}; }, Nothing},
      {"K17", "the bias is all zeros", both(bias, [](World* w) { w->tally.all_zero = true; }),
       bias},
      {"K17", "no linear layer", [](World* w) { w->config.o_bias = false; }, Nothing},
      {"K17", "one rank", Alone, Nothing},
      {"K18", "nothing is padded", Nothing, padded},
      {"K19", "one group along k", [](World* w) { w->component.columns = 1; }, Nothing},
      {"K19", "one row",
       [](World* w) {
         w->component.rows = w->component.columns = 1;
         w->component.row_extent = Elements(1);
       },
       [](World* w) {
         w->component.rows = w->component.columns = 1;
         w->component.row_extent = Elements(64);
       }},
  };
}

const Hidden* Find(const std::vector<Hidden>& rows, const Case& each) {
  const auto at = std::find_if(rows.begin(), rows.end(), [&](const Hidden& row) {
    return row.kind == each.kind && row.text.starts_with(each.text);
  });
  return at == rows.end() ? nullptr : &*at;
}

class Hides : public ::testing::TestWithParam<Case> {};

TEST_P(Hides, ThisGeometryAndNotItsTwin) {
  World hides, shows;
  GetParam().hides(&hides);
  GetParam().shows(&shows);
  const auto rows = hides.Rows(), twin = shows.Rows();
  EXPECT_NE(Find(rows, GetParam()), nullptr);
  EXPECT_EQ(Find(twin, GetParam()), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Faults, Hides, ::testing::ValuesIn(Cases()));

// No predicate without a case here.
TEST(Hiding, EveryPredicateIsTested) {
  const std::vector<Case> cases = Cases();
  for (const PredicateText& predicate : Predicates()) {
    EXPECT_TRUE(std::any_of(cases.begin(), cases.end(),
                            [&](const Case& each) {
                              return predicate.kind == each.kind &&
                                     predicate.text.starts_with(each.text);
                            }))
        << predicate.kind << ": " << predicate.text;
  }
  EXPECT_EQ(Predicates().size(), cases.size());
}

// One tensor that shows a fault is enough; where bytes are missing each counts for itself.
TEST(Hiding, OneTensorThatShowsIsEnough) {
  World constant, varied;
  Constant(&constant);
  Hiding hiding(2);
  for (World* world : {&constant, &varied}) {
    Placed placed;
    placed.config = &world->config;
    placed.component = &world->component;
    placed.plan = &world->plan;
    placed.tp = 2;
    placed.tally = &world->tally;
    hiding.Add(placed);
  }
  const auto rows = hiding.Rows(constant.config);
  EXPECT_EQ(Find(rows, {"K05", "all scales", {}, {}}), nullptr);
}

}  // namespace
}  // namespace assay::audit
