"""Forward and backward pass of attention: time against PyTorch and against the machine's peak, cost of score functions
and of gradients of their tables, and memory over the sequence length.

Every contender runs in the same rounds of one process; the times are medians. FLOPs are those of two matmuls of the
forward pass and five of the backward pass, half of them under a causal mask. Programs are compiled once with dynamic
sizes.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADS = 12
# (batch, length, head size, causal)
ROWS = [(4, 1024, 64, True), (32, 196, 64, False), (2, 1024, 128, True), (1, 4096, 64, False)]
QUICK_ROWS = [(1, 1024, 64, True), (8, 196, 64, False)]
LENGTHS = [1024, 2048, 4096, 8192, 16384]
# A score function and the maximum time relative to plain attention.
SCORES = {"soft-cap": 1.2, "slopes": 1.2, "relative table": 1.15}
BODIES = {
    "plain": ("", "", ""),
    "soft-cap": ("", "", """score(%s, %b, %h, %i, %j) {
      %c = arith.constant 30.0 : f32
      %x = arith.divf %s, %c : f32
      %y = math.tanh %x : f32
      %r = arith.mulf %y, %c : f32
      attn.yield %r : f32
    }"""),
    "slopes": (", %t: tensor<12xf32>", " captures(%t : tensor<12xf32>)", """score(%s, %b, %h, %i, %j, %c) {
      %m = tensor.extract %c[%h] : tensor<12xf32>
      %x = arith.subi %j, %i : index
      %x32 = arith.index_cast %x : index to i32
      %f = arith.sitofp %x32 : i32 to f32
      %bias = arith.mulf %m, %f : f32
      %r = arith.addf %s, %bias : f32
      attn.yield %r : f32
    }"""),
    "relative table": (", %t: tensor<32x12xf32>", " captures(%t : tensor<32x12xf32>)", """score(%s, %b, %h, %i, %j, %c) {
      %x = arith.subi %j, %i : index
      %a = math.absi %x : index
      %c4 = arith.constant 4 : index
      %c31 = arith.constant 31 : index
      %d = arith.divsi %a, %c4 : index
      %e = arith.minsi %d, %c31 : index
      %m = tensor.extract %c[%e, %h] : tensor<32x12xf32>
      %r = arith.addf %s, %m : f32
      attn.yield %r : f32
    }"""),
}  # fmt: skip


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="small batches, five rounds, lengths up to 4,096")
    parser.add_argument("--save", action="store_true", help="write into benchmarks/results instead of build/bench")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "bench", help="output folder")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "dev", help="build tree with the package")
    parser.add_argument("--memory", metavar="CONTENDER", help=argparse.SUPPRESS)
    parser.add_argument("--length", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.rounds = 5 if options.quick else options.rounds
    options.build, options.out = options.build.resolve(), options.out.resolve()
    return options


def compile_pair(kind, depth, causal, element):
    """The forward and the backward entry of attention with this score function."""
    import saccade

    argument, captures, score = BODIES[kind]
    tensor = f"tensor<?x{HEADS}x?x{depth}x{element}>"
    text = f"""func.func @f(%q: {tensor}, %k: {tensor}, %v: {tensor}{argument}) -> {tensor} attributes {{attn.gradient}} {{
      %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]{captures} {"mask causal<top_left>" if causal else ""}
        {score} : ({tensor}, {tensor}, {tensor}) -> {tensor}
      return %o : {tensor}
    }}"""
    program = saccade.compile(text)
    return program["f"], program["f_gradient"]


def table_of(kind):
    import torch

    return {"slopes": [torch.rand(HEADS)], "relative table": [torch.randn(32, HEADS)]}.get(kind, [])


def steps(kinds, row, dtype):
    """{contender: function that runs the forward and the backward pass}."""
    import torch

    batch, length, depth, causal = row
    q, k, v, gradient = (torch.randn(batch, HEADS, length, depth).to(dtype) for _ in range(4))
    element = "f32" if dtype == torch.float32 else "bf16"

    def ours(kind):
        forward, backward = compile_pair(kind, depth, causal, element)
        table = table_of(kind)

        def step():
            return backward(q, k, v, *table, *forward(q, k, v, *table), gradient)

        return step

    leaves = [each.clone().requires_grad_() for each in (q, k, v)]

    def torch_step():
        output = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=causal)
        return torch.autograd.grad(output, leaves, gradient)

    return {**{kind: ours(kind) for kind in kinds}, "torch": torch_step}


def measure(options, kinds, row, dtype, machine):
    """The seconds of every contender by round, and the peak of the machine by round."""
    contenders = steps(kinds, row, dtype)
    seconds, peaks = {name: [] for name in contenders}, []
    for number in range(options.rounds + 1):
        for name, step in contenders.items():
            start = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - start)
        peaks.append(machine.peak("f32" if "float32" in str(dtype) else "bf16"))
    return {name: times[1:] for name, times in seconds.items()}, peaks[1:]


def flops(row):
    batch, length, depth, causal = row
    return 7 * 2 * batch * HEADS * length**2 * depth * (0.5 if causal else 1)


def speed(options, report):
    import torch

    import saccade
    from saccade_bench import peaks

    torch.manual_seed(0)
    saccade.set_num_threads(options.threads)
    torch.set_num_threads(options.threads)
    machine = peaks.Machine(peaks.compile_peaks(options.build, options.out / "peaks"), options.threads)
    lines = []
    for dtype in (torch.float32, torch.bfloat16):
        for row in QUICK_ROWS if options.quick else ROWS:
            times, rate = measure(options, BODIES if row[1] < 4096 else ["plain"], row, dtype, machine)
            ratio = {name: statistics.median(a / b for a, b in zip(found, times["plain"])) for name, found in times.items()}
            share = statistics.median(flops(row) / a / b for a, b in zip(times["plain"], rate))
            batch, length, depth, causal = row
            lines.append([
                f"{batch}×{HEADS}×{length}×{depth} {'causal' if causal else 'full'}", str(dtype).removeprefix("torch."),
                f"{statistics.median(times['plain']) * 1e3:.1f}", f"{share:.2f}", f"{ratio['torch']:.2f}",
                *(f"{ratio[name]:.2f} (≤ {most})" if name in ratio else "" for name, most in SCORES.items())])  # fmt: skip
    header = ["case", "type", "ms", "of peak", "PyTorch's time", *(f"{name}'s time" for name in SCORES)]
    return report.table(header, lines)


def peak_memory(contender, length, build):
    """Bytes of one forward and backward pass of 1×1×length×64 beyond its inputs, in this process."""
    import torch

    from saccade_bench.memory import status

    global HEADS
    HEADS = 1
    q, k, v, gradient = (torch.randn(1, 1, length, 64) for _ in range(4))
    leaves = [each.requires_grad_() for each in (q, k, v)]
    if contender == "ours":
        forward, backward = compile_pair("plain", 64, True, "f32")
        q, k, v = (each.detach() for each in leaves)

        def step():
            return backward(q, k, v, *forward(q, k, v), gradient)
    elif contender == "SDPA":

        def step():
            output = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True)
            return torch.autograd.grad(output, leaves, gradient)
    else:

        def step():
            scores = leaves[0] @ leaves[1].transpose(-1, -2) / 8
            mask = torch.ones(length, length, dtype=torch.bool).triu(1)
            output = scores.masked_fill(mask, -torch.inf).softmax(-1) @ leaves[2]
            return torch.autograd.grad(output, leaves, gradient)

    pathlib.Path("/proc/self/clear_refs").write_text("5")
    before = status("VmHWM")
    step()
    return status("VmHWM") - before


def memory(options):
    """{contender: {length: bytes}}; eager attention stops at 8,192 tokens."""
    found = {"ours": {}, "SDPA": {}, "eager": {}}
    for contender, values in found.items():
        for length in LENGTHS:
            if length > (4096 if options.quick else 8192 if contender == "eager" else LENGTHS[-1]):
                continue
            line = [sys.executable, __file__, "--build", str(options.build), "--memory", contender, "--length", str(length)]
            values[length] = int(subprocess.run(line, check=True, capture_output=True, text=True).stdout)
    return found


def plot(found, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.6))
    for (name, values), color in zip(found.items(), ("#1f6f8b", "#d9a05b", "#b5544a")):
        axes.plot(list(values), [each / 2**20 for each in values.values()], marker="o", label=name, color=color)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(LENGTHS, [f"{length:,}" for length in LENGTHS])
    axes.set_xlabel("tokens, one head of 64, f32, causal")
    axes.set_ylabel("MiB beyond the inputs")
    axes.set_title("Peak memory of a forward and backward pass", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main():
    options = parse_arguments()
    sys.path[:0] = [str(ROOT / "benchmarks"), str(options.build / "python")]
    if options.memory:
        print(peak_memory(options.memory, options.length, options.build))
        return
    from saccade_bench import report

    times, bytes_of = speed(options, report), memory(options)
    lengths = [length for length in LENGTHS if length in bytes_of["ours"]]
    rows = [[name, *(f"{values[length] / 2**20:.1f}" if length in values else "" for length in lengths)]
            for name, values in bytes_of.items()]  # fmt: skip
    text = (f"{report.processor()}; {options.threads} threads. Times are relative to ours without a score function; medians "
            f"of {options.rounds} rounds.\n\n{times}\nPeak memory in MiB beyond the inputs, by length.\n\n"
            f"{report.table(['contender', *(f'{length:,}' for length in lengths)], rows)}")  # fmt: skip
    report.publish(text, "gradients", options)
    plot(bytes_of, report.result_stem("gradients-memory", options).with_suffix(".png"))


if __name__ == "__main__":
    main()
