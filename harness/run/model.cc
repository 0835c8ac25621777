#include "harness/run/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "harness/units/scheme.h"

namespace assay::run {
namespace {

namespace fs = std::filesystem;

// A bare name is a shipped or a fetched model; anything with a slash, or that exists here, is a
// path.
Result<std::string> Resolve(const std::string& name) {
  std::error_code ignored;
  if (name.find('/') != std::string::npos) {
    if (fs::exists(name, ignored)) return name;
    return Error{fmt::format("model={}: no such file or folder", name), ErrorKind::kEnvironment};
  }
  for (const char* folder : {"checkpoints", "quantised"}) {
    const fs::path path = fs::path(GoldensFolder()) / folder / name;
    if (fs::exists(path, ignored)) return path.string();
  }
  if (const std::string path = FetchedPath(name); !path.empty()) {
    if (fs::exists(path, ignored)) return path;
    return Error{
        fmt::format("model={} is not on this machine ({}); ./assay golden fetch {} gets it", name,
                    path, name),
        ErrorKind::kEnvironment};
  }
  if (fs::exists(name, ignored)) return name;
  return Error{
      fmt::format("model={} is not on this machine; shipped are {}; ./assay golden fetch "
                  "gets {}; a path names any other",
                  name, fmt::join(ShippedModels(), ", "), fmt::join(FetchedModels(), ", ")),
      ErrorKind::kEnvironment};
}

bool IsMatrix(const shard::Component& component) { return component.row_elements.count() > 1; }

// Of the whole weight, from the logical extents of both axes.
int64_t ElementsOf(const shard::Component& c) {
  const int64_t rows = c.row_extent.count() > 0 ? c.row_extent.count() : c.rows;
  return rows * c.row_elements.count();
}

void FindMethods(Model* model) {
  for (const shard::Component& component : model->components) {
    if (!component.name.ends_with(".weight") || !IsMatrix(component)) continue;
    if (!ParseScheme(component.method)) continue;  // a table of integers
    const std::string parameter = ParameterOf(component.name);
    model->method_of[parameter] = component.method;
    model->elements_of[parameter] = ElementsOf(component);
  }
  model->method = MainMethod(*model, [](const std::string&) { return true; });
}

// Says which checkpoint, where the message does not say which file.
Error In(const std::string& path, const Error& error) {
  if (error.kind != ErrorKind::kBadInput || error.message.find(path) != std::string::npos) {
    return error;
  }
  return Error{fmt::format("{}: {}", path, error.message), error.kind};
}

Result<std::unique_ptr<Model>> OpenModel(const std::string& name) {
  auto path = Resolve(name);
  if (!path) return path.error();
  auto checkpoint = Checkpoint::Open(*path);
  if (!checkpoint) return checkpoint.error();
  auto model = std::make_unique<Model>();
  model->name = name;
  model->golden = GoldenOf(name);
  model->checkpoint = std::move(*checkpoint);
  auto oracle = reference::Oracle::Create(model->checkpoint->config(), *model->checkpoint);
  if (!oracle) return In(*path, oracle.error());
  model->oracle = std::move(*oracle);
  shard::Selection everything;
  everything.headers_only = true;
  auto components =
      shard::ListComponents(model->checkpoint->config(), *model->checkpoint, everything);
  if (!components) return In(*path, components.error());
  model->components = std::move(*components);
  FindMethods(model.get());
  return model;
}

}  // namespace

Result<std::string> PathOfModel(const std::string& name_or_path) { return Resolve(name_or_path); }

std::string ParameterOf(const std::string& component) {
  return component.substr(0, component.rfind('.'));
}

std::string GoldensFolder() {
  if (const char* folder = std::getenv("ASSAY_GOLDENS")) return folder;
  if (const char* root = std::getenv("ASSAY_ROOT")) return std::string(root) + "/goldens";
  return "goldens";
}

std::string MainMethod(const Model& model,
                       const std::function<bool(const std::string& parameter)>& takes) {
  std::map<std::string, int64_t> bytes;
  for (const shard::Component& component : model.components) {
    const std::string parameter = ParameterOf(component.name);
    const auto method = model.method_of.find(parameter);
    if (method == model.method_of.end() || !takes(parameter)) continue;
    bytes[method->second] += component.rows * component.columns * SizeOf(component.dtype).count();
  }
  std::string main = "bf16";
  int64_t most = -1;
  for (const auto& [method, size] : bytes) {
    const bool plain = method == "bf16" || method == "f16" || method == "f32";
    if ((plain ? 0 : size) <= most) continue;
    most = plain ? 0 : size;
    main = method;
  }
  return main;
}

std::vector<std::string> ShippedModels() {
  std::vector<std::string> names;
  for (const char* folder : {"checkpoints", "quantised"}) {
    // A folder that is not there, or that ends half read, has no more models to offer.
    std::error_code failed, ignored;
    for (fs::directory_iterator entry(fs::path(GoldensFolder()) / folder, failed), end;
         !failed && entry != end; entry.increment(failed)) {
      if (entry->is_directory(ignored)) names.push_back(entry->path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<const Model*> ModelStore::Get(const std::string& name) {
  if (const auto found = models_.find(name); found != models_.end()) {
    return static_cast<const Model*>(found->second.get());
  }
  if (const auto failed = failures_.find(name); failed != failures_.end()) return failed->second;
  auto model = OpenModel(name);
  if (!model) {
    failures_.emplace(name, model.error());
    return model.error();
  }
  const Model* opened = model->get();
  models_.emplace(name, std::move(*model));
  return opened;
}

}  // namespace assay::run
