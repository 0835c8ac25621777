// What a tier's file must not hold: leak_test must find all three.
#include <cstdlib>

namespace assay::kernels::testing {

__attribute__((noinline)) inline int SharedWithEverybody(int x) { return x * 3; }  // weak
int InAnotherNamespace(int x) { return SharedWithEverybody(x); }                   // global
int before_main = InAnotherNamespace(std::rand());                                 // initialiser

}  // namespace assay::kernels::testing
