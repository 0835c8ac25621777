#include "harness/units/scheme.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace assay {
namespace {

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

// Cuts `head` off `text`, if it begins with it.
bool Take(std::string_view* text, std::string_view head) {
  if (!text->starts_with(head)) return false;
  text->remove_prefix(head.size());
  return true;
}

// A positive count without leading zeros.
bool TakeCount(std::string_view* text, int64_t* value) {
  const char* begin = text->data();
  if (text->empty() || *begin < '1' || *begin > '9') return false;
  const auto [end, error] = std::from_chars(begin, begin + text->size(), *value);
  if (error != std::errc() || *value > (int64_t{1} << 30)) return false;
  text->remove_prefix(static_cast<size_t>(end - begin));
  return true;
}

bool TakeGroup(std::string_view* text, Scheme* scheme) {
  scheme->granularity = Granularity::kGroup;
  return Take(text, "-g") && TakeCount(text, &scheme->group);
}

// "-block128", "-block16x32".
bool TakeBlock(std::string_view* text, Scheme* scheme) {
  if (!Take(text, "-block") || !TakeCount(text, &scheme->block_n)) return false;
  scheme->granularity = Granularity::kBlock;
  scheme->block_k = scheme->block_n;
  return !Take(text, "x") ||
         (TakeCount(text, &scheme->block_k) && scheme->block_k != scheme->block_n);
}

bool TakeChannelOrTensor(std::string_view* text, Scheme* scheme) {
  if (Take(text, "-channel")) {
    scheme->granularity = Granularity::kChannel;
  } else if (Take(text, "-tensor")) {
    scheme->granularity = Granularity::kTensor;
  } else {
    return false;
  }
  return true;
}

bool TakeBits(std::string_view* text, int least, int most, Scheme* scheme) {
  int64_t bits = 0;
  if (!Take(text, "int") || !TakeCount(text, &bits) || bits < least || bits > most) return false;
  scheme->bits = static_cast<int>(bits);
  return true;
}

bool ParseCt(std::string_view text, Scheme* s) {
  s->old_packing = Take(&text, "old-");
  if (text.starts_with("int")) {
    s->family = MethodFamily::kCtInt;
    if (!TakeBits(&text, 2, 8, s)) return false;
    if (Take(&text, "-one-group")) {
      s->granularity = Granularity::kGroup;
      s->group = -1;
    } else if (!TakeChannelOrTensor(&text, s) && !TakeGroup(&text, s)) {
      return false;
    }
    if (s->granularity == Granularity::kTensor) return false;
    s->asymmetric = Take(&text, "-asym");
    if (s->granularity == Granularity::kGroup) s->actorder = Take(&text, "-actorder-group");
    // Where the old library's words hold as many values as the new one's, there is one packing.
    return text.empty() && !(s->old_packing && 32 % s->bits == 0);
  }
  if (s->old_packing) return false;
  if (Take(&text, "w8a8")) {
    s->family = MethodFamily::kCtW8a8;
    s->bits = 8;
    if (!TakeChannelOrTensor(&text, s)) return false;
    s->asymmetric = Take(&text, "-asym");
    return text.empty();
  }
  if (Take(&text, "fp8")) {
    s->family = MethodFamily::kCtFp8;
    s->bits = 8;
    if (!TakeChannelOrTensor(&text, s) && !TakeBlock(&text, s)) return false;
    s->fnuz = Take(&text, "-fnuz");
    return text.empty();
  }
  s->granularity = Granularity::kGroup;
  s->bits = text == "mxfp8" ? 8 : 4;
  s->group = text == "nvfp4" ? 16 : 32;
  constexpr std::pair<std::string_view, MethodFamily> kRest[] = {{"mxfp4", MethodFamily::kCtMxfp4},
                                                                 {"mxfp8", MethodFamily::kCtMxfp8},
                                                                 {"nvfp4", MethodFamily::kCtNvfp4}};
  for (const auto& [name, family] : kRest) {
    if (text != name) continue;
    s->family = family;
    return true;
  }
  return false;
}

bool ParseGptqOrAwq(std::string_view text, bool awq, Scheme* s) {
  s->family = awq ? MethodFamily::kAwq : MethodFamily::kGptq;
  s->v2 = !awq && Take(&text, "v2-");
  if (!TakeBits(&text, 4, awq ? 4 : 8, s) || (s->bits != 4 && s->bits != 8)) return false;
  if (!awq && Take(&text, "-channel")) {
    s->granularity = Granularity::kChannel;
  } else if (!TakeGroup(&text, s)) {
    return false;
  }
  s->asymmetric = Take(&text, "-asym");
  s->actorder = !awq && Take(&text, "-actorder");
  return text.empty();
}

bool ParseGguf(std::string_view text, Scheme* s) {
  s->family = MethodFamily::kGguf;
  for (auto type = DType::kQ4_0; type <= DType::kNvfp4Block;
       type = static_cast<DType>(static_cast<uint32_t>(type) + 1)) {
    if (text != Lower(NameOf(type))) continue;
    s->dtype = type;
    s->granularity = Granularity::kGroup;
    s->group = ElementsOf(type).count();
    return true;
  }
  return false;
}

Scheme Mx(MethodFamily family, int64_t group) {
  Scheme s;
  s.family = family;
  s.bits = 4;
  s.granularity = Granularity::kGroup;
  s.group = group;
  return s;
}

bool ParseOther(std::string_view id, Scheme* s) {
  constexpr std::pair<std::string_view, DType> kDense[] = {
      {"f32", DType::kF32}, {"f16", DType::kF16}, {"bf16", DType::kBF16}};
  for (const auto& [name, dtype] : kDense) {
    if (id != name) continue;
    s->dtype = dtype;
    return true;
  }
  constexpr int64_t kMx = 32, kNv = 16;
  const std::pair<std::string_view, Scheme> kFixed[] = {
      {"gptoss-mxfp4", Mx(MethodFamily::kGptOssMxfp4, kMx)},
      {"deepseek-v4-mxfp4", Mx(MethodFamily::kDeepseekV4Mxfp4, kMx)},
      {"quark-mxfp4", Mx(MethodFamily::kQuarkMxfp4, kMx)},
      {"modelopt-nvfp4", Mx(MethodFamily::kModelOptNvfp4, kNv)}};
  for (const auto& [name, scheme] : kFixed) {
    if (id != name) continue;
    *s = scheme;
    return true;
  }
  s->granularity = Granularity::kChannel;
  if (id == "modelslim-w8a8") {
    s->family = MethodFamily::kModelSlimW8a8;
    s->bits = 8;
    return true;
  }
  if (!Take(&id, "modelslim-w4a8")) return false;
  s->family = MethodFamily::kModelSlimW4a8;
  s->bits = 4;
  return id.empty() || (TakeGroup(&id, s) && id.empty());
}

}  // namespace

std::optional<Scheme> ParseScheme(std::string_view id) {
  Scheme s;
  bool good = false;
  if (std::string_view rest = id; Take(&rest, "ct-")) {
    good = ParseCt(rest, &s);
  } else if (rest = id; Take(&rest, "gptq-")) {
    good = ParseGptqOrAwq(rest, false, &s);
  } else if (rest = id; Take(&rest, "awq-")) {
    good = ParseGptqOrAwq(rest, true, &s);
  } else if (rest = id; Take(&rest, "gguf-")) {
    good = ParseGguf(rest, &s);
  } else if (rest = id; Take(&rest, "deepseek-fp8")) {
    s.family = MethodFamily::kDeepseekFp8;
    s.bits = 8;
    good = TakeBlock(&rest, &s);
    if (good) s.fnuz = Take(&rest, "-fnuz");
    good = good && rest.empty();
  } else {
    good = ParseOther(id, &s);
  }
  if (!good) return std::nullopt;
  return s;
}

namespace {

std::string Extent(const Scheme& s) {
  switch (s.granularity) {
    case Granularity::kNone:
      return "";
    case Granularity::kTensor:
      return "-tensor";
    case Granularity::kChannel:
      return "-channel";
    case Granularity::kGroup:
      return s.group < 0 ? "-one-group" : "-g" + std::to_string(s.group);
    case Granularity::kBlock:
      break;
  }
  const std::string n = std::to_string(s.block_n);
  return "-block" + n + (s.block_k == s.block_n ? "" : "x" + std::to_string(s.block_k));
}

}  // namespace

std::string NameOf(const Scheme& s) {
  const std::string bits = std::to_string(s.bits);
  const std::string asym = s.asymmetric ? "-asym" : "", fnuz = s.fnuz ? "-fnuz" : "";
  switch (s.family) {
    case MethodFamily::kDense:
      return Lower(NameOf(s.dtype));
    case MethodFamily::kCtInt:
      return (s.old_packing ? "ct-old-int" : "ct-int") + bits + Extent(s) + asym +
             (s.actorder ? "-actorder-group" : "");
    case MethodFamily::kCtW8a8:
      return "ct-w8a8" + Extent(s) + asym;
    case MethodFamily::kCtFp8:
      return "ct-fp8" + Extent(s) + fnuz;
    case MethodFamily::kCtMxfp4:
      return "ct-mxfp4";
    case MethodFamily::kCtMxfp8:
      return "ct-mxfp8";
    case MethodFamily::kCtNvfp4:
      return "ct-nvfp4";
    case MethodFamily::kDeepseekFp8:
      return "deepseek-fp8" + Extent(s) + fnuz;
    case MethodFamily::kGptq:
      return std::string(s.v2 ? "gptq-v2-int" : "gptq-int") + bits + Extent(s) + asym +
             (s.actorder ? "-actorder" : "");
    case MethodFamily::kAwq:
      return "awq-int" + bits + Extent(s) + asym;
    case MethodFamily::kGptOssMxfp4:
      return "gptoss-mxfp4";
    case MethodFamily::kDeepseekV4Mxfp4:
      return "deepseek-v4-mxfp4";
    case MethodFamily::kQuarkMxfp4:
      return "quark-mxfp4";
    case MethodFamily::kModelOptNvfp4:
      return "modelopt-nvfp4";
    case MethodFamily::kModelSlimW8a8:
      return "modelslim-w8a8";
    case MethodFamily::kModelSlimW4a8:
      return "modelslim-w4a8" + (s.granularity == Granularity::kGroup ? Extent(s) : "");
    case MethodFamily::kGguf:
      return "gguf-" + Lower(NameOf(s.dtype));
  }
  return "";
}

std::vector<std::string> KnownSchemes() {
  std::vector<std::string> ids = {"bf16", "f16", "f32"};
  for (int bits = 2; bits <= 8; ++bits) ids.push_back("ct-int" + std::to_string(bits) + "-g32");
  for (const char* id : {"awq-int4-g32",
                         "awq-int4-g32-asym",
                         "ct-int4-channel",
                         "ct-int4-channel-asym",
                         "ct-int4-g32-actorder-group",
                         "ct-int4-g32-asym",
                         "ct-int4-g32-asym-actorder-group",
                         "ct-int4-one-group",
                         "ct-old-int3-g32",
                         "ct-old-int5-g32",
                         "ct-old-int6-g32",
                         "ct-old-int7-g32",
                         "ct-w8a8-channel",
                         "ct-w8a8-channel-asym",
                         "ct-w8a8-tensor",
                         "ct-w8a8-tensor-asym",
                         "ct-fp8-block128",
                         "ct-fp8-block16x32",
                         "ct-fp8-channel",
                         "ct-fp8-channel-fnuz",
                         "ct-fp8-tensor",
                         "ct-mxfp4",
                         "ct-mxfp8",
                         "ct-nvfp4",
                         "deepseek-fp8-block128",
                         "deepseek-fp8-block128-fnuz",
                         "deepseek-v4-mxfp4",
                         "gptoss-mxfp4",
                         "gptq-int4-channel",
                         "gptq-int4-g32",
                         "gptq-int4-g32-actorder",
                         "gptq-int4-g32-asym-actorder",
                         "gptq-int4-g64-asym",
                         "gptq-int8-g32",
                         "gptq-v2-int4-g32",
                         "gptq-v2-int4-g32-asym",
                         "modelopt-nvfp4",
                         "modelslim-w4a8",
                         "modelslim-w4a8-g256",
                         "modelslim-w8a8",
                         "quark-mxfp4"}) {
    ids.emplace_back(id);
  }
  for (auto type = DType::kQ4_0; type <= DType::kNvfp4Block;
       type = static_cast<DType>(static_cast<uint32_t>(type) + 1)) {
    ids.push_back("gguf-" + Lower(NameOf(type)));
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace assay
