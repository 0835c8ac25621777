// What assay_open asked for.
#pragma once

#include <optional>
#include <string>

#include "harness/abi/assay_engine.h"
#include "harness/checkpoint/model_config.h"
#include "harness/shard/plan.h"
#include "kernels/collectives/schedule.h"
#include "kernels/engines/native/dispatcher.h"
#include "kernels/faults/interceptor.h"

namespace assay::kernels::native {

// SiTU's, and SiTUv2's of up; +inf: the first version.
struct SituBetas {
  float beta = 0, linear_beta = 0;
};

// assay_open's request, copied, with the defaults put in.
struct Settings {
  ModelConfig config;
  shard::Degrees degrees;
  KernelWishes wishes;
  Reduction reduction;
  float act_limit = 0;            // clamp of the activation's inputs; +inf: none
  std::optional<SituBetas> situ;  // nullopt: the activation is SwiGLU
  bool routing_forced = false;
  // Why this session only loads: a family without blocks, attention that is data parallel. Empty:
  // everything runs.
  std::string only_loads;
};
// Throws EngineError: unsupported for what this engine does not have, refused for what is illegal.
// `hooks` may be nullptr.
Settings ReadSettings(const assay_open& request, const Interceptor* hooks);

}  // namespace assay::kernels::native
