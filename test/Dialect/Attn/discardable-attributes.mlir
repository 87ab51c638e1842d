// RUN: saccade-opt --split-input-file --verify-diagnostics %s

// expected-error @+1 {{'f' has the unknown attribute 'attn.gradients', did you mean 'attn.gradient'?}}
func.func private @f() attributes {attn.gradients}

// -----

// expected-error @+1 {{'f' has the unknown attribute 'attn.jpv', did you mean 'attn.jvp'?}}
func.func private @f() attributes {attn.jpv}

// -----

// expected-error @+1 {{'f' has the unknown attribute 'attn.backward', expected one of 'attn.gradient', 'attn.jvp'}}
func.func private @f() attributes {attn.backward}

// -----

// expected-error @+1 {{'f' has 'attn.gradient' with the value false, expected no value}}
func.func private @f() attributes {attn.gradient = false}

// -----

// expected-error @+1 {{argument 1 of 'f' has the unknown attribute 'attn.nogradient', did you mean 'attn.no_gradient'?}}
func.func private @f(index, tensor<?xf32> {attn.nogradient})

// -----

// expected-error @+1 {{argument 0 of 'f' has the attribute 'attn.gradient', which is one of a function}}
func.func private @f(tensor<?xf32> {attn.gradient})

// -----

// expected-error @+1 {{'f' has the attribute 'attn.no_gradient', which is one of an argument}}
func.func private @f(tensor<?xf32>) attributes {attn.no_gradient}

// -----

// expected-error @+1 {{result 1 of 'f' has the unknown attribute 'attn.nam', did you mean 'attn.name'?}}
func.func private @f() -> (index, index {attn.nam = "x"})

// -----

// expected-error @+1 {{result 0 of 'f' has the unknown attribute 'attn.something', expected 'attn.name'}}
func.func private @f() -> (index {attn.something})

// -----

func.func @op(%x: index) -> index {
  // expected-error @+1 {{the op has the unknown attribute 'attn.something'}}
  %y = arith.addi %x, %x {attn.something} : index
  return %y : index
}

// -----

func.func private @f(tensor<?xf32> {attn.constant, attn.dim_names = ["n"]}, tensor<?xf32> {attn.no_gradient})
  -> (tensor<?xf32> {attn.name = "o"}) attributes {attn.gradient, attn.jvp}
