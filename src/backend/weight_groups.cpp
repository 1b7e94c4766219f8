#include "backend/weight_groups.h"

#include <cstring>

#include "backend/f16_products.h"
#include "tensor/dequantize.h"
#include "tensor/quant/k_quants.h"
#include "tensor/quant/legacy.h"
#include "tensor/quant/table4.h"

namespace skein {
namespace {

using arithmetic::round_to_f16;
using Groups = std::span<WeightGroup>;

constexpr size_t kGroup = arithmetic::kGroup;
constexpr size_t kGroupsOfSuperBlock = quant::kSuperBlock / kGroup;
// The offset of codes of signed values, by their bits.
constexpr int32_t kOffset4 = 8, kOffset5 = 16, kOffset6 = 32, kOffset8 = 128;

constexpr std::array<int8_t, 16> kIq4Table = {-127, -104, -83, -65, -49, -35, -22, -10,
                                              1,    13,   25,  38,  53,  69,  89,  113};
constexpr std::array<int8_t, 16> kE2m1Table = {0, 1,  2,  3,  4,  6,  8,  12,
                                               0, -1, -2, -3, -4, -6, -8, -12};

uint16_t bits16(const std::byte* at) {
  return quant::load<uint16_t>(at);
}

void set_scale(WeightGroup& group, size_t half, float value) {
  group.scale[half] = round_to_f16(value);
  group.exact_scale[half] = value;
}
void set_minimum(WeightGroup& group, size_t half, float value) {
  group.minimum[half] = round_to_f16(value);
  group.exact_minimum[half] = value;
}
// As a file has it.
void set_scale_bits(WeightGroup& group, uint16_t bits) {
  group.scale[0] = bits;
  group.exact_scale[0] = quant::f32_of_f16(bits);
}
void set_minimum_bits(WeightGroup& group, uint16_t bits) {
  group.minimum[0] = bits;
  group.exact_minimum[0] = quant::f32_of_f16(bits);
}

// Codes are read eight at a time.
constexpr size_t kWord = sizeof(uint64_t);
constexpr size_t kWords = kGroup / kWord;

constexpr uint64_t in_each_byte(uint8_t byte) {
  return byte * 0x0101010101010101ULL;
}

// Of each of eight bytes `mask` of what it is shifted right by; the mask leaves bits of that byte
// only.
uint64_t bits_at(const std::byte* at, size_t shift, uint8_t mask) {
  return quant::load<uint64_t>(at) >> shift & in_each_byte(mask);
}

// Bit i as byte i.
uint64_t spread(uint8_t bits) {
  const uint64_t own = in_each_byte(bits) & 0x8040201008040201ULL;
  return (own + in_each_byte(0x7f)) >> 7 & in_each_byte(1);
}

void put_word(WeightGroup& out, size_t word, uint64_t codes) {
  std::memcpy(out.code.data() + word * kWord, &codes, kWord);
}

// The 16 bytes of a block of 32 nibbles: byte j holds elements j and j + 16. `fifths` has a bit for
// each.
void take_nibbles(const std::byte* qs, WeightGroup& out, uint32_t fifths = 0) {
  for (size_t word = 0; word < kWords; ++word) {
    const uint64_t low = bits_at(qs + word % 2 * kWord, word / 2 * 4, 0xf);
    put_word(out, word, low | spread(static_cast<uint8_t>(fifths >> (8 * word))) << 4);
  }
}

// Blocks of 32 with a float16 scale, a float16 minimum if `minimum`, and nibbles.
void read_nibble_blocks(const std::byte* block, bool minimum, Groups out) {
  const size_t header = minimum ? 4 : 2;
  for (WeightGroup& group : out) {
    set_scale_bits(group, bits16(block));
    if (minimum) set_minimum_bits(group, bits16(block + 2));
    take_nibbles(block + header, group);
    block += header + 16;
  }
}

void read_q5(const std::byte* block, bool minimum, Groups out) {
  const size_t header = minimum ? 4 : 2;
  for (WeightGroup& group : out) {
    set_scale_bits(group, bits16(block));
    if (minimum) set_minimum_bits(group, bits16(block + 2));
    take_nibbles(block + header + 4, group, quant::load<uint32_t>(block + header));
    block += header + 20;
  }
}

void read_q8_0(const std::byte* block, Groups out) {
  for (WeightGroup& group : out) {
    set_scale_bits(group, bits16(block));
    for (size_t word = 0; word < kWords; ++word) {
      put_word(group, word, bits_at(block + 2 + word * kWord, 0, 0xff) ^ in_each_byte(0x80));
    }
    block += 34;
  }
}

void read_mxfp4(const std::byte* block, Groups out) {
  for (WeightGroup& group : out) {
    const float half = quant::half_of_e8m0(quant::byte_at(block, 0));
    group.scale[0] = static_cast<uint16_t>(arithmetic::bits_of_float(half) >> 16);
    group.exact_scale[0] = half;
    take_nibbles(block + 1, group);
    block += 17;
  }
}

// Groups of 32: Q4_K, and Q5_K with a fifth bit.
void read_q45_k(const std::byte* block, bool five_bits, Groups out) {
  for (size_t g = 0; g < out.size(); ++g) {
    const size_t in_block = g % kGroupsOfSuperBlock;
    if (g > 0 && in_block == 0) block += five_bits ? 176 : 144;
    const auto [scale, minimum] = quant::scale_and_minimum(block + 4, in_block);
    set_scale(out[g], 0, quant::load_f16(block) * static_cast<float>(scale));
    set_minimum(out[g], 0, -(quant::load_f16(block + 2) * static_cast<float>(minimum)));
    const std::byte* const qs = block + (five_bits ? 48 : 16) + in_block / 2 * 32;
    const std::byte* const fifths = block + 16;
    const size_t shift = in_block % 2 * 4;
    for (size_t word = 0; word < kWords; ++word) {
      uint64_t q = bits_at(qs + word * kWord, shift, 0xf);
      if (five_bits) q |= bits_at(fifths + word * kWord, in_block, 1) << 4;
      put_word(out[g], word, q);
    }
  }
}

void read_q6_k(const std::byte* block, Groups out) {
  for (size_t g = 0; g < out.size(); ++g) {
    const size_t in_block = g % kGroupsOfSuperBlock;
    if (g > 0 && in_block == 0) block += 210;
    const float d = quant::load_f16(block + 208);
    for (size_t half = 0; half < 2; ++half) {
      const auto scale = quant::load<int8_t>(block + 192 + 2 * in_block + half);
      set_scale(out[g], half, d * static_cast<float>(scale));
    }
    const std::byte* const low = block + in_block / 4 * 64 + in_block % 2 * 32;
    const std::byte* const high = block + 128 + in_block / 4 * 32;
    const size_t low_shift = in_block / 2 % 2 * 4, high_shift = in_block % 4 * 2;
    for (size_t word = 0; word < kWords; ++word) {
      put_word(out[g], word,
               bits_at(low + word * kWord, low_shift, 0xf) |
                   bits_at(high + word * kWord, high_shift, 3) << 4);
    }
  }
}

void read_q3_k(const std::byte* block, Groups out) {
  for (size_t g = 0; g < out.size(); ++g) {
    const size_t in_block = g % kGroupsOfSuperBlock;
    if (g > 0 && in_block == 0) block += 110;
    const float d = quant::load_f16(block + 108);
    for (size_t half = 0; half < 2; ++half) {
      const int scale = quant::q3_k_scale(block + 96, 2 * in_block + half);
      set_scale(out[g], half, d * static_cast<float>(scale));
    }
    const std::byte* const low = block + 32 + in_block / 4 * 32;
    for (size_t word = 0; word < kWords; ++word) {
      const uint64_t q = bits_at(low + word * kWord, in_block % 4 * 2, 3) |
                         bits_at(block + word * kWord, in_block, 1) << 2;
      put_word(out[g], word, q + in_each_byte(kOffset4 - 4));
    }
  }
}

void read_q2_k(const std::byte* block, Groups out) {
  for (size_t g = 0; g < out.size(); ++g) {
    const size_t in_block = g % kGroupsOfSuperBlock;
    if (g > 0 && in_block == 0) block += 84;
    const float d = quant::load_f16(block + 80), dmin = quant::load_f16(block + 82);
    for (size_t half = 0; half < 2; ++half) {
      const uint32_t packed = quant::byte_at(block, 2 * in_block + half);
      set_scale(out[g], half, d * static_cast<float>(packed & 0xf));
      set_minimum(out[g], half, -(dmin * static_cast<float>(packed >> 4)));
    }
    const std::byte* const qs = block + 16 + in_block / 4 * 32;
    for (size_t word = 0; word < kWords; ++word) {
      put_word(out[g], word, bits_at(qs + word * kWord, in_block % 4 * 2, 3));
    }
  }
}

void read_iq4_xs(const std::byte* block, Groups out) {
  for (size_t g = 0; g < out.size(); ++g) {
    const size_t in_block = g % kGroupsOfSuperBlock;
    if (g > 0 && in_block == 0) block += 136;
    const uint32_t low = quant::byte_at(block + 4, in_block / 2) >> (in_block % 2 * 4) & 0xf;
    const uint32_t high = uint32_t{bits16(block + 2)} >> (2 * in_block) & 3;
    const int scale = static_cast<int>(low | high << 4) - 32;
    set_scale(out[g], 0, quant::load_f16(block) * static_cast<float>(scale));
    take_nibbles(block + 8 + in_block * 16, out[g]);
  }
}

void read_tensor(const TensorView& tensor, uint64_t row, Groups out) {
  const std::byte* const at = tensor.row(row).data();
  switch (tensor.type) {
    case ElementType::kQ4_0:
    case ElementType::kIQ4_NL:
      return read_nibble_blocks(at, false, out);
    case ElementType::kQ4_1:
      return read_nibble_blocks(at, true, out);
    case ElementType::kQ5_0:
      return read_q5(at, false, out);
    case ElementType::kQ5_1:
      return read_q5(at, true, out);
    case ElementType::kQ8_0:
      return read_q8_0(at, out);
    case ElementType::kQ2_K:
      return read_q2_k(at, out);
    case ElementType::kQ3_K:
      return read_q3_k(at, out);
    case ElementType::kQ4_K:
      return read_q45_k(at, false, out);
    case ElementType::kQ5_K:
      return read_q45_k(at, true, out);
    case ElementType::kQ6_K:
      return read_q6_k(at, out);
    case ElementType::kIQ4_XS:
      return read_iq4_xs(at, out);
    case ElementType::kMXFP4:
      return read_mxfp4(at, out);
    default:
      SKEIN_CHECK(false, "{} has no groups", info(tensor.type).name);
  }
}

bool has_bfloat16_scales(const AffineView& affine) {
  return affine.scales().type == ElementType::kBF16;
}

// A scale or minimum in the type that the format has for both.
uint16_t affine_bits(const TensorView& side, uint64_t index, bool bfloat16) {
  if (side.type == (bfloat16 ? ElementType::kBF16 : ElementType::kF16)) {
    return bits16(side.bytes.data() + 2 * index);
  }
  const float value = element(side, index);
  return bfloat16 ? arithmetic::round_to_bf16(value) : round_to_f16(value);
}

void read_affine(const AffineView& affine, uint64_t row, Groups out) {
  const std::byte* const words = affine.packed().row(row).data();
  const uint64_t groups = affine.scales().shape.columns();
  const size_t each = affine.format().group / kGroup;
  const bool bfloat16 = has_bfloat16_scales(affine);
  for (size_t g = 0; g < out.size(); ++g) {
    const uint64_t index = row * groups + g / each;
    out[g].scale[0] = affine_bits(affine.scales(), index, bfloat16);
    out[g].minimum[0] = affine_bits(affine.biases(), index, bfloat16);
    out[g].exact_scale[0] = element(affine.scales(), index);
    out[g].exact_minimum[0] = element(affine.biases(), index);
    if (affine.format().bits == 8) {
      std::memcpy(out[g].code.data(), words + g * kGroup, kGroup);
      continue;
    }
    for (size_t j = 0; j < kGroup; ++j) {
      const uint32_t pair = quant::byte_at(words, g * (kGroup / 2) + j / 2);
      out[g].code[j] = static_cast<uint8_t>(pair >> (j % 2 * 4) & 0xf);
    }
  }
}

std::optional<GroupFormat> tensor_format(ElementType type) {
  switch (type) {
    case ElementType::kQ4_0:
      return GroupFormat{.offset = kOffset4};
    case ElementType::kQ4_1:
    case ElementType::kQ4_K:
      return GroupFormat{.has_minimum = true};
    case ElementType::kQ5_0:
      return GroupFormat{.bits = 5, .offset = kOffset5};
    case ElementType::kQ8_0:
      return GroupFormat{.bits = 8, .offset = kOffset8};
    case ElementType::kQ5_1:
    case ElementType::kQ5_K:
      return GroupFormat{.bits = 5, .has_minimum = true};
    case ElementType::kQ2_K:
      return GroupFormat{.bits = 2, .halves = true, .has_minimum = true};
    case ElementType::kQ3_K:
      return GroupFormat{.offset = kOffset4, .halves = true};
    case ElementType::kQ6_K:
      return GroupFormat{.bits = 6, .offset = kOffset6, .halves = true};
    case ElementType::kIQ4_NL:
    case ElementType::kIQ4_XS:
      return GroupFormat{.table = kIq4Table.data()};
    case ElementType::kMXFP4:
      return GroupFormat{.table = kE2m1Table.data(), .bfloat16_scales = true};
    default:
      return std::nullopt;
  }
}

}  // namespace

float GroupFormat::scale(uint16_t bits) const {
  return bfloat16_scales ? arithmetic::float_of_bf16(bits) : quant::f32_of_f16(bits);
}

std::optional<GroupFormat> group_format(const WeightView& view) {
  if (const auto* tensor = std::get_if<TensorView>(&view)) return tensor_format(tensor->type);
  const auto& affine = std::get<AffineView>(view);
  return GroupFormat{.bits = affine.format().bits,
                     .has_minimum = true,
                     .bfloat16_scales = has_bfloat16_scales(affine)};
}

void read_groups(const WeightView& view, uint64_t row, std::span<WeightGroup> out) {
  if (const auto* tensor = std::get_if<TensorView>(&view)) return read_tensor(*tensor, row, out);
  read_affine(std::get<AffineView>(view), row, out);
}

}  // namespace skein
