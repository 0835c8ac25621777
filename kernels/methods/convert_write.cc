#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "kernels/methods/convert_plan.h"
#include "kernels/methods/out_file.h"

namespace assay::kernels {
namespace {

using nlohmann::json;

// One file: the tensors of a run of steps.
struct FilePlan {
  size_t first_step = 0, end_step = 0;
  int64_t bytes = 0;
  std::string name, header;
};

int64_t OutBytes(const ConvertStep& step) {
  int64_t bytes = 0;
  for (const OutTensor& out : step.out) bytes += out.bytes;
  return bytes;
}

std::vector<FilePlan> PlanFiles(const ConvertPlan& plan, int64_t most) {
  std::vector<FilePlan> files(1);
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const int64_t bytes = OutBytes(plan.steps[i]);
    const bool full = files.back().bytes > 0 && files.back().bytes + bytes > most;
    if (full) {
      files.emplace_back();
      files.back().first_step = i;
    }
    files.back().end_step = i + 1;
    files.back().bytes += bytes;
  }
  for (size_t i = 0; i < files.size(); ++i) {
    files[i].name = files.size() == 1
                        ? "model.safetensors"
                        : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
  }
  return files;
}

// The header, and every tensor's place: wide types first, so that each is aligned to its type.
Status PlaceTensors(const ConvertPlan& plan, FilePlan* file,
                    std::vector<std::vector<int64_t>>* offsets) {
  struct Item {
    const OutTensor* tensor;
    int64_t* offset;
  };
  std::vector<Item> items;
  for (size_t i = file->first_step; i < file->end_step; ++i) {
    (*offsets)[i].resize(plan.steps[i].out.size());
    for (size_t j = 0; j < plan.steps[i].out.size(); ++j) {
      items.push_back({&plan.steps[i].out[j], &(*offsets)[i][j]});
    }
  }
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    const auto key = [](const Item& item) {
      return std::pair<int64_t, std::string_view>(-SizeOf(item.tensor->dtype).count(),
                                                  item.tensor->name);
    };
    return key(a) < key(b);
  });
  json header = {{"__metadata__", {{"format", "pt"}}}};
  int64_t offset = 0;
  for (const Item& item : items) {
    const int64_t end = offset + item.tensor->bytes;
    const json entry = {{"dtype", NameOf(item.tensor->dtype)},
                        {"shape", item.tensor->shape},
                        {"data_offsets", {offset, end}}};
    if (!header.emplace(item.tensor->name, entry).second) {
      return Error{fmt::format("tensor {}: two tensors would have this name", item.tensor->name)};
    }
    *item.offset = offset;
    offset = end;
  }
  try {
    file->header = header.dump();
  } catch (const json::exception&) {
    return Error{"a tensor's name is not UTF-8"};
  }
  file->header.resize((file->header.size() + 7) / 8 * 8, ' ');
  for (const Item& item : items) {
    *item.offset += 8 + static_cast<int64_t>(file->header.size());
  }
  return Ok();
}

class Writer {
 public:
  Writer(const TensorSource& source, const Scheme& scheme, const ConvertOptions& options,
         const ConvertPlan& plan, const NewFolder& folder)
      : source_(source), scheme_(scheme), options_(options), plan_(plan), folder_(folder) {}

  Status WriteFiles() {
    std::vector<FilePlan> files = PlanFiles(plan_, options_.max_file_bytes);
    std::vector<std::vector<int64_t>> offsets(plan_.steps.size());
    for (FilePlan& file : files) {
      if (Status good = PlaceTensors(plan_, &file, &offsets); !good.ok()) return good;
      if (Status good = WriteFile(file, offsets); !good.ok()) return good;
    }
    return files.size() == 1 ? Ok() : WriteIndex(files);
  }

 private:
  Status WriteFile(const FilePlan& file, const std::vector<std::vector<int64_t>>& offsets) {
    Result<OutFile> out = OutFile::Create(folder_.Path(file.name));
    if (!out.ok()) return out.error();
    const uint64_t length = file.header.size();
    Status good = out->WriteAt(0, std::as_bytes(std::span(&length, 1)));
    if (good.ok()) good = out->WriteAt(8, std::as_bytes(std::span(file.header)));
    if (good.ok()) good = RunSteps(file, offsets, *out);
    return good.ok() ? out->Finish() : good;
  }

  // The steps of a file, by as many threads as are asked for: each takes the next one. The error is
  // that of the first step that has one, as if they had run in turn.
  Status RunSteps(const FilePlan& file, const std::vector<std::vector<int64_t>>& offsets,
                  const OutFile& out) {
    std::atomic<size_t> next = file.first_step;
    std::atomic<bool> failed = false;
    std::mutex mutex;
    std::map<size_t, Error> errors;
    const auto work = [&] {
      while (!failed) {
        const size_t i = next++;
        if (i >= file.end_step) return;
        const ConvertStep& step = plan_.steps[i];
        const Status good =
            RunStep(source_, plan_, step, scheme_, options_,
                    [&](size_t tensor, int64_t offset, std::span<const std::byte> bytes) {
                      return out.WriteAt(offsets[i][tensor] + offset, bytes);
                    });
        const std::lock_guard lock(mutex);
        if (!good.ok()) {
          errors.emplace(i, good.error());
          failed = true;
          continue;
        }
        done_ += static_cast<int64_t>(step.in->bytes.size());
        if (options_.progress) options_.progress(done_, plan_.in_bytes);
      }
    };
    std::vector<std::jthread> threads;
    for (int i = 1; i < options_.threads; ++i) threads.emplace_back(work);
    work();
    threads.clear();
    return errors.empty() ? Ok() : Status(errors.begin()->second);
  }

  Status WriteIndex(const std::vector<FilePlan>& files) const {
    json map = json::object();
    int64_t total = 0;
    for (const FilePlan& file : files) {
      total += file.bytes;
      for (size_t i = file.first_step; i < file.end_step; ++i) {
        for (const OutTensor& out : plan_.steps[i].out) map[out.name] = file.name;
      }
    }
    const json index = {{"metadata", {{"total_size", total}}}, {"weight_map", map}};
    return WriteWhole(folder_.Path("model.safetensors.index.json"),
                      index.dump(1) + "\n");  // the headers have shown that it is UTF-8
  }

  const TensorSource& source_;
  const Scheme& scheme_;
  const ConvertOptions& options_;
  const ConvertPlan& plan_;
  const NewFolder& folder_;
  int64_t done_ = 0;
};

}  // namespace

Status WriteConverted(const TensorSource& source, std::string_view config_json,
                      const Scheme& scheme, const ConvertOptions& options,
                      const std::string& path) {
  if (scheme.family == MethodFamily::kGguf) {
    return Error{
        fmt::format("{}: safetensors cannot hold its blocks; a GGUF file can", NameOf(scheme)),
        ErrorKind::kUnsupported};
  }
  const Result<ConvertPlan> plan = PlanConversion(source, scheme, options);
  if (!plan.ok()) return plan.error();
  // ModelSlim's config has no quantization_config: the description beside it says all.
  const bool described = !plan->description.empty();
  const Result<std::string> config = WithQuantConfig(
      config_json, described ? "" : QuantConfigJson(scheme, plan->ignored, plan->modules));
  if (!config.ok()) return config.error();
  Result<NewFolder> folder = NewFolder::Create(path);
  if (!folder.ok()) return folder.error();
  Status good = Writer(source, scheme, options, *plan, *folder).WriteFiles();
  if (good.ok() && described) {
    good = WriteWhole(folder->Path("quant_model_description.json"), plan->description + "\n");
  }
  if (good.ok()) good = WriteWhole(folder->Path("config.json"), *config);
  return good.ok() ? folder->Commit() : good;
}

}  // namespace assay::kernels
