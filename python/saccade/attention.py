"""`saccade.attention`: attention on torch tensors, NumPy arrays and DLPack tensors.

A plan is a compiled function with the steps to allocate its results. Plans are cached under a key of element types,
head dimensions, layout, kinds of arguments and fingerprints of the Python functions; lengths, batch, heads and scalar
values are not part of the key. The compiled code checks shapes; after an error, Python checks them again to report it
in terms of the caller's arguments.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable
from typing import Any

from saccade import (
    _arrays,
    _autograd,
    _epilogue,
    _foreign,
    _functions,
    _gpu,
    _normalizers,
    _operands,
    _options,
    _packed,
    _program,
    _served,
)
from saccade import stats as _stats
from saccade._arrays import Array
from saccade._form import Form, Operands
from saccade._library import on_cache_clear
from saccade._opaque import call_untraced, is_compiling
from saccade._stats_call import Tallies
from saccade.function import Function
from saccade.masks import Mask
from saccade.module import compile
from saccade.regions.traced_function import variables
from saccade.scores import Score

NAME = "saccade.attention"
_MAX_PLANS = 512


class _Plan:
    """The compiled function and result allocation for calls of one form, or the programs of recorded ones."""

    __slots__ = ("form", "call", "into", "ordered", "kind", "is_torch", "axis", "key_axis", "head_dim_v", "row_axes",
                 "has_lse", "has_max", "has_argmax", "has_length", "row_dtype", "index_dtype", "empty_like", "was_used",
                 "recorded", "tallies")  # fmt: skip

    def __init__(self, form: Form, function: Function | None, kind: _operands.Kind, may_use_tvm_ffi: bool):
        self.form, self.ordered = form, form.order()
        self.recorded = _autograd.Programs.of(form) if function is None else None
        self.kind, self.was_used = kind, False
        self.is_torch, is_on_gpu = kind
        self.into: Any = None if function is None else function.into
        self.call: Any = self.into if function is None or not may_use_tvm_ffi else function.tvm_ffi
        self.axis, self.key_axis = form.layout.index("d"), form.key_layout.index("s")
        # None: the output has the shape of the query.
        self.head_dim_v = form.head_dim_v if form.head_dim_v != form.head_dim else None
        self.tallies = [bins for bins, _ in form.tallies]
        self.row_axes = [form.layout.index(dim) for dim in "bhs" if dim in form.layout]
        self.has_lse, self.has_max, self.has_argmax = form.lse, form.max, form.argmax
        self.has_length = form.kv_len == "index"
        self.row_dtype: Any = "float64" if form.precision == "f64" else "float32"
        self.index_dtype: Any = "int64"
        self.empty_like: Callable[[Any], Any]
        if self.is_torch:
            torch = _arrays.torch_module()
            self.empty_like = torch.empty_like
            self.row_dtype, self.index_dtype = getattr(torch, self.row_dtype), torch.int64
        elif is_on_gpu:
            self.empty_like = lambda q: q.empty(q.shape, q.dtype)
        else:
            import numpy

            self.empty_like = functools.partial(numpy.empty_like, subok=False)

    def empty(self, q: Any, shape: tuple[int, ...], dtype: Any) -> Any:
        """A new array of q's kind."""
        if self.is_torch:
            return q.new_empty(shape, dtype=dtype)
        if type(q) is _gpu.DeviceTensor:
            return q.empty(shape, dtype)
        import numpy

        return numpy.empty(shape, dtype)

    def output(self, q: Any) -> Any:
        """A new array for the output."""
        if self.head_dim_v is None:
            return self.empty_like(q)
        shape = list(q.shape)
        shape[self.axis] = self.head_dim_v
        return self.empty(q, tuple(shape), q.dtype)

    def results(self, q: Any, output: Any, lse: Any) -> tuple[Any, ...]:
        """All results: the output, and `lse` or a new array for it, and others."""
        extents = q.shape
        rows = tuple([extents[axis] for axis in self.row_axes])
        results: tuple[Any, ...] = (output,)
        if self.has_lse:
            results += (self.empty(q, rows, self.row_dtype) if lse is None else lse,)
        if self.has_max:
            results += (self.empty(q, rows, self.row_dtype),)
        if self.has_argmax:
            results += (self.empty(q, rows, self.index_dtype),)
        return (*results, *[self.empty(q, (*rows, bins), self.row_dtype) for bins in self.tallies])


_Key = tuple[tuple[Any, ...], Any, int | None, bool, bool]
"""A Form with q's own element type, or the equal tuple of its fields; target, the number of the GPU, whether gradients
are recorded, whether all captured arrays are of torch."""
_plans: dict[_Key, _Plan] = {}
_Tensor: Any = None  # torch.Tensor, once torch is imported
_read, _EAGER = _options.read, _options.EAGER
on_cache_clear(_plans.clear)


def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    score: Callable[..., Any] | None = None,
    mask: Callable[..., Any] | None = None,
    weight: Callable[..., Any] | None = None,
    normalizer: str | Callable[..., Any] | None = None,
    scale: float | None = None,
    causal: str | int | None = None,
    window: int | tuple[int | None, int | None] | None = None,
    kv_len: int | Array | None = None,
    cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None,
    page_table: Array | None = None,
    k_scale: float | Array | None = None,
    v_scale: float | Array | None = None,
    k_zero: float | Array | None = None,
    v_zero: float | Array | None = None,
    qk_type: str | None = None,
    reproducible: str | None = None,
    sink: float | Array | None = None,
    dropout_p: float = 0,
    seed: int | Array | None = None,
    return_lse: bool = False,
    return_max: bool = False,
    stats: Any = None,
    gate: Array | None = None,
    gate_activation: str = "sigmoid",
    layout: str | None = None,
    target: str | None = None,
    stream: Any = None,
    out: Array | tuple[Array, Array] | None = None,
    **unknown: Any,
) -> Array | tuple[Array, ...]:
    """weight(softmax(mask(score(scale * q k^T)))) v, for every batch and head. A normalizer may replace the softmax.

    Args:
        q: queries [batch, heads, queries, head_dim] in the default layout: a torch tensor on the CPU or a GPU, a NumPy
            array, or an array on either of any other library with `__dlpack__`, such as JAX, of float64, float32,
            float16 or bfloat16, with any strides.
        k: keys [batch, KV heads, keys, head_dim], of q's kind, device and element type. `heads` is a multiple of
            `KV heads`: query head h uses KV head h // (heads // KV heads).
        v: values [batch, KV heads, keys, head_dim_v]; head_dim_v may differ from head_dim.
        score: a function (s, b, h, i, j), user-defined or from saccade.scores, that maps the scaled score s of query i
            and key j to the score, in float32 (float64 for float64 inputs). It is traced once, not called per element:
            it may compute with its scalar arguments and read elements of captured tensors, without Python control flow
            on them. Captured tensors, and Python ints and floats, are read at each call. A number whose value the
            function uses while it is traced (if, range), or that divides or multiplies a position, is compiled in: one
            that changes between calls should be a 0-d tensor there. Negative indices count from the end. A read out of
            bounds raises ValueError if it can be detected before the call: for indices b, h, i or j, for expressions of
            them at their first and last unmasked values, and for indices read from integer tensors. Reads that depend
            on kv_len, cu_seqlens or other tensors are not checked; out of bounds, their value is unspecified, but they
            never fault.
        mask: a function (b, h, i, j), user-defined or from saccade.masks: whether query i attends to key j. Traced
            likewise. `causal`, `window` and `kv_len` apply in addition.
        weight: a function (p, b, h, i, j) that maps the softmax weight p of key j to the factor of its value, for
            unmasked keys. Traced likewise. If it is proportional to p, keys are read once, otherwise twice.
        normalizer: what makes a weight of a score: None or "softmax"; or the weight of a key is a function of its score
            alone, without a sum over the keys: "sigmoid" (1 / (1 + exp(-s)); Ramapuram et al. 2024), "silu" (s times
            the sigmoid of s; HSTU, Zhai et al. 2024, which also divides by the length), "relu_squared" (max(s, 0)
            squared; So et al. 2021), or a function (s, b, h, i, j), traced likewise; or "stick_breaking", which gives
            key j the part sigmoid(s) of what the visible keys after it leave of a stick of length 1 (Tan et al. 2024;
            their causal form is causal=-1): `weight` must be proportional to its argument then. Masked keys, and keys
            of score -inf, have weight 0, and `weight` and dropout apply to these weights. There is no log-sum-exp: with
            one of these, sink, return_lse, return_max and stats are a ValueError.
        scale: the factor of q k^T, a number or a torch tensor without dimensions; None uses 1/sqrt(head_dim).
        causal: masks out keys after the query's own key: key i for query i ("top_left"); the last query owns the last
            key within kv_len ("bottom_right"); or key i + n for an int n.
        window: an int n keeps the last n keys up to the query's own (own - n < key <= own). A pair (left, right) keeps
            keys from `left` before to `right` after the query's own; None or -1 leaves a side open. Without `causal`,
            query i owns key i.
        kv_len: the number of valid keys, 0 ... keys: an int, or an int32 or int64 tensor [batch] of q's kind. Keys
            after it are not read. Other values are a ValueError. For ragged sequences, values are additionally clamped
            to the length of the sequence ("bottom_right" uses the unclamped value).
        cu_seqlens_q: a ragged batch: q is [total queries, heads, head_dim], k and v likewise, and sequence n has the
            queries cu_seqlens_q[n] ... cu_seqlens_q[n + 1] - 1. An int32 or int64 tensor [sequences + 1] of q's kind
            that ascends from 0. Sequences may be empty and attend to themselves only: b is the sequence, and i, j,
            kv_len, `causal` and `window` are relative to it. Queries after the last sequence return 0.
        cu_seqlens_k: the same for k and v; both or neither are given.
        page_table: a paged cache (docs/guides/decoding.md): k and v are pools of pages, [pages, KV heads, page size,
            head_dim] in the default layout, [pages, page size, KV heads, head_dim] with cu_seqlens_q. An int32 or int64
            tensor [batch, entries] of q's kind: the keys [i * page size, (i + 1) * page size) of batch b are in page
            page_table[b, i]. Pages may be in any order and shared. Entries after kv_len are not read; another page
            that is not in the pool is a ValueError. With cu_seqlens_q, without cu_seqlens_k, batch n is sequence n. It
            has no gradient.
        k_scale: k is quantized: of int8, float8_e4m3fn or float8_e5m2, and its elements times k_scale are the keys; or
            of uint8 with head_dim / 2 bytes, each of two codes of 4 bits, the low bits first, and the keys are
            (code - 8) * k_scale, or (code - k_zero) * k_scale. head_dim is then a multiple of 8. A number, or a float32
            array of q's kind: of no dimensions, [KV heads], or with one scale for each position and head, which has the
            shape of k without head_dim; in place of head_dim it may have the number of blocks of successive elements,
            of a power of two, of which each has a scale. The product is computed in float32 and converted to q's
            element type, except that a kernel may omit the conversion, which is at least as exact. NaN gives NaN. It
            has no gradient.
        v_scale: the same for v, which may be of another of these types; both or neither are given.
        k_zero, v_zero: zero points of codes of 4 bits: float32 arrays of the shape of the scale, or numbers.
        qk_type: "int8" permits that queries and keys are rounded to int8 for q k^T, as SageAttention does: keys without
            their mean, with a scale for each row. It is faster on CPUs with AVX512_VNNI unless they multiply q's
            element type in tile registers (bfloat16 with AMX), and ignored elsewhere, on GPUs, for at most 8 queries,
            and if gradients are recorded. docs/guides/numerics.md states the error. Not for float64.
        reproducible: "stream" gives a query equal bits whatever other queries and batches a call has, and whatever keys
            it has after those that the query attends to: a prompt, its chunks and its single tokens agree. It is slower
            for many queries (docs/guides/decoding.md). On CPUs, without cu_seqlens_q and gradients.
        sink: an extra score without key and value in the softmax of every row: a scalar, or a tensor [heads] of q's
            kind, of float32 (float64 for float64 inputs) or q's element type. `score`, `mask` and `weight` do not apply
            to it. -inf disables it.
        dropout_p: the probability, 0 ... 1, with which the weight of a key becomes 0. Others are multiplied by
            1/(1 - dropout_p), after `weight`. The log-sum-exp does not change. 0 needs no seed.
        seed: determines with b, h, i and j which weights are dropped: an int, or an int64 tensor [1] of q's kind. All
            devices, element types and batches have the same bits: those of `saccade.dropout.dropout_mask`.
        return_lse: also returns the log-sum-exp of the scores, including the sink, [batch, heads, queries] (the
            dimensions that the layout has, in this order), float32 (float64 for float64 inputs).
        return_max: also returns the row maximum of the unmasked scores in the same shape, and its key (argmax, the
            first of equal ones) as int64; -inf and -1 for a fully masked row. The sink is excluded.
        stats: statistics of the softmax weights, before `weight` and dropout: names such as "entropy" and statistics of
            saccade.stats, in a sequence. The last result is then a `saccade.stats.Statistics` with an array
            for each of them. They are computed in the kernel, in memory that grows with queries times bins.
        gate: an output gate: the output is multiplied by the activated gate in the kernel. An array of q's kind, of any
            element type of q, with the shape of the output, or that without head_dim, or [heads]. A PyTorch operator
            multiplies if gradients are recorded, which the gate then has too.
        gate_activation: "sigmoid", "softplus", or "none" for the gate as it is.
        layout: the dimensions of q, k, v and the output: s and d, with or without b and h, in any order. Defaults to
            "bhsd", or "shd" with cu_seqlens_q, which allows no b.
        target: the CPU target, such as "v3", or the GPU target, "sm_75", "sm_80" or "sm_90a"; None uses this machine's,
            for q on a GPU the newest that this GPU runs.
        stream: for q on a GPU, the CUDA stream of the call: a stream object of torch, CuPy or CUDA Python, or its
            address. None uses torch's current stream for torch tensors, else the default stream.
        out: the array to write the output to, or with return_lse a pair (output, lse): of q's kind, with the output's
            shape and element type, not overlapping inputs.

    Returns:
        The output, with q's kind, element type and shape except for head_dim_v. With return_lse or return_max a tuple:
        (output, lse), (output, max, argmax) or (output, lse, max, argmax), with `stats` one more. Arrays given
        as `out` are returned. A fully masked row returns 0, and as its lse -inf or the sink.

    Raises:
        TypeError: an argument of the wrong kind, element type, device or rank; torch and NumPy mixed in q, k and v; an
            option of another library, such as attn_mask: the message says what to write instead.
        ValueError: mismatched batch, heads, lengths or head dimensions; an invalid option value; `out` or `stream`
            with a tensor that requires grad; a tensor that has the negative bit set.
        saccade.TraceError: a TypeError: `score`, `mask` or `weight` cannot be traced.
        NotImplementedError: this machine cannot run code for the target.
        RuntimeError: the NVIDIA driver reports an error, possibly of earlier work.

    On a GPU a call is asynchronous. Captured tensors are torch tensors on q's GPU. Lengths in tensors, and reads of
    captured tensors at indices from tensors, are not checked, because only the GPU reads them; they never fault.

    Gradients are those of the output and the log-sum-exp, with respect to q, k, v, `sink`, a tensor as `scale`, and
    float tensors that `score`, `weight` or `normalizer` captures; the row maximum has none. A weight that is not
    proportional to p has no gradient (saccade.CompileError), and second derivatives are not supported
    (NotImplementedError).

    One kernel is compiled for each combination of element type, head dimensions, layout, given options and traced
    functions. Other lengths, batches, head counts, scales, offsets, windows, dropout probabilities, seeds and captured
    numbers reuse it. A function that is compiled again and again is reported once, as a `saccade.Warning`.

    Example:
        >>> slopes = torch.tensor([0.5, 0.25])
        >>> alibi = lambda s, b, h, i, j: s + slopes[h] * (j - i)
        >>> out = saccade.attention(q, k, v, score=alibi, causal="bottom_right")
    """
    if unknown:
        raise _operands.unknown_option(unknown, DEFAULTS)
    given = (score, mask, weight, normalizer, scale, causal, window, kv_len, cu_seqlens_q, cu_seqlens_k, page_table,
             k_scale, v_scale, k_zero, v_zero, qk_type, reproducible, sink, dropout_p, seed, return_lse, return_max,
             stats, gate, gate_activation, layout)
    if is_compiling():
        return _trace(q, k, v, given, target, stream, out)
    if (_served.is_on or _served.profiler._is_profiler_enabled) and _served.is_new_call():
        named = _named(given, target, stream, out)
        again = functools.partial(attention, q, k, v, **named)
        return _served.observe(NAME, again, (q, k, v), arguments=((q, k, v), named))
    if normalizer is not None and normalizer != "softmax":
        _normalizers.check_without_sum(sink, return_lse, return_max, stats)
    if stats is not None and type(stats) is not Tallies:
        return _stats.attend(attention, stats, q, k, v, _named(given, target, stream, out))
    recorder = _autograd.state.recorder
    if recorder is None and _autograd.may_record(q, k, v, score, weight, normalizer, scale, sink, stats, gate):
        named = _named(given, target, stream, out)
        with contextlib.suppress(_epilogue.IsRecorded):
            return _autograd.record(attention, q, k, v, **named)
        return _epilogue.compose(attention, q, k, v, named)
    gpu = None
    if type(q) is not _Tensor or not q.is_cpu:
        if _served.finds_profiler():
            return attention(q, k, v, **_named(given, target, stream, out))
        if _gpu.is_foreign(q):
            foreign = _foreign if _gpu.ordinal_of(q) is None else _gpu
            return foreign.call_with_views(attention, q=q, k=k, v=v, **_named(given, target, stream, out))
        gpu = _gpu.ordinal_of(q)
    if stream is not None:
        if gpu is None:
            raise TypeError(f"stream is {stream!r:.80}, expected None: q is not on a GPU")
        stream = _gpu.stream_handle(stream)
    fields, values, operands, are_torch = _read(_EAGER, q, k, v, given)
    is_recorded = recorder is not None and recorder.is_needed(q, k, v, *values, *operands.values())
    if is_recorded and gate is not None:
        raise _epilogue.IsRecorded
    key = fields, target, gpu, is_recorded, are_torch
    try:
        plan = _plans[key]
        plan.was_used = True
    except (KeyError, TypeError):  # TypeError: an option is not hashable
        plan = None
    if plan is None:
        plan = _make_plan(q, k, v, out, operands, key)
    output, lse = (None, None) if out is None else _operands.split_out(out, return_lse)

    # The compiled code cannot check these properties. Subclasses and other types take the full check.
    if (type(q) is not _Tensor or type(k) is not _Tensor or type(v) is not _Tensor
            or q.is_neg() or k.is_neg() or v.is_neg()):
        _operands.check_kinds(q, k, v)
    if out is not None:
        _operands.check_outs(output, lse, plan.kind)
    if operands:
        values += plan.ordered(operands)
    try:
        if plan.has_length:
            keys = k.shape[plan.key_axis] * (1 if page_table is None else page_table.shape[1])
            if not 0 <= operands["kv_len"] <= keys:
                whose = "the length of k" if page_table is None else "the positions of page_table"
                raise ValueError(f"kv_len is {operands['kv_len']}, expected 0 to {keys}, {whose}")
        if plan.recorded is not None:
            assert recorder is not None
            return recorder.call(plan.recorded, target, q, k, v, values, out, stream)
        call = plan.call if stream is None else functools.partial(plan.into, stream=stream)
        caches = (k, v) if plan.form.scales is None else _packed.in_words(plan.form, k, v)
        if output is None:
            output = plan.empty_like(q) if plan.head_dim_v is None else plan.output(q)
        if not plan.has_lse and not plan.has_max and not plan.tallies:
            call(q, *caches, *values, output)
            result = output
        else:
            result = plan.results(q, output, lse)
            call(q, *caches, *values, *result)
    except Exception as error:
        _explain(error, q, k, v, out, operands, plan.form, values, {"score": score, "mask": mask, "weight": weight,
                  "normalizer": normalizer, **{f"tally_{i}": tally.function for i, tally in enumerate(stats or ())}})
        raise
    if out is not None and plan.is_torch and stream is None:  # Function.into tells autograd itself
        _arrays.torch_module().autograd.graph.increment_version(out)  # accepts a tensor or a tuple
    return result


DEFAULTS: dict[str, Any] = attention.__kwdefaults__ or {}


def _named(given: tuple[Any, ...], *more: Any) -> dict[str, Any]:
    """The keyword arguments of a call, whose values are `given` and `more` in their order."""
    return dict(zip(DEFAULTS, (*given, *more)))


# --- calls that something else computes -------------------------------------------------------------------------------


def _trace(q: Any, k: Any, v: Any, given: tuple[Any, ...], target: Any, stream: Any, out: Any) -> Any:
    """`attention` in a function that torch.compile or torch.export traces."""
    def untraced(reason: str) -> Any:
        return call_untraced(attention, f"attention{reason}", q, k, v, **_named(given, target, stream, out))

    if not _arrays.are_torch(q, k, v) or stream is not None:
        return untraced("")
    from saccade.torch import tracing  # imported late: it imports torch

    gate = _named(given)["gate"]
    results = tracing.attention(q, k, v, given if gate is None else _epilogue.without_gate(given), target)
    if isinstance(results, str):  # the eager call raises the error
        return untraced(f" ({results})")
    if gate is not None:
        results = _epilogue.applied(results, _named(given))
    if out is None:
        return results
    outs, made = [x if isinstance(x, tuple) else (x,) for x in (out, results)]
    if len(outs) > len(made) or not _arrays.copied(made, outs):
        return untraced(" (out does not fit)")
    return (*outs, *made[len(outs):]) if isinstance(results, tuple) else out


# --- errors -----------------------------------------------------------------------------------------------------------


def _explain(error: Exception, q: Any, k: Any, v: Any, out: Any, operands: Operands, form: Form,
             values: tuple[Any, ...], functions: dict[str, Any]) -> None:
    """Raises an error of the compiled code in terms of the caller's arguments, if they are known."""
    _operands.check_kinds(q, k, v)
    _operands.check_shapes(q, k, v, form.layout, operands, *_operands.split_out(out, form.lse))
    if form.epilogue:
        _epilogue.check(operands, q, v, form.layout, form.key_layout, _operands.kind_of(q))
    if found := re.search(r"capture #(\d+) is read by (.*) and (is too small for|starts after) it: (.*)", str(error)):
        number, reader, how, rest = found.groups()
        role, function = _reader_of(int(number), form, functions)
        reader = re.sub(r"capture #(\d+)", lambda index: _name_of(values[int(index[1])], function), reader)
        name = _name_of(values[int(number)], function)
        raise ValueError(f"{name}, which {role} reads by {reader}, {how} it: {rest}") from None
    if found := re.search(r"op ((?:cu_seqlens_[qk]|kv_len) (?:has|is|exceeds) .*)", str(error)):
        raise ValueError(found[1]) from None
    if found := re.search(r"'attn.paged' op (.*)", str(error)):
        raise ValueError(f"page_table {found[1]}") from None
    if found := re.fullmatch(r"attention(?:_weights)?: (?:argument|result) '(\w+)' \(.*?\): (.*)", str(error)):
        name, problem = found.groups()
        names = {"output": "out[0]", "lse": "out[1]"} if type(out) is tuple else {"output": "out"}
        raise type(error)(f"{names.get(name, name)}: {problem}") from None


def _reader_of(number: int, form: Form, functions: dict[str, Any]) -> tuple[str, Callable[..., Any] | None]:
    """The role and function that capture tensor `number`; captures are numbered consecutively over all functions."""
    role = form.captures()[number][0].rpartition("_")[0]
    function = functions[role]
    return role, function.function if isinstance(function, (Score, Mask)) else function


def _name_of(tensor: Array, function: Callable[..., Any] | None) -> str:
    """The quoted name of the variable through which a function captures a tensor."""
    name = next((name for name, value in variables(function) if value is tensor), None)
    return f"'{name}'" if name else "a captured tensor"


# --- plans ------------------------------------------------------------------------------------------------------------


def plan_of(q: Array, k: Array, v: Array, *, score: Callable[..., Any] | None = None,
            mask: Callable[..., Any] | None = None, causal: str | None = None, has_scale: bool = False,
            dropout: str | None = None) -> _Plan:
    """The plan of `attention(q, k, v, ...)` for callers that keep plans. They pass the captures of each call:
    `plan.call(q, k, v, *captures of score, *captures of mask, scale if has_scale, output)`. With `dropout`, the
    type of the seed, the probability and the seed come before the output."""
    texts: dict[str, Any] = {}
    are_torch = True
    for role, function in (("score", score), ("mask", mask)):
        if function is not None:
            texts[role], _, is_torch = _functions.read(role, function, q)
            are_torch = are_torch and is_torch
    form = Form(q.dtype, q.shape[3], v.shape[3], "bhsd", causal, scale=has_scale, dropout=dropout, **texts)
    key = form, None, _gpu.ordinal_of(q), False, are_torch
    return _plans.get(key) or _make_plan(q, k, v, None, {}, key)


def _make_plan(q: Array, k: Array, v: Array, out: Any, operands: Operands, key: _Key) -> _Plan:
    """Checks all arguments, compiles, and caches the plan."""
    global _Tensor
    fields, target, gpu, is_recorded, are_torch = key
    assert len(fields) == len(Form._fields), "another tuple than the key of the plan"
    form = Form(*fields)
    _operands.check_layout(form.layout, form.ragged is not None)
    kinds = _operands.check_kinds(q, k, v)
    _operands.check_sizes(q, k, v)
    output, lse = _operands.split_out(out, form.lse)
    _operands.check_outs(output, lse, kinds)
    _operands.check_shapes(q, k, v, form.layout, operands, output, lse)
    if form.pages and is_recorded:
        raise ValueError("page_table is given, expected None: an input requires grad, and a paged cache has no "
                         "gradient")
    if form.is_stream and is_recorded:
        raise ValueError('reproducible is "stream" and an input requires grad, expected one of them')
    if form.scales and is_recorded:
        raise ValueError("k_scale is given, expected None: an input requires grad, and quantized keys have no gradient")
    form = form._replace(element=_operands.element_of(q.dtype), epilogue=_epilogue.stored(form.epilogue))
    if form.epilogue:
        _epilogue.check(operands, q, v, form.layout, form.key_layout, kinds)
    # The operator of a recorded call compiles the program that it calls.
    function = None if is_recorded else _compile(_program.program(form), target, gpu)
    plan = _Plan(form, function, kinds, kinds[0] and are_torch)
    if kinds[0]:
        _Tensor = _arrays.torch_module().Tensor
    _remember((Form(*fields), target, gpu, is_recorded, are_torch), plan)
    return plan


def _compile(program: str, target: Any, gpu: int | None, entry: str = "attention") -> Function:
    if target is not None and not isinstance(target, str):
        raise TypeError(f"target is {target!r:.80}, expected a string, or None for this machine's")
    if target is None:
        target = "host" if gpu is None else f"cuda:{gpu}"
    function: Function = getattr(compile(program, target=target), entry)
    if (function.device == "cuda") != (gpu is not None):
        found = "cpu" if gpu is None else f"cuda:{gpu}"
        raise TypeError(f"q is on {found}, expected {function.device}: target is {target!r}")
    return function


def _remember(key: _Key, plan: _Plan) -> None:
    """Adds a plan to the cache. A full cache drops plans that were not used since the last time, or else the older
    half; the compiler's own cache still has their programs. Every step is atomic under the GIL."""
    if len(_plans) >= _MAX_PLANS:
        known = list(_plans.items())
        for old, _ in [item for item in known if not item[1].was_used] or known[: _MAX_PLANS // 2]:
            _plans.pop(old, None)
        for _, other in known:
            other.was_used = False
    _plans[key] = plan
