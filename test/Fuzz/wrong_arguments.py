#!/usr/bin/env python3
# REQUIRES: torch
# UNSUPPORTED: asan, tsan
# RUN: %python %s --first-seed 0 --count 1500
"""Every argument of the public functions with values of a wrong type, shape, element type, device or name.

Usage: wrong_arguments.py [--first-seed N] [--count N] [--all] [--seed N]
A call either succeeds, or raises TypeError, ValueError, NotImplementedError or CompileError with a message that names an
argument and has no word of the inside of the library. Values in NONSENSE must not be accepted. --all tries every value
for every argument; a seed tries a random function, argument and value, and sometimes a second argument.
"""

import argparse
import inspect
import math
import random
import re
import sys
import warnings

import numpy as np
import torch

import saccade
import saccade.torch
from saccade import builders, masks, scores
from saccade.dropout import dropout_mask

EXPECTED = (TypeError, ValueError, NotImplementedError, saccade.CompileError)
# `compile` opens files, and the errors of programs are at places of them.
OF_FILES = (FileNotFoundError, IsADirectoryError, saccade.CompileError)
# Words of Python's own errors about objects, and of the inside of the library.
FOREIGN = re.compile(r"object has no attribute|object is not|not supported between|unsupported operand|can't multiply|"
                     r"NoneType|TreeSpec|capture #|<program>|'attn\.|tensor<|index out of range|unhashable|"
                     r"unpack|positional argument|invalid literal|cannot be interpreted|must be|should be")  # fmt: skip
Q, K, V = (torch.randn(2, 4, 5, 8), torch.randn(2, 2, 7, 8), torch.randn(2, 2, 7, 8))
ROWS, CACHE = torch.randn(2, 1, 2, 8), torch.zeros(2, 16, 2, 8)
TABLE = np.ones((2, 5, 5), np.float32)

# A valid call of each function.
CALLS = {
    saccade.attention: {"q": Q, "k": K, "v": V, "score": None, "mask": None, "weight": None, "normalizer": None, "scale": 0.3, "causal": 1,
                        "window": (2, 2), "kv_len": 3, "sink": 0.5, "dropout_p": 0.1, "seed": 3, "return_lse": False,
                        "return_max": False, "layout": "bhsd", "target": None, "stream": None, "out": None,
                        "qk_type": None, "reproducible": None},
    saccade.linear_attention: {"q": Q, "k": K[:, :, :5], "v": V[:, :, :5], "feature_map": "relu", "causal": True,
                               "normalize": False, "scale": 0.5, "decay": -torch.ones(2, 2, 5), "beta": None,
                               "state": None, "return_state": False},
    saccade.causal_conv1d: {"x": torch.randn(2, 6, 5), "weight": torch.randn(6, 4), "bias": torch.randn(6),
                            "activation": "silu", "state": torch.randn(2, 6, 3), "return_state": False,
                            "cu_seqlens": None, "kv_len": None, "layout": "bds", "out": None},
    saccade.gated_rms_norm: {"x": torch.randn(2, 6), "gate": torch.randn(2, 6), "weight": torch.randn(6), "eps": 1e-6,
                             "activation": "silu", "norm_before_gate": True, "group_size": 3, "out": None},
    saccade.performer: {"q": Q, "k": Q, "v": Q, "projection": torch.ones(4, 8), "causal": False},
    saccade.linformer: {"q": Q, "k": Q, "v": Q, "key_projection": torch.ones(3, 5),
                        "value_projection": torch.ones(3, 5)},
    saccade.orthogonal_features: {"features": 4, "head_dim": 8, "seed": 0},
    saccade.torch.flash_attn_with_kvcache: {
        "q": ROWS, "k_cache": CACHE, "v_cache": CACHE.clone(), "k": ROWS, "v": ROWS, "cache_seqlens": 3,
        "softmax_scale": 0.3, "causal": True, "window_size": (2, 0), "softcap": 1.0, "seqlens_new": None,
        "cache_batch_idx": None, "page_table": None, "ring": None, "rotary_cos": None, "rotary_sin": None,
        "tree": None, "return_softmax_lse": False, "layout": "bshd", "k_scale": None, "v_scale": None,
        "k_zero": None, "v_zero": None},
    saccade.torch.append_kvcache: {"k": ROWS, "v": ROWS, "k_cache": CACHE, "v_cache": CACHE.clone(), "cache_seqlens": 3,
                                   "seqlens_new": None, "page_table": None, "ring": None, "layout": "bshd"},
    scores.alibi: {"slopes": [0.5, 0.25]}, scores.alibi_slopes: {"heads": 4}, scores.bias: {"table": TABLE},
    scores.soft_cap: {"cap": 2.0}, scores.temperature: {"value": 2.0},
    scores.relative_bias: {"table": np.ones((2, 5)), "offset": 0},
    scores.t5_bias: {"table": np.ones((32, 2)), "max_distance": 128, "offset": 0},
    scores.t5_buckets: {"buckets": 32, "max_distance": 128},
    scores.swin_bias: {"table": np.ones((9, 2)), "window": 2, "width": None},
    scores.shaw_bias: {"relative_logits": np.ones((1, 2, 5, 3)), "scale": 0.5, "offset": 0},
    masks.causal: {"offset": 0}, masks.window: {"left": 2, "right": 0},
    masks.dilated: {"dilation": 2, "left": 2, "right": 0}, masks.strided: {"stride": 2, "local": 1},
    masks.block_sparse: {"layout": np.ones((2, 2), bool), "query_block": 4, "key_block": 4},
    masks.prefix_lm: {"prefix": 2}, masks.padding: {"lengths": [2, 3]}, masks.documents: {"ids": [0, 1]},
    masks.ragged: {"cu_seqlens": [0, 2, 3]}, masks.global_tokens: {"count": 2},
    masks.longformer: {"radius": 2, "num_global": 1, "dilation": 1},
    masks.bigbird: {"length": 16, "block_size": 4, "radius": 1, "num_global_blocks": 1, "num_random_blocks": 1,
                    "seed": 0},
    masks.swin: {"height": 4, "width": 4, "window_size": 2, "shift_size": 1},
    masks.neighborhood: {"shape": 5, "kernel_size": 3}, masks.tree: {"parents": [-1, 0], "start": 3},
    dropout_mask: {"shape": (1, 1, 2, 2), "rate": 0.5, "seed": 1},
    builders.multi_head_attention: {"embed_dim": 16, "num_heads": 2, "element": "f32"},
    builders.cross_attention: {"embed_dim": 16, "source_dim": 8, "num_heads": 2, "element": "f32"},
    builders.encoder: {"layers": 1, "embed_dim": 16, "num_heads": 2, "ffn_dim": 8, "activation": "relu",
                       "element": "f32"},
    saccade.compile: {"program": "func.func @f(%x: f32) -> f32 {\n return %x : f32\n}", "target": "host"},
    saccade.set_num_threads: {"count": 2},
}  # fmt: skip
# Values that no argument has a meaning for, unless TAKEN says so.
NONSENSE = {"nan": math.nan, "complex": 1j, "object": object(), "type": int, "bytes": b"x", "dict": {},
            "words": "nonsense", "numpy nan": np.float32("nan"), "objects": np.array([None, 1]),
            "strings": np.array(["a"])}  # fmt: skip
OTHERS = {"none": None, "true": True, "zero": 0, "minus one": -1, "half": 0.5, "inf": math.inf, "huge": 10**30,
          "empty": "", "list": [], "numbers": [1, 2], "pair": (1, 2), "triple": (1, 2, 3), "function": lambda: 0,
          "scalar": torch.tensor(0.5), "vector": torch.ones(3), "integers": torch.tensor([1, 2]),
          "booleans": torch.ones(2, 2) > 0, "half precision": torch.ones(2, 4, 5, 8).half(),
          "other rank": torch.ones(2, 4, 8), "other shape": torch.ones(2, 4, 5, 9), "without elements": torch.ones(0),
          "no heads": torch.ones(2, 0, 5, 8), "complex tensor": torch.ones(2, 4, 5, 8) * 1j,
          "meta": torch.ones(2, 4, 5, 8, device="meta"), "sparse": torch.ones(2, 4, 5, 8).to_sparse(),
          "array": np.ones((2, 4, 5, 8), np.float32), "other byte order": np.ones((2, 4, 5, 8), ">f4"),
          "dates": np.array(["2020-01-01"], "datetime64[D]"), "array of integers": np.arange(3),
          "read-only": np.broadcast_to(np.float32(1), (2, 4, 5, 8))}  # fmt: skip
VALUES = {**NONSENSE, **OTHERS}
# Arguments for which a value of NONSENSE has a meaning or is data.
TAKEN = {("table", "numpy nan"), ("relative_logits", "numpy nan")}
# A function that raises an error of its own.
CALLED = {("score", "type"), ("mask", "type"), ("weight", "type"), ("normalizer", "type")}


def is_taken(function, name, value):
    """Whether a value of NONSENSE is taken: the elements of arrays are read, and checked, by calls of `attention`."""
    is_builder = function.__module__ in ("saccade.masks", "saccade.scores")
    return (name, value) in TAKEN or is_builder and value in ("objects", "strings")


def names_of(function):
    """The arguments, and what messages about caches call new rows."""
    return [*CALLS[function], "new row", "a row that", "buckets", *inspect.signature(function).parameters]


def check(function, chosen):
    """What is wrong with a call, in which some arguments are those values of VALUES; None if nothing."""
    given = {name: x.clone() if isinstance(x, torch.Tensor) else x for name, x in CALLS[function].items()}
    given |= {name: VALUES[value] for name, value in chosen.items()}
    if function is saccade.set_num_threads and type(given["count"]) is int and given["count"] > 0:
        return None
    parameters = inspect.signature(function).parameters
    first = [given.pop(name) for name, each in parameters.items() if each.kind is each.POSITIONAL_ONLY and name in given]
    try:
        function(*first, **given)
    except (*EXPECTED, FileNotFoundError) as error:
        if CALLED.intersection(chosen.items()) or (function is saccade.compile and isinstance(error, OF_FILES)):
            return None
        text = "\n".join([str(error), *getattr(error, "__notes__", [])])
        if found := FOREIGN.search(text):
            return f"{type(error).__name__} with {found[0]!r}: {text:.300}"
        if not any(re.search(rf"\b{re.escape(name)}", text) for name in names_of(function)):
            return f"{type(error).__name__} names no argument: {text:.300}"
    except Exception as error:
        return f"raises {type(error).__name__}: {error!s:.300}"
    else:
        if taken := [f"{name}={value}" for name, value in chosen.items()
                     if value in NONSENSE and not is_taken(function, name, value)]:  # fmt: skip
            return f"accepts {', '.join(taken)}"
    return None


def of_seed(seed):
    choose = random.Random(seed)
    function = choose.choice(list(CALLS))
    names = choose.sample(list(CALLS[function]), min(len(CALLS[function]), choose.choice((1, 1, 1, 2))))
    return function, {name: choose.choice(list(VALUES)) for name in names}


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--first-seed", type=int, default=0)
    options.add_argument("--count", type=int, default=200)
    options.add_argument("--seed", type=int)
    options.add_argument("--all", action="store_true")
    given = options.parse_args()
    warnings.simplefilter("ignore")
    if given.all:
        calls = [(function, {name: value}) for function, named in CALLS.items() for name in named for value in VALUES]
    else:
        seeds = [given.seed] if given.seed is not None else range(given.first_seed, given.first_seed + given.count)
        calls = map(of_seed, seeds)
    failed = 0
    for count, (function, chosen) in enumerate(calls, 1):
        if wrong := check(function, chosen):
            failed += 1
            print(f"{function.__module__}.{function.__qualname__}({', '.join(f'{n}=<{v}>' for n, v in chosen.items())}): {wrong}",
                  flush=True)  # fmt: skip
    print(f"{count} calls, {failed} wrong")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
