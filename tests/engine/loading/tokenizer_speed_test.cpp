// How fast text becomes tokens.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "engine/models.h"
#include "text/oracle.h"

namespace skein {
namespace {

using testing::default_model_path;
using testing::kVectors;
using testing::load;

// Of this thread, so that a busy machine does not count.
double cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// As fast as Hugging Face tokenizers on one thread; both encode the same documents, one by one.
TEST(TokenizerSpeed, IsAtLeastHuggingFaces) {
  SKEIN_NEEDS_DEFAULT_MODEL();
  SKEIN_NEEDS_PYTHON();
  const testing::TestFolder folder;
  ASSERT_EQ(testing::run_oracle("speed '" + default_model_path() + "' '" + (folder / "out") +
                                "' 4000000"),
            0);
  auto lines = testing::read_lines(folder / "out");
  std::vector<std::string> documents;
  size_t bytes = 0;
  for (size_t i = 1; i < lines.size(); ++i) {
    documents.push_back(lines[i].get<std::string>());
    bytes += documents.back().size();
  }
  const Tokenizer tokenizer = load(default_model_path()).tokenizer;
  const double started = cpu_seconds();
  size_t count = 0;
  for (const std::string& document : documents) count += tokenizer.encode(document)->size();
  const double seconds = cpu_seconds() - started;
  const auto theirs = lines[0][0].get<double>();
  EXPECT_EQ(count, lines[0][1].get<size_t>());
  std::printf("%.1f MB: %.1f MB/s, Hugging Face %.1f MB/s, ratio %.1f\n", bytes / 1e6,
              bytes / 1e6 / seconds, bytes / 1e6 / theirs, theirs / seconds);
  EXPECT_GE(theirs / seconds, 1.0);
}

// 1 MiB of one character, for each vocabulary that is there.
TEST(TokenizerSpeed, OneMebibyteOfAnyCharacterTakesLessThanASecond) {
  SKEIN_NEEDS_DEFAULT_MODEL();
  std::vector<std::string> models = {default_model_path()};
  if (std::filesystem::exists(kVectors)) {
    for (const auto& entry : std::filesystem::directory_iterator(kVectors)) {
      if (entry.path().extension() == ".gguf") models.push_back(entry.path());
    }
  }
  double slowest = 0;
  for (const std::string& model : models) {
    const Tokenizer tokenizer = load(model).tokenizer;
    for (const std::string& unit :
         {std::string("a"), std::string(" "), std::string("\n"), std::string("("), std::string("0"),
          std::string("à"), std::string("👩"), std::string("\u0301"), std::string("\xff"),
          std::string(1, '\0'), std::string("中"), std::string("<")}) {
      std::string text;
      while (text.size() < (size_t{1} << 20)) text += unit;
      const double started = cpu_seconds();
      const auto ids = tokenizer.encode(text, {.parse_special = true});
      const double seconds = cpu_seconds() - started;
      ASSERT_TRUE(ids.ok()) << ids.message();
      EXPECT_LT(seconds, 1.0) << model << ": "
                              << nlohmann::json(unit).dump(
                                     -1, ' ', true, nlohmann::json::error_handler_t::replace);
      slowest = std::max(slowest, seconds);
    }
  }
  std::printf("%zu vocabularies, the slowest text took %.3f s\n", models.size(), slowest);
}

}  // namespace
}  // namespace skein
