// The matrix as data: rows that cross keys, expanded to problems.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/run/model.h"
#include "harness/run/problem.h"

namespace assay::run {

struct MatrixRow {
  std::string name;
  std::string kind;
  // Keys in canonical order, each with the values it takes.
  std::vector<std::pair<std::string, std::vector<std::string>>> cross;
  // Also crossed with every row of the kernel registry whose method the op's weights have.
  bool registry = false;
  int64_t legal = 0;  // how many of the row's cells the plan must call legal
  std::string path;   // of the file that has it
};

struct MatrixCell {
  Problem problem;
  size_t row = 0;
  bool legal = true;
  // false: its model is fetched and not on this machine, so that nothing was resolved and nobody
  // can say whether it is legal.
  bool known = true;
};

struct Filter {
  std::string key;                  // "kind" too
  std::vector<std::string> values;  // any of them; tier and method match by prefix
};

// Cells that are left out on purpose: they end as SKIPPED, with the reason. Only what the matrix
// file allows can be skipped; nothing in the code skips a cell.
struct Skip {
  std::vector<Filter> filters;
  std::string reason;
};
// "skips": [{"cells": ["model=x", "tp=3"], "reason": "…"}] of a matrix file. Error: as ReadMatrix.
Result<std::vector<Skip>> ReadSkips(const std::string& path);

// Reads DIR/default.json and the like. Errors name the file, the row and what is allowed.
Result<std::vector<MatrixRow>> ReadMatrix(const std::string& path);

// All cells, in the order of the rows, keys resolved, legality asked of the planner. Two equal
// cells are an error, and so is a model that a row names and that is neither shipped nor
// fetched.
Result<std::vector<MatrixCell>> ExpandMatrix(const std::vector<MatrixRow>& rows,
                                             ModelStore* models);

// Counts legal cells per row against what the rows state, but for rows with cells of which nobody
// knows. Empty if they agree, else one line.
std::string CheckLegal(const std::vector<MatrixRow>& rows, const std::vector<MatrixCell>& cells);

// "key=value[,value]". Error: unknown key.
Result<Filter> ParseFilter(const std::string& text);
// What a filter looks at: the kind, or a key's value, which for attn_tp may be tp's.
std::string ValueOf(const Problem& problem, std::string_view key);
bool Matches(const Problem& problem, const std::vector<Filter>& filters);

// Kernels of the registry that no cell names.
std::vector<std::string> KernelsWithoutCells(const std::vector<MatrixCell>& cells);

}  // namespace assay::run
