// RUN: saccade-opt %s -split-input-file -attn-emit-entry-points -verify-diagnostics

// expected-error @below {{result 'result' of entry 'sum' has type 'f32', expected a ranked tensor of f8E4M3FN, f8E5M2, f16, bf16, f32, f64, index or an integer of 1, 8, 16, 32 or 64 bits}}
llvm.func @_mlir_ciface_sum(%descriptor: !llvm.ptr) -> f32
    attributes {attn.entry = {name = "sum", names = ["a", "result"], type = (tensor<?xf32>) -> f32}} {
  %0 = llvm.mlir.constant(0.0 : f32) : f32
  llvm.return %0 : f32
}
llvm.func @_mlir_ciface_sum.shapes(%result: !llvm.ptr, %a: !llvm.ptr) attributes {attn.shapes_of = "sum", attn.messages = []} {
  llvm.return
}

// -----

// expected-error @below {{argument 'a' of entry 'nibbles' has type 'tensor<?xi4>', expected a ranked tensor or scalar of f8E4M3FN}}
llvm.func @_mlir_ciface_nibbles(%descriptor: !llvm.ptr)
    attributes {attn.entry = {name = "nibbles", names = ["a"], type = (tensor<?xi4>) -> ()}} {
  llvm.return
}
llvm.func @_mlir_ciface_nibbles.shapes(%result: !llvm.ptr, %a: !llvm.ptr) attributes {attn.shapes_of = "nibbles", attn.messages = []} {
  llvm.return
}

// -----

// expected-error @below {{entry has no signature with name, names and type}}
llvm.func @_mlir_ciface_nameless(%descriptor: !llvm.ptr)
    attributes {attn.entry = {name = "nameless", names = [], type = (tensor<?xf32>) -> ()}} {
  llvm.return
}

// -----

// expected-error @below {{expected an entry and its shape function}}
llvm.func @_mlir_ciface_alone(%descriptor: !llvm.ptr)
    attributes {attn.entry = {name = "alone", names = ["a"], type = (tensor<?xf32>) -> ()}} {
  llvm.return
}

// -----

llvm.func @_mlir_ciface_scale() attributes {attn.entry = {name = "scale", names = [], type = () -> ()}} {
  llvm.return
}
llvm.func @_mlir_ciface_scale.shapes(%result: !llvm.ptr) attributes {attn.shapes_of = "scale", attn.messages = []} {
  llvm.return
}
// expected-error @below {{entry 'scale_shapes' defines the symbol 'saccade_scale_shapes', as does entry 'scale'; rename one of them}}
llvm.func @_mlir_ciface_scale_shapes() attributes {attn.entry = {name = "scale_shapes", names = [], type = () -> ()}} {
  llvm.return
}
llvm.func @_mlir_ciface_scale_shapes.shapes(%result: !llvm.ptr)
    attributes {attn.shapes_of = "scale_shapes", attn.messages = []} {
  llvm.return
}

// -----

// expected-error @below {{entry 'entry' defines the symbol 'saccade_entry_shapes', which belongs to the runtime; rename the entry}}
llvm.func @_mlir_ciface_entry() attributes {attn.entry = {name = "entry", names = [], type = () -> ()}} {
  llvm.return
}
llvm.func @_mlir_ciface_entry.shapes(%result: !llvm.ptr) attributes {attn.shapes_of = "entry", attn.messages = []} {
  llvm.return
}
