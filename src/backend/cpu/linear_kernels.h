// Products with packed weights, as one table per instruction set, and the layouts that they share.
// The bodies are written once, in linear_kernels.inl; what kernel_table.h says of kernel files
// holds here too.
//
// Weights. 16 outputs are a row block. Of definition G32 (arithmetic.h) it is, for each 32 columns,
// a block of codes, then for each 32 columns their scales; the whole up to a multiple of 64 bytes:
//   2-bit codes  128 bytes: byte (16 j + r) * 4 + c holds column 8 i + 4 j + c of output r in bits
//                2 i and 2 i + 1, j < 2
//   4-bit codes  256 bytes: byte (16 j + r) * 4 + c holds column 4 j + c of output r in its low and
//                column 16 + 4 j + c in its high four bits, j < 4
//   5-bit codes  320 bytes: the low four bits as above; then byte 4 r + c holds the fifth bit of
//                column 4 i + c of output r in bit i
//   6-bit codes  384 bytes: the low four bits as above; then the others as 2-bit codes
//   8-bit codes  512 bytes: byte (16 j + r) * 4 + c holds column 4 j + c of output r, j < 8
//   scales       16 of 16 bits, one per output; then those of columns 16 to 31 where the halves
//                have their own; then minimums in the same way where there are any
// For products of type BF16 it is [columns / 2][16 outputs][2], columns up to a multiple of 32.
// Four codes of each of 16 outputs are what one instruction multiplies with four activations.
//
// Activations. 16 rows are a tile, 32 columns of it one record, records in the order of columns.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/arithmetic.h"

namespace skein::cpu {

inline constexpr size_t kBlockRows = 16;
inline constexpr size_t kTileRows = 16;
inline constexpr size_t kCodes2Bytes = kBlockRows * arithmetic::kGroup / 4;
inline constexpr size_t kCodes4Bytes = kBlockRows * arithmetic::kGroup / 2;
inline constexpr size_t kCodes5Bytes = kCodes4Bytes + kBlockRows * arithmetic::kGroup / 8;
inline constexpr size_t kCodes6Bytes = kCodes4Bytes + kCodes2Bytes;
inline constexpr size_t kCodes8Bytes = kBlockRows * arithmetic::kGroup;
inline constexpr size_t kScalesBytes = kBlockRows * sizeof(uint16_t);
inline constexpr size_t kBf16BlockBytes = kBlockRows * arithmetic::kGroup * sizeof(uint16_t);

// The kinds of codes. Those without minimum are unsigned, with an offset of half their range;
// kernels raise those of five and six bits, so that there are but two offsets: 8 (kNibbles) and
// 128.
enum class Codes : uint8_t { kTwos, kNibbles, kTable, kFives, kSixes, kBytes };
inline constexpr uint8_t kRaiseFives = 128 - 16, kRaiseSixes = 128 - 32;

constexpr size_t code_bytes_of(Codes codes) {
  constexpr size_t kBytes[] = {kCodes2Bytes, kCodes4Bytes, kCodes4Bytes,
                               kCodes5Bytes, kCodes6Bytes, kCodes8Bytes};
  return kBytes[static_cast<size_t>(codes)];
}

struct G32Layout {
  Codes codes = Codes::kNibbles;
  bool halves = false;
  bool has_minimum = false;

  constexpr size_t code_bytes() const { return code_bytes_of(codes); }
  constexpr size_t scale_bytes() const {
    return kScalesBytes * (halves ? 2 : 1) * (has_minimum ? 2 : 1);
  }
};

// Which columns of a record: all, the first 16, the others.
enum Columns : uint8_t { kWhole, kFirstHalf, kSecondHalf, kColumns };

// 32 columns of a row of activations, in one cache line. Dots start with a float's bits, so that
// they end as one (arithmetic.h, product_of_dot): with those of kDotBias less the offset of the
// codes, 8 or 128, times the sum of q.
struct alignas(64) QuantizedRow {
  int8_t q[arithmetic::kGroup];
  float scale;
  float scaled_sum;  // scale * float(sum of q)
  int32_t start_8[kColumns], start_128[kColumns];
};
static_assert(sizeof(QuantizedRow) == 64);

struct QuantizedRecord {
  QuantizedRow row[kTileRows];
};

// Rounded to bfloat16, as floats; AMX keeps another form in the same memory (bf16_amx.inl).
struct alignas(64) Bf16Record {
  float x[kTileRows][arithmetic::kGroup];
};

// The residuals of a group that has some (arithmetic.h), as floats; zeros past the columns.
struct alignas(64) Bf16Residual {
  float x[arithmetic::kGroup];
  size_t group;
};
// A row has at most so many of them.
constexpr size_t most_residuals(size_t groups) {
  return groups / 2 + 1;
}

// out[n] += the sum of the residuals with weights[n] for n < outputs.
struct ResidualMultiply {
  const uint8_t* weights;  // of the first row block
  size_t block_stride;
  size_t outputs;
  const Bf16Residual* residuals;
  size_t count;
  float* out;
};

// An activation that products take apart from its group (arithmetic.h, is_outlier).
struct Outlier {
  float x;
  uint32_t column;
};
// A row has at most so many of them: a sixth of its groups, and room for what rounding may do to
// that.
constexpr size_t most_outliers(size_t groups) {
  return groups / 5 + 1;
}

// Some bits of a column's codes: of each of 16 outputs in one of the words at `at`, in bytes from
// the row block on.
struct CodeBits {
  size_t at;
  int32_t shift, mask;
};

// A column of row blocks of definition G32.
struct G32Column {
  CodeBits low;
  CodeBits high;          // goes four bits above; a mask of 0: there are no more
  int32_t offset;         // value = code - offset, if there is no table
  size_t scale, minimum;  // bytes from the row block on
  bool has_minimum;
};

// out[n] = fma(x, weights[n][column], out[n]) for n < outputs.
struct OutlierMultiply {
  const uint8_t* weights;  // of the first row block
  size_t block_stride;
  size_t outputs;
  G32Column column;
  const uint8_t* table;  // as in G32Multiply; nullptr for other codes
  bool bfloat16_scales;
  float x;
  float* out;
};

// out[i][first_output + n] = x[i] * weights[n] + bias[n] for i < rows and n < outputs; row i is row
// i % 16 of tile i / 16.
template <class Record>
struct PackedMultiply {
  const uint8_t* weights;  // of the first row block
  size_t block_stride;     // bytes from a row block to the next
  size_t outputs;
  size_t groups;  // of 32 columns
  const Record* x;
  size_t rows;
  float* const* out;
  size_t first_output;
  const float* bias;  // [outputs] or nullptr
};

struct G32Multiply : PackedMultiply<QuantizedRecord> {
  const uint8_t* table;  // [16] bytes, values + 128, of Codes::kTable
  bool bfloat16_scales;  // else float16
  size_t panel_rows;     // as LinearKernels has it
};

using Bf16Multiply = PackedMultiply<Bf16Record>;

struct LinearKernels {
  // With so many rows and more, products of definition G32 are made from weights that are unpacked
  // first (panels.inl), where the kernels have such at all. The bits are the same.
  size_t panel_rows;

  // One row of a tile: `x` has `groups` * 32 columns, `out` the tile's records. Gives the number of
  // the row's outliers, which are in the order of columns.
  size_t (*quantize)(const float* x, size_t groups, size_t row, QuantizedRecord* out,
                     Outlier* outliers);
  // One row of a tile: `x` has `inputs` columns.
  void (*round)(const float* x, size_t inputs, size_t row, Bf16Record* out);

  using G32 = void (*)(const G32Multiply& args);
  G32 nibbles, nibbles_minimum, table, fives, fives_minimum, bytes, bytes_minimum;
  G32 twos_halves_minimum, nibbles_halves, sixes_halves;
  void (*add_outlier)(const OutlierMultiply& args);
  void (*bf16)(const Bf16Multiply& args);
  // The residuals of a row, of its first group first; their number.
  size_t (*find_residuals)(const float* x, size_t inputs, Bf16Residual* out);
  void (*add_residuals)(const ResidualMultiply& args);
};

extern const LinearKernels kScalarLinear;
#if defined(__x86_64__)
extern const LinearKernels kAvx2Linear;
extern const LinearKernels kAvx512Linear;  // with VNNI
extern const LinearKernels kAmxLinear;     // calls kAvx512Linear for what is no work for tiles
#endif

}  // namespace skein::cpu
