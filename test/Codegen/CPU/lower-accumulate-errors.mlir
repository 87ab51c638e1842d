// RUN: saccade-opt %s --attn-lower-accumulate=target=v4 -verify-diagnostics -split-input-file

func.func @rows_are_grouped(%x: memref<?x64xf32>, %acc: memref<20x64xf32>, %max: memref<20xf32>, %sum: memref<20xf32>) {
  // expected-error @+1 {{accumulator has type 'memref<20x64xf32>', expected a static multiple of 12 rows}}
  attn.accumulate %x[s,d], %x[s,d], %x[s,d] into(%acc, %max, %sum : memref<20x64xf32>, memref<20xf32>, memref<20xf32>)
      {schedule = #attn.schedule<rows = 24, cols = 64>} : (memref<?x64xf32>, memref<?x64xf32>, memref<?x64xf32>)
  return
}

// -----

func.func @columns_are_vectorized(%x: memref<?x20xf32>, %acc: memref<24x20xf32>, %max: memref<24xf32>, %sum: memref<24xf32>) {
  // expected-error @+1 {{accumulator has 20 columns, expected a multiple of 16}}
  attn.accumulate %x[s,d], %x[s,d], %x[s,d] into(%acc, %max, %sum : memref<24x20xf32>, memref<24xf32>, memref<24xf32>)
      {schedule = #attn.schedule<rows = 24, cols = 64>} : (memref<?x20xf32>, memref<?x20xf32>, memref<?x20xf32>)
  return
}

// -----

func.func @head_size_must_be_static(%x: memref<?x?xf32>, %acc: memref<24x16xf32>, %max: memref<24xf32>, %sum: memref<24xf32>) {
  // expected-error @+1 {{head size of key is dynamic, expected a static one}}
  attn.accumulate %x[s,d], %x[s,d], %x[s,d] into(%acc, %max, %sum : memref<24x16xf32>, memref<24xf32>, memref<24xf32>)
      {schedule = #attn.schedule<rows = 24, cols = 64>} : (memref<?x?xf32>, memref<?x?xf32>, memref<?x?xf32>)
  return
}

// -----

func.func @tiles_need_a_schedule(%x: memref<?x16xf32>, %acc: memref<24x16xf32>, %max: memref<24xf32>, %sum: memref<24xf32>) {
  // expected-error @+1 {{has no schedule}}
  attn.accumulate %x[s,d], %x[s,d], %x[s,d] into(%acc, %max, %sum : memref<24x16xf32>, memref<24xf32>, memref<24xf32>)
      : (memref<?x16xf32>, memref<?x16xf32>, memref<?x16xf32>)
  return
}
