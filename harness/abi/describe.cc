#include "harness/abi/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/abi/json_reading.h"

namespace assay::abi {
namespace {

using Json = nlohmann::json;

const Names kKeys = {"methods", "tiers",    "layouts", "scopes",  "families", "ops",    "acts",
                     "tp",      "contract", "kernels", "reduces", "emulates", "reloads"};
const Names kKernelKeys = {"name",  "op",    "method",          "tier", "layout", "act",
                           "lanes", "extra", "arithmetic_class"};

void ReadList(ObjectReader* reader, const char* key, Said* out) {
  const Json* list = reader->Find(key);
  if (list == nullptr) return;
  if (!list->is_array()) return reader->Fail(key, "a list of strings", *list);
  std::vector<std::string> words;
  for (const Json& word : *list) {
    if (!word.is_string() || word.get_ref<const std::string&>().empty()) {
      return reader->Fail(key, "a list of strings that are not empty", *list);
    }
    words.push_back(word.get<std::string>());
  }
  *out = std::move(words);
}

void ReadDegrees(ObjectReader* reader, std::optional<std::vector<int>>* out) {
  const Json* list = reader->Find("tp");
  if (list == nullptr) return;
  std::vector<int> degrees;
  bool sound = list->is_array();
  for (size_t i = 0; sound && i < list->size(); ++i) {
    int degree = 0;
    sound = ReadCount((*list)[i], &degree) && degree > 0;
    degrees.push_back(degree);
  }
  if (!sound) return reader->Fail("tp", "a list of whole numbers from 1", *list);
  *out = std::move(degrees);
}

Result<DescribedKernel> ReadKernel(const std::string& what, const Json& object,
                                   std::vector<std::string>* unknown) {
  if (!object.is_object()) {
    return Error{fmt::format("{} must be an object, not {}", what, Shown(object))};
  }
  DescribedKernel kernel;
  ObjectReader reader(what, object);
  reader.Text("name", &kernel.name);
  reader.Text("op", &kernel.op);
  reader.Text("method", &kernel.method);
  reader.Text("tier", &kernel.tier);
  reader.Text("layout", &kernel.layout);
  reader.Text("act", &kernel.act);
  reader.Text("arithmetic_class", &kernel.arithmetic_class);
  reader.Count("lanes", &kernel.lanes);
  reader.Count("extra", &kernel.extra);
  if (kernel.name.empty()) reader.SetError(fmt::format("{} has no name", what));
  if (!reader.error().empty()) return Error{reader.error()};
  for (const auto& [key, value] : object.items()) {
    const std::string path = "kernels." + key;
    const bool listed = std::find(unknown->begin(), unknown->end(), path) != unknown->end();
    if (!IsOneOf(key, kKernelKeys) && !listed) unknown->push_back(path);
  }
  return kernel;
}

}  // namespace

const DescribedKernel* EngineFacts::FindKernel(std::string_view name) const {
  const auto found = std::find_if(kernels.begin(), kernels.end(),
                                  [&](const DescribedKernel& row) { return row.name == name; });
  return found == kernels.end() ? nullptr : &*found;
}

bool MayHave(const Said& list, std::string_view word) {
  return !list || std::find(list->begin(), list->end(), word) != list->end();
}

Result<EngineFacts> ParseDescribe(std::string_view json) {
  EngineFacts facts;
  if (json.empty()) return facts;
  const Result<Json> parsed = ParseObject("describe", json);
  if (!parsed) return parsed.error();
  ObjectReader reader("describe", *parsed);
  ReadList(&reader, "methods", &facts.methods);
  ReadList(&reader, "tiers", &facts.tiers);
  ReadList(&reader, "layouts", &facts.layouts);
  ReadList(&reader, "scopes", &facts.scopes);
  ReadList(&reader, "families", &facts.families);
  ReadList(&reader, "ops", &facts.ops);
  ReadList(&reader, "acts", &facts.acts);
  ReadList(&reader, "reduces", &facts.reduces);
  reader.Flag("reloads", &facts.reloads);
  ReadList(&reader, "emulates", &facts.emulates);
  ReadDegrees(&reader, &facts.tp);
  const Json* kernels = reader.Find("kernels");
  if (kernels != nullptr && !kernels->is_array()) reader.Fail("kernels", "a list", *kernels);
  if (!reader.error().empty()) return Error{reader.error()};

  for (const auto& [key, value] : parsed->items()) {
    if (!IsOneOf(key, kKeys)) facts.unknown_keys.push_back(key);
  }
  if (const Json* contract = reader.Find("contract")) {
    Result<Contract> read = ParseContract(contract->dump());
    if (!read) return Error{"describe: " + read.error().message};
    facts.contract = *read;
  }
  for (size_t i = 0; kernels != nullptr && i < kernels->size(); ++i) {
    const std::string what = fmt::format("describe: kernels[{}]", i);
    Result<DescribedKernel> kernel = ReadKernel(what, (*kernels)[i], &facts.unknown_keys);
    if (!kernel) return kernel.error();
    facts.kernels.push_back(std::move(kernel).value());
  }
  return facts;
}

}  // namespace assay::abi
