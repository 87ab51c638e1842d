"""Hard attention written by hand, with the gradient of a softmax, as `handwritten.py` has attention."""

import torch
from handwritten import Block
from torch import einsum


class Hard(Block):
    """Weights that are 1 at the greatest score, as x-transformers computes them."""

    def scores(self, q, k):
        return (q @ k.mT * 0.4).masked_fill(torch.ones(8, 8, dtype=torch.bool).triu(1), -torch.finfo(q.dtype).max)

    def place(self, scores):
        return scores.argmax(dim=-1, keepdim=True)

    def one_hot(self, scores):
        return torch.zeros_like(scores).scatter(-1, self.place(scores), 1.0)

    def soft(self, scores):
        return (scores / 1.0).softmax(dim=-1)

    def sum(self, one_hot, soft):
        return one_hot + soft - soft.detach()

    def apply(self, weights, v):
        return weights.type(v.dtype) @ v

    def attend(self, q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        scores = self.scores(q, k)
        return self.apply(self.sum(self.one_hot(scores), self.soft(scores)), v).transpose(1, 2)


class OneHeadOfValues(Hard):
    """The gradient is added before the ones, and keys and values have one head."""

    def scores(self, q, k):
        return einsum("bhid,bjd->bhij", q, k[:, 0])

    def sum(self, one_hot, soft):
        return soft - soft.detach() + one_hot

    def apply(self, weights, v):
        return einsum("bhij,bjd->bhid", weights, v[:, 1])


class InStatements(Hard):
    """The ones are written in place, at a maximum that is returned with its key."""

    def one_hot(self, scores):
        zeros = torch.zeros_like(scores)
        zeros.scatter_(3, scores.detach().max(-1, keepdim=True)[1], 1)
        return zeros

    def sum(self, one_hot, soft):
        one_hot += soft
        return one_hot.sub_(soft.detach())


class EqualScores(Hard):
    """The first of equal scores counts; a bias of heads and keys has a gradient."""

    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.randn(4, 1, 8))

    def scores(self, q, k):
        return (q @ k.mT + self.bias).masked_fill(torch.arange(8) % 3 == 1, 9.0)

    def sum(self, one_hot, soft):
        return one_hot - (soft.detach() - soft)


class OfQueriesAndValues(Hard):
    """Weights of columns of the scores, and values that are multiplied from the left."""

    def scores(self, q, k):
        return (q @ k.mT).mT

    def place(self, scores):
        return torch.argmax(scores, -2, True)

    def one_hot(self, scores):
        return torch.zeros(2, 4, 8, 8, dtype=scores.dtype).scatter(2, self.place(scores), 1.0)

    def soft(self, scores):
        return scores.softmax(-2)

    def apply(self, weights, v):
        return (v.mT @ weights).mT


class GatedHard(Hard):
    """Weights times a gate, plus weights of positions."""

    def __init__(self):
        super().__init__()
        self.gate, self.places = torch.nn.Parameter(torch.randn(4, 1, 1)), torch.nn.Parameter(torch.randn(4, 8, 8))

    def apply(self, weights, v):
        return (weights * self.gate + self.places) @ v


class DetachedScores(Hard):
    """Only the values have a gradient."""

    def attend(self, q, k, v):
        return super().attend(q.detach(), k.detach(), v)


class InParts(Hard):
    """Three dimensions before the queries, and one head of keys and values for all others."""

    def scores(self, q, k):
        return q @ k.mT * 0.4

    def attend(self, q, k, v):
        q, k, v = (x.reshape(2, 2, 4, -1, 6).transpose(2, 3) for x in (q, k[:, :, :1], v[:, :, 1:2]))
        scores = self.scores(q, k)
        return (self.sum(self.one_hot(scores), self.soft(scores)) @ v).transpose(2, 3)


RAISED = [Hard, OneHeadOfValues, InStatements, EqualScores, OfQueriesAndValues, GatedHard, DetachedScores, InParts]


# --- near misses ------------------------------------------------------------------------------------------------------


class Least(Hard):
    def place(self, scores):
        return scores.argmin(dim=-1, keepdim=True)


class OfQueries(Hard):
    """The greatest score of each key, at whose query a 1 is."""

    def one_hot(self, scores):
        return torch.zeros_like(scores).scatter(-2, scores.argmax(dim=-2, keepdim=True), 1.0)


class OtherAxis(Hard):
    """The key of a query's maximum is taken for the place of a query."""

    def one_hot(self, scores):
        return torch.zeros_like(scores).scatter(-2, self.place(scores), 1.0)


class OtherPlace(Hard):
    """The query of a key's maximum is taken for the place of a key."""

    def place(self, scores):
        return scores.argmax(dim=-2, keepdim=True)


class OfNegatedScores(Hard):
    def place(self, scores):
        return (-scores).argmax(dim=-1, keepdim=True)


class OfOtherScores(Hard):
    """The softmax has a bias that the maximum has not."""

    def soft(self, scores):
        return (scores + torch.arange(8) * 0.1).softmax(dim=-1)


class OtherTemperature(Hard):
    """Scores that differ may be equal after a division."""

    def soft(self, scores):
        return (scores / 3).softmax(dim=-1)


class OverAllKeys(Hard):
    """One maximum of all rows."""

    def place(self, scores):
        return scores.amax(-2, keepdim=True).expand_as(scores).argmax(dim=-1, keepdim=True)


class Twos(Hard):
    def one_hot(self, scores):
        return torch.zeros_like(scores).scatter(-1, self.place(scores), 2.0)


class Ones(Hard):
    def one_hot(self, scores):
        return torch.ones_like(scores).scatter(-1, self.place(scores), 1.0)


class WrittenZeros(Hard):
    """What is written to are no zeros any more; the write is before the scores."""

    def attend(self, q, k, v):
        self.zeros = torch.zeros(2, 4, 8, 8, dtype=q.dtype)
        self.zeros[..., :3] = 0.5
        return super().attend(q, k, v)

    def one_hot(self, scores):
        return self.zeros.scatter(-1, self.place(scores), 1.0)


class WrittenOnes(Hard):
    """A part of the weights is written to, in another tensor of their memory."""

    def one_hot(self, scores):
        one_hot = super().one_hot(scores)
        one_hot[:, 1:].mul_(2)
        return one_hot


class SecondKey(Hard):
    def place(self, scores):
        return scores.topk(2, dim=-1)[1][..., 1:]


class NegatedGradient(Hard):
    def sum(self, one_hot, soft):
        return one_hot + soft.detach() - soft


class NoGradient(Hard):
    def sum(self, one_hot, soft):
        return one_hot + soft - soft


class TwiceTheGradient(Hard):
    def sum(self, one_hot, soft):
        return one_hot + 2 * soft - 2 * soft.detach()


class LessSquares(Hard):
    def sum(self, one_hot, soft):
        return one_hot + soft - soft.square()


class SoftToo(Hard):
    def sum(self, one_hot, soft):
        return one_hot + soft - one_hot.detach()


class Removed(Hard):
    def sum(self, one_hot, soft):
        return soft - one_hot - soft.detach()


class ReturnedPlaces(Hard):
    """Another node reads the place of the maximum."""

    def place(self, scores):
        self.places = super().place(scores)
        return self.places

    def forward(self, x):
        return super().forward(x) + self.places.sum()


class SoftOverQueries(Hard):
    def soft(self, scores):
        return scores.softmax(dim=-2)


class LessOtherScores(Hard):
    """The scores of the first head are exactly equal, which they are not if parts of them are computed twice."""

    def scores(self, q, k):
        scores = q @ k.mT * 0.4
        return scores - scores[:, :1]


class Capped(Hard):
    """Many scores are close to the bound, where they become equal."""

    def scores(self, q, k):
        return torch.tanh(q @ k.mT * 0.4) * 3


NOT_RAISED = [Least, OfQueries, OtherAxis, OtherPlace, OfNegatedScores, OfOtherScores, OtherTemperature, OverAllKeys,
              Twos, Ones, WrittenZeros, WrittenOnes, SecondKey, NegatedGradient, NoGradient, TwiceTheGradient,
              LessSquares, SoftToo, Removed, ReturnedPlaces, SoftOverQueries, LessOtherScores, Capped]
