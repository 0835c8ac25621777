// Discrete decisions (numerics.md §1.5): a differing choice is wrong only where the oracle's margin
// is beyond what rounding of the deciding scores could close.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/judge/internal.h"

namespace assay::judge {
namespace {

// Empty if the row is a legal choice: ascending, distinct, in range.
std::string Illegal(const double* row, int64_t top_k, int64_t experts) {
  for (int64_t i = 0; i < top_k; ++i) {
    if (row[i] != std::floor(row[i]) || row[i] < 0 || row[i] >= static_cast<double>(experts)) {
      return fmt::format("id {} is not in [0, {})", row[i], experts);
    }
    if (i > 0 && row[i] == row[i - 1]) return fmt::format("id {} is there twice", row[i]);
    if (i > 0 && row[i] < row[i - 1]) {
      return fmt::format("ids are not ascending: {} after {}", row[i], row[i - 1]);
    }
  }
  return "";
}

}  // namespace

double ScoreTolerance(const IdsRequest& request, int64_t row) {
  const int64_t experts = request.scores->columns();
  double top = 0, shown = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const size_t at = static_cast<size_t>(row * experts + e);
    top = std::max(top, std::abs(request.scores->data[at]));
    if (request.scores_error != nullptr) {
      shown = std::max(shown, request.scores_error->data[at]);
    }
  }
  // c = s + bias rounds once; a group's score is the sum of two c and rounds again: 2 + 2 times
  // u·max|c|. An error of the scores enters a group's score twice.
  return 4 * request.u_acc * (top + request.bias_max) + 2 * shown;
}

bool CompareIds(const IdsRequest& request, const reference::Tensor& kernel,
                OpJudgement* judgement) {
  OpJudgement& j = *judgement;
  const reference::Tensor& oracle = request.evaluation->value;
  const reference::Tensor& margin = request.evaluation->margin;
  const int64_t rows = oracle.rows(), top_k = oracle.columns();
  const int64_t experts = request.scores->columns();
  j.judged = true;
  j.mode = "discrete";
  j.elements = rows * top_k;
  bool legal = true;
  for (int64_t r = 0; r < rows; ++r) {
    const double* want = oracle.data.data() + r * top_k;
    const double* got = kernel.data.data() + r * top_k;
    const std::string illegal = Illegal(got, top_k, experts);
    legal = legal && illegal.empty();
    if (illegal.empty() && std::equal(want, want + top_k, got)) continue;
    const double tolerance = ScoreTolerance(request, r);
    const double gap = margin.data.empty() ? std::numeric_limits<double>::infinity()
                                           : margin.data[static_cast<size_t>(r)];
    if (illegal.empty() && !request.forced && gap <= 2 * tolerance) {
      ++j.ambiguous;
      // Not a matter of the last place: hidden scores leave the choice open.
      if (request.scores_error != nullptr) j.proves_nothing += top_k;
      continue;
    }
    const int64_t at = std::mismatch(want, want + top_k, got).first - want;
    const int64_t column = std::min(at, top_k - 1);
    j.wrong += std::max<int64_t>(1, top_k - std::count_if(got, got + top_k, [&](double id) {
                                      return std::find(want, want + top_k, id) != want + top_k;
                                    }));
    if (j.first >= 0) continue;
    j.first = j.worst = r * top_k + column;
    j.expected = want[column];
    j.got = got[column];
    j.max_ratio = std::numeric_limits<double>::infinity();
    j.reason = illegal.empty()
                   ? fmt::format(
                         "token {}: another choice although the margin {:.3g} exceeds 2·tol "
                         "= {:.3g}{}",
                         r, gap, 2 * tolerance, request.forced ? " (forced routing)" : "")
                   : fmt::format("token {}: {}", r, illegal);
  }
  j.tolerance.u_acc = request.u_acc;
  j.tolerance.depth = j.tolerance.c = 4;
  j.tolerance.terms = {
      {"margin",
       fmt::format("differs only if margin > 2·(4·u·(max|s| + max|bias|) + 2·Δs), u = {}, "
                   "max|bias| = {:.3g}",
                   PowerText(request.u_acc), request.bias_max)}};
  j.pass = j.wrong == 0;
  return legal;
}

}  // namespace assay::judge
