// What a real engine's ranks hold, put together from the oracle's slices: its parameters are
// several of ours, joined along the outputs, one expert after the other, gate and up in its order.
#pragma once

#include <gtest/gtest.h>
#include <sodium.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "reference/test_support.h"

namespace assay::reference::testing_support {

inline std::string Blake2b16(const std::vector<std::byte>& bytes) {
  unsigned char hash[16];
  crypto_generichash(hash, sizeof hash, reinterpret_cast<const unsigned char*>(bytes.data()),
                     bytes.size(), nullptr, 0);
  char text[2 * sizeof hash + 1];
  sodium_bin2hex(text, sizeof text, hash, sizeof hash);
  return text;
}

// A grid of stored values of one size.
struct Block {
  int64_t rows = 0, columns = 0;
  size_t size = 1;
  std::vector<std::byte> bytes;
  const std::byte* At(int64_t r, int64_t c) const {
    return bytes.data() + static_cast<size_t>(r * columns + c) * size;
  }
};

inline Block BlockOf(const Slice& slice) {
  return {static_cast<int64_t>(slice.rows.size()), static_cast<int64_t>(slice.columns.size()),
          static_cast<size_t>(SizeOf(slice.dtype).count()), slice.bytes};
}

inline Block Transposed(const Block& from) {
  Block to{from.columns, from.rows, from.size, {}};
  for (int64_t r = 0; r < to.rows; ++r) {
    for (int64_t c = 0; c < to.columns; ++c) {
      to.bytes.insert(to.bytes.end(), from.At(c, r), from.At(c, r) + from.size);
    }
  }
  return to;
}

// One below the other.
inline Block Below(const std::vector<Block>& blocks) {
  Block all{0, blocks.front().columns, blocks.front().size, {}};
  for (const Block& block : blocks) {
    EXPECT_EQ(block.columns, all.columns);
    EXPECT_EQ(block.size, all.size);
    all.rows += block.rows;
    all.bytes.insert(all.bytes.end(), block.bytes.begin(), block.bytes.end());
  }
  return all;
}

// Rows in turn.
inline Block Alternating(const Block& even, const Block& odd) {
  Block all{2 * even.rows, even.columns, even.size, {}};
  EXPECT_EQ(even.bytes.size(), odd.bytes.size());
  for (int64_t r = 0; r < even.rows; ++r) {
    all.bytes.insert(all.bytes.end(), even.At(r, 0), even.At(r, 0) + even.columns * even.size);
    all.bytes.insert(all.bytes.end(), odd.At(r, 0), odd.At(r, 0) + odd.columns * odd.size);
  }
  return all;
}

// With zeros below and to the right.
inline Block Padded(const Block& from, int64_t rows, int64_t columns) {
  Block to{rows, columns, from.size,
           std::vector<std::byte>(static_cast<size_t>(rows * columns) * from.size)};
  for (int64_t r = 0; r < std::min(rows, from.rows); ++r) {
    std::memcpy(to.bytes.data() + static_cast<size_t>(r * columns) * from.size, from.At(r, 0),
                static_cast<size_t>(std::min(columns, from.columns)) * from.size);
  }
  return to;
}

// An engine's parameter, by its name, from the oracle's slices.
class EngineParameters {
 public:
  explicit EngineParameters(const Opened& model) : model_(model) {
    for (const std::string& component : model.oracle->Components()) {
      const std::string source = *model.oracle->SourceName(component);
      by_source_.emplace(source, component);  // tied: the embedding's comes first
    }
    by_source_["lm_head.weight"] = "logits.weight";
    gptoss_ = model.config().family == Family::kGptOss;
  }

  // `shape`: the engine's, for what it pads beyond the rank's share.
  Result<Block> Assemble(const std::string& engine_name, const Where& where,
                         const std::vector<int64_t>& shape) const {
    const std::string name = gptoss_ ? FileName(engine_name) : engine_name;
    const size_t routed = name.find(".routed_experts.w");
    if (routed != std::string::npos) return Experts(name, routed, where, shape);
    std::vector<Block> blocks;
    for (const std::string& source : Sources(name)) {
      const auto found = by_source_.find(source);
      if (found == by_source_.end()) return Error{source + ": no component comes from it"};
      const auto slice = model_.oracle->ExpectedSlice(found->second, where);
      if (!slice) return slice.error();
      blocks.push_back(BlockOf(*slice));
    }
    return Join(source_suffix(name), blocks);
  }

  // Of GPTQ and AWQ the outputs lie along the columns.
  static Block Join(const std::string& suffix, std::vector<Block> blocks) {
    if (suffix != "qweight" && suffix != "qzeros" && suffix != "scales") return Below(blocks);
    for (Block& block : blocks) block = Transposed(block);
    return Transposed(Below(blocks));
  }
  static std::string source_suffix(const std::string& name) {
    return name.substr(name.rfind('.') + 1);
  }

  // One expert's part of an engine's w13 or w2 tensor.
  Result<Block> Expert(const std::string& name, int64_t expert, const Where& where) const {
    const size_t at = name.find(".routed_experts.w") + 16;
    const bool down = name.compare(at, 3, "w2_") == 0;
    const std::string tail = name.substr(name.find('_', at) + 1);
    const std::string suffix = tail.find("scale") != std::string::npos  ? ".scale"
                               : tail.find("bias") != std::string::npos ? ".bias"
                                                                        : ".weight";
    const size_t layer = name.find("layers.") + 7;
    const std::string path =
        "L" + name.substr(layer, name.find('.', layer) - layer) + ".moe.e" + std::to_string(expert);
    std::vector<Block> blocks;
    for (const char* part : {".gate", ".up", ".down"}) {
      if ((std::strcmp(part, ".down") == 0) != down) continue;
      const auto slice = model_.oracle->ExpectedSlice(path + part + suffix, where);
      if (!slice) return slice.error();
      blocks.push_back(BlockOf(*slice));
    }
    if (down) return blocks[0];
    return gptoss_ ? Alternating(blocks[0], blocks[1]) : Below(blocks);
  }

 private:
  static void Replace(const char* from, const char* to, std::string* name) {
    const size_t at = name->find(from);
    if (at != std::string::npos) name->replace(at, std::strlen(from), to);
  }
  // vLLM names some of gpt-oss's modules otherwise than the file.
  static std::string FileName(std::string name) {
    Replace(".attn.", ".self_attn.", &name);
    Replace("model.embedding.", "model.embed_tokens.", &name);
    return name;
  }
  static std::vector<std::string> Sources(const std::string& name) {
    constexpr std::pair<const char*, const char*> kMerged[] = {
        {"qkv_proj.", "q_proj. k_proj. v_proj."},
        {"gate_up_proj.", "gate_proj. up_proj."},
        {"fused_qkv_a_proj.", "q_a_proj. kv_a_proj_with_mqa."},
    };
    for (const auto& [merged, parts] : kMerged) {
      const size_t at = name.find(merged);
      if (at == std::string::npos || (at > 0 && name[at - 1] != '.')) continue;
      std::vector<std::string> found;
      std::istringstream list(parts);
      for (std::string part; list >> part;) {
        std::string source = name;
        found.push_back(source.replace(at, std::strlen(merged), part));
      }
      return found;
    }
    return {name};
  }
  Result<Block> Experts(const std::string& name, size_t, const Where& where,
                        const std::vector<int64_t>& shape) const {
    std::vector<Block> experts;
    for (int64_t e = 0; e < model_.config().experts; ++e) {
      auto block = Expert(name, e, where);
      if (!block) return block.error();
      const int64_t columns = shape.size() > 2 ? shape[2] : 1;
      experts.push_back(shape.size() < 2 ? *block : Padded(*block, shape[1], columns));
    }
    return Below(experts);
  }

  const Opened& model_;
  std::map<std::string, std::string> by_source_;
  bool gptoss_ = false;
};

}  // namespace assay::reference::testing_support
