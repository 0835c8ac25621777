// Text from outside made safe to show: problem strings, reasons and engine output are hostile.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace assay::reports {

// Valid UTF-8: what is none becomes U+FFFD. Newlines and tabs stay if `lines`; any other control
// character, also DEL, C1 and the ones that turn the writing direction, becomes visible as \x1b or
// \u202e. Safe in a terminal, in HTML after escaping, and in XML 1.0 after escaping.
std::string Visible(std::string_view text, bool lines = false);

// & < > " ' as entities, of Visible text.
std::string Escaped(std::string_view text, bool lines = false);

// Columns on a terminal, one for each code point. `text` is valid UTF-8.
int Width(std::string_view text);

// Breaks at spaces so that no line is wider than `columns`; lines after the first are indented. A
// word that is wider than a line is cut. Returns lines without newlines.
std::vector<std::string> Wrapped(std::string_view text, int columns, int indent);

// At most `columns` wide; the middle gives way to `ellipsis`.
std::string Shortened(const std::string& text, int columns, std::string_view ellipsis);

// Six digits, or "nan", "inf", "-inf"; a dash for what was not computed.
std::string NumberText(const std::optional<double>& value);
// Two values that differ, with as many digits as show it.
std::pair<std::string, std::string> ValueTexts(const std::optional<double>& a,
                                               const std::optional<double>& b);
// "15.6 GiB" of a whole number of bytes; what is none stays as it is.
std::string BytesText(const std::string& bytes);
// "0.4 s", "12 s", "3 min 05 s".
std::string DurationText(double seconds);

std::string Joined(const std::vector<std::string>& parts, std::string_view between);
std::string IndexText(const std::vector<int64_t>& index);  // "[17, 5]"
// "1 cell", "7 cells".
std::string Counted(int64_t count, std::string_view noun);

}  // namespace assay::reports
