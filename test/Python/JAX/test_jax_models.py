"""An encoder and a decoder in plain JAX, compiled whole, agree with JAX in f32 and bf16, layer by layer or scanned, and
each softmax has become an attention.
"""

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp
from jax import export

import saccade.jax

WIDTH, HEADS, SHARED, INNER, WORDS, LAYERS = 64, 4, 2, 128, 100, 2
rng = np.random.default_rng(0)


def weight(*shape):
    return jnp.asarray(rng.standard_normal(shape) * 0.1, jnp.float32)


def norm(x, gain, bias):
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * gain + bias


def rms(x, gain):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * gain


def project(p, x):
    return [jnp.einsum("bsd,dhk->bshk", x, p[name]) for name in ("q", "k", "v")]


def encode(p, x, mask):
    q, k, v = project(p, x)
    s = jnp.einsum("bqhk,bshk->bhqs", q, k) / np.sqrt(WIDTH // HEADS)
    o = jnp.einsum("bhqs,bshk->bqhk", jax.nn.softmax(jnp.where(mask[:, None, None, :], s, -1e9), axis=-1), v)
    x = norm(x + jnp.einsum("bqhk,hkd->bqd", o, p["o"]), *p["norm"][0])
    return norm(x + jax.nn.gelu(x @ p["up"], approximate=False) @ p["down"], *p["norm"][1])


def encoder(params, tokens, mask):
    x = params["words"][tokens] + params["places"][: tokens.shape[1]]
    for p in params["layers"]:
        x = encode(p, x, mask)
    return {"states": x, "first": jnp.tanh(x[:, 0] @ params["pool"])}


def rotate(x):
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1], dtype=jnp.float32)[:,
                                                       None] * 10000.0 ** (-jnp.arange(half, dtype=jnp.float32) / half)
    c, s = jnp.cos(angles)[None, :, None, :].astype(x.dtype), jnp.sin(angles)[None, :, None, :].astype(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * c - b * s, b * c + a * s], axis=-1)


def decode(p, x):
    q, k, v = project(p, rms(x, p["norm"][0]))
    o = jax.nn.dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
    x = x + jnp.einsum("bqhk,hkd->bqd", o, p["o"])
    y = rms(x, p["norm"][1])
    return x + (jax.nn.silu(y @ p["gate"]) * (y @ p["up"])) @ p["down"]


def decoder(params, tokens):
    x = jnp.take(params["words"], tokens, axis=0)
    for p in params["layers"]:
        x = decode(p, x)
    return rms(x, params["norm"]) @ params["words"].T


def scanned(params, tokens):
    x, _ = jax.lax.scan(lambda x, p: (decode(p, x), None), jnp.take(params["words"], tokens, axis=0), params["stacked"])
    return rms(x, params["norm"]) @ params["words"].T


def layer(heads, norms):
    depth = WIDTH // HEADS
    return {"q": weight(WIDTH, HEADS, depth), "k": weight(WIDTH, heads, depth), "v": weight(WIDTH, heads, depth),
            "o": weight(HEADS, depth, WIDTH),
            "up": weight(WIDTH, INNER), "gate": weight(WIDTH, INNER), "down": weight(INNER, WIDTH), "norm": norms}


tokens = jnp.asarray(rng.integers(0, WORDS, (2, 13)), jnp.int32)
mask = jnp.arange(13)[None] < jnp.asarray([[13], [7]])
gains = [(weight(WIDTH) + 1, weight(WIDTH))] * 2
encoding = {"words": weight(WORDS, WIDTH), "places": weight(64, WIDTH), "pool": weight(WIDTH, WIDTH),
            "layers": [layer(HEADS, gains) for _ in range(LAYERS)]}
decoding = {"words": weight(WORDS, WIDTH), "norm": weight(WIDTH) + 1,
            "layers": [layer(SHARED, [weight(WIDTH) + 1, weight(WIDTH) + 1]) for _ in range(LAYERS)]}
stacked = {**decoding, "stacked": jax.tree.map(lambda *each: jnp.stack(each), *decoding["layers"])}


def check(f, args, examples=None, limit=2e-6):
    """As many attentions as layers, and results that agree with JAX's."""
    compiled = saccade.jax.compile(f, *(examples or args))
    count = compiled.module.ir("transforms").count("= attn.attention")
    assert count == LAYERS, f"{count} attentions\n{compiled.module.explain()}"
    errors = [np.linalg.norm(np.float32(found) - np.float32(expected)) / np.linalg.norm(np.float32(expected))
              for found, expected in zip(jax.tree.leaves(compiled(*args)), jax.tree.leaves(f(*args)), strict=True)]
    assert np.max(errors) <= limit, f"differs by {np.max(errors):.2g}"  # max() loses a NaN


def test_encoder():
    check(encoder, (encoding, tokens, mask))


def test_decoder():
    check(decoder, (decoding, tokens))


def test_decoder_with_scanned_layers():
    check(scanned, (stacked, tokens))


def test_decoder_that_closes_over_its_weights():
    check(lambda given: decoder(decoding, given), (tokens,))


def test_decoder_in_bf16():
    short = jax.tree.map(lambda a: a.astype(jnp.bfloat16) if a.dtype == jnp.float32 else a, decoding)
    check(decoder, (short, tokens), limit=3e-2)


def test_decoder_of_any_length():
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), decoding)
    open_tokens = jax.ShapeDtypeStruct(export.symbolic_shape("b,n"), jnp.int32)
    check(decoder, (decoding, tokens), (shapes, open_tokens))
