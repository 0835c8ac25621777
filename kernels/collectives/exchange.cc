#include "kernels/collectives/exchange.h"

#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace assay::kernels {
namespace {

// Nearest, ties to even; NaN stays NaN.
uint16_t ToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}
float FromBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// A message on the wire: what it is made of, nobody but sender and receiver sees.
class Mailbox {
 public:
  // Before any rank starts: a thread that found no memory could tell nobody.
  void Reserve(int64_t count, Wire wire) {
    if (wire == Wire::kFp32) {
      words_.reserve(static_cast<size_t>(count));
    } else {
      halves_.reserve(static_cast<size_t>(count));
    }
  }
  // By the sender, once; within what was reserved.
  void Send(const float* values, int64_t count, Wire wire) {
    if (wire == Wire::kFp32) {
      words_.assign(values, values + count);
    } else {
      halves_.resize(static_cast<size_t>(count));
      for (size_t i = 0; i < halves_.size(); ++i) halves_[i] = ToBf16(values[i]);
    }
    full_.store(true, std::memory_order_release);
    full_.notify_one();
  }
  // By the receiver, once; waits until the message is there.
  void Receive(float* values, bool adds) {
    full_.wait(false, std::memory_order_acquire);
    for (size_t i = 0; i < words_.size(); ++i) Put(words_[i], adds, values + i);
    for (size_t i = 0; i < halves_.size(); ++i) Put(FromBf16(halves_[i]), adds, values + i);
    std::vector<float>().swap(words_);
    std::vector<uint16_t>().swap(halves_);
  }

 private:
  static void Put(float value, bool adds, float* to) { *to = adds ? value + *to : value; }
  std::atomic<bool> full_ = false;
  std::vector<float> words_;
  std::vector<uint16_t> halves_;
};

// A rank's part of one hop.
void Step(const Hop& hop, int rank, Wire wire, float* values, Mailbox* box) {
  if (hop.from == rank) box->Send(values + hop.begin, hop.length, wire);
  if (hop.to == rank) box->Receive(values + hop.begin, hop.adds);
}

void RunRank(const Schedule& schedule, int rank, Wire wire, float* values, Mailbox* boxes) {
  for (size_t i = 0; i < schedule.size(); ++i) Step(schedule[i], rank, wire, values, &boxes[i]);
}

void RunAll(const Schedule& schedule, Wire wire, std::span<float* const> values, Mailbox* boxes) {
  for (size_t i = 0; i < schedule.size(); ++i) {
    const Hop& hop = schedule[i];
    Step(hop, hop.from, wire, values[static_cast<size_t>(hop.from)], &boxes[i]);
    if (hop.to == hop.from) continue;
    Step(hop, hop.to, wire, values[static_cast<size_t>(hop.to)], &boxes[i]);
  }
}

// false: there were no threads to be had, and no value was touched.
bool RunThreads(const Schedule& schedule, Wire wire, std::span<float* const> values,
                Mailbox* boxes) {
  enum Gate { kClosed, kOpen, kAbandoned };
  std::atomic<int> gate = kClosed;
  std::vector<std::thread> threads;
  threads.reserve(values.size());
  const auto finish = [&](Gate to) {
    gate.store(to, std::memory_order_release);
    gate.notify_all();
  };
  try {
    for (size_t rank = 1; rank < values.size(); ++rank) {
      threads.emplace_back([&, rank] {
        gate.wait(kClosed, std::memory_order_acquire);
        if (gate.load(std::memory_order_acquire) != kOpen) return;
        RunRank(schedule, static_cast<int>(rank), wire, values[rank], boxes);
      });
    }
  } catch (...) {
    // No thread to be had, or no memory for one: nobody may be left waiting.
    finish(kAbandoned);
    for (std::thread& thread : threads) thread.join();
    return false;
  }
  finish(kOpen);
  RunRank(schedule, 0, wire, values[0], boxes);
  for (std::thread& thread : threads) thread.join();
  return true;
}

}  // namespace

Executor ExecutorFor(int ranks) {
  return static_cast<unsigned>(ranks) <= std::thread::hardware_concurrency() ? Executor::kThreads
                                                                             : Executor::kOne;
}

void Exchange(const Schedule& schedule, Wire wire, std::span<float* const> values,
              Executor executor) {
  if (schedule.empty()) return;
  const auto boxes = std::make_unique<Mailbox[]>(schedule.size());
  for (size_t i = 0; i < schedule.size(); ++i) boxes[i].Reserve(schedule[i].length, wire);
  if (executor == Executor::kThreads && RunThreads(schedule, wire, values, boxes.get())) return;
  RunAll(schedule, wire, values, boxes.get());
}

}  // namespace assay::kernels
