#include "kernels/engines/native/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "harness/units/scheme.h"
#include "kernels/collectives/schedule.h"
#include "kernels/engines/native/contract_types.h"
#include "kernels/engines/native/dispatcher.h"
#include "kernels/layouts/layouts.h"
#include "kernels/registry.h"

namespace assay::kernels::native {
namespace {

// Names here are our own, without characters that JSON escapes.
std::string Quoted(std::string_view text) { return fmt::format("\"{}\"", text); }

template <class Names>
std::string List(const Names& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + Quoted(name);
  return "[" + text + "]";
}

// A function's stated error is the largest of the tiers': the contract is one for all.
double Worst(double ElementwiseKernels::*ulp) {
  double worst = 0;
  for (How how : {How::kHardware, How::kPortable}) {
    for (Tier tier : BuiltTiers(how)) worst = std::max(worst, Elementwise(tier, how)->*ulp);
  }
  return worst;
}

std::string ContractJson() {
  std::string rounding;
  for (const RoundingRow& row : kRounding) {
    rounding += fmt::format("{}{}: {}", rounding.empty() ? "" : ", ", Quoted(row.op),
                            Quoted(NameOf(row.type)));
  }
  // sin and cos are evaluated in double and rounded once: half a unit of the table's type.
  return fmt::format(
      "{{\"name\": \"native\", \"rounding\": {{{}}}, \"accumulator\": \"F32\", \"lanes\": 0, "
      "\"extra\": 0, \"dequant\": \"F64\", \"rope_table\": \"F32\", \"probs\": \"F32\", "
      "\"exp_ulp\": {}, \"rsqrt_ulp\": {}, \"sin_ulp\": 0.5, \"sigmoid_ulp\": {}, "
      "\"div_ulp\": 0.5, \"daz\": false, \"ftz\": false, \"act\": \"a16\", "
      "\"quantisers\": {{\"a8g32\": \"x/s\", \"a8row\": \"x/s\"}}, "
      "\"reduce_order\": \"sequential\", \"reduce_wire\": \"F32\", "
      "\"arithmetic_class\": \"native\", \"mla_absorbed\": false}}",
      rounding, Worst(&ElementwiseKernels::exp_ulp), Worst(&ElementwiseKernels::rsqrt_ulp),
      Worst(&ElementwiseKernels::sigmoid_ulp));
}

// Built in either way, lowest first.
std::vector<Tier> Tiers() {
  std::vector<Tier> tiers = BuiltTiers();
  for (Tier tier : BuiltTiers(How::kPortable)) {
    if (std::find(tiers.begin(), tiers.end(), tier) == tiers.end()) tiers.push_back(tier);
  }
  return tiers;
}

std::string KernelJson(std::string_view name, std::string_view op, std::string_view method,
                       std::string_view tier, std::string_view layout, std::string_view act,
                       int lanes, int extra, std::string_view arithmetic_class) {
  return fmt::format(
      "{{\"name\": {}, \"op\": {}, \"method\": {}, \"tier\": {}, \"layout\": {}, \"act\": {}, "
      "\"lanes\": {}, \"extra\": {}, \"arithmetic_class\": {}}}",
      Quoted(name), Quoted(op), Quoted(method), Quoted(tier), Quoted(layout), Quoted(act), lanes,
      extra, Quoted(arithmetic_class));
}

std::string KernelsJson() {
  std::vector<std::string> rows;
  std::set<std::string_view> listed;  // both ways of a kernel have one name
  for (const LinearKernel& k : LinearKernels()) {
    if (!listed.insert(k.name).second) continue;
    rows.push_back(KernelJson(k.name, NameOf(OpKind::kLinear), k.method, NameOf(k.tier), k.layout,
                              k.act, k.lanes, k.extra, k.arithmetic_class));
  }
  for (Tier tier : Tiers()) {
    const ElementwiseKernels* table = Elementwise(tier);
    if (table == nullptr) table = Elementwise(tier, How::kPortable);
    for (std::string_view op : ElementwiseOps()) {
      // The weighted sum of experts goes expert by expert: one accumulator.
      const bool reduces = op == "rms_norm" || op == "scores" || op == "context";
      rows.push_back(KernelJson(ElementwiseName(op, tier), op, "", NameOf(tier), "", "",
                                reduces ? table->lanes : 1, 0, ""));
    }
  }
  std::string text;
  for (const std::string& row : rows) text += (text.empty() ? "" : ", ") + row;
  return "[" + text + "]";
}

std::string Make() {
  // Every method is loaded, in every layout that there is for it; what runs say the kernels.
  const std::vector<std::string> methods = KnownSchemes();
  std::set<std::string> layouts, acts;
  std::vector<std::string> tiers, emulated, reduces;
  for (const Layout& layout : Layouts()) layouts.emplace(layout.tag);
  for (Tier tier : Tiers()) tiers.emplace_back(NameOf(tier));
  for (Tier tier : BuiltTiers(How::kPortable)) emulated.emplace_back(NameOf(tier));
  for (const Reduction& reduction : Reductions()) reduces.push_back(NameOf(reduction));
  for (const LinearKernel& k : LinearKernels()) {
    layouts.emplace(k.layout);
    acts.emplace(k.act);
  }
  const std::vector<std::string_view> scopes = {"op",  "attn",    "route", "mlp",
                                                "moe", "experts", "layer", "model"};
  // Those that the scopes compute; parameters of others are loaded too.
  const std::vector<std::string_view> families = {"llama", "qwen2", "qwen3", "deepseek_v3"};
  const std::vector<std::string_view> ops = {"embed",   "norm",   "linear",  "rope",
                                             "scores",  "ctx",    "router",  "act",
                                             "combine", "reduce", "residual"};
  return fmt::format(
      "{{\"methods\": {}, \"tiers\": {}, \"layouts\": {}, \"scopes\": {}, \"families\": {}, "
      "\"ops\": {}, \"acts\": {}, \"reduces\": {}, \"emulates\": {}, \"reloads\": true, "
      "\"contract\": {}, \"kernels\": {}}}",
      List(methods), List(tiers), List(layouts), List(scopes), List(families), List(ops),
      List(acts), List(reduces), List(emulated), ContractJson(), KernelsJson());
}

}  // namespace

const std::string& Description() {
  static const std::string kText = Make();
  return kText;
}

}  // namespace assay::kernels::native
