// Carries out a schedule: each rank sends and receives through mailboxes, one a hop.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/collectives/schedule.h"

namespace assay::kernels {

enum class Executor {
  kThreads,  // each rank is a thread; hops are ordered by the messages alone
  kOne,      // the calling thread does every rank's part, hop after hop
};
// Threads where this host has a core for each rank.
Executor ExecutorFor(int ranks);

// values[rank]: that rank's `count` values; nobody but the rank's own thread touches them. Bits do
// not depend on the executor nor on how threads are scheduled. Where the system gives no threads,
// the calling thread does it all.
void Exchange(const Schedule& schedule, Wire wire, std::span<float* const> values,
              Executor executor);

}  // namespace assay::kernels
