// Every way in which a GGUF file can lie, each with the message that its user reads.
#include <functional>
#include <gtest/gtest.h>
#include <ostream>
#include <string>
#include <vector>

#include "format/gguf.h"
#include "format/gguf_writer.h"

namespace skein::gguf {
namespace {

using ::skein::testing::GgufWriter;
using Type = ValueType;

struct Fault {
  const char* name;
  std::function<void(GgufWriter&)> plant;
  std::string message;
};

void PrintTo(const Fault& fault, std::ostream* out) {
  *out << fault.name;
}

// A sound file to plant a fault in: 24 bytes, a key of 45, a tensor's 45, padding
// to 128, 256 of data.
GgufWriter sound() {
  GgufWriter w;
  w.string("general.architecture", "llama").tensor({.name = "first", .dims = {32, 2}});
  return w;
}

class GgufFault : public ::testing::TestWithParam<Fault> {};

TEST_P(GgufFault, IsRefusedWithItsReason) {
  const auto healthy = sound().build();
  ASSERT_TRUE(parse_gguf(healthy).ok());
  GgufWriter w = sound();
  GetParam().plant(w);
  const auto bytes = w.build();
  const auto file = parse_gguf(bytes);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.message(), GetParam().message);
}

auto name_of_case = [](const ::testing::TestParamInfo<Fault>& info) {
  return std::string(info.param.name);
};

const Fault kFileFaults[] = {
    {"BadMagic", [](GgufWriter& w) { w.magic = "GGML"; },
     "not a GGUF file: it does not start with 'GGUF'"},
    {"EmptyFile", [](GgufWriter& w) { w.cut = w.build().size(); },
     "not a GGUF file: it does not start with 'GGUF'"},
    {"OnlyTheMagic", [](GgufWriter& w) { w.cut = w.build().size() - 4; },
     "4 bytes needed at offset 4, 0 left"},
    {"TruncatedCounts", [](GgufWriter& w) { w.cut = w.build().size() - 20; },
     "8 bytes needed at offset 16, 4 left"},
    {"BigEndianMagic", [](GgufWriter& w) { w.magic = "FUGG"; },
     "a big-endian GGUF file; only little-endian ones are read"},
    {"BigEndianVersion", [](GgufWriter& w) { w.version = 0x03000000; },
     "a big-endian GGUF file; only little-endian ones are read"},
    {"Version0", [](GgufWriter& w) { w.version = 0; }, "GGUF version 0; versions 2 and 3 are read"},
    {"Version1", [](GgufWriter& w) { w.version = 1; }, "GGUF version 1; versions 2 and 3 are read"},
    {"Version4", [](GgufWriter& w) { w.version = 4; }, "GGUF version 4; versions 2 and 3 are read"},
    {"KeyCountOverTheLimit", [](GgufWriter& w) { w.key_count = UINT64_MAX; },
     "18446744073709551615 keys announced, at most 65536"},
    {"KeyCountOverTheFile", [](GgufWriter& w) { w.key_count = 60'000; },
     "60000 keys announced, there is room for 27"},
    {"TensorCountOverTheLimit", [](GgufWriter& w) { w.tensor_count = uint64_t{1} << 63; },
     "9223372036854775808 tensors announced, at most 1048576"},
    {"TensorCountOverTheFile", [](GgufWriter& w) { w.tensor_count = 1000; },
     "1000 tensors announced, there is room for 11"},
    {"TensorCountOneTooMany", [](GgufWriter& w) { w.tensor_count = 2; },
     "tensor 1: the name is empty"},
    {"TruncatedTensorInfo", [](GgufWriter& w) { w.cut = 256 + 14 + 4; },
     "tensor 'first': 8 bytes needed at offset 106, 4 left"},
    {"TruncatedData", [](GgufWriter& w) { w.cut = 1; },
     "tensor 'first': 256 bytes at offset 0 of the data, which has 255"},
    {"NoDataAtAll", [](GgufWriter& w) { w.cut = 256; },
     "tensor 'first': 256 bytes at offset 0 of the data, which has 0"},
};
INSTANTIATE_TEST_SUITE_P(File, GgufFault, ::testing::ValuesIn(kFileFaults), name_of_case);

const Fault kKeyFaults[] = {
    {"KeySizeOverTheLimit",
     [](GgufWriter& w) { w.scalar(std::string(65'536, 'k'), Type::kUint8, uint8_t{1}); },
     "key 1: a string of 65536 bytes, at most 65535"},
    {"KeySizeOverTheFile",
     [](GgufWriter& w) {
       w.begin("one", Type::kUint64).number<uint64_t>(0).number<uint64_t>(5000);
       w.key_count = 3;
     },
     "key 2: 5000 bytes needed at offset 100, 316 left"},
    {"KeySizeNegative",
     [](GgufWriter& w) {
       w.begin("one", Type::kUint64).number<uint64_t>(0).number<int64_t>(-1);
       w.key_count = 3;
     },
     "key 2: a string of 18446744073709551615 bytes, at most 65535"},
    {"EmptyKey", [](GgufWriter& w) { w.u32("", 1); }, "key 1: the name is empty"},
    {"DuplicateKey", [](GgufWriter& w) { w.u32("general.architecture", 1); },
     "key 'general.architecture' is there twice"},
    {"ValueTypeUnknown", [](GgufWriter& w) { w.scalar("k", Type{13}, uint64_t{0}); },
     "key 'k': value type 13, the last one is 12"},
    {"StringSizeOverTheFile",
     [](GgufWriter& w) { w.begin("k", Type::kString).number<uint64_t>(5000); },
     "key 'k': string 0: 5000 bytes needed at offset 90, 326 left"},
    {"StringSizeOverTheLimit",
     [](GgufWriter& w) { w.begin("k", Type::kString).number<uint64_t>(UINT64_MAX); },
     "key 'k': string 0: a string of 18446744073709551615 bytes, at most 268435456"},
    {"ArrayTypeUnknown",
     [](GgufWriter& w) {
       w.begin("k", Type::kArray).number<uint32_t>(99).number<uint64_t>(1).number<uint8_t>(0);
     },
     "key 'k': value type 99, the last one is 12"},
    {"NestedArray",
     [](GgufWriter& w) {
       w.begin("k", Type::kArray).number<uint32_t>(9).number<uint64_t>(1).number<uint32_t>(9);
     },
     "key 'k': an array of arrays"},
    {"ArrayCountOverTheLimit",
     [](GgufWriter& w) { w.begin("k", Type::kArray).number<uint32_t>(0).number(UINT64_MAX); },
     "key 'k': an array of 18446744073709551615 elements, at most 16777216"},
    {"ArrayCountOverTheFile",
     [](GgufWriter& w) {
       w.begin("k", Type::kArray).number<uint32_t>(10).number<uint64_t>(16'000'000);
     },
     "key 'k': an array of 16000000 uint64, 322 bytes are left for it"},
    {"StringArrayCountOverTheFile",
     [](GgufWriter& w) {
       w.begin("k", Type::kArray).number<uint32_t>(8).number<uint64_t>(16'000'000);
     },
     "key 'k': an array of 16000000 string, 322 bytes are left for it"},
    {"StringOfAnArrayOverTheFile",
     [](GgufWriter& w) {
       w.begin("k", Type::kArray)
           .number<uint32_t>(8)
           .number<uint64_t>(2)
           .string("fine")
           .number<uint64_t>(777);
     },
     "key 'k': string 1: 777 bytes needed at offset 114, 302 left"},
    {"BoolNeither0Nor1", [](GgufWriter& w) { w.scalar("k", Type::kBool, uint8_t{2}); },
     "key 'k': bool 0 is 2, neither 0 nor 1"},
    {"BoolOfAnArrayNeither0Nor1",
     [](GgufWriter& w) {
       w.array<uint8_t>("k", Type::kBool, {0, 1, 255});
     },
     "key 'k': bool 2 is 255, neither 0 nor 1"},
    {"AlignmentZero", [](GgufWriter& w) { w.u32("general.alignment", 0); },
     "key 'general.alignment' is 0, not a power of two of at least 8"},
    {"AlignmentTooSmall", [](GgufWriter& w) { w.u32("general.alignment", 4); },
     "key 'general.alignment' is 4, not a power of two of at least 8"},
    {"AlignmentNoPowerOfTwo", [](GgufWriter& w) { w.u32("general.alignment", 48); },
     "key 'general.alignment' is 48, not a power of two of at least 8"},
    {"AlignmentOverTheFile", [](GgufWriter& w) { w.u32("general.alignment", 1U << 31); },
     "tensor 'first': 256 bytes at offset 0 of the data, which has 0"},
    {"AlignmentOfTheWrongType",
     [](GgufWriter& w) { w.scalar("general.alignment", Type::kUint64, uint64_t{32}); },
     "key 'general.alignment' holds a uint64, not a uint32"},
    {"AlignmentAnArray",
     [](GgufWriter& w) { w.array<uint32_t>("general.alignment", Type::kUint32, {32}); },
     "key 'general.alignment' holds an array of uint32, not a uint32"},
};
INSTANTIATE_TEST_SUITE_P(Key, GgufFault, ::testing::ValuesIn(kKeyFaults), name_of_case);

const Fault kTensorFaults[] = {
    {"NameSizeOverTheLimit",
     [](GgufWriter& w) { w.tensor({.name = std::string(257, 't'), .dims = {1}}); },
     "tensor 1: a string of 257 bytes, at most 256"},
    {"EmptyName", [](GgufWriter& w) { w.tensor({.name = "", .dims = {1}}); },
     "tensor 1: the name is empty"},
    {"DuplicateName", [](GgufWriter& w) { w.tensor({.name = "first", .dims = {1}}); },
     "tensor 'first' is there twice"},
    {"NamesAreMadePrintable", [](GgufWriter& w) { w.tensor({.name = "a\n\xff", .dims = {0}}); },
     "tensor 'a\\x0a\\xff': dimension 0 is 0"},
    {"NoDimensions", [](GgufWriter& w) { w.tensor({.name = "t", .dims = {}}); },
     "tensor 't': 0 dimensions, 1 to 4 are read"},
    {"TooManyDimensions",
     [](GgufWriter& w) {
       w.tensor({.name = "t", .dims = {1, 1, 1, 1, 1}});
     },
     "tensor 't': 5 dimensions, 1 to 4 are read"},
    {"DimensionCountHuge",
     [](GgufWriter& w) { w.tensor({.name = "t", .dims = {1}, .rank = UINT32_MAX}); },
     "tensor 't': 4294967295 dimensions, 1 to 4 are read"},
    {"DimensionZero",
     [](GgufWriter& w) {
       w.tensor({.name = "t", .dims = {4, 0}});
     },
     "tensor 't': dimension 1 is 0"},
    {"ElementCountOverflow",
     [](GgufWriter& w) {
       w.tensor({.name = "t", .dims = {uint64_t{1} << 32, uint64_t{1} << 32}, .bytes = 0});
     },
     "tensor 't': shape [4294967296, 4294967296] has more than 2^63 - 1 elements"},
    {"ElementCountOverSigned",
     [](GgufWriter& w) {
       w.tensor({.name = "t", .dims = {uint64_t{1} << 32, uint64_t{1} << 31}, .bytes = 0});
     },
     "tensor 't': shape [2147483648, 4294967296] has more than 2^63 - 1 elements"},
    {"ByteSizeOverflow",
     [](GgufWriter& w) { w.tensor({.name = "t", .dims = {uint64_t{1} << 62}, .bytes = 0}); },
     "tensor 't': shape [4611686018427387904] in F32 takes more than 2^63 - 1 bytes"},
    {"RowsOfBrokenBlocks",
     [](GgufWriter& w) {
       w.tensor({.name = "t", .dims = {48, 2}, .type = 2});
     },
     "tensor 't': rows of 48 elements are not a whole number of Q4_0 blocks of 32"},
    {"TypeWithoutABlockSize",
     [](GgufWriter& w) { w.tensor({.name = "t", .dims = {32}, .type = 4}); },
     "tensor 't': element type 4 is not one that is read"},
    {"TypeRetired", [](GgufWriter& w) { w.tensor({.name = "t", .dims = {32}, .type = 31}); },
     "tensor 't': element type 31 is not one that is read"},
    {"TypeNotRead", [](GgufWriter& w) { w.tensor({.name = "t", .dims = {256}, .type = 16}); },
     "tensor 't': element type 16 (IQ2_XXS) is not one that is read"},
    {"TypeNonsense",
     [](GgufWriter& w) { w.tensor({.name = "t", .dims = {32}, .type = UINT32_MAX}); },
     "tensor 't': element type 4294967295 is not one that is read"},
    {"OffsetMisaligned", [](GgufWriter& w) { w.tensor({.name = "t", .dims = {1}, .offset = 257}); },
     "tensor 't': offset 257 is not a multiple of the alignment 32"},
    {"OffsetOutsideTheFile",
     [](GgufWriter& w) { w.tensor({.name = "t", .dims = {1}, .offset = 288}); },
     "tensor 't': 4 bytes at offset 288 of the data, which has 260"},
    {"OffsetWrapsAround",
     [](GgufWriter& w) { w.tensor({.name = "t", .dims = {64}, .offset = UINT64_MAX - 31}); },
     "tensor 't': 256 bytes at offset 18446744073709551584 of the data, which has 512"},
    {"SizeOverTheFile",
     [](GgufWriter& w) { w.tensor({.name = "t", .dims = {uint64_t{1} << 40}, .bytes = 64}); },
     "tensor 't': 4398046511104 bytes at offset 256 of the data, which has 320"},
    {"Overlapping", [](GgufWriter& w) { w.tensor({.name = "t", .dims = {8}, .offset = 224}); },
     "tensor 't' starts at 224, inside of tensor 'first' (256 bytes at 0)"},
    {"TheSameBytes", [](GgufWriter& w) { w.tensor({.name = "t", .dims = {64}, .offset = 0}); },
     "tensor 't' starts at 0, inside of tensor 'first' (256 bytes at 0)"},
};
INSTANTIATE_TEST_SUITE_P(Tensor, GgufFault, ::testing::ValuesIn(kTensorFaults), name_of_case);

// No prefix of a sound file is one, and none of them is read past its end.
TEST(GgufFault, EveryTruncationIsRefused) {
  GgufWriter w = sound();
  w.strings("s", {"a", "b"}).array<float>("f", Type::kFloat32, {1, 2});
  const auto bytes = w.build();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::vector<std::byte> prefix(bytes.begin(), bytes.begin() + static_cast<long>(size));
    EXPECT_FALSE(parse_gguf(prefix).ok()) << size;
  }
}

}  // namespace
}  // namespace skein::gguf
