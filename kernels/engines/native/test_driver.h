// Drives an engine through its C ABI for tests, and keeps what it gives back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "harness/abi/assay_engine.h"
#include "harness/checkpoint/checkpoint.h"

namespace assay::kernels::native {

struct Tap {
  uint32_t dtype = 0;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
  std::vector<double> Values() const;
  friend bool operator==(const Tap&, const Tap&) = default;
};

struct Ran {
  std::string kernel, tier, layout, act;
  int threads = 0;
  std::string how;
};

// What a session is opened with; defaults are assay_open's.
struct Wishes {
  int tp = 1, attn_tp = 0, threads = 1;
  std::string tier = "scalar", kernel, method, layout, act, reduce, routing, options;
};

// A tensor to hand in: fp32 or int32 values.
struct In {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
  std::vector<int32_t> ids;
  int rank = -1;
};

class Driver {
 public:
  explicit Driver(const assay_engine* engine) : engine_(engine) {}
  ~Driver() { Close(); }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  int Open(const std::string& config_json, const Wishes& wishes);
  // Of the named tensors; their bytes are copied, and overwritten after the call.
  int Load(int rank, const TensorSource& source, const std::vector<std::string>& names,
           int64_t layer = -1, const std::string& plan = "");
  // Everything on every rank.
  int LoadAll(const Checkpoint& checkpoint);
  int Run(const std::string& scope, int64_t layer, const std::vector<int32_t>& tokens,
          int64_t first_position, const std::vector<In>& inputs, std::vector<float>* output,
          const std::vector<int64_t>& output_shape);
  int Op(int rank, const std::string& tap, const std::vector<In>& inputs,
         const std::vector<int64_t>& shape, std::vector<float>* output);
  int Ids(int rank, const std::string& tap, const std::vector<In>& inputs,
          const std::vector<int64_t>& shape, std::vector<int32_t>* output);
  int Reduce(const std::string& tap, const std::vector<In>& parts, std::vector<float>* output);
  // Any collective, with one output of each shape.
  int Collective(const std::string& kind, const std::string& tap, const std::vector<In>& parts,
                 const std::vector<std::vector<int64_t>>& shapes,
                 std::vector<std::vector<float>>* outputs);
  int Reset() { return engine_->reset(session_, Fresh()); }
  int Export(int rank, const std::string& component, assay_shard* out);
  void Close();

  // prefill of all tokens; logits [T, vocab]
  std::vector<float> Logits(const std::vector<int32_t>& tokens, int64_t first_position,
                            int64_t vocab);

  const assay_error& error() const { return error_; }
  int tp() const { return tp_; }
  std::map<std::pair<std::string, int>, Tap> taps;
  std::map<std::pair<std::string, int>, Ran> ran;
  // What alloc fills memory with; < 0: the host offers no memory.
  int poison = 0xFF;
  int64_t live_allocations = 0, allocations = 0;

 private:
  int CallOp(int rank, const std::string& tap, const std::vector<In>& inputs, assay_tensor* out);

  assay_error* Fresh();
  static void TapHook(void* context, const assay_tensor* value);
  static void RanHook(void* context, const assay_executed* record);
  static void* AllocHook(void* context, uint64_t bytes, uint64_t alignment);
  static void FreeHook(void* context, void* pointer);

  const assay_engine* engine_;
  assay_session* session_ = nullptr;
  assay_error error_{};
  assay_host host_{};
  int tp_ = 1;
};

std::unique_ptr<Checkpoint> OpenCheckpoint(const std::string& path);
// Names of tensors that contain `part`.
std::vector<std::string> NamesWith(const TensorSource& source, const std::string& part);

}  // namespace assay::kernels::native
