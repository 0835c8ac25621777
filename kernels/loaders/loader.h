// Checkpoint tensors + shard plan -> what a rank holds, in the layouts of the kernels that take it.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/abi/assay_engine.h"
#include "harness/checkpoint/model_config.h"
#include "harness/shard/plan.h"
#include "kernels/faults/interceptor.h"
#include "kernels/loaders/inventory.h"
#include "kernels/loaders/memory.h"
#include "kernels/loaders/parameters.h"

namespace assay::kernels {

// The kernel for a method's weights; throws EngineError (unsupported) if there is none.
using KernelChooser = std::function<const LinearKernel*(std::string_view method)>;

class Loader {
 public:
  // `hooks` may be nullptr. `memory` and `hooks` must outlive the loader and what it loads.
  Loader(ModelConfig config, shard::Degrees degrees, Memory* memory, KernelChooser chooser,
         const Interceptor* hooks);

  // Adds what `request` names to `into`. Each parameter is poisoned, then loaded exactly once; what
  // is there already is replaced if `replaces`, else an error. Throws EngineError; `into` is then
  // as it was.
  // - A linear that is named must be named with all its tensors (scale, bias).
  // - A load of the whole model (embedding, norm and layers named, layer -1) must name everything.
  // - A component that the request's plan lists must be there.
  // - A tensor that no parameter takes is an error, but for those of MayBeIgnored.
  void Load(const assay_load& request, bool replaces, RankParameters* into);

 private:
  struct Job;  // one load
  void NameTensors(const assay_load& request, Job* job) const;
  void FindParameters(Job* job) const;
  void Match(const Expected& expected, Job* job) const;
  void CheckComplete(const assay_load& request, const Job& job) const;
  void CheckTensors(const Job& job) const;
  const std::vector<shard::ComponentPlan>& Plan(const Job& job);
  shard::ModelPlan PlanOne(const Job& job, const shard::Selection& selection) const;
  // `old`: what the rank holds before this load.
  Parameter MakeParameter(const Job& job, int rank, const RankParameters& old,
                          const std::vector<const shard::ComponentPlan*>& members) const;
  void FillPart(const Job& job, int rank, const RankParameters& old, std::string_view part_name,
                const std::vector<const shard::ComponentPlan*>& members,
                Parameter* parameter) const;
  void CopyRows(const Job& job, int rank, const RankParameters& old,
                const shard::ComponentPlan& plan, std::span<std::byte> out) const;

  ModelConfig config_;
  shard::Degrees degrees_;
  Memory* memory_;
  KernelChooser chooser_;
  const Interceptor* hooks_;
  // The plan is the same for every rank that is given the same tensors.
  std::string planned_for_;
  std::vector<shard::ComponentPlan> plan_;
};

}  // namespace assay::kernels
