// assay VERB …: finds the verb and runs it.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "harness/cli/options.h"
#include "harness/cli/verbs.h"
#include "harness/run/problem.h"

namespace assay::cli {
namespace {

struct Verb {
  std::string_view name;
  std::string_view what;
  int (*run)(int argc, char** argv);  // nullptr: not built yet, or the launcher's own
};

constexpr std::array<Verb, 22> kVerbs = {{
    {"run", "the matrix, a selection of it, or one problem string", Run},
    {"test", "the project's own tests", nullptr},
    {"list", "cells, and kernels without cells", List},
    {"doctor", "what this machine can execute, and how", Doctor},
    {"golden", "verify the oracle against recorded logits and taps, fetch a model", Golden},
    {"mutate", "the fault library: what the harness finds of what it should", Mutate},
    {"report", "render a run's results again, merge its shards", Report},
    {"bench", "kernels at speed", Bench},
    {"emulator", "install or examine an emulator", nullptr},
    {"audit", "a checkpoint: legality, integrity, coverage", Audit},
    {"quantise", "a dense checkpoint in another storage method", Quantise},
    {"compare", "two traces or dumps", nullptr},
    {"diagnose", "from symptoms to the next cell", nullptr},
    {"replay", "a bundle", nullptr},
    {"minimize", "a failing problem to its smallest case", nullptr},
    {"repro", "a launch line to a problem", nullptr},
    {"bisect", "commits, or sites inside a run", nullptr},
    {"certify", "a signed statement of what was executed", nullptr},
    {"verify", "check a certificate", nullptr},
    {"gate", "paired task scores", nullptr},
    {"help", "this page", nullptr},
    {"version", "the revision that was built", nullptr},
}};

bool IsBuilt(const Verb& verb) {
  return verb.run != nullptr || verb.name == "test" || verb.name == "help" ||
         verb.name == "version";
}

int Help() {
  std::puts(
      "Assay tells whether a tensor-parallel x quantisation x ISA configuration of an\n"
      "inference engine computes what the checkpoint says, and if not, where it first\n"
      "goes wrong and what kind of mistake it is.\n\nUsage: ./assay VERB [OPTIONS]\n");
  std::string later;
  for (const Verb& verb : kVerbs) {
    if (IsBuilt(verb)) {
      std::puts(fmt::format("  {:<10} {}", verb.name, verb.what).c_str());
    } else {
      later += fmt::format("{}{}", later.empty() ? "" : " ", verb.name);
    }
  }
  std::puts(fmt::format("\nNot built yet: {}.", later).c_str());
  std::puts(
      "\n./assay VERB --help says more, ./assay help problem lists the keys of a cell.\n"
      "Exit codes: 0 good, 1 a finding, 2 bad usage or bad input, 125 nothing was\n"
      "executed, 130 interrupted.");
  return 0;
}

// The kinds and keys of problem strings, with their defaults.
int HelpProblem() {
  std::puts(fmt::format("A problem string is KIND key=value ..., in any order. Kinds:\n  {}\n",
                        fmt::join(run::Kinds(), " "))
                .c_str());
  for (const run::KeyInfo& key : run::Keys()) {
    const std::string fallback = key.fallback.empty() ? "" : fmt::format(" [{}]", key.fallback);
    std::puts(fmt::format("  {}{}\n      {}", key.name, fallback, key.help).c_str());
  }
  return 0;
}

// "help VERB" is "VERB --help"; "help problem" is about problem strings.
int HelpFor(char** argv) {
  if (std::string_view(argv[2]) == "problem") return HelpProblem();
  for (const Verb& verb : kVerbs) {
    if (verb.name != argv[2] || verb.run == nullptr) continue;
    std::string name(verb.name), flag = "--help";
    char* words[] = {name.data(), flag.data(), nullptr};
    return verb.run(2, words);
  }
  return Help();
}

int Main(int argc, char** argv) {
  const std::string_view name = argc < 2 ? "help" : argv[1];
  if (name == "help" && argc > 2) return HelpFor(argv);
  if (name == "help" || name == "--help" || name == "-h") return Help();
  std::vector<std::string> names;
  for (const Verb& verb : kVerbs) {
    names.emplace_back(verb.name);
    if (verb.name != name) continue;
    if (verb.run != nullptr) return verb.run(argc - 1, argv + 1);
    if (name == "test" || name == "version") {
      return BadUsage(fmt::format("{} is the launcher's own verb: ./assay {}", name, name));
    }
    return BadUsage(fmt::format("{} is not built yet", name));
  }
  const std::string nearest = run::Nearest(name, names);
  return BadUsage(fmt::format("unknown verb {}{}; allowed are {}", name,
                              nearest.empty() ? "" : ", did you mean " + nearest + "?",
                              fmt::join(names, ", ")));
}

}  // namespace
}  // namespace assay::cli

int main(int argc, char** argv) {
  // A closed standard stream would give its number to the next file that is opened: results would
  // be written where progress goes.
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) == -1) (void)open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY);
  }
  const int code = assay::cli::Main(argc, argv);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return assay::cli::BadUsage("standard output could not be written");
  }
  return code;
}
