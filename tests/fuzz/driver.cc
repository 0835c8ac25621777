#include "tests/fuzz/driver.h"

#include <gtest/gtest.h>

#include "tests/fuzz/mutate.h"

namespace assay::fuzz {

void Drive(std::string_view name, Function function, int mutations) {
  const std::vector<std::string> seeds = SeedsOf(name);
  const std::vector<std::string> tokens = TokensOf(name);
  ASSERT_FALSE(seeds.empty()) << name;
  const auto run = [&](const std::string& input) {
    function(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  };
  run("");
  for (const std::string& seed : seeds) run(seed);
  std::mt19937_64 random(20261201);
  for (int i = 0; i < mutations; ++i) {
    const std::string& seed = seeds[static_cast<size_t>(i) % seeds.size()];
    run(Mutate(seed, seeds[random() % seeds.size()], tokens, &random));
  }
}

}  // namespace assay::fuzz
