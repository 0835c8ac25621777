// Numbers as the reports of an audit write them.
#pragma once

#include <cstdint>
#include <string>

namespace assay::audit {

// "512 B", "1.4 MiB", "9.5 GiB".
std::string SizeText(int64_t bytes);
double GigabytesPerSecond(int64_t bytes, double seconds);

}  // namespace assay::audit
