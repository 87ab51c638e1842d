"""Attention written by hand, in the forms that models of other libraries have. A module maps [2, 8, 24] (or what `shape`
says) to a tensor, and its `attend` is what is raised."""

import torch
from torch import einsum, nn


class Block(nn.Module):
    """Projections around `attend`, which takes queries, keys and values [batch, tokens, 4 heads, 6]."""

    shape = (2, 8, 24)

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(24, 72)
        self.out = nn.Linear(24, 24)

    def split(self, x):
        return self.qkv(x).reshape(*x.shape[:2], 3, 4, 6).unbind(2)

    def forward(self, x):
        return self.out(self.attend(*self.split(x)).reshape(*x.shape))


class Plain(Block):
    def attend(self, q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return ((q @ k.mT * 6**-0.5).softmax(-1) @ v).transpose(1, 2)


class ScaledQueries(Block):
    """Queries are scaled, weights go through a dropout of eval mode."""

    def attend(self, q, k, v):
        q, k, v = (x.permute(0, 2, 1, 3) for x in (q, k, v))
        weights = torch.softmax(torch.matmul(q * 6**-0.5, k.transpose(-2, -1)), dim=-1)
        weights = nn.functional.dropout(weights, 0.1, self.training)
        return torch.matmul(weights, v).permute(0, 2, 1, 3)


class Windows(Block):
    """Windows with a table of biases by head, and a mask by window that is added on a view of the scores."""

    shape = (6, 8, 24)

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(4, 15))
        self.register_buffer("index", torch.arange(8)[:, None] - torch.arange(8) + 7)
        self.register_buffer("mask", torch.where(torch.rand(3, 8, 8) < 0.3, -100.0, 0.0))

    def attend(self, q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        scores = q * 6**-0.5 @ k.transpose(-2, -1)
        scores = scores + self.table[:, self.index].unsqueeze(0)
        scores = scores.view(-1, 3, 4, 8, 8) + self.mask.unsqueeze(1).unsqueeze(0)
        weights = torch.softmax(scores.view(-1, 4, 8, 8), dim=-1)
        return (weights @ v).transpose(1, 2)


class ChannelsFirst(Block):
    """Values times transposed weights, with a bias of heads."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(4, 8, 8))

    def attend(self, q, k, v):
        q, k, v = (x.permute(0, 2, 3, 1) for x in (q, k, v))
        weights = (q.transpose(-2, -1) @ k * 0.3 + self.bias).softmax(dim=-1)
        return (v @ weights.transpose(-2, -1)).permute(0, 3, 1, 2)


class Einsum(Block):
    """Einsums in the order of the model, and a causal mask that fills with the lowest number."""

    def attend(self, q, k, v):
        scores = einsum("bihd,bjhd->bhij", q, k) * 0.4
        hidden = torch.ones(8, 8, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -torch.finfo(scores.dtype).max)
        scores = scores - scores.amax(dim=-1, keepdim=True).detach()
        return einsum("bhij,bjhd->bihd", scores.softmax(dim=-1, dtype=torch.float32).type(scores.dtype), v)


class OneHeadOfKeys(Block):
    def attend(self, q, k, v):
        q = q.transpose(1, 2)
        scores = einsum("b h i d, b j d -> b h i j", q, k[:, :, 0]) * 0.4
        return einsum("b h i j, b j d -> b h i d", scores.softmax(-1), v[:, :, 1]).transpose(1, 2)


class JoinedHeads(Block):
    """Batch and heads are one dimension of the products, and two of the softmax."""

    def attend(self, q, k, v):
        q, k, v = (x.transpose(1, 2).reshape(8, 8, 6) for x in (q, k, v))
        mask = torch.arange(8) < torch.tensor([[5], [8]])
        scores = torch.bmm(q, k.transpose(1, 2)).view(2, 4, 8, 8)
        scores = scores.masked_fill(~mask[:, None, None], float("-inf"))
        weights = scores.softmax(-1).view(8, 8, 8)
        return torch.bmm(weights, v).view(2, 4, 8, 6).transpose(1, 2)


class Added(Block):
    """baddbmm, and a soft cap."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(8, 8, 8))

    def attend(self, q, k, v):
        q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))
        scores = torch.baddbmm(self.bias, q, k.mT, beta=0.5, alpha=0.3)
        return torch.bmm(torch.softmax(torch.tanh(scores / 5) * 5, -1), v).view(2, 4, 8, 6).transpose(1, 2)


class ThreeDimensions(Block):
    """Three dimensions before the queries: batch, parts of the image, heads."""

    def attend(self, q, k, v):
        q, k, v = (x.reshape(2, 2, 4, 4, 6).transpose(2, 3) for x in (q, k, v))
        weights = (q @ k.mT * 0.4).softmax(-1)
        return (weights @ v).transpose(2, 3)


class InPlace(Block):
    def attend(self, q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        scores = q @ k.mT
        scores = scores.mul_(0.4).masked_fill_(torch.ones(8, 8, dtype=torch.bool).tril().logical_not(), float("-inf"))
        return (scores.softmax(-1) @ v).transpose(1, 2)


class Pooled(Block):
    """Fewer keys than queries, a residual of the queries, and no batch."""

    def attend(self, q, k, v):
        q, k, v = q[0, :, 0] * 1, k[0, ::2, 0] * 1, v[0, ::2, 0] * 1
        one = torch.softmax(q @ k.t() * 0.4, 1) @ v + q
        return one[None, :, None].expand(2, 8, 4, 6)


class Sigmoid(Block):
    """Sigmoids in place of a softmax, of scores with a bias and a mask that hides all keys of a row."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(4, 8, 8))

    def attend(self, q, k, v):
        scores = einsum("bihd,bjhd->bhij", q, k) * 0.4 + self.bias
        hidden = torch.ones(8, 8, dtype=torch.bool).triu(0)
        scores = scores.masked_fill(hidden, -torch.finfo(scores.dtype).max)
        return einsum("bhij,bjhd->bihd", scores.sigmoid().type(scores.dtype), v)


class ShiftedSigmoid(Block):
    """A sigmoid is not the same without the maximum that is subtracted; a row hides all keys by infinity."""

    def attend(self, q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        scores = q @ k.mT
        scores = scores - 30 * torch.arange(8)
        scores = scores.masked_fill(torch.arange(8)[:, None] == 3, float("-inf"))
        return (torch.sigmoid(scores) @ v).transpose(1, 2)


class Gated(Block):
    """Weights are mixed with weights of positions by a gate of each head, and divided by their sum."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Parameter(torch.randn(4))
        self.places = nn.Parameter(torch.randn(4, 8, 8))

    def attend(self, q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        weights = self.dropped_before((q @ k.transpose(-2, -1) * 0.4).softmax(dim=-1))
        gate = torch.sigmoid(self.gate).view(1, -1, 1, 1)
        weights = (1.0 - gate) * weights + gate * 2 * self.places.softmax(dim=-1)
        weights /= weights.sum(dim=-1).unsqueeze(-1)
        return (self.dropped_after(weights) @ v).transpose(1, 2)

    def dropped_before(self, weights):
        return weights

    def dropped_after(self, weights):
        return weights


class GatedInEval(Gated):
    """A dropout of eval mode after the division, and before it one of no probability."""

    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.3)

    def dropped_before(self, weights):
        return torch.dropout(weights, 0.0, True)

    def dropped_after(self, weights):
        return self.dropout(weights)


class Selective(Block):
    """Scores less what later queries of the first head have selected, which is written to before it is accumulated."""

    def attend(self, q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        scores = (q @ k.mT * 0.4).masked_fill(torch.ones(8, 8, dtype=torch.bool).triu(1), -1e30)
        selected = scores[:, 0].relu().clone()
        selected[..., -8] = 0.0
        selected = nn.functional.pad((1 - torch.eye(8)) * selected, (0, 0, 1, -1)).cumsum(dim=-2)
        return ((scores - selected[:, None]).softmax(-1) @ v).transpose(1, 2)


RAISED = [Plain, ScaledQueries, Windows, ChannelsFirst, Einsum, OneHeadOfKeys, JoinedHeads, Added, ThreeDimensions,
          InPlace, Pooled, Sigmoid, ShiftedSigmoid, Gated, GatedInEval, Selective]


# --- near misses: not attention, or with another reader ---------------------------------------------------------------


class SoftmaxOfQueries(Block):
    def attend(self, q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return ((q @ k.mT).softmax(-2) @ v).transpose(1, 2)


class Renormalised(Block):
    def attend(self, q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        weights = (q @ k.mT).softmax(-1)
        weights = weights / (1e-9 + weights.sum(dim=-2, keepdim=True))
        return (weights @ v).transpose(1, 2)


class MixedHeads(Block):
    def __init__(self):
        super().__init__()
        self.mix = nn.Parameter(torch.randn(4, 4))

    def attend(self, q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        weights = einsum("bhij,hg->bgij", (q @ k.mT).softmax(-1), self.mix)
        return (weights @ v).transpose(1, 2)


class ReturnedWeights(Block):
    def attend(self, q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        weights = (q @ k.mT).softmax(-1)
        return (weights @ v).transpose(1, 2) + weights.mean()


class OverwrittenValues(Block):
    def attend(self, q, k, v):
        q, k, v = (x.transpose(1, 2).clone() for x in (q, k, v))
        scores = q @ k.mT
        q.mul_(2)
        return (scores.softmax(-1) @ v).transpose(1, 2) + q.transpose(1, 2)


class WrongKeys(Block):
    """Keys of another order than values, because the weights are transposed: 8 queries, 8 keys."""

    def attend(self, q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return ((q @ k.mT).softmax(-1).mT @ v).transpose(1, 2)


class LinearAttention(Block):
    def attend(self, q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return (q.softmax(-1) @ (k.softmax(-2).mT @ v)).transpose(1, 2)


class SlicedScores(Block):
    def attend(self, q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return ((q @ k.mT)[..., :6].softmax(-1) @ v[..., :6, :]).transpose(1, 2)


class ShiftedScores(Block):
    def attend(self, q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return ((q @ k.mT).roll(1, -1).softmax(-1) @ v).transpose(1, 2)


class SigmoidOfMaximum(Block):
    """A sigmoid changes with the maximum that is subtracted, which is computed from scores."""

    def attend(self, q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        scores = q @ k.mT
        return (torch.sigmoid(scores - scores.amax(dim=-1, keepdim=True)) @ v).transpose(1, 2)


class NormalisedSigmoid(Block):
    def attend(self, q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        weights = torch.sigmoid(q @ k.mT)
        return (weights / weights.sum(-1, keepdim=True) @ v).transpose(1, 2)


class GatedByKeys(Block):
    """Weights times a tensor of the keys."""

    def attend(self, q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return ((q @ k.mT).softmax(-1) * torch.arange(8) @ v).transpose(1, 2)


class DroppedAfterGate(Gated):
    """A dropout of training mode, which hardly ever sets an element to 0, after the division."""

    def dropped_after(self, weights):
        return nn.functional.dropout(weights, 1e-9, training=True)


class DroppedBeforeGate(Gated):
    def dropped_before(self, weights):
        return torch.dropout(weights, 1e-9, train=True)


class DividedByOtherSum(Block):
    """Weights are divided by the sum of what they were before a change, over queries, or squared."""

    def attend(self, q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        weights = (q @ k.mT).softmax(-1)
        changed = weights * 2 + torch.eye(8)
        return (changed / changed.sum(-2, keepdim=True) @ v + weights / changed.sum(-1, True) @ v).transpose(1, 2)


class SquaredWeights(Block):
    def attend(self, q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        weights = (q @ k.mT).softmax(-1)
        return ((weights * weights + 1) @ v).transpose(1, 2)


class SelectedAndOverwritten(Block):
    """What is computed from the scores of the first head is a view of them, and the scores are written to."""

    def attend(self, q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        scores = q @ k.mT * 0.4
        first = scores[:, :1]
        scores = scores.mul_(2)
        return ((scores - first).softmax(-1) @ v).transpose(1, 2)


class ShiftedByMean(Block):
    """Scores that are computed with a number of each query and head."""

    def attend(self, q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        scores = q @ k.mT * 0.4
        return ((scores * scores.mean(-1, keepdim=True)).softmax(-1) @ v).transpose(1, 2)


NOT_RAISED = [SoftmaxOfQueries, Renormalised, MixedHeads, ReturnedWeights, OverwrittenValues, WrongKeys,
              LinearAttention, SlicedScores, ShiftedScores, SigmoidOfMaximum, NormalisedSigmoid,
              GatedByKeys, DroppedAfterGate, DroppedBeforeGate, DividedByOtherSum, SquaredWeights,
              SelectedAndOverwritten, ShiftedByMean]
