"""`saccade.lint` and its report. The rules are in the other modules of the package, which are imported by need."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from saccade import _places, _served

RULES = {
    "layout": "queries, keys and values are [batch, sequence, heads, d] where [batch, heads, sequence, d] is expected",
    "head-split": "a reshape to heads, or back from them, mixes positions with features",
    "transposed-keys": "queries are multiplied by keys that are not transposed",
    "alignment": "a causal mask of fewer queries than keys starts at the first key",
    "scale-missing": "scores are not scaled",
    "scale-width": "scores are scaled by 1/√(width of all heads)",
    "scale-root": "scores are scaled by 1/d, without the square root, or by √d",
    "scale-twice": "queries, keys or scores are scaled, and the call scales again",
    "softmax-axis": "weights are normalised over another axis than the one that values are added over",
    "softmax-maximum": "exponentials are computed without subtracting the row maximum",
    "sentinel": "a finite number stands for a mask",
    "empty-row": "a query has no visible key, so its weights are NaN",
    "inverted-mask": "a boolean mask keeps what it was meant to hide",
    "mask-axis": "a mask or a bias varies over queries, or over heads, where keys or batches were meant",
    "mask-size": "the side of a mask is the head size",
    "mask-late": "weights are masked after the softmax only",
    "padding": "padded tokens are not masked",
    "zero-weights": "all weights of the layer that makes queries or keys are equal, so that all scores are",
    "dropout": "weights are dropped in eval mode",
}
"""The names of the rules, and what each finds."""

OWN_CODE = frozenset({"sentinel", "scale-missing"})
"""Rules about how a line is written. Lines of installed packages, such as the models of Transformers, are as their
authors meant them."""


_NOTHING = (
    "lint: no attention was seen: no call of F.scaled_dot_product_attention, nn.MultiheadAttention or "
    "saccade.attention, and no softmax between two products of PyTorch ran in this block. Calls before the block and "
    "in threads that were started before it, flex_attention, linear attention, NumPy code written by hand and "
    "functions of JAX are not checked.")


@dataclass(frozen=True)
class Finding:
    """A likely mistake."""

    rule: str
    """The name of the rule, one of `RULES`."""
    message: str
    """What was found, and what was expected."""
    instead: str
    """The line to write instead."""
    module: str
    """The qualified name of the innermost nn.Module within the outermost one, or the class name of the outermost
    one; empty without modules."""
    place: str
    """"file:line" of the innermost frame outside of Saccade and PyTorch; empty if it is unknown."""

    def __str__(self) -> str:
        where = " in ".join(part for part in (self.place, self.module) if part)
        return f"{where + ': ' if where else ''}{self.message} [{self.rule}]\n    write: {self.instead}"


class LintReport(_served.Observer):
    """The findings of a `saccade.lint()` block. It can be read while the block is open."""

    def __init__(self, ignore: Collection[str] = ()):
        self._ignored = frozenset(ignore)
        self._findings: dict[tuple[str, str, str], Finding] = {}
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._lock = threading.Lock()
        self.local = threading.local()
        """What each thread of the block follows."""
        self.lengths: dict[Any, set[tuple[int, ...]]] = {}
        """The shapes of the queries of each place, which show layouts."""
        self.has_checked = False
        """Whether any attention was checked."""

    @property
    def findings(self) -> dict[Finding, int]:
        """The number of calls of each finding, in the order of their first occurrence. Findings of one rule at one
        line and module are one, whose message is that of the first call."""
        with self._lock:
            return {finding: self._counts[key] for key, finding in self._findings.items()}

    @property
    def rules(self) -> dict[str, int]:
        """The number of findings of each rule."""
        return dict(Counter(finding.rule for finding in self.findings))

    def add(self, rule: str, message: str, instead: str, at: tuple[str, str] | None = None) -> None:
        """Adds a finding of the module and the place `at`, or of the call that this thread is in."""
        if rule in self._ignored:
            return
        module, place = _places.of_call() if at is None else at
        if rule in OWN_CODE and _places.is_installed(place):
            return
        with self._lock:
            key = rule, module, place
            self._findings.setdefault(key, Finding(rule, message, instead, module, place))
            self._counts[key] += 1

    def watch(self, call: _served.Observed) -> Any:
        from saccade.linting import calls

        calls.check_observed(self, call)
        return call.compute()

    def inside(self) -> contextlib.AbstractContextManager[Any]:
        if "torch" not in sys.modules:
            return contextlib.nullcontext()
        from saccade.linting import watching

        return watching.watch(self)

    def __len__(self) -> int:
        return len(self._findings)

    def __str__(self) -> str:
        found = self.findings
        if not found and not self.has_checked:
            return _NOTHING
        lines = [f"lint: {len(found)} likely mistake{'' if len(found) == 1 else 's'} in attention"]
        for finding, count in found.items():
            lines.append(f"{finding}" + (f"\n    {count} calls" if count > 1 else ""))
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<saccade.lint: {len(self)} findings>"


@contextlib.contextmanager
def lint(*, ignore: str | Collection[str] = (), explain: bool = False) -> Iterator[LintReport]:
    """Finds likely mistakes in the attention of this block, in this thread and in threads that are started inside of
    it: calls of `F.scaled_dot_product_attention`, `nn.MultiheadAttention`, `saccade.attention` and its drop-in
    functions, and attention written by hand in PyTorch. The block changes no result. Functions of torch.compile run
    eagerly inside of it.

    Args:
        ignore: the name of a rule that is not checked, of `saccade.linting.RULES`, or several of them.
        explain: prints the report to standard error at the end of the block, also after an exception.

    Yields:
        A `LintReport`: `findings`, `rules`, its `len()`, and all of it as its `str()`.

    Example:
        >>> with saccade.lint() as report:
        ...     model(x)
        >>> assert not report, report
    """
    ignore = (ignore,) if isinstance(ignore, str) else ignore
    unknown = [name for name in ignore if name not in RULES]
    if unknown:
        raise ValueError(f"ignore has {unknown[0]!r}, expected names of {', '.join(RULES)}")
    report = LintReport(ignore)
    try:
        with _served.observed(report), report.inside():
            yield report
    finally:
        if explain:
            print(report, file=sys.stderr)
