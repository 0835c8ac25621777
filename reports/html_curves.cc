// Curves and the error map as inline SVG: no script, nothing loaded. The drawing is stretched to
// the space there is; words stand beside it as text, so that they keep their size.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/curves.h"
#include "reports/html_parts.h"
#include "reports/text.h"

namespace assay::reports {
namespace {

// The drawing's own units; it is stretched.
constexpr double kWidth = 1000, kHeight = 300;

double X(size_t place, size_t places) {
  return (static_cast<double>(place) + 0.5) * kWidth / static_cast<double>(places);
}
double Y(double height) { return kHeight * (1 - height); }

std::string LineOf(const Chart& chart, const Series& series, size_t number) {
  std::string path, dots;
  bool pen_down = false;
  for (size_t i = 0; i < series.values.size(); ++i) {
    const auto& value = series.values[i];
    const auto height = value ? chart.Height(*value) : std::nullopt;
    if (!height) {
      pen_down = false;
      continue;
    }
    const double x = X(i, series.values.size()), y = Y(*height);
    path += fmt::format("{}{:.1f} {:.1f}", pen_down ? "L" : "M", x, y);
    dots += fmt::format("M{:.1f} {:.1f}h0", x, y);
    pen_down = true;
  }
  return fmt::format(
      "<path class=\"line s{0}\" d=\"{1}\"></path><path class=\"dot s{0}\" d=\"{2}\"></path>",
      number, path, dots);
}

std::string Mark(const Curves& curves) {
  if (!curves.culprit) return "";
  const double width = kWidth / static_cast<double>(curves.places.size());
  return fmt::format(
      "<rect class=\"mark\" x=\"{:.1f}\" y=\"0\" width=\"{:.1f}\" height=\"{}\"></rect>",
      static_cast<double>(*curves.culprit) * width, width, kHeight);
}

std::string Limit(const Chart& chart) {
  if (!chart.limit) return "";
  const double y = Y(*chart.Height(*chart.limit));
  return fmt::format("<path class=\"limit\" d=\"M0 {0:.1f}H{1}\"></path>", y, kWidth);
}

std::string AxisText(const Chart& chart, double value) {
  if (!chart.logarithmic) return fmt::format("{:.2f}", value);
  const auto exponent = static_cast<int>(std::lround(std::log10(value)));
  if (exponent >= 0 && exponent <= 3) return fmt::format("{:.0f}", value);
  return fmt::format("1e{}", exponent);
}

std::string YAxis(const Chart& chart) {
  std::string out = fmt::format("<span style=\"top:0\">{}</span><span style=\"bottom:0\">{}</span>",
                                AxisText(chart, chart.high), AxisText(chart, chart.low));
  if (chart.limit && *chart.limit > chart.low && *chart.limit < chart.high) {
    out += fmt::format("<span style=\"bottom:{:.0f}%;margin-bottom:-.7em\">{}</span>",
                       *chart.Height(*chart.limit) * 100, NumberText(chart.limit));
  }
  return out;
}

// What the picture shows, for those who do not see it.
std::string Spoken(const Curves& curves, const Chart& chart) {
  std::string out = fmt::format("{} along {} {}", chart.title, curves.places.size(),
                                curves.layers ? "layers" : "ops");
  if (!curves.culprit) return out;
  const auto& value = chart.series[0].values[*curves.culprit];
  return out + fmt::format("; {} {}: {}", curves.layers ? "layer" : "op",
                           curves.places[*curves.culprit], NumberText(value));
}

std::string Legend(const Chart& chart) {
  std::string out;
  for (size_t i = 0; i < chart.series.size(); ++i) {
    out +=
        fmt::format("<span><i class=\"key s{}\"></i>{}</span>", i, Escaped(chart.series[i].name));
  }
  if (chart.limit) {
    out += fmt::format("<span><i class=\"key limit\"></i>{}</span>", Escaped(chart.limit_name));
  }
  return out;
}

std::string XAxis(const Curves& curves) {
  const std::string first = curves.layers ? "layer " + curves.places.front() : "first op";
  const std::string last = curves.layers ? curves.places.back() : "last";
  std::string out = fmt::format("<span>{}</span>", Escaped(first));
  if (curves.culprit) {
    out += fmt::format("<b>{}{}</b>", curves.layers ? "layer " : "",
                       Escaped(curves.places[*curves.culprit]));
  }
  return out + fmt::format("<span>{}</span>", Escaped(last));
}

std::string ChartHtml(const Curves& curves, const Chart& chart) {
  std::string lines;
  for (size_t i = chart.series.size(); i-- > 0;) lines += LineOf(chart, chart.series[i], i);
  return fmt::format(
      "<figure class=\"curve\"><figcaption>{}</figcaption>\n<div class=\"plot\"><div "
      "class=\"axis\">{}</div><svg viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\" role=\"img\" "
      "aria-label=\"{}\">{}{}{}</svg></div>\n<div class=\"xaxis\">{}</div><div "
      "class=\"keys\">{}</div></figure>\n",
      Escaped(chart.title), YAxis(chart), kWidth, kHeight, Escaped(Spoken(curves, chart)),
      Mark(curves), Limit(chart), lines, XAxis(curves), Legend(chart));
}

// Five steps of a scale; the words of the legend say what each is.
int StepOf(const ErrorMap& map, double value) {
  if (std::isnan(value)) return 4;
  if (map.value == "wrong") {
    return value <= 0 ? 0 : value <= 0.1 ? 1 : value <= 0.5 ? 2 : value < 1 ? 3 : 4;
  }
  return value <= 1 ? 0 : value <= 10 ? 1 : value <= 100 ? 2 : value <= 1000 ? 3 : 4;
}

std::string MapKeys(const ErrorMap& map) {
  static constexpr const char* kRatio[] = {"within tolerance", "to 10 ×", "to 100 ×", "to 1000 ×",
                                           "beyond"};
  static constexpr const char* kWrong[] = {"none wrong", "to 10 %", "to 50 %", "most", "all"};
  std::string out;
  for (int step = 0; step < 5; ++step) {
    out += fmt::format("<span><i class=\"key q{}\"></i>{}</span>", step,
                       map.value == "wrong" ? kWrong[step] : kRatio[step]);
  }
  return out;
}

std::string Units(const std::string& unit, int64_t cells, int64_t a_cell) {
  const std::string each = a_cell > 1 ? fmt::format(", {} a cell", a_cell) : "";
  return fmt::format("{}{}", Counted(cells * a_cell, unit), each);
}

}  // namespace

std::string CurvesHtml(const CellResult& cell) {
  const Curves curves = CurvesOf(cell);
  if (curves.charts.empty()) return "";
  std::string out = fmt::format("<h4>Along the {}</h4>\n<div class=\"curves\">\n",
                                curves.layers ? "layers" : "ops");
  for (const Chart& chart : curves.charts) out += ChartHtml(curves, chart);
  return out + "</div>\n";
}

std::string ErrorMapHtml(const Divergence& divergence) {
  if (!divergence.map || divergence.map->cells.empty()) return "";
  const ErrorMap& map = *divergence.map;
  const auto rows = static_cast<size_t>(map.rows), columns = static_cast<size_t>(map.columns);
  std::string squares;
  int64_t red = 0;
  for (size_t r = 0; r < rows; ++r) {
    // Runs of one step are one rectangle: a map of thousands of cells stays small.
    for (size_t c = 0; c < columns;) {
      const int step = StepOf(map, map.cells[r * columns + c]);
      size_t end = c + 1;
      while (end < columns && StepOf(map, map.cells[r * columns + end]) == step) ++end;
      if (step > 0) {
        red += static_cast<int64_t>(end - c);
        squares +=
            fmt::format("<rect class=\"q{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"1\"></rect>",
                        step, c, r, end - c);
      }
      c = end;
    }
  }
  const std::string where = !divergence.tensor.empty() ? divergence.tensor : divergence.tap;
  const std::string spoken =
      fmt::format("errors of {}: {} of {} cells", where, red, rows * columns);
  // Few rows are drawn high enough to be seen, many as high as fits.
  const size_t height = std::clamp<size_t>(rows * 12, 24, 220);
  return fmt::format(
      "<h4>Where in {}</h4>\n<figure class=\"errors\" style=\"max-width:{}px\">"
      "<div class=\"down\">{} ↓</div>"
      "<svg viewBox=\"0 0 {} {}\" style=\"height:{}px\" shape-rendering=\"crispEdges\" "
      "preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">"
      "<rect class=\"q0\" width=\"{}\" height=\"{}\"></rect>{}</svg>"
      "<div class=\"across\">{} →</div>"
      "<div class=\"keys\">{}</div></figure>\n",
      Escaped(where), std::max<size_t>(columns * 20, 260),
      Escaped(Units(map.row_unit, map.rows, map.rows_a_cell)), columns, rows, height,
      Escaped(spoken), columns, rows, squares,
      Escaped(Units(map.column_unit, map.columns, map.columns_a_cell)), MapKeys(map));
}

}  // namespace assay::reports
