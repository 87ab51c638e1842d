//===- Handler.h - A signal handler that executes instructions ----*- C++ -*-===//
#ifndef SACCADE_TEST_SUPPORT_TILEHANDLER_HANDLER_H
#define SACCADE_TEST_SUPPORT_TILEHANDLER_HANDLER_H

#include "Tiles.h"

namespace tilehandler {

/// Installs handlers of SIGILL and SIGSEGV for the process. Tile instructions and vpdpbssd that the processor does not
/// execute are executed in software, by the registers of the thread. A mistake with tiles ends the process with
/// `exitCode` and a message. So does a thread whose tile registers are configured when the process exits; lines with
/// counts are then written to stderr.
void install();

/// The registers of this thread.
TileUnit &ownTiles();

inline constexpr int exitCode = 70;

/// What replaces the first byte, 0F, of CPUID and XGETBV for other processors: an undefined instruction, for which the
/// handler reports AMX and AVX-VNNI-INT8 too.
inline constexpr uint8_t replacedFirstByte = 0x06;

} // namespace tilehandler

#endif // SACCADE_TEST_SUPPORT_TILEHANDLER_HANDLER_H
