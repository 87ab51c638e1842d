"""Tests whose cases are many and alike: a run of the suite takes one of n, `./dev soak` all (test/Long)."""

import zlib

SAMPLED = {
    "test_a_gate": 3,
    "test_compiled_random_function_agrees_with_float64": 2,
    "test_differential_attention": 2,
    "test_each_combination_is_exact_or_refused": 2,
    "test_every_layout_equals_the_formula": 2,
    "test_every_pair_of_options_equals_the_formula": 2,
    "test_gradients_are_those_of_differences": 2,
    "test_operation_agrees_with_calls_for_every_element": 2,
    "test_quantized_caches_and_their_scales_are_updated_in_place": 2,
    "test_random_functions_follow_their_numbers": 2,
    "test_rows_are_appended_as_when_attending": 2,
}
"""The number n of a test function. It is 1 for all others."""


def left_out(names):
    """Of (function, its case) of tests in order, the places of those that a sample leaves out: a pseudo-random choice by
    the name of the case, which is the same in every run. The first case of a function stays."""
    seen = set()
    found = []
    for place, (function, case) in enumerate(names):
        is_chosen = zlib.crc32(case.encode()) % SAMPLED.get(function, 1) == 0
        if function in seen and not is_chosen:
            found.append(place)
        seen.add(function)
    return found
