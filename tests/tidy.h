// The house rules as functions: each takes sources and returns one line for every breach.
#pragma once

#include <string>
#include <vector>

#include "tests/build_files.h"
#include "tests/tree.h"

namespace assay::tests {

using Breaches = std::vector<std::string>;

// Tolerances are derived. Looked at: harness/judge, harness/locate and reference, and the tests of
// kernels. A breach is an EXPECT_NEAR, a comparison or a name like tol, eps with a literal number.
Breaches LiteralTolerances(const std::vector<SourceFile>& tree);

// .cc, .h, .bzl and .py files of more than `limit` lines.
Breaches LongFiles(const std::vector<SourceFile>& tree, int limit);
// Functions (also tests) of C++ files with more than `limit` lines, brace to brace.
Breaches LongFunctions(const std::vector<SourceFile>& tree, int limit);

// Words that must not be in a release: notes to oneself, paths of one machine.
Breaches ForbiddenWords(const std::vector<SourceFile>& tree);

// Every *_test.cc is a source of some test target.
Breaches TestFilesWithoutTarget(const std::vector<SourceFile>& tree,
                                const std::vector<Target>& targets);
// Every cc_test has a source with at least one TEST.
Breaches TargetsWithoutTest(const std::vector<SourceFile>& tree,
                            const std::vector<Target>& targets);
// Suite.Name may be used once in the tree: a report must name one test.
Breaches TestsOfOneName(const std::vector<SourceFile>& tree);

// Every room has a README.md: the folders of harness/, and the other folders of the root.
// Tests that the table of bug reports names ("file": ..., "name": "Suite.Test") and that are not in
// that file.
Breaches TestsOfTableThatAreMissing(const std::vector<SourceFile>& tree, const std::string& table);
Breaches RoomsWithoutReadme(const std::vector<SourceFile>& tree);

}  // namespace assay::tests
