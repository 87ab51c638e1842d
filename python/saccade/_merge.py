"""The merge of attention over disjoint sets of keys, as ops of `linalg`.

An output o over some keys with the log-sum-exp l of their scores is the softmax state with maximum l and sum 1. Two
states are merged as in split-KV (Dao et al. 2023, flash-decoding): with m = max(l₁, l₂) and wᵢ = exp(lᵢ − m), the
output is (w₁ o₁ + w₂ o₂) / (w₁ + w₂) and the log-sum-exp m + log(w₁ + w₂). The empty state, 0 and −inf, is the
identity. A log-sum-exp may have a low part, what its rounding took: without it, two states near −10⁹ have equal weights
whatever the number of their keys is.
"""

from __future__ import annotations


def merge(layout: str, output: str, rows: str, has_low: bool = False) -> str:
    """Ops that merge %out and %lse with %other_out and %other_lse into %merged_out and %merged_lse.

    Args:
        layout: the dimensions of the output, which may be in any order.
        output: the type of the outputs, of the precision of scores.
        rows: that of the log-sum-exps, with dimensions in the order b, h, s.
        has_low: merges the low parts %lse_low and %other_lse_low into %merged_low, too.
    """
    element = rows.rstrip(">").rpartition("x")[2]
    row_dims = [dim for dim in "bhs" if dim in layout]
    listed = ", ".join(layout)
    all_dims = f"affine_map<({listed}) -> ({listed})>"
    of_rows = f"affine_map<({listed}) -> ({', '.join(row_dims)})>"
    identity = f"affine_map<({', '.join(row_dims)}) -> ({', '.join(row_dims)})>"
    axes = "".join(f"  %axis_{i} = arith.constant {i} : index\n" for i in range(len(layout)))
    row_sizes = [f"  %rows_{dim} = tensor.dim %lse, %axis_{i} : {rows}\n" for i, dim in enumerate(row_dims)]
    sizes = ", ".join(f"%rows_{dim}" for dim in row_dims)
    out_sizes = ", ".join(f"%rows_{dim}" for dim in layout if dim != "d")
    over_rows, over_all = (", ".join(['"parallel"'] * len(dims)) for dims in (row_dims, layout))
    given = ["%lse", "%other_lse", *(["%lse_low", "%other_lse_low"] if has_low else [])]
    lows = f", %x_low: {element}, %y_low: {element}" if has_low else ""
    zero = "" if has_low else (f"    %x_low = arith.constant 0.0 : {element}\n"
                               f"    %y_low = arith.constant 0.0 : {element}\n")
    return f"""{axes}{"".join(row_sizes)}  %row_space = tensor.empty({sizes}) : {rows}
  %merged_lse, %merged_low, %share, %other_share = linalg.generic
      {{indexing_maps = [{", ".join([identity] * (len(given) + 4))}], iterator_types = [{over_rows}]}}
      ins({", ".join(given)} : {", ".join([rows] * len(given))})
      outs(%row_space, %row_space, %row_space, %row_space : {", ".join([rows] * 4)}) {{
  ^bb0(%x: {element}, %y: {element}{lows}, %u0: {element}, %u1: {element}, %u2: {element}, %u3: {element}):
{zero}    %nothing = arith.constant 0.0 : {element}
    %lowest = arith.constant 0x{"FFF0000000000000" if element == "f64" else "FF800000"} : {element}
    %larger = arith.maximumf %x, %y : {element}
    %is_empty = arith.cmpf oeq, %larger, %lowest : {element}
    %m = arith.select %is_empty, %nothing, %larger : {element}
    %x_larger = arith.cmpf oge, %x, %y : {element}
    %m_low = arith.select %x_larger, %x_low, %y_low : {element}
    %x_m = arith.subf %x, %m : {element}
    %y_m = arith.subf %y, %m : {element}
    %x_of_low = arith.subf %x_low, %m_low : {element}
    %y_of_low = arith.subf %y_low, %m_low : {element}
    %x_distance = arith.addf %x_m, %x_of_low : {element}
    %y_distance = arith.addf %y_m, %y_of_low : {element}
    %wx = math.exp %x_distance : {element}
    %wy = math.exp %y_distance : {element}
    %sum = arith.addf %wx, %wy : {element}
    %log = math.log %sum : {element}
    %addend = arith.addf %m_low, %log : {element}
    %joined = arith.addf %m, %addend : {element}
    %joined_lse = arith.select %is_empty, %lowest, %joined : {element}
    %added = arith.subf %joined, %m : {element}
    %m_again = arith.subf %joined, %added : {element}
    %m_error = arith.subf %m, %m_again : {element}
    %addend_error = arith.subf %addend, %added : {element}
    %error = arith.addf %m_error, %addend_error : {element}
    %gap = arith.subf %joined_lse, %joined_lse : {element}
    %is_finite = arith.cmpf oeq, %gap, %nothing : {element}
    %joined_low = arith.select %is_finite, %error, %nothing : {element}
    %px = arith.divf %wx, %sum : {element}
    %py = arith.divf %wy, %sum : {element}
    %sx = arith.select %is_empty, %nothing, %px : {element}
    %sy = arith.select %is_empty, %nothing, %py : {element}
    linalg.yield %joined_lse, %joined_low, %sx, %sy : {element}, {element}, {element}, {element}
  }} -> ({rows}, {rows}, {rows}, {rows})
  %out_space = tensor.empty({out_sizes}) : {output}
  %merged_out = linalg.generic
      {{indexing_maps = [{all_dims}, {all_dims}, {of_rows}, {of_rows}, {all_dims}],
        iterator_types = [{over_all}]}}
      ins(%out, %other_out, %share, %other_share : {output}, {output}, {rows}, {rows}) outs(%out_space : {output}) {{
  ^bb0(%x: {element}, %y: {element}, %sx: {element}, %sy: {element}, %u: {element}):
    %a = arith.mulf %x, %sx : {element}
    %b = arith.mulf %y, %sy : {element}
    %c = arith.addf %a, %b : {element}
    linalg.yield %c : {element}
  }} -> {output}
"""
