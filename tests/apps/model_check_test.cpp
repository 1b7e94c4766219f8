// Loads that are checked first: what stops them, and what they must not miss.
#include "apps/model_check.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

#include "apps/serve_sandbox.h"

namespace skein::apps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ModelCheckTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "skein-check-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = std::filesystem::canonical(name);
    path_ = folder_ + "/model.gguf";
    std::ofstream(path_) << "GGUF";
    auto checker = SideProcess::start({.name = "skein-test",
                                       .prepare = {},
                                       .work = [this](const std::string& path) -> Status {
                                         if (path == folder_ + "/crash.gguf") std::raise(SIGSEGV);
                                         return {};
                                       },
                                       .limits = {}});
    ASSERT_TRUE(checker.ok()) << checker.message();
    checker_ = std::move(*checker);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Loads with a loader that does `meanwhile` and succeeds.
  Status load(const std::string& path, const std::function<void()>& meanwhile) {
    const auto loader = with_check(
        [&](const ModelConfig&, const SchedulerManager::MakeRoom&) -> Result<ServedModelParts> {
          ++loads_;
          meanwhile();
          return ServedModelParts{};
        },
        *checker_);
    return loader({.id = "m", .path = path}, {}).status();
  }

  std::string folder_;
  std::string path_;
  std::unique_ptr<SideProcess> checker_;
  int loads_ = 0;
};

TEST_F(ModelCheckTest, AFileThatKillsTheCheckIsNeverLoaded) {
  const std::string crash = folder_ + "/crash.gguf";
  std::ofstream(crash) << "GGUF";
  const Status status = load(crash, [] {});
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr(crash));
  EXPECT_THAT(status.message(), HasSubstr("signal 11 (Segmentation fault)"));
  EXPECT_EQ(loads_, 0);
  EXPECT_TRUE(load(path_, [] {}).ok()) << "another model is loaded as ever";
  EXPECT_EQ(loads_, 1);
}

TEST_F(ModelCheckTest, AFileThatIsReplacedAfterTheCheckIsNotServed) {
  const Status replaced = load(path_, [this] {
    std::ofstream(folder_ + "/other") << "FUGG";
    std::filesystem::rename(folder_ + "/other", path_);
  });
  EXPECT_EQ(replaced.code(), Code::kDataLoss);
  EXPECT_THAT(replaced.message(), HasSubstr("was replaced or written to"));
  const Status written = load(path_, [this] { std::ofstream(path_, std::ios::app) << "more"; });
  EXPECT_EQ(written.code(), Code::kDataLoss);
}

TEST_F(ModelCheckTest, TheFoldersOfAModelAreItsOwnAndThoseOfItsLinks) {
  const std::string model = folder_ + "/model", blobs = folder_ + "/blobs";
  std::filesystem::create_directories(model);
  std::filesystem::create_directories(blobs);
  std::ofstream(blobs + "/1234") << "{}";
  std::filesystem::create_symlink("../blobs/1234", model + "/config.json");
  std::filesystem::create_directories(model + "/onnx");
  EXPECT_THAT(folders_of_model(model), ElementsAre(blobs, model));
  EXPECT_THAT(folders_of_model(path_), ElementsAre(folder_));
}

TEST_F(ModelCheckTest, AllPartsOfAFileInPartsAreItsFiles) {
  for (const char* name :
       {"/big-00001-of-00002.gguf", "/big-00002-of-00002.gguf", "/bigger.gguf"}) {
    std::ofstream(folder_ + name) << "GGUF";
  }
  EXPECT_THAT(
      files_of_model(folder_ + "/big-00001-of-00002.gguf"),
      ElementsAre(folder_ + "/big-00001-of-00002.gguf", folder_ + "/big-00002-of-00002.gguf"));
}

}  // namespace
}  // namespace skein::apps
