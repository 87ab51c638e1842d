"""Statistics of attention by `saccade.observe`, beside entropies from the weights that PyTorch returns, and the cost in
a training loop.

A pass over a model of 12 layers with random weights: a GPT-2 and a MiniLM with 2,048 positions. "pytorch" is
output_attentions=True, which requires "eager", and the mean entropy of each head. Times are medians of rounds that
alternate between the variants in one process; peak memory is that of a pass in a process of its own.
"""

import argparse
import ctypes
import functools
import os
import pathlib
import statistics
import subprocess
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"

LAYERS = 12
VARIANTS = ("plain", "pytorch", "observe", "observe without maps")


def model_of(name, length, implementation):
    import torch
    import transformers

    torch.manual_seed(0)
    tokens = dict(vocab_size=1000, bos_token_id=0, eos_token_id=1, pad_token_id=2)
    if name == "gpt":
        config = transformers.GPT2Config(n_layer=LAYERS, n_positions=length, resid_pdrop=0, attn_pdrop=0, embd_pdrop=0, **tokens)
        kind = transformers.GPT2LMHeadModel
    else:
        config = transformers.BertConfig(hidden_size=384, num_hidden_layers=LAYERS, num_attention_heads=12, intermediate_size=1536,
                                         max_position_embeddings=length, **tokens)
        kind = transformers.BertModel
    return kind._from_config(config, attn_implementation=implementation)


def run(variant, model, ids):
    """The entropy of each head by layers, or the result of the model."""
    import torch

    import saccade

    if variant == "pytorch":
        weights = model(ids, output_attentions=True).attentions
        return [-(x * x.clamp(min=1e-9).log()).sum(-1).mean((0, 2)) for x in weights]
    if variant == "plain":
        return model(ids).last_hidden_state if hasattr(model, "pooler") else model(ids).logits
    with saccade.observe(model, every=1, maps=variant == "observe", thresholds={"uniform": None}) as record:
        model(ids)
    return [torch.from_numpy(heads) for heads in record.statistics["entropy"][0]]


def prepared(name, length, variants):
    """The passes of some variants on equal weights, without gradients."""
    import torch

    def call(variant):
        with torch.no_grad():
            return run(variant, models["eager" if variant == "pytorch" else "sdpa"], ids)

    ids = torch.arange(length)[None] * 7 % 1000
    models = {}
    for variant in variants:
        implementation = "eager" if variant == "pytorch" else "sdpa"
        if implementation not in models:
            models[implementation] = model_of(name, length, implementation).eval()
    return {variant: functools.partial(call, variant) for variant in variants}


def peak(name, length, variant):
    """The most MiB of a pass above those before it. The pass before it compiles the kernels."""
    from saccade_bench import memory

    call = prepared(name, length, (variant,))[variant]
    call()
    ctypes.CDLL(None).malloc_trim(0)  # free memory counts again
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM to the resident size
    before = memory.status("VmHWM")
    call()
    return (memory.status("VmHWM") - before) / 2**20


def passes(name, length, rounds):
    calls = prepared(name, length, VARIANTS)
    results = {variant: call() for variant, call in calls.items()}
    error = max(float((x - y).abs().max()) for x, y in zip(results["observe"], results["pytorch"]))
    wall, cpu = ({variant: [] for variant in VARIANTS} for _ in range(2))
    for _ in range(rounds):
        for variant, call in calls.items():
            start = time.perf_counter(), time.process_time()
            call()
            wall[variant].append(time.perf_counter() - start[0])
            cpu[variant].append(time.process_time() - start[1])
    command = [sys.executable, __file__, "--length", str(length), "--peak", name]
    peaks = {variant: float(subprocess.run([*command, variant], check=True, capture_output=True, text=True).stdout)
              for variant in VARIANTS}
    print(f"\n{name}, {length} tokens; the largest difference of entropies is {error:.1e}\n")
    print("| pass | s | processor s | ratio of processor time to plain | peak MiB |\n|---|---|---|---|---|")
    for variant in VARIANTS:
        ratio = statistics.median(x / y for x, y in zip(cpu[variant], cpu["plain"]))
        print(f"| {variant} | {statistics.median(wall[variant]):.2f} | {statistics.median(cpu[variant]):.2f} | {ratio:.2f} | "
              f"{peaks[variant]:.0f} |")
    added = {variant: statistics.median(x - y for x, y in zip(cpu[variant], cpu["plain"])) for variant in VARIANTS}
    for variant in VARIANTS[2:]:
        whole = statistics.median(x / y for x, y in zip(cpu["pytorch"], cpu[variant]))
        more = max(peaks[variant] - peaks["plain"], 1)
        print(f"\npytorch over {variant}: {whole:.1f} × the time of a pass, {added['pytorch'] / added[variant]:.1f} × the time that "
              f"statistics add; {peaks['pytorch'] / peaks[variant]:.1f} × the peak memory of a pass, "
              f"{(peaks['pytorch'] - peaks['plain']) / more:.0f} × what statistics add (at least 1 MiB)")


def training(length, rounds):
    import torch

    import saccade

    model = model_of("gpt", length, "sdpa")
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    ids = torch.arange(length)[None] * 7 % 1000

    def step():
        start = time.process_time()
        optimizer.zero_grad()
        model(ids, labels=ids).loss.backward()
        optimizer.step()
        return time.process_time() - start

    step()
    with saccade.observe(model, every=2, thresholds={"uniform": None}):
        step(), step()  # the first one compiles
        pairs = [(step(), step()) for _ in range(rounds)]
    ratio = statistics.median(observed / other for observed, other in pairs)
    print(f"\ntraining a gpt, {length} tokens: an observed step takes {ratio:.3f} × the processor time of another, so every=100 adds "
          f"{ratio - 1:.2%} / 100 = {(ratio - 1) / 100:.4%} of the step time on average")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peak", nargs=2, metavar=("MODEL", "VARIANT"), help="prints the peak memory of one pass")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(options.threads)
    if options.peak:
        print(peak(options.peak[0], options.length, options.peak[1]))
        return
    for name in ("gpt", "minilm"):
        passes(name, options.length, options.rounds)
    training(options.length // 4, options.rounds)


if __name__ == "__main__":
    main()
