// The templates of real models, where they stand beside the clone.
#include <filesystem>
#include <gtest/gtest.h>
#include <map>

#include "dialog/round_trip.h"

namespace skein::dialog {
namespace {

namespace fs = std::filesystem;
using testing::RoundTrip;
using testing::template_source;

const fs::path kTemplates = fs::path(SKEIN_SOURCE_DIR) / "../shared/vectors/templates";

std::vector<std::string> templates() {
  std::vector<std::string> names;
  if (!fs::exists(kTemplates)) return names;
  for (const auto& entry : fs::directory_iterator(kTemplates)) {
    names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Those that write no calls, or in no way that is reproduced, and why.
const std::map<std::string, std::pair<std::string, FormatSource>> kNotFromTemplate = {
    {"Kimi-K2-Instruct", {"kimi-k2", FormatSource::kSignature}},  // appends to a list, which is
    {"Kimi-K2-Thinking", {"kimi-k2", FormatSource::kSignature}},  // refused in the sandbox
    {"LFM2-8B-A1B", {"lfm2", FormatSource::kSignature}},          // drops calls
    {"LFM2.5-Instruct", {"lfm2", FormatSource::kSignature}},
    {"ibm-granite-granite-3.3-2B-Instruct", {"granite", FormatSource::kSignature}},
    {"MiniMax-M3", {"hermes", FormatSource::kGeneric}},  // tags inside tags
    {"fireworks-ai-llama-3-firefunction-v2", {"hermes", FormatSource::kGeneric}},  // `functions`
    {"llama-cpp-rwkv-world", {"hermes", FormatSource::kGeneric}},                  // no tools
    {"meetkai-functionary-medium-v3.2", {"hermes", FormatSource::kGeneric}},       // bare names
    {"microsoft-Phi-3.5-mini-instruct", {"hermes", FormatSource::kGeneric}},       // no tools
    {"openbmb-MiniCPM5-1B", {"hermes", FormatSource::kGeneric}},  // Python's spelling of values
};

class RealTemplate : public ::testing::TestWithParam<std::string> {};

TEST_P(RealTemplate, IsParsedBackInEveryChunking) {
  RoundTrip trip(template_source((kTemplates / (GetParam() + ".jinja")).string()), 5);
  const auto other = kNotFromTemplate.find(GetParam());
  if (other != kNotFromTemplate.end()) {
    EXPECT_EQ(trip.format().calls.name, other->second.first);
    EXPECT_EQ(source_name(trip.format().calls_from), source_name(other->second.second));
    return;
  }
  EXPECT_EQ(source_name(trip.format().calls_from), "template");
  EXPECT_GT(trip.run(20), 5U);
}

INSTANTIATE_TEST_SUITE_P(Vectors, RealTemplate, ::testing::ValuesIn(templates()),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name)
                             c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace skein::dialog
