// RUN: saccade-opt %s --attn-lower-accumulate=target=v4 -canonicalize -cse | FileCheck %s
// RUN: saccade-opt %s --attn-lower-accumulate=target=v4-bf16 -canonicalize -cse | FileCheck %s --check-prefix=PAIRS
// RUN: saccade-opt %s --attn-lower-accumulate=target=v4 -canonicalize -cse | FileCheck %s --check-prefix=PREFETCH

#tile = strided<[?, ?], offset: ?>

// CHECK-LABEL: @step_is_pack_scores_softmax_values
func.func @step_is_pack_scores_softmax_values(%q: memref<?x64xf32, #tile>, %k: memref<?x64xf32, #tile>, %v: memref<?x64xf32, #tile>,
    %acc: memref<384x64xf32>, %max: memref<384xf32>, %sum: memref<384xf32>) {
  // Queries in rows, keys in panels of 32 lanes, values in rows, the scores of twelve queries.
  // CHECK-DAG: memref.alloc() {{.*}} : memref<384x64xf32>
  // CHECK-DAG: memref.alloc() {{.*}} : memref<16x64x32xf32>
  // CHECK-DAG: memref.alloc() {{.*}} : memref<512x64xf32>
  // CHECK-DAG: memref.alloc() {{.*}} : memref<12x528xf32>
  // Keys are transposed one square of registers at a time.
  // CHECK-COUNT-64: vector.shuffle {{.*}} : vector<16xf32>, vector<16xf32>
  // Scores: 24 accumulators.
  // CHECK: scf.for {{.*}} -> (vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>) {
  // CHECK: vector.fma
  // Softmax: inline exponential.
  // CHECK-NOT: math.exp
  // CHECK: llvm.call_intrinsic "llvm.x86.avx512.mask.scalef.ps.512"
  // Values: parts of 128 keys are accumulated from 0; the last one adds the others and the scaled old accumulator.
  // CHECK: scf.for {{.*}} step %c128 {
  // CHECK-NEXT: %[[END:.*]] = arith.addi %{{.*}}, %c128
  // CHECK: scf.for {{.*}} iter_args(%{{.*}} = %[[ZERO:cst[_0-9]*]], %{{.*}} = %[[ZERO]],
  // CHECK-COUNT-24: vector.fma
  // CHECK-NOT: vector.fma
  // CHECK: scf.if
  // CHECK: vector.load %[[PARTS:.*]][%c0, %c0] : memref<12x64xf32>
  // CHECK: arith.addf
  // CHECK: arith.cmpi slt, %[[END]]
  // CHECK: scf.if
  // CHECK: vector.store %{{.*}}, %[[PARTS]][%c0, %c0]
  // CHECK: } else {
  // CHECK: vector.load {{.*}} : memref<384x64xf32>
  // CHECK-NEXT: vector.fma
  // CHECK: vector.store {{.*}} : memref<384x64xf32>
  // CHECK-NOT: attn.accumulate
  attn.accumulate %q[s,d], %k[s,d], %v[s,d] into(%acc, %max, %sum : memref<384x64xf32>, memref<384xf32>, memref<384xf32>)
      {schedule = #attn.schedule<rows = 384, cols = 512>} : (memref<?x64xf32, #tile>, memref<?x64xf32, #tile>, memref<?x64xf32, #tile>)
  return
}

// A mask that is a range of keys is a comparison of lane numbers; its region is not evaluated.
// CHECK-LABEL: @a_causal_mask_is_a_range
func.func @a_causal_mask_is_a_range(%q: memref<?x64xf32, #tile>, %k: memref<?x64xf32, #tile>, %v: memref<?x64xf32, #tile>,
    %acc: memref<384x64xf32>, %max: memref<384xf32>, %sum: memref<384xf32>) {
  // CHECK-NOT: arith.cmpi {{.*}} : vector<16x
  // CHECK: vector.create_mask
  // CHECK-NOT: arith.cmpi {{.*}} : vector<16x
  // CHECK: return
  attn.accumulate %q[s,d], %k[s,d], %v[s,d] into(%acc, %max, %sum : memref<384x64xf32>, memref<384xf32>, memref<384xf32>)
      mask causal<top_left>
      {schedule = #attn.schedule<rows = 384, cols = 512>} : (memref<?x64xf32, #tile>, memref<?x64xf32, #tile>, memref<?x64xf32, #tile>)
  return
}

// Any other mask is evaluated for the lanes that may be visible.
// CHECK-LABEL: @general_mask_is_evaluated
func.func @general_mask_is_evaluated(%q: memref<?x64xf32, #tile>, %k: memref<?x64xf32, #tile>, %v: memref<?x64xf32, #tile>,
    %acc: memref<384x64xf32>, %max: memref<384xf32>, %sum: memref<384xf32>) {
  // CHECK: arith.remsi %{{.*}} : vector<16x
  attn.accumulate %q[s,d], %k[s,d], %v[s,d] into(%acc, %max, %sum : memref<384x64xf32>, memref<384xf32>, memref<384xf32>)
      mask(%b, %h, %i, %j) {
        %two = arith.constant 2 : index
        %zero = arith.constant 0 : index
        %odd = arith.remsi %j, %two : index
        %even = arith.cmpi eq, %odd, %zero : index
        attn.yield %even : i1
      } {schedule = #attn.schedule<rows = 384, cols = 512>} : (memref<?x64xf32, #tile>, memref<?x64xf32, #tile>, memref<?x64xf32, #tile>)
  return
}

// The range of a captured tensor over the keys of each panel is computed once, before the loop over groups of rows. A group
// merges its visible panels to runs and computes scores, weights and values for these; full runs do not evaluate the mask.
// CHECK-LABEL: @panels_are_merged_to_runs
func.func @panels_are_merged_to_runs(%q: memref<?x64xf32, #tile>, %k: memref<?x64xf32, #tile>, %v: memref<?x64xf32, #tile>,
    %acc: memref<384x64xf32>, %max: memref<384xf32>, %sum: memref<384xf32>, %ids: memref<?xi32>) {
  // CHECK: %[[RUNS:.*]] = memref.alloc() : memref<17x3xindex>
  // CHECK: %[[PANELS:.*]] = memref.alloc() : memref<17x2xindex>
  // CHECK: memref.store %{{.*}}, %[[PANELS]][%{{.*}}, %c0]
  // CHECK: memref.store %{{.*}}, %[[PANELS]][%{{.*}}, %c1]
  // CHECK: memref.load %[[PANELS]]
  // CHECK: memref.store %{{.*}}, %[[RUNS]]
  // CHECK: scf.for %[[EACH:.*]] = %c0 to %{{.*}}#0 step %c1
  // CHECK-NEXT: memref.load %[[RUNS]][%[[EACH]], %c0]
  // CHECK-NEXT: memref.load %[[RUNS]][%[[EACH]], %c1]
  // CHECK: memref.load %[[RUNS]][%{{.*}}, %c2]
  // CHECK: scf.if
  // CHECK: arith.cmpi eq, {{.*}} : vector<16xi32>
  // CHECK: } else {
  // CHECK-NOT: vector<16xi32>
  // CHECK: llvm.call_intrinsic "llvm.x86.avx512.mask.scalef.ps.512"
  attn.accumulate %q[s,d], %k[s,d], %v[s,d] captures(%ids : memref<?xi32>)
      into(%acc, %max, %sum : memref<384x64xf32>, memref<384xf32>, memref<384xf32>)
      mask(%b, %h, %i, %j, %documents) {
        %mine = tensor.extract %documents[%i] : tensor<?xi32>
        %theirs = tensor.extract %documents[%j] : tensor<?xi32>
        %holds = arith.cmpi eq, %mine, %theirs : i32
        attn.yield %holds : i1
      } {schedule = #attn.schedule<rows = 384, cols = 512>} : (memref<?x64xf32, #tile>, memref<?x64xf32, #tile>, memref<?x64xf32, #tile>)
  return
}

// K-packs of two bf16, consecutive along the head (queries and keys) or along keys (weights and values), in the bits of an
// f32. An odd head size is padded by half a k-pack.
// CHECK-LABEL: @pairs_are_k_packs
// PAIRS-LABEL: @pairs_are_k_packs
func.func @pairs_are_k_packs(%q: memref<?x65xbf16, #tile>, %k: memref<?x65xbf16, #tile>, %v: memref<?x64xbf16, #tile>,
    %acc: memref<384x64xf32>, %max: memref<384xf32>, %sum: memref<384xf32>) {
  // CHECK-DAG: memref.alloc() {{.*}} : memref<384x65xf32>
  // CHECK-DAG: memref.alloc() {{.*}} : memref<16x65x32xf32>
  // CHECK-DAG: memref.alloc() {{.*}} : memref<512x64xf32>
  // CHECK-NOT: x86vector
  // PAIRS-DAG: memref.alloc() {{.*}} : memref<384x33xf32>
  // PAIRS-DAG: memref.alloc() {{.*}} : memref<16x33x32xf32>
  // PAIRS-DAG: memref.alloc() {{.*}} : memref<256x64xf32>
  // PAIRS-DAG: memref.alloc() {{.*}} : memref<12x528xf32>
  // Nothing is widened; keys are transposed in pairs, values of two keys are interleaved.
  // PAIRS-NOT: arith.extf
  // PAIRS: vector.bitcast {{.*}} : vector<32xbf16> to vector<16xf32>
  // PAIRS-COUNT-64: vector.shuffle {{.*}} : vector<16xf32>, vector<16xf32>
  // PAIRS: vector.interleave {{.*}} : vector<16xbf16> -> vector<32xbf16>
  // PAIRS-NOT: vector.fma
  // PAIRS: x86vector.avx512.dot
  // The sum may have other readers, so the exponential has full f32 accuracy: degree 6.
  // PAIRS: "llvm.x86.avx512.mask.reduce.ps.512"
  // PAIRS-COUNT-6: vector.fma
  // PAIRS: "llvm.x86.avx512.mask.scalef.ps.512"
  // One instruction rounds two registers.
  // PAIRS: llvm.call_intrinsic "llvm.x86.avx512bf16.cvtne2ps2bf16.512"({{.*}}) : (vector<16xf32>, vector<16xf32>) -> vector<32xbf16>
  // PAIRS: x86vector.avx512.dot
  attn.accumulate %q[s,d], %k[s,d], %v[s,d] into(%acc, %max, %sum : memref<384x64xf32>, memref<384xf32>, memref<384xf32>)
      {schedule = #attn.schedule<rows = 384, cols = 512>} : (memref<?x65xbf16, #tile>, memref<?x65xbf16, #tile>, memref<?x64xbf16, #tile>)
  return
}

// A sum used only as divisor needs no better exponential than the weights: degree 3. The rescaling factor has degree 6.
// PAIRS-LABEL: @weights_are_as_exact_as_bf16
func.func @weights_are_as_exact_as_bf16(%q: memref<?x64xbf16, #tile>, %k: memref<?x64xbf16, #tile>, %v: memref<?x64xbf16, #tile>,
    %o: memref<?x64xbf16, #tile>, %acc: memref<384x64xf32>, %max: memref<384xf32>) {
  %sum = memref.alloc() : memref<384xf32>
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%sum : memref<384xf32>)
  // PAIRS: "llvm.x86.avx512.mask.reduce.ps.512"
  // PAIRS-COUNT-6: vector.fma
  // PAIRS: "llvm.x86.avx512.mask.scalef.ps.512"
  // PAIRS: "llvm.x86.avx512.mask.reduce.ps.512"
  // PAIRS-COUNT-3: vector.fma
  // PAIRS: "llvm.x86.avx512.mask.scalef.ps.512"
  attn.accumulate %q[s,d], %k[s,d], %v[s,d] into(%acc, %max, %sum : memref<384x64xf32>, memref<384xf32>, memref<384xf32>)
      {schedule = #attn.schedule<rows = 384, cols = 512>} : (memref<?x64xbf16, #tile>, memref<?x64xbf16, #tile>, memref<?x64xbf16, #tile>)
  attn.finalize %acc, %max, %sum : memref<384x64xf32>, memref<384xf32>, memref<384xf32> into(%o[s,d] : memref<?x64xbf16, #tile>)
      {schedule = #attn.schedule<rows = 384, cols = 512>}
  return
}

// A negative scale flips the signs of both elements of a k-pack of queries.
// CHECK-LABEL: @negative_scale_negates_queries
// PAIRS-LABEL: @negative_scale_negates_queries
func.func @negative_scale_negates_queries(%q: memref<?x64xbf16, #tile>, %k: memref<?x64xbf16, #tile>, %v: memref<?x64xbf16, #tile>,
    %acc: memref<384x64xf32>, %max: memref<384xf32>, %sum: memref<384xf32>) {
  // CHECK: arith.constant dense<-2147483648> : vector<16xi32>
  // PAIRS: arith.constant dense<-2147450880> : vector<16xi32>
  attn.accumulate %q[s,d], %k[s,d], %v[s,d] scale(-0.125) into(%acc, %max, %sum : memref<384x64xf32>, memref<384xf32>, memref<384xf32>)
      {schedule = #attn.schedule<rows = 384, cols = 512>} : (memref<?x64xbf16, #tile>, memref<?x64xbf16, #tile>, memref<?x64xbf16, #tile>)
  return
}

// The next step is the next tile of keys or the first one of the next work item; each row of queries prefetches a share of
// its rows. The last work item of the task has no successor; its views stay in bounds.
// PREFETCH-LABEL: @task_prefetches_next_step
// PREFETCH-SAME: %[[K:[^:]*]]: memref<?x?x64xf32, {{.*}}%[[FIRST:[^:]*]]: index, %[[LAST:[^:]*]]: index
func.func private @task_prefetches_next_step(%k: memref<?x?x64xf32, strided<[?, ?, ?]>>, %q: memref<?x64xf32, #tile>, %n: index,
    %first: index, %last: index, %scratch: memref<?xi8>) attributes {attn.task} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c512 = arith.constant 512 : index
  %acc = memref.alloc() : memref<384x64xf32>
  %max = memref.alloc() : memref<384xf32>
  %sum = memref.alloc() : memref<384xf32>
  // PREFETCH: scf.for %[[ITEM:.*]] = %[[FIRST]] to %[[LAST]]
  scf.for %item = %first to %last step %c1 {
    // PREFETCH: scf.for %[[TILE:.*]] = %{{.*}} to %[[END:.*]] step %{{.*}} {
    scf.for %tile = %c0 to %n step %c512 {
      // PREFETCH: %[[NEXTTILE:.*]] = arith.addi %[[TILE]], %c512
      // PREFETCH: %[[HASTILE:.*]] = arith.cmpi slt, %[[NEXTTILE]], %[[END]]
      // PREFETCH: %[[NEXTITEM:.*]] = arith.addi %[[ITEM]], %c1
      // PREFETCH: %[[HASITEM:.*]] = arith.cmpi slt, %[[NEXTITEM]], %[[LAST]]
      // PREFETCH: %[[ISNEXT:.*]] = arith.andi
      // PREFETCH: %[[I:.*]] = arith.select %[[ISNEXT]], %[[NEXTITEM]], %[[ITEM]]
      // PREFETCH: %[[T:.*]] = arith.select %[[HASTILE]], %[[NEXTTILE]], %c0
      // PREFETCH: %[[NEXT:.*]] = memref.subview %[[K]][%[[I]], %[[T]], 0]
      // One row is four cache lines; the queries do not change, and the values are the keys.
      // PREFETCH-COUNT-4: memref.prefetch %[[NEXT]][{{.*}}], read, locality<2>, data
      %count = arith.minsi %n, %c512 : index
      %rows = memref.subview %k[%item, %tile, 0] [1, %count, 64] [1, 1, 1] : memref<?x?x64xf32, strided<[?, ?, ?]>> to memref<?x64xf32, #tile>
      attn.accumulate %q[s,d], %rows[s,d], %rows[s,d] into(%acc, %max, %sum : memref<384x64xf32>, memref<384xf32>, memref<384xf32>)
        {schedule = #attn.schedule<rows = 384, cols = 512>} : (memref<?x64xf32, #tile>, memref<?x64xf32, #tile>, memref<?x64xf32, #tile>)
    }
  }
  return
}

// Operands that a step computes are not prefetched; the keys are.
// PREFETCH-LABEL: @computed_operands_are_not_prefetched
func.func private @computed_operands_are_not_prefetched(%k: memref<?x?x64xf32>, %q: memref<?x64xf32, #tile>,
    %first: index, %last: index, %scratch: memref<?xi8>) attributes {attn.task} {
  %c1 = arith.constant 1 : index
  %n = memref.dim %k, %c1 : memref<?x?x64xf32>
  scf.for %item = %first to %last step %c1 {
    %acc = memref.alloc() : memref<384x64xf32>
    %max = memref.alloc() : memref<384xf32>
    %sum = memref.alloc() : memref<384xf32>
    %value = memref.alloc(%n) : memref<?x64xf32>
    %v = memref.cast %value : memref<?x64xf32> to memref<?x64xf32, #tile>
    %rows = memref.subview %k[%item, 0, 0] [1, %n, 64] [1, 1, 1] : memref<?x?x64xf32> to memref<?x64xf32, strided<[64, 1], offset: ?>>
    %keys = memref.cast %rows : memref<?x64xf32, strided<[64, 1], offset: ?>> to memref<?x64xf32, #tile>
    // PREFETCH-COUNT-4: memref.prefetch
    // PREFETCH-NOT: memref.prefetch
    // PREFETCH: return
    attn.accumulate %q[s,d], %keys[s,d], %v[s,d] into(%acc, %max, %sum : memref<384x64xf32>, memref<384xf32>, memref<384xf32>)
      {schedule = #attn.schedule<rows = 384, cols = 512>} : (memref<?x64xf32, #tile>, memref<?x64xf32, #tile>, memref<?x64xf32, #tile>)
  }
  return
}

// A bin that is the same for all keys of a row is accumulated in a register, like the sum of the weights, and added at the
// end of the row. The bins of the state are rescaled before.
// CHECK-LABEL: @one_bin_per_row_is_a_register
// CHECK-SAME: %[[BINS:[^ ]*]]: memref<384x2xf32>
func.func @one_bin_per_row_is_a_register(%q: memref<?x64xf32>, %k: memref<?x64xf32>, %acc: memref<384x64xf32>,
    %max: memref<384xf32>, %sum: memref<384xf32>, %bins: memref<384x2xf32>) {
  // CHECK: %[[OLD:.*]] = memref.load %[[BINS]][%{{.*}}, %[[BIN:.*]]]
  // CHECK: %[[SHRUNK:.*]] = arith.mulf %[[OLD]], %{{.*}} : f32
  // CHECK: memref.store %[[SHRUNK]], %[[BINS]]
  // CHECK: scf.for {{.*}} -> (vector<16xf32>, vector<16xf32>, vector<16xf32>)
  // CHECK-NOT: %[[BINS]]
  // CHECK: %[[TOTAL:.*]] = vector.reduction <add>, %{{.*}}#2
  // CHECK: %[[SEEN:.*]] = memref.load %[[BINS]]
  // CHECK: %[[NEW:.*]] = arith.addf %[[SEEN]], %[[TOTAL]] : f32
  // CHECK: memref.store %[[NEW]], %[[BINS]]
  attn.accumulate %q[s,d], %k[s,d], %k[s,d] into(%acc, %max, %sum, %bins : memref<384x64xf32>, memref<384xf32>, memref<384xf32>, memref<384x2xf32>)
    tally<2>(%s, %b, %h, %i, %j) {
      %one = arith.constant 1 : index
      attn.yield %one, %s : index, f32
    } {schedule = #attn.schedule<rows = 384, cols = 512>} : (memref<?x64xf32>, memref<?x64xf32>, memref<?x64xf32>)
  return
}

// Bins that depend on nothing but the key are found once a tile, for each register of keys. Within a row, registers are added up
// as long as the bin stays the same. Only registers with several bins divide again.
// CHECK-LABEL: @bins_of_blocks_of_keys
// CHECK-SAME: %[[SIZE:[^ ]*]]: index
func.func @bins_of_blocks_of_keys(%q: memref<?x64xf32>, %k: memref<?x64xf32>, %acc: memref<384x64xf32>,
    %max: memref<384xf32>, %sum: memref<384xf32>, %bins: memref<384x2xf32>, %size: index) {
  // CHECK: %[[TABLE:.*]] = memref.alloc() : memref<33xindex>
  // CHECK: memref.store %{{.*}}, %[[TABLE]]
  // CHECK: scf.for {{.*}} -> (vector<16xf32>, vector<16xf32>, vector<16xf32>, index)
  // CHECK-NOT: arith.divui {{.*}} : vector
  // CHECK: %[[BIN:.*]] = memref.load %[[TABLE]]
  // CHECK: %[[SAME:.*]] = arith.cmpi eq, %[[BIN]], %{{.*}} : index
  // CHECK: scf.if %[[SAME]]
  // CHECK: arith.select %[[SAME]], %{{.*}}, %{{.*}} : vector<16xf32>
  attn.accumulate %q[s,d], %k[s,d], %k[s,d] captures(%size : index) into(%acc, %max, %sum, %bins : memref<384x64xf32>, memref<384xf32>, memref<384xf32>, memref<384x2xf32>)
    tally<2>(%s, %b, %h, %i, %j, %n) {
      %one = arith.constant 1.0 : f32
      %bin = arith.divui %j, %n : index
      attn.yield %bin, %one : index, f32
    } {schedule = #attn.schedule<rows = 384, cols = 512>} : (memref<?x64xf32>, memref<?x64xf32>, memref<?x64xf32>)
  return
}

// A value that is 0 from the fourth key on: the columns before, between and after the bounds have loops of their own, and
// only the second one has the tally.
// CHECK-LABEL: @mass_on_the_first_keys
func.func @mass_on_the_first_keys(%q: memref<?x64xf32>, %k: memref<?x64xf32>, %acc: memref<384x64xf32>,
    %max: memref<384xf32>, %sum: memref<384xf32>, %bins: memref<384x1xf32>) {
  // CHECK: arith.minsi %{{.*}}, %c4 : index
  // CHECK: scf.for {{.*}} -> (vector<16xf32>, vector<16xf32>) {
  // CHECK: scf.for {{.*}} -> (vector<16xf32>, vector<16xf32>, vector<16xf32>) {
  // CHECK: scf.for {{.*}} -> (vector<16xf32>, vector<16xf32>) {
  attn.accumulate %q[s,d], %k[s,d], %k[s,d] into(%acc, %max, %sum, %bins : memref<384x64xf32>, memref<384xf32>, memref<384xf32>, memref<384x1xf32>)
    tally<1>(%s, %b, %h, %i, %j) {
      %zero = arith.constant 0 : index
      %four = arith.constant 4 : index
      %one = arith.constant 1.0 : f32
      %none = arith.constant 0.0 : f32
      %is = arith.cmpi slt, %j, %four : index
      %value = arith.select %is, %one, %none : f32
      attn.yield %zero, %value : index, f32
    } {schedule = #attn.schedule<rows = 384, cols = 512>} : (memref<?x64xf32>, memref<?x64xf32>, memref<?x64xf32>)
  return
}

// Bins that the keys choose: amounts and bins of a vector of keys are stored, then added one by one.
// CHECK-LABEL: @bins_of_keys
// CHECK-SAME: %[[BINS:[^ ]*]]: memref<384x2xf32>)
func.func @bins_of_keys(%q: memref<?x64xf32>, %k: memref<?x64xf32>, %acc: memref<384x64xf32>,
    %max: memref<384xf32>, %sum: memref<384xf32>, %bins: memref<384x2xf32>) {
  // CHECK-DAG: %[[AMOUNTS:.*]] = memref.alloc() {{.*}}: memref<16xf32>
  // CHECK-DAG: %[[PLACES:.*]] = memref.alloc() {{.*}}: memref<16xi64>
  // CHECK: %[[PLACE:.*]] = memref.load %[[PLACES]]
  // CHECK: %[[BIN:.*]] = arith.index_cast %[[PLACE]]
  // CHECK: memref.load %[[BINS]][%{{.*}}, %[[BIN]]]
  attn.accumulate %q[s,d], %k[s,d], %k[s,d] into(%acc, %max, %sum, %bins : memref<384x64xf32>, memref<384xf32>, memref<384xf32>, memref<384x2xf32>)
    tally<2>(%s, %b, %h, %i, %j) {
      %two = arith.constant 2 : index
      %bin = arith.remui %j, %two : index
      attn.yield %bin, %s : index, f32
    } {schedule = #attn.schedule<rows = 384, cols = 512>} : (memref<?x64xf32>, memref<?x64xf32>, memref<?x64xf32>)
  return
}

// EXAMPLE
// A final step applies the weight region to weight / sum and does not update max and sum.
// CHECK-LABEL: @final_step_weights_are_probabilities
// CHECK-SAME: %[[MAX:[^ ]*]]: memref<384xf32>, %[[SUM:[^ ]*]]: memref<384xf32>
func.func @final_step_weights_are_probabilities(%q: memref<?x64xf32>, %k: memref<?x64xf32>, %acc: memref<384x64xf32>,
    %max: memref<384xf32>, %sum: memref<384xf32>) {
  // CHECK: %[[L:.*]] = memref.load %[[SUM]]
  // CHECK: %[[WIDE:.*]] = vector.broadcast %[[L]]
  // CHECK: %[[SHARE:.*]] = arith.divf %{{.*}}, %[[L]] : f32
  // CHECK: %[[SHARES:.*]] = vector.broadcast %[[SHARE]]
  // CHECK: %[[P:.*]] = arith.mulf %{{.*}}, %[[SHARES]] : vector<16xf32>
  // CHECK: %[[ROOT:.*]] = math.sqrt %[[P]]
  // CHECK: arith.mulf %[[ROOT]], %[[WIDE]] : vector<16xf32>
  // CHECK-NOT: %[[SUM]]
  // CHECK: return
  attn.accumulate %q[s,d], %k[s,d], %k[s,d] into(%acc, %max, %sum : memref<384x64xf32>, memref<384xf32>, memref<384xf32>)
    weight(%p, %b, %h, %i, %j) {
      %root = math.sqrt %p : f32
      attn.yield %root : f32
    } {final, schedule = #attn.schedule<rows = 384, cols = 512>} : (memref<?x64xf32>, memref<?x64xf32>, memref<?x64xf32>)
  return
}
