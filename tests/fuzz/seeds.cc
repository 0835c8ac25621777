#include <cstring>
#include <limits>

#include "harness/store/result.h"
#include "tests/fuzz/entries.h"

namespace assay::fuzz {
namespace {

template <class Number>
std::string Little(Number value) {
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

std::string Safetensors(const std::string& header, size_t data) {
  return Little(uint64_t{header.size()}) + header + std::string(data, '\x3f');
}

std::string GgufText(const std::string& text) { return Little(uint64_t{text.size()}) + text; }

class Gguf {
 public:
  void Text(const std::string& key, const std::string& value) { Key(key, 8, GgufText(value)); }
  void U32(const std::string& key, uint32_t value) { Key(key, 4, Little(value)); }
  void F32(const std::string& key, float value) { Key(key, 6, Little(value)); }
  void Texts(const std::string& key, const std::vector<std::string>& values) {
    std::string bytes = Little(uint32_t{8}) + Little(uint64_t{values.size()});
    for (const std::string& value : values) bytes += GgufText(value);
    Key(key, 9, bytes);
  }
  // Extents in the file's order, the fastest first.
  void Tensor(const std::string& name, const std::vector<uint64_t>& extents, uint32_t type,
              size_t bytes) {
    tensors_ += GgufText(name) + Little(static_cast<uint32_t>(extents.size()));
    for (const uint64_t extent : extents) tensors_ += Little(extent);
    tensors_ += Little(type) + Little(uint64_t{data_.size()});
    data_ += std::string(bytes, '\x11');
    data_.resize((data_.size() + kAlignment - 1) / kAlignment * kAlignment);
    ++tensor_count_;
  }
  std::string Bytes() const {
    std::string head = "GGUF" + Little(uint32_t{3}) + Little(tensor_count_) + Little(key_count_) +
                       keys_ + tensors_;
    head.resize((head.size() + kAlignment - 1) / kAlignment * kAlignment);
    return head + data_;
  }

 private:
  static constexpr size_t kAlignment = 32;
  void Key(const std::string& key, uint32_t type, const std::string& value) {
    keys_ += GgufText(key) + Little(type) + value;
    ++key_count_;
  }
  uint64_t key_count_ = 0, tensor_count_ = 0;
  std::string keys_, tensors_, data_;
};

// One layer of the Llama class: hidden 32, one head, vocabulary 4.
std::string LlamaGguf() {
  Gguf file;
  file.Text("general.architecture", "llama");
  for (const auto& [key, value] : {std::pair("block_count", 1),
                                   {"embedding_length", 32},
                                   {"feed_forward_length", 32},
                                   {"attention.head_count", 1},
                                   {"attention.head_count_kv", 1},
                                   {"context_length", 64}}) {
    file.U32(std::string("llama.") + key, static_cast<uint32_t>(value));
  }
  file.F32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  file.F32("llama.rope.freq_base", 10000);
  file.Texts("tokenizer.ggml.tokens", {"a", "b", "c", "d"});
  constexpr uint32_t kF32 = 0, kQ41 = 3, kQ80 = 8;
  file.Tensor("token_embd.weight", {32, 4}, kQ80, 4 * 34);
  file.Tensor("output_norm.weight", {32}, kF32, 128);
  file.Tensor("blk.0.attn_norm.weight", {32}, kF32, 128);
  file.Tensor("blk.0.ffn_norm.weight", {32}, kF32, 128);
  for (const char* name :
       {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}) {
    file.Tensor(std::string("blk.0.") + name + ".weight", {32, 32}, kQ41, 32 * 20);
  }
  return file.Bytes();
}

std::string SmallGguf() {
  Gguf file;
  file.Text("general.architecture", "other");
  file.U32("general.alignment", 32);
  file.Tensor("a", {3, 2}, 0, 24);
  return file.Bytes();
}

std::string Results() {
  RunHeader header;
  header.run_id = "r";
  header.revision = "1a";
  header.selection = "kind=load";
  header.machine_json = R"({"cpu":"X","tiers":["avx2"]})";
  header.cells = CellList{1, HashCells({"a"}), 1, 1, 1, HashCells({"a"})};
  header.emulate = "auto";
  CellResult cell;
  cell.problem = "load model=m";
  cell.verdict = Verdict::kFail;
  cell.executed = Executed{"dot", "avx2", "hardware", "row", "a16", "native@1", 2, 2, {1}};
  cell.metrics.cosine = 0.5;
  cell.metrics.max_ratio = std::numeric_limits<double>::infinity();
  cell.metrics.tolerance = ToleranceFacts{"2^-24", 7, 7, {"acc"}};
  Divergence divergence;
  divergence.layer = 1;
  divergence.cls = "loader";
  divergence.index = {1, 2};
  divergence.map = ErrorMap{1, 2, "row", "group", 1, 1, "ratio", {1, 2}};
  cell.divergences.push_back(divergence);
  cell.ops.push_back({});
  Totals totals;
  totals.Add(cell.verdict);
  totals.registered = 1;
  return ToJson(header) + "\n" + ToJson(cell) + "\n" + SummaryJson(totals, 1.5) + "\n";
}

constexpr const char* kLlama =
    R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":64,)"
    R"("intermediate_size":96,"num_hidden_layers":2,"num_attention_heads":4,)"
    R"("num_key_value_heads":2,"vocab_size":128,"max_position_embeddings":512,)"
    R"("rms_norm_eps":1e-5,"rope_theta":10000.0,"hidden_act":"silu","tie_word_embeddings":true,)"
    R"("rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,)"
    R"("high_freq_factor":4.0,"original_max_position_embeddings":64},"torch_dtype":"bfloat16"})";
constexpr const char* kDeepseek =
    R"({"architectures":["DeepseekV3ForCausalLM"],"model_type":"deepseek_v3","hidden_size":64,)"
    R"("intermediate_size":96,"moe_intermediate_size":32,"num_hidden_layers":2,)"
    R"("num_attention_heads":4,"num_key_value_heads":4,"n_routed_experts":8,"n_shared_experts":1,)"
    R"("num_experts_per_tok":2,"n_group":2,"topk_group":1,"first_k_dense_replace":1,)"
    R"("kv_lora_rank":16,"q_lora_rank":16,"qk_nope_head_dim":16,"qk_rope_head_dim":8,)"
    R"("v_head_dim":16,"routed_scaling_factor":2.5,"norm_topk_prob":true,)"
    R"("scoring_func":"sigmoid","topk_method":"noaux_tc","vocab_size":128,"rms_norm_eps":1e-6,)"
    R"("quantization_config":{"quant_method":"compressed-tensors","format":"pack-quantized",)"
    R"("config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":4,"type":"int",)"
    R"("group_size":32,"strategy":"group","symmetric":true}}},"ignore":["re:.*self_attn.*"]}})";

constexpr char kKimiK3[] = R"j({"architectures": ["KimiK3ForConditionalGeneration"],
"model_type": "kimi_k3", "text_config": {"model_type": "kimi_linear", "vocab_size": 9,
"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2,
"q_lora_rank": 4, "kv_lora_rank": 4, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 4,
"hidden_act": "situ", "activation_situ_beta": 4.0, "num_experts": 4, "num_experts_per_token": 2,
"num_shared_experts": 2, "moe_intermediate_size": 8, "routed_expert_hidden_size": 4,
"first_k_dense_replace": 1, "attn_res_block_size": 2, "linear_attn_config": {"kda_layers": [1, 2],
"full_attn_layers": [3], "head_dim": 4, "num_heads": 2, "use_full_rank_gate": true},
"quantization_config": {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized",
"ignore": ["lm_head", "re:.*self_attn.*", "re:.*mlp\\.(gate|up){1,2}_proj.*"], "config_groups":
{"g": {"targets": ["Linear"], "weights": {"num_bits": 4, "group_size": 32}}, "h": {"targets":
["re:.*down.*"], "weights": {"num_bits": 8, "strategy": "block", "block_structure": [8, 8]}}}}}})j";

constexpr char kDeepseekV4[] = R"j({"architectures": ["DeepseekV4ForCausalLM"], "hidden_size": 8,
"model_type": "deepseek_v4", "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 4,
"num_key_value_heads": 1, "vocab_size": 9, "n_routed_experts": 4, "num_experts_per_tok": 2,
"moe_intermediate_size": 8, "mlp_layer_types": ["hash_moe", "moe"], "expert_dtype": "fp4",
"quantization_config": {"quant_method": "fp8", "weight_block_size": [8, 8], "scale_fmt": "ue8m0",
"modules_to_not_convert": ["model.layers.*.self_attn"]}})j";

constexpr char kMinimax[] = R"j({"model_type": "minimax_m3_vl", "text_config": {"hidden_size": 8,
"model_type": "minimax_m3_vl_text", "intermediate_size": 8, "dense_intermediate_size": 16,
"num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 4, "vocab_size": 9,
"num_local_experts": 4, "num_experts_per_tok": 2, "moe_layer_freq": [0, 1]},
"quantization_config": {"quant_method": "quark", "exclude": ["*a*b*"], "global_quant_config":
{"weight": {"dtype": "fp4", "group_size": 32}}, "layer_quant_config": {"*.down_proj": {}}}})j";

constexpr char kQwenGptq[] = R"j({"model_type": "qwen3_moe", "hidden_size": 8, "num_experts": 4,
"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 9,
"num_experts_per_tok": 2, "moe_intermediate_size": 8, "mlp_only_layers": [1],
"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": true,
"dynamic": {"-:.*gate": {}, "+:.*down.*": {"bits": 8}}}})j";
constexpr const char* kDescribe =
    R"({"name":"e","revision":"1","methods":["bf16"],"tiers":["scalar"],"kernels":[],)"
    R"("layouts":["row"],"reduces":["sequential:fp32"],"reloads":true,"contracts":[{"op":"linear",)"
    R"("path":"mlp.down","accumulator":"f32","rounding":"bf16"}],"rounding":{"linear":"bf16"},)"
    R"("accumulator":"f32","dequant":"exact","reduce":"sequential:fp32"})";
constexpr const char* kMatrix =
    R"({"about":"x","rows":[{"name":"a","kind":"load","cross":{"model":["llama-mini"],)"
    R"("tp":[1,2],"tier":["scalar"]},"legal":1,"tags":["nightly"]},{"name":"b","kind":"linear",)"
    R"("cross":{"model":["k2-mini"]},"kernels":"registry","legal":0}],)"
    R"("skips":[{"cells":["tp=2","kind=load"],"reason":"r"}]})";

// Tensors of a row each, one after the other.
class Shard {
 public:
  void Add(const std::string& name, const std::string& dtype, const std::string& shape,
           size_t bytes) {
    header_ += (header_.empty() ? "{\"" : ",\"") + name + "\":{\"dtype\":\"" + dtype +
               "\",\"shape\":[" + shape + "],\"data_offsets\":[" + std::to_string(bytes_) + "," +
               std::to_string(bytes_ + bytes) + "]}";
    bytes_ += bytes;
  }
  std::string Bytes() const { return Safetensors(header_ + "}", bytes_); }

 private:
  std::string header_;
  size_t bytes_ = 0;
};

// Layers as several producers store them.
std::vector<std::string> AuditSeeds() {
  const std::string up = "model.layers.0.mlp.up_proj.";
  Shard ct, gptq, fp;
  ct.Add(up + "weight_packed", "I32", "64,4", 1024);
  ct.Add(up + "weight_scale", "BF16", "64,1", 128);
  ct.Add(up + "weight_zero_point", "I32", "8,1", 32);
  ct.Add(up + "weight_shape", "I64", "2", 16);
  ct.Add(up + "weight_g_idx", "I32", "32", 128);
  ct.Add("model.embed_tokens.weight", "BF16", "8,32", 512);
  gptq.Add(up + "qweight", "I32", "4,64", 1024);
  gptq.Add(up + "qzeros", "I32", "1,8", 32);
  gptq.Add(up + "scales", "F16", "1,64", 128);
  gptq.Add(up + "g_idx", "I32", "32", 128);
  fp.Add(up + "weight", "F8_E4M3", "64,32", 2048);
  fp.Add(up + "weight_scale_inv", "F32", "1,1", 4);
  fp.Add("m.gate_up_proj_blocks", "U8", "2,4,2,16", 256);
  fp.Add("m.gate_up_proj_scales", "U8", "2,4,2", 16);
  fp.Add("m.w1.weight", "I8", "4,16", 64);
  fp.Add("m.w1.scale", "F8_E8M0", "4,1", 4);
  return {ct.Bytes(), gptq.Bytes(), fp.Bytes()};
}

}  // namespace

std::vector<std::string> SeedsOf(std::string_view name) {
  if (name == "safetensors") {
    return {Safetensors(R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
                        R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]},)"
                        R"("__metadata__":{"format":"pt"}})",
                        22),
            Safetensors("{}", 0)};
  }
  if (name == "gguf") return {LlamaGguf(), SmallGguf()};
  if (name == "config") return {kLlama, kDeepseek, kKimiK3, kDeepseekV4, kMinimax, kQwenGptq};
  if (name == "problem") {
    return {"moe model=k2-mini-int4-g32 layer=1 tp=4 tier=scalar fault=K03/rank0 tokens=33+1",
            "model model=/a%20b/c split=list:5,3,2 placement=hybrid:2 reduce=ring:bf16 limit=7.0",
            // Given twice below damage: the first value is shown encoded too.
            "model model=/a%0Ab",
            "collective model=k2-mini tp=8 attn_tp=4 fill=exact seed=3 act=a8g32 reload=1"};
  }
  if (name == "results") return {Results()};
  if (name == "describe") return {kDescribe};
  if (name == "matrix") return {kMatrix};
  if (name == "audit") return AuditSeeds();
  return {};
}

std::vector<std::string> TokensOf(std::string_view name) {
  if (name == "gguf") {
    return {Little(uint64_t{0}),
            Little(~uint64_t{0}),
            Little(uint64_t{1} << 63),
            Little(uint64_t{1} << 32),
            Little(uint32_t{9}),
            Little(uint32_t{12}),
            Little(~uint32_t{0}),
            GgufText("blk.0.attn_q.weight"),
            GgufText("llama.block_count"),
            "qwen2",
            "GGUF"};
  }
  if (name == "problem") {
    return {
        " ",  "=",     "%",   "%20", "%00",   "model=",  "tp=",   "tokens=", "99999999999999999999",
        "-1", "load ", "inf", "nan", "list:", "hybrid:", ":int4", "\n",      "\xff"};
  }
  return {"{",
          "}",
          "[",
          "]",
          ",",
          ":",
          "\"",
          "-1",
          "0",
          "1e999",
          "null",
          "true",
          "\"nan\"",
          "\n",
          "9223372036854775808",
          "18446744073709551616",
          "[[[[[[[[[[[[[[[[",
          "\\u0000",
          "\\ud800",
          "\xff",
          "\"type\":\"cell\"",
          "\"data_offsets\":[0,16]",
          "1.5",
          "{\"a\":"};
}

}  // namespace assay::fuzz
