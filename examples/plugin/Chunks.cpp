//===- Chunks.cpp - The mask `chunks<SIZE>` -----------------------------------===//
//
// A query attends to the keys of its own chunk of SIZE positions, as in models with chunked attention. The parser of
// attention calls this for `mask chunks<SIZE>`.
//
//===----------------------------------------------------------------------===//
#include "Example.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

using namespace mlir;
using namespace saccade;

/// query − query mod SIZE ≤ key < query − query mod SIZE + SIZE.
static ParseResult parseChunks(OpAsmParser &parser, SMLoc where, ImplicitLocOpBuilder &b,
                               const attn::RegionArguments &arguments, Value &isVisible) {
  int64_t number;
  if (parser.parseLess() || parser.parseInteger(number) || parser.parseGreater())
    return failure();
  if (number < 1)
    return parser.emitError(where, "mask 'chunks' has the size ") << number << ", expected at least 1";
  Value size = arith::ConstantIndexOp::create(b, number);
  Value place = arith::RemUIOp::create(b, arguments.query, size);
  Value begin = arith::SubIOp::create(b, arguments.query, place);
  Value end = arith::AddIOp::create(b, begin, size);
  Value isAfter = arith::CmpIOp::create(b, arith::CmpIPredicate::sge, arguments.key, begin);
  Value isBefore = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, arguments.key, end);
  isVisible = arith::AndIOp::create(b, isAfter, isBefore);
  return success();
}

void example::registerChunks(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *, attn::AttnDialect *dialect) {
    dialect->addMaskSugar({"chunks", "chunks<SIZE>", parseChunks});
  });
}
