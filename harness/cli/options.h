// A verb's command line, over CLI11: one wording for help and for errors (exit 2, one line that
// names what is wrong, what is allowed, and the nearest match).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace assay::cli {

class Options {
 public:
  Options(std::string verb, std::string what, std::string example);
  ~Options();

  void Flag(const std::string& name, bool* value, const std::string& help);
  // `*value` holds the default, which help shows.
  void Value(const std::string& name, std::string* value, const std::string& help);
  void Number(const std::string& name, int64_t* value, int64_t least, int64_t most,
              const std::string& help);
  void Words(const std::string& name, std::vector<std::string>* words, const std::string& help);

  // Nothing: go on. Otherwise the exit code: 0 after --help, 2 after an error.
  std::optional<int> Parse(int argc, char** argv);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Prints "assay: MESSAGE" to standard error; returns 2.
int BadUsage(const std::string& message);

}  // namespace assay::cli
