// What the child process does between fork and its end.
#pragma once

#include <sys/types.h>

#include "harness/abi/child.h"

namespace assay::abi {

// `transfer` is the memory file that records go to, `output` the pipe that replaces stdout and
// stderr, `parent` the process to die with. Ends the process: with a kEnd record and status 0, or
// as the engine ends it. noexcept: an engine's exception must end here, not in a handler of the
// parent's that lies further up the stack.
[[noreturn]] void ChildMain(const Script& script, int transfer, int output, pid_t parent) noexcept;

}  // namespace assay::abi
