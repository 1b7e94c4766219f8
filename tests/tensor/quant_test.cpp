// The reference dequantizers against the package gguf and NumPy, bit for bit.
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "base/needs.h"
#include "format/safetensors.h"
#include "tensor/dequantize.h"
#include "tensor/quant/affine.h"

namespace skein {
namespace {

const std::string kPython = SKEIN_SOURCE_DIR "/build/venv/bin/python";
const std::string kScript = SKEIN_SOURCE_DIR "/tests/tensor/quant_oracle.py";

std::vector<float> floats(const TensorView& tensor) {
  std::vector<float> values(tensor.elements());
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

// Equal bits, or both NaN: which payload a product of two NaNs keeps is the machine's choice.
::testing::AssertionResult same_bits(const std::vector<float>& got,
                                     const std::vector<float>& want) {
  if (got.size() != want.size()) {
    return ::testing::AssertionFailure() << got.size() << " values, not " << want.size();
  }
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    if (std::bit_cast<uint32_t>(got[i]) != std::bit_cast<uint32_t>(want[i])) {
      return ::testing::AssertionFailure()
             << "value " << i << " is " << got[i] << ", not " << want[i];
    }
  }
  return ::testing::AssertionSuccess();
}

class QuantOracle : public ::testing::Test {
 protected:
  void SetUp() override {
    SKEIN_NEEDS(std::filesystem::exists(kPython),
                std::string(kPython) + " is not there; tools/python_env.sh makes it");
    const std::string path = ::testing::TempDir() + "quant_oracle." +
                             ::testing::UnitTest::GetInstance()->current_test_info()->name();
    ASSERT_EQ(std::system(fmt::format("'{}' '{}' '{}'", kPython, kScript, path).c_str()), 0);
    auto file = MappedFile::open(path);
    ASSERT_TRUE(file.ok()) << file.message();
    file_.emplace(std::move(*file));
    std::filesystem::remove(path);  // the mapping stays
    auto tensors = parse_safetensors(file_->bytes());
    ASSERT_TRUE(tensors.ok()) << tensors.message();
    for (NamedTensor& tensor : *tensors) tensors_[tensor.name] = tensor.view;
  }

  std::optional<MappedFile> file_;
  std::map<std::string, TensorView> tensors_;
};

TEST_F(QuantOracle, EveryFormatOfTheTableIsExact) {
  int formats = 0;
  for (const ElementType type : kElementTypes) {
    if (!can_dequantize(type) || type == ElementType::kF32) continue;
    const std::string name(info(type).name);
    SCOPED_TRACE(name);
    ASSERT_TRUE(tensors_.contains(name + ".blocks")) << "the oracle has no values for it";
    const auto want = floats(tensors_[name + ".values"]);
    std::vector<float> got(want.size());
    dequantize(type, tensors_[name + ".blocks"].bytes, got);
    EXPECT_TRUE(same_bits(got, want));
    ++formats;
  }
  EXPECT_EQ(formats, 15);
}

TEST_F(QuantOracle, EveryLineOfTheTableIsRight) {
  for (const ElementType element : kElementTypes) {
    const ElementTypeInfo& type = info(element);
    if (type.gguf_id == kNoGgufId) continue;
    SCOPED_TRACE(type.name);
    ASSERT_TRUE(tensors_.contains(std::string(type.name) + ".facts"));
    std::array<uint32_t, 3> facts;
    std::memcpy(facts.data(), tensors_[std::string(type.name) + ".facts"].bytes.data(), 12);
    EXPECT_EQ(facts,
              (std::array<uint32_t, 3>{type.gguf_id, type.block_elements, type.block_bytes}));
  }
}

TEST_F(QuantOracle, EveryAffineGroupFormatIsExact) {
  for (const uint32_t bits : {4U, 8U}) {
    for (const uint32_t group : {32U, 64U, 128U}) {
      for (const char* dtype : {"F32", "F16", "BF16"}) {
        const std::string prefix = fmt::format("affine.{}.{}.{}.", bits, group, dtype);
        SCOPED_TRACE(prefix);
        const auto view = AffineView::of(tensors_[prefix + "packed"], tensors_[prefix + "scales"],
                                         tensors_[prefix + "biases"], {bits, group});
        ASSERT_TRUE(view.ok()) << view.message();
        const TensorView& values = tensors_[prefix + "values"];
        ASSERT_EQ(view->shape(), values.shape);
        std::vector<float> got(values.elements());
        for (uint64_t row = 0; row < values.rows(); ++row) {
          const uint64_t columns = values.shape.columns();
          view->dequantize_row(row, std::span(got).subspan(row * columns, columns));
        }
        EXPECT_TRUE(same_bits(got, floats(values)));
      }
    }
  }
}

}  // namespace
}  // namespace skein
