// RUN: saccade-opt --split-input-file --verify-diagnostics %s

// expected-error @+1 {{'misspelt_gradient' has the unknown attribute 'attn.gradients', did you mean 'attn.gradient'?}}
func.func private @misspelt_gradient() attributes {attn.gradients}

// -----

// expected-error @+1 {{'misspelt_jvp' has the unknown attribute 'attn.jpv', did you mean 'attn.jvp'?}}
func.func private @misspelt_jvp() attributes {attn.jpv}

// -----

// expected-error @+1 {{'unknown_of_a_function' has the unknown attribute 'attn.backward', expected one of 'attn.gradient', 'attn.jvp'}}
func.func private @unknown_of_a_function() attributes {attn.backward}

// -----

// expected-error @+1 {{'value_of_a_unit_attribute' has 'attn.gradient' with the value false, expected no value}}
func.func private @value_of_a_unit_attribute() attributes {attn.gradient = false}

// -----

// expected-error @+1 {{argument 1 of 'misspelt_no_gradient' has the unknown attribute 'attn.nogradient', did you mean 'attn.no_gradient'?}}
func.func private @misspelt_no_gradient(index, tensor<?xf32> {attn.nogradient})

// -----

// expected-error @+1 {{argument 0 of 'function_attribute_of_an_argument' has the attribute 'attn.gradient', which is one of a function}}
func.func private @function_attribute_of_an_argument(tensor<?xf32> {attn.gradient})

// -----

// expected-error @+1 {{'argument_attribute_of_a_function' has the attribute 'attn.no_gradient', which is one of an argument}}
func.func private @argument_attribute_of_a_function(tensor<?xf32>) attributes {attn.no_gradient}

// -----

// expected-error @+1 {{result 1 of 'misspelt_name' has the unknown attribute 'attn.nam', did you mean 'attn.name'?}}
func.func private @misspelt_name() -> (index, index {attn.nam = "x"})

// -----

// expected-error @+1 {{result 0 of 'unknown_of_a_result' has the unknown attribute 'attn.something', expected 'attn.name'}}
func.func private @unknown_of_a_result() -> (index {attn.something})

// -----

func.func @unknown_of_an_op(%x: index) -> index {
  // expected-error @+1 {{the op has the unknown attribute 'attn.something'}}
  %y = arith.addi %x, %x {attn.something} : index
  return %y : index
}

// -----

func.func private @known_attributes(tensor<?xf32> {attn.constant, attn.dim_names = ["n"]}, tensor<?xf32> {attn.no_gradient})
  -> (tensor<?xf32> {attn.name = "o"}) attributes {attn.gradient, attn.jvp}
