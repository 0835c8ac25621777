// What several faults of loaders do to what they are given. Internal to the room.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/faults/interceptor.h"

namespace assay::kernels::faults {

inline size_t Size(int64_t count) { return static_cast<size_t>(count); }

// "down.scale" of MLPs, shared and routed experts; "attn.k.zero".
inline bool Is(std::string_view name, std::string_view end) {
  return name.size() > end.size() && name.ends_with(end) &&
         name[name.size() - end.size() - 1] == '.';
}

// "gate.weight" and "gate.scale" for "gate.".
inline bool Of(std::string_view name, std::string_view op) {
  const size_t at = name.rfind('.');
  return at != std::string_view::npos && Is(name.substr(0, at), op);
}

inline int64_t Width(const shard::Component& component) { return SizeOf(component.dtype).count(); }

inline int Ranks(const shard::ComponentPlan& plan) { return static_cast<int>(plan.ranks.size()); }

// The only real range of a rank; nullptr where it has none.
inline shard::Range* FirstRange(shard::ComponentPlan& plan, int rank) {
  auto& ranges = plan.ranks[Size(rank)];
  return ranges.empty() || ranges.front().is_padding() ? nullptr : &ranges.front();
}

// Stored values of the cut axis.
inline int64_t Extent(const shard::ComponentPlan& plan) {
  return plan.axis == shard::Axis::kRows ? plan.component.rows : plan.component.columns;
}

// A whole component, row major.
inline std::vector<std::byte> Whole(const shard::Component& c, const TensorView& tensor) {
  const auto width = Size(Width(c));
  std::vector<std::byte> whole(Size(c.rows * c.columns) * width);
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t k = 0; k < c.columns; ++k) {
      const int64_t from =
          c.row_step == 0 ? r * c.columns + k : c.first + r * c.row_step + k * c.column_step;
      std::memcpy(&whole[Size(r * c.columns + k) * width], &tensor.bytes[Size(from) * width],
                  width);
    }
  }
  return whole;
}

// From now on the component is these bytes, row major, of as many rows as there are.
inline void Replace(SliceRequest& request, std::vector<std::byte> bytes) {
  shard::Component& c = request.plan.component;
  request.replaced = std::move(bytes);
  const auto row = c.columns * Width(c);
  c.rows = static_cast<int64_t>(request.replaced.size()) / row;
  c.first = c.row_step = 0;
  c.column_step = 1;
  request.tensor.shape = {c.rows, c.columns};
  request.tensor.bytes = request.replaced;
}

// Every value is read `values` further on, as addresses go: past a row's end comes the next row.
inline void ReadFurtherOn(SliceRequest& request, int64_t values) {
  std::vector<std::byte> whole = Whole(request.plan.component, request.tensor);
  const auto size = static_cast<int64_t>(whole.size());
  if (size == 0) return;
  const int64_t by = ((values * Width(request.plan.component)) % size + size) % size;
  std::rotate(whole.begin(), whole.begin() + by, whole.end());
  Replace(request, std::move(whole));
}

// The same tensor of another linear: "...up_proj.weight" for "...gate_proj.weight".
inline const TensorView* Sibling(const SliceRequest& request, std::string_view ours,
                                 std::string_view theirs) {
  std::string name = request.tensor.name;
  const size_t at = name.rfind(ours);
  if (at == std::string::npos) return nullptr;
  name.replace(at, ours.size(), theirs);
  return request.all->Find(name);
}

// What was written, seen as rows.
class Rows {
 public:
  explicit Rows(const WrittenPart& part)
      : bytes_(part.bytes), before_(part.bytes.begin(), part.bytes.end()), count_(part.rows) {
    size_ = count_ > 0 ? before_.size() / Size(count_) : 0;
  }
  int64_t count() const { return count_; }
  // Row `to` becomes what row `from` was.
  void Move(int64_t from, int64_t to) {
    std::copy_n(before_.begin() + At(from), size_, bytes_.begin() + At(to));
  }
  void Fill(int64_t row, std::byte value) { std::fill_n(bytes_.begin() + At(row), size_, value); }

 private:
  std::ptrdiff_t At(int64_t row) const { return static_cast<std::ptrdiff_t>(Size(row) * size_); }
  std::span<std::byte> bytes_;
  std::vector<std::byte> before_;
  int64_t count_;
  size_t size_ = 0;
};

// The parameter is read under another method, for which there is neither kernel nor layout here.
inline void ReadAs(Choice& choice, std::string method) {
  choice.method = std::move(method);
  choice.layout = "row";
  choice.kernel.clear();
}

// f(value) for each stored value of type T.
template <class T, class F>
void Change(std::span<std::byte> bytes, F f) {
  for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, &bytes[at], sizeof(T));
    value = f(value);
    std::memcpy(&bytes[at], &value, sizeof(T));
  }
}

// f(value) of fp32 or bf16; f gives values that the type has.
template <class F>
void ChangeFloats(DType dtype, std::span<std::byte> bytes, F f) {
  if (dtype == DType::kF32) Change<float>(bytes, [&](float v) { return f(v); });
  if (dtype == DType::kBF16) {
    Change<uint16_t>(bytes, [&](uint16_t v) {
      const float value = f(std::bit_cast<float>(uint32_t{v} << 16));
      return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
    });
  }
}

// f(code) of each code of `bits` in words of 32 bits, which hold whole codes.
template <class F>
void ChangeCodes(std::span<std::byte> words, int bits, F f) {
  const uint32_t mask = (1u << bits) - 1;
  Change<uint32_t>(words, [&](uint32_t word) {
    uint32_t out = 0;
    for (int at = 0; at + bits <= 32; at += bits) out |= (f(word >> at & mask) & mask) << at;
    return out;
  });
}

}  // namespace assay::kernels::faults
