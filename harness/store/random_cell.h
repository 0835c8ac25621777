// Cells for tests: every field set or left out at random, as a function of the seed.
#pragma once

#include <cstdint>
#include <limits>
#include <random>
#include <string>

#include "harness/store/result.h"

namespace assay {

class CellMaker {
 public:
  explicit CellMaker(uint64_t seed) : random_(seed) {}

  CellResult Make() {
    CellResult cell;
    cell.problem = "moe model=" + Text();
    cell.model_hash = Maybe() ? Text() : "";
    cell.verdict = static_cast<Verdict>(Below(7));
    cell.reason = Text();
    if (Maybe()) {
      cell.executed =
          Executed{Text(), Text(), Text(), Text(), Text(), Text(), Whole(), Whole(), {}};
      if (Maybe()) cell.executed->ranks_differ = {1, 3};
    }
    cell.mode = Maybe() ? "bounded" : "";
    cell.metrics = MakeMetrics();
    for (uint64_t i = Below(3); i > 0; --i) cell.divergences.push_back(MakeDivergence());
    for (uint64_t i = Below(4); i > 0; --i) {
      cell.ops.push_back(
          {Text(), static_cast<int>(Below(5)), Number(), Number(), Number(), Number(), Number()});
    }
    cell.ms = static_cast<double>(Below(100000)) / 7;
    cell.attempts = 1 + static_cast<int>(Below(3));
    cell.repro = Text();
    cell.engine_output = Maybe() ? Text() : "";
    return cell;
  }

 private:
  uint64_t Below(uint64_t limit) { return random_() % limit; }
  bool Maybe() { return Below(2) == 0; }
  int64_t Whole() { return static_cast<int64_t>(Below(1000000)); }
  std::optional<int64_t> MaybeWhole() { return Maybe() ? std::optional(Whole()) : std::nullopt; }

  std::string Text() {
    static const char* kPieces[] = {"a", "B7", " ",      "\"", "\\", "\n",  "\t",
                                    "é", "→",  "\x01",   "<",  "&",  "%20", "\x1b[31m",
                                    "'", "/",  "\u2028", "😀",  "=",  "|",   "\x7f"};
    std::string out;
    for (uint64_t i = Below(12); i > 0; --i) out += kPieces[Below(std::size(kPieces))];
    return out;
  }

  std::optional<double> Number() {
    switch (Below(8)) {
      case 0:
        return std::nullopt;
      case 1:
        return std::numeric_limits<double>::quiet_NaN();
      case 2:
        return std::numeric_limits<double>::infinity();
      case 3:
        return -std::numeric_limits<double>::infinity();
      case 4:
        return static_cast<double>(Whole());
      case 5:
        return -0.0;
      default:
        break;
    }
    // Any finite bit pattern, denormals included.
    for (;;) {
      const uint64_t bits = random_();
      double value;
      static_assert(sizeof(value) == sizeof(bits));
      __builtin_memcpy(&value, &bits, sizeof(value));
      if (value - value == 0) return value;
    }
  }

  Metrics MakeMetrics() {
    Metrics out;
    for (std::optional<double>* field :
         {&out.cosine, &out.rel_l2, &out.max_abs, &out.max_ratio, &out.kld, &out.kld_stderr,
          &out.top1, &out.three_way, &out.condition, &out.mean_ratio, &out.nmse,
          &out.allclose_excess, &out.noise_floor}) {
      *field = Number();
    }
    out.ambiguous = MaybeWhole();
    out.floor_runs = MaybeWhole();
    if (Maybe()) out.tolerance = ToleranceFacts{"2^-24", 71, 35.5, {"acc", "out"}};
    return out;
  }

  Divergence MakeDivergence() {
    Divergence out;
    out.layer = MaybeWhole();
    out.op = Maybe() ? "down" : "";
    out.tap = Maybe() ? Text() : "";
    out.cls = Maybe() ? "loader" : "";
    out.rank = MaybeWhole();
    out.expert = MaybeWhole();
    out.step = MaybeWhole();
    out.tensor = Maybe() ? Text() : "";
    out.unit = Maybe() ? "group" : "";
    if (Maybe()) out.index = {17, 5};
    if (Maybe()) out.local_index = {17, 1};
    out.expected = Number();
    out.got = Number();
    if (Maybe()) out.bits = {"3c49", "3d40"};
    if (Maybe()) out.propagated = {Text(), Text()};
    if (Maybe()) out.signature = {"scales-of-another-rank", Text(), Text()};
    if (Maybe()) out.cleared = {"kernel"};
    return out;
  }

  std::mt19937_64 random_;
};

}  // namespace assay
