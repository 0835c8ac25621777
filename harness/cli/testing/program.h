// The program run as a child, for tests that kill it or take its disk away.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "harness/store/result.h"

namespace assay::cli::testing {

// Below TEST_TMPDIR; nothing is there.
std::string Fresh(const std::string& name);
std::string ReadAll(const std::string& path);

struct Ended {
  int code = -1;  // minus the signal, where one ended it
  std::string out, error;
};

// Runs the program with these words and waits for it. Children that it leaves behind become ours:
// AwaitOrphans() waits for them.
Ended Invoke(const std::vector<std::string>& words,
             const std::map<std::string, std::string>& environment = {});

// Waits until every process that an ended program left behind has ended too; how many died of
// something else than SIGKILL or a plain exit.
int AwaitOrphans();

// The cells of a finished run as lines of JSON, sorted, without what differs from run to run (ms,
// attempts). An empty list: there is no finished run.
std::vector<std::string> CellsOf(const std::string& dir);

}  // namespace assay::cli::testing
