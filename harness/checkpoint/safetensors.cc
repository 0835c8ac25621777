#include "harness/checkpoint/safetensors.h"

#include <sys/mman.h>

#include <bit>
#include <cstdint>
#include <utility>

#include "harness/checkpoint/safetensors_header.h"
#include "harness/checkpoint/unix_file.h"

namespace assay {

static_assert(std::endian::native == std::endian::little, "safetensors is mapped as it lies");

Result<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  const Result<UnixFile> opened = UnixFile::OpenForReading(path);
  if (!opened.ok()) return opened.error();
  const Result<void*> mapping = opened->Map();
  if (!mapping.ok()) return mapping.error();
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile);
  file->path_ = path;
  file->mapping_ = *mapping;
  file->mapped_bytes_ = opened->size();

  const std::span bytes(static_cast<const std::byte*>(*mapping), file->mapped_bytes_);
  Faults faults(path);
  SafetensorsHeader header = ReadSafetensorsHeader(bytes, faults);
  if (Status status = faults.first(); !status.ok()) return status.error();
  file->header_bytes_ = header.data_begin - kSafetensorsPrefix;
  file->metadata_ = std::move(header.metadata);
  for (SafetensorsEntry& entry : header.entries) {
    const auto data = bytes.subspan(header.data_begin + entry.begin, entry.end - entry.begin);
    file->tensors_.emplace(
        entry.name, TensorView{entry.name, *entry.dtype, std::move(entry.shape), data, path});
  }
  return file;
}

SafetensorsFile::~SafetensorsFile() {
  if (mapping_ != nullptr) munmap(mapping_, mapped_bytes_);
}

const TensorView* SafetensorsFile::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

std::vector<std::string> SafetensorsFile::Names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, view] : tensors_) names.push_back(name);
  return names;
}

std::string_view SafetensorsFile::header() const {
  return {static_cast<const char*>(mapping_) + kSafetensorsPrefix, header_bytes_};
}

}  // namespace assay
