// Real chat templates and many small snippets, rendered here and by Jinja2 itself: same bytes, and
// what Jinja2 refuses is an error with a line.
#include <gtest/gtest.h>

#include "base/needs.h"
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

// Every template of `templates` in every context of `contexts`, both folders.
Tally compare_templates(const fs::path& templates, const std::vector<fs::path>& contexts) {
  Json cases = Json::array();
  for (const fs::path& path : files_of(templates)) {
    for (const fs::path& context : contexts) {
      cases.push_back({{"name", path.filename().string() + " x " + context.filename().string()},
                       {"template", test::read_file(path)},
                       {"context", Json::parse(test::read_file(context))}});
    }
  }
  const Result<nlohmann::json> answers = test::ask_jinja2(cases);
  EXPECT_TRUE(answers.ok()) << answers.message();
  if (!answers.ok()) return {};
  const Tally tally = compare(cases, *answers);
  std::printf("chat templates: %zu of %zu renders equal, %zu refused, at most %llu steps\n",
              tally.same, tally.rendered, tally.refused,
              static_cast<unsigned long long>(tally.most_steps));
  EXPECT_EQ(tally.same, tally.rendered);
  return tally;
}

const fs::path kTests = fs::path(SKEIN_SOURCE_DIR) / "tests/text";

TEST(JinjaDifferential, ChatTemplates) {
  SKEIN_NEEDS(test::ask_jinja2(Json::array()).ok(), "there is no Python with Jinja2");
  const Tally tally = compare_templates(kTests / "templates", files_of(kTests / "contexts"));
  EXPECT_GT(tally.rendered, 150u);
  EXPECT_GT(tally.refused, 5u);
}

// Templates of published models, which this tree may not hold.
const fs::path kVectors = fs::path(SKEIN_SOURCE_DIR) / "../shared/vectors";

class PublishedTemplates : public ::testing::TestWithParam<fs::path> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PublishedTemplates);

TEST_P(PublishedTemplates, RenderAsJinja2DoesIt) {
  SKEIN_NEEDS(test::ask_jinja2(Json::array()).ok(), "there is no Python with Jinja2");
  std::vector<fs::path> contexts = files_of(kTests / "contexts");
  for (const fs::path& path : files_of(GetParam() / "contexts")) contexts.push_back(path);
  EXPECT_GT(compare_templates(GetParam() / "templates", contexts).rendered, 800u);
}

std::vector<fs::path> where_it_stands(const fs::path& folder) {
  return fs::exists(folder) ? std::vector{folder} : std::vector<fs::path>{};
}

INSTANTIATE_TEST_SUITE_P(Vectors, PublishedTemplates,
                         ::testing::ValuesIn(where_it_stands(kVectors)));

TEST(JinjaDifferential, Snippets) {
  const Json file = Json::parse(test::read_file(kTests / "jinja_snippets.json"));
  Json cases = Json::array();
  for (const Json& snippet : file["snippets"]) {
    cases.push_back({{"template", snippet}, {"context", file["context"]}});
  }
  const Result<nlohmann::json> answers = test::ask_jinja2(cases);
  SKEIN_NEEDS(answers.ok(), answers.message());
  const Tally tally = compare(cases, *answers);
  std::printf("snippets: %zu of %zu renders equal, %zu refused\n", tally.same, tally.rendered,
              tally.refused);
}

}  // namespace
}  // namespace skein
