// Cells of tests: run, and what is expected of them.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "harness/run/cell.h"

namespace assay::run {

inline constexpr const char* kExample = "harness/abi/example/libexample.so";
inline constexpr const char* kQuiet = "harness/run/libquiet_engine.so";
inline constexpr const char* kOdd = "harness/run/libodd_engine.so";

inline ModelStore& Models() {
  static ModelStore models;
  return models;
}

inline CellResult Execute(const std::string& text, int64_t time_ms = 20000) {
  const auto problem = ParseProblem(text);
  if (!problem) {
    ADD_FAILURE() << text << ": " << problem.error().message;
    return {};
  }
  CellLimits limits;
  limits.time_ms = time_ms;
  return ExecuteCell(*problem, &Models(), limits).result;
}

inline void ExpectVerdict(const CellResult& cell, Verdict verdict, const std::string& reason) {
  EXPECT_EQ(NameOf(cell.verdict), NameOf(verdict)) << cell.problem << "\n" << cell.reason;
  EXPECT_NE(cell.reason.find(reason), std::string::npos)
      << "'" << reason << "' not in: " << cell.reason;
}

inline void ExpectSignature(const CellResult& cell, const std::string& cls, const std::string& id) {
  ASSERT_FALSE(cell.divergences.empty()) << cell.reason;
  EXPECT_EQ(cell.divergences[0].cls, cls);
  EXPECT_EQ(cell.divergences[0].signature.id, id);
}

}  // namespace assay::run
