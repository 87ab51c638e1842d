//===- SharedMemory.cpp - Allocation of shared memory -------------------------===//
//
// Static shared memory is a global of the device module. The size of dynamic shared memory is an attribute of the
// kernel, which the lowering of its launches reads.
//
//===----------------------------------------------------------------------===//
#include "SharedMemory.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Interfaces/DataLayoutInterfaces.h"
#include "saccade/Support/Kernels.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

static func::FuncOp kernelOf(Emitter &e) {
  return e.b.getInsertionBlock()->getParent()->getParentOfType<func::FuncOp>();
}

/// Returns the address of the global `name` of the kernel's module, which is created if necessary.
static Value addressOf(Emitter &e, StringRef name, LLVM::LLVMArrayType type, int64_t alignment, LLVM::Linkage linkage) {
  auto module = kernelOf(e)->getParentOfType<mlir::gpu::GPUModuleOp>();
  if (!module.lookupSymbol(name)) {
    OpBuilder::InsertionGuard guard(e.b);
    e.b.setInsertionPointToStart(module.getBody());
    LLVM::GlobalOp::create(e.b, e.loc, type, /*isConstant=*/false, linkage, name, Attribute(), alignment, sharedSpace);
  }
  return LLVM::AddressOfOp::create(e.b, e.loc, LLVM::LLVMPointerType::get(e.b.getContext(), sharedSpace), name);
}

Value device::allocateShared(Emitter &e, Type element, int64_t count) {
  auto module = kernelOf(e)->getParentOfType<mlir::gpu::GPUModuleOp>();
  std::string name;
  for (unsigned i = 0; name.empty() || module.lookupSymbol(name); ++i)
    name = (kernelOf(e).getName() + "_shared" + Twine(i)).str();
  return addressOf(e, name, LLVM::LLVMArrayType::get(element, count), 16, LLVM::Linkage::Internal);
}

Value device::getShared(Emitter &e, StringRef role, Type element, int64_t count) {
  std::string name;
  llvm::raw_string_ostream(name) << kernelOf(e).getName() << "_shared_" << role << '_' << element << '_' << count;
  return addressOf(e, name, LLVM::LLVMArrayType::get(element, count), 16, LLVM::Linkage::Internal);
}

int64_t device::getStaticSharedBytes(func::FuncOp kernel) {
  auto module = kernel->getParentOfType<mlir::gpu::GPUModuleOp>();
  DataLayout layout = DataLayout::closest(kernel);
  llvm::SmallPtrSet<Operation *, 8> found;
  int64_t bytes = 0;
  kernel.walk([&](LLVM::AddressOfOp address) {
    auto global = module ? module.lookupSymbol<LLVM::GlobalOp>(address.getGlobalName()) : LLVM::GlobalOp();
    if (global && global.getAddrSpace() == sharedSpace && found.insert(global).second)
      bytes += static_cast<int64_t>(llvm::alignTo(layout.getTypeSize(global.getType()), 16));
  });
  return bytes;
}

Value device::getDynamicShared(Emitter &e, int64_t bytes, int64_t alignment) {
  auto known = kernelOf(e)->getAttrOfType<IntegerAttr>(sharedBytesAttr);
  kernelOf(e)->setAttr(sharedBytesAttr, e.b.getI64IntegerAttr(std::max(bytes, known ? known.getInt() : 0)));
  // An alignment is a property of the symbol.
  std::string name = alignment == 128 ? "saccade_shared" : ("saccade_shared_" + Twine(alignment)).str();
  return addressOf(e, name, LLVM::LLVMArrayType::get(e.b.getI8Type(), 0), alignment, LLVM::Linkage::External);
}
