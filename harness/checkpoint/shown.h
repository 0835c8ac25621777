// How text from a file appears in a message: on one line, harmless to a terminal, never endless.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace assay {

// Printable ASCII and printable UTF-8 stay; control characters, invisible formatting, backslashes
// and bytes that are no UTF-8 become \xNN. Text longer than max_bytes is cut in the
// middle: the ends of tensor names tell most.
std::string Shown(std::string_view text, size_t max_bytes = 160);
// The same in single quotes; those in the text become \x27.
std::string Quoted(std::string_view text, size_t max_bytes = 160);
// A path, which is never cut.
std::string ShownPath(std::string_view path);

}  // namespace assay
