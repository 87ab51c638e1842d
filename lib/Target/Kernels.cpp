//===- Kernels.cpp - Kernels embedded in host code ----------------------------===//
//
// Embeds kernels in the host code of a program for a GPU, as the constants of a SaccadeKernels.
//
//===----------------------------------------------------------------------===//
#include "saccade/Support/Kernels.h"
#include "saccade/Runtime/Entry.h"
#include "saccade/Target/Device.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Module.h"
#include <cstddef>

using namespace llvm;

/// An internal constant with the given bytes.
static Constant *makeBytes(Module &host, StringRef bytes, bool isText) {
  Constant *content = ConstantDataArray::getString(host.getContext(), bytes, /*AddNull=*/isText);
  auto *global = new GlobalVariable(host, content->getType(), /*isConstant=*/true, GlobalValue::InternalLinkage,
                                    content, isText ? "saccade.ptx" : "saccade.cubin");
  global->setAlignment(Align(16));
  return global;
}

void saccade::addKernels(Module &host, const GPUTarget &target, StringRef ptx, StringRef cubin) {
  LLVMContext &context = host.getContext();
  auto *pointer = PointerType::get(context, 0);
  auto *i32 = Type::getInt32Ty(context);
  auto number = [&](int64_t value) -> Constant * { return ConstantInt::get(i32, value); };
  FunctionCallee call = host.getOrInsertFunction("saccade_cuda_call", i32, pointer, i32, pointer, pointer);

  // "sm_90a": the number, and a suffix if the code is architecture-specific.
  StringRef digits = target.name.drop_front(strlen("sm_"));
  int64_t architecture = 0;
  bool consumed = !digits.consumeInteger(10, architecture);
  assert(consumed && "an architecture has a number");
  (void)consumed;

  // call, ptx, cubin, architecture, is_arch_specific, reserved, reserved, loaded
  auto *type = StructType::get(context, {pointer, pointer, pointer, i32, i32, i32, i32, pointer});
  static_assert(sizeof(SaccadeKernels) == 48 && offsetof(SaccadeKernels, loaded) == 40);
  Constant *null = ConstantPointerNull::get(pointer);
  Constant *fields[] = {cast<Constant>(call.getCallee()),
                        makeBytes(host, ptx, /*isText=*/true),
                        cubin.empty() ? null : makeBytes(host, cubin, /*isText=*/false),
                        number(architecture),
                        number(!digits.empty()),
                        number(0),
                        number(0),
                        null};
  auto *kernels = new GlobalVariable(host, type, /*isConstant=*/false, GlobalValue::InternalLinkage,
                                     ConstantStruct::get(type, fields), kernelsSymbol + ".defined");
  GlobalVariable *declared = host.getNamedGlobal(kernelsSymbol);
  if (!declared) // the program has no entries
    return;
  declared->replaceAllUsesWith(kernels);
  declared->eraseFromParent();
}
