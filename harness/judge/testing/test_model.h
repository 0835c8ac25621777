// For tests of judge/ and locate/: a small model as an Oracle, and an engine in fp32 with bf16
// rounding points that computes it from shards, sums in a seeded order, and can be made wrong.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "harness/judge/judge.h"
#include "reference/oracle.h"

namespace assay::testing {

struct Sizes {
  int64_t hidden = 32, inter = 64, experts = 4, top_k = 2, vocab = 21, group = 8;
  bool exact = false;                                      // integer weights and scales of one
  double limit = std::numeric_limits<double>::infinity();  // clamp of the activation's inputs
};

// Graph: embed, L1.post_norm, L1.router.*, L1.moe.*, L1.residual_mlp, logits; beside it L1.attn's
// q, k, v, scores, ctx of one head (no RoPE). `down` is 4-bit with a scale per group, all else
// bf16.
class TestModel : public reference::Oracle {
 public:
  explicit TestModel(uint64_t seed, Sizes sizes = {});

  const std::vector<reference::Node>& graph() const override { return graph_; }
  const reference::Node* FindNode(std::string_view tap) const override;
  Result<reference::Trace> Run(const reference::RunRequest&, const Contract&) const override;
  Result<reference::Evaluation> Evaluate(const reference::Node& node,
                                         std::span<const reference::Input> inputs,
                                         const reference::Where& where, const reference::Step& step,
                                         const Contract& contract,
                                         const TensorSource* weights) const override;
  Result<std::vector<int64_t>> TapColumns(const reference::Node& node,
                                          const reference::Where& where) const override;
  std::vector<std::string> Components(int64_t layer) const override;
  Result<reference::Slice> ExpectedSlice(std::string_view component,
                                         const reference::Where& where) const override;
  Result<std::string> SourceName(std::string_view component) const override;

  const Sizes& sizes() const { return sizes_; }

 private:
  struct Stored {
    std::string name;
    DType dtype;
    int64_t rows, columns;
    std::string unit;
    int64_t elements_per_column;
    char axis;  // 'n', 'k' or 'w'(hole)
    std::vector<std::byte> bytes;
  };
  void AddBf16(const std::string& name, int64_t rows, int64_t columns, char axis);
  void AddFourBit(const std::string& name, int64_t rows, int64_t columns);
  void BuildGraph();

  uint64_t seed_;
  Sizes sizes_;
  std::vector<reference::Node> graph_;
  std::vector<Stored> stored_;
};

// W [n, k] as double from a source of components.
std::vector<double> DecodeWeight(const TensorSource& source, const std::string& parameter,
                                 int64_t* rows, int64_t* columns);

Contract TestContract();

struct Engine {
  const TestModel* model = nullptr;
  int tp = 1;
  uint64_t order = 0;  // seed of the order of summation; 0: ascending
  std::map<ShardKey, ExportedShard> shards;
  // Called with each tap before it is rounded and stored: to be wrong on purpose.
  std::function<void(const reference::Node&, int rank, reference::Tensor*)> hook;
  double limit;  // the model's, or what is made of it
  // Activations of `down`: "a16", or a quantiser's id; its codes and scales are shown, and what ran
  // is recorded. `codes` may change them before the product.
  std::string act = "a16";
  std::function<void(const reference::Node&, int rank, reference::Tensor* codes,
                     reference::Tensor* scales)>
      codes;
  // Which ranks' partials a reduce adds, instead of all, in order.
  std::function<std::vector<int>(const reference::Node&)> reduce_ranks;

  Engine(const TestModel& model, int tp, uint64_t order = 0);
  // Runs nodes whose tap the filter accepts (all by default).
  EngineTrace Run(const std::vector<reference::Step>& steps) const;
};

std::vector<std::byte> Encode(const std::vector<double>& values, DType dtype);
judge::JudgeRequest RequestFor(const TestModel& model, const EngineTrace& trace, int tp,
                               const std::vector<reference::Step>& steps);
std::vector<reference::Step> Prefill(int64_t tokens);

}  // namespace assay::testing
