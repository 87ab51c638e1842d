// Casts of positions to narrow types truncate, even if a cast back follows.
// RUN: saccade-run %s --entry=positions --arg=600:f32 --check
// RUN: saccade-run %s --entry=positions --arg=600:f32 --check --target=portable
// RUN: saccade-run %s --entry=a_length --arg=300:f32 --check
// RUN: saccade-run %s --entry=tensors --arg=300:i64:=300 --check
// RUN: saccade-run %s --entry=masks --check --arg=16x16:f32:1 --arg=300x16:f32:2 --arg=300x16:f32:3

#all = affine_map<(m) -> (m)>

func.func @positions(%x: tensor<?xf32>) -> (tensor<?xi64>, tensor<?xi64>, tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?xf32>
  %numbers = tensor.empty(%n) : tensor<?xi64>
  %empty = tensor.empty(%n) : tensor<?xf32>
  %signed, %unsigned, %picked = linalg.generic {indexing_maps = [#all, #all, #all, #all], iterator_types = ["parallel"]}
    ins(%x : tensor<?xf32>) outs(%numbers, %numbers, %empty : tensor<?xi64>, tensor<?xi64>, tensor<?xf32>) {
    ^bb0(%e: f32, %o0: i64, %o1: i64, %o2: f32):
      %i = linalg.index 0 : index
      %i8 = arith.index_cast %i : index to i8
      %back = arith.index_cast %i8 : i8 to index
      %signed = arith.index_cast %back : index to i64
      %u8 = arith.index_castui %i : index to i8
      %forth = arith.index_castui %u8 : i8 to index
      %unsigned = arith.index_cast %forth : index to i64
      %picked = tensor.extract %x[%forth] : tensor<?xf32>
      linalg.yield %signed, %unsigned, %picked : i64, i64, f32
    } -> (tensor<?xi64>, tensor<?xi64>, tensor<?xf32>)
  return %signed, %unsigned, %picked : tensor<?xi64>, tensor<?xi64>, tensor<?xf32>
}

// A result has 300 mod 256 elements.
func.func @a_length(%x: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %one = arith.constant 1.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?xf32>
  %n8 = arith.index_cast %n : index to i8
  %few = arith.index_cast %n8 : i8 to index
  %empty = tensor.empty(%few) : tensor<?xf32>
  %ones = linalg.fill ins(%one : f32) outs(%empty : tensor<?xf32>) -> tensor<?xf32>
  return %ones : tensor<?xf32>
}

func.func @tensors(%x: tensor<?xi64>) -> tensor<?xi64> {
  %positions = arith.index_cast %x : tensor<?xi64> to tensor<?xindex>
  %narrow = arith.index_cast %positions : tensor<?xindex> to tensor<?xi8>
  %back = arith.index_cast %narrow : tensor<?xi8> to tensor<?xindex>
  %result = arith.index_cast %back : tensor<?xindex> to tensor<?xi64>
  return %result : tensor<?xi64>
}

// Key 128 becomes -128, which is visible to every query.
func.func @masks(%q: tensor<?x16xf32>, %k: tensor<?x16xf32>, %v: tensor<?x16xf32>) -> tensor<?x16xf32> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d]
    mask(%b, %h, %i, %j) {
      %j8 = arith.index_cast %j : index to i8
      %wrapped = arith.index_cast %j8 : i8 to index
      %r = arith.cmpi sle, %wrapped, %i : index
      attn.yield %r : i1
    } : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}
