"""Linear attention, Performer and Linformer from Python agree with NumPy, and with the examples in MLIR. The error of
random features falls with their number.
"""

import itertools
import math
import re

import numpy as np
import pytest

import saccade

rng = np.random.default_rng(5)


def normal(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


LINEAR = [normal(2, 2, 90, 16) for _ in range(3)]
DECAY, BETA = -np.abs(normal(2, 2, 90)), rng.random((2, 2, 90), dtype=np.float32)
Q, K, V = (normal(1, 2, 100, 16) for _ in range(3))
Q, K = Q / 2, K / 2  # the variance of a feature grows as exp(|q + k|²/√d)
PROJECTIONS = normal(24, 100) / 10, normal(24, 100) / 10
WIDE = [normal(2, 2, 70, 64) for _ in range(3)]
WIDE_PROJECTIONS = normal(24, 70), normal(24, 70)
STATE = """func.func @f(%q: tensor<?x8xf32>, %s: tensor<?x?xf32>) -> tensor<?x8xf32> {
  %o = attn.linear %q[s,d], %q[s,d], %q[s,d] state(%s : tensor<?x?xf32>)
    : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}"""


def softmax_attention(q, k, v, causal=False):
    scores = np.einsum("bhqd,bhkd->bhqk", q.astype(float), k.astype(float)) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def error(found, expected):
    return np.linalg.norm(found.astype(float) - expected) / np.linalg.norm(expected)


@pytest.fixture(scope="module")
def delta_rule():
    """Query, key of norm 1 and value; the output of the delta rule with decay, and its last state."""
    q, k, v = LINEAR
    k = k / np.linalg.norm(k, axis=-1, keepdims=True)
    return (q, k, v), *saccade.linear_attention(q, k, v, causal=True, decay=DECAY, beta=BETA, return_state=True)


@pytest.mark.parametrize("causal", [False, True], ids=["all keys", "causal"])
def test_features_and_normalization_agree_with_numpy(causal):
    q, k, v = LINEAR
    phi = lambda x: np.where(x > 0, x + 1, np.exp(x.astype(float)))
    weights = phi(q) @ phi(k).transpose(0, 1, 3, 2) * (np.tri(90) if causal else 1)
    found = saccade.linear_attention(q, k, v, feature_map="elu+1", normalize=True, causal=causal)
    assert error(found, weights / weights.sum(-1, keepdims=True) @ v) < 1e-6


def test_delta_rule_with_decay_follows_the_recurrence(delta_rule):
    (q, k, v), whole, last = delta_rule
    state = np.zeros((2, 2, 16, 16))
    for i in range(90):
        state = state * np.exp(DECAY[:, :, i, None, None])
        answer = np.einsum("bhdm,bhd->bhm", state, k[:, :, i])
        state = state + np.einsum("bhd,bhm->bhdm", k[:, :, i], BETA[:, :, i, None] * (v[:, :, i] - answer))
        assert error(whole[:, :, i], np.einsum("bhdm,bhd->bhm", state, q[:, :, i])) < 1e-5, i
    assert error(last, state) < 1e-5


def test_state_hands_a_sequence_over_in_parts(delta_rule):
    operands, whole, _ = delta_rule
    parts, state = [], None
    for part in (slice(0, 33), slice(33, 90)):
        factors = {"decay": DECAY[:, :, part], "beta": BETA[:, :, part], "state": state}
        mine = [x[:, :, part] for x in operands]
        output, state = saccade.linear_attention(*mine, causal=True, return_state=True, **factors)
        parts.append(output)
    assert error(np.concatenate(parts, 2), whole) < 1e-6


def test_scale_multiplies_the_output():
    tiny = saccade.linear_attention(*WIDE, scale=1e-5)
    assert error(tiny, saccade.linear_attention(*WIDE).astype(float) * 1e-5) < 1e-6


@pytest.mark.parametrize("causal", [False, True], ids=["all keys", "causal"])
def test_error_of_performer_falls_as_one_over_the_root_of_its_features(causal):
    exact, errors = softmax_attention(Q, K, V, causal), []
    for features in (16, 64, 256, 1024):
        draws = [saccade.performer(Q, K, V, projection=saccade.orthogonal_features(features, 16, seed), causal=causal)
                 for seed in range(4)]  # fmt: skip
        errors.append(np.mean([error(draw, exact) for draw in draws]))
    assert all(later < 0.85 * before for before, later in itertools.pairwise(errors)), errors
    assert errors[-1] < errors[0] / 3, errors


def test_performer_does_not_overflow_with_large_logits():
    found = saccade.performer(Q * 30, K * 30, V, projection=saccade.orthogonal_features(64, 16))
    assert np.isfinite(found).all()


def test_performer_in_f16_agrees_with_f32():
    projection = saccade.orthogonal_features(64, 16)
    half = [x.astype(np.float16) for x in (Q, K, V, projection)]
    expected = saccade.performer(Q, K, V, projection=projection).astype(float)
    assert error(saccade.performer(*half[:3], projection=half[3]), expected) < 2e-2


def test_directions_within_a_block_of_features_are_orthogonal():
    block = saccade.orthogonal_features(64, 16)[:16].astype(float)
    block /= np.linalg.norm(block, axis=1, keepdims=True)
    assert np.abs(block @ block.T - np.eye(16)).max() < 1e-6


def test_norms_of_features_are_those_of_independent_normal_vectors():
    norms = np.linalg.norm(saccade.orthogonal_features(4096, 16), axis=1)
    assert abs((norms**2).mean() / 16 - 1) < 0.03
    assert abs((norms**2).std() / math.sqrt(2 * 16) - 1) < 0.05
    assert saccade.orthogonal_features(20, 16).shape == (20, 16)


@pytest.mark.parametrize("features", [1, 15, 16, 17, 32, 40])
def test_features_are_those_of_their_seed(features):
    rng = np.random.default_rng(3)
    blocks = [np.linalg.qr(rng.standard_normal((16, 16)))[0].T for _ in range(math.ceil(features / 16))]
    norms = np.linalg.norm(rng.standard_normal((features, 16)), axis=1, keepdims=True)
    expected = np.concatenate(blocks)[:features] * norms
    assert np.array_equal(saccade.orthogonal_features(features, 16, 3), expected.astype(np.float32))


def test_linformer_with_the_identity_is_softmax_attention():
    identity = np.eye(100, dtype=np.float32)
    found = saccade.linformer(Q, K, V, key_projection=identity, value_projection=identity)
    assert error(found, softmax_attention(Q, K, V)) < 1e-6


def test_linformer_projects_keys_and_values_along_the_length():
    e, f = PROJECTIONS
    found = saccade.linformer(Q, K, V, key_projection=e, value_projection=f)
    assert error(found, softmax_attention(Q, e @ K, f @ V)) < 1e-5


@pytest.mark.parametrize(("causal", "name"), [(False, "performer"), (True, "performer_causal")])
def test_example_of_performer_agrees_with_the_function(causal, name, root):
    projection = saccade.orthogonal_features(256, 64)
    expected = saccade.performer(*WIDE, projection=projection, causal=causal)
    example = saccade.compile(root / "examples" / "performer.mlir")
    assert error(example[name](*WIDE, projection), expected.astype(float)) < 1e-6


def test_example_of_linformer_agrees_with_the_function(root):
    e, f = WIDE_PROJECTIONS
    expected = saccade.linformer(*WIDE, key_projection=e, value_projection=f)
    example = saccade.compile(root / "examples" / "linformer.mlir")
    assert error(example["linformer"](*WIDE, e, f), expected.astype(float)) < 1e-6


@pytest.mark.parametrize(("shape", "message"), [
    ((8, 7), "another number of columns than the output requires: found 7, expected 8"),
    ((9, 8), "state has another extent of 'd' than key: found 9, expected 8"),
])  # fmt: skip
def test_state_of_another_shape_is_refused(shape, message):
    function = saccade.compile(STATE).f
    with pytest.raises(ValueError, match=re.escape(message)):
        function(np.ones((5, 8), np.float32), np.ones(shape, np.float32))


def test_layouts_and_heads_of_values_agree():
    """Four heads of values share two of keys; every order of dimensions has the same results."""
    q, k, v = normal(2, 2, 70, 16), normal(2, 2, 70, 16), normal(2, 4, 70, 8)
    g, b, s = -np.abs(normal(2, 4, 70, 16)), rng.random((2, 4, 70), np.float32), normal(2, 4, 16, 8)
    wide = [np.repeat(x, 2, 1) for x in (q, k)]
    options = {"causal": True, "return_state": True, "scale": 0.5}
    expected = saccade.linear_attention(*wide, v, decay=g, beta=b, state=s, **options)
    for layout in ("bhsd", "bshd", "shbd", "hdsb"):
        order = ["bhsd".index(dim) for dim in layout]
        rows = ["bhs".index(dim) for dim in layout if dim != "d"]
        given = [np.ascontiguousarray(x.transpose(order)) for x in (q, k, v, g)]
        found = saccade.linear_attention(*given[:3], decay=given[3], beta=b.transpose(rows), state=s, layout=layout,
                                         **options)
        assert error(found[0], expected[0].astype(float).transpose(order)) < 1e-6, layout
        assert error(found[1], expected[1].astype(float)) < 1e-6, layout
    alone = saccade.linear_attention(*[x[0, 0] for x in (q, k, v)], decay=g[0, 0], causal=True, layout="sd")
    whole = saccade.linear_attention(q, k, v, decay=g, causal=True)
    assert error(alone, whole[0, 0].astype(float)) < 1e-6


def test_a_decay_of_heads_is_that_of_all_positions():
    q, k, v = LINEAR
    rates = np.array([-0.1, -np.inf], np.float32)
    found = saccade.linear_attention(q, k, v, causal=True, decay=rates)
    expected = saccade.linear_attention(q, k, v, causal=True, decay=np.broadcast_to(rates[:, None], (2, 2, 90)))
    assert np.array_equal(found, expected)


def test_l2norm_has_its_epsilon_inside_of_the_root():
    q, k, v = LINEAR
    divided = [x / np.sqrt((x.astype(float) ** 2).sum(-1, keepdims=True) + 0.5) for x in (q, k)]
    found = saccade.linear_attention(q, k, v, causal=True, l2norm=0.5)
    expected = saccade.linear_attention(*[x.astype(np.float32) for x in divided], v, causal=True)
    assert error(found, expected.astype(float)) < 1e-6


def test_out_is_written_and_returned():
    q, k, v = LINEAR
    expected = saccade.linear_attention(q, k, v, causal=True, decay=DECAY, return_state=True)
    out = np.full_like(v, np.nan), np.full((2, 2, 16, 16), np.nan, np.float32)
    found = saccade.linear_attention(q, k, v, causal=True, decay=DECAY, return_state=True, out=out)
    assert found[0] is out[0] and found[1] is out[1]
    assert all(np.array_equal(x, y) for x, y in zip(out, expected))
    single = saccade.linear_attention(q, k, v, causal=True, decay=DECAY, out=np.empty_like(v))
    assert np.array_equal(single, expected[0])


def test_a_state_is_not_changed_by_a_refused_call():
    state = normal(2, 2, 16, 16)
    before = state.copy()
    named = {"causal": True, "decay": DECAY, "return_state": True}
    for wrong, exception, message in (
            ({"state": state, "out": (np.empty_like(LINEAR[2]), state[:])}, ValueError,
             "out[1]: overlaps with argument 'state'"),
            ({"state": state, "out": (np.empty((2, 2, 90, 16), np.float32),)}, TypeError,
             "out has 1 array, expected 2: (output, state)"),
            ({"state": state, "out": np.empty_like(LINEAR[2])}, TypeError,
             "out is one array with return_state=True, expected the tuple (output, state)"),
            ({"state": state, "out": (np.empty_like(LINEAR[2]), state[:, :1])}, ValueError,
             "out[1]: found extent 1 in dimension 1, expected 2"),
            ({"state": state, "decay": np.where(DECAY < -1, np.nan, DECAY)}, ValueError,
             "decay has an element that is NaN, expected logarithms of decays"),
            ({"state": state, "beta": np.full_like(DECAY, np.inf)}, ValueError,
             "beta has an element that is infinite, expected finite rates")):  # fmt: skip
        with pytest.raises(exception, match=re.escape(message)):
            saccade.linear_attention(*LINEAR, **{**named, **wrong})
        assert np.array_equal(state, before)


@pytest.mark.parametrize("integer", [np.int32, np.int64])
def test_a_ragged_batch_is_its_sequences(integer):
    """Sequences of 0, 1, 63, 64 and 65 positions, with states, and positions after the last one."""
    offsets = np.array([0, 0, 1, 64, 128, 193], integer)
    q, k, v = normal(200, 2, 16), normal(200, 2, 16), normal(200, 4, 8)
    g, b, s = -np.abs(normal(200, 4)), rng.random((200, 4), np.float32), normal(5, 4, 16, 8)
    named = {"causal": True, "return_state": True, "l2norm": 1e-6}
    output, last = saccade.linear_attention(q, k, v, decay=g, beta=b, state=s, cu_seqlens=offsets, **named)
    assert last.shape == s.shape
    assert not output[193:].any()
    for n, (start, end) in enumerate(itertools.pairwise(offsets)):
        part = slice(start, end)
        mine, state = saccade.linear_attention(q[part], k[part], v[part], decay=g[part], beta=b[part], state=s[n],
                                               layout="shd", **named)
        assert not mine.size or error(output[part], mine.astype(float)) < 1e-6, n
        assert error(last[n], state.astype(float)) < 1e-6, n


def test_lengths_end_sequences():
    q, k, v = LINEAR
    lengths = np.array([33, 0], np.int32)
    named = {"causal": True, "return_state": True}
    output, last = saccade.linear_attention(q, k, v, decay=DECAY, beta=BETA, kv_len=lengths, **named)
    mine, state = saccade.linear_attention(*[x[:, :, :33] for x in (q, k, v)], decay=DECAY[:, :, :33],
                                           beta=BETA[:, :, :33], **named)
    assert error(output[0, :, :33], mine[0].astype(float)) < 1e-6
    assert error(last[0], state[0].astype(float)) < 1e-6
    assert not output[0, :, 33:].any() and not output[1].any() and not last[1].any()


def test_an_offset_is_refused_after_a_causal_call():
    """1 and True are equal as keys of a dictionary."""
    saccade.linear_attention(*LINEAR, causal=True)
    with pytest.raises(ValueError, match="causal is 1, expected True or False"):
        saccade.linear_attention(*LINEAR, causal=1)


def test_a_decay_above_1_grows_the_state():
    q, k, v = LINEAR
    found = saccade.linear_attention(q, k, v, causal=True, decay=np.full((2, 2, 90), 0.05, np.float32))
    weights = q.astype(float) @ k.transpose(0, 1, 3, 2)
    distance = np.subtract.outer(np.arange(90), np.arange(90))
    assert error(found, (weights * np.where(distance >= 0, np.exp(0.05 * np.maximum(distance, 0)), 0)) @ v) < 5e-6


q, k, v = WIDE
REFUSED = {
    "feature map": ((q, k, v), {"feature_map": "cosine"}, ValueError,
                    "'cosine', expected one of identity, relu, elu+1"),
    "causal lengths": ((q, k[:, :, :9], v[:, :, :9]), {"causal": True}, ValueError,
                       "k has length 9, expected 70, that of q"),
    "lengths": ((q, k, v[:, :, :9]), {}, ValueError, "v has length 9, expected 70, that of k"),
    "integers": ((q.astype(np.int32), k, v), {}, TypeError, "element type int32"),
    "value heads": ((q, k, v[:, :1]), {}, ValueError, "v has head count 1, expected a multiple of the 2 heads of k"),
    "query heads": ((np.repeat(q, 2, 1)[:, :3], k, v), {}, ValueError,
                    "q has 3 heads, expected a multiple or a divisor of the 2 heads of v"),
    "length of decay": ((q, k, v), {"causal": True, "decay": DECAY}, ValueError,
                        "decay has shape (2, 2, 90), expected (2, 2, 70)"),
    "dimensions of beta": ((q, k, v), {"causal": True, "beta": DECAY[0]}, TypeError, "beta has 2 dimensions, expected 3"),
    "type of the state": ((q, k, v), {"state": np.zeros((2, 2, 64, 64))}, TypeError,
                          "state has elements of type float64, expected float32 or that of q"),
    "shape of the state": ((q, k, v), {"state": np.zeros((2, 2, 64, 9), np.float32)}, ValueError,
                           "state has shape (2, 2, 64, 9), expected (2, 2, 64, 64)"),
    "decay of all keys": ((q, k, v), {"decay": DECAY}, ValueError, "decay is given, expected causal=True"),
    "l2norm": ((q, k, v), {"l2norm": -1e-6}, ValueError, "l2norm is -1e-06, expected None or a number from 0"),
    "layout": ((q, k, v), {"layout": "bhs"}, ValueError, "layout is 'bhs', expected the letters s, d"),
    "offsets with a batch": ((q, k, v), {"cu_seqlens": np.array([0, 70]), "layout": "bhsd"}, ValueError,
                             "layout is 'bhsd', expected one without b"),
    "offsets that do not ascend": ((q[0], k[0], v[0]), {"cu_seqlens": np.array([0, 50, 40]), "layout": "hsd"}, ValueError,
                                   "cu_seqlens"),
    "offsets of floats": ((q[0], k[0], v[0]), {"cu_seqlens": np.array([0.0, 40.0]), "layout": "hsd"}, TypeError,
                          "cu_seqlens has element type float64, expected int32 or int64"),
    "lengths of a ragged batch": ((q[0], k[0], v[0]), {"cu_seqlens": np.array([0, 70]), "kv_len": np.array([3]),
                                                       "layout": "hsd"}, ValueError,
                                  "kv_len is given with cu_seqlens, expected None"),
    "number of lengths": ((q, k, v), {"kv_len": np.array([3])}, ValueError,
                          "kv_len has 1 elements, expected 2, the batch size"),
    "length": ((q, k, v), {"kv_len": np.array([3, 71])}, ValueError,
               "kv_len has the element 71, expected 0 to 70, the length of k"),
    "negative length": ((q, k, v), {"kv_len": np.array([-1, 7])}, ValueError, "kv_len has the element -1"),
    "rate of a normalized call": ((q, k, v), {"causal": True, "normalize": True, "beta": BETA[:, :, :70]}, ValueError,
                                  "beta is given with normalize=True, expected None"),
    "option": ((q, k, v), {"bta": DECAY}, TypeError,
               "linear_attention() got an unexpected keyword argument 'bta', did you mean 'beta'?"),
    "scale": ((q, k, v), {"scale": math.inf}, ValueError, "scale is inf, expected a finite number"),
}


@pytest.mark.parametrize(("operands", "named", "exception", "message"), REFUSED.values(), ids=REFUSED)
def test_wrong_arguments_are_refused(operands, named, exception, message):
    with pytest.raises(exception, match=re.escape(message)):
        saccade.linear_attention(*operands, **named)


@pytest.mark.parametrize("library", ["torch", "numpy"])
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_state_updated_in_place(library, layout):
    torch = pytest.importorskip("torch") if library == "torch" else None
    rng = np.random.default_rng(5)
    order = (0, 1, 2, 3) if layout == "bhsd" else (0, 2, 1, 3)
    normal = lambda heads, columns: rng.standard_normal((2, heads, 21, columns), dtype=np.float32).transpose(order)
    q, k, v = normal(4, 16) / 4, normal(2, 16) / 4, normal(4, 8)
    g, beta = -np.abs(normal(4, 1)[..., 0]) / 8, 1 / (1 + np.exp(-normal(4, 1)[..., 0]))
    state = rng.standard_normal((2, 4, 16, 8), dtype=np.float32)
    convert = (lambda x: torch.from_numpy(x.copy())) if torch else (lambda x: x.copy())
    q, k, v, g, beta, state = map(convert, (q, k, v, g, beta, state))
    options = {"causal": True, "return_state": True, "layout": layout, "scale": 0.3}
    whole, last = saccade.linear_attention(q, k, v, decay=g, beta=beta, state=state, **options)
    own, position, address = convert(np.asarray(state)), 0, None
    axis = layout.index("s")
    for count in (1, 3, 16, 1):  # by position and in chunks
        part = [slice(None)] * 3
        part[axis] = slice(position, position + count)
        part = tuple(part)
        output = convert(np.zeros_like(np.asarray(v[part])))
        found = saccade.linear_attention(q[part], k[part], v[part], decay=g[part], beta=beta[part], state=own,
                                         out=(output, own), **options)  # fmt: skip
        assert found[0] is output and found[1] is own
        np.testing.assert_allclose(np.asarray(output), np.asarray(whole[part]), rtol=1e-4, atol=1e-5)
        where = own.data_ptr() if torch else own.ctypes.data
        assert address in (None, where)
        address, position = where, position + count
    np.testing.assert_allclose(np.asarray(own), np.asarray(last), rtol=1e-4, atol=1e-5)
