#include "kernels/loaders/parameters.h"

#include <fmt/format.h>

#include "kernels/loaders/engine_error.h"

namespace assay::kernels {

WeightView Parameter::View() const {
  WeightView view;
  const Part& weight = parts.find("weight")->second;
  view.layout = weight.layout;
  view.n = n;
  view.k = k;
  view.codes = weight.bytes.data();
  view.group = group;
  const auto scale = parts.find("scale");
  if (scale != parts.end()) view.scales = scale->second.bytes.data();
  return view;
}

void RankParameters::Add(Parameter parameter) {
  for (size_t i = 0; i < parameter.segments.size(); ++i) {
    const std::string& op = parameter.segments[i].op;
    if (!by_op_.emplace(op, Index{parameter.name, i}).second) {
      throw EngineError(ASSAY_FAILED, fmt::format("{} is loaded twice", op));
    }
  }
  // A merged parameter may come in several loads; each then stands as a matrix of its own.
  std::string key = parameter.name;
  while (parameters_.count(key) != 0) key += "+";
  for (const Segment& segment : parameter.segments) by_op_[segment.op].parameter = key;
  parameters_.emplace(key, std::move(parameter));
}

RankParameters::Place RankParameters::Find(std::string_view op) const {
  const auto index = by_op_.find(op);
  if (index == by_op_.end()) return {};
  const Parameter& parameter = parameters_.find(index->second.parameter)->second;
  return {&parameter, &parameter.segments[index->second.segment]};
}

RankParameters::Place RankParameters::Get(std::string_view op) const {
  const Place place = Find(op);
  if (place.parameter == nullptr) {
    throw EngineError(ASSAY_FAILED, fmt::format("{} is needed and was not loaded", op));
  }
  return place;
}

}  // namespace assay::kernels
