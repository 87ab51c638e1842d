"""Programs in ops of StableHLO and TOSA compute what NumPy does: that needs neither JAX nor other compilers."""

import numpy as np
import pytest

import saccade

rng = np.random.default_rng(0)
X = rng.standard_normal((3, 4)).astype(np.float32)
Y = rng.standard_normal((3, 4)).astype(np.float32)
I = np.array([[2, -1], [7, 0]], np.int32)
QUERY, KEY, VALUE = (rng.standard_normal((8, n, 16)).astype(np.float32) for n in (9, 13, 13))


def compiled(arguments, results, body):
    """A function @main of MLIR's types."""
    given = ", ".join(f"%{name}: {type}" for name, type in arguments.items())
    types = ", ".join(results.values())
    return saccade.compile(f"func.func @main({given}) -> ({types}) {{\n{body}\n"
                           f"  return {', '.join(f'%{name}' for name in results)} : {types}\n}}\n").main


def check(found, expected, limit=2e-6):
    found = found if isinstance(found, tuple) else (found,)
    for i, (f, e) in enumerate(zip(found, expected, strict=True)):
        assert (f.shape, f.dtype) == (e.shape, e.dtype), i
        assert np.allclose(f, e, rtol=limit, atol=limit), f"{i}: {f}\nexpected {e}"


def test_comparisons_in_all_directions():
    directions = {"EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal, "GT": np.greater,
                  "GE": np.greater_equal}
    x, y = np.arange(9, dtype=np.int32) % 3, np.arange(9, dtype=np.int32) // 3
    lines = [f'  %{d} = "stablehlo.compare"(%x, %y) <{{compare_type = #stablehlo<comparison_type SIGNED>, '
             f'comparison_direction = #stablehlo<comparison_direction {d}>}}> : '
             '(tensor<9xi32>, tensor<9xi32>) -> tensor<9xi1>' for d in directions]
    main = compiled({"x": "tensor<9xi32>", "y": "tensor<9xi32>"}, dict.fromkeys(directions, "tensor<9xi1>"),
                    "\n".join(lines))
    check(main(x, y), [f(x, y) for f in directions.values()])


def test_products_with_batched_and_contracted_dimensions():
    f = "tensor<3x4xf32>"
    main = compiled({"x": f, "y": f}, {"a": "tensor<3x3xf32>", "b": "tensor<4xf32>", "c": "tensor<4x3x3xf32>"}, f'''
  %a = "stablehlo.dot_general"(%x, %y)
    <{{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>}}>
    : ({f}, {f}) -> tensor<3x3xf32>
  %b = "stablehlo.dot_general"(%x, %y) <{{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [1],
    rhs_batching_dimensions = [1], lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0]>}}>
    : ({f}, {f}) -> tensor<4xf32>
  %c = "stablehlo.dot_general"(%x, %y) <{{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [1],
    rhs_batching_dimensions = [1]>}}> : ({f}, {f}) -> tensor<4x3x3xf32>''')
    check(main(X, Y), [X @ Y.T, (X * Y).sum(0), np.einsum("ib,jb->bij", X, Y)])


def test_reductions_with_several_ops_and_starts():
    def reduce(name, op, start):
        return f'''
  %s_{name} = "stablehlo.constant"() <{{value = dense<{start}> : tensor<f32>}}> : () -> tensor<f32>
  %{name} = "stablehlo.reduce"(%x, %s_{name}) <{{dimensions = array<i64: 1>}}> ({{
  ^bb0(%l: tensor<f32>, %r: tensor<f32>):
    %v = "stablehlo.{op}"(%l, %r) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%v) : (tensor<f32>) -> ()
  }}) : (tensor<3x4xf32>, tensor<f32>) -> tensor<3xf32>'''
    main = compiled({"x": "tensor<3x4xf32>"},
                    dict.fromkeys(["sum", "most", "least", "product", "more"], "tensor<3xf32>"),
                    reduce("sum", "add", "0.0") + reduce("most", "maximum", "0xFF800000") + reduce("least", "minimum",
                                                                                                   "0x7F800000")
                    + reduce("product", "multiply", "1.0") + reduce("more", "add", "2.5"))
    check(main(X), [X.sum(1), X.max(1), X.min(1), X.prod(1), X.sum(1) + np.float32(2.5)])


def test_ops_that_change_shapes():
    main = compiled({"x": "tensor<3x4xf32>", "y": "tensor<4xf32>"},
                    {"a": "tensor<2x4x3xf32>", "b": "tensor<4x3xf32>", "c": "tensor<2x2xf32>",
                                                                     "d": "tensor<3x4xi32>", "e": "tensor<3x6xf32>",
                     "f": "tensor<3x4xf32>"}, '''
  %a = "stablehlo.broadcast_in_dim"(%y) <{broadcast_dimensions = array<i64: 1>}> : (tensor<4xf32>) -> tensor<2x4x3xf32>
  %b = "stablehlo.transpose"(%x) <{permutation = array<i64: 1, 0>}> : (tensor<3x4xf32>) -> tensor<4x3xf32>
  %c = "stablehlo.slice"(%x) <{start_indices = array<i64: 1, 0>, limit_indices = array<i64: 3, 4>,
    strides = array<i64: 1, 2>}> : (tensor<3x4xf32>) -> tensor<2x2xf32>
  %d = "stablehlo.iota"() <{iota_dimension = 1 : i64}> : () -> tensor<3x4xi32>
  %v = "stablehlo.constant"() <{value = dense<7.0> : tensor<f32>}> : () -> tensor<f32>
  %e = "stablehlo.pad"(%x, %v) <{edge_padding_low = array<i64: 0, -1>, edge_padding_high = array<i64: 0, 3>,
    interior_padding = array<i64: 0, 0>}> : (tensor<3x4xf32>, tensor<f32>) -> tensor<3x6xf32>
  %f = "stablehlo.reverse"(%x) <{dimensions = array<i64: 1>}> : (tensor<3x4xf32>) -> tensor<3x4xf32>''')
    y = Y[0]
    check(main(X, y), [np.broadcast_to(y[None, :, None], (2, 4, 3)), X.T, X[1:, ::2],
                                 np.broadcast_to(np.arange(4, dtype=np.int32), (3, 4)),
                                 np.pad(X[:, 1:], ((0, 0), (0, 3)), constant_values=7), X[:, ::-1]])


@pytest.fixture(scope="module")
def look_ups():
    return compiled({"x": "tensor<3x4xf32>", "i": "tensor<2x2xi32>", "n": "tensor<i32>"},
                    {"a": "tensor<2x2x4xf32>", "b": "tensor<2xf32>", "c": "tensor<2x2xf32>", "d": "tensor<3x4xf32>"},
                    '''
  %a = "stablehlo.gather"(%x, %i)
    <{dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [0],
    start_index_map = [0], index_vector_dim = 2>, slice_sizes = array<i64: 1, 4>}>
    : (tensor<3x4xf32>, tensor<2x2xi32>) -> tensor<2x2x4xf32>
  %b = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1],
    start_index_map = [0, 1], index_vector_dim = 1>, slice_sizes = array<i64: 1, 1>}>
    : (tensor<3x4xf32>, tensor<2x2xi32>) -> tensor<2xf32>
  %zero = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
  %c = "stablehlo.dynamic_slice"(%x, %n, %n) <{slice_sizes = array<i64: 2, 2>}>
    : (tensor<3x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x2xf32>
  %d = "stablehlo.dynamic_update_slice"(%x, %c, %zero, %n)
    : (tensor<3x4xf32>, tensor<2x2xf32>, tensor<i32>, tensor<i32>) -> tensor<3x4xf32>''')


@pytest.mark.parametrize("n", [0, 1, 9, -3])
def test_look_ups_clamp_what_is_out_of_range(look_ups, n):
    row, column = np.clip(n, 0, 1), np.clip(n, 0, 2)
    part, whole = X[row:row + 2, column:column + 2], X.copy()
    whole[:2, column:column + 2] = part
    pair = X[np.clip(I[:, 0], 0, 2), np.clip(I[:, 1], 0, 3)]
    check(look_ups(X, I, np.array(n, np.int32)), [X[np.clip(I, 0, [[2, 2]])], pair, part, whole])


def test_attention_in_tosa():
    main = compiled({"q": "tensor<8x9x16xf32>", "k": "tensor<8x13x16xf32>", "v": "tensor<8x13x16xf32>"},
                    {"o": "tensor<8x9x16xf32>"}, '''
  %zero = "tosa.const"() {values = dense<0.0> : tensor<1xf32>} : () -> tensor<1xf32>
  %shift = "tosa.const"() {values = dense<0> : tensor<1xi8>} : () -> tensor<1xi8>
  %kt = tosa.transpose %k {perms = array<i32: 0, 2, 1>} : (tensor<8x13x16xf32>) -> tensor<8x16x13xf32>
  %s = tosa.matmul %q, %kt, %zero, %zero : (tensor<8x9x16xf32>, tensor<8x16x13xf32>, tensor<1xf32>, tensor<1xf32>)
    -> tensor<8x9x13xf32>
  %m = tosa.reduce_max %s {axis = 2 : i32} : (tensor<8x9x13xf32>) -> tensor<8x9x1xf32>
  %d = tosa.sub %s, %m : (tensor<8x9x13xf32>, tensor<8x9x1xf32>) -> tensor<8x9x13xf32>
  %e = tosa.exp %d : (tensor<8x9x13xf32>) -> tensor<8x9x13xf32>
  %t = tosa.reduce_sum %e {axis = 2 : i32} : (tensor<8x9x13xf32>) -> tensor<8x9x1xf32>
  %r = tosa.reciprocal %t : (tensor<8x9x1xf32>) -> tensor<8x9x1xf32>
  %p = tosa.mul %e, %r, %shift : (tensor<8x9x13xf32>, tensor<8x9x1xf32>, tensor<1xi8>) -> tensor<8x9x13xf32>
  %o = tosa.matmul %p, %v, %zero, %zero : (tensor<8x9x13xf32>, tensor<8x13x16xf32>, tensor<1xf32>, tensor<1xf32>)
    -> tensor<8x9x16xf32>''')
    s = np.exp(QUERY.astype(np.float64) @ KEY.transpose(0, 2, 1))
    check(main(QUERY, KEY, VALUE), [(s / s.sum(-1, keepdims=True) @ VALUE).astype(np.float32)], 2e-5)


def test_calls_that_give_too_many_ops_are_refused():
    """Few functions that call each other twice would give 409,600 ops."""
    lines = ["func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {", "  %y = func.call @f12(%x) : (tensor<4xf32>) -> "
             "tensor<4xf32>", "  return %y : tensor<4xf32>", "}"]
    for i in range(13):
        body = [f"%{k + 1} = func.call @f{i - 1}(%{k}) : (tensor<4xf32>) -> tensor<4xf32>" for k in range(2)]
        if i == 0:
            body = [f'%{k + 1} = "stablehlo.abs"(%{k}) : (tensor<4xf32>) -> tensor<4xf32>' for k in range(100)]
        lines += [f"func.func private @f{i}(%0: tensor<4xf32>) -> tensor<4xf32> {{", *body,
                  f"  return %{len(body)} : tensor<4xf32>", "}"]
    with pytest.raises(saccade.CompileError, match="inlining exceeds 200000 ops"):
        saccade.compile("\n".join(lines))
