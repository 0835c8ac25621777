// What a tensor is to its layer, by the name that its producer gave it and by its type; and so how
// its values are looked at.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "harness/audit/values.h"
#include "harness/checkpoint/tensor_source.h"

namespace assay::audit {

enum class Part : uint8_t {
  kDense,  // numbers that are the weights, norms, biases themselves
  kBias,
  kCodes,        // packed or plain codes of quantised weights
  kBlocks,       // GGUF: codes and scales together
  kScale,        // for channels, groups, blocks or the whole tensor
  kGlobalScale,  // one number beside the scales, or for activations
  kZero,         // zero points, packed or plain
  kOffset,       // zero points, never packed
  kGIdx,
  kShape,
  kOther,  // integers that are no codes: tables, packed scales
};

struct Role {
  Part part = Part::kOther;
  std::string_view suffix;   // of the table: ".weight_packed", "_blocks"; empty: of no known kind
  bool along_k = false;      // GPTQ, AWQ: the stored rows lie along K
  std::string_view allowed;  // the types that the suffix may have, for messages: "I32 or U8"
  bool type_fits = true;
};

// "model.x" of "model.x.weight_packed"; empty where the name is the suffix alone.
std::string_view ModuleOf(std::string_view name, const Role& role);
// A sibling's name: the module with another suffix (".weight_scale").
std::string Sibling(std::string_view module, std::string_view suffix);

// `source` is asked for siblings: a weight of bytes has codes of FP4 where its scale says so.
Role RoleOf(const TensorView& tensor, const TensorSource& source);

// What the values' pass needs beside the role.
struct Coding {
  int bits = 4;       // of packed integer codes
  int64_t group = 0;  // elements of a group of symmetric codes along the stored row; 0: none
  bool fnuz = false;
};
Lens LensOf(const TensorView& tensor, const Role& role, const TensorSource& source,
            const Coding& coding);

// Where value `index` of the stored tensor lies, in the words of its role: "row 17, group 5",
// "expert 3, row 0, block 2". `unit` 0: an index of values; otherwise values that one index covers.
std::string PlaceOf(const TensorView& tensor, const Role& role, uint64_t index, uint64_t unit);

}  // namespace assay::audit
