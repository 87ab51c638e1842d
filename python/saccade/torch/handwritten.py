"""Notices attention that is written by hand in `enabled()` blocks, for `saccade.served`.

Nothing is replaced: eager PyTorch computes one operator after the other, so a fused kernel would come too late. A mode
of torch functions follows the results of matrix products through softmax or sigmoid into the next product. It is active
only while there is a report.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from saccade import _served
from saccade.torch.fallback import is_enabled

NAME = "attention written by hand"
REASON = ('it is computed op by op: torch.compile(model, backend="saccade") fuses it, or call '
          "F.scaled_dot_product_attention")
_PRODUCTS = frozenset({
    "matmul", "__matmul__", "__rmatmul__", "bmm", "baddbmm", "einsum", "mm", "linalg_matmul", "tensordot"})  # fmt: skip
_SOFTMAX = frozenset({"softmax", "special_softmax", "log_softmax", "special_log_softmax", "sigmoid", "special_expit"})
# Functions that keep what a tensor is: scores or weights.
_KEEPING = frozenset({
    "__add__", "__radd__", "__iadd__", "add", "add_", "__sub__", "__rsub__", "__isub__", "sub", "sub_", "__mul__",
    "__rmul__", "__imul__", "mul", "mul_", "__truediv__", "__itruediv__", "div", "div_", "__neg__", "neg", "exp",
    "masked_fill", "masked_fill_", "where", "tanh", "clamp", "dropout", "to", "type_as", "type", "float", "double",
    "half", "bfloat16", "view", "view_as", "reshape", "reshape_as", "permute", "transpose", "swapaxes", "swapdims",
    "movedim", "moveaxis", "unsqueeze", "squeeze", "flatten", "unflatten", "contiguous", "expand", "expand_as", "clone",
    "nan_to_num", "flip", "cat", "concat", "pad", "narrow", "__getitem__", "linear", "conv2d"})  # fmt: skip
_PROPERTIES = tuple(x.__get__ for x in (torch.Tensor.T, torch.Tensor.mT, torch.Tensor.H, torch.Tensor.mH))
_MULTI_HEAD = torch.nn.functional.multi_head_attention_forward


class _Operand(NamedTuple):
    """What a report says of a tensor, which is not kept."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device


class _State(threading.local):
    is_watching = False


_state = _State()


class _Watch(TorchFunctionMode):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.kinds = WeakIdKeyDictionary()  # "scores" or "weights" by tensor
        self.operands = WeakIdKeyDictionary()  # the queries and keys of scores and weights

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        if torch.compiler.is_compiling() or not _served.is_on or not _served.is_new_call():
            return result
        name = getattr(function, "__name__", "")
        if name in _PRODUCTS:
            self._multiply(_tensors((*args, *kwargs.values())), result)
        elif name in _SOFTMAX or name in _KEEPING or function in _PROPERTIES:
            self._keep(name, _tensors((*args, *kwargs.values())), result)
        elif function is _MULTI_HEAD and kwargs.get("need_weights", True):
            _served.note("multi_head_attention_forward", args[:3],
                         "the weights are returned: call the module with need_weights=False")
        return result

    def _multiply(self, operands: list[torch.Tensor], result: Any) -> None:
        tensors = operands[-2:]
        weights = [x for x in tensors if self.kinds.get(x) == "weights"]
        if weights and len(tensors) == 2:
            value = tensors[1] if weights[0] is tensors[0] else tensors[0]
            _served.note(NAME, (*self.operands[weights[0]], value), REASON)
        # A product with a parameter is that of a layer.
        elif isinstance(result, torch.Tensor) and len(tensors) == 2 and not any(
                isinstance(x, torch.nn.Parameter) for x in tensors):
            self.kinds[result] = "scores"
            self.operands[result] = tuple(_Operand(x.shape, x.dtype, x.device) for x in tensors)

    def _keep(self, name: str, operands: list[torch.Tensor], result: Any) -> None:
        source = next((x for x in operands if x in self.kinds), None)
        if source is not None and isinstance(result, torch.Tensor):
            self.kinds[result] = "weights" if name in _SOFTMAX else self.kinds[source]
            self.operands[result] = self.operands[source]


def _tensors(arguments: tuple[Any, ...]) -> list[torch.Tensor]:
    """The tensors among arguments and in lists of them."""
    each = (x for given in arguments for x in (given if isinstance(given, (list, tuple)) else (given,)))
    return [x for x in each if isinstance(x, torch.Tensor)]


@contextlib.contextmanager
def watch() -> Iterator[None]:
    """Notices attention in a block of this thread that is in `enabled()`, if there is a report."""
    if not _served.is_on or _state.is_watching or not is_enabled():
        yield
        return
    _state.is_watching = True
    try:
        with _Watch():
            yield
    finally:
        _state.is_watching = False


_served.companions.append(watch)
