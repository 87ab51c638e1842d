"""Argument checks of `saccade.attention`: options, kinds and shapes, with messages in terms of its parameters."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any, TypeAlias

from saccade import _arrays, _cache_text, _gpu, _packed, _parameters
from saccade._arrays import Array
from saccade._form import Operands, key_layout

# MLIR's names of the element types of torch and NumPy.
ELEMENTS = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16"}
_QUANTIZED = "int8, float8_e4m3fn, float8_e5m2 or uint8"
Kind: TypeAlias = tuple[bool, bool]
"""Of q, k, v and the other tensors of a call: whether they are torch tensors, and whether they are on a GPU."""
# Larger than any position, and small enough that sums with it do not overflow 64 bits.
_POSITION_LIMIT = 1 << 40
_ALIGNMENTS = 'None, "top_left", "bottom_right" or an int offset (key <= query + offset)'


def dtype_name(x: Any) -> str:
    """"float32" for torch.float32 and NumPy's float32 alike."""
    return getattr(x.dtype, "name", None) or str(x.dtype).removeprefix("torch.")


def element_of(dtype: Any, name: str = "q") -> str:
    """MLIR's name of an element type of torch or NumPy. Raises TypeError."""
    found = getattr(dtype, "name", None) or str(dtype).removeprefix("torch.")
    if found not in ELEMENTS:
        raise TypeError(f"{name} has element type {found}, expected {', '.join(ELEMENTS)}")
    return ELEMENTS[found]


# --- scalars and options ------------------------------------------------------------------------------------------


def integer_of(x: Any) -> int | None:
    """x as an int, or None if it is no integer; booleans do not count."""
    if type(x) is int:
        return x
    if isinstance(x, bool) or "bool" in str(getattr(x, "dtype", "")) or getattr(x, "ndim", None):
        return None
    try:
        return operator.index(x)
    except TypeError:
        return None


def check_scale(scale: Any, name: str = "scale") -> float:
    """The scale as a float, which may be symbolic while torch.compile traces."""
    if type(scale) is float:
        return scale
    if isinstance(scale, (bool, str, bytes)) or getattr(scale, "ndim", None):
        raise TypeError(f"{name} is {scale!r:.80}, expected a number")
    if getattr(scale, "requires_grad", False):  # the conversion to a scalar drops the gradient
        _arrays.check_tensor(name, scale)
        scale = scale.detach()
    try:
        return float(scale)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {scale!r:.80}, expected a number or None for 1/sqrt(head size)") from None


def check_finite_scale(scale: Any, name: str = "scale") -> float:
    """The scale as a finite float."""
    number = check_scale(scale, name)
    if not math.isfinite(number):
        raise ValueError(f"{name} is {number}, expected a finite number")
    return number


def check_stream(value: Any, prefix: str = "") -> None:
    """Checks a `reproducible` that is not None. `prefix` begins the message."""
    if value != "stream":
        kind = ValueError if isinstance(value, str) else TypeError
        raise kind(f'{prefix}reproducible is {value!r:.80}, expected "stream" or None')


def check_reproducible(value: Any, q: Any, is_ragged: bool) -> None:
    """Checks what the bits of a query must not depend on."""
    check_stream(value)
    if is_ragged:
        raise ValueError('reproducible is "stream" and cu_seqlens_q is given, expected one of them')
    if _arrays.is_torch(q) and not q.is_cpu:
        raise ValueError(f'reproducible is "stream" and q on {q.device}, expected the CPU')


def check_qk_type(qk_type: Any, q: Any) -> None:
    """Checks the type to which queries and keys may be rounded."""
    if not isinstance(qk_type, str):
        raise TypeError(f'qk_type is {qk_type!r:.80}, expected "int8" or None')
    if qk_type != "int8":
        raise ValueError(f'qk_type is {qk_type!r:.80}, expected "int8" or None')
    if dtype_name(q) == "float64":
        raise ValueError('qk_type is "int8" and q of float64, expected float32, float16 or bfloat16')


def tensor_recipe(name: str) -> str:
    """How the mask or bias tensor `name` is written as a function."""
    return (f"a boolean mask is mask=lambda b, h, i, j: {name}[b, h, i, j], with 0 for dimensions of extent 1, and a "
            f"float mask is score=saccade.scores.bias({name}) without them; "
            "saccade.torch.scaled_dot_product_attention and saccade.jax.dot_product_attention take both as they are")


_RECIPES = {
    "attn_mask": tensor_recipe("attn_mask"),
    "attention_mask": tensor_recipe("attention_mask"),
    "attn_bias": tensor_recipe("attn_bias"),
    "bias": tensor_recipe("bias"),
    "is_causal": 'is_causal=True is causal="top_left"; causal="bottom_right" lets the last query attend to the last '
                 "key",
    "score_mod": "give the function as score=score_mod; its parameters are the same",
    "mask_mod": "give the function as mask=mask_mod; its parameters are the same",
    "block_mask": "give its function as mask=block_mask.mask_mod: tiles without visible pairs are found from it",
    "enable_gqa": "leave it out: q may have a multiple of the heads of k and v",
    "kernel_options": "leave it out: kernels have no options",
    "sliding_window": "write window=n for the last n keys, or window=(left, right)",
    "softcap": "write score=saccade.scores.soft_cap(softcap)",
    "sm_scale": "write scale=sm_scale",
    "softmax_scale": "write scale=softmax_scale",
}


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """", did you mean 'causal'?" for a name that is similar to a known one, otherwise nothing."""
    import difflib  # imported late: errors only

    close = difflib.get_close_matches(name, known, 1)
    return f", did you mean {close[0]!r}?" if close else ""


def unknown_option(given: dict[str, Any], known: Iterable[str], function: str = "attention") -> TypeError:
    """The error for options that a function of attention does not have, with what to write for those of other
    libraries. `known` are its own."""
    name = next(iter(given))
    recipe = f": {_RECIPES[name]}" if name in _RECIPES else did_you_mean(name, known)
    return TypeError(f"{function}() got an unexpected keyword argument '{name}'{recipe}")


def check_heads(heads: int, q: Any, layout: Any) -> None:
    """Checks the number of query heads against the tables of a score. Invalid layouts and queries are reported
    elsewhere."""
    axis = layout.find("h") if isinstance(layout, str) else -1
    if 0 <= axis < len(getattr(q, "shape", ())) and q.shape[axis] != heads:
        raise ValueError(f"score has tables for {heads} heads, q has {q.shape[axis]}")


def check_causal(causal: Any) -> int:
    """The offset of a causal mask without a named alignment."""
    if isinstance(causal, bool):
        raise TypeError(
            f'causal is {causal}, expected an alignment: {_ALIGNMENTS}. "top_left" lets query i attend to '
            'keys up to key i, "bottom_right" the last query up to the last key; both are the same for as many queries '
            "as keys"
        )
    if isinstance(causal, str):
        raise ValueError(f"causal is {causal!r}, expected {_ALIGNMENTS}")
    offset = integer_of(causal)
    if offset is None:
        raise TypeError(f"causal is {causal!r:.80}, expected {_ALIGNMENTS}")
    return max(-_POSITION_LIMIT, min(_POSITION_LIMIT, offset))


def check_window(window: Any, is_causal: bool, name: str = "window") -> tuple[str, tuple[int, ...]]:
    """The bounded sides of a window, "l", "r", "lr" or "", and their distances in keys. A causal mask bounds the right
    side."""
    if not isinstance(window, (tuple, list)):
        count = integer_of(window)
        if count is None:
            raise TypeError(f"{name} is {window!r:.80}, expected None, an int n (the last n keys) or (left, right)")
        if count < 1:
            raise ValueError(f"{name} is {count}, expected at least 1: the number of keys up to a query's own")
        left, right = count - 1, 0
    else:
        if len(window) != 2:
            raise ValueError(f"{name} has {len(window)} numbers, expected 2: (left, right)")
        left, right = (_check_side(name, which, side) for which, side in zip(("left", "right"), window))
    left = left if left < _POSITION_LIMIT else _POSITION_LIMIT
    right = right if right < _POSITION_LIMIT else _POSITION_LIMIT
    if is_causal or right < 0:
        return ("l", (left,)) if left >= 0 else ("", ())
    return ("lr", (left, right)) if left >= 0 else ("r", (right,))


def first_own_key(causal: Any, queries: Any, keys: Any) -> Any:
    """The position of the own key of query 0, for `queries` and `keys` in all or in each sequence."""
    if isinstance(causal, str) and causal == "bottom_right":
        return keys - queries
    return 0 if causal is None or isinstance(causal, str) else check_causal(causal)


def window_sides(window: Any, is_causal: bool) -> tuple[int | None, int | None]:
    """How many keys before and after its own a window lets a query attend to; None for all."""
    found = {} if window is None else dict(zip(*check_window(window, is_causal)))
    return found.get("l"), found.get("r")


def _check_side(name: str, which: str, side: Any) -> int:
    """The distance of one side of a window; -1 if it is open."""
    if side is None:
        return -1
    span = integer_of(side)
    if span is None:
        raise TypeError(f"{name} has {which} = {side!r:.80}, expected an int, or None or -1 for an open side")
    if span < -1:
        raise ValueError(f"{name} has {which} = {span}, expected at least 0, or None or -1 for an open side")
    return span


def check_length(kv_len: Any, q: Any) -> tuple[str, Any]:
    """The kind of kv_len, "index", "i32" or "i64", and its value."""
    if type(kv_len) is not int and getattr(kv_len, "ndim", 0) == 0:
        length = integer_of(kv_len)
        if length is None:
            raise TypeError(f"kv_len is {kv_len!r:.80}, expected an int, or an int32 or int64 tensor [batch]")
        kv_len = length
    if type(kv_len) is int:
        return "index", kv_len
    check_kind("kv_len", kv_len, kind_of(q))
    return integer_type("kv_len", kv_len), kv_len


def integer_type(name: str, x: Any) -> str:
    """MLIR's name of the element type of lengths, offsets or pages."""
    found = dtype_name(x)
    if found not in ("int32", "int64"):
        raise TypeError(f"{name} has element type {found}, expected int32 or int64")
    return f"i{found[3:]}"


def check_page_table(page_table: Any, cu_seqlens_k: Any, q: Any) -> str:
    """The element type of a page table."""
    if cu_seqlens_k is not None:
        raise TypeError("cu_seqlens_k is given, expected None: page_table and kv_len say where the keys of a sequence "
                        "are")
    check_kind("page_table", page_table, kind_of(q))
    if page_table.ndim != 2:
        raise TypeError(f"page_table has {_arrays.dimensions(page_table.ndim)}, expected 2: the pages of each sequence")
    return integer_type("page_table", page_table)


def check_scales(k_scale: Any, v_scale: Any, k_zero: Any, v_zero: Any, q: Any, k: Any, v: Any, layout: Any,
                 is_ragged: bool, is_paged: bool) -> tuple[tuple[tuple[str, str | int], ...], dict[str, Any]]:
    """The element types of quantized keys and values with the kinds of their scales (`_cache_text.scale_type`), and the
    scales and zero points by their names. Those of positions get the dimension of the depth, of extent 1.
    `check_shapes` reports other element types."""
    check_layout(layout, is_ragged)
    dims = key_layout(layout, is_paged)
    kinds: list[str | int] = []
    values = []
    stored = [_packed.name_of(dtype_name(x) if hasattr(x, "dtype") else "", zero is not None)
              for x, zero in ((k, k_zero), (v, v_zero))]  # fmt: skip
    depths = [x.shape[dims.index("d")] * (_packed.CODES_OF_BYTE if _cache_text.is_packed(name) else 1)
              if len(getattr(x, "shape", ())) == len(dims) else None for name, x in zip(stored, (k, v))]  # fmt: skip
    for name, x, other in (("k_scale", k_scale, "v_scale"), ("v_scale", v_scale, "k_scale")):
        if x is None:
            raise TypeError(f"{name} is None, expected a scale, as {other} is given: k and v are both quantized, or "
                            "neither")
        if isinstance(x, (int, float)) and not isinstance(x, bool):
            kinds.append("number")
            values.append(_parameters.number(name, x))
            continue
        check_kind(name, x, kind_of(q))
        if dtype_name(x) != "float32":
            raise TypeError(f"{name} has element type {dtype_name(x)}, expected float32")
        if x.ndim == 0:
            kinds.append("number")
            values.append(_parameters.number(name, float(x)))
        elif x.ndim == len(dims) - 1:
            kinds.append(1)
            values.append(x[(slice(None),) * dims.index("d") + (None,)])
        elif x.ndim == 1 and "h" in dims:
            kinds.append("head")
            values.append(x)
        elif x.ndim == len(dims):
            blocks = x.shape[dims.index("d")]
            depth = depths["kv".index(name[0])]
            check_blocks(name, blocks, blocks if depth is None else depth)
            kinds.append(blocks)
            values.append(x)
        else:
            expected = f"0, {'1, ' if 'h' in dims else ''}{len(dims) - 1} or {len(dims)}"
            heads = "one for each KV head, " if "h" in dims else ""
            raise TypeError(f"{name} has {_arrays.dimensions(x.ndim)}, expected {expected}: one scale, {heads}one for "
                            f'each position, "{dims.replace("d", "")}", or for blocks of its elements, "{dims}"')
    operands = dict(zip(("k_scale", "v_scale"), values))
    for i, (name, x) in enumerate((("k_zero", k_zero), ("v_zero", v_zero))):
        if x is not None:
            operands[name] = _check_zero(name, x, stored[i], (k_scale, v_scale)[i], operands[f"{name[0]}_scale"], q)
    return ((stored[0], kinds[0]), (stored[1], kinds[1])), operands


def _check_zero(name: str, x: Any, stored: str, scale: Any, of_scale: Any, q: Any) -> Any:
    """Zero points for a scale, which becomes `of_scale` in the program."""
    if not _cache_text.is_packed(stored):
        raise TypeError(f"{name} is given, expected None: {name[0]} has element type {stored}, and only elements of 4 "
                        "bits (uint8) have zero points")  # fmt: skip
    if isinstance(of_scale, float):
        return _parameters.number(name, float(x) if getattr(x, "ndim", None) == 0 else x)
    check_kind(name, x, kind_of(q))
    if dtype_name(x) != "float32":
        raise TypeError(f"{name} has element type {dtype_name(x)}, expected float32")
    if tuple(x.shape) != tuple(scale.shape):
        raise ValueError(f"{name} has shape {tuple(x.shape)}, expected {tuple(scale.shape)}, that of {name[0]}_scale")
    return x.reshape(of_scale.shape) if x.ndim != of_scale.ndim else x


def check_blocks(name: str, blocks: int, depth: int) -> None:
    """Checks how many scales a position of a head with `depth` elements has."""
    if blocks < 1 or depth % blocks or (blocks > 1 and (depth // blocks).bit_count() != 1):
        raise ValueError(f"{name} has {blocks} scales for {depth} elements, expected blocks of a power of two")


def check_cu_seqlens(cu_seqlens_q: Any, cu_seqlens_k: Any, q: Any, is_paged: bool = False) -> tuple[str, str | None]:
    """The element types of the cumulative sequence lengths; None for the keys in pages."""
    kind: Kind = kind_of(q)
    found: list[str] = []
    if is_paged:
        return check_cu_seqlens(cu_seqlens_q, cu_seqlens_q, q)[0], None
    for name, offsets, other in (("cu_seqlens_q", cu_seqlens_q, "cu_seqlens_k"),
                                 ("cu_seqlens_k", cu_seqlens_k, "cu_seqlens_q")):
        if offsets is None:
            raise TypeError(f"{name} is None, expected the offsets of k's sequences, as {other} has those of q's"
                            if name == "cu_seqlens_k" else
                            f"{name} is None, expected the offsets of q's sequences, as {other} has those of k's")
        check_kind(name, offsets, kind)
        if offsets.ndim != 1:
            raise TypeError(f"{name} has {_arrays.dimensions(offsets.ndim)}, expected 1: the start of "
                            "each sequence and the end of the last one")
        found.append(integer_type(name, offsets))
    return found[0], found[1]


def check_sink(sink: Any, q: Any) -> tuple[tuple[str, bool], Any]:
    """The element type of a sink, whether it is one scalar for all heads, and its value."""
    kind = kind_of(q)
    precision = "float64" if dtype_name(q) == "float64" else "float32"
    if isinstance(sink, (int, float)) and not isinstance(sink, bool):
        if not sink < math.inf:
            raise ValueError(f"sink is {sink}, expected a finite number, or -inf for none")
        return (ELEMENTS[precision], True), float(sink)
    check_kind("sink", sink, kind)
    if sink.ndim != 1:
        raise TypeError(f"sink has {_arrays.dimensions(sink.ndim)}, expected 1: a number for each head of q")
    if dtype_name(sink) not in (dtype_name(q), precision):
        also = "" if dtype_name(q) == precision else f" or {dtype_name(q)}, that of q"
        raise TypeError(f"sink has element type {dtype_name(sink)}, expected {precision}{also}")
    return (ELEMENTS[dtype_name(sink)], False), sink


def check_dropout(dropout_p: Any, seed: Any, q: Any) -> tuple[str | None, tuple[Any, ...]]:
    """The type of the seed in the program, and the probability and the seed; None and no values without dropout."""
    rate = _parameters.rate("dropout_p", dropout_p)
    if seed is None:
        if rate == 0:
            return None, ()
        raise TypeError("seed is None, expected an int, or an int64 tensor [1]: dropout_p is not 0")
    if getattr(seed, "ndim", 0) == 0:
        number = integer_of(seed)
        if number is None:
            raise TypeError(f"seed is {seed!r:.80}, expected an int, or an int64 tensor [1]")
        if not -(2**63) <= number < 2**64:
            raise ValueError(f"seed is {number}, expected an integer of 64 bits")
        kind, seed = "i64", number - 2**64 if number >= 2**63 else number
    else:
        check_kind("seed", seed, kind_of(q))
        if dtype_name(seed) != "int64" or tuple(seed.shape) != (1,):
            raise TypeError(f"seed has element type {dtype_name(seed)} and shape {tuple(seed.shape)}, expected int64 "
                            "and (1,)")
        kind = "tensor<1xi64>"
    return (kind, (rate, seed)) if rate else (None, ())


def check_layout(layout: Any, is_ragged: bool) -> int:
    """The axis of the head dimension in a layout."""
    if not isinstance(layout, str):
        raise TypeError(f'layout is {layout!r:.80}, expected a string such as "bhsd"')
    if not {"s", "d"} <= set(layout) <= set("bhsd") or len(set(layout)) != len(layout):
        raise ValueError(f"layout is {layout!r:.80}, expected the letters s, d and optionally b and h, each "
                         'once: as "bhsd", "bshd" or "sd"')
    if is_ragged and "b" in layout:
        raise ValueError(f"layout is {layout!r}, expected one without b: with cu_seqlens_q the sequences of a "
                         'batch are concatenated along s, as in "shd"')
    return layout.index("d")


# --- tensors ----------------------------------------------------------------------------------------------------------


def _check_tensor(name: str, x: Any, is_on_gpu: bool) -> bool:
    """`check_tensor` of `_arrays` or `_gpu`, and rejects nested tensors, which have no extents."""
    is_torch = _gpu.check_tensor(name, x) if is_on_gpu else _arrays.check_tensor(name, x)
    if is_torch and x.is_nested:
        _arrays.check_torch(name, x, "cuda" if is_on_gpu else "cpu")
    return is_torch


def kind_of(q: Any, name: str = "q") -> Kind:
    """Checks q and returns its kind."""
    is_on_gpu = _gpu.ordinal_of(q) is not None
    return _check_tensor(name, q, is_on_gpu), is_on_gpu


def check_kind(name: str, x: Any, kind: Kind, first: str = "q") -> None:
    """Rejects arrays that compiled code cannot read, and those of another kind than that of the argument `first`."""
    is_torch, is_on_gpu = kind
    if _check_tensor(name, x, is_on_gpu) != is_torch:
        other = "tensor of another library" if is_on_gpu else "NumPy array"
        found, expected = (other, "torch tensor")[:: 1 if is_torch else -1]
        raise TypeError(f"{name} is a {found}, expected a {expected}, as {first} is")


def check_kinds(q: Array, k: Array, v: Array) -> Kind:
    """Checks q, k and v; returns the kind of q."""
    kind = kind_of(q)
    check_kind("k", k, kind)
    check_kind("v", v, kind)
    return kind


def check_sizes(q: Array, k: Array, v: Array) -> None:
    """Rejects tensors with symbolic extents, as torch.jit.trace passes them."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not all(isinstance(extent, int) for extent in x.shape):
            raise TypeError(f"{name} is traced by torch.jit.trace, which cannot trace saccade.attention: "
                            "call it outside of the traced function")


def split_out(out: Any, return_lse: bool) -> tuple[Any, Any]:
    """The arrays for the output and the log-sum-exp; None for new ones."""
    if not isinstance(out, tuple):
        return out, None
    if not return_lse:
        raise TypeError("out is a tuple, expected one array; with return_lse=True it may be (output, lse)")
    if len(out) != 2:
        raise TypeError(f"out has {len(out)} array{'' if len(out) == 1 else 's'}, expected 2: (output, lse)")
    for i, x in enumerate(out):
        if x is None:
            raise TypeError(f"out[{i}] is None, expected an array")
    return out


def check_outs(output: Any, lse: Any, kind: Kind) -> None:
    """Rejects outputs that are not writable or of another kind than q."""
    if output is None:
        return
    if isinstance(output, list):
        raise TypeError(f"out is a {type(output).__name__}, expected an array, or with return_lse=True the tuple "
                        "(output, lse)")
    for name, x in (("out", output),) if lse is None else (("out[0]", output), ("out[1]", lse)):
        check_kind(name, x, kind)
        _arrays.check_writable(name, x)


def check_shapes(q: Array, k: Array, v: Array, layout: str, operands: Operands | None = None, output: Any = None,
                 lse: Any = None) -> None:
    """Checks ranks, element types and shapes. The compiled code makes the same checks, but reports them in its own
    terms."""
    given: Any = (operands or {}).get
    kv_len, sink, page_table, of_queries, of_keys, *scales = [given(name) for name in (
        "kv_len", "sink", "page_table", "cu_seqlens_q", "cu_seqlens_k", "k_scale", "v_scale")]
    is_quantized = scales[0] is not None
    key_dims = key_layout(layout, page_table is not None)
    for name, x, dims in (("q", q, layout), ("k", k, key_dims), ("v", v, key_dims)):
        if len(x.shape) != len(dims):
            found = f"{_arrays.dimensions(len(x.shape))}, {tuple(x.shape)}"
            pages = "" if page_table is None or name == "q" else ", where b are the pages"
            raise TypeError(f'{name} has {found}, expected {len(dims)}: layout "{dims}"{pages}')
        if is_quantized and name != "q":
            if _packed.name_of(dtype_name(x), False) not in _cache_text.STORED:
                raise TypeError(f"{name} has element type {dtype_name(x)}, expected {_QUANTIZED}: {name}_scale is "
                                "given")
            continue
        if dtype_name(x) not in ELEMENTS:
            also = f", or {_QUANTIZED} with {name}_scale" if name != "q" else ""
            raise TypeError(f"{name} has element type {dtype_name(x)}, expected {', '.join(ELEMENTS)}{also}")
        if dtype_name(x) != dtype_name(q):
            raise TypeError(f"{name} has element type {dtype_name(x)}, expected {dtype_name(q)}, that of q")

    size, key, value = (dict(zip(dims, x.shape)) for dims, x in ((layout, q), (key_dims, k), (key_dims, v)))
    for extents, x in ((key, k), (value, v)):
        extents["d"] *= _packed.CODES_OF_BYTE if is_quantized and dtype_name(x) == "uint8" else 1

    def same(name: str, dim: str, what: str, expected: int, whose: str) -> None:
        found = {"k": key, "v": value}[name].get(dim, expected)
        if found != expected:
            raise ValueError(f"{name} has {what} {found}, expected {expected}, that of {whose}")

    if size["d"] < 1 or value["d"] < 1:
        raise ValueError(f"{'q' if size['d'] < 1 else 'v'} has head size 0, expected at least 1")
    same("k", "d", "head size", size["d"], "q")
    if page_table is not None:
        same("v", "s", "page size", key["s"], "k")
        if key["s"] < 1:
            raise ValueError("k has page size 0, expected at least 1")
    elif "b" in size:
        same("k", "b", "batch size", size["b"], "q")
        same("v", "b", "batch size", size["b"], "q")
    if "h" in size:
        same("v", "h", "head count", key["h"], "k")
        if (size["h"] % key["h"]) if key["h"] else size["h"]:
            raise ValueError(f"q has {size['h']} heads, expected a multiple of the {key['h']} heads of k")
    same("v", "s", "length", key["s"], "k")
    batch = size.get("b", 1)
    if of_queries is not None:
        batch = max(of_queries.shape[0] - 1, 0)
        if of_keys is not None and of_queries.shape[0] != of_keys.shape[0]:
            raise ValueError(f"cu_seqlens_k has {of_keys.shape[0]} offsets, expected {of_queries.shape[0]}, as "
                             "many as cu_seqlens_q")
    if page_table is not None and page_table.shape[0] != batch:
        raise ValueError(f"page_table has {page_table.shape[0]} rows, expected {batch}: one for each sequence")
    if getattr(kv_len, "ndim", 0) and tuple(kv_len.shape) != (batch,):
        raise ValueError(f"kv_len has shape {tuple(kv_len.shape)}, expected ({batch},): one length per batch")
    for name, x, scale in (("k_scale", key, scales[0]), ("v_scale", value, scales[1])):
        rank = getattr(scale, "ndim", 0)
        dims = key_dims if rank > 1 else "h"
        given = tuple(scale.shape[i] for i, dim in enumerate(dims) if dim != "d") if rank else ()
        required = tuple(x[dim] for dim in dims if dim != "d") if rank else ()
        if given != required:
            raise ValueError(f"{name} has shape {given}, expected {required}, that of {name[0]} "
                             f"{'without the head size' if rank > 1 else 'in heads'}")
    if getattr(sink, "ndim", 0) and sink.shape[0] != size.get("h", 1):
        raise ValueError(f"sink has {sink.shape[0]} numbers, expected {size.get('h', 1)}: one for each head of q")
    name = "out" if lse is None else "out[0]"
    if output is not None:
        size["d"] = value["d"]
        check_array(name, output, tuple(size[dim] for dim in layout), dtype_name(q), ", that of q")
    if lse is not None:
        element = "float64" if dtype_name(q) == "float64" else "float32"
        check_array("out[1]", lse, tuple(size[dim] for dim in "bhs" if dim in layout), element, "")


def check_array(name: str, x: Any, shape: tuple[int, ...], element: str, why: str) -> None:
    """Checks the shape and the element type of an array."""
    if tuple(x.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(x.shape)}, expected {shape}")
    if dtype_name(x) != element:
        raise TypeError(f"{name} has element type {dtype_name(x)}, expected {element}{why}")
