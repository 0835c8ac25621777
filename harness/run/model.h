// Models by name or path, opened once and kept: checkpoint, oracle, and which tensors a cell needs.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/checkpoint/checkpoint.h"
#include "harness/shard/plan.h"
#include "reference/oracle.h"

namespace assay::run {

struct Model {
  std::string name;
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<reference::Oracle> oracle;
  std::vector<shard::Component> components;      // all, data-flow order
  std::map<std::string, std::string> method_of;  // parameter ("L1.moe.e5.down") -> method id
  std::map<std::string, int64_t> elements_of;    // parameter -> elements of its weight
  std::string method;  // of most bytes of the quantised weights, "bf16" if there are none
  std::string golden;  // the folder below goldens/goldens that has its prompts
};

// The method of most bytes among the parameters that `takes` picks; a quantised one where there is
// any ("ct-int4-g32", "gguf-q4_1" …), else "bf16" (or "f16", "f32").
std::string MainMethod(const Model& model,
                       const std::function<bool(const std::string& parameter)>& takes);

// The folder that holds checkpoints/ and quantised/: $ASSAY_GOLDENS, else goldens/ below
// $ASSAY_ROOT or the working directory.
std::string GoldensFolder();

// Shipped names, sorted; models that are fetched are not among them.
std::vector<std::string> ShippedModels();
// Names of models that `./assay golden fetch` gets.
std::vector<std::string> FetchedModels();
// Where a fetched model's file lies: $ASSAY_MODELS, else fetched/ in the goldens' folder.
std::string FetchedPath(const std::string& name);

class ModelStore {
 public:
  // kEnvironment: there is no such model on this machine (the message says what gets it);
  // kUnsupported: the oracle does not know it; kBadInput: it is broken.
  Result<const Model*> Get(const std::string& name_or_path);

 private:
  std::map<std::string, std::unique_ptr<Model>> models_;
  std::map<std::string, Error> failures_;
};

// The part of a component's name that names its parameter: "L1.moe.e5.down.weight" ->
// "L1.moe.e5.down".
std::string ParameterOf(const std::string& component);

}  // namespace assay::run
