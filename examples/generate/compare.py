"""Generates text through the compiled step and through PyTorch, with the same weights, and compares tokens and times:

    python examples/generate/compare.py FOLDER

FOLDER has model.so and the weights that export.py wrote. Every round runs all of them, in rotating order. Exits with 1
if the tokens of the step and of PyTorch differ.
"""

import argparse
import gc
import pathlib
import statistics
import sys
import time

import numpy as np
import torch
from model import Step, generate, load, saccade_attention, static_attention, torch_attention

import saccade


class CompiledStep:
    """The step in a library of `saccade-compile --prepack --emit=so`."""

    def __init__(self, folder):
        functions = saccade.load(folder / "model.so")
        prepack, self.main = functions["main__prepack"], functions["main"]

        def weight(name):
            return torch.from_numpy(np.load(folder / f"model.{name}.npy"))

        results = prepack(*(weight(value.name) for value in prepack.inputs))
        known = dict(zip((value.name for value in prepack.results), results))
        own = [value for value in self.main.inputs
               if value.name not in ("tokens", "lengths") and value.updated_by is None]
        self.weights = [known[value.name] if value.name in known else weight(value.name) for value in own]

    def __call__(self, tokens, lengths, caches):
        return self.main(tokens, lengths, *caches, *self.weights)[-1]


def llama_step(decoder, folder, threads):
    from llama import LlamaStep

    return LlamaStep(decoder, folder / "model.gguf", threads)


def steps(folder, names, threads):
    """The step of each name, and a function that makes caches."""
    decoder = load()
    made = {"saccade": lambda: CompiledStep(folder), "eager": lambda: Step(decoder, torch_attention),
            "inductor": lambda: torch.compile(Step(decoder, static_attention), dynamic=False),
            "inductor, saccade": lambda: torch.compile(Step(decoder, saccade_attention), dynamic=False),
            "llama.cpp": lambda: llama_step(decoder, folder, threads)}
    return {name: made[name]() for name in names}, lambda: Step(decoder, None).new_caches(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--prompt", default="The Rays of Light ")
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--inductor", action="store_true", help="also torch.compile, with PyTorch's attention and with "
                        "saccade.torch.flash_attn_with_kvcache")
    parser.add_argument("--llama", action="store_true", help="also llama.cpp, from the packages "
                        "llama-cpp-python and gguf")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    names = ["saccade", "eager"] + ["inductor", "inductor, saccade"] * options.inductor + ["llama.cpp"] * options.llama
    made, new_caches = steps(options.folder, names, options.threads)
    found, seconds = {}, {name: [] for name in names}
    gc.disable()  # as timeit does
    with torch.inference_mode():
        for number in range(options.rounds + 1):
            place = number % len(names)
            for name in names[place:] + names[:place]:
                caches, start = new_caches(), time.perf_counter()
                found[name] = generate(made[name], caches, options.prompt, options.tokens)
                seconds[name].append(time.perf_counter() - start)
    print(options.prompt + bytes(found["eager"]).decode(errors="replace"))
    for name in names:
        times = seconds[name][1:]  # the first round compiles
        ratio = statistics.median(y / x for x, y in zip(times, seconds["eager"][1:]))
        rate = options.tokens / statistics.median(times)
        print(f"{name:18} {rate:8.0f} tokens/s, {ratio:5.2f} times as fast as eager")
    if "llama.cpp" in found:  # its logits differ by up to 0.006, so that the choice between two tokens may
        pairs = zip(found.pop("llama.cpp"), found["eager"])
        same = next((i for i, (x, y) in enumerate(pairs) if x != y), options.tokens)
        print(f"llama.cpp generates the same first {same} tokens")
    if any(tokens != found["eager"] for tokens in found.values()):
        sys.exit("the tokens differ")


if __name__ == "__main__":
    main()
