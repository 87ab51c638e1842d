"""`saccade.linear_attention`: attention whose keys and values are folded into a state of fixed size, the op
`attn.linear`.

Calls of which PyTorch records gradients, that torch.func transforms or that torch.compile traces become the operator
`saccade::linear_attention` (saccade.torch.linear_operator). Others call the compiled program.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any

from saccade import _arrays, _layer, _linear, _operands
from saccade._arrays import Array
from saccade._library import on_cache_clear
from saccade._opaque import call_untraced, is_compiling
from saccade.function import Function
from saccade.module import compile


def linear_attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    feature_map: str = "identity",
    causal: bool | str | int | None = False,
    normalize: bool = False,
    scale: float | None = None,
    l2norm: float | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
    erase: Array | None = None,
    state: Array | None = None,
    return_state: bool = False,
    cu_seqlens: Array | None = None,
    kv_len: Array | None = None,
    layout: str | None = None,
    out: Array | tuple[Array, Array] | None = None,
    **unknown: Any,
) -> Any:
    """Linear attention: S ← exp(decay)·S + φ(k) ⊗ v and o = scale · Sᵀ φ(q), recurrent over positions if `causal`,
    otherwise with one state over all keys.

    Args:
        q: queries [batch, heads, length, d] in the default layout: torch CPU tensors or NumPy arrays of float64,
            float32, float16 or bfloat16, with any strides.
        k: keys [batch, KV heads, length, d].
        v: values [batch, value heads, length, d_v]; `value heads` is a multiple of `KV heads`, and a multiple or a
            divisor of `heads`: consecutive heads of the larger number share one of the smaller. Each head of values has
            a state. The output has the larger number of `heads` and `value heads`.
        feature_map: φ, "identity", "relu" or "elu+1".
        causal: a query attends to keys up to its own position. As there are as many queries as keys, "top_left",
            "bottom_right" and the offset 0 of `attention` are the same as True, and None is False.
        normalize: divides each output by the sum of its weights.
        scale: the factor of the output, 1 by default; not with `normalize`.
        l2norm: q and k are divided by √(Σ x² + l2norm) over the head dimension, before φ. Models use 1e-6.
        decay: the logarithm of the decay of the state at each position, before it is read or written: [value heads] for
            all positions, [batch, value heads, length], or [batch, value heads, length, d] for each row. It may be
            above 0, and -inf.
        beta: [batch, value heads, length], the rate of the delta rule, which writes β·(v − Sᵀ φ(k)) in place of v.
        erase: [batch, value heads, length, d], the key e that the delta rule reads instead of φ(k): v − Sᵀ e.
        state: the initial state [batch, value heads, d, d_v], or d_v + 1 with `normalize`.
        return_state: also returns the final state, float32 (float64 for float64 inputs).
        cu_seqlens: a ragged batch: q, k and v are [length, heads, d], and sequence n has the positions cu_seqlens[n]
            to cu_seqlens[n + 1] - 1. An int32 or int64 tensor [sequences + 1] of q's kind that ascends from 0. States
            are [sequences, value heads, d, d_v]. Outputs after the last sequence are 0.
        kv_len: the lengths of sequences, an int32 or int64 tensor [batch] of q's kind. Positions after them are not
            read, their outputs are 0, and a final state is that after the last position of its sequence.
        layout: the dimensions of q, k, v and the output: s and d, with or without b and h, in any order; "bhsd" by
            default, or "shd" with cu_seqlens, which allows no b. `decay`, `beta` and `erase` have theirs in the same
            order. States have "bhd", then d_v.
        out: the array to write the output to, or with return_state the pair (output, state): of q's kind, with the
            shape and element type of the results, not overlapping inputs. The second of the pair may be `state` itself,
            which is updated in place then.

    Returns:
        The output, or (output, state). Arrays given as `out` are returned.

    PyTorch records gradients of all tensors of floats. The call is an operator in graphs of torch.compile.

    Raises:
        ValueError: mismatched arguments, an unknown feature map, `out` with a tensor that requires grad; outside of
            graphs also a decay or rate that is NaN or +inf, and a length beyond that of k.
        TypeError: an element type other than float64, float32, float16 or bfloat16, or another number of dimensions.
        NotImplementedError: a second derivative.
    """
    if unknown:
        raise _operands.unknown_option(unknown, linear_attention.__kwdefaults__ or {}, "linear_attention")
    given = {"decay": decay, "beta": beta, "erase": erase, "state": state, "cu_seqlens": cu_seqlens, "kv_len": kv_len}
    if not is_compiling():
        _linear.check_values({name: x for name, x in given.items() if _arrays.kind_of(x) and not _is_without_values(x)},
                             k, layout)
    return attend(q, k, v, given, (feature_map, causal, normalize, scale, return_state, l2norm, layout), out)


def attend(q: Array, k: Array, v: Array, given: dict[str, Any], options: tuple[Any, ...], out: Any = None) -> Any:
    """`linear_attention` without checks of the values of gates and lengths.

    Args:
        given: decay, beta, erase, state, cu_seqlens and kv_len by name.
        options: feature_map, causal, normalize, scale, return_state, l2norm, layout.
    """
    if is_compiling():
        return _trace(q, k, v, given, options, out)
    updates = isinstance(out, tuple) and len(out) == 2 and out[1] is not None and out[1] is given["state"]
    form, function, shapes = _plan_of(q, k, v, given, options, updates)
    outs = _linear.out_of(out, form.return_state)
    tensors = [q, k, v, *[given[name] for name, _, _ in form.operands]]
    if _layer.needs_gradient(*tensors):
        if outs:
            raise ValueError("out is given, expected None: an input requires grad, and gradients are recorded for new "
                             "results only")
        from saccade.torch import linear_operator  # imported late: it imports torch

        return linear_operator.call(form, tensors)
    if outs:
        names = ("out[0]", "out[1]") if form.return_state else ("out",)
        _layer.write(function, tensors, outs[:1] if form.updates_state else outs, names)
        return tuple(outs) if form.return_state else outs[0]
    plain = _arrays.torch_module() and _arrays.torch_module().Tensor
    if not all([type(x) is plain and not x.is_neg() for x in tensors]):
        return function(*tensors)
    output = q.new_empty(shapes[0])
    results = (output,) if not form.return_state else (output, q.new_empty(shapes[1], dtype=_linear.state_type(q)))
    try:
        function.tvm_ffi(*tensors, *results)
    except (RuntimeError, TypeError, ValueError):
        function(*tensors)  # raises the error
        raise
    return results if form.return_state else output


_Plan = tuple[_linear.Form, Function, tuple[tuple[int, ...], tuple[int, ...]]]
_plans: dict[Any, _Plan] = {}
"""The form, the function and the shapes of results of checked calls, by all that checks depend on."""
_MAX_PLANS = 512
on_cache_clear(_plans.clear)


def _plan_of(q: Any, k: Any, v: Any, given: dict[str, Any], options: tuple[Any, ...], updates: bool) -> _Plan:
    """The plan of a call, which is checked unless one with its shapes was. `updates`: the state in place."""
    key: Any = None
    try:
        key = (options, updates, *map(type, options),
               *[None if x is None else (x.dtype, tuple(x.shape), _arrays.is_torch(x))
                 for x in (q, k, v, *given.values())])  # fmt: skip
        plan = _plans.get(key)
    except (AttributeError, TypeError):  # no array, or an option that is not hashable
        plan = None
    if plan is None:
        form = _linear.form_of(q, k, v, given, options)
        head = form.layout.find("h")
        form = form._replace(heads=(q.shape[head], k.shape[head], v.shape[head]) if head >= 0 else None,
                             updates_state=updates and form.return_state and _is_updatable(form))
        shapes = _linear.result_shapes(form.layout, q.shape, v.shape, form.state_columns, given["cu_seqlens"])
        plan = form, _function_of(form), shapes
        if len(_plans) >= _MAX_PLANS:
            _plans.clear()
        if isinstance(key, tuple):
            with contextlib.suppress(TypeError):  # an option that is not hashable
                _plans[key] = plan
    return plan


def _is_updatable(form: _linear.Form) -> bool:
    """Whether a state of the operand's element type can replace it."""
    return any([name == "state" and own == form.precision for name, own, _ in form.operands])


@functools.lru_cache(maxsize=256)
def _function_of(form: _linear.Form) -> Function:
    return compile(_linear.program(form))[_linear.NAME]


on_cache_clear(_function_of.cache_clear)


def _is_without_values(x: Any) -> bool:
    """Whether x is a torch tensor whose elements cannot be read here."""
    if not _arrays.is_torch(x):
        return False
    torch = _arrays.torch_module()
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(x) or x.is_meta or torch._C._len_torch_dispatch_stack()
                or type(x) not in (torch.Tensor, torch.nn.Parameter))


def _trace(q: Any, k: Any, v: Any, given: dict[str, Any], options: tuple[Any, ...], out: Any) -> Any:
    """`linear_attention` in a function that torch.compile or torch.export traces."""
    def untraced(reason: str) -> Any:
        names = "feature_map", "causal", "normalize", "scale", "return_state", "l2norm", "layout"
        return call_untraced(linear_attention, f"linear_attention{reason}", q, k, v, **given, out=out,
                             **dict(zip(names, options)))

    if not _arrays.are_torch(q, k, v, *[x for x in given.values() if x is not None]):
        return untraced("")
    from saccade.torch import linear_operator  # imported late: it imports torch

    results = linear_operator.traced(q, k, v, given, options)
    if isinstance(results, str):  # the eager call raises the error
        return untraced(f" ({results})")
    if out is None:
        return results
    outs, made = [x if isinstance(x, tuple) else (x,) for x in (out, results)]
    if len(outs) != len(made) or not _arrays.copied(made, outs):
        return untraced(" (out does not fit)")
    return out
