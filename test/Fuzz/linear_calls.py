#!/usr/bin/env python3
# REQUIRES: torch
# UNSUPPORTED: asan, tsan
# RUN: %python %s --count 48
# RUN: %python %s --gradients --count 12
# RUN: %python %s --tangents --count 5
"""Random calls of saccade.linear_attention for the recurrences of models, against their formulas in float64.

Usage: linear_calls.py [--recurrence NAME] [--gradients | --tangents] [--first-seed N] [--count N] [--seed N]. Draws lengths around the
edges of chunks, decays from 1 to e^-50 and beyond, initial and final states, left padding, groups of heads, layouts, element
types, torch and NumPy, calls in parts and calls with out=. With --gradients, gradients of all arguments against those that
PyTorch records of the recurrence, position by position in float64. With --tangents, tangents for those of some arguments.
"""

import itertools
import random
import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent / "Inputs"))
from recurrences import RECURRENCES, Sizes
from seeds import chosen_seeds, run_calls, seed_options

import saccade

LENGTHS = (1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129)
# A bound of the error relative to the norm of the result, by element type.
BOUNDS = {"f64": 1e-11, "f32": 3e-5, "bf16": 2e-2, "f16": 4e-3}
TYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
STATES = ("decay", "beta", "erase", "state")
NUMBERS = ("scale", "l2norm", "feature_map", "normalize")


class LinearCall:
    """A call with what it should return."""

    def __init__(self, seed, names):
        self.seed = seed
        rng = random.Random(f"{seed} linear")
        self.name = rng.choice(names)
        self.recurrence = RECURRENCES[self.name]
        groups = rng.choice((1, 1, 2, 4)) if self.name != "rwkv7" else 1
        key_heads = rng.choice((1, 2, 3))
        length = rng.choice(LENGTHS) if rng.random() < 0.6 else rng.randint(1, 200)
        self.sizes = Sizes(rng.choice((1, 2, 3)), key_heads * groups, key_heads, length, rng.choice((8, 16, 20, 32, 64)),
                           rng.choice((8, 16, 24, 32, 64)))
        self.type = rng.choice(("f64", "f32", "f32", "bf16", "f16"))
        self.strength = rng.choice((1.0, 5.0, 50.0, 300.0))
        self.has_state, self.returns_state = rng.random() < 0.5, rng.random() < 0.6
        self.padding = rng.randint(0, length - 1) if rng.random() < 0.2 else 0
        self.layout = rng.choice(("bhsd", "bhsd", "bshd", "shbd"))
        self.is_numpy = self.type != "bf16" and rng.random() < 0.3
        self.parts = sorted(rng.sample(range(1, length), min(length - 1, 2))) if rng.random() < 0.2 else []
        self.writes_out = rng.random() < 0.2

    def __str__(self):
        shown = {name: value for name, value in vars(self).items() if name != "recurrence"}
        return f"{shown}"

    def draw(self):
        """The inputs of the model and the initial state, rounded to the element type."""
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


def rounded(x, type):
    """The float64 values of an array that is stored in an element type."""
    return torch.from_numpy(np.ascontiguousarray(x)).to(TYPES[type]).double().numpy()


def reordered(x, dims, layout):
    """An array [b,h,s,...] in a layout of which `dims` are there."""
    order = [dims.index(dim) for dim in layout if dim in dims]
    return np.transpose(x, order)


def given(call, x, dims, type):
    made = torch.from_numpy(np.ascontiguousarray(reordered(x, dims, call.layout) if dims else x)).to(TYPES[type])
    return made.numpy() if call.is_numpy else made


def operands(call, inputs, state):
    """Positional and named arguments, arrays as float64 [b,h,s,...]."""
    q, k, v, options = call.recurrence.arguments(inputs)
    arrays = {"q": q, "k": k, "v": v} | {name: options[name] for name in STATES if name in options}
    numbers = {name: options[name] for name in NUMBERS if name in options}
    if call.has_state:
        arrays["state"] = state
    return arrays, numbers


def part_of(arrays, start, end):
    return {name: x[:, :, start:end] if x.ndim > 2 and name != "state" else x for name, x in arrays.items()}


def found_by(call, arrays, numbers):
    """The output and the final state of linear_attention, as float64 arrays [b,h,s,d]."""
    double = 2 if call.name == "rwkv7" else 1
    bounds = [0, *[double * at for at in call.parts], arrays["q"].shape[2]]
    state, outputs = arrays.get("state"), []
    small = "f64" if call.type == "f64" else "f32"
    for start, end in itertools.pairwise(bounds):
        mine = part_of(arrays, start, end)
        named = {}
        for name, x in mine.items():
            if name == "state":
                continue
            dims = {1: "", 3: "bhs", 4: "bhsd"}[x.ndim]
            named[name] = given(call, x, dims, call.type if name in "qkv" or name == "erase" else small)
        if state is not None:
            named["state"] = state if not isinstance(state, np.ndarray) or start else given(call, state, "", small)
        is_last = len(bounds) > 2 or call.returns_state
        options = {"causal": True, "layout": call.layout, "return_state": is_last, **numbers}
        q, k, v = (named.pop(name) for name in "qkv")
        result = saccade.linear_attention(q, k, v, **named, **options)
        if call.writes_out:
            whole = result if isinstance(result, tuple) else (result,)
            empty = tuple([np.empty_like(x) if call.is_numpy else torch.empty_like(x) for x in whole])
            out = empty if is_last else empty[0]
            again = saccade.linear_attention(q, k, v, **named, **options, out=out)
            for x, y in zip(whole, again if is_last else (again,)):
                same = np.array_equal(x, y) if call.is_numpy else torch.equal(x, y)
                assert same, "a call with out= differs"
        output, state = result if is_last else (result, None)
        order = [call.layout.index(dim) for dim in "bhsd"]
        outputs.append(np.transpose(np.asarray(output if call.is_numpy else output.double()), order).astype(float))
    final = None if state is None else np.asarray(state, dtype=float) if call.is_numpy else state.double().numpy()
    return call.recurrence.output(np.concatenate(outputs, 2)), final if is_last else None


def error(found, expected):
    return np.linalg.norm(found - expected) / max(np.linalg.norm(expected), 1e-30)


def check(seed, call):
    inputs, state = call.draw()
    # What the call reads is rounded, and the formula reads the same numbers.
    inputs = {name: rounded(x, "f64" if call.type == "f64" else call.type if name in ("q", "k", "v") else "f32")
              for name, x in inputs.items()}
    state = rounded(state, "f64" if call.type == "f64" else "f32")
    arrays, numbers = operands(call, inputs, state)
    output, final = call.recurrence.formula(inputs, state)
    found, last = found_by(call, arrays, numbers)
    if not np.isfinite(found).all():
        return "the output is not finite"
    # Arguments that the model computes from its inputs are rounded once more.
    bound = BOUNDS[call.type]
    if (size := error(found, output)) > bound:
        return f"the output differs by {size:.2e}, bound {bound}"
    if last is not None and (size := error(last, final)) > bound:
        return f"the state differs by {size:.2e}, bound {bound}"
    if call.padding and not call.has_state and call.name != "rwkv7":
        alone = {name: x[:, :, call.padding :] if x.ndim > 2 else x for name, x in inputs.items()}
        output, _ = call.recurrence.formula(alone, state)
        if (size := error(found[:, :, call.padding :], output)) > bound:
            return f"the output differs by {size:.2e} from that without padding"
    return None


# --- gradients --------------------------------------------------------------------------------------------------------


def recurrence(q, k, v, layout, scale=1.0, l2norm=None, feature_map="identity", normalize=False, decay=None, beta=None,
               erase=None, state=None):
    """The output and the final state of causal linear attention with torch's float64 operators, position by position."""
    order = [layout.index(dim) for dim in "bhsd"]
    back = [order.index(i) for i in range(4)]
    q, k, v = (x.permute(order) for x in (q, k, v))
    rows = [layout.replace("d", "").index(dim) for dim in "bhs"]
    beta = None if beta is None else beta.permute(rows)
    erase = None if erase is None else erase.permute(order)
    if decay is not None:
        decay = decay[None, :, None, None] if decay.ndim == 1 else (
            decay.permute(order) if decay.ndim == 4 else decay.permute(rows)[..., None])
        decay = decay.expand(*v.shape[:3], decay.shape[-1])
    if l2norm is not None:
        q, k = (x / torch.sqrt(x.square().sum(-1, keepdim=True) + l2norm) for x in (q, k))
    phi = {"identity": lambda x: x, "elu+1": lambda x: torch.nn.functional.elu(x) + 1}[feature_map]
    heads = v.shape[1]
    q, k = (phi(x).repeat_interleave(heads // x.shape[1], 1) for x in (q, k))
    if normalize:
        v = torch.cat([v, torch.ones_like(v[..., :1])], -1)
    s = torch.zeros(*k.shape[:2], k.shape[-1], v.shape[-1], dtype=torch.float64) if state is None else state
    outputs = []
    for t in range(k.shape[2]):
        if decay is not None:
            s = s * decay[:, :, t].exp()[..., None]
        written = v[:, :, t]
        if beta is not None or erase is not None:
            reader = k if erase is None else erase
            written = written - torch.einsum("bhdm,bhd->bhm", s, reader[:, :, t])
            written = written if beta is None else beta[:, :, t, None] * written
        s = s + k[:, :, t, :, None] * written[..., None, :]
        outputs.append(scale * torch.einsum("bhdm,bhd->bhm", s, q[:, :, t]))
    output = torch.stack(outputs, 2)
    if normalize:
        output = output[..., :-1] / output[..., -1:]
    return output.permute(back), s


def tensors_of(call):
    """The arguments that are tensors, and the others."""
    inputs, state = call.draw()
    arrays, numbers = operands(call, inputs, state)
    small = "f64" if call.type == "f64" else "f32"
    call.is_numpy = False
    tensors = {}
    for name, x in arrays.items():
        dims = "" if name == "state" else {1: "", 3: "bhs", 4: "bhsd"}[x.ndim]
        type = call.type if name in "qkv" or name == "erase" else small
        tensors[name] = given(call, x, dims, type)
    return tensors, numbers


def check_gradients(seed, call):
    """Gradients of a random number that depends on the output and the final state."""
    tensors, numbers = tensors_of(call)
    for x in tensors.values():
        x.requires_grad_()
    exact = {name: x.detach().double().requires_grad_() for name, x in tensors.items()}
    found = saccade.linear_attention(**tensors, **numbers, causal=True, layout=call.layout, return_state=True)
    expected = recurrence(**exact, **numbers, layout=call.layout)
    torch.manual_seed(seed)
    weights = [torch.randn(x.shape, dtype=torch.float64) for x in expected]
    for results, leaves in ((found, tensors), (expected, exact)):
        sum((x.double() * w).sum() for x, w in zip(results, weights)).backward()
    bound = 10 * BOUNDS[call.type]
    for name, x in tensors.items():
        own, other = x.grad.double(), exact[name].grad
        if not own.isfinite().all():
            return f"the gradient of {name} is not finite"
        # A gradient of decays is a sum of differences of products, whose rounding is relative to these.
        least = 0.1 * (exact["q"].grad * exact["q"].detach()).norm() if name == "decay" else 1e-30
        size = float((own - other).norm() / max(float(other.norm()), float(least)))
        if size > bound:
            return f"the gradient of {name} differs by {size:.2e}, bound {bound}"
    return None


def check_tangents(seed, call):
    """Tangents of the output and the final state, for tangents of a random selection of the arguments."""
    tensors, numbers = tensors_of(call)
    rng = random.Random(f"{seed} tangents")
    names = [name for name in tensors if rng.random() < 0.6] or ["v"]
    torch.manual_seed(seed)
    steps = {name: torch.randn(tensors[name].shape).to(tensors[name].dtype) for name in names}
    exact = {name: x.double() for name, x in tensors.items()}
    wide = {name: x.double() for name, x in steps.items()}

    def attention(own):
        return saccade.linear_attention(**{**tensors, **own}, **numbers, causal=True, layout=call.layout,
                                        return_state=True)

    def formula(own):
        return recurrence(**{**exact, **own}, **numbers, layout=call.layout)

    results, found = torch.func.jvp(attention, ({name: tensors[name] for name in names},), (steps,))
    values, expected = torch.func.jvp(formula, ({name: exact[name] for name in names},), (wide,))
    bound = 3 * BOUNDS[call.type]
    for what, pairs in (("value", zip(results, values)), ("tangent", zip(found, expected))):
        for place, (own, other) in zip(("output", "state"), pairs):
            if not own.isfinite().all():
                return f"the {what} of the {place} is not finite"
            size = float((own.double() - other).norm() / max(float(other.norm()), 1e-30))
            if size > bound:
                return f"the {what} of the {place} differs by {size:.2e} for tangents of {names}, bound {bound}"
    return None


CHECKS = {"": check, "--gradients ": check_gradients, "--tangents ": check_tangents}


def main():
    parser = seed_options(__doc__, 500)
    parser.add_argument("--recurrence", choices=RECURRENCES, action="append", help="only this recurrence")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--gradients", action="store_true", help="compare gradients")
    mode.add_argument("--tangents", action="store_true", help="compare tangents")
    args = parser.parse_args()
    names = args.recurrence or list(RECURRENCES)
    seeds = chosen_seeds(args)
    kind = "--gradients " * args.gradients + "--tangents " * args.tangents
    failures = run_calls(__file__, args, seeds, lambda seed: LinearCall(seed, names), CHECKS[kind],
                         kind + "".join(f"--recurrence {x} " for x in args.recurrence or ()))
    print(f"{len(seeds) - failures} of {len(seeds)} calls of saccade.linear_attention agree")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
