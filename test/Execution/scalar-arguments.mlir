// Scalar arguments of every width keep all their bits: a double does not represent every i64.

// RUN: saccade-run %s --entry=wide --check --arg=9007199254740993 --arg=-9007199254740993
// RUN: saccade-run %s --entry=wide --check --arg=9223372036854775807 --arg=-9223372036854775808
// RUN: saccade-run %s --entry=narrow --check --arg=-2147483648 --arg=-32768 --arg=-128 --arg=1
// RUN: saccade-run %s --entry=narrow --check --arg=2147483647 --arg=32767 --arg=127 --arg=0
// RUN: saccade-run %s --entry=real --check --arg=1.1 --arg=-3.3 --arg=0.1

// The difference shows the last bit, also to a reference that computes in floating point.
func.func @wide(%x: i64, %y: index) -> tensor<4xi64> {
  %near = arith.constant 9007199254740992 : i64
  %z = arith.index_cast %y : index to i64
  %a = arith.subi %x, %near : i64
  %b = arith.addi %z, %near : i64
  %r = tensor.from_elements %x, %z, %a, %b : tensor<4xi64>
  return %r : tensor<4xi64>
}

func.func @narrow(%x: i32, %y: i16, %z: i8, %f: i1) -> tensor<4xi64> {
  %a = arith.extsi %x : i32 to i64
  %b = arith.extsi %y : i16 to i64
  %c = arith.extsi %z : i8 to i64
  %d = arith.extui %f : i1 to i64
  %r = tensor.from_elements %a, %b, %c, %d : tensor<4xi64>
  return %r : tensor<4xi64>
}

func.func @real(%x: f64, %y: f32, %z: f16) -> tensor<3xf64> {
  %b = arith.extf %y : f32 to f64
  %c = arith.extf %z : f16 to f64
  %r = tensor.from_elements %x, %b, %c : tensor<3xf64>
  return %r : tensor<3xf64>
}
