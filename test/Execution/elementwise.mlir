// Elementwise ops around attention, on every CPU target, with sizes that are not multiples of a vector.
// RUN: saccade-run %s --entry=activations_agree_with_the_reference --arg=7x35:f32 --check
// RUN: saccade-run %s --entry=activations_agree_with_the_reference --arg=3x200:f32 --check --target=v3
// RUN: saccade-run %s --entry=activations_agree_with_the_reference --arg=3x50:f32 --check --target=portable
// RUN: saccade-run %s --entry=element_types_convert --arg=5x37:bf16 --arg=5x37:f16 --arg=5x37:f64 --check
// RUN: saccade-run %s --entry=element_types_convert --arg=5x37:bf16 --arg=5x37:f16 --arg=5x37:f64 --check --target=portable
// RUN: saccade-run %s --entry=layouts_are_read_in_place --arg=9x40x6:f32 --arg=40:f32 --check
// RUN: saccade-run %s --entry=layouts_are_read_in_place --arg=9x40x6:f32 --arg=40:f32 --check --target=v3
// RUN: saccade-run %s --entry=positions_are_values --arg=33x70:f32 --check

#all = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (m)>
#column = affine_map<(m, n) -> (n)>
#swapped = affine_map<(m, n) -> (n, m)>
#cube = affine_map<(i, j, k) -> (i, j, k)>
#middle = affine_map<(i, j, k) -> (j)>
#rotated = affine_map<(i, j, k) -> (k, i, j)>

// GELU in both forms, SiLU, softplus, and powers.
func.func @activations_agree_with_the_reference(%x: tensor<?x?xf32>)
    -> (tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %x, %c0 : tensor<?x?xf32>
  %n = tensor.dim %x, %c1 : tensor<?x?xf32>
  %empty = tensor.empty(%m, %n) : tensor<?x?xf32>
  %gelu, %tanh, %silu, %softplus, %power = linalg.generic
    {indexing_maps = [#all, #all, #all, #all, #all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%x : tensor<?x?xf32>)
    outs(%empty, %empty, %empty, %empty, %empty
         : tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>) {
    ^bb0(%e: f32, %o0: f32, %o1: f32, %o2: f32, %o3: f32, %o4: f32):
      %half = arith.constant 0.5 : f32
      %one = arith.constant 1.0 : f32
      %three = arith.constant 3.0 : f32
      %inverse_sqrt2 = arith.constant 0.707106781 : f32
      %a = arith.mulf %e, %inverse_sqrt2 : f32
      %erf = math.erf %a : f32
      %twice = arith.addf %erf, %one : f32
      %cdf = arith.mulf %twice, %half : f32
      %g = arith.mulf %e, %cdf : f32
      %t = math.tanh %e : f32
      %minus = arith.negf %e : f32
      %exp = math.exp %minus : f32
      %below = arith.addf %exp, %one : f32
      %s = arith.divf %e, %below : f32
      %p = math.log1p %exp : f32
      %cube = math.powf %e, %three : f32
      %sin = math.sin %cube : f32
      linalg.yield %g, %t, %s, %p, %sin : f32, f32, f32, f32, f32
    } -> (tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>)
  return %gelu, %tanh, %silu, %softplus, %power
    : tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>
}

// Narrow types, double precision, integers and booleans in one loop.
func.func @element_types_convert(%a: tensor<?x37xbf16>, %b: tensor<?x37xf16>, %c: tensor<?x37xf64>)
    -> (tensor<?x37xf64>, tensor<?x37xbf16>, tensor<?x37xi32>, tensor<?x37xi1>) {
  %c0 = arith.constant 0 : index
  %m = tensor.dim %a, %c0 : tensor<?x37xbf16>
  %wide = tensor.empty(%m) : tensor<?x37xf64>
  %narrow = tensor.empty(%m) : tensor<?x37xbf16>
  %integers = tensor.empty(%m) : tensor<?x37xi32>
  %booleans = tensor.empty(%m) : tensor<?x37xi1>
  %r:4 = linalg.generic
    {indexing_maps = [#all, #all, #all, #all, #all, #all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%a, %b, %c : tensor<?x37xbf16>, tensor<?x37xf16>, tensor<?x37xf64>)
    outs(%wide, %narrow, %integers, %booleans
         : tensor<?x37xf64>, tensor<?x37xbf16>, tensor<?x37xi32>, tensor<?x37xi1>) {
    ^bb0(%x: bf16, %y: f16, %z: f64, %o0: f64, %o1: bf16, %o2: i32, %o3: i1):
      %hundred = arith.constant 100.0 : f32
      %x32 = arith.extf %x : bf16 to f32
      %y32 = arith.extf %y : f16 to f32
      %sum = arith.addf %x32, %y32 : f32
      %sum64 = arith.extf %sum : f32 to f64
      %total = arith.addf %sum64, %z : f64
      %root = math.exp %total : f64
      %short = arith.truncf %sum : f32 to bf16
      %large = arith.mulf %x32, %hundred : f32
      %integer = arith.fptosi %large : f32 to i32
      %is = arith.cmpf olt, %x32, %y32 : f32
      linalg.yield %root, %short, %integer, %is : f64, bf16, i32, i1
    } -> (tensor<?x37xf64>, tensor<?x37xbf16>, tensor<?x37xi32>, tensor<?x37xi1>)
  return %r#0, %r#1, %r#2, %r#3 : tensor<?x37xf64>, tensor<?x37xbf16>, tensor<?x37xi32>, tensor<?x37xi1>
}

// Every second element, transposes and broadcasts.
func.func @layouts_are_read_in_place(%x: tensor<?x40x?xf32>, %b: tensor<40xf32>)
    -> (tensor<?x20x?xf32>, tensor<?x?x40xf32>, tensor<?x40x3xf32>) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %m = tensor.dim %x, %c0 : tensor<?x40x?xf32>
  %n = tensor.dim %x, %c2 : tensor<?x40x?xf32>
  %odd = tensor.extract_slice %x[0, 1, 0] [%m, 20, %n] [1, 2, 1] : tensor<?x40x?xf32> to tensor<?x20x?xf32>
  %odd_out = tensor.empty(%m, %n) : tensor<?x20x?xf32>
  %negative = linalg.negf ins(%odd : tensor<?x20x?xf32>) outs(%odd_out : tensor<?x20x?xf32>) -> tensor<?x20x?xf32>

  %turned_out = tensor.empty(%n, %m) : tensor<?x?x40xf32>
  %turned = linalg.generic {indexing_maps = [#cube, #middle, #rotated],
                            iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%x, %b : tensor<?x40x?xf32>, tensor<40xf32>) outs(%turned_out : tensor<?x?x40xf32>) {
    ^bb0(%e: f32, %c: f32, %o: f32):
      %s = arith.addf %e, %c : f32
      linalg.yield %s : f32
    } -> tensor<?x?x40xf32>

  %last = tensor.extract_slice %x[0, 0, 0] [%m, 40, 3] [1, 1, 2] : tensor<?x40x?xf32> to tensor<?x40x3xf32>
  %last_out = tensor.empty(%m) : tensor<?x40x3xf32>
  %exp = linalg.exp ins(%last : tensor<?x40x3xf32>) outs(%last_out : tensor<?x40x3xf32>) -> tensor<?x40x3xf32>
  return %negative, %turned, %exp : tensor<?x20x?xf32>, tensor<?x?x40xf32>, tensor<?x40x3xf32>
}

// A rotation by an angle that grows with the position, a causal 0/1 mask, and a read at a computed position.
func.func @positions_are_values(%x: tensor<?x?xf32>) -> (tensor<?x?xf32>, tensor<?x?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %x, %c0 : tensor<?x?xf32>
  %n = tensor.dim %x, %c1 : tensor<?x?xf32>
  %empty = tensor.empty(%m, %n) : tensor<?x?xf32>
  %rotated, %reversed = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%x : tensor<?x?xf32>) outs(%empty, %empty : tensor<?x?xf32>, tensor<?x?xf32>) {
    ^bb0(%e: f32, %o0: f32, %o1: f32):
      %c3 = arith.constant 3 : index
      %zero = arith.constant 0.0 : f32
      %thousand = arith.constant 1000.0 : f32
      %i = linalg.index 0 : index
      %j = linalg.index 1 : index
      %i32 = arith.index_cast %i : index to i32
      %if = arith.sitofp %i32 : i32 to f32
      %large = arith.mulf %if, %thousand : f32
      %cos = math.cos %large : f32
      %r = arith.mulf %cos, %e : f32
      %causal = arith.cmpi sle, %j, %i : index
      %masked = arith.select %causal, %r, %zero : f32
      %last = arith.subi %n, %c1 : index
      %from = arith.subi %last, %j : index
      %phase = arith.remui %j, %c3 : index
      %isThird = arith.cmpi eq, %phase, %c0 : index
      %picked = tensor.extract %x[%i, %from] : tensor<?x?xf32>
      %third = arith.select %isThird, %picked, %e : f32
      linalg.yield %masked, %third : f32, f32
    } -> (tensor<?x?xf32>, tensor<?x?xf32>)
  return %rotated, %reversed : tensor<?x?xf32>, tensor<?x?xf32>
}
