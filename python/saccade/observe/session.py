"""`saccade.observe`: hooks on a model, one observed step, and what a record keeps of it."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from saccade import _files, _operands, _parameters, _places, _served, errors
from saccade.observe import reducing
from saccade.observe.calls import Unobserved, call_of
from saccade.observe.events import Thresholds, Watch
from saccade.observe.interception import intercepted
from saccade.observe.keeping import Keeper
from saccade.observe.measures import Measured, measure
from saccade.observe.record import ByStatistic, Event, Layer, Record
from saccade.torch.fallback import dispatch_modes, is_tracing


@dataclass(frozen=True)
class Step:
    """The statistics of one observed step."""

    number: int
    layers: list[Layer]
    statistics: dict[str, list[Any]]
    """By name and layer: an array [heads] of float32."""


class Observation(_served.Observer):
    """A model that is observed."""

    def __init__(self, model: Any, every: int, sink_keys: int, has_maps: bool, tile: int,
                 zoom: list[tuple[int, int]], thresholds: Thresholds,
                 keeper: Keeper, group: Any, on_event: list[Callable[[Event], Any]],
                 on_step: list[Callable[[Step], Any]]):
        self._model, self._every, self._group = model, every, group
        self._options = sink_keys, has_maps, tile, zoom
        self._keeper, self._watch = keeper, Watch(thresholds)
        self._on_event, self._on_step = on_event, on_step
        self._names = {id(module): name for name, module in model.named_modules()}
        self._attentions = {name or type(module).__name__: type(module).__name__
                            for name, module in model.named_modules() if _is_attention(module)}
        """The classes of the innermost modules of attention, by their names."""
        self.count = 0
        """The number of forward calls of the model."""
        self._lock = threading.Lock()
        self._thread: int | None = None
        """The thread whose forward call is observed."""
        self._number = 0
        self._measured: list[Measured] = []
        self._calls: Counter[str] = Counter()
        self._missed: dict[str, str] = {}
        self._inside = contextlib.ExitStack()

    def begin(self, module: Any, args: Any) -> None:
        """A forward call of the model begins."""
        if torch.compiler.is_compiling() or dispatch_modes() or is_tracing() or _is_nested(module):
            return  # recorded by a tracer, or in itself
        if self._thread == threading.get_ident():
            self.close()  # of a call that KeyboardInterrupt ended
        with self._lock:
            number = self.count
            self.count += 1
            if number % self._every or self._thread is not None:  # of a call that runs in another thread
                return
            self._thread = threading.get_ident()
        self._number, self._measured, self._missed = number, [], {}
        self._calls.clear()
        self._inside.enter_context(intercepted(self))

    def end(self, module: Any, args: Any, result: Any) -> None:
        """A forward call of the model has ended, or has raised an exception."""
        if torch.compiler.is_compiling() or self._thread != threading.get_ident() or _is_nested(module):
            return
        self._inside.close()
        has_raised = result is None and sys.exc_info()[0] is not None
        try:
            if self._measured or not has_raised:
                self._finish(self._number, has_raised)
        finally:
            self._thread = None

    def close(self) -> None:
        """Nothing is observed until the next step."""
        self._inside.close()
        self._thread = None

    def take(self, function: str, arguments: _served.Arguments, result: Any, module: Any) -> None:
        """Measures a call of attention."""
        module = _places.innermost_module() if module is None else module
        name = self._names.get(id(module)) or type(module).__name__
        try:
            with torch.no_grad():
                call = call_of(function, *arguments, result)
                self._measured.append(measure(call, name, self._calls[name], *self._options))
        except (Unobserved, ValueError, TypeError, RuntimeError) as error:  # the model goes on
            self._missed[name] = f"{function}: {error}"
        self._calls[name] += 1

    def _finish(self, number: int, has_raised: bool) -> None:
        """Adds a step to the record, and calls the callbacks. A step that has raised an exception has the layers before
        it, of this process."""
        missed = self._missed if has_raised else self._missed | self._unseen()
        if not self._measured and not self._keeper.record.layers:
            raise errors.NotServed(_nothing(self._model, missed))
        for name, reason in missed.items():
            if name not in self._keeper.record.missed:
                errors.warn(f"saccade.observe does not observe {name}: {reason}")
        if not has_raised:
            reducing.reduce(number, self._measured, self._group)
        layers = self._keeper.add(number, self._measured, missed)
        events = [self._with_parameter(event) for event in self._watch.events(number, layers)]
        self._keeper.add_events(events)
        for event in events:
            for call in self._on_event:
                call(event)
        step = Step(number, list(self._keeper.record.layers),
                    ByStatistic({name: steps[-1] for name, steps in self._keeper.record.statistics.items()}))
        for function in self._on_step:
            function(step)

    def _with_parameter(self, event: Event) -> Event:
        """An event of NaN or Inf with the first parameter of the model that has one, too."""
        if event.kind not in ("nan", "inf"):
            return event
        bad = (name for name, x in self._model.named_parameters() if not bool(x.detach().isfinite().all()))
        name = next(bad, None)
        return event if name is None else replace(event, message=f"{event.message}; parameter {name} is not finite")

    def _unseen(self) -> dict[str, str]:
        """Modules of attention that called none of the functions, by their names."""
        return {name: f"{kind} computes its attention by other functions, or did not run"
                for name, kind in self._attentions.items()
                if not any(_is_within(name, seen) or _is_within(seen, name) for seen in self._calls)}


class _Hook:
    """A hook of a model. In copies of the model it does nothing."""

    def __init__(self, function: Callable[..., None]):
        self._function = function

    def __call__(self, *args: Any) -> None:
        self._function(*args)

    def __reduce__(self) -> Any:
        return _Hook, (_ignore,)


def _ignore(*args: Any) -> None:
    pass


def _is_attention(module: Any) -> bool:
    """Whether the class of a module, and of none in it, is one of attention, by its name."""
    return [each for each in module.modules() if "Attention" in type(each).__name__] == [module]


def _is_within(name: str, other: str) -> bool:
    return not other or name == other or name.startswith(other + ".")


def _is_nested(module: Any) -> bool:
    """Whether a module is called by itself."""
    count, frame = 0, sys._getframe(1)
    while frame is not None and count < 2:
        if frame.f_code is torch.nn.Module._call_impl.__code__ and frame.f_locals.get("self") is module:
            count += 1
        frame = frame.f_back  # type: ignore[assignment]
    return count == 2


def _nothing(model: Any, missed: dict[str, str]) -> str:
    reasons = "".join(f"\n  {name}: {reason}" for name, reason in missed.items())
    return (f"{type(model).__name__} has no attention that saccade.observe sees: F.scaled_dot_product_attention, "
            f"flex_attention, nn.MultiheadAttention, saccade.attention or Transformers' attention interface{reasons}")


def observe(
    model: torch.nn.Module,
    *,
    every: int = 100,
    on_event: Callable[[Event], Any] | None = None,
    on_step: Callable[[Step], Any] | None = None,
    writers: Sequence[Any] = (),
    thresholds: Any = None,
    path: str | os.PathLike[str] | None = None,
    sink_keys: int = 1,
    maps: bool = True,
    tile: int = 0,
    zoom: Sequence[tuple[int, int]] = (),
    keep: int = 1000,
    group: Any = None,
    tokens: Sequence[Sequence[str]] | None = None,
    **unknown: Any,
) -> contextlib.AbstractContextManager[Record]:
    """Observes the attention of a model in a block, without a change to the model, its results or its gradients.

    A step is one outermost forward call of the model. Steps 0, `every`, 2 · `every`, ... are observed: each call of
    attention in them is followed by one of `saccade.attention` that computes statistics. Other steps cost the count.

    Args:
        model: any module that calls `F.scaled_dot_product_attention`, `flex_attention`, `nn.MultiheadAttention`,
            `saccade.attention` or Transformers' attention interface, in training or in inference. Not compiled.
        on_event: called with each `saccade.observe.Event`.
        on_step: called with the `saccade.observe.Step` of each observed step.
        writers: objects of `saccade.observe.writers`, such as `JsonLines("run.jsonl")`.
        thresholds: when a head or a layer is reported: `saccade.observe.Thresholds`, or a dict with some of them.
        path: the file that the record is saved to at the end of the block, also after an exception.
        sink_keys: the number of first keys whose mass is the statistic `sink`.
        maps: also keeps the pooled weights, the mass that keys receive and the tiles of the mask, of the last observed
            step.
        tile: also keeps the weights of calls with at most so many queries and keys, of the last observed step.
        zoom: pairs of a query and a key, around which the weights of longer calls are kept as well: of the tiles of
            128 × 128 that have them.
        keep: the most steps that the record keeps. If it is full, every second one is dropped, so that a long run keeps
            all of its range in bounded memory. Callbacks and writers get all steps.
        group: the processes of torch.distributed that statistics are reduced over, if it is initialized. All of them
            observe the same steps.
        tokens: the tokens of each batch, for reports.

    Yields:
        The `saccade.observe.Record`, which grows at each observed step.

    Raises:
        saccade.NotServed: from the first observed step, if nothing of its attention is seen.
    """
    if unknown:
        name = next(iter(unknown))
        known = observe.__kwdefaults__ or {}
        raise TypeError(f"observe() got an unexpected keyword argument {name!r}{_operands.did_you_mean(name, known)}: "
                        f"expected {', '.join(known)}")
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model is of type {type(model).__name__}, expected a torch.nn.Module")
    if hasattr(model, "_orig_mod") or getattr(model, "_compiled_call_impl", None) is not None:
        raise TypeError("model is compiled by torch.compile, expected the module before: compiled graphs call no "
                        "functions that could be observed")
    for name, function in (("on_event", on_event), ("on_step", on_step)):
        if function is not None and not callable(function):
            raise TypeError(f"{name} is {function!r:.80}, expected a function")
    if not isinstance(writers, Sequence):
        raise TypeError(f"writers is {writers!r:.80}, expected a sequence of objects of saccade.observe.writers")
    for writer in writers:
        if not all(hasattr(writer, name) for name in ("step", "event", "close")):
            raise TypeError(f"writers has {writer!r:.80}, expected objects of saccade.observe.writers")
    if path is not None:
        _files.check_writable(path)
    record = Record(type(model).__name__, tokens=_tokens_of(tokens))
    places = _places_of(zoom)
    observation = Observation(
        model, _parameters.integer("every", every, 1), _parameters.integer("sink_keys", sink_keys, 1),
        _parameters.flag("maps", maps), _parameters.integer("tile", tile, 0), places,
        Thresholds.of(thresholds),
        Keeper(record, _parameters.integer("keep", keep, 2)), group,
        [*[each.event for each in writers], *([] if on_event is None else [on_event])],
        [*[each.step for each in writers], *([] if on_step is None else [on_step])])
    return _observed(observation, model, record, writers, path, places)


def _tokens_of(tokens: Any) -> list[list[str]] | None:
    """The tokens of each batch."""
    if tokens is None:
        return None
    for each in [tokens] if isinstance(tokens, str) else tokens:
        if isinstance(each, str) or not isinstance(each, Sequence):
            raise TypeError(f"tokens has {each!r:.80}, expected a list of texts for each batch, as in [['a', 'word']]")
    return [list(each) for each in tokens]


def _places_of(zoom: Any) -> list[tuple[int, int]]:
    """The pairs of a query and a key."""
    found = []
    for place in zoom:
        if not isinstance(place, Sequence) or len(place) != 2:
            raise TypeError(f"zoom has {place!r:.80}, expected pairs of a query and a key")
        query, key = (_parameters.integer(f"zoom: the {name}", x, 0) for name, x in zip(("query", "key"), place))
        found.append((query, key))
    return found


@contextlib.contextmanager
def _observed(observation: Observation, model: Any, record: Record, writers: Sequence[Any], path: Any,
              places: list[tuple[int, int]]) -> Iterator[Record]:
    hooks = [model.register_forward_pre_hook(_Hook(observation.begin)),
             model.register_forward_hook(_Hook(observation.end), always_call=True)]
    with contextlib.ExitStack() as at_end:
        if path is not None:
            at_end.enter_context(_saved(record, path))
        for function in (*[writer.close for writer in reversed(writers)], observation.close,
                         *[hook.remove for hook in hooks]):
            at_end.callback(function)
        yield record
        if not observation.count:
            errors.warn("saccade.observe: the model was not called in the block, so the record is empty")
        _warn_of_positions(record, places)


@contextlib.contextmanager
def _saved(record: Record, path: Any) -> Iterator[None]:
    """Saves a record at the end of a block. If the block has raised an exception, this one goes on in any case."""
    try:
        yield
    except BaseException:
        try:
            record.save(path)
        except Exception as error:
            errors.warn(f"saccade.observe: the record is not saved: {error}")
        raise
    record.save(path)


def _warn_of_positions(record: Record, places: list[tuple[int, int]]) -> None:
    """Warns of tokens and of places that fit to no layer."""
    if not record.layers:
        return
    sizes = ", ".join(dict.fromkeys(f"{layer.queries} × {layer.keys}" for layer in record.layers))
    counts = {count for layer in record.layers for count in (layer.queries, layer.keys)}
    for batch, tokens in enumerate(record.tokens or []):
        if len(tokens) not in counts:
            errors.warn(f"saccade.observe: tokens has {len(tokens)} texts for batch {batch}, but no layer has as many "
                        f"positions: layers have queries × keys of {sizes}")
    for query, key in places:
        if not any(query < layer.queries and key < layer.keys for layer in record.layers):
            errors.warn(f"saccade.observe: zoom has {(query, key)}, but no layer has this query and key: layers have "
                        f"queries × keys of {sizes}")
