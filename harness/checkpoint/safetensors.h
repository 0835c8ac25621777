// One safetensors file, mapped into memory and checked before use.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "harness/checkpoint/tensor_source.h"

namespace assay {

class SafetensorsFile : public TensorSource {
 public:
  // Maps the file read-only. Checked: size of the header against the file, JSON without duplicate
  // keys, names, dtype known, shapes non-negative and without overflow, offsets in order, without
  // holes or overlaps, and equal to shape × dtype, the last one at the end of the file.
  // Errors name the file, the tensor and the reason, on one line. A file that somebody truncates
  // later, while it is mapped, raises SIGBUS where it is read: cells run in child processes.
  static Result<std::unique_ptr<SafetensorsFile>> Open(const std::string& path);
  ~SafetensorsFile() override;
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const TensorView* Find(std::string_view name) const override;
  std::vector<std::string> Names() const override;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& path() const { return path_; }
  std::string_view header() const;  // the JSON text
  const std::map<std::string, TensorView, std::less<>>& tensors() const { return tensors_; }
  size_t file_bytes() const { return mapped_bytes_; }

 private:
  SafetensorsFile() = default;
  std::string path_;
  void* mapping_ = nullptr;
  size_t mapped_bytes_ = 0;
  size_t header_bytes_ = 0;
  std::map<std::string, TensorView, std::less<>> tensors_;
  std::map<std::string, std::string> metadata_;
};

// Writes tensors as one safetensors file, whole or not at all, as SafetensorsWriter does
// (safetensors_writer.h), with its errors, and: bytes that are not shape × dtype.
Status WriteSafetensors(const std::string& path, const std::vector<TensorView>& tensors,
                        const std::map<std::string, std::string>& metadata);

}  // namespace assay
