// For tests that show what a kernel's check of its layout prevents: while one of these lives, every
// kernel of this process takes whatever it is given for its own layout. Nothing else can see this.
#pragma once

namespace assay::kernels {

void SwitchLayoutChecksOff(bool off);  // support.cc

namespace testing {

class LayoutChecksOff {
 public:
  LayoutChecksOff() { SwitchLayoutChecksOff(true); }
  ~LayoutChecksOff() { SwitchLayoutChecksOff(false); }
  LayoutChecksOff(const LayoutChecksOff&) = delete;
  LayoutChecksOff& operator=(const LayoutChecksOff&) = delete;
};

}  // namespace testing
}  // namespace assay::kernels
