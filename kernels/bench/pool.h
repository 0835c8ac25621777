// Threads that start a pass together: they spin between passes, since waking one up would cost as
// much as a pass.
#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace assay::kernels::bench {

class Pool {
 public:
  explicit Pool(int threads);  // at least 1; the caller is one of them
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  // Calls work(0) … work(threads − 1), each on its own thread; returns when all are done.
  void Run(const std::function<void(int)>& work);

 private:
  void Loop(int index);

  const int threads_;
  const std::function<void(int)>* work_ = nullptr;  // nullptr with a new pass: stop
  std::atomic<int> pass_{0};
  std::atomic<int> done_{0};
  std::vector<std::thread> others_;
};

}  // namespace assay::kernels::bench
