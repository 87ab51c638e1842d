// RUN: saccade-opt --split-input-file --verify-diagnostics %s

func.func @rank(%new: tensor<3x64xf32>, %cache: tensor<2x?x64xf32>, %at: index) {
  // expected-error @+1 {{cache has rank 3, but names 2 dimensions}}
  attn.append %new[s,d] to %cache[s,d] at(%at : index) : (tensor<3x64xf32>, tensor<2x?x64xf32>) -> tensor<2x?x64xf32>
  return
}

// -----

func.func @element_type(%new: tensor<3x64xf32>, %cache: tensor<?x64xbf16>, %at: index) {
  // expected-error @+1 {{new rows has element type 'f32', expected 'bf16'}}
  attn.append %new[s,d] to %cache[s,d] at(%at : index) : (tensor<3x64xf32>, tensor<?x64xbf16>) -> tensor<?x64xbf16>
  return
}

// -----

func.func @head_count(%new: tensor<8x3x64xf32>, %cache: tensor<2x?x64xf32>, %at: index) {
  // expected-error @+1 {{new rows has head count 8, but cache has 2}}
  attn.append %new[h,s,d] to %cache[h,s,d] at(%at : index) : (tensor<8x3x64xf32>, tensor<2x?x64xf32>) -> tensor<2x?x64xf32>
  return
}

// -----

func.func @positions(%new: tensor<2x3x64xf32>, %cache: tensor<2x?x64xf32>, %at: tensor<4xi32>) {
  // expected-error @+1 {{at has batch size 4, but cache has 2}}
  attn.append %new[b,s,d] to %cache[b,s,d] at(%at : tensor<4xi32>) : (tensor<2x3x64xf32>, tensor<2x?x64xf32>) -> tensor<2x?x64xf32>
  return
}

// -----

func.func @counts(%new: tensor<2x3x64xf32>, %cache: tensor<2x?x64xf32>, %at: index, %n: tensor<3xi32>) {
  // expected-error @+1 {{count has batch size 3, but cache has 2}}
  attn.append %new[b,s,d] to %cache[b,s,d] at(%at : index) count(%n : tensor<3xi32>) : (tensor<2x3x64xf32>, tensor<2x?x64xf32>) -> tensor<2x?x64xf32>
  return
}

// -----

func.func @pinned_rows(%new: tensor<3x64xf32>, %cache: tensor<16x64xf32>, %at: index) {
  // expected-error @+1 {{ring keeps the first 16 rows of a cache of 16, expected less}}
  attn.append %new[s,d] to %cache[s,d] at(%at : index) ring<16> : (tensor<3x64xf32>, tensor<16x64xf32>) -> tensor<16x64xf32>
  return
}

// -----

func.func @result_type(%new: tensor<3x64xf32>, %cache: tensor<16x64xf32>, %at: index) {
  // expected-error @+1 {{result has type 'tensor<?x64xf32>', expected that of the cache, 'tensor<16x64xf32>'}}
  attn.append %new[s,d] to %cache[s,d] at(%at : index) : (tensor<3x64xf32>, tensor<16x64xf32>) -> tensor<?x64xf32>
  return
}

// -----

// expected-error @+1 {{argument 0 of 'number' has 'attn.updated_by' of 1 : i64, expected the number of a result, less than 1}}
func.func @number(%x: tensor<?xf32> {attn.updated_by = 1}) -> tensor<?xf32> {
  return %x : tensor<?xf32>
}

// -----

// expected-error @+1 {{argument 0 of 'type' has 'attn.updated_by' and type 'tensor<?xf32>', expected a tensor of the type of result 0, 'tensor<4xf32>'}}
func.func @type(%x: tensor<?xf32> {attn.updated_by = 0}, %y: tensor<4xf32>) -> tensor<4xf32> {
  return %y : tensor<4xf32>
}

// -----

// expected-error @+1 {{argument 1 of 'twice' has 'attn.updated_by' of 0, as argument 0 has, expected another result: a result updates one argument}}
func.func @twice(%x: tensor<4xf32> {attn.updated_by = 0}, %y: tensor<4xf32> {attn.updated_by = 0}) -> tensor<4xf32> {
  return %y : tensor<4xf32>
}

// -----

// expected-error @+1 {{argument 0 of 'constant' has 'attn.updated_by' and 'attn.constant', expected one of them}}
func.func @constant(%x: tensor<4xf32> {attn.updated_by = 0, attn.constant}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

func.func @ring_of_pages(%new: tensor<?x?x64xf32>, %pool: tensor<?x16x64xf32>, %table: tensor<?x?xi32>, %at: index) {
  // expected-error @+1 {{has 'pages' and 'ring', expected one of them}}
  attn.append %new[b,s,d] to %pool[b,s,d] pages(%table : tensor<?x?xi32>) at(%at : index) ring<4> : (tensor<?x?x64xf32>, tensor<?x16x64xf32>) -> tensor<?x16x64xf32>
  return
}

// -----

func.func @no_pages(%new: tensor<?x64xf32>, %pool: tensor<16x64xf32>, %table: tensor<1x?xi32>, %at: index) {
  // expected-error @+1 {{names no dimension 'b' of the pool, expected one: the pages}}
  attn.append %new[s,d] to %pool[s,d] pages(%table : tensor<1x?xi32>) at(%at : index) : (tensor<?x64xf32>, tensor<16x64xf32>) -> tensor<16x64xf32>
  return
}

// -----

func.func @empty_pages(%new: tensor<?x?x64xf32>, %pool: tensor<?x0x64xf32>, %table: tensor<?x?xi32>, %at: index) {
  // expected-error @+1 {{has pages of 0 positions, expected at least 1}}
  attn.append %new[b,s,d] to %pool[b,s,d] pages(%table : tensor<?x?xi32>) at(%at : index) : (tensor<?x?x64xf32>, tensor<?x0x64xf32>) -> tensor<?x0x64xf32>
  return
}

// -----

func.func @sequences(%new: tensor<3x?x64xf32>, %pool: tensor<9x16x64xf32>, %table: tensor<2x?xi32>, %at: index) {
  // expected-error @+1 {{new rows has batch size 3, but page table has 2}}
  attn.append %new[b,s,d] to %pool[b,s,d] pages(%table : tensor<2x?xi32>) at(%at : index) : (tensor<3x?x64xf32>, tensor<9x16x64xf32>) -> tensor<9x16x64xf32>
  return
}

// -----

func.func @positions_of_sequences(%new: tensor<2x?x64xf32>, %pool: tensor<9x16x64xf32>, %table: tensor<2x?xi32>, %at: tensor<9xi32>) {
  // expected-error @+1 {{at has batch size 9, but page table has 2}}
  attn.append %new[b,s,d] to %pool[b,s,d] pages(%table : tensor<2x?xi32>) at(%at : tensor<9xi32>) : (tensor<2x?x64xf32>, tensor<9x16x64xf32>) -> tensor<9x16x64xf32>
  return
}

// -----

func.func @ragged_rows_with_batches(%new: tensor<3x4x2x16xf32>, %cache: tensor<3x9x2x16xf32>, %n: tensor<3xi32>) -> tensor<3x9x2x16xf32> {
  // expected-error @+1 {{has 'from', expected 'count' and new rows without a dimension 'b'}}
  %c = attn.append %new[b,s,h,d] to %cache[b,s,h,d] at(%n : tensor<3xi32>) count(%n : tensor<3xi32>) from(%n : tensor<3xi32>)
    : (tensor<3x4x2x16xf32>, tensor<3x9x2x16xf32>) -> tensor<3x9x2x16xf32>
  return %c : tensor<3x9x2x16xf32>
}
