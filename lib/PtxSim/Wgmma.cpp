//===- Wgmma.cpp - wgmma.mma_async ----------------------------------------===//
//
// The product of a warpgroup is that of its four warps with 16 rows each, and a warp's is made of products of 16 x 8
// with the fragments of `mma`. It is computed when the last warp arrives; using a register before the wait is an error.
// Operands in shared memory are addressed in units of 16 bytes (PTX ISA, "Matrix descriptor").
//
//===----------------------------------------------------------------------===//

#include "Block.h"
#include "Decoder.h"
#include "Fragments.h"
#include "MatrixProduct.h"
#include "MemoryDecode.h"
#include "TensorBox.h"

using namespace saccade::ptxsim;

namespace {

constexpr unsigned rowsOfA = 64, maxColumns = 256;

/// Numbers: type of A | type of B << 8, columns, flags.
enum : uint32_t { inRegisters = 1, negatesA = 2, negatesB = 4, transposesA = 8, transposesB = 16 };

unsigned bitsOf(Type type) { return 8 * bytesOf(type); }

/// A matrix descriptor.
struct Descriptor {
  uint32_t start, leading, stride; ///< in bytes
  TensorSwizzle swizzle;

  /// Offset in bytes, to be added to `start` before swizzling, of a unit of 16 bytes. `outer` is the row of A or column
  /// of B; the unit has the elements from `outer` on (transposed) or from `k` on.
  uint32_t offset(unsigned outer, unsigned k, unsigned elementBytes, bool transposed) const {
    unsigned each = 16 / elementBytes;
    if (swizzle == TensorSwizzle::None)
      return transposed ? outer / each * stride + k % 8 * 16 + k / 8 * leading
                        : outer % 8 * 16 + outer / 8 * stride + k / each * leading;
    unsigned span = swizzleSpan(swizzle), width = span / elementBytes;
    return transposed ? outer % width * elementBytes + outer / width * leading + k % 8 * span + k / 8 * stride
                      : outer % 8 * span + outer / 8 * stride + k * elementBytes;
  }
};

std::optional<Descriptor> decodeDescriptor(Warp &warp, uint64_t bits) {
  auto wrong = [&](FindingKind kind, const llvm::Twine &message) {
    warp.fail(kind, message + " in the matrix descriptor 0x" + llvm::Twine::utohexstr(bits));
    return std::nullopt;
  };
  auto field = [&](unsigned first) { return uint32_t(bits >> first & 0x3fff) << 4; };
  constexpr TensorSwizzle swizzles[] = {TensorSwizzle::None, TensorSwizzle::Bytes128, TensorSwizzle::Bytes64,
                                        TensorSwizzle::Bytes32};
  Descriptor descriptor{field(0), field(16), field(32), swizzles[bits >> 62]};
  constexpr uint64_t known = 0xc000'3fff'3fff'3fff;
  if (bits & ~known)
    return wrong(FindingKind::BadOperand, "found a base offset or reserved bits, expected 0");
  uint32_t span = swizzleSpan(descriptor.swizzle);
  if (descriptor.swizzle != TensorSwizzle::None && descriptor.start % (8 * span) >= span)
    return wrong(FindingKind::Misaligned, "the first row of the matrix is not the first row of a swizzle pattern");
  return descriptor;
}

/// One wgmma.mma_async of a warpgroup.
struct Multiplication {
  /// `first` is the first warp of the group.
  Multiplication(Block &block, const Op &op, uint32_t first, uint32_t agent)
      : block(block), op(op), typeA(Type(op.numbers[0] & 0xff)), typeB(Type(op.numbers[0] >> 8)),
        k(32 / bytesOf(typeA)), columns(op.numbers[1]), flags(op.numbers[2]) {
    for (unsigned part = 0; part < Warpgroup::size; ++part)
      warps[part] = block.warps[first + part].get();
    operation = {agent, warps[0]->matrices.group, op.line};
  }

  Block &block;
  const Op &op;
  Warp *warps[Warpgroup::size];
  Type typeA, typeB;
  unsigned k, columns;
  uint32_t flags;
  AsyncOperation operation;
  float a[rowsOfA][Matrices::maxK], b[Matrices::maxK][maxColumns];

  bool check();
  template <typename Set> bool gather(Type type, uint64_t bits, unsigned extent, bool transposed, bool isA, Set set);
  bool gatherOperands();
  void multiplyRows(unsigned part);
  Slot input(unsigned index) const { return op.input(index); }
};

/// Checks the registers of the warps, and that the warps agree.
bool Multiplication::check() {
  MatrixOperands operands = matrixOperands(op);
  unsigned firstDescriptor = operands.registersOfA, numDescriptors = flags & inRegisters ? 1 : 2;
  Slot scale = input(operands.registersOfA + numDescriptors);
  for (Warp *warp : warps) {
    auto fail = [&](FindingKind kind, const llvm::Twine &message) {
      warp->fail(kind, message);
      return false;
    };
    MatrixRegisters &matrices = warp->matrices;
    for (unsigned index = 0; index < numDescriptors; ++index) {
      if (!warp->requireDefined(input(firstDescriptor + index), ~uint32_t(0), "a matrix descriptor"))
        return false;
      const uint64_t *row = warp->row<uint64_t>(input(firstDescriptor + index));
      for (unsigned lane = 0; lane < 32; ++lane)
        if (row[lane] != warps[0]->row<uint64_t>(input(firstDescriptor + index))[0])
          return fail(FindingKind::BadOperand, "the matrix descriptor differs between lanes");
    }
    if (!warp->requireDefined(scale, ~uint32_t(0), "scale-d"))
      return false;
    uint32_t scales = warp->predicate(scale);
    if (scales != (warps[0]->predicate(scale) & 1 ? ~uint32_t(0) : 0))
      return fail(FindingKind::BadOperand, "scale-d differs between lanes");
    if (matrices.group != warps[0]->matrices.group)
      return fail(FindingKind::Divergence, "the warps of the warpgroup have committed different numbers of groups");
    if (!matrices.fences)
      return fail(FindingKind::Race, "no wgmma.fence comes before");
    auto checkRegister = [&](Slot slot, bool isResult) {
      MatrixRegisters::Register &one = matrices.registers[slot.number];
      if (one.touched > matrices.fences)
        return fail(FindingKind::Race, llvm::Twine("a register of ") + (isResult ? "the sums" : "operand A") +
                                           " was used since the last wgmma.fence");
      if (isResult ? one.operands != 0 : one.results != 0)
        return fail(FindingKind::Race, "a register is both operand A and a sum of operations that are under way");
      if (isResult && one.last && one.last->numbers[1] != op.numbers[1] && one.lastFences == matrices.fences)
        return fail(FindingKind::Race, "a register of the sums was used by a wgmma of another shape since the last "
                                       "wgmma.fence");
      return isResult && !scales ? true : warp->requireDefined(slot, ~uint32_t(0), "an operand");
    };
    for (unsigned index = 0; index < operands.results; ++index)
      if (!checkRegister(op.result(index), true))
        return false;
    for (unsigned index = 0; index < operands.registersOfA; ++index)
      if (!checkRegister(input(index), false))
        return false;
  }
  return true;
}

/// Reads a matrix of `extent` x k from shared memory; calls set(outer, k, value). The rows of A belong to warps.
template <typename Set>
bool Multiplication::gather(Type type, uint64_t bits, unsigned extent, bool transposed, bool isA, Set set) {
  auto descriptor = decodeDescriptor(*warps[0], bits);
  if (!descriptor)
    return false;
  unsigned bytes = bytesOf(type), each = 16 / bytes, stepOuter = transposed ? each : 1, stepK = transposed ? 1 : each;
  bool isChecked = block.launch.checkRaces;
  for (unsigned outer = 0; outer < extent; outer += stepOuter)
    for (unsigned first = 0; first < k; first += stepK) {
      uint32_t address =
          swizzled(descriptor->start + descriptor->offset(outer, first, bytes, transposed), descriptor->swizzle);
      uint32_t offset = address - sharedStart;
      if (address < sharedStart || offset + 16 > block.shared.size()) {
        warps[0]->fail(FindingKind::OutOfBounds,
                       "16 bytes at 0x" + llvm::Twine::utohexstr(address) + " of shared memory, which has " +
                           llvm::Twine(block.shared.size()) + " bytes from 0x" + llvm::Twine::utohexstr(sharedStart) +
                           ", are part of operand " + (isA ? "A" : "B"));
        return false;
      }
      if (isChecked) {
        for (unsigned part = 0; part < Warpgroup::size; ++part)
          if ((!isA || part == outer / 16) && !warps[part]->checkAsync(offset, 32, /*isWrite=*/false))
            return false;
        block.asyncShadow.recordRead(offset, operation);
      }
      if (anyUndefined(block.sharedStates.data() + offset, 16)) {
        warps[0]->fail(FindingKind::Uninitialised, llvm::Twine("operand ") + (isA ? "A" : "B") +
                                                       " has undefined bytes at 0x" + llvm::Twine::utohexstr(address) +
                                                       " of shared memory");
        return false;
      }
      uint8_t unit[16];
      std::memcpy(unit, block.shared.data() + offset, 16);
      forOperandType(type, [&]<Type element>() {
        for (unsigned index = 0; index < each; ++index) {
          uint32_t value = bytesOf(element) == 2 ? unit[2 * index] | unit[2 * index + 1] << 8 : unit[index];
          set(outer + (transposed ? index : 0), first + (transposed ? 0 : index), elementValue<element>(value));
        }
      });
    }
  return true;
}

bool Multiplication::gatherOperands() {
  MatrixOperands operands = matrixOperands(op);
  float signA = flags & negatesA ? -1 : 1, signB = flags & negatesB ? -1 : 1;
  auto descriptor = [&](unsigned index) { return warps[0]->row<uint64_t>(input(operands.registersOfA + index))[0]; };
  if (!gather(typeB, descriptor(flags & inRegisters ? 0 : 1), columns, flags & transposesB, false,
              [&](unsigned column, unsigned row, float value) { b[row][column] = signB * value; }))
    return false;
  if (!(flags & inRegisters))
    return gather(typeA, descriptor(0), rowsOfA, flags & transposesA, true,
                  [&](unsigned row, unsigned column, float value) { a[row][column] = signA * value; });
  unsigned bits = bitsOf(typeA), each = 32 / bits;
  forOperandType(typeA, [&]<Type element>() {
    for (unsigned part = 0; part < Warpgroup::size; ++part)
      for (unsigned i = 0; i < operands.registersOfA * each; ++i)
        for (unsigned lane = 0; lane < 32; ++lane) {
          Element at = elementOfA(bits, lane, i);
          uint32_t value = warps[part]->row<uint32_t>(input(i / each))[lane] >> (i % each * bits);
          a[16 * part + at.row][at.column] = signA * elementValue<element>(value);
        }
  });
  return true;
}

/// Sums of one warp.
void Multiplication::multiplyRows(unsigned part) {
  Warp &warp = *warps[part];
  MatrixOperands operands = matrixOperands(op);
  bool accumulates = warp.predicate(input(op.inputs - 1)) & 1;
  // The model of MMA-Sim for sm_90: 8-bit operands keep 13 bits of fraction.
  bool isNarrow = bytesOf(typeA) == 1;
  TensorCore core{k, isNarrow ? 13 : 25, minExponentOf(typeA), false, isNarrow ? 13 : 23};
  core.minExponent = std::min(core.minExponent, minExponentOf(typeB));
  Matrices m;
  m.k = k;
  for (unsigned row = 0; row < Matrices::rows; ++row)
    std::memcpy(m.a[row], a[16 * part + row], sizeof(m.a[row]));
  for (unsigned first = 0; first < operands.results; first += 4) {
    for (unsigned row = 0; row < k; ++row)
      std::memcpy(m.b[row], &b[row][2 * first], sizeof(m.b[row]));
    for (unsigned i = 0; i < 4; ++i)
      for (unsigned lane = 0; lane < 32; ++lane) {
        Element at = elementOfC(lane, i);
        m.c[at.row][at.column] = accumulates ? warp.row<float>(op.result(first + i))[lane] : 0;
      }
    multiply(m, block.launch.mma, core);
    for (unsigned i = 0; i < 4; ++i)
      for (unsigned lane = 0; lane < 32; ++lane) {
        Element at = elementOfC(lane, i);
        warp.row<float>(op.result(first + i))[lane] = canonical(m.c[at.row][at.column]);
      }
  }
}

void multiplyMatrices(Warp &warp, const Op &op, uint32_t mask) {
  if (!meet(warp, op, mask))
    return;
  Block &block = warp.block;
  Warpgroup &group = block.warpgroups[warp.id / Warpgroup::size];
  if (!group.agent)
    group.agent = block.asyncShadow.addAgent("wgmma");
  Multiplication m(block, op, warp.id / Warpgroup::size * Warpgroup::size, group.agent);
  if (!m.check() || !m.gatherOperands())
    return;
  MatrixOperands operands = matrixOperands(op);
  for (unsigned part = 0; part < Warpgroup::size; ++part) {
    m.multiplyRows(part);
    MatrixRegisters &matrices = m.warps[part]->matrices;
    matrices.operations.push_back({&op, matrices.group});
    for (unsigned index = 0; index < operands.results; ++index) {
      MatrixRegisters::Register &one = matrices.registers[op.result(index).number];
      ++one.results;
      one.last = &op, one.lastFences = matrices.fences;
      m.warps[part]->setUndefined(op.result(index), 0, ~uint32_t(0));
    }
    for (unsigned index = 0; index < operands.registersOfA; ++index)
      ++matrices.registers[op.input(index).number].operands;
  }
  proceed(block, group);
}

} // namespace

MatrixOperands saccade::ptxsim::matrixOperands(const Op &op) {
  return {op.results, 0, op.numbers[2] & inRegisters ? 4u : 0u};
}

/// {d...}, A, b-descriptor, scale-d, imm-scale-a, imm-scale-b{, imm-trans-a}{, imm-trans-b}
bool saccade::ptxsim::decodeMatrixMultiply(Decoder &d) {
  unsigned columns = 0, k = 0;
  for (unsigned n = 8; n <= maxColumns && !columns; n += 8)
    for (unsigned depth : {16, 32})
      if (d.take("m64n" + std::to_string(n) + "k" + std::to_string(depth)))
        columns = n, k = depth;
  Type typeD = d.type(), typeA = d.type(), typeB = d.type();
  bool isNarrow = typeA == Type::E4M3 || typeA == Type::E5M2;
  bool fits = isNarrow ? k == 32 && (typeB == Type::E4M3 || typeB == Type::E5M2)
                       : k == 16 && (typeA == Type::F16 || typeA == Type::BF16) && typeB == typeA;
  if (!columns || typeD != Type::F32 || !fits)
    return d.fail("this combination of types and shape is not simulated");
  if (!d.expectOperands(6, 8))
    return false;
  bool fromRegisters = d.at(1).kind == Operand::Vector;
  if (!d.expectOperands(6 + (isNarrow ? 0 : fromRegisters ? 1 : 2)))
    return false;
  auto registers = [&](const Operand &operand, unsigned expected) {
    return operand.parts.size() == expected ||
           d.fail("found " + llvm::Twine(operand.parts.size()) + " registers, expected " + llvm::Twine(expected));
  };
  if (!registers(d.at(0), columns / 2) || (fromRegisters && !registers(d.at(1), 4)))
    return false;
  for (const Operand &part : d.at(0).parts)
    d.result(part, Type::B32);
  if (fromRegisters)
    for (const Operand &part : d.at(1).parts)
      d.input(part, Type::B32);
  else
    d.input(d.at(1), Type::B64);
  d.input(d.at(2), Type::B64);
  d.input(d.at(3), Type::Pred);
  auto flag = [&](unsigned index, int64_t without, int64_t with, uint32_t value) -> uint32_t {
    int64_t found = d.immediate(d.at(index));
    if (found != without && found != with)
      d.fail("found " + llvm::Twine(found) + ", expected " + llvm::Twine(without) + " or " + llvm::Twine(with));
    return found == with ? value : 0;
  };
  uint32_t flags = fromRegisters ? inRegisters : 0;
  flags |= flag(4, 1, -1, negatesA) | flag(5, 1, -1, negatesB);
  if (!isNarrow && !fromRegisters)
    flags |= flag(6, 0, 1, transposesA);
  if (!isNarrow)
    flags |= flag(d.count() - 1, 0, 1, transposesB);
  d.op.numbers[0] = uint32_t(typeA) | uint32_t(typeB) << 8;
  d.op.numbers[1] = columns;
  d.op.numbers[2] = flags;
  d.builder.useMatrixRegisters(d, fromRegisters ? 4 : 0);
  d.op.isMatrixProduct = true;
  return d.emit(multiplyMatrices);
}
