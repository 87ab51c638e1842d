//===- Ring.cpp - Stages of operands in shared memory -------------------------===//
//
// A wait is an asm block with a loop, because mbarrier.try_wait may return before the phase is complete.
//
//===----------------------------------------------------------------------===//
#include "Ring.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

void Mbarrier::init(Emitter &e, int64_t count) const {
  NVVM::MBarrierInitOp::create(e.b, e.loc, e.sharedPointer(address), e.i32(count), /*predicate=*/Value());
}

static void emitAsm(Emitter &e, StringRef text, ValueRange operands) {
  LLVM::InlineAsmOp::create(e.b, e.loc, LLVM::LLVMVoidType::get(e.b.getContext()), operands, text, "r,r,~{memory}",
                            /*has_side_effects=*/true, /*is_align_stack=*/false, LLVM::TailCallKind::None,
                            LLVM::AsmDialectAttr(), ArrayAttr());
}

void Mbarrier::arriveIf(Emitter &e, Value condition) const {
  StringRef text = "{\n\t.reg .pred arrives;\n\t.reg .b64 state;\n\tsetp.ne.b32 arrives, $1, 0;\n"
                   "\t@arrives mbarrier.arrive.shared::cta.b64 state, [$0];\n\t}";
  emitAsm(e, text, {address, e.select(condition, e.i32(1), e.i32(0))});
}

void Mbarrier::arriveAfterCopies(Emitter &e) const {
  NVVM::CpAsyncMBarrierArriveOp::create(e.b, e.loc, e.sharedPointer(address), /*noinc=*/true);
}

void Mbarrier::expect(Emitter &e, int64_t bytes) const {
  NVVM::MBarrierArriveExpectTxOp::create(e.b, e.loc, TypeRange{}, e.sharedPointer(address), e.i32(bytes),
                                         NVVM::MemScopeKind::CTA, /*relaxed=*/false, /*predicate=*/Value());
}

void Mbarrier::wait(Emitter &e, Value parity) const {
  StringRef text = "{\n\t.reg .pred done;\nWAIT:\n\tmbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1;\n"
                   "\t@!done bra WAIT;\n\t}";
  emitAsm(e, text, {address, parity});
}

void NamedBarrier::wait(Emitter &e) const {
  NVVM::BarrierOp::create(e.b, e.loc, TypeRange{}, id, e.i32(threads), NVVM::BarrierReductionAttr(),
                          /*reductionPredicate=*/Value());
}

void NamedBarrier::arrive(Emitter &e) const { emitAsm(e, "bar.arrive $0, $1;", {id, e.i32(threads)}); }

void Ring::init(Emitter &e, int64_t readers, int64_t writers) const {
  for (int64_t stage = 0; stage < stages; ++stage) {
    Mbarrier{e.add(barriers, 8 * stage)}.init(e, writers);
    Mbarrier{e.add(barriers, 8 * (stages + stage))}.init(e, readers);
  }
}

RingPlace Ring::at(Emitter &e, Value step) const {
  Value stage = e.rem(step, stages), parity = e.rem(e.div(step, stages), 2);
  Value full = e.add(barriers, e.mul(stage, 8));
  return {stage, parity, {full}, {e.add(full, 8 * stages)}};
}

void device::fenceAsyncProxy(Emitter &e) {
  NVVM::FenceProxyOp::create(e.b, e.loc, NVVM::ProxyKind::async_shared,
                             NVVM::SharedSpaceAttr::get(e.b.getContext(), NVVM::SharedSpace::shared_cta));
}

void device::copyBox(Emitter &e, Value map, ValueRange coordinates, Value target, const Mbarrier &full) {
  // PTX 8.0 has the destination form in the shared memory of a cluster only, which contains that of the CTA.
  auto ofCluster = LLVM::LLVMPointerType::get(e.b.getContext(), 7);
  Value pointer = LLVM::AddrSpaceCastOp::create(e.b, e.loc, ofCluster, e.sharedPointer(target));
  NVVM::CpAsyncBulkTensorGlobalToSharedClusterOp::create(
      e.b, e.loc, pointer, map, coordinates, e.sharedPointer(full.address), /*im2colOffsets=*/ValueRange(),
      /*multicastMask=*/Value(), /*l2CacheHint=*/Value(), NVVM::TMALoadMode::TILE, /*isCTAOnly=*/false,
      NVVM::CTAGroupKindAttr(), /*predicate=*/Value());
}
