// What travels between ranks, hop by hop. A schedule is data: whoever carries it out, in whatever
// order in time, gives the same bits.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace assay::kernels {

enum class Order { kSequential, kRing, kTree };
// The type in which values travel. Sums are fp32 at any rate.
enum class Wire { kFp32, kBf16 };

// What `reduce=` names: "ring:bf16".
struct Reduction {
  Order order = Order::kSequential;
  Wire wire = Wire::kFp32;
  friend bool operator==(const Reduction&, const Reduction&) = default;
};
// All six, in the order in which they are listed.
std::span<const Reduction> Reductions();
std::string NameOf(const Reduction& reduction);  // "ring:bf16"
// "ring" is "ring:fp32"; nullopt: there is none of that name.
std::optional<Reduction> ReductionFromName(std::string_view name);

// One message. Values [begin, begin + length) of the flat array leave `from` rounded to the wire
// and are added to, or put in the place of, what `to` has there. from == to: a rank does to its own
// values what the wire does to those that it sends away.
struct Hop {
  int from = 0, to = 0;
  int64_t begin = 0, length = 0;
  bool adds = false;
  friend bool operator==(const Hop&, const Hop&) = default;
};

// A valid order in time: a hop depends only on hops before it, and each rank takes part in its own
// hops in this order.
using Schedule = std::vector<Hop>;

// Chunk c of `count` values over `ranks`: ceil(count/ranks) values, the last ones shorter or empty.
struct Chunk {
  int64_t begin = 0, length = 0;
};
Chunk ChunkOf(int64_t count, int ranks, int chunk);

// Afterwards every rank has the sum of all, rounded to the wire once more (of one rank nothing
// travels, and nothing is rounded).
// - sequential: rank 0 adds the others' in rank order, and sends the sum to each.
// - ring: chunk c starts at rank c+1 and goes round to rank c, which is the last to add; then the
//   sums go round.
// - tree: at distance 1, 2, 4 … the upper rank of each pair sends to the lower one; then down
// again.
Schedule AllReduceSchedule(Order order, int ranks, int64_t count);
// Afterwards rank c has the sum of chunk c, not rounded again. As above, but sequential and tree
// count ranks from c: rank c is their root.
Schedule ReduceScatterSchedule(Order order, int ranks, int64_t count);

}  // namespace assay::kernels
