// Small files for tests, good and bad.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>

#include "harness/units/status.h"

namespace assay {

// An empty folder of its own, gone afterwards.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::string Path(std::string_view name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }
  // Returns the file's path.
  std::string Write(std::string_view name, std::string_view bytes) const;

 private:
  std::filesystem::path path_;
};

std::string ReadBytes(const std::string& path);

// Length, header and data as they lie in a file: nothing is checked.
std::string RawSafetensors(std::string_view header, std::string_view data);
// One entry of a header: "x": {"dtype":"U8","shape":[n],"data_offsets":[begin,begin+n]}.
std::string ByteEntry(std::string_view name, int begin, int count);

// A small config of the Llama class that is right.
std::string LlamaJson();

// One line, printable, and with each of the texts in it. Prints the message where not.
testing::AssertionResult Says(const Error& error, std::initializer_list<std::string_view> texts);

}  // namespace assay
