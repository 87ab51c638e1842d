// RUN: saccade-opt %s | saccade-opt | FileCheck %s

// CHECK-LABEL: func.func @one_position_for_all_sequences
// CHECK:         attn.append %{{.*}}[s,d] to %{{.*}}[s,d] at(%{{.*}} : index) : (tensor<3x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
func.func @one_position_for_all_sequences(%new: tensor<3x64xf32>, %cache: tensor<?x64xf32>, %at: index)
    -> tensor<?x64xf32> {
  %0 = attn.append %new[s,d] to %cache[s,d] at(%at : index)
    : (tensor<3x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %0 : tensor<?x64xf32>
}

// CHECK-LABEL: func.func @positions_and_counts_of_sequences
// CHECK:         attn.append %{{.*}}[b,s,h,d] to %{{.*}}[b,h,d,s] at(%{{.*}} : tensor<?xi32>) count(%{{.*}} : tensor<?xi64>)
// CHECK-SAME:      ring<4> : (tensor<?x?x2x64xi8>, tensor<?x2x64x?xi8>) -> tensor<?x2x64x?xi8>
func.func @positions_and_counts_of_sequences(%new: tensor<?x?x2x64xi8>, %cache: tensor<?x2x64x?xi8>, %at: tensor<?xi32>,
                                             %count: tensor<?xi64>) -> tensor<?x2x64x?xi8> {
  %0 = attn.append %new[b,s,h,d] to %cache[b,h,d,s] at(%at : tensor<?xi32>) count(%count : tensor<?xi64>) ring<4>
    : (tensor<?x?x2x64xi8>, tensor<?x2x64x?xi8>) -> tensor<?x2x64x?xi8>
  return %0 : tensor<?x2x64x?xi8>
}

// CHECK-LABEL: func.func @pages_of_sequences
// CHECK:         attn.append %{{.*}}[b,s,h,d] to %{{.*}}[b,h,s,d] pages(%{{.*}} : tensor<?x?xi32>) at(%{{.*}} : tensor<?xi32>)
// CHECK-SAME:      count(%{{.*}} : index) : (tensor<?x?x2x64xi8>, tensor<?x2x16x64xi8>) -> tensor<?x2x16x64xi8>
func.func @pages_of_sequences(%new: tensor<?x?x2x64xi8>, %pool: tensor<?x2x16x64xi8>, %table: tensor<?x?xi32>,
                              %at: tensor<?xi32>, %count: index) -> tensor<?x2x16x64xi8> {
  %0 = attn.append %new[b,s,h,d] to %pool[b,h,s,d] pages(%table : tensor<?x?xi32>) at(%at : tensor<?xi32>) count(%count : index)
    : (tensor<?x?x2x64xi8>, tensor<?x2x16x64xi8>) -> tensor<?x2x16x64xi8>
  return %0 : tensor<?x2x16x64xi8>
}

// CHECK-LABEL: func.func @argument_updated_in_place
// CHECK-SAME:    %{{.*}}: tensor<?xf32> {attn.updated_by = 0 : i64}
func.func @argument_updated_in_place(%x: tensor<?xf32> {attn.updated_by = 0}) -> tensor<?xf32> {
  return %x : tensor<?xf32>
}
