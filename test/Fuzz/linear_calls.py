#!/usr/bin/env python3
# REQUIRES: torch
# UNSUPPORTED: asan, tsan
# RUN: %python %s --count 16 --calls-of-a-form 8
# RUN: %python %s --gradients --count 4 --calls-of-a-form 3
# RUN: %python %s --tangents --count 2 --calls-of-a-form 2
"""Random calls of saccade.linear_attention for the recurrences of models, against their formulas in float64.

Usage: linear_calls.py [--recurrence NAME] [--gradients | --tangents] [--first-seed N] [--count N] [--seed N] [--calls-of-a-form N].
Draws lengths around the edges of chunks, batches with lengths and ragged ones, decays from 1 to e^-50 and beyond, initial and
final states, left padding, groups of heads, layouts, element types, torch and NumPy, calls in parts, and calls with out=, also
in place of the state. The bits of a call with several threads are those with one. What a call must not read is NaN. With --gradients, gradients of all arguments against those that
PyTorch records of the recurrence, position by position in float64. With --tangents, tangents for those of some arguments.
"""

import itertools
import random
import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent / "Inputs"))
from linear_call import LinearCall, given, order_of, rounded
from recurrences import RECURRENCES
from seeds import chosen_seeds, print_coverage, run_calls, seed_options

import saccade

# A bound of the error relative to the norm of the result, by element type.
BOUNDS = {"f64": 1e-11, "f32": 3e-5, "bf16": 2e-2, "f16": 4e-3}
STATES = ("decay", "beta", "erase", "state")
NUMBERS = ("scale", "l2norm", "feature_map", "normalize")


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


def hidden(call, arrays):
    """The arrays of the call's batch. What a call must not read is NaN, 0 in gates, which are checked."""
    if call.batches == "dense":
        return arrays
    own = call.positions_of_call
    found = {}
    for name, x in arrays.items():
        if x.ndim < 3 or name == "state":
            found[name] = x
            continue
        value = 0.0 if name in ("decay", "beta") else np.nan
        parts = [part[name] for part in call.sequences(arrays, own)]
        found[name] = call.batched(parts, own, np.concatenate, lambda shape: np.full(shape, value))
    return found


def named_arguments(call, arrays):
    """The arrays as the call takes them, by name."""
    small = "f64" if call.type == "f64" else "f32"
    dims = {1: "", 3: "bhs", 4: "bhsd"}
    return {name: given(call, x, dims[x.ndim] if name != "state" else "", call.type if name in ("q", "k", "v", "erase") else small)
            for name, x in arrays.items()}


def check_out(call, tensors, options, results):
    """Calls again with out=, in place of the initial state where the call updates it."""
    empty = lambda x: np.empty_like(x) if call.is_numpy else torch.empty_like(x)
    whole = results if options["return_state"] else (results,)
    out, copied = [empty(x) for x in whole], dict(tensors)
    if call.updates_state and options["return_state"]:
        out[1] = copied["state"] = tensors["state"].copy() if call.is_numpy else tensors["state"].clone()
    again = saccade.linear_attention(**copied, **options, out=tuple(out) if options["return_state"] else out[0])
    for x, y in zip(whole, again if options["return_state"] else (again,), strict=True):
        assert np.array_equal(x, y) if call.is_numpy else torch.equal(x, y), "a call with out= differs"


def check_threads(call, tensors, options, results):
    """Calls again with the threads of the call: with fewer tasks than threads, another form computes the same bits."""
    whole = results if options["return_state"] else (results,)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(call.threads)
        again = saccade.linear_attention(**tensors, **options)
    finally:
        torch.set_num_threads(before)
    for x, y in zip(whole, again if options["return_state"] else (again,), strict=True):
        assert np.array_equal(x, y) if call.is_numpy else torch.equal(x, y), f"a call with {call.threads} threads differs"


def found_by(call, arrays, numbers):
    """The output and the final state of linear_attention, as float64 arrays [b,h,s,d]."""
    bounds = [0, *[call.positions_of_call * at for at in call.parts], arrays["q"].shape[2]]
    state, outputs = None, []
    is_last = len(bounds) > 2 or call.returns_state
    options = {"causal": True, "layout": call.layout, "return_state": is_last, **numbers, **call.sequence_lengths()}
    for start, end in itertools.pairwise(bounds):
        tensors = named_arguments(call, part_of(arrays, start, end))
        if state is not None:
            tensors["state"] = state
        result = saccade.linear_attention(**tensors, **options)
        if call.writes_out:
            check_out(call, tensors, options, result)
        if call.threads > 1:
            check_threads(call, tensors, options, result)
        output, state = result if is_last else (result, None)
        output = np.asarray(output if call.is_numpy else output.double(), dtype=float)
        output = output if "b" in call.layout else output[None]
        outputs.append(np.transpose(output, order_of(call.layout)))
    final = None if state is None else np.asarray(state, dtype=float) if call.is_numpy else state.double().numpy()
    return call.recurrence.output(np.concatenate(outputs, 2)), final


def expected_of(call, inputs, state):
    """The output and the final state by the formula, for each sequence."""
    outputs, finals = [], []
    for length, own in zip(call.lengths, call.sequences(inputs | {"state": state}, 1), strict=True):
        before = own.pop("state")
        nothing = np.zeros((1, call.sizes.heads, 0, call.sizes.width))
        output, final = call.recurrence.formula(own, before) if length else (nothing, before)
        outputs.append(output), finals.append(final)
    return call.batched(outputs, 1, np.concatenate, np.zeros), np.concatenate(finals)


def error(found, expected):
    return np.linalg.norm(found - expected) / max(np.linalg.norm(expected), 1e-30)


def check(seed, call):
    inputs, state = call.draw()
    # What the call reads is rounded, and the formula reads the same numbers.
    inputs = {name: rounded(x, "f64" if call.type == "f64" else call.type if name in ("q", "k", "v") else "f32")
              for name, x in inputs.items()}
    state = rounded(state, "f64" if call.type == "f64" else "f32")
    arrays, numbers = operands(call, inputs, state)
    output, final = expected_of(call, inputs, state)
    found, last = found_by(call, hidden(call, arrays), numbers)
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


def recurrence(call, tensors, scale=1.0, l2norm=None, feature_map="identity", normalize=False):
    """The output and the final state of causal linear attention with torch's float64 operators, position by position."""
    q, k, v = (in_order(call, tensors[name]) for name in "qkv")
    heads, own = v.shape[1], call.positions_of_call
    if l2norm is not None:
        q, k = (x / torch.sqrt(x.square().sum(-1, keepdim=True) + l2norm) for x in (q, k))
    phi = {"identity": lambda x: x, "elu+1": lambda x: torch.nn.functional.elu(x) + 1}[feature_map]
    arrays = {"q": phi(q), "k": phi(k), "v": v}
    arrays |= {name: x.repeat_interleave(heads // x.shape[1], 1) for name, x in arrays.items()}
    if normalize:
        arrays["v"] = torch.cat([v, torch.ones_like(v[..., :1])], -1)
    for name in ("decay", "beta", "erase"):
        if name in tensors:
            arrays[name] = in_order(call, tensors[name])
    starts = [own * sum(call.lengths[:i]) if call.batches == "ragged" else 0 for i in range(len(call.lengths))]
    outputs, finals = [], []
    for i, (start, length) in enumerate(zip(starts, call.lengths, strict=True)):
        row = 0 if call.batches == "ragged" else i
        mine = {name: x if x.ndim == 1 else x[row : row + 1, :, start : start + own * length] for name, x in arrays.items()}
        state = tensors["state"][i : i + 1] if "state" in tensors else torch.zeros(
            1, heads, arrays["k"].shape[-1], arrays["v"].shape[-1], dtype=torch.float64)
        output, final = recurrence_of_sequence(mine, state)
        output = scale * output
        outputs.append(output[..., :-1] / output[..., -1:] if normalize else output), finals.append(final)
    output = call.batched(outputs, own, torch.cat, lambda shape: torch.zeros(shape, dtype=torch.float64))
    order = order_of(call.layout)
    output = output.permute([order.index(i) for i in range(4)])
    return output if "b" in call.layout else output[0], torch.cat(finals)


def in_order(call, x):
    """A tensor of the call's layout as [b,h,s,...]."""
    if x.ndim == 1:
        return x
    is_batched = "b" in call.layout
    layout = call.layout if x.ndim == 3 + is_batched else call.layout.replace("d", "")
    layout, x = (layout, x) if is_batched else ("b" + layout, x[None])
    return x.permute([layout.index(dim) for dim in "bhsd" if dim in layout])


def recurrence_of_sequence(x, s):
    outputs = [x["v"].new_zeros(*x["v"].shape[:2], 0, x["v"].shape[-1])]
    decay = x.get("decay")
    if decay is not None and decay.ndim == 1:
        decay = decay[None, :, None].expand(x["v"].shape[:3])
    for t in range(x["k"].shape[2]):
        if decay is not None:
            rate = decay[:, :, t].exp()
            s = s * (rate[..., None] if rate.ndim == 3 else rate[..., None, None])
        k, q, written = (x[name][:, :, t] for name in "kqv")
        if "beta" in x or "erase" in x:
            written = written - torch.einsum("bhdm,bhd->bhm", s, x["erase"][:, :, t] if "erase" in x else k)
            written = x["beta"][:, :, t, None] * written if "beta" in x else written
        s = s + k[..., None] * written[..., None, :]
        outputs.append(torch.einsum("bhdm,bhd->bhm", s, q)[:, :, None])
    return torch.cat(outputs, 2), s


def tensors_of(call):
    """The arguments that are tensors, and the others."""
    inputs, state = call.draw()
    arrays, numbers = operands(call, inputs, state)
    call.is_numpy = False
    return named_arguments(call, hidden(call, arrays)), numbers


def check_gradients(seed, call):
    """Gradients of a random number that depends on the output and the final state."""
    tensors, numbers = tensors_of(call)
    for x in tensors.values():
        x.requires_grad_()
    exact = {name: x.detach().double().requires_grad_() for name, x in tensors.items()}
    found = saccade.linear_attention(**tensors, **numbers, **call.sequence_lengths(), causal=True, layout=call.layout,
                                     return_state=True)
    expected = recurrence(call, exact, **numbers)
    torch.manual_seed(seed)
    weights = [torch.randn(x.shape, dtype=torch.float64) for x in expected]
    for results, leaves in ((found, tensors), (expected, exact)):
        sum((x.double() * w).sum() for x, w in zip(results, weights)).backward()
    bound = 10 * BOUNDS[call.type]
    # Some gradients are 0 apart from rounding, such as that of the query of a single key with `normalize`.
    gradients = {name: torch.zeros_like(x) if x.grad is None else x.grad for name, x in exact.items()}
    floor = 0.01 * bound * sum(float(x.norm()) for x in gradients.values()) + 1e-30
    for name, x in tensors.items():
        own, other = x.grad.double(), gradients[name]
        if not own.isfinite().all():
            return f"the gradient of {name} is not finite"
        # A gradient of decays is a sum of differences of products, whose rounding is relative to these.
        least = 0.1 * (gradients["q"] * exact["q"].detach()).nan_to_num().norm() if name == "decay" else floor
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
        return saccade.linear_attention(**{**tensors, **own}, **numbers, **call.sequence_lengths(), causal=True,
                                        layout=call.layout, return_state=True)

    def formula(own):
        return recurrence(call, {**exact, **own}, **numbers)

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
    parser.add_argument("--calls-of-a-form", type=int, default=1, metavar="N",
                        help="how many consecutive seeds share the compiled program (default: %(default)s)")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--gradients", action="store_true", help="compare gradients")
    mode.add_argument("--tangents", action="store_true", help="compare tangents")
    args = parser.parse_args()
    names = args.recurrence or list(RECURRENCES)
    make = lambda seed: LinearCall(seed, names, args.calls_of_a_form)
    seeds = chosen_seeds(args, lambda seed: make(seed).features())
    if args.coverage:
        return print_coverage([make(seed).features() for seed in seeds])
    kind = "--gradients " * args.gradients + "--tangents " * args.tangents
    shared = f"--calls-of-a-form {args.calls_of_a_form} " * (args.calls_of_a_form != 1)
    failures = run_calls(__file__, args, seeds, make, CHECKS[kind],
                         kind + shared + "".join(f"--recurrence {x} " for x in args.recurrence or ()))
    print(f"{len(seeds) - failures} of {len(seeds)} calls of saccade.linear_attention agree")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
