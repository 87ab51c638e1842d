// RUN: saccade-opt %s --attn-lower-accumulate=target=v4 -canonicalize -cse | FileCheck %s
// RUN: saccade-opt %s --attn-lower-accumulate=target=v4-bf16 -canonicalize -cse | FileCheck %s --check-prefix=APPROX

#tile = strided<[?, ?], offset: ?>

// A short region is applied to dot products in registers: the relative position takes one addition, and the factor of s is
// folded into an FMA. Scores are stored once.
// CHECK-LABEL: @short_region_in_registers
func.func @short_region_in_registers(%q: memref<?x64xf32, #tile>, %k: memref<?x64xf32, #tile>, %v: memref<?x64xf32, #tile>,
    %slope: f32, %acc: memref<384x64xf32>, %max: memref<384xf32>, %sum: memref<384xf32>) {
  // CHECK: %[[P:.*]]:24 = scf.for {{.*}} -> (vector<16xf32>, vector<16xf32>,
  // CHECK: arith.sitofp {{.*}} : i32 to f32
  // CHECK: %[[D:.*]] = arith.addf {{.*}} : vector<16xf32>
  // CHECK: %[[B:.*]] = arith.mulf %[[D]], %{{.*}} : vector<16xf32>
  // CHECK-NOT: arith.mulf
  // CHECK: %[[S:.*]] = vector.fma %[[P]]#0, %{{.*}}, %[[B]] : vector<16xf32>
  // CHECK-NEXT: vector.store %[[S]]
  // CHECK: %[[T:.*]] = vector.fma %[[P]]#1, %{{.*}}, %{{.*}} : vector<16xf32>
  // CHECK-NEXT: vector.store %[[T]]
  // CHECK: scf.if
  // CHECK: arith.cmpf ogt, %[[S]], %{{.*}} : vector<16xf32>
  attn.accumulate %q[s,d], %k[s,d], %v[s,d] captures(%slope : f32) into(%acc, %max, %sum : memref<384x64xf32>, memref<384xf32>, memref<384xf32>)
      score(%s, %b, %h, %i, %j, %m) {
        %half = arith.mulf %s, %m : f32
        %d = arith.subi %j, %i : index
        %d32 = arith.index_cast %d : index to i32
        %x = arith.sitofp %d32 : i32 to f32
        %y = arith.mulf %x, %m : f32
        %r = arith.addf %y, %half : f32
        attn.yield %r : f32
      } {schedule = #attn.schedule<rows = 384, cols = 512>} : (memref<?x64xf32, #tile>, memref<?x64xf32, #tile>, memref<?x64xf32, #tile>)
  return
}

// A division becomes a multiplication by the reciprocal; math functions are computed after the matmul, one row of a panel
// at a time.
// CHECK-LABEL: @long_region_follows_matmul
func.func @long_region_follows_matmul(%q: memref<?x64xf32, #tile>, %k: memref<?x64xf32, #tile>, %v: memref<?x64xf32, #tile>,
    %acc: memref<384x64xf32>, %max: memref<384xf32>, %sum: memref<384xf32>) {
  // The scale 1/8, divided by 20.
  // CHECK: arith.constant dense<6.250000e-03> : vector<16xf32>
  // CHECK: %[[P:.*]]:24 = scf.for {{.*}} -> (vector<16xf32>, vector<16xf32>,
  // CHECK: vector.store %[[P]]#0
  // CHECK: scf.for
  // CHECK-NEXT: vector.load
  // CHECK-NOT: arith.divf
  // CHECK: math.tanh {{.*}} : vector<16xf32>
  attn.accumulate %q[s,d], %k[s,d], %v[s,d] into(%acc, %max, %sum : memref<384x64xf32>, memref<384xf32>, memref<384xf32>)
      score(%s, %b, %h, %i, %j) {
        %cap = arith.constant 20.0 : f32
        %x = arith.divf %s, %cap : f32
        %t = math.tanh %x : f32
        %r = arith.mulf %t, %cap : f32
        attn.yield %r : f32
      } {schedule = #attn.schedule<rows = 384, cols = 512>} : (memref<?x64xf32, #tile>, memref<?x64xf32, #tile>, memref<?x64xf32, #tile>)
  return
}

// For bf16 results, tanh is 1 − 2 / (1 + 2^x); its constants are folded with the soft-cap.
// APPROX-LABEL: @soft_cap_of_bf16
func.func @soft_cap_of_bf16(%q: memref<?x64xbf16, #tile>, %k: memref<?x64xbf16, #tile>, %v: memref<?x64xbf16, #tile>,
    %o: memref<?x64xbf16, #tile>, %acc: memref<384x64xf32>, %max: memref<384xf32>) {
  %sum = memref.alloc() : memref<384xf32>
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%sum : memref<384xf32>)
  // APPROX-DAG: %[[FACTOR:.*]] = arith.constant dense<-4.000000e+01> : vector<16xf32>
  // APPROX-DAG: %[[CAP:.*]] = arith.constant dense<2.000000e+01> : vector<16xf32>
  // APPROX-DAG: %[[ONE:.*]] = arith.constant dense<1.000000e+00> : vector<16xf32>
  // APPROX-NOT: math.tanh
  // APPROX: %[[P:.*]] = llvm.call_intrinsic "llvm.x86.avx512.mask.scalef.ps.512"
  // APPROX-NEXT: %[[S:.*]] = arith.addf %[[P]], %[[ONE]]
  // APPROX-NEXT: %[[R:.*]] = arith.divf %[[ONE]], %[[S]]
  // APPROX-NEXT: vector.fma %[[R]], %[[FACTOR]], %[[CAP]]
  attn.accumulate %q[s,d], %k[s,d], %v[s,d] into(%acc, %max, %sum : memref<384x64xf32>, memref<384xf32>, memref<384xf32>)
      score(%s, %b, %h, %i, %j) {
        %cap = arith.constant 20.0 : f32
        %x = arith.divf %s, %cap : f32
        %t = math.tanh %x : f32
        %r = arith.mulf %t, %cap : f32
        attn.yield %r : f32
      } {schedule = #attn.schedule<rows = 384, cols = 512>} : (memref<?x64xbf16, #tile>, memref<?x64xbf16, #tile>, memref<?x64xbf16, #tile>)
  attn.finalize %acc, %max, %sum : memref<384x64xf32>, memref<384xf32>, memref<384xf32> into(%o[s,d] : memref<?x64xbf16, #tile>)
      {schedule = #attn.schedule<rows = 384, cols = 512>}
  return
}
