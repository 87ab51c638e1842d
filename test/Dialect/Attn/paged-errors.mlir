// Diagnostics of the verifiers of attn.paged and attn.load_pages.
// RUN: saccade-opt %s -verify-diagnostics -split-input-file

func.func @rank(%pool: tensor<9x16x2x64xf32>, %table: tensor<2x3xi32>) {
  // expected-error @+1 {{pool has rank 4, but names 3 dimensions}}
  %k = attn.paged %pool[b,s,d], %table : tensor<9x16x2x64xf32>, tensor<2x3xi32> -> tensor<2x48x2x64xf32>
  return
}

// -----

func.func @pages_are_a_dimension(%pool: tensor<16x64xf32>, %table: tensor<2x3xi32>) {
  // expected-error @+1 {{pool has no dimension 'b', expected one: the pages}}
  %k = attn.paged %pool[s,d], %table : tensor<16x64xf32>, tensor<2x3xi32> -> tensor<48x64xf32>
  return
}

// -----

func.func @element_type(%pool: tensor<9x16x64xf32>, %table: tensor<2x3xi32>) {
  // expected-error @+1 {{result has type 'tensor<2x48x64xf16>', expected the rank and the element type of the pool, 'tensor<9x16x64xf32>'}}
  %k = attn.paged %pool[b,s,d], %table : tensor<9x16x64xf32>, tensor<2x3xi32> -> tensor<2x48x64xf16>
  return
}

// -----

func.func @sequences(%pool: tensor<9x16x64xf32>, %table: tensor<2x3xi32>) {
  // expected-error @+1 {{result has extent of 'b' 9, but page table has 2}}
  %k = attn.paged %pool[b,s,d], %table : tensor<9x16x64xf32>, tensor<2x3xi32> -> tensor<9x48x64xf32>
  return
}

// -----

func.func @positions(%pool: tensor<9x16x64xf32>, %table: tensor<2x3xi32>) {
  // expected-error @+1 {{result has extent of 's' 47, but page table times page size has 48}}
  %k = attn.paged %pool[b,s,d], %table : tensor<9x16x64xf32>, tensor<2x3xi32> -> tensor<2x47x64xf32>
  return
}

// -----

func.func @head_size(%pool: tensor<9x16x64xf32>, %table: tensor<2x3xi32>) {
  // expected-error @+1 {{result has extent of 'd' 32, but pool has 64}}
  %k = attn.paged %pool[b,s,d], %table : tensor<9x16x64xf32>, tensor<2x3xi32> -> tensor<2x48x32xf32>
  return
}

// -----

func.func @empty_pages(%pool: tensor<9x0x64xf32>, %table: tensor<2x3xi32>) {
  // expected-error @+1 {{pool has pages of 0 positions, expected at least 1}}
  %k = attn.paged %pool[b,s,d], %table : tensor<9x0x64xf32>, tensor<2x3xi32> -> tensor<2x0x64xf32>
  return
}

// -----

func.func @table_of_numbers(%pool: tensor<9x16x64xf32>, %table: tensor<2x3xf32>) {
  // expected-error @+1 {{operand #1 must be 2D tensor of 32-bit signless integer or 64-bit signless integer or index values, but got 'tensor<2x3xf32>'}}
  %k = attn.paged %pool[b,s,d], %table : tensor<9x16x64xf32>, tensor<2x3xf32> -> tensor<2x48x64xf32>
  return
}

// -----

func.func @tile_of_one_head(%pool: memref<9x16x2x64xf32>, %pages: memref<3xi32>, %begin: index, %tile: memref<?x64xf32>) {
  // expected-error @+1 {{pool has type 'memref<9x16x2x64xf32>', expected the dimensions b, s and d of one head}}
  attn.load_pages %pool[b,s,h,d], %pages from %begin into(%tile) : (memref<9x16x2x64xf32>, memref<3xi32>, index, memref<?x64xf32>) -> ()
  return
}

// -----

func.func @tile_of_more_dimensions(%pool: memref<9x16x2x64xf32>, %pages: memref<3xi32>, %begin: index, %tile: memref<?x64xf32>) {
  // expected-error @+1 {{pool has type 'memref<9x16x2x64xf32>', expected the dimensions b, s and d of one head}}
  attn.load_pages %pool[b,s,d], %pages from %begin into(%tile) : (memref<9x16x2x64xf32>, memref<3xi32>, index, memref<?x64xf32>) -> ()
  return
}

// -----

func.func @tile_of_more_names(%pool: memref<9x16x64xf32>, %pages: memref<3xi32>, %begin: index, %tile: memref<?x64xf32>) {
  // expected-error @+1 {{pool has type 'memref<9x16x64xf32>', expected the dimensions b, s and d of one head}}
  attn.load_pages %pool[b,s,h,d], %pages from %begin into(%tile) : (memref<9x16x64xf32>, memref<3xi32>, index, memref<?x64xf32>) -> ()
  return
}

// -----

func.func @tile_of_heads(%pool: memref<9x16x64xf32>, %pages: memref<3xi32>, %begin: index, %tile: memref<?x64xf32>) {
  // expected-error @+1 {{pool has type 'memref<9x16x64xf32>', expected the dimensions b, s and d of one head}}
  attn.load_pages %pool[h,s,d], %pages from %begin into(%tile) : (memref<9x16x64xf32>, memref<3xi32>, index, memref<?x64xf32>) -> ()
  return
}

// -----

func.func @list_of_pages(%pool: memref<9x16x64xf32>, %pages: memref<2x3xi32>, %begin: index, %tile: memref<?x64xf32>) {
  // expected-error @+1 {{pages have type 'memref<2x3xi32>', expected a list of integers}}
  attn.load_pages %pool[b,s,d], %pages from %begin into(%tile) : (memref<9x16x64xf32>, memref<2x3xi32>, index, memref<?x64xf32>) -> ()
  return
}

// -----

func.func @type_of_tile(%pool: memref<9x16x64xf32>, %pages: memref<3xi32>, %begin: index, %tile: memref<?x64xf16>) {
  // expected-error @+1 {{tile has type 'memref<?x64xf16>', expected positions and 'f32' elements of the head size}}
  attn.load_pages %pool[b,s,d], %pages from %begin into(%tile) : (memref<9x16x64xf32>, memref<3xi32>, index, memref<?x64xf16>) -> ()
  return
}

// -----

func.func @columns_of_tile(%pool: memref<9x16x64xf32>, %pages: memref<3xi32>, %begin: index, %tile: memref<?x32xf32>) {
  // expected-error @+1 {{tile has head size 32, but pool has 64}}
  attn.load_pages %pool[b,s,d], %pages from %begin into(%tile) : (memref<9x16x64xf32>, memref<3xi32>, index, memref<?x32xf32>) -> ()
  return
}
