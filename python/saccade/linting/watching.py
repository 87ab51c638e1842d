"""Follows tensors of PyTorch from layers through products and softmax, with a mode of torch functions."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from saccade import _calls, _places, _served
from saccade.linting import calls, products, steps
from saccade.linting.facts import Facts
from saccade.linting.report import LintReport

_MULTI_HEAD = torch.nn.functional.multi_head_attention_forward
_SDPA = "scaled_dot_product_attention"


class Watch(TorchFunctionMode):  # type: ignore[misc]
    """The facts of the tensors of a block in one thread."""

    def __init__(self, report: LintReport):
        super().__init__()
        self.report = report
        self.facts = WeakIdKeyDictionary()
        self.padded: dict[tuple[int, int], int] = {}
        """How many sequences end with padding, by batch and length."""
        self.checked: Any = None
        """The query of the call that is checked and computed now."""
        self.tables: set[int] = set()
        """The numbers of rows of embeddings, which may be lengths."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.compiler.is_compiling() or not _served.is_new_call() or not self.report.is_open:
            return function(*args, **kwargs)
        name = steps.name_of(function)
        if name == _SDPA:
            self._call(args, kwargs)
        elif function is _MULTI_HEAD:
            calls.check_multi_head(self.report, function, args, kwargs)
        try:
            result = function(*args, **kwargs)
        except RuntimeError:
            steps.check_failure(self, name, args, kwargs)
            raise
        finally:
            self.checked = None
        with torch.no_grad():
            self._follow(name, args, kwargs, result)
        return result

    def _follow(self, name: str, args: Any, kwargs: Any, result: Any) -> None:
        if name in products.NAMES:
            products.follow(self, name, args, kwargs, result)
        elif name == "embedding":
            self._embed(args, kwargs)
        elif name == _SDPA:
            query = args[0] if args else kwargs["query"]
            known = self.facts.get(query)
            if known is not None and known.axes[-2:-1] != ("",) or query.ndim < 3:
                return
            heads = ["", "heads", "positions", "features"][-query.ndim:] if query.ndim <= 4 else [""] * query.ndim
            self.facts[result] = Facts(tuple(heads), kind="output")
        else:
            steps.follow(self, name, args, kwargs, result)

    def _call(self, args: Any, kwargs: Any) -> None:
        given = {**dict(zip(_calls.SDPA, args)), **kwargs}
        operands = tuple(given.pop(name) for name in _calls.SDPA[:3])
        self.checked = operands[0]
        calls.check(self.report, operands, given, "bhsd", _calls.SDPA[:3])

    def _embed(self, args: Any, kwargs: Any) -> None:
        names = ("input", "weight", "padding_idx")
        given = {**dict(zip(names, args)), **kwargs}
        if "input" not in given or given["weight"].ndim != 2:  # torch.embedding, whose weight comes first
            return
        ids, padding = given["input"], given.get("padding_idx")
        self.tables.add(int(given["weight"].shape[0]))
        if padding is not None and padding >= 0 and ids.ndim == 2 and calls.is_readable(ids):
            is_padding = ids == padding
            # Ids of another kind may all be the padding's number, as those of types or shapes that are not used.
            self.padded[tuple(ids.shape)] = int((is_padding[:, -1] & ~is_padding.all(-1)).sum())

    def add(self, rule: str, message: str, instead: str, at: tuple[str, str] | None = None) -> None:
        """Adds a finding."""
        self.report.add(rule, message, instead, at or _places.of_call())


def current(report: LintReport) -> Watch | None:
    """The watch of a report in this thread."""
    return getattr(report.local, "watch", None)


@contextlib.contextmanager
def watch(report: LintReport) -> Iterator[None]:
    """Follows the tensors of this thread in a block, in which functions of torch.compile run eagerly."""
    with contextlib.ExitStack() as stack:
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        report.local.watch = stack.enter_context(Watch(report))
        try:
            yield
        finally:
            report.local.watch = None
