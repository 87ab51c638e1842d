// Sinks, weight regions and tallies.
func.func @sink(%q: tensor<?x4x?x32xf32>, %k: tensor<?x2x?x32xf32>, %v: tensor<?x2x?x24xf32>, %t: tensor<4xf32>,
                %n: tensor<?xi32>, %m: tensor<?xi32>) -> (tensor<?x4x?x24xf32>, tensor<?x4x?xf32>) {
  %o, %l = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] q_len(%n : tensor<?xi32>) kv_len(%m : tensor<?xi32>)
    sink(%t : tensor<4xf32>) mask causal<top_left> lse
    : (tensor<?x4x?x32xf32>, tensor<?x2x?x32xf32>, tensor<?x2x?x24xf32>) -> (tensor<?x4x?x24xf32>, tensor<?x4x?xf32>)
  return %o, %l : tensor<?x4x?x24xf32>, tensor<?x4x?xf32>
}

func.func @half_sink(%q: tensor<?x4x?x32xbf16>, %k: tensor<?x2x?x32xbf16>, %v: tensor<?x2x?x24xbf16>, %t: tensor<4xbf16>)
    -> tensor<?x4x?x24xbf16> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] sink(%t : tensor<4xbf16>)
    : (tensor<?x4x?x32xbf16>, tensor<?x2x?x32xbf16>, tensor<?x2x?x24xbf16>) -> tensor<?x4x?x24xbf16>
  return %o : tensor<?x4x?x24xbf16>
}

// One sink for all heads, in f64.
func.func @sink_of_all(%q: tensor<?x3x?x8xf64>, %k: tensor<?x3x?x8xf64>, %v: tensor<?x3x?x8xf64>, %t: f64)
    -> (tensor<?x3x?x8xf64>, tensor<?x3x?xf64>) {
  %o, %l = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] sink(%t : f64) lse
    : (tensor<?x3x?x8xf64>, tensor<?x3x?x8xf64>, tensor<?x3x?x8xf64>) -> (tensor<?x3x?x8xf64>, tensor<?x3x?xf64>)
  return %o, %l : tensor<?x3x?x8xf64>, tensor<?x3x?xf64>
}

// Row max and argmax with a sink, which is not a key.
func.func @largest(%q: tensor<?x4x?x32xf32>, %k: tensor<?x2x?x32xf32>, %v: tensor<?x2x?x24xf32>, %t: tensor<4xf32>,
                   %scale: f32) -> (tensor<?x4x?x24xf32>, tensor<?x4x?xf32>, tensor<?x4x?xf32>, tensor<?x4x?xi64>) {
  %o, %l, %m, %a = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] scale(%scale : f32) sink(%t : tensor<4xf32>)
    mask causal<bottom_right> lse max argmax
    : (tensor<?x4x?x32xf32>, tensor<?x2x?x32xf32>, tensor<?x2x?x24xf32>)
    -> (tensor<?x4x?x24xf32>, tensor<?x4x?xf32>, tensor<?x4x?xf32>, tensor<?x4x?xi64>)
  return %o, %l, %m, %a : tensor<?x4x?x24xf32>, tensor<?x4x?xf32>, tensor<?x4x?xf32>, tensor<?x4x?xi64>
}

// The same with a score region, for a part of a longer sequence, without log-sum-exp.
func.func @largest_of_biased(%q: tensor<?x64xbf16>, %k: tensor<?x64xbf16>, %v: tensor<?x64xbf16>, %first: index)
    -> (tensor<?x64xbf16>, tensor<?xi64>) {
  %zero = arith.constant 0 : index
  %o, %a = attn.attention %q[s,d], %k[s,d], %v[s,d] at(%zero, %zero, %zero, %first)
    score(%s, %b, %h, %i, %j) {
      %c3 = arith.constant 3 : index
      %r = arith.remsi %j, %c3 : index
      %r32 = arith.index_cast %r : index to i32
      %f = arith.sitofp %r32 : i32 to f32
      %x = arith.addf %s, %f : f32
      attn.yield %x : f32
    } argmax : (tensor<?x64xbf16>, tensor<?x64xbf16>, tensor<?x64xbf16>) -> (tensor<?x64xbf16>, tensor<?xi64>)
  return %o, %a : tensor<?x64xbf16>, tensor<?xi64>
}

// A gate on every weight: proportional to it, so that one pass over the keys is enough.
func.func @gated(%q: tensor<?x2x?x32xf32>, %k: tensor<?x2x?x32xf32>, %v: tensor<?x2x?x24xf32>, %g: tensor<?x?xf32>)
    -> (tensor<?x2x?x24xf32>, tensor<?x2x?xf32>) {
  %o, %l = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] captures(%g : tensor<?x?xf32>)
    mask causal<bottom_right>
    weight(%p, %b, %h, %i, %j, %gates) {
      %gate = tensor.extract %gates[%i, %j] : tensor<?x?xf32>
      %half = arith.constant 0.5 : f32
      %x = arith.mulf %p, %gate : f32
      %y = arith.mulf %x, %half : f32
      %z = arith.subf %p, %y : f32
      attn.yield %z : f32
    } lse : (tensor<?x2x?x32xf32>, tensor<?x2x?x32xf32>, tensor<?x2x?x24xf32>) -> (tensor<?x2x?x24xf32>, tensor<?x2x?xf32>)
  return %o, %l : tensor<?x2x?x24xf32>, tensor<?x2x?xf32>
}

// Not linear: small weights are dropped, the others squared.
func.func @sparse(%q: tensor<?x2x?x32xf32>, %k: tensor<?x2x?x32xf32>, %v: tensor<?x2x?x24xf32>, %t: f32)
    -> (tensor<?x2x?x24xf32>, tensor<?x2x?xf32>) {
  %o, %l = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] sink(%t : f32)
    mask causal<bottom_right>
    weight(%p, %b, %h, %i, %j) {
      %small = arith.constant 0.01 : f32
      %one = arith.constant 1.0 : f32
      %x = arith.subf %p, %small : f32
      %zero = arith.constant 0.0 : f32
      %y = arith.maximumf %x, %zero : f32
      %z = arith.mulf %y, %y : f32
      %w = arith.addf %z, %one : f32
      attn.yield %w : f32
    } lse : (tensor<?x2x?x32xf32>, tensor<?x2x?x32xf32>, tensor<?x2x?x24xf32>) -> (tensor<?x2x?x24xf32>, tensor<?x2x?xf32>)
  return %o, %l : tensor<?x2x?x24xf32>, tensor<?x2x?xf32>
}

func.func @half_sparse(%q: tensor<?x2x?x32xbf16>, %k: tensor<?x2x?x32xbf16>, %v: tensor<?x2x?x24xbf16>)
    -> tensor<?x2x?x24xbf16> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    weight(%p, %b, %h, %i, %j) {
      %x = arith.mulf %p, %p : f32
      attn.yield %x : f32
    } : (tensor<?x2x?x32xbf16>, tensor<?x2x?x32xbf16>, tensor<?x2x?x24xbf16>) -> tensor<?x2x?x24xbf16>
  return %o : tensor<?x2x?x24xbf16>
}

// The mean score (one bin for all), the mass in blocks of 16 keys, and at each clipped distance.
func.func @tallies(%q: tensor<?x2x?x32xf32>, %k: tensor<?x2x?x32xf32>, %v: tensor<?x2x?x24xf32>, %n: tensor<?xi32>)
    -> (tensor<?x2x?x24xf32>, tensor<?x2x?xf32>, tensor<?x2x?x1xf32>, tensor<?x2x?x20xf32>, tensor<?x2x?x41xf32>) {
  %o, %l, %e, %p, %d = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] kv_len(%n : tensor<?xi32>)
    mask causal<top_left>
    tally<1>(%s, %b, %h, %i, %j) {
      %bin = arith.constant 0 : index
      attn.yield %bin, %s : index, f32
    }
    tally<20>(%s, %b, %h, %i, %j) {
      %c16 = arith.constant 16 : index
      %one = arith.constant 1.0 : f32
      %bin = arith.divui %j, %c16 : index
      attn.yield %bin, %one : index, f32
    }
    tally<41>(%s, %b, %h, %i, %j) {
      %one = arith.constant 1.0 : f32
      %c = arith.constant 20 : index
      %least = arith.constant -20 : index
      %x = arith.subi %i, %j : index
      %y = arith.minsi %x, %c : index
      %z = arith.maxsi %y, %least : index
      %bin = arith.addi %z, %c : index
      attn.yield %bin, %one : index, f32
    } lse
    : (tensor<?x2x?x32xf32>, tensor<?x2x?x32xf32>, tensor<?x2x?x24xf32>)
    -> (tensor<?x2x?x24xf32>, tensor<?x2x?xf32>, tensor<?x2x?x1xf32>, tensor<?x2x?x20xf32>, tensor<?x2x?x41xf32>)
  return %o, %l, %e, %p, %d : tensor<?x2x?x24xf32>, tensor<?x2x?xf32>, tensor<?x2x?x1xf32>, tensor<?x2x?x20xf32>, tensor<?x2x?x41xf32>
}

// Tallies of some keys: the mass on the first keys, on a band, and on the keys of each id, apart from some.
func.func @some_keys(%q: tensor<?x4x?x32xf32>, %k: tensor<?x2x?x32xf32>, %v: tensor<?x2x?x24xf32>, %n: tensor<?xi32>,
                     %first: index, %ids: tensor<?xi32>, %sink: tensor<4xf32>)
    -> (tensor<?x4x?x24xf32>, tensor<?x4x?x1xf32>, tensor<?x4x?x1xf32>, tensor<?x4x?x6xf32>, tensor<?x4x?x2xf32>) {
  %o, %f, %d, %m, %t = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] captures(%first, %ids : index, tensor<?xi32>)
    kv_len(%n : tensor<?xi32>) sink(%sink : tensor<4xf32>) mask causal<bottom_right>
    tally<1>(%s, %b, %h, %i, %j, %c, %table) {
      %bin = arith.constant 0 : index
      %one = arith.constant 1.0 : f32
      %zero = arith.constant 0.0 : f32
      %is = arith.cmpi slt, %j, %c : index
      %value = arith.select %is, %one, %zero : f32
      attn.yield %bin, %value : index, f32
    }
    tally<1>(%s, %b, %h, %i, %j, %c, %table) {
      %bin = arith.constant 0 : index
      %zero = arith.constant 0.0 : f32
      %width = arith.constant 20 : index
      %x = arith.subi %j, %i : index
      %y = arith.subi %i, %j : index
      %low = arith.cmpi sle, %x, %width : index
      %high = arith.cmpi sle, %y, %width : index
      %is = arith.andi %low, %high : i1
      %value = arith.select %is, %s, %zero : f32
      attn.yield %bin, %value : index, f32
    }
    tally<6>(%s, %b, %h, %i, %j, %c, %table) {
      %one = arith.constant 1.0 : f32
      %zero = arith.constant 0.0 : f32
      %id = tensor.extract %table[%j] : tensor<?xi32>
      %bin = arith.index_cast %id : i32 to index
      %is = arith.cmpi sge, %j, %c : index
      %value = arith.select %is, %one, %zero : f32
      attn.yield %bin, %value : index, f32
    }
    tally<2>(%s, %b, %h, %i, %j, %c, %table) {
      %one = arith.constant 1.0 : f32
      %length = attn.length key
      %two = arith.constant 2 : index
      %half = arith.ceildivui %length, %two : index
      %bin = arith.divui %j, %half : index
      attn.yield %bin, %one : index, f32
    } : (tensor<?x4x?x32xf32>, tensor<?x2x?x32xf32>, tensor<?x2x?x24xf32>)
    -> (tensor<?x4x?x24xf32>, tensor<?x4x?x1xf32>, tensor<?x4x?x1xf32>, tensor<?x4x?x6xf32>, tensor<?x4x?x2xf32>)
  return %o, %f, %d, %m, %t : tensor<?x4x?x24xf32>, tensor<?x4x?x1xf32>, tensor<?x4x?x1xf32>, tensor<?x4x?x6xf32>, tensor<?x4x?x2xf32>
}

// Bins from a table, with a sink and a weight region, which do not affect tallies. Out-of-range bins are ignored.
func.func @scattered(%q: tensor<?x2x?x64xbf16>, %k: tensor<?x2x?x64xbf16>, %v: tensor<?x2x?x64xbf16>, %t: tensor<2xf32>,
                     %table: tensor<?xi32>) -> (tensor<?x2x?x64xbf16>, tensor<?x2x?x7xf32>, tensor<?x2x?x64xf32>) {
  %o, %d, %u = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] captures(%table : tensor<?xi32>)
    sink(%t : tensor<2xf32>)
    weight(%p, %b, %h, %i, %j, %bins) {
      %two = arith.constant 2.0 : f32
      %x = arith.divf %p, %two : f32
      attn.yield %x : f32
    }
    tally<7>(%s, %b, %h, %i, %j, %bins) {
      %bin = tensor.extract %bins[%j] : tensor<?xi32>
      %at = arith.index_cast %bin : i32 to index
      %x = arith.mulf %s, %s : f32
      attn.yield %at, %x : index, f32
    }
    tally<64>(%s, %b, %h, %i, %j, %bins) {
      %one = arith.constant 1.0 : f32
      attn.yield %i, %one : index, f32
    } : (tensor<?x2x?x64xbf16>, tensor<?x2x?x64xbf16>, tensor<?x2x?x64xbf16>)
    -> (tensor<?x2x?x64xbf16>, tensor<?x2x?x7xf32>, tensor<?x2x?x64xf32>)
  return %o, %d, %u : tensor<?x2x?x64xbf16>, tensor<?x2x?x7xf32>, tensor<?x2x?x64xf32>
}

// Relative positions up to a distance of 16 on both sides: scores get q · rk[j − i], outputs Σ p · rv[j − i].
func.func @shaw(%q: tensor<?x64xf32>, %k: tensor<?x64xf32>, %v: tensor<?x48xf32>, %rk: tensor<33x64xf32>,
                %rv: tensor<33x48xf32>) -> tensor<?x48xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %q, %c0 : tensor<?x64xf32>
  %e = tensor.empty(%n) : tensor<?x33xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x33xf32>) -> tensor<?x33xf32>
  %te = tensor.empty() : tensor<64x33xf32>
  %rt = linalg.transpose ins(%rk : tensor<33x64xf32>) outs(%te : tensor<64x33xf32>) permutation = [1, 0]
  %qr = linalg.matmul ins(%q, %rt : tensor<?x64xf32>, tensor<64x33xf32>) outs(%z : tensor<?x33xf32>) -> tensor<?x33xf32>
  %o, %t = attn.attention %q[s,d], %k[s,d], %v[s,d] captures(%qr : tensor<?x33xf32>)
    score(%s, %b, %h, %i, %j, %r) {
      %eighth = arith.constant 0.125 : f32
      %c16 = arith.constant 16 : index
      %first = arith.constant 0 : index
      %c32 = arith.constant 32 : index
      %x = arith.subi %j, %i : index
      %y = arith.addi %x, %c16 : index
      %w = arith.maxsi %y, %first : index
      %bin = arith.minsi %w, %c32 : index
      %bias = tensor.extract %r[%i, %bin] : tensor<?x33xf32>
      %scaled = arith.mulf %bias, %eighth : f32
      %sum = arith.addf %s, %scaled : f32
      attn.yield %sum : f32
    }
    tally<33>(%s, %b, %h, %i, %j, %r) {
      %one = arith.constant 1.0 : f32
      %c16 = arith.constant 16 : index
      %first = arith.constant 0 : index
      %c32 = arith.constant 32 : index
      %x = arith.subi %j, %i : index
      %y = arith.addi %x, %c16 : index
      %w = arith.maxsi %y, %first : index
      %bin = arith.minsi %w, %c32 : index
      attn.yield %bin, %one : index, f32
    } : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x48xf32>) -> (tensor<?x48xf32>, tensor<?x33xf32>)
  %r = linalg.matmul ins(%t, %rv : tensor<?x33xf32>, tensor<33x48xf32>) outs(%o : tensor<?x48xf32>) -> tensor<?x48xf32>
  return %r : tensor<?x48xf32>
}
