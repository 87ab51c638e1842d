//===- HoistConstants.cpp - Hoist computations of constants -------------------===//
//
// Moves computations of constant arguments from an entry to a prepack function that is called once. Runs after
// outlining, so that every computation, including packing, is a launch or a structured op.
//
//===----------------------------------------------------------------------===//
#include "ConstantComputation.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/IRMapping.h"
#include "saccade/Bufferize/Bufferize.h"
#include "saccade/Bufferize/Passes.h"
#include "saccade/Dialect/Attn/Analysis/Memory.h"
#include "saccade/Dialect/Attn/Analysis/Signatures.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Debug.h"
#include "llvm/Support/Format.h"

namespace saccade {
#define GEN_PASS_DEF_HOISTCONSTANTS
#include "saccade/Bufferize/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

namespace {

/// Splits one entry.
class ConstantHoister {
public:
  ConstantHoister(func::FuncOp entry, func::FuncOp shapes, ConstantComputation work)
      : entry(entry), shapes(shapes), work(std::move(work)), b(entry.getContext()), loc(entry.getLoc()) {
    auto signature = *attn::Signature::from(entry->getAttrOfType<DictionaryAttr>("attn.entry"), loc);
    name = signature.name;
    names = signature.values;
    type = signature.type;
    updatedBy = signature.updatedBy;
  }

  void run() {
    findArguments();
    nameResults();
    createFunction();
    createShapeFunction();
    replaceByPrepacked();
    dropArguments();
  }

private:
  void findArguments();
  void addSources(Value buffer, llvm::SetVector<Value> &into);
  void nameResults();
  void createFunction();
  func::FuncOp getCopyTask(MemRefType type);
  void copyToResult(memref::AllocOp result, Value source, Value target);
  void createShapeFunction();
  void replaceByPrepacked();
  void requireCompact(BlockArgument argument, StringRef called);
  void dropArguments();

  static MemRefType withAnyStrides(MemRefType type) {
    SmallVector<int64_t> strides(type.getRank(), ShapedType::kDynamic);
    return MemRefType::get(type.getShape(), type.getElementType(),
                           StridedLayoutAttr::get(type.getContext(), ShapedType::kDynamic, strides));
  }
  static Type asTensor(MemRefType type) { return RankedTensorType::get(type.getShape(), type.getElementType()); }
  void setSignature(func::FuncOp function, StringRef called, ArrayRef<std::string> values, FunctionType asTensors,
                    ArrayRef<int64_t> updates) {
    attn::Signature signature{called.str(), SmallVector<std::string>(values), asTensors, loc,
                              SmallVector<int64_t>(updates)};
    function->setAttr("attn.entry", signature.toAttribute());
    function->setAttr(LLVM::LLVMDialect::getEmitCWrapperAttrName(), b.getUnitAttr());
  }

  func::FuncOp entry, shapes;
  ConstantComputation work;
  OpBuilder b;
  Location loc;

  std::string name;                ///< public name of the entry
  SmallVector<std::string> names;  ///< of its inputs and results
  SmallVector<int64_t> updatedBy;  ///< for each input, as in `Signature`
  FunctionType type;               ///< of the entry, on tensors
  SmallVector<unsigned> arguments; ///< indices of the arguments that the hoisted ops read
  SmallVector<std::string> resultNames;
  func::FuncOp function; ///< the prepack function
  llvm::MapVector<Type, func::FuncOp> copyTasks;
};

} // namespace

/// Adds the indices of the entry's arguments on which `op` depends.
static void addArguments(Operation *op, llvm::SetVector<unsigned> &into) {
  for (Value value : getUsedValues(op)) {
    if (auto argument = dyn_cast<BlockArgument>(value))
      into.insert(argument.getArgNumber());
    else
      addArguments(value.getDefiningOp(), into);
  }
}

void ConstantHoister::findArguments() {
  llvm::SetVector<unsigned> found;
  for (Operation *op : work.ops)
    addArguments(op, found);
  arguments = found.takeVector();
  llvm::sort(arguments);
}

/// Adds `buffer`, and the arguments and buffers from which it is computed.
void ConstantHoister::addSources(Value buffer, llvm::SetVector<Value> &into) {
  if (!into.insert(buffer) || isa<BlockArgument>(buffer))
    return;
  for (Operation *op : work.ops) {
    SmallVector<Value> used = llvm::map_to_vector(getUsedValues(op), [](Value value) { return getBaseMemory(value); });
    if (llvm::is_contained(used, buffer))
      for (Value value : used)
        if (isa<MemRefType>(value.getType()))
          addSources(value, into);
  }
}

/// Names each result after the first argument from which it is computed: `<argument>_prepacked`.
void ConstantHoister::nameResults() {
  llvm::StringSet<> taken;
  for (const std::string &each : names)
    taken.insert(each);
  for (memref::AllocOp result : work.results) {
    llvm::SetVector<Value> sources;
    addSources(result, sources);
    auto first = llvm::find_if(sources, [](Value value) { return isa<BlockArgument>(value); });
    assert(first != sources.end() && "hoisted buffers depend on an argument");
    std::string plain = names[cast<BlockArgument>(*first).getArgNumber()] + "_prepacked", free = plain;
    for (unsigned i = 1; !taken.insert(free).second; ++i)
      free = plain + "_" + std::to_string(i);
    resultNames.push_back(free);
  }
}

/// Clones `value` and the ops from which it is computed at the insertion point.
static Value copyInto(OpBuilder &b, Value value, IRMapping &mapping) {
  if (Value known = mapping.lookupOrNull(value))
    return known;
  auto result = cast<OpResult>(value);
  for (Value operand : result.getOwner()->getOperands())
    copyInto(b, operand, mapping);
  return b.clone(*result.getOwner(), mapping)->getResult(result.getResultNumber());
}

/// The task that copies a buffer of `type` to memory with any strides; a work item is an index of the first dimension.
func::FuncOp ConstantHoister::getCopyTask(MemRefType type) {
  func::FuncOp &task = copyTasks[type];
  if (task)
    return task;
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointAfter(function);
  Type index = b.getIndexType();
  Type types[] = {type, withAnyStrides(type), index, index, MemRefType::get({ShapedType::kDynamic}, b.getI8Type())};
  task = func::FuncOp::create(b, loc, (Twine(name) + prepackSuffix + ".copy" + Twine(copyTasks.size() - 1)).str(),
                              b.getFunctionType(types, {}));
  task.setPrivate();
  task->setAttr("attn.task", b.getUnitAttr());
  Block *block = task.addEntryBlock();
  b.setInsertionPointToEnd(block);
  Value one = arith::ConstantIndexOp::create(b, loc, 1);
  auto items = scf::ForOp::create(b, loc, block->getArgument(2), block->getArgument(3), one);
  func::ReturnOp::create(b, loc);
  b.setInsertionPointToStart(items.getBody());
  SmallVector<OpFoldResult> offsets(type.getRank(), b.getIndexAttr(0)), strides(type.getRank(), b.getIndexAttr(1));
  SmallVector<OpFoldResult> sizes = getAsIndexOpFoldResult(b.getContext(), type.getShape());
  offsets[0] = items.getInductionVar();
  sizes[0] = b.getIndexAttr(1);
  auto part = [&](unsigned i) -> Value {
    return memref::SubViewOp::create(b, loc, block->getArgument(i), offsets, sizes, strides);
  };
  Value source = part(0), target = part(1);
  linalg::CopyOp::create(b, loc, source, target);
  return task;
}

/// Copies a prepacked buffer to the caller's memory, which may have any strides.
void ConstantHoister::copyToResult(memref::AllocOp result, Value source, Value target) {
  if (result.getType().getRank() == 0) {
    linalg::CopyOp::create(b, loc, source, target);
    return;
  }
  Value count = arith::ConstantIndexOp::create(b, loc, result.getType().getDimSize(0));
  attn::LaunchOp::create(b, loc, getCopyTask(result.getType()).getName(), {source, target}, count);
}

void ConstantHoister::createFunction() {
  SmallVector<Type> types, inputs, results;
  SmallVector<std::string> values;
  for (unsigned i : arguments) {
    types.push_back(entry.getArgumentTypes()[i]);
    inputs.push_back(type.getInput(i));
    values.push_back(names[i]);
  }
  double bytes = 0;
  for (memref::AllocOp result : work.results) {
    types.push_back(withAnyStrides(result.getType()));
    results.push_back(asTensor(result.getType()));
    int64_t elementBytes = (result.getType().getElementTypeBitWidth() + 7) / 8;
    bytes += double(result.getType().getNumElements()) * double(elementBytes);
  }
  llvm::append_range(values, resultNames);

  b.setInsertionPoint(entry);
  std::string called = (Twine(name) + prepackSuffix).str();
  function = func::FuncOp::create(b, loc, called + ".body", b.getFunctionType(types, {}));
  setSignature(function, called, values, b.getFunctionType(inputs, results), SmallVector<int64_t>(inputs.size(), -1));
  std::string text;
  llvm::raw_string_ostream(text) << work.results.size() << (work.results.size() == 1 ? " tensor" : " tensors") << ", "
                                 << llvm::format("%.1f", bytes / (1 << 20)) << " MiB";
  function->setAttr(prepacksAttr, b.getStringAttr(text));

  Block *block = function.addEntryBlock();
  b.setInsertionPointToEnd(block);
  IRMapping mapping;
  for (auto [i, argument] : llvm::enumerate(arguments)) {
    function.setArgAttr(i, "attn.constant", b.getUnitAttr());
    mapping.map(entry.getArgument(argument), block->getArgument(i));
  }
  // Copy each result after its last use, to limit peak memory.
  llvm::DenseMap<Operation *, SmallVector<unsigned>> done;
  for (auto [i, result] : llvm::enumerate(work.results)) {
    auto uses = [&](Operation *op) {
      return llvm::any_of(getUsedValues(op), [&](Value used) { return getBaseMemory(used) == result.getResult(); });
    };
    done[*llvm::find_if(llvm::reverse(work.ops), uses)].push_back(i);
  }
  for (Operation *op : work.ops) {
    for (Value value : getUsedValues(op))
      copyInto(b, value, mapping);
    b.clone(*op, mapping);
    for (unsigned i : done.lookup(op))
      copyToResult(work.results[i], mapping.lookup(work.results[i].getResult()),
                   block->getArgument(arguments.size() + i));
  }
  func::ReturnOp::create(b, loc);
}

void ConstantHoister::createShapeFunction() {
  b.setInsertionPointAfter(function);
  auto known = func::FuncOp::create(b, loc, (Twine(name) + prepackSuffix + ".shapes").str(), b.getFunctionType({}, {}));
  known->setAttr("attn.shapes_of", b.getStringAttr(Twine(name) + prepackSuffix));
  known->setAttr("attn.messages", b.getArrayAttr({}));
  known->setAttr(LLVM::LLVMDialect::getEmitCWrapperAttrName(), b.getUnitAttr());
  SmallVector<int64_t> numbers(4, 0); // no message, found, expected, place
  for (memref::AllocOp result : work.results)
    llvm::append_range(numbers, result.getType().getShape());
  known.setType(b.getFunctionType(function.getArgumentTypes().take_front(arguments.size()),
                                  SmallVector<Type>(numbers.size(), b.getIndexType())));
  b.setInsertionPointToEnd(known.addEntryBlock());
  SmallVector<Value> values;
  for (int64_t number : numbers)
    values.push_back(arith::ConstantIndexOp::create(b, loc, number));
  func::ReturnOp::create(b, loc, values);
}

/// Adds a check to the shape function that `argument` is compact.
void ConstantHoister::requireCompact(BlockArgument argument, StringRef called) {
  auto returned = cast<func::ReturnOp>(shapes.front().getTerminator());
  b.setInsertionPoint(returned);
  auto compact = MemRefType::get(cast<MemRefType>(argument.getType()).getShape(), b.getI8Type());
  SmallVector<int64_t> strides = compact.getStridesAndOffset().first;
  auto metadata = memref::ExtractStridedMetadataOp::create(b, loc, argument);
  auto texts = shapes->getAttrOfType<ArrayAttr>("attn.messages");
  SmallVector<Attribute> messages(texts.begin(), texts.end());
  auto constant = [&](int64_t value) -> Value { return arith::ConstantIndexOp::create(b, loc, value); };
  for (auto [i, extent] : llvm::enumerate(compact.getShape())) {
    if (extent == 1)
      continue;
    std::string text = ("argument '" + called + "' is not compact as returned by " + name + prepackSuffix +
                        ": stride of dimension " + Twine(i))
                           .str();
    text.append(2, '\0'); // without a relation and a place
    messages.push_back(b.getStringAttr(text));
    Value found = metadata.getStrides()[i], expected = constant(strides[i]);
    Value isMismatch = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, found, expected);
    Value isFirst = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, returned.getOperand(0), constant(0));
    Value applies = arith::AndIOp::create(b, loc, isMismatch, isFirst);
    Value messageArguments[] = {constant(messages.size()), found, expected};
    for (auto [place, value] : llvm::enumerate(messageArguments))
      returned.setOperand(place, arith::SelectOp::create(b, loc, applies, value, returned.getOperand(place)));
  }
  shapes->setAttr("attn.messages", b.getArrayAttr(messages));
}

/// Erases the dead transitive users of `value`.
static void eraseDeadUsers(Value value) {
  llvm::SetVector<Operation *> users(value.user_begin(), value.user_end());
  for (size_t i = 0; i < users.size(); ++i)
    users.insert(users[i]->user_begin(), users[i]->user_end());
  auto eraseDead = [](Operation *user) {
    bool isDead = isOpTriviallyDead(user);
    if (isDead)
      user->erase();
    return isDead;
  };
  while (users.remove_if(eraseDead)) {
  }
}

/// Replaces the hoisted buffers by new inputs of the entry and erases the hoisted ops.
void ConstantHoister::replaceByPrepacked() {
  for (Operation *op : work.ops)
    op->erase();
  SmallVector<Type> inputs(type.getInputs());
  for (auto [result, called] : llvm::zip_equal(work.results, resultNames)) {
    unsigned position = inputs.size();
    MemRefType taken = withAnyStrides(result.getType());
    for (func::FuncOp each : {entry, shapes}) {
      LogicalResult inserted = each.insertArgument(position, taken, {}, loc);
      assert(succeeded(inserted) && "entries are plain functions");
      (void)inserted;
    }
    names.insert(names.begin() + position, called);
    inputs.push_back(asTensor(result.getType()));
    updatedBy.push_back(-1);
    requireCompact(shapes.getArgument(position), called);
    b.setInsertionPointToStart(&entry.front());
    // The buffer starts at its first element, so the offset is 0. Not a memref.cast, which would fold into the users.
    auto metadata = memref::ExtractStridedMetadataOp::create(b, loc, entry.getArgument(position));
    auto strides = result.getType().getStridesAndOffset().first;
    result.replaceAllUsesWith(memref::ReinterpretCastOp::create(b, loc, result.getType(), metadata.getBaseBuffer(),
                                                                /*offset=*/0, result.getType().getShape(), strides)
                                  .getResult());
  }
  type = b.getFunctionType(inputs, type.getResults());
  for (memref::AllocOp buffer : llvm::reverse(work.buffers)) {
    eraseDeadUsers(buffer);
    buffer.erase();
  }
}

/// Removes inputs that only the hoisted ops read.
void ConstantHoister::dropArguments() {
  BitVector dropped(entry.getNumArguments());
  for (unsigned i : arguments) {
    for (func::FuncOp each : {entry, shapes})
      eraseDeadUsers(each.getArgument(i));
    if (entry.getArgument(i).use_empty() && shapes.getArgument(i).use_empty())
      dropped.set(i);
  }
  SmallVector<Type> inputs;
  SmallVector<std::string> kept;
  SmallVector<int64_t> updates;
  for (auto [i, each] : llvm::enumerate(type.getInputs()))
    if (!dropped[i]) {
      inputs.push_back(each);
      updates.push_back(updatedBy[i]);
    }
  for (auto [i, each] : llvm::enumerate(names))
    if (!dropped[i])
      kept.push_back(each);
  LogicalResult erased = entry.eraseArguments(dropped);
  dropped.resize(shapes.getNumArguments());
  bool both = succeeded(erased) && succeeded(shapes.eraseArguments(dropped));
  assert(both && "entries are plain functions");
  (void)both;
  setSignature(entry, name, kept, b.getFunctionType(inputs, type.getResults()), updates);
}

/// Whether `shapes` has a check that always fails; folding removes the condition of such a check. Then the arguments
/// may be invalid, so nothing may be hoisted.
static bool alwaysFails(func::FuncOp shapes) {
  Value number = shapes.front().getTerminator()->getOperand(0);
  if (std::optional<int64_t> known = getConstantIntValue(number))
    return *known != 0;
  while (auto chosen = number.getDefiningOp<arith::SelectOp>()) {
    auto isFirst = chosen.getCondition().getDefiningOp<arith::CmpIOp>();
    number = chosen.getFalseValue();
    if (isFirst && isFirst.getLhs() == number && isFirst.getPredicate() == arith::CmpIPredicate::eq)
      return true;
  }
  return false;
}

namespace {

struct HoistConstants : saccade::impl::HoistConstantsBase<HoistConstants> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    for (auto entry : llvm::to_vector(getOperation().getOps<func::FuncOp>())) {
      auto signature = entry->getAttrOfType<DictionaryAttr>("attn.entry");
      if (!signature || entry.isExternal())
        continue;
      ConstantComputation work = findConstantComputation(entry);
      if (work.results.empty())
        continue;
      StringRef name = signature.getAs<StringAttr>("name").getValue();
      DEBUG_WITH_TYPE("attn-hoist-constants",
                      llvm::dbgs() << "hoisting " << work.results.size() << " buffers of '" << name << "'\n");
      if (symbols.lookup((name + prepackSuffix + ".body").str())) {
        entry.emitError() << "prepack function '" << name << prepackSuffix << "' of entry '" << name
                          << "' is already defined, expected a unique name";
        return signalPassFailure();
      }
      if (auto shapes = symbols.lookup<func::FuncOp>((name + ".shapes").str()); !alwaysFails(shapes))
        ConstantHoister(entry, shapes, work).run();
    }
    attn::recordSignatures(getOperation());
  }
};

} // namespace
