// One layer's quantised matrix with all that belongs to it, found by names: what method it is
// stored by, and whether its tensors fit each other. Names, types and shapes only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/audit/report.h"
#include "harness/audit/roles.h"
#include "harness/checkpoint/model_config.h"
#include "harness/checkpoint/tensor_source.h"

namespace assay::audit {

struct Module {
  std::string name;  // "model.layers.0.mlp.up_proj"; empty where tensors have no module
  const TensorView* codes = nullptr;
  const TensorView* scale = nullptr;
  const TensorView* zero = nullptr;
  const TensorView* g_idx = nullptr;
  const TensorView* shape = nullptr;
  const TensorView* global = nullptr;
  Role role;  // of the codes
  Coding coding;
  std::string method;    // id; empty: not known
  int64_t n = 0, k = 0;  // logical extents as codes and scales say; 0: not known
  int64_t groups = 0;    // along k; 0: none
  int64_t group = 0;     // elements of a group; 0: none
  bool old_packing = false;
};

// nullopt where the module has no codes (dense weights, norms).
std::optional<Module> ReadModule(std::string_view name, const TensorSource& source,
                                 const ModelConfig* config);

// What does not fit between the module's tensors.
std::vector<Finding> CheckModule(const Module& module);

// `weight_shape`'s values against the codes'.
std::optional<Finding> CheckStatedShape(const Module& module, const TensorView& shape,
                                        std::span<const std::byte> bytes);

// Groups of a g_idx.
struct GIdx {
  std::optional<Finding> finding;
  bool identity = false;  // k / group: nothing is permuted
  bool unused = false;    // all are -1: compressed-tensors' way to say that there is none
};
// `module` may be null: then only order can be said.
GIdx CheckGIdx(const Module* module, const TensorView& tensor, std::span<const std::byte> bytes);

}  // namespace assay::audit
