"""`saccade.causal_conv1d`: the short convolution of layers of linear attention, with its activation and its state."""

from __future__ import annotations

import contextlib
from operator import index
from typing import Any

from saccade import _arrays, _conv, _layer, _linear, _operands, _parameters
from saccade._arrays import Array
from saccade._library import on_cache_clear
from saccade._opaque import is_compiling

_MAX_WIDTH = 32


def causal_conv1d(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    activation: str | None = None,
    state: Array | None = None,
    return_state: bool = False,
    cu_seqlens: Array | None = None,
    kv_len: Array | None = None,
    layout: str | None = None,
    out: Array | tuple[Array, Array] | None = None,
) -> Any:
    """The depthwise causal convolution y[s] = activation(bias + Σ weight[j] · x[s − width + 1 + j]) of each channel, as
    the package causal_conv1d defines it.

    Args:
        x: [batch, dim, length] in the default layout: torch CPU tensors or NumPy arrays of float64, float32, float16 or
            bfloat16, with any strides. Channels that are consecutive in memory are fastest.
        weight: [dim, width], of any of the element types, float64 if and only if x is. The width is 1 to 32.
        bias: [dim], of such a type.
        activation: "silu", which "swish" is another name of, or None.
        state: the inputs before the sequence, of x's element type: [batch, dim, n] with n ≥ width − 1, of which the
            last one precedes the sequence. They are 0 by default.
        return_state: also returns the state after the sequence: its last n inputs, where n is that of `state` or
            width − 1.
        cu_seqlens: a ragged batch: x is [dim, length], and sequence i has the positions cu_seqlens[i] to
            cu_seqlens[i + 1] - 1. An int32 or int64 tensor [sequences + 1] of x's kind that ascends from 0. States are
            [sequences, dim, n]. Outputs after the last sequence are 0.
        kv_len: the lengths of sequences, an int32 or int64 tensor [batch] of x's kind. Outputs after them are 0, and
            the final state is that after the last position of its sequence. A call with a part of the positions thus
            returns the state after these.
        layout: "bds" (the default) or "bsd" for batch, channel d and position s; with cu_seqlens "ds" (the default) or
            "sd". The output has it, and a state has its channels and positions in the same order.
        out: the array to write the output to, or with return_state the pair (output, state): of x's kind, with the
            shape and element type of the results, not overlapping inputs. The second of the pair may be `state` itself,
            which is updated in place then.

    Returns:
        The output, of x's shape and element type, or (output, state). Arrays given as `out` are returned.

    PyTorch records gradients of x, weight, bias and state. The call is an operator in graphs of torch.compile.

    Raises:
        ValueError: mismatched arguments, an unknown activation or layout, `out` with a tensor that requires grad;
            outside of graphs also offsets or lengths that do not fit the length of x. Nothing is written then.
        TypeError: an element type or a number of dimensions that is not one of the above.
        NotImplementedError: a second derivative.
    """
    call = (x, weight, bias, activation, state, return_state, cu_seqlens, kv_len, layout)
    form, is_swapped = _form_of(*call) if is_compiling() else _plan_of(call)
    if not is_compiling() and form.lengths is not None:
        _check_values(cu_seqlens, kv_len, x.shape[form.layout.index("d" if is_swapped else "s")])
    outs = _linear.out_of(out, form.returns_state)
    is_recorded = _layer.needs_gradient(x, weight, bias, state)
    if outs and is_recorded:
        raise ValueError("out is given, expected None: an input requires grad, and gradients are recorded for new "
                         "results only")
    return _Call(form, is_swapped, x, state, cu_seqlens if form.is_ragged else kv_len).results(
        weight, bias, outs, is_recorded)


class _Call:
    """A call of a checked form, whose layout is that of the program: the one with channels and positions exchanged if
    `is_swapped`."""

    def __init__(self, form: _conv.Form, is_swapped: bool, x: Any, state: Any, lengths: Any):
        self.form, self.is_swapped, self.lengths = form, is_swapped, lengths
        last = len(form.layout) - 1
        self.axes, self.of_state = (last - 1, last), (1, 2)
        self.x = self.view(x, self.axes)
        self.given = state
        if state is None and form.returns_state:
            state = self.zeros()
            self.given = self.view(state, self.of_state)
        self.state = None if state is None else state if self.given is not state else self.view(state, self.of_state)

    def view(self, x: Any, axes: tuple[int, int]) -> Any:
        """The caller's array as the program has it, or the reverse."""
        return _layer.swapped(x, *axes) if self.is_swapped else x

    def zeros(self) -> Any:
        """The state of inputs that are 0, as the program has it."""
        form, x = self.form, self.x
        shape = state_shape(form, x, self.lengths)
        return x.new_zeros(shape) if _arrays.is_torch(x) else _arrays.library_of(x).zeros(shape, x.dtype)

    def results(self, weight: Any, bias: Any, outs: Any, is_recorded: bool) -> Any:
        """What the call returns, which is written to `outs` unless that is empty."""
        form, state = self.form, self.state
        if 0 in self.x.shape or state is not None and 0 in state.shape:  # the state stays as it is
            form, state = form._replace(returns_state=False), None
        form = form._replace(has_state=state is not None, has_gradient=is_recorded)
        tensors = [each for each in (self.x, weight, bias, state, self.lengths) if each is not None]
        if outs and not is_compiling():
            return self.write(form, tensors, outs)
        if 0 in self.x.shape:
            made = [_layer.copy_of(self.x)]
        else:
            like = (0, *[2 + (bias is not None)] * form.returns_state)
            made = _layer.call(_conv.NAME, _program_of(form), tensors, like, is_recorded)
        output = self.view(made[0], self.axes)
        if self.form.returns_state:
            final = self.view(made[1], self.of_state) if form.returns_state else _layer.copy_of(self.given)
            found: tuple[Any, ...] = (output, final)
        else:
            found = (output,)
        if outs:
            if not _arrays.copied(found, tuple(outs)):
                raise ValueError("out does not have the shapes and element types of the results")
            found = tuple(outs)
        return found if self.form.returns_state else found[0]

    def write(self, form: _conv.Form, tensors: list[Any], outs: Any) -> Any:
        """Writes the results to `outs`."""
        names = ("out[0]", "out[1]") if len(outs) == 2 else ("out",)
        expected = (self.view(self.x, self.axes), self.given)
        for name, each, of in zip(names, outs, expected):
            _arrays.check_result(name, each)
            if tuple(each.shape) != tuple(of.shape) or each.dtype != of.dtype:
                raise ValueError(f"{name} has shape {tuple(each.shape)} and element type {_operands.dtype_name(each)}, "
                                 f"expected {tuple(of.shape)} and {_operands.dtype_name(of)}")
            _arrays.check_writable(name, each)
        is_update = len(outs) == 2 and outs[1] is self.given
        targets = [self.view(outs[0], self.axes)]
        if form.returns_state:
            targets.append(_layer.new_like(self.state) if is_update else self.view(outs[1], self.of_state))
        if 0 not in self.x.shape:
            _layer.write(_layer.function_of(_program_of(form), _conv.NAME), tensors, targets, names)
        if is_update and form.returns_state:
            self.view(self.given, self.of_state)[...] = targets[1]
        elif len(outs) == 2 and not is_update and not form.returns_state:
            outs[1][...] = self.given
        return tuple(outs) if len(outs) == 2 else outs[0]


def state_shape(form: _conv.Form, x: Any, lengths: Any) -> tuple[Any, Any, Any]:
    """The shape of a state of width − 1 positions, for an input with the layout of the form."""
    batch = lengths.shape[0] - 1 if form.is_ragged else x.shape[0]
    channels = x.shape[form.layout.index("d")]
    return (batch, form.width - 1, channels) if form.layout[-1] == "d" else (batch, channels, form.width - 1)


_plans: dict[Any, tuple[_conv.Form, bool]] = {}
"""The forms of checked calls, by all that checks depend on."""
_MAX_PLANS = 512
on_cache_clear(_plans.clear)


def _plan_of(call: tuple[Any, ...]) -> tuple[_conv.Form, bool]:
    """`_form_of` of a call, which is checked unless an equal one was."""
    x, weight, bias, activation, state, return_state, cu_seqlens, kv_len, layout = call
    key: Any = None
    try:
        is_torch = _arrays.is_torch(x)
        strides = x.stride() if is_torch else x.strides
        key = (activation, return_state, type(return_state), layout, strides[-1], strides[-2],
               *[None if each is None else (each.dtype, tuple(each.shape), _arrays.is_torch(each))
                 for each in (x, weight, bias, state, cu_seqlens, kv_len)])
        plan = _plans.get(key)
    except (AttributeError, IndexError, TypeError):  # no array, or an option that is not hashable
        plan = None
    if plan is None:
        plan = _form_of(*call)
        if len(_plans) >= _MAX_PLANS:
            _plans.clear()
        if key is not None:
            with contextlib.suppress(TypeError):
                _plans[key] = plan
    return plan


# --- checks -----------------------------------------------------------------------------------------------------------


def _layout_of(layout: Any, cu_seqlens: Any) -> str:
    if layout is None:
        return "bds" if cu_seqlens is None else "ds"
    if not isinstance(layout, str) or layout not in _conv.LAYOUTS:
        raise ValueError(f"layout is {layout!r:.80}, expected one of {', '.join(_conv.LAYOUTS)}")
    if ("b" in layout) != (cu_seqlens is None):
        expected = '"ds" or "sd" with cu_seqlens' if cu_seqlens is not None else '"bds" or "bsd" without cu_seqlens'
        raise ValueError(f"layout is {layout!r}, expected {expected}")
    return str(layout)


def _form_of(*call: Any) -> tuple[_conv.Form, bool]:
    """The form of a call, which is checked, and whether the program has channels and positions exchanged, so that the
    last dimension is one along which x is contiguous."""
    form, x = form_of(*call), call[0]
    layout = form.layout
    inner, other = len(layout) - 1, len(layout) - 2
    is_swapped = not _layer.is_contiguous_along(x, inner) and _layer.is_contiguous_along(x, other)
    if x.shape[layout.index("s")] == 1:  # contiguous along both
        is_swapped = layout[-1] == "s"
    return form._replace(layout=_conv.LAYOUTS[layout]) if is_swapped else form, is_swapped


def form_of(x: Any, weight: Any, bias: Any, activation: Any, state: Any, return_state: Any, cu_seqlens: Any,
            kv_len: Any, layout: Any) -> _conv.Form:
    """The form of a call in its own layout, which is checked. In a function that is traced, element types are those of
    torch."""
    layout = _layout_of(layout, cu_seqlens)
    _parameters.flag("return_state", return_state)
    if activation is not None and (not isinstance(activation, str) or activation not in ("silu", "swish")):
        raise ValueError(f'activation is {activation!r:.80}, expected None, "silu" or "swish"')
    if cu_seqlens is not None and kv_len is not None:
        raise ValueError("kv_len is given with cu_seqlens, expected None: lengths are differences of cu_seqlens")
    element = _element_of("x", x, len(layout))
    kind = None if is_compiling() else _arrays.kind_of(x)
    for name, each in (("weight", weight), ("bias", bias), ("state", state), ("cu_seqlens", cu_seqlens),
                       ("kv_len", kv_len)):
        if kind is not None and each is not None and _arrays.kind_of(each) != kind:
            raise TypeError(f"{name} is {_arrays.kind_of(each) or type(each).__name__}, expected {kind}, as x is")
    channels = x.shape[layout.index("d")]
    own = _parameter("weight", weight, 2, x, element)
    width = weight.shape[1]
    if not 1 <= width <= _MAX_WIDTH:
        raise ValueError(f"weight has width {width}, expected 1 to {_MAX_WIDTH}")
    _check_shape("weight", weight, (channels, width))
    of_bias = None
    if bias is not None:
        of_bias = _parameter("bias", bias, 1, x, element)
        _check_shape("bias", bias, (channels,))
    lengths = cu_seqlens if "b" not in layout else kv_len
    of_lengths = None
    if lengths is not None:
        name = "cu_seqlens" if "b" not in layout else "kv_len"
        if not hasattr(lengths, "ndim"):
            _arrays.check_tensor(name, lengths)  # raises
        if lengths.ndim != 1:
            raise TypeError(f"{name} has {_arrays.dimensions(lengths.ndim)}, expected 1")
        of_lengths = lengths.dtype if is_compiling() else _operands.integer_type(name, lengths)
        if name == "cu_seqlens" and not lengths.shape[0]:
            raise ValueError("cu_seqlens is empty, expected the offset of each sequence and the total")
    batch = x.shape[0] if "b" in layout else lengths.shape[0] - 1
    if kv_len is not None:
        _check_shape("kv_len", kv_len, (batch,))
    if state is not None:
        _check_state(state, x, element, batch, channels, width, layout)
    return _conv.Form(element, layout, index(width), own, of_bias, activation and "silu", state is not None,
                      bool(return_state), of_lengths)


def _check_state(state: Any, x: Any, element: Any, batch: Any, channels: Any, width: Any, layout: str) -> None:
    if _element_of("state", state, 3) != element:
        raise TypeError(f"state has elements of type {_operands.dtype_name(state)}, expected "
                        f"{_operands.dtype_name(x)}, that of x")
    axis = 2 if layout[-1] == "s" else 1
    extents = {0: batch, 3 - axis: channels, axis: state.shape[axis]}
    if state.shape[axis] < width - 1:
        raise ValueError(f"state has {state.shape[axis]} positions, expected {width - 1} or more, the width of weight "
                         "less 1")
    _check_shape("state", state, tuple([extents[i] for i in range(3)]))


def _element_of(name: str, x: Any, rank: int) -> Any:
    if is_compiling():
        if x.ndim != rank:
            raise TypeError(f"{name} has another number of dimensions")
        return x.dtype
    return _linear.element_of(name, x, rank)


def _parameter(name: str, x: Any, rank: int, of: Any, element: Any) -> Any:
    """The element type of weights, which may be wider than that of the input."""
    own = _element_of(name, x, rank)
    if is_compiling():
        return own
    _layer.check_width(name, x, own, of, element)
    return own


def _check_shape(name: str, x: Any, expected: tuple[Any, ...]) -> None:
    if tuple(x.shape) != expected:
        raise ValueError(f"{name} has shape {tuple(x.shape)}, expected {expected}")


def _check_values(cu_seqlens: Any, kv_len: Any, length: int) -> None:
    """Refuses offsets and lengths beyond the length of x."""
    if kv_len is not None and kv_len.shape[0]:
        _linear.check_length_values(kv_len, length, "x")
    if cu_seqlens is None:
        return
    if int(cu_seqlens[0]) != 0:
        raise ValueError(f"cu_seqlens starts with {int(cu_seqlens[0])}, expected 0")
    if bool((cu_seqlens[1:] < cu_seqlens[:-1]).any()):
        raise ValueError("cu_seqlens has an element that is less than the one before, expected ascending offsets")
    if int(cu_seqlens[-1]) > length:
        raise ValueError(f"cu_seqlens ends with {int(cu_seqlens[-1])}, expected at most {length}, the length of x")


# --- what calls share -------------------------------------------------------------------------------------------------


def _program_of(form: _conv.Form) -> str:
    if not is_compiling():
        return _conv.program(form)
    from saccade.torch import layer_operator  # imported late: it imports torch

    found: str = layer_operator.program_of(tuple(form))
    return found
