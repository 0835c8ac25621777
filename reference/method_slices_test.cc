// Every storage method as one layer's up (cut along N) and down (cut along K): a rank's slices,
// opened as a shard, have the rank's part of the weights, at every degree that is legal.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "reference/methods/made.h"
#include "reference/methods/methods_test_support.h"
#include "reference/model.h"
#include "reference/test_support.h"

namespace assay::reference {
namespace {

using testing_support::Made;
using testing_support::MadeIds;
using testing_support::MakeLayer;
using testing_support::SameDouble;

// All that producers write beside a weight.
constexpr const char* kSuffixes[] = {"weight",
                                     "weight_packed",
                                     "qweight",
                                     "blocks",
                                     "weight_scale",
                                     "weight_scale_inv",
                                     "scales",
                                     "scale",
                                     "qzeros",
                                     "weight_zero_point",
                                     "weight_offset",
                                     "weight_g_idx",
                                     "g_idx",
                                     "weight_global_scale",
                                     "weight_scale_2",
                                     "input_scale",
                                     "input_offset",
                                     "input_global_scale",
                                     "weight_scale_second",
                                     "quant_bias",
                                     "deq_scale",
                                     "scale_bias",
                                     "weight_offset_second",
                                     "weight_shape"};
constexpr int64_t kHeads = 4, kHeadDim = 8;

// A model of one layer in which one matrix is stored by the method.
struct OneLayer {
  Made made;
  std::string name;  // "L0.mlp.up"
  MemorySource source;
  std::unique_ptr<Model> model;
  const Parameter& parameter() const {
    return model->graph.parameters[model->graph.parameter_index.at(name)];
  }
};

void PutDense(const std::string& module, std::vector<int64_t> shape, MemorySource* source) {
  int64_t values = 1;
  for (const int64_t extent : shape) values *= extent;
  source->Put("model.layers.0." + module + ".weight", DType::kBF16, std::move(shape),
              std::vector<std::byte>(static_cast<size_t>(2 * values)));
}

void Fill(const std::string& id, bool down, OneLayer* layer) {
  layer->made = MakeLayer(id);
  layer->name = down ? "L0.mlp.down" : "L0.mlp.up";
  const std::string module = down ? "mlp.down_proj" : "mlp.up_proj";
  ModelConfig config;
  config.family = Family::kLlama;
  config.prefix = "model.";
  config.hidden_act = "silu";
  config.hidden = down ? layer->made.rows : layer->made.columns;
  config.intermediate = down ? layer->made.columns : layer->made.rows;
  config.heads = config.kv_heads = kHeads;
  config.head_dim = kHeadDim;
  config.layers = 1;
  config.vocab = config.max_position = 64;
  config.rms_norm_eps = 1e-6;
  config.quant = layer->made.config;
  config.quant.description.clear();
  for (const auto& [name, kind] : layer->made.config.description) {
    const std::string suffix = name.substr(name.find('.'));
    config.quant.description["model.layers.0." + module + suffix] = kind;
  }
  MemorySource& source = layer->source;
  for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) {
    PutDense(norm, {config.hidden}, &source);
  }
  for (const char* part : {"q_proj", "k_proj", "v_proj"}) {
    PutDense(std::string("self_attn.") + part, {kHeads * kHeadDim, config.hidden}, &source);
  }
  PutDense("self_attn.o_proj", {config.hidden, kHeads * kHeadDim}, &source);
  for (const char* part : {"mlp.gate_proj", "mlp.up_proj"}) {
    if (part != module) PutDense(part, {config.intermediate, config.hidden}, &source);
  }
  if (!down) PutDense("mlp.down_proj", {config.hidden, config.intermediate}, &source);
  for (const std::string suffix : kSuffixes) {
    const TensorView* view = layer->made.parts.Find(suffix);
    if (view == nullptr) continue;
    source.Put("model.layers.0." + module + "." + suffix, view->dtype, view->shape,
               {view->bytes.begin(), view->bytes.end()});
  }
  auto model = Model::Create(config, source);
  ASSERT_TRUE(model.ok()) << id << ": " << model.error().message;
  layer->model = std::move(*model);
}

// The rank's components as a source of their own; false: the degree is illegal.
bool ShardOf(const OneLayer& layer, const Where& where, MemorySource* shard) {
  const WeightStore& weights = *layer.model->weights;
  for (const std::string& component : weights.Components(0)) {
    if (!component.starts_with(layer.name + ".")) continue;
    const auto slice = weights.ExpectedSlice(component, where);
    if (!slice) {
      EXPECT_EQ(slice.error().kind, ErrorKind::kRefused) << slice.error().message;
      return false;
    }
    shard->Put(
        component, slice->dtype,
        {static_cast<int64_t>(slice->rows.size()), static_cast<int64_t>(slice->columns.size())},
        slice->bytes);
  }
  return true;
}

// Values of the rank's rows that are not what the whole weight has there.
int Differing(const OneLayer& layer, const Where& where, const TensorSource* shard, bool down) {
  auto rows = layer.model->weights->Rows(layer.parameter(), where, Contract::Exact(), shard);
  if (!rows) {
    ADD_FAILURE() << layer.name << ": " << rows.error().message;
    return -1;
  }
  const int64_t first_row = down ? 0 : where.rank * rows->rows();
  const int64_t first_column = down ? where.rank * rows->columns() : 0;
  int differing = 0;
  for (int64_t n = 0; n < rows->rows(); ++n) {
    const double* row = rows->Row(n);
    const double* due =
        layer.made.expected.data() + (first_row + n) * layer.made.columns + first_column;
    for (int64_t k = 0; k < rows->columns(); ++k) differing += SameDouble(row[k], due[k]) ? 0 : 1;
  }
  return differing;
}

TEST(MethodSlices, AreShardsWithTheRanksWeights) {
  std::map<bool, std::set<std::string>> cut;  // along K?: ids with a legal degree above 1
  for (const std::string& id : MadeIds()) {
    for (const bool down : {false, true}) {
      OneLayer layer;
      ASSERT_NO_FATAL_FAILURE(Fill(id, down, &layer));
      EXPECT_EQ(*layer.model->weights->MethodOf(layer.name), id);
      for (const int tp : {1, 2, 4, 5, 10}) {
        for (int rank = 0; rank < tp; ++rank) {
          const Where where = {{tp, 1}, rank};
          MemorySource shard;
          if (!ShardOf(layer, where, &shard)) continue;
          EXPECT_EQ(Differing(layer, where, &shard, down), 0) << id << " tp " << tp << " " << rank;
          EXPECT_EQ(Differing(layer, where, nullptr, down), 0) << id << " tp " << tp;
          if (tp > 1) cut[down].insert(id);
        }
      }
      for (const UnusedTensor& tensor : layer.model->weights->Unused()) {
        EXPECT_NE(tensor.reason, "") << id << " " << tensor.tensor;
      }
    }
  }
  EXPECT_GE(cut[false].size(), MadeIds().size() - 1);
  EXPECT_GE(cut[true].size(), MadeIds().size() - 2);
}

// The control: another rank's part of one tensor gives other weights.
TEST(MethodSlices, AnotherRanksScalesGiveOtherWeights) {
  for (const char* id :
       {"ct-int4-g32", "gptq-int4-g32", "awq-int4-g32-asym", "ct-fp8-block16x32"}) {
    OneLayer layer;
    ASSERT_NO_FATAL_FAILURE(Fill(id, true, &layer));
    MemorySource mine, other;
    ASSERT_TRUE(ShardOf(layer, {{2, 1}, 0}, &mine)) << id;
    ASSERT_TRUE(ShardOf(layer, {{2, 1}, 1}, &other)) << id;
    const TensorView* scale = other.Find("L0.mlp.down.scale");
    mine.Put(scale->name, scale->dtype, scale->shape, {scale->bytes.begin(), scale->bytes.end()});
    EXPECT_GT(Differing(layer, {{2, 1}, 0}, &mine, true), 0) << id;
  }
}

// Under act-order a rank has every group's scales and its own columns' group numbers, which are the
// whole tensor's; without, its own groups.
TEST(MethodSlices, ActOrderKeepsScalesWhole) {
  for (const char* id : {"gptq-int4-g32-actorder", "ct-int4-g32-actorder-group", "gptq-int4-g32"}) {
    const bool ordered = std::string_view(id).find("actorder") != std::string_view::npos;
    OneLayer layer;
    ASSERT_NO_FATAL_FAILURE(Fill(id, true, &layer));
    const WeightStore& weights = *layer.model->weights;
    const auto whole = weights.ExpectedSlice("L0.mlp.down.scale", Where{});
    const auto scale = weights.ExpectedSlice("L0.mlp.down.scale", {{2, 1}, 1});
    const auto g_idx = weights.ExpectedSlice("L0.mlp.down.g_idx", {{2, 1}, 1});
    ASSERT_TRUE(whole.ok() && scale.ok() && g_idx.ok()) << id;
    EXPECT_EQ(scale->bytes == whole->bytes, ordered) << id;
    EXPECT_EQ(g_idx->rows.size(), static_cast<size_t>(layer.made.columns / 2));
    EXPECT_EQ(g_idx->rows.front(), layer.made.columns / 2);
    // Cut along N the scales of the rank's own outputs.
    OneLayer up;
    ASSERT_NO_FATAL_FAILURE(Fill(id, false, &up));
    const auto outputs = up.model->weights->ExpectedSlice("L0.mlp.up.scale", {{2, 1}, 1});
    ASSERT_TRUE(outputs.ok()) << outputs.error().message;
    EXPECT_EQ(2 * outputs->bytes.size(), whole->bytes.size()) << id;
  }
}

// GPTQ's packers write zeros for a bias that the model has not. Other values are one too many.
TEST(MethodSlices, ABiasOfZerosIsNoBias) {
  OneLayer layer;
  ASSERT_NO_FATAL_FAILURE(Fill("gptq-int4-g32", false, &layer));
  const std::string name = "model.layers.0.mlp.up_proj.bias";
  std::vector<std::byte> zeros(static_cast<size_t>(2 * layer.made.rows));
  layer.source.Put(name, DType::kF16, {layer.made.rows}, zeros);
  const auto taken = Model::Create(layer.model->config, layer.source);
  ASSERT_TRUE(taken.ok()) << taken.error().message;
  bool explained = false;
  for (const UnusedTensor& tensor : (*taken)->weights->Unused()) {
    explained = explained || (tensor.tensor == name && !tensor.reason.empty());
  }
  EXPECT_TRUE(explained);
  zeros[3] = std::byte{1};
  layer.source.Put(name, DType::kF16, {layer.made.rows}, zeros);
  const auto wrong = Model::Create(layer.model->config, layer.source);
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().message.find(name), std::string::npos);
}

}  // namespace
}  // namespace assay::reference
