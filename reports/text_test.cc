#include "reports/text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace assay::reports {
namespace {

TEST(Text, ControlCharactersBecomeVisible) {
  EXPECT_EQ(Visible("a\x1b[31mb\x07"), "a\\x1b[31mb\\x07");
  EXPECT_EQ(Visible("a\nb\tc"), "a\\x0ab\\x09c");
  EXPECT_EQ(Visible("a\nb\tc\r", true), "a\nb\tc\\x0d");
  EXPECT_EQ(Visible("x\u202Etxt\u200By"), "x\\u202etxt\\u200by");
  EXPECT_EQ(Visible(std::string_view("\0\x7f\xc2\x9b", 4)), "\\x00\\x7f\\x9b");
  EXPECT_EQ(Visible("é → 😀 \u6F22"), "é → 😀 \u6F22");
}

TEST(Text, BytesThatAreNotUtf8BecomeReplacements) {
  EXPECT_EQ(Visible("\xff"), "\uFFFD");
  EXPECT_EQ(Visible("\xc3"), "\uFFFD");                                  // cut
  EXPECT_EQ(Visible("\xc0\xaf"), "\uFFFD\uFFFD");                        // overlong
  EXPECT_EQ(Visible("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD");              // a surrogate
  EXPECT_EQ(Visible("\xf4\x90\x80\x80z"), "\uFFFD\uFFFD\uFFFD\uFFFDz");  // beyond Unicode
  EXPECT_EQ(Visible("\xe2\x86z"), "\uFFFD\uFFFDz");
}

TEST(Text, MarkupIsEscaped) {
  EXPECT_EQ(Escaped("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
}

TEST(Text, WrapsWithinTheColumns) {
  EXPECT_EQ(Wrapped("aa bb cc", 5, 2), (std::vector<std::string>{"aa bb", "  cc"}));
  EXPECT_EQ(Wrapped("abcdefgh i", 4, 1), (std::vector<std::string>{"abcd", " efg", " h i"}));
  EXPECT_EQ(Wrapped("", 4, 1), (std::vector<std::string>{""}));
  EXPECT_EQ(Wrapped("éé éé", 2, 0), (std::vector<std::string>{"éé", "éé"}));
}

TEST(Text, ShortensInTheMiddle) {
  EXPECT_EQ(Shortened("abcdefghij", 10, "…"), "abcdefghij");
  EXPECT_EQ(Shortened("abcdefghijk", 7, "…"), "abcd…jk");
  EXPECT_EQ(Width(Shortened("ééééééééééé", 7, "...")), 7);
}

TEST(Text, Numbers) {
  EXPECT_EQ(NumberText(std::nullopt), "–");
  EXPECT_EQ(NumberText(31000.0), "31000");
  EXPECT_EQ(NumberText(std::nan("")), "nan");
  EXPECT_EQ(NumberText(-std::numeric_limits<double>::infinity()), "-inf");
  EXPECT_EQ(ValueTexts(0.5, 0.25), (std::pair<std::string, std::string>{"0.5", "0.25"}));
  // Values that six digits cannot tell apart get all that they have.
  EXPECT_EQ(ValueTexts(1.0, 1.00000001), (std::pair<std::string, std::string>{"1", "1.00000001"}));
  EXPECT_EQ(DurationText(0.44), "0.4 s");
  EXPECT_EQ(DurationText(14.2), "14 s");
  EXPECT_EQ(DurationText(185), "3 min 05 s");
  EXPECT_EQ(DurationText(7260), "2 h 01 min");
  EXPECT_EQ(DurationText(std::nan("")), "?");
  EXPECT_EQ(BytesText("16776474624"), "15.6 GiB");
  EXPECT_EQ(BytesText("-1"), "-1");
  EXPECT_EQ(BytesText("1 GB"), "1 GB");
  EXPECT_EQ(Counted(1, "cell"), "1 cell");
  EXPECT_EQ(Counted(0, "cell"), "0 cells");
}

}  // namespace
}  // namespace assay::reports
