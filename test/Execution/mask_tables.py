#!/usr/bin/env python3
# REQUIRES: numpy
# RUN: %python %s %t.mlir
"""Masks with several ranges of visible keys, and masks that read one table at several places: with many queries, and with
few, whose heads share keys and see different ones of them."""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent / "Inputs"))
from program import normal, run

HEAD = """func.func @{name}(%q: tensor<1x4x?x32xf32>, %k: tensor<1x2x?x32xf32>, %t: tensor<?x?xi32>) -> tensor<1x4x?x32xf32> {{
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %k[b,h,s,d] captures(%t : tensor<?x?xi32>)
    mask(%b, %h, %i, %j, %of) {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %row = arith.index_cast %i : index to i32
      %one = arith.constant 1 : i32
"""
TAIL = """
      attn.yield %r : i1
    } : (tensor<1x4x?x32xf32>, tensor<1x2x?x32xf32>, tensor<1x2x?x32xf32>) -> tensor<1x4x?x32xf32>
  return %o : tensor<1x4x?x32xf32>
}
"""
# The elements of two rows of the table at key j, and comparisons of query i with them.
READ = """
      %{0} = tensor.extract %of[%c{1}, %j] : tensor<?x?xi32>"""
FROM = """
      %a = arith.cmpi sle, %x, %row : i32"""
TO = """
      %z = arith.cmpi slt, %row, %y : i32"""
# Numbers of query and key by a size that only the call knows.
BY_SIZE = """
      %x = tensor.extract %of[%c1, %c0] : tensor<?x?xi32>
      %size = arith.maxsi %x, %one : i32
      %column = arith.index_cast %j : index to i32
      %y = arith.{0} %{1}, %size : i32
      %its = arith.{0} %{2}, %size : i32
      %r = arith.cmpi eq, %y, %its : i32"""
SEES = {
    # Key j is visible to queries from t[0, j] to t[1, j].
    "spans": READ.format("x", 0) + READ.format("y", 1) + FROM + TO + """
      %r = arith.andi %a, %z : i1""",
    "spans_swapped": READ.format("y", 1) + READ.format("x", 0) + TO + FROM + """
      %r = arith.andi %z, %a : i1""",
    # Every head has documents of its own, and one table of them is read thrice.
    "documents_of_heads": """
      %last = arith.constant 3 : index
      %x = tensor.extract %of[%h, %i] : tensor<?x?xi32>
      %y = tensor.extract %of[%h, %j] : tensor<?x?xi32>
      %other = tensor.extract %of[%last, %j] : tensor<?x?xi32>
      %a = arith.cmpi eq, %x, %y : i32
      %z = arith.cmpi ne, %x, %other : i32
      %r = arith.andi %a, %z : i1""",
    "blocks_of_a_given_size": BY_SIZE.format("divsi", "row", "column"),
    "every_nth_key": BY_SIZE.format("remsi", "column", "row"),
    # The first keys, and a window whose size depends on the head: two ranges.
    "sinks": """
      %sinks = arith.constant 5 : index
      %size = arith.constant 37 : index
      %number = arith.addi %h, %c1 : index
      %reach = arith.muli %number, %size : index
      %distance = arith.subi %i, %j : index
      %a = arith.cmpi slt, %j, %sinks : index
      %near = arith.cmpi slt, %distance, %reach : index
      %past = arith.cmpi sge, %distance, %c0 : index
      %z = arith.andi %near, %past : i1
      %r = arith.ori %a, %z : i1""",
    # Three ranges, the last ones only for some heads.
    "bands": """
      %first = arith.constant 100 : index
      %second = arith.constant 200 : index
      %third = arith.constant 290 : index
      %a = arith.cmpi slt, %j, %first : index
      %from = arith.cmpi sge, %j, %second : index
      %to = arith.cmpi slt, %j, %third : index
      %band = arith.andi %from, %to : i1
      %two = arith.constant 2 : index
      %few = arith.cmpi slt, %h, %two : index
      %z = arith.andi %band, %few : i1
      %r = arith.ori %a, %z : i1""",
    # The visible keys of the heads overlap in part, and some are before those of head 0.
    "heads_apart": """
      %size = arith.constant 60 : index
      %three = arith.constant 3 : index
      %number = arith.subi %three, %h : index
      %low = arith.muli %number, %size : index
      %high = arith.addi %low, %size : index
      %a = arith.cmpi sge, %j, %low : index
      %z = arith.cmpi sle, %j, %high : index
      %r = arith.andi %a, %z : i1""",
}
rng = np.random.default_rng(11)
KEYS = 300
starts = np.sort(rng.integers(0, 90, KEYS))
spans = np.stack([starts, starts + rng.integers(0, 40, KEYS)]).astype(np.int32)
documents = np.sort(rng.integers(0, 6, (4, KEYS)), axis=1).astype(np.int32)
k = normal(rng, 1, 2, KEYS, 32)
for name, body in SEES.items():
    program = pathlib.Path(sys.argv[1])
    program.write_text(HEAD.format(name=name) + body.lstrip("\n") + TAIL)
    for queries in (2, 100):
        run(program, name, normal(rng, 1, 4, queries, 32), k, documents if "documents" in name else spans)
