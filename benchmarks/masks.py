"""Benchmarks of masks: visited pairs relative to needed pairs, time against FlexAttention, and time to build a mask.

Visited pairs are counted from results (`saccade_bench/visited.py`). Times are medians of paired rounds.
"""

import argparse
import os
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAUSE_SECONDS = 0.05  # thread pools spin for a moment after a call

LENGTH, BUILD_LENGTH = 8192, 65536
COUNTED = [("causal", 512), ("causal", 1024), ("window 512", LENGTH), ("64 documents", LENGTH),
           ("64 documents, causal", LENGTH), ("longformer", LENGTH), ("bigbird", LENGTH), ("swin", 4096),
           ("neighbourhood", 4096)]  # fmt: skip
PAIRED = ["window 512", "64 documents"]
TIMED = ["full", "causal", "window 512", "64 documents", "64 documents, causal", "longformer", "bigbird"]
BUILT = ["causal", "window 512", "64 documents", "64 documents, causal", "longformer", "bigbird", "swin", "neighbourhood"]

# Maximum ratio of visited to needed pairs; minimum speedup over FlexAttention, without and with the time of its block
# mask; maximum milliseconds to build a mask.
MAX_VISITED_RATIO = {("causal", 512): 1.15, ("causal", 1024): 1.15, ("64 documents", LENGTH): 1.35}
MIN_SPEEDUP = {("window 512", "f32"): (4.5, 50), ("window 512", "bf16"): (10, 40)}
MAX_BUILD_MS = 1.0


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="five rounds")
    parser.add_argument("--part", action="append", choices=["built", "timed", "counted"], help="only this one; can be repeated")
    parser.add_argument("--mask", action="append", help="only this one; can be repeated")
    parser.add_argument("--no-peers", action="store_true", help="without FlexAttention")
    parser.add_argument("--save", action="store_true", help="write into benchmarks/results instead of build/bench")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "bench", help="output folder")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "dev", help="build tree with the package")
    options = parser.parse_args()
    options.rounds = 5 if options.quick else options.rounds
    options.part = options.part or ["built", "timed", "counted"]
    options.is_selected = lambda name: not options.mask or name in options.mask
    options.build, options.out = options.build.resolve(), options.out.resolve()
    return options


def judged(text, found, threshold, is_met):
    """`text` with the verdict on its threshold; `text` alone if the threshold is None."""
    return text if threshold is None else f"{text} ({'met' if is_met(found, threshold) else 'MISSED'}: {threshold:g})"


def counted_rows(options):
    """Rows of needed pairs of a head and the visited ratio, f32 and bf16."""
    import torch

    from saccade_bench import mask_cases, visited

    rows = []
    for name, length in COUNTED:
        if not options.is_selected(name):
            continue
        mask = mask_cases.library(length)[name]
        row = [name, f"{length:,}"]
        for to_type in (lambda array: array, lambda array: torch.from_numpy(array).bfloat16()):
            found = visited.count(mask, length, to_type)
            row += [f"{found.needed:,}"] if len(row) == 2 else []
            threshold = MAX_VISITED_RATIO.get((name, length))
            row.append(judged(f"{found.ratio:.3f}", found.ratio, threshold, lambda ratio, maximum: ratio <= maximum))
        rows.append(row)
        print(f"counted: {' | '.join(row)}", flush=True)
    return rows


def paired(ours, theirs, name, type, rounds):
    """Median seconds (ours, theirs, ratio, theirs to build the block mask, ratio with the mask); all but the first are None
    without a peer."""
    contenders = {"ours": ours, "theirs": theirs} if theirs else {"ours": ours}
    expected, notes = {}, {}
    for label, contender in contenders.items():
        expected[label], notes[label] = contender.call("prepare", name, LENGTH, type)
    if theirs:
        difference = abs(ours.call("sample") - theirs.call("sample")).max()
        from saccade_bench.mask_cases import TOLERANCE

        assert difference <= TOLERANCE[type], f"{name} {type}: results differ by {difference}"
    seconds = {label: [] for label in contenders}
    for number in range(rounds):
        for label in list(contenders)[:: -1 if number % 2 else 1]:
            time.sleep(PAUSE_SECONDS)
            seconds[label].append(contenders[label].call("timed_run", expected[label])[0])
    middle = {label: statistics.median(values) for label, values in seconds.items()}
    if not theirs:
        return middle["ours"], None, None, None, None
    building = notes["theirs"]["block mask"]
    ratio = statistics.median(b / a for a, b in zip(seconds["ours"], seconds["theirs"]))
    whole = statistics.median((b + building) / a for a, b in zip(seconds["ours"], seconds["theirs"]))
    return middle["ours"], middle["theirs"], ratio, building, whole


def timed_rows(options):
    """Rows of time under every mask, relative to full attention and, for PAIRED masks, to FlexAttention."""
    from saccade_bench import mask_cases, visited
    from saccade_bench.workers import WorkerProcess

    ours = WorkerProcess("saccade", mask_cases.OurMasks, options.threads, options.threads)
    flex = None if options.no_peers else WorkerProcess("flex", mask_cases.FlexMasks, options.threads, options.threads)
    rows = []
    for type in mask_cases.TYPES:
        full = None
        for name in filter(options.is_selected, TIMED):
            peer = flex if name in PAIRED else None
            rounds = 5 if name in ("full", "causal") else options.rounds
            mine, theirs, ratio, building, whole = paired(ours, peer, name, type, rounds)
            pairs = LENGTH**2 if name == "full" else visited.needed(mask_cases.library(LENGTH)[name], LENGTH)
            rate = 4 * mask_cases.HEADS * mask_cases.DEPTH * pairs / mine / 1e9
            full = rate if name == "full" else full
            share = f"{rate / full:.2f}" if full else ""
            row = [name, type, f"{mine * 1e3:.1f}", f"{rate:.0f}", share, "", "", "", ""]
            if peer:
                minima = MIN_SPEEDUP.get((name, type), (None, None))
                reached = lambda found, minimum: found >= minimum
                row[5:] = [f"{theirs * 1e3:.0f}", judged(f"{ratio:.1f}×", ratio, minima[0], reached), f"{building * 1e3:.0f}",
                           judged(f"{whole:.0f}×", whole, minima[1], reached)]  # fmt: skip
            rows.append(row)
            print(f"timed: {' | '.join(row)}", flush=True)
    for worker in filter(None, (ours, flex)):
        worker.close()
    return rows


def built_rows(options):
    from saccade_bench import mask_cases
    from saccade_bench.workers import WorkerProcess

    rows = []
    for name in filter(options.is_selected, BUILT):
        with WorkerProcess("saccade", mask_cases.MaskBuilding, options.threads, options.threads) as worker:
            seconds, needed = worker.call("measure", name, BUILD_LENGTH)
        threshold = MAX_BUILD_MS if "documents" in name else None
        milliseconds = judged(f"{seconds * 1e3:.2f}", seconds * 1e3, threshold, lambda found, maximum: found <= maximum)
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
        parts += ["Query-key pairs that the kernel multiplies, relative to the pairs that the mask keeps:\n",
                  table(["mask", "tokens", "pairs needed", "visited f32", "visited bf16"], counted_rows(options))]  # fmt: skip
    if "timed" in options.part:
        header = ["mask", "type", "ms", "GFLOP/s", "of full", "flex ms", "ratio", "flex mask ms", "ratio with mask"]
        parts += [f"{LENGTH:,} tokens, {heads} heads, head_dim {depth}. GFLOP/s count the needed pairs. FlexAttention is "
                  "compiled for the case; its block mask is built and timed separately:\n", table(header, timed_rows(options))]
    if "built" in options.part:
        parts += [f"The mask alone, {BUILD_LENGTH:,} tokens, one head: its tables, and the tests of all tiles, all of which are "
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
