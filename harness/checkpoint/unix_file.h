// Files by descriptor: what the standard library's streams do not say or cannot do (regular file
// or not, size of what was opened, sync, mapping). Private to this room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "harness/units/status.h"

namespace assay {

class UnixFile {
 public:
  // Error: cannot be opened (with the system's reason), or is no regular file: a pipe or a device
  // would block or never end.
  static Result<UnixFile> OpenForReading(const std::string& path);
  // A new file that must not exist yet.
  static Result<UnixFile> CreateNew(const std::string& path);
  ~UnixFile();
  UnixFile(UnixFile&& other) noexcept;
  UnixFile& operator=(UnixFile&&) = delete;

  size_t size() const { return size_; }  // when it was opened
  Result<std::string> ReadAll() const;
  // The whole file, read-only. nullptr if it is empty. The caller unmaps.
  Result<void*> Map() const;
  Status WriteAt(uint64_t offset, std::span<const std::byte> bytes) const;
  Status Sync() const;

 private:
  UnixFile(std::string path, int descriptor, size_t size);
  std::string path_;
  int descriptor_ = -1;
  size_t size_ = 0;
};

// Makes a rename or a new file in this folder last through a power cut.
Status SyncFolder(const std::string& folder);
// "path: cannot <what>: No such file or directory" from errno.
Error SystemError(std::string_view path, std::string_view what);

}  // namespace assay
