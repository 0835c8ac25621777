#include "kernels/loaders/parameters.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "kernels/loaders/engine_error.h"

namespace assay::kernels {

std::string MethodName(DType block) {
  std::string name = fmt::format("gguf-{}", NameOf(block));
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return name;
}

void ToFloats(DType dtype, const std::byte* from, int64_t count, float* out) {
  const int64_t size = SizeOf(dtype).count();
  for (int64_t i = 0; i < count; ++i, from += size) {
    uint16_t half = 0;
    std::memcpy(&half, from, sizeof half);
    if (dtype == DType::kBF16) {
      out[i] = std::bit_cast<float>(uint32_t{half} << 16);
    } else if (dtype == DType::kF16) {
      out[i] = static_cast<float>(std::bit_cast<_Float16>(half));
    } else {
      std::memcpy(&out[i], from, sizeof out[i]);
    }
  }
}

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

void RankParameters::Add(Parameter parameter, bool replaces) {
  for (const Segment& segment : parameter.segments) {
    const auto old = by_op_.find(segment.op);
    if (old == by_op_.end()) continue;
    if (!replaces) {
      throw EngineError(ASSAY_FAILED, fmt::format("{} is loaded twice", segment.op));
    }
    const auto held = parameters_.find(old->second.parameter);
    if (--held->second.used == 0) parameters_.erase(held);
    by_op_.erase(old);
  }
  // Held here now, whatever an earlier load gave to other ranks.
  for (const Segment& segment : parameter.segments) {
    for (const auto& entry : segment.parts) absent_.erase(segment.op + "." + entry.first);
  }
  // A merged parameter may come in several loads; each then stands as a matrix of its own.
  std::string key = parameter.name;
  while (parameters_.count(key) != 0) key += "+";
  const size_t segments = parameter.segments.size();
  for (size_t i = 0; i < segments; ++i) by_op_[parameter.segments[i].op] = Index{key, i};
  parameters_.emplace(key, Held{std::move(parameter), segments});
}

RankParameters::Place RankParameters::Find(std::string_view op) const {
  const auto index = by_op_.find(op);
  if (index == by_op_.end()) return {};
  const Parameter& parameter = parameters_.find(index->second.parameter)->second.parameter;
  return {&parameter, &parameter.segments[index->second.segment]};
}

void RankParameters::AddAbsent(const std::string& component, Absent absent) {
  absent_.insert_or_assign(component, std::move(absent));
}

const Absent* RankParameters::FindAbsent(std::string_view component) const {
  const auto found = absent_.find(component);
  return found == absent_.end() ? nullptr : &found->second;
}

std::string RankParameters::PrintChoices() const {
  std::string text;
  for (const auto& entry : parameters_) text += entry.second.parameter.choice.Print() + "\n";
  return text;
}

RankParameters::Place RankParameters::Get(std::string_view op) const {
  const Place place = Find(op);
  if (place.parameter == nullptr) {
    const std::string start = std::string(op) + ".";
    const auto absent = absent_.lower_bound(start);
    if (absent != absent_.end() && absent->first.starts_with(start)) {
      throw EngineError(ASSAY_UNSUPPORTED, fmt::format("{} lies on other ranks", op));
    }
    throw EngineError(ASSAY_FAILED, fmt::format("{} is needed and was not loaded", op));
  }
  return place;
}

}  // namespace assay::kernels
