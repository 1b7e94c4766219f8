#include <gtest/gtest.h>
#include <string>

#include "apps/run_skein.h"
#include "format/test_folder.h"

namespace skein {
namespace {

using testing::run_skein;
using testing::TestFolder;

TEST(Render, PrintsTheExactBytes) {
  const TestFolder folder;
  const std::string source = folder.write(
      "t.jinja",
      std::string_view("{{ bos_token }}{% for m in messages %}{{ m.content }}\n{% endfor %}"
                       "{{ strftime_now('%Y-%m-%d %H:%M:%S %a') }}\n\n"));
  const std::string context = folder.write(
      "c.json", std::string_view(R"({"bos_token": "<s>", "messages": [{"content": "é"}]})"));
  const auto run = run_skein("render --template " + source + " --context " + context +
                             " --now 2026-01-02T03:04:05");
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.output, "<s>é\n2026-01-02 03:04:05 Fri\n");
}

TEST(Render, SaysWhatIsWrong) {
  const TestFolder folder;
  const std::string source =
      folder.write("t.jinja", std::string_view("\n{{ raise_exception('no') }}"));
  const std::string context = folder.write("c.json", std::string_view("{}"));
  const std::string list = folder.write("l.json", std::string_view("[]"));
  auto run = run_skein("render --template " + source + " --context " + context);
  EXPECT_EQ(run.status, 1);
  EXPECT_EQ(run.output, "skein: line 2: no\n");
  EXPECT_EQ(run_skein("render --template " + source + " --context " + list).status, 1);
  EXPECT_EQ(run_skein("render --template " + source + " --context /nowhere").status, 1);
  EXPECT_EQ(run_skein("render --template " + source + " --context " + context + " --now x").status,
            1);
  EXPECT_EQ(run_skein("render --context " + context).status, 2);
  EXPECT_EQ(run_skein("render --model m --template " + source + " --context " + context).status, 2);
}

}  // namespace
}  // namespace skein
