"""Rotary positions (Su et al. 2021) of queries and of new rows of caches (serving.py)."""

from __future__ import annotations

import torch

from saccade._opaque import is_compiling


def check_tables(name: str, cos: torch.Tensor | None, sin: torch.Tensor | None, depth: int, rows: int = 0) -> None:
    """Checks cosines and sines [positions, pairs] for a head size, and that they have `rows` positions."""
    if cos is None or sin is None:
        raise TypeError(f"{name}: one of rotary_cos and rotary_sin is None, expected both or neither")
    if cos.dim() != 2 or cos.shape != sin.shape or not 1 <= cos.shape[1] <= depth // 2:
        raise ValueError(f"{name}: rotary_cos and rotary_sin have shapes {tuple(cos.shape)} and {tuple(sin.shape)}, "
                         f"expected [positions, pairs] with at most {depth // 2} pairs")  # fmt: skip
    if cos.shape[0] < rows:
        raise ValueError(f"{name}: rotary_cos has {cos.shape[0]} positions, expected at least {rows}, those of the "
                         "cache")  # fmt: skip


def positions_of(at: torch.Tensor, n: int, count: torch.Tensor | None, tree: torch.Tensor | None) -> torch.Tensor:
    """The positions of n new tokens of each sequence, [batch, n]: the first follows `at` tokens. In a tree (trees.py)
    a token follows its ancestors. Padding, the tokens from `count` on, has position 0."""
    tokens = torch.arange(n, device=at.device)
    positions = at.long()[:, None] + (tokens if tree is None else tree.sum(-1) - 1)
    return positions if count is None else positions.masked_fill(tokens >= count[:, None], 0)


def ragged_positions_of(at: torch.Tensor, cu_seqlens: torch.Tensor, n: int, *, is_first: bool = False) -> torch.Tensor:
    """The positions of n new tokens of ragged sequences, [n], or with `is_first` those of the first token of their
    sequence. Tokens after the last sequence have position 0."""
    tokens = torch.arange(n, device=at.device)
    sequence = torch.searchsorted(cu_seqlens, tokens.to(cu_seqlens.dtype), right=True) - 1
    own = sequence.clamp(0, at.shape[0] - 1)
    positions = at.long()[own]
    if not is_first:
        positions = positions + tokens - cu_seqlens.long()[own]
    return positions.masked_fill(sequence >= at.shape[0], 0)


def rotate(name: str, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, positions: torch.Tensor, layout: str,
           interleaved: bool) -> torch.Tensor:
    """Rotates the first 2 · pairs elements of each token, in float32 (float64 for float64).

    Args:
        name: of the function, for messages.
        x: queries or keys with the dimensions of `layout`, of which d is the last one.
        cos, sin: [positions, pairs].
        positions: of the tokens, with the dimensions of `layout` without h and d.
        interleaved: whether pairs are elements 2n and 2n + 1, as in GPT-J; else n and n + pairs, as in GPT-NeoX.

    Raises:
        ValueError: a position that the tables do not have. It names the sequence, or the row of ragged ones.
    """
    if not is_compiling() and positions.is_cpu and positions.numel():
        wrong = (positions >= cos.shape[0]) | (positions < 0)
        if wrong.any():
            place = wrong.nonzero()[0].tolist()
            raise ValueError(f"{name}: a new token has position {int(positions[tuple(place)])}, expected 0 or more and "
                             f"less than {cos.shape[0]}, the positions of rotary_cos, in "
                             f"{'sequence' if 'b' in layout else 'row'} {place[0]}")
    precision = torch.float64 if x.dtype == torch.float64 else torch.float32
    heads, depth = layout.index("h"), 2 * cos.shape[1]
    c, s = (table[positions].to(precision).unsqueeze(heads) for table in (cos, sin))
    own = x[..., :depth].to(precision)
    if interleaved:
        a, b = own.unflatten(-1, (-1, 2)).unbind(-1)
        turned = torch.stack([a * c - b * s, b * c + a * s], -1).flatten(-2)
    else:
        a, b = own.chunk(2, -1)
        turned = torch.cat([a * c - b * s, b * c + a * s], -1)
    turned = turned.to(x.dtype)
    return turned if depth == x.shape[-1] else torch.cat([turned, x[..., depth:]], -1)
