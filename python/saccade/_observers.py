"""What sees calls of attention and of compiled programs in a block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from saccade import _scopes

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""The arguments of a call: args and kwargs."""


@dataclass(frozen=True)
class Observed:
    """A call that is about to be computed."""

    function: str
    compute: Callable[[], Any]
    operands: Sequence[Any]
    """Query, key and value, as far as they are known; of a compiled program all arguments."""
    module: Any
    """The innermost module, if the caller knows it."""
    arguments: Arguments


class Observer(_scopes.Scope):
    """Sees the calls of attention in a block, those of other libraries included, and what compiled programs do."""

    def watch(self, call: Observed) -> Any:
        """The result of `call.compute()`."""
        result = call.compute()
        self.take(call.function, call.arguments, result, call.module)
        return result

    def take(self, function: str, arguments: Arguments, result: Any, module: Any) -> None:
        """A call is done. `module` is the innermost module, if the caller knows it."""

    def watch_program(self, call: Observed) -> Any:
        """The result of `call.compute()`, which is a call of the function of this name of a compiled program."""
        return call.compute()

    def compiled(self, names: Sequence[str], origin: str, times: tuple[int, int], phases: dict[str, Any]) -> None:
        """Notes that functions of these names were compiled, or taken from a cache, between two times of
        `time.perf_counter_ns`; `phases` has the seconds of the phases of a compilation, and of its stages."""
