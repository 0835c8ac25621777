#include "kernels/collectives/schedule.h"

#include <algorithm>

namespace assay::kernels {
namespace {

constexpr Reduction kReductions[] = {
    {Order::kSequential, Wire::kFp32}, {Order::kSequential, Wire::kBf16},
    {Order::kRing, Wire::kFp32},       {Order::kRing, Wire::kBf16},
    {Order::kTree, Wire::kFp32},       {Order::kTree, Wire::kBf16},
};

std::string_view NameOf(Order order) {
  switch (order) {
    case Order::kSequential:
      return "sequential";
    case Order::kRing:
      return "ring";
    case Order::kTree:
      return "tree";
  }
  return "unknown";
}

std::string_view NameOf(Wire wire) { return wire == Wire::kFp32 ? "fp32" : "bf16"; }

class Maker {
 public:
  explicit Maker(int ranks) : ranks_(ranks) {}

  // An empty chunk needs no message.
  void Put(int from, int to, Chunk chunk, bool adds) {
    if (chunk.length == 0) return;
    schedule_.push_back({from % ranks_, to % ranks_, chunk.begin, chunk.length, adds});
  }
  // Towards `root`; ranks are counted from there.
  void Sequential(int root, Chunk chunk) {
    for (int i = 1; i < ranks_; ++i) Put(root + i, root, chunk, true);
  }
  void Tree(int root, Chunk chunk) {
    for (int distance = 1; distance < ranks_; distance *= 2) {
      for (int i = 0; i + distance < ranks_; i += 2 * distance) {
        Put(root + i + distance, root + i, chunk, true);
      }
    }
  }
  // All chunks at once, each one rank further with every step.
  void Ring(int64_t count) {
    for (int step = 1; step < ranks_; ++step) {
      for (int c = 0; c < ranks_; ++c) Put(c + step, c + step + 1, ChunkOf(count, ranks_, c), true);
    }
  }
  Schedule Take() { return std::move(schedule_); }

 private:
  int ranks_;
  Schedule schedule_;
};

// From its owner the sum goes to everybody; the owner keeps what it sent.
void Spread(Order order, int ranks, int64_t count, Maker* maker) {
  const Chunk all{0, count};
  if (order == Order::kSequential) {
    for (int to = 0; to < ranks; ++to) maker->Put(0, to, all, false);
  } else if (order == Order::kTree) {
    maker->Put(0, 0, all, false);
    int distance = 1;
    while (distance < ranks) distance *= 2;
    for (distance /= 2; distance > 0; distance /= 2) {
      for (int i = 0; i + distance < ranks; i += 2 * distance) {
        maker->Put(i, i + distance, all, false);
      }
    }
  } else {
    for (int c = 0; c < ranks; ++c) maker->Put(c, c, ChunkOf(count, ranks, c), false);
    for (int step = 0; step + 1 < ranks; ++step) {
      for (int c = 0; c < ranks; ++c) {
        maker->Put(c + step, c + step + 1, ChunkOf(count, ranks, c), false);
      }
    }
  }
}

}  // namespace

std::span<const Reduction> Reductions() { return kReductions; }

std::string NameOf(const Reduction& reduction) {
  return std::string(NameOf(reduction.order)) + ":" + std::string(NameOf(reduction.wire));
}

std::optional<Reduction> ReductionFromName(std::string_view name) {
  for (const Reduction& reduction : kReductions) {
    if (name == NameOf(reduction)) return reduction;
    if (reduction.wire == Wire::kFp32 && name == NameOf(reduction.order)) return reduction;
  }
  return std::nullopt;
}

Chunk ChunkOf(int64_t count, int ranks, int chunk) {
  const int64_t length = (count + ranks - 1) / ranks;
  const int64_t begin = std::min(count, chunk * length);
  return {begin, std::min(length, count - begin)};
}

Schedule AllReduceSchedule(Order order, int ranks, int64_t count) {
  Maker maker(ranks);
  if (ranks < 2) return {};
  const Chunk all{0, count};
  if (order == Order::kSequential) maker.Sequential(0, all);
  if (order == Order::kTree) maker.Tree(0, all);
  if (order == Order::kRing) maker.Ring(count);
  Spread(order, ranks, count, &maker);
  return maker.Take();
}

Schedule ReduceScatterSchedule(Order order, int ranks, int64_t count) {
  Maker maker(ranks);
  if (ranks < 2) return {};
  if (order == Order::kRing) maker.Ring(count);
  for (int c = 0; c < ranks; ++c) {
    if (order == Order::kSequential) maker.Sequential(c, ChunkOf(count, ranks, c));
    if (order == Order::kTree) maker.Tree(c, ChunkOf(count, ranks, c));
  }
  return maker.Take();
}

}  // namespace assay::kernels
