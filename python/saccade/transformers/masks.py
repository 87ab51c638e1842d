"""Masks of Transformers models by their structure, without tensors of queries times keys.

Transformers passes a mask function of absolute positions, the padding and the offsets of a cache to the function that
is registered for an attention implementation, and its result to the attention function. The result here is a
StructuredMask. It becomes options of `saccade.attention`: `causal`, `window` and `kv_len` for what Transformers' own
mask functions and padding mean, and a traced mask for the rest. Code of models that uses it as a tensor gets the tensor
of "sdpa" or "eager" (`code_of_models.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import torch
from transformers import masking_utils

from saccade import _parameters
from saccade.transformers.code_of_models import uses_of_mask

MaskFunction = Callable[..., Any]

# The code objects of closures that Transformers' functions return. A closure with other code, also of another version
# of Transformers, is traced.
_AND = masking_utils.and_masks(masking_utils.causal_mask_function).__code__
_WINDOW = masking_utils.sliding_window_overlay(1).__code__
_SYMMETRIC_WINDOW = masking_utils.sliding_window_bidirectional_overlay(1).__code__

# Functions that use a mask as numbers: code that calls them expects the additive masks of "eager".
_ARITHMETIC = frozenset("__add__ __radd__ __iadd__ add add_ __mul__ __rmul__ mul __sub__ sub".split())


def _free_variables(function: Any, code: CodeType) -> dict[str, Any] | None:
    """The free variables of a closure with the given code; None for other functions, and under Dynamo, which has no
    contents of cells: the functions are traced there."""
    if torch.compiler.is_dynamo_compiling():
        return None
    if type(function) is not FunctionType or function.__code__ is not code:
        return None
    return dict(zip(code.co_freevars, [cell.cell_contents for cell in function.__closure__ or ()]))


def window_of(size: Any, least: int = 1) -> int:
    """The sliding_window of a model's configuration. Transformers masks out all keys for 0, while its FlashAttention
    functions have no window then."""
    return _parameters.integer("sliding_window", size, least)


class Structure:
    """A mask function as the conjunction of a causal mask, windows and other functions."""

    __slots__ = ("causal", "left", "right", "rest")

    def __init__(self, function: MaskFunction):
        self.causal = False
        self.left: int | None = None  # the number of keys before a query's own that it attends to
        self.right: int | None = None
        self.rest: list[MaskFunction] = []
        self._add(function)

    def _add(self, function: MaskFunction) -> None:
        if function is masking_utils.causal_mask_function:
            self.causal = True
        elif function is masking_utils.bidirectional_mask_function:
            pass
        elif parts := _free_variables(function, _AND):
            for part in parts["mask_functions"]:
                self._add(part)
        elif found := _free_variables(function, _WINDOW):
            self.left = _smaller(self.left, window_of(found["sliding_window"]) - 1)
        elif found := _free_variables(function, _SYMMETRIC_WINDOW):
            distance = window_of(found["sliding_window"], 0)
            self.left, self.right = _smaller(self.left, distance), _smaller(self.right, distance)
        else:
            self.rest.append(function)


def _smaller(x: int | None, y: int) -> int:
    return y if x is None else min(x, y)


class StructuredMask:
    """The keys that each query attends to: what Transformers calls an attention mask [batch, 1, queries, keys].

    Models pass it through to the attention function. Where their code uses it as a tensor, it is the tensor that the
    model would have had: the boolean mask of "sdpa", or the additive mask of "eager" for models without SDPA and where
    the mask is added to scores. `shape` and `dtype` are those of this tensor.
    """

    def __init__(self, *, batch_size: int, q_length: int, kv_length: int, q_offset: Any, kv_offset: Any,
                 mask_function: MaskFunction, attention_mask: torch.Tensor | None, use_vmap: bool, device: Any,
                 additive: torch.dtype | None = None, scores: torch.dtype = torch.float32):
        """Arguments are those of Transformers' mask functions (`masking_utils.sdpa_mask`). `additive`: the type of the
        model's additive masks, None if its masks are boolean; `scores`: the type of a mask that is added to scores."""
        self.batch_size, self.q_length, self.kv_length = batch_size, q_length, kv_length
        self.q_offset, self.kv_offset = q_offset, kv_offset
        self.mask_function, self.attention_mask, self.use_vmap = mask_function, attention_mask, use_vmap
        self.device, self.additive, self.scores = torch.device(device), additive, scores
        self._dense: torch.Tensor | None = None
        # Those that were handed out, with their versions.
        self._tensors: dict[torch.dtype, tuple[torch.Tensor, int | None]] = {}
        self._options: dict[int, dict[str, Any]] = {}  # by batch

    __hash__ = object.__hash__

    # --- as a tensor ----------------------------------------------------------------------------------------------

    ndim = 4

    @property
    def dtype(self) -> torch.dtype:
        return torch.bool if self.additive is None else self.additive

    @property
    def shape(self) -> torch.Size:
        return torch.Size((self.batch_size, 1, self.q_length, self.kv_length))

    def dim(self) -> int:
        return 4

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def contiguous(self) -> StructuredMask:  # `generate` calls it
        return self

    def dense(self) -> torch.Tensor:
        """The boolean mask [batch, 1, queries, keys] of "sdpa": true for keys that a query attends to."""
        if self._dense is None:
            self._dense = masking_utils.sdpa_mask(
                self.batch_size, self.q_length, self.kv_length, self.q_offset, self.kv_offset, self.mask_function,
                self.attention_mask, allow_is_causal_skip=False, use_vmap=self.use_vmap, device=self.device)
        return self._dense

    def tensor(self, operation: str = "") -> torch.Tensor:
        """The tensor [batch, 1, queries, keys] that the model would have had in this operation: `dense`, or an additive
        mask of 0 and the lowest number."""
        dtype = self.additive
        if dtype is None and operation in _ARITHMETIC:
            dtype = self.scores
        dtype = dtype or torch.bool
        if dtype not in self._tensors:
            mask = self.dense()
            if dtype != torch.bool:
                mask = torch.where(mask, torch.zeros((), device=self.device, dtype=dtype), torch.finfo(dtype).min)
            self._tensors[dtype] = mask, None if _has_no_version(mask) else mask._version
        return self._tensors[dtype][0]

    def changed(self) -> torch.Tensor | None:
        """The tensor that code of the model has written to, or may have, if its writes are not counted."""
        for mask, version in self._tensors.values():
            if version is None or mask._version != version:
                return mask
        return None

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls a function of torch with the tensor."""
        operation = getattr(function, "__name__", str(function))

        def tensor(x: Any) -> Any:
            return x.tensor(operation) if isinstance(x, StructuredMask) else x

        args = [[tensor(each) for each in x] if isinstance(x, (list, tuple)) else tensor(x) for x in args]
        return function(*args, **{name: tensor(x) for name, x in (kwargs or {}).items()})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(torch.Tensor, name):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return getattr(self.tensor(name), name)

    def __getitem__(self, index: Any) -> Any:
        """A slice of the queries or keys is a StructuredMask; other items are those of the tensor."""
        if self.changed() is not None:
            return self.tensor()[index]
        index = index if isinstance(index, tuple) else (index,)
        if Ellipsis in index[:1] and len(index) <= 5:
            index = (slice(None),) * (5 - len(index)) + index[1:]
        if not all([type(each) is slice and each.step in (None, 1) for each in index]):
            return self.tensor()[index]
        bounds = [each.indices(extent) for each, extent in zip(index, self.shape)]
        if any([bound != (0, extent, 1) for bound, extent in zip(bounds[:2], self.shape)]):
            return self.tensor()[index]
        bounds += [(0, extent, 1) for extent in self.shape[len(index) :]]
        (q_start, q_end, _), (kv_start, kv_end, _) = bounds[2:]
        return StructuredMask(
            batch_size=self.batch_size, q_length=max(q_end - q_start, 0), kv_length=max(kv_end - kv_start, 0),
            q_offset=self.q_offset + q_start, kv_offset=self.kv_offset + kv_start, mask_function=self.mask_function,
            attention_mask=self.attention_mask, use_vmap=self.use_vmap, device=self.device, additive=self.additive,
            scores=self.scores)

    # --- as options of saccade.attention --------------------------------------------------------------------------

    def options(self, batch: int) -> dict[str, Any]:
        """Arguments of `saccade.attention` with this meaning for queries of `batch` batches. Positions and lengths are
        passed as values that do not compile anew. Computed once for all layers."""
        found = self._options.get(batch)
        if found is None:
            found = self._options[batch] = self._make_options(batch)
        return found

    def _make_options(self, batch: int) -> dict[str, Any]:
        structure = Structure(self.mask_function)
        options: dict[str, Any] = {}
        offset = self.q_offset - self.kv_offset
        rest = structure.rest
        if structure.causal:
            options["causal"] = offset
            # A causal mask bounds a window after the query.
            if structure.left is not None:
                options["window"] = structure.left + 1
        elif structure.left is not None or structure.right is not None:
            if type(offset) is int and offset == 0:
                options["window"] = structure.left, structure.right
            else:
                rest = [self.mask_function]  # without `causal`, a window counts from key i for query i
        functions = [self._relative(function) for function in rest]
        if self.attention_mask is not None:
            functions += self._add_padding(options, batch)
        if functions:
            options["mask"] = functions[0] if len(functions) == 1 else _all_of(functions)
        return options

    def _relative(self, function: MaskFunction) -> MaskFunction:
        """A mask function of positions in the query and the key tensor, from one of absolute positions."""
        offsets = self.q_offset, self.kv_offset
        if all(type(each) is int and each == 0 for each in offsets):
            return function
        # Numbers in a closure are compiled in, elements of tensors are not.
        query, key = (torch.as_tensor(each, device=self.device) for each in offsets)
        return lambda b, h, i, j: function(b, h, i + query, j + key)

    def _add_padding(self, options: dict[str, Any], batch: int) -> list[MaskFunction]:
        """Adds the padding as a length and returns mask functions. Padding before and after the tokens of each batch
        becomes bounds of the loop over keys, other padding is read for each key."""
        assert self.attention_mask is not None
        valid = self.attention_mask[:, self.kv_offset : self.kv_offset + self.kv_length]
        columns = valid.shape[1]
        if columns < self.kv_length:  # the rest of a static cache is padding, too
            options["kv_len"] = columns
        if valid.shape[0] != batch:
            valid = valid.expand(batch, columns)
        if torch.compiler.is_compiling():  # the values are not known
            return [] if columns == 0 else [lambda b, h, i, j: valid[b, j]]
        if columns == 0 or valid.all():
            return []
        numbers = valid.to(torch.int32)
        count = numbers.sum(1)
        start = numbers.argmax(1)
        end = torch.where(count > 0, columns - numbers.flip(1).argmax(1), start)
        if not torch.equal(end - start, count.to(end.dtype)):
            return [lambda b, h, i, j: valid[b, j]]
        options["kv_len"] = end  # also without padding at the end: one kernel for either side
        return [lambda b, h, i, j: j >= start[b]]


def _operator(name: str) -> Callable[..., Any]:
    def apply(self: StructuredMask, *args: Any) -> Any:
        others = [x.tensor(name) if isinstance(x, StructuredMask) else x for x in args]
        return getattr(self.tensor(name), name)(*others)

    apply.__name__ = name
    return apply


# Python looks operators up in the class. Without __eq__, `mask == 0` would be False.
_OPERATORS = "add radd iadd sub rsub mul rmul truediv and rand or ror xor rxor invert neg eq ne lt le gt ge"
for _name in f"{_OPERATORS} setitem len iter bool".split():
    setattr(StructuredMask, f"__{_name}__", _operator(f"__{_name}__"))


def _has_no_version(x: torch.Tensor) -> bool:
    """Whether writes to x are not counted."""
    return torch.compiler.is_compiling() or bool(x.is_inference())


def _all_of(functions: list[MaskFunction]) -> MaskFunction:
    first, *others = functions
    second = others[0] if len(others) == 1 else _all_of(others)
    return lambda b, h, i, j: first(b, h, i, j) & second(b, h, i, j)


def make_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,
    kv_offset: Any = 0,
    mask_function: MaskFunction = masking_utils.causal_mask_function,
    attention_mask: Any = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    use_vmap: bool = False,
    device: Any = "cpu",
    dtype: torch.dtype = torch.float32,
    config: Any = None,
    **unused: Any,
) -> Any:
    """The mask function of attn_implementation="saccade", with the parameters of `masking_utils.sdpa_mask`.

    Returns None if every query attends to every key, otherwise a StructuredMask. Models whose code asks whether its
    mask is a tensor get a tensor, and models that compute attention themselves that of "eager".
    """
    if isinstance(attention_mask, StructuredMask):  # made ahead by `generate`, and passed to the model as its mask
        return attention_mask
    is_bidirectional = mask_function is masking_utils.bidirectional_mask_function
    if is_bidirectional and attention_mask is None and allow_is_bidirectional_skip:
        return None
    if isinstance(q_offset, torch.Tensor):
        # A static cache advances its offset in place before attention reads it.
        q_offset = q_offset.clone() if torch.compiler.is_compiling() else int(q_offset)
    is_boolean, is_structured = uses_of_mask(type(config))
    mask = StructuredMask(
        batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset, kv_offset=kv_offset,
        mask_function=mask_function, attention_mask=attention_mask, use_vmap=use_vmap, device=device,
        additive=None if is_boolean else dtype, scores=dtype)
    return mask if is_structured else mask.tensor()
