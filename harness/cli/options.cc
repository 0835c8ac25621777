#include "harness/cli/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "harness/run/problem.h"

namespace assay::cli {

struct Options::Impl {
  CLI::App app;
  std::string verb, example;
  std::vector<std::string> known{"--help"};
  std::vector<std::string> texts;  // options whose value is a text
};

Options::Options(std::string verb, std::string what, std::string example)
    : impl_(std::make_unique<Impl>()) {
  impl_->verb = std::move(verb);
  impl_->example = std::move(example);
  impl_->app.name("./assay " + impl_->verb);
  impl_->app.description(what);
  impl_->app.footer("Example: " + impl_->example);
  impl_->app.allow_extras();
}

Options::~Options() = default;

void Options::Flag(const std::string& name, bool* value, const std::string& help) {
  impl_->known.push_back(name);
  impl_->app.add_flag(name, *value, help);
}

void Options::Value(const std::string& name, std::string* value, const std::string& help) {
  impl_->known.push_back(name);
  impl_->texts.push_back(name);
  impl_->app.add_option(name, *value, help)->capture_default_str();
}

void Options::Number(const std::string& name, int64_t* value, int64_t least, int64_t most,
                     const std::string& help) {
  impl_->known.push_back(name);
  impl_->app.add_option(name, *value, help)->capture_default_str()->check(CLI::Range(least, most));
}

void Options::Words(const std::string& name, std::vector<std::string>* words,
                    const std::string& help) {
  impl_->app.add_option(name, *words, help);
}

std::optional<int> Options::Parse(int argc, char** argv) {
  try {
    impl_->app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return impl_->app.exit(help);
  } catch (const CLI::ParseError& error) {
    return BadUsage(fmt::format("{}: {}", impl_->verb, error.what()));
  }
  // A variable that a script forgot to set must not take an option away.
  for (const std::string& name : impl_->texts) {
    const CLI::Option* option = impl_->app.get_option(name);
    if (option->count() == 0 || !option->results().back().empty()) continue;
    return BadUsage(fmt::format("{}: {} has an empty value", impl_->verb, name));
  }
  for (const std::string& extra : impl_->app.remaining()) {
    const std::string option = extra.substr(0, extra.find('='));
    const std::string nearest = run::Nearest(option, impl_->known);
    return BadUsage(fmt::format("{}: unknown argument {}{}; allowed options are {}", impl_->verb,
                                extra, nearest.empty() ? "" : ", did you mean " + nearest + "?",
                                fmt::join(impl_->known, ", ")));
  }
  return std::nullopt;
}

int BadUsage(const std::string& message) {
  // One line, harmless to a terminal, whatever an argument holds.
  std::string line;
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    const bool control = byte < 0x20 || byte == 0x7f;
    line += control ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  std::fprintf(stderr, "assay: %s\n", line.c_str());
  return 2;
}

}  // namespace assay::cli
