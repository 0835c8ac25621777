// Patterns of module names as quantisation configs write them. A regular expression from a file is
// hostile until matched: this matcher takes time proportional to pattern times name, whatever both
// are. Private to this room.
#pragma once

#include <string_view>

namespace assay {

// Whether the regular expression matches at the beginning of `name`, as Python's re.match. Known:
// literals, escapes (\. \d \w \s and their opposites), dot, classes, groups, |, * + ? and their
// lazy forms, counts ({2}, {1,3}), ^ and $. Anything else (lookahead, references) matches nothing.
bool MatchesRegex(std::string_view pattern, std::string_view name);

// Whether all of it is known.
bool IsRegex(std::string_view pattern);

// Whether `name` is the pattern or lies below it: "model.layers.0.mlp" has "model.layers.0.mlp.up".
// A * stands for any characters.
bool MatchesPrefix(std::string_view pattern, std::string_view name);

}  // namespace assay
