// Reads of captured tables that may be too short: an index is clamped to the table, or the read gives 0. Lengths in a
// tensor are unknown before the call, which disables the check of the arguments.

func.func @keys(%x: tensor<?x16xf32>, %t: tensor<?xf32>, %n: tensor<1xi64>) -> tensor<?x16xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] captures(%t : tensor<?xf32>) kv_len(%n : tensor<1xi64>)
    mask causal<8000000>
    score(%s, %b, %h, %i, %j, %t1) {
      %e = tensor.extract %t1[%j] : tensor<?xf32>
      %r = arith.addf %s, %e : f32
      attn.yield %r : f32
    } : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}

// Strides of 2 and −2, from far before the table to far after it.
func.func @strides(%x: tensor<?x16xf32>, %t: tensor<?xf32>, %from: index, %to: index, %n: tensor<1xi64>) -> tensor<?x16xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] captures(%t, %from, %to : tensor<?xf32>, index, index) kv_len(%n : tensor<1xi64>)
    score(%s, %b, %h, %i, %j, %t1, %first, %last) {
      %j2 = arith.addi %j, %j : index
      %up = arith.addi %first, %j2 : index
      %down = arith.subi %last, %j2 : index
      %e = tensor.extract %t1[%up] : tensor<?xf32>
      %f = tensor.extract %t1[%down] : tensor<?xf32>
      %g = arith.addf %e, %f : f32
      %r = arith.addf %s, %g : f32
      attn.yield %r : f32
    } : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}

func.func @gathers(%x: tensor<?x16xf32>, %t: tensor<?xi1>, %factor: index, %n: tensor<1xi64>) -> tensor<?x16xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] captures(%t, %factor : tensor<?xi1>, index) kv_len(%n : tensor<1xi64>)
    mask(%b, %h, %i, %j, %t1, %f) {
      %p = arith.muli %j, %f : index
      %q = arith.muli %p, %j : index
      %e = tensor.extract %t1[%q] : tensor<?xi1>
      attn.yield %e : i1
    } : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}

func.func @rows(%x: tensor<?x16xf32>, %t: tensor<?xindex>) -> tensor<?x16xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] captures(%t : tensor<?xindex>)
    mask(%b, %h, %i, %j, %t1) {
      %e = tensor.extract %t1[%i] : tensor<?xindex>
      %r = arith.cmpi ne, %j, %e : index
      attn.yield %r : i1
    } : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}

// Distances on both sides, in a table of 63.
func.func @distances(%x: tensor<?x16xf32>, %t: tensor<?xf32>) -> tensor<?x16xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] captures(%t : tensor<?xf32>) score(%s, %b, %h, %i, %j, %t1) {
      %middle = arith.constant 31 : index
      %d = arith.subi %i, %j : index
      %place = arith.addi %d, %middle : index
      %e = tensor.extract %t1[%place] : tensor<?xf32>
      %r = arith.addf %s, %e : f32
      attn.yield %r : f32
    } : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}

// Distances into the past, under a causal mask.
func.func @past(%x: tensor<?x16xf32>, %t: tensor<?xf32>) -> tensor<?x16xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] captures(%t : tensor<?xf32>) mask causal<top_left>
    score(%s, %b, %h, %i, %j, %t1) {
      %d = arith.subi %i, %j : index
      %e = tensor.extract %t1[%d] : tensor<?xf32>
      %r = arith.addf %s, %e : f32
      attn.yield %r : f32
    } : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}

// Positions after the end of the table get zero.
func.func @table_or_zero(%x: tensor<?x16xf32>, %t: tensor<?xf32>) -> tensor<?x16xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] captures(%t : tensor<?xf32>) score(%s, %b, %h, %i, %j, %t1) {
      %c0 = arith.constant 0 : index
      %none = arith.constant 0.0 : f32
      %sum = arith.addi %i, %j : index
      %n = tensor.dim %t1, %c0 : tensor<?xf32>
      %isThere = arith.cmpi slt, %sum, %n : index
      %e = tensor.extract %t1[%sum] : tensor<?xf32>
      %bias = arith.select %isThere, %e, %none : f32
      %r = arith.addf %s, %bias : f32
      attn.yield %r : f32
    } : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}

// Indices from another table, which is read far out of bounds.
func.func @places(%x: tensor<?x16xf32>, %ids: tensor<?xindex>, %t: tensor<?xf32>) -> tensor<?x16xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] captures(%ids, %t : tensor<?xindex>, tensor<?xf32>)
    score(%s, %b, %h, %i, %j, %ids1, %t1) {
      %far = arith.constant 1000000 : index
      %p = arith.muli %j, %far : index
      %e = tensor.extract %ids1[%p] : tensor<?xindex>
      %bias = tensor.extract %t1[%e] : tensor<?xf32>
      %r = arith.addf %s, %bias : f32
      attn.yield %r : f32
    } : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}

// A mask that reads a computed tensor, and a score that reads a table by distance.
func.func @computed_ids(%x: tensor<?x16xf32>, %ids: tensor<?xi32>, %t: tensor<?xf32>) -> tensor<?x16xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %ids, %c0 : tensor<?xi32>
  %empty = tensor.empty(%n) : tensor<?xi32>
  %halves = linalg.map ins(%ids : tensor<?xi32>) outs(%empty : tensor<?xi32>) (%id: i32, %old: i32) {
    %two = arith.constant 2 : i32
    %half = arith.divsi %id, %two : i32
    linalg.yield %half : i32
  }
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] captures(%halves, %t : tensor<?xi32>, tensor<?xf32>)
    mask(%b, %h, %i, %j, %ids1, %t1) {
      %left = tensor.extract %ids1[%i] : tensor<?xi32>
      %right = tensor.extract %ids1[%j] : tensor<?xi32>
      %same = arith.cmpi eq, %left, %right : i32
      attn.yield %same : i1
    }
    score(%s, %b, %h, %i, %j, %ids1, %t1) {
      %middle = arith.constant 31 : index
      %d = arith.subi %i, %j : index
      %place = arith.addi %d, %middle : index
      %e = tensor.extract %t1[%place] : tensor<?xf32>
      %r = arith.addf %s, %e : f32
      attn.yield %r : f32
    } : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}

// An index from another table, for each query.
func.func @slope_of_id(%x: tensor<?x16xf32>, %ids: tensor<?xi32>, %t: tensor<?xf32>) -> tensor<?x16xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] captures(%ids, %t : tensor<?xi32>, tensor<?xf32>) mask window<2, 0>
    score(%s, %b, %h, %i, %j, %ids1, %t1) {
      %id = tensor.extract %ids1[%i] : tensor<?xi32>
      %place = arith.index_cast %id : i32 to index
      %e = tensor.extract %t1[%place] : tensor<?xf32>
      %r = arith.addf %s, %e : f32
      attn.yield %r : f32
    } : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}

// The same for keys; a negative index is not read.
func.func @place_or_none(%x: tensor<?x16xf32>, %ids: tensor<?xi32>, %t: tensor<?xf32>) -> tensor<?x16xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] captures(%ids, %t : tensor<?xi32>, tensor<?xf32>)
    score(%s, %b, %h, %i, %j, %ids1, %t1) {
      %none = arith.constant 0.0 : f32
      %zero = arith.constant 0 : i32
      %id = tensor.extract %ids1[%j] : tensor<?xi32>
      %isThere = arith.cmpi sge, %id, %zero : i32
      %place = arith.index_cast %id : i32 to index
      %e = tensor.extract %t1[%place] : tensor<?xf32>
      %bias = arith.select %isThere, %e, %none : f32
      %r = arith.addf %s, %bias : f32
      attn.yield %r : f32
    } : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}

// A block mask whose layout is read out of bounds only for pairs that the causal mask removes.
func.func @causal_blocks(%x: tensor<?x16xf32>, %layout: tensor<?x?xi1>, %shift: index) -> tensor<?x16xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] captures(%layout, %shift : tensor<?x?xi1>, index)
    mask(%b, %h, %i, %j, %l, %s) {
      %size = arith.constant 8 : index
      %row = arith.floordivsi %i, %size : index
      %column = arith.floordivsi %j, %size : index
      %back = arith.subi %row, %column : index
      %place = arith.addi %back, %s : index
      %e = tensor.extract %l[%row, %place] : tensor<?x?xi1>
      %causal = arith.cmpi sle, %j, %i : index
      %r = arith.andi %e, %causal : i1
      attn.yield %r : i1
    } : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}
