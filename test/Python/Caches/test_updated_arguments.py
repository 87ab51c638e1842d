"""Programs that update an argument in place, and caches of keys and values."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest
import torch

import saccade

STEP = """
func.func @step(%q: tensor<?x4x?x16xf32>, %k: tensor<?x2x?x16xf32>, %v: tensor<?x2x?x16xf32>,
                %k_cache: tensor<?x2x?x16xf32> {attn.updated_by = 1}, %v_cache: tensor<?x2x?x16xf32> {attn.updated_by = 2},
                %len: tensor<?xi32>, %n: tensor<?xi32>, %end: tensor<?xi32>)
    -> (tensor<?x4x?x16xf32>, tensor<?x2x?x16xf32>, tensor<?x2x?x16xf32>) {
  %ks = attn.append %k[b,h,s,d] to %k_cache[b,h,s,d] at(%len : tensor<?xi32>) count(%n : tensor<?xi32>)
    : (tensor<?x2x?x16xf32>, tensor<?x2x?x16xf32>) -> tensor<?x2x?x16xf32>
  %vs = attn.append %v[b,h,s,d] to %v_cache[b,h,s,d] at(%len : tensor<?xi32>) count(%n : tensor<?xi32>)
    : (tensor<?x2x?x16xf32>, tensor<?x2x?x16xf32>) -> tensor<?x2x?x16xf32>
  %o = attn.attention %q[b,h,s,d], %ks[b,h,s,d], %vs[b,h,s,d] q_len(%n : tensor<?xi32>) kv_len(%end : tensor<?xi32>)
    mask causal<bottom_right>
    : (tensor<?x4x?x16xf32>, tensor<?x2x?x16xf32>, tensor<?x2x?x16xf32>) -> tensor<?x4x?x16xf32>
  return %o, %ks, %vs : tensor<?x4x?x16xf32>, tensor<?x2x?x16xf32>, tensor<?x2x?x16xf32>
}
"""
STATE = """
func.func @grow(%x: tensor<?xf32> {attn.updated_by = 0}) -> tensor<?xf32> {
  %y = arith.addf %x, %x : tensor<?xf32>
  return %y : tensor<?xf32>
}
"""
RING = """
func.func @ring(%new: tensor<?x?x3xf32>, %cache: tensor<?x?x3xf32> {attn.updated_by = 0}, %at: tensor<?xi64>,
                %n: tensor<?xi64>) -> tensor<?x?x3xf32> {
  %c = attn.append %new[b,s,d] to %cache[b,s,d] at(%at : tensor<?xi64>) count(%n : tensor<?xi64>) ring<PINNED>
    : (tensor<?x?x3xf32>, tensor<?x?x3xf32>) -> tensor<?x?x3xf32>
  return %c : tensor<?x?x3xf32>
}
"""


@pytest.fixture(scope="module")
def step():
    return saccade.compile(STEP).step


@pytest.fixture(scope="module")
def grow():
    return saccade.compile(STATE).grow


def drawn(random, *shape):
    return random.standard_normal(shape).astype(np.float32)


def attend(q, k, v):
    """Causal attention of one sequence; the last query sees all keys."""
    heads, queries = q.shape[:2]
    keys = k.shape[1]
    k, v = (np.repeat(x, heads // x.shape[0], axis=0).astype(np.float64) for x in (k, v))
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    visible = np.arange(keys) <= np.arange(queries)[:, None] + keys - queries
    weights = np.exp(np.where(visible, scores, -np.inf))
    return weights / weights.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize("seed", range(6))
def test_a_batch_of_prefills_chunks_and_decode_steps(step, seed):
    """Sequences of a batch append and attend independently: some start, some continue, some have one token."""
    random = np.random.default_rng(seed)
    batch, capacity, calls = int(random.integers(1, 5)), 70, 9
    k_cache, v_cache = drawn(random, batch, 2, capacity, 16), drawn(random, batch, 2, capacity, 16)
    expected_k, expected_v = k_cache.copy(), v_cache.copy()
    length = np.zeros(batch, np.int32)
    for _ in range(calls):
        longest = int(random.choice([1, 1, 3, 17]))
        n = random.integers(0, longest + 1, batch).astype(np.int32)
        n = np.minimum(n, capacity - length).astype(np.int32)
        q, k, v = drawn(random, batch, 4, longest, 16), drawn(random, batch, 2, longest, 16), drawn(random, batch, 2, longest, 16)
        end = length + n
        output, new_k, new_v = step(q, k, v, k_cache, v_cache, length, n, end)
        assert new_k is k_cache and new_v is v_cache
        for b in range(batch):
            expected_k[b, :, length[b]:end[b]] = k[b, :, :n[b]]
            expected_v[b, :, length[b]:end[b]] = v[b, :, :n[b]]
            if n[b]:
                expected_output = attend(q[b, :, :n[b]], expected_k[b, :, :end[b]], expected_v[b, :, :end[b]])
                np.testing.assert_allclose(output[b, :, :n[b]], expected_output, atol=2e-5)
            assert not output[b, :, n[b]:].any()
        np.testing.assert_array_equal(k_cache, expected_k)
        np.testing.assert_array_equal(v_cache, expected_v)
        length = end


@pytest.mark.parametrize("pinned", [0, 2])
def test_a_ring_keeps_the_first_and_the_last_rows(pinned):
    ring = saccade.compile(RING.replace("PINNED", str(pinned))).ring
    random = np.random.default_rng(pinned)
    batch, capacity = 3, 7
    cache, rows = drawn(random, batch, capacity, 3), [[] for _ in range(batch)]
    for _ in range(12):
        longest = int(random.integers(1, 20))
        new, n = drawn(random, batch, longest, 3), random.integers(0, longest + 1, batch)
        ring(new, cache, np.array([len(each) for each in rows]), n)
        for b in range(batch):
            rows[b].extend(new[b, : n[b]])
            for i, row in enumerate(rows[b]):
                place = i if i < pinned else pinned + (i - pinned) % (capacity - pinned)
                if i < pinned or i + capacity - pinned >= len(rows[b]):
                    np.testing.assert_array_equal(cache[b, place], row)


def test_a_full_cache_is_refused_and_stays_as_it_is(step):
    random = np.random.default_rng(0)
    q, k, v = drawn(random, 2, 4, 3, 16), drawn(random, 2, 2, 3, 16), drawn(random, 2, 2, 3, 16)
    caches = drawn(random, 2, 2, 8, 16), drawn(random, 2, 2, 8, 16)
    before = [cache.copy() for cache in caches]
    for length, n, message in [([2, 6], [3, 3], "cache is full: end of the new rows: found 9, expected at most 8, in "
                                "sequence 1"),
                               ([2, -6], [3, 3], "position of the first new row is negative: found -6, expected at "
                                "least 0, in sequence 1"),
                               ([2, 2], [4, 3], "count exceeds the new rows: found 4, expected at most 3, in sequence 0")]:
        with pytest.raises(ValueError, match=message):
            step(q, k, v, *caches, np.array(length, np.int32), np.array(n, np.int32), np.array([3, 3], np.int32))
    for cache, old in zip(caches, before):
        np.testing.assert_array_equal(cache, old)


def test_torch_tensors_are_updated_and_returned(grow, step):
    x = torch.arange(4.0)
    version = x._version
    assert grow(x) is x
    assert x.tolist() == [0, 2, 4, 6] and x._version > version
    caches = torch.zeros(1, 2, 8, 16), torch.zeros(1, 2, 8, 16)
    new = torch.ones(1, 2, 1, 16)
    lengths = [torch.tensor([n], dtype=torch.int32) for n in (5, 1, 6)]
    output, k, v = step(torch.ones(1, 4, 1, 16), new, new, *caches, *lengths)
    assert k is caches[0] and v is caches[1] and k[0, :, 5].eq(1).all() and k.sum() == 32
    assert output.shape == (1, 4, 1, 16)


def test_inference_tensors_are_updated(grow):
    with torch.inference_mode():
        x = torch.ones(3)
        assert grow(x) is x and x.tolist() == [2, 2, 2]


def test_calls_in_torch_compile_update_arguments(grow):
    def twice(x):
        return grow(x * 1) + 1

    assert torch.compile(twice, backend="eager")(torch.ones(3)).tolist() == [3, 3, 3]


def test_views_are_updated(grow):
    x = np.arange(10, dtype=np.float32)
    grow(x[::2])
    assert x.tolist() == [0, 1, 4, 3, 8, 5, 12, 7, 16, 9]


def test_into_writes_to_updated_inputs(grow, step):
    x = np.ones(3, np.float32)
    grow.into(x)
    assert x.tolist() == [2, 2, 2]


def test_out_is_for_the_other_results(step):
    random = np.random.default_rng(0)
    q, k = drawn(random, 1, 4, 1, 16), drawn(random, 1, 2, 1, 16)
    caches, out = [np.zeros((1, 2, 8, 16), np.float32) for _ in range(2)], np.zeros((1, 4, 1, 16), np.float32)
    lengths = [np.array([n], np.int32) for n in (0, 1, 1)]
    assert step(q, k, k, *caches, *lengths, out=out)[0] is out
    np.testing.assert_allclose(out, np.repeat(k, 2, axis=1), rtol=1e-6)


def test_memory_that_cannot_be_updated_is_refused(grow, step):
    x = np.ones(3, np.float32)
    x.flags.writeable = False
    for call in (grow, grow.into):
        with pytest.raises(ValueError, match="x is a read-only NumPy array"):
            call(x)
    with pytest.raises(ValueError, match=r"argument 'x' .* found stride 0 in dimension 0, expected a positive one"):
        grow(torch.ones(1).expand(3))
    with pytest.raises(TypeError, match="grow updates 'x', so it cannot be bound"):
        grow.bind(x=np.ones(3, np.float32))
    cache, new = np.zeros((1, 2, 8, 16), np.float32), np.zeros((1, 2, 1, 16), np.float32)
    lengths = [np.array([n], np.int32) for n in (0, 1, 1)]
    with pytest.raises(ValueError, match="overlaps with argument"):
        step(np.zeros((1, 4, 1, 16), np.float32), new, new, cache, cache, *lengths)


def test_signatures_name_updated_inputs(step):
    assert [value.updated_by for value in step.inputs] == [None, None, None, 1, 2, None, None, None]
    assert [value.name for value in step.results] == ["output"]
    assert step.signature.endswith(" -> (output: tensor<?x4x?x16xf32>, k_cache, v_cache)")
    assert saccade.compile(STATE).grow.signature.endswith(" -> x")
    assert step.result_shapes(*(np.zeros(s, np.float32) for s in [(1, 4, 3, 16)] + 2 * [(1, 2, 3, 16)] + 2 * [(1, 2, 8, 16)]),
                              *(np.array([n], np.int32) for n in (0, 3, 3))) == ((1, 4, 3, 16),)


def test_bound_functions_update_the_arguments_of_a_call():
    text = """
    func.func @add(%w: tensor<4xf32> {attn.constant}, %x: tensor<4xf32> {attn.updated_by = 0}) -> tensor<4xf32> {
      %y = arith.addf %x, %w : tensor<4xf32>
      return %y : tensor<4xf32>
    }"""
    add = saccade.compile(text, prepack=True).add.bind(w=np.arange(4, dtype=np.float32))
    x = np.ones(4, np.float32)
    assert add(x) is x and x.tolist() == [1, 2, 3, 4]


def test_functions_of_a_loaded_library_update_arguments(tmp_path):
    (tmp_path / "state.mlir").write_text(STATE)
    subprocess.run(["saccade-compile", tmp_path / "state.mlir", "--emit=so", "-o", tmp_path / "state.so"], check=True)
    grow = saccade.load(tmp_path / "state.so").grow
    x = np.ones(3, np.float32)
    assert grow(x) is x and x.tolist() == [2, 2, 2]
    x.flags.writeable = False
    with pytest.raises(ValueError, match="x is a read-only NumPy array"):
        grow(x)


def test_tvm_ffi_updates_arguments(grow):
    x = torch.ones(3)
    assert grow.tvm_ffi(x) is None
    assert x.tolist() == [2, 2, 2]


def test_gradient_functions_do_not_update_arguments():
    text = """
    func.func @square(%x: tensor<4xf32> {attn.updated_by = 0}) -> tensor<4xf32> attributes {attn.gradient} {
      %y = arith.mulf %x, %x : tensor<4xf32>
      return %y : tensor<4xf32>
    }"""
    module = saccade.compile(text)
    x = np.arange(4, dtype=np.float32)
    gradient = module.square_gradient(x, x * x, np.ones(4, np.float32))
    assert gradient is not x and gradient.tolist() == [0, 2, 4, 6]
    assert module.square(x) is x and x.tolist() == [0, 1, 4, 9]


def test_append_has_no_gradient():
    text = RING.replace("PINNED", "0").replace("-> tensor<?x?x3xf32> {\n",
                                               "-> tensor<?x?x3xf32> attributes {attn.gradient} {\n", 1)
    with pytest.raises(saccade.CompileError, match=r"attn\.append"):
        saccade.compile(text)
