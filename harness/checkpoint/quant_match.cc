// Which scheme of a quantization_config is a module's own.
#include <algorithm>

#include "harness/checkpoint/model_config.h"
#include "harness/checkpoint/name_pattern.h"

namespace assay {
namespace {

constexpr std::string_view kRegex = "re:";

// A class of modules, as libraries write it: "Linear", "Embedding". Names of modules are small.
bool IsClassOf(std::string_view entry, std::string_view module) {
  if (entry.empty() || entry.front() < 'A' || entry.front() > 'Z') return false;
  const bool embedding = module == "embed" || module.ends_with("embed_tokens");
  if (entry.find("Embedding") != entry.npos) return embedding;
  return !embedding && (entry.find("Linear") != entry.npos || entry.find("MoE") != entry.npos ||
                        entry.find("Experts") != entry.npos);
}

// compressed-tensors: whole names, expressions or classes (its utils/match.py). The others: names
// of modules that stand for all below them, with * for any text, and last parts of names
// ("lm_head"), as transformers' should_convert_module has it. AWQ: any part of a name.
bool Names(const std::string& method, const std::string& entry, std::string_view module) {
  if (entry.starts_with(kRegex)) {
    return MatchesRegex(std::string_view(entry).substr(kRegex.size()), module);
  }
  if (method == "compressed-tensors") return entry == module || IsClassOf(entry, module);
  if (entry.empty()) return false;
  if (method == "awq" && module.find(entry) != module.npos) return true;
  const bool last = module.size() > entry.size() && module.ends_with(entry) &&
                    module[module.size() - entry.size() - 1] == '.';
  return last || MatchesPrefix(entry, module);
}

// How well a scheme's targets name the module: an exact name before an expression before a class.
int MatchOf(const QuantConfig& scheme, std::string_view module) {
  int best = scheme.targets.empty() ? 1 : 0;
  for (const std::string& target : scheme.targets) {
    if (target == module) return 3;
    if (best == 2) continue;
    if (IsClassOf(target, module)) {
      best = std::max(best, 1);
    } else if (Names(scheme.method, target, module)) {
      best = 2;
    }
  }
  return best;
}

// All but the lists, which are of the whole file.
QuantConfig OwnOf(const QuantConfig& scheme) {
  QuantConfig own;
  own.method = scheme.method;
  own.format = scheme.format;
  own.weight_type = scheme.weight_type;
  own.bits = scheme.bits;
  own.group_size = scheme.group_size;
  own.strategy = scheme.strategy;
  own.symmetric = scheme.symmetric;
  own.actorder = scheme.actorder;
  own.block_n = scheme.block_n;
  own.block_k = scheme.block_k;
  own.desc_act = scheme.desc_act;
  own.v2 = scheme.v2;
  own.fnuz = scheme.fnuz;
  return own;
}

}  // namespace

QuantConfig QuantConfig::For(std::string_view module) const {
  for (const std::string& entry : ignore) {
    if (Names(method, entry, module)) return {};
  }
  if (groups.empty()) {
    if (MatchOf(*this, module) == 0) return {};
    QuantConfig own = OwnOf(*this);
    const std::string start = std::string(module) + ".";
    for (auto at = description.lower_bound(start);
         at != description.end() && at->first.starts_with(start); ++at) {
      own.description.insert(*at);
    }
    return own;
  }
  const QuantConfig* best = nullptr;
  int how = 0;
  for (const QuantConfig& group : groups) {
    const int match = MatchOf(group, module);
    if (match > how) how = match, best = &group;
  }
  return best != nullptr ? OwnOf(*best) : QuantConfig();
}

}  // namespace assay
