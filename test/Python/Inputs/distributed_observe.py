"""Checks `saccade.observe` in 2 processes with batches of their own: both get the means, the maximum, and the NaN of one.
What the processes alone would have is computed before the group begins."""

import os
import tempfile
import warnings

import numpy
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
import torch.nn.functional as F
from torch import nn

import saccade

RANKS = 2


class Layer(nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x)


def batch(rank):
    return torch.randn(1, 2, 20, 8, generator=torch.Generator().manual_seed(rank)) * (1 + rank)


def observe(x, layers=1):
    model = nn.Sequential(*[Layer() for _ in range(layers)])
    with saccade.observe(model) as record:
        model(x)
    return record


def check(rank, path):
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    alone = [observe(batch(other)) for other in range(RANKS)]
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=RANKS)
    record = observe(batch(rank))
    for name, steps in record.statistics.items():
        found = [each.statistics[name][0][0] for each in alone]
        expected = numpy.max(found, 0) if name == "max" else numpy.mean(found, 0)
        numpy.testing.assert_allclose(steps[0][0], expected, rtol=1e-5, err_msg=name)
    for one, *others in zip(record.maps, *[each.maps for each in alone]):
        numpy.testing.assert_allclose(one.numbers(), numpy.mean([x.numbers() for x in others], 0), atol=5e-3)

    x = batch(rank)
    if rank:
        x[0, 1, 3, 2] = torch.nan
    (event,) = [event for event in observe(x).events if event.kind == "nan"]
    assert (event.layer, event.head, event.query) == (0, 1, 3)

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        record = observe(batch(rank), layers=1 + rank)
    assert any("other layers" in str(each.message) for each in warned)
    numpy.testing.assert_array_equal(record.statistics["max"][0][0], alone[rank].statistics["max"][0][0])
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(check, (os.path.join(folder, "store"),), nprocs=RANKS)
    print("equal")
