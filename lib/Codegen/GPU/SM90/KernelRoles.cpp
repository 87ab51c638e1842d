//===- KernelRoles.cpp - The two roles of a kernel on sm_90a ------------------===//
#include "KernelRoles.h"
#include "../SharedMemory.h"
#include "WarpgroupShape.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

KernelRoles::KernelRoles(func::FuncOp kernel, Location loc)
    : body(&kernel.getBody().front()), b(body->getTerminator()), e(b, loc, b.getF32Type()) {
  for (Operation &op : body->without_terminator())
    ops.push_back(&op);
  auto indices = body->getOps<NVVM::BlockIdXOp>();
  if (!indices.empty())
    index = *indices.begin();
  steps = allocate(1, b.getI32Type());
}

void KernelRoles::allocateShared(int64_t bytes) {
  Value pointer = getDynamicShared(e, bytes, WarpgroupShape::tileAlignment);
  shared = LLVM::PtrToIntOp::create(b, e.loc, b.getI32Type(), pointer);
}

void KernelRoles::initBarriers(function_ref<void()> init) {
  e.ifElse(e.isEqual(e.thread(), e.i32(0)), [&] {
    init();
    NVVM::FenceMbarrierInitOp::create(b, e.loc);
  });
  e.barrier();
  e.store(e.i32(0), steps, 0);
}

void KernelRoles::emit(int64_t producerRegisters, int64_t consumerRegisters, function_ref<void()> produce,
                       function_ref<void()> consume) {
  e.ifElse(
      e.isLess(e.thread(), e.i32(WarpgroupShape::groupThreads)),
      [&] {
        NVVM::SetMaxRegisterOp::create(b, e.loc, producerRegisters, NVVM::SetMaxRegisterAction::decrease);
        e.ifElse(e.isLess(e.thread(), e.i32(32)), produce);
      },
      [&] {
        NVVM::SetMaxRegisterOp::create(b, e.loc, consumerRegisters, NVVM::SetMaxRegisterAction::increase);
        consume();
      });
}

IRMapping KernelRoles::copyBody(Value item) {
  IRMapping copies;
  if (item && index)
    copies.map(index.getResult(), item);
  for (Operation *op : ops)
    if (!item || op != index)
      b.clone(*op, copies);
  return copies;
}

void KernelRoles::moveBody(Value item) {
  for (Operation *op : ops)
    op->moveBefore(b.getInsertionBlock(), b.getInsertionPoint());
  if (!item || !index)
    return;
  index.replaceAllUsesWith(item);
  index.erase();
}
