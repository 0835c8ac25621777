// What kind of mistake a wrong shard shows. Signatures are tried from the most telling to the
// least; each is a relation that must hold for every value of the shard, so none is a guess.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "harness/locate/shard_tests.h"

namespace assay::locate {
namespace {

using Test = std::function<std::optional<Signature>(const ShardCase&)>;

// Filled by the harness before the load and never written: all bits set, or NaN.
std::optional<Signature> Poison(const ShardCase& c) {
  const DType dtype = c.expected->dtype;
  const uint64_t ones = c.want.width == 8 ? ~uint64_t{0} : (uint64_t{1} << 8 * c.want.width) - 1;
  const bool poisoned = AllWrong(c, [&](size_t i) {
    if (c.got.bits[i] == ones) return true;
    const double value = IsFloat(dtype) ? NumberOf(c.got.bits[i], dtype) : 0;
    return std::isnan(value);
  });
  if (!poisoned) return std::nullopt;
  return Signature{
      "never-loaded", "poison where values were due: never written",
      fmt::format("{} of {} {}s are poison", WrongCount(c), c.want.bits.size(), c.unit())};
}

std::optional<Signature> Zero(const ShardCase& c) {
  if (!AllWrong(c, [&](size_t i) { return c.got.bits[i] == 0; })) return std::nullopt;
  return Signature{
      "zero-filled", "zeros where values were due",
      fmt::format("{} of {} {}s are zero", WrongCount(c), c.want.bits.size(), c.unit())};
}

// Left from the load before.
std::optional<Signature> Stale(const ShardCase& c) {
  if (c.decoy == nullptr) return std::nullopt;
  const auto before = BitsOf(c, c.component, c.where, c.decoy);
  if (!before || !AllWrong(c, [&](size_t i) { return c.got.bits[i] == (*before)[i]; })) {
    return std::nullopt;
  }
  return Signature{"stale", "values of the load before",
                   fmt::format("{} wrong {}s of {}, all equal to what was loaded before",
                               WrongCount(c), c.unit(), c.want.bits.size())};
}

std::optional<Signature> AnotherRank(const ShardCase& c) {
  for (int r = 0; r < c.where.degrees.tp; ++r) {
    if (r == c.where.rank) continue;
    const auto theirs = BitsOf(c, c.component, {c.where.degrees, r});
    if (!theirs || *theirs != c.got.bits) continue;
    const bool scale = SuffixOf(c.component) == ".scale";
    return Signature{
        scale ? "scales-of-another-rank" : "shard-of-another-rank",
        fmt::format("{} of rank {} on rank {}", scale ? "scales" : "values", r, c.where.rank),
        fmt::format("{} equal rank {}'s", Units(c), r)};
  }
  return std::nullopt;
}

std::string Replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.rfind(from);
  return at == std::string::npos ? "" : text.replace(at, from.size(), to);
}

std::optional<Signature> GateUp(const ShardCase& c) {
  std::string sibling = Replaced(c.component, ".gate.", ".up.");
  if (sibling.empty()) sibling = Replaced(c.component, ".up.", ".gate.");
  if (sibling.empty()) return std::nullopt;
  const auto theirs = BitsOf(c, sibling, c.where);
  if (!theirs || *theirs != c.got.bits) return std::nullopt;
  return Signature{"gate-up-swapped", fmt::format("gate and up swapped on rank {}", c.where.rank),
                   fmt::format("{} equal {}'s", Units(c), sibling)};
}

// Words whose nibbles were moved or re-signed.
std::optional<Signature> Nibbles(const ShardCase& c) {
  auto swap = [](uint64_t w) {
    return (w & 0x0f0f0f0f0f0f0f0f) << 4 | (w >> 4 & 0x0f0f0f0f0f0f0f0f);
  };
  // A block's codes lie beside its scale, which stays: of one byte this would say nothing.
  if (c.expected->unit == "block" && WrongCount(c) > 1 &&
      AllWrong(c, [&](size_t i) { return c.got.bits[i] == swap(c.want.bits[i]); })) {
    return Signature{"nibble-swapped", "high and low nibble of each byte of codes swapped",
                     fmt::format("{} of {} bytes", WrongCount(c), c.want.bits.size())};
  }
  if (c.expected->unit != "word") return std::nullopt;
  const int count = 2 * c.want.width;
  auto moved = [&](uint64_t w, auto place) {
    uint64_t out = 0;
    for (int i = 0; i < count; ++i) out |= (w >> (4 * i) & 15) << (4 * place(i));
    return out;
  };
  const uint64_t eights = 0x8888888888888888u >> (64 - 8 * c.want.width);
  const auto& want = c.want.bits;
  const auto& got = c.got.bits;
  // Some words are their own swap: of the wrong ones alone it is asked.
  if (WrongCount(c) >= kEnough && AllWrong(c, [&](size_t i) { return got[i] == swap(want[i]); })) {
    return Signature{"nibble-swapped", "high and low nibble of each byte swapped", Wrong(c)};
  }
  if (All(c, [&](size_t i) { return got[i] == (want[i] ^ eights); })) {
    return Signature{"sign-convention", "two's complement against codes offset by 8", Units(c)};
  }
  auto interleave = [&](int i) { return i % 2 == 0 ? i / 2 : count / 2 + i / 2; };
  auto deinterleave = [&](int i) { return i < count / 2 ? 2 * i : 2 * (i - count / 2) + 1; };
  auto reverse = [&](int i) { return count - 1 - i; };
  auto bytes = [&](int i) { return (count / 2 - 1 - i / 2) * 2 + i % 2; };
  const bool ordered = All(c, [&](size_t i) { return got[i] == moved(want[i], interleave); }) ||
                       All(c, [&](size_t i) { return got[i] == moved(want[i], deinterleave); }) ||
                       All(c, [&](size_t i) { return got[i] == moved(want[i], reverse); }) ||
                       All(c, [&](size_t i) { return got[i] == moved(want[i], bytes); });
  if (ordered) return Signature{"nibble-order", "nibbles of a word in another order", Units(c)};
  for (uint64_t step : {uint64_t{1}, uint64_t{15}}) {
    auto offset = [&](uint64_t w) {
      uint64_t out = 0;
      for (int i = 0; i < count; ++i) out |= (((w >> (4 * i)) + step) & 15) << (4 * i);
      return out;
    };
    if (All(c, [&](size_t i) { return got[i] == offset(want[i]); })) {
      return Signature{"code-offset", fmt::format("each code {} by one", step == 1 ? "up" : "down"),
                       Units(c)};
    }
  }
  return std::nullopt;
}

std::optional<Signature> Factor(const ShardCase& c) {
  if (!IsFloat(c.expected->dtype)) return std::nullopt;
  double factor = 0;
  const bool constant = All(c, [&](size_t i) {
    const double want = NumberOf(c.want.bits[i], c.expected->dtype);
    const double got = NumberOf(c.got.bits[i], c.expected->dtype);
    if (want == 0) return got == 0;
    if (factor == 0) factor = got / want;
    return got != 0 && RoundTo(factor * want, c.expected->dtype) == got;
  });
  if (!constant || factor == 0 || factor == 1) return std::nullopt;
  return Signature{factor == -1 ? "sign-convention" : "constant-factor",
                   fmt::format("every value times {:.6g}", factor), Units(c)};
}

// Does row r of the shard, where it is wrong, lie at place(r) of the whole tensor? Places past its
// end hold what nobody knows: they count for nothing, and most rows must be inside.
template <class F>
bool LiesAt(const ShardCase& c, const Values& whole, F place) {
  const int64_t n = c.want.columns, end = static_cast<int64_t>(whole.bits.size());
  int64_t wrong = 0, inside = 0;
  for (int64_t r = 0; r < c.want.rows; ++r) {
    const uint64_t* got = &c.got.bits[r * n];
    if (std::equal(got, got + n, &c.want.bits[r * n])) continue;
    ++wrong;
    const int64_t at = place(r);
    if (at < 0 || at + n > end) continue;
    if (!std::equal(got, got + n, &whole.bits[at])) return false;
    ++inside;
  }
  return 2 * inside > wrong;
}

// All rows from a constant number of rows away. Of a tensor that is cut by rows, the cut is wrong.
Signature FromRow(const ShardCase& c, int64_t row, int64_t due_row, const std::string& evidence) {
  const bool table = c.component == "embed.weight" || c.component == "logits.weight";
  const auto whole = c.oracle->ExpectedSlice(c.component, {c.where.degrees, -1});
  const bool cut = whole.ok() && whole->rows.size() > c.expected->rows.size();
  const std::string& unit = c.expected->row_unit;
  return {table ? "vocabulary-cut"
          : cut ? "misaligned-shard"
                : "permuted-rows",
          fmt::format("{} {} of the {} where {} {} was due", unit == "element" ? "row" : unit, row,
                      table ? "vocabulary" : "tensor", unit == "element" ? "row" : unit, due_row),
          evidence};
}

// Rows read from another place of the tensor: a constant distance from where they should be, or
// one after the other as if the rows were as short as the shard's.
std::optional<Signature> FindDisplaced(const ShardCase& c, const Values& whole, int64_t due_row,
                                       int64_t due, const std::string& unit) {
  const int64_t origin = due_row * whole.columns + due, n = c.want.columns;
  const int64_t last = static_cast<int64_t>(whole.bits.size()) - n;
  // In a tensor that is nearly constant a row is found everywhere, and its place says nothing; to
  // look at all of them would take the square of the tensor.
  constexpr int kMostPlaces = 64;
  int places = 0;
  for (int64_t at = 0; at <= last; ++at) {
    if (at == origin || !std::equal(&c.got.bits[0], &c.got.bits[n], &whole.bits[at])) continue;
    if (++places > kMostPlaces) return std::nullopt;
    const bool strided = LiesAt(c, whole, [&](int64_t r) { return at + r * whole.columns; });
    if (!strided && !LiesAt(c, whole, [&](int64_t r) { return at + r * n; })) continue;
    const int64_t row = at / whole.columns, column = at % whole.columns;
    const std::string evidence =
        fmt::format("the wrong rows lie from flat {} {} on, {}", unit, at,
                    strided ? "at the tensor's own row stride" : "one directly after the other");
    if (strided && column == due) return FromRow(c, row, due_row, evidence);
    if (strided && row == due_row && std::abs(column - due) == 1 && unit == "group") {
      return Signature{"shift-by-a-group",
                       fmt::format("groups from global group {} where {} was due", column, due),
                       evidence};
    }
    return Signature{
        "misaligned-shard",
        row == due_row
            ? fmt::format("{}s from global column {} where {} was due", unit, column, due)
            : fmt::format("{}s from global column {} where {} was due (row {} where "
                          "row {} was due)",
                          unit, column, due, row, due_row),
        evidence};
  }
  return std::nullopt;
}

std::optional<Signature> Displaced(const ShardCase& c) {
  auto slice = c.oracle->ExpectedSlice(c.component, {c.where.degrees, -1});
  if (!slice.ok() || c.want.columns == 0 || c.want.rows == 0) return std::nullopt;
  const auto rows = static_cast<int64_t>(slice->rows.size());
  const auto columns = static_cast<int64_t>(slice->columns.size());
  const int64_t parts = PartsOf(slice->dtype);
  const int64_t due_row = c.expected->rows[0], due = c.expected->columns[0] * parts;
  if (due_row < 0 || due < 0) return std::nullopt;
  const Values whole = Unpack(slice->bytes, rows, columns, slice->dtype);
  auto found = FindDisplaced(c, whole, due_row, due, c.unit());
  if (found || c.expected->unit != "word") return found;
  // A place inside a word.
  auto bytes = [&](const Values& v) {
    Values out;
    out.rows = v.rows;
    out.columns = v.columns * v.width;
    out.width = 1;
    for (const uint64_t bits : v.bits) {
      for (int i = 0; i < v.width; ++i) out.bits.push_back(bits >> (8 * i) & 255);
    }
    return out;
  };
  ShardCase fine = c;
  fine.want = bytes(c.want);
  fine.got = bytes(c.got);
  return FindDisplaced(fine, bytes(whole), due_row, due * c.want.width, "byte");
}

// Each wrong row is another row of the same columns.
std::optional<Signature> PermutedRows(const ShardCase& c) {
  const int64_t n = c.want.columns;
  std::map<Bits, int64_t> place;
  for (int64_t r = 0; r < c.want.rows; ++r) {
    place.emplace(Bits(c.want.bits.begin() + r * n, c.want.bits.begin() + (r + 1) * n), r);
  }
  int64_t wrong = 0, first = -1, from = -1;
  for (int64_t r = 0; r < c.want.rows; ++r) {
    const Bits got(c.got.bits.begin() + r * n, c.got.bits.begin() + (r + 1) * n);
    if (std::equal(got.begin(), got.end(), &c.want.bits[r * n])) continue;
    const auto found = place.find(got);
    if (found == place.end()) return std::nullopt;
    if (wrong++ == 0) {
      first = r;
      from = found->second;
    }
  }
  // A single row that equals another one was overwritten, not permuted: that is stale data.
  if (wrong < 2) return std::nullopt;
  return Signature{"permuted-rows",
                   fmt::format("row {} of the tensor where row {} was due", c.expected->rows[from],
                               c.expected->rows[first]),
                   fmt::format("{} wrong rows are other rows of the shard", wrong)};
}

// Rows whose values moved within the shard by a constant number of columns, the rest unknown.
std::optional<Signature> Shifted(const ShardCase& c) {
  const int64_t n = c.want.columns;
  for (int64_t shift = 1; shift < n; ++shift) {
    for (const int64_t s : {shift, -shift}) {
      bool holds = true;
      for (int64_t r = 0; r < c.want.rows && holds; ++r) {
        for (int64_t k = std::max<int64_t>(0, -s); k < std::min(n, n - s) && holds; ++k) {
          holds = c.got.at(r, k) == c.want.at(r, k + s);
        }
      }
      // A shift that leaves less than half of a row to compare shows nothing.
      if (!holds || 2 * shift > n) continue;
      const int64_t parts = PartsOf(c.expected->dtype);
      const bool group = shift == parts && (c.expected->unit == "group" || parts > 1);
      return Signature{group ? "shift-by-a-group" : "shifted-columns",
                       fmt::format("{}s shifted by {} within the rows", c.unit(), s),
                       fmt::format("{} of {} rows", c.want.rows, c.want.rows)};
    }
  }
  return std::nullopt;
}

std::optional<Signature> Permuted(const ShardCase& c) {
  const int64_t n = c.want.columns, rows = c.want.rows;
  bool transposed = rows * n > 1;
  for (int64_t i = 0; i < rows * n && transposed; ++i) {
    transposed = c.got.bits[i] == c.want.at(i % rows, i / rows);
  }
  if (transposed) return Signature{"transposed", "rows and columns exchanged", Units(c)};
  for (int64_t r = 0; r < rows; ++r) {
    Bits want(c.want.bits.begin() + r * n, c.want.bits.begin() + (r + 1) * n);
    Bits got(c.got.bits.begin() + r * n, c.got.bits.begin() + (r + 1) * n);
    std::sort(want.begin(), want.end());
    std::sort(got.begin(), got.end());
    if (want != got) return std::nullopt;
  }
  return Signature{"permuted-columns", "each row has its own values in another order", Units(c)};
}

}  // namespace

Signature ShardSignature(const ShardCase& wrong) {
  const Test tests[] = {
      Stale,         PaddingNotZero, CodesClamped, ExtremeCodes, SmallScalesLost, Poison,
      Zero,          AnotherRank,    GateUp,       FusedOrder,   GroupIndex,      ZeroPoints,
      AnotherModule, MergedScale,    Nibbles,      ByteOrder,    FnuzFactor,      ScaleConverted,
      Displaced,     OtherStride,    PermutedRows, Shifted,      Permuted,        Factor,
      ExpertTable,   ReplicaDiffers};
  for (const Test& test : tests) {
    if (auto signature = test(wrong)) return *signature;
  }
  return {
      "unknown", "no known pattern",
      fmt::format("{} of {} {}s differ", WrongCount(wrong), wrong.want.bits.size(), wrong.unit())};
}

}  // namespace assay::locate
