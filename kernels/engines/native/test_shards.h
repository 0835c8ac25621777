// What an engine holds, against what the plan says that each rank should: for tests of loads.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/checkpoint/checkpoint.h"
#include "harness/checkpoint/model_config.h"
#include "harness/checkpoint/tensor_source.h"
#include "harness/shard/plan.h"
#include "kernels/engines/native/test_driver.h"

namespace assay::kernels::native {

// A model, as a session is opened with it and loaded from it.
struct Source {
  std::string config_json;
  ModelConfig config;  // with its prefix
  const TensorSource* tensors = nullptr;
};

struct Held {
  int compared = 0;                    // components of a rank, byte for byte
  int joined = 0;                      // of them in a matrix with others
  int repacked = 0;                    // in another layout than "row"
  int absent = 0;                      // that the rank does not hold, by plan and by its own word
  std::map<std::string, int> of;       // compared, by the method that the engine says
  std::map<std::string, int> gate_up;  // of these gates that are joined with their up
};

// Loads every rank of an open session, and compares every component of every rank with the plan's
// slice of the file. A plan that is refused must be refused by the engine in the same words, and a
// layout that does not take a shape may be: both leave `compared` at 0, and say so in `*why`.
// Failures are gtest's.
Held LoadAndCompare(Driver& driver, const Source& source, const shard::Degrees& degrees,
                    std::string* why);

// The component's rows of one rank, row major, whatever layout they lie in. `plan`: for what a
// layout must know beside the extents.
std::vector<std::byte> RowMajorOf(const assay_shard& shard, const shard::ModelPlan& plan,
                                  const std::string& component, int rank, const Source& source);

// A shipped checkpoint.
struct Shipped {
  explicit Shipped(const std::string& path);
  std::unique_ptr<Checkpoint> checkpoint;
  Source source;
};
// Every shipped checkpoint's path, and those that are quantised.
std::vector<std::string> ShippedPaths();

}  // namespace assay::kernels::native
