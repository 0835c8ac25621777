// Where the inputs of an op come from: the engine's taps, what the harness gave, or, for inner taps
// that an engine does not show, the oracle's evaluation with its bound as the input's error.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "harness/judge/judge.h"

namespace assay::judge {

struct Resolved {
  const reference::Tensor* value = nullptr;  // nullptr: an expert that no token was routed to
  const reference::Tensor* error = nullptr;  // nullptr: the engine showed it, it is what it is
  const TapValue* raw = nullptr;             // where `value` is such a tap unchanged
};

// A linear op's 8-bit activations as the engine shows them, and what they were made of.
struct ShownActivation {
  const TapValue *codes = nullptr, *scales = nullptr;  // nullptr: not shown
  bool any() const { return codes != nullptr || scales != nullptr; }
};
struct Activation {
  reference::Tensor x, error;             // the op's own rows; error: empty where x is shown
  std::optional<ActQuantiser> quantiser;  // of the act that really ran; nullopt: none
  std::string act;
};

struct Gathered {
  std::vector<reference::Input> inputs;
  std::vector<const TapValue*> raw;  // beside inputs; nullptr: not one shown tap
  bool shown = true;                 // none was evaluated by the oracle
};

class Inputs {
 public:
  // `request` must outlive this.
  explicit Inputs(const JudgeRequest& request);

  const TapValue* Shown(const std::string& tap, int rank, int step) const;  // this rank's own only
  const reference::Tensor& Converted(const TapValue& raw);

  // All inputs of a node on a rank. Error: one can be neither seen nor evaluated.
  Result<Gathered> Gather(const reference::Node& node, int rank, int step);
  Result<Resolved> Get(const std::string& tap, int rank, int step);
  // How many tokens an expert gets by the ids that the rank sees; nullopt: not known.
  std::optional<int64_t> RoutedRows(const reference::Node& node, int rank, int step);

  const KernelFacts* KernelOf(const std::string& tap, int rank) const;
  // What the engine's dispatcher says of the op's activations, else what the contract says.
  const std::string& ActOf(const std::string& tap, int rank) const;
  // The contract of one op: `act` is the one that ran.
  const Contract& ContractOf(const reference::Node& node, int rank);
  // The act of a linear op that no quantiser stands for; empty where there is none such.
  std::string Unmodelled(const reference::Node& node, int rank) const;
  // Whether these activations are a library's variant, which the oracle makes itself.
  bool ModelsVariant(std::string_view act) const {
    return request_.contract.VariantOf(act).has_value();
  }
  ShownActivation ActivationShown(const reference::Node& node, int rank, int step) const;
  Result<Activation> ActivationOf(const reference::Node& node, int rank, int step);
  // Empty if shapes and types are those of this op's activations; else what is wrong.
  std::string UnsoundCodes(const Activation& activation, const TapValue& codes) const;
  std::string UnsoundScales(const Activation& activation, const TapValue& scales) const;
  reference::Where WhereOf(int rank) const { return {request_.degrees, rank}; }
  const TensorSource* WeightsOf(int rank) const;
  // Which ranks' partials a kReduce on `rank` adds, in the order of addition.
  std::vector<int> ReduceGroup(const reference::Node& node, int rank) const;
  // Largest |correction bias| of the router's layer, 0 without one.
  double RouterBias(int64_t layer);
  // Largest |value| of a component, 0 if there is none.
  double Largest(const std::string& component);
  // The bound on a node's output for given inputs.
  Tolerance Bound(const reference::Node& node, const reference::Evaluation& evaluation,
                  const Gathered& gathered, int rank);
  const JudgeRequest& request() const { return request_; }

 private:
  struct Owned {
    reference::Tensor value, error;
    bool has_error = false;
  };
  void Quantised(const reference::Node& node, int rank, int step, Gathered* gathered);
  Result<Resolved> Evaluate(const reference::Node& node, int rank, int step);
  Result<Resolved> JoinColumns(const reference::Node& node, int step, bool* joined);
  Result<Resolved> Fit(const std::string& tap, const TapValue& raw, int rank);
  Result<Resolved> AllPositions(const std::string& tap, int rank, int step);
  const Owned& Keep(const TapKey& key, Owned owned);

  const JudgeRequest& request_;
  std::map<std::string, const reference::Node*, std::less<>> scope_;
  std::map<const TapValue*, std::unique_ptr<reference::Tensor>> converted_;
  std::map<TapKey, std::unique_ptr<Owned>> derived_;
  std::map<TapKey, std::unique_ptr<Owned>> cuts_;
  std::map<TapKey, std::unique_ptr<Owned>> concatenated_;
  std::map<std::pair<std::string, int>, const KernelFacts*> kernels_;
  std::map<std::pair<std::string, int>, std::string> acts_;
  std::map<std::string, std::unique_ptr<Contract>, std::less<>> contracts_;
  std::map<TapKey, std::unique_ptr<reference::Codes>> codes_;
  std::map<TapKey, std::string> failures_;
  std::map<std::string, double> largest_;
};

// The scales or codes of a linear op's activations (`made`: their node) on one rank.
OpJudgement JudgeActivation(Inputs* inputs, std::shared_ptr<const reference::Node> made,
                            const reference::Node& linear, int rank, int step);

}  // namespace assay::judge
