// Who may see whom (the rooms' walls, //BUILD), checked on BUILD files and on #include lines.
#pragma once

#include <vector>

#include "tests/build_files.h"
#include "tests/tidy.h"
#include "tests/tree.h"

namespace assay::tests {

// Everything that a target of kernels/ or reference/ reaches, through any number of targets.
Breaches ForbiddenDependencies(const std::vector<Target>& targets);

// The same for #include lines, file by file: headers can be found without a dependency.
Breaches ForbiddenIncludes(const std::vector<SourceFile>& tree);

}  // namespace assay::tests
