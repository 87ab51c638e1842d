"""A language model of 0.5 B parameters from a GGUF file: tokens per second of prompts and of generation, beside llama.cpp.

    python benchmarks/gguf_models.py --llama PYTHON

The model has the shape of Qwen2.5-0.5B and random weights in blocks of --type. The package gguf writes it. Each round
runs Saccade and llama.cpp (the package llama-cpp-python of the interpreter PYTHON) in processes of their own, one after
the other. Figures are medians over rounds; the ratio is the median of the ratios of each round. The read rate is that of
a sum of as many bytes of f32 as the weights that a token reads.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHAPE = dict(width=896, hidden=4864, heads=14, kv_heads=2, depth=64, layers=24, vocabulary=151936)
QUICK = dict(width=256, hidden=512, heads=4, kv_heads=2, depth=64, layers=2, vocabulary=1024)


def write_model(path, kind, shape):
    """Writes a file with random blocks, and returns how many bytes of weights a token reads."""
    import gguf
    import numpy as np

    width, rng, total = shape["width"], np.random.default_rng(0), 0
    kind = gguf.GGMLQuantizationType[kind]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    out = gguf.GGUFWriter(path, "qwen2")
    out.add_context_length(4096)
    out.add_embedding_length(width)
    out.add_block_count(shape["layers"])
    out.add_feed_forward_length(shape["hidden"])
    out.add_head_count(shape["heads"])
    out.add_head_count_kv(shape["kv_heads"])
    out.add_layer_norm_rms_eps(1e-6)
    out.add_rope_freq_base(1e6)
    out.add_vocab_size(shape["vocabulary"])
    out.add_tokenizer_model("none")

    def matrix(name, rows, columns):
        nonlocal total
        shape_of = rows, columns // block * size
        if block == 1:
            data = rng.standard_normal((rows, columns), np.float32) * np.float32(0.3 / columns**0.5)
            data = data if kind.name == "F32" else gguf.quantize(data, kind)
        else:
            # Scales, 16-bit floats, are small: Q4_K has two at the beginning of a block, Q6_K one at its end.
            data = rng.integers(0, 256, (rows, columns // block, size), np.uint8)
            scale = np.frombuffer(np.float16(0.02 / columns**0.5).tobytes(), np.uint8)
            if kind.name == "Q6_K":
                data[..., -2:] = scale
            else:
                data[..., :2] = scale
                if kind.name in ("Q4_1", "Q4_K"):
                    data[..., 2:4] = scale
            data = data.reshape(shape_of)
        out.add_tensor(name, data, raw_dtype=kind)
        total += data.nbytes

    def vector(name, count, value):
        out.add_tensor(name, np.full(count, value, np.float32))

    matrix("token_embd.weight", shape["vocabulary"], width)
    vector("output_norm.weight", width, 1)
    for layer in range(shape["layers"]):
        for part in ("attn_norm", "ffn_norm"):
            vector(f"blk.{layer}.{part}.weight", width, 1)
        for part, heads in (("q", shape["heads"]), ("k", shape["kv_heads"]), ("v", shape["kv_heads"])):
            matrix(f"blk.{layer}.attn_{part}.weight", heads * shape["depth"], width)
            vector(f"blk.{layer}.attn_{part}.bias", heads * shape["depth"], 0.1)
        matrix(f"blk.{layer}.attn_output.weight", width, shape["heads"] * shape["depth"])
        for part in ("gate", "up"):
            matrix(f"blk.{layer}.ffn_{part}.weight", shape["hidden"], width)
        matrix(f"blk.{layer}.ffn_down.weight", width, shape["hidden"])
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return total


def rates(prefill, decode, options):
    """Tokens per second of a prompt, and of generation after it: the best of three prompts, the median of tokens."""
    prompt = [i * 7 % options.vocabulary for i in range(options.prompt)]
    prompts, tokens = [], []
    for _ in range(3):
        start = time.perf_counter()
        prefill(prompt)
        prompts.append(time.perf_counter() - start)
    for i in range(options.tokens):
        start = time.perf_counter()
        decode(i % options.vocabulary)
        tokens.append(time.perf_counter() - start)
    return {"prompt": options.prompt / min(prompts), "generated": 1 / statistics.median(tokens)}


def measure_saccade(options):
    import saccade
    import saccade.gguf

    saccade.set_num_threads(options.threads)
    session = saccade.gguf.load(options.model, library=options.library).session()

    def prefill(prompt):
        session.rewind(0)
        session.prefill(prompt)

    return rates(prefill, session.decode, options)


def measure_llama(options):
    import llama_cpp

    @llama_cpp.llama_log_callback
    def ignore(level, text, data):
        pass

    llama_cpp.llama_log_set(ignore, None)
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(os.fsencode(options.model), llama_cpp.llama_model_default_params())
    given = llama_cpp.llama_context_default_params()
    given.n_ctx, given.n_batch, given.n_ubatch = 4096, 512, 512
    given.n_threads = given.n_threads_batch = options.threads
    given.type_k = given.type_v = llama_cpp.GGML_TYPE_F16 if options.cache == "f16" else llama_cpp.GGML_TYPE_F32
    context = llama_cpp.llama_init_from_model(model, given)

    def call(tokens):
        own = (llama_cpp.llama_token * len(tokens))(*tokens)
        if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(own, len(own))) != 0:
            raise RuntimeError("llama_decode failed")
        llama_cpp.llama_get_logits_ith(context, -1)

    def prefill(prompt):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        call(prompt)

    return rates(prefill, lambda token: call([token]), options)


def measure_read(options):
    """Bytes per second of a sum that reads as many bytes as a token does."""
    import torch

    torch.set_num_threads(options.threads)
    numbers = torch.ones(options.bytes // 4)
    times = []
    for _ in range(12):
        start = time.perf_counter()
        numbers.sum()
        times.append(time.perf_counter() - start)
    return {"bytes": options.bytes / statistics.median(times)}


def in_process(name, python, options, **more):
    """What a measurement in a fresh process prints."""
    line = [python, __file__, "--measure", name]
    for key, value in {**vars(options), **more}.items():
        if value is not None and key in ("threads", "prompt", "tokens", "cache", "vocabulary", "model", "library", "bytes"):
            line += [f"--{key}", str(value)]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{name}: exit code {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def compare(options, folder):
    """Writes, compiles and measures a model; prints the figures."""
    shape = QUICK if options.quick else SHAPE
    options.vocabulary, options.model = shape["vocabulary"], folder / "model.gguf"
    options.library = folder / "model.so"
    size = write_model(options.model, options.type, shape)
    start = time.perf_counter()
    line = [sys.executable, "-m", "saccade.gguf", options.model, "-o", options.library, "--cache", options.cache,
            "--activations", options.activations]
    subprocess.run(line + ["--prepack"] * options.prepack, check=True, stdout=subprocess.DEVNULL)
    print(f"{options.type}, {size / 2**20:.0f} MiB of weights, {options.threads} threads, cache {options.cache}, activations "
          f"{options.activations}; compiled in "
          f"{time.perf_counter() - start:.1f} s")
    names = ["saccade"] + ["llama"] * (options.llama is not None)
    found = {name: [] for name in names}
    reads = []
    for round_number in range(options.rounds):
        for name in names if round_number % 2 == 0 else names[::-1]:
            found[name].append(in_process(name, options.llama if name == "llama" else sys.executable, options))
        reads.append(in_process("read", sys.executable, options, bytes=size)["bytes"])
    bandwidth = statistics.median(reads)
    print(f"a sum reads {bandwidth / 1e9:.1f} GB/s")
    print(f"{'':10} {'prompt, tokens/s':>18} {'generated, tokens/s':>20} {'of the read rate':>18}")
    for name in names:
        prompt, generated = (statistics.median(each[key] for each in found[name]) for key in ("prompt", "generated"))
        share = statistics.median(each["generated"] * size / read for each, read in zip(found[name], reads))
        print(f"{name:10} {prompt:18.1f} {generated:20.1f} {share:18.2f}")
    if options.llama:
        for key in ("prompt", "generated"):
            ratio = statistics.median(x[key] / y[key] for x, y in zip(found["saccade"], found["llama"]))
            print(f"{key}: {ratio:.2f} times as fast as llama.cpp")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--type", default="Q4_0", help="the element type of matrices; Q4_0 by default")
    parser.add_argument("--llama", metavar="PYTHON", help="an interpreter with the package llama-cpp-python")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--prompt", type=int, default=512, help="the tokens of a prompt; 512 by default")
    parser.add_argument("--tokens", type=int, default=48, help="the tokens to generate; 48 by default")
    parser.add_argument("--cache", choices=["f32", "f16"], default="f16", help="the element type of caches")
    parser.add_argument("--activations", choices=["f32", "bf16", "int8"], default="f32", help="their type in matmuls")
    parser.add_argument("--prepack", action="store_true", help="pack weights of 32 and 16 bits")
    parser.add_argument("--quick", action="store_true", help="a small model")
    for name, kind in (("measure", str), ("vocabulary", int), ("model", pathlib.Path), ("library", pathlib.Path), ("bytes", int)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps({"saccade": measure_saccade, "llama": measure_llama, "read": measure_read}[options.measure](options)))
        return
    with tempfile.TemporaryDirectory() as folder:
        compare(options, pathlib.Path(folder))


if __name__ == "__main__":
    main()
