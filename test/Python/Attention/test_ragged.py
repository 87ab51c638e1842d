"""cu_seqlens_q and cu_seqlens_k: ragged sequences give the results of each sequence alone, for any lengths with one compilation; offsets
that make no sense are refused in the caller's terms.
"""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from programs import refused

import saccade

generator = torch.Generator().manual_seed(5)


def normal(*shape):
    return torch.randn(shape, generator=generator)


def offsets(lengths, dtype=torch.int32):
    return torch.tensor([0, *lengths]).cumsum(0).to(dtype)


def each(q, k, v, cu_q, cu_k, **options):
    """(output, log-sum-exp) of one call for each sequence."""
    results = []
    for i in range(len(cu_q) - 1):
        queries, keys = slice(cu_q[i], cu_q[i + 1]), slice(cu_k[i], cu_k[i + 1])
        results.append(saccade.attention(q[queries], k[keys], v[keys], layout="shd", return_lse=True, **options))
    return torch.cat([o for o, _ in results]), torch.cat([lse for _, lse in results], 1)


slopes = torch.tensor([0.5, 0.25, 0.1, 0.05])
ALIBI = lambda s, b, h, i, j: s + slopes[h] * (j - i)
EVEN = lambda b, h, i, j: ((i + j) % 2 == 0) | (j == i)
OPTIONS = {
    "none": {},
    "bottom right": {"causal": "bottom_right"},
    "window and ALiBi": {"causal": "top_left", "window": 40, "score": ALIBI},
    "mask and scale": {"mask": EVEN, "scale": 0.3},
}
LENGTHS = [(70, 70), (0, 5), (1, 1), (33, 200), (9, 0)], [(3, 3)], [(100, 640), (650, 20)], []


# The lengths do not compile again.
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.bfloat16, 1e-2)], ids=["f32", "bf16"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_packed_sequences_give_what_each_gives_alone(options, dtype, tolerance):
    compilations = None
    for lengths in LENGTHS:
        cu_q, cu_k = offsets([a for a, _ in lengths]), offsets([b for _, b in lengths], torch.int64)
        q = normal(int(cu_q[-1]), 4, 64).to(dtype)
        k, v = (normal(int(cu_k[-1]), 2, size).to(dtype) for size in (64, 32))
        o, lse = saccade.attention(q, k, v, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k, return_lse=True, **options)
        count = saccade.cache_info().compilations
        assert compilations in (None, count), "other lengths compiled again"
        assert o.shape == (len(q), 4, 32)
        assert lse.shape == (4, len(q))
        assert lse.dtype == torch.float32
        if lengths:
            expected, expected_lse = each(q, k, v, cu_q, cu_k, **options)
            torch.testing.assert_close(o, expected, atol=tolerance, rtol=tolerance)
            torch.testing.assert_close(lse, expected_lse, atol=1e-4, rtol=1e-4)
        compilations = saccade.cache_info().compilations


cu = offsets([10, 20])
q, k = normal(35, 4, 64), normal(35, 2, 64)
second = q[10:30], k[10:30], k[10:30]


def test_scores_read_the_number_of_the_sequence_and_rows_of_none_are_zero():
    temperature = torch.tensor([1.0, 3.0])
    out = torch.full((35, 4, 64), torch.nan)
    score = lambda s, b, h, i, j: s * temperature[b]
    saccade.attention(q, k, k, cu_seqlens_q=cu, cu_seqlens_k=cu, score=score, out=out)
    torch.testing.assert_close(out[10:30], saccade.attention(*second, layout="shd", scale=3 / 8))
    assert (out[30:] == 0).all()


# A call without packing would tabulate it.
def test_a_table_of_distances_for_each_sequence_is_read_at_its_sequence():
    near = normal(2, 17)
    score = lambda s, b, h, i, j: s + near[b, (j - i).clamp(-8, 8) + 8]
    packed = saccade.attention(q, k, k, cu_seqlens_q=cu, cu_seqlens_k=cu, score=score)
    alone = saccade.attention(*second, layout="shd", score=lambda s, b, h, i, j: s + near[1, (j - i).clamp(-8, 8) + 8])
    torch.testing.assert_close(packed[10:30], alone)


def test_numpy_arrays_are_packed_and_lengths_lie_within_sequences():
    x, y, cu_n = q.numpy(), k.numpy(), cu.numpy()
    limits = np.array([4, 20], np.int32)
    o = saccade.attention(x, y, y, cu_seqlens_q=cu_n, cu_seqlens_k=cu_n, kv_len=limits)
    expected = saccade.attention(x[:10], y[:10], y[:10], layout="shd", kv_len=4)
    assert isinstance(o, np.ndarray)
    assert np.allclose(o[:10], expected, atol=1e-6)


# --- refusals


def numbers(*values):
    return torch.tensor(values, dtype=torch.int32)


REFUSED = [
    (cu, None, TypeError, "cu_seqlens_k is None, expected the offsets of k's sequences"),
    (None, cu, TypeError, "cu_seqlens_q is None, expected the offsets of q's sequences"),
    (cu.numpy(), cu, TypeError, "cu_seqlens_q is a NumPy array, expected a torch tensor, as q is"),
    (cu.float(), cu, TypeError, "cu_seqlens_q has element type float32, expected int32 or int64"),
    (cu[None], cu, TypeError, "cu_seqlens_q has 2 dimensions, expected 1"),
    (cu, cu[:2], ValueError, "cu_seqlens_k has 2 offsets, expected 3, as many as cu_seqlens_q"),
    (numbers(1, 10, 30), cu, ValueError, "cu_seqlens_q has another first element: found 1, expected 0"),
    (cu, numbers(0, 12, 10), ValueError,
     "cu_seqlens_k has an element below the one before it: found 10, expected at least 12"),
    (numbers(0, 10, 36), cu, ValueError, "cu_seqlens_q exceeds the rows of query: found 36, expected at most 35"),
    (cu[:0], cu[:0], ValueError, "cu_seqlens_q has no element: found 0, expected at least 1"),
]  # fmt: skip


@pytest.mark.parametrize(("cu_q", "cu_k", "kind", "words"), REFUSED, ids=[case[3] for case in REFUSED])
def test_offsets_that_make_no_sense_are_refused(cu_q, cu_k, kind, words):
    refused(kind, [words], saccade.attention, q, k, k, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k)


def test_a_layout_with_a_batch_is_refused():
    refused(ValueError, ["expected one without b"], saccade.attention, q[None], k[None], k[None],
            cu_seqlens_q=cu, cu_seqlens_k=cu, layout="bshd")  # fmt: skip


def test_lengths_of_another_number_of_sequences_are_refused():
    refused(ValueError, ["kv_len has shape (3,), expected (2,)"], saccade.attention, q, k, k,
            cu_seqlens_q=cu, cu_seqlens_k=cu, kv_len=cu)  # fmt: skip


TOO_LONG = [
    (numbers(11, 20), "found 11, expected at most 10"),
    (numbers(4, 21), "found 21, expected at most 20"),
    (numbers(12, 21), "found 12, expected at most 10"),
    (numbers(11, 23), "found 23, expected at most 20"),
]


# Positions would be counted from the end of another sequence.
@pytest.mark.parametrize(("lengths", "words"), TOO_LONG, ids=[case[1] for case in TOO_LONG])
def test_lengths_beyond_their_sequence_are_refused(lengths, words):
    refused(ValueError, [f"kv_len exceeds the length of key: {words}"], saccade.attention, q, k, k,
            cu_seqlens_q=cu, cu_seqlens_k=cu, kv_len=lengths)  # fmt: skip


QUERY_LENGTHS = """func.func @f(%q: tensor<?x8xf32>, %k: tensor<?x8xf32>, %cq: tensor<?xi32>, %ck: tensor<?xi64>, %n: tensor<?xi32>)
    -> tensor<?x8xf32> {
  %o = attn.attention %q[s,d], %k[s,d], %k[s,d] q_len(%n : tensor<?xi32>) cu_seqlens_q(%cq : tensor<?xi32>)
    cu_seqlens_k(%ck : tensor<?xi64>) : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}
"""


def test_query_lengths_are_compared_with_the_sequences_of_queries():
    call = saccade.compile(QUERY_LENGTHS).f
    x, y = normal(9, 8), normal(30, 8)
    offsets = numbers(0, 4, 9), torch.tensor([0, 20, 30])
    call(x, y, *offsets, numbers(4, 5))
    refused(
        ValueError,
        ["q_len exceeds the length of query: found 6, expected at most 5"],
        call,
        x,
        y,
        *offsets,
        numbers(4, 6),
    )
    refused(ValueError, ["q_len is negative: found -1"], call, x, y, *offsets, numbers(4, -1))
    refused(ValueError, [], call, x, y, *offsets, numbers(4, 5, 5))
    refused(ValueError, [], call, x, y, *offsets, numbers(4))
    refused(ValueError, ["cu_seqlens_q has no element"], call, x, y, offsets[0][:0], offsets[1][:0], numbers())
