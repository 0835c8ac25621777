// A few threads that split a range of rows. Made once a session, idle between ops.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace assay::kernels::native {

class ThreadPool {
 public:
  // `threads` >= 1, the calling thread included: 1 makes none.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Splits [0, count) into equal runs whose bounds are multiples of `tile`, one a thread, and
  // returns when work(begin, end) has run on all of them. Returns how many threads had work. `work`
  // must not throw.
  int Split(int64_t count, int64_t tile, const std::function<void(int64_t, int64_t)>& work);
  int threads() const { return static_cast<int>(workers_.size()) + 1; }

 private:
  struct Run {
    int64_t begin = 0, end = 0;
  };
  void Serve(size_t worker);

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::vector<Run> runs_;  // of the workers
  const std::function<void(int64_t, int64_t)>* work_ = nullptr;
  uint64_t round_ = 0;
  int pending_ = 0;
  bool stop_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace assay::kernels::native
