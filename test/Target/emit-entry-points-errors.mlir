// RUN: saccade-opt %s -attn-emit-entry-points -verify-diagnostics

// expected-error @below {{entry 'sum' returns a scalar; return a tensor without dimensions instead}}
llvm.func @_mlir_ciface_sum(%descriptor: !llvm.ptr) -> f32 attributes {attn.entry} {
  %0 = llvm.mlir.constant(0.0 : f32) : f32
  llvm.return %0 : f32
}
