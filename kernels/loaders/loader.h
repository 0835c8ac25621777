// Checkpoint tensors + shard plan -> what a rank holds, in the layouts of the kernels that take it.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/abi/assay_engine.h"
#include "harness/checkpoint/model_config.h"
#include "harness/shard/plan.h"
#include "kernels/faults/interceptor.h"
#include "kernels/loaders/memory.h"
#include "kernels/loaders/parameters.h"
#include "kernels/loaders/select.h"

namespace assay::kernels {

struct Member;  // load_job.h

class Loader {
 public:
  // `hooks` may be nullptr. `kernels`, `memory` and `hooks` must outlive the loader and what it
  // loads.
  Loader(ModelConfig config, shard::Degrees degrees, Mode mode,
         std::span<const LinearKernel> kernels, Memory* memory, const Interceptor* hooks);

  // Adds what `request` names to `into`. What there is, how it is stored and which ranges this rank
  // holds says the planner (harness/shard) for the named tensors; each part is poisoned, then
  // written exactly once, and at the end every part that was due must have been. What is there
  // already is replaced if `replaces`, else an error. Throws EngineError; `into` is then as it was.
  // - A parameter of which one tensor is named must be named with all of them.
  // - A load of the whole model (embedding, norm, and of layers both attention and MLP named, layer
  //   -1) must name everything.
  // - A component that the request's plan lists must be there.
  // - A tensor that no parameter takes is an error, but for those that the planner passes over.
  void Load(const assay_load& request, bool replaces, RankParameters* into);

 private:
  struct Job;  // one load
  void NameTensors(const assay_load& request, bool replaces, Job* job) const;
  // planning.cc
  void Plan(Job* job);
  bool HasBlock(const Job& job, const std::set<int64_t>& layers, bool attention) const;
  void CheckUnused(const Job& job) const;
  void CheckComplete(const assay_load& request, const Job& job) const;

  void Adjust(Job* job) const;
  // `old`: what the rank holds before this load.
  Parameter MakeParameter(Job* job, const RankParameters& old,
                          const std::vector<Member>& members) const;
  ParameterFacts FactsOf(const Parameter& parameter, const std::vector<Member>& members) const;
  bool AddsBias(const shard::ComponentPlan& bias, int rank) const;
  // fill.cc
  void FillPart(Job* job, const RankParameters& old, std::string_view part_name,
                const std::vector<Member>& members, Parameter* parameter) const;
  void CopyRows(Job* job, const RankParameters& old, const shard::ComponentPlan& plan,
                std::span<std::byte> out) const;
  void CheckCoverage(const Job& job) const;

  ModelConfig config_;
  shard::Degrees degrees_;
  Mode mode_;
  std::span<const LinearKernel> kernels_;
  Memory* memory_;
  const Interceptor* hooks_;
  // The plan is the same for every rank that is given the same tensors.
  std::string planned_for_;
  std::vector<shard::ComponentPlan> plan_;
};

}  // namespace assay::kernels
