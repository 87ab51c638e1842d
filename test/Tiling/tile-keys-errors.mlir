// RUN: saccade-opt %s --attn-tile-keys -verify-diagnostics -split-input-file

func.func @tiling_needs_a_schedule(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  // expected-error @+1 {{has no schedule, expected attn-assign-schedule to run first}}
  %a = attn.attention %x[s,d], %x[s,d], %x[s,d] : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %a : tensor<?x64xf32>
}

// -----

func.func @head_size_must_be_static(%x: tensor<?x?xf32>) -> tensor<?x?xf32> {
  // expected-error @+1 {{head size of key is dynamic, expected a static one}}
  %a = attn.attention %x[s,d], %x[s,d], %x[s,d] {schedule = #attn.schedule<rows = 24, cols = 64>} : (tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  return %a : tensor<?x?xf32>
}

// -----

func.func @single_head_is_required(%x: tensor<3x?x64xf32>) -> tensor<3x?x64xf32> {
  // expected-error @+1 {{has more than one head, expected attn-tile-queries to run first}}
  %a = attn.attention %x[h,s,d], %x[h,s,d], %x[h,s,d] {schedule = #attn.schedule<rows = 24, cols = 64>} : (tensor<3x?x64xf32>, tensor<3x?x64xf32>, tensor<3x?x64xf32>) -> tensor<3x?x64xf32>
  return %a : tensor<3x?x64xf32>
}

// -----

// The state of a task has as many rows as its schedule.
func.func @queries_of_a_task_are_bounded(%x: tensor<?x64xf32>, %out: tensor<?x64xf32>, %n: index) -> tensor<?x64xf32> {
  %r = scf.forall (%i) in (2) shared_outs(%o = %out) -> tensor<?x64xf32> {
    %q = tensor.extract_slice %x[%i, 0] [%n, 64] [1, 1] : tensor<?x64xf32> to tensor<?x64xf32>
    // expected-error @+1 {{is a tile of an unbounded number of queries, expected at most 24, the rows of its schedule}}
    %a = attn.attention %q[s,d], %x[s,d], %x[s,d] {schedule = #attn.schedule<rows = 24, cols = 64>} : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %a into %o[%i, 0] [%n, 64] [1, 1] : tensor<?x64xf32> into tensor<?x64xf32>
    }
  }
  return %r : tensor<?x64xf32>
}

// -----

func.func @queries_of_a_task_fit_its_rows(%x: tensor<?x64xf32>, %out: tensor<?x64xf32>, %n: index) -> tensor<?x64xf32> {
  %r = scf.forall (%i) in (2) shared_outs(%o = %out) -> tensor<?x64xf32> {
    %m = affine.min affine_map<(d0) -> (d0, 25)>(%n)
    %q = tensor.extract_slice %x[%i, 0] [%m, 64] [1, 1] : tensor<?x64xf32> to tensor<?x64xf32>
    // expected-error @+1 {{is a tile of up to 25 queries, expected at most 24, the rows of its schedule}}
    %a = attn.attention %q[s,d], %x[s,d], %x[s,d] {schedule = #attn.schedule<rows = 24, cols = 64>} : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %a into %o[%i, 0] [%m, 64] [1, 1] : tensor<?x64xf32> into tensor<?x64xf32>
    }
  }
  return %r : tensor<?x64xf32>
}
