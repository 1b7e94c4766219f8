#include "format/gguf.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "format/gguf_writer.h"
#include "format/test_folder.h"

namespace skein::gguf {
namespace {

using ::skein::testing::GgufWriter;
using Type = ValueType;

TEST(Gguf, ReadsEveryMetadataType) {
  GgufWriter w;
  w.scalar("a.u8", Type::kUint8, uint8_t{200})
      .scalar("a.i8", Type::kInt8, int8_t{-5})
      .scalar("a.u16", Type::kUint16, uint16_t{60000})
      .scalar("a.i16", Type::kInt16, int16_t{-300})
      .scalar("a.u32", Type::kUint32, uint32_t{4'000'000'000})
      .scalar("a.i32", Type::kInt32, int32_t{-70'000})
      .scalar("a.f32", Type::kFloat32, 1.5F)
      .scalar("a.bool", Type::kBool, uint8_t{1})
      .string("a.string", "caf\xc3\xa9")
      .scalar("a.u64", Type::kUint64, uint64_t{1} << 63)
      .scalar("a.i64", Type::kInt64, int64_t{-1} << 40)
      .scalar("a.f64", Type::kFloat64, 2.25)
      .strings("b.strings", {"x", "", "long enough not to be small"})
      .array<float>("b.floats", Type::kFloat32, {1.0F, -0.5F})
      .array<int32_t>("b.ints", Type::kInt32, {-1, 3, 6})
      .array<uint8_t>("b.bools", Type::kBool, {1, 0})
      .array<double>("b.doubles", Type::kFloat64, {0.1});
  const auto bytes = w.build();
  const auto file = parse_gguf(bytes);
  ASSERT_TRUE(file.ok()) << file.message();
  const Metadata& m = file->metadata;
  EXPECT_EQ(m.values().size(), 17u);
  EXPECT_EQ(*m.get<uint32_t>("a.u8"), 200u);
  EXPECT_EQ(*m.get<int32_t>("a.i8"), -5);
  EXPECT_EQ(*m.get<uint32_t>("a.u16"), 60000u);
  EXPECT_EQ(*m.get<int64_t>("a.i16"), -300);
  EXPECT_EQ(*m.get<uint32_t>("a.u32"), 4'000'000'000u);
  EXPECT_EQ(*m.get<int32_t>("a.i32"), -70'000);
  EXPECT_EQ(*m.get<float>("a.f32"), 1.5F);
  EXPECT_TRUE(*m.get<bool>("a.bool"));
  EXPECT_EQ(*m.get<std::string_view>("a.string"), "caf\xc3\xa9");
  EXPECT_EQ(*m.get<uint64_t>("a.u64"), uint64_t{1} << 63);
  EXPECT_EQ(*m.get<int64_t>("a.i64"), int64_t{-1} << 40);
  EXPECT_EQ(*m.get<double>("a.f64"), 2.25);
  const StringArray strings = *m.get<StringArray>("b.strings");
  EXPECT_EQ(std::vector<std::string>(strings.begin(), strings.end()),
            (std::vector<std::string>{"x", "", "long enough not to be small"}));
  EXPECT_EQ(m.get<FloatArray>("b.floats")->to_vector<float>(), (std::vector<float>{1.0F, -0.5F}));
  EXPECT_EQ(m.get<IntArray>("b.ints")->to_vector<int>(), (std::vector<int>{-1, 3, 6}));
  EXPECT_EQ((*m.get<IntArray>("b.bools"))[0], 1);
  EXPECT_EQ((*m.get<FloatArray>("b.doubles"))[0], 0.1);
}

TEST(Gguf, GettersSayWhatIsWrong) {
  GgufWriter w;
  w.scalar("i", Type::kInt32, int32_t{-1})
      .scalar("big", Type::kUint64, UINT64_MAX)
      .array<uint64_t>("bigs", Type::kUint64, {1, UINT64_MAX})
      .strings("s", {"a"});
  const auto bytes = w.build();
  const auto file = parse_gguf(bytes);
  ASSERT_TRUE(file.ok()) << file.message();
  const Metadata& m = file->metadata;
  EXPECT_EQ(m.get<uint32_t>("none").status().code(), Code::kNotFound);
  EXPECT_EQ(m.get<uint32_t>("none").message(), "key 'none' is missing");
  EXPECT_EQ(m.get<uint32_t>("i").message(), "key 'i' is -1, outside of 0 to 4294967295");
  EXPECT_EQ(m.get<int64_t>("big").message(),
            "key 'big' is 18446744073709551615, outside of -9223372036854775808 to "
            "9223372036854775807");
  EXPECT_EQ(m.get<IntArray>("bigs").message(),
            "key 'bigs': element 1 is 18446744073709551615, over 2^63 - 1");
  EXPECT_EQ(m.get<float>("i").message(), "key 'i' holds an int32, not a float");
  EXPECT_EQ(m.get<std::string_view>("s").message(),
            "key 's' holds an array of 1 string, not a string");
  EXPECT_EQ(m.get<StringArray>("i").message(), "key 'i' holds an int32, not an array of strings");
  EXPECT_EQ(*m.get_or<uint32_t>("none", 7), 7u);
  EXPECT_FALSE(m.get_or<uint32_t>("s", 7).ok());
}

TEST(Gguf, ArraysOfTheWrongTypeAreNamed) {
  GgufWriter w;
  w.array<uint32_t>("tokenizer.ggml.tokens", Type::kUint32, {1, 2})
      .strings("tokenizer.ggml.scores", {"high"})
      .array<float>("tokenizer.ggml.token_type", Type::kFloat32, {1.0F})
      .string("tokenizer.ggml.merges", "a b");
  const auto bytes = w.build();
  const auto file = parse_gguf(bytes);
  ASSERT_TRUE(file.ok()) << file.message();
  const Metadata& m = file->metadata;
  EXPECT_EQ(m.get<StringArray>("tokenizer.ggml.tokens").message(),
            "key 'tokenizer.ggml.tokens' holds an array of 2 uint32, not an array of strings");
  EXPECT_EQ(m.get<FloatArray>("tokenizer.ggml.scores").message(),
            "key 'tokenizer.ggml.scores' holds an array of 1 string, not an array of floats");
  EXPECT_EQ(
      m.get<IntArray>("tokenizer.ggml.token_type").message(),
      "key 'tokenizer.ggml.token_type' holds an array of 1 float32, not an array of integers");
  EXPECT_EQ(m.get<StringArray>("tokenizer.ggml.merges").message(),
            "key 'tokenizer.ggml.merges' holds a string, not an array of strings");
}

TEST(Gguf, ReadsTensorsOfVersions2And3) {
  for (const uint32_t version : {2u, 3u}) {
    GgufWriter w;
    w.version = version;
    w.alignment = 64;
    w.u32("general.alignment", 64)
        .tensor({.name = "q", .dims = {64, 3}, .type = 8})  // Q8_0
        .tensor({.name = "n", .dims = {5}});
    const auto bytes = w.build();
    const auto file = parse_gguf(bytes);
    ASSERT_TRUE(file.ok()) << file.message();
    ASSERT_EQ(file->tensors.size(), 2u);
    const NamedTensor& q = file->tensors[0];
    EXPECT_EQ(q.name, "q");
    EXPECT_EQ(q.view.type, ElementType::kQ8_0);
    EXPECT_EQ(q.view.shape, (Shape{3, 64}));
    EXPECT_EQ(q.view.bytes.size(), 3u * 68);
    EXPECT_EQ(q.view.row(1)[0], static_cast<std::byte>(68 * 7 + 1));
    EXPECT_EQ((q.view.bytes.data() - bytes.data()) % 64, 0);
    EXPECT_EQ(file->tensors[1].view.shape, Shape{5});
  }
}

TEST(Gguf, OpensTheDefaultModel) {
  const std::string path = ::skein::testing::default_model_path();
  SKEIN_NEEDS_DEFAULT_MODEL();
  const auto mapped = MappedFile::open(path);
  ASSERT_TRUE(mapped.ok()) << mapped.message();
  const auto file = parse_gguf(mapped->bytes());
  ASSERT_TRUE(file.ok()) << file.message();
  EXPECT_EQ(*file->metadata.get<std::string_view>("general.architecture"), "llama");
  EXPECT_EQ(file->metadata.get<StringArray>("tokenizer.ggml.tokens")->size(), 49152u);
  uint64_t parameters = 0;
  for (const NamedTensor& tensor : file->tensors) parameters += tensor.view.elements();
  EXPECT_EQ(parameters, 134'515'008u);
}

}  // namespace
}  // namespace skein::gguf
