"""`saccade.merge_state` in graphs of torch.compile and torch.export, by operators of PyTorch."""

from __future__ import annotations

import torch


def merge(out: torch.Tensor, lse: torch.Tensor, other_out: torch.Tensor, other_lse: torch.Tensor,
          layout: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The formula of `saccade._merge`, for outputs with the dimensions of `layout`."""
    rows = [dim for dim in "bhs" if dim in layout]
    largest = torch.maximum(lse, other_lse)
    reference = torch.where(largest == -torch.inf, 0.0, largest)
    weight, other_weight = torch.exp(lse - reference), torch.exp(other_lse - reference)
    total = weight + other_weight
    safe_total = torch.where(largest == -torch.inf, 1.0, total)

    def over_layout(share: torch.Tensor) -> torch.Tensor:
        return share.permute([rows.index(dim) for dim in layout if dim != "d"]).unsqueeze(layout.index("d"))

    merged = out * over_layout(weight / safe_total) + other_out * over_layout(other_weight / safe_total)
    return merged.to(out.dtype), reference + torch.log(total)
