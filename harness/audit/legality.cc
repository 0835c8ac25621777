#include "harness/audit/legality.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bitset>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "harness/audit/hiding.h"
#include "harness/audit/pattern.h"
#include "harness/shard/survey.h"
#include "harness/shard/unplanned.h"

namespace assay::audit {
namespace {

using shard::Axis;
using shard::ComponentPlan;
using shard::Degrees;
using shard::Survey;

constexpr int kLargestTried = 64;

int64_t BytesOnRank(const ComponentPlan& plan, size_t rank) {
  const shard::Component& c = plan.component;
  const int64_t across = plan.axis == Axis::kColumns ? c.rows : c.columns;
  int64_t length = 0;
  for (const shard::Range& range : plan.ranks[rank]) length += range.length;
  return length * across * SizeOf(c.dtype).count();
}

bool IsPadded(const ComponentPlan& plan) {
  for (const auto& ranges : plan.ranks) {
    for (const shard::Range& range : ranges) {
      if (range.is_padding()) return true;
    }
  }
  return false;
}

// "axis k has 48 groups (1536 elements), which do not divide by tp 7": the refusal's line without
// the tensor's name, which stands beside it, and without what is legal, which is the model's.
std::string WhyOf(const shard::Refusal& refusal) {
  std::string text = refusal.Message();
  const std::string name = refusal.cuts.empty() ? refusal.tensor + ": " : " (" + refusal.cuts + ")";
  if (const size_t at = text.find(name); at != text.npos) text.erase(at, name.size());
  return text.substr(0, text.find(';'));
}

class Judge {
 public:
  Judge(const Listing& listing, const Facts& facts, Report* report)
      : listing_(listing),
        facts_(facts),
        config_(*listing.config),
        report_(*report),
        taken_(report->tensors.size(), false) {
    for (const int tp : report_.degrees) {
      hiding_.emplace_back(tp);
      DegreeRow row;
      row.tp = tp;
      row.legal = true;
      row.bytes.assign(static_cast<size_t>(tp), 0);
      report_.tps.push_back(std::move(row));
    }
    legal_.set();
  }

  // nullopt, or why the planner does not know the model.
  std::optional<Error> Run() {
    for (int64_t layer = -1; layer < config_.layers; ++layer) {
      auto survey = Survey::Of(config_, listing_, layer);
      if (!survey) {
        // The layers are alike: what one says of the config, all say.
        if (layer < 0 || survey.error().kind != ErrorKind::kUnsupported) return survey.error();
        AddError(survey.error());
        continue;
      }
      for (const Error& error : survey->errors()) AddError(error);
      AddLayer(*survey);
    }
    Conclude();
    return std::nullopt;
  }

 private:
  // The message begins with the tensor's name. One that already has a finding is not told of twice.
  void AddError(const Error& error) {
    const std::string name = error.message.substr(0, error.message.find_first_of(": "));
    failed_.insert(name.substr(0, name.rfind('.')));
    const auto index = listing_.IndexOf(name);
    const std::string file =
        index ? listing_.files[listing_.entries()[*index].file] : std::string();
    std::string detail = error.message;
    const size_t colon = detail.find(": ");
    if (colon != detail.npos) detail.erase(0, colon + 2);
    const bool unknown = error.kind == ErrorKind::kUnsupported;
    const bool missing = !index && detail.starts_with("missing");
    if (unknown) {
      report_.notes.push_back({"unplanned", name, file, detail});
      return;
    }
    if (missing) {
      const auto [at, added] = missing_.emplace(PatternOf(name), report_.findings.size());
      if (!added) {
        ++more_[at->second];
        return;
      }
    }
    report_.findings.push_back({missing ? "missing" : "config", name, file, detail});
  }

  void AddLayer(const Survey& survey) {
    std::vector<std::vector<Placement>> placements(survey.size());
    for (size_t d = 0; d < report_.tps.size(); ++d) {
      Degrees degrees;
      degrees.tp = report_.tps[d].tp;
      const std::vector<Survey::Verdict> verdicts = survey.At(degrees);
      // What equal parts refuse, padding may allow: engines pad some models.
      std::vector<Survey::Verdict> padded;
      if (std::any_of(verdicts.begin(), verdicts.end(),
                      [](const Survey::Verdict& verdict) { return verdict.refusal.has_value(); })) {
        degrees.split = shard::Split::kCeil;
        padded = survey.At(degrees);
      }
      for (size_t i = 0; i < verdicts.size(); ++i) {
        const bool by_padding = !padded.empty() && padded[i].plan.has_value();
        placements[i].push_back(Count(survey.component(i), verdicts[i], by_padding, d));
      }
    }
    for (size_t i = 0; i < placements.size(); ++i) Place(survey.component(i), placements[i]);
    for (int tp = 1; tp <= kLargestTried; ++tp) {
      Degrees degrees;
      degrees.tp = tp;
      if (legal_[static_cast<size_t>(tp)] && !survey.Legal(degrees)) {
        legal_.reset(static_cast<size_t>(tp));
      }
    }
  }

  Placement Count(const shard::Component& component, const Survey::Verdict& verdict,
                  bool by_padding, size_t d) {
    DegreeRow& row = report_.tps[d];
    Placement placement;
    placement.legal = verdict.plan.has_value();
    if (!verdict.plan) {
      placement.why = WhyOf(*verdict.refusal);
      if (by_padding) placement.why += "; split=ceil pads it";
      ++row.refused;
      if (*row.legal) row.why = component.source + ": " + placement.why;
      row.legal = false;
    } else {
      const ComponentPlan& plan = *verdict.plan;
      placement.plan = plan.Print();
      const bool padded = IsPadded(plan);
      ++(plan.axis == Axis::kNone ? row.whole
         : padded                 ? row.padded
         : plan.replicas > 1      ? row.replicated
                                  : row.cut);
      // A tied head is the embedding's tensor, held once.
      const bool tied = component.name == "logits.weight" && config_.tied;
      for (size_t rank = 0; !tied && rank < plan.ranks.size(); ++rank) {
        row.bytes[rank] += BytesOnRank(plan, rank);
      }
    }
    Hide(component, verdict, d);
    return placement;
  }

  void Hide(const shard::Component& component, const Survey::Verdict& verdict, size_t d) {
    Placed placed;
    placed.config = &config_;
    placed.component = &component;
    placed.plan = verdict.plan ? &*verdict.plan : nullptr;
    placed.tp = report_.tps[d].tp;
    if (const auto index = listing_.IndexOf(component.source)) {
      placed.tally = &facts_.TallyOf(*index);
      if (const auto at = facts_.g_idx.find(*index); at != facts_.g_idx.end()) {
        placed.g_idx = &at->second;
      }
      if (const auto at = facts_.scalars.find(*index); at != facts_.scalars.end()) {
        placed.scalar = &at->second;
      }
    }
    hiding_[d].Add(placed);
  }

  // A fused tensor holds several components: it is legal where all are.
  void Place(const shard::Component& component, std::vector<Placement> placements) {
    const auto index = listing_.IndexOf(component.source);
    if (!index) return;
    TensorRow& row = report_.tensors[*index];
    if (taken_[*index]) {
      const std::vector<Placement>& before = report_.placements[row.placement];
      for (size_t d = 0; d < placements.size(); ++d) {
        if (before[d].legal == false || placements[d].legal == true) placements[d] = before[d];
      }
    }
    taken_[*index] = true;
    row.placement = Intern(std::move(placements));
    // The planner's word on the method is the one that loaders go by.
    if (!component.method.empty() && report_.methods[row.method].id != component.method) {
      --report_.methods[row.method].tensors;
      report_.methods[row.method].bytes -= row.bytes;
      row.method = MethodIndex(component.method);
      ++report_.methods[row.method].tensors;
      report_.methods[row.method].bytes += row.bytes;
    }
  }

  uint32_t Intern(std::vector<Placement> placements) {
    const auto [at, added] =
        interned_.emplace(std::move(placements), static_cast<uint32_t>(report_.placements.size()));
    if (added) report_.placements.push_back(at->first);
    return at->second;
  }

  uint32_t MethodIndex(const std::string& id) {
    for (size_t i = 0; i < report_.methods.size(); ++i) {
      if (report_.methods[i].id == id) return static_cast<uint32_t>(i);
    }
    report_.methods.push_back({id, 0, 0});
    return static_cast<uint32_t>(report_.methods.size() - 1);
  }

  void Conclude() {
    for (const auto& [index, more] : more_) {
      Finding& finding = report_.findings[index];
      finding.detail +=
          fmt::format("; so are {} more of the form {}", more, PatternOf(finding.tensor));
    }
    AddUntaken();
    for (size_t d = 0; d < report_.tps.size(); ++d) {
      DegreeRow& row = report_.tps[d];
      if (!*row.legal) row.bytes.clear();
      for (Hidden& hidden : hiding_[d].Rows(config_)) {
        // What is refused cannot be loaded, and so hides nothing.
        if (hidden.tp > 0 && !*row.legal) continue;
        const bool known =
            std::any_of(report_.hidden.begin(), report_.hidden.end(), [&](const Hidden& other) {
              return hidden.tp == 0 && other.tp == 0 && other.kind == hidden.kind &&
                     other.text == hidden.text;
            });
        if (!known) report_.hidden.push_back(std::move(hidden));
      }
    }
    report_.known = true;
    for (int tp = 1; tp <= kLargestTried; ++tp) {
      if (legal_[static_cast<size_t>(tp)]) report_.legal_degrees.push_back(tp);
    }
    report_.largest_legal_tp = report_.legal_degrees.empty() ? 0 : report_.legal_degrees.back();
  }

  // Tensors that no parameter takes, by pattern: coverage.
  void AddUntaken() {
    // What is passed over for one reason is one note; what belongs to nothing one for each form.
    std::map<std::pair<std::string, std::string>, std::pair<int64_t, size_t>> notes;
    std::optional<uint32_t> checked;
    for (size_t i = 0; i < taken_.size(); ++i) {
      if (taken_[i]) continue;
      TensorRow& row = report_.tensors[i];
      const std::string& name = listing_.entries()[i].view.name;
      if (RoleOf(listing_.entries()[i].view, listing_).part == Part::kShape) {
        if (!checked) checked = Intern(Everywhere("checked, not loaded", true, ""));
        row.placement = *checked;
        continue;
      }
      if (failed_.count(name.substr(0, name.rfind('.'))) > 0) {
        // What is wrong with its parameter was said.
        row.placement = Intern(Everywhere("", std::nullopt, "its parameter cannot be planned"));
        for (DegreeRow& degree : report_.tps) ++degree.unplanned;
        continue;
      }
      const std::string passed = shard::WhyPassed(config_, name);
      const std::string why =
          passed.empty() ? "no parameter that the config implies takes it" : passed;
      row.placement = Intern(Everywhere("", std::nullopt, why));
      for (DegreeRow& degree : report_.tps) ++degree.unplanned;
      const std::string form = passed.empty() ? PatternOf(name) : std::string();
      ++notes.emplace(std::pair(why, form), std::pair(int64_t{0}, i)).first->second.first;
    }
    for (const auto& [key, where] : notes) {
      const auto& [why, form] = key;
      const auto& [count, first] = where;
      std::string more = count == 1 ? "" : fmt::format(" ({} more)", count - 1);
      if (count > 1 && !form.empty()) more = fmt::format(" ({} more of {})", count - 1, form);
      report_.notes.push_back({"unused", listing_.entries()[first].view.name,
                               listing_.files[listing_.entries()[first].file], why + more});
    }
  }

  std::vector<Placement> Everywhere(const std::string& plan, std::optional<bool> legal,
                                    const std::string& why) const {
    return std::vector<Placement>(report_.tps.size(), Placement{plan, legal, why});
  }

  const Listing& listing_;
  const Facts& facts_;
  const ModelConfig& config_;
  Report& report_;
  std::vector<bool> taken_;
  std::vector<Hiding> hiding_;
  std::bitset<kLargestTried + 1> legal_;
  std::set<std::string> failed_;           // modules of parameters that could not be listed
  std::map<std::string, size_t> missing_;  // pattern -> the finding of its first tensor
  std::map<size_t, int64_t> more_;         // finding -> further ones
  std::map<std::vector<Placement>, uint32_t> interned_;
};

// Without a planner every tensor is told of by name and type alone.
void Unknown(const std::string& why, Report* report) {
  report->tps.clear();
  report->placements.assign(
      1, std::vector<Placement>(report->degrees.size(), Placement{"", std::nullopt, why}));
  for (TensorRow& row : report->tensors) row.placement = 0;
  for (const int tp : report->degrees) {
    DegreeRow row;
    row.tp = tp;
    row.unplanned = static_cast<int64_t>(report->tensors.size());
    row.why = why;
    report->tps.push_back(std::move(row));
  }
}

}  // namespace

void JudgeDegrees(const Listing& listing, const Facts& facts, Report* report) {
  if (!listing.config) return Unknown(listing.why_unknown, report);
  const auto failed = Judge(listing, facts, report).Run();
  if (!failed) return;
  if (failed->kind != ErrorKind::kUnsupported) {
    report->findings.push_back({"config", "", "config.json", failed->message});
  }
  report->placements.clear();
  Unknown(failed->message, report);
}

}  // namespace assay::audit
