"""The kernels of `dot_product_attention`: their programs, and their registration as XLA custom calls.

A program takes tensors only, since XLA has no other operands. Its function is called in TVM-FFI's convention by
jax-tvm-ffi's handler, without Python. A custom call is named after its program, so the name is the same in every
process.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
import threading
from typing import Any

from saccade import _form, _program
from saccade._operands import ELEMENTS
from saccade.module import compile
from saccade.regions import Region, trace
from saccade.regions.dtypes import STORED
from saccade.regions.expression import Builder


@dataclasses.dataclass(frozen=True)
class Lowered:
    """What the second kernel of a call computes (overwriting.py)."""

    functions: tuple[tuple[str, str], ...]  # as those of a Form
    score: tuple[str, ...]  # the roles of the arrays that the score function reads
    mask: tuple[str, ...]


NOTHING_HIDDEN = Lowered((), (), ())
"""For calls without masks: the first kernel has all but NaN."""


@dataclasses.dataclass(frozen=True)
class Form:
    """What one call computes, apart from the shapes of its operands."""

    is_causal: bool
    functions: tuple[tuple[str, str], ...]  # role and text of the traced functions, of `remember`
    has_residual: bool
    may_be_empty: bool  # whether a query may have no key with a score above -inf
    lowered: Lowered | None = None  # for calls in which masks overwrite scores that may be -inf

    @property
    def returns_lse(self) -> bool:
        """Whether the kernel returns the log-sum-exp."""
        return (self.has_residual or self.may_be_empty) and not self.has_normalizer

    @property
    def has_normalizer(self) -> bool:
        """Whether the weights are those of a normalizer, which have no log-sum-exp."""
        return any(role == "normalizer" for role, _ in self.functions)

    @property
    def reads_batch(self) -> bool:
        """Whether a function of the user reads the index of the batch."""
        return any("%b" in re.split(r"[^%\w]+", text) for _, text in self.functions)


@dataclasses.dataclass(frozen=True)
class Kind:
    """What one kernel is compiled for."""

    form: Form
    dtype: str  # of query, key and value
    head_dim: int
    has_window: bool
    has_key_lengths: bool
    bias: tuple[str, tuple[bool, ...]] | None  # the element type, and which axes have one element for all positions
    mask: tuple[str, tuple[bool, ...]] | None


_regions: dict[str, Region] = {}  # of traced functions, by their text, without the captured arrays
_names: dict[tuple[Kind, tuple[bool, ...] | None, str], str] = {}
_registered: set[str] = set()
_lock = threading.Lock()


def remember(role: str, region: Region) -> str:
    """A text that stands for a traced function: equal for functions with the same computation."""
    text = _program.region_text(role, region)
    if text not in _regions:
        _regions[text] = dataclasses.replace(region, captures=(None,) * len(region.captures))
    return text


def array_kind(x: Any) -> tuple[str, tuple[bool, ...]] | None:
    """The part of a bias or mask in the kind of a kernel."""
    return None if x is None else (x.dtype.name, tuple([extent == 1 for extent in x.shape]))


def target_name(kind: Kind, needed: tuple[bool, ...] | None = None, attribute: str = "attn.gradient") -> str:
    """The name of the custom call of a kernel, which is compiled and registered unless it is known. With `needed`,
    which says of each operand whether its gradient is, the program is differentiated, and the name with the suffix
    "_gradient" is that of its gradient function. With `attribute` "attn.jvp", `needed` says which operands have
    tangents, and the suffix is "_jvp". Raises ImportError without jax-tvm-ffi, saccade.CompileError for a program that
    cannot be differentiated."""
    if (kind, needed, attribute) not in _names:
        text = _program.program(_program_form(kind))
        if needed is not None:
            text = _program.differentiated(text, needed, attribute)
        name = f"saccade_attention_{hashlib.sha256(text.encode()).hexdigest()[:24]}"
        with _lock:
            if name not in _registered:
                for function in compile(text).functions.values():
                    target = name + function.name.removeprefix("attention")
                    handler()(target, function.tvm_ffi, ["args", "rets"], platform="cpu")
                _registered.add(name)
        _names[kind, needed, attribute] = name
    return _names[kind, needed, attribute]


@functools.cache
def handler() -> Any:
    """The function that registers a custom call. Raises ImportError without jax-tvm-ffi."""
    try:
        from jax_tvm_ffi import register_ffi_target
    except ImportError as error:
        raise ImportError("attention of saccade.jax requires the package jax-tvm-ffi: pip install "
                          "'saccade[jax]'") from error
    return register_ffi_target


def _program_form(kind: Kind) -> _form.Form:
    regions = {role: _regions[text] for role, text in kind.form.functions}
    score, mask = regions.get("score"), regions.get("mask")
    precision = "float64" if kind.dtype == "float64" else "float32"
    if kind.bias is not None:
        score = _with_array("score", score, *kind.bias, precision)
    if kind.mask is not None:
        mask = _with_array("mask", mask, *kind.mask, precision)
    return _form.Form(
        ELEMENTS[kind.dtype], kind.head_dim, kind.head_dim, "bshd", causal="top_left" if kind.form.is_causal else None,
        sides="lr" if kind.has_window else "", scale=True, kv_len="i32" if kind.has_key_lengths else None,
        lse=kind.form.returns_lse, are_numbers_tensors=True,
        **_program.region_texts(score=score, mask=mask, normalizer=regions.get("normalizer")))


def _with_array(role: str, region: Region | None, dtype: str, axes: tuple[bool, ...], precision: str) -> Region:
    """The score plus an element of a bias, or the mask and an element of another one."""
    if region is None:
        region = trace(_NEUTRAL[role], role, "f64" if precision == "float64" else "f32")
    builder = Builder(precision, TypeError)
    positions = {"score": 1, "mask": 0}[role]
    indices = [builder.number(0, "int64") if is_one else builder.argument(positions + axis, "int64")
               for axis, is_one in enumerate(axes)]
    number = max([each for each in region.names if isinstance(each, int)], default=-1) + 1
    element = builder.load(number, dtype, indices)
    if role == "score":
        root = builder.arithmetic("arith.addf", region.root, builder.convert(element, precision))
    else:
        root = builder.arithmetic("arith.andi", region.root, element)
    return dataclasses.replace(
        region, captures=(*region.captures, None), capture_sources=(*region.capture_sources, None), is_reusable=False,
        capture_types=(*region.capture_types, f"tensor<?x?x?x?x{STORED[dtype]}>"), root=root,
        names=(*region.names, number))


_NEUTRAL: dict[str, Any] = {"score": lambda s, b, h, i, j: s, "mask": lambda b, h, i, j: True}
