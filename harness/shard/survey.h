// The parameters of a checkpoint that may be broken, each by itself: one that is missing or wrong
// does not hide the others, and one that forbids a degree does not hide who else does. A layer at a
// time, so that a survey of a thousand experts' layers costs the memory of one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/shard/plan.h"

namespace assay::shard {

class Survey {
 public:
  // Layer `layer`'s parameters, or with -1 those outside the layers: embedding, final norm, head.
  // Only names, types and shapes are looked at. Both must outlive it.
  // Error: the config's own extents are wrong, or its model is not known here (kUnsupported).
  static Result<Survey> Of(const ModelConfig& config, const TensorSource& source, int64_t layer);
  ~Survey();
  Survey(Survey&&) noexcept;

  // One for each parameter that cannot be listed.
  const std::vector<Error>& errors() const;
  size_t size() const;
  const Component& component(size_t index) const;
  // Of a routed expert: its id; -1: of none.
  int64_t expert(size_t index) const;

  // What forbids the degrees whatever the tensors are ("attn_tp does not divide tp").
  std::optional<Refusal> Forbidden(const Degrees& degrees) const;
  struct Verdict {
    std::optional<Refusal> refusal;  // without legal degrees: those are the whole model's
    std::optional<ComponentPlan> plan;
  };
  std::vector<Verdict> At(const Degrees& degrees) const;  // [size()]
  // Whether everything listed is legal.
  bool Legal(const Degrees& degrees) const;

 private:
  struct Impl;
  explicit Survey(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace assay::shard
