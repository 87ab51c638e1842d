"""Products of tensors: layers, scores, and weights times values. What was found of attention written by hand is
reported at the product with the values."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from saccade import _places
from saccade.linting import calls, scales
from saccade.linting.facts import FEATURES, HEADS, KEYS, OTHER, QUERIES, Facts, Scores

if TYPE_CHECKING:
    from saccade.linting.watching import Watch

NAMES = frozenset({"matmul", "rmatmul", "bmm", "baddbmm", "addmm", "einsum", "mm", "linalg_matmul", "linear"})
_ONE_LETTER = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


class _Product(NamedTuple):
    """A product in the letters of an einsum."""

    left: torch.Tensor
    right: torch.Tensor
    letters: tuple[str, str, str]
    added: torch.Tensor | None = None
    factor: float = 1.0


def follow(watch: Watch, name: str, args: Any, kwargs: Any, result: Any) -> None:
    """Notes what the result of a product is."""
    if not isinstance(result, torch.Tensor):
        return
    product = _read(name, args, kwargs)
    if product is None or max(product.left.ndim, product.right.ndim) > 12:
        return
    left, right = (watch.facts.get(x) for x in product[:2])
    if any(x is not None and x.kind == "weights" for x in (left, right)):
        is_left = left is not None and left.kind == "weights"
        _weigh(watch, product, is_left, result)
    elif _is_parameter(product.right, right) or _is_parameter(product.left, left):
        watch.facts[result] = _layer(watch, product, _is_parameter(product.right, right))
    elif len(product.letters[0]) > 1 and len(product.letters[1]) > 1:
        watch.facts[result] = _scores(product, _known(left, product.left), _known(right, product.right))


def _known(facts: Facts | None, tensor: torch.Tensor) -> Facts:
    return Facts((OTHER,) * tensor.ndim) if facts is None or len(facts.axes) != tensor.ndim else facts


def _is_parameter(tensor: torch.Tensor, facts: Facts | None) -> bool:
    return isinstance(tensor, torch.nn.Parameter) or facts is not None and facts.kind == "parameter"


def _read(name: str, args: Any, kwargs: Any) -> _Product | None:
    if name == "einsum":
        return _read_einsum(args)
    tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)]
    if name == "linear":
        left, right = tensors[:2]
        letters = _ONE_LETTER[:left.ndim]
        return _Product(left, right, (letters, "Z" + letters[-1:], letters[:-1] + "Z")) if right.ndim == 2 else None
    if name in ("baddbmm", "addmm"):
        added, left, right = tensors[:3]
        return _Product(left, right, _matmul_letters(left, right), added, float(kwargs.get("alpha", 1)))
    if len(tensors) < 2 or not tensors[0].ndim or not tensors[1].ndim:
        return None
    left, right = tensors[1::-1] if name == "rmatmul" else tensors[:2]
    return _Product(left, right, _matmul_letters(left, right))


def _matmul_letters(left: torch.Tensor, right: torch.Tensor) -> tuple[str, str, str]:
    outer = max(left.ndim, right.ndim) - 2
    batch = _ONE_LETTER[:max(outer, 0)]
    rows, columns = "X" if left.ndim > 1 else "", "Y" if right.ndim > 1 else ""
    first = batch[len(batch) - max(left.ndim - 2, 0):] + rows + "Z"
    second = batch[len(batch) - max(right.ndim - 2, 0):] + "Z" + columns
    return first, second, batch + rows + columns


def _read_einsum(args: Any) -> _Product | None:
    equation, operands = args[0], args[1] if len(args) == 2 and isinstance(args[1], (list, tuple)) else args[1:]
    if not isinstance(equation, str) or len(operands) != 2 or "..." in equation or "->" not in equation:
        return None
    given, _, made = equation.replace(" ", "").partition("->")
    first, _, second = given.partition(",")
    return _Product(operands[0], operands[1], (first, second, made))


# --- layers -----------------------------------------------------------------------------------------------------------


def _layer(watch: Watch, product: _Product, is_right: bool) -> Facts:
    """The facts of activations times a parameter."""
    (x, own), (weight, other) = zip(product[:2], product.letters[:2])
    if not is_right:
        (x, own), (weight, other) = (weight, other), (x, own)
    known = _known(watch.facts.get(x), x)
    labels = dict(zip(own, known.axes))
    new = [letter for letter in product.letters[2] if letter in other and letter not in own]
    labels.update(dict.fromkeys(new, HEADS))
    labels.update(dict.fromkeys(new[-1:], FEATURES))
    contracted = [i for i, letter in enumerate(own) if letter in other and letter not in product.letters[2]]
    width = 1
    for i in contracted:
        width *= int(x.shape[i])
    kept = {letter: label if letter in new else OTHER for letter, label in labels.items()}
    return Facts(tuple(kept[letter] for letter in product.letters[2]), width=width, is_constant=_is_constant(weight))


def _is_constant(weight: torch.Tensor) -> bool:
    """Whether all elements are equal. Two are read if they are not."""
    if weight.numel() < 2 or not calls.is_readable(weight):
        return False
    first = weight[(0,) * weight.ndim]
    return bool(first == weight[(-1,) * weight.ndim]) and bool((weight == first).all())


# --- scores -----------------------------------------------------------------------------------------------------------


def _scores(product: _Product, left: Facts, right: Facts) -> Facts:
    first, second, made = product.letters
    labels = [dict(zip(first, left.axes)), dict(zip(second, right.axes))]
    sizes = {**dict(zip(second, product.right.shape)), **dict(zip(first, product.left.shape))}
    inner = [letter for letter in first if letter in second and letter not in made]
    axes = tuple(OTHER if letter in first and letter in second else QUERIES if letter in first else KEYS
                 for letter in made)
    rows = [letter for letter in made if letter in first and letter not in second]
    columns = [letter for letter in made if letter in second and letter not in first]
    batch = [letter for letter in made if letter in first and letter in second]
    head_size = heads = 1
    for letter in inner:
        head_size *= int(sizes[letter])
    named = [letter for letter in batch if labels[0].get(letter) == HEADS]
    for letter in named or (batch[1:2] if len(made) == 4 and len(batch) == 2 else []):
        heads *= int(sizes[letter])
    features = [letter for letter in columns if labels[1].get(letter) == FEATURES]
    record = Scores(
        head_size, heads, left.is_free or right.is_free, left.width, (left.factor * right.factor, product.factor),
        _places.of_call(), is_transposed=not (features and inner and labels[1].get(inner[0]) != FEATURES
                                              and labels[0].get(inner[0]) == FEATURES),
        is_between_heads=bool(rows and columns and labels[0].get(rows[-1]) == HEADS
                              and labels[1].get(columns[-1]) == HEADS),
        is_constant=left.is_constant or right.is_constant, mixture=left.mixture or right.mixture,
        has_bias=product.added is not None)
    return Facts(axes, factor=product.factor, kind="scores", scores=record)


# --- weights times values ---------------------------------------------------------------------------------------------


def _weigh(watch: Watch, product: _Product, is_left: bool, result: torch.Tensor) -> None:
    first, second, made = product.letters
    weights, own, other = (product.left, first, second) if is_left else (product.right, second, first)
    facts = watch.facts[weights]
    inner = [letter for letter in own if letter in other and letter not in made]
    value = product.right if is_left else product.left
    if facts.scores is None or not inner or _is_parameter(value, watch.facts.get(value)):
        if len(facts.axes) == len(made) == len(own):  # heads are mixed
            watch.facts[result] = replace(facts, axes=tuple(dict(zip(own, facts.axes)).get(x, OTHER) for x in made))
        return
    added = facts.axes[own.index(inner[0])] if len(facts.axes) == len(own) else OTHER
    _check(watch, facts.scores, weights, added)
    known = _known(watch.facts.get(value), value)
    labels = dict(zip(other, known.axes))
    axes = [FEATURES if labels.get(x) == FEATURES or x == made[-1] and x in other and x not in own
            else HEADS if labels.get(x) == HEADS else OTHER for x in made]
    if len(made) == 4 and HEADS not in axes and made[1] in own and made[1] in other:
        axes[1] = HEADS
    watch.facts[result] = Facts(tuple(axes), kind="output")


def _check(watch: Watch, scores: Scores, weights: torch.Tensor, added: str) -> None:
    watch.report.has_checked = True
    add = functools.partial(watch.add, at=scores.at)
    if scores.mixture:
        calls.add_mixture(add, scores.mixture)
    elif scores.is_between_heads:
        add("layout", "the product is that of the heads of one position: the heads that were split from the features "
            "are where positions are expected", "q.transpose(1, 2) @ k.transpose(1, 2).transpose(-2, -1)")
    elif not scores.is_transposed:
        add("transposed-keys", "the product adds over features of the query and positions of the key",
            "q @ k.transpose(-2, -1)")
    if scores.normalised is not None and added in (QUERIES, KEYS) and scores.normalised != added:
        add("softmax-axis", "the softmax is over another axis than the one over which values are added: the weights of "
            "a query do not add up to 1", "scores.softmax(dim=-1) @ v, for scores [..., queries, keys]")
    if scores.normalizer == "exp" and not scores.is_shifted:
        add("softmax-maximum", "softmax does not subtract the row maximum: scores above 88 overflow in f32",
            "scores.softmax(dim=-1)")
    if scores.is_constant:
        calls.add_constant(add)
    _check_scale(add, scores)
    for finding in scores.pending if scores.normalizer != "sigmoid" else []:
        watch.add(*finding)
    if scores.is_masked_late and not scores.is_masked:
        add("mask-late", "weights are masked after the softmax, so that the weights of a query do not add up to 1",
            'scores.masked_fill(~visible, float("-inf")).softmax(dim=-1)')
    if scores.has_empty_row and calls.is_readable(weights) and bool(weights.isnan().any()):
        add("empty-row", "softmax of a fully masked row is NaN; attention gives 0",
            "F.scaled_dot_product_attention(q, k, v, attn_mask=visible), which gives 0")
    if not scores.is_masked and weights.ndim > 1 and weights.shape[-1] > 1:
        calls.check_padding(watch.report, add, int(weights.shape[0]), int(weights.shape[-1]),
                            'scores.masked_fill((ids == padding)[:, None, None, :], float("-inf"))')


def _check_scale(add: scales.Add, scores: Scores) -> None:
    before, given = scores.factors
    d = scores.head_size
    if scores.normalizer == "sigmoid" or scores.is_free:
        return
    if scales.is_near(before * given, 1) and d > 1 and not scores.has_bias:
        add("scale-missing", f"scores are not scaled; expected 1/√{d}: without it their size grows with √d and the "
            "softmax saturates", f"q @ k.transpose(-2, -1) * {d}**-0.5")
        return
    scales.check_scale(add, given, before, d, scores.heads, scores.width, f"q @ k.transpose(-2, -1) * {d}**-0.5")
