// RUN: saccade-opt %s -attn-emit-entry-points=target=v3 | FileCheck %s
// RUN: saccade-opt %s -attn-emit-entry-points=target=v3 | FileCheck %s --check-prefix=TABLE

// EXAMPLE
// Descriptors are passed by address and scalars by value; the functions of uniform signature take addresses of both.
// CHECK-LABEL: llvm.func internal @_mlir_ciface_scale_by
// CHECK-NOT: attn.entry
llvm.func @_mlir_ciface_scale_by(%a: !llvm.ptr, %factor: f32, %flag: i1, %result: !llvm.ptr) -> !llvm.ptr
    attributes {attn.entry = {name = "scale_by", names = ["a", "factor", "flag", "result"],
                              type = (tensor<?x8xf32>, f32, i1) -> tensor<?x8xf32>}} {
  llvm.return %a : !llvm.ptr
}
llvm.func @_mlir_ciface_scale_by.shapes(%result: !llvm.ptr, %a: !llvm.ptr, %factor: f32, %flag: i1)
    attributes {attn.shapes_of = "scale_by", attn.messages = ["too small\00at least \00", "", "too large\00at most \00"]} {
  llvm.return
}

// CHECK-LABEL: llvm.func internal @helper
llvm.func @helper() {
  llvm.return
}

// A function of the program that conflicts with an emitted symbol is renamed.
// CHECK-NOT:   @saccade_scale_by()
// CHECK-LABEL: llvm.func internal @saccade_scale_by_0()
llvm.func @saccade_scale_by() {
  // CHECK-NEXT: llvm.call @saccade_scale_by_0()
  llvm.call @saccade_scale_by() : () -> ()
  llvm.return
}

// CHECK-LABEL: llvm.func internal @saccade.call.scale_by(
// CHECK-SAME:    %[[ARGS:.*]]: !llvm.ptr)
// CHECK:         %[[PLACE0:.*]] = llvm.getelementptr %[[ARGS]][0]
// CHECK:         %[[A:.*]] = llvm.load %[[PLACE0]] : !llvm.ptr -> !llvm.ptr
// CHECK:         %[[PLACE1:.*]] = llvm.getelementptr %[[ARGS]][1]
// CHECK:         %[[FACTOR_AT:.*]] = llvm.load %[[PLACE1]]
// CHECK:         %[[FACTOR:.*]] = llvm.load %[[FACTOR_AT]] : !llvm.ptr -> f32
// CHECK:         %[[BYTE:.*]] = llvm.load %{{.*}} : !llvm.ptr -> i8
// CHECK:         %[[FLAG:.*]] = llvm.trunc %[[BYTE]] : i8 to i1
// CHECK:         %[[MESSAGE:.*]] = llvm.call @_mlir_ciface_scale_by(%[[A]], %[[FACTOR]], %[[FLAG]], %{{.*}})
// CHECK-NEXT:    llvm.return %[[MESSAGE]]

// Folded checks emit no message.
// CHECK-LABEL: llvm.func internal @saccade.shapes.scale_by(
// CHECK-SAME:    %{{.*}}: !llvm.ptr, %[[SIZES:.*]]: !llvm.ptr) -> !llvm.ptr
// CHECK:         llvm.call @_mlir_ciface_scale_by.shapes
// CHECK:         llvm.cond_br %{{.*}}, ^[[FINE:bb[0-9]+]], ^[[REFUSED:bb[0-9]+]]
// CHECK:       ^[[FINE]]:
// CHECK-COUNT-2: llvm.store %{{.*}} : i64, !llvm.ptr
// CHECK:         llvm.mlir.zero : !llvm.ptr
// CHECK:       ^[[REFUSED]]:
// CHECK-COUNT-3: llvm.store %{{.*}} : i64, !llvm.ptr
// CHECK-COUNT-2: llvm.select
// CHECK-NOT:     llvm.select
// CHECK:         llvm.return

// A wrapper packs {kind, value} for each argument: 7 is a tensor, 3 a float, 1 an integer.
// CHECK-LABEL: llvm.func @saccade_scale_by(
// CHECK-SAME:    %[[A:.*]]: !llvm.ptr, %[[FACTOR:.*]]: f64, %[[FLAG:.*]]: i64, %[[RESULT:.*]]: !llvm.ptr) -> !llvm.ptr
// CHECK:         %[[PACKED:.*]] = llvm.alloca %{{.*}} x !llvm.array<4 x struct<(i32, i32, i64)>>
// CHECK:         %[[TENSOR:.*]] = llvm.mlir.constant(7 : i32)
// CHECK:         llvm.store %[[TENSOR]], %{{.*}}
// CHECK:         %[[PLACE:.*]] = llvm.getelementptr %[[PACKED]][0, 0, 2]
// CHECK:         llvm.store %[[A]], %[[PLACE]]
// CHECK:         llvm.mlir.constant(3 : i32)
// CHECK:         %[[PLACE:.*]] = llvm.getelementptr %[[PACKED]][0, 1, 2]
// CHECK:         llvm.store %[[FACTOR]], %[[PLACE]]
// CHECK:         llvm.mlir.constant(1 : i32)
// CHECK:         %[[PLACE:.*]] = llvm.getelementptr %[[PACKED]][0, 2, 2]
// CHECK:         llvm.store %[[FLAG]], %[[PLACE]]
// CHECK:         %[[PLACE:.*]] = llvm.getelementptr %[[PACKED]][0, 3, 2]
// CHECK:         llvm.store %[[RESULT]], %[[PLACE]]
// CHECK:         %[[ENTRY:.*]] = llvm.mlir.addressof @__saccade_entry_scale_by
// CHECK:         %[[COUNT:.*]] = llvm.mlir.constant(4 : i32)
// CHECK:         %[[STATUS:.*]] = llvm.call @saccade_entry_call(%[[ENTRY]], %[[PACKED]], %[[COUNT]])
// CHECK:         llvm.cond_br
// CHECK:         llvm.mlir.zero
// CHECK:         %[[MESSAGE:.*]] = llvm.call @saccade_entry_last_error()
// CHECK-NEXT:    llvm.return %[[MESSAGE]]

// CHECK-LABEL: llvm.func @saccade_scale_by_shapes(
// CHECK-SAME:    !llvm.ptr, %{{.*}}: f64, %{{.*}}: i64, %[[SIZES:.*]]: !llvm.ptr) -> !llvm.ptr
// CHECK:         llvm.call @saccade_entry_shapes(%{{.*}}, %{{.*}}, %{{.*}}, %[[SIZES]])

// CHECK-LABEL: llvm.func @saccade_scale_by_target() -> !llvm.ptr
// CHECK:         %[[ENTRY:.*]] = llvm.mlir.addressof @__saccade_entry_scale_by
// CHECK-NEXT:    %[[TARGET:.*]] = llvm.call @saccade_entry_target(%[[ENTRY]])
// CHECK-NEXT:    llvm.return %[[TARGET]]

// CHECK-LABEL: llvm.func @__tvm_ffi_scale_by(
// CHECK-SAME:    %{{.*}}: !llvm.ptr, %[[ARGS:.*]]: !llvm.ptr, %[[COUNT:.*]]: i32, %[[RESULT:.*]]: !llvm.ptr) -> i32
// CHECK:         %[[ENTRY:.*]] = llvm.mlir.addressof @__saccade_entry_scale_by
// CHECK-NEXT:    %[[STATUS:.*]] = llvm.call @saccade_entry_call_tvm_ffi(%[[ENTRY]], %[[ARGS]], %[[COUNT]], %[[RESULT]])
// CHECK-NEXT:    llvm.return %[[STATUS]]

// Version 4, three inputs and one result, target v3. A value has rank, DLPack code and bits; -1 is a scalar or a dynamic
// extent.
// TABLE-LABEL: llvm.mlir.global external constant @__saccade_entry_scale_by()
// TABLE-SAME:    !llvm.struct<(i32, i32, i32, i32, ptr, ptr, ptr, ptr, ptr, ptr, ptr)>
// TABLE:         constant(5 : i32)
// TABLE-NEXT:    constant(3 : i32)
// TABLE-NEXT:    constant(1 : i32)
// TABLE-NEXT:    constant(1 : i32)
// TABLE:         addressof @saccade.values
// TABLE:         addressof @saccade.call.scale_by
// TABLE:         addressof @saccade.shapes.scale_by
// TABLE:       llvm.mlir.global internal constant @saccade.extents
// TABLE:         constant(-1 : i64)
// TABLE:         constant(8 : i64)
// TABLE:       llvm.mlir.global internal constant @{{.*}}("tensor<?x8xf32>\00")
// TABLE:       llvm.mlir.global internal constant @{{.*}}("result\00")
// TABLE:       llvm.mlir.global internal constant @{{.*}}("i1\00")
// TABLE:       llvm.mlir.global internal constant @{{.*}}("flag\00")
// TABLE:       llvm.mlir.global internal constant @{{.*}}("factor\00")
// TABLE:       llvm.mlir.global internal constant @{{.*}}("a\00")
// TABLE:       llvm.mlir.global internal constant @saccade.values()
// TABLE-SAME:    !llvm.array<4 x struct<(ptr, ptr, ptr, i32, i8, i8, i16)>>
// TABLE:         constant(2 : i32)
// TABLE-NEXT:    constant(2 : i8)
// TABLE-NEXT:    constant(32 : i8)
// TABLE:         constant(-1 : i32)
// TABLE-NEXT:    constant(2 : i8)
// TABLE-NEXT:    constant(32 : i8)
// TABLE:         constant(-1 : i32)
// TABLE-NEXT:    constant(6 : i8)
// TABLE-NEXT:    constant(8 : i8)
