"""Random calls of jax.nn.dot_product_attention."""

import dataclasses
import random

import jax
import jax.numpy as jnp
import numpy as np

TYPES = {"f32": jnp.float32, "bf16": jnp.bfloat16, "f16": jnp.float16, "f64": jnp.float64}
MODES = ("eager", "jit", "vmap", "vmap-shared", "3d")


@dataclasses.dataclass
class Shape:
    batch: int
    queries: int
    keys: int
    kv_heads: int
    group: int


class Call:
    """The call of a seed. `shape` and the numbers come from a second stream, so that calls of one seed can have others.
    """

    def __init__(self, seed):
        draw = random.Random(seed)
        self.seed = seed
        self.type = draw.choice(["f32", "f32", "bf16", "f16", "f64"])
        self.mode = draw.choice(MODES)
        self.head_dim = draw.choice([16, 16, 40])
        self.has_bias, self.has_mask = draw.random() < 0.5, draw.random() < 0.5
        self.bias_type = draw.choice(["f32", "bf16", self.type])
        self.is_causal = draw.random() < 0.4
        self.has_window = draw.random() < 0.3
        self.lengths = draw.choice([(False, False), (False, False), (True, False), (False, True), (True, True)])
        self.has_scale = draw.random() < 0.3
        self.return_residual = draw.random() < 0.4
        self.bias_axes, self.mask_axes = [[draw.random() < 0.6 for _ in range(4)] for _ in range(2)]

    @property
    def features(self):
        """Names of what this call has."""
        axes = lambda flags: "".join(dim for dim, is_whole in zip("bhij", flags) if is_whole) or "one"
        features = [self.type, self.mode, f"lengths-{self.lengths}", f"head-{self.head_dim}"]
        features += [f"bias-{axes(self.bias_axes)}", f"bias-{self.bias_type}"] if self.has_bias else []
        features += [f"mask-{axes(self.mask_axes)}"] if self.has_mask else []
        return features + [name for name in ("is_causal", "has_window", "has_scale", "return_residual") if vars(self)[name]]

    def __str__(self):
        return f"seed {self.seed}: {vars(self)}"

    def arguments(self, variant):
        """The arrays and options of a call; another `variant` has other lengths, batch and numbers."""
        draw = random.Random(self.seed * 1000 + variant)
        rng = np.random.default_rng([self.seed, variant])
        s = Shape(draw.randint(2, 3), draw.randint(2, 40), draw.randint(2, 70), draw.randint(2, 3), draw.randint(1, 3))
        if self.mode == "3d":
            s.batch = 1
        heads = s.kv_heads * s.group
        dtype = TYPES[self.type]
        real = lambda shape, dtype: jnp.asarray(rng.standard_normal(shape), dtype)
        arrays = {"query": real((s.batch, s.queries, heads, self.head_dim), dtype),
                  "key": real((s.batch, s.keys, s.kv_heads, self.head_dim), dtype),
                  "value": real((s.batch, s.keys, s.kv_heads, self.head_dim), dtype)}
        full = (s.batch, heads, s.queries, s.keys)
        of = lambda axes: tuple(extent if is_whole else 1 for extent, is_whole in zip(full, axes))
        if self.has_bias:
            arrays["bias"] = real(of(self.bias_axes), TYPES[self.bias_type])
        if self.has_mask:
            arrays["mask"] = jnp.asarray(rng.random(of(self.mask_axes)) < 0.7)
        options = {"is_causal": self.is_causal, "return_residual": self.return_residual}
        if self.has_window:
            pair = draw.randint(0, 20), draw.randint(0, 20)
            options["local_window_size"] = draw.choice([pair, pair[0]])
        for name, is_given, limit in zip(("query_seq_lengths", "key_value_seq_lengths"), self.lengths, (s.queries, s.keys)):
            if is_given:
                arrays[name] = jnp.asarray(rng.integers(0, limit + 1, s.batch), jnp.int32)
        if self.has_scale:
            options["scale"] = draw.uniform(0.05, 0.5)
        return arrays, options

    def run(self, function, arrays, options):
        """Calls jax.nn.dot_product_attention or ours in this call's mode."""
        call = lambda arrays: function(**arrays, **options)
        if self.mode == "jit":
            return jax.jit(call)(arrays)
        if self.mode == "3d":
            plain = {name: x[0] if name in ("query", "key", "value") else x for name, x in arrays.items()}
            return call(plain)
        if self.mode == "vmap":  # over two copies of the batch
            return jax.vmap(call)({name: jnp.stack([x, x[::-1]]) for name, x in arrays.items()})
        if self.mode == "vmap-shared":  # keys, values, bias and mask are shared
            mapped = {name: jnp.stack([x, x[::-1]]) if name == "query" else x for name, x in arrays.items()}
            return jax.vmap(call, ({name: 0 if name == "query" else None for name in arrays},))(mapped)
        return call(arrays)
