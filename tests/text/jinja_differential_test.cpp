// Real chat templates and many small snippets, rendered here and by Jinja2 itself: same bytes, and
// what Jinja2 refuses is an error with a line.
#include <gtest/gtest.h>

#include "text/jinja/template.h"
#include "text/jinja_oracle.h"

namespace skein {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

jinja::RenderOptions options() {
  jinja::RenderOptions out;
  std::tm now{};
  now.tm_year = 126, now.tm_mon = 0, now.tm_mday = 2;
  now.tm_hour = 3, now.tm_min = 4, now.tm_sec = 5;
  now.tm_wday = 5;
  out.now = now;
  return out;
}

Result<jinja::Rendered> render(const std::string& source, const Json& context) {
  SKEIN_ASSIGN(const jinja::Template parsed, jinja::Template::parse(source));
  return parsed.render(context, options());
}

struct Tally {
  size_t rendered = 0;  // by Jinja2
  size_t same = 0;
  size_t refused = 0;  // by Jinja2
  uint64_t most_steps = 0;
};

// Compares every case; reports each difference with the case's name.
Tally compare(const Json& cases, const nlohmann::json& answers) {
  Tally tally;
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::string name = cases[i].value("name", cases[i]["template"].get<std::string>());
    const Result<jinja::Rendered> ours = render(cases[i]["template"], cases[i]["context"]);
    if (answers[i].contains("error")) {
      ++tally.refused;
      EXPECT_FALSE(ours.ok()) << name << "\n  Jinja2: " << answers[i]["error"]
                              << "\n  ours:   " << (ours.ok() ? ours->text() : "");
      if (ours.ok()) continue;
      EXPECT_EQ(ours.message().rfind("line ", 0), 0u) << ours.message();
      continue;
    }
    ++tally.rendered;
    const std::string expected = answers[i]["text"];
    EXPECT_TRUE(ours.ok()) << name << "\n  Jinja2: " << expected
                           << "\n  ours:   " << (ours.ok() ? "" : ours.message());
    if (!ours.ok()) continue;
    EXPECT_EQ(ours->text(), expected) << name;
    if (ours->text() == expected) ++tally.same;
    tally.most_steps = std::max(tally.most_steps, ours->steps);
  }
  return tally;
}

std::vector<fs::path> files_of(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

TEST(JinjaDifferential, ChatTemplates) {
  const fs::path vectors = fs::path(SKEIN_SOURCE_DIR) / "../shared/vectors";
  if (!fs::exists(vectors / "templates")) GTEST_SKIP() << "no " << vectors << "/templates here";
  std::vector<fs::path> contexts = files_of(fs::path(SKEIN_SOURCE_DIR) / "tests/text/contexts");
  for (const fs::path& path : files_of(vectors / "contexts")) contexts.push_back(path);
  Json cases = Json::array();
  for (const fs::path& path : files_of(vectors / "templates")) {
    for (const fs::path& context : contexts) {
      cases.push_back({{"name", path.filename().string() + " x " + context.filename().string()},
                       {"template", test::read_file(path)},
                       {"context", Json::parse(test::read_file(context))}});
    }
  }
  const Result<nlohmann::json> answers = test::ask_jinja2(cases);
  if (!answers.ok()) GTEST_SKIP() << answers.message();
  const Tally tally = compare(cases, *answers);
  std::printf("chat templates: %zu of %zu renders equal, %zu refused, at most %llu steps\n",
              tally.same, tally.rendered, tally.refused,
              static_cast<unsigned long long>(tally.most_steps));
  EXPECT_EQ(tally.same, tally.rendered);
  EXPECT_GT(tally.rendered, 800u);
}

TEST(JinjaDifferential, Snippets) {
  const Json file =
      Json::parse(test::read_file(fs::path(SKEIN_SOURCE_DIR) / "tests/text/jinja_snippets.json"));
  Json cases = Json::array();
  for (const Json& snippet : file["snippets"]) {
    cases.push_back({{"template", snippet}, {"context", file["context"]}});
  }
  const Result<nlohmann::json> answers = test::ask_jinja2(cases);
  if (!answers.ok()) GTEST_SKIP() << answers.message();
  const Tally tally = compare(cases, *answers);
  std::printf("snippets: %zu of %zu renders equal, %zu refused\n", tally.same, tally.rendered,
              tally.refused);
}

}  // namespace
}  // namespace skein
