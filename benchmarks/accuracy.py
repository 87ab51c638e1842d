"""Accuracy of spec `transformers` models against PyTorch, and the number of softmaxes raised to attention.

Each model is exported, imported by a frontend, compiled and run in f32 and bf16. The error is the norm of the difference
to PyTorch's f32 result over the norm of that result; for bf16 the table also has PyTorch's own bf16 error. Requires the
`test` group of pyproject.toml and network access for MiniLM's weights. The compiler's remarks follow the table.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAMES = ["minilm", "bert", "vit", "gpt2", "llama", "t5", "swin", "bigbird", "longformer"]
MAX_ERROR = 1e-4  # f32, relative to the norm of the output
MIN_COSINE = 0.9999  # of MiniLM's sentence embeddings
MAX_ERROR_RATIO_BF16 = 1.2  # relative to PyTorch's own error
HEADER = ["model", "type", "layers", "attentions", "not raised", "export s", "compile s", "error", "PyTorch's own error",
          "verdict"]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", action="append", choices=NAMES, help="only this one; can be repeated")
    parser.add_argument("--type", action="append", choices=["f32", "bf16"], help="only this one; can be repeated")
    parser.add_argument("--frontend", choices=["onnx", "torch"], default="onnx", help="the frontend that imports the models")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save", action="store_true", help="write into benchmarks/results instead of build/bench")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "bench", help="output folder")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "dev", help="the build tree")
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "TYPE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.build, options.out = options.build.resolve(), options.out.resolve()
    return options


# --- one model, in its own process --------------------------------------------------------------------------------


def embeddings(hidden, mask):
    """Mean-pooled token embeddings of each sentence, L2-normalized."""
    import numpy as np

    weights = mask[..., None].astype(np.float64)
    means = (hidden * weights).sum(1) / weights.sum(1)
    return means / np.linalg.norm(means, axis=1, keepdims=True)


def raised(text):
    """The number of attentions raised, and the remarks about softmaxes that were not."""
    from saccade._library import library
    from saccade.module import make_text

    options = (("target", "host"), ("remarks", "true"))
    program, diagnostics = make_text(library().saccade_print_stage, text.encode(), "model.mlir", options, "transforms")
    return program.count("attn.attention "), [each.message for each in diagnostics if each.severity == "remark"]


def check(name, type, frontend):
    """Runs one model; a dictionary of measurements and remarks for the parent process."""
    import numpy as np
    import torch

    from saccade_bench.frontends import FRONTENDS
    from saccade_bench.hf_models import MODELS, FirstOutput

    spec = MODELS[name]
    model, given = spec.build()
    inputs = tuple(given.values())
    with torch.no_grad():
        expected = FirstOutput(model, list(given))(*inputs).double().numpy()

    def differs(found):
        return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))

    found = {"layers": spec.layers, "expected": spec.attentions, "must_raise": spec.must_raise, "own": None}
    if type == "bf16":
        model = model.bfloat16()
        inputs = tuple(each.bfloat16() if each.is_floating_point() else each for each in inputs)
        with torch.no_grad():
            own = FirstOutput(model, list(given))(*inputs).double().numpy()
        found["own"] = differs(own)
    with tempfile.TemporaryDirectory() as folder:
        if spec.wrap:
            with spec.wrap(model) as body:
                program = FRONTENDS[frontend](FirstOutput(body, list(given)), inputs, folder)
        else:
            program = FRONTENDS[frontend](FirstOutput(model, list(given)), inputs, folder)
    found["export"] = program.seconds
    found["attentions"], found["remarks"] = raised(program.text)
    start = time.perf_counter()
    run = program.compile()
    found["compile"] = time.perf_counter() - start
    result = run(inputs).astype(np.float64)
    found["error"] = differs(result)
    if name == "minilm":
        ours, theirs = (embeddings(each, given["attention_mask"].numpy()) for each in (result, expected))
        found["cosine"] = float((ours * theirs).sum(1).min())
        if type == "bf16":
            found["own_cosine"] = float((embeddings(own, given["attention_mask"].numpy()) * theirs).sum(1).min())
        # Outputs at padding tokens are not used.
        mask = given["attention_mask"].numpy().astype(bool)
        part = lambda each: float(np.linalg.norm(each[mask] - expected[mask]) / np.linalg.norm(expected[mask]))
        found["error"], found["own"] = part(result), part(own) if type == "bf16" else None
    return found


# --- the table ----------------------------------------------------------------------------------------------------


def verdict_of(found, type):
    """"met", or "MISSED: " and the failed conditions."""
    missed = []
    if found["must_raise"] and (found["attentions"] != found["expected"] or found["remarks"]):
        missed.append(f"{found['attentions']} attentions of {found['expected']}")
    if not found["must_raise"] and found["attentions"] + len(found["remarks"]) < found["expected"]:
        missed.append("a softmax was not raised and has no remark")
    if type == "f32" and not found["error"] <= MAX_ERROR:
        missed.append(f"error above {MAX_ERROR:g}")
    if type == "bf16" and not found["error"] <= MAX_ERROR_RATIO_BF16 * found["own"]:
        missed.append(f"error above {MAX_ERROR_RATIO_BF16:g} times PyTorch's")
    if type == "f32" and not found.get("cosine", 1) >= MIN_COSINE:
        missed.append(f"cosine below {MIN_COSINE:g}")
    if "own_cosine" in found and not 1 - found["cosine"] <= MAX_ERROR_RATIO_BF16 * (1 - found["own_cosine"]):
        missed.append("cosine below PyTorch's")
    return "MISSED: " + ", ".join(missed) if missed else "met"


def row_of(name, type, found):
    own = f"{found['own']:.1e}" if found["own"] else ""
    return [name, type, str(found["layers"]), str(found["attentions"]), str(len(found["remarks"])),
            f"{found['export']:.0f}", f"{found['compile']:.1f}", f"{found['error']:.1e}", own,
            verdict_of(found, type)]  # fmt: skip


def notes_of(name, type, found):
    """List items below the table: the cosine and the remarks of one model."""
    if "cosine" in found:
        own = f", PyTorch's in {type} {found['own_cosine']:.7f}" if "own_cosine" in found else ""
        yield f"- {name} {type}: the smallest cosine of an embedding to PyTorch's in f32 is {found['cosine']:.7f}{own}."
    for remark in dict.fromkeys(found["remarks"]):
        yield f"- {name} {type}: {found['remarks'].count(remark)} × \"{remark}\""


def in_process(options, name, type):
    command = [sys.executable, __file__, "--one", name, type, "--frontend", options.frontend, "--build", options.build,
               "--threads", str(options.threads)]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode != 0:
        return f"failed with exit code {ran.returncode}: {(ran.stderr.strip().splitlines() or [''])[-1][:300]}"
    return json.loads(ran.stdout.splitlines()[-1])


def main():
    options = parse_arguments()
    sys.path[:0] = [str(ROOT / "benchmarks"), str(options.build / "python")]
    if options.one:
        import torch

        import saccade

        saccade.set_num_threads(options.threads)
        torch.set_num_threads(options.threads)
        print(json.dumps(check(*options.one, options.frontend)))
        return 0
    import torch
    import transformers

    from saccade_bench.hf_models import MODELS
    from saccade_bench.progress import progress
    from saccade_bench.report import processor, publish, table

    names, types = options.model or NAMES, options.type or ["f32", "bf16"]
    rows, notes, failed = [], [], False
    with progress(len(names) * len(types), "models") as step:
        for name in names:
            for type in types:
                found = in_process(options, name, type)
                if isinstance(found, str):
                    rows.append([name, type, *[""] * 7, f"MISSED: {found}"])
                else:
                    rows.append(row_of(name, type, found))
                    notes += notes_of(name, type, found)
                failed |= rows[-1][-1] != "met"
                print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
                step()
    about = "\n".join(f"- {name}: {MODELS[name].text}." for name in names)
    title = (f"{processor()}; {options.threads} threads; PyTorch {torch.__version__}, transformers "
             f"{transformers.__version__}, imported by the {options.frontend} frontend. Errors are relative to the norm of PyTorch's f32.")
    publish("\n".join([title, "", table(HEADER, rows), about, "", *notes, ""]),
            "models-accuracy" + ("-torch" if options.frontend == "torch" else ""), options)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
