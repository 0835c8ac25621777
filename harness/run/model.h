// Models by name or path, opened once and kept: checkpoint, oracle, and which tensors a cell needs.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
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
// A model that is too large to ship: its golden's golden.json has `"gguf": {"file": …}`.
struct FetchedModel {
  std::string name;    // as problems and `./assay golden fetch` call it
  std::string file;    // in FetchedFolder()
  std::string golden;  // the folder below goldens/goldens that has its prompts
};
// Sorted by golden. A golden.json that cannot be read is none of these; `golden verify` and
// `golden fetch` say what is wrong with it.
std::vector<FetchedModel> ListFetchedModels();
// The name of a fetched model: its golden's up to the first '-' ("smollm2-135m-q4_1": "smollm2").
std::string ShortName(const std::string& golden);
// Their names.
std::vector<std::string> FetchedModels();
// Where their files lie: $ASSAY_MODELS, else fetched/ in the goldens' folder.
std::string FetchedFolder();
// Where this model's file lies; empty: no such model is fetched.
std::string FetchedPath(const std::string& name);
// The golden of a model by name: of a fetched one its own, else the name.
std::string GoldenOf(const std::string& name);

// A dense model's weights in another storage method, made by the production side's packers: first
// its headers, which is all that planning needs; values and oracle when a cell runs.
struct ConvertedModel {
  // Once; its result is kept.
  Status Complete();

  std::unique_ptr<TensorSource> source;  // over the model's checkpoint
  std::function<Status()> fill;
  std::optional<Status> completed;
  ModelConfig config;
  std::string config_json;
  std::unique_ptr<reference::Oracle> oracle;  // nullptr until it is complete
  std::vector<shard::Component> components;
  std::map<std::string, std::string> method_of;  // parameter -> method id
  std::vector<std::string> converted;            // modules, as in the checkpoint
};

// Where a checkpoint lies: a shipped or fetched model's by its name, else the path itself. Errors
// as ModelStore::Get's.
Result<std::string> PathOfModel(const std::string& name_or_path);

class ModelStore {
 public:
  // kEnvironment: there is no such model on this machine (the message says what gets it);
  // kUnsupported: the oracle does not know it; kBadInput: it is broken.
  Result<const Model*> Get(const std::string& name_or_path);
  // The model in another method (harness/units/scheme.h), made once. kRefused: nothing of it fits
  // the method; kBadInput: it is quantised already.
  Result<ConvertedModel*> Convert(const Model& model, const std::string& method);

 private:
  std::map<std::string, std::unique_ptr<Model>> models_;
  std::map<std::string, Error> failures_;
  std::map<std::pair<std::string, std::string>, std::unique_ptr<ConvertedModel>> converted_;
  std::map<std::pair<std::string, std::string>, Error> not_converted_;
};

// The part of a component's name that names its parameter: "L1.moe.e5.down.weight" ->
// "L1.moe.e5.down".
std::string ParameterOf(const std::string& component);

}  // namespace assay::run
