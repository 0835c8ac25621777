#include "harness/checkpoint/gguf.h"

#include <sys/mman.h>

#include <bit>
#include <utility>

#include "harness/checkpoint/gguf_reader.h"
#include "harness/checkpoint/unix_file.h"

namespace assay {

static_assert(std::endian::native == std::endian::little, "GGUF is mapped as it lies");

Result<std::unique_ptr<GgufFile>> GgufFile::Open(const std::string& path) {
  Faults faults(path);
  auto file = OpenDamaged(path, faults, nullptr);
  if (!file.ok()) return file.error();
  if (Status status = faults.first(); !status.ok()) return status.error();
  return file;
}

Result<std::unique_ptr<GgufFile>> GgufFile::OpenDamaged(const std::string& path, Faults& faults,
                                                        std::vector<TensorView>* damaged) {
  const Result<UnixFile> opened = UnixFile::OpenForReading(path);
  if (!opened.ok()) return opened.error();
  const Result<void*> mapping = opened->Map();
  if (!mapping.ok()) return mapping.error();
  std::unique_ptr<GgufFile> file(new GgufFile);
  file->path_ = path;
  file->mapping_ = *mapping;
  file->mapped_bytes_ = opened->size();
  const std::span bytes(static_cast<const std::byte*>(*mapping), file->mapped_bytes_);
  GgufReader reader(*file, faults, bytes);
  reader.Read();
  if (damaged != nullptr) *damaged = reader.TakeDamaged();
  return file;
}

GgufFile::~GgufFile() {
  if (mapping_ != nullptr) munmap(mapping_, mapped_bytes_);
}

const TensorView* GgufFile::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

std::vector<std::string> GgufFile::Names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, view] : tensors_) names.push_back(name);
  return names;
}

std::span<const std::byte> GgufFile::header() const {
  return {static_cast<const std::byte*>(mapping_), header_bytes_};
}

}  // namespace assay
