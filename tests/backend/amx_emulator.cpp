#include "backend/amx_emulator.h"

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#include <unistd.h>

#include "backend/host/flush_denormals.h"

namespace skein {
namespace {

constexpr size_t kTiles = 8, kMaxRows = 16, kMaxBytes = 64;  // palette 1
constexpr size_t kColumnsAt = 16, kRowsAt = 48;              // in a configuration

struct Tile {
  uint8_t row[kMaxRows][kMaxBytes];
};

struct Tiles {
  bool configured;
  uint8_t config[64];
  Tile tile[kTiles];

  size_t rows(size_t t) const { return config[kRowsAt + t]; }
  size_t bytes(size_t t) const {  // of a row
    uint16_t value = 0;
    std::memcpy(&value, config + kColumnsAt + 2 * t, sizeof value);
    return value;
  }
};

constinit thread_local Tiles tiles = {};
std::atomic<uint64_t> executed{0};

// Async-signal-safe, unlike SKEIN_CHECK.
void require(bool holds, const char* what) {
  if (holds) return;
  constexpr char kWho[] = "amx emulator: ";
  (void)!write(STDERR_FILENO, kWho, sizeof kWho - 1);
  (void)!write(STDERR_FILENO, what, std::strlen(what));
  (void)!write(STDERR_FILENO, "\n", 1);
  std::abort();
}

// VEX.128.<prefix>.0F38.W0 <opcode> with a ModRM byte.
enum Prefix : uint8_t { kNone, k66, kF3, kF2 };

struct Instruction {
  Prefix prefix;
  uint8_t opcode;
  size_t reg, vvvv;  // without the inversion
  bool is_memory, has_sib;
  size_t rm;           // of a register operand
  uint8_t* base;       // of a memory operand: base and displacement,
  intptr_t index;      // and the scaled index, which is the stride of tiles
  const uint8_t* end;  // the next instruction
};

intptr_t general_register(const ucontext_t& context, size_t number) {
  constexpr int kOrder[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                            REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  return context.uc_mcontext.gregs[kOrder[number]];
}

// `at` is behind the ModRM byte; x and b are the bits that extend the index and the base.
void decode_memory(const ucontext_t& context, const uint8_t* at, uint8_t modrm, size_t x, size_t b,
                   Instruction& out) {
  constexpr size_t kNoIndex = 4;
  const uint8_t mod = modrm >> 6;
  uint8_t low = modrm & 7;
  out.has_sib = low == 4;
  out.index = 0;
  if (out.has_sib) {
    const uint8_t sib = *at++;
    const size_t index = (sib >> 3 & 7U) | x << 3;
    if (index != kNoIndex) out.index = general_register(context, index) << (sib >> 6);
    low = sib & 7;
  }
  const bool no_base = mod == 0 && low == 5;
  const size_t displacement_bytes = mod == 1 ? 1 : mod == 2 || no_base ? 4 : 0;
  int32_t displacement = 0;
  if (displacement_bytes == 1) displacement = static_cast<int8_t>(*at);
  if (displacement_bytes == 4) std::memcpy(&displacement, at, 4);
  out.end = at + displacement_bytes;
  intptr_t base = 0;
  if (!no_base) base = general_register(context, low | b << 3);
  if (no_base && !out.has_sib) base = reinterpret_cast<intptr_t>(out.end);  // relative to RIP
  out.base = reinterpret_cast<uint8_t*>(base + displacement);
}

// False where it is none that could be of AMX.
bool decode(const ucontext_t& context, Instruction& out) {
  const auto* at = reinterpret_cast<const uint8_t*>(context.uc_mcontext.gregs[REG_RIP]);
  constexpr uint8_t kVex3 = 0xc4, kMap0F38 = 2;
  if (at[0] != kVex3 || (at[1] & 0x1f) != kMap0F38) return false;
  if ((at[2] & 0x84) != 0) return false;  // W or 256 bits
  const size_t r = at[1] >> 7 ^ 1U, x = (at[1] >> 6 & 1U) ^ 1U, b = (at[1] >> 5 & 1U) ^ 1U;
  out.prefix = static_cast<Prefix>(at[2] & 3);
  out.vvvv = (at[2] >> 3 & 15U) ^ 15U;
  out.opcode = at[3];
  const uint8_t modrm = at[4];
  out.reg = (modrm >> 3 & 7U) | r << 3;
  out.rm = (modrm & 7U) | b << 3;
  out.is_memory = modrm >> 6 != 3;
  out.has_sib = false;
  out.end = at + 5;
  if (out.is_memory) decode_memory(context, at + 5, modrm, x, b, out);
  return true;
}

bool all_zero(const uint8_t* at, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (at[i] != 0) return false;
  }
  return true;
}

void load_configuration(const uint8_t* from) {
  Tiles loaded = {};
  std::memcpy(loaded.config, from, sizeof loaded.config);
  const uint8_t palette = loaded.config[0];
  require(palette <= 1, "LDTILECFG: a palette other than 0 and 1");
  if (palette == 0) {
    tiles = {};
    return;
  }
  require(loaded.config[1] == 0, "LDTILECFG: a start row, which the emulator does not do");
  require(all_zero(loaded.config + 2, kColumnsAt - 2) &&
              all_zero(loaded.config + kColumnsAt + 2 * kTiles, 2 * kTiles) &&
              all_zero(loaded.config + kRowsAt + kTiles, kTiles),
          "LDTILECFG: reserved bytes that are not zero");
  for (size_t t = 0; t < kTiles; ++t) {
    require(loaded.rows(t) <= kMaxRows, "LDTILECFG: a tile of more than 16 rows");
    require(loaded.bytes(t) <= kMaxBytes, "LDTILECFG: a tile of more than 64 bytes a row");
    require((loaded.rows(t) == 0) == (loaded.bytes(t) == 0),
            "LDTILECFG: a tile with rows or columns, but not both");
  }
  loaded.configured = true;
  tiles = loaded;
}

void require_tile(size_t t) {
  require(tiles.configured, "a tile instruction without a configuration");
  require(t < kTiles, "a tile beyond tmm7");
  require(tiles.rows(t) != 0, "a tile that the configuration leaves out");
}

// Rows from base on, `index` bytes apart; what the configuration leaves of the tile becomes zero.
void load_tile(const Instruction& in) {
  require_tile(in.reg);
  Tile loaded = {};
  for (size_t i = 0; i < tiles.rows(in.reg); ++i) {
    std::memcpy(loaded.row[i], in.base + static_cast<intptr_t>(i) * in.index, tiles.bytes(in.reg));
  }
  tiles.tile[in.reg] = loaded;
}

void store_tile(const Instruction& in) {
  require_tile(in.reg);
  for (size_t i = 0; i < tiles.rows(in.reg); ++i) {
    std::memcpy(in.base + static_cast<intptr_t>(i) * in.index, tiles.tile[in.reg].row[i],
                tiles.bytes(in.reg));
  }
}

// C += A * B. The shapes of a product, in tiles of 4-byte elements: C [rows][columns],
// A [rows][depth], B [depth][columns].
struct Product {
  Tile* c;
  const Tile *a, *b;
  size_t rows, columns, depth;
};

Product product_of(const Instruction& in) {
  const size_t c = in.reg, a = in.rm, b = in.vvvv;
  for (const size_t t : {c, a, b}) {
    require_tile(t);
    require(tiles.bytes(t) % 4 == 0, "a product of tiles with part of an element");
  }
  require(c != a && c != b && a != b, "a product with one tile in two places");
  require(tiles.rows(c) == tiles.rows(a), "a product whose C and A differ in rows");
  require(tiles.bytes(c) == tiles.bytes(b), "a product whose C and B differ in columns");
  require(tiles.bytes(a) / 4 == tiles.rows(b), "a product whose A has not the columns of B's rows");
  return {&tiles.tile[c], &tiles.tile[a],     &tiles.tile[b],
          tiles.rows(c),  tiles.bytes(c) / 4, tiles.rows(b)};
}

// What lies outside the shape becomes zero. All 16 columns are computed, since those beyond the
// shape are products with zeros: the loops have fixed ends and become vectors.
template <class Element>
void finish(const Product& p, const Element (&sums)[kMaxRows][kMaxRows]) {
  for (size_t m = 0; m < kMaxRows; ++m) {
    std::memset(p.c->row[m], 0, kMaxBytes);
    if (m < p.rows) std::memcpy(p.c->row[m], sums[m], p.columns * 4);
  }
}

// Four bytes of a row of A with four bytes of each column of B, in 32 bits that wrap.
template <class A, class B>
void multiply_bytes(const Product& p) {
  uint32_t sums[kMaxRows][kMaxRows];
  std::memcpy(sums, p.c->row, sizeof sums);
  for (size_t m = 0; m < p.rows; ++m) {
    for (size_t k = 0; k < p.depth; ++k) {
      for (size_t i = 0; i < 4; ++i) {
        const int32_t a = static_cast<A>(p.a->row[m][4 * k + i]);
        for (size_t n = 0; n < kMaxRows; ++n) {
          const int32_t b = static_cast<B>(p.b->row[k][4 * n + i]);
          sums[m][n] += static_cast<uint32_t>(a * b);
        }
      }
    }
  }
  finish(p, sums);
}

// As the manual's pseudo-code has it, all with DAZ, FTZ and rounding to nearest even, whatever
// MXCSR says. For each row m and column n of C two sums start at +0 and take, for k in order,
//   even = fma(A[m].bf16[2k],     B[k].bf16[2n],     even)
//   odd  = fma(A[m].bf16[2k + 1], B[k].bf16[2n + 1], odd)
// and at the end C[m][n] = C[m][n] + (even + odd).
void multiply_bf16(const Product& p) {
  const FlushDenormals flush;
  float even_b[kMaxRows][kMaxRows], odd_b[kMaxRows][kMaxRows], sums[kMaxRows][kMaxRows];
  const auto widen = [](uint32_t pair, float& even, float& odd) {
    const uint32_t halves[] = {pair << 16, pair & 0xffff0000U};
    std::memcpy(&even, &halves[0], 4);
    std::memcpy(&odd, &halves[1], 4);
  };
  uint32_t pairs[kMaxRows][kMaxRows];
  std::memcpy(pairs, p.b->row, sizeof pairs);
  for (size_t k = 0; k < p.depth; ++k) {
    for (size_t n = 0; n < kMaxRows; ++n) widen(pairs[k][n], even_b[k][n], odd_b[k][n]);
  }
  std::memcpy(pairs, p.a->row, sizeof pairs);
  std::memcpy(sums, p.c->row, sizeof sums);
  for (size_t m = 0; m < p.rows; ++m) {
    float even[kMaxRows] = {}, odd[kMaxRows] = {};
    for (size_t k = 0; k < p.depth; ++k) {
      float even_a = 0, odd_a = 0;
      widen(pairs[m][k], even_a, odd_a);
      for (size_t n = 0; n < kMaxRows; ++n) {
        even[n] = __builtin_fmaf(even_a, even_b[k][n], even[n]);
        odd[n] = __builtin_fmaf(odd_a, odd_b[k][n], odd[n]);
      }
    }
    for (size_t n = 0; n < kMaxRows; ++n) sums[m][n] = sums[m][n] + (even[n] + odd[n]);
  }
  finish(p, sums);
}

// Opcode 49: the configuration and TILEZERO.
bool execute_configuration(const Instruction& in) {
  if (in.vvvv != 0) return false;
  if (in.is_memory) {
    if (in.reg != 0) return false;
    uint8_t* const at = in.base + in.index;
    if (in.prefix == kNone) {
      load_configuration(at);
    } else if (in.prefix == k66) {
      std::memcpy(at, tiles.config, sizeof tiles.config);
    } else {
      return false;
    }
    return true;
  }
  if (in.prefix == kNone && in.reg == 0 && in.rm == 0) {
    tiles = {};
    return true;
  }
  if (in.prefix != kF2 || in.rm != 0) return false;
  require_tile(in.reg);
  tiles.tile[in.reg] = {};
  return true;
}

// False where it is no instruction of AMX.
bool execute(const Instruction& in) {
  constexpr uint8_t kConfiguration = 0x49, kMemory = 0x4b, kBf16 = 0x5c, kInt8 = 0x5e;
  if (in.opcode == kConfiguration) return execute_configuration(in);
  if (in.opcode == kMemory) {
    if (!in.is_memory || !in.has_sib || in.vvvv != 0 || in.prefix == kNone) return false;
    in.prefix == kF3 ? store_tile(in) : load_tile(in);
    return true;
  }
  if (in.is_memory) return false;
  if (in.opcode == kBf16 && in.prefix == kF3) {
    multiply_bf16(product_of(in));
    return true;
  }
  if (in.opcode != kInt8) return false;
  const Product product = product_of(in);
  switch (in.prefix) {
    case kNone:
      multiply_bytes<uint8_t, uint8_t>(product);
      break;
    case k66:
      multiply_bytes<uint8_t, int8_t>(product);
      break;
    case kF3:
      multiply_bytes<int8_t, uint8_t>(product);
      break;
    case kF2:
      multiply_bytes<int8_t, int8_t>(product);
      break;
  }
  return true;
}

void on_illegal_instruction(int, siginfo_t*, void* where) {
  auto& context = *static_cast<ucontext_t*>(where);
  Instruction in = {};
  if (!decode(context, in) || !execute(in)) {
    // Returning executes it again.
    (void)signal(SIGILL, SIG_DFL);
    return;
  }
  executed.fetch_add(1, std::memory_order_relaxed);
  context.uc_mcontext.gregs[REG_RIP] = reinterpret_cast<greg_t>(in.end);
}

}  // namespace

void emulate_amx() {
  struct sigaction action = {};
  action.sa_sigaction = on_illegal_instruction;
  action.sa_flags = SA_SIGINFO;
  require(sigaction(SIGILL, &action, nullptr) == 0, "sigaction failed");
}

uint64_t emulated_amx_instructions() {
  return executed.load(std::memory_order_relaxed);
}

}  // namespace skein
