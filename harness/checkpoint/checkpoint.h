// A checkpoint: config.json and safetensors, one file or several with an index; or one GGUF file.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "harness/checkpoint/gguf.h"
#include "harness/checkpoint/model_config.h"
#include "harness/checkpoint/safetensors.h"
#include "harness/checkpoint/tensor_source.h"

namespace assay {

class Checkpoint : public TensorSource {
 public:
  // Opens and checks everything but the weights' values: nothing of the tensors' bytes is read.
  // `path` is a directory, a single .safetensors file with config.json beside it, or a .gguf file.
  // A directory without safetensors may hold exactly one .gguf file.
  // Errors name the file, the tensor where there is one, and the reason. A GGUF file of a model
  // that is known, with a tensor that nothing of it uses, is kUnsupported.
  static Result<std::unique_ptr<Checkpoint>> Open(const std::string& path);

  const TensorView* Find(std::string_view name) const override;
  std::vector<std::string> Names() const override;

  const ModelConfig& config() const { return config_; }
  // The text of config.json. Of a GGUF file: a config in the same keys made from its metadata, with
  // "assay_container": "gguf", which ParseModelConfig reads back to the same config.
  const std::string& config_json() const { return config_json_; }
  const std::string& path() const { return path_; }
  // nullptr if it is no GGUF file.
  const GgufFile* gguf() const { return gguf_.get(); }
  // xxh3-128 (hex) of config.json and of every file's header, sizes included: cheap at any size.
  // Identifies the checkpoint's structure.
  const std::string& structure_hash() const { return structure_hash_; }
  // xxh3-128 (hex) over the named tensors' names, types, shapes and bytes, in sorted order, each
  // once. A name that is not there counts as absent.
  std::string ContentHash(const std::vector<std::string>& names) const;

 private:
  Checkpoint() = default;
  static Result<std::unique_ptr<Checkpoint>> OpenGguf(const std::string& path,
                                                      const std::string& file);
  std::string path_, config_json_, structure_hash_;
  ModelConfig config_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::unique_ptr<GgufFile> gguf_;
  std::map<std::string, const TensorView*, std::less<>> tensors_;
};

}  // namespace assay
