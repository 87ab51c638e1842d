#!/usr/bin/env python3
# REQUIRES: torch, expecttest
# UNSUPPORTED: asan, tsan
# RUN: %python %s
"""PyTorch's own tests of attention on the CPU, unmodified, with Saccade in place of its kernels.

Usage: pytorch_tests.py [PATH] [-k WORD] [--math]
PATH is test/test_transformers.py of a checkout of PyTorch. Its tests for the CPU run three times: as they are, under
saccade.torch.enabled(), and with Saccade as implementation of flash attention; blocks of sdpa_kernel(MATH), which tests compare
with, stay PyTorch's, unless --math is given. Without PATH the sample inputs of PyTorch's database of operators (OpInfo), which
the package of PyTorch contains, are computed. Tests that fail with Saccade only are listed; the exit code is 1 if there are any.
"""

import argparse
import collections
import contextlib
import importlib.util
import io
import pathlib
import sys
import types
import unittest
import warnings

import torch
import torch.nn.functional as F
from torch.nn import attention as attention_module

import saccade.torch
from saccade.torch import fallback, sdpa

# Modules of PyTorch's test folder that tests of other devices import.
ABSENT = {"test_cpp_extensions_open_device_registration": ("remove_build_path", "generate_faked_module")}
computed = collections.Counter()


def counted(name):
    """Counts the calls of a function of saccade.torch.sdpa that return a result."""
    original = getattr(sdpa, name)

    def call(*args, **kwargs):
        result = original(*args, **kwargs)
        computed["calls"] += result is not None
        return result

    setattr(sdpa, name, call)


@contextlib.contextmanager
def flash():
    """Saccade computes PyTorch's fused operator."""
    saccade.torch.register_flash_impl()
    attention_module.activate_flash_attention_impl("saccade")
    try:
        yield
    finally:
        attention_module.restore_flash_attention_impl()


WAYS = {"as they are": contextlib.nullcontext, "enabled": saccade.torch.enabled, "flash": flash}


# --- test_transformers.py ---------------------------------------------------------------------------------------------


def keep_math():
    """Makes sdpa_kernel(MATH) suspend Saccade, which a test's own reference must not use."""
    original = attention_module.sdpa_kernel

    @contextlib.contextmanager
    def sdpa_kernel(backends, *args, **kwargs):
        listed = backends if isinstance(backends, list) else [backends]
        is_math = listed == [attention_module.SDPBackend.MATH]
        with original(backends, *args, **kwargs), fallback.suspended() if is_math else contextlib.nullcontext():
            yield

    attention_module.sdpa_kernel = sdpa_kernel


def load(path, word):
    """The tests for the CPU of a file."""
    for name, members in ABSENT.items():
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = types.ModuleType(name)
            for member in members:
                setattr(sys.modules[name], member, None)
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    loader = unittest.TestLoader()
    tests = [test for suite in loader.loadTestsFromModule(module) for test in suite]
    return [test for test in tests if "cuda" not in test.id().lower() and word in test.id()]


def run(tests, way):
    """Runs tests in one of WAYS: their outcomes by name, and the number of calls that Saccade computed."""
    outcomes = {}
    computed.clear()
    with WAYS[way](), contextlib.redirect_stderr(io.StringIO()):
        for test in tests:
            result = unittest.TestResult()
            type(test)(test._testMethodName).run(result)
            wrong = [*result.failures, *result.errors]
            name = test.id().rpartition(".")[2]
            outcomes[name] = wrong[0][1].strip().splitlines()[-1] if wrong else "skipped" if result.skipped else "passed"
    return outcomes, computed["calls"]


def run_file(args):
    if not args.math:
        keep_math()
    tests = load(args.path, args.k)
    expected, _ = run(tests, "as they are")
    failures = 0
    for way in list(WAYS)[1:]:
        found, calls = run(tests, way)
        counts = collections.Counter(x if x in ("passed", "skipped") else "failed" for x in found.values())
        ours = {name: said for name, said in found.items() if said not in ("passed", "skipped") and expected[name] == "passed"}
        print(f"{way}: {counts['passed']} passed, {counts['skipped']} skipped, {counts['failed']} failed, of which {len(ours)} "
              f"pass without Saccade; it computed {calls} calls")
        for name, said in ours.items():
            print(f"  {name}: {said}")
        failures += len(ours)
    return failures


# --- OpInfo -----------------------------------------------------------------------------------------------------------


def run_samples():
    """The samples of F.scaled_dot_product_attention without dropout, by the direct function and both replacements."""
    from torch.testing._internal.common_methods_invocations import op_db

    (info,) = [op for op in op_db if op.name == "nn.functional.scaled_dot_product_attention"]
    failures = 0
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        samples = [x for x in info.sample_inputs("cpu", dtype, requires_grad=False) if not x.kwargs.get("dropout_p")]
        for way in ("direct", "enabled", "flash"):
            function = saccade.torch.scaled_dot_product_attention if way == "direct" else F.scaled_dot_product_attention
            differ = 0
            computed.clear()
            for sample in samples:
                exact = F.scaled_dot_product_attention(*[x.double() for x in (sample.input, *sample.args)], **{
                    name: x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
                    for name, x in sample.kwargs.items()})
                with WAYS.get(way, contextlib.nullcontext)():
                    found = function(sample.input, *sample.args, **sample.kwargs)
                # Scores are rounded relative to their size, and weights by as much.
                query, key = sample.input.double(), sample.args[0].double()
                size = query.norm(dim=-1).max() * key.norm(dim=-1).max() / query.shape[-1] ** 0.5
                allowed = torch.finfo(dtype).eps * (8 + size.item()) * max(1.0, exact.abs().max().item())
                differ += not torch.allclose(found.double(), exact, atol=allowed, rtol=0, equal_nan=True)
            print(f"{str(dtype).removeprefix('torch.')}, {way}: {len(samples)} samples, {differ} differ, "
                  f"{computed['calls']} calls computed")
            failures += differ
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("path", nargs="?", type=pathlib.Path)
    parser.add_argument("-k", default="", metavar="WORD", help="only tests with this word in their name")
    parser.add_argument("--math", action="store_true", help="Saccade computes blocks of sdpa_kernel(MATH), too")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in ("_direct", "compute", "flash"):
        counted(name)
    return 1 if (run_file(args) if args.path else run_samples()) else 0


if __name__ == "__main__":
    sys.exit(main())
