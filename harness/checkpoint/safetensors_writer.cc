#include "harness/checkpoint/safetensors_writer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <utility>

#include "harness/checkpoint/safetensors.h"
#include "harness/checkpoint/safetensors_header.h"
#include "harness/checkpoint/shown.h"
#include "harness/checkpoint/strict_json.h"
#include "harness/checkpoint/tensor_name.h"
#include "harness/checkpoint/unix_file.h"

namespace assay {
namespace {

using nlohmann::json;

struct Place {
  const SafetensorsSpec* tensor;
  uint64_t bytes;
};

Error Bad(const std::string& path, const std::string& name, std::string_view reason,
          ErrorKind kind = ErrorKind::kBadInput) {
  return Error{fmt::format("{}: tensor {}: {}", ShownPath(path), Quoted(name), reason), kind};
}

// In the order of the file: wide types first, so that every tensor is aligned to its type; then by
// name.
Result<std::vector<Place>> Arrange(const std::string& path,
                                   const std::vector<SafetensorsSpec>& tensors) {
  std::vector<Place> order;
  uint64_t total = 0;
  for (const SafetensorsSpec& tensor : tensors) {
    if (IsBlock(tensor.dtype)) {
      return Bad(path, tensor.name,
                 fmt::format("safetensors has no type for blocks of {}", NameOf(tensor.dtype)),
                 ErrorKind::kUnsupported);
    }
    if (const std::string fault = TensorNameFault(tensor.name); !fault.empty()) {
      return Bad(path, tensor.name, fault);
    }
    const std::optional<Bytes> bytes = StoredBytes(tensor.dtype, tensor.shape);
    if (!bytes || __builtin_add_overflow(total, static_cast<uint64_t>(bytes->count()), &total) ||
        total > INT64_MAX) {
      return Bad(path, tensor.name, "its shape overflows; a file may have up to 2^63-1 bytes");
    }
    order.push_back({&tensor, static_cast<uint64_t>(bytes->count())});
  }
  const auto key = [](const Place& place) {
    return std::pair<int64_t, std::string_view>(-SizeOf(place.tensor->dtype).count(),
                                                place.tensor->name);
  };
  std::sort(order.begin(), order.end(),
            [&](const Place& a, const Place& b) { return key(a) < key(b); });
  return order;
}

// The JSON text, padded with spaces so that the data begins at a multiple of 8.
Result<std::string> MakeHeader(const std::string& path, const std::vector<Place>& order,
                               const std::map<std::string, std::string>& metadata) {
  json header = json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const Place& place : order) {
    const uint64_t end = offset + place.bytes;
    const bool is_new =
        header
            .emplace(place.tensor->name, json{{"dtype", NameOf(place.tensor->dtype)},
                                              {"shape", place.tensor->shape},
                                              {"data_offsets", {offset, end}}})
            .second;
    if (!is_new) return Bad(path, place.tensor->name, "given twice; a name may appear once");
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const json::exception&) {
    return Error{
        fmt::format("{}: a tensor's name or a metadata text is not UTF-8", ShownPath(path))};
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxSafetensorsHeader) {
    return Error{fmt::format("{}: its header would have {} bytes; at most {} are allowed",
                             ShownPath(path), text.size(), kMaxSafetensorsHeader)};
  }
  return text;
}

}  // namespace

struct SafetensorsWriter::State {
  struct Tensor {
    uint64_t begin = 0, bytes = 0;  // in the file
    std::atomic<uint64_t> written = 0;
  };
  State(std::string target, std::string temporary, UnixFile opened)
      : path(std::move(target)), beside(std::move(temporary)), file(std::move(opened)) {}

  std::string path, beside;  // beside: empty once it is in its place
  UnixFile file;
  std::map<std::string, Tensor, std::less<>> tensors;
  uint64_t file_bytes = 0;
};

SafetensorsWriter::SafetensorsWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&& other) noexcept = default;

SafetensorsWriter::~SafetensorsWriter() {
  if (state_ != nullptr && !state_->beside.empty()) unlink(state_->beside.c_str());
}

Result<SafetensorsWriter> SafetensorsWriter::Create(
    const std::string& path, const std::vector<SafetensorsSpec>& tensors,
    const std::map<std::string, std::string>& metadata) {
  const Result<std::vector<Place>> order = Arrange(path, tensors);
  if (!order.ok()) return order.error();
  const Result<std::string> header = MakeHeader(path, *order, metadata);
  if (!header.ok()) return header.error();

  static std::atomic<int> count = 0;
  const std::string beside = fmt::format("{}.partial-{}-{}", path, getpid(), count++);
  Result<UnixFile> file = UnixFile::CreateNew(beside);
  if (!file.ok()) return file.error();
  SafetensorsWriter writer(std::make_unique<State>(path, beside, std::move(*file)));
  State& state = *writer.state_;
  const uint64_t length = header->size();
  Status status = state.file.WriteAt(0, std::as_bytes(std::span(&length, 1)));
  if (status.ok()) {
    status = state.file.WriteAt(kSafetensorsPrefix, std::as_bytes(std::span(*header)));
  }
  if (!status.ok()) return status.error();
  state.file_bytes = kSafetensorsPrefix + header->size();
  for (const Place& place : *order) {
    State::Tensor& tensor = state.tensors[place.tensor->name];
    tensor.begin = state.file_bytes;
    tensor.bytes = place.bytes;
    state.file_bytes += place.bytes;
  }
  return writer;
}

Status SafetensorsWriter::Write(std::string_view name, uint64_t offset,
                                std::span<const std::byte> bytes) {
  const auto found = state_->tensors.find(name);
  if (found == state_->tensors.end()) {
    return Bad(state_->path, std::string(name), "not one of those that were announced");
  }
  State::Tensor& tensor = found->second;
  if (offset > tensor.bytes || bytes.size() > tensor.bytes - offset) {
    return Bad(
        state_->path, found->first,
        fmt::format("{} bytes at {} are given; it has {}", bytes.size(), offset, tensor.bytes));
  }
  tensor.written += bytes.size();
  return state_->file.WriteAt(tensor.begin + offset, bytes);
}

Status SafetensorsWriter::Finish() {
  State& state = *state_;
  for (const auto& [name, tensor] : state.tensors) {
    if (tensor.written == tensor.bytes) continue;
    return Bad(
        state.path, name,
        fmt::format("{} bytes were written; it has {}", tensor.written.load(), tensor.bytes));
  }
  Status status = state.file.Sync();
  if (status.ok() && std::rename(state.beside.c_str(), state.path.c_str()) != 0) {
    status = SystemError(state.path, "rename a finished file to");
  }
  if (!status.ok()) return status;
  state.beside.clear();
  const std::filesystem::path folder = std::filesystem::path(state.path).parent_path();
  return SyncFolder(folder.empty() ? "." : folder.string());
}

uint64_t SafetensorsWriter::file_bytes() const { return state_->file_bytes; }

uint64_t SafetensorsWriter::OffsetOf(std::string_view name) const {
  const auto found = state_->tensors.find(name);
  return found == state_->tensors.end() ? 0 : found->second.begin;
}

Status WriteSafetensors(const std::string& path, const std::vector<TensorView>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  std::vector<SafetensorsSpec> specs;
  for (const TensorView& tensor : tensors) {
    const std::optional<Bytes> expected = StoredBytes(tensor.dtype, tensor.shape);
    if (!expected || static_cast<uint64_t>(expected->count()) != tensor.bytes.size()) {
      return Bad(path, tensor.name,
                 fmt::format("{} bytes given, which is not what shape and type {} take",
                             tensor.bytes.size(), NameOf(tensor.dtype)));
    }
    specs.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  Result<SafetensorsWriter> writer = SafetensorsWriter::Create(path, specs, metadata);
  if (!writer.ok()) return writer.error();
  for (const TensorView& tensor : tensors) {
    if (Status status = writer->Write(tensor.name, 0, tensor.bytes); !status.ok()) return status;
  }
  return writer->Finish();
}

}  // namespace assay
