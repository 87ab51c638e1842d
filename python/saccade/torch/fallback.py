"""What the drop-in functions do with calls that Saccade does not compute.

PyTorch itself reports mistakes: a call that Saccade refuses is given to PyTorch, so its exceptions are PyTorch's own.
"""

from __future__ import annotations

import contextlib
import enum
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.autograd import forward_ad

from saccade import _arrays, _scopes, _served, errors


class Kind(enum.Enum):
    """Why PyTorch gets a call."""

    TRAINING = "training"
    """PyTorch computes the call, with one warning: tangents on a GPU."""
    SILENT = "silent"
    """Nothing to compute (empty, fake and meta tensors), or a mode that must see PyTorch's operators."""
    INPUT = "input"
    """A mistake, which PyTorch reports, or an input that Saccade does not support."""


class Refused(Exception):
    """A call that Saccade does not compute, with the reason as its message."""

    def __init__(self, kind: Kind, reason: str):
        super().__init__(reason)
        self.kind, self.reason = kind, reason


_arrays.torch_module()  # registers the types of its tensors
_warned: set[tuple[str, str]] = set()


def warn_once(function: str, reason: str) -> None:
    """Warns that PyTorch computes the calls of a function for this reason, once in a process."""
    if (function, reason) not in _warned:
        _warned.add((function, reason))
        errors.warn(f"{function} is computed by PyTorch instead of Saccade: {reason}")


def resolve(function: str, refused: Refused, compute: Callable[[], Any], is_replaced: bool) -> Any:
    """The result of a refused call.

    Args:
        function: the name in messages.
        compute: PyTorch's function with the call's arguments.
        is_replaced: whether the caller called PyTorch's function (`saccade.torch.enabled`), which must then accept
            whatever PyTorch accepts.

    Raises:
        NotImplementedError: Saccade does not support what PyTorch does, and the caller asked for Saccade.

    Exceptions of PyTorch are propagated.
    """
    kind, reason = refused.kind, refused.reason
    if _served.is_on:
        _served.refused(None if kind is Kind.SILENT else reason)
    if kind is Kind.TRAINING:
        warn_once(function, reason)
        return compute()
    if kind is Kind.SILENT:
        return compute()
    result = compute()
    if not is_replaced:
        raise NotImplementedError(f"{function}: {reason}")
    warn_once(function, reason)
    return result


# --- the state of a thread --------------------------------------------------------------------------------------------


class _State(threading.local):
    is_suspended = False
    depth = 0
    """The number of `saccade.torch.enabled()` blocks that this thread is in."""


state = _State()


class Enabled(_scopes.Scope):
    """An `enabled` block, which covers the threads that are started inside of it."""

    def __init__(self, inside: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext):
        self.inside = inside  # type: ignore[method-assign]


def is_enabled() -> bool:
    """Whether an `enabled` block covers this thread."""
    return state.depth > 0 or bool(_scopes.find(Enabled))


@contextlib.contextmanager
def suspended() -> Iterator[None]:
    """PyTorch's functions compute by themselves in this block."""
    before, state.is_suspended = state.is_suspended, True
    try:
        yield
    finally:
        state.is_suspended = before


# --- checks that all functions share ----------------------------------------------------------------------------------

dispatch_modes: Callable[[], int] = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
"""The number of active dispatch modes, which would not see what compiled code does. A private function of torch."""
is_tracing: Callable[[], bool] = getattr(torch._C, "_is_tracing", torch.jit.is_tracing)
"""Whether torch.jit.trace records the calls of this thread: extents are tensors, which must not be compared."""


def check_visible(*tensors: Any) -> None:
    """Refuses calls whose operators something else must see: tracing, fake tensors, dispatch modes."""
    if dispatch_modes() or is_tracing():
        raise Refused(Kind.SILENT, "it is traced")
    for x in tensors:
        if isinstance(x, torch.Tensor) and (x.is_meta or type(x).__name__ in ("FakeTensor", "FunctionalTensor")):
            raise Refused(Kind.SILENT, "its tensors have no memory")


def autocast(*tensors: Any) -> tuple[Any, ...]:
    """The tensors in the element type of `torch.autocast` for the device of the first one, as PyTorch's operator gets
    them. Dynamo traces this."""
    device = getattr(getattr(tensors[0], "device", None), "type", "cpu")
    if device not in ("cpu", "cuda") or not torch.is_autocast_enabled(device):
        return tensors
    target = torch.get_autocast_dtype(device)
    cast = []
    for x in tensors:
        is_cast = isinstance(x, torch.Tensor) and x.is_floating_point() and x.dtype != torch.float64
        cast.append(x.to(target) if is_cast and x.device.type == device else x)
    return tuple(cast)


def in_forward_mode() -> bool:
    """Whether tensors may have tangents. The level is private in torch; unpack_dual alone is slow."""
    return getattr(forward_ad, "_current_level", 0) >= 0


def may_record() -> bool:
    """Whether `records_grad` may be true of some tensors."""
    return torch.is_grad_enabled() or in_forward_mode() or torch._C._are_functorch_transforms_active()


def has_tangent(*tensors: Any) -> bool:
    """Whether one of these has a tangent; those that are not tensors have none."""
    return in_forward_mode() and any([isinstance(x, torch.Tensor) and forward_ad.unpack_dual(x).tangent is not None
                                      for x in tensors])


def requires_grad(*tensors: Any) -> bool:
    """Whether PyTorch records gradients of one of these; those that are not tensors have none. Dynamo traces it."""
    return torch.is_grad_enabled() and any([isinstance(x, torch.Tensor) and x.requires_grad for x in tensors])


def records_grad(*tensors: Any) -> bool:
    """Whether operators must compute a call: PyTorch records its gradients or pushes tangents forward, or a transform
    of torch.func sees it. Refuses those that are not computed by Saccade."""
    is_pushed = has_tangent(*tensors)
    if is_pushed and any(isinstance(x, torch.Tensor) and x.is_cuda for x in tensors):
        raise Refused(Kind.TRAINING, "a tensor on a GPU has a tangent")
    return is_pushed or requires_grad(*tensors) or any(
        [isinstance(x, torch.Tensor) and _is_transformed(x) for x in tensors])


def readable(name: str, x: Any) -> torch.Tensor:
    """x if compiled code can read it, with negated values written out."""
    if not isinstance(x, torch.Tensor):
        raise Refused(Kind.INPUT, f"{name} is a {type(x).__name__}, expected a torch.Tensor")
    if x.is_nested or x.layout is not torch.strided:
        kind = "nested" if x.is_nested else str(x.layout).removeprefix("torch.")
        raise Refused(Kind.INPUT, f"{name} is a {kind} tensor, expected a dense one")
    if not x.is_cpu and not x.is_cuda:
        raise Refused(Kind.INPUT, f"{name} is on {x.device.type}, expected cpu or cuda")
    if _is_transformed(x):
        return x  # an operator gets it
    if x.is_neg():
        x = x.resolve_neg()
    try:
        with torch.no_grad():  # gradients are recorded elsewhere
            (_arrays.check_torch if x.is_cpu else _check_on_gpu)(name, x)
    except ValueError as error:
        raise Refused(Kind.INPUT, str(error)) from None
    except TypeError as error:
        raise Refused(Kind.INPUT, str(error)) from None
    return x


def is_mapped(x: Any) -> bool:
    """Whether a `vmap` of torch.func maps x."""
    functorch = torch._C._functorch
    while functorch.is_gradtrackingtensor(x):
        x = functorch.get_unwrapped(x)
    return bool(functorch.is_batchedtensor(x))


def _is_transformed(x: torch.Tensor) -> bool:
    """Whether transforms of torch.func differentiate or map x, and none makes it functional."""
    functorch = torch._C._functorch
    if not functorch.is_functorch_wrapped_tensor(x):
        return False
    while functorch.is_gradtrackingtensor(x) or functorch.is_batchedtensor(x):
        x = functorch.get_unwrapped(x)
    return not functorch.is_functorch_wrapped_tensor(x)


def _check_on_gpu(name: str, x: torch.Tensor) -> None:
    _arrays.check_torch(name, x, "cuda")
