#include "harness/audit/stream.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

namespace assay::audit {
namespace {

using Clock = std::chrono::steady_clock;

// Fits a core's second-level cache: what is read is looked at before it leaves it.
constexpr size_t kBuffer = 256 << 10;
constexpr uint64_t kUnit = 8 << 20;  // a thread's share of a large tensor
constexpr size_t kAlignment = 4096;

struct Unit {
  size_t item = 0;
  uint64_t begin = 0, end = 0;
};

std::vector<Unit> UnitsOf(const std::vector<StreamItem>& items) {
  std::vector<Unit> units;
  for (size_t i = 0; i < items.size(); ++i) {
    const uint64_t grain = Grain(items[i].lens);
    const uint64_t size =
        items[i].whole && items[i].bytes <= kMaxWhole ? items[i].bytes : kUnit / grain * grain;
    for (uint64_t at = 0; at < items[i].bytes; at += size) {
      units.push_back({i, at, std::min(at + size, items[i].bytes)});
    }
  }
  return units;
}

std::string Reason(int error) { return std::generic_category().message(error); }

// Descriptors, opened when first needed and closed with the last reader's end.
class Files {
 public:
  explicit Files(const std::vector<std::string>& paths) : paths_(paths), open_(paths.size()) {}
  ~Files() {
    for (const Opened& file : open_) {
      if (file.descriptor >= 0) close(file.descriptor);
    }
  }

  // -1: cannot be opened; `error` says why.
  int Get(uint32_t index, std::string* error) {
    const std::lock_guard lock(mutex_);
    Opened& file = open_[index];
    if (file.descriptor < 0 && file.error.empty()) Open(paths_[index], &file);
    *error = file.error;
    return file.descriptor;
  }

 private:
  struct Opened {
    int descriptor = -1;
    std::string error;
  };
  static void Open(const std::string& path, Opened* file) {
    // Not blocking: a pipe that has the place of a file would wait for a writer.
    file->descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->descriptor < 0) {
      file->error = "cannot be opened: " + Reason(errno);
      return;
    }
    struct stat status {};
    if (fstat(file->descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
      close(file->descriptor);
      file->descriptor = -1;
      file->error = "is no regular file";
      return;
    }
    posix_fadvise(file->descriptor, 0, 0, POSIX_FADV_SEQUENTIAL);
  }

  std::mutex mutex_;
  const std::vector<std::string>& paths_;
  std::vector<Opened> open_;
};

// Reads exactly `into`; the reason where it cannot.
std::string ReadAt(int descriptor, uint64_t offset, std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t got = pread(descriptor, into.data(), into.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fmt::format("cannot be read at byte {}: {}", offset, Reason(errno));
    if (got == 0)
      return fmt::format("ends at byte {}: it became shorter while it was read", offset);
    into = into.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return "";
}

struct FreeAligned {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<std::byte, FreeAligned>;

Buffer Allocate(size_t bytes) {
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return Buffer(static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded)));
}

class Reader {
 public:
  Reader(const std::vector<std::string>& paths, const std::vector<StreamItem>& items,
         const StreamOptions& options, StreamResult* result)
      : items_(items), options_(options), units_(UnitsOf(items)), files_(paths), result_(result) {
    for (const StreamItem& item : items) total_ += item.bytes;
  }

  void Run() {
    const Clock::time_point start = Clock::now();
    const auto seconds = [&] {
      return std::chrono::duration<double>(Clock::now() - start).count();
    };
    std::vector<std::thread> workers;
    working_ = std::max(options_.threads, 1);
    for (int i = 0, count = working_; i < count; ++i) {
      try {
        workers.emplace_back([this] { Work(); });
      } catch (const std::system_error&) {
        // The machine has no more: those that there are do the work, or this one.
        const std::lock_guard lock(mutex_);
        working_ -= count - i - (i == 0 ? 1 : 0);
        break;
      }
    }
    if (workers.empty()) Work();
    {
      std::unique_lock lock(mutex_);
      while (!finished_.wait_for(lock, std::chrono::milliseconds(200),
                                 [&] { return working_ == 0; })) {
        if (!options_.on_progress) continue;
        lock.unlock();
        options_.on_progress({done_, total_, seconds()});
        lock.lock();
      }
    }
    for (std::thread& worker : workers) worker.join();
    result_->bytes = done_;
    result_->seconds = seconds();
    if (options_.on_progress) options_.on_progress({done_, total_, result_->seconds});
    for (auto& [file, error] : errors_) result_->errors.push_back(std::move(error));
  }

 private:
  void Work() {
    const Buffer buffer = Allocate(kBuffer);
    for (size_t i = next_++; buffer != nullptr && i < units_.size(); i = next_++) {
      Read(units_[i], buffer.get());
    }
    const std::lock_guard lock(mutex_);
    if (buffer == nullptr) Fail(0, "there is no memory for a buffer");
    if (--working_ == 0) finished_.notify_all();
  }

  void Read(const Unit& unit, std::byte* buffer) {
    const StreamItem& item = items_[unit.item];
    std::string error;
    const int descriptor = files_.Get(item.file, &error);
    Tally tally;
    const bool whole = item.whole && item.bytes <= kMaxWhole && options_.on_whole;
    Buffer all;
    if (whole && item.bytes > kBuffer && !(all = Allocate(item.bytes))) {
      error = fmt::format("{} bytes of memory for a tensor are not there", item.bytes);
    }
    std::byte* into = all ? all.get() : buffer;
    const uint64_t grain = Grain(item.lens);
    const uint64_t step = all ? item.bytes : kBuffer / grain * grain;
    for (uint64_t at = unit.begin; error.empty() && at < unit.end; at += step) {
      const std::span<std::byte> part(into, std::min(step, unit.end - at));
      error = ReadAt(descriptor, item.offset + at, part);
      if (!error.empty()) break;
      Look(item.lens, part, at, &tally);
      if (whole) options_.on_whole(unit.item, part);
      done_ += part.size();
    }
    const std::lock_guard lock(mutex_);
    result_->tallies[unit.item].Merge(tally);
    if (!error.empty()) Fail(unit.item, error);
  }

  // Under the lock. One error a file: whoever reads it knows what to do with the rest.
  void Fail(size_t item, const std::string& reason) {
    const uint32_t file = items_.empty() ? 0 : items_[item].file;
    const auto [at, added] = errors_.try_emplace(file, StreamError{file, item, reason, 0});
    if (added) return;
    StreamError& error = at->second;
    if (item != error.item) ++error.more;
    if (item < error.item) {
      error.item = item;
      error.reason = reason;
    }
  }

  const std::vector<StreamItem>& items_;
  const StreamOptions& options_;
  const std::vector<Unit> units_;
  Files files_;
  StreamResult* result_;
  uint64_t total_ = 0;
  std::atomic<size_t> next_{0};
  std::atomic<uint64_t> done_{0};
  std::mutex mutex_;
  std::condition_variable finished_;
  int working_ = 0;
  std::map<uint32_t, StreamError> errors_;
};

}  // namespace

StreamResult Stream(const std::vector<std::string>& paths, const std::vector<StreamItem>& items,
                    const StreamOptions& options) {
  StreamResult result;
  result.tallies.resize(items.size());
  Reader(paths, items, options, &result).Run();
  return result;
}

}  // namespace assay::audit
