//===- LowerLoadPages.cpp - Copying pages to a tile ---------------------------===//
//
// Lowers attn.load_pages to a copy. It runs after LowerUnpackedAccumulate, which reads pages in place.
//
//===----------------------------------------------------------------------===//
#include "RowSource.h"
#include "saccade/Codegen/CPU/Passes.h"

namespace saccade {
#define GEN_PASS_DEF_LOWERLOADPAGES
#include "saccade/Codegen/CPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::cpu;

namespace {

struct LowerLoadPages : saccade::impl::LowerLoadPagesBase<LowerLoadPages> {
  using LowerLoadPagesBase::LowerLoadPagesBase;

  void runOnOperation() override {
    const CPUTarget *cpu = requireCPUTarget(getOperation(), target);
    if (!cpu)
      return signalPassFailure();
    SmallVector<LoadPagesOp> ops;
    getOperation().walk([&](LoadPagesOp op) { ops.push_back(op); });
    for (LoadPagesOp op : ops) {
      OpBuilder b(op);
      Emitter e{b, op.getLoc(), *cpu, b.getF32Type()};
      emitLoadPages(e, op);
      op.erase();
    }
  }
};

} // namespace
