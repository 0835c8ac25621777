// The functions that an engine may call, assay_host. Everything it hands over is checked before it
// is recorded. Used in the child process.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "harness/abi/assay_engine.h"
#include "harness/abi/guarded.h"
#include "harness/abi/recorder.h"

namespace assay::abi {

class Host {
 public:
  Host(Recorder* recorder, Poison poison, int ranks);
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  const assay_host* table() const { return &table_; }
  void set_step(int step) { step_ = step; }
  // Looks at the surroundings of all that alloc() gave out.
  void CheckMemory();
  bool out_of_memory() const { return out_of_memory_; }

 private:
  void* Allocate(uint64_t bytes, uint64_t alignment);
  void Free(void* pointer);
  void Tap(const assay_tensor* value);
  void Executed(const assay_executed* record);

  assay_host table_{};
  Recorder* recorder_;
  Poison poison_;
  int ranks_;
  int step_ = 0;
  int allocated_ = 0;
  bool out_of_memory_ = false;
  std::map<void*, std::unique_ptr<GuardedBuffer>> buffers_;
};

// A string of an engine: printable ASCII without spaces, 1 to 255 characters. False otherwise; then
// `out` holds what may be shown of it.
bool ReadName(const char* text, std::string* out);
// "" where there is no text, or it is no name.
std::string TextOrNothing(const char* text);
// A product of extents times the size of a value; false if one is negative or it overflows.
bool SizeInBytes(const int64_t* shape, size_t ndim, DType dtype, uint64_t* out);

}  // namespace assay::abi
