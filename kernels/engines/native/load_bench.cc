// What a load costs where it only slices, against a memcpy of the same bytes into fresh memory:
// `bazel run -c opt //kernels/engines/native:load_bench`. Both sides pay for the pages that they
// touch first. Exits with 1 where a shard costs more than 1.5 of its memcpy.
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "harness/abi/assay_engine.h"
#include "kernels/engines/native/native.h"

namespace {

constexpr int64_t kHidden = 4096, kIntermediate = 8192;  // 64 MiB of bf16
constexpr double kMost = 1.5;
constexpr int kTimes = 15;

using Clock = std::chrono::steady_clock;

double Milliseconds(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

struct Case {
  const char* name;
  const char* tensor;
  int64_t rows, columns;
  int tp;
};

constexpr Case kCases[] = {
    {"whole", "model.layers.0.mlp.gate_proj.weight", kIntermediate, kHidden, 1},
    {"rows of 2 ranks", "model.layers.0.mlp.gate_proj.weight", kIntermediate, kHidden, 2},
    {"columns of 2 ranks", "model.layers.0.mlp.down_proj.weight", kHidden, kIntermediate, 2},
    {"columns of 8 ranks", "model.layers.0.mlp.down_proj.weight", kHidden, kIntermediate, 8},
};

const std::string& Config() {
  static const std::string config = fmt::format(
      R"({{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": {}, )"
      R"("intermediate_size": {}, "num_hidden_layers": 1, "num_attention_heads": 32, )"
      R"("num_key_value_heads": 8, "vocab_size": 256, "rms_norm_eps": 1e-5, )"
      R"("max_position_embeddings": 128, "hidden_act": "silu"}})",
      kHidden, kIntermediate);
  return config;
}

// Milliseconds of the last rank's load.
double Load(const Case& c, const std::vector<std::byte>& bytes) {
  const assay_engine& engine = *assay::kernels::NativeEngine();
  assay_error error{};
  error.size = sizeof error;
  assay_open open{};
  open.size = sizeof open;
  open.config_json = Config().c_str();
  open.tp = open.attn_tp = c.tp;
  open.threads = 1;
  open.tier = "scalar";
  assay_session* session = nullptr;
  assay_tensor tensor{};
  tensor.size = sizeof tensor;
  tensor.name = c.tensor;
  tensor.rank = -1;
  tensor.dtype = ASSAY_BF16;
  tensor.ndim = 2;
  tensor.shape[0] = c.rows;
  tensor.shape[1] = c.columns;
  tensor.data = const_cast<std::byte*>(bytes.data());
  tensor.bytes = bytes.size();
  assay_load load{};
  load.size = sizeof load;
  load.rank = c.tp - 1;
  load.layer = 0;
  load.tensor_count = 1;
  load.tensors = &tensor;
  int status = engine.open(&open, nullptr, &session, &error);
  const auto begin = Clock::now();
  if (status == ASSAY_OK) status = engine.load(session, &load, &error);
  const double time = Milliseconds(Clock::now() - begin);
  engine.close(session);
  if (status != ASSAY_OK) {
    fmt::print(stderr, "{}: {}\n", c.name, error.message);
    std::exit(2);
  }
  return time;
}

double Copy(int64_t size, const std::vector<std::byte>& from) {
  const auto begin = Clock::now();
  void* to = std::malloc(static_cast<size_t>(size));
  std::memcpy(to, from.data(), static_cast<size_t>(size));
  const double time = Milliseconds(Clock::now() - begin);
  volatile std::byte seen = static_cast<std::byte*>(to)[size / 2];
  (void)seen;
  std::free(to);
  return time;
}

// What else the machine does only adds.
double Least(const std::vector<double>& times) {
  return *std::min_element(times.begin(), times.end());
}

}  // namespace

int main() {
  // Large blocks come fresh from the system on both sides, instead of once used on one of them.
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  bool slow = false;
  for (const Case& c : kCases) {
    const std::vector<std::byte> bytes(static_cast<size_t>(c.rows * c.columns * 2),
                                       std::byte{0x3C});
    std::vector<double> loads, copies;
    // In turns: what else the machine does falls on both.
    for (int i = 0; i < kTimes; ++i) {
      copies.push_back(Copy(static_cast<int64_t>(bytes.size()) / c.tp, bytes));
      loads.push_back(Load(c, bytes));
    }
    const double load = Least(loads), copy = Least(copies);
    fmt::print("{}: {} MiB a rank, load {:.2f} ms, memcpy {:.2f} ms, ratio {:.2f}\n", c.name,
               bytes.size() / static_cast<size_t>(c.tp) >> 20, load, copy, load / copy);
    slow = slow || load > kMost * copy;
  }
  return slow ? 1 : 0;
}
