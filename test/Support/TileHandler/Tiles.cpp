//===- Tiles.cpp - AMX instructions in software --------------------------------===//
//
// Sums of tdpbf16ps are computed by instructions of AVX2 and FMA that round to nearest and treat subnormal operands and
// results as 0, as the SDM describes it.
//
//===----------------------------------------------------------------------===//
#include "Tiles.h"
#include "Vex.h"
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <immintrin.h>

using namespace tilehandler;

const char *tilehandler::nameOf(Op op) {
  static constexpr const char *names[numOps] = {"ldtilecfg", "sttilecfg",  "tilerelease", "tilezero",
                                                "tileloadd", "tilestored", "tdpbf16ps",   "tdpbssd",
                                                "tdpbsud",   "tdpbusd",    "tdpbuud"};
  return names[unsigned(op)];
}

//===----------------------------------------------------------------------===//
// Decoding
//===----------------------------------------------------------------------===//

static std::optional<Op> opOf(const Encoding &e) {
  if (!e.isMap2 || e.isWide)
    return std::nullopt;
  if (e.opcode == 0x5c && !e.isMemory() && e.prefix == 2)
    return Op::DotBF16;
  if (e.opcode == 0x5e && !e.isMemory()) {
    static constexpr Op ops[] = {Op::DotUUD, Op::DotUSD, Op::DotSUD, Op::DotSSD};
    return ops[e.prefix];
  }
  if (e.vvvv != 0)
    return std::nullopt;
  if (e.opcode == 0x4b && e.isMemory() && e.rm == 4 && e.prefix != 0)
    return e.prefix == 2 ? Op::Store : Op::Load;
  if (e.opcode != 0x49)
    return std::nullopt;
  if (e.isMemory() && e.reg == 0 && e.prefix < 2)
    return e.prefix == 0 ? Op::LoadConfig : Op::StoreConfig;
  if (!e.isMemory() && e.rm == 0 && e.prefix == 3)
    return Op::Zero;
  if (!e.isMemory() && e.rm == 0 && e.reg == 0 && e.prefix == 0)
    return Op::Release;
  return std::nullopt;
}

std::optional<Instruction> tilehandler::decode(const uint8_t *code, const uint64_t (&registers)[16]) {
  if (code[0] != 0xc4)
    return std::nullopt;
  Encoding e(code);
  std::optional<Op> op = opOf(e);
  if (!op)
    return std::nullopt;
  Instruction result = {*op, bytesOfRegisterForm, e.reg, e.rm, e.vvvv, 0, 0};
  if (!e.isMemory())
    return result;
  MemoryOperand operand = memoryOperand(code, e, registers);
  result.bytes = operand.bytes, result.address = operand.address, result.stride = operand.index;
  if (*op == Op::LoadConfig || *op == Op::StoreConfig) {
    result.address += uintptr_t(result.stride);
    result.stride = 0;
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Execution
//===----------------------------------------------------------------------===//

const char *TileUnit::fail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof(message), format, arguments);
  va_end(arguments);
  return message;
}

const char *TileUnit::loadConfig(const uint8_t *memory) {
  uint8_t loaded[configBytes];
  memcpy(loaded, memory, sizeof(loaded));
  if (loaded[0] != 1)
    return fail("palette %u, expected 1", loaded[0]);
  if (loaded[1] != 0)
    return fail("start row %u, expected 0", loaded[1]);
  for (unsigned at = 2; at < configBytes; ++at) {
    bool isField = (at >= 16 && at < 16 + 2 * numTiles) || (at >= 48 && at < 48 + numTiles);
    if (!isField && loaded[at] != 0)
      return fail("reserved byte %u of the configuration is %u, expected 0", at, loaded[at]);
  }
  for (unsigned tile = 0; tile < numTiles; ++tile) {
    unsigned height = loaded[48 + tile], width = loaded[16 + 2 * tile] | loaded[17 + 2 * tile] << 8;
    if (height > maxRows || width > maxRowBytes || (height == 0) != (width == 0))
      return fail("tmm%u with %u rows of %u bytes, expected at most 16 of 64, and both or none 0", tile, height, width);
  }
  memcpy(config, loaded, sizeof(config));
  memset(tiles, 0, sizeof(tiles));
  memset(isWritten, 0, sizeof(isWritten));
  for (unsigned tile = 0; tile < numTiles; ++tile)
    partials += rows(tile) != 0 && (rows(tile) != maxRows || rowBytes(tile) != maxRowBytes);
  return nullptr;
}

const char *TileUnit::checkOperands(const Instruction &instruction) {
  if (!isConfigured())
    return fail("the tile registers are not configured");
  bool isDot = instruction.op >= Op::DotBF16;
  for (unsigned tile :
       {instruction.dest, isDot ? instruction.lhs : instruction.dest, isDot ? instruction.rhs : instruction.dest}) {
    if (tile >= numTiles)
      return fail("there is no tmm%u", tile);
    if (rows(tile) == 0)
      return fail("tmm%u is not configured", tile);
    if ((isDot || instruction.op == Op::Store) && !isWritten[tile])
      return fail("tmm%u was not written since ldtilecfg", tile);
  }
  if (instruction.op == Op::Store && rows(instruction.dest) > 1 &&
      uint64_t(instruction.stride < 0 ? -instruction.stride : instruction.stride) < rowBytes(instruction.dest))
    return fail("rows of %u bytes are stored %td bytes apart", rowBytes(instruction.dest), instruction.stride);
  return isDot ? checkDot(instruction) : nullptr;
}

const char *TileUnit::checkDot(const Instruction &instruction) {
  unsigned dest = instruction.dest, lhs = instruction.lhs, rhs = instruction.rhs;
  if (dest == lhs || dest == rhs || lhs == rhs)
    return fail("tmm%u, tmm%u and tmm%u are not three registers", dest, lhs, rhs);
  if (rowBytes(dest) % 4 != 0 || rowBytes(lhs) % 4 != 0 || rowBytes(rhs) % 4 != 0)
    return fail("rows are not a multiple of 4 bytes");
  if (rows(dest) != rows(lhs) || rowBytes(lhs) / 4 != rows(rhs) || rowBytes(dest) != rowBytes(rhs))
    return fail("%u rows of %u bytes += %u of %u * %u of %u: the shapes differ", rows(dest), rowBytes(dest), rows(lhs),
                rowBytes(lhs), rows(rhs), rowBytes(rhs));
  return nullptr;
}

const char *TileUnit::execute(const Instruction &instruction) {
  auto *memory = reinterpret_cast<uint8_t *>(instruction.address);
  auto [op, bytes, dest, lhs, rhs, address, stride] = instruction;
  row = 0;
  switch (op) {
  case Op::LoadConfig:
    if (const char *wrong = loadConfig(memory))
      return wrong;
    break;
  case Op::StoreConfig:
    memcpy(memory, config, sizeof(config));
    break;
  case Op::Release:
    memset(config, 0, sizeof(config));
    break;
  default:
    if (const char *wrong = checkOperands(instruction))
      return wrong;
    if (op == Op::Store) {
      for (row = 0; row < rows(dest); ++row)
        memcpy(memory + intptr_t(row) * stride, tiles[dest].bytes[row], rowBytes(dest));
      break;
    }
    isWritten[dest] = true;
    if (op >= Op::DotBF16) {
      dot(instruction);
      break;
    }
    memset(&tiles[dest], 0, sizeof(Tile));
    if (op == Op::Load)
      for (row = 0; row < rows(dest); ++row)
        memcpy(tiles[dest].bytes[row], memory + intptr_t(row) * stride, rowBytes(dest));
  }
  ++counts[unsigned(op)];
  return nullptr;
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// Adds the products of a row of `kPacks` pairs of bf16 with the rows of `rhs` to the 16 sums of `dest`: those of even
/// elements from 0 on, those of odd ones, then both.
__attribute__((target("avx2,fma"), noinline)) static void
dotRowBF16(uint8_t *dest, const uint8_t *lhs, const uint8_t (*rhs)[maxRowBytes], unsigned kPacks) {
  const __m256i high = _mm256_set1_epi32(int32_t(0xffff0000));
  for (unsigned column = 0; column < maxRowBytes; column += 32) {
    __m256 even = _mm256_setzero_ps(), odd = _mm256_setzero_ps();
    for (unsigned k = 0; k < kPacks; ++k) {
      int32_t pair;
      memcpy(&pair, lhs + 4 * k, sizeof(pair));
      __m256i x = _mm256_set1_epi32(pair);
      __m256i y = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(rhs[k] + column));
      even = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_slli_epi32(x, 16)),
                             _mm256_castsi256_ps(_mm256_slli_epi32(y, 16)), even);
      odd = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_and_si256(x, high)),
                            _mm256_castsi256_ps(_mm256_and_si256(y, high)), odd);
    }
    auto *sums = reinterpret_cast<float *>(dest + column);
    _mm256_storeu_ps(sums, _mm256_add_ps(_mm256_loadu_ps(sums), _mm256_add_ps(even, odd)));
  }
}

/// The same with four bytes in the place of two bf16, and sums of 32 bits that wrap around.
static void dotRowInt8(uint8_t *dest, const uint8_t *lhs, const uint8_t (*rhs)[maxRowBytes], unsigned kPacks,
                       bool isSignedLHS, bool isSignedRHS) {
  auto widen = [](uint8_t byte, bool isSigned) { return uint32_t(isSigned ? int8_t(byte) : int32_t(byte)); };
  for (unsigned column = 0; column < maxRowBytes; column += 4) {
    uint32_t sum;
    memcpy(&sum, dest + column, sizeof(sum));
    for (unsigned k = 0; k < kPacks; ++k)
      for (unsigned i = 0; i < 4; ++i)
        sum += widen(lhs[4 * k + i], isSignedLHS) * widen(rhs[k][column + i], isSignedRHS);
    memcpy(dest + column, &sum, sizeof(sum));
  }
}

void TileUnit::dot(const Instruction &instruction) {
  Tile &dest = tiles[instruction.dest];
  const Tile &lhs = tiles[instruction.lhs], &rhs = tiles[instruction.rhs];
  unsigned kPacks = rows(instruction.rhs), height = rows(instruction.dest), width = rowBytes(instruction.dest);
  constexpr unsigned roundToNearest = 0x1f80, flushSubnormals = 0x8040; // without exceptions
  unsigned before = _mm_getcsr();
  _mm_setcsr(roundToNearest | flushSubnormals);
  Op op = instruction.op;
  for (unsigned i = 0; i < height; ++i) {
    if (op == Op::DotBF16)
      dotRowBF16(dest.bytes[i], lhs.bytes[i], rhs.bytes, kPacks);
    else
      dotRowInt8(dest.bytes[i], lhs.bytes[i], rhs.bytes, kPacks, op == Op::DotSSD || op == Op::DotSUD,
                 op == Op::DotSSD || op == Op::DotUSD);
    memset(dest.bytes[i] + width, 0, maxRowBytes - width);
  }
  _mm_setcsr(before);
}
