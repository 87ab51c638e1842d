"""What masks cost and save: pairs that are worked on beside those that are needed, time beside FlexAttention, and what a mask
takes to build.

Visited pairs are counted from results (`saccade_bench/visited.py`), times are medians of paired rounds.
"""

import argparse
import os
import pathlib
import statistics
import sys
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAUSE_SECONDS = 0.05  # pools spin for a moment after a call

LENGTH, BUILD_LENGTH = 8192, 65536
COUNTED = [("causal", 512), ("causal", 1024), ("window 512", LENGTH), ("64 documents", LENGTH),
           ("64 documents, causal", LENGTH), ("longformer", LENGTH), ("bigbird", LENGTH), ("swin", 4096),
           ("neighbourhood", 4096)]  # fmt: skip
PAIRED = ["window 512", "64 documents"]
TIMED = ["full", "causal", "window 512", "64 documents", "64 documents, causal", "longformer", "bigbird"]
BUILT = ["causal", "window 512", "64 documents", "64 documents, causal", "longformer", "bigbird", "swin", "neighbourhood"]

# Largest ratio of visited pairs to needed ones; least ratio of FlexAttention's time to ours, of its kernel alone and with its
# mask; milliseconds to build any mask.
MAX_VISITED_RATIO = {("causal", 512): 1.15, ("causal", 1024): 1.15, ("64 documents", LENGTH): 1.35}
MIN_SPEEDUP = {("window 512", "f32"): (4.5, 50), ("window 512", "bf16"): (10, 40)}
MAX_BUILD_MS = 1.0


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="five rounds")
    parser.add_argument("--part", action="append", choices=["built", "timed", "counted"], help="only this one; repeatable")
    parser.add_argument("--mask", action="append", help="only this one; repeatable")
    parser.add_argument("--no-peers", action="store_true", help="without FlexAttention")
    parser.add_argument("--save", action="store_true", help="write into benchmarks/results instead of build/bench")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "bench", help="folder of the results")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "dev", help="the build tree with the package")
    options = parser.parse_args()
    options.rounds = 5 if options.quick else options.rounds
    options.part = options.part or ["built", "timed", "counted"]
    options.is_wanted = lambda name: not options.mask or name in options.mask
    options.build, options.out = options.build.resolve(), options.out.resolve()
    return options


def judged(text, found, wanted, is_met):
    """A figure with its bar, where it has one."""
    return text if wanted is None else f"{text} ({'met' if is_met(found, wanted) else 'MISSED'}: {wanted:g})"


def counted_rows(options):
    """Needed pairs of a head, and how many times as many each type of kernel visits."""
    import torch
    from saccade_bench import mask_cases, visited

    rows = []
    for name, length in COUNTED:
        if not options.is_wanted(name):
            continue
        mask = mask_cases.library(length)[name]
        row = [name, f"{length:,}"]
        for to_type in (lambda array: array, lambda array: torch.from_numpy(array).bfloat16()):
            # An array of torch's is asked for its numbers by visited.count.
            found = visited.count(mask, length, to_type)
            row += [f"{found.needed:,}"] if len(row) == 2 else []
            bar = MAX_VISITED_RATIO.get((name, length))
            row.append(judged(f"{found.ratio:.3f}", found.ratio, bar, lambda ratio, most: ratio <= most))
        rows.append(row)
        print(f"counted: {' | '.join(row)}", flush=True)
    return rows


def paired(ours, theirs, name, type, rounds):
    """(our milliseconds, their milliseconds, ratio, (their mask's milliseconds, ratio with the mask)); the last three are None
    without a peer."""
    contenders = {"ours": ours, "theirs": theirs} if theirs else {"ours": ours}
    expected, notes = {}, {}
    for label, contender in contenders.items():
        expected[label], notes[label] = contender.call("prepare", name, LENGTH, type)
    if theirs:
        difference = np.abs(ours.call("sample") - theirs.call("sample")).max()
        from saccade_bench.mask_cases import TOLERANCE

        assert difference <= TOLERANCE[type], f"{name} {type}: results differ by {difference}"
    seconds = {label: [] for label in contenders}
    for number in range(rounds):
        for label in list(contenders)[:: -1 if number % 2 else 1]:
            time.sleep(PAUSE_SECONDS)
            seconds[label].append(contenders[label].call("turn", expected[label])[0])
    middle = {label: statistics.median(values) for label, values in seconds.items()}
    if not theirs:
        return middle["ours"], None, None, None, None
    building = notes["theirs"]["block mask"]
    ratio = statistics.median(b / a for a, b in zip(seconds["ours"], seconds["theirs"]))
    whole = statistics.median((b + building) / a for a, b in zip(seconds["ours"], seconds["theirs"]))
    return middle["ours"], middle["theirs"], ratio, building, whole


def timed_rows(options):
    """Time under every mask: beside the pairs of the full square, and beside FlexAttention where it is a peer."""
    from saccade_bench import mask_cases, visited
    from saccade_bench.workers import Remote

    ours = Remote("saccade", mask_cases.OurMasks, options.threads, options.threads)
    flex = None if options.no_peers else Remote("flex", mask_cases.FlexMasks, options.threads, options.threads)
    rows = []
    for type in mask_cases.TYPES:
        full = None
        for name in filter(options.is_wanted, TIMED):
            peer = flex if name in PAIRED else None
            few = 5 if name in ("full", "causal") else options.rounds
            mine, theirs, ratio, building, whole = paired(ours, peer, name, type, few)
            pairs = LENGTH**2 if name == "full" else visited.needed(mask_cases.library(LENGTH)[name], LENGTH)
            rate = 4 * mask_cases.HEADS * mask_cases.DEPTH * pairs / mine / 1e9
            full = rate if name == "full" else full
            share = f"{rate / full:.2f}" if full else ""
            row = [name, type, f"{mine * 1e3:.1f}", f"{rate:.0f}", share, "", "", "", ""]
            if peer:
                bars = MIN_SPEEDUP.get((name, type), (None, None))
                reached = lambda found, least: found >= least
                row[5:] = [f"{theirs * 1e3:.0f}", judged(f"{ratio:.1f}×", ratio, bars[0], reached), f"{building * 1e3:.0f}",
                           judged(f"{whole:.0f}×", whole, bars[1], reached)]  # fmt: skip
            rows.append(row)
            print(f"timed: {' | '.join(row)}", flush=True)
    for remote in filter(None, (ours, flex)):
        remote.close()
    return rows


def built_rows(options):
    from saccade_bench import mask_cases
    from saccade_bench.workers import Remote

    rows = []
    for name in filter(options.is_wanted, BUILT):
        with Remote("saccade", mask_cases.MaskBuilding, options.threads, options.threads) as worker:
            seconds, needed = worker.call("measure", name, BUILD_LENGTH)
        bar = MAX_BUILD_MS if "documents" in name else None
        milliseconds = judged(f"{seconds * 1e3:.2f}", seconds * 1e3, bar, lambda found, most: found <= most)
        rows.append([name, milliseconds, f"{needed / 2**20:.1f}"])
        print(f"built: {' | '.join(rows[-1])}", flush=True)
    return rows


def markdown(options):
    import torch
    from saccade_bench import mask_cases
    from saccade_bench.report import processor, table

    heads, depth = mask_cases.HEADS, mask_cases.DEPTH
    parts = [f"{processor()}; {options.threads} threads; torch {torch.__version__}. Medians of {options.rounds} rounds.\n"]
    if "counted" in options.part:
        parts += ["Pairs of a query and a key that a kernel multiplies, for one that the mask lets through:\n",
                  table(["mask", "tokens", "pairs needed", "visited f32", "visited bf16"], counted_rows(options))]  # fmt: skip
    if "timed" in options.part:
        header = ["mask", "type", "ms", "GFLOP/s", "of full", "flex ms", "ratio", "its mask ms", "ratio with it"]
        parts += [f"{LENGTH:,} tokens, {heads} heads, head size {depth}. GFLOP/s are of the pairs needed. FlexAttention is compiled "
                  "for the case; its block mask is made beforehand and timed apart:\n", table(header, timed_rows(options))]
    if "built" in options.part:
        parts += [f"A mask by itself, {BUILD_LENGTH:,} tokens, one head: tables and the tests of all tiles, which find them "
                  "empty:\n", table(["mask", "ms", "MiB"], built_rows(options))]
    return "\n".join(parts)


def main():
    options = parse_arguments()
    sys.path[:0] = [str(ROOT / "benchmarks"), str(options.build / "python")]
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])  # for the workers
    from saccade_bench.report import publish

    publish(markdown(options), "masks", options)


if __name__ == "__main__":
    main()
