#include "kernels/engines/native/thread_pool.h"

#include <algorithm>

namespace assay::kernels::native {

ThreadPool::ThreadPool(int threads) : runs_(static_cast<size_t>(std::max(threads, 1) - 1)) {
  workers_.reserve(runs_.size());
  for (size_t i = 0; i < runs_.size(); ++i) workers_.emplace_back([this, i] { Serve(i); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

int ThreadPool::Split(int64_t count, int64_t tile,
                      const std::function<void(int64_t, int64_t)>& work) {
  if (count <= 0) return 0;
  const int64_t tiles = (count + tile - 1) / tile;
  const int64_t users = std::min<int64_t>(threads(), tiles);
  const auto bound = [&](int64_t i) { return std::min(count, tiles * i / users * tile); };
  if (users == 1) {
    work(0, count);
    return 1;
  }
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < runs_.size(); ++i) {
      const auto part = static_cast<int64_t>(i) + 1;
      runs_[i] = part < users ? Run{bound(part), bound(part + 1)} : Run{};
    }
    work_ = &work;
    pending_ = static_cast<int>(runs_.size());
    ++round_;
  }
  wake_.notify_all();
  work(0, bound(1));
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return pending_ == 0; });
  return static_cast<int>(users);
}

void ThreadPool::Serve(size_t worker) {
  uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stop_ || round_ != seen; });
    if (stop_) return;
    seen = round_;
    const Run run = runs_[worker];
    const auto* work = work_;
    lock.unlock();
    if (run.begin < run.end) (*work)(run.begin, run.end);
    lock.lock();
    if (--pending_ == 0) done_.notify_one();
  }
}

}  // namespace assay::kernels::native
