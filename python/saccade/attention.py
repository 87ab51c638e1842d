"""`saccade.attention`: attention on torch tensors and NumPy arrays.

A call finds its plan, a compiled function and how to make its results, under a key of types, head sizes, layout, kinds
of arguments and what the Python functions compute; lengths, batch, heads and numbers are not in it. Whether tensors fit
one another is checked by the compiled code; only when it refuses does Python look closer, to say it in the caller's
terms.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Any

from saccade import _arrays, _operands, _program
from saccade._arrays import Array
from saccade._library import on_cache_clear
from saccade._opaque import opaque
from saccade.function import Function
from saccade.masks import Mask
from saccade.module import compile
from saccade.regions import Region, fingerprint, trace
from saccade.regions.traced_function import variables
from saccade.scores import Score

_MAX_PLANS = 512
_SIGNATURES = {"score": "(s, b, h, i, j) -> score", "mask": "(b, h, i, j) -> bool",
               "weight": "(p, b, h, i, j) -> weight"}


class _Plan:
    """How calls of one kind are done."""

    __slots__ = ("call", "is_torch", "axis", "key_axis", "head_dim_v", "row_axes", "has_lse", "has_max", "row_dtype",
                 "index_dtype", "empty_like", "was_used")  # fmt: skip

    def __init__(self, spec: _program.Spec, function: Function, is_torch: bool, may_use_tvm_ffi: bool):
        self.is_torch, self.was_used = is_torch, False
        self.call: Callable[..., None] = function.tvm_ffi if may_use_tvm_ffi else function.into
        self.axis, self.key_axis = spec.layout.index("d"), spec.layout.index("s")
        # None: the output is shaped as the query.
        self.head_dim_v = spec.head_dim_v if spec.head_dim_v != spec.head_dim else None
        self.row_axes = [spec.layout.index(dim) for dim in "bhs" if dim in spec.layout]
        self.has_lse, self.has_max = spec.lse, spec.max
        if is_torch:
            library = _arrays.torch_module()
            self.empty_like = library.empty_like
        else:
            import numpy as library

            self.empty_like = functools.partial(library.empty_like, subok=False)
        self.row_dtype = library.float64 if spec.precision == "f64" else library.float32
        self.index_dtype = library.int64

    def empty(self, q: Array, shape: tuple[int, ...], dtype: Any) -> Array:
        """A new array of q's kind."""
        if self.is_torch:
            return q.new_empty(shape, dtype=dtype)
        import numpy

        return numpy.empty(shape, dtype)


_plans: dict[tuple, _Plan] = {}
_regions: dict[tuple, tuple[Region, str]] = {}  # by role, precision and fingerprint: what was traced, and its text
_axes: dict[str, int] = {}  # of the head size, in every layout seen
_Tensor: type | None = None  # torch's, once it was met
for _cache in (_plans, _regions):
    on_cache_clear(_cache.clear)


@opaque
def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    score: Callable | None = None,
    mask: Callable | None = None,
    weight: Callable | None = None,
    scale: float | None = None,
    causal: str | int | None = None,
    window: int | tuple[int | None, int | None] | None = None,
    kv_len: int | Array | None = None,
    cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None,
    sink: float | Array | None = None,
    return_lse: bool = False,
    return_max: bool = False,
    layout: str | None = None,
    target: str | None = None,
    out: Array | tuple[Array, Array] | None = None,
) -> Array | tuple[Array, ...]:
    """weight(softmax(mask(score(scale * q k^T)))) v, for every batch and head.

    Args:
        q: queries, [batch, heads, queries, head size] in the default layout: a torch CPU tensor or a NumPy array of
            float64, float32, float16 or bfloat16, with any strides.
        k: keys, [batch, key heads, keys, head size], of q's kind and element type. `heads` is a multiple of
            `key heads`: query head h reads key head h // (heads // key heads).
        v: values, [batch, key heads, keys, value head size]; that head size may differ from q's.
        score: a function (s, b, h, i, j), of your own or of saccade.scores, from the scaled score s of query i and key j to
            the score, in float32 (float64 where the inputs are). It is traced, not called for each element: arithmetic, and reads of tensors it closes
            over, on index scalars; no Python control flow on them. Those tensors are read as they are at each call. A
            Python number is compiled in: one that changes from call to call takes a new kernel each time, a 0-d tensor
            in its place does not. Negative indices count from the end. A tensor that is too short is refused as far as
            that can be told before the call: indexed by b, h, i or j itself; by what is computed from them, where the first
            or last of them that is seen shows it; or by what stands in a tensor of integers, wherever a position leads
            to it. What a tensor of kv_len, a packed batch or other tensors decide is not known before; then what is
            read beyond the end is unspecified, never a fault.
        mask: a function (b, h, i, j): whether query i sees key j, of your own or of saccade.masks. Traced likewise. What follows masks too; all
            must hold.
        weight: a function (p, b, h, i, j) from the weight p that the softmax gave key j to what its value is
            multiplied by, for keys that query i sees. Traced likewise. Where it is proportional to p, keys are read
            once, else twice.
        scale: the factor of q k^T; 1/sqrt(head size) without it.
        causal: a query sees no key behind its own. Its own is key i for query i ("top_left"); counted from the ends, so
            that the last query owns the last key within kv_len ("bottom_right"); or key i + n for an int n.
        window: an int n: the last n keys up to a query's own (own - n < key <= own). Or (left, right): from `left` keys
            before its own to `right` keys behind it; None or -1 leaves a side open. Without causal, key i is query i's.
        kv_len: how many keys count, 0 ... keys: an int, or an int32 or int64 tensor [batch] of q's kind. What lies
            beyond is not read, be it NaN. The numbers in a tensor are not checked: fewer than 0 means none, more than
            there are means all (but "bottom_right" then counts from where that many would end); so does an int for
            packed sequences that are shorter.
        cu_seqlens_q: packs a batch of sequences of any lengths: q is [all queries, heads, head size], k and v
            likewise, and sequence n has the queries cu_seqlens_q[n] ... cu_seqlens_q[n + 1] - 1. An int32 or int64
            tensor of q's kind, 0 first, ascending, with one element more than there are sequences. Sequences may be
            empty. Each attends to itself alone: b is the number of the sequence; i, j, kv_len and the alignments of
            `causal` and `window` count within it. Queries behind the last offset give 0.
        cu_seqlens_k: the same for k and v, for as many sequences; both or none are given.
        sink: one more score for every query, of no key and with no value: a number, or a 1-D tensor of q's kind with
            one for each head, of float32 (float64 where the inputs are) or q's element type. No function is asked
            about it. -inf is none.
        return_lse: also returns the natural logarithm of the sum of the exponentials of the scores, [batch, heads,
            queries] (those that the layout has, in this order), float32 (float64 where the inputs are). It counts the
            sink.
        return_max: also returns the largest score that each query sees, likewise shaped, and the key that has it,
            int64: the first of several; -inf and -1 where it sees none. The sink is none of them.
        layout: what each dimension of q, k, v and the output is: s and d, with or without b and h, in any order. "bhsd"
            without it, "shd" with cu_seqlens_q, where there is no b.
        target: the CPU target to compile for, "portable", "v3", "v4" or "v4-bf16"; None takes this machine's.
        out: where to write the output: of q's kind and element type, shaped as the output, apart from all inputs. With
            return_lse also (output, lse), for both.

    Returns:
        The output, shaped as q but with v's head size, of q's kind and element type; a tuple with return_lse or return_max:
        (output, lse), (output, max, argmax) or (output, lse, max, argmax). Arrays given as `out` are returned. A query
        that sees no key gets 0, and -inf, or the sink, as its lse.

    Raises:
        TypeError: an argument of the wrong kind, element type, device or number of dimensions; torch beside NumPy.
        ValueError: batch, heads, lengths or head sizes that do not fit; a value that is not one of those above; a
            tensor that requires grad (there is no backward yet; torch.no_grad() lets it pass) or has the negative bit
            set.
        saccade.TraceError: a TypeError: `score`, `mask` or `weight` does what cannot be traced.
        NotImplementedError: this machine cannot run code for that target.

    One kernel is compiled for each combination of element type, head sizes, layout, options given and what the
    functions compute. Other lengths, batches, head counts, scales, offsets and windows use it again.

    Example:
        >>> slopes = torch.tensor([0.5, 0.25])
        >>> alibi = lambda s, b, h, i, j: s + slopes[h] * (j - i)
        >>> out = saccade.attention(q, k, v, score=alibi, causal="bottom_right")
    """
    tensors: tuple = ()
    numbers: tuple = ()
    score_region = mask_region = weight_region = score_key = mask_key = weight_key = None
    alignment = sides = length = sink_kind = ragged = ragged_kind = heads = None
    if score is not None:
        if type(score) is Score:
            heads, score = score.heads, score.function
        score_region, score_key, tensors = _read("score", score, q)
    if mask is not None:
        if type(mask) is Mask:
            mask = mask.function
        mask_region, mask_key, more = _read("mask", mask, q)
        tensors += more
    if weight is not None:
        weight_region, weight_key, more = _read("weight", weight, q)
        tensors += more
    if scale is not None:
        numbers = (_operands.check_scale(scale),)
    if causal is not None:
        if isinstance(causal, str) and (causal == "top_left" or causal == "bottom_right"):
            alignment = causal
        else:
            alignment = "offset"
            numbers += (_operands.check_causal(causal),)
    if window is not None:
        sides, bounds = _operands.check_window(window, alignment is not None)
        numbers += bounds
    if kv_len is not None:
        length, kv_len = _operands.check_length(kv_len, q)
        numbers += (kv_len,)
    if sink is not None:
        sink_kind, sink = _operands.check_sink(sink, q)
        numbers += (sink,)
    if cu_seqlens_q is not None or cu_seqlens_k is not None:
        ragged_kind = _operands.check_cu_seqlens(cu_seqlens_q, cu_seqlens_k, q)
        ragged = cu_seqlens_q, cu_seqlens_k
        numbers += ragged
    if layout is None:
        layout = "bhsd" if ragged is None else "shd"
    if heads is not None:
        _operands.check_heads(heads, q, layout)
    if return_max is not True and return_max is not False:
        raise TypeError(f"return_max is {return_max!r:.80}, expected True or False")
    if return_lse is not True and return_lse is not False:  # 1 is equal to True, and would find its plan
        raise TypeError(f"return_lse is {return_lse!r:.80}, expected True or False")
    kind = (layout, alignment, sides, length, ragged_kind, sink_kind, scale is not None, return_lse, return_max, score_key, mask_key,
            weight_key, target)  # fmt: skip
    try:
        axis = _axes[layout]
        plan = _plans[q.dtype, q.shape[axis], v.shape[axis], kind]
        plan.was_used = True
    except (KeyError, IndexError, TypeError, AttributeError, RuntimeError):  # a nested tensor has no extents
        plan = None
    if plan is None:
        plan = _make_plan(q, k, v, out, kv_len, sink, ragged, tensors, kind, score_region, mask_region, weight_region)
    output, lse = (None, None) if out is None else _operands.split_out(out, return_lse)

    # What compiled code cannot see in memory. Other than the usual tensors, anything takes a closer look.
    if (
        type(q) is not _Tensor or type(k) is not _Tensor or type(v) is not _Tensor
        or q.requires_grad or k.requires_grad or v.requires_grad or q.is_neg() or k.is_neg() or v.is_neg()
    ):  # fmt: skip
        _operands.check_kinds(q, k, v)
    if out is not None:
        _operands.check_outs(output, lse, plan.is_torch)
    try:
        if length == "index" and not 0 <= kv_len <= k.shape[plan.key_axis]:
            raise ValueError(f"kv_len is {kv_len}, expected 0 to {k.shape[plan.key_axis]}, the length of k")
        if output is not None:
            pass
        elif plan.head_dim_v is None:
            output = plan.empty_like(q)
        else:
            shape = list(q.shape)
            shape[plan.axis] = plan.head_dim_v
            output = plan.empty(q, tuple(shape), q.dtype)
        if not plan.has_lse and not plan.has_max:
            plan.call(q, k, v, *tensors, *numbers, output)
            result = output
        else:
            extents = q.shape
            rows = tuple([extents[axis] for axis in plan.row_axes])
            result = (output,)
            if plan.has_lse:
                result += (plan.empty(q, rows, plan.row_dtype) if lse is None else lse,)
            if plan.has_max:
                result += plan.empty(q, rows, plan.row_dtype), plan.empty(q, rows, plan.index_dtype)
            plan.call(q, k, v, *tensors, *numbers, *result)
    except Exception as error:
        # Said in the caller's terms, if they have words for it.
        _operands.check_kinds(q, k, v)
        _operands.check_shapes(q, k, v, layout, kv_len, sink, ragged, *_operands.split_out(out, return_lse))
        functions = (("score", score, score_region), ("mask", mask, mask_region), ("weight", weight, weight_region))
        _reword(error, tensors, functions, type(out) is tuple)
        raise
    if out is not None and plan.is_torch:
        _arrays.torch_module().autograd.graph.increment_version(out)  # one or both
    return result


def _read(role: str, function: Callable, q: Array) -> tuple[Region, tuple, tuple]:
    """What `function` computes, that as a part of a plan's key, and the tensors it reads, as they are now."""
    kind = "score" if isinstance(function, Score) else "mask" if isinstance(function, Mask) else role
    if kind != role:
        raise TypeError(f"{role} is {function!r}, expected a function {_SIGNATURES[role]}: give it as {kind}")
    if not callable(function):
        found = _arrays.kind_of(function) or f"{function!r:.80}"
        raise TypeError(f"{role} is {found}, expected a function {_SIGNATURES[role]}, or None")
    if not hasattr(q, "dtype"):
        _arrays.check_tensor("q", q)
    precision = "f64" if _operands.dtype_name(q) == "float64" else "f32"
    found = fingerprint(function)
    known = found and _regions.get((role, precision, found.key))
    if known:
        region, text = known
        captures = region.captures_of(found.tensors)
    else:
        region = trace(function, role, precision)
        text, captures = _program.region_key(role, region), region.captures
        if found and region.is_reusable:
            if len(_regions) >= _MAX_PLANS:
                _regions.clear()
            # Without the tensors of this call: they may be large, and others will come.
            made = [None if source is not None else made for source, made in zip(region.capture_sources, captures)]
            _regions[role, precision, found.key] = dataclasses.replace(region, captures=tuple(made)), text
    try:
        are_torch = tuple([_arrays.check_tensor(role, capture) for capture in captures])
    except (TypeError, ValueError):
        trace(function, role, precision)  # says which one it is
        raise
    return region, (text, are_torch), captures


def _reword(error: Exception, tensors: tuple, functions: tuple[tuple[str, Callable | None, Region | None], ...],
            is_pair: bool) -> None:
    """Raises what the compiled code said with our names for its arguments, where there are some. `is_pair`: whether out
    has two arrays."""
    if found := re.search(r"capture #(\d+) is read by (.*) and (is too small for|begins behind) it: (.*)", str(error)):
        number, reader, how, rest = found.groups()
        role, function = _reader_of(int(number), functions)
        reader = re.sub(r"capture #(\d+)", lambda index: _name_of(tensors[int(index[1])], function), reader)
        name = _name_of(tensors[int(number)], function)
        raise ValueError(f"{name}, which {role} reads by {reader}, {how} it: {rest}") from None
    if found := re.search(r"op (q|kv)_offsets (has|leads) (.*)", str(error)):
        raise ValueError(f"cu_seqlens_{'q' if found[1] == 'q' else 'k'} {found[2]} {found[3]}") from None
    if found := re.fullmatch(r"attention: (?:argument|result) '(\w+)' \(.*?\): (.*)", str(error)):
        name, problem = found.groups()
        names = {"output": "out[0]", "lse": "out[1]"} if is_pair else {"output": "out"}
        raise type(error)(f"{names.get(name, name)}: {problem}") from None


def _reader_of(number: int, functions: tuple[tuple[str, Callable | None, Region | None], ...]) -> tuple[str, Callable]:
    """The function, and its role, that captures the tensor of this number: theirs are one behind the other."""
    for role, function, region in functions:
        if region is not None:
            if number < len(region.captures):
                return role, function
            number -= len(region.captures)
    raise IndexError(number)


def _name_of(tensor: Array, function: Callable) -> str:
    """The variable through which a function reaches a tensor, in quotes."""
    name = next((name for name, value in variables(function) if value is tensor), None)
    return f"'{name}'" if name else "a captured tensor"


def _make_plan(q: Array, k: Array, v: Array, out: Any, kv_len: Any, sink: Any, ragged: Any, tensors: tuple, kind: tuple,
               score: Region | None, mask: Region | None, weight: Region | None) -> _Plan:
    """Checks everything, compiles, and remembers the plan for calls of its kind."""
    global _Tensor
    layout, alignment, sides, length, ragged_kind, sink_kind, has_scale, return_lse, return_max, *_, target = kind
    axis = _operands.check_layout(layout, ragged is not None)
    is_torch = _operands.check_kinds(q, k, v)
    _operands.check_sizes(q, k, v)
    output, lse = _operands.split_out(out, return_lse)
    _operands.check_outs(output, lse, is_torch)
    _operands.check_shapes(q, k, v, layout, kv_len, sink, ragged, output, lse)
    sink_element, is_sink_number = sink_kind or (None, False)
    spec = _program.Spec(
        element=_operands.ELEMENTS[_operands.dtype_name(q)], head_dim=q.shape[axis], head_dim_v=v.shape[axis],
        layout=layout, causal=alignment, left="l" in (sides or ""), right="r" in (sides or ""), scale=has_scale, kv_len=length,
        ragged=ragged_kind, sink=sink_element, is_sink_number=is_sink_number, lse=return_lse, max=return_max, score=score, mask=mask,
        weight=weight,
    )  # fmt: skip
    function = _compile(_program.program(spec), target)
    plan = _Plan(spec, function, is_torch, is_torch and all(map(_arrays.is_torch, tensors)))
    if is_torch:
        _Tensor = _arrays.torch_module().Tensor
    _axes[layout] = axis
    _remember((q.dtype, q.shape[axis], v.shape[axis], kind), plan)
    return plan


def _compile(program: str, target: Any) -> Function:
    if target is not None and not isinstance(target, str):
        raise TypeError(f"target is {target!r:.80}, expected a string, or None for this machine's")
    return compile(program, target="host" if target is None else target).attention


def _remember(key: tuple, plan: _Plan) -> None:
    """Keeps a plan, and forgets some where there are too many: those that no call used since the last time, else the
    older half. Compiling the same program again finds it in the compiler's own cache. Every step is atomic under the
    GIL."""
    if len(_plans) >= _MAX_PLANS:
        known = list(_plans.items())
        for old, _ in [item for item in known if not item[1].was_used] or known[: _MAX_PLANS // 2]:
            _plans.pop(old, None)
        for _, other in known:
            other.was_used = False
    _plans[key] = plan
