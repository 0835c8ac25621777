// How one component is cut under given degrees: first the logical axis into parts, then the parts
// into ranges of the stored tensor, by exact division. Internal to the room.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/shard/listing.h"

namespace assay::shard {

// The logical axis of a parameter, cut into parts; which rank has which part is DomainOf's.
struct LogicalCut {
  Along along = Along::kNone;  // kNone: nothing is cut
  enum class Kind { kEven, kHeads, kVocab, kCeil, kList } kind = Kind::kEven;
  int parts = 1;
  int replicas = 1;    // consecutive parts that hold the same (KV heads)
  int64_t extent = 0;  // logical elements of the axis
  int64_t unit = 1;    // of kCeil and kList: logical elements of one unit of the split
  int64_t heads = 0;   // of kHeads
};

// Ranks that share an axis: "tp", "attn_tp", "moe_tp".
struct Domain {
  std::string name = "tp";
  int parts = 1;
};

// Part `index`: real elements, then padding.
struct LogicalRange {
  int64_t begin = 0, real = 0, padding = 0;
};

// What all components of a plan share.
class Cutter {
 public:
  // Both must outlive it. Units of a split are found among `listed`.
  Cutter(const ModelConfig& config, const Degrees& degrees, const std::vector<Listed>& listed);

  // What forbids these degrees for the component; no value where it is legal.
  std::optional<Refusal> Check(const Listed& listed) const;
  // Of a legal component.
  ComponentPlan Plan(Listed listed) const;

 private:
  Domain DomainOf(const Listed& listed) const;
  LogicalCut LogicalOf(const Listed& listed) const;
  // The rank's part; -1: the rank does not hold the component.
  int PartOf(const Listed& listed, const Domain& domain, int rank) const;
  bool WholeOnRankZero(const Listed& listed) const;
  bool SplitApplies(const Listed& listed) const;
  bool Holds(int64_t expert, int ep_rank) const;

  const ModelConfig& config_;
  const Degrees& degrees_;
  // By MLP, "L1.moe.e5": the coarsest unit of its intermediate axis. Only where a split needs it.
  std::map<std::string, int64_t, std::less<>> units_;
};

// Degrees that fit each other, whatever the model. Error: a count out of range, a list or map that
// does not fit. A degree that does not divide another is a Refusal.
Status CheckDegrees(const ModelConfig& config, const Degrees& degrees);
std::optional<Refusal> RefuseDegrees(const ModelConfig& config, const Degrees& degrees);

}  // namespace assay::shard
