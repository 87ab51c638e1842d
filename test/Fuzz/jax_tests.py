#!/usr/bin/env python3
# REQUIRES: jax
# UNSUPPORTED: asan, tsan
# RUN: %python %s
"""JAX's own tests of attention, unmodified, with saccade.jax.dot_product_attention in place of jax.nn's.

Usage: jax_tests.py [PATH] [-k PATTERN]
PATH is tests/nn_test.py of a checkout of JAX. Its tests whose name matches the pattern run as they are and with Saccade. Those
that name the implementation "xla" get Saccade's, and tests that need a GPU skip themselves. Without PATH only the replacement
is tried. Tests that fail with Saccade only are listed; the exit code is 1 if there are any.
"""

import argparse
import collections
import importlib.util
import io
import pathlib
import re
import sys
import unittest
from contextlib import redirect_stderr

import jax
import jax.numpy as jnp

import saccade.jax
from saccade.jax import attention

calls: collections.Counter[str] = collections.Counter()


def replacement(*arguments, implementation=None, **options):
    """Saccade's function, also where a test names JAX's own implementation."""
    implementation = None if implementation == "xla" else implementation
    return saccade.jax.dot_product_attention(*arguments, implementation=implementation, **options)


def count_calls():
    """Counts the calls that kernels compute, and those that JAX does."""
    attend, of_jax = attention._attend, attention._of_jax

    def counted(name, function):
        def call(*arguments, **options):
            calls[name] += 1
            return function(*arguments, **options)

        return call

    attention._attend, attention._of_jax = counted("Saccade", attend), counted("JAX", of_jax)


def load(path, pattern):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    loaded = unittest.TestLoader().loadTestsFromModule(module)
    return [test for suite in loaded for test in suite if re.search(pattern, test.id())]


def run(tests):
    """What became of each test: its failure, "skipped" or "passed"."""
    found = {}
    for test in tests:
        outcome = unittest.TestResult()
        with redirect_stderr(io.StringIO()):
            type(test)(test._testMethodName).run(outcome)
        wrong = [*outcome.failures, *outcome.errors]
        found[test.id()] = wrong[0][1].strip() if wrong else "skipped" if outcome.skipped else "passed"
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("path", nargs="?", type=pathlib.Path)
    parser.add_argument("-k", default="DotProductAttention", metavar="PATTERN", help="the tests to run, a regular expression")
    args = parser.parse_args()
    count_calls()
    original = jax.nn.dot_product_attention
    expected = {}
    if args.path:
        sys.argv = sys.argv[:1]  # which the tests parse
        tests = load(args.path, args.k)
        expected = run(tests)
    jax.nn.dot_product_attention = replacement
    try:
        x = jnp.ones((1, 4, 2, 16))
        jax.nn.dot_product_attention(x, x[:, :0], x[:, :0])  # which JAX computes
        jax.nn.dot_product_attention(x, x, x)
        print(f"replaced: {dict(calls)} calls")
        calls.clear()
        found = run(tests) if args.path else {}
    finally:
        jax.nn.dot_product_attention = original
    ours = {name: said for name, said in found.items() if said != expected[name] and expected[name] == "passed"}
    for name, outcomes in (("as they are", expected), ("with Saccade", found)):
        counts = collections.Counter(x if x in ("passed", "skipped") else "failed" for x in outcomes.values())
        print(f"{name}: {counts['passed']} passed, {counts['skipped']} skipped, {counts['failed']} failed")
    print(f"{len(ours)} pass without Saccade only; calls by {dict(calls)}")
    for name, said in ours.items():
        print(f"{name}\n{said}")
    return 1 if ours else 0


if __name__ == "__main__":
    sys.exit(main())
