#include "harness/run/problem.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>

namespace assay::run {
namespace {

Problem Parse(const std::string& text) {
  auto problem = ParseProblem(text);
  if (!problem.ok()) {
    ADD_FAILURE() << text << ": " << problem.error().message;
    return {};
  }
  return *problem;
}

std::string ErrorOf(const std::string& text) {
  const auto problem = ParseProblem(text);
  if (problem.ok()) {
    ADD_FAILURE() << "read without an error: " << text;
    return "";
  }
  EXPECT_EQ(problem.error().kind, ErrorKind::kBadInput);
  return problem.error().message;
}

void ExpectSays(const std::string& text, const std::vector<std::string>& parts) {
  const std::string message = ErrorOf(text);
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' not in: " << message;
  }
}

TEST(Problem, CanonicalWritesEveryDefault) {
  EXPECT_EQ(PrintCanonical(Parse("moe tp=2 model=k2-mini layer=1")),
            "moe engine=native model=k2-mini layer=1 expert=all op=all tp=2 pools=1 ep=1 dp=1 "
            "attn_tp=2 lm_head=tp split=even placement=cpu reduce=sequential:fp32 graph=eager "
            "tokens=5 reload=0 routing=model fill=lognormal seed=1 fault=none");
}

TEST(Problem, MinimalLeavesDefaultsOut) {
  const Problem problem = Parse(
      "moe seed=7 tokens=5 tier=avx512_vnni act=a8g32 tp=4 layer=1 model=k2-mini engine=native");
  EXPECT_EQ(PrintMinimal(problem),
            "moe model=k2-mini layer=1 tp=4 tier=avx512_vnni act=a8g32 seed=7");
}

TEST(Problem, KeysAreThoseOfTheTable) {
  std::vector<std::string> names;
  for (const KeyInfo& key : Keys()) names.emplace_back(key.name);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"act",         "attn_tp",
                                             "beta",        "chunk",
                                             "collective",  "dp",
                                             "engine",      "ep",
                                             "expert",      "experts",
                                             "fault",       "fill",
                                             "graph",       "group",
                                             "kernel",      "layer",
                                             "layout",      "limit",
                                             "linear_beta", "lm_head",
                                             "method",      "model",
                                             "op",          "placement",
                                             "pools",       "prefill_threshold",
                                             "prefix",      "prompt",
                                             "reduce",      "reload",
                                             "routing",     "seed",
                                             "split",       "threads",
                                             "tier",        "tokens",
                                             "tp"}));
  EXPECT_EQ(Kinds().size(), 11u);
}

TEST(Problem, DefaultsThatDependOnTheRest) {
  EXPECT_EQ(Parse("model model=a").Get("fill"), "real");
  EXPECT_EQ(Parse("layer model=a").Get("fill"), "real");
  EXPECT_EQ(Parse("moe model=a").Get("fill"), "lognormal");
  EXPECT_EQ(PrintMinimal(Parse("model model=a fill=real")), "model model=a");
  EXPECT_EQ(PrintMinimal(Parse("moe model=a fill=real")), "moe model=a fill=real");
  EXPECT_EQ(Parse("model model=a prompt=t33").Get("tokens"), "");
  EXPECT_EQ(PrintCanonical(Parse("model model=a prompt=t33")).find("tokens"), std::string::npos);
  EXPECT_EQ(PrintMinimal(Parse("model model=a prompt=t5 tokens=5")),
            "model model=a tokens=5 prompt=t5");
}

TEST(Problem, AttentionDegreeEqualToTpIsTheDefault) {
  EXPECT_FALSE(Parse("model model=a tp=4 attn_tp=4").Has("attn_tp"));
  EXPECT_EQ(Parse("model model=a tp=4 attn_tp=1").GetInt("attn_tp"), 1);
  EXPECT_FALSE(Parse("model model=a attn_tp=1").Has("attn_tp"));
}

TEST(Problem, OneSpellingOfWhatMeansTheSame) {
  EXPECT_EQ(Parse("moe model=a reduce=ring").Get("reduce"), "ring:fp32");
  EXPECT_EQ(PrintMinimal(Parse("moe model=a reduce=sequential")), "moe model=a");
  EXPECT_EQ(Parse("act model=a limit=7.0").Get("limit"), "7");
  EXPECT_EQ(Parse("act model=a limit=inf").Get("limit"), "inf");
  EXPECT_EQ(Parse("act model=a beta=2.5e1").Get("beta"), "25");
}

TEST(Problem, PercentEncoding) {
  const Problem problem = Parse("load model=/data/my%20model%25/it%27s%0A");
  EXPECT_EQ(problem.Get("model"), "/data/my model%/it's\n");
  EXPECT_EQ(PrintMinimal(problem), "load model=/data/my%20model%25/it%27s%0A");
  EXPECT_EQ(Parse("load model=/d%61ta/\xc3\xa4").Get("model"), "/data/\xc3\xa4");
  ExpectSays("load model=a%2", {"'%2'", "%25 for %"});
  ExpectSays("load model=a%zz", {"'%zz'"});
  ExpectSays("load model=a%+1", {"'%+1'"});
  ExpectSays("load model=a%00", {"'%00'"});
  ExpectSays("load model=a\x01", {"control character", "0x01"});
}

TEST(Problem, UnknownKindKeyOrValueNamesTheNearest) {
  ExpectSays("model2 model=a", {"unknown kind model2", "did you mean model?", "collective"});
  ExpectSays("moe modle=a", {"unknown key modle", "did you mean model?", "prefill_threshold"});
  ExpectSays("moe model=a teir=avx2", {"unknown key teir", "did you mean tier?"});
  ExpectSays("moe model=a tier=avx51", {"tier=avx51", "did you mean avx512?", "amx_int8"});
  ExpectSays("moe model=a act=a8g23", {"act=a8g23", "did you mean a8g32?", "q8_k"});
  ExpectSays("moe model=a fill=lognromal", {"did you mean lognormal?", "extreme"});
  ExpectSays("moe model=a reduce=rign:bf16", {"did you mean ring:bf16?", "tree", ":int4"});
  ExpectSays("moe model=a method=ct-int4-g32-asmy", {"did you mean ct-int4-g32-asym?"});
  ExpectSays("moe model=a method=gguf-q4k", {"did you mean gguf-q4_k?"});
  ExpectSays("moe model=a qqqqqqqq=1", {"unknown key qqqqqqqq; allowed"});
  ExpectSays("moe model=a tp", {"tp: a value is missing"});
  ExpectSays("moe model=a tp=", {"tp=: a value is missing"});
  ExpectSays("moe tp=2", {"model= is missing"});
  ExpectSays("moe model=a tp=2 tp=4", {"tp is given twice", "2 and 4"});
  ExpectSays(" \t", {"empty problem string", "linear"});
}

TEST(Problem, NumbersAreCheckedAndHaveOneSpelling) {
  for (const char* bad : {"0", "-1", "+1", "02", "2.0", "two", "99999999999", "2 3", "0x2"}) {
    ErrorOf(std::string("moe model=a tp=") + bad);
  }
  ExpectSays("moe model=a tp=0", {"tp=0", "1 to 2147483647"});
  ExpectSays("moe model=a layer=-1", {"layer=-1", "all, 0 to"});
  EXPECT_EQ(Parse("moe model=a layer=0 seed=0 prefix=0 prefill_threshold=0").GetInt("layer"), 0);
  for (const char* bad : {"nan", "-inf", "0", "-7", "1e999", "7x", "1e", "1e-60", "1e39"}) {
    ErrorOf(std::string("act model=a limit=") + bad);
  }
}

TEST(Problem, ValuesWithAGrammar) {
  for (const char* good :
       {"split=ceil", "split=list:5,3,2", "split=list:4,0", "placement=hybrid:8", "group=channel",
        "method=ct-int4-g64", "method=ct-fp8-block64x32", "method=gguf-q4_1", "method=quark-mxfp4",
        "method=ct-w8a8-channel", "fault=K03/rank0", "fault=none", "prompt=/tmp/ids.json",
        "graph=replayed", "routing=forced", "lm_head=dp", "engine=ggml tier=sse42"}) {
    Parse(std::string("moe model=a ") + good);
  }
  for (const char* bad : {"split=list:", "split=list:5,,2", "split=list:0,0", "split=list:5,-1",
                          "placement=hybrid", "placement=hybrid:0", "group=0", "method=ct-int4-g",
                          "method=ct-int4-g0", "method=ct-int4-g32x32", "method=ct-fp8-block64x",
                          "method=gguf-", "fault=K3/rank0", "fault=K03", "fault=K03/",
                          "fault=rank0", "graph=lazy", "tier=sse42", "engine=ggml tier=SSE"}) {
    ErrorOf(std::string("moe model=a ") + bad);
  }
}

TEST(Problem, TokensAreParsed) {
  EXPECT_EQ(*ParseTokens("5"), (Tokens{1, 5, 0}));
  EXPECT_EQ(*ParseTokens("33+1"), (Tokens{1, 33, 1}));
  EXPECT_EQ(*ParseTokens("4x1"), (Tokens{4, 0, 1}));
  EXPECT_EQ(ParseTokens("33+2")->total(), 35);
  EXPECT_EQ(ParseTokens("4x2")->total(), 8);
  for (const char* bad : {"", "0", "+1", "5+", "5+0", "x1", "4x", "0x1", "4x0", "5+1+1", "4x1x1",
                          "-5", "1048577", "2000000x2000000", "1048576+1"}) {
    EXPECT_FALSE(ParseTokens(bad).ok()) << bad;
  }
  ExpectSays("moe model=a tokens=many", {"tokens=many", "33+1", "4x1"});
}

TEST(Nearest, ByEditDistanceWithSwaps) {
  const std::vector<std::string> names = {"tp", "tier", "tokens", "threads"};
  EXPECT_EQ(Nearest("tokns", names), "tokens");
  EXPECT_EQ(Nearest("pt", names), "tp");
  EXPECT_EQ(Nearest("theads", names), "threads");
  EXPECT_EQ(Nearest("tokens", names), "tokens");
  EXPECT_EQ(Nearest("xq", names), "");
  EXPECT_EQ(Nearest("", names), "");
  EXPECT_EQ(Nearest("entirely-different", names), "");
  EXPECT_EQ(Nearest(std::string(1000, 't'), names), "");
  EXPECT_EQ(Nearest("tp", {}), "");
}

// A random problem: some keys with legal values, texts with bytes that need encoding, any order.
std::string RandomProblem(std::mt19937_64* random) {
  const auto below = [&](size_t n) { return static_cast<size_t>((*random)() % n); };
  const std::vector<std::pair<std::string, std::vector<std::string>>> values = {
      {"layer", {"all", "0", "17"}},
      {"expert", {"all", "5"}},
      {"op", {"all", "moe.down"}},
      {"method", {"bf16", "ct-int4-g32", "gguf-q4_k"}},
      {"group", {"32", "channel"}},
      {"tp", {"1", "2", "3", "12", "64"}},
      {"attn_tp", {"1", "2", "3"}},
      {"pools", {"1", "2"}},
      {"ep", {"1", "4"}},
      {"dp", {"2"}},
      {"lm_head", {"tp", "dp"}},
      {"split", {"even", "ceil", "list:5,3,2"}},
      {"placement", {"cpu", "gpu", "hybrid:3"}},
      {"prefill_threshold", {"0", "512"}},
      {"reduce", {"sequential", "ring:bf16", "tree", "sequential:fp32"}},
      {"tier", {"scalar", "avx2", "cuda_sm90a"}},
      {"threads", {"1", "96"}},
      {"graph", {"eager", "captured"}},
      {"act", {"a16", "q8_k"}},
      {"limit", {"7", "7.0", "inf", "0.1"}},
      {"beta", {"4"}},
      {"linear_beta", {"25"}},
      {"tokens", {"5", "33+1", "4x1"}},
      {"prompt", {"t33", "t5"}},
      {"chunk", {"8"}},
      {"prefix", {"0", "9"}},
      {"routing", {"model", "forced"}},
      {"fill", {"exact", "real", "lognormal"}},
      {"seed", {"1", "7"}},
      {"fault", {"none", "K03/rank0"}}};
  std::vector<std::string> words;
  for (const auto& [key, choices] : values) {
    if (below(3) == 0) words.push_back(key + "=" + choices[below(choices.size())]);
  }
  std::string model;
  for (size_t i = 0, n = 1 + below(12); i < n; ++i) {
    const unsigned byte = 1 + static_cast<unsigned>(below(255));
    char encoded[4];
    std::snprintf(encoded, sizeof encoded, "%%%02X", byte);
    model += encoded;
  }
  words.push_back("model=" + model);
  std::shuffle(words.begin(), words.end(), *random);
  std::string text(Kinds()[below(Kinds().size())]);
  for (const std::string& word : words) text += " " + word;
  return text;
}

TEST(Problem, PrintingAndReadingBackIsTheIdentity) {
  std::mt19937_64 random(20240613);
  for (int i = 0; i < 5000; ++i) {
    const std::string text = RandomProblem(&random);
    const Problem problem = Parse(text);
    const std::string canonical = PrintCanonical(problem);
    const std::string minimal = PrintMinimal(problem);
    ASSERT_EQ(PrintCanonical(Parse(canonical)), canonical) << text;
    ASSERT_EQ(PrintMinimal(Parse(minimal)), minimal) << text;
    ASSERT_EQ(PrintCanonical(Parse(minimal)), canonical) << text;
    ASSERT_EQ(PrintMinimal(Parse(canonical)), minimal) << text;
    for (const KeyInfo& key : Keys()) {
      ASSERT_EQ(Parse(canonical).Get(key.name), problem.Get(key.name)) << key.name << " " << text;
    }
  }
}

// A value may hold an encoded newline; what is said about it is one line all the same.
TEST(Problems, MessagesAreOneLineWhateverTheValue) {
  for (const char* text : {"model model=a%0Ab model=c", "model model=m tier=sca%0Alar"}) {
    const auto problem = ParseProblem(text);
    ASSERT_FALSE(problem.ok());
    EXPECT_EQ(problem.error().message.find('\n'), std::string::npos) << problem.error().message;
    EXPECT_NE(problem.error().message.find("%0A"), std::string::npos) << problem.error().message;
  }
}

}  // namespace
}  // namespace assay::run
