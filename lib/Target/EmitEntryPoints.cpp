//===- EmitEntryPoints.cpp - Tables and wrappers of entries -------------------===//
//
// Wraps the C interface functions of func-to-llvm, emits the entry tables, and adds the C and TVM-FFI wrappers. Runs
// last, because the calling convention of the entries must be final.
//
//===----------------------------------------------------------------------===//
#include "EntryBuilder.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "saccade/Dialect/Attn/Analysis/Signatures.h"
#include "saccade/Support/CPUTarget.h"
#include "saccade/Target/Device.h"
#include "saccade/Target/Passes.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"

namespace saccade {
#define GEN_PASS_DEF_EMITENTRYPOINTS
#include "saccade/Target/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

namespace {

constexpr llvm::StringLiteral interfacePrefix = "_mlir_ciface_";

/// The symbols that the runtime exports or compiled code calls, which entries must not define.
constexpr llvm::StringLiteral runtimeSymbols[] = {"saccade_parallel_for",      "saccade_allocate",
                                                  "saccade_release",           "saccade_set_threads",
                                                  "saccade_threads",           "saccade_set_parallel_for",
                                                  "saccade_entry_call",        "saccade_entry_shapes",
                                                  "saccade_entry_last_error",  "saccade_entry_call_tvm_ffi",
                                                  "saccade_runtime_v1",        "saccade_launch",
                                                  "saccade_encode_tensor_map", "saccade_cuda_call",
                                                  "saccade_cuda_unload",       "saccade_set_stream",
                                                  "saccade_device_allocate",   "saccade_device_release",
                                                  "saccade_cuda_capability",   "saccade_entry_call_on_stream",
                                                  "saccade_device_counter",    "saccade_multiprocessors",
                                                  "saccade_device_constant",   "saccade_entry_target",
                                                  "saccade_set_cpu_limit",     "saccade_cpu_limit_v1"};

/// The symbols that an entry exports.
struct Exports {
  std::string table, tvmFFI, call, shapes, target;

  explicit Exports(StringRef name)
      : table(("__saccade_entry_" + name).str()), tvmFFI(("__tvm_ffi_" + name).str()), call(("saccade_" + name).str()),
        shapes(call + "_shapes"), target(call + "_target") {}
  std::array<std::string, 5> all() const { return {table, tvmFFI, call, shapes, target}; }
};

struct EmitEntryPoints : saccade::impl::EmitEntryPointsBase<EmitEntryPoints> {
  using EmitEntryPointsBase::EmitEntryPointsBase;

  void runOnOperation() override {
    const CPUTarget *cpu = requireCPUTarget(getOperation(), target);
    if (!cpu)
      return signalPassFailure();
    // A program that has passed this stage still has its entries.
    attn::recordSignatures(getOperation());
    llvm::MapVector<StringRef, EntryParts> entries;
    for (auto function : getOperation().getOps<LLVM::LLVMFuncOp>())
      if (failed(collect(function, entries)))
        return signalPassFailure();
    for (auto &[name, entry] : entries) {
      entry.name = name;
      if (failed(checkABITypes(entry)))
        return signalPassFailure();
    }
    if (failed(checkExports(entries)) || failed(makeInternal(entries)))
      return signalPassFailure();

    bool isForGPU = !getOperation().getOps<mlir::gpu::GPUModuleOp>().empty();
    if (isForGPU && failed(useDeviceAllocator()))
      return signalPassFailure();

    EntryBuilder builder(getOperation(), *cpu);
    LLVM::GlobalOp kernels = isForGPU ? builder.declareKernels() : LLVM::GlobalOp();
    for (auto &[name, entry] : entries) {
      Exports exports(name);
      LLVM::GlobalOp table =
          builder.emitTable(entry, exports.table, builder.emitCall(entry), builder.emitShapes(entry), kernels);
      builder.emitCWrapper(entry, exports.call, table, /*isShapes=*/false);
      builder.emitCWrapper(entry, exports.shapes, table, /*isShapes=*/true);
      builder.emitTargetQuery(entry, exports.target, table);
      builder.emitTVMFFIWrapper(entry, exports.tvmFFI, table);
    }
  }

  using Entries = llvm::MapVector<StringRef, EntryParts>;

  /// Collects the attributes of a C interface function, and removes them from every function.
  LogicalResult collect(LLVM::LLVMFuncOp function, Entries &entries) {
    auto signature = function->getAttrOfType<DictionaryAttr>("attn.entry");
    auto shapesOf = function->getAttrOfType<StringAttr>("attn.shapes_of");
    auto messages = function->getAttrOfType<ArrayAttr>("attn.messages");
    for (StringRef mark : {"attn.shapes_of", "attn.messages", "attn.entry"})
      function->removeAttr(mark);
    if (function.isExternal() || !function.getName().starts_with(interfacePrefix))
      return success();
    if (shapesOf && messages) {
      entries[shapesOf.getValue()].shapes = function;
      entries[shapesOf.getValue()].messages = messages;
    } else if (signature) {
      std::optional<attn::Signature> parsed = attn::Signature::from(signature, function.getLoc());
      if (!parsed)
        return function.emitError("entry has no signature with name, names and type");
      EntryParts &entry = entries[signature.getAs<StringAttr>("name").getValue()];
      entry.call = function;
      entry.names = signature.getAs<ArrayAttr>("names");
      entry.type = parsed->type;
      entry.updatedBy = parsed->updatedBy;
    }
    return success();
  }

  LogicalResult checkABITypes(EntryParts &entry) {
    if (!entry.call || !entry.shapes)
      return (entry.call ? entry.call : entry.shapes).emitError("expected an entry and its shape function");
    for (size_t i = 0; i < entry.numValues(); ++i) {
      Type type = entry.valueType(i);
      bool isResult = i >= entry.numInputs();
      if (getABIType(type) && (!isResult || isa<RankedTensorType>(type)))
        continue;
      return entry.call.emitError()
             << (isResult ? "result '" : "argument '") << cast<StringAttr>(entry.names[i]).getValue() << "' of entry '"
             << entry.name << "' has type " << type << ", expected a ranked tensor" << (isResult ? "" : " or scalar")
             << " of f8E4M3FN, f8E5M2, f16, bf16, f32, f64, index or an integer of 1, 8, 16, 32 or 64 bits";
    }
    return success();
  }

  LogicalResult checkExports(Entries &entries) {
    llvm::StringMap<StringRef> owners;
    for (StringRef symbol : runtimeSymbols)
      owners[symbol] = "";
    for (auto &[name, entry] : entries)
      for (StringRef symbol : Exports(name).all()) {
        auto [owner, isNew] = owners.try_emplace(symbol, name);
        if (isNew)
          continue;
        InFlightDiagnostic error = entry.call.emitError("entry '") << name << "' defines the symbol '" << symbol << "'";
        if (owner->second.empty())
          return error << ", which belongs to the runtime; rename the entry";
        return error << ", as does entry '" << owner->second << "'; rename one of them";
      }
    return success();
  }

  /// Replaces host allocation by device allocation: the host code of a GPU program does not access tensors.
  LogicalResult useDeviceAllocator() {
    SymbolTable symbols(getOperation());
    for (auto [host, device] : {std::pair("saccade_allocate", "saccade_device_allocate"),
                                std::pair("saccade_release", "saccade_device_release")})
      if (auto function = symbols.lookup<LLVM::LLVMFuncOp>(host); function && function.isExternal())
        if (failed(symbols.rename(function, device)))
          return failure();
    return success();
  }

  /// Makes all functions of the program internal and renames those that conflict with an exported symbol.
  LogicalResult makeInternal(const Entries &entries) {
    SymbolTable symbols(getOperation());
    SmallVector<LLVM::LLVMFuncOp> conflicting;
    auto find = [&](StringRef symbol) {
      auto function = symbols.lookup<LLVM::LLVMFuncOp>(symbol);
      if (function && !function.isExternal())
        conflicting.push_back(function);
    };
    llvm::for_each(runtimeSymbols, find);
    for (auto &[name, entry] : entries)
      for (StringRef symbol : Exports(name).all())
        find(symbol);
    for (LLVM::LLVMFuncOp function : conflicting)
      if (failed(symbols.renameToUnique(function, {})))
        return failure();
    for (auto function : getOperation().getOps<LLVM::LLVMFuncOp>())
      if (!function.isExternal())
        function.setLinkage(LLVM::Linkage::Internal);
    return success();
  }
};

} // namespace
