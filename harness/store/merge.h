// The shards of one run (--shard 1/n … n/n) as one record.
#pragma once

#include <string>
#include <vector>

#include "harness/store/results.h"

namespace assay {

struct Merged {
  RunRecord record;  // header and summary of the whole; registered is the frozen list's count
  // One line for each shard that is missing, given twice, unfinished or of another run, and for
  // cells that are not its own. Anything here makes the merged run red.
  std::vector<std::string> wrong;
};

// Reads the records in `dirs` and joins the cells of those that belong together: the same frozen
// list of cells, revision, selection and options. Where they do not all agree, the largest group
// counts (of equal ones the first), and the others are named as foreign and left out. The summary's
// seconds are the slowest shard's, since shards run side by side.
// Error: a folder without a readable record (as ReadResults), or one without a frozen list.
Result<Merged> MergeShards(const std::vector<std::string>& dirs);

}  // namespace assay
