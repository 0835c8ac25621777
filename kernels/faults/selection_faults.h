// Faults of what is chosen for a parameter: K19.
#pragma once

#include "kernels/faults/edits.h"
#include "kernels/faults/faults.h"

namespace assay::kernels::faults {

// Both have a tensor of codes and one of scales by these names.
struct K19ByNames final : Interceptor {
  static inline const Fault kFault = {
      "K19/by-names",
      "K19",
      "MXFP4 is taken for FP8 in blocks, by the names of its tensors",
      "selection",
      "load model=k2-mini method=ct-mxfp4 layer=1 op=mlp tp=2 fault=K19/by-names",
      "load model=qwen3moe-mini-fp8 layer=1 op=mlp tp=2 fault=K19/by-names",
      {{"class", "\"selection\""}, {"rank", "0"}, {"tensor", "\"L1.moe.e0.gate.weight\""}},
      "wrong-method"};

  void OnSelect(Choice& choice) const override {
    if (choice.method == "ct-mxfp4") ReadAs(choice, "deepseek-fp8-block32");
  }
};

// Latent projections are quantised, so kv_b must be split, says a switch that is of something else.
struct K19SplitKeys final : Interceptor {
  static inline const Fault kFault = {
      "K19/split-keys",
      "K19",
      "a dense kv_b is taken on the path of GGUF's split k_b and v_b",
      "selection",
      "load model=k3-mini method=modelslim-w4a8 layer=3 op=attn tp=2 fault=K19/split-keys",
      "load model=k3-mini method=modelslim-w4a8 layer=0 op=attn tp=1 fault=K19/split-keys",
      {{"class", "\"selection\""},
       {"layer", "3"},
       {"rank", "0"},
       {"tensor", "\"L3.attn.kv_b.weight\""}},
      "wrong-method"};

  void OnSelect(Choice& choice) const override {
    if (!choice.parameter.ends_with(".attn.kv_b")) return;
    ReadAs(choice, "gguf-q4_0");
    choice.path = "gguf:split-kv_b";
  }
};

// The path is another, the parameter is made for it, and no tensor comes.
struct K19Placeholder final : Interceptor {
  static inline const Fault kFault = {
      "K19/placeholder",
      "K19",
      "kv_b is made for a path that loads nothing into it",
      "loader",
      "load model=k3-mini method=modelslim-w4a8 layer=3 op=attn tp=2 fault=K19/placeholder",
      "load model=k3-mini method=modelslim-w4a8 layer=0 op=attn tp=1 fault=K19/placeholder",
      {{"class", "\"loader\""},
       {"layer", "3"},
       {"rank", "0"},
       {"tensor", "\"L3.attn.kv_b.weight\""},
       {"unit", "\"element\""},
       {"index", "[0, 0]"}},
      "never-loaded"};

  bool SkipsPart(std::string_view component, int) const override {
    return Is(component, "attn.kv_b.weight");
  }
  bool SkipsCoverage() const override { return true; }
};

// The list of what stays dense is under another key.
struct K19IgnoredList final : Interceptor {
  static inline const Fault kFault = {
      "K19/ignored-list",
      "K19",
      "modules that the config says are not converted are taken for quantised",
      "selection",
      "load model=qwen3moe-mini-fp8 layer=1 op=mlp tp=2 fault=K19/ignored-list",
      "load model=qwen3moe-mini layer=1 op=mlp tp=2 fault=K19/ignored-list",
      {{"class", "\"selection\""},
       {"layer", "1"},
       {"rank", "0"},
       {"tensor", "\"L1.router.logits.weight\""}},
      "wrong-method"};

  void OnConfig(ModelConfig& config) const override { quantised_ = !config.quant.method.empty(); }
  void OnSelect(Choice& choice) const override {
    if (quantised_ && choice.parameter.ends_with(".router.logits")) {
      ReadAs(choice, "deepseek-fp8-block32");
    }
  }

 private:
  mutable bool quantised_ = false;
};

// One scale a row may be a channel's or that of one group; shapes do not say which.
struct K19OneGroup final : Interceptor {
  static inline const Fault kFault = {
      "K19/one-group",
      "K19",
      "a group as wide as the row is taken for a channel, by its shape",
      "selection",
      "load model=llama-mini method=ct-int4-one-group layer=0 op=mlp tp=1 fault=K19/one-group",
      "load model=llama-mini method=ct-int4-channel layer=0 op=mlp tp=1 fault=K19/one-group",
      {{"class", "\"selection\""},
       {"layer", "0"},
       {"rank", "0"},
       {"tensor", "\"L0.mlp.gate.weight\""}},
      "wrong-method"};

  void OnSelect(Choice& choice) const override {
    if (choice.why.find("one group") != std::string::npos) ReadAs(choice, "ct-int4-channel");
  }
};

// checkpoint_format says which of two readings of the same words is meant.
struct K19Version final : Interceptor {
  static inline const Fault kFault = {
      "K19/version",
      "K19",
      "a file of GPTQ version 2 is read as version 1",
      "selection",
      "load model=k2-mini method=gptq-v2-int4-g32-asym layer=1 op=mlp tp=2 fault=K19/version",
      "load model=k2-mini method=gptq-int4-g32-asym layer=1 op=mlp tp=2 fault=K19/version",
      {{"class", "\"selection\""},
       {"layer", "1"},
       {"rank", "0"},
       {"tensor", "\"L1.moe.e0.gate.weight\""}},
      "wrong-method"};

  void OnSelect(Choice& choice) const override {
    constexpr std::string_view kSecond = "gptq-v2-";
    if (!choice.method.starts_with(kSecond)) return;
    ReadAs(choice, "gptq-" + choice.method.substr(kSecond.size()));
  }
};

// The backend that was asked for is not there, another one takes its place and computes rightly.
struct K19Replaced final : Interceptor {
  static inline const Fault kFault = {
      "K19/replaced",
      "K19",
      "the layout that was asked for is replaced by another, and nobody says so",
      "selection",
      "load model=k2-mini-int4-g32 layer=1 layout=marlin tp=2 fault=K19/replaced",
      "load model=k2-mini-int4-g32 layer=1 tp=2 fault=K19/replaced",
      {{"class", "\"selection\""},
       {"layer", "1"},
       {"expert", "0"},
       {"rank", "0"},
       {"tensor", "\"L1.moe.e0.gate.weight\""}},
      "layout-replaced"};

  void OnSelect(Choice& choice) const override {
    if (choice.layout != "marlin") return;
    choice.layout = "row";
    choice.kernel.clear();
  }
};

}  // namespace assay::kernels::faults
