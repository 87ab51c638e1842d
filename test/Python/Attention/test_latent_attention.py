"""Multi-head latent attention (DeepSeek-V2, 2024): the expanded form with head sizes 192 and 128, and the absorbed form
with 576 and 512, whose values are a part of the keys."""

import numpy as np
import pytest

import saccade

RNG = np.random.default_rng(5)
LATENT, ROPE, NOPE, VALUE = 512, 64, 128, 128


class Layer:
    """Random weights of the two projections from the latent vector, and a cache of `lengths` tokens."""

    def __init__(self, lengths, heads=4):
        self.to_key, self.to_value = (RNG.standard_normal((heads, n, LATENT), np.float32) / 20 for n in (NOPE, VALUE))
        self.lengths, self.heads = np.array(lengths, np.int32), heads
        # One vector for a token and all heads: the latent vector, then the part of the key that has a position.
        self.cache = RNG.standard_normal((len(lengths), 1, max(lengths), LATENT + ROPE), np.float32)

    def queries(self, count):
        return RNG.standard_normal((len(self.lengths), self.heads, count, NOPE + ROPE), np.float32)

    def expanded(self, q):
        latent, rope = self.cache[..., :LATENT], self.cache[..., LATENT:]
        k = np.concatenate([np.einsum("bosl,hdl->bhsd", latent, self.to_key), np.repeat(rope, self.heads, 1)], -1)
        v = np.einsum("bosl,hdl->bhsd", latent, self.to_value)
        return saccade.attention(q, k, v, kv_len=self.lengths, causal="bottom_right")

    def absorbed(self, q, k, **options):
        q = np.concatenate([np.einsum("bhsd,hdl->bhsl", q[..., :NOPE], self.to_key), q[..., NOPE:]], -1)
        out = saccade.attention(q, k, k[..., :LATENT], kv_len=self.lengths, causal="bottom_right",
                                scale=(NOPE + ROPE) ** -0.5, **options)
        return np.einsum("bhsl,hdl->bhsd", out, self.to_value)


@pytest.mark.parametrize("queries", [1, 3, 40])
def test_absorbed_and_expanded_form_agree(queries):
    layer = Layer([50, 1300])
    q = layer.queries(queries)
    np.testing.assert_allclose(layer.absorbed(q, layer.cache), layer.expanded(q), atol=2e-4)


@pytest.mark.parametrize("queries", [1, 40])
def test_latent_vectors_in_pages(queries):
    layer = Layer([64, 640])
    order = RNG.permutation(2 * 40)
    pool = np.empty((80, 1, 16, LATENT + ROPE), np.float32)
    pool[order] = layer.cache.reshape(80, 1, 16, LATENT + ROPE)
    q = layer.queries(queries)
    paged = layer.absorbed(q, pool, page_table=order.reshape(2, 40).astype(np.int32))
    np.testing.assert_allclose(paged, layer.absorbed(q, layer.cache), atol=1e-5)
