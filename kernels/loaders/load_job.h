// What one load works on. Internal to the room.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/abi/assay_engine.h"
#include "harness/checkpoint/tensor_source.h"
#include "kernels/loaders/loader.h"

namespace assay::kernels {

// Views by name: of the harness's memory, or of nothing but shapes.
class ViewSource : public TensorSource {
 public:
  // false: the name is taken.
  bool Put(TensorView view) {
    std::string name = view.name;
    return views_.emplace(std::move(name), std::move(view)).second;
  }
  const TensorView* Find(std::string_view name) const override;
  std::vector<std::string> Names() const override;

 private:
  std::map<std::string, TensorView, std::less<>> views_;
};

// How a linear's weight is stored. What is in the file decides, not the config.
struct Storage {
  enum class Kind {
    kDense,
    kCtPacked,  // compressed-tensors: .weight_packed, .weight_scale, .weight_shape
    kMxfp4,     // DeepSeek-V4: .weight I8, .scale F8_E8M0
    kBlocks,    // GGUF: .weight of blocks
  };
  Kind kind = Kind::kDense;
  DType block = DType::kF32;  // of kBlocks
};
Storage StorageOf(const Expected& expected, const TensorSource& tensors);

// Something that the config implies, with the parts that the engine makes for it.
struct ExpectedHere {
  Expected expected;
  bool named = false;
  Storage storage;
  std::vector<ParameterSpec> specs;
};

struct Loader::Job {
  ModelConfig config;  // with its prefix
  std::set<std::string, std::less<>> names;
  ViewSource tensors;
  bool whole = false;                        // the whole model: everything must be there
  std::set<std::string, std::less<>> taken;  // names that a parameter takes
  std::vector<ExpectedHere> present, absent;
};

// Throws EngineError for an unknown type, a negative extent, or bytes that do not fit the shape.
TensorView ViewOf(const assay_tensor& tensor);

// A vector or the embedding table, in the type that the file has it in.
ParameterSpec VectorOrTableSpec(const Expected& expected, const TensorSource& tensors);
// Weight, scale and bias of a linear. Throws EngineError: unsupported for a quantisation that the
// engine does not know, refused where K is no whole number of blocks or groups.
std::vector<ParameterSpec> LinearSpecs(const Expected& expected, const Storage& storage,
                                       const TensorSource& tensors, const QuantConfig& quant);

// "L1.moe.e5.gate.weight" -> "L1.moe.e5.gate", "weight".
std::pair<std::string_view, std::string_view> SplitComponent(std::string_view component);
// The matrix that a component goes into.
std::string ParameterName(const shard::ComponentPlan& plan);
bool IsLinear(const shard::ComponentPlan& plan);
std::string MethodOf(const shard::ComponentPlan& plan);
// nullptr: row major, no layout to look up.
const Layout* LayoutOf(const Parameter& parameter, std::string_view part);
// fp32 of a vector stored in BF16, F16 or F32.
Array<float> FloatsOf(Memory& memory, const Part& part);
Array<std::byte> Poisoned(Memory& memory, int64_t bytes);

}  // namespace assay::kernels
