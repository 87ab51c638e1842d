// A kernel with more parameters than PTX permits is an error. The operand has 3 + 2 · 2048 words.
// RUN: %python -c "print(open(r'%s').read().replace('MANY', 'x'.join(['?'] * 2048) + 'xf32'))" > %t.mlir
// RUN: saccade-opt %t.mlir --attn-lower-launches --verify-diagnostics

func.func @fill(%a: memref<MANY>, %n: index) {
  // expected-error@+1 {{a kernel reads 1 tensors and scalars, which take 32792 bytes of parameters; expected at most 32764 bytes}}
  attn.launch @fill_task0(%a) count(%n) : (memref<MANY>)
  return
}
func.func private @fill_task0(memref<MANY>, index, index, memref<?xi8>) attributes {attn.task, attn.kernel = "fill_task0"}
gpu.module @saccade_device {
  llvm.func @fill_task0() attributes {attn.kernel, attn.shared_bytes = 1024 : i64} {
    llvm.return
  }
}
