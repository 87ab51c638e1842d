"""What an export knows about the extents of its tensors, as affine maps of the open extents of the arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch.utils._sympy import functions


class _Unknown(Exception):
    """An expression that affine maps do not have."""


class Extents:
    """Writes extents in terms of the open extents of arguments, numbered in the order of their different names."""

    def __init__(self, opened: Sequence[Any]):
        """`opened`: the open extents of the arguments, as symbolic integers."""
        expressions = list({str(extent): _expression(extent) for extent in opened}.values())
        self.sizes = [sympy.Symbol(f"n{i}", integer=True, positive=True) for i in range(len(expressions))]
        self.known: dict[Any, Any] = {}
        for expression, size in zip(expressions, self.sizes):
            if expression.is_Symbol:
                self.known[expression] = size
        for expression, size in zip(expressions, self.sizes):  # 2*s says what s is
            rest = expression.subs(self.known)
            unknown = rest.free_symbols - set(self.sizes)
            if len(unknown) != 1:
                continue
            (symbol,) = unknown
            factor = rest.coeff(symbol)
            if factor.is_Integer and factor > 0 and symbol not in (rest - factor * symbol).free_symbols:
                self.known[symbol] = (size - (rest - factor * symbol)) / factor

    def attribute(self, values: Any) -> str:
        """The attribute `extents` for the results of a node; empty if there are no open extents."""
        if not self.sizes or not any(isinstance(value, torch.Tensor) for value in values):
            return ""
        maps = [self._map(value.shape) if isinstance(value, torch.Tensor) else "unit" for value in values]
        return f"[{', '.join(maps)}]"

    def is_derived(self, shape: Sequence[Any]) -> bool:
        """Whether the extents of an argument follow from those of others."""
        return any(not isinstance(extent, int) and not _expression(extent).is_Symbol for extent in shape)

    def _map(self, shape: Sequence[Any]) -> str:
        return f"affine_map<()[{', '.join(map(str, self.sizes))}] -> ({', '.join(map(self._text, shape))})>"

    def _text(self, extent: Any) -> str:
        """An extent as an expression of affine maps; -1 if it is none."""
        if isinstance(extent, int):
            return str(extent)
        try:
            expression = sympy.expand(_expression(extent).subs(self.known))
            terms = sympy.Add.make_args(expression)
            divisor = math.lcm(*[int(term.as_coeff_Mul()[0].q) for term in terms if term.as_coeff_Mul()[0].is_Rational])
            if divisor == 1:
                return self._write(expression)
            return f"({self._write(sympy.expand(divisor * expression))}) floordiv {divisor}"
        except _Unknown:
            return "-1"

    def _write(self, x: Any) -> str:
        if x.is_Integer:
            return str(int(x)) if -(1 << 62) < int(x) < 1 << 62 else self._refuse()
        if x.is_Symbol:
            return str(x) if x in self.sizes else self._refuse()
        if isinstance(x, sympy.Add):
            return "(" + " + ".join(map(self._write, x.args)) + ")"
        if isinstance(x, sympy.Mul):
            return "(" + " * ".join(map(self._write, x.args)) + ")"
        if isinstance(x, sympy.Pow) and x.exp.is_Integer and 0 < x.exp <= 4:
            return "(" + " * ".join([self._write(x.base)] * int(x.exp)) + ")"
        if isinstance(x, (functions.FloorDiv, functions.CleanDiv)):
            return f"({self._write(x.args[0])} floordiv {self._write(x.args[1])})"
        if isinstance(x, (functions.Mod, functions.PythonMod)):
            return f"({self._write(x.args[0])} mod {self._write(x.args[1])})"
        return self._refuse()

    def _refuse(self) -> str:
        raise _Unknown


def _expression(extent: Any) -> Any:
    return extent.node.expr
