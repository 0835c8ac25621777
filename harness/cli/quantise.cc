// quantise: a dense checkpoint in another storage method, to make a small test case of.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdio>

#include "harness/checkpoint/checkpoint.h"
#include "harness/cli/options.h"
#include "harness/cli/verbs.h"
#include "harness/run/model.h"
#include "harness/run/problem.h"
#include "harness/units/scheme.h"
#include "kernels/methods/convert.h"

namespace assay::cli {
namespace {

// One line that is written over, on a terminal; nothing elsewhere.
void ShowProgress(int64_t done, int64_t total) {
  if (isatty(STDERR_FILENO) == 0 || total <= 0) return;
  std::fputs(fmt::format("\r{:>3} % of {:.1f} GB", 100 * done / total,
                         static_cast<double>(total) / 1e9)
                 .c_str(),
             stderr);
  if (done == total) std::fputc('\n', stderr);
}

int Refuse(const Error& error) {
  // What cannot be converted is bad input; what the machine cannot do is not.
  std::fputs(fmt::format("assay: {}\n", error.message).c_str(), stderr);
  return error.kind == ErrorKind::kEnvironment ? 1 : 2;
}

}  // namespace

int Quantise(int argc, char** argv) {
  std::vector<std::string> words;
  std::string method, out;
  int64_t seed = 1;
  Options options("quantise",
                  "Writes a dense checkpoint (F32, F16 or BF16) in another storage method, as its "
                  "producers store it: rounded to nearest, nothing calibrated. One tensor at a "
                  "time, at any size.",
                  "./assay quantise k2-mini --method ct-int4-g32 --out k2-int4");
  options.Words("model", &words, "a shipped name, or the path of a checkpoint");
  options.Value("--method", &method, "a method id: ./assay help problem names them");
  options.Value("--out", &out, "a new or empty folder");
  options.Number("--seed", &seed, 0, 1 << 30, "of act-order: which columns share a group");
  if (auto code = options.Parse(argc, argv)) return *code;
  if (words.size() != 1) return BadUsage("quantise takes one checkpoint");
  if (out.empty()) return BadUsage("quantise needs --out, a new or empty folder");
  const auto scheme = ParseScheme(method);
  if (!scheme) {
    const std::vector<std::string> known = KnownSchemes();
    const std::string nearest = run::Nearest(method, known);
    return BadUsage(fmt::format("--method {}: unknown value{}; allowed: {} (other sizes too)",
                                method, nearest.empty() ? "" : "; did you mean " + nearest + "?",
                                fmt::join(known, " ")));
  }
  auto path = run::PathOfModel(words.front());
  if (!path) return BadUsage(path.error().message);
  auto checkpoint = Checkpoint::Open(*path);
  if (!checkpoint) return Refuse(checkpoint.error());
  kernels::ConvertOptions convert;
  convert.pack.seed = static_cast<uint64_t>(seed);
  convert.progress = ShowProgress;
  const Status written = kernels::WriteConverted(**checkpoint, (*checkpoint)->config_json(),
                                                 *scheme, convert, out);
  if (!written) return Refuse(written.error());
  std::puts(fmt::format("{} as {}: {}", words.front(), NameOf(*scheme), out).c_str());
  return 0;
}

}  // namespace assay::cli
