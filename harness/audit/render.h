// A report as people and programs read it.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "harness/audit/report.h"

namespace assay::audit {

// interfaces.md §3; beside what it promises: notes, hidden, methods, degrees. Written piece by
// piece: a large model's text would not fit beside its report.
void WriteJson(const Report& report, const std::function<void(std::string_view)>& out);

// Tables of at most 80 columns; a finding is one line, however long its names are.
std::string RenderTerminal(const Report& report, bool colour);

// One file without any external resource or script, in the reports' own style.
std::string RenderHtml(const Report& report);

// "nan model.x.weight_scale (model.safetensors): holds ..." on one line, harmless to a terminal.
std::string FindingLine(const Finding& finding);

// The same predicate at several degrees is one row; no degrees: at any.
struct HiddenRow {
  const Hidden* first = nullptr;
  std::vector<int> degrees;
};
std::vector<HiddenRow> HiddenRowsOf(const Report& report);

// Tensors of one form: the same name but for numbers, method, shape and placement.
struct Form {
  const TensorRow* first = nullptr;
  std::string pattern;
  int64_t tensors = 0, bytes = 0;
};
std::vector<Form> FormsOf(const Report& report);

}  // namespace assay::audit
