// A cell's result, as interfaces.md §3 lays it down, and its JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "harness/units/status.h"

namespace assay {

enum class Verdict { kPass, kFail, kRefused, kMistrusted, kSkipped, kNotExecuted, kInfra };
std::string_view NameOf(Verdict verdict);  // "PASS", "FAIL", ...
std::optional<Verdict> VerdictFromName(std::string_view name);

struct ToleranceFacts {  // of the worst element's op
  std::string u_acc;     // "2^-24"
  double depth = 0, c = 0;
  std::vector<std::string> terms;  // "acc", "out", "exp", "wire", "propagated"
};

struct Metrics {
  // Of the cell's last tap. NaN and infinities are written as strings; nullopt: not computed.
  std::optional<double> cosine, rel_l2, max_abs, max_ratio, kld, kld_stderr, top1;
  // Error of the kernel over error of a plain evaluation at its precision; Σ|terms| / |Σ terms| of
  // the worst element.
  std::optional<double> three_way, condition;
  // What other harnesses gate on, shown and never decisive: mean|d| / mean|ref|, Σd² / Σref², and
  // the largest |d| / (1e-2 + 1e-2·|ref|).
  std::optional<double> mean_ratio, nmse, allclose_excess;
  std::optional<int64_t> ambiguous;
  // Of the last tap's accumulated rel-L2: the largest of floor_runs perturbed oracle chains, and
  // whether there were enough of them to decide.
  std::optional<double> noise_floor;
  std::optional<int64_t> floor_runs;
  std::optional<ToleranceFacts> tolerance;
};

struct Signature {
  std::string id;  // closed list: harness/locate/signatures.md
  std::string text, evidence;
};

// A small picture of an error field: rows × columns of cells, each the largest |error| / bound (or,
// of a shard, the share of wrong values) in it.
struct ErrorMap {
  int64_t rows = 0, columns = 0;                // cells
  std::string row_unit, column_unit;            // "row", "token", "group", "column"
  int64_t rows_a_cell = 1, columns_a_cell = 1;  // units in a cell
  std::string value;                            // "ratio" or "wrong"
  std::vector<double> cells;                    // row major
};

struct Divergence {
  std::optional<int64_t> layer;
  std::string op;  // "down"
  std::string tap;
  std::string cls;  // loader, layout, kernel, collective, selection, router, environment
  std::optional<int64_t> rank, expert;
  std::optional<int64_t> step;  // 0 prefill, then decodes; of an op's finding
  std::string tensor;           // component; empty: null
  std::string unit;             // element, group, word, row, expert; empty: null
  std::vector<int64_t> index, local_index;
  std::optional<double> expected, got;
  std::vector<std::string> bits;        // expected, got
  std::vector<std::string> propagated;  // taps
  Signature signature;
  std::optional<ErrorMap> map;
  std::vector<std::string> cleared;  // what substitution cleared: "loader", "kernel", ...
};

struct OpRow {
  std::string tap;  // with "@r1" where it is a rank's
  int step = 0;
  std::optional<double> local, accumulated, cosine, rel_l2;
  std::optional<double> floor = {};  // of accumulated: what honest rounding alone may make of it
};

struct Executed {
  std::string kernel, tier, how, layout, act, engine;
  int64_t tp = 0, threads = 0;
  std::vector<int64_t> ranks_differ;
};

struct CellResult {
  std::string problem;  // canonical
  std::string model_hash;
  Verdict verdict = Verdict::kInfra;
  std::string reason;
  std::optional<Executed> executed;
  std::string mode;  // "exact", "bounded", "bitwise"; empty: null
  Metrics metrics;
  std::vector<Divergence> divergences;
  std::vector<OpRow> ops;
  double ms = 0;
  int attempts = 1;
  std::string repro;
  std::string engine_output;  // what the engine printed, cut; empty: left out
};

// The cells that a run was told to run, frozen before the first: what resuming and merging check.
// Hashes are HashCells() of the cells' canonical problems, those that are skipped included.
struct CellList {
  int64_t count = 0;  // of the whole selection
  std::string hash;
  int64_t shard = 1, shards = 1;  // --shard i/n, 1 <= i <= n
  int64_t own_count = 0;          // of this shard
  std::string own_hash;
  friend bool operator==(const CellList&, const CellList&) = default;
};

// 32 hexadecimal digits: xxh3-128 of the problems in alphabetical order, each and a newline.
std::string HashCells(std::vector<std::string> problems);

// A run is cut into no more shards than this.
inline constexpr int64_t kMostShards = 65536;

// The first line of a run. machine_json and engines_json are JSON texts; a text that is not JSON
// is kept as a string.
struct RunHeader {
  std::string run_id, revision, selection, machine_json, engines_json;
  bool dirty = false;
  int64_t seed = 1;
  std::optional<CellList> cells = {};          // nullopt: written by an earlier version
  std::string emulate = {};                    // --emulate; empty: not recorded
  std::vector<std::string> requirements = {};  // --require, as given
  std::vector<std::string> merged = {};        // run ids of the shards that this is made of
};

struct Totals {
  int64_t registered = 0, collected = 0, executed = 0;  // executed: PASS, FAIL, MISTRUSTED
  int64_t pass = 0, fail = 0, refused = 0, mistrusted = 0, skipped = 0, not_executed = 0, infra = 0;
  void Add(Verdict verdict);
  // collected = executed + refused + skipped + not_executed + infra
  bool adds_up() const;
  // Every registered cell came back with a verdict.
  bool all_collected() const { return registered == collected; }
  friend bool operator==(const Totals&, const Totals&) = default;
};

// The last line of a finished run.
struct Summary {
  Totals totals;
  double seconds = 0;
};

// One line each, without its newline; keys in the order of interfaces.md §3. Bytes that are not
// UTF-8 become U+FFFD.
std::string ToJson(const CellResult& cell);
std::string ToJson(const RunHeader& header);
std::string SummaryJson(const Totals& totals, double seconds);

// The way back. `where` ("DIR/results.jsonl:17") opens the message of an Error (bad input), which
// then names the field and what is allowed. Keys that this version does not know are passed over,
// since later versions may add some; known keys must be there and of their type.
Result<CellResult> CellFromJson(std::string_view line, std::string_view where);
Result<RunHeader> HeaderFromJson(std::string_view line, std::string_view where);
Result<Summary> SummaryFromJson(std::string_view line, std::string_view where);
// Whichever of the three the line's "type" says.
using Line = std::variant<RunHeader, CellResult, Summary>;
Result<Line> LineFromJson(std::string_view line, std::string_view where);

// A JSON text as flat facts for printing: {"cpu":{"model":"X"},"tiers":["a","b"]} gives
// ("cpu.model", "X"), ("tiers", "a b"). A text that is not JSON is one fact without a name.
std::vector<std::pair<std::string, std::string>> FlattenJson(std::string_view text);

// Of every verb that ran nothing.
inline constexpr int kExitNothingExecuted = 125;

// Exit code of a run (interfaces.md §1): 0, 1 or 125. Totals that do not add up, or registered
// cells that were not collected, are a finding.
int ExitCode(const Totals& totals, bool requirement_unmet);

}  // namespace assay
