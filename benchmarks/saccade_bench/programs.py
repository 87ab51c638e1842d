"""MLIR programs of the cases: one per kind, with all sizes dynamic except head_dim."""

ENTRY = "compute"

MASKS = {"full": "", "causal": "mask causal<top_left> "}

# 16-bit types accumulate in f32; the bias is added before the result is rounded.
GEMM = """#all = affine_map<(i, j) -> (i, j)>
#columns = affine_map<(i, j) -> (j)>
func.func @{entry}(%x: tensor<?x?x{type}>, %w: tensor<?x?x{type}>, %bias: tensor<?x{type}>) -> tensor<?x?x{type}> {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %x, %c0 : tensor<?x?x{type}>
  %n = tensor.dim %w, %c1 : tensor<?x?x{type}>
  %zero = arith.constant 0.0 : {wide}
  %empty = tensor.empty(%m, %n) : tensor<?x?x{wide}>
  %zeros = linalg.fill ins(%zero : {wide}) outs(%empty : tensor<?x?x{wide}>) -> tensor<?x?x{wide}>
  %product = linalg.matmul ins(%x, %w : tensor<?x?x{type}>, tensor<?x?x{type}>) outs(%zeros : tensor<?x?x{wide}>)
    -> tensor<?x?x{wide}>
  %result = tensor.empty(%m, %n) : tensor<?x?x{type}>
  %y = linalg.generic {{indexing_maps = [#all, #columns, #all], iterator_types = ["parallel", "parallel"]}}
    ins(%product, %bias : tensor<?x?x{wide}>, tensor<?x{type}>) outs(%result : tensor<?x?x{type}>) {{
  ^body(%p: {wide}, %b: {type}, %unused: {type}):
{body}  }} -> tensor<?x?x{type}>
  return %y : tensor<?x?x{type}>
}}
"""

BIAS = {
    False: """    %r = arith.addf %p, %b : {type}
    linalg.yield %r : {type}
""",
    True: """    %b32 = arith.extf %b : {type} to f32
    %sum = arith.addf %p, %b32 : f32
    %r = arith.truncf %sum : f32 to {type}
    linalg.yield %r : {type}
""",
}

SCORE = """score(%s: {wide}, %b, %h, %i, %j, %t) {{
      %x = tensor.extract %t[%h, %i, %j] : tensor<?x?x?x{type}>
{widen}      %r = arith.addf %s, %{term} : {wide}
      attn.yield %r : {wide}
    }} """


def is_narrow(type):
    return type in ("f16", "bf16")


def source(kind):
    """The program of a kind; its entry is ENTRY."""
    wide = "f32" if is_narrow(kind.type) else kind.type
    if kind.operation == "gemm":
        body = BIAS[is_narrow(kind.type)].format(type=kind.type)
        return GEMM.format(entry=ENTRY, type=kind.type, wide=wide, body=body)
    tensor, table = f"tensor<?x?x?x{kind.depth}x{kind.type}>", f"tensor<?x?x?x{kind.type}>"
    dims = ",".join(kind.layout)
    clauses = f"captures(%table : {table}) " if kind.has_bias else ""
    clauses += MASKS[kind.mask] if kind.mask in MASKS else f"mask window<{int(kind.mask[len('window'):]) - 1}, 0> "
    parameters = f"%q: {tensor}, %k: {tensor}, %v: {tensor}"
    if kind.has_bias:
        parameters += f", %table: {table}"
        widen = f"      %wide = arith.extf %x : {kind.type} to f32\n" if is_narrow(kind.type) else ""
        clauses += "\n    " + SCORE.format(type=kind.type, wide=wide, widen=widen, term="wide" if widen else "x")
    return f"""func.func @{ENTRY}({parameters}) -> {tensor} {{
  %o = attn.attention %q[{dims}], %k[{dims}], %v[{dims}] {clauses}: ({tensor}, {tensor}, {tensor}) -> {tensor}
  return %o : {tensor}
}}
"""
