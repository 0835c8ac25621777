// Models in another method than their checkpoint's, for cells that name one.
#include "kernels/methods/convert.h"

#include <fmt/format.h>

#include "harness/run/model.h"
#include "harness/units/scheme.h"

namespace assay::run {
namespace {

Result<std::unique_ptr<ConvertedModel>> Make(const Model& model, const std::string& method) {
  const auto scheme = ParseScheme(method);
  if (!scheme) return Error{fmt::format("method={}: no method has this id", method)};
  auto made = kernels::PlanConverted(*model.checkpoint, model.checkpoint->config_json(), *scheme);
  if (!made) {
    return Error{fmt::format("method={}: {}", method, made.error().message), made.error().kind};
  }
  auto converted = std::make_unique<ConvertedModel>();
  converted->source = std::move(made->source);
  converted->fill = std::move(made->fill);
  converted->config_json = std::move(made->config_json);
  for (const kernels::ConvertedModule& module : made->modules) {
    converted->converted.push_back(module.name);
  }
  auto config = ParseModelConfig(converted->config_json, model.name + " as " + method);
  if (!config) return config.error();
  // Where the tensors are is found when a checkpoint is opened.
  config->prefix = model.checkpoint->config().prefix;
  config->lm_head = model.checkpoint->config().lm_head;
  converted->config = std::move(*config);
  shard::Selection everything;
  everything.headers_only = true;
  auto components = shard::ListComponents(converted->config, *converted->source, everything);
  if (!components) return components.error();
  converted->components = std::move(*components);
  for (const shard::Component& component : converted->components) {
    if (component.name.ends_with(".weight") && ParseScheme(component.method)) {
      converted->method_of[ParameterOf(component.name)] = component.method;
    }
  }
  return converted;
}

}  // namespace

Status ConvertedModel::Complete() {
  if (completed) return *completed;
  completed = fill();
  if (!*completed) return *completed;
  auto made = reference::Oracle::Create(config, *source);
  if (made) {
    oracle = std::move(*made);
  } else {
    completed = made.error();
  }
  return *completed;
}

Result<ConvertedModel*> ModelStore::Convert(const Model& model, const std::string& method) {
  const auto key = std::make_pair(model.name, method);
  if (const auto found = converted_.find(key); found != converted_.end()) {
    return found->second.get();
  }
  if (const auto failed = not_converted_.find(key); failed != not_converted_.end()) {
    return failed->second;
  }
  auto made = Make(model, method);
  if (!made) {
    not_converted_.emplace(key, made.error());
    return made.error();
  }
  ConvertedModel* converted = made->get();
  converted_.emplace(key, std::move(*made));
  return converted;
}

}  // namespace assay::run
