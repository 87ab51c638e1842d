#!/usr/bin/env python3
# REQUIRES: torch, expecttest
# UNSUPPORTED: asan, tsan
# RUN: %python %s
"""PyTorch's own tests of attention on the CPU, unmodified, with Saccade in place of its kernels.

Usage: pytorch_tests.py [PATH] [-k PATTERN] [--math] [--table FILE]
PATH is a file of tests of a checkout of PyTorch, such as test/test_transformers.py. Its tests for the CPU run three times: as
they are, under saccade.torch.enabled(), and with Saccade as implementation of flash attention; blocks of sdpa_kernel(MATH),
which tests compare with, stay PyTorch's, unless --math is given. Without PATH the sample inputs of PyTorch's database of
operators (OpInfo), which the package of PyTorch contains, are computed. The calls that Saccade computed are counted, and those
that PyTorch computed, with their reasons; --table writes them for each test, separated by tabs. Tests that fail with Saccade
only are listed; the exit code is 1 if there are any.
"""

import argparse
import collections
import contextlib
import importlib.util
import io
import os
import pathlib
import re
import sys
import types
import unittest
import warnings

import torch
import torch.nn.functional as F
from torch.nn import attention as attention_module

import saccade.torch
from saccade.torch import fallback, overrides, sdpa

# Modules of PyTorch's test folder that tests of other devices import.
ABSENT = {"test_cpp_extensions_open_device_registration": ("remove_build_path", "generate_faked_module")}
# Words in the names of tests of other devices. Those of PrivateUse1 compile an extension of PyTorch.
OTHER_DEVICES = ("cuda", "privateuse1")
COMPUTED = "computed by Saccade"
calls: collections.Counter[str] = collections.Counter()
"""The calls by who computed them: COMPUTED, or the reason why PyTorch did."""


def count_calls():
    """Counts the calls of saccade.torch.sdpa that return a result, those that it gives to PyTorch, and those that
    PyTorch keeps."""

    def counted(name):
        original = getattr(sdpa, name)

        def call(*args, **kwargs):
            result = original(*args, **kwargs)
            calls[COMPUTED] += result is not None
            return result

        setattr(sdpa, name, call)

    def resolve(function, refused, *args, **kwargs):
        calls[f"PyTorch: {refused.reason}"] += 1
        return original_resolve(function, refused, *args, **kwargs)

    def is_active():
        calls["PyTorch: sdpa_kernel(MATH)"] += (found := original_is_active()) is False and fallback.state.is_suspended
        return found

    for name in ("_direct", "compute", "flash"):
        counted(name)
    original_resolve, sdpa.resolve = sdpa.resolve, resolve
    original_is_active, overrides._is_active = overrides._is_active, is_active


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


# --- files of tests -----------------------------------------------------------------------------------------------------


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


def load(path, pattern):
    """The tests for the CPU of a file."""
    for name, members in ABSENT.items():
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = types.ModuleType(name)
            for member in members:
                setattr(sys.modules[name], member, None)
    os.environ.setdefault("PYTORCH_PRINT_REPRO_ON_FAILURE", "0")  # the last line of a failure is its message
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    loader = unittest.TestLoader()
    tests = [test for suite in loader.loadTestsFromModule(module) for test in suite]
    return [test for test in tests
            if re.search(pattern, test.id()) and not any(device in test.id().lower() for device in OTHER_DEVICES)]


class Outcomes(unittest.TestResult):
    """Keeps for each test what became of it, and who computed its calls."""

    def __init__(self):
        super().__init__()
        self.found, self.calls = {}, {}

    def startTest(self, test):
        super().startTest(test)
        self.failures, self.errors, self.skipped = [], [], []
        calls.clear()

    def stopTest(self, test):
        super().stopTest(test)
        wrong = [*self.failures, *self.errors]
        name = test.id().partition(".")[2]
        self.found[name] = wrong[0][1].strip().splitlines()[-1] if wrong else "skipped" if self.skipped else "passed"
        self.calls[name] = +calls


def run(tests, way):
    """Runs tests in one of WAYS."""
    outcomes = Outcomes()
    with WAYS[way](), contextlib.redirect_stderr(io.StringIO()):
        unittest.TestSuite([type(test)(test._testMethodName) for test in tests]).run(outcomes)
    if len(outcomes.found) != len(tests):  # the fixture of a class failed
        raise RuntimeError(f"{len(tests) - len(outcomes.found)} tests did not run: {outcomes.errors + outcomes.skipped}")
    return outcomes


def print_calls(outcomes):
    """The calls of all tests, by who computed them."""
    total = sum(outcomes.calls.values(), collections.Counter())
    for reason, count in total.most_common():
        tests = sum(reason in found for found in outcomes.calls.values())
        print(f"  {count} calls in {tests} tests: {reason}")


def run_file(args):
    if not args.math:
        keep_math()
    tests = load(args.path, args.k)
    expected = {}
    lines = ["way\ttest\toutcome\tcalls"]
    failures = 0
    for way in WAYS:
        outcomes = run(tests, way)
        expected = expected or outcomes.found
        counts = collections.Counter(x if x in ("passed", "skipped") else "failed" for x in outcomes.found.values())
        ours = {name: said for name, said in outcomes.found.items() if said != "passed" and expected[name] == "passed"}
        print(f"{way}: {counts['passed']} passed, {counts['skipped']} skipped, {counts['failed']} failed; {len(ours)} pass "
              "without Saccade only")
        for name, said in ours.items():
            print(f"  {name}: {said}")
        print_calls(outcomes)
        for name, said in outcomes.found.items():
            who = "; ".join(f"{count} {reason}" for reason, count in outcomes.calls[name].items())
            lines.append(f"{way}\t{name}\t{said}\t{who}")
        failures += len(ours)
    if args.table:
        args.table.write_text("\n".join(lines) + "\n", encoding="utf-8")
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
            calls.clear()
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
                  f"{calls[COMPUTED]} calls computed")
            failures += differ
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("path", nargs="?", type=pathlib.Path)
    parser.add_argument("-k", default="", metavar="PATTERN", help="only tests whose name contains a match of this regular expression")
    parser.add_argument("--math", action="store_true", help="Saccade computes blocks of sdpa_kernel(MATH), too")
    parser.add_argument("--table", type=pathlib.Path, metavar="FILE", help="write a line for each test and way")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    count_calls()
    return 1 if (run_file(args) if args.path else run_samples()) else 0


if __name__ == "__main__":
    sys.exit(main())
