// RUN: saccade-opt %s -attn-emit-entry-points | FileCheck %s

// A descriptor travels by address and a scalar by value; the C face takes addresses of both.
// CHECK-LABEL: llvm.func internal @_mlir_ciface_scale_by
// CHECK-NOT: attn.entry
llvm.func @_mlir_ciface_scale_by(%descriptor: !llvm.ptr, %factor: f32, %flag: i1) attributes {attn.entry} {
  llvm.return
}

// CHECK-LABEL: llvm.func internal @helper
llvm.func @helper() {
  llvm.return
}

// CHECK-LABEL: llvm.func internal @scale_by.shapes
llvm.func @scale_by.shapes() -> !llvm.struct<(i64, i64, i64, i64, i64)> {
  %0 = llvm.mlir.poison : !llvm.struct<(i64, i64, i64, i64, i64)>
  llvm.return %0 : !llvm.struct<(i64, i64, i64, i64, i64)>
}
llvm.func @_mlir_ciface_scale_by.shapes(%result: !llvm.ptr, %descriptor: !llvm.ptr, %factor: f32, %flag: i1)
    attributes {attn.shapes_of = "scale_by", attn.messages = ["too small", "", "too large"]} {
  llvm.return
}

// CHECK-LABEL: llvm.func @saccade_call_scale_by(
// CHECK-SAME:    %[[ARGS:.*]]: !llvm.ptr)
// CHECK:         %[[PLACE0:.*]] = llvm.getelementptr %[[ARGS]][0]
// CHECK:         %[[DESCRIPTOR:.*]] = llvm.load %[[PLACE0]] : !llvm.ptr -> !llvm.ptr
// CHECK:         %[[PLACE1:.*]] = llvm.getelementptr %[[ARGS]][1]
// CHECK:         %[[FACTOR_AT:.*]] = llvm.load %[[PLACE1]]
// CHECK:         %[[FACTOR:.*]] = llvm.load %[[FACTOR_AT]] : !llvm.ptr -> f32
// CHECK:         %[[BYTE:.*]] = llvm.load %{{.*}} : !llvm.ptr -> i8
// CHECK:         %[[FLAG:.*]] = llvm.trunc %[[BYTE]] : i8 to i1
// CHECK:         llvm.call @_mlir_ciface_scale_by(%[[DESCRIPTOR]], %[[FACTOR]], %[[FLAG]])
// CHECK-NEXT:    %[[NONE:.*]] = llvm.mlir.zero : !llvm.ptr
// CHECK-NEXT:    llvm.return %[[NONE]]

// Messages of checks that folded away leave nothing.
// CHECK-LABEL: llvm.func @saccade_shapes_scale_by(
// CHECK-SAME:    %{{.*}}: !llvm.ptr, %[[SIZES:.*]]: !llvm.ptr) -> !llvm.ptr
// CHECK:         llvm.call @_mlir_ciface_scale_by.shapes
// CHECK:         llvm.cond_br %{{.*}}, ^[[FINE:bb[0-9]+]], ^[[REFUSED:bb[0-9]+]]
// CHECK:       ^[[FINE]]:
// CHECK-COUNT-2: llvm.store %{{.*}} : i64, !llvm.ptr
// CHECK:         llvm.mlir.zero : !llvm.ptr
// CHECK:       ^[[REFUSED]]:
// CHECK-COUNT-2: llvm.store %{{.*}} : i64, !llvm.ptr
// CHECK-COUNT-2: llvm.select
// CHECK-NOT:     llvm.select
// CHECK:         llvm.return

llvm.func @_mlir_ciface_may_fail(%descriptor: !llvm.ptr) -> !llvm.ptr attributes {attn.entry} {
  llvm.return %descriptor : !llvm.ptr
}
// CHECK-LABEL: llvm.func @saccade_call_may_fail(
// CHECK:         %[[MESSAGE:.*]] = llvm.call @_mlir_ciface_may_fail
// CHECK-NEXT:    llvm.return %[[MESSAGE]]
