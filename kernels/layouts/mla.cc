// MLA absorbed: kv_b as the two stacks of matrices by which queries and contexts are multiplied
// when the latent itself is the cache.
#include <cstring>

#include "kernels/layouts/rules.h"
#include "kernels/layouts/sizes.h"

namespace assay::kernels {
namespace {

// kv_b's rows are, head after head, `nope` of keys and `v` of values; columns are the latent.
int64_t Heads(const StoredShape& s) { return s.rows / (s.nope + s.v); }

int64_t Bytes(const StoredShape& s) {
  const bool dense = s.dtype == DType::kBF16 || s.dtype == DType::kF16 || s.dtype == DType::kF32;
  const int64_t most = int64_t{1} << 30;
  if (!dense || s.nope <= 0 || s.v <= 0 || s.nope > most || s.v > most) return -1;
  if (s.rows % (s.nope + s.v) != 0) return -1;
  return Product({s.rows, s.columns, SizeOf(s.dtype).count()});
}

// f(value of the component, value of the layout): w_kc [heads, nope, latent], then w_vc [heads,
// latent, v].
template <class F>
void ForEach(const StoredShape& s, F f) {
  const int64_t heads = Heads(s), latent = s.columns, values = heads * s.nope * latent;
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t head = h * (s.nope + s.v) * latent;
    for (int64_t i = 0; i < s.nope * latent; ++i) f(head + i, h * s.nope * latent + i);
    const int64_t to = values + h * s.v * latent;
    for (int64_t j = 0; j < s.v; ++j) {
      for (int64_t l = 0; l < latent; ++l) {
        f(head + (s.nope + j) * latent + l, to + l * s.v + j);
      }
    }
  }
}

template <int64_t Size>
void PackSized(const StoredShape& s, const std::byte* in, std::byte* out) {
  ForEach(s, [=](int64_t from, int64_t to) {
    std::memcpy(out + to * Size, in + from * Size, static_cast<size_t>(Size));
  });
}
template <int64_t Size>
void UnpackSized(const StoredShape& s, const std::byte* in, std::byte* out) {
  ForEach(s, [=](int64_t to, int64_t from) {
    std::memcpy(out + to * Size, in + from * Size, static_cast<size_t>(Size));
  });
}
void Pack(const StoredShape& s, const std::byte* in, std::byte* out) {
  s.dtype == DType::kF32 ? PackSized<4>(s, in, out) : PackSized<2>(s, in, out);
}
void Unpack(const StoredShape& s, const std::byte* in, std::byte* out) {
  s.dtype == DType::kF32 ? UnpackSized<4>(s, in, out) : UnpackSized<2>(s, in, out);
}

constexpr Rule kRules[] = {{{"mla-absorb", "dense", "weight", Bytes, Pack, Unpack}, IsDense}};

}  // namespace

std::span<const Rule> MlaRules() { return kRules; }

}  // namespace assay::kernels
