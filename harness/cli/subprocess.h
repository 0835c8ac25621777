// Other people's programs, run and waited for.
#pragma once

#include <string>
#include <vector>

namespace assay::cli {

struct Subprocess {
  int code = -1;      // 127: there is no such program; 128 + signal where one ended it
  std::string error;  // what it wrote to standard error
  int signal = 0;     // SIGINT or SIGTERM that came for this process meanwhile
  bool ok() const { return code == 0 && signal == 0; }
  bool missing() const { return code == 127; }
  // One line: the last that it said, or how it ended.
  std::string why() const;
};

// Runs words[0], found in PATH, without a shell; standard input and output are /dev/null. It dies
// with this process. SIGINT and SIGTERM end it, and this returns and says which came: so the caller
// can tidy up, and ends then.
Subprocess RunSubprocess(const std::vector<std::string>& words);

}  // namespace assay::cli
