"""Traces score and mask functions that are written with jax.numpy and read JAX arrays.

The NumPy tracer of saccade.regions does the work, on a copy of the function with NumPy in place of jax.numpy and NumPy
arrays in place of JAX's. An array that `jit` traces has no elements yet; a stand-in takes its place, and the array
becomes an operand of the kernel.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from saccade import regions
from saccade.masks import Mask
from saccade.regions.rebuild import rebuild
from saccade.regions.traced_function import JAX, written_with
from saccade.scores import Score


def _is_replaced(x: Any) -> bool:
    """Whether a copied function gets a stand-in for `x`: JAX's arrays, and the names of jax.numpy."""
    if isinstance(x, jax.Array) or x is jnp or x is jax or x is jax.nn:
        return True
    return _numpy_function(x) is not None


class _Abstract(np.ndarray):  # type: ignore[misc]
    """The stand-in of an array that is traced: it has a shape and a type, but no elements."""

    def _refuse(self, *args: Any, **options: Any) -> NoReturn:
        raise regions.TraceError("the function reads the value of an array that JAX traces, expected elements at "
                                 "positions: compute with it before the call")

    __getitem__ = __array_ufunc__ = __array_function__ = item = tolist = __iter__ = _refuse


class _Names(types.ModuleType):
    """jax.numpy for a traced function: NumPy's functions where both have them."""

    def __init__(self) -> None:
        super().__init__("numpy")

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name, None)
        return getattr(jnp, name) if found is None or isinstance(getattr(jnp, name, None), type) else found


class _Package(types.ModuleType):
    """A package of JAX for a traced function, with other values of some names."""

    def __init__(self, package: types.ModuleType, **others: Any):
        super().__init__(package.__name__)
        self.__dict__.update(others, _package=package)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_package"], name)


_NN = _Package(jax.nn, sigmoid=lambda x: 1 / (1 + np.exp(-x)), relu=lambda x: np.maximum(x, 0),
               softplus=lambda x: np.logaddexp(x, 0), silu=lambda x: x / (1 + np.exp(-x)))


def _numpy_function(x: Any) -> Any:
    """NumPy's function of the name of a function of jax.numpy, otherwise None."""
    name = getattr(x, "__name__", None)
    if not callable(x) or isinstance(x, type) or not isinstance(name, str) or getattr(jnp, name, None) is not x:
        return None
    return getattr(np, name, None)


def replaced(function: Callable[..., Any], originals: dict[int, tuple[Any, Any]]) -> Callable[..., Any]:
    """A copy of a function with NumPy in place of JAX. `originals` gets the stand-in and the original of every array by
    the id of the stand-in."""

    def replace(x: Any) -> Any:
        if x is jnp:
            return _Names()
        if x is jax.nn:
            return _NN
        if x is jax:
            return _Package(jax, numpy=_Names(), nn=_NN)
        if not isinstance(x, jax.Array):
            return _numpy_function(x)
        if isinstance(x, jax.core.Tracer):
            stand_in = np.broadcast_to(np.zeros((), x.dtype), x.shape).view(_Abstract)
        else:
            stand_in = np.asarray(x)
        originals[id(stand_in)] = stand_in, x
        return stand_in

    return rebuild(function, _is_replaced, replace)


def without_jax(function: Callable[..., Any]) -> Callable[..., Any]:
    """A copy of a score, mask or weight function that computes with NumPy, for arrays that are not traced."""
    copy = replaced(function.function if isinstance(function, (Score, Mask)) else function, {})
    if isinstance(function, Score):
        return Score(copy, function.heads)
    return Mask(copy) if isinstance(function, Mask) else copy


def trace(function: Callable[..., Any], role: str, precision: str) -> tuple[regions.Region, tuple[Any, ...]]:
    """The region of a function, and the JAX arrays that it captures. Raises as `saccade.regions.trace`."""
    for kind, other in ((Score, "score"), (Mask, "mask")):
        if isinstance(function, kind) and role != other:
            raise TypeError(f"{role} is {function!r}, expected a function: give it as {other}")
    if isinstance(function, (Score, Mask)):
        function = function.function
    originals: dict[int, tuple[Any, Any]] = {}
    with written_with(JAX):
        region = regions.trace(replaced(function, originals), role, precision, bakes_numbers=True, prefers_torch=False)
    return region, tuple([originals[id(array)][1] if id(array) in originals else jnp.asarray(_plain(array))
                          for array in region.captures])


def _plain(array: Any) -> Any:
    """An array of torch or NumPy as NumPy's."""
    return array.numpy() if hasattr(array, "numpy") else array
