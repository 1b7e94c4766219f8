#include "format/safetensors.h"

#include <gtest/gtest.h>
#include <ostream>
#include <string>
#include <vector>

#include "format/safetensors_writer.h"
#include "tensor/dequantize.h"

namespace skein {
namespace {

using testing::safetensors_bytes;

TEST(Safetensors, ReadsTensorsInAnyOrder) {
  const auto bytes = safetensors_bytes(
      R"({"__metadata__": {"format": "pt"},
          "b": {"data_offsets": [24, 34], "dtype": "BF16", "shape": [5]},
          "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
          "scalar": {"dtype": "I64", "shape": [], "data_offsets": [34, 42]},
          "empty": {"dtype": "F16", "shape": [0, 7], "data_offsets": [34, 34]}}   )",
      42);
  const auto tensors = parse_safetensors(bytes);
  ASSERT_TRUE(tensors.ok()) << tensors.message();
  ASSERT_EQ(tensors->size(), 4u);
  EXPECT_EQ((*tensors)[0].name, "a");
  EXPECT_EQ((*tensors)[0].view.shape, (Shape{2, 3}));
  EXPECT_EQ((*tensors)[0].view.bytes.size(), 24u);
  EXPECT_EQ((*tensors)[1].view.type, ElementType::kBF16);
  EXPECT_EQ((*tensors)[1].view.bytes.data(), bytes.data() + bytes.size() - 42 + 24);
  EXPECT_EQ((*tensors)[2].view.rows(), 0u);
  EXPECT_EQ((*tensors)[3].view.elements(), 1u);
}

TEST(Safetensors, AFileWithoutTensors) {
  EXPECT_TRUE(parse_safetensors(safetensors_bytes("{}", 0)).ok());
}

struct Fault {
  const char* name;
  std::string header;
  size_t data_bytes;
  std::string message;
};

void PrintTo(const Fault& fault, std::ostream* out) {
  *out << fault.name;
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + R"(": {"dtype": ")" + dtype + R"(", "shape": )" + shape +
         R"(, "data_offsets": )" + offsets + "}";
}

class SafetensorsFault : public ::testing::TestWithParam<Fault> {};

TEST_P(SafetensorsFault, IsRefusedWithItsReason) {
  const auto bytes = safetensors_bytes(GetParam().header, GetParam().data_bytes);
  const auto tensors = parse_safetensors(bytes);
  ASSERT_FALSE(tensors.ok());
  EXPECT_EQ(tensors.message(), GetParam().message);
}

const Fault kFaults[] = {
    {"BadJson", "{\"a\": \n{oops", 0, "header: not valid JSON at line 2, column 2"},
    {"EmptyHeader", "", 0, "header: not valid JSON at line 1, column 1"},
    {"TextAfterTheHeader", "{} x", 0, "header: not valid JSON at line 1, column 4"},
    {"BrokenUtf8", "{\"\xff\": 1}", 0, "header: not valid JSON at line 1, column 3"},
    {"NoObject", "[]", 0, "header: an array where an object belongs"},
    {"ATensorIsANumber", R"({"a": 1})", 0, "tensor 'a': a number where an object belongs"},
    {"ATensorIsAnArray", R"({"a": [1]})", 0, "tensor 'a': an array where an object belongs"},
    {"MetadataIsAString", R"({"__metadata__": "x"})", 0,
     "header: a string where an object belongs"},
    {"MetadataHoldsAnObject", R"({"__metadata__": {"x": {}}})", 0,
     "header: an object where a string of __metadata__ belongs"},
    {"DtypeMissing", R"({"a": {"shape": [], "data_offsets": [0, 1]}})", 1,
     "tensor 'a': dtype is missing"},
    {"ShapeMissing", R"({"a": {"dtype": "U8", "data_offsets": [0, 1]}})", 1,
     "tensor 'a': shape is missing"},
    {"OffsetsMissing", R"({"a": {"dtype": "U8", "shape": []}})", 1,
     "tensor 'a': data_offsets is missing"},
    {"FieldUnknown", R"({"a": {"dtype": "U8", "color": 1}})", 1,
     "tensor 'a': field 'color' is unknown or there twice"},
    {"FieldTwice", R"({"a": {"dtype": "U8", "dtype": "U8"}})", 1,
     "tensor 'a': field 'dtype' is unknown or there twice"},
    {"DtypeUnknown", "{" + tensor("a", "F8_E4M3", "[1]", "[0, 1]") + "}", 1,
     "tensor 'a': dtype 'F8_E4M3' is not one that is read"},
    {"DtypeOfGguf", "{" + tensor("a", "Q4_0", "[32]", "[0, 18]") + "}", 18,
     "tensor 'a': dtype 'Q4_0' is not one that is read"},
    {"DtypeIsANumber", R"({"a": {"dtype": 3}})", 0,
     "tensor 'a': a number where dtype (a string) belongs"},
    {"ShapeIsNull", R"({"a": {"shape": null}})", 0,
     "tensor 'a': null where shape (an array of numbers) belongs"},
    {"ShapeNested", "{" + tensor("a", "U8", "[[1]]", "[0, 1]") + "}", 1,
     "tensor 'a': an array inside of an array"},
    {"ShapeNegative", "{" + tensor("a", "U8", "[-1]", "[0, 1]") + "}", 1,
     "tensor 'a': the number -1 is negative"},
    {"ShapeNotWhole", "{" + tensor("a", "U8", "[1.5]", "[0, 1]") + "}", 1,
     "tensor 'a': '1.5' is not a whole number of 64 bits"},
    {"ShapeOver64Bits", "{" + tensor("a", "U8", "[18446744073709551616]", "[0, 1]") + "}", 1,
     "tensor 'a': '18446744073709551616' is not a whole number of 64 bits"},
    {"TooManyDimensions", "{" + tensor("a", "U8", "[1,1,1,1,1,1,1,1,1]", "[0, 1]") + "}", 1,
     "tensor 'a': more than 8 numbers in shape (an array of numbers)"},
    {"ElementCountOverflow", "{" + tensor("a", "U8", "[4294967296, 4294967296]", "[0, 0]") + "}", 0,
     "tensor 'a': shape [4294967296, 4294967296] has more than 2^63 - 1 elements"},
    {"ByteSizeOverflow", "{" + tensor("a", "F64", "[1152921504606846976]", "[0, 0]") + "}", 0,
     "tensor 'a': shape [1152921504606846976] in F64 takes more than 2^63 - 1 bytes"},
    {"OffsetsOfThreeNumbers", "{" + tensor("a", "U8", "[1]", "[0, 1, 2]") + "}", 1,
     "tensor 'a': data_offsets has 3 numbers, not 2"},
    {"OffsetsBackwards", "{" + tensor("a", "U8", "[1]", "[1, 0]") + "}", 1,
     "tensor 'a': data_offsets end at 0 before they begin at 1"},
    {"SizeNotOfTheDtype", "{" + tensor("a", "F32", "[2]", "[0, 4]") + "}", 4,
     "tensor 'a': F32 of shape [2] takes 8 bytes, data_offsets 0 to 4 are 4"},
    {"OffsetsOutsideTheData", "{" + tensor("a", "U8", "[8]", "[0, 8]") + "}", 7,
     "tensor 'a': data_offsets 0 to 8 are outside of the data, which has 7 bytes"},
    {"Overlapping",
     "{" + tensor("a", "U8", "[4]", "[0, 4]") + "," + tensor("b", "U8", "[4]", "[2, 6]") + "}", 6,
     "tensor 'b': starts at 2, before the previous tensor ends at 4"},
    {"TheSameBytes",
     "{" + tensor("a", "U8", "[4]", "[0, 4]") + "," + tensor("b", "U8", "[4]", "[0, 4]") + "}", 4,
     "tensor 'b': starts at 0, before the previous tensor ends at 4"},
    {"Hole",
     "{" + tensor("a", "U8", "[4]", "[0, 4]") + "," + tensor("b", "U8", "[4]", "[6, 10]") + "}", 10,
     "tensor 'b': starts at 6, which leaves a hole after 4"},
    {"DataAfterTheLastTensor", "{" + tensor("a", "U8", "[4]", "[0, 4]") + "}", 5,
     "the tensors end at 4, the data has 5 bytes"},
    {"DuplicateName",
     "{" + tensor("a", "U8", "[1]", "[0, 1]") + "," + tensor("a", "U8", "[1]", "[1, 2]") + "}", 2,
     "tensor 'a' is there twice"},
    {"EmptyName", "{" + tensor("", "U8", "[1]", "[0, 1]") + "}", 1,
     "header: a tensor name of 0 bytes, 1 to 1024 are read"},
    {"LongName", "{" + tensor(std::string(1025, 'n'), "U8", "[1]", "[0, 1]") + "}", 1,
     "header: a tensor name of 1025 bytes, 1 to 1024 are read"},
    {"DeeplyNested", std::string(100'000, '['), 0, "header: an array where an object belongs"},
};
INSTANTIATE_TEST_SUITE_P(Header, SafetensorsFault, ::testing::ValuesIn(kFaults),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(SafetensorsFault, HeaderLength) {
  const auto error = [](uint64_t length) {
    return parse_safetensors(safetensors_bytes("{}", 3, length)).message();
  };
  EXPECT_EQ(error(6), "a header of 6 bytes, the file has 5 after its length");
  EXPECT_EQ(error(100'000'001), "a header of 100000001 bytes, at most 100000000");
  EXPECT_EQ(error(UINT64_MAX), "a header of 18446744073709551615 bytes, at most 100000000");
  EXPECT_EQ(error(0), "header: not valid JSON at line 1, column 1");
  EXPECT_EQ(parse_safetensors(std::vector<std::byte>(7)).message(),
            "header length: 8 bytes needed at offset 0, 7 left");
}

TEST(SafetensorsFault, EveryTruncationIsRefused) {
  const auto bytes = safetensors_bytes("{" + tensor("a", "F32", "[2]", "[0, 8]") + "}", 8);
  ASSERT_TRUE(parse_safetensors(bytes).ok());
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::vector<std::byte> prefix(bytes.begin(), bytes.begin() + static_cast<long>(size));
    EXPECT_FALSE(parse_safetensors(prefix).ok()) << size;
  }
}

}  // namespace
}  // namespace skein
