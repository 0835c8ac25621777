// Which activations a linear op really took, and what the engine shows of them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "harness/judge/inputs.h"
#include "harness/judge/internal.h"

namespace assay::judge {

using reference::Node;
using reference::Op;
using reference::Tensor;

namespace {

// The rows that an expert's gate or up reads: its tokens, ascending.
Tensor RowsOf(const Tensor& from, const Tensor& ids, int64_t expert) {
  Tensor to{{0, from.columns()}, {}};
  for (int64_t row = 0; row < std::min(from.rows(), ids.rows()); ++row) {
    const auto at = ids.data.begin() + row * ids.columns();
    if (std::find(at, at + ids.columns(), static_cast<double>(expert)) == at + ids.columns()) {
      continue;
    }
    const auto begin = from.data.begin() + row * from.columns();
    to.data.insert(to.data.end(), begin, begin + from.columns());
    ++to.shape[0];
  }
  return to;
}

std::string Unsound(const TapValue& tap, DType type, const std::vector<int64_t>& shape) {
  int64_t bytes = SizeOf(type).count();
  for (const int64_t extent : shape) bytes *= extent;
  if (tap.dtype == type && tap.shape == shape && static_cast<int64_t>(tap.bytes.size()) == bytes) {
    return "";
  }
  return fmt::format("shape {} of {} ({} bytes), due is {} of {}", tap.shape, NameOf(tap.dtype),
                     tap.bytes.size(), shape, NameOf(type));
}

}  // namespace

const std::string& Inputs::ActOf(const std::string& tap, int rank) const {
  auto found = acts_.find({tap, rank});
  if (found == acts_.end()) found = acts_.find({tap, -1});
  return found == acts_.end() ? request_.contract.act : found->second;
}

const Contract& Inputs::ContractOf(const Node& node, int rank) {
  if (node.op != Op::kLinear) return request_.contract;
  const std::string& act = ActOf(node.tap, rank);
  const bool known = act == "a16" || act == "a32" ||
                     request_.contract.QuantiserOf(act).has_value() ||
                     request_.contract.VariantOf(act).has_value();
  if (act == request_.contract.act || !known) return request_.contract;
  std::unique_ptr<Contract>& slot = contracts_[act];
  if (slot == nullptr) {
    slot = std::make_unique<Contract>(request_.contract);
    slot->act = act;
  }
  return *slot;
}

std::string Inputs::Unmodelled(const Node& node, int rank) const {
  // contract.md's ids for which it defines no quantiser. What is no id at all says nothing.
  static const std::set<std::string, std::less<>> kOthers = {
      "a8static", "af8row", "af8g128", "amxfp8", "amxfp4", "anvfp4", "q8_0", "q8_1", "q8_k"};
  if (node.op != Op::kLinear) return "";
  const std::string& act = ActOf(node.tap, rank);
  const bool modelled = request_.contract.QuantiserOf(act) || request_.contract.VariantOf(act);
  return kOthers.count(act) > 0 && !modelled ? act : "";
}

ShownActivation Inputs::ActivationShown(const Node& node, int rank, int step) const {
  if (node.op != Op::kLinear) return {};
  return {Shown(node.tap + ".x_q", rank, step), Shown(node.tap + ".x_scale", rank, step)};
}

Result<Activation> Inputs::ActivationOf(const Node& node, int rank, int step) {
  Activation activation;
  activation.act = ActOf(node.tap, rank);
  activation.quantiser = request_.contract.QuantiserOf(activation.act);
  auto x = Get(node.inputs[0], rank, step);
  if (!x.ok()) return x.error();
  if (x->value == nullptr) return Error{"no token is routed to this expert"};
  const Tensor* ids = nullptr;
  if (node.inputs.size() > 1) {
    auto chosen = Get(node.inputs[1], rank, step);
    if (!chosen.ok()) return chosen.error();
    ids = chosen->value;
  }
  activation.x = ids == nullptr ? *x->value : RowsOf(*x->value, *ids, node.expert);
  if (x->error != nullptr) {
    activation.error = ids == nullptr ? *x->error : RowsOf(*x->error, *ids, node.expert);
  }
  return activation;
}

std::string Inputs::UnsoundCodes(const Activation& activation, const TapValue& codes) const {
  return Unsound(codes, DType::kI8, {activation.x.rows(), activation.x.columns()});
}

std::string Inputs::UnsoundScales(const Activation& activation, const TapValue& scales) const {
  const int64_t columns = activation.x.columns();
  const int64_t size = activation.quantiser ? activation.quantiser->group : 0;
  if (size > 0 && columns % size != 0) {
    return fmt::format("k = {} of this rank is no multiple of the group {}", columns, size);
  }
  return Unsound(scales, DType::kF32, {activation.x.rows(), size > 0 ? columns / size : 1});
}

// The product is judged on the engine's own codes, right or wrong: those are ops of their own.
void Inputs::Quantised(const Node& node, int rank, int step, Gathered* gathered) {
  const ShownActivation shown = ActivationShown(node, rank, step);
  if (shown.codes == nullptr || shown.scales == nullptr) return;
  std::unique_ptr<reference::Codes>& slot = codes_[{step, node.tap, rank}];
  if (slot == nullptr) {
    auto activation = ActivationOf(node, rank, step);
    if (!activation.ok() || !activation->quantiser ||
        !UnsoundCodes(*activation, *shown.codes).empty() ||
        !UnsoundScales(*activation, *shown.scales).empty()) {
      return;
    }
    slot = std::make_unique<reference::Codes>();
    slot->codes = &Converted(*shown.codes);
    slot->scales = &Converted(*shown.scales);
    slot->group = activation->quantiser->group;
  }
  gathered->inputs[0].codes = slot.get();
  gathered->inputs[0].error = nullptr;
  gathered->shown = std::all_of(gathered->inputs.begin(), gathered->inputs.end(),
                                [](const reference::Input& in) { return in.error == nullptr; });
}

OpJudgement JudgeActivation(Inputs* inputs, std::shared_ptr<const Node> made, const Node& node,
                            int rank, int step) {
  OpJudgement j;
  j.node = made.get();
  j.rank = rank;
  j.step = step;
  j.shown = true;
  const bool codes = made->tap.ends_with(".x_q");
  j.made = std::move(made);
  const ShownActivation shown = inputs->ActivationShown(node, rank, step);
  const TapValue* tap = codes ? shown.codes : shown.scales;
  if (tap == nullptr) {
    j.shown = false;
    j.reason = "the engine does not show this tap";
    return j;
  }
  auto activation = inputs->ActivationOf(node, rank, step);
  if (!activation.ok()) {
    j.reason = activation.error().message;
    return j;
  }
  if (inputs->ModelsVariant(activation->act)) {
    j.reason = fmt::format("codes of {} are not judged by themselves", activation->act);
    return j;
  }
  if (!activation->quantiser) {
    Fail(&j, fmt::format("shown, but activations are {} by what the engine says it ran",
                         activation->act));
    return j;
  }
  std::string unsound =
      codes ? inputs->UnsoundCodes(*activation, *tap) : inputs->UnsoundScales(*activation, *tap);
  if (!unsound.empty()) {
    Fail(&j, std::move(unsound));
    return j;
  }
  j.composite = !activation->error.data.empty();
  const ActivationCase given{&activation->x, j.composite ? &activation->error : nullptr,
                             *activation->quantiser};
  Status status = Ok();
  if (!codes) {
    status = JudgeScales(given, inputs->Converted(*tap), &j);
  } else if (shown.scales == nullptr ||
             !inputs->UnsoundScales(*activation, *shown.scales).empty()) {
    j.reason = "the scales of these codes are not shown";
  } else {
    status = JudgeCodes(given, inputs->Converted(*tap), inputs->Converted(*shown.scales), &j);
  }
  if (!status.ok()) j.reason = status.error().message;
  return j;
}

}  // namespace assay::judge
