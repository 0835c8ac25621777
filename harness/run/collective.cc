#include "harness/run/collective.h"

#include "harness/run/spec.h"

namespace assay::run {
namespace {

using judge::OpJudgement;
using reference::Node;

// What came of one collective on the given parts.
Result<std::vector<OpJudgement>> JudgeParts(const CellSpec& spec, const abi::Outcome& outcome,
                                            const Node& node) {
  judge::CollectiveRequest request;
  request.node = &node;
  request.kind = spec.problem.Get("collective");
  request.contract = *spec.facts.contract;
  const bool gather = request.kind == "gather";
  const bool attention = node.domain == reference::Domain::kAttention;
  const int ranks = attention ? spec.degrees.attention() : spec.degrees.tp;
  const std::string& part = gather ? node.tap : node.inputs.at(0);
  for (int rank = 0; rank < ranks; ++rank) {
    request.parts.push_back(judge::ToTensor(spec.given.at({0, part, rank})));
  }
  const auto output = [&](int rank) -> const TapValue* {
    const auto found = outcome.trace.taps.find({0, node.tap, rank});
    return found == outcome.trace.taps.end() ? nullptr : &found->second;
  };
  if (request.kind == "reduce_scatter") {
    for (int rank = 0; rank < ranks; ++rank) request.outputs.push_back(output(rank));
  } else {
    request.outputs.push_back(output(-1));
  }
  if (gather) {
    auto columns = WholeColumns(spec, node.tap);
    if (!columns) return columns.error();
    request.columns = *columns;
  }
  return judge::JudgeCollective(request);
}

}  // namespace

Result<std::vector<OpJudgement>> JudgeCollectives(const CellSpec& spec,
                                                  const abi::Outcome& outcome) {
  std::vector<OpJudgement> all;
  for (const Node* node : spec.nodes) {
    auto judged = JudgeParts(spec, outcome, *node);
    if (!judged) return judged.error();
    for (OpJudgement& one : *judged) all.push_back(std::move(one));
  }
  return all;
}

}  // namespace assay::run
