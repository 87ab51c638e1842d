// Round trip of every clause of every op through text, generic text, text with locations and bytecode.
// RUN: saccade-opt %s -o %t.mlir && FileCheck %s --input-file=%t.mlir
// RUN: saccade-opt %t.mlir | diff %t.mlir -
// RUN: saccade-opt %t.mlir -emit-bytecode | saccade-opt | diff %t.mlir -
// RUN: saccade-opt %t.mlir -mlir-print-op-generic | saccade-opt | diff %t.mlir -
// RUN: saccade-opt %t.mlir -mlir-print-debuginfo | saccade-opt | diff %t.mlir -

// CHECK-LABEL: func.func @plain
// CHECK: attn.attention %{{.*}}[s,d], %{{.*}}[s,d], %{{.*}}[s,d] : (tensor<4x8xf64>, tensor<5x8xf64>, tensor<5x3xf64>) -> tensor<4x3xf64>
func.func @plain(%q: tensor<4x8xf64>, %k: tensor<5x8xf64>, %v: tensor<5x3xf64>) -> tensor<4x3xf64> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d]
    : (tensor<4x8xf64>, tensor<5x8xf64>, tensor<5x3xf64>) -> tensor<4x3xf64>
  return %o : tensor<4x3xf64>
}

// CHECK-LABEL: func.func @an_output_like_the_query_needs_no_dims
// CHECK: attn.attention %{{.*}}[b,s,h,d], %{{.*}}[h,b,d,s], %{{.*}}[b,h,s,d] : (
func.func @an_output_like_the_query_needs_no_dims(%q: tensor<2x?x4x8xf16>, %k: tensor<4x2x8x?xf16>,
                                                  %v: tensor<2x4x?x8xf16>) -> tensor<2x?x4x8xf16> {
  %o = attn.attention %q[b,s,h,d], %k[h,b,d,s], %v[b,h,s,d] out[b,s,h,d]
    : (tensor<2x?x4x8xf16>, tensor<4x2x8x?xf16>, tensor<2x4x?x8xf16>) -> tensor<2x?x4x8xf16>
  return %o : tensor<2x?x4x8xf16>
}

// CHECK-LABEL: func.func @output_in_another_layout_and_type
// CHECK: attn.attention %{{.*}}[b,s,h,d], %{{.*}}[s,d], %{{.*}}[s,d] out[h,d,b,s] :
// CHECK-SAME: -> tensor<4x8x1x?xf32>
func.func @output_in_another_layout_and_type(%q: tensor<1x?x4x8xbf16>, %k: tensor<?x8xbf16>, %v: tensor<?x8xbf16>)
    -> tensor<4x8x1x?xf32> {
  %o = attn.attention %q[b,s,h,d], %k[s,d], %v[s,d] out[h,d,b,s]
    : (tensor<1x?x4x8xbf16>, tensor<?x8xbf16>, tensor<?x8xbf16>) -> tensor<4x8x1x?xf32>
  return %o : tensor<4x8x1x?xf32>
}

// CHECK-LABEL: func.func @lengths_scale_and_position
// CHECK: q_len(%{{.*}} : index) kv_len(%{{.*}} : tensor<2xi32>) scale(%{{.*}} : f32) at(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) :
func.func @lengths_scale_and_position(%q: tensor<2x4x?x8xf32>, %k: tensor<2x4x?x8xf32>, %v: tensor<2x4x?x8xf32>,
                                      %n: index, %m: tensor<2xi32>, %scale: f32, %b: index, %h: index)
    -> tensor<2x4x?x8xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    at(%b, %h, %n, %n) scale(%scale : f32) kv_len(%m : tensor<2xi32>) q_len(%n : index)
    : (tensor<2x4x?x8xf32>, tensor<2x4x?x8xf32>, tensor<2x4x?x8xf32>) -> tensor<2x4x?x8xf32>
  return %o : tensor<2x4x?x8xf32>
}

// CHECK-LABEL: func.func @lengths_of_other_types
// CHECK: q_len(%{{.*}} : tensor<?xindex>) kv_len(%{{.*}} : tensor<2xi64>)
func.func @lengths_of_other_types(%q: tensor<2x4x?x8xf32>, %k: tensor<2x4x?x8xf32>, %v: tensor<2x4x?x8xf32>,
                                  %n: tensor<?xindex>, %m: tensor<2xi64>) -> tensor<2x4x?x8xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] q_len(%n : tensor<?xindex>) kv_len(%m : tensor<2xi64>)
    : (tensor<2x4x?x8xf32>, tensor<2x4x?x8xf32>, tensor<2x4x?x8xf32>) -> tensor<2x4x?x8xf32>
  return %o : tensor<2x4x?x8xf32>
}

// CHECK-LABEL: func.func @constant_scales
// CHECK: scale(2.500000e-01) :
// CHECK: scale(-1.000000e-03) :
// CHECK: scale(1.000000e+30) :
func.func @constant_scales(%q: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
  %0 = attn.attention %q[s,d], %q[s,d], %q[s,d] scale(0.25)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = attn.attention %q[s,d], %q[s,d], %q[s,d] scale(-1.0e-3)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %2 = attn.attention %q[s,d], %q[s,d], %q[s,d] scale(1.0e30)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0, %1, %2 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}

// CHECK-LABEL: func.func @log_sum_exp
// CHECK: %{{.*}}:2 = attn.attention {{.*}} out[h,s,b,d] lse : {{.*}} -> (tensor<4x?x2x8xf32>, tensor<2x4x?xf32>)
func.func @log_sum_exp(%q: tensor<2x4x?x8xf32>, %k: tensor<2x2x?x8xf32>, %v: tensor<2x2x?x8xf32>)
    -> (tensor<4x?x2x8xf32>, tensor<2x4x?xf32>) {
  %o, %lse = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] lse out[h,s,b,d]
    : (tensor<2x4x?x8xf32>, tensor<2x2x?x8xf32>, tensor<2x2x?x8xf32>) -> (tensor<4x?x2x8xf32>, tensor<2x4x?xf32>)
  return %o, %lse : tensor<4x?x2x8xf32>, tensor<2x4x?xf32>
}

// CHECK-LABEL: func.func @captures_in_both_regions
// CHECK: attn.attention {{.*}} captures(%{{.*}}, %{{.*}}, %{{.*}} : tensor<?xi32>, f32, index)
// CHECK-NEXT: mask(%[[B:.*]], %[[H:.*]], %[[Q:.*]], %[[K:.*]], %[[IDS:.*]], %{{.*}}, %[[LIMIT:.*]]) {
// CHECK: tensor.extract %[[IDS]][%[[Q]]]
// CHECK: arith.divsi %[[K]], %[[LIMIT]]
// CHECK: attn.yield %{{.*}} : i1
// CHECK: score(%[[S:.*]], %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %[[TEMPERATURE:.*]], %{{.*}}) {
// CHECK-NEXT: arith.mulf %[[S]], %[[TEMPERATURE]]
func.func @captures_in_both_regions(%q: tensor<?x8xf32>, %ids: tensor<?xi32>, %temperature: f32, %limit: index)
    -> tensor<?x8xf32> {
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] captures(%ids, %temperature, %limit : tensor<?xi32>, f32, index)
    score(%s, %b, %h, %i, %j, %documents, %t, %end) {
      %r = arith.mulf %s, %t : f32
      attn.yield %r : f32
    }
    mask(%b, %h, %i, %j, %documents, %t, %end) {
      %mine = tensor.extract %documents[%i] : tensor<?xi32>
      %theirs = tensor.extract %documents[%j] : tensor<?xi32>
      %same = arith.cmpi eq, %mine, %theirs : i32
      %page = arith.divsi %j, %end : index
      %early = arith.cmpi slt, %page, %end : index
      %holds = arith.andi %same, %early : i1
      attn.yield %holds : i1
    } : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}

// CHECK-LABEL: func.func @score_of_doubles_has_its_type
// CHECK: score(%{{.*}}: f64, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {
func.func @score_of_doubles_has_its_type(%q: tensor<?x8xf64>) -> tensor<?x8xf64> {
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d]
    score(%s: f64, %b, %h, %i, %j) {
      %r = math.tanh %s : f64
      attn.yield %r : f64
    } {note = "attributes are kept", schedule = #attn.schedule<rows = 8, cols = 16>}
    : (tensor<?x8xf64>, tensor<?x8xf64>, tensor<?x8xf64>) -> tensor<?x8xf64>
  return %o : tensor<?x8xf64>
}
// CHECK: {note = "attributes are kept", schedule = #attn.schedule<rows = 8, cols = 16>}

// CHECK-LABEL: func.func @accumulate_merge_finalize
// CHECK: attn.accumulate %{{.*}}[s,d], %{{.*}}[d,s], %{{.*}}[s,d] captures(%{{.*}} : f32) q_len(%{{.*}} : index) kv_len(%{{.*}} : index) scale(5.000000e-01) at({{.*}}) into(%{{.*}}, %{{.*}}, %{{.*}} : tensor<96x32xf32>, tensor<96xf32>, tensor<96xf32>)
// CHECK-NEXT: mask(
// CHECK: score(
// CHECK: } : (tensor<?x64xbf16>, tensor<64x?xbf16>, tensor<?x32xbf16>)
// CHECK: attn.merge(%{{.*}}, %{{.*}}, %{{.*}}) into(%{{.*}}, %{{.*}}, %{{.*}}) :
// CHECK: attn.finalize %{{.*}}, %{{.*}}, %{{.*}} : tensor<96x32xf32>, tensor<96xf32>, tensor<96xf32> into(%{{.*}}[d,s] : tensor<32x?xbf16>)
// CHECK: attn.finalize {{.*}} into(%{{.*}}[s,d] : tensor<?x32xf32>, %{{.*}} : tensor<?xf32>)
func.func @accumulate_merge_finalize(%q: tensor<?x64xbf16>, %k: tensor<64x?xbf16>, %v: tensor<?x32xbf16>, %i: index,
    %t: f32, %acc: tensor<96x32xf32>, %max: tensor<96xf32>, %sum: tensor<96xf32>, %out1: tensor<32x?xbf16>,
    %out2: tensor<?x32xf32>, %lse: tensor<?xf32>) -> (tensor<32x?xbf16>, tensor<?x32xf32>, tensor<?xf32>) {
  %s:3 = attn.accumulate %q[s,d], %k[d,s], %v[s,d] captures(%t : f32) q_len(%i : index) kv_len(%i : index) scale(0.5)
    at(%i, %i, %i, %i) into(%acc, %max, %sum : tensor<96x32xf32>, tensor<96xf32>, tensor<96xf32>)
    mask causal<bottom_right>
    score(%s, %b, %h, %qi, %ki, %c) {
      %r = arith.addf %s, %c : f32
      attn.yield %r : f32
    } : (tensor<?x64xbf16>, tensor<64x?xbf16>, tensor<?x32xbf16>)
  %m:3 = attn.merge(%s#0, %s#1, %s#2) into(%acc, %max, %sum)
    : (tensor<96x32xf32>, tensor<96xf32>, tensor<96xf32>, tensor<96x32xf32>, tensor<96xf32>, tensor<96xf32>)
    -> (tensor<96x32xf32>, tensor<96xf32>, tensor<96xf32>)
  %o1 = attn.finalize %m#0, %m#1, %m#2 : tensor<96x32xf32>, tensor<96xf32>, tensor<96xf32>
    into(%out1[d,s] : tensor<32x?xbf16>)
  %o2:2 = attn.finalize %m#0, %m#1, %m#2 : tensor<96x32xf32>, tensor<96xf32>, tensor<96xf32>
    into(%out2[s,d] : tensor<?x32xf32>, %lse : tensor<?xf32>)
  return %o1, %o2#0, %o2#1 : tensor<32x?xbf16>, tensor<?x32xf32>, tensor<?xf32>
}

// On buffers the ops write their destinations and have no results. A captured buffer is a tensor in the region.
// CHECK-LABEL: func.func @on_buffers
// CHECK: attn.accumulate {{.*}} into({{.*}} : memref<4x8xf32>, memref<4xf32>, memref<4xf32>)
// CHECK: attn.merge({{.*}}) into({{.*}}) : {{.*}} -> (){{$}}
// CHECK: attn.finalize {{.*}} into({{.*}} : memref<4x8xf32, strided<[8, 1], offset: ?>>, {{.*}} : memref<4xf32>)
func.func @on_buffers(%q: memref<4x8xf32>, %k: memref<6x8xf32>, %acc: memref<4x8xf32>, %max: memref<4xf32>,
    %sum: memref<4xf32>, %acc2: memref<4x8xf32>, %max2: memref<4xf32>, %sum2: memref<4xf32>, %i: index,
    %table: memref<6xf32>, %out: memref<4x8xf32, strided<[8, 1], offset: ?>>, %lse: memref<4xf32>) {
  attn.accumulate %q[s,d], %k[s,d], %k[s,d] captures(%table : memref<6xf32>) at(%i, %i, %i, %i)
    into(%acc, %max, %sum : memref<4x8xf32>, memref<4xf32>, memref<4xf32>)
    score(%s, %b, %h, %qi, %ki, %t) {
      %e = tensor.extract %t[%ki] : tensor<6xf32>
      %r = arith.addf %s, %e : f32
      attn.yield %r : f32
    } : (memref<4x8xf32>, memref<6x8xf32>, memref<6x8xf32>)
  attn.merge(%acc, %max, %sum) into(%acc2, %max2, %sum2)
    : (memref<4x8xf32>, memref<4xf32>, memref<4xf32>, memref<4x8xf32>, memref<4xf32>, memref<4xf32>) -> ()
  attn.finalize %acc2, %max2, %sum2 : memref<4x8xf32>, memref<4xf32>, memref<4xf32>
    into(%out[s,d] : memref<4x8xf32, strided<[8, 1], offset: ?>>, %lse : memref<4xf32>)
  return
}

// CHECK-LABEL: func.func @launch
// CHECK: attn.launch @task(%{{.*}}) count(%{{.*}}) scratch(64) : (memref<?xf32>)
// CHECK: attn.launch @task(%{{.*}}) count(%{{.*}}) : (memref<?xf32>)
// CHECK: attn.launch @task_without_captures() count(%{{.*}}){{$}}
func.func @launch(%x: memref<?xf32>, %n: index) {
  attn.launch @task(%x) count(%n) scratch(64) : (memref<?xf32>)
  attn.launch @task(%x) count(%n) : (memref<?xf32>)
  attn.launch @task_without_captures() count(%n)
  return
}
func.func private @task(memref<?xf32>, index, index, memref<?xi8>)
func.func private @task_without_captures(index, index, memref<?xi8>)

// CHECK-LABEL: func.func @attributes
// CHECK-SAME: dims = #attn.dims<b, s, h, d>
// CHECK-SAME: schedule = #attn.schedule<rows = 1, cols = 2, depth = 3>
func.func @attributes() attributes {dims = #attn.dims<b,s,h,d>,
                                    schedule = #attn.schedule<depth = 3, rows = 1, cols = 2>} {
  return
}

// CHECK-LABEL: func.func @weights_tallies_and_sinks
// CHECK: attn.attention {{.*}} captures(%{{.*}} : f64) sink(%[[T:.*]] : tensor<2xf64>) out[s,h,d]
// CHECK-NEXT: mask(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {
// CHECK: weight(%[[P:.*]]: f64, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %[[C:.*]]) {
// CHECK-NEXT: arith.mulf %[[P]], %[[C]] : f64
// CHECK: tally<3>(%[[S:.*]]: f64, %{{.*}}, %[[H:.*]], %{{.*}}, %{{.*}}, %{{.*}}) {
// CHECK-NEXT: attn.yield %[[H]], %[[S]] : index, f64
// CHECK: tally<1>(
// CHECK: } lse max argmax : ({{.*}}) -> (tensor<4x2x8xf64>, tensor<2x4xf64>, tensor<2x4xf64>, tensor<2x4xi64>, tensor<2x4x3xf64>, tensor<2x4x1xf64>)
func.func @weights_tallies_and_sinks(%q: tensor<2x4x8xf64>, %t: tensor<2xf64>, %c: f64) {
  %r:6 = attn.attention %q[h,s,d], %q[h,s,d], %q[h,s,d] captures(%c : f64) argmax max lse
    tally<3>(%s: f64, %b, %h, %i, %j, %d) { attn.yield %h, %s : index, f64 }
    weight(%p: f64, %b, %h, %i, %j, %d) {
      %x = arith.mulf %p, %d : f64
      attn.yield %x : f64
    }
    tally<1>(%s: f64, %b, %h, %i, %j, %d) { attn.yield %h, %d : index, f64 }
    mask causal<top_left> out[s,h,d] sink(%t : tensor<2xf64>)
    : (tensor<2x4x8xf64>, tensor<2x4x8xf64>, tensor<2x4x8xf64>)
    -> (tensor<4x2x8xf64>, tensor<2x4xf64>, tensor<2x4xf64>, tensor<2x4xi64>, tensor<2x4x3xf64>, tensor<2x4x1xf64>)
  return
}

// CHECK-LABEL: func.func @tiles_with_tallies
// CHECK: attn.accumulate {{.*}} into(%{{.*}}, %{{.*}}, %{{.*}}, %[[B:.*]], %{{.*}}, %[[P:.*]] : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4x2xf32>, tensor<4xf32>, tensor<4xi64>)
// CHECK-NEXT: tally<2>(
// CHECK: attn.accumulate {{.*}} into(
// CHECK-NEXT: weight(
// CHECK: } {final} : (
// CHECK: attn.finalize {{.*}} with(%{{.*}}#3, %{{.*}}#5 : tensor<4x2xf32>, tensor<4xi64>) into(%{{.*}}[s,d] : tensor<4x8xf32>, %{{.*}} : tensor<4xf32>, %[[B]] : tensor<4x2xf32>, %[[P]] : tensor<4xi64>)
func.func @tiles_with_tallies(%x: tensor<4x8xf32>, %m: tensor<4xf32>, %t: tensor<4x2xf32>, %p: tensor<4xi64>) {
  %a:6 = attn.accumulate %x[s,d], %x[s,d], %x[s,d] into(%x, %m, %m, %t, %m, %p
      : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4x2xf32>, tensor<4xf32>, tensor<4xi64>)
    tally<2>(%s, %b, %h, %i, %j) { attn.yield %i, %s : index, f32 }
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  %f:3 = attn.accumulate %x[s,d], %x[s,d], %x[s,d]
    into(%x, %a#1, %a#2 : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
    weight(%w, %b, %h, %i, %j) {
      %y = arith.mulf %w, %w : f32
      attn.yield %y : f32
    } {final} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  %r:4 = attn.finalize %f#0, %f#1, %f#2 : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>
    with(%a#3, %a#5 : tensor<4x2xf32>, tensor<4xi64>)
    into(%x[s,d] : tensor<4x8xf32>, %m : tensor<4xf32>, %t : tensor<4x2xf32>, %p : tensor<4xi64>)
  return
}

// CHECK-LABEL: func.func @packed_sequences
// CHECK: attn.attention %{{.*}}[s,h,d], %{{.*}}[b,h,s,d], %{{.*}}[b,h,s,d] kv_len(%{{.*}} : tensor<?xi32>) cu_seqlens_q(%{{.*}} : tensor<?xi64>) lse :
func.func @packed_sequences(%q: tensor<?x8x64xf32>, %k: tensor<?x2x?x64xf32>, %cu: tensor<?xi64>, %n: tensor<?xi32>) {
  %o, %l = attn.attention %q[s,h,d], %k[b,h,s,d], %k[b,h,s,d] cu_seqlens_q(%cu : tensor<?xi64>) kv_len(%n : tensor<?xi32>) lse
    : (tensor<?x8x64xf32>, tensor<?x2x?x64xf32>, tensor<?x2x?x64xf32>) -> (tensor<?x8x64xf32>, tensor<8x?xf32>)
  return
}

// CHECK-LABEL: func.func @products_may_be_quantized
// CHECK: attn.attention {{.*}} scale(5.000000e-01) qk_type(i8) : (
// CHECK: attn.accumulate {{.*}} qk_type(i8) into(
func.func @products_may_be_quantized(%x: tensor<4x8xf32>, %max: tensor<4xf32>) -> tensor<4x8xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] qk_type(i8) scale(0.5)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %s:3 = attn.accumulate %x[s,d], %x[s,d], %x[s,d] qk_type(i8)
    into(%o, %max, %max : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  return %s#0 : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @low_part_of_the_log_sum_exp
// CHECK: attn.attention {{.*}} lse lse_low max :
// CHECK: attn.accumulate {{.*}} {natural_max}
// CHECK: attn.merge{{.*}} {natural_max}
// CHECK: attn.finalize {{.*}} with({{.*}}) into({{.*}} : tensor<?x8xf32>, %{{.*}} : tensor<?xf32>, %{{.*}} : tensor<?xf32>, %{{.*}} : tensor<4xf32>) {natural_max}
// CHECK: attn.gradient {{.*}} lse(%{{.*}}) lse_low(%{{.*}}) delta(
func.func @low_part_of_the_log_sum_exp(%q: tensor<?x8xf32>, %acc: tensor<4x8xf32>, %m: tensor<4xf32>, %out: tensor<?x8xf32>,
                                       %l: tensor<?xf32>) {
  %r:4 = attn.attention %q[s,d], %q[s,d], %q[s,d] lse lse_low max
      : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>)
  %s:3 = attn.accumulate %q[s,d], %q[s,d], %q[s,d] into(%acc, %m, %m : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>) {natural_max}
      : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>)
  %t:3 = attn.merge (%s#0, %s#1, %s#2) into(%acc, %m, %m) {natural_max}
      : (tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
      -> (tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
  %o:4 = attn.finalize %t#0, %t#1, %t#2 : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32> with(%m : tensor<4xf32>)
      into(%out[s,d] : tensor<?x8xf32>, %l : tensor<?xf32>, %l : tensor<?xf32>, %m : tensor<4xf32>) {natural_max}
  %g:3 = attn.gradient %q[s,d], %q[s,d], %q[s,d] output_gradient(%q[s,d] : tensor<?x8xf32>) lse(%l : tensor<?xf32>)
      lse_low(%l : tensor<?xf32>) delta(%l : tensor<?xf32>)
      : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>)
  return
}
