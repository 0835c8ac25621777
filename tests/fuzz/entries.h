// One function for each input that comes from outside: it reads the bytes as production code does
// and lets what is allowed out (an error of one line), never anything else. What else would be
// wrong (a text that does not come back, an error of two lines) ends the process.
//
// The same functions are libFuzzer's (libfuzzer.sh) and mutation_test's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace assay::fuzz {

int FuzzSafetensors(const uint8_t* data, size_t size);
int FuzzGguf(const uint8_t* data, size_t size);      // as a checkpoint: config, names, tensors
int FuzzConfig(const uint8_t* data, size_t size);    // config.json
int FuzzProblem(const uint8_t* data, size_t size);   // problem strings
int FuzzResults(const uint8_t* data, size_t size);   // results.jsonl
int FuzzDescribe(const uint8_t* data, size_t size);  // an engine's describe(), and its contracts
int FuzzMatrix(const uint8_t* data, size_t size);    // matrix files
int FuzzAudit(const uint8_t* data, size_t size);     // a checkpoint, audited and rendered

using Function = int (*)(const uint8_t* data, size_t size);

// Small inputs that are right, and so worth changing. `tokens` are pieces that such inputs are made
// of. Known names: safetensors gguf config problem results describe matrix
// audit.
std::vector<std::string> SeedsOf(std::string_view name);
std::vector<std::string> TokensOf(std::string_view name);

}  // namespace assay::fuzz
