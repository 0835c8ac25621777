// Parts of the page that have files of their own.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "reports/short_form.h"
#include "reports/view.h"

namespace assay::reports {

extern const std::string_view kStyle;  // the style sheet

// "<span class=\"v fail\">FAIL</span>"
std::string VerdictChip(Verdict verdict);
std::string CssClass(Verdict verdict);  // "fail", "not-executed"

// A cell in short, what differs emphasised, the whole problem string in its title.
std::string ShortHtml(const CellResult& cell, const Keys& varying);

// The id of a group's article, by position.
std::string FindingId(size_t position);

// One article for cells with the same finding; `open`: unfolded.
std::string FindingArticle(const Group& group, size_t position, bool open);

// Curves of a cell's ops along the layers; empty where there are too few places.
std::string CurvesHtml(const CellResult& cell);
// The error map of a divergence; empty if it has none.
std::string ErrorMapHtml(const Divergence& divergence);

// The heat maps of all models. Squares of red cells lead to their article.
std::string HeatSection(const RunRecord& record, const std::vector<Group>& findings);

}  // namespace assay::reports
