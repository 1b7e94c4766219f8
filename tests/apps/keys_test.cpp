#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>

#include "apps/run_skein.h"
#include "format/test_folder.h"

namespace skein {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using testing::run_skein;

class Keys : public ::testing::Test {
 protected:
  testing::Run run(const std::string& command, const std::string& arguments = {}) const {
    return run_skein("keys " + command + " --state-dir " + (folder_ / "state") + " " + arguments);
  }

  testing::TestFolder folder_;
};

constexpr const char* kKey = "sk-[0-9a-f]+-[0-9a-f]+\n";

TEST_F(Keys, AddListRotateRevoke) {
  const auto added = run("add",
                         "--name rag --tier low --models a,org/b --rpm 60 "
                         "--tokens-per-minute 100000");
  EXPECT_EQ(added.status, 0);
  EXPECT_THAT(added.output, HasSubstr("shown this once"));
  const std::string key = added.output.substr(0, added.output.find('\n'));
  EXPECT_EQ(key.size(), 3 + 16 + 1 + 64U);

  const auto list = run("list");
  EXPECT_EQ(list.status, 0);
  EXPECT_THAT(list.output, HasSubstr(key.substr(3, 16)));
  EXPECT_THAT(list.output, ContainsRegex("rag +[0-9a-f]+ +low +a,org/b +60 +100000 +no"));
  EXPECT_THAT(list.output, Not(HasSubstr(key.substr(20))));

  const auto rotated = run("rotate", "rag --print-key-only");
  EXPECT_EQ(rotated.status, 0);
  EXPECT_THAT(rotated.output, MatchesRegex(kKey));
  EXPECT_EQ(rotated.output.substr(0, 20), key.substr(0, 20));
  EXPECT_NE(rotated.output.substr(20, 64), key.substr(20));

  EXPECT_EQ(run("revoke", "--name rag").status, 0);
  EXPECT_THAT(run("list").output, Not(HasSubstr("rag")));
  EXPECT_THAT(run("list", "--all").output, HasSubstr("revoked"));
}

TEST_F(Keys, TheTierIsNormalUnlessSaidAndTheKeyCanBeAllThatIsPrinted) {
  const auto added = run("add", "--name ci --admin --print-key-only");
  EXPECT_EQ(added.status, 0);
  EXPECT_THAT(added.output, MatchesRegex(kKey));
  EXPECT_THAT(run("list").output, ContainsRegex("ci +[0-9a-f]+ +normal +all +- +- +yes"));
}

TEST_F(Keys, FailuresAreOneAndSayWhy) {
  ASSERT_EQ(run("add", "--name a").status, 0);
  const auto twice = run("add", "--name a");
  EXPECT_EQ(twice.status, 1);
  EXPECT_THAT(twice.output, HasSubstr("a key with the name 'a' exists"));
  const auto unknown = run("revoke", "b");
  EXPECT_EQ(unknown.status, 1);
  EXPECT_THAT(unknown.output, HasSubstr("no active key with the name or id 'b'"));
  EXPECT_EQ(run("rotate", "b").status, 1);
  EXPECT_EQ(run("add", "--name 'a b'").status, 1);
  const auto nowhere = run_skein("keys list --state-dir " + (folder_ / "none"));
  EXPECT_EQ(nowhere.status, 1);
  EXPECT_THAT(nowhere.output, HasSubstr("there are no keys in it"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "none"));
  EXPECT_EQ(run_skein("keys list", "env -u XDG_STATE_HOME -u HOME").status, 1);
}

TEST_F(Keys, WrongUsageIsTwo) {
  EXPECT_EQ(run_skein("keys").status, 2);
  EXPECT_EQ(run("add").status, 2);
  EXPECT_EQ(run("add", "--name a --tier best").status, 2);
  EXPECT_EQ(run("add", "--name a --rpm -1").status, 2);
  EXPECT_EQ(run("add", "--name a --tokens-per-minute many").status, 2);
  EXPECT_EQ(run("revoke").status, 2);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "state"));
}

TEST_F(Keys, TheStateFolderIsXdgs) {
  const std::string xdg = "XDG_STATE_HOME=" + (folder_ / "xdg");
  EXPECT_EQ(run_skein("keys add --name a", xdg).status, 0);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "xdg/skein/skein.db"));
  const std::string home = "env -u XDG_STATE_HOME HOME=" + (folder_ / "home");
  EXPECT_EQ(run_skein("keys add --name a", home).status, 0);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "home/.local/state/skein/skein.db"));
}

TEST_F(Keys, HelpHasExamples) {
  const auto help = run_skein("keys --help");
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.output, HasSubstr("skein keys add --name chat --tier high"));
}

}  // namespace
}  // namespace skein
