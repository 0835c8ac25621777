// A storage method by its id: "ct-int4-g32-asym", "gguf-q4_k", "bf16". Names and parameters only;
// what they mean is decided twice, in kernels/methods and in reference/methods.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/units/dtype.h"

namespace assay {

enum class MethodFamily {
  kDense,            // "f32", "f16", "bf16"
  kCtInt,            // "ct-int4-g32": compressed-tensors pack-quantized, 2 to 8 bits
  kCtW8a8,           // "ct-w8a8-channel": int-quantized
  kCtFp8,            // "ct-fp8-block128": float-quantized
  kCtMxfp4,          // "ct-mxfp4"
  kCtMxfp8,          // "ct-mxfp8"
  kCtNvfp4,          // "ct-nvfp4"
  kDeepseekFp8,      // "deepseek-fp8-block128"
  kGptq,             // "gptq-int4-g64-asym", "gptq-v2-int4-g32"
  kAwq,              // "awq-int4-g32-asym"
  kGptOssMxfp4,      // "gptoss-mxfp4"
  kDeepseekV4Mxfp4,  // "deepseek-v4-mxfp4"
  kQuarkMxfp4,       // "quark-mxfp4"
  kModelOptNvfp4,    // "modelopt-nvfp4"
  kModelSlimW8a8,    // "modelslim-w8a8"
  kModelSlimW4a8,    // "modelslim-w4a8"; with a second scale by groups "modelslim-w4a8-g256"
  kGguf,             // "gguf-q4_k"
};

// What one scale stands for.
enum class Granularity { kNone, kTensor, kChannel, kGroup, kBlock };

struct Scheme {
  MethodFamily family = MethodFamily::kDense;
  DType dtype = DType::kBF16;  // of kDense its values', of kGguf its blocks'
  int bits = 0;                // of a code
  Granularity granularity = Granularity::kNone;
  int64_t group = 0;                 // kGroup: elements along k of one scale
  int64_t block_n = 0, block_k = 0;  // kBlock
  bool asymmetric = false;           // "-asym": zero points are stored
  bool actorder = false;             // "-actorder", "-actorder-group": g_idx is stored
  bool old_packing = false;          // "ct-old-": floor(32/bits) values a word
  bool v2 = false;                   // "gptq-v2-": zero points without the − 1
  bool fnuz = false;                 // "-fnuz": FP8 codes of the fnuz kind
  friend bool operator==(const Scheme&, const Scheme&) = default;
};

// nullopt: no method has this id. Ids are the names of interfaces.md §2: "ct-int4-one-group" is
// strategy group with one group a row, whatever K is (group = -1).
std::optional<Scheme> ParseScheme(std::string_view id);
// The id; ParseScheme's inverse.
std::string NameOf(const Scheme& scheme);
// One example of every id that differs in more than a size, sorted: for messages and for tests
// that go over all methods.
std::vector<std::string> KnownSchemes();

}  // namespace assay
