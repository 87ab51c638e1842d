"""What one kernel of attention is compiled for, and the operands that it takes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from saccade import _cache_text
from saccade._normalizers import STICK_BREAKING

ROLES = ("score", "mask", "weight", "normalizer")
Operands: TypeAlias = dict[str, Any]
"""The values of `Form.operands` for one call by their names, in any order."""


class Epilogue(NamedTuple):
    """The properties of what follows attention that one kernel is compiled for."""

    factor: tuple[str, Any]
    """Of the gate, or of λ: its dimensions, such as "bhs", and its element type, which is that of torch or NumPy in the
    key of a plan, as `Form.element` is. A number has no dimensions."""
    activation: str | None  # of a gate; None: differential attention
    # Whether rows of the difference are normalized, and the element type of the weight of the norm, if it has one.
    norm: tuple[bool, Any] = (False, None)


class Form(NamedTuple):
    """The properties that one kernel is compiled for. It is hashable. Dynamo has plain tuples of the same fields."""

    element: Any  # "f32"; the type of torch or NumPy in the key of a plan, and while Dynamo traces
    head_dim: int  # of q and k
    head_dim_v: int
    layout: str  # "bhsd"
    causal: str | None = None  # "top_left", "bottom_right" or "offset", which is a run-time scalar
    sides: str = ""  # where the window is bounded: "l", "r" or "lr"
    scale: bool = False  # given as an argument, otherwise 1/√head_dim
    kv_len: str | None = None  # "index" for a scalar, "i32" or "i64" for a tensor [batch]
    ragged: tuple[str, str | None] | None = None  # element types of cu_seqlens_q and cu_seqlens_k, "i32" or "i64"
    pages: str | None = None  # the element type of the page table, "i32" or "i64"; k and v are page pools
    # Of quantized k and v: the element type, a key of `_cache_text.STORED`, and the kind of `_cache_text.scale_type`.
    scales: tuple[tuple[str, str | int], tuple[str, str | int]] | None = None
    qk_type: str | None = None  # "int8": queries and keys may be rounded to it for their dot products
    sink: tuple[str, bool] | None = None  # the element type, and whether it is one scalar for all heads
    dropout: str | None = None  # the type of the seed, "i64" or "tensor<1xi64>"
    lse: bool = False
    max: bool = False
    argmax: bool = False
    score: str | None = None  # a text of `_program.region_text`
    mask: str | None = None
    weight: str | None = None
    normalizer: str | None = None  # None: the softmax; or the name "stick_breaking"
    tallies: tuple[tuple[int, str], ...] = ()  # the number of bins and the text of each
    rotation: _cache_text.Rotation | None = None  # keys are rotated when they are read
    append: _cache_text.Append | None = None  # k and v are caches, to which new rows are appended first
    tree: bool = False  # the last keys are those of the queries, and a tensor says which of them a query attends to
    are_numbers_tensors: bool = False  # scalar inputs are tensors without dimensions: XLA has no other operands
    is_part: bool = False  # the operands begin at positions that are given, and the results are merged with others
    epilogue: Epilogue | None = None
    weights: str | None = None  # the result are weights: with "given" or "computed" log-sum-exp; at positions given
    is_stream: bool = False  # the bits of a query do not depend on the other queries of a call

    @property
    def precision(self) -> str:
        """The type of scores and sums."""
        return "f64" if self.element == "f64" else "f32"

    @property
    def key_layout(self) -> str:
        """The dimensions of k and v. Page pools always have a dimension of pages."""
        return key_layout(self.layout, self.pages is not None)

    def functions(self) -> list[tuple[str, Any]]:
        """The roles and the texts of the traced functions."""
        functions = [(role, text) for role in ROLES
                     if (text := getattr(self, role)) is not None and text != STICK_BREAKING]
        return functions + [(f"tally_{i}", text) for i, (_, text) in enumerate(self.tallies)]

    def captures(self) -> list[tuple[str, str]]:
        """The names and the types of what the traced functions capture, in the order of the program."""
        return [(f"{role}_{i}", type) for role, text in self.functions() for i, type in enumerate(capture_types(text))]

    def operands(self) -> list[tuple[str, str]]:
        """The names and the types of the operands that follow the captures, in the order of the program."""
        of_query, of_key = self.ragged or (None, None)
        sink, is_number = self.sink or (None, False)
        scales = [_cache_text.scale_type(kind, self.key_layout) for _, kind in self.scales or ()] or (None, None)
        zeros = [stored == "uint4" for stored, _ in self.scales or ()] or (False, False)
        rotary = self.rotation and self.rotation.type
        types = (
            ("tree", self.tree and "tensor<?x?x?xi1>"),
            ("scale", self.scale and self.precision),
            ("causal", self.causal == "offset" and "index"),
            ("left", "l" in self.sides and "index"),
            ("right", "r" in self.sides and "index"),
            ("kv_len", "index" if self.kv_len == "index" else _vector(self.kv_len)),
            ("sink", sink if is_number else _vector(sink)),
            ("cu_seqlens_q", _vector(of_query)),
            ("cu_seqlens_k", _vector(of_key)),
            ("page_table", self.pages and f"tensor<?x?x{self.pages}>"),
            ("rate", self.dropout and "f32"),
            ("seed", self.dropout),
            ("k_scale", scales[0]),
            ("v_scale", scales[1]),
            ("k_zero", zeros[0] and scales[0]),
            ("v_zero", zeros[1] and scales[1]),
            ("rotary_cos", rotary),
            ("rotary_sin", rotary),
        )  # fmt: skip
        return [(name, type) for name, type in types if type] + self._epilogue_operands()

    def _epilogue_operands(self) -> list[tuple[str, str]]:
        """The gate; or queries and keys of the second map, λ, and numbers and weight of the norm."""
        if self.epilogue is None:
            return []
        (dims, element), activation, (is_normalized, of_weight) = self.epilogue
        factor = self.tensor(dims, self.head_dim_v, element) if dims else self.precision
        if activation is not None:
            return [("gate", factor)]
        norm = [("norm_eps", self.precision), ("norm_factor", self.precision)] if is_normalized else []
        norm += [("norm_weight", self.tensor("d", self.head_dim_v, of_weight))] if of_weight else []
        return [(name, self.tensor(self.layout, self.head_dim)) for name in ("other_q", "other_k")] + [
            ("lam", factor), *norm]

    def tensor(self, dims: str, head_dim: int, element: str | None = None) -> str:
        """The type of a tensor with these dimensions."""
        return f"tensor<{''.join(f'{head_dim}x' if dim == 'd' else '?x' for dim in dims)}{element or self.element}>"

    def names(self) -> tuple[str, ...]:
        """The names of `operands`."""
        return tuple([name for name, _ in self.operands()])

    def order(self) -> Callable[[Operands], tuple[Any, ...]]:
        """A function that returns the values of operands in the order of the program."""
        names = self.names()
        if len(names) < 2:  # itemgetter returns one item without a tuple
            return lambda values: tuple([values[name] for name in names])
        return operator.itemgetter(*names)


def key_layout(layout: str, is_paged: bool) -> str:
    """The dimensions of k and v for those of q."""
    return f"b{layout}" if is_paged and "b" not in layout else layout


def capture_types(text: str) -> list[str]:
    """The types of what a traced function captures."""
    types = text.partition("\n")[0]
    return types.split(", ") if types else []


def _vector(element: str | None) -> str | None:
    return element and f"tensor<?x{element}>"
