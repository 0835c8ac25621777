// One layer of Kimi-K2 at its real size, made from a seed: for showing what an audit takes, where
// no checkpoint of that size is at hand. 384 experts of 7168 x 2048 in int4, groups of 32, are 9.5
// GB.
#pragma once

#include <cstdint>
#include <string>

#include "harness/units/status.h"

namespace assay::audit {

struct LayerOptions {
  int64_t experts = 384;
  int64_t hidden = 7168;
  int64_t intermediate = 2048;  // of an expert
  int64_t heads = 64;
  int64_t vocab = 1024;  // the table is no part of the layer, and only there to make a model of it
  uint64_t seed = 1;
  int threads = 2;
  int64_t experts_per_file = 64;
};

// Bytes that MakeLayer writes, headers aside.
int64_t LayerBytes(const LayerOptions& options);

// A checkpoint with index and config.json in a new or an empty folder. Every value is a function of
// seed, tensor's name and index. Error: the options do not fit each other, or the system's.
Status MakeLayer(const std::string& folder, const LayerOptions& options);

}  // namespace assay::audit
