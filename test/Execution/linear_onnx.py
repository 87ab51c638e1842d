#!/usr/bin/env python3
# REQUIRES: numpy, onnx
# RUN: %python %s
"""attn.linear gives the expected results of ONNX's node tests of LinearAttention, with their data: all update rules, grouped
heads, a decode step, states, scale, float16."""

import pathlib
import sys
import tempfile
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).parent / "Inputs"))
from linear_program import program
from program import assert_close, run

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of cases of other ops, which overflow on purpose
    import onnx
    from onnx.backend.test.case.node import collect_testcases

    cases = {case.name: case for case in collect_testcases("LinearAttention") if not case.name.endswith("_expanded")}

assert len(cases) >= 14, sorted(cases)
for name, case in cases.items():
    (node,) = case.model.graph.node
    attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    (inputs, expected), = case.data_sets
    given = dict(zip((role for role, used in zip(("q", "k", "v", "past", "decay", "beta"), node.input) if used), inputs))
    heads, key_heads = attributes["q_num_heads"], attributes["kv_num_heads"]
    depth, width = given["q"].shape[-1] // heads, given["v"].shape[-1] // key_heads
    decay = None if "decay" not in given else "h" if given["decay"].shape[-1] == key_heads else "hd"
    beta = None if "beta" not in given else given["beta"].shape[-1] == key_heads
    element = {"float32": "f32", "float16": "f16"}[given["q"].dtype.name]
    text = program(element, heads, key_heads, depth, width, decay, beta, "past" in given, attributes.get("scale"))
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / f"{name}.mlir"
        file.write_text(text)
        order = [given[role] for role in ("q", "k", "v", "decay", "beta", "past") if role in given]
        found = run(file, "linear", *((x, element) for x in order), results=2)
    for one, other in zip(found, expected):
        assert_close(one, other.astype(float), 2e-3 if element == "f16" else 2e-6)
    print(name, "agrees")
