"""Tokens per second of a small Llama of `transformers` with attn_implementation="saccade" beside "sdpa" and "eager".

Prefill is one call of the model on a prompt with an empty cache. Decoding is a number of steps of one token for each
sequence after the prompt. Every round runs all implementations on the same model, in rotating order; a ratio is the
median over rounds. Padded batches have prompts of different lengths, padded on the left.
"""

import argparse
import dataclasses
import os
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
os.environ["HF_HUB_OFFLINE"] = "1"
SIZES = {"vocab_size": 8000, "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 6,
         "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "eos_token_id": None, "pad_token_id": 0}
IMPLEMENTATIONS = ["saccade", "sdpa", "eager"]  # the first is ours
STEPS = 16  # of decoding


@dataclasses.dataclass
class Case:
    """A batch of prompts and the cache."""

    batch: int
    length: int
    is_padded: bool = False
    cache: str = "dynamic"

    def __str__(self):
        return f"{self.batch}×{self.length}{' padded' if self.is_padded else ''}, {self.cache}"


CASES = [Case(1, 512), Case(1, 2048), Case(4, 512), Case(4, 512, is_padded=True), Case(1, 2048, cache="static")]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="three rounds, prompts of a quarter of the length")
    parser.add_argument("--type", action="append", choices=["f32", "bf16"], help="only this one; can be repeated")
    parser.add_argument("--save", action="store_true", help="write into benchmarks/results instead of build/bench")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "bench", help="output folder")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "dev", help="build tree with the package")
    options = parser.parse_args()
    options.rounds = 3 if options.quick else options.rounds
    options.type = options.type or ["f32", "bf16"]
    options.build, options.out = options.build.resolve(), options.out.resolve()
    return options


def run(model, case):
    """(seconds of the prefill, seconds of the decoding steps, last logits)."""
    import torch
    import transformers

    torch.manual_seed(0)
    tokens = torch.randint(1, SIZES["vocab_size"], (case.batch, case.length))
    mask = torch.ones(case.batch, case.length + STEPS, dtype=torch.int64)
    if case.is_padded:
        for row, sequence in enumerate(mask):
            sequence[: row * case.length // (2 * case.batch)] = 0
    cache = (transformers.StaticCache(config=model.config, max_cache_len=case.length + STEPS) if case.cache == "static"
             else transformers.DynamicCache(config=model.config))
    start = time.perf_counter()
    model(tokens, attention_mask=mask[:, : case.length], past_key_values=cache, logits_to_keep=1)
    middle = time.perf_counter()
    for step in range(STEPS):
        length = case.length + step + 1
        logits = model(tokens[:, step : step + 1], attention_mask=mask[:, :length], past_key_values=cache).logits
    return middle - start, time.perf_counter() - middle, logits


def measure(options, model, case):
    """({implementation: [(prefill, decoding) seconds by round]}, {implementation: relative difference to eager})."""
    seconds, logits = {name: [] for name in IMPLEMENTATIONS}, {}
    for number in range(options.rounds + 1):
        for name in IMPLEMENTATIONS[number % 3 :] + IMPLEMENTATIONS[: number % 3]:
            model.set_attn_implementation(name)
            *times, logits[name] = run(model, case)
            if number:  # the first round compiles
                seconds[name].append(times)
    exact = logits["eager"].float()
    return seconds, {name: ((value - exact).norm() / exact.norm()).item() for name, value in logits.items()}


def markdown(options):
    import torch
    import transformers

    import saccade.transformers
    from saccade_bench.report import processor, table

    assert saccade.transformers.NAME in IMPLEMENTATIONS
    torch.set_num_threads(options.threads)
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, max_position_embeddings=4096)).eval()
    rows = []
    for type in options.type:
        model = model.to({"f32": torch.float32, "bf16": torch.bfloat16}[type])
        for case in CASES:
            if options.quick:
                case = dataclasses.replace(case, length=case.length // 4)
            with torch.no_grad():
                seconds, differences = measure(options, model, case)
            for index, phase, tokens in ((0, "prefill", case.batch * case.length), (1, "decode", case.batch * STEPS)):
                row = [type, str(case), phase]
                for name in IMPLEMENTATIONS:
                    times = [each[index] for each in seconds[name]]
                    ratio = statistics.median(time / ours[index] for time, ours in zip(times, seconds["saccade"]))
                    row.append(f"{tokens / statistics.median(times):.0f}" + (f" ({ratio:.2f}×)" if name != "saccade" else ""))
                rows.append([*row, f"{differences['saccade']:.1e}"])
                print(" | ".join(rows[-1]), flush=True)
    layers = f"{SIZES['num_hidden_layers']} layers, {SIZES['num_attention_heads']} query heads, " \
             f"{SIZES['num_key_value_heads']} KV heads of {SIZES['head_dim']}"
    title = f"Llama with {layers}; {options.threads} threads; medians of {options.rounds} rounds.\n\nTokens per second; " \
            "in parentheses, how much faster Saccade is. The cache is dynamic (grows) or static (preallocated).\n"
    header = ["type", "batch×prompt, cache", "phase", *IMPLEMENTATIONS, "difference to eager"]
    return "\n".join([f"{processor()}; {title}", table(header, rows)])


def main():
    options = parse_arguments()
    sys.path[:0] = [str(ROOT / "benchmarks"), str(options.build / "python")]
    from saccade_bench.report import publish

    publish(markdown(options), "generate", options)


if __name__ == "__main__":
    main()
