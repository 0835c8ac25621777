#include "harness/cli/bench_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <sstream>

#include "harness/run/problem.h"

namespace assay::cli {
namespace {

using kernels::bench::BenchOptions;
using kernels::bench::BenchReport;
using kernels::bench::BenchRow;
using kernels::bench::Peaks;
using kernels::bench::Shape;
using Json = nlohmann::ordered_json;

constexpr int64_t kLargest = int64_t{1} << 20;  // of m, n and k: a slip of the keyboard
const std::vector<std::string> kKeys = {"kernel", "method", "act", "tier", "how", "m", "shape"};

bool ReadCount(std::string_view text, int64_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() && *value >= 1 &&
         *value <= kLargest;
}

Status Take(const std::string& key, const std::string& value, BenchOptions* options) {
  const std::pair<const char*, std::vector<std::string>*> words[] = {
      {"kernel", &options->kernels}, {"method", &options->methods}, {"act", &options->acts},
      {"tier", &options->tiers},     {"how", &options->hows},
  };
  for (const auto& [name, list] : words) {
    if (key != name) continue;
    list->push_back(value);
    return Ok();
  }
  if (key == "m") {
    int64_t m = 0;
    if (!ReadCount(value, &m)) {
      return Error{fmt::format("bench m={}: allowed is 1 to {}", value, kLargest)};
    }
    options->m.push_back(m);
    return Ok();
  }
  const size_t cross = value.find('x');
  Shape shape;
  if (cross == std::string::npos ||
      !ReadCount(std::string_view(value).substr(0, cross), &shape.n) ||
      !ReadCount(std::string_view(value).substr(cross + 1), &shape.k)) {
    return Error{
        fmt::format("bench shape={}: allowed is NxK, rows and columns of the weight, each "
                    "1 to {}, as in 2048x7168",
                    value, kLargest)};
  }
  options->shapes.push_back(shape);
  return Ok();
}

// Of the most threads that were measured.
std::pair<int, Peaks> Largest(const BenchReport& report) {
  if (report.peaks.empty()) return {};
  return {report.peaks.rbegin()->first, report.peaks.rbegin()->second};
}

std::string Percent(double fraction) { return fmt::format("{:.0f}%", 100 * fraction); }

Json PeaksJson(const Peaks& peaks) {
  return {{"fma", peaks.fma_gflops}, {"int8", peaks.int8_gflops}};
}

}  // namespace

Result<BenchOptions> ParseBench(const std::vector<std::string>& words) {
  BenchOptions options;
  const BenchOptions defaults;
  options.m.clear();
  options.shapes.clear();
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    if (equals == std::string::npos || equals + 1 == word.size() ||
        std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end()) {
      const std::string nearest = run::Nearest(key, kKeys);
      return Error{fmt::format("bench {}: allowed is key=value[,value] with the keys {}{}", word,
                               fmt::join(kKeys, ", "),
                               nearest.empty() ? "" : "; did you mean " + nearest + "?")};
    }
    std::stringstream values(word.substr(equals + 1));
    for (std::string value; std::getline(values, value, ',');) {
      if (auto status = Take(key, value, &options); !status) return status.error();
    }
  }
  if (options.m.empty()) options.m = defaults.m;
  if (options.shapes.empty()) options.shapes = defaults.shapes;
  return options;
}

std::string BenchTable(const BenchReport& report) {
  const auto [threads, peaks] = Largest(report);
  std::string text = fmt::format(
      "{}\n{} threads read {:.1f} GB/s, do {:.0f} GFLOP/s (fp32 fma) and {:.0f} (int8)\n\n",
      report.cpu, threads, peaks.read_gb_s, peaks.fma_gflops, peaks.int8_gflops);
  text += fmt::format("{:<32} {:>4} {:>11} {:>6} {:>5} {:>8} {:>5}\n", "kernel", "m", "n x k",
                      "GB/s", "of", "GFLOP/s", "of");
  bool emulated = false;
  for (const BenchRow& row : report.rows) {
    const bool hardware = row.how == "hardware";
    emulated |= !hardware;
    std::string name = row.kernel + (hardware ? "" : "*");
    // A long name has a line of its own: none is cut.
    if (name.size() > 32) {
      text += name + "\n";
      name.clear();
    }
    text +=
        fmt::format("{:<32} {:>4} {:>11} {:>6.1f} {:>5} {:>8.1f} {:>5}\n", name, row.m,
                    fmt::format("{}x{}", row.n, row.k), row.gb_s,
                    Percent(row.fraction_of_bandwidth), row.gflops, Percent(row.fraction_of_peak));
  }
  text += "\nGB/s of weights, of what these threads read; GFLOP/s, of their peak of that kind\n";
  if (emulated) text += "* portable intrinsics: says nothing about the hardware\n";
  for (const std::string& skipped : report.skipped) text += "not here: " + skipped + "\n";
  return text;
}

std::string BenchJson(const BenchReport& report) {
  const auto [threads, peaks] = Largest(report);
  Json out;
  out["machine"] = {{"cpu", report.cpu}, {"cores", report.cores}, {"tiers", report.tiers}};
  out["read_bandwidth_gb_s"] = peaks.read_gb_s;
  out["peak_gflops"] = PeaksJson(peaks);
  out["peaks"] = Json::array();
  for (const auto& [count, each] : report.peaks) {
    out["peaks"].push_back({{"threads", count},
                            {"read_bandwidth_gb_s", each.read_gb_s},
                            {"peak_gflops", PeaksJson(each)}});
  }
  out["rows"] = Json::array();
  for (const BenchRow& row : report.rows) {
    out["rows"].push_back({{"kernel", row.kernel},
                           {"op", row.op},
                           {"method", row.method},
                           {"act", row.act},
                           {"tier", row.tier},
                           {"how", row.how},
                           {"threads", row.threads},
                           {"m", row.m},
                           {"n", row.n},
                           {"k", row.k},
                           {"gb_s", row.gb_s},
                           {"fraction_of_bandwidth", row.fraction_of_bandwidth},
                           {"gflops", row.gflops},
                           {"fraction_of_peak", row.fraction_of_peak}});
  }
  out["skipped"] = report.skipped;
  return out.dump(1);
}

}  // namespace assay::cli
