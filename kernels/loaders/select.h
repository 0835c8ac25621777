// Which method, loader path, layout and kernel a parameter takes: a pure function of what the
// checkpoint says of the parameter and of the mode that the session was opened in. No switch of
// another feature is looked at, and what was chosen says so itself, in one line.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/units/status.h"
#include "kernels/registry.h"

namespace assay::kernels {

// What a parameter is in the model.
enum class ModuleKind {
  kVector,     // norms, biases of scores, sinks: no product
  kTable,      // the embedding
  kRouter,     // router.logits
  kAttention,  // every projection of attention but kv_b
  kKvB,        // MLA's kv_b in one piece
  kKvBHalf,    // MLA's k_b or v_b, as GGUF splits it
  kDense,      // dense MLPs and shared experts
  kExpert,     // routed experts
  kLatent,     // the projections around experts of another width
  kHead,       // the output matrix
  kOther,      // convolutions, hyper-connections, tables of ids: stored, and no linear here
};
std::string_view NameOf(ModuleKind kind);
// By its op: "L1.moe.e5.gate", "L0.attn.kv_b", "logits". Vectors cannot be told by the name alone:
// `columns` are the stored columns of its weight.
ModuleKind KindOf(std::string_view op, int64_t columns);

// Where an expert lives under placement=hybrid. Without it everything is kCpu.
enum class Placement { kCpu, kGpu };

// What the checkpoint and the config say of one parameter on one rank.
struct ParameterFacts {
  std::string name;    // "L1.moe.e5.gate_up": members that are joined have one name
  std::string method;  // id (harness/units/scheme.h) of its stored tensors, by the planner
  ModuleKind kind = ModuleKind::kOther;
  std::vector<std::string> parts;   // "weight", "scale", ...
  int64_t n = 0, k = 0, group = 0;  // logical; group 0: none, or one scale a channel
  int64_t whole_k = 0;              // of the whole parameter, before any cut
  bool gate_up = false;             // gate and up are one matrix, gate above
  std::string hidden_act = "silu";  // config
  Placement placement = Placement::kCpu;
};

// The mode that the session was opened in. Empty: not stated.
struct Mode {
  Tier tier = Tier::kScalar;
  How how = How::kHardware;
  std::string method;  // whose parameters `kernel` and `layout` bind
  std::string layout;  // a tag, or "aiter": AITER's pre-shuffle for the activation type
  std::string act;     // binds every quantised method
  std::string kernel;  // a name of the registry
};

struct Choice {
  std::string parameter;
  std::string method;          // under which it is read
  std::string path;            // loader: "dense", "ct-int", "mxfp4:gptoss", "gguf:split-kv_b" ...
  std::string layout = "row";  // tag of its weight; parts that the tag does not move stay in "row"
  std::string kernel;          // of the registry; empty: nothing runs it here
  std::string why;             // what decided, where more than the method did
  // "L1.moe.e5.gate_up: ct-int4-g32 by ct-int, layout marlin, kernel k (placed on gpu)".
  std::string Print() const;
  friend bool operator==(const Choice&, const Choice&) = default;
};

// `kernels` are the registry's rows. The kernel is of the mode's tier, takes the method in the
// chosen layout, and has the activation type that was asked for ("a16" where none was, and for bf16
// always). Where there is none the parameter still loads: in the layout that was demanded, where
// there is such a layout for the method and the parameter, else in "row".
Choice Select(const ParameterFacts& facts, const Mode& mode, std::span<const LinearKernel> kernels);

// Whether a mode can be had at all. Error (kUnsupported): a kernel of no such name, a layout that
// neither a kernel nor a repack of the method knows, an activation type that no kernel of the
// method takes though it has others, a method that nobody knows.
Status CheckMode(const Mode& mode, std::span<const LinearKernel> kernels);

// The row of that name, tier and way; nullptr if there is none.
const LinearKernel* FindKernel(std::span<const LinearKernel> kernels, std::string_view name,
                               const Mode& mode);

}  // namespace assay::kernels
