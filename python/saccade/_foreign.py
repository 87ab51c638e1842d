"""Arrays in CPU memory of other libraries than torch and NumPy, such as JAX: read in place, as NumPy arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from saccade import _gpu
from saccade._form import ROLES
from saccade.regions.traced_function import JAX, written_with
from saccade.stats import Statistics


def call_with_views(function: Callable[..., Any], *, q: Any, **named: Any) -> Any:
    """Calls a function of NumPy arrays on q and `named`, with views in place of other libraries' arrays. Returns arrays
    of q's library, or those given as `out`. Functions of JAX's names and arrays are rewritten to NumPy."""
    views = {name: x if name in ROLES else _view(name, x) for name, x in {"q": q, **named}.items()}
    if type(q).__module__.partition(".")[0] in ("jax", "jaxlib"):
        with written_with(JAX):
            result = function(**views | {role: _of_numpy(views[role]) for role in ROLES if role in views})
    else:
        result = function(**views)
    if named.get("out") is not None:
        return named["out"]
    convert = _converter(q)
    if not isinstance(result, tuple):
        return convert(result)
    return tuple([x.mapped(convert) if isinstance(x, Statistics) else convert(x) for x in result])


def _view(name: str, x: Any) -> Any:
    if type(x) is tuple:
        return tuple([_view(f"{name}[{i}]", each) for i, each in enumerate(x)])
    if not _gpu.is_foreign(x):
        return x
    device = _gpu.device_of(x)
    if device is None:
        kind = f"{type(x).__module__.partition('.')[0]}.{type(x).__name__}"
        hint = ": in functions that JAX traces, use saccade.jax.dot_product_attention" if kind.startswith("jax") else ""
        raise TypeError(f"{name} is a {kind} without memory to read, expected an array{hint}")
    if device[0] != 1:
        raise TypeError(f"{name} is on {_gpu.device_name(device)}, expected cpu, where q is")
    import numpy

    try:
        # JAX's __array__ reads in place, also bfloat16, which NumPy does not take by DLPack.
        return numpy.asarray(x) if hasattr(x, "__array__") else numpy.from_dlpack(x)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise TypeError(f"{name} is a {type(x).__name__} that hands out no memory: {error}") from error


def _converter(q: Any) -> Callable[[Any], Any]:
    """The function that makes an array of q's library from NumPy's."""
    find = getattr(q, "__array_namespace__", None)
    library: Any = find() if find is not None else sys.modules.get(type(q).__module__.partition(".")[0])
    convert: Any = getattr(library, "asarray", None) or getattr(library, "from_dlpack", None)
    if convert is None:
        raise TypeError(f"{type(q).__module__} has no function asarray to return the result with: pass out=")
    return convert  # type: ignore[no-any-return]


def _of_numpy(function: Any) -> Any:
    if not callable(function):
        return function
    from saccade.jax.functions import without_jax

    return without_jax(function)
