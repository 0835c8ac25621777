#include "reference/golden_file.h"

#include <fmt/format.h>
#include <sodium.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "harness/checkpoint/safetensors.h"
#include "reference/methods/method.h"

namespace assay::reference {
namespace {

using Json = nlohmann::json;
constexpr std::uintmax_t kLargestGoldenJson = 64u << 20;

Result<std::vector<int32_t>> ReadTokens(const Json& json, const std::string& what) {
  std::vector<int32_t> tokens;
  if (!json.is_array()) return Error{what + ": must be a list of token ids"};
  for (const Json& item : json) {
    const bool good = item.is_number_integer() &&
                      (!item.is_number_unsigned() || item.get<uint64_t>() <= INT32_MAX) &&
                      item.get<int64_t>() >= 0 && item.get<int64_t>() <= INT32_MAX;
    if (!good) return Error{what + ": must be a list of token ids, integers from 0"};
    tokens.push_back(item.get<int32_t>());
  }
  return tokens;
}

Result<Json> ReadJson(const std::string& path) {
  std::error_code failed;
  const auto size = std::filesystem::file_size(path, failed);
  if (failed) return Error{path + ": cannot be read"};
  if (size > kLargestGoldenJson) return Error{path + ": too large for a golden.json"};
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return Error{path + ": cannot be read"};
  Json json = Json::parse(text.str(), nullptr, false);
  if (json.is_discarded() || !json.is_object()) return Error{path + ": not a JSON object"};
  return json;
}

Result<FetchedFile> ReadFetched(const Json& json) {
  if (!json.is_object()) return Error{"must be an object with file, bytes and sha256"};
  const Json file = json.value("file", Json()), bytes = json.value("bytes", Json()),
             digest = json.value("sha256", Json());
  FetchedFile out;
  if (!file.is_string() || !IsPlainName(file.get<std::string>())) {
    return Error{"\"file\" must be a plain file name"};
  }
  if (!bytes.is_number_unsigned() || bytes.get<uint64_t>() == 0 ||
      bytes.get<uint64_t>() > uint64_t{INT64_MAX}) {
    return Error{"\"bytes\" must be a positive integer"};
  }
  out.file = file.get<std::string>();
  out.bytes = bytes.get<int64_t>();
  if (digest.is_string()) out.sha256 = digest.get<std::string>();
  const bool hex = out.sha256.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (out.sha256.size() != 2 * crypto_hash_sha256_BYTES || !hex) {
    return Error{"\"sha256\" must be 64 digits, 0–9 and a–f"};
  }
  return out;
}

int64_t LoadInteger(const TensorView& view, int64_t index) {
  if (view.dtype == DType::kI64) {
    int64_t wide;
    std::memcpy(&wide, view.bytes.data() + index * 8, 8);
    return wide;
  }
  int32_t narrow;
  std::memcpy(&narrow, view.bytes.data() + index * 4, 4);
  return narrow;
}

Result<GoldenTensor> Widen(const TensorView& view) {
  GoldenTensor tensor;
  tensor.dtype = view.dtype;
  tensor.value.shape = view.shape;
  int64_t count = 1;
  for (const int64_t extent : view.shape) count *= extent;
  tensor.value.data.resize(static_cast<size_t>(count));
  if (tensor.integer()) {
    for (int64_t i = 0; i < count; ++i) {
      tensor.value.data[static_cast<size_t>(i)] = static_cast<double>(LoadInteger(view, i));
    }
    return tensor;
  }
  if (!IsFloating(view.dtype)) {
    return Error{fmt::format("{}: {}: type {} (F64, F32, F16, BF16, I32, I64 are read)", view.file,
                             view.name, NameOf(view.dtype))};
  }
  DecodeFloats(view, 0, count, tensor.value.data.data());
  for (const double value : tensor.value.data) {
    if (!std::isfinite(value)) {
      return Error{fmt::format("{}: {}: a golden value is not finite", view.file, view.name)};
    }
  }
  return tensor;
}

}  // namespace

bool GoldenTensor::integer() const { return dtype == DType::kI32 || dtype == DType::kI64; }

Status CheckFetched(const std::string& path, const FetchedFile& expected) {
  std::error_code failed;
  const auto size = std::filesystem::file_size(path, failed);
  if (failed) return Error{fmt::format("{}: cannot be read: {}", path, failed.message())};
  if (size != static_cast<std::uintmax_t>(expected.bytes)) {
    return Error{fmt::format("{}: {} bytes, the golden's file has {}", path, size, expected.bytes)};
  }
  std::ifstream file(path, std::ios::binary);
  crypto_hash_sha256_state state;
  crypto_hash_sha256_init(&state);
  std::vector<char> buffer(size_t{1} << 20);
  while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) ||
         file.gcount() > 0) {
    crypto_hash_sha256_update(&state, reinterpret_cast<const unsigned char*>(buffer.data()),
                              static_cast<unsigned long long>(file.gcount()));
  }
  if (!file.eof()) return Error{path + ": cannot be read to its end"};
  unsigned char digest[crypto_hash_sha256_BYTES];
  crypto_hash_sha256_final(&state, digest);
  std::string said;
  for (const unsigned char byte : digest) said += fmt::format("{:02x}", byte);
  if (said == expected.sha256) return Ok();
  return Error{
      fmt::format("{}: SHA-256 {}, the golden's file has {}", path, said, expected.sha256)};
}

bool FileExists(const std::string& path) {
  std::error_code failed;
  return std::filesystem::is_regular_file(path, failed);
}
bool FolderExists(const std::string& path) {
  std::error_code failed;
  return std::filesystem::is_directory(path, failed);
}
bool IsPlainName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

Result<GoldenInfo> ReadGoldenInfo(const std::string& folder) {
  const std::string path = folder + "/golden.json";
  const auto json = ReadJson(path);
  if (!json) return json.error();
  GoldenInfo info;
  const Json model = json->value("model", Json());
  if (!model.is_string() || !IsPlainName(model.get<std::string>())) {
    return Error{path + ": \"model\" must be the name of a checkpoint's folder"};
  }
  info.model = model.get<std::string>();
  if (const auto gguf = json->find("gguf"); gguf != json->end()) {
    auto file = ReadFetched(*gguf);
    if (!file) return Error{fmt::format("{}: gguf: {}", path, file.error().message)};
    info.gguf = std::move(*file);
  }
  const auto prompts = json->find("prompts");
  if (prompts == json->end() || !prompts->is_object() || prompts->empty()) {
    return Error{path + ": \"prompts\" must be an object of token lists, not empty"};
  }
  for (const auto& [name, list] : prompts->items()) {
    if (!IsPlainName(name)) return Error{path + ": a prompt's name must be a plain name"};
    auto tokens = ReadTokens(list, fmt::format("{}: prompts.{}", path, name));
    if (!tokens) return tokens.error();
    if (tokens->empty()) return Error{fmt::format("{}: prompts.{}: is empty", path, name)};
    info.prompts[name] = std::move(*tokens);
  }
  const Json decode = json->value("decode_max_abs_diff", Json::object());
  const Json greedy = json->value("greedy", Json::object());
  for (const auto& [name, tokens] : info.prompts) {
    info.has_decode[name] = decode.is_object() && decode.contains(name);
    if (!greedy.is_object() || !greedy.contains(name)) continue;
    auto chosen = ReadTokens(greedy.at(name), fmt::format("{}: greedy.{}", path, name));
    if (!chosen) return chosen.error();
    info.greedy[name] = std::move(*chosen);
  }
  return info;
}

Result<GoldenTensors> ReadGoldenTensors(const std::string& path) {
  const auto file = SafetensorsFile::Open(path);
  if (!file) return file.error();
  GoldenTensors tensors;
  for (const std::string& name : (*file)->Names()) {
    auto tensor = Widen(*(*file)->Find(name));
    if (!tensor) return tensor.error();
    tensors[name] = std::move(*tensor);
  }
  return tensors;
}

}  // namespace assay::reference
