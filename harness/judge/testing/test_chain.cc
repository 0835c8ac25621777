// The test model's chain: every op on the outputs before it, with what observers change.
#include <algorithm>

#include "harness/judge/testing/test_model.h"

namespace assay::testing {

using reference::Evaluation;
using reference::Input;
using reference::Node;
using reference::Op;
using reference::Tensor;

namespace {

bool Idle(const Node& node, const std::map<std::string, Tensor>& values) {
  if (node.expert < 0) return false;
  const Tensor& ids = values.at("L1.router.ids");
  return std::count(ids.data.begin(), ids.data.end(), static_cast<double>(node.expert)) == 0;
}

}  // namespace

// Prefills alone: attention of the test model sees one step.
Result<reference::Trace> TestModel::Run(const reference::RunRequest& request,
                                        const Contract& contract) const {
  reference::Trace trace;
  for (size_t step = 0; step < request.steps.size(); ++step) {
    std::map<std::string, Tensor> values;
    for (const Node& node : graph_) {
      if (const auto given = request.given.find(node.tap); given != request.given.end()) {
        values[node.tap] = given->second;
        continue;
      }
      if (Idle(node, values)) continue;
      std::vector<Input> inputs;
      for (const std::string& tap : node.inputs) {
        if (tap == "tokens") continue;
        const auto found = values.find(tap);
        inputs.push_back({found == values.end() ? nullptr : &found->second, nullptr, nullptr});
      }
      auto made = Evaluate(node, inputs, {}, request.steps[step], contract, nullptr);
      if (!made.ok()) return made.error();
      if (request.observe) {
        if (!request.observe_bounds) made->magnitude = made->function = {};
        request.observe(node, static_cast<int>(step), &*made);
      }
      if (node.op != Op::kRouterIds) {
        const DType type = contract.RoundingOf(node.path, node.op_class);
        for (double& v : made->value.data) v = RoundTo(v, type);
      }
      values[node.tap] = std::move(made->value);
    }
    trace.push_back(std::move(values));
  }
  return trace;
}

}  // namespace assay::testing
