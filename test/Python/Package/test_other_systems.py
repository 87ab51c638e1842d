"""The rows of docs/reference/other-systems.md of packages that are installed, and what to write in Saccade for the same."""

import math

import numpy as np
import pytest

import saccade

Q, K = (np.random.default_rng(n).standard_normal((1, 2, length, 8)).astype(np.float32) for n, length in ((0, 3), (1, 5)))
V = np.broadcast_to(np.arange(5, dtype=np.float32)[:, None], (1, 2, 5, 8)).copy()  # numbers of keys
MEAN, LOWEST = 2.0, float(np.finfo(np.float32).min)
NOTHING = np.zeros((3, 5), bool)
LSE = np.log(np.exp(Q @ K.swapaxes(2, 3) / math.sqrt(8)).sum(-1))


def first(output):
    """One number for each query."""
    return np.asarray(output, np.float32)[0, 0, :, 0]


def same(output, expected):
    np.testing.assert_allclose(first(output), expected, rtol=1e-5, atol=1e-5)


def ours(q=Q, k=K, v=V, **options):
    return saccade.attention(q, k, v, **options)


def biased(value):
    bias = np.full((3, 5), value, np.float32)
    return ours(score=lambda s, b, h, i, j: s + bias[i, j])


def test_saccade_gives_0_to_rows_without_keys_and_the_mean_at_the_lowest_float():
    same(ours(mask=lambda b, h, i, j: NOTHING[i, j]), 0)
    same(biased(-np.inf), 0)
    same(biased(LOWEST), MEAN)
    same(ours(score=lambda s, b, h, i, j: np.where(NOTHING[i, j], s, -1e30)), MEAN)
    assert (ours(mask=lambda b, h, i, j: NOTHING[i, j], return_lse=True)[1] == -np.inf).all()


def test_saccade_has_both_alignments_windows_and_scale_0():
    same(ours(0 * Q, causal="top_left"), [0, 0.5, 1])
    same(ours(0 * Q, causal="bottom_right"), [1, 1.5, 2])
    same(ours(0 * Q, causal=1), [0.5, 1, 1.5])
    same(ours(scale=0.0), MEAN)


# --- PyTorch ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def sdpa(torch, q=Q, **options):
    masks = {name: torch.as_tensor(each) if isinstance(each, np.ndarray) else each for name, each in options.items()}
    function = torch.nn.functional.scaled_dot_product_attention
    return function(torch.tensor(q), torch.tensor(K), torch.tensor(V), **masks)


def test_fused_encoder_layer_of_pytorch_hides_what_a_float_mask_adds_to(torch):
    import saccade.torch.backend  # noqa: F401 - registers it

    torch.manual_seed(0)
    layer, x = torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True, dropout=0.0).eval(), torch.randn(1, 5, 8)
    own = torch.full((5, 5), -math.inf).fill_diagonal_(0)
    bias = -0.5 * (torch.arange(5.0)[:, None] - torch.arange(5.0)).abs()
    added = layer(x.clone().requires_grad_(), src_mask=bias).detach()
    with torch.no_grad():
        torch.testing.assert_close(layer(x, src_mask=bias), layer(x, src_mask=own))
        assert layer(x, src_mask=bias - 1).isnan().all()
        ours = torch.compile(lambda x: layer(x, src_mask=bias), backend="saccade", options={"whole_graph": True})
        torch.testing.assert_close(ours(x), added)



def test_sdpa_gives_0_to_rows_without_keys_and_the_mean_at_the_lowest_float(torch):
    same(sdpa(torch, attn_mask=NOTHING), 0)
    same(sdpa(torch, attn_mask=np.full((3, 5), -np.inf, np.float32)), 0)
    same(sdpa(torch, attn_mask=np.full((3, 5), LOWEST, np.float32)), MEAN)


def test_sdpa_aligns_is_causal_at_the_first_key_and_intersects_it_with_a_mask(torch):
    from torch.nn.attention.bias import causal_lower_right

    same(sdpa(torch, 0 * Q, is_causal=True), first(ours(0 * Q, causal="top_left")))
    same(sdpa(torch, 0 * Q, attn_mask=causal_lower_right(3, 5)), first(ours(0 * Q, causal="bottom_right")))
    mask = np.broadcast_to(np.arange(5) > 0, (3, 5)).copy()
    same(sdpa(torch, 0 * Q, attn_mask=mask, is_causal=True),
         first(ours(0 * Q, causal="top_left", mask=lambda b, h, i, j: mask[i, j])))
    same(sdpa(torch, scale=0.0), first(ours(scale=0.0)))


@pytest.mark.filterwarnings("ignore")
def test_log_sum_exp_of_pytorch_is_natural(torch):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    tensors = [torch.tensor(each) for each in (Q, K, V)]
    output, lse = flex_attention(*tensors, return_lse=True)
    np.testing.assert_allclose(lse, LSE, rtol=1e-5)
    np.testing.assert_allclose(ours(return_lse=True)[1], LSE, rtol=1e-5)
    nothing = create_block_mask(lambda b, h, i, j: i < 0, None, None, 3, 5, device="cpu")
    output, lse = flex_attention(*tensors, block_mask=nothing, return_lse=True)
    same(output, 0)
    assert (lse == -torch.inf).all()
    function = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    np.testing.assert_allclose(function(*tensors)[1], LSE, rtol=1e-5)
    assert (function(*tensors, attn_mask=torch.full((1, 1, 3, 5), -torch.inf))[1] == 0).all()


def test_casts_to_floats_of_8_bits_in_pytorch(torch):
    cast = lambda number, name: torch.tensor([number]).to(getattr(torch, name)).float().item()
    assert cast(500.0, "float8_e4m3fn") == cast(math.inf, "float8_e4m3fn") == 448
    assert cast(1e6, "float8_e5m2") == math.inf
    assert math.isnan(cast(500.0, "float8_e4m3fnuz"))


# --- JAX --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def jax():
    return pytest.importorskip("jax")


def dot_product(jax, q=Q, **options):
    arrays = [each.swapaxes(1, 2) for each in (q, K, V)]
    found = jax.nn.dot_product_attention(*arrays, **options)
    return (found[0].swapaxes(1, 2), found[1]) if isinstance(found, tuple) else found.swapaxes(1, 2)


def test_jax_gives_the_mean_to_rows_without_keys_and_nan_at_minus_infinity(jax):
    same(dot_product(jax, mask=NOTHING[None, None]), MEAN)
    same(dot_product(jax, key_value_seq_lengths=np.array([0])), MEAN)
    same(dot_product(jax, bias=np.full((1, 1, 3, 5), LOWEST, np.float32)), MEAN)
    assert np.isnan(dot_product(jax, bias=np.full((1, 1, 3, 5), -np.inf, np.float32))).all()


def test_mask_of_jax_writes_over_a_bias_of_minus_infinity(jax):
    shown = np.broadcast_to(np.arange(5) >= 2, (1, 1, 3, 5))
    bias = np.where(shown, -np.inf, 0).astype(np.float32)
    same(dot_product(jax, 0 * Q, mask=shown, bias=bias), 0.5)


def test_jax_aligns_causal_masks_and_windows_at_the_first_key(jax):
    same(dot_product(jax, 0 * Q, is_causal=True), first(ours(0 * Q, causal="top_left")))
    same(dot_product(jax, 0 * K, local_window_size=(1, 0)), first(ours(0 * K, window=(1, 0))))
    same(dot_product(jax, 0 * K, local_window_size=1), first(ours(0 * K, window=(1, 1))))
    same(dot_product(jax, scale=0.0), MEAN)


def test_residual_of_jax_is_a_log_sum_exp_by_query(jax):
    np.testing.assert_allclose(dot_product(jax, return_residual=True)[1].swapaxes(1, 2), LSE, rtol=1e-5)
    residual = np.asarray(dot_product(jax, mask=NOTHING[None, None], return_residual=True)[1])
    np.testing.assert_allclose(residual, -2.38e38, rtol=1e-2)


def test_casts_to_floats_of_8_bits_in_jax(jax):
    cast = lambda number, name: float(jax.numpy.float32(number).astype(getattr(jax.numpy, name)))
    assert cast(460, "float8_e4m3fn") == 448 and math.isnan(cast(500, "float8_e4m3fn"))
    assert cast(1e6, "float8_e5m2") == math.inf


# --- Transformers -----------------------------------------------------------------------------------------------------


def test_sliding_window_of_transformers_has_the_own_key(torch):
    masks = pytest.importorskip("transformers.masking_utils")
    visible = masks.sliding_window_causal_mask_function(2)
    index = lambda number: torch.tensor(number)
    seen = np.array([[bool(visible(index(0), index(0), index(i), index(j))) for j in range(5)] for i in range(5)])
    output = ours(0 * K, causal="top_left", window=2)
    same(output, [np.arange(5)[row].mean() for row in seen])


# --- ONNX: the tables are those of docs/guides/onnx.md, and test_onnx_attention.py has more of them ------------------------


@pytest.mark.filterwarnings("ignore")
def test_onnx_rows():
    onnx = pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    def run(arrays, **attributes):
        names = ["q", "k", "v", "m", "", "", "n"] if "n" in arrays else ["q", "k", "v", *["m"] * ("m" in arrays)]
        node = onnx.helper.make_node("Attention", [name if name in arrays else "" for name in names], ["y"], **attributes)
        values = [onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
                  for name, each in arrays.items()]
        graph = onnx.helper.make_graph([node], "g", values, [onnx.ValueInfoProto(name="y")])
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 25)])
        return ReferenceEvaluator(model).run(None, arrays)[0]

    base = {"q": 0 * Q, "k": K, "v": V}
    same(run({**base, "m": NOTHING}), 0)
    same(run({**base, "m": np.full((3, 5), -np.inf, np.float32)}), 0)
    same(run({**base, "m": np.full((3, 5), LOWEST, np.float32)}), MEAN)
    same(run(base, is_causal=1), first(ours(0 * Q, causal="top_left")))
    same(run({**base, "n": np.array([4])}, is_causal=1), first(ours(0 * Q, causal="bottom_right", kv_len=4)))
    same(run(base, left_window_size=1, right_window_size=0), first(ours(0 * Q, window=(1, 0))))
    same(run({**base, "q": Q}, scale=0.0), MEAN)
    assert np.isnan(run({**base, "q": Q}, scale=-1.0)).all()
