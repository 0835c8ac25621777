// What a run says: findings, reasons, totals, progress.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "reports/short_form.h"
#include "reports/terminal.h"
#include "reports/terminal_parts.h"
#include "reports/text.h"
#include "reports/view.h"

namespace assay::reports {
namespace {

constexpr size_t kListed = 5;             // cells of a finding, reasons of a verdict
constexpr int kReasonColumns = 80;        // prose gets hard to read in longer lines
constexpr double kBetweenLines = 10;      // seconds, in a log
constexpr double kBetweenUpdates = 0.05;  // seconds, on a terminal

constexpr std::string_view kNoBreak = "\u00a0";

// Where a space must not become a line's end.
std::string Unbroken(std::string text) {
  for (size_t at = text.find(' '); at != std::string::npos; at = text.find(' ', at)) {
    text.replace(at, 1, kNoBreak);
  }
  return text;
}

std::string Breakable(std::string text) {
  for (size_t at = text.find(kNoBreak); at != std::string::npos; at = text.find(kNoBreak, at)) {
    text.replace(at, kNoBreak.size(), " ");
  }
  return text;
}

std::string OtherCells(const Group& group, const Style& style) {
  if (group.cells.size() < 2) return "";
  const auto line = [&](const std::string& text) {
    std::string out;
    for (const std::string& part : Wrapped(Shown(text, style), style.columns - 4, 2)) {
      out += "    " + part + "\n";
    }
    return out;
  };
  const size_t others = group.cells.size() - 1, listed = std::min(others, kListed);
  std::string out =
      fmt::format("  the same in {}, with\n", Counted(static_cast<int64_t>(others), "more cell"));
  for (size_t i = 1; i <= listed; ++i) out += line(Difference(*group.cells[i], *group.cells[0]));
  return out + (others > listed ? line(fmt::format("… and {} more", others - listed)) : "");
}

// One verdict's reasons, the most frequent first. `told`: cells that findings tell of already.
std::string ReasonLines(const RunRecord& record, Verdict verdict,
                        const std::set<const CellResult*>& told, const Style& style) {
  const int columns = std::min(style.columns, kReasonColumns);
  const auto wrapped = [&](const std::string& text) {
    return Lines(Wrapped(Shown(text, style), columns, 4));
  };
  std::vector<std::pair<std::string, size_t>> reasons;
  for (const Reason& reason : GroupByReason(record, verdict)) {
    const auto left = std::count_if(reason.cells.begin(), reason.cells.end(),
                                    [&](const CellResult* cell) { return told.count(cell) == 0; });
    if (left > 0) reasons.emplace_back(reason.text, static_cast<size_t>(left));
  }
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string out;
  size_t more = 0;
  for (size_t i = 0; i < reasons.size(); ++i) {
    if (i >= kListed) {
      more += reasons[i].second;
      continue;
    }
    out += wrapped(fmt::format("{} {}: {}", reasons[i].second, NameOf(verdict), reasons[i].first));
  }
  if (more == 0) return out;
  return out + wrapped(fmt::format(
                   "{} {} for {}, see the report", more, NameOf(verdict),
                   Counted(static_cast<int64_t>(reasons.size() - kListed), "further reason")));
}

}  // namespace

std::string FindingsBlock(const RunRecord& record, const Style& style) {
  const std::vector<Group> groups = GroupFindings(record);
  std::string out;
  for (size_t i = 0; i < std::min(kFindingsInFull, groups.size()); ++i) {
    out += "\n" + FailureBlock(*groups[i].cells[0], style) + OtherCells(groups[i], style);
  }
  if (groups.size() > kFindingsInFull) {
    const size_t more = groups.size() - kFindingsInFull;
    out +=
        fmt::format("\n{} {} in the report.\n", Counted(static_cast<int64_t>(more), "more finding"),
                    more == 1 ? "is" : "are");
  }
  return out;
}

std::string ReasonsBlock(const RunRecord& record, const Style& style) {
  std::set<const CellResult*> told;
  const std::vector<Group> groups = GroupFindings(record);
  for (size_t i = 0; i < std::min(kFindingsInFull, groups.size()); ++i) {
    told.insert(groups[i].cells.begin(), groups[i].cells.end());
  }
  std::string out;
  for (const Verdict verdict : {Verdict::kInfra, Verdict::kNotExecuted, Verdict::kSkipped}) {
    out += ReasonLines(record, verdict, told, style);
  }
  return out;
}

std::string TotalsBlock(const Totals& totals, double seconds, const Style& style) {
  std::string out;
  for (const std::vector<std::string>& words : TotalsWords(totals)) {
    std::vector<std::string> unbroken;
    for (const std::string& word : words) unbroken.push_back(Unbroken(Shown(word, style)));
    out += Breakable(Lines(Wrapped(Joined(unbroken, " "), style.columns, 4)));
  }
  return out + DurationText(seconds) + "\n";
}

std::string ProgressLine(const Totals& so_far, double seconds, const Style& style) {
  std::string out = fmt::format("{}/{} cells", so_far.collected, so_far.registered);
  for (const Verdict verdict : WorstFirst()) {
    const int64_t count = CountOf(so_far, verdict);
    if (IsRed(verdict) && count > 0) out += fmt::format("  {} {}", count, NameOf(verdict));
  }
  out += "  " + DurationText(seconds);
  const int64_t left = so_far.registered - so_far.collected;
  if (left > 0 && so_far.collected > 0) {
    const double each = seconds / static_cast<double>(so_far.collected);
    out += "  about " + DurationText(each * static_cast<double>(left)) + " left";
  }
  return Shortened(out, style.columns, style.utf8 ? "…" : "...");
}

Progress::Progress(std::FILE* stream, const Style& style, int64_t registered)
    : stream_(stream), style_(style) {
  totals_.registered = registered;
}

void Progress::Cell(const CellResult& cell, double seconds) {
  totals_.Add(cell.verdict);
  const bool red = IsRed(cell.verdict);
  if (red) Print(BriefLine(cell, style_));
  const bool last = totals_.collected == totals_.registered;
  if (style_.live) {
    if (!red && !last && line_shown_ && seconds - last_print_ < kBetweenUpdates) return;
    // One column stays free: a full line would make some terminals scroll.
    Style narrower = style_;
    --narrower.columns;
    std::fprintf(stream_, "\r\x1b[K%s", ProgressLine(totals_, seconds, narrower).c_str());
    std::fflush(stream_);
    line_shown_ = true;
  } else {
    const int64_t tenth =
        totals_.registered > 0 ? totals_.collected * 10 / totals_.registered : totals_.collected;
    if (tenth == last_tenth_ && seconds - last_print_ < kBetweenLines) return;
    last_tenth_ = tenth;
    Print(ProgressLine(totals_, seconds, style_) + "\n");
  }
  last_print_ = seconds;
}

void Progress::End() { Print(""); }

void Progress::Print(const std::string& text) {
  if (line_shown_) std::fputs("\r\x1b[K", stream_);
  line_shown_ = false;
  std::fputs(text.c_str(), stream_);
  std::fflush(stream_);
}

}  // namespace assay::reports
