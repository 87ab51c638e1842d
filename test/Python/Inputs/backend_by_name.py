"""torch.compile finds the backend of the installed package by its name, before anything of saccade is imported."""

import importlib.metadata
import sys

import torch

if not importlib.metadata.entry_points(group="torch_dynamo_backends", name="saccade"):
    import saccade.torch.backend  # noqa: F401  (a source tree has no entry points)
assert "saccade" in torch._dynamo.list_backends(exclude_tags=())
add = torch.compile(lambda x: x + 1, backend="saccade", options={"inner": "eager"})
assert add(torch.zeros(2)).tolist() == [1, 1]
assert "saccade.torch.backend" in sys.modules
