// Findings of one cause as one entry.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "harness/locate/internal.h"

namespace assay::locate {
namespace {

struct Others {
  std::set<int64_t> experts, layers;
  std::set<int> steps;
  size_t merged = 0;
};

void Count(const Found& one, Others* others) {
  ++others->merged;
  others->steps.insert(one.step);
  if (one.divergence.expert) others->experts.insert(*one.divergence.expert);
  if (one.divergence.layer) others->layers.insert(*one.divergence.layer);
}

// Says only where an op is wrong: in another step or layer the same fault may look otherwise.
bool SaysLittle(const std::string& id) {
  return id == "unknown" || id == "some-rows" || id == "some-columns";
}

}  // namespace

std::vector<Divergence> Group(std::vector<Found> found) {
  std::stable_sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return std::tuple(a.order, a.divergence.rank.value_or(-1), a.step) <
           std::tuple(b.order, b.divergence.rank.value_or(-1), b.step);
  });
  using Key = std::tuple<std::string, std::string, std::optional<int64_t>, std::string>;
  std::map<Key, size_t> place;
  std::vector<Divergence> entries;
  std::vector<Others> others;
  for (Found& one : found) {
    const Divergence& d = one.divergence;
    // Gate and up that changed places are one fault of two components.
    const std::string kind = d.signature.id == "gate-up-swapped" ? "gate-up" : one.kind;
    // What says little joins the first entry of its op and rank, whatever that one says.
    const bool little = d.tensor.empty() && SaysLittle(d.signature.id);
    const auto first = place.emplace(Key{kind, d.cls, d.rank, ""}, entries.size());
    const auto [at, fresh] =
        little ? first : place.emplace(Key{kind, d.cls, d.rank, d.signature.id}, entries.size());
    if (fresh) {
      others.emplace_back();
      Count(one, &others.back());
      entries.push_back(std::move(one.divergence));
      continue;
    }
    Count(one, &others[at->second]);
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    const Others& o = others[i];
    if (o.merged < 2) continue;
    std::string& evidence = entries[i].signature.evidence;
    std::string more = fmt::format("{} of this kind", o.merged);
    if (o.experts.size() > 1) more += fmt::format(", {} experts", o.experts.size());
    if (o.layers.size() > 1) more += fmt::format(", {} layers", o.layers.size());
    if (o.steps.size() > 1) more += fmt::format(", {} steps", o.steps.size());
    evidence += (evidence.empty() ? "" : "; ") + more;
  }
  return entries;
}

}  // namespace assay::locate
