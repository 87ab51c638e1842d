// RUN: saccade-opt %s --attn-verify-input --split-input-file --verify-diagnostics

// EXAMPLE
func.func @vectors_are_an_implementation_matter(%x: f32) -> f32 {
  // expected-error@+1 {{'vector.broadcast' is not supported, expected ops of attn, linalg, tensor, arith, math, scf and func}}
  %v = vector.broadcast %x : f32 to vector<4xf32>
  %y = vector.extract %v[0] : f32 from vector<4xf32>
  return %y : f32
}

// -----

// expected-error@+1 {{'func.func' has an argument of type 'memref<4xf32>', expected index, i1, i8, i16, i32, i64, f16, bf16, f32, f64, or a ranked tensor of them, f8E4M3FN or f8E5M2}}
func.func @memory_is_an_implementation_matter(%x: memref<4xf32>) {
  return
}

// -----

// expected-error@+1 {{'func.func' has an argument of type 'tensor<*xf32>'}}
func.func @rank_is_known(%x: tensor<*xf32>) {
  return
}

// -----

func.func @element_types_are_of_the_common_kind(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{'arith.truncf' has a result of type 'tensor<4xf8E3M4>', expected index, i1}}
  %y = arith.truncf %x : tensor<4xf32> to tensor<4xf8E3M4>
  %z = arith.extf %y : tensor<4xf8E3M4> to tensor<4xf32>
  return %z : tensor<4xf32>
}

// -----

func.func @floats_of_8_bits_are_not_computed_with(%x: tensor<4xf8E4M3FN>) -> tensor<4xf8E4M3FN> {
  // expected-error@+1 {{'arith.addf' has an operand of type 'tensor<4xf8E4M3FN>', expected another type: such elements can be stored, moved, and converted with arith.extf and arith.truncf only}}
  %y = arith.addf %x, %x : tensor<4xf8E4M3FN>
  return %y : tensor<4xf8E4M3FN>
}

// -----

func.func @not_in_regions_either(%x: tensor<4xf8E5M2>, %i: tensor<4xi32>) -> tensor<4xf8E5M2> {
  %e = tensor.empty() : tensor<4xf8E5M2>
  %y = linalg.generic {indexing_maps = [affine_map<(d) -> (d)>, affine_map<(d) -> (d)>], iterator_types = ["parallel"]}
      ins(%i : tensor<4xi32>) outs(%e : tensor<4xf8E5M2>) {
  ^bb0(%a: i32, %o: f8E5M2):
    // expected-error@+1 {{'arith.sitofp' has a result of type 'f8E5M2', expected another type}}
    %b = arith.sitofp %a : i32 to f8E5M2
    linalg.yield %b : f8E5M2
  } -> tensor<4xf8E5M2>
  return %y : tensor<4xf8E5M2>
}

// -----

// expected-error@+1 {{'func.func' has an argument of type 'f8E4M3FN', expected index, i1}}
func.func @floats_of_8_bits_are_elements(%x: f8E4M3FN) {
  return
}

// -----

func.func @conversions_to_8_bits_round_once(%x: tensor<4xf64>) -> tensor<4xf8E4M3FN> {
  // expected-error@+1 {{'arith.truncf' from f64 to 'f8E4M3FN' is not supported, expected a conversion to f32 before}}
  %y = arith.truncf %x : tensor<4xf64> to tensor<4xf8E4M3FN>
  return %y : tensor<4xf8E4M3FN>
}

// -----

func.func @threads_are_an_implementation_matter(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{'scf.forall' is not supported}}
  %y = scf.forall (%i) in (4) shared_outs(%o = %x) -> tensor<4xf32> {
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %x into %o[0] [4] [1] : tensor<4xf32> into tensor<4xf32>
    }
  }
  return %y : tensor<4xf32>
}

// -----

// expected-error@+1 {{function 'elsewhere' has no body}}
func.func private @elsewhere(%x: tensor<4xf32>) -> tensor<4xf32>

// -----

func.func @packed_layouts_are_an_implementation_matter(%x: tensor<16x16xf32>, %p: tensor<2x2x8x8xf32>) -> tensor<2x2x8x8xf32> {
  // expected-error@+1 {{'linalg.pack' is not supported}}
  %y = linalg.pack %x inner_dims_pos = [0, 1] inner_tiles = [8, 8] into %p : tensor<16x16xf32> -> tensor<2x2x8x8xf32>
  return %y : tensor<2x2x8x8xf32>
}

// -----

func.func @tiles_are_an_implementation_matter(%x: tensor<12x64xf32>, %acc: tensor<12x64xf32>, %max: tensor<12xf32>, %sum: tensor<12xf32>) -> tensor<12x64xf32> {
  // expected-error@+1 {{'attn.accumulate' is for use in the compiler only, expected attn.attention}}
  %0:3 = attn.accumulate %x[s,d], %x[s,d], %x[s,d] into(%acc, %max, %sum : tensor<12x64xf32>, tensor<12xf32>, tensor<12xf32>)
      : (tensor<12x64xf32>, tensor<12x64xf32>, tensor<12x64xf32>)
  return %0#0 : tensor<12x64xf32>
}

// -----

func.func @loops_carry_scalars(%x: tensor<16xf32>, %n: index) -> tensor<16xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  // expected-error@+1 {{'scf.for' has a tensor result, expected scalars: loops and branches over tensors are not supported}}
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%a = %x) -> tensor<16xf32> {
    %y = math.exp %a : tensor<16xf32>
    scf.yield %y : tensor<16xf32>
  }
  return %r : tensor<16xf32>
}

// -----

func.func @branches_yield_scalars(%x: tensor<?xf32>, %c: i1) -> tensor<?xf32> {
  // expected-error@+1 {{'scf.if' has a tensor result}}
  %r = scf.if %c -> tensor<?xf32> {
    %y = math.exp %x : tensor<?xf32>
    scf.yield %y : tensor<?xf32>
  } else {
    scf.yield %x : tensor<?xf32>
  }
  return %r : tensor<?xf32>
}

// -----

// expected-error@+1 {{a module inside a module is not supported}}
module @programs_are_flat {
  func.func @stands_inside() {
    return
  }
}
func.func @stands_beside() {
  return
}

// -----

func.func @calls_the_one_that_recurs(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = call @recurs(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
func.func private @recurs(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{calls 'recurs' recursively, expected calls without recursion}}
  %y = call @recurs(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func private @recurs_through_another(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = call @another(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
func.func private @another(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{calls 'recurs_through_another' recursively, expected calls without recursion}}
  %y = call @recurs_through_another(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
