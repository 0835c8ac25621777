#include "reports/short_form.h"

#include <algorithm>

#include "reports/text.h"
#include "reports/view.h"

namespace assay::reports {
namespace {

std::string WordOf(const ProblemView& view, const std::string& key) {
  if (key.empty()) return view.kind;
  return view.keys.count(key) != 0 ? key + "=" + view.Get(key) : "no " + key;
}

// Attention is cut like everything else unless it is said otherwise.
bool FollowsTp(const ProblemView& view) { return view.Get("attn_tp") == view.Get("tp"); }

// Whether the label shows the key: the model and the tier stand there without their names.
bool InLabel(const ProblemView& view, const std::string& key) {
  if (key == "attn_tp") return view.Get(key) != view.Get("tp", "1");
  if (key == "fault") return view.Get(key) != "none" && !view.Get(key).empty();
  return key == "model" || key == "tp" || key == "tier";
}

}  // namespace

Keys DifferingKeys(const CellResult& a, const CellResult& b) {
  const ProblemView left = View(a.problem), right = View(b.problem);
  Keys out;
  if (left.kind != right.kind) out.insert("");
  for (const auto& [key, value] : left.keys) {
    const auto at = right.keys.find(key);
    if (at == right.keys.end() || at->second != value) out.insert(key);
  }
  for (const auto& [key, value] : right.keys) {
    if (left.keys.count(key) == 0) out.insert(key);
  }
  if (out.count("tp") != 0 && FollowsTp(left) && FollowsTp(right)) out.erase("attn_tp");
  return out;
}

Keys VaryingKeys(const std::vector<const CellResult*>& cells) {
  Keys out;
  for (size_t i = 1; i < cells.size(); ++i) out.merge(DifferingKeys(*cells[0], *cells[i]));
  return out;
}

std::string Difference(const CellResult& cell, const CellResult& from) {
  Keys differing = DifferingKeys(cell, from);
  if (differing.empty()) return Label(cell);
  const ProblemView view = View(cell.problem);
  std::vector<std::string> words;
  const auto take = [&](const std::string& key) {
    if (differing.erase(key) != 0) words.push_back(WordOf(view, key));
  };
  take("");
  for (const std::string& key : view.order) take(key);
  for (const std::string& key : differing) words.push_back(WordOf(view, key));
  return Joined(words, " ");
}

std::vector<ShortWord> ShortForm(const CellResult& cell, const Keys& varying) {
  const ProblemView view = View(cell.problem);
  std::vector<ShortWord> out = {{view.kind, varying.count("") != 0}};
  for (const char* key : {"model", "tp", "attn_tp", "tier", "fault"}) {
    if (view.keys.count(key) == 0 || !InLabel(view, key)) continue;
    const bool bare = std::string_view(key) == "model" || std::string_view(key) == "tier";
    out.push_back({bare ? view.Get(key) : WordOf(view, key), varying.count(key) != 0});
  }
  Keys others;
  for (const std::string& key : varying) {
    if (!key.empty() && (view.keys.count(key) == 0 || !InLabel(view, key))) others.insert(key);
  }
  if (varying.count("tp") != 0 && FollowsTp(view)) others.erase("attn_tp");
  for (const std::string& key : view.order) {
    if (others.erase(key) != 0) out.push_back({WordOf(view, key), true});
  }
  for (const std::string& key : others) out.push_back({WordOf(view, key), true});
  return out;
}

}  // namespace assay::reports
