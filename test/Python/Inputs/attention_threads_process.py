"""Calls `saccade.attention` from two Python threads at once: the same kinds of calls, first met at the same time, give
each thread its own results, and each program is compiled once.
"""

import threading

import torch

import saccade

torch.manual_seed(2)
options = [{}, {"causal": "bottom_right"}, {"causal": 3, "window": 5}, {"scale": 0.3}, {"return_lse": True}]
inputs = [[torch.randn(1, heads, length, 16) for length in (31, 45, 45)] for heads in (1, 3)]
tables = [torch.randn(4) for _ in inputs]


def score(table):
    return lambda s, b, h, i, j: s + table[h]


def call(number, option):
    result = saccade.attention(*inputs[number], score=score(tables[number]), **option)
    return result[0] if option.get("return_lse") else result


start, results = threading.Barrier(2), [[], []]


def work(number):
    for _ in range(20):
        start.wait()
        results[number].append([call(number, option) for option in options])


threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()

assert saccade.cache_info().compilations == len(options), saccade.cache_info()
for number in range(2):
    expected = [call(number, option) for option in options]
    assert len(results[number]) == 20
    for found in results[number]:
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
assert saccade.cache_info().compilations == len(options)
