#include "harness/store/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace assay {
namespace {

struct Shard {
  std::string dir;
  RunRecord record;
  const CellList& cells() const { return *record.header.cells; }
  std::string name() const { return fmt::format("shard {}/{}", cells().shard, cells().shards); }
};

// The recorded selection without its shard, which KeepShard puts at its end.
std::string WholeSelection(const std::string& selection) {
  return selection.substr(0, selection.rfind(" --shard "));
}

struct Fact {
  const char* name;
  std::string value;
};

// What shards of one run have in common.
std::vector<Fact> Common(const RunHeader& header) {
  std::string requirements;
  for (const std::string& text : header.requirements) requirements += text + " ";
  return {{"revision", header.revision + (header.dirty ? " with changes" : "")},
          {"selection", "'" + WholeSelection(header.selection) + "'"},
          {"list of cells", fmt::format("{} ({} cells)", header.cells->hash, header.cells->count)},
          {"number of shards", std::to_string(header.cells->shards)},
          {"--emulate", header.emulate},
          {"--require", "'" + requirements + "'"},
          {"seed", std::to_string(header.seed)}};
}

std::string Key(const RunHeader& header) {
  std::string key;
  for (const Fact& fact : Common(header)) key += fact.value + "\n";
  return key;
}

const Shard& OfTheLargestGroup(const std::vector<Shard>& shards) {
  std::map<std::string, int64_t> sizes;
  for (const Shard& shard : shards) ++sizes[Key(shard.record.header)];
  return *std::max_element(shards.begin(), shards.end(), [&](const Shard& a, const Shard& b) {
    return sizes[Key(a.record.header)] < sizes[Key(b.record.header)];
  });
}

std::string Foreign(const Shard& shard, const Shard& model) {
  const std::vector<Fact> own = Common(shard.record.header), wanted = Common(model.record.header);
  for (size_t i = 0; i < own.size(); ++i) {
    if (own[i].value == wanted[i].value) continue;
    return fmt::format("{}: a shard of another run: its {} is {}, that of {} is {}", shard.dir,
                       own[i].name, own[i].value, model.dir, wanted[i].value);
  }
  return "";
}

// What is wrong with the shard's own cells; `seen` has those of the shards before it.
std::string WrongCells(const Shard& shard, const std::set<std::string>& seen) {
  std::set<std::string> own;
  for (const CellResult& cell : shard.record.cells) {
    if (!own.insert(cell.problem).second || seen.count(cell.problem)) {
      return fmt::format("{}: {} has a cell that is there twice: {}", shard.dir, shard.name(),
                         cell.problem);
    }
  }
  const auto count = static_cast<int64_t>(own.size());
  const bool whole = count == shard.cells().own_count;
  const std::string hash = HashCells({own.begin(), own.end()});
  if (count > shard.cells().own_count || (whole && hash != shard.cells().own_hash)) {
    return fmt::format("{}: its {} cells are not the {} of {}", shard.dir, count,
                       shard.cells().own_count, shard.name());
  }
  return "";
}

std::string Unfinished(const Shard& shard) {
  const auto count = static_cast<int64_t>(shard.record.cells.size());
  if (shard.record.finished() && count == shard.cells().own_count) return "";
  return fmt::format("{}: {} is not finished, {} of {} cells; ./assay run --resume {} goes on",
                     shard.dir, shard.name(), count, shard.cells().own_count, shard.dir);
}

// The machines of the shards: one where all are the same, else a list.
std::string Machines(const std::vector<const Shard*>& shards) {
  std::set<std::string> different;
  for (const Shard* shard : shards) different.insert(shard->record.header.machine_json);
  if (different.size() <= 1) return different.empty() ? "" : *different.begin();
  std::string list;
  for (const std::string& machine : different) list += (list.empty() ? "" : ",") + machine;
  return "[" + list + "]";
}

RunHeader HeaderOf(const Shard& model, const std::vector<const Shard*>& shards) {
  RunHeader header = model.record.header;
  header.selection = WholeSelection(header.selection);
  header.machine_json = Machines(shards);
  CellList& list = *header.cells;
  list = {list.count, list.hash, 1, 1, list.count, list.hash};
  header.merged.clear();
  for (const Shard* shard : shards) header.merged.push_back(shard->record.header.run_id);
  header.run_id = fmt::format("merged-{}", header.merged.empty() ? "" : header.merged[0]);
  return header;
}

// One line for each run of shards that are not there.
std::vector<std::string> Missing(const std::map<int64_t, const Shard*>& there, int64_t shards) {
  std::vector<std::string> lines;
  int64_t next = 1;
  const auto until = [&](int64_t end) {
    if (next + 1 == end) lines.push_back(fmt::format("shard {}/{} is missing", next, shards));
    if (next + 1 < end) {
      lines.push_back(fmt::format("shards {0}/{2} to {1}/{2} are missing", next, end - 1, shards));
    }
    next = end + 1;
  };
  for (const auto& [number, shard] : there) until(number);
  until(shards + 1);
  return lines;
}

Result<std::vector<Shard>> ReadShards(const std::vector<std::string>& dirs) {
  std::vector<Shard> shards;
  for (const std::string& dir : dirs) {
    auto record = ReadResults(dir);
    if (!record) return record.error();
    if (!record->header.cells) {
      return Error{fmt::format(
          "{}: the run's first line has no frozen list of cells; shards without one cannot be "
          "merged",
          dir)};
    }
    shards.push_back({dir, std::move(*record)});
  }
  if (shards.empty()) return Error{"report merge: name the folders of the shards"};
  return shards;
}

}  // namespace

Result<Merged> MergeShards(const std::vector<std::string>& dirs) {
  auto shards = ReadShards(dirs);
  if (!shards) return shards.error();
  const Shard& model = OfTheLargestGroup(*shards);
  Merged merged;
  std::map<int64_t, const Shard*> by_number;
  for (const Shard& shard : *shards) {
    if (const std::string foreign = Foreign(shard, model); !foreign.empty()) {
      merged.wrong.push_back(foreign);
      continue;
    }
    const auto [first, is_new] = by_number.emplace(shard.cells().shard, &shard);
    if (is_new) continue;
    merged.wrong.push_back(
        fmt::format("{}: {} again, which {} has too", shard.dir, shard.name(), first->second->dir));
  }
  std::set<std::string> seen;
  std::vector<const Shard*> taken;
  double seconds = 0;
  for (std::string& line : Missing(by_number, model.cells().shards)) {
    merged.wrong.push_back(std::move(line));
  }
  for (const auto& [number, found] : by_number) {
    const Shard& shard = *found;
    if (const std::string wrong = WrongCells(shard, seen); !wrong.empty()) {
      merged.wrong.push_back(wrong);
      continue;
    }
    if (const std::string open = Unfinished(shard); !open.empty()) merged.wrong.push_back(open);
    for (const CellResult& cell : shard.record.cells) {
      seen.insert(cell.problem);
      merged.record.cells.push_back(cell);
    }
    if (shard.record.summary) seconds = std::max(seconds, shard.record.summary->seconds);
    taken.push_back(&shard);
  }
  if (merged.wrong.empty() && HashCells({seen.begin(), seen.end()}) != model.cells().hash) {
    merged.wrong.push_back(fmt::format("the shards' {} cells are not the {} of the run's list",
                                       seen.size(), model.cells().count));
  }
  merged.record.header = HeaderOf(model, taken);
  Totals totals = merged.record.Count();
  totals.registered = model.cells().count;
  merged.record.summary = Summary{totals, seconds};
  return merged;
}

}  // namespace assay
