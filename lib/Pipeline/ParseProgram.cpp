//===- ParseProgram.cpp - From text or bytecode to a module -------------------===//
//
// MLIR's parser drops the names of values, but records where in the text each is defined; names are read from there.
//
//===----------------------------------------------------------------------===//
#include "saccade/Pipeline/ParseProgram.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/AsmParser/AsmParserState.h"
#include "mlir/Bytecode/BytecodeReader.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "saccade/Import/Import.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;

/// Whether the text has ops of a frontend; only then unregistered ops are allowed in the parser.
static bool hasFrontendOps(StringRef text) {
  return llvm::any_of(saccade::frontendPrefixes(),
                      [&](const std::string &prefix) { return text.contains("\"" + prefix); });
}

/// Rejects unregistered ops that are not ops of a frontend.
static LogicalResult verifyFrontendOps(Block &block) {
  WalkResult walk = block.walk([](Operation *op) {
    StringRef name = op->getName().getStringRef();
    if (op->isRegistered() ||
        llvm::any_of(saccade::frontendPrefixes(), [&](StringRef each) { return name.starts_with(each); }))
      return WalkResult::advance();
    op->emitError() << "op '" << name << "' is not known, expected ops of "
                    << llvm::join(saccade::frontendPrefixes(), ", ") << " or of a registered dialect";
    return WalkResult::interrupt();
  });
  return failure(walk.wasInterrupted());
}

/// Stores the names of a function's arguments in their locations.
static void keepNames(func::FuncOp function, const AsmParserState &state) {
  if (function.isExternal())
    return;
  const AsmParserState::BlockDefinition *entry = state.getBlockDef(&function.getBody().front());
  if (!entry)
    return;
  for (auto [argument, definition] : llvm::zip(function.getArguments(), entry->arguments)) {
    const char *begin = definition.loc.Start.getPointer();
    StringRef text(begin, definition.loc.End.getPointer() - begin);
    if (text.consume_front("%") && !text.empty())
      argument.setLoc(NameLoc::get(StringAttr::get(function.getContext(), text), argument.getLoc()));
  }
}

OwningOpRef<ModuleOp> saccade::parseProgram(const llvm::SourceMgr &sources, MLIRContext *context) {
  ParserConfig config(context);
  const llvm::MemoryBuffer *buffer = sources.getMemoryBuffer(sources.getMainFileID());
  if (isBytecode(*buffer))
    return parseSourceFile<ModuleOp>(sources, config);
  bool hasUnregistered = hasFrontendOps(buffer->getBuffer());
  if (hasUnregistered)
    context->allowUnregisteredDialects();
  Block block;
  AsmParserState state;
  if (failed(parseAsmSourceFile(sources, &block, config, &state)) ||
      (hasUnregistered && failed(verifyFrontendOps(block))))
    return nullptr;
  block.walk([&](func::FuncOp function) { keepNames(function, state); });
  Location start = FileLineColLoc::get(context, buffer->getBufferIdentifier(), /*line=*/0, /*column=*/0);
  return mlir::detail::constructContainerOpForParserIfNecessary<ModuleOp>(&block, context, start);
}
