#include "harness/checkpoint/scan.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "harness/checkpoint/decoder_names.h"
#include "harness/checkpoint/folder.h"
#include "harness/checkpoint/gguf.h"
#include "harness/checkpoint/gguf_config.h"
#include "harness/checkpoint/safetensors_header.h"
#include "harness/checkpoint/shown.h"
#include "harness/checkpoint/unix_file.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

// Names alone, for whoever looks for them.
class NamesOf : public TensorSource {
 public:
  explicit NamesOf(const std::vector<ScanTensor>& sorted) : sorted_(sorted) {}
  const TensorView* Find(std::string_view name) const override {
    const auto at = std::lower_bound(sorted_.begin(), sorted_.end(), name,
                                     [](const ScanTensor& tensor, std::string_view wanted) {
                                       return tensor.view.name < wanted;
                                     });
    return at != sorted_.end() && at->view.name == name ? &at->view : nullptr;
  }
  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const ScanTensor& tensor : sorted_) names.push_back(tensor.view.name);
    return names;
  }

 private:
  const std::vector<ScanTensor>& sorted_;
};

void SortByName(std::vector<ScanTensor>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const ScanTensor& a, const ScanTensor& b) {
    return std::tie(a.view.name, a.file) < std::tie(b.view.name, b.file);
  });
}

std::string FileName(const std::string& path) { return fs::path(path).filename().string(); }

}  // namespace

class Scanner {
 public:
  Result<Scan> Run(const std::string& path);

 private:
  // Where each name was seen: files in the order in which they were read.
  struct Seen {
    std::vector<std::string> files;  // paths
    uint64_t bytes = 0;              // of the first one
  };

  Result<Scan> OfFolder(const fs::path& folder);
  Result<Scan> OfGguf(const std::string& path);
  Result<Scan> OfFiles(const fs::path& folder, const std::vector<std::string>& names,
                       const std::optional<ShardIndex>& index);
  void Keep(Faults& faults);
  void ReadFile(const std::string& path);
  void TellMissing(const fs::path& folder, const ShardIndex& index,
                   const std::vector<std::string>& present);
  void TellDuplicates(const std::optional<ShardIndex>& index, const fs::path& folder);
  void CompareIndex(const fs::path& folder, const ShardIndex& index);
  void CompareTotal(const fs::path& folder, const ShardIndex& index);
  void ReadConfig(const fs::path& folder);
  void FindNames(const std::string& path);
  void TellConfig(const std::string& path, const Error& error);

  Scan scan_;
  std::map<std::string, Seen> seen_;
  std::set<std::string> unread_;  // paths of files whose names are not known
};

void Scanner::Keep(Faults& faults) {
  for (ScanFinding& finding : faults.Take()) scan_.findings.push_back(std::move(finding));
}

void Scanner::ReadFile(const std::string& path) {
  Faults faults(path);
  scan_.files.push_back(path);
  const Result<UnixFile> opened = UnixFile::OpenForReading(path);
  const Result<void*> mapping = opened.ok() ? opened->Map() : Result<void*>(opened.error());
  if (!mapping.ok()) {
    unread_.insert(path);
    scan_.findings.push_back({"unreadable", path, "", WithoutPath(mapping.error().message, path)});
    return;
  }
  scan_.file_bytes += opened->size();
  const std::span bytes(static_cast<const std::byte*>(*mapping), opened->size());
  SafetensorsHeader header = ReadSafetensorsHeader(bytes, faults);
  if (*mapping != nullptr) munmap(*mapping, opened->size());
  if (header.data_begin == 0 || (faults.any() && header.entries.empty())) unread_.insert(path);
  for (SafetensorsEntry& entry : header.entries) {
    const auto seen = seen_.emplace(entry.name, Seen{{}, entry.end - entry.begin}).first;
    seen->second.files.push_back(path);
    if (!entry.readable) continue;
    if (entry.whole && entry.end == entry.begin) {
      faults.TellTensor("empty", entry.name, "has no elements; every tensor must have some");
    }
    ScanTensor tensor{{entry.name, *entry.dtype, std::move(entry.shape), {}, path},
                      path,
                      header.data_begin + entry.begin};
    (entry.whole ? scan_.tensors : scan_.damaged).push_back(std::move(tensor));
  }
  Keep(faults);
}

void Scanner::TellMissing(const fs::path& folder, const ShardIndex& index,
                          const std::vector<std::string>& present) {
  std::map<std::string, std::pair<size_t, std::string>> missing;  // file: tensors, one of them
  for (const auto& [tensor, file] : index.weight_map) {
    if (std::binary_search(present.begin(), present.end(), file)) continue;
    ++missing.try_emplace(file, 0, tensor).first->second.first;
  }
  for (const auto& [file, tensors] : missing) {
    const std::string path = (folder / file).string();
    unread_.insert(path);
    scan_.findings.push_back({"missing-shard", path, "",
                              fmt::format("{} lists {} tensors in it, such as {}; the file is not "
                                          "there",
                                          kIndexName, tensors.first, Quoted(tensors.second))});
  }
  const std::vector<std::string> listed = index.Files();
  for (const std::string& file : present) {
    if (std::binary_search(listed.begin(), listed.end(), file)) continue;
    scan_.findings.push_back(
        {"extra-shard", (folder / file).string(), "",
         fmt::format("{} does not list it; engines differ in whether they read it, so it must not "
                     "be there",
                     kIndexName)});
  }
}

// Of several tensors of a name the one counts that the index names, else the first one.
void Scanner::TellDuplicates(const std::optional<ShardIndex>& index, const fs::path& folder) {
  std::map<std::string, Faults> faults;  // of a file
  std::map<std::string, std::string, std::less<>> counts;
  for (const auto& [name, seen] : seen_) {
    if (seen.files.size() == 1) continue;
    std::string first = seen.files.front();
    if (index) {
      const auto listed = index->weight_map.find(name);
      const std::string named =
          listed == index->weight_map.end() ? "" : (folder / listed->second).string();
      if (std::count(seen.files.begin(), seen.files.end(), named) > 0) first = named;
    }
    for (const std::string& file : seen.files) {
      if (file == first) continue;
      faults.try_emplace(file, file)
          .first->second.TellTensor(
              "duplicate", name,
              fmt::format("is also in {}; a name may appear once", ShownPath(FileName(first))));
    }
    counts[name] = first;
  }
  for (auto& [file, told] : faults) Keep(told);
  const auto extra = [&](const ScanTensor& tensor) {
    const auto found = counts.find(tensor.view.name);
    return found != counts.end() && found->second != tensor.file;
  };
  std::erase_if(scan_.tensors, extra);
  std::erase_if(scan_.damaged, extra);
}

void Scanner::CompareIndex(const fs::path& folder, const ShardIndex& index) {
  const std::string path = (folder / kIndexName).string();
  Faults faults(path);
  for (const auto& [name, file] : index.weight_map) {
    const std::string listed = (folder / file).string();
    if (unread_.contains(listed)) continue;  // told already
    const auto seen = seen_.find(name);
    if (seen == seen_.end()) {
      faults.TellTensor("index", name,
                        fmt::format("listed in {}, but no file has it", Quoted(file)));
      continue;
    }
    const std::vector<std::string>& files = seen->second.files;
    if (std::count(files.begin(), files.end(), listed) > 0) continue;
    faults.TellTensor("index", name,
                      fmt::format("listed in {}, but it lies in {}", Quoted(file),
                                  Quoted(FileName(files.front()))));
  }
  Keep(faults);
  std::map<std::string, Faults> forgotten;  // of a file
  for (const auto& [name, seen] : seen_) {
    if (index.weight_map.contains(name)) continue;
    const std::string& file = seen.files.front();
    forgotten.try_emplace(file, file)
        .first->second.TellTensor(
            "index", name, fmt::format("not in {}; the index must list every tensor", kIndexName));
  }
  for (auto& [file, told] : forgotten) Keep(told);
}

// Of bytes that are not all there nothing follows.
void Scanner::CompareTotal(const fs::path& folder, const ShardIndex& index) {
  if (!index.total_size || !scan_.findings.empty()) return;
  uint64_t total = 0;
  for (const auto& [name, seen] : seen_) total += seen.bytes;
  if (total == *index.total_size) return;
  scan_.findings.push_back({"total-size", (folder / kIndexName).string(), "",
                            fmt::format("metadata.total_size is {}; the tensors of the files have "
                                        "{} bytes",
                                        *index.total_size, total)});
}

void Scanner::TellConfig(const std::string& path, const Error& error) {
  scan_.why_no_config = error.message;
  scan_.config.reset();
  scan_.findings.push_back({"config", path, "", WithoutPath(error.message, path)});
}

void Scanner::ReadConfig(const fs::path& folder) {
  const std::string path = (folder / kConfigName).string();
  Result<std::string> text = ReadConfigText(folder);
  if (!text.ok()) return TellConfig(path, text.error());
  scan_.config_json = std::move(*text);
  Result<ModelConfig> config = ParseModelConfig(scan_.config_json, ShownPath(path));
  if (!config.ok()) return TellConfig(path, config.error());
  scan_.config = std::move(*config);
}

void Scanner::FindNames(const std::string& path) {
  if (!scan_.config) return;
  const Status named = FindDecoderNames(NamesOf(scan_.tensors), ShownPath(path), *scan_.config);
  if (!named.ok()) TellConfig(path, named.error());
}

Result<Scan> Scanner::OfFiles(const fs::path& folder, const std::vector<std::string>& names,
                              const std::optional<ShardIndex>& index) {
  for (const std::string& name : names) ReadFile((folder / name).string());
  TellDuplicates(index, folder);
  if (index) {
    CompareIndex(folder, *index);
    CompareTotal(folder, *index);
  }
  SortByName(scan_.tensors);
  SortByName(scan_.damaged);
  ReadConfig(folder);
  FindNames(folder.string());
  return std::move(scan_);
}

Result<Scan> Scanner::OfFolder(const fs::path& folder) {
  Result<std::vector<std::string>> present = FilesIn(folder, kSafetensorsSuffix);
  if (!present.ok()) return present.error();
  const fs::path index_path = folder / kIndexName;
  std::optional<ShardIndex> index;
  if (FileExists(index_path)) {
    Faults faults(index_path.string());
    index = ReadShardIndex(index_path, faults);
    Keep(faults);
  } else if (present->empty()) {
    const Result<std::vector<std::string>> gguf = FilesIn(folder, kGgufSuffix);
    if (!gguf.ok()) return gguf.error();
    if (gguf->size() == 1) return OfGguf((folder / gguf->front()).string());
    return Error{fmt::format("{}: {}; it must have {} or {} or one {} file",
                             ShownPath(folder.string()),
                             gguf->empty() ? "no checkpoint" : "several GGUF files", kSingleName,
                             kIndexName, kGgufSuffix)};
  } else if (present->size() > 1) {
    scan_.findings.push_back(
        {"index", index_path.string(), "",
         fmt::format("{} .safetensors files need an index; it is not there", present->size())});
  }
  std::vector<std::string> read = *present;
  if (index) {
    TellMissing(folder, *index, *present);
    const std::vector<std::string> listed = index->Files();
    std::erase_if(read, [&](const std::string& name) {
      return !std::binary_search(listed.begin(), listed.end(), name);
    });
  }
  return OfFiles(folder, read, index);
}

Result<Scan> Scanner::OfGguf(const std::string& path) {
  scan_.is_gguf = true;
  scan_.files = {path};
  Faults faults(path);
  std::vector<TensorView> damaged;
  const auto file = GgufFile::OpenDamaged(path, faults, &damaged);
  if (!file.ok()) return file.error();
  scan_.file_bytes = (*file)->file_bytes();
  const std::byte* begin = (*file)->header().data();
  for (const auto& [name, view] : (*file)->tensors()) {
    const auto offset = static_cast<uint64_t>(view.bytes.data() - begin);
    scan_.tensors.push_back({{name, view.dtype, view.shape, {}, path}, path, offset});
  }
  for (TensorView& view : damaged) scan_.damaged.push_back({std::move(view), path, 0});
  const bool broken = faults.any();
  Keep(faults);
  Result<std::string> text = DeriveGgufConfig(**file);
  Result<ModelConfig> config =
      text.ok() ? ParseModelConfig(*text, ShownPath(path) + ": metadata as a config")
                : Result<ModelConfig>(text.error());
  if (config.ok()) {
    scan_.config_json = std::move(*text);
    scan_.config = std::move(*config);
  } else if (broken) {
    scan_.why_no_config = config.error().message;  // one cause, one finding
  } else {
    TellConfig(path, config.error());
  }
  return std::move(scan_);
}

Result<Scan> Scanner::Run(const std::string& path) {
  if (path.empty() || path.find('\0') != path.npos) {
    return Error{"an empty path or one with a zero byte is no checkpoint"};
  }
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    return Error{fmt::format("{}: no such file or folder", ShownPath(path))};
  }
  if (fs::is_directory(status)) return OfFolder(path);
  const fs::path file(path);
  if (file.extension() == kGgufSuffix) return OfGguf(path);
  if (file.extension() != kSafetensorsSuffix) {
    return Error{
        fmt::format("{}: not a folder and not a .safetensors or .gguf file", ShownPath(path))};
  }
  const fs::path folder = file.parent_path().empty() ? fs::path(".") : file.parent_path();
  return OfFiles(folder, {file.filename().string()}, std::nullopt);
}

Result<Scan> ScanCheckpoint(const std::string& path) { return Scanner().Run(path); }

}  // namespace assay
