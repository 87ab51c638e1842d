"""`saccade.attention_weights`: the softmax weights of some batches, heads and queries, as an array."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

from saccade import _arrays, _foreign, _gpu, _operands, _options, _program
from saccade._arrays import Array
from saccade._form import Form, Operands
from saccade._library import on_cache_clear
from saccade._opaque import opaque
from saccade.attention import DEFAULTS, _compile, _explain
from saccade.function import Function

Selection = int | slice | range | None
"""Which elements of an axis are chosen, as indexing does it."""

_MAX_FUNCTIONS = 512
_functions: dict[tuple[Form, int | None], Function] = {}
on_cache_clear(_functions.clear)


@opaque
def attention_weights(
    q: Array,
    k: Array,
    lse: Array | None = None,
    *,
    batches: Selection = None,
    heads: Selection = None,
    queries: Selection = None,
    score: Callable[..., Any] | None = None,
    mask: Callable[..., Any] | None = None,
    scale: float | None = None,
    causal: str | int | None = None,
    window: int | tuple[int | None, int | None] | None = None,
    kv_len: int | Array | None = None,
    sink: float | Array | None = None,
    layout: str = "bhsd",
) -> Array:
    """softmax(mask(score(scale * q k^T))) of the chosen batches, heads and queries: the weights that
    `saccade.attention` with the same arguments gives the values.

    Only what is chosen is computed; all weights together have as many elements as queries times keys. Positions b, h
    and i in `score` and `mask` are those of the whole attention.

    Args:
        q: the queries of the whole attention, as in `saccade.attention`: a torch tensor, a NumPy array, or an array in
            CPU memory of another library.
        k: its keys.
        lse: its log-sum-exp, as `saccade.attention` returns it with return_lse. Without it the log-sum-exp of the
            chosen rows is computed first, which reads the keys once more.
        batches: which batches: an int, which drops the dimension, or a slice or range of step 1. None chooses all, and
            is the only value if `layout` has no b.
        heads: which query heads, likewise.
        queries: which queries, likewise.
        score, mask, scale, causal, window, kv_len: as in `saccade.attention`.
        sink: the sink, if `lse` is None. A given `lse` includes it.
        layout: the dimensions of q and k, as in `saccade.attention`.

    Returns:
        The weights [batches, heads, queries, keys] (of these, the dimensions that `layout` has, and none that an int
        chooses) in float32, float64 for float64 inputs, of q's kind. Masked pairs are 0, and so are rows without a
        visible key.

    Raises:
        TypeError: an argument of the wrong kind, element type, device or rank.
        IndexError: an int of `batches`, `heads` or `queries` that is out of range.
        ValueError: mismatched shapes, a step other than 1, an invalid option value, or a tensor that requires grad
            while torch records gradients: weights have none.

    Example:
        >>> out, lse = saccade.attention(q, k, v, causal="bottom_right", return_lse=True)
        >>> row = saccade.attention_weights(q, k, lse, batches=0, heads=6, queries=-1, causal="bottom_right")
    """
    options = {"score": score, "mask": mask, "scale": scale, "causal": causal, "window": window, "kv_len": kv_len,
               "sink": sink, "layout": layout}  # fmt: skip
    if _gpu.is_foreign(q):
        if _gpu.ordinal_of(q) is not None:
            raise TypeError("q is on a GPU, expected a torch tensor: attention_weights takes arrays of other "
                            "libraries in CPU memory only")
        return _foreign.call_with_views(functools.partial(attention_weights, batches=batches, heads=heads,
                                                          queries=queries), q=q, k=k, lse=lse, **options)
    _operands.check_layout(layout, False)
    form, values, operands = _read(q, k, lse, options)
    batches, heads, queries = map(_plain, (batches, heads, queries))
    chosen = {}
    for dim, name, choice in (("b", "batches", batches), ("h", "heads", heads), ("s", "queries", queries)):
        if dim in layout:
            chosen[dim] = _chosen(name, choice, q.shape[layout.index(dim)])
        elif choice is not None:
            raise ValueError(f"{name} is {choice!r:.80}, expected None: layout {layout!r} has no {dim}")
    dims = [dim for dim in "bhs" if dim in layout]
    result = _empty(q, [len(chosen[dim]) for dim in dims] + [k.shape[layout.index("s")]], form)
    for part in _groups(chosen, q, k, layout):
        into = result[tuple([slice(part[dim].start - chosen[dim].start, part[dim].stop - chosen[dim].start)
                             for dim in dims])]
        _compute(form, q, k, lse, part, values, operands, options, into)
    are_ints = {"b": isinstance(batches, int), "h": isinstance(heads, int), "s": isinstance(queries, int)}
    return result[tuple([0 if are_ints[dim] else slice(None) for dim in dims])]


def _read(q: Any, k: Any, lse: Any, options: dict[str, Any]) -> tuple[Form, tuple[Any, ...], Operands]:
    """The form, the captures and the operands of a call, whose arguments are checked."""
    layout, kv_len = options["layout"], options["kv_len"]
    given = [options.get(name, default) for name, default in DEFAULTS.items()
             if name not in ("target", "stream", "out")]  # fmt: skip
    fields, values, operands, _ = _options.read(_options.EAGER, q, k, k, tuple(given))
    kind = _operands.check_kinds(q, k, k)
    _operands.check_shapes(q, k, k, layout, operands)
    form = Form(*fields)
    form = form._replace(element=_operands.element_of(q.dtype), weights="computed" if lse is None else "given")
    keys = k.shape[layout.index("s")]
    if form.kv_len == "index" and not 0 <= operands["kv_len"] <= keys:
        raise ValueError(f"kv_len is {kv_len}, expected 0 to {keys}, the length of k")
    if lse is not None:
        if options["sink"] is not None:
            raise ValueError("sink is given, expected None: lse includes it")
        _operands.check_kind("lse", lse, kind)
        shape = tuple([q.shape[layout.index(dim)] for dim in "bhs" if dim in layout])
        _operands.check_array("lse", lse, shape, "float64" if form.precision == "f64" else "float32", "")
    return form, values, operands


def _plain(choice: Any) -> Any:
    """An integer of NumPy or torch as an int."""
    number = _operands.integer_of(choice)
    return choice if number is None else number


def _chosen(name: str, choice: Selection, extent: int) -> range:
    """The positions that are chosen of an axis."""
    if choice is None:
        return range(extent)
    if type(choice) is int:
        if not -extent <= choice < extent:
            raise IndexError(f"{name} is {choice}, expected {-extent} to {extent - 1}")
        return range(choice % extent, choice % extent + 1)
    if isinstance(choice, range):
        if choice.step == 1 and not 0 <= choice.start <= choice.stop <= extent:
            raise IndexError(f"{name} is {choice}, expected positions 0 to {extent - 1}")
        found = choice
    elif isinstance(choice, slice):
        found = range(*choice.indices(extent))
    else:
        raise TypeError(f"{name} is {choice!r:.80}, expected an int, a slice or a range")
    if found.step != 1:
        raise ValueError(f"{name} is {choice}, expected a step of 1")
    return found


def _groups(chosen: dict[str, range], q: Any, k: Any, layout: str) -> list[dict[str, range]]:
    """The chosen positions in parts whose heads read equally many KV heads each."""
    if "h" not in layout or not all(len(positions) for positions in chosen.values()):
        return [chosen] if all(len(positions) for positions in chosen.values()) else []
    axis = layout.index("h")
    size = q.shape[axis] // k.shape[axis]
    heads = chosen["h"]
    first, last = -(-heads.start // size) * size, heads.stop // size * size
    cuts = [heads.start, heads.stop] if last < first else [heads.start, first, last, heads.stop]
    return [chosen | {"h": range(start, stop)} for start, stop in itertools.pairwise(cuts) if start < stop]


def _compute(form: Form, q: Any, k: Any, lse: Any, part: dict[str, range], values: tuple[Any, ...],
             operands: Operands, options: dict[str, Any], result: Any) -> None:
    """Computes the weights of some batches, heads and queries, which are all of `result`."""
    layout = form.layout
    size = q.shape[layout.index("h")] // k.shape[layout.index("h")] if "h" in layout else 1
    of_keys = {dim: positions for dim, positions in part.items() if dim != "s"}
    if "h" in part:
        of_keys["h"] = range(part["h"].start // size, -(-part["h"].stop // size))
    own = dict(operands)
    for name, dim in (("kv_len", "b"), ("sink", "h")):
        if getattr(own.get(name), "ndim", 0) and dim in part:
            own[name] = own[name][part[dim].start:part[dim].stop]
    tensors = [_slice(q, layout, part), _slice(k, layout, of_keys)]
    if lse is not None:
        tensors.append(_slice(lse, [dim for dim in "bhs" if dim in layout], part))
    positions = [part[dim].start if dim in part else 0 for dim in "bhs"] + [q.shape[layout.index("s")]]
    try:
        _function(form, _gpu.ordinal_of(q)).into(*tensors, *values, *form.order()(own), *positions, result)
    except Exception as error:
        _explain(error, q, k, k, None, operands, form, values, options)
        raise


def _slice(x: Any, dims: Any, part: dict[str, range]) -> Any:
    return x[tuple([slice(part[dim].start, part[dim].stop) if dim in part else slice(None) for dim in dims])]


def _empty(q: Any, shape: list[int], form: Form) -> Any:
    dtype = "float64" if form.precision == "f64" else "float32"
    if _arrays.is_torch(q):
        return q.new_empty(shape, dtype=getattr(_arrays.torch_module(), dtype))
    return _arrays.empty_numpy(tuple(shape), dtype)


def _function(form: Form, gpu: int | None) -> Function:
    function = _functions.get((form, gpu))
    if function is None:
        if len(_functions) >= _MAX_FUNCTIONS:
            _functions.clear()
        function = _functions[form, gpu] = _compile(_program.weights_program(form), None, gpu, "attention_weights")
    return function
