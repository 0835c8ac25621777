// The oracle against goldens: other people's float64 logits and taps of whole models. What
// `./assay golden verify` runs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/checkpoint/model_config.h"
#include "harness/units/status.h"
#include "reference/golden_file.h"
#include "reference/oracle.h"

namespace assay::reference {

enum class GoldenVerdict { kPass, kFail, kNotExecuted };
// "PASS", "FAIL", "NOT_EXECUTED".
std::string_view NameOf(GoldenVerdict verdict);

// One prompt of one golden. Relative: largest |difference| over the largest |golden value| of the
// tensor. null: the folder has none, or nothing ran.
struct GoldenRow {
  std::string name;    // the golden's folder
  std::string prompt;  // empty: golden.json itself could not be read
  GoldenVerdict verdict = GoldenVerdict::kFail;
  std::string reason;  // empty only for PASS
  std::optional<double> logits_max_rel, taps_max_rel, decode_max_rel;
  std::string worst_tap;
  // What is allowed, and how it came about: of the logits, and of the worst tap.
  double logits_bound = 0, taps_bound = 0;
  std::string derivation;
};

// `root` is laid out like goldens/: goldens/NAME/, checkpoints/NAME/, quantised/NAME/. All goldens,
// by name. A model that the oracle does not know, or that is not on the machine, is a NOT_EXECUTED
// row; a folder that cannot be read is a FAIL row, and so is a fetched model that is not the one
// that was recorded. `models`: where fetched models lie; empty: root/fetched. Error: root has no
// golden at all.
Result<std::vector<GoldenRow>> VerifyGoldens(const std::string& root,
                                             const std::string& models = "");
std::vector<GoldenRow> VerifyGolden(const std::string& root, const std::string& name,
                                    const std::string& models = "");

// One prompt with an oracle that the caller made. `observe` is passed to the compared runs (see
// RunRequest): negative controls.
struct GoldenPrompt {
  std::string folder;  // with golden.json
  std::string name, prompt;
  std::function<void(const Node&, int step, Evaluation*)> observe;
};
GoldenRow VerifyPrompt(const Oracle& oracle, const ModelConfig& config, const GoldenInfo& info,
                       const GoldenPrompt& prompt);

}  // namespace assay::reference
