"""Speed of output gates and differential attention: calls between calls of plain attention, in one process.

Prints the time of differential attention over that of two attentions of half the heads, and the time of gated attention
over that of plain attention: the median over rounds of the ratio of neighbouring calls, in processor time, so that other
work on the machine counts little. Calls have one thread.
"""

import argparse
import statistics
import time

HEADS = 4


def cases(dtype, depth, queries, keys):
    """{name: (call, plain call)}."""
    import torch

    import saccade

    def drawn(*shape):
        return torch.randn(*shape).to(dtype)

    q, k, v = drawn(1, HEADS, queries, depth), drawn(1, HEADS, keys, depth), drawn(1, HEADS // 2, keys, depth)
    halves = [(q[:, i::2].contiguous(), k[:, i::2].contiguous()) for i in (0, 1)]
    gate, lam, values, weight = drawn(*q.shape), torch.rand(HEADS // 2), drawn(*k.shape), drawn(depth)
    norm = {"norm_eps": 1e-5, "norm_weight": weight, "factor": 0.4}

    def two():
        for query, key in halves:
            saccade.attention(query, key, v)

    return {"differential": (lambda: saccade.differential_attention(q, k, v, lam), two),
            "differential with a norm": (lambda: saccade.differential_attention(q, k, v, lam, **norm), two),
            "gate": (lambda: saccade.attention(q, k, values, gate=gate), lambda: saccade.attention(q, k, values))}


def measure(dtype, depth, queries, keys, rounds):
    """{name: ratios by round}."""
    found = {}
    repeated = max(1, 2**19 // (queries * keys))
    for name, (call, plain) in cases(dtype, depth, queries, keys).items():

        def once(function):
            start = time.process_time()
            for _ in range(repeated):
                function()
            return time.process_time() - start

        once(call), once(plain)  # compiles
        found[name] = []
        for _ in range(rounds):
            before, own, after = once(plain), once(call), once(plain)
            found[name].append(2 * own / (before + after))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--quick", action="store_true", help="five rounds")
    options = parser.parse_args()
    import torch

    import saccade

    saccade.set_num_threads(1)
    torch.set_grad_enabled(False)
    for dtype in (torch.float32, torch.bfloat16):
        for depth in (64, 128):
            for queries, keys in ((1024, 1024), (1, 4096)):
                found = measure(dtype, depth, queries, keys, 5 if options.quick else options.rounds)
                ratios = ", ".join(f"{name} {statistics.median(times):.3f}" for name, times in found.items())
                print(f"{str(dtype).removeprefix('torch.')}, head size {depth}, {queries} queries, {keys} keys: {ratios}",
                      flush=True)


if __name__ == "__main__":
    main()
