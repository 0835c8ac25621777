#include "harness/checkpoint/gguf_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "harness/checkpoint/gguf_types.h"

namespace assay {
namespace {

template <class T>
void Append(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void AppendText(std::string& to, std::string_view text) {
  Append<uint64_t>(to, text.size());
  to += text;
}

template <class T>
std::string RawOf(T value) {
  std::string raw;
  Append(raw, value);
  return raw;
}

uint32_t CodeOf(GgufType type) { return static_cast<uint32_t>(type); }

}  // namespace

void GgufWriter::PutRaw(std::string_view key, uint32_t type, std::string_view bytes) {
  AppendText(keys_, key);
  Append(keys_, type);
  keys_ += bytes;
  ++key_count_;
}

void GgufWriter::PutU32(std::string_view key, uint32_t value) {
  PutRaw(key, CodeOf(GgufType::kU32), RawOf(value));
}

void GgufWriter::PutF32(std::string_view key, float value) {
  PutRaw(key, CodeOf(GgufType::kF32), RawOf(value));
}

void GgufWriter::PutF64(std::string_view key, double value) {
  PutRaw(key, CodeOf(GgufType::kF64), RawOf(value));
}

void GgufWriter::PutBool(std::string_view key, bool value) {
  PutRaw(key, CodeOf(GgufType::kBool), RawOf(static_cast<uint8_t>(value)));
}

void GgufWriter::PutText(std::string_view key, std::string_view text) {
  std::string raw;
  AppendText(raw, text);
  PutRaw(key, CodeOf(GgufType::kString), raw);
}

void GgufWriter::PutTexts(std::string_view key, const std::vector<std::string>& texts) {
  std::string raw = RawOf(CodeOf(GgufType::kString));
  Append<uint64_t>(raw, texts.size());
  for (const std::string& text : texts) AppendText(raw, text);
  PutRaw(key, CodeOf(GgufType::kArray), raw);
}

void GgufWriter::PutI32s(std::string_view key, const std::vector<int32_t>& values) {
  std::string raw = RawOf(CodeOf(GgufType::kI32));
  Append<uint64_t>(raw, values.size());
  for (const int32_t value : values) Append(raw, value);
  PutRaw(key, CodeOf(GgufType::kArray), raw);
}

void GgufWriter::PutAlignment(uint32_t bytes) {
  alignment = bytes;
  PutU32("general.alignment", bytes);
}

void GgufWriter::PutTensor(GgufTensor tensor) { tensors_.push_back(std::move(tensor)); }

GgufTensor& GgufWriter::Tensor(std::string_view name) {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                  [&](const GgufTensor& tensor) { return tensor.name == name; });
  assert(found != tensors_.end());
  return *found;
}

void GgufWriter::RemoveTensor(std::string_view name) {
  std::erase_if(tensors_, [&](const GgufTensor& tensor) { return tensor.name == name; });
}

std::string GgufWriter::Bytes() const {
  const size_t align = alignment == 0 ? 1 : alignment;
  const auto pad = [&](std::string& text) {
    text.resize((text.size() + align - 1) / align * align, '\0');
  };
  std::string file = "GGUF", data;
  Append(file, version);
  Append<uint64_t>(file, tensors_.size());
  Append(file, key_count_);
  file += keys_;
  for (const GgufTensor& tensor : tensors_) {
    AppendText(file, tensor.name);
    Append(file, static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i-- > 0;) {
      const bool fastest = i + 1 == tensor.shape.size();
      const int64_t per_value = fastest ? ElementsOf(tensor.dtype).count() : 1;
      Append<uint64_t>(file, static_cast<uint64_t>(tensor.shape[i] * per_value));
    }
    const auto code = GgmlCodeOf(tensor.dtype);
    assert(code.has_value());
    Append(file, *code);
    Append<uint64_t>(file, data.size());
    data.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    pad(data);
  }
  pad(file);
  return file + data;
}

}  // namespace assay
