"""Linear attention of models: time of forward and backward passes and of decoding steps, beside the code of Transformers.

One thread, 16 heads of 128 (Mamba-2: 32 heads of 64 that share keys and queries of 128), batch 1. Each form is one program
for all lengths. The rounds alternate between all calls, and times are processor time. "of peak" is the share of the
multiply-adds of the chunked form at the peak of f32 FMA that is measured in the same run.
"""

import argparse
import pathlib
import statistics
import sys
import time
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADS, DEPTH, CHUNK = 16, 128, 64


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--peers", action="store_true", help="also time PyTorch's forms, which take minutes")
    parser.add_argument("--save", action="store_true", help="write into benchmarks/results instead of build/bench")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "dev",
                        help="build tree with the package")  # fmt: skip
    return parser.parse_args()


def tensors(length, element):
    import torch

    generator = torch.Generator().manual_seed(0)
    normal = lambda *shape: torch.randn(*shape, generator=generator)
    unit = lambda x: x / x.norm(dim=-1, keepdim=True)
    q, k, v = unit(normal(1, HEADS, length, DEPTH)), unit(normal(1, HEADS, length, DEPTH)), normal(1, HEADS, length, DEPTH)
    gates = {"g": -torch.rand(1, HEADS, length, generator=generator) * 0.2,
             "rows": -torch.rand(1, HEADS, length, DEPTH, generator=generator) * 0.2,
             "beta": torch.rand(1, HEADS, length, generator=generator)}  # fmt: skip
    return [x.to(element) for x in (q, k, v)], gates


def forms(length):
    """{name: (function of no arguments, tensors whose gradients are taken or None)}"""
    import torch

    import saccade

    attend = saccade.linear_attention
    (q, k, v), gates = tensors(length, torch.float32)
    found = {
        "scalar decay": (q, k, v, {"decay": gates["g"]}),
        "gated delta rule": (q, k, v, {"decay": gates["g"], "beta": gates["beta"]}),
        "KDA": (q, k, v, {"decay": gates["rows"], "beta": gates["beta"]}),
        "gated delta rule, bf16": (q.bfloat16(), k.bfloat16(), v.bfloat16(), {"decay": gates["g"], "beta": gates["beta"]}),
        "gated delta rule, l2norm, [B,T,H,D]": (*(x.transpose(1, 2).contiguous() for x in (q, k, v)),
                                               {"decay": gates["g"].transpose(1, 2).contiguous(), "layout": "bshd",
                                                "beta": gates["beta"].transpose(1, 2).contiguous(), "l2norm": 1e-6}),
        "Mamba-2": (q[:, :1], k[:, :1], torch.randn(1, 32, length, 64), {"decay": -torch.rand(1, 32, length) * 0.2}),
    }  # fmt: skip
    calls = {}
    for name, (*operands, options) in found.items():
        calls[name] = (lambda operands=operands, options=options: attend(*operands, causal=True, **options), None)
        if name in ("scalar decay", "gated delta rule", "KDA"):
            leaves = [x.clone().requires_grad_() for x in operands]
            kept = {key: x.clone().requires_grad_() for key, x in options.items()}
            calls[f"{name}, forward and backward"] = (
                lambda leaves=leaves, kept=kept: attend(*leaves, causal=True, **kept), [*leaves, *kept.values()])
    one = {key: x[:, :, :1] for key, x in {"decay": gates["g"], "beta": gates["beta"]}.items()}
    state, first = torch.randn(1, HEADS, DEPTH, DEPTH), [x[:, :, :1] for x in (q, k, v)]
    calls["decoding step"] = (lambda: attend(*first, causal=True, state=state, return_state=True, **one), None)
    return calls


def peers(length):
    import torch
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule as chunked

    (q, k, v), gates = tensors(length, torch.float32)
    operands = [x.transpose(1, 2).contiguous() for x in (q, k, v, gates["g"], gates["beta"])]
    leaves = [x.clone().requires_grad_() for x in operands]
    return {"gated delta rule": (lambda: chunked(*operands), None),
            "gated delta rule, forward and backward": (lambda: chunked(*leaves)[0], leaves)}  # fmt: skip


def run(call, leaves):
    import torch

    result = call()
    if leaves:
        torch.autograd.grad(result, leaves, torch.ones_like(result))


def clock(calls, rounds):
    """{name: milliseconds of processor time}, medians; every round runs all calls."""
    for call in calls.values():
        run(*call)
    found = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            count = 50 if name == "decoding step" else 1
            start = time.process_time()
            for _ in range(count):
                run(*call)
            found[name].append((time.process_time() - start) * 1e3 / count)
    return {name: statistics.median(values) for name, values in found.items()}


def work_of(length):
    """Floating-point operations of the gated delta rule in chunks: three products with the state, four within a chunk."""
    of_chunk = 3 * CHUNK * DEPTH * DEPTH + 4 * CHUNK * CHUNK * DEPTH
    return 2 * HEADS * (length // CHUNK) * of_chunk


def main():
    options = parse_arguments()
    sys.path[:0] = [str(options.build.resolve() / "python"), str(ROOT / "benchmarks")]
    warnings.simplefilter("ignore")
    import torch

    import saccade
    from saccade_bench.peaks import Machine, compile_peaks

    saccade.set_num_threads(1)
    torch.set_num_threads(1)
    found = clock(forms(options.length), options.rounds)
    other = clock(peers(options.length), 1) if options.peers else {}
    peak = Machine(compile_peaks(options.build, ROOT / "build" / "bench"), 1).peak("f32")
    lines = ["# Linear attention of models", "",
             f"{options.length} tokens, f32 unless said otherwise, one thread, medians of {options.rounds} rounds. Peak: "
             f"{peak / 1e9:.0f} GFLOP/s.", "", "| form | ms | PyTorch ms | of peak |", "|---|---:|---:|---:|"]  # fmt: skip
    for name, milliseconds in found.items():
        share = f"{work_of(options.length) / (milliseconds / 1e3) / peak:.2f}" if name == "gated delta rule" else ""
        beside = f"{other[name]:.0f}" if name in other else ""
        lines.append(f"| {name} | {milliseconds:.2f} | {beside} | {share} |")
    text = "\n".join(lines) + "\n"
    print(text)
    folder = ROOT / "benchmarks" / "results" if options.save else ROOT / "build" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{time.strftime('%Y-%m-%d')}-linear-models.md").write_text(text)


if __name__ == "__main__":
    main()
