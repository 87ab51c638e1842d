// RUN: saccade-opt --attn-convert-to-llvm %s | FileCheck %s
// RUN: saccade-opt --attn-convert-to-llvm %s | mlir-translate --mlir-to-llvmir | opt -S -passes=verify | FileCheck %s --check-prefix=IR

// CHECK:       llvm.func @launch_calls_the_runtime(
// CHECK-SAME:    %[[ALLOCATED:[a-z0-9]+]]: !llvm.ptr, %[[ALIGNED:[a-z0-9]+]]: !llvm.ptr,
// CHECK-SAME:    attributes {llvm.emit_c_interface}
// Static sizes and strides of a buffer are not passed.
// CHECK:         %[[CONTEXT:.*]] = llvm.alloca %{{.*}} x !llvm.struct<(ptr, i64, i64, f32)>
// CHECK:         llvm.store
// CHECK:         %[[RUNNER:.*]] = llvm.mlir.addressof @task_run : !llvm.ptr
// CHECK:         %[[BYTES:.*]] = llvm.mlir.constant(256 : i64)
// CHECK:         %[[STATUS:.*]] = llvm.call @saccade_parallel_for(%[[RUNNER]], %[[CONTEXT]], %{{.*}}, %[[BYTES]]) : (!llvm.ptr, !llvm.ptr, i64, i64) -> i32
// CHECK:         %[[GOOD:.*]] = llvm.icmp "eq" %[[STATUS]]
// CHECK:         llvm.cond_br %[[GOOD]], ^{{.*}}, ^[[FAILED:.*]]
// CHECK:         %[[NONE:.*]] = llvm.mlir.zero : !llvm.ptr
// CHECK-NEXT:    llvm.return %[[NONE]]
// CHECK:       ^[[FAILED]]:
// CHECK-NEXT:    %[[TEXT:.*]] = llvm.mlir.addressof @saccade.out_of_memory
// CHECK-NEXT:    llvm.return %[[TEXT]]
// CHECK:       llvm.func @_mlir_ciface_launch_calls_the_runtime({{.*}}) -> !llvm.ptr
// CHECK:         %[[MESSAGE:.*]] = llvm.call @launch_calls_the_runtime
// CHECK:         llvm.return %[[MESSAGE]]
func.func @launch_calls_the_runtime(%x: memref<?xf32, strided<[?], offset: ?>>, %n: index, %s: f32) {
  %y = memref.cast %x : memref<?xf32, strided<[?], offset: ?>> to memref<?xf32>
  attn.launch @task(%y, %n, %s) count(%n) scratch(256) : (memref<?xf32>, index, f32)
  return
}

// CHECK:       llvm.func @task(
// CHECK-SAME:    %{{[a-z0-9]+}}: !llvm.ptr {llvm.noalias}, %{{[a-z0-9]+}}: !llvm.ptr {llvm.noalias}, %{{[a-z0-9]+}}: i64, %{{[a-z0-9]+}}: i64, %{{[a-z0-9]+}}: i64)
// CHECK-NOT:     _mlir_ciface_task
func.func private @task(%x: memref<?xf32>, %n: index, %s: f32, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {attn.task} {
  %c1 = arith.constant 1 : index
  scf.for %item = %begin to %end step %c1 {
    %i:2 = affine.delinearize_index %item into (%n, 4) : index, index
    memref.store %s, %x[%i#1] : memref<?xf32>
  }
  return
}

// CHECK-LABEL: llvm.func @buffers_come_from_the_runtime(
// CHECK:         %[[MEMORY:.*]] = llvm.call @saccade_allocate(%{{.*}}) : (i64) -> !llvm.ptr
// CHECK:         llvm.icmp "ne" %[[MEMORY]]
// CHECK:         llvm.store %[[MEMORY]], %[[SLOT:.*]] : !llvm.ptr, !llvm.ptr
// CHECK:         llvm.call @saccade_release(%{{.*}}) : (!llvm.ptr) -> ()
// CHECK-NEXT:    %[[NONE:.*]] = llvm.mlir.zero
// CHECK-NEXT:    llvm.store %[[NONE]], %[[SLOT]]
// CHECK:         %[[HELD:.*]] = llvm.load %[[SLOT]]
// CHECK-NEXT:    llvm.call @saccade_release(%[[HELD]])
// CHECK-NEXT:    llvm.mlir.addressof @saccade.out_of_memory
func.func @buffers_come_from_the_runtime(%n: index) {
  %x = memref.alloc(%n) : memref<?x8xf32>
  memref.dealloc %x : memref<?x8xf32>
  return
}

// CHECK-LABEL: llvm.func @vectors_become_instructions(
// CHECK:         llvm.intr.fmuladd
// CHECK:         llvm.intr.masked.load
// CHECK:         llvm.intr.maxnum(%{{.*}}) {fastmathFlags = #llvm.fastmath<nnan, nsz>}
// CHECK:         "llvm.intr.vector.reduce.fadd"({{.*}}) <{fastmathFlags = #llvm.fastmath<reassoc>}>
func.func @vectors_become_instructions(%x: memref<64xf32>, %n: index) -> f32 {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %none = arith.constant dense<0.0> : vector<16xf32>
  %a = vector.load %x[%c0] : memref<64xf32>, vector<16xf32>
  %b = vector.fma %a, %a, %a : vector<16xf32>
  %mask = vector.create_mask %n : vector<16xi1>
  %c = vector.maskedload %x[%c0], %mask, %none : memref<64xf32>, vector<16xi1>, vector<16xf32> into vector<16xf32>
  %d = arith.maxnumf %b, %c fastmath<nnan,nsz> : vector<16xf32>
  %r = vector.reduction <add>, %d, %zero fastmath<reassoc> : vector<16xf32> into f32
  return %r : f32
}

// A 16 x 16 transpose takes 64 shuffles of two registers.
// CHECK-LABEL: llvm.func @squares_are_transposed_in_registers(
// CHECK-COUNT-64: llvm.shufflevector {{.*}} : vector<16xf32>
// CHECK-NOT:     llvm.shufflevector {{.*}} : vector<16xf32>
// CHECK:         llvm.return
func.func @squares_are_transposed_in_registers(%x: memref<16x16xf32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %a = vector.transfer_read %x[%c0, %c0], %zero {in_bounds = [true, true]} : memref<16x16xf32>, vector<16x16xf32>
  %t = vector.transpose %a, [1, 0] : vector<16x16xf32> to vector<16x16xf32>
  vector.transfer_write %t, %x[%c0, %c0] {in_bounds = [true, true]} : vector<16x16xf32>, memref<16x16xf32>
  return
}

// The address of a row is hoisted out of the inner loop.
// CHECK-LABEL: llvm.func @addresses_are_hoisted(
// CHECK:         llvm.icmp "slt"
// CHECK:         llvm.mul
// CHECK:         llvm.icmp "slt"
// CHECK-NOT:     llvm.mul
// CHECK:         llvm.load
func.func @addresses_are_hoisted(%x: memref<?x?xf32, strided<[?, 1], offset: ?>>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    scf.for %j = %c0 to %n step %c1 {
      %row = memref.subview %x[%i, 0] [1, %n] [1, 1] : memref<?x?xf32, strided<[?, 1], offset: ?>> to memref<?xf32, strided<[1], offset: ?>>
      %a = memref.load %row[%j] : memref<?xf32, strided<[1], offset: ?>>
      %b = arith.addf %a, %a : f32
      memref.store %b, %row[%j] : memref<?xf32, strided<[1], offset: ?>>
    }
  }
  return
}

// CHECK-LABEL: llvm.func @views_of_several_dynamic_extents(
// CHECK-NOT:     unrealized_conversion_cast
// CHECK:         llvm.store
func.func @views_of_several_dynamic_extents(%x: memref<?x384xf32, strided<[?, 1], offset: ?>>, %b: index, %s: index, %h: index, %one: f32) {
  %c0 = arith.constant 0 : index
  %heads = memref.expand_shape %x [[0, 1], [2, 3]] output_shape [%b, %s, 12, 32]
    : memref<?x384xf32, strided<[?, 1], offset: ?>> into memref<?x?x12x32xf32, strided<[?, ?, 32, 1], offset: ?>>
  memref.store %one, %heads[%b, %s, %h, %c0] : memref<?x?x12x32xf32, strided<[?, ?, 32, 1], offset: ?>>
  return
}

// EXAMPLE
// CHECK-LABEL: llvm.func @rare_functions_call_the_library(
// CHECK:         llvm.call @erff
// CHECK:         llvm.intr.sqrt
// CHECK:         llvm.call @log1pf
func.func @rare_functions_call_the_library(%x: f32) -> f32 {
  %a = math.erf %x : f32
  %b = math.sqrt %a : f32
  %c = math.log1p %b : f32
  return %c : f32
}

// CHECK-LABEL: llvm.func @division_of_indices_floors(
// CHECK-NOT:     unrealized_conversion_cast
func.func @division_of_indices_floors(%x: index, %y: index) -> index {
  %a = arith.floordivsi %x, %y : index
  %b = arith.ceildivsi %a, %y : index
  return %b : index
}

// IR: define {{.*}} @launch_calls_the_runtime(
// IR: define {{.*}} @task_run(ptr %{{[0-9]+}}, i64 %{{[0-9]+}}, i64 %{{[0-9]+}}, ptr %{{[0-9]+}})
// IR:   call void @task(
