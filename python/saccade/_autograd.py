"""Calls of `saccade.attention` whose gradients PyTorch records, or that transforms of torch.func see.

Such a call goes to the operator `saccade::attention` of PyTorch (saccade.torch.gradients). Its arguments are read
without grad mode, in which no check refuses a tensor that requires grad. Nothing here imports torch.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable
from typing import Any

from saccade import _arrays, _program, regions
from saccade._form import Form
from saccade.masks import Mask
from saccade.regions import Region
from saccade.regions.rebuild import rebuild
from saccade.regions.torch_grad import recording_mode
from saccade.scores import Score


class _State(threading.local):
    recorder: Recorder | None = None  # that of the call of `attention` that this thread is in


state = _State()


@functools.cache
def _modes() -> tuple[Any, Any, Any]:
    """Where torch has the state of transforms, of the forward mode and of the grad mode."""
    torch = _arrays.torch_module()
    return torch._C._are_functorch_transforms_active, torch.autograd.forward_ad, torch.is_grad_enabled


def may_record(q: Any, k: Any, v: Any, score: Any, weight: Any, normalizer: Any, scale: Any, sink: Any,
               stats: Any, gate: Any) -> bool:
    """Whether gradients may be recorded: grad mode is on, and a tensor requires grad, or may be one of the options or
    captured by one, or torch.func transforms the caller. False for arrays that are no torch tensors."""
    if not _arrays.is_torch(q):
        return False
    is_transformed, forward_ad, is_grad_enabled = _modes()
    if is_transformed() or forward_ad._current_level >= 0:
        return True
    if not is_grad_enabled():
        return False
    return (score is not None or weight is not None or callable(normalizer) or scale is not None
            or sink is not None or stats is not None or gate is not None
            or q.requires_grad or getattr(k, "requires_grad", False) or getattr(v, "requires_grad", False))


def record(function: Callable[..., Any], q: Any, k: Any, v: Any, *, score: Any, scale: Any, **named: Any) -> Any:
    """Calls `attention`, which gives a call that has gradients to the current recorder."""
    torch = _arrays.torch_module()
    recorder = Recorder(torch)
    if recorder.is_recorded(scale):
        score, scale = scaled(score, scale), 1.0
    if recorder.is_transformed:
        score = recorder.with_stand_ins(score)
        named |= {role: recorder.with_stand_ins(named[role]) for role in ("mask", "weight", "normalizer")}
    before, state.recorder = state.recorder, recorder
    torch._C._set_grad_enabled(False)
    try:
        with recording_mode(recorder.has_grad, recorder.is_transformed):
            return function(q, k, v, score=score, scale=scale, **named)
    finally:
        torch._C._set_grad_enabled(recorder.has_grad)
        state.recorder = before


def trace(function: Callable[..., Any], *options: Any, **named: Any) -> Region:
    """`regions.trace` outside of the transforms of torch.func, which would wrap the tensors of the tracer."""
    recorder = state.recorder
    if recorder is None or not recorder.is_transformed:
        return regions.trace(function, *options, **named)
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    with temporarily_clear_interpreter_stack():
        return regions.trace(function, *options, **named)


def scaled(score: Any, scale: Any) -> Score:
    """The score function of scores that a tensor scales."""
    if score is None:
        return Score(lambda s, b, h, i, j: (s * scale).to(s.dtype))
    return Score(lambda s, b, h, i, j: score((s * scale).to(s.dtype), b, h, i, j), getattr(score, "heads", None))


@dataclasses.dataclass(frozen=True)
class Programs:
    """The programs that stand for one call of `attention`: the row maximum has no gradient, so another one computes it.
    The operators have no results for tallies, so a program with these is called without one."""

    main: str
    max: str | None
    has_argmax: bool
    tally_captures: tuple[int, int] | None
    """The first and the end of the captures of tallies, which `max` does not take, if there are tallies."""
    has_lse: bool
    layout: str

    @staticmethod
    def of(form: Form) -> Programs:
        main = _program.program(form._replace(max=False, argmax=False))
        largest = _program.program(form._replace(lse=False, argmax=True, tallies=())) if form.max else None
        end, without = len(form.captures()), len(form._replace(tallies=()).captures())
        return Programs(main, largest, form.argmax, (without, end) if form.tallies else None, form.lse, form.layout)


class Recorder:
    """One call of `attention`."""

    def __init__(self, torch: Any):
        self.torch = torch
        self.has_grad: bool = torch.is_grad_enabled()
        # In forward mode, operators on captured tensors would compute tangents while a function is traced.
        self.is_transformed: bool = torch._C._are_functorch_transforms_active() or (
            torch.autograd.forward_ad._current_level >= 0)
        self.originals: dict[int, tuple[Any, Any]] = {}  # stand-ins and what they stand for, by id of the stand-in

    def is_recorded(self, x: Any) -> bool:
        """Whether x is a torch tensor whose gradient is recorded, or one of a transform of torch.func."""
        return _arrays.is_torch(x) and bool(self.has_grad and x.requires_grad or self._is_transformed(x))

    def _is_transformed(self, x: Any) -> bool:
        """Whether a transform of torch.func or the forward mode sees what is computed with a tensor."""
        return bool(self.torch._C._functorch.is_functorch_wrapped_tensor(x)
                    or self.torch.autograd.forward_ad.unpack_dual(x).tangent is not None)

    def with_stand_ins(self, function: Any) -> Any:
        """The function with tensors without elements in place of those that are transformed."""
        if not callable(function):
            return function

        def replace(x: Any) -> Any:
            with self.torch._C._DisableFuncTorch():
                stand_in = self.torch.empty((), dtype=x.dtype, device=x.device).expand(x.shape)
            self.originals[id(stand_in)] = stand_in, x
            return stand_in

        rebuilt = rebuild(getattr(function, "function", function),
                          lambda x: isinstance(x, self.torch.Tensor) and self._is_transformed(x), replace)
        if isinstance(function, Score):
            return Score(rebuilt, function.heads)
        return Mask(rebuilt) if isinstance(function, Mask) else rebuilt

    def originals_of(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """The values with the tensors that stand-ins stand for."""
        return tuple([self.originals[id(x)][1] if id(x) in self.originals else x for x in values])

    def is_needed(self, *values: Any) -> bool:
        """Whether an operator of PyTorch must compute a call with these values."""
        return any(map(self.is_recorded, self.originals_of(values)))

    def call(self, programs: Programs, target: str | None, q: Any, k: Any, v: Any, values: tuple[Any, ...], out: Any,
             stream: Any) -> Any:
        """The results of the operator.

        Args:
            values: the arguments of the program after q, k and v.

        The row maximum and its key have no gradient.
        """
        if out is not None or stream is not None:
            raise ValueError(f"{'out' if out is not None else 'stream'} is given, expected None: an input requires "
                             "grad, and gradients are recorded for new results on the current stream only")
        from saccade.torch import gradients  # imported late: it imports torch

        values = self.originals_of(values)
        # The backward pass reads arrays later than the call.
        values = tuple([self.torch.from_numpy(_arrays.snapshot(x)) if hasattr(x, "shape") and not _arrays.is_torch(x)
                        else x for x in values])  # fmt: skip
        named = {"layout": programs.layout, "target": target or "host"}
        self.torch._C._set_grad_enabled(self.has_grad)
        try:
            if programs.tally_captures:
                results = self._differentiable(programs.main, target, q, k, v, *values)
            else:
                operator = gradients.overload(programs.has_lse, False)
                results = operator(*_sorted(programs.main, q, k, v, *values), **named)
        except RuntimeError as error:
            prefix, _, message = str(error).partition("saccade::attention: ")
            if prefix or not message:
                raise
            raise ValueError(message) from None
        finally:
            self.torch._C._set_grad_enabled(False)
        if programs.max is None:
            return results
        first, end = programs.tally_captures or (0, 0)
        taken = [x.detach() if _arrays.is_torch(x) else x for x in (q, k, v, *values[:first], *values[end:])]
        _, *largest = gradients.overload(False, True)(*_sorted(programs.max, *taken), **named)
        results = results if isinstance(results, tuple) else (results,)
        count = 1 + programs.has_lse
        return (*results[:count], *largest[: 1 + programs.has_argmax], *results[count:])

    def _differentiable(self, program: str, target: str | None, *arguments: Any) -> Any:
        """The results of a program, of which PyTorch records gradients."""
        from saccade.torch.differentiated import differentiable_of

        tensors = [x for x in arguments if _arrays.is_torch(x)]
        needs = tuple([self.is_recorded(x) for x in tensors])
        has_tangents = any([self._is_transformed(x) for x in tensors])
        return differentiable_of(program, needs, target, arguments[0], "attn.jvp" if has_tangents else "attn.gradient")(
            *arguments)


def _sorted(program: str, *arguments: Any) -> tuple[list[Any], str, list[int], list[float]]:
    """The arguments of an operator for a program and its arguments."""
    numbers = [x for x in arguments if not _arrays.is_torch(x)]
    return ([x for x in arguments if _arrays.is_torch(x)], program,
            [int(x) for x in numbers if not isinstance(x, float)], [x for x in numbers if isinstance(x, float)])
