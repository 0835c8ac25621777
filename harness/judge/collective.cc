// Collectives alone: ranks' parts against what came of them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "harness/judge/internal.h"

namespace assay::judge {
namespace {

using reference::Evaluation;
using reference::Input;
using reference::Tensor;

// What one output is to be: the exact sum, and what the contract's order and wire give.
struct Due {
  Evaluation evaluation;
  int64_t offset = 0;
};

// Values [begin, begin + shape's count) of a flat tensor.
Tensor Cut(const Tensor& whole, int64_t begin, std::vector<int64_t> shape) {
  Tensor part;
  part.shape = std::move(shape);
  int64_t count = 1;
  for (const int64_t extent : part.shape) count *= extent;
  part.data.assign(whole.data.begin() + begin, whole.data.begin() + begin + count);
  return part;
}

Status CheckParts(const CollectiveRequest& request) {
  if (request.node == nullptr || request.parts.empty()) {
    return Error{"a collective needs its op and at least one rank's part"};
  }
  const bool gather = request.kind == "gather";
  for (const Tensor& part : request.parts) {
    const Tensor& first = request.parts[0];
    const bool fits = gather ? part.rows() == first.rows() : part.shape == first.shape;
    if (fits && static_cast<int64_t>(part.data.size()) == part.rows() * part.columns()) continue;
    return Error{fmt::format("{}: a part is {}, rank 0's is {}", request.node->tap, part.shape,
                             first.shape)};
  }
  return Ok();
}

Evaluation ExactSum(const std::vector<Tensor>& parts) {
  Evaluation e;
  e.terms = static_cast<int64_t>(parts.size());
  e.value = parts[0];
  e.magnitude = parts[0];
  for (double& v : e.magnitude.data) v = std::abs(v);
  for (size_t r = 1; r < parts.size(); ++r) {
    for (size_t i = 0; i < e.value.data.size(); ++i) {
      e.value.data[i] += parts[r].data[i];
      e.magnitude.data[i] += std::abs(parts[r].data[i]);
    }
  }
  return e;
}

Tensor Joined(const CollectiveRequest& request) {
  Tensor whole{{request.parts[0].rows(), request.columns}, {}};
  whole.data.assign(static_cast<size_t>(whole.rows() * request.columns), 0.0);
  int64_t begin = 0;
  for (const Tensor& part : request.parts) {
    for (int64_t row = 0; row < part.rows(); ++row) {
      for (int64_t c = 0; c < part.columns() && begin + c < request.columns; ++c) {
        whole.data[row * request.columns + begin + c] = part.data[row * part.columns() + c];
      }
    }
    begin += part.columns();
  }
  return whole;
}

Result<std::vector<Due>> WhatIsDue(const CollectiveRequest& request) {
  std::vector<Due> due;
  if (request.kind == "gather") {
    due.push_back({});
    due[0].evaluation.value = Joined(request);
    due.resize(std::max<size_t>(request.outputs.size(), 1), due[0]);
    return due;
  }
  const bool scatter = request.kind == "reduce_scatter";
  if (!scatter && request.kind != "all_reduce") {
    return Error{fmt::format("collective \"{}\", allowed: all_reduce, reduce_scatter, gather",
                             request.kind)};
  }
  const Evaluation whole = ExactSum(request.parts);
  std::vector<Tensor> modelled;
  if (request.contract.reduce_exact) {
    std::vector<const Tensor*> parts;
    for (const Tensor& part : request.parts) parts.push_back(&part);
    auto made = reference::ModelReduce(parts, request.kind, request.contract.reduce_order,
                                       request.contract.reduce_wire);
    if (!made.ok()) return made.error();
    modelled = std::move(*made);
  }
  if (!scatter) {
    due.push_back({whole, 0});
    if (!modelled.empty()) due[0].evaluation.modelled = modelled[0];
    due.resize(std::max<size_t>(request.outputs.size(), 1), due[0]);
    return due;
  }
  const auto ranks = static_cast<int64_t>(request.parts.size());
  const auto count = static_cast<int64_t>(whole.value.data.size());
  const int64_t each = (count + ranks - 1) / ranks;
  for (int64_t r = 0; r < ranks; ++r) {
    const int64_t begin = std::min(r * each, count), n = std::min(each, count - begin);
    Due one;
    one.offset = begin;
    one.evaluation.terms = whole.terms;
    one.evaluation.value = Cut(whole.value, begin, {n});
    one.evaluation.magnitude = Cut(whole.magnitude, begin, {n});
    if (!modelled.empty()) one.evaluation.modelled = modelled[static_cast<size_t>(r)];
    due.push_back(std::move(one));
  }
  return due;
}

bool Shaped(const TapValue& output, const Tensor& due, OpJudgement* j) {
  int64_t bytes = SizeOf(output.dtype).count();
  for (const int64_t extent : output.shape) bytes *= extent;
  const bool whole = static_cast<int64_t>(output.bytes.size()) == bytes;
  const bool floating = output.dtype <= DType::kBF16;
  if (output.shape == due.shape && whole && floating) return true;
  Fail(j, fmt::format("shape {} of {} ({} bytes), due is {}", output.shape, NameOf(output.dtype),
                      output.bytes.size(), due.shape));
  return false;
}

void JudgeOutput(const CollectiveRequest& request, const Due& due, const Tensor& kernel,
                 OpJudgement* j) {
  const Evaluation& e = due.evaluation;
  Demand demand;
  demand.evaluation = &e;
  demand.accumulator = request.contract.accumulator;
  if (request.kind == "gather") {
    demand.out = DType::kF32;
    demand.strict.assign(e.value.data.size(), 1);
    demand.want = e.value.data;
    demand.strict_mode = "bitwise";
    demand.tolerance.bound.assign(e.value.data.size(), 0.0);
    demand.tolerance.terms = {{"gather", "joining columns rounds nothing"}};
  } else {
    std::vector<Tensor> parts;
    for (const Tensor& part : request.parts) {
      parts.push_back(Cut(part, due.offset, e.value.shape));
    }
    std::vector<Input> inputs;
    for (const Tensor& part : parts) inputs.push_back({&part, nullptr, nullptr});
    demand.out = request.contract.RoundingOf(request.node->path, request.node->op_class);
    demand.tolerance = Derive(*request.node, e, demand.out, request.contract, nullptr,
                              static_cast<int>(parts.size()), inputs);
    if (!DemandStrict(*request.node, inputs, request.contract, true, &demand)) {
      demand.strict.clear();
    }
  }
  Compare(demand, kernel, j);
  j->tolerance = std::move(demand.tolerance);
}

}  // namespace

Result<std::vector<OpJudgement>> JudgeCollective(const CollectiveRequest& request) {
  if (Status status = CheckParts(request); !status.ok()) return status.error();
  auto due = WhatIsDue(request);
  if (!due.ok()) return due.error();
  // Each rank has a chunk of its own; a whole result may be given once for all.
  const bool scatter = request.kind == "reduce_scatter";
  const size_t least = scatter ? request.parts.size() : 1;
  if (request.outputs.size() < least || request.outputs.size() > request.parts.size()) {
    return Error{fmt::format("{}: {} outputs of {} ranks", request.node->tap,
                             request.outputs.size(), request.parts.size())};
  }
  std::vector<OpJudgement> judged;
  for (size_t r = 0; r < request.outputs.size(); ++r) {
    const bool one = request.outputs.size() == 1 && !scatter;
    OpJudgement j;
    j.node = request.node;
    j.rank = one ? -1 : static_cast<int>(r);
    j.offset = (*due)[r].offset;
    j.gather = request.kind == "gather";
    const TapValue* output = request.outputs[r];
    if (output == nullptr) {
      j.reason = "the engine does not give this output";
      judged.push_back(std::move(j));
      continue;
    }
    j.shown = true;
    j.kernel = ToTensor(*output);
    if (Shaped(*output, (*due)[r].evaluation.value, &j)) {
      JudgeOutput(request, (*due)[r], j.kernel, &j);
    }
    if (!j.pass && j.gather) j.reason = "gather: " + j.reason;
    j.oracle = std::move((*due)[r].evaluation.value);
    if (j.pass) {
      j.oracle = j.kernel = {};
      j.tolerance.bound = {};
    }
    judged.push_back(std::move(j));
  }
  return judged;
}

}  // namespace assay::judge
