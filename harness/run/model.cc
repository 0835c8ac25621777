#include "harness/run/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace assay::run {
namespace {

namespace fs = std::filesystem;

// A bare name is a shipped model; anything with a slash, or that exists here, is a path.
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
  if (fs::exists(name, ignored)) return name;
  return Error{
      fmt::format("model={} is not on this machine; shipped are {}; a path names any other", name,
                  fmt::join(ShippedModels(), ", ")),
      ErrorKind::kEnvironment};
}

void FindMethods(Model* model) {
  model->method = "bf16";
  for (const shard::Component& component : model->components) {
    const std::string parameter = ParameterOf(component.name);
    if (component.packing.elements.count() > 1) {
      model->method_of[parameter] = "ct-int4-g32";
      model->method = "ct-int4-g32";
    } else {
      model->method_of.try_emplace(parameter, "bf16");
    }
  }
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

std::string ParameterOf(const std::string& component) {
  return component.substr(0, component.rfind('.'));
}

std::string GoldensFolder() {
  if (const char* folder = std::getenv("ASSAY_GOLDENS")) return folder;
  if (const char* root = std::getenv("ASSAY_ROOT")) return std::string(root) + "/goldens";
  return "goldens";
}

std::vector<std::string> ShippedModels() {
  std::vector<std::string> names;
  for (const char* folder : {"checkpoints", "quantised"}) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(fs::path(GoldensFolder()) / folder, ignored)) {
      if (entry.is_directory(ignored)) names.push_back(entry.path().filename().string());
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
