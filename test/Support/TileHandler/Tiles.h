//===- Tiles.h - AMX instructions in software ---------------------*- C++ -*-===//
//
// Decodes and executes the instructions of AMX-TILE, AMX-BF16 and AMX-INT8 (Intel SDM vol. 2, chapter 3 and 4; vol. 1,
// chapter 18), and checks more than a processor does. Every failed check is a mistake of the compiler.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_TEST_SUPPORT_TILEHANDLER_TILES_H
#define SACCADE_TEST_SUPPORT_TILEHANDLER_TILES_H

#include <cstdint>
#include <optional>

namespace tilehandler {

enum class Op : uint8_t {
  LoadConfig,  ///< ldtilecfg
  StoreConfig, ///< sttilecfg
  Release,     ///< tilerelease
  Zero,        ///< tilezero
  Load,        ///< tileloadd, tileloaddt1
  Store,       ///< tilestored
  DotBF16,     ///< tdpbf16ps
  DotSSD,      ///< tdpbssd, and below tdpbsud, tdpbusd, tdpbuud: signed (S) or unsigned (U) bytes
  DotSUD,
  DotUSD,
  DotUUD,
};
inline constexpr unsigned numOps = 11, numTiles = 8, maxRows = 16, maxRowBytes = 64, configBytes = 64;

const char *nameOf(Op op);

/// A decoded instruction.
struct Instruction {
  Op op;
  unsigned bytes;          ///< its length
  unsigned dest, lhs, rhs; ///< tile registers; a load, a store and tilezero have `dest` only
  uintptr_t address;       ///< of the first row, or of the configuration
  intptr_t stride;         ///< bytes between rows
};

/// Decodes the instruction at `code`, which executes with these general registers (in the order of their encoding).
/// Ignores VEX.W, which is 0 in tile instructions; with 1 they are undefined on every processor. Returns nothing for
/// any other instruction.
std::optional<Instruction> decode(const uint8_t *code, const uint64_t (&registers)[16]);

/// The registers of a thread.
class TileUnit {
public:
  /// Executes an instruction. Returns nullptr, or what is wrong with it, and then changes nothing. The text is valid
  /// until the next call. A row that cannot be accessed raises SIGSEGV; `row` is its number.
  const char *execute(const Instruction &instruction);

  bool isConfigured() const { return config[0] != 0; }
  uint64_t count(Op op) const { return counts[unsigned(op)]; }
  /// Registers that a configuration gave less than 16 rows of 64 bytes.
  uint64_t partialTiles() const { return partials; }

  unsigned row = 0;

private:
  struct Tile {
    alignas(64) uint8_t bytes[maxRows][maxRowBytes];
  };

  unsigned rows(unsigned tile) const { return config[48 + tile]; }
  unsigned rowBytes(unsigned tile) const { return config[16 + 2 * tile] | config[17 + 2 * tile] << 8; }
  const char *loadConfig(const uint8_t *memory);
  const char *checkOperands(const Instruction &instruction);
  const char *checkDot(const Instruction &instruction);
  void dot(const Instruction &instruction);
  __attribute__((format(printf, 2, 3))) const char *fail(const char *format, ...);

  Tile tiles[numTiles] = {};
  uint8_t config[configBytes] = {};
  bool isWritten[numTiles] = {}; ///< since the registers were configured
  uint64_t counts[numOps] = {}, partials = 0;
  char message[160];
};

} // namespace tilehandler

#endif // SACCADE_TEST_SUPPORT_TILEHANDLER_TILES_H
