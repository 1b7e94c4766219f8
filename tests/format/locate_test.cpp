#include "format/locate.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <string>

#include "format/test_folder.h"

namespace skein {
namespace {

using testing::TestFolder;

class Locate : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const {
    const auto found = locate_name(name, folders_);
    return found.ok() ? std::filesystem::relative(*found, folder_.path()).string()
                      : "error: " + found.message();
  }

  TestFolder folder_;
  ModelFolders folders_{folder_ / "models", folder_ / "hub"};
};

TEST_F(Locate, NamesInTheModelFolder) {
  folder_.write("models/a.gguf", "");
  folder_.write("models/org/b.gguf", "");
  folder_.write("models/org/hf/config.json", "");
  folder_.write("models/one/x.gguf", "");
  folder_.write("models/one/mmproj-x.gguf", "");
  folder_.write("models/big-00001-of-00002.gguf", "");
  folder_.write("models/big-00002-of-00002.gguf", "");
  folder_.write("models/splitdir/s-00001-of-00002.gguf", "");
  folder_.write("models/splitdir/s-00002-of-00002.gguf", "");
  EXPECT_EQ(path("a"), "models/a.gguf");
  EXPECT_EQ(path("a.gguf"), "models/a.gguf");
  EXPECT_EQ(path("org/b"), "models/org/b.gguf");
  EXPECT_EQ(path("org/hf"), "models/org/hf");
  EXPECT_EQ(path("one"), "models/one/x.gguf");
  EXPECT_EQ(path("big"), "models/big-00001-of-00002.gguf");
  EXPECT_EQ(path("splitdir"), "models/splitdir/s-00001-of-00002.gguf");
}

TEST_F(Locate, TheDefaultModel) {
  EXPECT_EQ(path("default"), "error: the default model is not at " + folders_.models +
                                 "/SmolLM2-135M-Instruct.Q4_1.gguf; `make model` fetches it");
  folder_.write("models/SmolLM2-135M-Instruct.Q4_1.gguf", "");
  EXPECT_EQ(path("default"), "models/SmolLM2-135M-Instruct.Q4_1.gguf");
  EXPECT_TRUE(locate_model("default", folders_).ok());
}

TEST_F(Locate, TheHuggingFaceCache) {
  const std::string repository = "hub/models--org--name";
  folder_.write(repository + "/snapshots/aaa/config.json", "");
  EXPECT_EQ(path("org/name"), repository + "/snapshots/aaa");
  folder_.write(repository + "/snapshots/bbb/config.json", "");
  folder_.write(repository + "/refs/main", "aaa");
  EXPECT_EQ(path("org/name"), repository + "/snapshots/aaa");
  folder_.write(repository + "/refs/main", "bbb\n");
  EXPECT_EQ(path("org/name"), repository + "/snapshots/bbb");
  folder_.write(repository + "/refs/main", "../../../models");
  EXPECT_TRUE(path("org/name").starts_with(repository + "/snapshots/"));
  folder_.write("models/org/name.gguf", "");
  EXPECT_EQ(path("org/name"), "models/org/name.gguf");  // the own folder comes first
}

TEST_F(Locate, OneOfSeveralFiles) {
  const std::string snapshot = "hub/models--org--name/snapshots/aaa";
  folder_.write(snapshot + "/q4.gguf", "");
  folder_.write(snapshot + "/q8.gguf", "");
  EXPECT_EQ(path("org/name"),
            "error: " + (folder_ / snapshot) + ": has 2 GGUF files; name one of: q4.gguf, q8.gguf");
  EXPECT_EQ(path("org/name/q8.gguf"), snapshot + "/q8.gguf");
  EXPECT_EQ(path("org/name/q4"), snapshot + "/q4.gguf");
}

TEST_F(Locate, NamesNeverLeaveTheFolders) {
  folder_.write("secret.gguf", "");
  folder_.write("models/.hidden.gguf", "");
  folder_.write("models/x.gguf", "");
  for (const std::string& name :
       {std::string("../secret"), std::string("../secret.gguf"), std::string("x/../../secret"),
        folder_ / "secret.gguf", std::string(".hidden"), std::string("."), std::string(".."),
        std::string(""), std::string("/"), std::string("a//b"), std::string("a/"),
        std::string("x\\y"), std::string("x\n"), std::string("x\0y", 3), std::string("a/b/c/d"),
        std::string(300, 'a')}) {
    const auto found = locate_name(name, folders_);
    ASSERT_FALSE(found.ok()) << name;
    EXPECT_EQ(found.status().code(), Code::kInvalidArgument) << name;
    EXPECT_NE(found.message().find("is not a model name"), std::string::npos) << found.message();
  }
}

TEST_F(Locate, PathsAreForTheOwner) {
  const std::string file = folder_.write("elsewhere/m.gguf", "");
  EXPECT_EQ(*locate_model(file, folders_), file);
  EXPECT_EQ(*locate_model(folder_ / "elsewhere", folders_), file);
  EXPECT_EQ(locate_model("/no/such/m.gguf", folders_).message(),
            "/no/such/m.gguf: no such file or folder");
  EXPECT_EQ(locate_model("nobody", folders_).message(),
            "no model 'nobody' in " + folders_.models + ", " + folders_.hf_cache);
  EXPECT_EQ(locate_model("nobody", {}).message(), "no model 'nobody' in any folder");
}

}  // namespace
}  // namespace skein
