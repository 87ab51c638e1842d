"""Trees of drafts: new tokens that a target model verifies in one call, after a cache (serving.py).

The forms are those of Medusa (Cai et al. 2024) and EAGLE, a boolean matrix of the tokens that each one sees, and of
SpecInfer (Miao et al. 2024), the parent of each token.
"""

from __future__ import annotations

import torch

from saccade._opaque import is_compiling


def visible_of(name: str, tree: torch.Tensor, batch: int, n: int, count: torch.Tensor | None) -> torch.Tensor:
    """The matrix of a tree, [batch, n, n]: whether new token i attends to new token j.

    Args:
        name: of the function, for messages.
        tree: boolean [n, n] or [batch, n, n], which is the result; or int32 or int64 [n] or [batch, n], the parent of
            each token, a token before it, or -1 for one that follows the cache.
        batch, n: the extents that are expected.
        count: [batch], the tokens of each sequence; parents of the others are not read. None for all.

    Raises:
        TypeError: another element type.
        ValueError: other extents; a parent that is not before its token. It names sequence and token.
    """
    is_matrix = tree.dtype == torch.bool
    if not is_matrix and tree.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"{name}: tree has element type {tree.dtype}, expected torch.bool for a matrix, torch.int32 or "
                        "torch.int64 for parents")  # fmt: skip
    own = (n, n) if is_matrix else (n,)
    shape = tuple(tree.shape)
    if shape not in (own, (batch, *own)):
        what = "a matrix" if is_matrix else "parents"
        raise ValueError(f"{name}: tree has shape {shape}, expected {own} or {(batch, *own)} for {what} of {n} tokens")
    tree = tree.expand(batch, *own)
    return tree if is_matrix else _ancestors(name, tree, n, count)


def _ancestors(name: str, parents: torch.Tensor, n: int, count: torch.Tensor | None) -> torch.Tensor:
    tokens = torch.arange(n, device=parents.device)
    if count is not None:
        parents = parents.masked_fill(tokens >= count[:, None], -1)
    if not is_compiling() and parents.is_cpu:
        wrong = (parents < -1) | (parents >= tokens)
        if wrong.any():
            sequence, token = wrong.nonzero()[0].tolist()
            raise ValueError(f"{name}: tree has parent {int(parents[sequence, token])} of token {token}, expected -1 "
                             f"to {token - 1}, in sequence {sequence}")
    # A token and its ancestors are the sum of the powers of the matrix of parents P: the inverse of I - P, which is
    # lower triangular with ones on its diagonal. All numbers are 0 or 1.
    identity = torch.eye(n, device=parents.device).expand(parents.shape[0], n, n)
    steps = (parents[..., None] == tokens).float()
    return torch.linalg.solve_triangular(identity - steps, identity, upper=False, unitriangular=True) > 0.5
