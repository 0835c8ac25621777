#include "kernels/cpu/host.h"

#include <cstdlib>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace assay::kernels {
namespace {

constexpr uint32_t kLeaf1EcxFma = 1u << 12;
constexpr uint32_t kLeaf1EcxOsxsave = 1u << 27;
constexpr uint32_t kLeaf1EcxAvx = 1u << 28;
constexpr uint32_t kLeaf7EbxAvx2 = 1u << 5;
constexpr uint32_t kLeaf7EbxAvx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;  // F, DQ, BW, VL
constexpr uint64_t kXcr0XmmAndYmm = 0b110;
constexpr uint64_t kXcr0Zmm = 0b11100110;  // opmasks and both halves of zmm too

std::string_view Trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

}  // namespace

CpuRegisters ReadCpu() {
  CpuRegisters cpu;
#if defined(__x86_64__)
  uint32_t a = 0, b = 0, c = 0, d = 0;
  // __get_cpuid_count answers 0 for a leaf above the processor's largest.
  if (__get_cpuid_count(1, 0, &a, &b, &c, &d) != 0) cpu.leaf1_ecx = c;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) cpu.leaf7_ebx = b;
  if ((cpu.leaf1_ecx & kLeaf1EcxOsxsave) != 0) {
    uint32_t low = 0, high = 0;
    // By opcode: the intrinsic would need -mxsave, and this file is for every host.
    __asm__ volatile(".byte 0x0f, 0x01, 0xd0" : "=a"(low), "=d"(high) : "c"(0));
    cpu.xcr0 = (uint64_t{high} << 32) | low;
  }
#endif
  return cpu;
}

bool CpuRuns(Tier tier, const CpuRegisters& cpu) {
  switch (tier) {
    case Tier::kScalar:
      return true;
    case Tier::kAvx512:
      return CpuRuns(Tier::kAvx2, cpu) && (cpu.leaf7_ebx & kLeaf7EbxAvx512) == kLeaf7EbxAvx512 &&
             (cpu.xcr0 & kXcr0Zmm) == kXcr0Zmm;
    case Tier::kAvx2: {
      constexpr uint32_t kLeaf1 = kLeaf1EcxOsxsave | kLeaf1EcxAvx | kLeaf1EcxFma;
      return (cpu.leaf1_ecx & kLeaf1) == kLeaf1 && (cpu.leaf7_ebx & kLeaf7EbxAvx2) != 0 &&
             (cpu.xcr0 & kXcr0XmmAndYmm) == kXcr0XmmAndYmm;
    }
  }
  return false;
}

bool ListNames(const char* list, Tier tier) {
  if (list == nullptr) return true;
  std::string_view rest = list;
  while (true) {
    const size_t comma = rest.find(',');
    if (Trimmed(rest.substr(0, comma)) == NameOf(tier)) return true;
    if (comma == std::string_view::npos) return false;
    rest.remove_prefix(comma + 1);
  }
}

bool HostHas(Tier tier) {
  static const CpuRegisters cpu = ReadCpu();
  return CpuRuns(tier, cpu) && ListNames(std::getenv("ASSAY_FAKE_TIERS"), tier);
}

}  // namespace assay::kernels
