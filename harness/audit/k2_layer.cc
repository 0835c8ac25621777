#include "harness/audit/k2_layer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "harness/store/files.h"

namespace assay::audit {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kGroup = 32, kCodesPerWord = 8;
constexpr size_t kChunk = 1 << 20;

// How a tensor's 64-bit words are made of random ones.
enum class Fill { kCodes, kScales, kDense, kOnes, kBias, kShape };

struct Made {
  std::string name, dtype;
  std::vector<int64_t> shape;
  int64_t bytes = 0;
  Fill fill = Fill::kDense;
  int64_t n = 0, k = 0;  // of kShape
  uint64_t offset = 0;   // in the file
};
using File = std::vector<Made>;

uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

uint64_t KeyOf(uint64_t seed, const std::string& name) {
  uint64_t key = Mix(seed + 0x9E3779B97F4A7C15u);
  for (const char c : name) key = Mix(key ^ static_cast<unsigned char>(c)) + 0x9E3779B97F4A7C15u;
  return key;
}

// Word `index` of the tensor.
template <Fill kFill>
uint64_t WordOf(uint64_t key, uint64_t index) {
  const uint64_t random = Mix(key + index * 0x9E3779B97F4A7C15u);
  switch (kFill) {
    case Fill::kScales:  // bf16: 2^-9 to 2^-7
      return (random & 0x007F007F007F007Fu) + 0x3B003B003B003B00u +
             (random >> 1 & 0x0080008000800080u);
    case Fill::kDense:  // bf16: magnitudes from 2^-14 to 2^-6
      return (random & 0x83FF83FF83FF83FFu) + 0x3880388038803880u;
    case Fill::kOnes:  // bf16 around 1
      return (random & 0x000F000F000F000Fu) + 0x3F803F803F803F80u;
    case Fill::kBias:  // float32 from 1/8 to 1/4
      return (random & 0x007FFFFF007FFFFFu) + 0x3E0000003E000000u;
    default:
      return random;
  }
}

template <Fill kFill>
void FillWords(uint64_t key, uint64_t first, std::byte* into, size_t words) {
  for (size_t i = 0; i < words; ++i) {
    const uint64_t word = WordOf<kFill>(key, first + i);
    std::memcpy(into + i * sizeof word, &word, sizeof word);
  }
}

void FillPart(const Made& made, uint64_t key, uint64_t first, std::byte* into, size_t words) {
  switch (made.fill) {
    case Fill::kCodes:
      return FillWords<Fill::kCodes>(key, first, into, words);
    case Fill::kScales:
      return FillWords<Fill::kScales>(key, first, into, words);
    case Fill::kDense:
      return FillWords<Fill::kDense>(key, first, into, words);
    case Fill::kOnes:
      return FillWords<Fill::kOnes>(key, first, into, words);
    case Fill::kBias:
      return FillWords<Fill::kBias>(key, first, into, words);
    case Fill::kShape: {
      const int64_t shape[2] = {made.n, made.k};
      std::memcpy(into, shape, sizeof shape);
    }
  }
}

void Add(File* file, std::string name, std::string dtype, std::vector<int64_t> shape, int64_t width,
         Fill fill) {
  Made made{std::move(name), std::move(dtype), std::move(shape), width, fill, 0, 0, 0};
  for (const int64_t extent : made.shape) made.bytes *= extent;
  file->push_back(std::move(made));
}

void AddDense(File* file, const std::string& name, int64_t n, int64_t k) {
  Add(file, name + ".weight", "BF16", {n, k}, 2, Fill::kDense);
}

void AddNorm(File* file, const std::string& name, int64_t n) {
  Add(file, name + ".weight", "BF16", {n}, 2, Fill::kOnes);
}

void AddInt4(File* file, const std::string& name, int64_t n, int64_t k) {
  Add(file, name + ".weight_packed", "I32", {n, k / kCodesPerWord}, 4, Fill::kCodes);
  Add(file, name + ".weight_scale", "BF16", {n, k / kGroup}, 2, Fill::kScales);
  Add(file, name + ".weight_shape", "I64", {2}, 8, Fill::kShape);
  file->back().n = n;
  file->back().k = k;
}

constexpr int64_t kQLora = 1536, kKvLora = 512, kNope = 128, kRope = 64, kValue = 128;
constexpr const char* kLayer = "model.layers.0.";

File Rest(const LayerOptions& o) {
  File file;
  const std::string attention = std::string(kLayer) + "self_attn.",
                    mlp = std::string(kLayer) + "mlp.";
  AddDense(&file, "model.embed_tokens", o.vocab, o.hidden);
  AddNorm(&file, std::string(kLayer) + "input_layernorm", o.hidden);
  AddDense(&file, attention + "q_a_proj", kQLora, o.hidden);
  AddNorm(&file, attention + "q_a_layernorm", kQLora);
  AddDense(&file, attention + "q_b_proj", o.heads * (kNope + kRope), kQLora);
  AddDense(&file, attention + "kv_a_proj_with_mqa", kKvLora + kRope, o.hidden);
  AddNorm(&file, attention + "kv_a_layernorm", kKvLora);
  AddDense(&file, attention + "kv_b_proj", o.heads * (kNope + kValue), kKvLora);
  AddDense(&file, attention + "o_proj", o.hidden, o.heads * kValue);
  AddNorm(&file, std::string(kLayer) + "post_attention_layernorm", o.hidden);
  AddDense(&file, mlp + "gate", o.experts, o.hidden);
  Add(&file, mlp + "gate.e_score_correction_bias", "F32", {o.experts}, 4, Fill::kBias);
  AddDense(&file, mlp + "shared_experts.gate_proj", o.intermediate, o.hidden);
  AddDense(&file, mlp + "shared_experts.up_proj", o.intermediate, o.hidden);
  AddDense(&file, mlp + "shared_experts.down_proj", o.hidden, o.intermediate);
  AddNorm(&file, "model.norm", o.hidden);
  AddDense(&file, "lm_head", o.vocab, o.hidden);
  return file;
}

std::vector<File> FilesOf(const LayerOptions& o) {
  std::vector<File> files{Rest(o)};
  for (int64_t expert = 0; expert < o.experts; ++expert) {
    if (expert % o.experts_per_file == 0) files.emplace_back();
    const std::string name = fmt::format("{}mlp.experts.{}.", kLayer, expert);
    AddInt4(&files.back(), name + "gate_proj", o.intermediate, o.hidden);
    AddInt4(&files.back(), name + "up_proj", o.intermediate, o.hidden);
    AddInt4(&files.back(), name + "down_proj", o.hidden, o.intermediate);
  }
  return files;
}

// Places the tensors, and gives the header's bytes.
std::string HeaderOf(File* file) {
  std::string json = "{";
  int64_t at = 0;
  for (const Made& made : *file) {
    json += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        json.size() == 1 ? "" : ",", made.name, made.dtype,
                        fmt::join(made.shape, ","), at, at + made.bytes);
    at += made.bytes;
  }
  json += "}";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  uint64_t offset = json.size() + 8;
  for (Made& made : *file) {
    made.offset = offset;
    offset += static_cast<uint64_t>(made.bytes);
  }
  const uint64_t length = json.size();
  std::string header(8, '\0');
  std::memcpy(header.data(), &length, sizeof length);
  return header + json;
}

std::string ConfigOf(const LayerOptions& o) {
  return fmt::format(
      R"({{"architectures":["DeepseekV3ForCausalLM"],"model_type":"deepseek_v3","hidden_size":{},)"
      R"("intermediate_size":{},"moe_intermediate_size":{},"num_hidden_layers":1,)"
      R"("num_attention_heads":{},"num_key_value_heads":{},"n_routed_experts":{},)"
      R"("n_shared_experts":1,"num_experts_per_tok":{},"n_group":1,"topk_group":1,)"
      R"("first_k_dense_replace":0,"moe_layer_freq":1,"kv_lora_rank":{},"q_lora_rank":{},)"
      R"("qk_nope_head_dim":{},"qk_rope_head_dim":{},"v_head_dim":{},)"
      R"("routed_scaling_factor":2.827,"norm_topk_prob":true,"scoring_func":"sigmoid",)"
      R"("topk_method":"noaux_tc","vocab_size":{},"max_position_embeddings":4096,)"
      R"("rms_norm_eps":1e-5,"rope_theta":50000.0,"hidden_act":"silu",)"
      R"("tie_word_embeddings":false,"torch_dtype":"bfloat16",)"
      R"("quantization_config":{{"quant_method":"compressed-tensors","format":"pack-quantized",)"
      R"("config_groups":{{"group_0":{{"targets":["Linear"],"weights":{{"num_bits":4,)"
      R"("type":"int","group_size":{},"strategy":"group","symmetric":true}}}}}},)"
      R"("ignore":["lm_head","re:.*self_attn.*","re:.*shared_experts.*","re:.*mlp\\.gate$"]}}}})",
      o.hidden, o.intermediate, o.intermediate, o.heads, o.heads, o.experts,
      std::min<int64_t>(o.experts, 8), kKvLora, kQLora, kNope, kRope, kValue, o.vocab, kGroup);
}

Error SystemError(const std::string& path) {
  return Error{path + ": " + std::generic_category().message(errno), ErrorKind::kEnvironment};
}

Status WriteAt(int descriptor, const std::string& path, const void* bytes, size_t size,
               uint64_t offset) {
  const char* from = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t wrote = pwrite(descriptor, from, size, static_cast<off_t>(offset));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return SystemError(path);
    from += wrote;
    size -= static_cast<size_t>(wrote);
    offset += static_cast<uint64_t>(wrote);
  }
  return Ok();
}

Status WriteTensor(int descriptor, const std::string& path, const Made& made, uint64_t seed,
                   std::byte* buffer) {
  const uint64_t key = KeyOf(seed, made.name);
  const auto bytes = static_cast<size_t>(made.bytes);
  for (size_t at = 0; at < bytes; at += kChunk) {
    const size_t size = std::min(kChunk, bytes - at);
    FillPart(made, key, at / 8, buffer, (size + 7) / 8);
    if (Status status = WriteAt(descriptor, path, buffer, size, made.offset + at); !status) {
      return status;
    }
  }
  return Ok();
}

Status WriteFile(const std::string& path, File* file, const LayerOptions& o) {
  const std::string header = HeaderOf(file);
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) return SystemError(path);
  Status result = WriteAt(descriptor, path, header.data(), header.size(), 0);
  std::mutex mutex;
  std::atomic<size_t> next{0};
  const auto work = [&] {
    std::vector<std::byte> buffer(kChunk);
    for (size_t i = next++; i < file->size(); i = next++) {
      Status status = WriteTensor(descriptor, path, (*file)[i], o.seed, buffer.data());
      const std::lock_guard lock(mutex);
      if (!status.ok() && result.ok()) result = status;
      if (!result.ok()) return;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < std::max(o.threads, 1); ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  if (close(descriptor) != 0 && result.ok()) result = SystemError(path);
  return result;
}

Status CheckOptions(const LayerOptions& o) {
  if (o.experts < 1 || o.experts > 4096 || o.experts_per_file < 1 || o.hidden % kGroup != 0 ||
      o.intermediate % kGroup != 0 || o.hidden < kGroup || o.intermediate < kGroup || o.heads < 1 ||
      o.vocab < 1) {
    return Error{
        fmt::format("experts {} (1 to 4096), hidden {} and intermediate {} (multiples of "
                    "{}) do not fit each other",
                    o.experts, o.hidden, o.intermediate, kGroup)};
  }
  return Ok();
}

}  // namespace

int64_t LayerBytes(const LayerOptions& options) {
  int64_t bytes = 0;
  for (const File& file : FilesOf(options)) {
    for (const Made& made : file) bytes += made.bytes;
  }
  return bytes;
}

Status MakeLayer(const std::string& folder, const LayerOptions& options) {
  if (Status good = CheckOptions(options); !good) return good;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return Error{folder + ": " + error.message()};
  if (!fs::is_empty(folder, error) || error) {
    return Error{folder + ": it must be a new or an empty folder"};
  }
  std::vector<File> files = FilesOf(options);
  std::string index = R"({"metadata":{},"weight_map":{)";
  bool first = true;
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
    if (Status s = WriteFile(folder + "/" + name, &files[i], options); !s) return s;
    for (const Made& made : files[i]) {
      index += fmt::format(R"({}"{}":"{}")", first ? "" : ",", made.name, name);
      first = false;
    }
  }
  if (Status s = WriteWhole(folder + "/config.json", ConfigOf(options)); !s) return s;
  return WriteWhole(folder + "/model.safetensors.index.json", index + "}}");
}

}  // namespace assay::audit
