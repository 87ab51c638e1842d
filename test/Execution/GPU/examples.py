#!/usr/bin/env python3
# RUN: %python %s %src/examples
"""Runs every entry of the examples and of the demo on the simulator for sm_80, against the float64 reference."""

import pathlib
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

EXAMPLES = pathlib.Path(sys.argv[1])


def f32(*shapes):
    return [f"{shape}:f32:{i + 1}" for i, shape in enumerate(shapes)]


def heads(queries, keys):
    return f32(f"1x2x{queries}x64", f"1x2x{keys}x64", f"1x2x{keys}x64")


def lengths(count, value):
    return f"{count}:i32:={value}"


MINILM = [f"{EXAMPLES}/minilm/data/{name}.npy" for name in
          ("hidden", "wq", "bq", "wk", "bk", "wv", "bv", "wo", "bo", "gamma", "beta", "lengths")]
NORM = ["768", "768"]
CALLS = {
    "alibi.mlir": {"alibi": f32("1x8x35x64", "1x2x60x64", "1x2x60x64", "8")},
    "causal.mlir": {
        "top_left": heads(70, 31),
        "bottom_right": heads(31, 70),
        "bottom_right_of_lengths": heads(40, 50) + [lengths(1, 33), lengths(1, 17)],
        "offset": heads(40, 41),
        "strictly_before": heads(20, 20),
        "chunk": heads(16, 100) + ["60"],
    },
    "cross-attention.mlir": {
        "cross_attention": f32("2x5x512", "2x9x768") + [lengths(2, 6)]
                           + f32("512x512", "512", "512x768", "512", "512x768", "512", "512x512", "512"),
    },
    "decode/step.mlir": {
        "step": f32("1x3x8x64", "1x3x2x64", "1x3x2x64", "6x16x2x64", "6x16x2x64")
                + ["1x1:i32:=4", lengths(1, 5), lengths(1, 3), lengths(1, 8)],
    },
    "encoder-stack.mlir": {
        "encoder_stack": f32("2x7x256", "7x256") + [lengths(2, 5)]
                         + f32("2x768x256", "2x768", "2x256x256", "2x256", "2x256", "2x256", "2x1024x256", "2x1024",
                               "2x256x1024", "2x256", "2x256", "2x256"),
    },
    "flash-long.mlir": {"one_long_head": f32("1x1x150x64", "1x1x300x64", "1x1x300x64")},
    "linformer.mlir": {"linformer": f32("1x2x20x64", "1x2x20x64", "1x2x20x64", "32x20", "32x20")},
    "normalizers.mlir": {
        "sigmoid": f32("1x8x35x64", "1x2x60x64", "1x2x60x64") + ["-4.0"],
        "hstu": f32("1x4x35x64", "1x4x35x64", "1x4x35x64", "35x35"),
        "relu_squared": f32("1x8x35x64", "1x8x60x64", "1x8x60x64"),
    },
    "soft-cap.mlir": {"soft_cap": f32("1x8x35x64", "1x2x60x64", "1x2x60x64")},
    "multi-head.mlir": {
        "multi_head_attention": f32("2x9x512", "512x512", "512", "512x512", "512", "512x512", "512", "512x512", "512"),
        "multi_head_attention_without_bias": f32("1x9x512", "512x512", "512x512", "512x512", "512x512"),
    },
    "multi-head-fused-qkv.mlir": {
        "fused_projection": f32("2x9x512", "1536x512", "1536", "512x512", "512"),
        "einsum_nqhd_nkhd": f32("1x20x8x64", "1x33x8x64", "1x33x8x64"),
    },
    "padding.mlir": {
        "padded_keys": heads(20, 40) + [lengths(1, 33)],
        "padded_queries_and_keys": heads(20, 40) + ["1:i64:=11", "1:i64:=33"],
        "partly_filled_cache": heads(20, 40) + ["33"],
        "padding_mask": heads(20, 40) + ["1x40:i1:4"],
    },
    "performer.mlir": {
        "performer": f32("1x2x20x64", "1x2x20x64", "1x2x20x64", "256x64"),
        "performer_causal": f32("1x2x20x64", "1x2x20x64", "1x2x20x64", "256x64"),
    },
    "rope.mlir": {"rope_attention": f32("2x20x64", "2x20x64", "2x20x64", "20x32", "20x32")},
    "scaled-dot-product.mlir": {
        "numpy_example": ["4x8:f64:1", "4x8:f64:2", "4x8:f64:3"],
        "values_of_another_width": f32("97x64", "130x64", "130x40"),
        "batches_of_heads": f32("2x3x33x64", "2x3x95x64", "2x3x95x64"),
        "heads_beside_depth": f32("1x17x12x64", "1x40x12x64", "1x40x12x64"),
        "every_operand_its_layout": f32("19x2x3x64", "2x3x64x45", "3x2x45x64"),
        "strided": f32("2x4x20x32", "2x4x30x64", "2x4x30x32"),
        "grouped_queries": ["2x8x65x64:bf16:1", "2x2x129x64:bf16:2", "2x2x129x64:bf16:3"],
        "half_precision": ["1x8x65x64:f16:1", "1x8x31x64:f16:2", "1x8x31x64:f16:3"],
        "given_scale": heads(50, 60),
        "scale_at_run_time": heads(50, 60) + ["0.3"],
        "log_sum_exp": heads(50, 60),
        "huge_logits": heads(50, 60),
    },
    "sliding-window.mlir": {
        "both_sides": heads(40, 300),
        "causal_window": heads(300, 300),
        "narrow": heads(40, 40),
        "window_and_first_keys": heads(70, 70),
    },
    "vit-base-block.mlir": {
        "vit_base_block": f32("1x5x768", *NORM, "2304x768", "2304", "768x768", "768", *NORM, "3072x768", "3072",
                              "768x3072", "768"),
        "vit_base_attention": f32("1x5x768", "2304x768", "2304", "768x768", "768"),
    },
    "minilm/attention.mlir": {"minilm_attention": MINILM, "minilm_weights": [*MINILM[:5], MINILM[-1]]},
}


def run(call):
    file, entry, arguments = call
    line = ["saccade-run", str(EXAMPLES / file), "--device=ptxsim", "--check", "--explain", f"--entry={entry}"]
    result = subprocess.run([*line, *(f"--arg={argument}" for argument in arguments)], capture_output=True, text=True)
    output = result.stdout + result.stderr
    # f32 uses the simt family, 16-bit types the tensor cores.
    family = "sm_80" if entry in ("grouped_queries", "half_precision") else "simt"
    if result.returncode or not re.search(f"kernel family {family}(, split-KV)?, ran", output):
        return f"{file} @{entry}: exit code {result.returncode}\n{output}"
    return None


# Those of examples/plugin need the plugin, which its own tests build.
programs = [path for path in EXAMPLES.rglob("*.mlir") if path.relative_to(EXAMPLES).parts[0] != "plugin"]
written = {(path.relative_to(EXAMPLES).as_posix(), entry) for path in programs
           for entry in re.findall(r"^func\.func @(\w+)", path.read_text(), re.M)}
calls = [(file, entry, arguments) for file, entries in CALLS.items() for entry, arguments in entries.items()]
assert written == {(file, entry) for file, entry, _ in calls}, "every entry of the examples is run here"
with ThreadPoolExecutor(2) as workers:
    failures = [failure for failure in workers.map(run, calls) if failure]
print("\n".join(failures))
print(f"{len(calls)} entries, {len(failures)} failures")
sys.exit(bool(failures))
