// RUN: saccade-opt %s --attn-assign-schedule=target=z80 -verify-diagnostics

// expected-error @+1 {{unknown target 'z80', expected one of host, portable, v3, v3-int8, v4, v4-bf16}}
func.func @unknown_target() {
  return
}
