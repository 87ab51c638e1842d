// RUN: saccade-opt %s -attn-emit-entry-points=target=v3 | FileCheck %s

// The table of a GPU program refers to its kernels, which are defined later. Its host code allocates GPU memory.
// CHECK:       llvm.mlir.global external constant @__saccade_entry_fill()
// CHECK:         addressof @saccade.shapes.fill
// CHECK-NEXT:    %[[KERNELS:.*]] = llvm.mlir.addressof @saccade.kernels
// CHECK:         llvm.insertvalue %[[KERNELS]], %{{.*}}[8]
// CHECK:       llvm.mlir.global external @saccade.kernels() {{.*}} : i8
// CHECK:       llvm.func @saccade_device_allocate(i64) -> !llvm.ptr
// CHECK:       llvm.func @saccade_device_release(!llvm.ptr)
// CHECK-LABEL: llvm.func internal @_mlir_ciface_fill
// CHECK:         llvm.call @saccade_device_allocate
// CHECK:         llvm.call @saccade_device_release
llvm.func @saccade_allocate(i64) -> !llvm.ptr
llvm.func @saccade_release(!llvm.ptr)

llvm.func @_mlir_ciface_fill(%a: !llvm.ptr) -> !llvm.ptr
    attributes {attn.entry = {name = "fill", names = ["a"], type = (tensor<?xf32>) -> ()}} {
  %c8 = llvm.mlir.constant(8 : i64) : i64
  %memory = llvm.call @saccade_allocate(%c8) : (i64) -> !llvm.ptr
  llvm.call @saccade_release(%memory) : (!llvm.ptr) -> ()
  llvm.return %a : !llvm.ptr
}

llvm.func @_mlir_ciface_fill.shapes(%result: !llvm.ptr, %a: !llvm.ptr)
    attributes {attn.shapes_of = "fill", attn.messages = []} {
  llvm.return
}

gpu.module @saccade_device {
}
