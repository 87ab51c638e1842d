// RUN: saccade-opt %s -split-input-file -attn-create-shape-functions -verify-diagnostics

// expected-error @below {{entry 'returns_a_scalar' returns 'f32', expected ranked tensors}}
func.func @returns_a_scalar(%a: f32) -> f32 {
  return %a : f32
}

// -----

func.func private @other(%a: tensor<?xf32>) -> tensor<?xf32>
func.func @extent_is_decided_elsewhere(%a: tensor<?xf32>) -> tensor<?xf32> {
  // expected-error @below {{determines an extent of a result or an operand, expected extents that do not depend on its result}}
  %r = call @other(%a) : (tensor<?xf32>) -> tensor<?xf32>
  return %r : tensor<?xf32>
}
