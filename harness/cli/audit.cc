// audit CHECKPOINT: what is in a checkpoint, what each TP degree does with it, what is broken in
// it.
#include "harness/audit/audit.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>

#include "harness/audit/render.h"
#include "harness/audit/text.h"
#include "harness/cli/options.h"
#include "harness/cli/verbs.h"
#include "harness/shard/plan.h"
#include "harness/store/files.h"
#include "reports/terminal.h"
#include "reports/text.h"

namespace assay::cli {
namespace {

namespace fs = std::filesystem;

constexpr double kLongSeconds = 2;  // an audit that takes more is announced

// "1,2,4,8": ascending, each once.
Result<std::vector<int>> ParseDegrees(const std::string& text) {
  std::vector<int> degrees;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    int degree = 0;
    const auto [next, error] = std::from_chars(at, end, degree);
    if (error != std::errc() || degree < 1 || degree > shard::kMaxTp ||
        (next != end && *next != ',')) {
      return Error{fmt::format("--tp {}: it must be degrees from 1 to {}, such as 1,2,4,8", text,
                               shard::kMaxTp)};
    }
    degrees.push_back(degree);
    if (next == end) break;
    at = next + 1;
  }
  std::sort(degrees.begin(), degrees.end());
  degrees.erase(std::unique(degrees.begin(), degrees.end()), degrees.end());
  return degrees;
}

// A new folder, or one that is empty. Known before anything is read; made when there is a report.
Status CheckFolder(const std::string& out) {
  std::error_code error;
  if (!fs::exists(out, error)) return Ok();
  if (fs::is_directory(out, error) && fs::is_empty(out, error) && !error) return Ok();
  return Error{fmt::format("--out {}: it must be a new or an empty folder", out)};
}

// What is said while bytes are read: a bar on a terminal, a line for every tenth elsewhere.
class Progress {
 public:
  explicit Progress(bool terminal) : terminal_(terminal) {}

  void Announce(const audit::Estimate& estimate) {
    announced_ = estimate.seconds > kLongSeconds;
    if (!announced_) return;
    std::fputs(fmt::format("{} to read: about {} from memory, {} from a disk of 1 GB/s; about {} "
                           "of memory\n",
                           audit::SizeText(estimate.bytes), reports::DurationText(estimate.seconds),
                           reports::DurationText(static_cast<double>(estimate.bytes) / 1e9),
                           audit::SizeText(estimate.memory))
                   .c_str(),
               stderr);
  }

  void Show(const audit::StreamProgress& now) {
    const bool end = now.done >= now.total;
    if (now.total == 0 || now.seconds <= 0) return;
    const double part = static_cast<double>(now.done) / static_cast<double>(now.total);
    if (terminal_) return Bar(now, part, end);
    if (!announced_ || (static_cast<int>(part * 10) == tenth_ && !end)) return;
    tenth_ = static_cast<int>(part * 10);
    std::fputs((Text(now, part) + "\n").c_str(), stderr);
  }

 private:
  static std::string Text(const audit::StreamProgress& now, double part) {
    const double rate = static_cast<double>(now.done) / now.seconds;
    const double left = rate > 0 ? static_cast<double>(now.total - now.done) / rate : 0;
    return fmt::format("{} of {}, {:.1f} GB/s, {} left",
                       audit::SizeText(static_cast<int64_t>(now.done)),
                       audit::SizeText(static_cast<int64_t>(now.total)), rate / 1e9,
                       part > 0 ? reports::DurationText(left) : std::string("?"));
  }

  void Bar(const audit::StreamProgress& now, double part, bool end) {
    constexpr int kWidth = 20;
    if (end) {
      std::fputs("\r\x1b[K", stderr);
      return;
    }
    const int full = static_cast<int>(part * kWidth);
    std::fputs(fmt::format("\r\x1b[K[{}{}] {}", std::string(static_cast<size_t>(full), '#'),
                           std::string(static_cast<size_t>(kWidth - full), '.'), Text(now, part))
                   .c_str(),
               stderr);
    std::fflush(stderr);
  }

  bool terminal_ = false, announced_ = false;
  int tenth_ = 0;
};

// Piece by piece beside its place, then into it.
Status WriteJsonFile(const audit::Report& report, const std::string& path) {
  const std::string beside = fmt::format("{}.{}.part", path, getpid());
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(beside.c_str(), "wx"),
                                                             std::fclose);
  if (!file) return Error{path + ": cannot be written", ErrorKind::kEnvironment};
  audit::WriteJson(
      report, [&](std::string_view text) { std::fwrite(text.data(), 1, text.size(), file.get()); });
  if (std::fflush(file.get()) != 0 || std::ferror(file.get()) != 0) {
    std::error_code ignored;
    fs::remove(beside, ignored);
    return Error{path + ": cannot be written whole", ErrorKind::kEnvironment};
  }
  return MoveIntoPlace(beside, path);
}

Status WriteReports(const audit::Report& report, const std::string& out) {
  std::error_code error;
  fs::create_directories(out, error);
  if (error) return Error{fmt::format("--out {}: {}", out, error.message())};
  if (Status json = WriteJsonFile(report, out + "/audit.json"); !json) return json;
  return WriteWhole(out + "/report.html", audit::RenderHtml(report));
}

}  // namespace

int Audit(int argc, char** argv) {
  std::vector<std::string> words;
  std::string degrees = "1,2,4,8", out;
  int64_t threads = 2;
  bool json = false;
  Options options("audit",
                  "Reads a checkpoint of any size once: methods, legal TP degrees, bytes a rank, "
                  "what is broken.",
                  "./assay audit models/kimi-k2 --tp 1,2,4,8 --out audit");
  options.Words("checkpoint", &words, "a folder, a .safetensors file or a .gguf file");
  options.Value("--tp", &degrees, "the degrees to look at");
  options.Value("--out", &out, "a new or an empty folder for report.html and audit.json");
  options.Number("--threads", &threads, 1, 256, "that read and look");
  options.Flag("--json", &json, "JSON on standard output, and nothing else there");
  if (auto code = options.Parse(argc, argv)) return *code;
  if (words.size() != 1) return BadUsage("audit: name one checkpoint, a folder or a file");
  auto parsed = ParseDegrees(degrees);
  if (!parsed) return BadUsage(parsed.error().message);
  if (!out.empty()) {
    if (Status folder = CheckFolder(out); !folder) return BadUsage(folder.error().message);
  }
  Progress progress(reports::StyleOf(stderr).live);
  audit::AuditOptions audit;
  audit.degrees = std::move(*parsed);
  audit.threads = static_cast<int>(threads);
  audit.on_estimate = [&](const audit::Estimate& estimate) { progress.Announce(estimate); };
  audit.on_progress = [&](const audit::StreamProgress& now) { progress.Show(now); };
  auto report = audit::Audit(words[0], audit);
  if (!report) return BadUsage(report.error().message);
  if (!out.empty()) {
    if (Status written = WriteReports(*report, out); !written) {
      return BadUsage(written.error().message);
    }
  }
  if (json) {
    audit::WriteJson(
        *report, [](std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); });
  } else {
    std::fputs(audit::RenderTerminal(*report, reports::StyleOf(stdout).colour).c_str(), stdout);
    if (!out.empty()) std::puts(fmt::format("\n{}/report.html, {}/audit.json", out, out).c_str());
  }
  return report->findings.empty() ? 0 : 1;
}

}  // namespace assay::cli
