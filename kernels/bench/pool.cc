#include "kernels/bench/pool.h"

namespace assay::kernels::bench {

Pool::Pool(int threads) : threads_(threads) {
  for (int i = 1; i < threads; ++i) others_.emplace_back([this, i] { Loop(i); });
}

Pool::~Pool() {
  work_ = nullptr;
  pass_.fetch_add(1, std::memory_order_release);
  for (std::thread& other : others_) other.join();
}

void Pool::Run(const std::function<void(int)>& work) {
  work_ = &work;
  done_.store(0, std::memory_order_relaxed);
  pass_.fetch_add(1, std::memory_order_release);
  work(0);
  while (done_.load(std::memory_order_acquire) < threads_ - 1) std::this_thread::yield();
}

void Pool::Loop(int index) {
  for (int seen = 0;;) {
    while (pass_.load(std::memory_order_acquire) == seen) std::this_thread::yield();
    ++seen;
    if (work_ == nullptr) return;
    (*work_)(index);
    done_.fetch_add(1, std::memory_order_release);
  }
}

}  // namespace assay::kernels::bench
