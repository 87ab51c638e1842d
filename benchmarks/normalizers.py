"""Speed of attention without a softmax: calls with a normalizer between calls with the softmax, in one process.

Prints the time of softmax attention over that with each normalizer: the median over rounds of the ratio of neighbouring
calls, in processor time, so that other work on the machine counts little. Calls have one thread.
"""

import argparse
import math
import statistics
import time

LENGTH, HEADS = 2048, 1


def normalizers(length):
    """{name: normalizer}."""
    import torch

    bias = -math.log(length)
    return {"sigmoid": "sigmoid", "silu": "silu", "relu_squared": "relu_squared",
            "stick_breaking": "stick_breaking",
            "sigmoid with a bias": lambda s, b, h, i, j: torch.sigmoid(s + bias)}  # fmt: skip


def measure(dtype, depth, rounds):
    """{name: ratios by round}."""
    import torch

    import saccade

    q, k, v = (torch.randn(1, HEADS, LENGTH, depth).to(dtype) for _ in range(3))
    output = torch.empty_like(q)

    def once(normalizer):
        start = time.process_time()
        saccade.attention(q, k, v, normalizer=normalizer, out=output)
        return time.process_time() - start

    found = {name: [] for name in normalizers(LENGTH)}
    for number in range(rounds + 1):
        for name, normalizer in normalizers(LENGTH).items():
            before, own, after = once("softmax"), once(normalizer), once("softmax")
            if number:  # the first round compiles
                found[name].append((before + after) / 2 / own)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--quick", action="store_true", help="five rounds")
    options = parser.parse_args()
    import torch

    import saccade

    saccade.set_num_threads(1)
    print(f"time of softmax attention / time with the normalizer, {LENGTH} keys")
    for dtype in (torch.float32, torch.bfloat16):
        for depth in (64, 128):
            found = measure(dtype, depth, 5 if options.quick else options.rounds)
            ratios = ", ".join(f"{name} {statistics.median(times):.2f}" for name, times in found.items())
            print(f"{str(dtype).removeprefix('torch.')}, head size {depth}: {ratios}")


if __name__ == "__main__":
    main()
