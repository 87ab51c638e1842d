"""Counts the machine instructions of a full tile in the loops of attention, gradient and matmul kernels, without a GPU.

ptxas assembles the kernels and nvdisasm disassembles them. A count is that of one warp for 64 keys (for gradients of keys and
values, 64 queries; for matmuls, 64 of the reduction). Tiles that are full, with another tile to copy and scores that need no
shift, take the counted path. A loop inside of it, such as a wait for a barrier, counts once, and an instruction with a predicate
like any other; of two branches the shorter one counts. For each product of wgmma of a tile, "in flight" are the special functions and
the f32 instructions between its last wgmma and the wait for it: ptxas may move the wait up.
For sm_90a, the instructions of a warp and a whole tile are compared with those of FlashAttention-3, counted likewise. One comparison is with a
tile of as many keys: in its causal kernel, the loop over tiles without a mask has such tiles. The other one is for the same number of keys,
in the tiles of its kernel without a mask.
Columns are classes of instructions; "other" are all but HMMA, for 64 keys. Compared kernels also have the "keys" of a tile and the
"other of tile", of a whole tile. Registers and spilled bytes are those of a thread.
--check compares the counts with benchmarks/data/sass.json, --update writes them there and fits the cost model to the measurements in it.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks" / "device"))
from kinds import Kind, Linear
from saccade_bench.sass import count_classes, count_in_flight, main_loop, resources

DATA = ROOT / "benchmarks" / "data" / "sass.json"
ALLOWED = 1.02  # of the recorded number of other instructions
REFERENCE, RATIO = "FlashAttention-3", 0.96  # other instructions of a tile, ours / the reference's with as many keys
IN_FLIGHT = ("MUFU", "FP32")  # classes of which instructions between the start of a product and the wait for it are counted
# The GPU of the measurements (H200): parts of multiprocessors that issue instructions, and their highest clock in Hz.
ISSUERS, CLOCK = 132 * 4, 1.98e9
# Names of the data file, with the arguments of their kinds.
MASKS = {"full": {}, "causal": {"mask": "causal"}, "window": {"mask": "window31"}, "alibi": {"score": "alibi"},
         "softcap": {"score": "softcap"}}
GRADIENT_MASKS = ("full", "causal", "softcap")


@dataclasses.dataclass(frozen=True)
class Target:
    """A kernel of a target."""

    name: str
    kernel: str  # the end of its name
    keys: int  # of a step
    products: Callable[[int], int]  # tensor-core instructions of a warp in a step, by head size
    gradient: str = ""  # what is computed, if it is not the result
    masks: tuple[str, ...] = tuple(MASKS)
    is_compared: bool = False  # with REFERENCE


TARGETS = [
    # 32 rows: two tiles of 16 rows, for tiles of 8 keys by 16 columns and of 8 columns by 16 keys.
    Target("sm_80", "_attention", 64, lambda depth: 2 * (64 // 8 * depth // 16 + depth // 8 * 64 // 16)),
    # 64 rows of four warps: 16 columns or 16 keys at a time.
    Target("sm_90a", "_attention_sm_90a", 128, lambda depth: depth // 16 + 128 // 16, is_compared=True),
    # 16 rows: three or four products.
    Target("sm_80", "_gradient_attention_gradient_query", 64, lambda depth: 3 * 64 // 8 * depth // 16, " dq", GRADIENT_MASKS),
    Target("sm_80", "_gradient_attention_gradient_key_value", 64, lambda depth: 4 * 64 // 8 * depth // 16, " dk dv", GRADIENT_MASKS),
    # 64 rows: 16 columns of a head or 16 rows of a tile at a time.
    Target("sm_90a", "_gradient_attention_gradient_query_sm_90a", 64, lambda depth: 2 * depth // 16 + 64 // 16, " dq", GRADIENT_MASKS),
    Target("sm_90a", "_gradient_attention_gradient_key_value_sm_90a", 64, lambda depth: 2 * depth // 16 + 2 * 64 // 16, " dk dv",
           GRADIENT_MASKS),
]


# A linear layer: a product of 64 × 128 for each 16 of the reduction.
MATMUL = Target("sm_90a", "_matmul_bias_sm_90a", 64, lambda depth: depth // 16)


def find_tool(name):
    """A CUDA tool from .venv or the PATH."""
    packaged = sorted((ROOT / ".venv").glob(f"lib/python*/site-packages/nvidia/cu*/bin/{name}"))
    tool = str(packaged[0]) if packaged else shutil.which(name)
    if not tool:
        sys.exit(f"sass.py: {name} is neither in .venv nor on the PATH")
    return tool


def kernels():
    """{name: (target, head size, program)}"""
    found = {}
    for target in TARGETS:
        for depth in (64, 128):
            for mask in target.masks:
                kind = Kind("bf16", depth, **MASKS[mask], gradient=bool(target.gradient))
                found[f"{target.name} d{depth} {mask}{target.gradient}"] = target, depth, kind
    return {**found, "sm_90a matmul": (MATMUL, MATMUL.keys, Linear("bf16"))}


def measure(build, name, target, depth, kind, folder):
    """Counts by class, registers and spilled bytes of one kernel."""
    source, ptx, cubin = (folder / f"kernel.{suffix}" for suffix in ("mlir", "ptx", "cubin"))
    source.write_text(kind.program())
    subprocess.run([build / "bin" / "saccade-compile", source, f"--target={target.name}", "--emit=ptx", "-o", ptx],
                   check=True, capture_output=True)  # fmt: skip
    log = subprocess.run([find_tool("ptxas"), "-v", f"-arch={target.name}", ptx, "-o", cubin], check=True,
                         capture_output=True, text=True).stderr  # fmt: skip
    text = subprocess.run([find_tool("nvdisasm"), "-c", cubin], check=True, capture_output=True, text=True).stdout
    kernel = f"{kind.name}{target.kernel}"
    path = main_loop(text, kernel, target.products(depth))
    counts, products = count_classes(path), count_in_flight(path)
    if counts["HMMA"] != target.products(depth):
        sys.exit(f"sass.py: {name}: {counts['HMMA']} products, expected {target.products(depth)}")
    tile = {"keys": target.keys, "other of tile": sum(counts.values()) - counts["HMMA"]} if target.is_compared else {}
    counts = {name: count * 64 // target.keys for name, count in counts.items()}
    overlap = {f"{name} in flight": [each[name] for each in products] for name in IN_FLIGHT} if products else {}
    return {**counts, "other": sum(counts.values()) - counts["HMMA"], **tile, **overlap, **resources(log, kernel)}


def table(measured):
    classes = list(dict.fromkeys(name for each in measured.values() for name in each))
    lines = [f"| kernel | {' | '.join(classes)} |", "|---|" + "---|" * len(classes)]
    for name, each in measured.items():
        lines.append(f"| {name} | {' | '.join(str(each.get(key, '')) for key in classes)} |")
    return "\n".join(lines)


def compare(measured, references):
    """[(kernel, ratio for the same tile, ratio for the same keys)] of the kernels that REFERENCE has, too: other instructions,
    ours / the reference's."""
    found = []
    for name, each in measured.items():
        theirs = references.get(name.replace("sm_90a", REFERENCE, 1))
        same = [one for other, one in references.items()
                if other.startswith(f"{REFERENCE} {name.split()[1]} ") and one["keys"] == each.get("keys")]  # fmt: skip
        if theirs and same:
            per_key = each["other of tile"] / each["keys"]
            found.append((name, each["other of tile"] / same[0]["other"], per_key / (theirs["other"] / theirs["keys"])))
    return found


def fit(measurements):
    """Cycles of a warp's step as a * HMMA + b * other, by least squares, and the relative error of each measurement."""
    import numpy as np

    counts = np.array([[each["HMMA"], each["other"]] for each in measurements], float)
    flops = np.array([4 * 32 * 64 * each["head size"] for each in measurements])
    cycles = flops / (np.array([each["TFLOP/s"] for each in measurements]) * 1e12 / ISSUERS) * CLOCK
    factors = np.linalg.lstsq(counts / cycles[:, None], np.ones(len(cycles)), rcond=None)[0]
    errors = counts @ factors / cycles - 1
    return {"cycles per HMMA": round(factors[0], 2), "cycles per other": round(factors[1], 2),
            "largest error": round(np.abs(errors).max(), 3)}  # fmt: skip


def regressions(measured, recorded, references):
    """What is worse than the data file, or not in it, or too much worse than REFERENCE."""
    for name, ratio, _ in compare(measured, references):
        if ratio > RATIO:
            yield f"{name}: {ratio:.3f} times the other instructions of {REFERENCE} for the same tile, at most {RATIO} allowed"
    for name, each in measured.items():
        if name not in recorded:
            yield f"{name}: not in {DATA.name}"
        elif each["other"] > math.floor(recorded[name]["other"] * ALLOWED):
            yield f"{name}: {each['other']} other instructions, {recorded[name]['other']} before"
        elif each["spilled bytes"] > recorded[name]["spilled bytes"]:
            yield f"{name}: {each['spilled bytes']} bytes spilled, {recorded[name]['spilled bytes']} before"
        else:
            yield from less_overlap(name, each, recorded[name])


def less_overlap(name, measured, recorded):
    """The products during which fewer instructions execute than before."""
    for category in IN_FLIGHT:
        now, before = (each.get(f"{category} in flight", []) for each in (measured, recorded))
        if len(now) != len(before) or any(count < math.ceil(old / ALLOWED) for count, old in zip(now, before)):
            yield f"{name}: {now} {category} between the starts of products and the waits for them, {before} before"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "dev", help="build tree")
    parser.add_argument("--only", default="", help="kernels whose name contains this")
    parser.add_argument("--check", action="store_true", help="fail if a kernel is worse than the data file")
    parser.add_argument("--update", action="store_true", help="write the counts into the data file")
    options = parser.parse_args()
    data = json.loads(DATA.read_text()) if DATA.exists() else {"kernels": {}}
    chosen, measured = {name: each for name, each in kernels().items() if options.only in name}, {}
    if not chosen:
        parser.error(f"--only: no kernel has '{options.only}' in its name; the names are {', '.join(kernels())}")
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, (target, depth, kind)) in enumerate(chosen.items(), 1):
            print(f"{number} of {len(chosen)}: {name}", file=sys.stderr, flush=True)
            measured[name] = measure(options.build, name, target, depth, kind, pathlib.Path(folder))
    print(table(measured))
    if options.update:
        data["kernels"].update(measured)
        data["model"] = fit(data["measurements"])
        DATA.write_text(json.dumps(data, indent=1) + "\n")
    for name, tile, keys in compare(measured, data.get("references", {})):
        print(f"{name} / {REFERENCE}: other instructions {tile:.3f} for the same tile, {keys:.3f} for the same keys")
    failures = list(regressions(measured, data["kernels"], data["references"])) if options.check else []
    print("\n".join(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
