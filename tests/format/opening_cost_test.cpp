// What opening costs: files far larger than memory, of which only headers are read, and large
// vocabularies.
#include <chrono>
#include <fcntl.h>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "format/gguf.h"
#include "format/gguf_writer.h"
#include "format/safetensors_writer.h"
#include "format/test_folder.h"
#include "format/weight_source.h"
#include "tensor/dequantize.h"

namespace skein {
namespace {

using testing::GgufWriter;
using testing::TestFolder;

// Resident bytes of this process.
uint64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  uint64_t pages = 0, resident = 0;
  in >> pages >> resident;
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

struct Opening {
  explicit Opening(const std::string& path)
      : before(resident_bytes()),
        start(std::chrono::steady_clock::now()),
        source(open_model(path)) {
    took = std::chrono::steady_clock::now() - start;
    grown = resident_bytes() - std::min(before, resident_bytes());
  }
  uint64_t before;
  std::chrono::steady_clock::time_point start;
  Result<WeightSource> source;
  std::chrono::nanoseconds took;
  uint64_t grown;
};

constexpr uint64_t kTensorBytes = uint64_t{8} << 30;
constexpr uint64_t kElements = kTensorBytes / 2;  // F16: 2^32 of them

TEST(Sparse, AGgufOf16GigabytesOpensAtOnce) {
  const TestFolder folder;
  GgufWriter w;
  w.tensor({.name = "a", .dims = {1 << 16, 1 << 16}, .type = 1, .offset = 0, .bytes = 0})
      .tensor({.name = "b", .dims = {kElements}, .type = 1, .offset = kTensorBytes, .bytes = 0});
  const auto header = w.build();
  const std::string path = folder.write("big.gguf", header);
  const uint64_t size = header.size() + 2 * kTensorBytes;
  ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(size)), 0);
  const int fd = ::open(path.c_str(), O_WRONLY);  // the last element of b: 1.0
  const uint16_t one = 0x3c00;
  ASSERT_EQ(::pwrite(fd, &one, 2, static_cast<off_t>(size - 2)), 2);
  ::close(fd);

  const Opening opened(path);
  ASSERT_TRUE(opened.source.ok()) << opened.source.message();
  EXPECT_LT(opened.took, std::chrono::milliseconds(1000));
  EXPECT_LT(opened.grown, uint64_t{4} << 20);
  // The meter works: pages that are read do count.
  uint64_t sum = 0;
  const TensorView a = *opened.source->get("a");
  for (uint64_t i = 0; i < uint64_t{16} << 20; i += 4096) sum += static_cast<uint64_t>(a.bytes[i]);
  EXPECT_EQ(sum, 0u);
  EXPECT_GT(resident_bytes(), opened.before + (uint64_t{12} << 20));
  // Indices beyond 2^32 elements and 2^33 bytes reach the right byte.
  const TensorView b = *opened.source->get("b");
  EXPECT_EQ(b.elements(), kElements);
  EXPECT_EQ(element(b, kElements - 1), 1.0F);
  EXPECT_EQ(element(b, kElements - 2), 0.0F);
  EXPECT_EQ(a.rows(), uint64_t{1} << 16);
  EXPECT_EQ(a.row(65'535).data() - a.bytes.data(), 65'535 * 131'072L);
}

TEST(Sparse, ASafetensorsFileOf16GigabytesOpensAtOnce) {
  const TestFolder folder;
  folder.write("config.json", "{}");
  const std::string path = folder.write(
      "model.safetensors",
      testing::safetensors_bytes(
          fmt::format(
              R"({{"a": {{"dtype": "BF16", "shape": [65536, 131072], "data_offsets": [0, {}]}}}})",
              2 * kTensorBytes),
          0));
  const uint64_t header = std::filesystem::file_size(path);
  ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(header + 2 * kTensorBytes)), 0);
  const Opening opened(folder.path());
  ASSERT_TRUE(opened.source.ok()) << opened.source.message();
  EXPECT_LT(opened.took, std::chrono::milliseconds(1000));
  EXPECT_LT(opened.grown, uint64_t{4} << 20);
  EXPECT_EQ(opened.source->get("a")->elements(), uint64_t{1} << 33);
}

TEST(Sparse, AFileOfZerosIsRefusedAtOnce) {
  const TestFolder folder;
  const std::string path = folder.write("zeros.gguf", "");
  ASSERT_EQ(::truncate(path.c_str(), off_t{16} << 30), 0);
  const Opening opened(path);
  EXPECT_FALSE(opened.source.ok());
  EXPECT_LT(opened.grown, uint64_t{4} << 20);
}

TEST(Speed, AVocabularyOf262144LoadsInAMoment) {
  std::vector<std::string> tokens;
  for (int i = 0; i < 262'144; ++i) tokens.push_back("token " + std::to_string(i));
  GgufWriter w;
  w.strings("tokenizer.ggml.tokens", tokens);
  const auto bytes = w.build();
  const auto start = std::chrono::steady_clock::now();
  const auto file = gguf::parse_gguf(bytes);
  const auto took = std::chrono::steady_clock::now() - start;
  ASSERT_TRUE(file.ok()) << file.message();
  EXPECT_EQ((*file->metadata.get<gguf::StringArray>("tokenizer.ggml.tokens"))[262'143],
            "token 262143");
  EXPECT_LT(took, std::chrono::milliseconds(200));
}

}  // namespace
}  // namespace skein
