//===- LowerLaunches.cpp - The host side of kernel launches -------------------===//
//
// Lowers attn.launch to a call of the runtime with the kernel's name and an array of parameter words. It runs after the
// conversion of the device module, which determines a kernel's parameters and its shared memory. If there are kernels
// with tensor maps, they precede the words, and the host launches the first kernel whose conditions hold. A kernel
// whose CTAs take items from a counter is launched with as many CTAs as the GPU can run at once.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "saccade/Codegen/GPU/Passes.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Support/Kernels.h"

namespace saccade {
#define GEN_PASS_DEF_LOWERLAUNCHES
#include "saccade/Codegen/GPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

namespace {

/// The symbols that all launches of a module refer to. Lookups take constant time.
class Symbols {
public:
  explicit Symbols(ModuleOp module) : module(module), host(module) {
    if (auto kernels = host.lookup<mlir::gpu::GPUModuleOp>(deviceModule))
      device.emplace(kernels);
  }

  func::FuncOp findTask(StringRef name) { return host.lookup<func::FuncOp>(name); }
  /// Null if `name` is null or the device module has no such kernel.
  LLVM::LLVMFuncOp findKernel(StringAttr name) {
    return name && device ? device->lookup<LLVM::LLVMFuncOp>(name) : LLVM::LLVMFuncOp();
  }

  /// The function `name` of the runtime, which is declared if it is not.
  func::FuncOp runtimeFunction(Location loc, StringRef name, TypeRange arguments, TypeRange results) {
    if (auto known = host.lookup<func::FuncOp>(name))
      return known;
    OpBuilder b = atStart();
    auto function = func::FuncOp::create(b, loc, name, b.getFunctionType(arguments, results));
    function.setPrivate();
    host.insert(function);
    return function;
  }

  /// A constant with the name of a kernel or a constant, null-terminated.
  LLVM::GlobalOp nameOf(Location loc, StringRef name) {
    std::string symbol = ("saccade.name." + name).str();
    if (auto known = host.lookup<LLVM::GlobalOp>(symbol))
      return known;
    std::string text = name.str() + '\0';
    Builder b(module.getContext());
    return addConstant(loc, symbol, LLVM::LLVMArrayType::get(b.getI8Type(), text.size()), b.getStringAttr(text));
  }

  /// A constant array. Equal ones are shared.
  LLVM::GlobalOp constantWords(Location loc, ArrayRef<int64_t> numbers) {
    Builder b(module.getContext());
    DenseIntElementsAttr words = b.getI64TensorAttr(numbers);
    LLVM::GlobalOp &global = plans[words];
    if (!global)
      global = addConstant(loc, "saccade.plan", LLVM::LLVMArrayType::get(b.getI64Type(), numbers.size()), words);
    return global;
  }

private:
  OpBuilder atStart() { return OpBuilder::atBlockBegin(module.getBody()); }

  /// The symbol of the constant is `symbol`, with a number if there is another one.
  LLVM::GlobalOp addConstant(Location loc, StringRef symbol, Type type, Attribute value) {
    OpBuilder b = atStart();
    auto global = LLVM::GlobalOp::create(b, loc, type, /*isConstant=*/true, LLVM::Linkage::Internal, symbol, value);
    host.insert(global);
    return global;
  }

  ModuleOp module;
  SymbolTable host;
  std::optional<SymbolTable> device;               ///< of the kernels, if there are any
  llvm::DenseMap<Attribute, LLVM::GlobalOp> plans; ///< by their words
};

/// Lowers one launch.
class Launch {
public:
  Launch(attn::LaunchOp op, Symbols &symbols)
      : op(op), task(symbols.findTask(op.getTask())), symbols(symbols), b(op), loc(op.getLoc()) {}

  LogicalResult run() {
    LLVM::LLVMFuncOp kernel = symbols.findKernel(task->getAttrOfType<StringAttr>(kernelAttr));
    if (!kernel)
      return op.emitOpError("launches a task that has no kernel");
    for (Value capture : op.getCaptures()) {
      firstWords.push_back(words.size());
      addWords(capture);
    }
    // The most special one first.
    SmallVector<LLVM::LLVMFuncOp> bulkKernels;
    for (LLVM::LLVMFuncOp each = kernel; (each = symbols.findKernel(each->getAttrOfType<StringAttr>(bulkKernelAttr)));)
      bulkKernels.insert(bulkKernels.begin(), each);
    size_t maps = 0;
    for (LLVM::LLVMFuncOp each : bulkKernels) {
      maps = std::max(maps, mapsOf(each).size());
      if (each->hasAttr(itemCounterAttr))
        counterWords = 2;
    }
    int64_t bytes = (words.size() + counterWords) * sizeof(int64_t) + maps * tensorMapBytes;
    if (bytes > maxParameterBytes)
      return op.emitError("a kernel reads ")
             << op.getCaptures().size() << " tensors and scalars, which take " << bytes
             << " bytes of parameters; expected at most " << maxParameterBytes << " bytes";
    launchOneOf(bulkKernels, kernel, maps * mapWords);
    op.erase();
    return success();
  }

private:
  static constexpr size_t mapWords = tensorMapBytes / sizeof(int64_t);

  void launch(LLVM::LLVMFuncOp kernel, Value parameters, size_t count, Value ctas) {
    auto number = [&](StringRef attribute, int64_t otherwise) {
      auto attr = kernel->getAttrOfType<IntegerAttr>(attribute);
      return constant(attr ? attr.getInt() : otherwise);
    };
    func::CallOp::create(b, loc,
                         runtimeFunction("saccade_launch", {pointerType(), pointerType(), b.getI64Type(),
                                                            b.getI64Type(), b.getI64Type(), b.getI64Type()}),
                         ValueRange{nameOf(kernel.getName()), parameters, constant(count), ctas,
                                    number(threadsAttr, threadsPerCTA), number(sharedBytesAttr, 0)});
  }

  /// Launches `kernel` with as many CTAs as the multiprocessors are to have at once, or one for each item if these are
  /// fewer. The last two of the `count` parameters are the number of items and the address of a counter, which is a
  /// temporary buffer.
  void launchWithCounter(LLVM::LLVMFuncOp kernel, Value parameters, size_t count) {
    Value items = toWord(op.getCount());
    Value limit = countMultiprocessors();
    auto ctas = kernel->getAttrOfType<IntegerAttr>(NVVM::NVVMDialect::getMinctasmAttrName());
    if (ctas && ctas.getInt() > 1)
      limit = arith::MulIOp::create(b, loc, limit, constant(ctas.getInt()));
    Value isShared = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, limit, items);
    auto choice = scf::IfOp::create(
        b, loc, isShared,
        [&](OpBuilder &, Location) {
          func::FuncOp allocate = runtimeFunction("saccade_device_counter", {}, {pointerType()});
          Value counter = func::CallOp::create(b, loc, allocate, ValueRange()).getResult(0);
          scf::YieldOp::create(b, loc, counter);
        },
        [&](OpBuilder &, Location) {
          scf::YieldOp::create(b, loc, LLVM::ZeroOp::create(b, loc, pointerType()).getResult());
        });
    Value counter = choice.getResult(0);
    auto storeWord = [&](size_t word, Value value) { LLVM::StoreOp::create(b, loc, value, at(parameters, word)); };
    storeWord(count - 2, items);
    storeWord(count - 1, counter);
    launch(kernel, parameters, count, arith::MinSIOp::create(b, loc, items, limit));
    func::CallOp::create(b, loc, runtimeFunction("saccade_device_release", {pointerType()}), counter);
  }

  Value countMultiprocessors() {
    func::FuncOp count = runtimeFunction("saccade_multiprocessors", {}, {b.getI64Type()});
    return func::CallOp::create(b, loc, count, ValueRange()).getResult(0);
  }

  /// The CTAs of a kernel without a counter.
  Value ctasOf(LLVM::LLVMFuncOp kernel) {
    Value items = toWord(op.getCount());
    auto parts = kernel->getAttrOfType<IntegerAttr>(partsAttr);
    return parts ? arith::MulIOp::create(b, loc, items, constant(parts.getInt())).getResult() : items;
  }

  static ArrayAttr mapsOf(LLVM::LLVMFuncOp kernel) { return kernel->getAttrOfType<ArrayAttr>(tensorMapsAttr); }

  Value at(Value parameters, size_t word) {
    return LLVM::GEPOp::create(b, loc, pointerType(), b.getI64Type(), parameters,
                               ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(word)});
  }

  /// Launches the first of `bulkKernels` whose conditions hold, else `kernel`. The words are at place `firstWord` of
  /// the parameters; the tensor maps of a kernel are in front of them.
  void launchOneOf(ArrayRef<LLVM::LLVMFuncOp> bulkKernels, LLVM::LLVMFuncOp kernel, size_t firstWord) {
    OpBuilder::InsertionGuard guard(b);
    Value parameters = store(words, firstWord, firstWord + words.size() + counterWords);
    for (LLVM::LLVMFuncOp bulkKernel : bulkKernels) {
      size_t skipped = firstWord - mapsOf(bulkKernel).size() * mapWords;
      Value ofKernel = skipped ? at(parameters, skipped) : parameters;
      auto choice = scf::IfOp::create(b, loc, conditionOf(bulkKernel, ofKernel), /*withElseRegion=*/true);
      b.setInsertionPointToStart(choice.thenBlock());
      bool hasCounter = bulkKernel->hasAttr(itemCounterAttr);
      size_t count = firstWord - skipped + words.size() + (hasCounter ? counterWords : 0);
      if (hasCounter)
        launchWithCounter(bulkKernel, ofKernel, count);
      else
        launch(bulkKernel, ofKernel, count, ctasOf(bulkKernel));
      b.setInsertionPointToStart(choice.elseBlock());
    }
    launch(kernel, firstWord ? at(parameters, firstWord) : parameters, words.size(), toWord(op.getCount()));
  }

  /// Whether a kernel with tensor maps can be launched: its maps can be made, in front of the words, the extents are
  /// equal that must be, items have numbers of 32 bits if they are counted, and there are few if it requires that.
  Value conditionOf(LLVM::LLVMFuncOp bulkKernel, Value parameters) {
    if (!bulkKernel->hasAttr(fewItemsAttr))
      return encodeMaps(bulkKernel, parameters);
    Value areFew =
        arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, toWord(op.getCount()), countMultiprocessors());
    auto both = scf::IfOp::create(
        b, loc, areFew,
        [&](OpBuilder &, Location) { scf::YieldOp::create(b, loc, encodeMaps(bulkKernel, parameters)); },
        [&](OpBuilder &, Location) {
          scf::YieldOp::create(b, loc, arith::ConstantIntOp::create(b, loc, 0, 1).getResult());
        });
    return both.getResult(0);
  }

  /// Makes the tensor maps of a kernel. Returns whether all could be made, and the other conditions hold.
  Value encodeMaps(LLVM::LLVMFuncOp bulkKernel, Value parameters) {
    auto maps = mapsOf(bulkKernel).getAsRange<DenseI64ArrayAttr>();
    size_t firstWord = mapsOf(bulkKernel).size() * mapWords;
    Value areMade;
    SmallVector<Value> constants = storeConstants(bulkKernel->getAttrOfType<ArrayAttr>(mappedConstantsAttr));
    for (auto [i, map] : llvm::enumerate(maps)) {
      ArrayRef<int64_t> plan = map.asArrayRef();
      int64_t number = plan.front();
      Value buffer = number < 0 ? constants[-1 - number] : at(parameters, firstWord + firstWords[number]);
      func::FuncOp encode =
          runtimeFunction("saccade_encode_tensor_map", {pointerType(), pointerType(), pointerType()}, {b.getI32Type()});
      Value isMade =
          func::CallOp::create(b, loc, encode,
                               ValueRange{at(parameters, i * mapWords), buffer, constantWords(plan.drop_front())})
              .getResult(0);
      areMade = areMade ? arith::AndIOp::create(b, loc, areMade, isMade).getResult() : isMade;
    }
    Value zero = arith::ConstantIntOp::create(b, loc, 0, 32);
    Value condition = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, areMade, zero);
    if (bulkKernel->hasAttr(itemCounterAttr)) {
      // Numbers of items have 32 bits. The launch of the other kernel refuses more.
      Value limit = constant(std::numeric_limits<int32_t>::max());
      Value hasNumbers = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sle, toWord(op.getCount()), limit);
      condition = arith::AndIOp::create(b, loc, condition, hasNumbers);
    }
    if (auto equal = bulkKernel->getAttrOfType<DenseI64ArrayAttr>(equalExtentsAttr)) {
      auto extentOf = [&](size_t i) -> Value {
        Value capture = op.getCaptures()[equal[i]];
        return equal[i + 1] < 0 ? capture : memref::DimOp::create(b, loc, capture, equal[i + 1]).getResult();
      };
      for (size_t i = 2; i < static_cast<size_t>(equal.size()); i += 2) {
        Value isEqual = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, extentOf(0), extentOf(i));
        condition = arith::AndIOp::create(b, loc, condition, isEqual);
      }
    }
    return condition;
  }

  /// The words of constants of the device module, as those of buffers (mappedConstantsAttr).
  SmallVector<Value> storeConstants(ArrayAttr constants) {
    SmallVector<Value> stored;
    for (Attribute each : constants ? constants.getValue() : ArrayRef<Attribute>()) {
      auto symbol = cast<FlatSymbolRefAttr>(cast<ArrayAttr>(each)[0]);
      auto type = cast<MemRefType>(cast<TypeAttr>(cast<ArrayAttr>(each)[1]).getValue());
      func::FuncOp find = runtimeFunction("saccade_device_constant", {pointerType()}, {pointerType()});
      Value found = func::CallOp::create(b, loc, find, nameOf(symbol.getValue())).getResult(0);
      Value address = LLVM::PtrToIntOp::create(b, loc, b.getI64Type(), found);
      auto [strides, offset] = type.getStridesAndOffset();
      SmallVector<Value> buffer = {address, address, constant(offset)};
      for (int64_t number : llvm::concat<const int64_t>(type.getShape(), ArrayRef(strides)))
        buffer.push_back(constant(number));
      stored.push_back(store(buffer, /*firstWord=*/0, buffer.size()));
    }
    return stored;
  }

  /// The address of a constant array.
  Value constantWords(ArrayRef<int64_t> numbers) {
    return LLVM::AddressOfOp::create(b, loc, symbols.constantWords(loc, numbers));
  }

  Type pointerType() { return LLVM::LLVMPointerType::get(b.getContext()); }
  Value constant(int64_t value) { return arith::ConstantIntOp::create(b, loc, value, 64); }
  Value toWord(Value index) { return arith::IndexCastOp::create(b, loc, b.getI64Type(), index); }

  Value widen(Value scalar) {
    if (scalar.getType().isIndex())
      return toWord(scalar);
    unsigned width = scalar.getType().getIntOrFloatBitWidth();
    if (isa<FloatType>(scalar.getType()))
      scalar = arith::BitcastOp::create(b, loc, b.getIntegerType(width), scalar);
    return width == 64 ? scalar : arith::ExtUIOp::create(b, loc, b.getI64Type(), scalar).getResult();
  }

  /// In the order of func-to-llvm: two pointers, offset, sizes, strides.
  void addWords(Value capture) {
    if (!isa<MemRefType>(capture.getType()))
      return words.push_back(widen(capture));
    auto metadata = memref::ExtractStridedMetadataOp::create(b, loc, capture);
    Value pointer = toWord(memref::ExtractAlignedPointerAsIndexOp::create(b, loc, capture));
    words.append({pointer, pointer, toWord(metadata.getOffset())});
    for (ValueRange numbers : {ValueRange(metadata.getSizes()), ValueRange(metadata.getStrides())})
      for (Value number : numbers)
        words.push_back(toWord(number));
  }

  /// Stores words, from place `firstWord` of an array of `count` on the stack of the entry, which outlives the call of
  /// the runtime. Returns the array.
  Value store(ArrayRef<Value> words, size_t firstWord, size_t count) {
    auto type = MemRefType::get({static_cast<int64_t>(count)}, b.getI64Type());
    Value row;
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(&op->getParentOfType<func::FuncOp>().getBody().front());
      IntegerAttr alignment = firstWord ? b.getI64IntegerAttr(tensorMapAlignment) : IntegerAttr();
      row = memref::AllocaOp::create(b, loc, type, alignment);
    }
    for (auto [i, word] : llvm::enumerate(words))
      memref::StoreOp::create(b, loc, word, row, ValueRange{arith::ConstantIndexOp::create(b, loc, firstWord + i)});
    Value address = toWord(memref::ExtractAlignedPointerAsIndexOp::create(b, loc, row));
    return LLVM::IntToPtrOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext()), address);
  }

  /// The address of the name of a kernel or a constant, null-terminated.
  Value nameOf(StringRef name) { return LLVM::AddressOfOp::create(b, loc, symbols.nameOf(loc, name)); }

  func::FuncOp runtimeFunction(StringRef name, TypeRange arguments, TypeRange results = {}) {
    return symbols.runtimeFunction(loc, name, arguments, results);
  }

  attn::LaunchOp op;
  func::FuncOp task;
  Symbols &symbols;
  OpBuilder b;
  Location loc;
  SmallVector<Value> words;
  SmallVector<size_t> firstWords; ///< of each capture
  size_t counterWords = 0;        ///< of the kernel with tensor maps: 2 if it has a counter of items
};

struct LowerLaunches : saccade::impl::LowerLaunchesBase<LowerLaunches> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SmallVector<attn::LaunchOp> launches;
    module.walk([&](attn::LaunchOp op) { launches.push_back(op); });
    Symbols symbols(module);
    for (attn::LaunchOp op : launches)
      if (failed(Launch(op, symbols).run()))
        return signalPassFailure();
    // The task declarations have no uses left.
    for (auto task : llvm::to_vector(module.getOps<func::FuncOp>()))
      if (task->hasAttr(kernelAttr))
        task.erase();
  }
};

} // namespace
