"""Statistics of attention from all weights in float64, for comparison with those of `saccade.observe`."""

import numpy
import torch


def statistics(q, k, visible, bias=0.0, scale=None, sink_keys=1):
    """By name: an array [heads]. `visible` and `bias` broadcast to [batch, heads, queries, keys]."""
    q, k = q.detach().double(), k.detach().double()
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    scores = q @ k.mT * (q.shape[3] ** -0.5 if scale is None else scale) + bias
    visible = visible.expand(scores.shape)
    scores = scores.masked_fill(~visible, -torch.inf)
    weights = scores.softmax(-1).nan_to_num(0)
    entropy = -(weights * weights.clamp(min=1e-300).log()).sum(-1)
    count = visible.sum(-1)
    diagonal = torch.arange(min(scores.shape[2:]))
    own = torch.zeros(scores.shape[:3], dtype=torch.double)
    own[..., diagonal] = weights[..., diagonal, diagonal]

    def mean(x, is_counted):
        return (x.where(is_counted, 0).sum((0, 2)) / is_counted.sum((0, 2))).numpy()

    sees = count > 0
    return {"entropy": mean(entropy, sees), "effective_keys": mean(entropy.exp(), sees),
            "max": scores.amax((0, 2, 3)).numpy(), "sink": mean(weights[..., :sink_keys].sum(-1), sees),
            "diagonal": mean(own, sees), "uniformity": mean(entropy / count.log(), count > 1), "weights": weights}  # fmt: skip


def check(record, layer, expected, step=-1):
    """Compares the statistics of a layer."""
    for name, steps in record.statistics.items():
        numpy.testing.assert_allclose(steps[step][layer], expected[name], rtol=3e-5, atol=3e-6, err_msg=name)
