// Files that are whole or not there.
#pragma once

#include <string>
#include <string_view>

#include "harness/units/status.h"

namespace assay {

// Writes `text` beside `path`, syncs it and renames it into its place: a reader sees what was there
// before or all of the new, and so does whoever looks after a power cut. What was beside is removed
// on failure. Error (environment): one line with file and cause.
Status WriteWhole(const std::string& path, std::string_view text);

// The same end for a file that somebody else wrote beside `path`: synced, renamed, and the folder
// synced. `beside` is on the same file system.
Status MoveIntoPlace(const std::string& beside, const std::string& path);

// Removes what WriteWhole left beside `path` when its process was killed. Files of processes that
// live are let alone.
void RemoveLeftovers(const std::string& path);

// Without this a file that was synced may still lack its name after a power cut.
void SyncNames(const std::string& dir);

}  // namespace assay
