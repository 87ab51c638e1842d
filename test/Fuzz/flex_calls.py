#!/usr/bin/env python3
# REQUIRES: torch
# UNSUPPORTED: asan, tsan
# RUN: %python %s --first-seed 0 --count 10
# RUN: %python %s --random --first-seed 0 --count 80
"""The programs of test/Python/Inputs/flex_programs.py with saccade.torch.flex_attention against PyTorch's.

Usage: flex_calls.py [--random] [--first-seed N] [--count N] [--cover N] [--seed N] [--coverage] [--no-shifts]
       [--calls-of-a-form N]
A seed is a program in a type: seed N is program N modulo their number; the first round has float32. Shape, type and strides
of the output and the log-sum-exp are those of PyTorch, which evaluates the functions on all pairs. The error against
PyTorch's float64 is at most twice that of PyTorch in the program's type and a few roundings.

--random instead draws calls (Inputs/flex_call.py): functions, layouts of memory, extreme rows, lists of blocks that differ from
the mask function, and gradients of some tensors, which PyTorch does not have on CPUs. Outputs and gradients are compared with an
evaluation of all pairs in float64; the weights of a row, whose sum is a gradient of the values, sum to 1.
"""

import pathlib
import sys
import warnings

import torch
import torch.nn.attention.flex_attention as pytorch
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE / "Inputs"), str(HERE.parent / "Python" / "Inputs")]
from drop_ins import add_form_option, add_options, options_of, size_of_scores, sum_of_weights
from flex_call import Call
from flex_programs import BATCH, HEADS, LENGTH, PROGRAMS
from random_calls import compare
from seeds import chosen_seeds, print_coverage, run_calls, seed_options

import saccade.torch

NAMES = list(PROGRAMS)
TYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def check(seed):
    """None, or what is wrong with the results of a seed's call."""
    program, dtype = PROGRAMS[NAMES[seed % len(NAMES)]], TYPES[seed // len(NAMES) % len(TYPES)]
    generator = torch.Generator().manual_seed(seed)
    q, k, v = torch.randn(3, BATCH, HEADS, LENGTH, 16, generator=generator).to(dtype)
    if "enable_gqa" in program.options:
        k, v = k[:, :2], v[:, :2]
    mask = program.mask_mod and create_block_mask(program.mask_mod, BATCH, HEADS, LENGTH, LENGTH, device="cpu", BLOCK_SIZE=8)
    options = dict(score_mod=program.score_mod, block_mask=mask, return_aux=AuxRequest(lse=True), **program.options)
    exact, exact_aux = pytorch.flex_attention(q.double(), k.double(), v.double(), **options)
    plain, plain_aux = pytorch.flex_attention(q, k, v, **options)
    with saccade.torch.enabled():
        found, aux = pytorch.flex_attention(q, k, v, **options)
    direct, direct_aux = saccade.torch.flex_attention(q, k, v, **options)
    for what, x, y in (("the output", found, plain), ("the log-sum-exp", aux.lse, plain_aux.lse)):
        if (x.dtype, x.shape, x.stride()) != (y.dtype, y.shape, y.stride()):
            return f"{what} is {x.dtype} {tuple(x.shape)}/{x.stride()}, PyTorch's {y.dtype} {tuple(y.shape)}/{y.stride()}"
    if not torch.equal(found, direct) or not torch.equal(aux.lse, direct_aux.lse):
        return "the function of Saccade and the replaced function of PyTorch differ"
    return (compare("the output", found, exact, [plain])
            or compare("the log-sum-exp", aux.lse, exact_aux.lse, [plain_aux.lse]))


def check_random(call):
    """None, or what is wrong with the results of a random call."""
    output, found = call(saccade.torch.flex_attention)
    with saccade.torch.enabled():
        replaced, _ = call(pytorch.flex_attention)
    if not torch.equal(output, replaced):
        return "the function of Saccade and the replaced function of PyTorch differ"
    exact_output, exact = call.by_math(is_exact=True)
    orders = [torch.randperm(call.width, generator=torch.Generator().manual_seed(i)) for i in range(4)]
    plain = [call.by_math(is_exact=False, order=order) for order in (None, *orders)]
    scores = size_of_scores(call.query, call.key, call.scale)
    wrong = compare("the output", output, exact_output, [each for each, _ in plain], scores=scores)
    names = ["query", "key", "value", *[f"captured tensor {i}" for i in range(len(call.captures))]]
    for place, gradient in enumerate(found):
        if wrong or gradient is None:
            continue
        expected = torch.zeros_like(gradient).double() if exact[place] is None else exact[place]
        others = [torch.zeros_like(gradient) if each[place] is None else each[place] for _, each in plain]
        wrong = compare(f"the gradient of {names[place]}", gradient, expected, others, call.sizes()[place], scores)
    if not wrong and found and found[2] is not None:
        wrong = sum_of_weights(found[2], call.weight(output.shape), call.shown().any(-1, keepdim=True),
                               scores)
    return wrong


def main():
    args = add_form_option(add_options(seed_options(__doc__, count=2 * len(NAMES))))
    args.add_argument("--random", action="store_true", help="draw calls instead of programs of the library")
    args = args.parse_args()
    pytorch._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True  # PyTorch does not compile first; its warning names the switch
    warnings.simplefilter("error")
    random_call = lambda seed: Call(seed, not args.no_shifts, args.calls_of_a_form)
    make = random_call if args.random else lambda seed: NAMES[seed % len(NAMES)]
    features = lambda seed: make(seed).features if args.random else [make(seed)]
    seeds = chosen_seeds(args, features)
    run = lambda seed, call: check_random(call) if args.random else check(seed)
    failures = run_calls(__file__, args, seeds, make, run, "--random " * args.random + options_of(args))
    what = "random calls" if args.random else f"calls of {len(NAMES)} programs"
    print(f"{len(seeds)} {what}, {failures} failures")
    if args.coverage:
        print_coverage(map(features, seeds))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
