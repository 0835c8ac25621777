// The entry function ASSAY_FUZZ_ENTRY as libFuzzer wants it; with an argument "--seeds NAME DIR"
// the seeds of that input are written there first.
#include <cstdio>
#include <cstring>
#include <fstream>

#include "tests/fuzz/entries.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return assay::fuzz::ASSAY_FUZZ_ENTRY(data, size);
}

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  if (*argc < 4 || std::strcmp((*argv)[1], "--seeds") != 0) return 0;
  int number = 0;
  for (const std::string& seed : assay::fuzz::SeedsOf((*argv)[2])) {
    std::ofstream((*argv)[3] + std::string("/seed") + std::to_string(number++)) << seed;
  }
  (*argv)[3] = (*argv)[0];
  *argv += 3;
  *argc -= 3;
  return 0;
}
