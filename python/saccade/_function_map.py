"""Functions of a program as items and, if their names are valid Python, as attributes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

_Function = TypeVar("_Function")


class FunctionMap(Generic[_Function]):
    """The base of classes with `functions`."""

    functions: Mapping[str, _Function]

    @abstractmethod
    def _title(self) -> str:
        """The beginning of the message for an unknown name."""

    def _has(self) -> str:
        return f"it has: {', '.join(self.functions)}" if self.functions else "it has none"

    def __getitem__(self, name: str) -> _Function:
        try:
            return self.functions[name]
        except KeyError:
            raise KeyError(f"{self._title()} {name!r}; {self._has()}") from None

    def __getattr__(self, name: str) -> _Function:
        if name.startswith("_") or name == "functions":  # __init__ failed before the attribute was set
            raise AttributeError(name)
        try:
            return self.functions[name]
        except KeyError:
            raise AttributeError(f"{self._title()} {name!r}; {self._has()}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.functions)

    def __len__(self) -> int:
        return len(self.functions)

    def __contains__(self, name: object) -> bool:
        return name in self.functions

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.functions]
