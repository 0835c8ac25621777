// A new file, and a new folder that appears whole. Private to this room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "harness/units/status.h"

namespace assay::kernels {

class OutFile {
 public:
  // Must not exist yet.
  static Result<OutFile> Create(const std::string& path);
  ~OutFile();
  OutFile(OutFile&& other) noexcept;
  OutFile& operator=(OutFile&&) = delete;

  Status WriteAt(int64_t offset, std::span<const std::byte> bytes) const;
  // To the disk; then nothing more may be written.
  Status Finish();

 private:
  OutFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  std::string path_;
  int descriptor_ = -1;
};

// Writes, syncs and closes.
Status WriteWhole(const std::string& path, std::string_view text);

// A folder beside its final place. Gone again unless Commit put it there.
class NewFolder {
 public:
  // Error: `path` exists and is not an empty folder; its parent is not there.
  static Result<NewFolder> Create(const std::string& path);
  ~NewFolder();
  NewFolder(NewFolder&& other) noexcept;
  NewFolder& operator=(NewFolder&&) = delete;
  std::string Path(const std::string& name) const { return beside_ + "/" + name; }
  Status Commit();

 private:
  NewFolder(std::string path, std::string beside)
      : path_(std::move(path)), beside_(std::move(beside)) {}
  std::string path_, beside_;
};

}  // namespace assay::kernels
