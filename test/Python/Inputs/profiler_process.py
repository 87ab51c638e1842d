"""Imports torch after saccade, and prints how many spans the first call is in PyTorch's profiler."""

import saccade

import torch  # isort: skip
from torch.profiler import ProfilerActivity, profile  # isort: skip

q = torch.randn(1, 2, 8, 16)
with torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as found:
    saccade.attention(q, q, q)
print(sum(event.count for event in found.key_averages() if event.key == "saccade.attention"))
