// Angles beyond the range reduction, alone and mixed with small ones.
// RUN: saccade-run %s --entry=large_angles --arg=37:f32:1 --check
// RUN: saccade-run %s --entry=large_angles --arg=37:f32:1 --check --target=v3
// RUN: saccade-run %s --entry=large_angles --arg=37:f32:1 --check --target=portable

func.func @large_angles(%x: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?xf32>
  %e = tensor.empty(%n) : tensor<?xf32>
  %r:3 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
    ins(%x : tensor<?xf32>) outs(%e, %e, %e : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) {
    ^bb0(%v: f32, %o: f32, %p: f32, %q: f32):
      // Every fourth angle is huge, every fourth near the bounds of the reduction, the others are random.
      %three = arith.constant 3 : index
      %one = arith.constant 1.0 : f32
      %near = arith.constant 2.0e+9 : f32
      %nearer = arith.constant 1.2e+6 : f32
      %huge = arith.constant 1.0e+30 : f32
      %i = linalg.index 0 : index
      %at = arith.andi %i, %three : index
      %c1 = arith.constant 1 : index
      %c2 = arith.constant 2 : index
      %is1 = arith.cmpi eq, %at, %c1 : index
      %is2 = arith.cmpi eq, %at, %c2 : index
      %is3 = arith.cmpi eq, %at, %three : index
      %s1 = arith.select %is1, %huge, %one : f32
      %s2 = arith.select %is2, %near, %s1 : f32
      %s3 = arith.select %is3, %nearer, %s2 : f32
      %angle = arith.mulf %v, %s3 : f32
      %sin = math.sin %angle : f32
      %cos = math.cos %angle : f32
      linalg.yield %sin, %cos, %angle : f32, f32, f32
    } -> (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>)
  return %r#0, %r#1, %r#2 : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
}
