"""The rules of one call of attention."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Mapping
from math import sqrt
from typing import Any

from saccade import _calls, _places, _served
from saccade.linting import masks, scales
from saccade.linting.facts import HEADS, Facts
from saccade.linting.report import LintReport

_MANY_HEADS = 256
_FEW_POSITIONS = 128


def check_observed(report: LintReport, call: _served.Observed) -> None:
    """Checks a call of one of Saccade's functions."""
    options = _calls.options_of(call)
    if len(call.operands) != 3 or not options or _is_checked(report, call.operands[0]):
        return
    if call.function == "saccade.attention":
        given = {"scale": options["scale"], "dropout_p": options["dropout_p"]}
        layout = options["layout"] or ("shd" if options["cu_seqlens_q"] is not None else "bhsd")
        if options["causal"] == "top_left" and options["cu_seqlens_q"] is None and options["kv_len"] is None:
            query, key = (x.shape[layout.index("s")] for x in call.operands[:2])
            scales.check_alignment(report.add, query, key, 'causal="bottom_right"')
        check(report, call.operands, given, layout, _names("q k v"), 'layout="bshd"')
    else:
        check(report, call.operands, options, "bhsd", _names("query key value"))


def _is_checked(report: LintReport, query: Any) -> bool:
    """Whether the call was seen as one of PyTorch's function, which Saccade replaces."""
    if "torch" not in sys.modules:
        return False
    from saccade.linting import watching

    watch = watching.current(report)
    return watch is not None and watch.checked is query


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def check(report: LintReport, operands: Any, options: Mapping[str, Any], layout: str, names: tuple[str, ...],
          other_layout: str | None = None) -> None:
    """Checks a call with the options of `F.scaled_dot_product_attention`. `other_layout` is an option that says what
    the layout of the operands is."""
    query, key = operands[:2]
    if not all(hasattr(x, "ndim") for x in operands):  # the call refuses it
        return
    if query.ndim < 2 or query.ndim != key.ndim or query.ndim < len(layout) and layout != "bhsd":
        return
    report.has_checked = True
    axis = {"d": query.ndim - 1, "s": query.ndim - 2, "h": query.ndim - 3, "b": query.ndim - 4}
    if layout != "bhsd":
        axis = {dim: layout.find(dim) for dim in "bhsd"}
    size = {dim: int(query.shape[i]) if i >= 0 else 0 for dim, i in axis.items()}
    keys = int(key.shape[axis["s"]])
    found = [facts_of(report, x) for x in operands]
    add = functools.partial(report.add, at=_places.of_call())
    if options.get("is_causal"):
        scales.check_alignment(add, size["s"], keys, "is_causal=query.shape[-2] > 1, if the queries are the last ones")
    _check_scale(add, found, options, size)
    _check_layout(report, add, operands, found, axis, names, other_layout)
    if any(facts is not None and facts.is_constant for facts in found[:2]):
        add_constant(add)
    mask = options.get("attn_mask")
    is_padded = mask is None and not options.get("is_causal") and not options.get("causal")
    if mask is not None and is_readable(mask):
        check_mask(add, mask, size["s"], keys, size["b"], size["h"], size["d"], found)
    elif is_padded and layout == "bhsd":
        check_padding(report, add, size["b"], keys, "attn_mask=(ids != padding)[:, None, None, :]")
    if options.get("dropout_p"):
        check_dropout(add, "dropout_p=self.dropout_p if self.training else 0.0")


def check_mask(add: scales.Add, mask: Any, queries: int, keys: int, batch: int, heads: int, head_size: int,
               found: list[Facts | None]) -> None:
    """Checks the mask of PyTorch's function: booleans that keep, or numbers that are added."""
    sides = tuple(mask.shape[-2:])
    if sides == (head_size, head_size) != (queries, keys):
        add_mask_size(add, head_size)
    elif str(mask.dtype).endswith("bool"):
        masks.check_boolean(add, mask, queries, keys, batch, heads, "attn_mask=~mask")
    else:
        masks.check_added(add, mask, queries, keys, batch, heads, "attn_mask=visible, of booleans")


def add_mask_size(add: scales.Add, head_size: int) -> None:
    add("mask-size", f"mask covers {head_size} × {head_size} positions, which is the head size; expected the sequence "
        "lengths", "torch.tril(torch.ones(max_length, max_length)), cut to [:queries, :keys]")


def _check_scale(add: scales.Add, found: list[Facts | None], options: Mapping[str, Any], size: dict[str, int]) -> None:
    scale, head_size = options.get("scale"), size["d"]
    given = number_of(scale) if scale is not None else 1 / sqrt(head_size) if head_size else None
    if given is None:
        return
    query, key = found[:2]
    if any(x is not None and x.is_free for x in (query, key)) and scale is not None:
        return
    before = (query.factor if query else 1.0) * (key.factor if key else 1.0)
    write = "scale=1.0" if before != 1 and scale is None else f"scale={1 / sqrt(head_size) / before:.6g}, or no scale"
    scales.check_scale(add, given, before, head_size, size["h"], query.width if query else 0, write)


def _check_layout(report: LintReport, add: scales.Add, operands: Any, found: list[Facts | None], axis: dict[str, int],
                  names: tuple[str, ...], other_layout: str | None) -> None:
    """Finds positions where heads are expected, and heads where positions are."""
    known = [facts for facts in found if facts is not None]
    for facts in known[:1]:
        if facts.mixture:
            add_mixture(add, facts.mixture)
            return
    query = operands[0]
    instead = other_layout or ", ".join(f"{name}.transpose(1, 2)" for name in names)
    if axis["h"] < 0:
        return
    heads, positions = (int(query.shape[axis[dim]]) for dim in "hs")
    if len(known) == 3 and positions > 1 and all(x.axes[axis["s"]] == HEADS and x.axes[axis["h"]] != HEADS
                                                 for x in known):
        why = "the heads that were split from the features are where positions are expected"
    elif _lengths_vary(report, (heads, positions)):
        why = f"the number of heads varies between calls, the number of positions is always {positions}"
    elif all(x.shape[axis["h"]] > _MANY_HEADS and x.shape[axis["s"]] <= _FEW_POSITIONS for x in operands):
        why = "there are more heads than any model has, and few positions"
    else:
        return
    add("layout", f"{names[0]} {list(query.shape)} has {heads} heads of {positions} positions: {why}", instead)


def _lengths_vary(report: LintReport, extents: tuple[int, int]) -> bool:
    """Whether calls of one module and place differ in the number of heads alone."""
    at = _places.of_call()
    if not all(at):
        return False
    seen = report.lengths.setdefault(at, set())
    seen.add(extents)
    return len({heads for heads, _ in seen}) > 1 and len({positions for _, positions in seen}) == 1


def add_mixture(add: scales.Add, mixture: str) -> None:
    """Adds a finding of a reshape between features and heads."""
    add("head-split", f"the reshape {mixture} mixes positions with features", "x.view(batch, positions, heads, d)"
        ".transpose(1, 2), and back by x.transpose(1, 2).reshape(batch, positions, heads * d)")


def add_constant(add: scales.Add) -> None:
    """Adds a finding of a layer whose weights are all equal."""
    add("zero-weights", "all weights of the layer that makes queries or keys are equal: a query gives all its keys the "
        "same weight, or features cannot differ", "torch.nn.init.xavier_uniform_(layer.weight)")


def check_padding(report: LintReport, add: scales.Add, batch: int, keys: int, instead: str) -> None:
    """Finds attention without a mask to tokens that an embedding names as padding."""
    if "torch" not in sys.modules:
        return
    from saccade.linting import watching

    watch = watching.current(report)
    if watch is not None and watch.padded.get((batch, keys)):
        add("padding", f"{watch.padded[batch, keys]} of {batch} sequences end with padding, and no mask hides it",
            instead)


def check_dropout(add: scales.Add, instead: str) -> None:
    """Finds dropout in a module that is in eval mode."""
    module = _places.innermost_module()
    if module is not None and not module.training:
        add("dropout", "weights are dropped although the module is in eval mode", instead)


def check_multi_head(report: LintReport, function: Any, args: Any, kwargs: Any) -> None:
    """Checks a call of `F.multi_head_attention_forward`, whose boolean masks are True for what they hide."""
    given = _signature(function).bind(*args, **kwargs).arguments
    query, key = given["query"], given["key"]
    if query.ndim != 3:
        return
    report.has_checked = True
    (queries, batch, _), keys = query.shape, key.shape[0]
    heads = given["num_heads"]
    add = functools.partial(report.add, at=_places.of_call())
    mask, padding = given.get("attn_mask"), given.get("key_padding_mask")
    for name, each in (("key_padding_mask", None if padding is None else padding[:, None, None]), ("attn_mask", mask)):
        if each is None or not is_readable(each):
            continue
        if str(each.dtype).endswith("bool"):
            masks.check_boolean(add, ~each, queries, keys, 0, 0, f"{name}=~mask, which is True for hidden keys")
        else:
            masks.check_added(add, each, queries, keys, 0, 0, f"{name}=~mask, which is True for hidden keys")
    if mask is None and padding is None and not given.get("is_causal"):
        check_padding(report, add, batch, keys, "key_padding_mask=ids == padding")
    if given.get("dropout_p") and given.get("training", True):
        check_dropout(add, f"training=self.training, for {heads} heads")


@functools.cache
def _signature(function: Any) -> inspect.Signature:
    return inspect.signature(function)


# --- operands ---------------------------------------------------------------------------------------------------------


def facts_of(report: LintReport, tensor: Any) -> Facts | None:
    """What the block knows of a tensor."""
    if "torch" not in sys.modules:
        return None
    import torch

    from saccade.linting import watching

    watch = watching.current(report)
    return watch.facts.get(tensor) if watch is not None and isinstance(tensor, torch.Tensor) else None


def number_of(value: Any) -> float | None:
    """A number, or the element of a tensor of one."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if getattr(value, "ndim", None) == 0 and is_readable(value) and "bool" not in str(value.dtype):
        return float(value)
    return None


def is_readable(tensor: Any) -> bool:
    """Whether the elements of a tensor are at hand: those that a tracer records have none."""
    if "torch" not in sys.modules:
        return hasattr(tensor, "dtype")
    import torch

    if not isinstance(tensor, torch.Tensor):
        return hasattr(tensor, "dtype") and hasattr(tensor, "shape")
    return type(tensor) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) and tensor.device.type != "meta" and (
        not torch._C._functorch.is_functorch_wrapped_tensor(tensor))
