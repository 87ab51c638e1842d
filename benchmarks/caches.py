"""Decode steps with caches of keys and values: contiguous, in pages, of 8 and 4 bits, selected keys, latent attention, and
batches whose sequences change at every step.

Every contender of a row runs in the same rounds of one process; ratios are medians over rounds. Programs are compiled once
with dynamic sizes. A cache rotates among copies, so that no contender finds it in a processor cache that is smaller than
three copies. The plain read is a sequential one of the same copies with all threads.
"""

import argparse
import itertools
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADS, KV_HEADS, DEPTH = 32, 8, 128
COPIES = 3
QUANTIZED = {"int8": ("int8", 127), "e4m3": ("float8_e4m3fn", 448), "e5m2": ("float8_e5m2", 57344)}
# Codes of 4 bits: scales of a position and head, and whether they have zero points.
PACKED = {"int4": (1, False), "int4, groups of 32": (DEPTH // 32, False), "int4, groups of 32, zero points": (DEPTH // 32, True)}
# Minima and maxima of the ratios.
LIMITS = {"of read": 0.90, "8 bits of read": 0.80, "4 bits of read": 0.70, "pages of 16": 1.10, "pages of 1": 1.35, "selected": 1.25,
          "changing batch": 1.03}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0].replace("\n", " "))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--keys", type=int, default=4096, help="keys of a sequence")
    parser.add_argument("--quick", action="store_true", help="three rounds, two sequences of 1,024 keys")
    parser.add_argument("--save", action="store_true", help="write into benchmarks/results instead of build/bench")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "bench", help="output folder")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "dev", help="build tree with the package")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.sequences, options.keys = 3, 2, 1024
    options.build, options.out = options.build.resolve(), options.out.resolve()
    return options


class Caches:
    """Contenders: functions without arguments that run one step, each on the next of `COPIES` caches."""

    def __init__(self, torch, saccade, options, dtype):
        self.torch, self.saccade, self.options, self.dtype = torch, saccade, options, dtype
        self.q = torch.randn(options.sequences, HEADS, 1, DEPTH, dtype=dtype)
        shape = (options.sequences, KV_HEADS, options.keys, DEPTH)
        self.caches = [(torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)) for _ in range(COPIES)]

    def bytes(self):
        k = self.caches[0][0]
        return 2 * k.numel() * k.element_size()

    def read(self, machine):
        """Bytes per second of a plain read of the caches."""
        size = self.bytes() // 2
        rates = [machine.bandwidth_of(x.data_ptr(), size, size / 40e9) for cache in self.caches for x in cache]
        return statistics.median(rates)

    def rotate(self, step, arguments):
        """A function that runs `step` with the next of `arguments`."""
        cycle = itertools.cycle(arguments)
        return lambda: step(*next(cycle))

    def contiguous(self):
        return self.rotate(lambda k, v: self.saccade.attention(self.q, k, v), self.caches)

    def in_pages(self, page):
        """Pages [KV head, position, depth] in random order in one pool."""
        torch, options = self.torch, self.options
        count = options.sequences * options.keys // page
        order = torch.randperm(COPIES * count)
        pools = [torch.empty(COPIES * count, KV_HEADS, page, DEPTH, dtype=self.dtype) for _ in range(2)]
        for copy, cache in enumerate(self.caches):
            for pool, tensor in zip(pools, cache):
                pages = tensor.unflatten(2, (-1, page)).transpose(1, 2).flatten(0, 1)
                pool[order[copy * count:(copy + 1) * count]] = pages
        tables = order.int().reshape(COPIES, options.sequences, -1)
        return self.rotate(lambda table: self.saccade.attention(self.q, *pools, page_table=table), [(t,) for t in tables])

    def quantized(self, name, largest):
        """Elements of a type of 8 bits with this largest number, and a scale for each position and head."""
        type = getattr(self.torch, name)

        def quantize(x):
            scale = x.float().abs().amax(-1) / largest
            scaled = x / scale[..., None]
            return (scaled if type.is_floating_point else scaled.round()).to(type), scale

        def step(k, k_scale, v, v_scale):
            return self.saccade.attention(self.q, k, v, k_scale=k_scale, v_scale=v_scale)

        return self.rotate(step, [quantize(k) + quantize(v) for k, v in self.caches])

    def packed(self, groups, has_zero):
        """Random bytes of two codes, with `groups` scales for each position and head, and zero points."""
        torch = self.torch
        caches = []
        for k, _ in self.caches:
            codes = [torch.randint(0, 256, (*k.shape[:3], DEPTH // 2), dtype=torch.uint8) for _ in "kv"]
            scales, zeros = ([torch.rand(*k.shape[:3], groups) * largest for _ in "kv"] for largest in (0.3, 15))
            caches.append((*codes, *scales, *(zeros if has_zero else (None, None))))

        def step(k, v, k_scale, v_scale, k_zero, v_zero):
            return self.saccade.attention(self.q, k, v, k_scale=k_scale, v_scale=v_scale, k_zero=k_zero, v_zero=v_zero)

        return self.rotate(step, caches)

    def selected(self, block, count):
        """`count` keys of a cache eight times as long, in blocks of adjacent keys: pages of one position."""
        torch, options = self.torch, self.options
        pools = [torch.randn(options.sequences * 8 * count, KV_HEADS, 1, DEPTH, dtype=self.dtype) for _ in range(2)]

        def table():
            rows = []
            for sequence in range(options.sequences):
                first = torch.randperm(8 * count // block)[:count // block].sort().values * block
                rows.append((first[:, None] + torch.arange(block)).flatten() + sequence * 8 * count)
            return torch.stack(rows).int()

        return self.rotate(lambda table: self.saccade.attention(self.q, *pools, page_table=table),
                           [(table(),) for _ in range(COPIES)])

    def dense(self, count):
        """A contiguous cache of `count` keys."""
        parts = [(k[:, :, :count].contiguous(), v[:, :, :count].contiguous()) for k, v in self.caches]
        return self.rotate(lambda k, v: self.saccade.attention(self.q, k, v), parts)

    def latent(self, heads):
        """Absorbed latent attention: keys of 576 elements, whose first 512 are the values; FLOPs of a step too."""
        torch, options = self.torch, self.options
        q = torch.randn(options.sequences, heads, 1, 576, dtype=self.dtype)
        caches = [(torch.randn(options.sequences, 1, options.keys, 576, dtype=self.dtype),) for _ in range(COPIES)]
        flops = 2 * options.sequences * heads * options.keys * (576 + 512)
        return self.rotate(lambda c: self.saccade.attention(q, c, c[..., :512]), caches), flops

    def batches(self, changes):
        """Steps of batches of sequences in pages of 16. With `changes` every step has another composition, of the same
        sequences and as many keys, so that all contenders read equally old memory."""
        torch, options = self.torch, self.options
        size, entries = options.sequences, options.keys // 16
        pools = [torch.randn(COPIES * size * entries, KV_HEADS, 16, DEPTH, dtype=self.dtype) for _ in range(2)]
        tables = torch.randperm(COPIES * size * entries).int().reshape(COPIES, size, entries)
        slots = torch.arange(size)
        composed = [(tables[(step + slots * changes) % COPIES, slots].contiguous(),) for step in range(COPIES)]
        return self.rotate(lambda table: self.saccade.attention(self.q, *pools, page_table=table), composed)


def paired(contenders, rounds, also=lambda: None):
    """Median seconds of each contender, and medians of the ratios to the first. Calls `also` in each round."""
    seconds = {name: [] for name in contenders}
    for step in contenders.values():
        for _ in range(COPIES):
            step()
    for number in range(rounds):
        for name in list(contenders)[:: -1 if number % 2 else 1]:
            start = time.perf_counter()
            for _ in range(COPIES):
                contenders[name]()
            seconds[name].append((time.perf_counter() - start) / COPIES)
        also()
    first = seconds[next(iter(contenders))]
    return ({name: statistics.median(values) for name, values in seconds.items()},
            {name: statistics.median(b / a for a, b in zip(first, values)) for name, values in seconds.items()})


def judged(text, is_met):
    return text if is_met else f"**{text}**"


def rows(torch, saccade, machine, options):
    """Rows of the table: case, type, milliseconds, what is compared, ratio, limit."""
    for name in ("f32", "bf16"):
        dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[name]
        caches = Caches(torch, saccade, options, dtype)
        contenders = {"contiguous": caches.contiguous(), "pages of 16": caches.in_pages(16), "pages of 1": caches.in_pages(1)}
        contenders.update({case: caches.quantized(*of) for case, of in QUANTIZED.items()})
        contenders.update({case: caches.packed(*of) for case, of in PACKED.items()})
        reads = []
        seconds, ratios = paired(contenders, options.rounds, lambda: reads.append(caches.read(machine)))
        bandwidth = statistics.median(reads)
        for case in contenders:
            size, limit = caches.bytes(), LIMITS["of read"]
            if case in QUANTIZED:
                size, limit = size * (DEPTH + 4) / (DEPTH * dtype.itemsize), LIMITS["8 bits of read"]
            elif case in PACKED:
                groups, has_zero = PACKED[case]
                size = size * (DEPTH / 2 + 4 * groups * (1 + has_zero)) / (DEPTH * dtype.itemsize)
                limit = LIMITS["4 bits of read"]
            share = size / seconds[case] / bandwidth
            if case == "contiguous" or case in QUANTIZED or case in PACKED:
                yield case, name, seconds[case], "GB/s over a plain read", judged(f"{share:.2f}", share >= limit), f"≥ {limit}"
            else:
                limit = LIMITS[case]
                yield (case, name, seconds[case], "time over contiguous",
                       judged(f"{ratios[case]:.2f}", ratios[case] <= limit), f"≤ {limit}")
        count = options.keys // 2
        contenders = {"dense": caches.dense(count), "selected, single keys": caches.selected(1, count),
                      "selected, blocks of 64": caches.selected(64, count)}
        seconds, ratios = paired(contenders, options.rounds)
        for case in list(contenders)[1:]:
            yield (case, name, seconds[case], f"time over a cache of {count:,} keys",
                   judged(f"{ratios[case]:.2f}", ratios[case] <= LIMITS["selected"]), f"≤ {LIMITS['selected']}")
        contenders = {"fixed batches": caches.batches(0), "changing batches": caches.batches(1)}
        seconds, ratios = paired(contenders, options.rounds)
        ratio, limit = ratios["changing batches"], LIMITS["changing batch"]
        yield ("changing batches", name, seconds["changing batches"], "time over fixed batches",
               judged(f"{ratio:.3f}", ratio <= limit), f"≤ {limit}")
        peak = statistics.median(machine.peak(name) for _ in range(5))
        for heads in (4, 16, 64):
            step, flops = caches.latent(heads)
            seconds, _ = paired({"latent": step}, options.rounds)
            size = options.sequences * options.keys * 576 * dtype.itemsize
            roofline = max(flops / peak, size / bandwidth)
            share = roofline / seconds["latent"]
            yield (f"latent, {heads} heads", name, seconds["latent"], "of the roofline", judged(f"{share:.2f}", share >= 0.8),
                   "≥ 0.8")


def main():
    options = parse_arguments()
    sys.path[:0] = [str(ROOT / "benchmarks"), str(options.build / "python")]
    import torch

    import saccade
    from saccade_bench.peaks import Machine, compile_peaks
    from saccade_bench.report import processor, publish, table

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    machine = Machine(compile_peaks(options.build, options.out), options.threads)
    lines = []
    for case, name, seconds, what, ratio, limit in rows(torch, saccade, machine, options):
        lines.append([case, name, f"{seconds * 1e3:.2f}", what, ratio, limit])
        print(" | ".join(lines[-1]), flush=True)
    header = ["case", "type", "ms", "compared", "ratio", "bar"]
    text = (f"{processor()}; {options.threads} threads; torch {torch.__version__}. Medians of {options.rounds} rounds. "
            f"{options.sequences} sequences of {options.keys:,} keys, one query, {HEADS} heads, {KV_HEADS} KV heads of {DEPTH}. "
            f"Bold: the bar is not reached.\n\n" + table(header, lines))
    publish(text, "caches", options)


if __name__ == "__main__":
    main()
