//===- MatrixMove.cpp - ldmatrix, stmatrix, movmatrix ---------------------===//
//
// Matrices have 8 x 8 elements of 16 bits. Lane L holds elements 2(L % 4) and 2(L % 4) + 1 of row L / 4, or with .trans
// of column L / 4. Lane 8m + r provides the address of row r of matrix m.
//
//===----------------------------------------------------------------------===//

#include "Block.h"
#include "MemoryDecode.h"
#include "TypeDispatch.h"
#include <algorithm>

using namespace saccade::ptxsim;

namespace {

bool wholeWarp(Warp &warp, uint32_t mask) {
  if (mask == ~uint32_t(0))
    return true;
  warp.fail(FindingKind::Divergence,
            "only " + llvm::Twine(__builtin_popcount(mask)) + " of 32 lanes reach the instruction");
  return false;
}

/// Memory of the rows, from the lanes that provide addresses. Numbers: space, access, matrices, transposed.
bool rowPlaces(Warp &warp, const Op &op, Place places[32]) {
  uint32_t matrices = op.numbers[2], addressing = matrices == 4 ? ~uint32_t(0) : (uint32_t(1) << (8 * matrices)) - 1;
  if (!warp.requireDefined(op.input(0), addressing, "the address of a matrix row"))
    return false;
  uint64_t addresses[32];
  laneAddresses(warp, op, op.input(0), addressing, addresses);
  return warp.resolve({Space(op.numbers[0]), 16, 16, Access(op.numbers[1])}, addresses, addressing, places);
}

/// Row and column of an element of a lane's register.
struct Position {
  unsigned row, column;
};
Position position(unsigned lane, unsigned element, bool transposed) {
  unsigned along = 2 * (lane % 4) + element, across = lane / 4;
  return transposed ? Position{along, across} : Position{across, along};
}

void loadMatrix(Warp &warp, const Op &op, uint32_t mask) {
  Place places[32];
  if (!wholeWarp(warp, mask) || !rowPlaces(warp, op, places))
    return;
  bool transposed = op.numbers[3];
  for (unsigned matrix = 0; matrix < op.numbers[2]; ++matrix) {
    uint32_t *result = warp.row<uint32_t>(op.result(matrix)), undefined = 0;
    bool someUndefined = false;
    for (unsigned row = 0; row < 8; ++row) {
      someUndefined |= anyUndefined(places[8 * matrix + row].states, 16);
    }
    for (unsigned lane = 0; lane < 32; ++lane) {
      uint16_t halves[2];
      for (unsigned element = 0; element < 2; ++element) {
        Position at = position(lane, element, transposed);
        const Place &place = places[8 * matrix + at.row];
        std::memcpy(&halves[element], place.bytes + 2 * at.column, 2);
        if (someUndefined && (place.states[2 * at.column] == ByteState::Undefined ||
                              place.states[2 * at.column + 1] == ByteState::Undefined))
          undefined |= uint32_t(1) << lane;
      }
      result[lane] = uint32_t(halves[1]) << 16 | halves[0];
    }
    if (undefined)
      warp.undefinedOrigin = op.line;
    warp.setUndefined(op.result(matrix), undefined, mask);
  }
}

void storeMatrix(Warp &warp, const Op &op, uint32_t mask) {
  Place places[32];
  if (!wholeWarp(warp, mask) || !rowPlaces(warp, op, places))
    return;
  for (unsigned matrix = 0; matrix < op.numbers[2]; ++matrix) {
    Slot slot = op.input(1 + matrix);
    const uint32_t *values = warp.row<uint32_t>(slot);
    for (unsigned lane = 0; lane < 32; ++lane)
      for (unsigned element = 0; element < 2; ++element) {
        Position at = position(lane, element, op.numbers[3]);
        const Place &place = places[8 * matrix + at.row];
        uint16_t half = uint16_t(values[lane] >> (16 * element));
        std::memcpy(place.bytes + 2 * at.column, &half, 2);
        bool undefined = warp.undefined(slot) >> lane & 1;
        std::fill_n(place.states + 2 * at.column, 2, undefined ? ByteState::Undefined : ByteState::WrittenByLaunch);
      }
  }
}

/// movmatrix.trans: transposes a fragment across the lanes.
void moveMatrix(Warp &warp, const Op &op, uint32_t mask) {
  if (!wholeWarp(warp, mask))
    return;
  const uint32_t *from = warp.row<uint32_t>(op.input(0));
  uint16_t matrix[8][8];
  uint32_t values[32], undefined = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    for (unsigned element = 0; element < 2; ++element)
      matrix[lane / 4][2 * (lane % 4) + element] = uint16_t(from[lane] >> (16 * element));
  for (unsigned lane = 0; lane < 32; ++lane) {
    unsigned row = 2 * (lane % 4), column = lane / 4;
    values[lane] = uint32_t(matrix[row + 1][column]) << 16 | matrix[row][column];
    for (unsigned source : {row, row + 1})
      undefined |= (warp.undefined(op.input(0)) >> (4 * source + column / 2) & 1) << lane;
  }
  assign(warp.row<uint32_t>(op.result(0)), values, mask);
  warp.setUndefined(op.result(0), undefined, mask);
}

bool takeShape(Decoder &d) {
  return (d.take("sync") && d.take("aligned") && d.take("m8n8")) || d.fail("expected .sync.aligned.m8n8");
}

bool decodeTransfer(Decoder &d, bool loads) {
  if (!takeShape(d))
    return false;
  int count = d.takeOneOf({"x1", "x2", "x4"});
  bool transposed = d.take("trans");
  Space space = takeSpace(d).value_or(Space::Generic);
  if (count < 0 || (space != Space::Shared && space != Space::Generic) || d.type() != Type::B16 || !d.expectOperands(2))
    return d.fail("expected .x1, .x2 or .x4 of .b16 in shared memory");
  unsigned matrices = 1 << count;
  const Operand &values = d.at(loads ? 0 : 1);
  std::vector<Operand> parts = values.kind == Operand::Vector ? values.parts : std::vector<Operand>{values};
  if (parts.size() != matrices)
    return d.fail("expected " + llvm::Twine(matrices) + " registers");
  if (loads)
    for (const Operand &part : parts)
      d.result(part, Type::B32);
  space = d.address(d.at(loads ? 1 : 0), space);
  if (!loads)
    for (const Operand &part : parts)
      d.input(part, Type::B32);
  d.op.numbers[0] = uint32_t(space);
  d.op.numbers[1] = uint32_t(loads ? Access::Read : Access::Write);
  d.op.numbers[2] = matrices;
  d.op.numbers[3] = transposed;
  d.op.tracksUndefined = true;
  return d.emit(loads ? loadMatrix : storeMatrix);
}

bool decodeLoadMatrix(Decoder &d) { return decodeTransfer(d, true); }
bool decodeStoreMatrix(Decoder &d) { return decodeTransfer(d, false); }

bool decodeMoveMatrix(Decoder &d) {
  if (!takeShape(d) || !d.take("trans"))
    return d.fail("expected .trans");
  if (d.type() != Type::B16 || !d.expectOperands(2))
    return d.fail("expected .b16");
  d.result(d.at(0), Type::B32);
  d.input(d.at(1), Type::B32);
  d.op.tracksUndefined = true;
  return d.emit(moveMatrix);
}

} // namespace

void saccade::ptxsim::addMatrixMoveInstructions(InstructionTable &table) {
  table.add("ldmatrix", TypeClass::Any, decodeLoadMatrix);
  table.add("stmatrix", TypeClass::Any, decodeStoreMatrix);
  table.add("movmatrix", TypeClass::Any, decodeMoveMatrix);
}
