"""The operators saccade::attention, and how torch.compile and torch.export trace saccade.attention to them."""

import itertools
import warnings

import pytest

torch = pytest.importorskip("torch")

import traced_calls
from programs import refused
from torch._dynamo.testing import CompileCounterWithBackend

import saccade
import saccade.torch
from saccade.torch import attention_operator
from saccade.torch.backend import has_compiler

pytestmark = pytest.mark.usefixtures("dynamo")


def calls_of(function, *arguments):
    """The operator calls in the graph of a function: the operator and the constant arguments after the tensors."""
    found = []

    def record(graph, inputs):
        found.extend((node.target, node.args) for node in graph.graph.nodes if "saccade" in str(node.target))
        return graph.forward

    torch.compile(function, backend=record, fullgraph=True)(*arguments)
    return found


def equal(found, expected):
    if not isinstance(expected, tuple):
        found, expected = (found,), (expected,)
    return len(found) == len(expected) and all(map(torch.equal, found, expected))


# --- what is traced ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", traced_calls.CALLS)
def test_a_traced_call_equals_the_eager_one_for_all_lengths_and_batches(name):
    function = traced_calls.CALLS[name]
    counter = CompileCounterWithBackend("aot_eager" if name == "alibi" else "eager")  # "eager" is quicker
    compiled = torch.compile(function, backend=counter, fullgraph=True, dynamic=True)
    sizes = [(2, 7, 9), (3, 8, 10), (2, 30, 21)]
    expected = [function(*traced_calls.arguments(*size)) for size in sizes]
    assert equal(compiled(*traced_calls.arguments(*sizes[0])), expected[0])
    before = saccade.cache_info().compilations
    for size, result in zip(sizes[1:], expected[1:]):
        assert equal(compiled(*traced_calls.arguments(*size)), result), size
    assert saccade.cache_info().compilations == before
    assert counter.frame_count == 1


def test_numbers_that_change_do_not_compile_again():
    def function(q, k, v, slopes, n):
        return saccade.attention(q, k, v, score=lambda s, b, h, i, j: s + slopes[h] * (j - i) * n, scale=n / 7,
                                 causal=n, window=(n, n + 1), kv_len=n)

    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(function, backend=counter, fullgraph=True)
    *tensors, _ = traced_calls.arguments()
    found = {n: compiled(*tensors, n) for n in (2, 3)}  # a constant at first, a variable from the second value on
    before = saccade.cache_info().compilations
    found |= {n: compiled(*tensors, n) for n in (4, 5, 6)}
    assert saccade.cache_info().compilations == before
    assert counter.frame_count == 2
    for n, result in found.items():
        torch.testing.assert_close(result, function(*tensors, n))


def test_floats_that_change_do_not_compile_again():
    def function(q, k, v, cap):
        return saccade.attention(q, k, v, score=lambda s, b, h, i, j: torch.tanh(s / cap) * cap, sink=cap)

    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(function, backend=counter, fullgraph=True)
    tensors = traced_calls.arguments()[:3]
    found = {cap: compiled(*tensors, cap) for cap in (0.5, 0.75)}
    before = saccade.cache_info().compilations
    found |= {cap: compiled(*tensors, cap) for cap in (1.5, 2.5)}
    assert saccade.cache_info().compilations == before
    assert counter.frame_count == 2
    for cap, result in found.items():
        torch.testing.assert_close(result, function(*tensors, cap))


def test_captured_tensors_are_read_at_every_call():
    slopes = torch.zeros(4)
    q, k, v, *_ = traced_calls.arguments()
    compiled = torch.compile(lambda: saccade.attention(q, k, v, score=lambda s, b, h, i, j: s + slopes[h] * j),
                             backend="aot_eager", fullgraph=True)
    before = compiled()
    slopes.copy_(torch.arange(4.0))
    assert not torch.equal(compiled(), before)
    assert torch.equal(compiled(), saccade.attention(q, k, v, score=lambda s, b, h, i, j: s + slopes[h] * j))


def test_element_types_and_head_sizes():
    for dtype, size in ((torch.float64, 8), (torch.bfloat16, 32), (torch.float16, 16)):
        q, k = torch.randn(2, 3, 4, size, dtype=dtype), torch.randn(2, 3, 5, size, dtype=dtype)
        v = torch.randn(2, 3, 5, 24, dtype=dtype)
        torch._dynamo.reset()
        function = lambda *tensors: saccade.attention(*tensors, return_lse=True, return_max=True)
        assert equal(torch.compile(function, backend="aot_eager", fullgraph=True)(q, k, v), function(q, k, v)), dtype


# --- the operator -----------------------------------------------------------------------------------------------------

STRIDES = {
    "contiguous": lambda *shape: torch.randn(*shape),
    "transposed": lambda batch, heads, length, size: torch.randn(batch, length, heads, size).transpose(1, 2),
    "expanded": lambda batch, heads, length, size: torch.randn(batch, 1, length, size).expand(-1, heads, -1, -1),
    "sliced": lambda batch, heads, length, size: torch.randn(batch, heads, length, 2 * size)[..., ::2],
}


@pytest.mark.parametrize(("results", "strides"), [
    ({}, "contiguous"), ({}, "transposed"), ({"return_lse": True}, "expanded"), ({"return_max": True}, "sliced"),
    ({"return_lse": True, "return_max": True}, "contiguous")])
def test_opcheck(results, strides):
    function = lambda q, k, v, slopes: saccade.attention(
        q, k, v, score=lambda s, b, h, i, j: s + slopes[h] * i, causal=2, scale=0.3, kv_len=5, **results)
    q = STRIDES[strides](2, 4, 7, 16)
    k, v, slopes = torch.randn(2, 2, 9, 16), torch.randn(2, 2, 9, 8), torch.randn(4)
    for value in (v, torch.randn(2, 2, 9, 16)):
        torch._dynamo.reset()
        [(operator, (_, *constants))] = calls_of(function, q, k, value, slopes)
        tensors = [q, k, value, slopes]
        outcomes = torch.library.opcheck(operator, (tensors, *constants))
        assert set(outcomes.values()) == {"SUCCESS"}, outcomes
        assert equal(operator(tensors, *constants), function(*tensors))


def layouts_of(shape):
    """Tensors of a shape in every order of the dimensions in memory, with repeated and skipped elements."""
    for order in itertools.permutations(range(len(shape))):
        inverse = [order.index(i) for i in range(len(shape))]
        for skipped in (1, 2):
            dense = torch.randn([shape[i] for i in order[:-1]] + [shape[order[-1]] * skipped])
            yield dense[..., ::skipped].permute(inverse)
    for dims in itertools.chain.from_iterable(itertools.combinations(range(len(shape)), n) for n in (1, 2)):
        for base in (torch.randn(shape), torch.randn([shape[i] for i in (2, 0, 1, 3)]).permute(1, 2, 0, 3)):
            for dim in dims:
                base = base.narrow(dim, 0, 1)
            yield base.expand(shape)


def test_results_lie_in_memory_as_empty_like_chooses():
    k, v, narrow = torch.randn(2, 1, 5, 16), torch.randn(2, 1, 5, 16), torch.randn(2, 1, 5, 8)
    calls = [calls_of(lambda q, v=v: saccade.attention(q, k, v), torch.randn(2, 3, 4, 16))[0] for v in (v, narrow)]
    for heads, length in ((3, 4), (1, 4), (3, 1), (2, 2)):
        for q in layouts_of((2, heads, length, 16)):
            for value, (operator, (_, program, *_, layout, target)) in zip((v, narrow), calls):
                result = operator([q, k, value], program, None, [], layout, target)
                like = torch.empty_like(q) if value is v else result.contiguous()
                assert result.stride() == like.stride(), (q.shape, q.stride())


@pytest.mark.parametrize("size", [0, 1, 16, 24])
def test_static_extents_of_a_result_are_those_of_the_program(size):
    q, k, v, *_ = traced_calls.arguments()
    [(operator, (*_, layout, target))] = calls_of(lambda: saccade.attention(q, k, v))
    text = f"""func.func @attention(%q: tensor<2x?x?x{q.shape[3]}xf32>, %k: tensor<?x?x?x{k.shape[3]}xf32>,
        %v: tensor<?x?x?x{v.shape[3]}xf32>) -> tensor<2x?x?x{size}xf32> {{
      %c1 = arith.constant 1 : index
      %c2 = arith.constant 2 : index
      %zero = arith.constant 0.0 : f32
      %heads = tensor.dim %q, %c1 : tensor<2x?x?x{q.shape[3]}xf32>
      %rows = tensor.dim %q, %c2 : tensor<2x?x?x{q.shape[3]}xf32>
      %empty = tensor.empty(%heads, %rows) : tensor<2x?x?x{size}xf32>
      %r = linalg.fill ins(%zero : f32) outs(%empty : tensor<2x?x?x{size}xf32>) -> tensor<2x?x?x{size}xf32>
      return %r : tensor<2x?x?x{size}xf32>
    }}"""
    assert torch.equal(operator([q, k, v], text, None, [], layout, target), torch.zeros(*q.shape[:3], size))


def test_programs_are_compiled_again_after_the_cache_is_cleared():
    q, k, v, *_ = traced_calls.arguments()
    compiled = torch.compile(lambda: saccade.attention(q, k, v), backend="eager", fullgraph=True)
    expected = compiled()
    saccade.cache_clear()
    assert torch.equal(compiled(), expected)
    assert saccade.cache_info().compilations == 1
    compiled()
    assert saccade.cache_info()[:3] == (0, 1, 1)


def test_wrong_arguments_of_the_operator_are_runtime_errors():
    q, k, v, *_ = traced_calls.arguments()
    [(operator, (_, program, *_, layout, target))] = calls_of(lambda: saccade.attention(q, k, v))
    call = lambda *tensors, program=program, integers=None: operator(tensors, program, integers, [], layout, target)
    assert torch.equal(call(q, k, v), saccade.attention(q, k, v))
    refused(RuntimeError, ["saccade::attention", "another head count than key", "3"], call, q, k[:, :3], v)
    refused(RuntimeError, ["argument 'q'", "f64"], call, q.double(), k, v)
    refused(RuntimeError, ["q has 3 dimensions, expected 4"], call, q[0], k[0], v[0])
    refused(RuntimeError, ["found 3 tensors, 1 integers and 0 floats, the program has 3"], call, q, k, v, integers=[1])
    refused(RuntimeError, ["found 4 tensors"], call, q, k, v, q)
    refused(RuntimeError, ["error:"], call, q, k, v, program="func.func @attention(")
    refused(RuntimeError, ["the program has 1 results, the operator 2"], attention_operator.overload(True, False),
            [q, k, v], program)
    refused(RuntimeError, ["element type 9"], call, q.to(torch.complex64), k, v)
    refused(NotImplementedError, ["SparseCPU"], call, q.to_sparse(), k, v)
    assert torch.equal(call(q._neg_view(), k, v), saccade.attention(-q, k, v))


def test_threads_call_one_operator():
    from concurrent.futures import ThreadPoolExecutor

    compiled = torch.compile(traced_calls.alibi, backend="eager", fullgraph=True)
    inputs = [traced_calls.arguments(seed=seed) for seed in range(8)]
    expected = [compiled(*each) for each in inputs]
    with ThreadPoolExecutor(4) as pool:
        assert all(map(torch.equal, pool.map(lambda each: compiled(*each), inputs * 4), expected * 4))


# --- what is not traced -----------------------------------------------------------------------------------------------


def test_functions_that_cannot_be_traced_are_the_errors_of_eager_calls():
    tensors = traced_calls.arguments()[:3]
    branch = lambda q, k, v: saccade.attention(q, k, v, mask=lambda b, h, i, j: i > j if i > 2 else j > i)
    unknown = lambda q, k, v: saccade.attention(q, k, v, score=lambda s, b, h, i, j: torch.special.erfcx(s))
    several = lambda q, k, v: saccade.attention(q, k, v, score=lambda s, b, h, i, j: torch.frexp(s)[0])
    compiled = lambda function, **options: torch.compile(function, backend="eager", **options)
    refused(saccade.TraceError, ["value of a position", "torch.where"], compiled(branch), *tensors)
    refused(saccade.TraceError, ["special_erfcx", "erfcx(s)"], compiled(unknown), *tensors)
    torch._dynamo.reset()
    refused(torch._dynamo.exc.Unsupported, ["special_erfcx"], compiled(unknown, fullgraph=True), *tensors)
    refused(torch._dynamo.exc.Unsupported, ["ata-dependent"], compiled(branch, fullgraph=True), *tensors)
    refused(saccade.TraceError, [], compiled(several), *tensors)


@pytest.mark.parametrize("options", [{"causal": True}, {"kv_len": 100}, {"layout": "xyz"},
                                     {"score": saccade.masks.causal()}])
def test_invalid_arguments_are_the_errors_of_eager_calls(options):
    tensors = traced_calls.arguments()[:3]
    function = lambda q, k, v: saccade.attention(q, k, v, **options)
    with pytest.raises((TypeError, ValueError)) as error:
        function(*tensors)
    refused(type(error.value), [str(error.value)], torch.compile(function, backend="eager"), *tensors)


@pytest.mark.parametrize("place", [0, 1])
def test_outputs_that_do_not_fit_are_the_errors_of_eager_calls(place):
    tensors = traced_calls.arguments()[:3]
    expected = saccade.attention(*tensors, return_lse=True)
    function = lambda q, k, v, *out: saccade.attention(q, k, v, return_lse=True, out=out)
    compiled = torch.compile(function, backend="eager")
    assert equal(compiled(*tensors, *map(torch.empty_like, expected)), expected)
    for change in (lambda x: x[..., :-1], torch.Tensor.double):
        out = [torch.empty_like(x) for x in expected]
        out[place] = change(out[place])
        with pytest.raises((TypeError, ValueError)) as error:
            function(*tensors, *out)
        refused(type(error.value), [str(error.value)], compiled, *tensors, *out)


# --- torch.export -----------------------------------------------------------------------------------------------------


class Block(torch.nn.Module):
    """A module that calls the functions of Saccade."""

    def __init__(self):
        super().__init__()
        self.slopes = torch.nn.Parameter(torch.rand(4), requires_grad=False)

    def forward(self, q, k, v, mask):
        biased = saccade.attention(q, k, v, score=lambda s, b, h, i, j: s + self.slopes[h] * (j - i))
        masked = saccade.torch.scaled_dot_product_attention(q, k, v, mask)
        flex = saccade.torch.flex_attention(q, k, v, lambda s, b, h, i, j: torch.tanh(s) * self.slopes[h])
        plain = saccade.attention(q, k, v)  # no other arguments
        return biased + masked + flex + plain


def test_an_exported_program_runs_in_another_process(tmp_path, run_script):
    batch, queries, keys = (torch.export.Dim(name, min=2) for name in ("batch", "queries", "keys"))
    shapes = ({0: batch, 2: queries}, {0: batch, 2: keys}, {0: batch, 2: keys}, {0: batch, 2: queries, 3: keys})
    make = lambda batch, queries, keys: (*traced_calls.arguments(batch, queries, keys)[:3],
                                         torch.randn(batch, 1, queries, keys) > -1)
    block = Block()
    exported = torch.export.export(block, make(2, 7, 9), dynamic_shapes=shapes)
    nodes = [str(node.target) for node in exported.graph.nodes if node.op == "call_function"]
    assert nodes.count("saccade.attention.default") == 4
    assert not any("meta" in str(node.kwargs) for node in exported.graph.nodes)
    given = make(3, 5, 6)
    torch.export.save(exported, tmp_path / "block.pt2")
    torch.save((given, block(*given)), tmp_path / "expected.pt")
    run_script("exported_process.py", tmp_path)


@pytest.mark.skipif(not has_compiler([torch.zeros(1)]), reason="Inductor finds no C++ compiler")
def test_a_package_of_aot_inductor_runs_in_another_process(tmp_path, run_script):
    """It runs with and without grad mode, and in inference mode, whose kernels are others."""
    batch = torch.export.Dim("batch", min=2)
    make = lambda batch: (*traced_calls.arguments(batch)[:3], torch.randn(batch, 1, 7, 9) > -1)
    block = Block()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations inside of PyTorch
        exported = torch.export.export(block, make(2), dynamic_shapes=({0: batch},) * 4)
        torch._inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "package.pt2"))
    given = make(3)
    torch.save((given, block(*given)), tmp_path / "expected.pt")
    run_script("packaged_process.py", tmp_path)


def test_strict_export_traces_with_dynamo():
    given = (*traced_calls.arguments()[:3], torch.randn(2, 1, 7, 9) > -1)
    block = Block()
    exported = torch.export.export(block, given, strict=True)
    assert torch.equal(exported.module()(*given), block(*given))


def test_the_text_of_a_program_is_its_identity(run_script):
    """Graphs of two processes contain the same text, so Inductor's caches may be shared."""
    first, second = run_script("operator_text_process.py"), run_script("operator_text_process.py", PYTHONHASHSEED="7")
    assert first == second and "func.func" in first
