#include "harness/audit/verdicts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "harness/audit/pattern.h"

namespace assay::audit {
namespace {

// What an issue means by where it is seen.
struct Row {
  Watch watch;
  Issue issue;
  bool finding;  // else a note
  std::string_view kind, what, allowed;
};

constexpr std::string_view kScaleAllowed = "a scale is a positive finite number";

constexpr std::array<Row, 43> kRows = {{
    {Watch::kF64, Issue::kNan, true, "nan", "NaN", "a value is a finite number"},
    {Watch::kF64, Issue::kInf, true, "infinite", "infinite", "a value is a finite number"},
    {Watch::kF32, Issue::kNan, true, "nan", "NaN", "a value is a finite number"},
    {Watch::kF32, Issue::kInf, true, "infinite", "infinite", "a value is a finite number"},
    {Watch::kF16, Issue::kNan, true, "nan", "NaN", "a value is a finite number"},
    {Watch::kF16, Issue::kInf, true, "infinite", "infinite", "a value is a finite number"},
    {Watch::kBF16, Issue::kNan, true, "nan", "NaN", "a value is a finite number"},
    {Watch::kBF16, Issue::kInf, true, "infinite", "infinite", "a value is a finite number"},
    {Watch::kScaleF32, Issue::kNan, true, "nan", "a NaN scale", kScaleAllowed},
    {Watch::kScaleF32, Issue::kInf, true, "infinite", "an infinite scale", kScaleAllowed},
    {Watch::kScaleF32, Issue::kZero, true, "zero", "a scale of zero", kScaleAllowed},
    {Watch::kScaleF32, Issue::kDenormal, true, "denormal", "a denormal scale",
     "kernels that flush denormals read it as zero"},
    {Watch::kScaleF32, Issue::kNegative, false, "negative", "a negative scale", kScaleAllowed},
    {Watch::kScaleF16, Issue::kNan, true, "nan", "a NaN scale", kScaleAllowed},
    {Watch::kScaleF16, Issue::kInf, true, "infinite", "an infinite scale", kScaleAllowed},
    {Watch::kScaleF16, Issue::kZero, true, "zero", "a scale of zero", kScaleAllowed},
    {Watch::kScaleF16, Issue::kDenormal, true, "denormal", "a denormal scale",
     "kernels that flush denormals read it as zero"},
    {Watch::kScaleF16, Issue::kNegative, false, "negative", "a negative scale", kScaleAllowed},
    {Watch::kScaleBF16, Issue::kNan, true, "nan", "a NaN scale", kScaleAllowed},
    {Watch::kScaleBF16, Issue::kInf, true, "infinite", "an infinite scale", kScaleAllowed},
    {Watch::kScaleBF16, Issue::kZero, true, "zero", "a scale of zero", kScaleAllowed},
    {Watch::kScaleBF16, Issue::kDenormal, true, "denormal", "a denormal scale",
     "kernels that flush denormals read it as zero"},
    {Watch::kScaleBF16, Issue::kNegative, false, "negative", "a negative scale", kScaleAllowed},
    {Watch::kE4M3, Issue::kNan, true, "nan", "an FP8 code of NaN", "0x7F and 0xFF are no weights"},
    {Watch::kE4M3Fnuz, Issue::kNan, true, "nan", "an FP8 fnuz code of NaN", "0x80 is no weight"},
    {Watch::kE5M2, Issue::kNan, true, "nan", "an FP8 code of NaN",
     "0x7D to 0x7F and 0xFD to 0xFF are no weights"},
    {Watch::kE5M2, Issue::kInf, true, "infinite", "an infinite FP8 code",
     "0x7C and 0xFC are no weights"},
    {Watch::kScaleE4M3, Issue::kNan, true, "nan", "a NaN scale", "0x7F and 0xFF are no scales"},
    {Watch::kScaleE4M3, Issue::kZero, false, "zero", "a scale of zero",
     "its group is zero whatever the codes are"},
    {Watch::kScaleE4M3, Issue::kNegative, false, "negative", "a negative scale", kScaleAllowed},
    {Watch::kE8M0, Issue::kNan, true, "nan", "an E8M0 scale of 255, which is NaN",
     "0 to 254 are 2^-127 to 2^127"},
    {Watch::kE8M0, Issue::kDenormal, false, "denormal", "an E8M0 scale of 0, which is 2^-127",
     "a float32 holds it only as a denormal"},
    {Watch::kIntWords, Issue::kZeroGroup, false, "zero-groups", "a group of zeros",
     "nothing of its scale is seen"},
    {Watch::kE2M1, Issue::kZeroGroup, false, "zero-groups", "a group of zeros",
     "nothing of its scale is seen"},
    {Watch::kI8, Issue::kRange, true, "zero-point", "a zero point out of range", ""},
    {Watch::kI32, Issue::kRange, true, "zero-point", "a zero point out of range", ""},
    {Watch::kI64, Issue::kRange, true, "zero-point", "a zero point out of range", ""},
    {Watch::kOffsetF32, Issue::kNan, true, "nan", "a NaN offset", ""},
    {Watch::kOffsetF32, Issue::kRange, true, "zero-point",
     "an offset that is no whole number of the codes' range", ""},
    {Watch::kGguf, Issue::kNan, true, "nan", "a block whose scale is NaN",
     "a scale is a finite number"},
    {Watch::kGguf, Issue::kInf, true, "infinite", "a block whose scale is infinite",
     "a scale is a finite number"},
    {Watch::kGguf, Issue::kZero, false, "zero", "a block whose scale is zero",
     "its values are all the same"},
    {Watch::kGguf, Issue::kDenormal, false, "denormal", "a block whose scale is denormal",
     "kernels that flush denormals read it as zero"},
}};

std::string Allowed(const Row& row, const Lens& lens) {
  if (!row.allowed.empty()) return std::string(row.allowed);
  return fmt::format("{} to {} are allowed", lens.least, lens.largest);
}

// Values that one count of the tally stands for.
uint64_t UnitOf(const Lens& lens) {
  const bool groups = lens.watch == Watch::kIntWords || lens.watch == Watch::kE2M1;
  return groups && lens.group > 0 ? lens.group : 0;
}

uint64_t Counted(const Lens& lens, uint64_t bytes) { return bytes / Grain(lens); }

class Values {
 public:
  Values(const Listing& listing, const Facts& facts, Report* report)
      : listing_(listing), facts_(facts), report_(*report) {}

  void Judge(size_t i) {
    const Lens& lens = facts_.lenses[i];
    const Tally& tally = facts_.TallyOf(i);
    for (const Row& row : kRows) {
      if (row.watch != lens.watch || tally.of(row.issue).count == 0) continue;
      const Tally::Entry& entry = tally.of(row.issue);
      const TensorView& view = listing_.entries()[i].view;
      const std::string place = PlaceOf(view, RoleOf(view, listing_), entry.first, UnitOf(lens));
      const std::string where =
          place.empty() ? "" : (entry.count == 1 ? " at " : ", the first at ") + place;
      const std::string count = entry.count == 1
                                    ? std::string(row.what)
                                    : fmt::format("{}, {} times of {}", row.what, entry.count,
                                                  Counted(lens, tally.bytes));
      Tell(row.finding, std::string(row.kind), i,
           fmt::format("holds {}{}; {}", count, where, Allowed(row, lens)));
    }
    if (tally.bytes > 0 && tally.all_zero) AllZero(i);
  }

 private:
  void AllZero(size_t i) {
    const TensorView& view = listing_.entries()[i].view;
    const Role role = RoleOf(view, listing_);
    const bool weights = role.part == Part::kCodes || role.part == Part::kBlocks ||
                         (role.part == Part::kDense && view.shape.size() >= 2);
    const bool told = facts_.TallyOf(i).of(Issue::kZero).count > 0;
    const bool expected = role.part != Part::kDense && role.part != Part::kScale && !weights;
    if (expected || (told && role.part == Part::kScale)) return;
    Tell(weights, "all-zero", i,
         fmt::format("every one of its {} bytes is zero; weights that were never written look so",
                     facts_.TallyOf(i).bytes));
  }

  void Tell(bool finding, std::string kind, size_t i, std::string detail) {
    const Listing::Entry& entry = listing_.entries()[i];
    (finding ? report_.findings : report_.notes)
        .push_back(
            {std::move(kind), entry.view.name, listing_.files[entry.file], std::move(detail)});
  }

  const Listing& listing_;
  const Facts& facts_;
  Report& report_;
};

}  // namespace

void JudgeValues(const Listing& listing, const Facts& facts, Report* report) {
  Values values(listing, facts, report);
  for (size_t i = 0; i < listing.entries().size(); ++i) values.Judge(i);
}

void JudgePeers(const Listing& listing, Report* report) {
  // By pattern and size of a value: how often each type is met, and where the first one is.
  struct Seen {
    int64_t count = 0;
    size_t first = 0;
  };
  std::map<std::string, std::map<DType, Seen>> patterns;
  for (size_t i = 0; i < listing.entries().size(); ++i) {
    const TensorView& view = listing.entries()[i].view;
    if (IsBlock(view.dtype)) continue;
    const std::string key =
        PatternOf(view.name) + '\n' + std::to_string(SizeOf(view.dtype).count());
    Seen& seen = patterns[key][view.dtype];
    if (seen.count++ == 0) seen.first = i;
  }
  for (const auto& [pattern, types] : patterns) {
    if (types.size() < 2) continue;
    const auto usual = std::max_element(
        types.begin(), types.end(),
        [](const auto& a, const auto& b) { return a.second.count < b.second.count; });
    for (const auto& [dtype, seen] : types) {
      // Half and half says nothing about who is wrong.
      if (dtype == usual->first || seen.count * 2 >= usual->second.count) continue;
      const Listing::Entry& entry = listing.entries()[seen.first];
      const Listing::Entry& other = listing.entries()[usual->second.first];
      const bool told = std::any_of(
          report->findings.begin(), report->findings.end(), [&](const Finding& finding) {
            return finding.kind == "dtype" && finding.tensor == entry.view.name;
          });
      if (told) continue;
      const std::string more =
          seen.count == 1 ? "" : fmt::format(" (and {} more are)", seen.count - 1);
      report->findings.push_back(
          {"dtype", entry.view.name, listing.files[entry.file],
           fmt::format("is {}{}, but {} tensors of the form {} are {}, such as {}; the same bytes "
                       "cannot be both",
                       NameOf(dtype), more, usual->second.count,
                       pattern.substr(0, pattern.find('\n')), NameOf(usual->first),
                       other.view.name)});
    }
  }
}

void Cap(std::vector<Finding>* findings) {
  std::map<std::string, size_t> counts;
  std::vector<Finding> kept;
  for (Finding& finding : *findings) {
    if (counts[finding.kind]++ < kMaxOfAKind) kept.push_back(std::move(finding));
  }
  for (const auto& [kind, count] : counts) {
    if (count <= kMaxOfAKind) continue;
    kept.push_back({kind, "", "", fmt::format("and {} more of this kind", count - kMaxOfAKind)});
  }
  *findings = std::move(kept);
}

}  // namespace assay::audit
