"""Attention written by hand with writes between its products, as `handwritten.py` has it."""

import torch
from handwritten import Block


def products(q, k, v):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return q @ k.mT, v


class InStatements(Block):
    """The results of writes to scores are not read, but the scores are."""

    def attend(self, q, k, v):
        scores, v = products(q, k, v)
        scores.mul_(0.4)
        scores.masked_fill_(torch.ones(8, 8, dtype=torch.bool).triu(1), float("-inf"))
        scores += torch.arange(8)
        return (scores.softmax(-1) @ v).transpose(1, 2)


class CopiedScores(Block):
    """All of the scores are replaced by what is computed from them."""

    def attend(self, q, k, v):
        scores, v = products(q, k, v)
        scores[:, :, 0:] = (scores[..., 0:, :].view(2, 4, 8, 2, 4) + torch.arange(2)[:, None]).view(2, 4, 8, 8)
        return (scores.softmax(-1) @ v).transpose(1, 2)


class CreatedMask(Block):
    """A mask is created after the scores, part by part, and another tensor is written to after scores read it."""

    def __init__(self):
        super().__init__()
        self.slopes = torch.nn.Parameter(torch.randn(4, 1, 8))

    def attend(self, q, k, v):
        scores, v = products(q, k, v)
        bias = torch.relu_(self.slopes * 2)
        mask = torch.zeros(8, 8)
        mask[:4, 4:] = -1e30
        mask[4:, :2] = -2.0
        scores = scores + bias + mask
        other = torch.zeros(8)
        other.add_(1)
        return (scores.softmax(-1) @ v).transpose(1, 2) * other.sum()


class OneKey(Block):
    """One query and one key, of which scores have no position."""

    shape = (2, 1, 24)

    def attend(self, q, k, v):
        scores, v = products(q, k, v)
        return ((scores * 0.4).softmax(-1) @ v).transpose(1, 2)


class OneKeyManyQueries(Block):
    def attend(self, q, k, v):
        scores, v = products(q, k[:, :1], v[:, :1])
        return ((scores * 0.4 + 1).softmax(-1) @ v).transpose(1, 2)


RAISED = [InStatements, CopiedScores, CreatedMask, OneKey, OneKeyManyQueries]


# --- near misses ------------------------------------------------------------------------------------------------------


class WrittenThroughView(Block):
    """The scores are read after a write to a view of them."""

    def attend(self, q, k, v):
        scores, v = products(q, k, v)
        scores = scores * 0.4
        scores.view(2, 4, 64).add_(torch.arange(64) % 7)
        return (scores.softmax(-1) @ v).transpose(1, 2)


class WrittenInPart(Block):
    def attend(self, q, k, v):
        scores, v = products(q, k, v)
        scores = scores * 0.4
        scores[..., 2:5] = -3.0
        return (scores.softmax(-1) @ v).transpose(1, 2)


class OlderView(Block):
    """A view that was made before the write is read after it."""

    def attend(self, q, k, v):
        scores, v = products(q, k, v)
        scores = scores * 0.4
        view = scores.transpose(-2, -1)
        scores.mul_(torch.arange(8))
        return (view.mT.softmax(-1) @ v).transpose(1, 2)


class CopiedTransposed(Block):
    """The scores are replaced by scores in another order, and a view of them is read."""

    def attend(self, q, k, v):
        scores, v = products(q, k, v)
        view = scores[..., :, :].mT
        scores[:] = scores * torch.arange(8)
        return (view.softmax(-1) @ v).transpose(1, 2)


class OverwrittenBias(Block):
    """A bias is written to after the scores have read it."""

    def attend(self, q, k, v):
        scores, v = products(q, k, v)
        bias = torch.arange(8.0)
        scores = scores + bias
        bias.mul_(-1)
        return (scores.softmax(-1) @ v).transpose(1, 2) * bias.sum()


class OverwrittenBiasView(Block):
    """A tensor of which the bias is a view is written to after the scores have read it."""

    def attend(self, q, k, v):
        scores, v = products(q, k, v)
        table = torch.arange(64.0).view(8, 8)
        scores = scores + table.mT
        table[1:, 3] = 100.0
        return (scores.softmax(-1) @ v).transpose(1, 2)


class OverwrittenKeys(Block):
    def attend(self, q, k, v):
        q, k, v = (x.transpose(1, 2).clone() for x in (q, k, v))
        scores = q @ k.mT
        k[:, :, 2:].mul_(2)
        return (scores.softmax(-1) @ v).transpose(1, 2) + k.transpose(1, 2)


NOT_RAISED = [WrittenThroughView, WrittenInPart, OlderView, CopiedTransposed, OverwrittenBias, OverwrittenBiasView,
              OverwrittenKeys]
