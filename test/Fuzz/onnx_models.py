#!/usr/bin/env python3
# REQUIRES: onnx
# UNSUPPORTED: asan, tsan
# RUN: %python %s --first-seed 0 --count 300
"""Mutated model files: each is read and imported, or refused with a diagnostic that names it; never a crash or another
exception, nothing that takes longer than a minute or more than a GiB of memory, no files where a model is refused.

Usage: onnx_models.py [--first-seed N] [--count N] [--seed N]
Inputs/onnx_mutations.py has the mutations. One in eight imported models is also compiled. Prints the command that
reproduces a failure, even if the process crashes. A long run: --count 10000.
"""

import argparse
import faulthandler
import pathlib
import random
import resource
import sys
import tempfile
import warnings

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import saccade
from saccade.module import Module, _encode
from saccade.onnx import ModelError, read

sys.path.insert(0, str(pathlib.Path(__file__).parent / "Inputs"))
from onnx_mutations import MUTATIONS

SECONDS, MEMORY = 60, 1 << 20  # of one file, and of all of them beyond what the compiler itself takes, in KiB


def models():
    """Small models with every family of operators in them."""
    def make(nodes, inputs, weights=(), opset=25, **types):
        values = [helper.make_tensor_value_info(name, types.get(name, TensorProto.FLOAT), shape)
                  for name, shape in inputs.items()]
        outputs = [onnx.ValueInfoProto(name="y")]
        graph = helper.make_graph(nodes, "g", values, outputs, [numpy_helper.from_array(w, n) for n, w in weights])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset),
                                                       helper.make_opsetid("ai.onnx.preview", 1)])

    node = helper.make_node
    heads = {"q": [2, 4, "l", 8], "k": [2, 2, 6, 8], "v": [2, 2, 6, 8]}
    yield make([node("Attention", ["q", "k", "v", "m"], ["y"], is_causal=1, softcap=3.0, left_window_size=2)],
               {**heads, "m": [1, 6]}, m=TensorProto.BOOL)
    yield make([node("Attention", ["q", "k", "v", "", "pk", "pv"], ["a", "", "", "y"], qk_matmul_output_mode=3)],
               {**heads, "pk": [2, 2, 3, 8], "pv": [2, 2, 3, 8]})
    score = helper.make_graph([
        node("Shape", ["s"], ["h"]), node("Constant", [], ["z"], value_int=0), node("Constant", [], ["o"], value_int=1),
        node("Constant", [], ["t"], value_int=3), node("Gather", ["h", "t"], ["n"]),
        node("Range", ["z", "n", "o"], ["r"]),
        node("Cast", ["r"], ["f"], to=1), node("Add", ["s", "f"], ["out"])], "score",
        [onnx.ValueInfoProto(name="s")], [onnx.ValueInfoProto(name="out")])
    yield make([node("FlexAttention", ["q", "k", "v"], ["y"], domain="ai.onnx.preview", score_mod=score)], heads)
    w = np.arange(96, dtype=np.float32).reshape(8, 12)
    yield make([node("MatMul", ["x", "w"], ["a"]), node("Shape", ["a"], ["s"]),
                node("Constant", [], ["c"], value_ints=[3, 4]),
                node("Constant", [], ["zero"], value_ints=[0]), node("Constant", [], ["two"], value_ints=[2]),
                node("Slice", ["s", "zero", "two"], ["front"]), node("Concat", ["front", "c"], ["shape"], axis=0),
                node("Reshape", ["a", "shape"], ["r"]), node("Transpose", ["r"], ["t"], perm=[0, 2, 1, 3]),
                node("Softmax", ["t"], ["p"], axis=-1), node("ReduceSum", ["p", "two"], ["u"], keepdims=0),
                node("Split", ["u"], ["e", "f"], axis=-1, num_outputs=2), node("Sub", ["e", "f"], ["g"]),
                node("Where", ["m", "g", "f"], ["y"])], {"x": ["b", 5, 8], "m": [1]}, [("w", w)], m=TensorProto.BOOL)
    yield make([node("Gather", ["w", "i"], ["e"]), node("LayerNormalization", ["e", "n"], ["l"]),
                node("Gemm", ["l", "w", "n"], ["d"], transB=1), node("Unsqueeze", ["d", "ax"], ["u"]),
                node("Erf", ["u"], ["y"])],
               {"i": [4]}, [("w", w[:, :8].copy()), ("n", np.ones(8, np.float32)), ("ax", np.array([0], np.int64))],
               i=TensorProto.INT64)
    yield make([node("RotaryEmbedding", ["q", "c", "s", "p"], ["r"]), node("Trilu", ["r", "k"], ["t"]),
                node("Expand", ["t", "e"], ["x"]), node("Pad", ["x", "pads"], ["d"]), node("Clip", ["d", "lo"], ["y"])],
               {"q": [1, 2, 5, 8], "c": [9, 4], "s": [9, 4], "p": [1, 5]},
               [("k", np.array(1, np.int64)), ("e", np.array([3, 2, 5, 8], np.int64)), ("lo", np.array(-1, np.float32)),
                ("pads", np.array([0, 0, 1, 0, 0, 0, 0, 2], np.int64))], p=TensorProto.INT64)


def imported(program):
    """The program after the import stage."""
    module = object.__new__(Module)
    module._source, module._name, module._options = program.text.encode(), "model.mlir", _encode({"target": "portable"})
    return module.ir("import")


def run(seed, folder, bases):
    """(outcome, mutation) for the file of a seed."""
    rng = random.Random(seed)
    model = onnx.ModelProto()
    model.CopyFrom(rng.choice(bases))
    path, mutate = folder / "model.onnx", rng.choice(MUTATIONS)
    path.write_bytes(mutate(rng, model, folder))
    try:
        program = read(path)
    except ModelError as error:
        assert "model.onnx" in str(error), f"does not name the file: {error}"
        return "refused by the reader", mutate
    try:
        imported(program)
        if rng.random() < 0.125:
            saccade.compile(program.text, target="portable")
            written = [pathlib.Path(name) for name in program.write(folder / "model.mlir")]
            assert sorted(written) == sorted(folder.glob("model*[!x]")), "files are left behind"
            for each in written:
                each.unlink()
            return "compiled", mutate
    except saccade.CompileError as error:
        assert "error:" in str(error) and "model.onnx" in str(error), f"does not name the file: {error}"
        return "refused by the compiler", mutate
    finally:
        assert not list(folder.glob("*.mlir")) and not list(folder.glob("*.npy")), "files are left behind"
    return "imported", mutate


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int)
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.count)
    if options.seed is not None:
        seeds = [options.seed]
    warnings.simplefilter("ignore")
    bases, counts, kinds = list(models()), {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for base in bases:  # without mutations, all of them are valid
            path = pathlib.Path(folder, "base.onnx")
            onnx.save(base, path)
            imported(read(path))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for seed in seeds:
            # The process may crash here: the line identifies the seed.
            print(f"{pathlib.Path(__file__).name} --seed {seed}", end="\r", flush=True)
            faulthandler.dump_traceback_later(SECONDS, exit=True)
            try:
                outcome, mutate = run(seed, pathlib.Path(folder), bases)
                grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
                assert grown < MEMORY, f"took {grown / 1024:.0f} MiB more than the unmutated models"
            except Exception as error:
                print(f"{pathlib.Path(__file__).name} --seed {seed}: {type(error).__name__}: {error}")
                sys.exit(1)
            counts[outcome] = counts.get(outcome, 0) + 1
            kinds[mutate.__name__] = kinds.get(mutate.__name__, 0) + 1
    faulthandler.cancel_dump_traceback_later()
    print(", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items())))
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))


if __name__ == "__main__":
    main()
