// The error field of one op: what its structure alone says.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "harness/locate/internal.h"

namespace assay::locate {

Field::Field(const judge::OpJudgement& judgement, DType out)
    : judgement_(judgement), u_out_(UnitRoundoff(out)) {
  rows_ = judgement.oracle.rows();
  columns_ = judgement.oracle.columns();
  const size_t n = judgement.oracle.data.size();
  if (judgement.kernel.data.size() != n) rows_ = columns_ = 0;
  wrong_.assign(n, 0);
  for (int64_t i = 0; i < rows_ * columns_; ++i) {
    const bool same = oracle(i) == kernel(i) || (std::isnan(oracle(i)) && std::isnan(kernel(i)));
    if (!same && !(Explains(i, oracle(i)))) {
      wrong_[i] = 1;
      ++count_;
    }
  }
  if (count_ > 0) return;
  // Exact data: wrong by less than any bound.
  for (int64_t i = 0; i < rows_ * columns_; ++i) {
    if (RoundTo(oracle(i), out) == kernel(i)) continue;
    wrong_[i] = 1;
    ++count_;
  }
}

bool Field::Explains(int64_t i, double other, double factor) const {
  const double k = kernel(i);
  if (!std::isfinite(k) || !std::isfinite(other)) return k == other;
  return std::abs(k - other) <= Slack(i, other, factor);
}

double Field::Slack(int64_t i, double other, double factor) const {
  const double own = i < static_cast<int64_t>(judgement_.tolerance.bound.size())
                         ? judgement_.tolerance.bound[i]
                         : 0;
  // The bound was made for the oracle's value; a larger one is rounded by a larger step.
  const double larger = std::max(0.0, HalfUlp(std::abs(other) + own) - HalfUlp(oracle(i)));
  return own * std::max(1.0, std::abs(factor)) + larger;
}

double Field::HalfUlp(double value) const {
  return value != 0 && std::isfinite(value) ? std::ldexp(u_out_, std::ilogb(value)) : 0;
}

namespace {

std::string Share(int64_t n, int64_t all, std::string_view what) {
  return fmt::format("{} of {} {}", n, all, what);
}

bool HasInfinities(const Field& f) {
  for (int64_t i = 0; i < f.rows() * f.columns(); ++i) {
    if (std::isinf(f.oracle(i))) return true;
  }
  return false;
}

std::optional<Signature> NonFinite(const Field& f) {
  int64_t finite_due = 0, infinite_due = 0;
  for (int64_t i = 0; i < f.rows() * f.columns(); ++i) {
    if (std::isfinite(f.oracle(i))) {
      finite_due += !std::isfinite(f.kernel(i));
    } else {
      infinite_due += std::isnan(f.kernel(i)) && !std::isnan(f.oracle(i));
    }
  }
  if (finite_due + infinite_due == 0) return std::nullopt;
  return Signature{"nan-leak",
                   finite_due > 0 ? "not finite where finite values are due"
                                  : "NaN where the mask's -inf is due",
                   Share(finite_due + infinite_due, f.rows() * f.columns(), "elements")};
}

// Six digits, or, near one, three of what it differs by.
std::string FactorText(double factor) {
  const double off = std::abs(factor - 1);
  if (off == 0 || off >= 1e-3) return fmt::format("{:.6g}", factor);
  return fmt::format("{:.{}f}", factor, 2 - static_cast<int>(std::floor(std::log10(off))));
}

// One factor for all wrong elements, fitted where the value is largest.
std::optional<Signature> Factor(const Field& f, int tp) {
  if (f.ExplainsAll([](int64_t) { return 0.0; })) {
    return Signature{"constant-factor", "zero where values were due (factor 0)",
                     Share(f.wrong_count(), f.rows() * f.columns(), "elements")};
  }
  double yy = 0, yk = 0;
  for (int64_t i = 0; i < f.rows() * f.columns(); ++i) {
    if (!f.wrong(i) || !std::isfinite(f.oracle(i))) continue;
    yy += f.oracle(i) * f.oracle(i);
    yk += f.oracle(i) * f.kernel(i);
  }
  if (yy == 0 || f.wrong_count() < 2) return std::nullopt;
  const double fitted = yk / yy, parts = tp;
  for (const double factor : {2.0, 0.5, parts, 1 / parts, -1.0, fitted}) {
    if (factor == 1) continue;
    if (!f.ExplainsAll([&](int64_t i) { return factor * f.oracle(i); }, factor)) continue;
    std::string name = FactorText(factor);
    if (tp > 1 && factor == parts) name += " = tp";
    if (tp > 1 && factor == 1 / parts) name += " = 1/tp";
    return Signature{"constant-factor", fmt::format("every wrong value times {}", name),
                     Share(f.wrong_count(), f.rows() * f.columns(), "elements")};
  }
  return std::nullopt;
}

std::optional<Signature> Offset(const Field& f) {
  // Per column, so that a bias shows; needs two rows to tell anything. Each row allows a range of
  // offsets: what all allow, nothing if that may be, else the middle.
  if (f.rows() < 2 || f.wrong_count() < 2) return std::nullopt;
  std::vector<double> offset(static_cast<size_t>(f.columns()));
  for (int64_t c = 0; c < f.columns(); ++c) {
    double low = -INFINITY, high = INFINITY;
    for (int64_t r = 0; r < f.rows(); ++r) {
      const int64_t i = r * f.columns() + c;
      const double slack = f.Slack(i, f.kernel(i));
      low = std::max(low, f.kernel(i) - f.oracle(i) - slack);
      high = std::min(high, f.kernel(i) - f.oracle(i) + slack);
    }
    if (!(low <= high)) return std::nullopt;
    offset[c] = low <= 0 && high >= 0 ? 0 : (low + high) / 2;
  }
  for (int64_t i = 0; i < f.rows() * f.columns(); ++i) {
    if (!f.Explains(i, f.oracle(i) + offset[i % f.columns()])) return std::nullopt;
  }
  return Signature{
      "offset", "the same amount added in every row (as a bias is)",
      fmt::format("{:.6g} in the first wrong column, all {} rows",
                  *std::find_if(offset.begin(), offset.end(), [](double v) { return v != 0; }),
                  f.rows())};
}

std::optional<Signature> Clamp(const Field& f) {
  double limit = 0;
  for (int64_t i = 0; i < f.rows() * f.columns(); ++i) {
    if (!f.wrong(i)) continue;
    const double k = std::abs(f.kernel(i));
    if (limit == 0) limit = k;
    const bool cut = k == limit && std::abs(f.oracle(i)) > limit &&
                     std::signbit(f.kernel(i)) == std::signbit(f.oracle(i));
    if (!cut) return std::nullopt;
  }
  if (limit == 0 || f.wrong_count() < 2) return std::nullopt;
  return Signature{"clamped", fmt::format("cut at {:.6g}", limit),
                   Share(f.wrong_count(), f.rows() * f.columns(), "elements")};
}

std::optional<Signature> Shifted(const Field& f) {
  for (int64_t s = 1; 2 * s <= f.columns(); ++s) {
    for (const int64_t shift : {s, -s}) {
      bool holds = true;
      for (int64_t i = 0; i < f.rows() * f.columns() && holds; ++i) {
        const int64_t c = i % f.columns() + shift;
        if (c >= 0 && c < f.columns()) holds = f.Explains(i, f.oracle(i + shift));
      }
      if (holds) {
        return Signature{"columns-shifted", fmt::format("columns shifted by {}", shift),
                         Share(f.rows(), f.rows(), "rows")};
      }
    }
  }
  return std::nullopt;
}

// Each wrong column has the values of another one; the same for rows.
std::optional<Signature> Exchanged(const Field& f, bool columns) {
  const int64_t n = columns ? f.columns() : f.rows(), across = columns ? f.rows() : f.columns();
  auto at = [&](int64_t one, int64_t other) {
    return columns ? other * f.columns() + one : one * f.columns() + other;
  };
  int64_t moved = 0, first = -1, from = -1;
  std::set<int64_t> taken;
  for (int64_t a = 0; a < n; ++a) {
    bool any = false;
    for (int64_t j = 0; j < across; ++j) any = any || f.wrong(at(a, j));
    if (!any) continue;
    int64_t found = -1;
    for (int64_t b = 0; b < n && found < 0; ++b) {
      if (a == b || taken.count(b) > 0) continue;
      bool holds = true;
      for (int64_t j = 0; j < across && holds; ++j) {
        holds = f.Explains(at(a, j), f.oracle(at(b, j)));
      }
      if (holds) found = b;
    }
    if (found < 0) return std::nullopt;
    taken.insert(found);
    if (moved++ == 0) {
      first = a;
      from = found;
    }
  }
  if (moved < 2) return std::nullopt;
  const char* what = columns ? "column" : "row";
  return Signature{fmt::format("{}s-permuted", what),
                   fmt::format("{} {} where {} {} was due", what, from, what, first),
                   fmt::format("{} {}s are others of their op", moved, what)};
}

// Which rows and columns are wrong at all.
std::optional<Signature> Region(const Field& f) {
  std::set<int64_t> rows, columns;
  for (int64_t i = 0; i < f.rows() * f.columns(); ++i) {
    if (!f.wrong(i)) continue;
    rows.insert(i / f.columns());
    columns.insert(i % f.columns());
  }
  if (rows.empty()) return std::nullopt;
  const auto r = static_cast<int64_t>(rows.size()), c = static_cast<int64_t>(columns.size());
  const bool last_columns = c < f.columns() && *columns.rbegin() == f.columns() - 1 &&
                            *columns.begin() == f.columns() - c;
  if (last_columns) {
    return Signature{"last-columns", fmt::format("only the last {} columns are wrong", c),
                     Share(c, f.columns(), "columns")};
  }
  if (r < f.rows()) {
    const bool last = *rows.rbegin() == f.rows() - 1 && *rows.begin() == f.rows() - r;
    if (last) {
      return Signature{"last-rows", fmt::format("only the last {} rows are wrong", r),
                       Share(r, f.rows(), "rows")};
    }
    return Signature{
        "some-rows",
        fmt::format("only {} of {} rows are wrong, the first is {}", r, f.rows(), *rows.begin()),
        Share(r, f.rows(), "rows")};
  }
  // In a single row, or for most of them, this would say nothing.
  if (f.rows() > 1 && 2 * c <= f.columns()) {
    return Signature{"some-columns",
                     fmt::format("only {} of {} columns are wrong, the first is {}", c, f.columns(),
                                 *columns.begin()),
                     Share(c, f.columns(), "columns")};
  }
  return std::nullopt;
}

}  // namespace

namespace {

// As few columns as tell one row from another.
constexpr int64_t kTellingColumns = 4;
// Tiles of token rows have at least so many.
constexpr int64_t kLeastTile = 4;

std::vector<int64_t> WrongRows(const Field& f) {
  std::vector<int64_t> rows;
  for (int64_t r = 0; r < f.rows(); ++r) {
    for (int64_t c = 0; c < f.columns(); ++c) {
      if (!f.wrong(r * f.columns() + c)) continue;
      rows.push_back(r);
      break;
    }
  }
  return rows;
}

// A right row whose due values this one has; −1: none.
int64_t CopiedFrom(const Field& f, int64_t row, const std::vector<int64_t>& wrong) {
  for (int64_t s = 0; s < f.rows(); ++s) {
    if (std::find(wrong.begin(), wrong.end(), s) != wrong.end()) continue;
    bool same = true;
    for (int64_t c = 0; c < f.columns() && same; ++c) {
      same = f.Explains(row * f.columns() + c, f.oracle(s * f.columns() + c));
    }
    if (same) return s;
  }
  return -1;
}

}  // namespace

std::optional<Signature> TokenRow(const Field& field) {
  const std::vector<int64_t> wrong = WrongRows(field);
  if (wrong.empty() || static_cast<int64_t>(wrong.size()) == field.rows() ||
      field.columns() < kTellingColumns) {
    return std::nullopt;
  }
  const std::string share = Share(static_cast<int64_t>(wrong.size()), field.rows(), "rows");
  const bool copies = std::all_of(wrong.begin(), wrong.end(),
                                  [&](int64_t row) { return CopiedFrom(field, row, wrong) >= 0; });
  if (copies) {
    return Signature{"token-row",
                     fmt::format("row {} is the result of row {}'s input", wrong[0],
                                 CopiedFrom(field, wrong[0], wrong)),
                     share + ", each the result of a right row"};
  }
  if (wrong.size() < 2) return std::nullopt;
  const int64_t tile = wrong[1] - wrong[0], at = wrong[0];
  if (tile < kLeastTile || at >= tile) return std::nullopt;
  std::vector<int64_t> due;
  for (int64_t row = at; row < field.rows(); row += tile) due.push_back(row);
  if (due != wrong) return std::nullopt;
  return Signature{"token-row", fmt::format("only rows {} modulo {} are wrong", at, tile), share};
}

std::optional<Signature> FieldSignature(const Field& field, int tp) {
  if (field.rows() == 0) return std::nullopt;
  // Masked scores that changed places with others are a permutation.
  if (HasInfinities(field)) {
    if (auto s = Exchanged(field, true)) return s;
    if (auto s = Exchanged(field, false)) return s;
  }
  if (auto s = NonFinite(field)) return s;
  if (auto s = Factor(field, tp)) return s;
  if (auto s = Shifted(field)) return s;
  if (auto s = Exchanged(field, true)) return s;
  if (auto s = TokenRow(field)) return s;
  if (auto s = Exchanged(field, false)) return s;
  if (auto s = Clamp(field)) return s;
  if (auto s = Offset(field)) return s;
  return Region(field);
}

}  // namespace assay::locate
