// JSON-Schema-Test-Suite, where it stands beside the clone: nothing that is invalid is ever taken,
// and what is right today stays right.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "grammar/grammar_helpers.h"

namespace skein::grammar {
namespace {

using Json = nlohmann::ordered_json;
const std::filesystem::path kSuite = SKEIN_SOURCE_DIR "/../shared/vectors/jsonschema";

struct Counts {
  size_t right = 0, taken_wrongly = 0, refused_wrongly = 0, unsupported = 0;
};

void run_group(const Json& group, const std::string& where, Counts& counts) {
  auto rules = json_schema_rules(group["schema"].dump(), {.strict = true, .open = true});
  std::shared_ptr<CompiledGrammar> grammar;
  FormCode code = FormCode::kInvalidSchema;
  if (rules.ok()) {
    auto result = compile(std::move(rules->rules), testing::byte_trie());
    if (result.ok()) grammar = *result;
    if (!result.ok()) code = result.error().code;
  } else {
    code = rules.error().code;
  }
  for (const Json& test : group["tests"]) {
    const bool valid = test["valid"].get<bool>();
    if (grammar == nullptr && code != FormCode::kUnsatisfiableSchema) {
      ++counts.unsupported;
      continue;
    }
    const bool taken = grammar != nullptr && testing::accepts(grammar, test["data"].dump());
    EXPECT_TRUE(valid || !taken) << where << ": " << group["description"] << ": "
                                 << test["description"];
    counts.right += taken == valid;
    counts.taken_wrongly += taken && !valid;
    counts.refused_wrongly += valid && !taken;
  }
}

Counts run_suite(const std::string& draft) {
  Counts counts;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kSuite)) {
    const std::filesystem::path& path = entry.path();
    if (path.extension() != ".json" || path.parent_path().filename() != draft) continue;
    for (const Json& group : Json::parse(std::ifstream(path))) {
      run_group(group, path.filename(), counts);
    }
  }
  return counts;
}

TEST(SchemaSuite, Draft202012) {
  const Counts counts = run_suite("draft2020-12");
  EXPECT_EQ(counts.taken_wrongly, 0u);
  EXPECT_GE(counts.right, 974u);
  EXPECT_LE(counts.refused_wrongly, 25u);
}

TEST(SchemaSuite, Draft7) {
  const Counts counts = run_suite("draft7");
  EXPECT_EQ(counts.taken_wrongly, 0u);
  EXPECT_GE(counts.right, 825u);
  EXPECT_LE(counts.refused_wrongly, 9u);
}

}  // namespace
}  // namespace skein::grammar
