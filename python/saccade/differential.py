"""`saccade.differential_attention`: the difference of two attentions over the same values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from saccade import _arrays, _epilogue, _operands, _parameters
from saccade._arrays import Array
from saccade._opaque import is_compiling
from saccade.attention import attention

_OPTIONS = ("score", "mask", "weight", "normalizer", "scale", "causal", "window", "kv_len", "cu_seqlens_q",
            "cu_seqlens_k", "layout", "target", "stream", "out")  # fmt: skip
PAIRS = ("interleaved", "halves")


def differential_attention(
    q: Array,
    k: Array,
    v: Array,
    lam: float | Array,
    *,
    pairs: str = "interleaved",
    norm_eps: float | None = None,
    norm_weight: Array | None = None,
    factor: float = 1.0,
    **options: Any,
) -> Array:
    """softmax(q₁ k₁ᵀ) v − λ · softmax(q₂ k₂ᵀ) v for every batch and head, where each head has two maps (Ye et al. 2024,
    "Differential Transformer", arXiv 2410.05258; version 2, in which both maps share their keys, is of 2026).

    One program computes both attentions. The difference is taken in the kernel of the first one, as the output is
    stored, with the precision of scores; the output of the second one is rounded to q's element type before.

    Args:
        q: queries [batch, 2 · heads, queries, head_dim] in the default layout, a torch tensor or a NumPy array.
        k: keys [batch, 2 · KV heads, keys, head_dim], a pair for each head of v; or [batch, KV heads, keys, head_dim],
            which both maps share.
        v: values [batch, KV heads, keys, head_dim_v]. `heads` is a multiple of `KV heads`.
        lam: λ, a number, or an array of q's kind with the shape of the output, that without head_dim, or [heads]. In
            version 2 it is the sigmoid of a projection, [batch, heads, queries].
        pairs: the two maps of head h are the heads 2h and 2h + 1 of q and of paired keys ("interleaved"), or h and
            heads + h ("halves", as in the DiffLlama of Transformers).
        norm_eps: divides each row of the difference by √(mean of squares + norm_eps); None is no norm.
        norm_weight: [head_dim_v], a factor of each column after the norm, of q's kind.
        factor: of the normalized rows, 1 − λ_init in the paper.
        options: those of `saccade.attention` of these names: score, mask, weight, normalizer, scale, causal, window,
            kv_len, cu_seqlens_q, cu_seqlens_k, layout, target, stream, out. They hold for both maps. The h of functions
            is the head of the output.

    Returns:
        The output [batch, heads, queries, head_dim_v]. A query without keys gives 0.

    PyTorch records gradients of q, k, v, λ, the weight of the norm, and what `saccade.attention` has gradients of. The
    difference and the norm are operators of PyTorch then, and in functions that torch.compile traces.

    Raises:
        TypeError, ValueError: as `saccade.attention`; an odd number of heads, a λ that is NaN or infinite, a norm
            without `norm_eps`.
    """
    for name in options:
        if name not in _OPTIONS:
            raise _operands.unknown_option({name: options[name]}, (*_OPTIONS, "pairs", "norm_eps", "norm_weight",
                                                                   "factor"), "differential_attention")
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not _arrays.kind_of(x):
            raise TypeError(f"{name} is a {type(x).__name__}, expected a torch tensor or a NumPy array")
    layout = _epilogue.layout_of({"layout": None, "cu_seqlens_q": None} | options)
    _operands.check_layout(layout, options.get("cu_seqlens_q") is not None)
    if "h" not in layout:
        raise ValueError(f"layout is {layout!r}, expected one with h: two heads of q are the maps of one of the output")
    if not isinstance(pairs, str) or pairs not in PAIRS:
        raise ValueError(f"pairs is {pairs!r:.80}, expected {' or '.join(PAIRS)}")
    if not _parameters.is_data(lam):
        lam = _parameters.number("lam", lam)
    if norm_eps is not None:
        norm_eps, factor = _check_norm(norm_eps, factor, norm_weight)
    elif norm_weight is not None or factor != 1:
        raise ValueError("norm_eps is None, expected a number: norm_weight or factor is given")
    split = _splitter(layout, pairs)
    first, second = split("q", q)
    axis = layout.index("h")
    if len(k.shape) != len(layout) or len(v.shape) != len(layout):
        raise TypeError(f'k and v have {len(k.shape)} and {len(v.shape)} dimensions, expected {len(layout)}: layout '
                        f'"{layout}"')
    is_shared = k.shape[axis] == v.shape[axis]
    if not is_shared and k.shape[axis] != 2 * v.shape[axis]:
        raise ValueError(f"k has {k.shape[axis]} heads, expected {2 * v.shape[axis]}, two for each of v, or "
                         f"{v.shape[axis]}, which both maps share")
    keys = (k, k) if is_shared else split("k", k)
    given = _epilogue.Difference(second, keys[1], lam, norm_eps, norm_weight, factor)
    if is_compiling():
        if options.get("out") is not None:
            raise TypeError("out is given, expected None in a function that torch.compile traces")
        outputs = [attention(x, key, v, **options) for x, key in ((first, keys[0]), (second, keys[1]))]
        return _epilogue.difference(outputs[0], outputs[1], given, layout)
    found: Any = attention(first, keys[0], v, gate=given, **options)
    return found


def _check_norm(norm_eps: Any, factor: Any, weight: Any) -> tuple[float, float]:
    eps = _parameters.number("norm_eps", norm_eps)
    if eps < 0:
        raise ValueError(f"norm_eps is {eps}, expected a number of at least 0")
    if weight is not None and not _arrays.kind_of(weight):
        raise TypeError(f"norm_weight is {weight!r:.80}, expected an array")
    return eps, _parameters.number("factor", factor)


def _splitter(layout: str, pairs: str) -> Callable[[str, Any], tuple[Any, Any]]:
    """A function that returns the views of both maps."""
    axis = layout.index("h")

    def split(name: str, x: Any) -> tuple[Any, Any]:
        if len(x.shape) != len(layout):
            raise TypeError(f'{name} has {_arrays.dimensions(len(x.shape))}, expected {len(layout)}: layout "{layout}"')
        count = x.shape[axis]
        if count % 2:
            raise ValueError(f"{name} has {count} heads, expected an even number: two maps for each head")
        parts = (slice(0, None, 2), slice(1, None, 2)) if pairs == "interleaved" else (
            slice(0, count // 2), slice(count // 2, None))
        before = (slice(None),) * axis
        return x[(*before, parts[0])], x[(*before, parts[1])]

    return split
