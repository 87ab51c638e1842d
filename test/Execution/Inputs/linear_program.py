"""attn.linear between the reshapes of ONNX's LinearAttention."""


def program(element, heads, kv_heads, depth, width, decay, beta, past, scale):
    """The op in ONNX's layout: [B, T, H·D] is split into heads, the output joined. decay: None, "h" (per head) or
    "hd"; beta: None, or whether it is per head; past: whether there is an initial state."""
    lines, arguments = [], []

    def tensor_3d(name, count, size):
        kind, split = f"tensor<?x?x{count * size}x{element}>", f"tensor<?x?x{count}x{size}x{element}>"
        arguments.append((name, kind))
        lines.append(f"  %{name}4 = tensor.expand_shape %{name} [[0], [1], [2, 3]] output_shape [%B, %T, {count}, {size}] : {kind} into {split}")
        return split

    types = [tensor_3d("q", heads, depth), tensor_3d("k", kv_heads, depth), tensor_3d("v", kv_heads, width)]
    clauses = [f"causal scale({scale or depth**-0.5:.17f})"]
    if decay == "hd":
        clauses.append(f"decay(%g4[b,s,h,d] : {tensor_3d('g', kv_heads, depth)})")
    elif decay:
        arguments.append(("g", f"tensor<?x?x{kv_heads}x{element}>"))
        clauses.append(f"decay(%g[b,s,h] : {arguments[-1][1]})")
    if beta is not None:
        arguments.append(("beta", f"tensor<?x?x{kv_heads if beta else 1}x{element}>"))
        if not beta:
            lines.append(f"  %beta1 = tensor.collapse_shape %beta [[0], [1, 2]] : {arguments[-1][1]} into tensor<?x?x{element}>")
        clauses.append(f"beta(%beta[b,s,h] : {arguments[-1][1]})" if beta else f"beta(%beta1[b,s] : tensor<?x?x{element}>)")
    state = f"tensor<?x{kv_heads}x{depth}x{width}x{element}>"
    if past:
        arguments.append(("past", state))
        clauses.append(f"state(%past : {state})")
    out, joined = f"tensor<?x?x{heads}x{width}x{element}>", f"tensor<?x?x{heads * width}x{element}>"
    return (f"func.func @linear({', '.join(f'%{name}: {kind}' for name, kind in arguments)}) -> ({joined}, {state}) {{\n"
            f"  %c0 = arith.constant 0 : index\n  %c1 = arith.constant 1 : index\n"
            f"  %B = tensor.dim %q, %c0 : {arguments[0][1]}\n  %T = tensor.dim %q, %c1 : {arguments[0][1]}\n" + "\n".join(lines)
            + f"\n  %o, %s = attn.linear %q4[b,s,h,d], %k4[b,s,h,d], %v4[b,s,h,d] {' '.join(clauses)}\n"
            f"    : ({', '.join(types)}) -> ({out}, {state})\n"
            f"  %y = tensor.collapse_shape %o [[0], [1], [2, 3]] : {out} into {joined}\n  return %y, %s : {joined}, {state}\n}}\n")  # fmt: skip
