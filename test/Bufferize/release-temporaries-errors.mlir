// RUN: saccade-opt --attn-release-temporaries --split-input-file --verify-diagnostics %s

func.func @returned_memory() -> memref<8xf32> {
  %memory = memref.alloc() : memref<8xf32>
  // expected-error @+1 {{forwards memory that is allocated here}}
  return %memory : memref<8xf32>
}
