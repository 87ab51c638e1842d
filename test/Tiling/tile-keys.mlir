// RUN: saccade-opt %s --attn-tile-keys -canonicalize -cse | FileCheck %s

// EXAMPLE
// CHECK-LABEL: @attention_is_a_loop_over_keys
// CHECK-SAME: %[[Q:.*]]: tensor<?x64xf32>, %[[K:.*]]: tensor<?x64xf32>, %[[V:.*]]: tensor<?x40xf32>
func.func @attention_is_a_loop_over_keys(%q: tensor<?x64xf32>, %k: tensor<?x64xf32>, %v: tensor<?x40xf32>) -> tensor<?x40xf32> {
  // CHECK-DAG: %[[NINF:.*]] = arith.constant 0xFF800000 : f32
  // CHECK-DAG: %[[STEP:.*]] = arith.constant 512 : index
  // The accumulator columns are rounded up to whole registers.
  // CHECK-DAG: %[[ACC:.*]] = linalg.fill {{.*}} -> tensor<384x48xf32>
  // CHECK-DAG: %[[MAX:.*]] = linalg.fill ins(%[[NINF]] : f32) {{.*}} -> tensor<384xf32>
  // CHECK: %[[STATE:.*]]:3 = scf.for %[[KEY:.*]] = %{{.*}} to %{{.*}} step %[[STEP]] iter_args(%[[A:.*]] = %[[ACC]], %[[M:.*]] = %[[MAX]], %{{.*}} = %{{.*}})
  // CHECK-DAG: %[[START:.*]] = arith.maxsi %[[KEY]], %{{.*}} : index
  // CHECK-DAG: %[[KT:.*]] = tensor.extract_slice %[[K]][%[[START]], 0]
  // CHECK-DAG: %[[VT:.*]] = tensor.extract_slice %[[V]][%[[START]], 0]
  // CHECK: attn.accumulate %{{.*}}[s,d], %[[KT]][s,d], %[[VT]][s,d] {{.*}} into(%[[A]], %[[M]]
  // CHECK: attn.finalize %[[STATE]]#0, %[[STATE]]#1, %[[STATE]]#2
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] {schedule = #attn.schedule<rows = 384, cols = 512>}
      : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x40xf32>) -> tensor<?x40xf32>
  return %o : tensor<?x40xf32>
}

// The loop ends at the last key visible to the last query and starts at the tile of the first key visible to the first one.
// CHECK-LABEL: @causal_and_window_bound_the_loop
// CHECK-SAME: %[[X:[^ ]*]]: tensor<?x64xf32>, %[[FIRST:[^ ]*]]: index
func.func @causal_and_window_bound_the_loop(%x: tensor<?x64xf32>, %first: index) -> tensor<?x64xf32> {
  // CHECK-DAG: %[[LEFT:.*]] = arith.constant -100 : index
  // CHECK-DAG: %[[ONE:.*]] = arith.constant 1 : index
  // CHECK: %[[ROWS:.*]] = arith.subi %{{.*}}, %[[ONE]] : index
  // CHECK: %[[LAST:.*]] = arith.addi %[[FIRST]], %[[ROWS]] : index
  // CHECK: %[[END:.*]] = arith.addi %[[LAST]], %[[ONE]] : index
  // CHECK: arith.minsi %{{.*}}, %[[END]] : index
  // CHECK: arith.addi %[[FIRST]], %[[LEFT]] : index
  // CHECK: scf.for
  %zero = arith.constant 0 : index
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] at(%zero, %zero, %first, %zero) mask causal<top_left> mask window<100, *>
      {schedule = #attn.schedule<rows = 384, cols = 512>}
      : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

// A task writes its tile into the result, without a temporary.
// CHECK-LABEL: @results_are_written_in_place
func.func @results_are_written_in_place(%x: tensor<?x2x8xf32>, %out: tensor<?x2x8xf32>, %all: index) -> tensor<?x2x8xf32> {
  %n = affine.min affine_map<(d0) -> (d0, 384)>(%all)
  // CHECK: scf.forall (%[[H:.*]]) in (2) shared_outs(%[[OUT:.*]] =
  %r = scf.forall (%h) in (2) shared_outs(%o = %out) -> tensor<?x2x8xf32> {
    %t = tensor.extract_slice %x[0, %h, 0] [%n, 1, 8] [1, 1, 1] : tensor<?x2x8xf32> to tensor<?x1x8xf32>
    // CHECK: %[[TILE:.*]] = tensor.extract_slice %[[OUT]][0, %[[H]], 0] {{.*}} to tensor<?x8xf32>
    // CHECK: %[[DONE:.*]] = attn.finalize {{.*}} into(%[[TILE]][s,d]
    // CHECK: tensor.parallel_insert_slice %[[DONE]] into %[[OUT]][0, %[[H]], 0]
    %a = attn.attention %t[s,h,d], %t[s,h,d], %t[s,h,d] {schedule = #attn.schedule<rows = 384, cols = 512>}
        : (tensor<?x1x8xf32>, tensor<?x1x8xf32>, tensor<?x1x8xf32>) -> tensor<?x1x8xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %a into %o[0, %h, 0] [%n, 1, 8] [1, 1, 1] : tensor<?x1x8xf32> into tensor<?x2x8xf32>
    }
  }
  return %r : tensor<?x2x8xf32>
}

// Tiles start at absolute multiples of their size, at any offset of the operand, so that the order of summation is that of
// the whole sequence.
// CHECK-LABEL: @tiles_start_at_absolute_positions
// CHECK-SAME: %[[X:[^ ]*]]: tensor<?x64xf32>, %[[FIRST:[^ ]*]]: index
func.func @tiles_start_at_absolute_positions(%x: tensor<?x64xf32>, %first: index) -> tensor<?x64xf32> {
  // CHECK-DAG: %[[STEP:.*]] = arith.constant 512 : index
  // CHECK: %[[TILE:.*]] = arith.floordivsi %{{.*}}, %[[STEP]] : index
  // CHECK: %[[ABSOLUTE:.*]] = arith.muli %[[TILE]], %[[STEP]] : index
  // CHECK: %[[BEGIN:.*]] = arith.subi %[[ABSOLUTE]], %[[FIRST]] : index
  // CHECK: scf.for %{{.*}} = %[[BEGIN]] to
  %zero = arith.constant 0 : index
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] at(%zero, %zero, %zero, %first) {schedule = #attn.schedule<rows = 384, cols = 512>}
      : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

// A tile may start before element 0. If no visible key follows, the trip count is zero, so that no extent is negative.
// CHECK-LABEL: @keys_before_the_operand_have_no_tile
func.func @keys_before_the_operand_have_no_tile(%x: tensor<?x64xf32>, %first: index) -> tensor<?x64xf32> {
  // CHECK-DAG: %[[ZERO:.*]] = arith.constant 0 : index
  // CHECK: arith.floordivsi
  // CHECK: %[[LAST:.*]] = arith.minsi
  // CHECK: %[[LEAST:.*]] = arith.minsi %{{.*}}, %[[LAST]] : index
  // CHECK: %[[EMPTY:.*]] = arith.cmpi sle, %[[LEAST]], %[[ZERO]] : index
  // CHECK: %[[END:.*]] = arith.select %[[EMPTY]], %{{.*}}, %[[LAST]] : index
  // CHECK: scf.for %{{.*}} to %[[END]] step
  %zero = arith.constant 0 : index
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] at(%zero, %zero, %zero, %first) mask causal<top_left>
      {schedule = #attn.schedule<rows = 384, cols = 512>} : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

// A sink initializes the state of the valid rows, here the first %n. The loop is unchanged.
// CHECK-LABEL: @a_sink_is_the_initial_state
// CHECK-SAME: %[[X:[^ ]*]]: tensor<?x64xf32>, %[[SINK:[^ ]*]]: f32
func.func @a_sink_is_the_initial_state(%x: tensor<?x64xf32>, %sink: f32, %n: index) -> tensor<?x64xf32> {
  // CHECK-DAG: %[[LOG2E:.*]] = arith.constant 1.44269502 : f32
  // CHECK-DAG: %[[NINF:.*]] = arith.constant 0xFF800000 : f32
  // CHECK-DAG: %[[EMPTY:.*]] = linalg.fill ins(%[[NINF]] : f32) {{.*}} -> tensor<384xf32>
  // CHECK-DAG: %[[ZERO:.*]] = linalg.fill ins(%{{.*}} : f32) {{.*}} -> tensor<384xf32>
  // CHECK-DAG: %[[SCALED:.*]] = arith.mulf %[[SINK]], %[[LOG2E]] : f32
  // CHECK-DAG: %[[FINITE:.*]] = arith.maximumf %[[SCALED]], %{{.*}} : f32
  // CHECK-DAG: %[[NONE:.*]] = arith.cmpf oeq, %[[SINK]], %[[NINF]] : f32
  // CHECK-DAG: %[[M:.*]] = arith.select %[[NONE]], %[[SINK]], %[[FINITE]] : f32
  // CHECK-DAG: %[[L:.*]] = arith.select %[[NONE]], %{{.*}}, %{{.*}} : f32
  // CHECK: %[[ROWS:.*]] = tensor.extract_slice %[[EMPTY]][0] [%[[COUNT:.*]]] [1]
  // CHECK: %[[FILLED:.*]] = linalg.fill ins(%[[M]] : f32) outs(%[[ROWS]]
  // CHECK: %[[MAX:.*]] = tensor.insert_slice %[[FILLED]] into %[[EMPTY]][0] [%[[COUNT]]] [1]
  // CHECK: linalg.fill ins(%[[L]] : f32)
  // CHECK: %[[SUM:.*]] = tensor.insert_slice %{{.*}} into %[[ZERO]][0] [%[[COUNT]]] [1]
  // CHECK: scf.for {{.*}} iter_args(%{{.*}} = %{{.*}}, %{{.*}} = %[[MAX]], %{{.*}} = %[[SUM]])
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] q_len(%n : index) sink(%sink : f32)
      {schedule = #attn.schedule<rows = 384, cols = 512>}
      : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

// A weight region that is proportional to the weight is evaluated in the first pass.
// CHECK-LABEL: @proportional_weights_need_one_pass
func.func @proportional_weights_need_one_pass(%x: tensor<?x64xf32>, %g: f32) -> tensor<?x64xf32> {
  // CHECK: scf.for
  // CHECK: attn.accumulate {{.*}}
  // CHECK-NEXT: weight(
  // CHECK-NOT: scf.for
  // CHECK: attn.finalize
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] captures(%g : f32)
      weight(%p, %b, %h, %i, %j, %f) {
        %y = arith.mulf %p, %f : f32
        %z = arith.divf %y, %f : f32
        %c = arith.cmpi sle, %j, %i : index
        %w = arith.select %c, %z, %p : f32
        %v = arith.subf %w, %y : f32
        attn.yield %v : f32
      } {schedule = #attn.schedule<rows = 384, cols = 512>}
      : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

// Other weight regions require normalized weights and a second pass. Tallies and maxima are computed in the first pass.
// CHECK-LABEL: @other_weights_need_two_passes
func.func @other_weights_need_two_passes(%x: tensor<?x64xf32>)
    -> (tensor<?x64xf32>, tensor<?xf32>, tensor<?xi64>, tensor<?x3xf32>) {
  // CHECK: %[[FIRST:.*]]:6 = scf.for
  // CHECK: attn.accumulate {{.*}} into(%{{.*}} : tensor<384x64xf32>, tensor<384xf32>, tensor<384xf32>, tensor<384x3xf32>, tensor<384xf32>, tensor<384xi64>)
  // CHECK-NEXT: tally<3>(
  // CHECK: %[[SECOND:.*]]:3 = scf.for {{.*}} iter_args(%{{.*}} = %{{.*}}, %[[M:.*]] = %[[FIRST]]#1, %[[L:.*]] = %[[FIRST]]#2)
  // CHECK: attn.accumulate {{.*}}, %[[M]], %[[L]] : tensor<384x64xf32>, tensor<384xf32>, tensor<384xf32>)
  // CHECK-NEXT: weight(
  // CHECK: {final
  // CHECK: attn.finalize %[[SECOND]]#0, %[[SECOND]]#1, %[[SECOND]]#2 : {{.*}} with(%[[FIRST]]#3, %[[FIRST]]#4, %[[FIRST]]#5 :
  %o, %m, %a, %t = attn.attention %x[s,d], %x[s,d], %x[s,d] max argmax
      weight(%p, %b, %h, %i, %j) {
        %y = math.sqrt %p : f32
        attn.yield %y : f32
      }
      tally<3>(%s, %b, %h, %i, %j) { attn.yield %i, %s : index, f32 }
      {schedule = #attn.schedule<rows = 384, cols = 512>}
      : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>)
      -> (tensor<?x64xf32>, tensor<?xf32>, tensor<?xi64>, tensor<?x3xf32>)
  return %o, %m, %a, %t : tensor<?x64xf32>, tensor<?xf32>, tensor<?xi64>, tensor<?x3xf32>
}

// Results that are declared with other static extents than the tile are cast.
// CHECK-LABEL: @results_of_less_static_types
// CHECK: %[[R:.*]]:2 = attn.finalize {{.*}} : tensor<8x16xf32>, %{{.*}} : tensor<8xf32>)
// CHECK-DAG: %[[O:.*]] = tensor.cast %[[R]]#0 : tensor<8x16xf32> to tensor<?x16xf32>
// CHECK-DAG: %[[L:.*]] = tensor.cast %[[R]]#1 : tensor<8xf32> to tensor<?xf32>
// CHECK: return %[[O]], %[[L]]
func.func @results_of_less_static_types(%q: tensor<8x16xf32>, %k: tensor<?x16xf32>) -> (tensor<?x16xf32>, tensor<?xf32>) {
  %o, %l = attn.attention %q[s,d], %k[s,d], %k[s,d] lse {schedule = #attn.schedule<rows = 384, cols = 512>}
      : (tensor<8x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> (tensor<?x16xf32>, tensor<?xf32>)
  return %o, %l : tensor<?x16xf32>, tensor<?xf32>
}

// CHECK-LABEL: @results_of_more_static_types
// CHECK: %[[R:.*]]:2 = attn.finalize {{.*}} : tensor<?x16xf32>, %{{.*}} : tensor<?xf32>)
// CHECK-DAG: %[[O:.*]] = tensor.cast %[[R]]#0 : tensor<?x16xf32> to tensor<8x16xf32>
// CHECK-DAG: %[[L:.*]] = tensor.cast %[[R]]#1 : tensor<?xf32> to tensor<8xf32>
// CHECK: return %[[O]], %[[L]]
func.func @results_of_more_static_types(%q: tensor<?x16xf32>, %k: tensor<?x16xf32>) -> (tensor<8x16xf32>, tensor<8xf32>) {
  %o, %l = attn.attention %q[s,d], %k[s,d], %k[s,d] lse {schedule = #attn.schedule<rows = 384, cols = 512>}
      : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> (tensor<8x16xf32>, tensor<8xf32>)
  return %o, %l : tensor<8x16xf32>, tensor<8xf32>
}

// A tile of a paged cache is loaded in the task. The slice of the sequence and the head is that of table and pool.
// CHECK-LABEL: func.func @pages_are_loaded_by_tiles(
// CHECK-SAME:    %[[POOL:[a-z0-9]*]]: tensor<?x16x2x64xf32>, %[[TABLE:[a-z0-9]*]]: tensor<?x?xi32>, %[[B:[a-z0-9]*]]: index, %[[H:[a-z0-9]*]]: index
// CHECK:         scf.for
// CHECK:           %[[MEMORY:.*]] = tensor.empty() : tensor<32x64xf32>
// CHECK:           %[[TILE:.*]] = tensor.extract_slice %[[MEMORY]][0, 0] [%[[COUNT:.*]], 64] [1, 1]
// CHECK:           %[[PAGES_OF_HEAD:.*]] = tensor.extract_slice %[[POOL]][0, 0, %[[H]], 0] [%{{.*}}, 16, 1, 64]
// CHECK:           %[[PAGES:.*]] = tensor.extract_slice %[[TABLE]][%[[B]], 0] [1, %{{.*}}]
// CHECK:           %[[KEYS:.*]] = attn.load_pages %[[PAGES_OF_HEAD]][b,s,d], %[[PAGES]] from %{{.*}} into(%[[TILE]])
// CHECK:           attn.accumulate %{{.*}}, %[[KEYS]][s,d], %[[KEYS]][s,d]
func.func @pages_are_loaded_by_tiles(%pool: tensor<?x16x2x64xf32>, %table: tensor<?x?xi32>, %b: index, %h: index, %n: index,
    %q: tensor<1x1x8x64xf32>) -> tensor<1x1x8x64xf32> {
  %x = attn.paged %pool[b,s,h,d], %table : tensor<?x16x2x64xf32>, tensor<?x?xi32> -> tensor<?x?x2x64xf32>
  %k = tensor.extract_slice %x[%b, 0, %h, 0] [1, %n, 1, 64] [1, 1, 1, 1] : tensor<?x?x2x64xf32> to tensor<1x?x1x64xf32>
  %o = attn.attention %q[b,h,s,d], %k[b,s,h,d], %k[b,s,h,d] {schedule = #attn.schedule<rows = 12, cols = 32>}
    : (tensor<1x1x8x64xf32>, tensor<1x?x1x64xf32>, tensor<1x?x1x64xf32>) -> tensor<1x1x8x64xf32>
  return %o : tensor<1x1x8x64xf32>
}

#all = affine_map<(b, s, h, d) -> (b, s, h, d)>
#position = affine_map<(b, s, h, d) -> (b, s, h)>

// An exponential of keys is computed once, although it reads fewer bits.
// CHECK-LABEL: func.func @expensive_keys_are_computed_once(
// CHECK:         linalg.generic
// CHECK:         scf.for
// CHECK-NOT:       linalg.generic
// CHECK:           attn.accumulate
func.func @expensive_keys_are_computed_once(%x: tensor<1x?x1x64xf16>, %e: tensor<1x?x1x64xf32>, %q: tensor<1x1x8x64xf32>) -> tensor<1x1x8x64xf32> {
  %k = linalg.generic {indexing_maps = [affine_map<(b, s, h, d) -> (b, s, h, d)>, affine_map<(b, s, h, d) -> (b, s, h, d)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%x : tensor<1x?x1x64xf16>) outs(%e : tensor<1x?x1x64xf32>) {
  ^bb0(%a: f16, %o: f32):
    %f = arith.extf %a : f16 to f32
    %g = math.exp %f : f32
    linalg.yield %g : f32
  } -> tensor<1x?x1x64xf32>
  %o = attn.attention %q[b,h,s,d], %k[b,s,h,d], %k[b,s,h,d] {schedule = #attn.schedule<rows = 12, cols = 32>}
    : (tensor<1x1x8x64xf32>, tensor<1x?x1x64xf32>, tensor<1x?x1x64xf32>) -> tensor<1x1x8x64xf32>
  return %o : tensor<1x1x8x64xf32>
}

// A dequantization is computed by tiles; its loop indices are those of the whole tensor.
// CHECK-LABEL: func.func @dequantizations_are_computed_by_tiles(
// CHECK-SAME:    %[[K8:[a-z0-9]*]]: tensor<4x?x2x64xi8>, %[[SCALE:[a-z0-9]*]]: tensor<4x?x2xf32>
// CHECK:         scf.for
// CHECK-DAG:       %[[PART:.*]] = tensor.extract_slice %[[K8]][1, %[[BEGIN:.*]], 1, 0] [1, %[[COUNT:.*]], 1, 64] [1, 1, 1, 1] : tensor<4x?x2x64xi8> to tensor<?x64xi8>
// CHECK-DAG:       %[[SCALES:.*]] = tensor.extract_slice %[[SCALE]][1, %[[BEGIN]], 1] [1, %[[COUNT]], 1] [1, 1, 1] : tensor<4x?x2xf32> to tensor<?xf32>
// CHECK:           %[[KEYS:.*]] = linalg.generic {{.*}} ins(%[[PART]], %[[SCALES]] : tensor<?x64xi8>, tensor<?xf32>)
// CHECK:             %[[I:.*]] = linalg.index 0
// CHECK:             arith.addi %{{.*}}, %[[I]]
// CHECK:           attn.accumulate %{{.*}}, %[[KEYS]][s,d], %[[KEYS]][s,d]
func.func @dequantizations_are_computed_by_tiles(%k8: tensor<4x?x2x64xi8>, %scale: tensor<4x?x2xf32>, %e: tensor<4x?x2x64xf32>,
    %n: index, %q: tensor<1x1x8x64xf32>) -> tensor<1x1x8x64xf32> {
  %x = linalg.generic {indexing_maps = [#all, #position, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
    ins(%k8, %scale : tensor<4x?x2x64xi8>, tensor<4x?x2xf32>) outs(%e : tensor<4x?x2x64xf32>) {
  ^bb0(%a: i8, %s: f32, %o: f32):
    %f = arith.sitofp %a : i8 to f32
    %g = arith.mulf %f, %s : f32
    %i = linalg.index 1 : index
    %j = arith.index_cast %i : index to i32
    %p = arith.sitofp %j : i32 to f32
    %r = arith.addf %g, %p : f32
    linalg.yield %r : f32
  } -> tensor<4x?x2x64xf32>
  %k = tensor.extract_slice %x[1, 0, 1, 0] [1, %n, 1, 64] [1, 1, 1, 1] : tensor<4x?x2x64xf32> to tensor<1x?x1x64xf32>
  %o = attn.attention %q[b,h,s,d], %k[b,s,h,d], %k[b,s,h,d] {schedule = #attn.schedule<rows = 12, cols = 32>}
    : (tensor<1x1x8x64xf32>, tensor<1x?x1x64xf32>, tensor<1x?x1x64xf32>) -> tensor<1x1x8x64xf32>
  return %o : tensor<1x1x8x64xf32>
}

// So is a rotation, whose body reads the other element of a pair. In a pool it is that of the loaded tile.
// CHECK-LABEL: func.func @rotations_are_computed_by_tiles(
// CHECK-NOT:     linalg.generic
// CHECK:         scf.for
// CHECK:           %[[LOADED:.*]] = attn.load_pages
// CHECK:           %[[KEYS:.*]] = linalg.generic {{.*}} ins(%[[LOADED]] : tensor<?x64xf32>)
// CHECK:             %[[D:.*]] = linalg.index 1
// CHECK:             %[[OTHER:.*]] = arith.xori %[[D]]
// CHECK:             %[[S:.*]] = linalg.index 0
// CHECK:             tensor.extract %[[LOADED]][%[[S]], %[[OTHER]]]
// CHECK:           attn.accumulate %{{.*}}, %[[KEYS]][s,d], %[[KEYS]][s,d]
func.func @rotations_are_computed_by_tiles(%pool: tensor<?x16x2x64xf32>, %table: tensor<4x?xi32>, %e: tensor<4x?x2x64xf32>,
    %n: index, %q: tensor<1x1x8x64xf32>) -> tensor<1x1x8x64xf32> {
  %all = attn.paged %pool[b,s,h,d], %table : tensor<?x16x2x64xf32>, tensor<4x?xi32> -> tensor<4x?x2x64xf32>
  %x = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
    ins(%all : tensor<4x?x2x64xf32>) outs(%e : tensor<4x?x2x64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %one = arith.constant 1 : index
    %b = linalg.index 0 : index
    %s = linalg.index 1 : index
    %h = linalg.index 2 : index
    %d = linalg.index 3 : index
    %partner = arith.xori %d, %one : index
    %other = tensor.extract %all[%b, %s, %h, %partner] : tensor<4x?x2x64xf32>
    %r = arith.addf %a, %other : f32
    linalg.yield %r : f32
  } -> tensor<4x?x2x64xf32>
  %k = tensor.extract_slice %x[1, 0, 1, 0] [1, %n, 1, 64] [1, 1, 1, 1] : tensor<4x?x2x64xf32> to tensor<1x?x1x64xf32>
  %o = attn.attention %q[b,h,s,d], %k[b,s,h,d], %k[b,s,h,d] {schedule = #attn.schedule<rows = 12, cols = 32>}
    : (tensor<1x1x8x64xf32>, tensor<1x?x1x64xf32>, tensor<1x?x1x64xf32>) -> tensor<1x1x8x64xf32>
  return %o : tensor<1x1x8x64xf32>
}

// The rounding of quantized keys depends on all keys of a tile: the last tile does not end at the last visible key.
// CHECK-LABEL: @tiles_of_quantized_keys_are_whole
// CHECK-SAME: %[[X:[^ ]*]]: tensor<100x64xf32>, %[[K:[^ ]*]]: tensor<2000x64xf32>
func.func @tiles_of_quantized_keys_are_whole(%x: tensor<100x64xf32>, %k: tensor<2000x64xf32>) -> tensor<100x64xf32> {
  // CHECK: tensor.extract_slice %[[K]][0, 0] [512, 64]
  // CHECK: attn.accumulate {{.*}} qk_type(i8) {{.*}} into(
  %o = attn.attention %x[s,d], %k[s,d], %k[s,d] qk_type(i8) mask causal<top_left>
      {schedule = #attn.schedule<rows = 384, cols = 512>}
      : (tensor<100x64xf32>, tensor<2000x64xf32>, tensor<2000x64xf32>) -> tensor<100x64xf32>
  return %o : tensor<100x64xf32>
}
