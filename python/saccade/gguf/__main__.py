"""Compiles a GGUF language model: python -m saccade.gguf MODEL.gguf -o MODEL.so

Without -o it describes the model. Exit codes: 0 success; 1 the model is rejected; 2 usage; 3 a file cannot be read or
written.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time

import saccade
from saccade import _files
from saccade.gguf import Container, FileError, Settings, load, write
from saccade.gguf.decoder import ACTIVATIONS, CACHES
from saccade.gguf.settings import read
from saccade.gguf.weights import refusal


def main(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m saccade.gguf", description="Compiles a GGUF language model.")
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("-o", dest="output", metavar="FILE",
                        help="the library to compile (.so, with its C header), or the program alone (.mlir)")
    parser.add_argument("--cache", choices=CACHES, default="f32", help="the element type of keys and values that are "
                        "kept; f32 by default")
    parser.add_argument("--activations", choices=ACTIVATIONS, default="f32", help="the type of activations in "
                        "matmuls; f32 by default, bf16 is faster for prompts on processors with instructions for it, "
                        "int8 for tokens after them")
    parser.add_argument("--prepack", action="store_true", help="pack weights of 32 and 16 bits for faster matmuls, in "
                        "memory of each process")
    parser.add_argument("--target", default="host", help="the CPU targets of the library, as saccade-compile --target")
    parser.add_argument("--tokens", metavar="N,N,...", help="continue this prompt, of numbers of tokens, and print the "
                        "numbers of the tokens that follow")
    parser.add_argument("--count", type=int, default=16, help="how many tokens to generate; 16 by default")
    options = parser.parse_args(arguments)
    if options.output and not options.output.endswith((".so", ".mlir")):
        parser.error(f"-o {options.output}: expected a name that ends in .so or .mlir")
    try:
        prompt = [int(each) for each in options.tokens.split(",")] if options.tokens is not None else None
    except ValueError:
        parser.error(f"--tokens {options.tokens}: expected integers with commas between them")
    try:
        container = Container(options.model)
        if not options.output and prompt is None:
            print(describe(container, read(container)))
            return 0
        if options.output and (code := _compile(container, options)):
            return code
        if prompt is not None:
            _generate(options, prompt)
    except (FileError, saccade.CompileError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {error.filename or options.model}: {error.strerror or error}", file=sys.stderr)
        return 3
    return 0


def describe(container: Container, settings: Settings) -> str:
    """What a file has, as text."""
    parameters = size = 0
    for tensor in container.tensors.values():
        count = 1
        for extent in tensor.shape:
            count *= extent
        parameters, size = parameters + count, size + tensor.size
    elements = ", ".join(f"{count} {name}" for name, count in container.elements().most_common())
    windows = sum(window is not None for window in settings.windows)
    lines = [f"{settings.name}: {settings.architecture}, {parameters / 1e6:.1f} M parameters in {size / 2**20:.1f} MiB",
             f"{len(container.tensors)} tensors: {elements}",
             f"{settings.layers} layers of width {settings.width}, {settings.heads} heads of {settings.head_dim} "
             f"({settings.kv_heads} of keys and values)" + (f", {windows} layers with a window" if windows else ""),
             f"vocabulary {settings.vocabulary}, context {settings.context}"]  # fmt: skip
    if reason := refusal(container):
        lines.append(f"not supported: {reason}")
    return "\n".join(lines)


def _compile(container: Container, options: argparse.Namespace) -> int:
    """Writes the program or the library."""
    program = write(container, options.cache, options.activations)
    if options.output.endswith(".mlir"):
        _files.write(options.output, program.text)
        print(options.output)
        return 0
    _files.check_writable(options.output)
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.basename(options.model) + ".mlir"  # messages of the library have it
        _files.write(os.path.join(folder, name), program.text)
        command = [saccade.tool("saccade-compile"), name, "--emit=so", f"--target={options.target}",
                   "-o", os.path.abspath(options.output), *["--prepack"] * options.prepack]  # fmt: skip
        done = subprocess.run(command, check=False, cwd=folder)
    if done.returncode:
        return done.returncode if done.returncode in (1, 2, 3) else 1
    print(options.output)
    return 0


def _generate(options: argparse.Namespace, prompt: list[int]) -> None:
    """Prints tokens as they are generated, and on standard error how fast."""
    is_library = options.output and options.output.endswith(".so")
    model = (load(options.model, library=options.output) if is_library else
             load(options.model, cache=options.cache, activations=options.activations, prepack=options.prepack))
    start = time.perf_counter()
    first, count = start, 0
    for token in model.generate(prompt, options.count):
        print(token, end="\n" if count % 16 == 15 else " ", flush=True)
        count += 1
        if count == 1:
            first = time.perf_counter()
    if count % 16:
        print()
    seconds = time.perf_counter() - first
    print(f"{len(prompt) / max(first - start, 1e-9):.1f} tokens/s of the prompt"
          + (f", {(count - 1) / seconds:.1f} tokens/s generated" if count > 1 else ""), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
