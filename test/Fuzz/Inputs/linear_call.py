"""A random call of saccade.linear_attention: what it draws, and the sequences of its batch."""

import random

import numpy as np
import torch
from recurrences import RECURRENCES, Sizes

LENGTHS = (1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129)
TYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
BATCHES = ("dense", "dense", "lengths", "ragged")


class LinearCall:
    """A call. Consecutive seeds share the form, which the compiled program depends on."""

    def __init__(self, seed, names, calls_of_a_form=1):
        self.seed = seed
        self.draw_form(random.Random(f"{seed // calls_of_a_form} linear form"), names)
        rng = random.Random(f"{seed} linear")
        groups = rng.choice((1, 1, 2, 4)) if self.name != "rwkv7" else 1
        key_heads = rng.choice((1, 2, 3))
        length = rng.choice(LENGTHS) if rng.random() < 0.6 else rng.randint(1, 200)
        self.sizes = Sizes(rng.choice((1, 2, 3)), key_heads * groups, key_heads, length, self.depth, self.width)
        self.strength = rng.choice((1.0, 5.0, 50.0, 300.0))
        is_dense = self.batches == "dense"
        self.padding = rng.randint(0, length - 1) if is_dense and rng.random() < 0.2 else 0
        self.parts = sorted(rng.sample(range(1, length), min(length - 1, 2))) if is_dense and rng.random() < 0.2 else []
        self.writes_out = rng.random() < 0.2
        self.updates_state = self.has_state and self.returns_state and rng.random() < 0.3
        self.lengths = [length] * self.sizes.batch
        if not is_dense:
            self.lengths = [rng.choice((0, 1, length, rng.randint(0, length))) for _ in self.lengths]
        self.spare = rng.choice((0, 0, 3)) if self.batches == "ragged" else 0
        self.threads = rng.choice((1, 1, 2, 16))

    def draw_form(self, rng, names):
        self.name = rng.choice(names)
        self.recurrence = RECURRENCES[self.name]
        self.depth, self.width = rng.choice((8, 16, 20, 32, 64)), rng.choice((8, 16, 24, 32, 64, 128))
        self.type = rng.choice(("f64", "f32", "f32", "bf16", "f16"))
        self.has_state, self.returns_state = rng.random() < 0.5, rng.random() < 0.6
        self.layout = rng.choice(("bhsd", "bhsd", "bshd", "shbd"))
        self.is_numpy = self.type != "bf16" and rng.random() < 0.3
        self.batches = rng.choice(BATCHES)
        if self.batches == "ragged":
            self.layout = rng.choice(("shd", "hsd"))

    def __str__(self):
        return f"{ {name: value for name, value in vars(self).items() if name != 'recurrence'} }"

    def features(self):
        named = ("name", "type", "layout", "batches", "is_numpy", "has_state", "returns_state", "writes_out", "updates_state",
                 "threads")
        return [f"{name}={getattr(self, name)}" for name in named] + ["parts"] * bool(self.parts)

    @property
    def positions_of_call(self):
        """Positions of the call for each one of the model."""
        return 2 if self.name == "rwkv7" else 1

    def draw(self):
        """The inputs of the model and the initial state."""
        rng = np.random.default_rng(self.seed)
        inputs = self.recurrence.draw(rng, self.sizes, self.strength)
        n = self.sizes
        state = np.zeros((n.batch, n.heads, n.depth, n.width + (self.name == "linear")))
        if self.has_state:
            state = rng.standard_normal(state.shape)
            state[..., -1] = np.abs(state[..., -1])
        if self.name == "linear":
            self.padding = 0  # φ(0) is 1
        if self.padding:  # as models do: what enters a padded position is 0, and its decay is not
            for name in inputs:
                if name in ("k", "v", "x", "B", "beta", "b", "kappa"):
                    inputs[name][:, :, : self.padding] = 0
        return inputs, state

    def sequence_lengths(self):
        """The argument for the lengths of sequences, by name."""
        lengths = np.array(self.lengths, np.int32) * self.positions_of_call
        if self.batches == "dense":
            return {}
        given = {"kv_len": lengths} if self.batches == "lengths" else {"cu_seqlens": np.cumsum([0, *lengths]).astype(np.int32)}
        return {name: x if self.is_numpy else torch.from_numpy(x) for name, x in given.items()}

    def sequences(self, arrays, positions):
        """The arrays of each sequence, as batches of one; `positions`: of an array for each one of the model."""
        for i, length in enumerate(self.lengths):
            yield {name: x if x.ndim == 1 else x[i : i + 1] if name == "state" else x[i : i + 1, :, : positions * length]
                   for name, x in arrays.items()}

    def batched(self, x, positions, join, zeros):
        """The array of the call of a list of arrays [1, h, s, ...] of sequences, or of one [b, h, s, ...].

        join: concatenates arrays along a dimension.
        zeros: makes an array of 0 of a shape.
        """
        end = lambda count: zeros((1, x[0].shape[1], count, *x[0].shape[3:]))
        if self.batches == "ragged":
            return join([*x, end(positions * self.spare)], 2)
        return join([join([one, end(positions * self.sizes.length - one.shape[2])], 2) for one in x], 0)


def rounded(x, type):
    """The float64 values of an array that is stored in an element type."""
    return torch.from_numpy(np.ascontiguousarray(x)).to(TYPES[type]).double().numpy()


def order_of(layout):
    """The permutation that brings an array of `layout`, with its batch first if it has none, to [b,h,s,d]."""
    whole = layout if "b" in layout else "b" + layout
    return [whole.index(dim) for dim in "bhsd"]


def given(call, x, dims, type):
    """An array of `dims` (the state: "") as the call takes it."""
    made = torch.from_numpy(np.ascontiguousarray(x)).to(TYPES[type])
    if dims:
        made = made.permute([dims.index(dim) for dim in "b" * ("b" not in call.layout) + call.layout if dim in dims])
        made = made[0] if "b" not in call.layout and "b" in dims else made
    made = made.contiguous()
    return made.numpy() if call.is_numpy else made
