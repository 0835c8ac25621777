#include "harness/checkpoint/model_config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>
#include <vector>

#include "harness/checkpoint/test_support.h"

namespace assay {
namespace {

// Keys of a config, to be changed one at a time. An empty value takes the key away.
using Keys = std::map<std::string, std::string>;

std::string Json(const Keys& keys) {
  std::string text = "{";
  for (const auto& [key, value] : keys) {
    if (value.empty()) continue;
    text += fmt::format("{}\"{}\": {}", text.size() == 1 ? "" : ", ", key, value);
  }
  return text + "}";
}

Keys Changed(Keys keys, const Keys& changes) {
  for (const auto& [key, value] : changes) keys[key] = value;
  return keys;
}

Keys Llama() {
  return {{"architectures", R"(["LlamaForCausalLM"])"},
          {"model_type", R"("llama")"},
          {"hidden_size", "64"},
          {"num_hidden_layers", "2"},
          {"num_attention_heads", "4"},
          {"num_key_value_heads", "2"},
          {"intermediate_size", "96"},
          {"vocab_size", "100"},
          {"rms_norm_eps", "1e-05"},
          {"max_position_embeddings", "512"}};
}

// The keys of Kimi-K2's file, with its real numbers.
Keys KimiK2() {
  return {{"architectures", R"(["DeepseekV3ForCausalLM"])"},
          {"model_type", R"("kimi_k2")"},
          {"hidden_size", "7168"},
          {"num_hidden_layers", "61"},
          {"num_attention_heads", "64"},
          {"num_key_value_heads", "64"},
          {"intermediate_size", "18432"},
          {"vocab_size", "163840"},
          {"rms_norm_eps", "1e-06"},
          {"max_position_embeddings", "131072"},
          {"q_lora_rank", "1536"},
          {"kv_lora_rank", "512"},
          {"qk_nope_head_dim", "128"},
          {"qk_rope_head_dim", "64"},
          {"v_head_dim", "128"},
          {"n_routed_experts", "384"},
          {"num_experts_per_tok", "8"},
          {"moe_intermediate_size", "2048"},
          {"n_shared_experts", "1"},
          {"first_k_dense_replace", "1"},
          {"moe_layer_freq", "1"},
          {"n_group", "1"},
          {"topk_group", "1"},
          {"norm_topk_prob", "true"},
          {"routed_scaling_factor", "2.827"},
          {"scoring_func", R"("sigmoid")"},
          {"topk_method", R"("noaux_tc")"},
          {"hidden_act", R"("silu")"},
          {"attention_bias", "false"},
          {"num_nextn_predict_layers", "0"},
          {"rope_theta", "50000.0"},
          {"tie_word_embeddings", "false"},
          {"rope_scaling",
           R"({"beta_fast": 1.0, "beta_slow": 1.0, "factor": 32.0, "mscale": 1.0,
               "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096, "type": "yarn"})"}};
}

constexpr const char* kInt4 = R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
  "config_groups": {"group_0": {"input_activations": null, "targets": ["Linear"], "weights":
    {"actorder": null, "group_size": 32, "num_bits": 4, "strategy": "group", "symmetric": true,
     "type": "int"}}},
  "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*"]})";

ModelConfig Parsed(const Keys& keys) {
  const auto config = ParseModelConfig(Json(keys), "config.json");
  EXPECT_TRUE(config.ok()) << config.error().message;
  return config.ok() ? *config : ModelConfig();
}

void ExpectBad(const std::string& json, const std::vector<std::string>& texts) {
  const auto config = ParseModelConfig(json, "dir/config.json");
  ASSERT_FALSE(config.ok()) << json;
  EXPECT_TRUE(Says(config.error(), {"dir/config.json"}));
  for (const std::string& text : texts) EXPECT_TRUE(Says(config.error(), {text}));
}

TEST(ModelConfig, ReadsLlamaWithItsDefaults) {
  const ModelConfig config = Parsed(Llama());
  EXPECT_EQ(config.family, Family::kLlama);
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.hidden, 64);
  EXPECT_EQ(config.layers, 2);
  EXPECT_EQ(config.heads, 4);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.intermediate, 96);
  EXPECT_EQ(config.vocab, 100);
  EXPECT_EQ(config.max_position, 512);
  EXPECT_EQ(config.rms_norm_eps, 1e-5);
  EXPECT_FALSE(config.tied || config.qkv_bias || config.o_bias || config.mlp_bias);
  EXPECT_FALSE(config.qk_norm || config.is_mla() || config.is_moe(0));
  EXPECT_EQ(config.rope.theta, 10000.0);
  EXPECT_EQ(config.rope.type, "default");
  EXPECT_TRUE(config.quant.method.empty());
  EXPECT_EQ(Parsed(Changed(Llama(), {{"num_key_value_heads", ""}})).kv_heads, 4);
  EXPECT_EQ(Parsed(Changed(Llama(), {{"head_dim", "32"}})).head_dim, 32);
  EXPECT_EQ(config.container, Container::kSafetensors);
  EXPECT_FALSE(config.rope_interleave);
  EXPECT_EQ(config.act_limit, std::numeric_limits<double>::infinity());
}

TEST(ModelConfig, LimitOfTheActivationInAnyFamily) {
  const Keys limit = {{"swiglu_limit", "7.0"}};
  EXPECT_EQ(Parsed(Changed(Llama(), limit)).act_limit, 7.0);
  EXPECT_EQ(Parsed(Changed(KimiK2(), limit)).act_limit, 7.0);
  const Keys other = {{"architectures", R"(["OddForCausalLM"])"}, {"model_type", ""}};
  EXPECT_EQ(Parsed(Changed(Changed(Llama(), limit), other)).act_limit, 7.0);
  EXPECT_EQ(Parsed(Changed(Llama(), {{"swiglu_limit", "null"}})).act_limit,
            std::numeric_limits<double>::infinity());
}

TEST(ModelConfig, ContainerOfTheTensors) {
  const Keys gguf = {{"assay_container", R"("gguf")"}};
  const ModelConfig config = Parsed(Changed(Llama(), gguf));
  EXPECT_EQ(config.container, Container::kGguf);
  EXPECT_TRUE(config.rope_interleave);
  EXPECT_EQ(config.lm_head, "output.weight");
  const Keys tied = {{"tie_word_embeddings", "true"}};
  EXPECT_EQ(Parsed(Changed(Changed(Llama(), gguf), tied)).lm_head, "token_embd.weight");
  const Keys unknown = {{"assay_unknown", R"("a key is not known")"}, {"hidden_size", ""}};
  EXPECT_EQ(Parsed(Changed(Changed(Llama(), gguf), unknown)).family, Family::kUnknown);
  EXPECT_EQ(Parsed(Changed(Changed(Llama(), gguf), unknown)).why_unknown, "a key is not known");
}

TEST(ModelConfig, BiasesAndNormsFollowTheFamily) {
  const ModelConfig llama =
      Parsed(Changed(Llama(), {{"attention_bias", "true"}, {"mlp_bias", "true"}}));
  EXPECT_TRUE(llama.qkv_bias && llama.o_bias && llama.mlp_bias && !llama.qk_norm);
  const ModelConfig qwen2 = Parsed(Changed(
      Llama(), {{"architectures", R"(["Qwen2ForCausalLM"])"}, {"model_type", R"("qwen2")"}}));
  EXPECT_EQ(qwen2.family, Family::kQwen2);
  EXPECT_TRUE(qwen2.qkv_bias && !qwen2.o_bias && !qwen2.mlp_bias && !qwen2.qk_norm);
  const Keys qwen3 = Changed(
      Llama(), {{"architectures", R"(["Qwen3ForCausalLM"])"}, {"model_type", R"("qwen3")"}});
  EXPECT_EQ(Parsed(qwen3).family, Family::kQwen3);
  EXPECT_TRUE(Parsed(qwen3).qk_norm && !Parsed(qwen3).qkv_bias);
  const ModelConfig biased = Parsed(Changed(qwen3, {{"attention_bias", "true"}}));
  EXPECT_TRUE(biased.qkv_bias && biased.o_bias);
  const Keys mistral = Changed(Llama(), {{"architectures", R"(["MistralForCausalLM"])"},
                                         {"model_type", R"("mistral")"},
                                         {"sliding_window", "null"}});
  EXPECT_EQ(Parsed(mistral).family, Family::kLlama);
}

TEST(ModelConfig, ReadsKimiK2) {
  const ModelConfig config = Parsed(KimiK2());
  EXPECT_EQ(config.family, Family::kDeepseekV3);
  EXPECT_EQ(config.model_type, "kimi_k2");
  EXPECT_TRUE(config.is_mla());
  EXPECT_EQ(config.q_lora, 1536);
  EXPECT_EQ(config.kv_lora, 512);
  EXPECT_EQ(config.qk_nope, 128);
  EXPECT_EQ(config.qk_rope, 64);
  EXPECT_EQ(config.v_dim, 128);
  EXPECT_EQ(config.head_dim, 192);
  EXPECT_EQ(config.experts, 384);
  EXPECT_EQ(config.top_k, 8);
  EXPECT_EQ(config.moe_intermediate, 2048);
  EXPECT_EQ(config.shared_experts, 1);
  EXPECT_EQ(config.routed_scaling, 2.827);
  EXPECT_EQ(config.groups, 1);
  EXPECT_FALSE(config.is_moe(0));
  EXPECT_TRUE(config.is_moe(1));
  EXPECT_TRUE(config.rope_interleave);
  EXPECT_EQ(config.rope.type, "yarn");
  EXPECT_EQ(config.rope.theta, 50000.0);
  EXPECT_EQ(config.rope.factor, 32.0);
  EXPECT_EQ(config.rope.original_max_position, 4096);
  EXPECT_EQ(config.rope.beta_fast, 1.0);
  EXPECT_EQ(config.rope.mscale_all_dim, 1.0);
  EXPECT_EQ(Parsed(Changed(KimiK2(), {{"q_lora_rank", "null"}})).q_lora, 0);
  EXPECT_EQ(Parsed(Changed(KimiK2(), {{"n_shared_experts", "null"}})).shared_experts, 0);
  EXPECT_EQ(Parsed(Changed(KimiK2(), {{"n_routed_experts", "null"}})).experts, 0);
}

TEST(ModelConfig, DescendsIntoTextConfig) {
  const Keys inner = Changed(KimiK2(), {{"quantization_config", kInt4}});
  const Keys outer = {{"architectures", R"(["KimiK25ForConditionalGeneration"])"},
                      {"model_type", R"("kimi_k25")"},
                      {"vision_config", R"({"hidden_size": 1152})"},
                      {"tie_word_embeddings", "false"},
                      {"text_config", Json(inner)}};
  const ModelConfig config = Parsed(outer);
  EXPECT_EQ(config.family, Family::kDeepseekV3);
  EXPECT_EQ(config.architecture, "DeepseekV3ForCausalLM");
  EXPECT_EQ(config.hidden, 7168);
  EXPECT_EQ(config.quant.bits, 4);
  EXPECT_EQ(config.quant.ignore.size(), 3u);
  // A silent decoder takes the outer model's name, and a quantisation that stands outside counts.
  const Keys silent = Changed(KimiK2(), {{"architectures", ""}, {"model_type", ""}});
  const ModelConfig outside =
      Parsed(Changed(outer, {{"text_config", Json(silent)}, {"quantization_config", kInt4}}));
  EXPECT_EQ(outside.family, Family::kDeepseekV3);
  EXPECT_EQ(outside.quant.group_size, 32);
  // The decoder's own name wins over the outer one.
  EXPECT_EQ(Parsed(Changed(outer, {{"text_config", Json(Llama())}})).family, Family::kLlama);
  ExpectBad(Json(Changed(outer, {{"text_config", "[]"}})), {"'text_config'", "must be an object"});
  ExpectBad(Json(Changed(outer, {{"text_config", Json(Changed(KimiK2(), {{"v_head_dim", "0"}}))}})),
            {"'text_config.v_head_dim'", "is 0", "from 1"});
  ExpectBad(Json(Changed(outer, {{"tie_word_embeddings", "true"}})),
            {"'text_config.tie_word_embeddings'", "must agree"});
  ExpectBad(Json(Changed(outer, {{"quantization_config", R"({"quant_method": "fp8"})"}})),
            {"'text_config.quantization_config'", "must agree"});
}

TEST(ModelConfig, RopeNewAndOldKeysMustAgree) {
  const std::string yarn = R"("factor": 4.0, "original_max_position_embeddings": 128)";
  const auto with = [](const Keys& changes) { return Changed(Llama(), changes); };
  EXPECT_EQ(Parsed(with({{"rope_parameters", R"({"rope_theta": 7.0})"}})).rope.theta, 7.0);
  EXPECT_EQ(Parsed(with({{"rope_theta", "7"}})).rope.theta, 7.0);
  EXPECT_EQ(
      Parsed(with({{"rope_theta", "7"}, {"rope_parameters", R"({"rope_theta": 7.0})"}})).rope.theta,
      7.0);
  ExpectBad(Json(with({{"rope_theta", "8"}, {"rope_parameters", R"({"rope_theta": 7.0})"}})),
            {"'rope_theta'", "8", "7", "must agree"});
  const std::string old_yarn = R"({"type": "yarn", )" + yarn + "}";
  const std::string new_yarn = R"({"rope_type": "yarn", "rope_theta": 5.0, )" + yarn + "}";
  const ModelConfig both =
      Parsed(with({{"rope_scaling", old_yarn}, {"rope_parameters", new_yarn}}));
  EXPECT_EQ(both.rope.type, "yarn");
  EXPECT_EQ(both.rope.theta, 5.0);
  EXPECT_TRUE(both.rope.truncate);
  EXPECT_EQ(both.rope.beta_fast, 32.0);
  ExpectBad(Json(with({{"rope_scaling", R"({"type": "linear", "factor": 4.0})"},
                       {"rope_parameters", new_yarn}})),
            {"'rope_scaling'", "must agree"});
  ExpectBad(
      Json(with({{"rope_scaling", R"({"type": "yarn", "rope_type": "linear", "factor": 2})"}})),
      {"'rope_scaling.rope_type'", "must agree"});
  ExpectBad(Json(with({{"rope_scaling", R"({"type": "yarn"})"}})),
            {"'rope_scaling.factor'", "missing"});
  ExpectBad(Json(with({{"rope_scaling", R"({"type": "yarn", "factor": 0.5})"}})),
            {"'rope_scaling.factor'", "0.5", "from 1"});
  ExpectBad(Json(with({{"rope_scaling",
                        R"({"type": "yarn", "factor": 2, "beta_fast": 1, "beta_slow": 2})"}})),
            {"'rope_scaling.beta_fast'", "beta_slow"});
  ExpectBad(Json(with({{"rope_theta", "-1"}})), {"'rope_theta'", "-1"});
}

TEST(ModelConfig, RopeLlama3) {
  const std::string good =
      R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192})";
  const ModelConfig config = Parsed(Changed(Llama(), {{"rope_scaling", good}}));
  EXPECT_EQ(config.rope.type, "llama3");
  EXPECT_EQ(config.rope.factor, 8.0);
  EXPECT_EQ(config.rope.high_freq_factor, 4.0);
  std::string bad = good;
  bad.replace(bad.find("4.0"), 3, "1.0");
  ExpectBad(Json(Changed(Llama(), {{"rope_scaling", bad}})), {"high_freq_factor", "above"});
}

TEST(ModelConfig, QuantisationOfCompressedTensors) {
  const QuantConfig quant = Parsed(Changed(KimiK2(), {{"quantization_config", kInt4}})).quant;
  EXPECT_EQ(quant.method, "compressed-tensors");
  EXPECT_EQ(quant.format, "pack-quantized");
  EXPECT_EQ(quant.weight_type, "int");
  EXPECT_EQ(quant.bits, 4);
  EXPECT_EQ(quant.group_size, 32);
  EXPECT_EQ(quant.strategy, "group");
  EXPECT_TRUE(quant.symmetric);
  EXPECT_EQ(quant.actorder, "");
  EXPECT_EQ(quant.ignore,
            (std::vector<std::string>{"lm_head", "re:.*self_attn.*", "re:.*shared_experts.*"}));
  EXPECT_EQ(quant.targets, std::vector<std::string>{"Linear"});

  const auto changed = [](std::string_view from, std::string_view to) {
    std::string text = kInt4;
    text.replace(text.find(from), from.size(), to);
    return Changed(KimiK2(), {{"quantization_config", text}});
  };
  EXPECT_EQ(Parsed(changed("\"actorder\": null", "\"actorder\": true")).quant.actorder, "group");
  EXPECT_EQ(Parsed(changed("\"actorder\": null", "\"actorder\": \"weight\"")).quant.actorder,
            "weight");
  const QuantConfig channel =
      Parsed(changed("\"group_size\": 32, \"num_bits\": 4, \"strategy\": \"group\"",
                     "\"group_size\": -1, \"num_bits\": 8"))
          .quant;
  EXPECT_EQ(channel.strategy, "channel");
  EXPECT_EQ(channel.group_size, 0);
  const std::string at = "quantization_config.config_groups.group_0.weights.";
  ExpectBad(Json(changed("\"num_bits\": 4", "\"num_bits\": 99")), {at + "num_bits", "99", "16"});
  ExpectBad(Json(changed("\"group_size\": 32", "\"group_size\": 0")), {at + "group_size", "is 0"});
  ExpectBad(Json(changed("\"group_size\": 32", "\"group_size\": -7")), {at + "group_size", "-7"});
  ExpectBad(Json(changed("\"type\": \"int\"", "\"type\": \"odd\"")), {at + "type", "int or float"});
  ExpectBad(Json(changed("\"actorder\": null", "\"actorder\": 3")), {at + "actorder", "3"});
  ExpectBad(Json(changed("[\"lm_head\"", "[3")), {"quantization_config.ignore", "strings"});
  ExpectBad(Json(changed("\"quant_method\": \"compressed-tensors\", ", "")), {"quant_method"});
  ExpectBad(Json(changed("\"config_groups\"", "\"groups\"")), {"config_groups", "missing"});
}

TEST(ModelConfig, GroupsOfOneSchemeAreOne) {
  const auto two = [](int bits) {
    const std::string group =
        R"("{}": {{"targets": ["{}"], "weights": {{"num_bits": {}, "strategy": "channel"}}}})";
    return Changed(
        KimiK2(),
        {{"quantization_config",
          R"({"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {)" +
              fmt::format(fmt::runtime(group), "a", "re:.*up.*", 8) + "," +
              fmt::format(fmt::runtime(group), "b", "re:.*down.*", bits) + "}}"}});
  };
  EXPECT_EQ(Parsed(two(8)).quant.targets, (std::vector<std::string>{"re:.*up.*", "re:.*down.*"}));
  EXPECT_TRUE(Parsed(two(8)).quant.groups.empty());
  const QuantConfig differ = Parsed(two(4)).quant;
  ASSERT_EQ(differ.groups.size(), 2u);
  EXPECT_EQ(differ.For("x.up_proj").bits, 8);
  EXPECT_EQ(differ.For("x.down_proj").bits, 4);
}

TEST(ModelConfig, OtherFamiliesAreUnknownNotErrors) {
  const auto expect = [](const Keys& keys, std::string_view why) {
    const ModelConfig config = Parsed(keys);
    EXPECT_EQ(config.family, Family::kUnknown) << why;
    EXPECT_NE(config.why_unknown.find(why), std::string::npos) << config.why_unknown;
  };
  const Keys llama = Llama();
  expect(Changed(llama, {{"architectures", R"(["OddForCausalLM"])"}}), "'OddForCausalLM'");
  expect(Changed(llama, {{"model_type", R"("granite")"}}), "'granite'");
  expect(Changed(llama, {{"architectures", ""}, {"model_type", ""}}), "neither");
  expect(Changed(llama, {{"sliding_window", "4096"}}), "sliding window");
  expect(Changed(llama, {{"hidden_act", R"("gelu")"}}), "'gelu'");
  expect(Changed(llama, {{"partial_rotary_factor", "0.5"}}), "partial_rotary_factor");
  expect(Changed(llama, {{"layer_types", R"(["full_attention", "chunked"])"}}), "'chunked'");
  expect(Changed(llama, {{"rope_scaling", R"({"type": "longrope"})"}}), "'longrope'");
  expect(Changed(KimiK2(), {{"attention_bias", "true"}}), "attention_bias");
  expect(Changed(KimiK2(), {{"scoring_func", R"("softmax")"}}), "'softmax'");
  const Keys qwen2 =
      Changed(llama, {{"architectures", R"(["Qwen2ForCausalLM"])"}, {"model_type", R"("qwen2")"}});
  expect(Changed(qwen2, {{"use_sliding_window", "true"}, {"sliding_window", "64"}}), "sliding");
  EXPECT_EQ(
      Parsed(Changed(qwen2, {{"use_sliding_window", "false"}, {"sliding_window", "64"}})).family,
      Family::kQwen2);
  // Keys that mean something else there are left out.
  const ModelConfig odd = Parsed({{"architectures", R"(["Odd"])"},
                                  {"hidden_size", "[1]"},
                                  {"num_hidden_layers", "7"},
                                  {"rope_parameters", "3"},
                                  {"rms_norm_eps", "\"small\""},
                                  {"quantization_config", "[]"}});
  EXPECT_EQ(odd.family, Family::kUnknown);
  EXPECT_EQ(odd.hidden, 0);
  EXPECT_EQ(odd.layers, 7);
}

TEST(ModelConfig, NotJsonAndNotAnObject) {
  ExpectBad("", {"not JSON"});
  ExpectBad("{", {"not JSON"});
  ExpectBad("[]", {"must be a JSON object"});
  ExpectBad("3", {"must be a JSON object"});
  ExpectBad(R"({"a": NaN})", {"not JSON"});
  ExpectBad(R"({"a": 1e999})", {"not JSON"});
  ExpectBad(R"({"hidden_size": 1, "hidden_size": 2})", {"'hidden_size'", "twice"});
  ExpectBad(R"({"rope_scaling": {"factor": 1, "factor": 2}})", {"'factor'", "in 'rope_scaling'"});
  ExpectBad("{\"a\":" + std::string(1'000'000, '['), {"nested deeper than 32"});
  std::string many = "{\"a\":[0";
  for (int i = 0; i < (1 << 20); ++i) many += ",0";
  ExpectBad(many + "]}", {"more than 1048576 JSON values"});
}

struct BadKey {
  const char* key;
  const char* value;  // empty: taken away
  const char* says;
};

void ExpectBadKeys(const Keys& good, const std::vector<BadKey>& table) {
  ASSERT_TRUE(ParseModelConfig(Json(good), "config.json").ok());
  for (const BadKey& bad : table) {
    SCOPED_TRACE(fmt::format("{}: {}", bad.key, bad.value));
    ExpectBad(Json(Changed(good, {{bad.key, bad.value}})),
              {fmt::format("key '{}'", bad.key), bad.says});
  }
}

TEST(ModelConfig, ChosenGroupsMustHaveEnoughExperts) {
  ExpectBad(Json(Changed(KimiK2(), {{"n_group", "192"}, {"topk_group", "3"}})),
            {"'num_experts_per_tok'", "the 3 chosen groups have only 6 experts"});
  EXPECT_EQ(Parsed(Changed(KimiK2(), {{"n_group", "192"}, {"topk_group", "4"}})).topk_group, 4);
}

TEST(ModelConfig, HeadsMustDivideTheWidthWhereNothingElseIsSaid) {
  ExpectBad(Json(Changed(Llama(), {{"hidden_size", "66"}})),
            {"'num_attention_heads'", "must divide hidden_size, 66"});
  EXPECT_EQ(Parsed(Changed(Llama(), {{"hidden_size", "66"}, {"head_dim", "16"}})).head_dim, 16);
}

TEST(ModelConfig, WrongTypesAndAbsurdValuesNameTheKey) {
  ExpectBadKeys(Llama(),
                {{"hidden_size", "", "is missing"},
                 {"hidden_size", "null", "is missing"},
                 {"hidden_size", "\"64\"", "the string '64'; it must be an integer from 1"},
                 {"hidden_size", "64.0", "is 64.0; it must be an integer"},
                 {"hidden_size", "0", "is 0"},
                 {"hidden_size", "-64", "is -64"},
                 {"hidden_size", "18446744073709551615", "is 18446744073709551615"},
                 {"hidden_size", "1e40", "is 1e+40"},
                 {"hidden_size", "true", "is true"},
                 {"num_hidden_layers", "1000000", "from 1 to 10000"},
                 {"num_attention_heads", "[4]", "an array of 1"},
                 {"num_key_value_heads", "3", "must divide num_attention_heads, 4"},
                 {"head_dim", "15", "even number"},
                 {"vocab_size", "9999999999", "to 134217728"},
                 {"intermediate_size", "{}", "an object of 0"},
                 {"rms_norm_eps", "\"1e-5\"", "must be a number"},
                 {"rms_norm_eps", "-1e-5", "from 0 to 1"},
                 {"rms_norm_eps", "2", "from 0 to 1"},
                 {"tie_word_embeddings", "1", "must be true or false"},
                 {"attention_bias", "\"yes\"", "must be true or false"},
                 {"hidden_act", "3", "must be a string"},
                 {"architectures", "\"LlamaForCausalLM\"", "array of at most"},
                 {"architectures", R"(["LlamaForCausalLM", "Other"])", "name one architecture"},
                 {"model_type", "7", "must be a string"},
                 {"model_type", "\"qwen2\"", "must agree"},
                 {"layer_types", "[1]", "strings"},
                 {"swiglu_limit", "0", "must be a number from"},
                 {"swiglu_limit", "-7", "must be a number from"},
                 {"swiglu_limit", "1e-60", "must be a number from"},
                 {"swiglu_limit", "1e39", "must be a number from"},
                 {"assay_container", "\"onnx\"", "safetensors or gguf"},
                 {"rope_scaling", "\"yarn\"", "must be an object"},
                 {"rope_parameters", "[]", "must be an object"},
                 {"quantization_config", "3", "must be an object"}});
}

TEST(ModelConfig, SizesThatDoNotFitEachOther) {
  ExpectBadKeys(KimiK2(), {{"kv_lora_rank", "null", "is missing"},
                           {"qk_head_dim", "100", "make 192"},
                           {"qk_rope_head_dim", "63", "even"},
                           {"num_key_value_heads", "8", "as many as num_attention_heads, 64"},
                           {"num_experts_per_tok", "385", "from 1 to 384"},
                           {"first_k_dense_replace", "62", "from 0 to 61"},
                           {"first_k_dense_replace", "", "is missing"},
                           {"routed_scaling_factor", "", "is missing"},
                           {"n_group", "", "is missing"},
                           {"n_group", "5", "must divide n_routed_experts, 384"},
                           {"n_group", "384", "two experts"},
                           {"topk_group", "2", "from 1 to 1"},
                           {"n_routed_experts", "-1", "from 1"},
                           {"moe_layer_freq", "0", "from 1"},
                           {"moe_layer_freq", "[0, 1]", "an array of 2"}});
}

}  // namespace
}  // namespace assay
