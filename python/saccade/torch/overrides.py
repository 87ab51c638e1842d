"""PyTorch's own functions, served by Saccade without a change to a model.

`scaled_dot_product_attention` is replaced in PyTorch's dispatcher, where all callers arrive: Python under any name,
modules and TorchScript. `flex_attention`, and the function that computes jagged tensors, are Python functions; their
code objects are replaced, so that callers that imported them by name reach Saccade, too. All are PyTorch's own again
when the last user disables them.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from saccade import _scopes, _served
from saccade.regions import TraceError
from saccade.torch import flex, handwritten, recorded, sdpa
from saccade.torch.fallback import Enabled, Kind, Refused, autocast, is_enabled, resolve, state

_KEYS = ("CPU", "AutogradCPU", "CUDA", "AutogradCUDA", "NestedTensorCPU", "NestedTensorCUDA", "AutogradNestedTensor")
_lock = threading.RLock()
_installed: _Installed | None = None
_users = 0  # enable() counts once, every enabled() block once
_is_enabled = False  # by enable(), for all threads


@contextlib.contextmanager
def enabled(*, require: bool = False, explain: bool = False) -> Iterator[None]:
    """In this block, `F.scaled_dot_product_attention`, `flex_attention` called eagerly, and modules that use
    them, such as `nn.MultiheadAttention` and `nn.TransformerEncoderLayer`, are computed by Saccade. The block covers
    this thread and threads that are started inside of it, until its end.

    Calls that Saccade does not compute go to PyTorch, with one warning for each reason: element types, devices and
    kinds of tensors that it does not support. What torch.compile, torch.export and other tracers record stays
    PyTorch's operators. PyTorch's fast path of inference, which does not call these
    functions, is off meanwhile (in all threads).

    Args:
        require: a call that Saccade does not compute is a `saccade.NotServed` (`saccade.served`).
        explain: prints what was served, and why not the rest, to standard error at the end of the block.

    Example:
        >>> with torch.no_grad(), saccade.torch.enabled():
        ...     y = model(x)
    """
    _install()
    state.depth += 1
    try:
        with contextlib.ExitStack() as stack:
            if require or explain:
                stack.enter_context(_served.served(require=require, explain=explain))
            stack.enter_context(_scopes.opened(Enabled(handwritten.watch)))
            stack.enter_context(handwritten.watch())
            yield
    finally:
        state.depth -= 1
        _uninstall()


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Calls of PyTorch's functions in this block reach observers (`_served.observed`), and PyTorch computes them."""
    _install()
    try:
        yield
    finally:
        _uninstall()


def enable() -> None:
    """As `enabled`, for all threads until `disable`."""
    global _is_enabled
    with _lock:
        if not _is_enabled:
            _install()
            _is_enabled = True


def disable() -> None:
    """Ends the effect of `enable`; `enabled` blocks continue."""
    global _is_enabled
    with _lock:
        if _is_enabled:
            _is_enabled = False
            _uninstall()


def _is_active() -> bool:
    """Whether the current thread's calls are Saccade's."""
    return (_is_enabled or is_enabled()) and not state.is_suspended


class _Installed:
    """The replaced functions, and what they replaced."""

    def __init__(self) -> None:
        self.library: torch.library.Library | None = _replace_sdpa()
        self.has_fast_path: bool = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        self.restore = [_replace_flex(), _replace_jagged()]

    def remove(self) -> None:
        self.library = None  # unregisters its kernels
        torch.backends.mha.set_fastpath_enabled(self.has_fast_path)
        for restore in self.restore:
            restore()


def _install() -> None:
    global _installed, _users
    with _lock:
        if _installed is None:
            _installed = _Installed()
        _users += 1


def _uninstall() -> None:
    global _installed, _users
    with _lock:
        _users -= 1
        if not _users and _installed is not None:
            _installed.remove()
            _installed = None


def _replace_sdpa() -> torch.library.Library:
    # The operator is a composite of others, which differentiates through them. The composite itself is not replaced
    # and computes what Saccade does not. Kernels of the autograd keys are required because gradients would get lost.
    original = torch.ops.aten.scaled_dot_product_attention.default.decompose
    serve = sdpa.replacement(original)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        is_active = _is_active()
        compute = serve if is_active else original
        if _served.is_on and _served.is_new_call():
            return _served.observe(sdpa.NAME, functools.partial(compute, *args, **kwargs), args[:3],
                                   arguments=(args, kwargs), is_counted=is_active)
        return compute(*args, **kwargs)

    library = torch.library.Library("aten", "IMPL")
    for key in _KEYS:
        library.impl("scaled_dot_product_attention", kernel, key)
    return library


def _replace_flex() -> Callable[[], None]:
    from torch.nn.attention import flex_attention as module

    def serve(original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        try:
            return flex.compute(*args, **kwargs)
        except Refused as refused:
            if refused.kind is Kind.INPUT:  # its mistakes, which PyTorch reports after gradients on a CPU
                original(*flex.detached(args), **dict(zip(kwargs, flex.detached(kwargs.values()))))
            return resolve(flex.NAME, refused, lambda: original(*args, **kwargs), is_replaced=True)
        except TraceError as error:  # PyTorch may compute it, since it has elements of positions
            untraced = Refused(Kind.INPUT, str(error))
            return resolve(flex.NAME, untraced, lambda: original(*args, **kwargs), is_replaced=True)

    return _replace_code(module.flex_attention, _forward_flex, serve)


def _replace_jagged() -> Callable[[], None]:
    """Jagged tensors call a Python function of PyTorch, before the dispatcher. The function is private."""
    from torch.nested._internal import sdpa as module

    def serve(original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        given = inspect.signature(_forward_jagged).bind(*args, **kwargs)
        given.apply_defaults()
        query, key, value, mask, *options = given.args
        try:
            return sdpa.compute(*autocast(query, key, value, mask), *options)
        except Refused as refused:
            return resolve(sdpa.NAME, refused, lambda: original(*args, **kwargs), is_replaced=True)

    return _replace_code(module.jagged_scaled_dot_product_attention, _forward_jagged, serve)


def _replace_code(function: Any, forward: Any, serve: Callable[..., Any]) -> Callable[[], None]:
    """Replaces the code of a Python function by that of `forward`, which calls the global of its own name with the
    prefix `_saccade`. While the override is active, calls outside of torch.compile are those of
    `serve(original, args, kwargs)`.

    Returns:
        A function that restores PyTorch's code.
    """
    code = function.__code__
    original = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__)
    original.__kwdefaults__ = function.__kwdefaults__

    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(*args, **kwargs)
        is_active = _is_active()

        def compute() -> Any:
            return serve(original, args, kwargs) if is_active else original(*args, **kwargs)

        if _served.is_on and _served.is_new_call():
            operands = [kwargs.get(name) for name in ("query", "key", "value")[len(args):]]
            return _served.observe(function.__name__.removeprefix("jagged_"), compute, (*args[:3], *operands),
                                   arguments=(args, kwargs), is_counted=is_active)
        return compute()

    name = "_saccade" + forward.__name__
    function.__globals__[name] = call  # code of another module finds its names there
    function.__code__ = forward.__code__

    def restore() -> None:
        function.__code__ = code
        function.__globals__.pop(name, None)

    return restore


def _forward_flex(query: Any, key: Any, value: Any, score_mod: Any = None, block_mask: Any = None, scale: Any = None,
                  enable_gqa: Any = False, return_lse: Any = False, kernel_options: Any = None, *,
                  return_aux: Any = None) -> Any:
    """The code of PyTorch's `flex_attention` while it is replaced."""
    return _saccade_forward_flex(  # type: ignore[name-defined]  # noqa: F821
        query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse, kernel_options, return_aux=return_aux)


def _forward_jagged(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: Any = 0.0,
                    is_causal: Any = False, scale: Any = None, enable_gqa: Any = False) -> Any:
    """The code of PyTorch's function of jagged tensors while it is replaced."""
    return _saccade_forward_jagged(  # type: ignore[name-defined]  # noqa: F821
        query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


# --- torch.nn.attention.register_flash_attention_impl -----------------------------------------------------------------


class _FlashHandle:
    """What `torch.nn.attention.restore_flash_attention_impl` removes."""

    def __init__(self, library: torch.library.Library):
        self.library: torch.library.Library | None = library

    def remove(self) -> None:
        self.library = None


def register_flash_impl() -> None:
    """Registers "saccade" with `torch.nn.attention.register_flash_attention_impl`.

    After `torch.nn.attention.activate_flash_attention_impl("saccade")`, Saccade computes what PyTorch would with its
    fused kernel for CPUs: four dimensions, equal head sizes, no dropout. Gradients are Saccade's, too. Raises
    NotImplementedError before PyTorch 2.11, which has no such registry.
    """
    try:
        from torch.nn.attention import register_flash_attention_impl
    except ImportError:
        raise NotImplementedError(f"torch {torch.__version__} has no register_flash_attention_impl") from None
    register_flash_attention_impl("saccade", register_fn=_replace_flash)


def _replace_flash() -> _FlashHandle:
    library = torch.library.Library("aten", "IMPL")
    library.impl("_scaled_dot_product_flash_attention_for_cpu", sdpa.flash, "CPU")
    library.impl("_scaled_dot_product_flash_attention_for_cpu_backward", recorded.flash_gradients, "CPU")
    return _FlashHandle(library)
