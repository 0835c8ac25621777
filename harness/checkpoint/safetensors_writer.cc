#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "harness/checkpoint/safetensors.h"
#include "harness/checkpoint/shown.h"
#include "harness/checkpoint/strict_json.h"
#include "harness/checkpoint/tensor_name.h"
#include "harness/checkpoint/unix_file.h"

namespace assay {
namespace {

using nlohmann::json;

// In the order of the file: wide types first, so that every tensor is aligned to its type; then by
// name.
using Order = std::vector<const TensorView*>;

Result<Order> Arrange(const std::string& path, const std::vector<TensorView>& tensors) {
  Order order;
  for (const TensorView& tensor : tensors) {
    if (IsBlock(tensor.dtype)) {
      return Error{fmt::format("{}: tensor {}: safetensors has no type for blocks of {}",
                               ShownPath(path), Quoted(tensor.name), NameOf(tensor.dtype)),
                   ErrorKind::kUnsupported};
    }
    const std::optional<Bytes> expected = StoredBytes(tensor.dtype, tensor.shape);
    if (!expected || static_cast<uint64_t>(expected->count()) != tensor.bytes.size()) {
      return Error{fmt::format(
          "{}: tensor {}: {} bytes given, which is not what shape and type "
          "{} take",
          ShownPath(path), Quoted(tensor.name), tensor.bytes.size(), NameOf(tensor.dtype))};
    }
    if (const std::string fault = TensorNameFault(tensor.name); !fault.empty()) {
      return Error{fmt::format("{}: tensor {}: {}", ShownPath(path), Quoted(tensor.name), fault)};
    }
    order.push_back(&tensor);
  }
  const auto key = [](const TensorView* t) {
    return std::pair<int64_t, std::string_view>(-SizeOf(t->dtype).count(), t->name);
  };
  std::sort(order.begin(), order.end(),
            [&](const auto* a, const auto* b) { return key(a) < key(b); });
  return order;
}

// The JSON text, padded with spaces so that the data begins at a multiple of 8.
Result<std::string> MakeHeader(const std::string& path, const Order& order,
                               const std::map<std::string, std::string>& metadata) {
  json header = json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const TensorView* tensor : order) {
    const uint64_t end = offset + tensor->bytes.size();
    const bool is_new = header
                            .emplace(tensor->name, json{{"dtype", NameOf(tensor->dtype)},
                                                        {"shape", tensor->shape},
                                                        {"data_offsets", {offset, end}}})
                            .second;
    if (!is_new) {
      return Error{fmt::format("{}: tensor {}: given twice; a name may appear once",
                               ShownPath(path), Quoted(tensor->name))};
    }
    offset = end;
  }
  try {
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    return text;
  } catch (const json::exception&) {
    return Error{
        fmt::format("{}: a tensor's name or a metadata text is not UTF-8", ShownPath(path))};
  }
}

Status WriteAll(const std::string& path, const std::string& header, const Order& order) {
  const Result<UnixFile> file = UnixFile::CreateNew(path);
  if (!file.ok()) return file.error();
  const uint64_t length = header.size();
  Status status = file->Write(std::as_bytes(std::span(&length, 1)));
  if (status.ok()) status = file->Write(std::as_bytes(std::span(header)));
  for (const TensorView* tensor : order) {
    if (status.ok()) status = file->Write(tensor->bytes);
  }
  if (status.ok()) status = file->Sync();
  return status;
}

}  // namespace

Status WriteSafetensors(const std::string& path, const std::vector<TensorView>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  const Result<Order> order = Arrange(path, tensors);
  if (!order.ok()) return order.error();
  const Result<std::string> header = MakeHeader(path, *order, metadata);
  if (!header.ok()) return header.error();

  static std::atomic<int> count = 0;
  const std::string beside = fmt::format("{}.partial-{}-{}", path, getpid(), count++);
  Status status = WriteAll(beside, *header, *order);
  if (status.ok() && std::rename(beside.c_str(), path.c_str()) != 0) {
    status = SystemError(path, "rename a finished file to");
  }
  if (!status.ok()) {
    unlink(beside.c_str());
    return status;
  }
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  return SyncFolder(folder.empty() ? "." : folder.string());
}

}  // namespace assay
