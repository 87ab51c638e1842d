"""The peers of the CPU benchmark. Each is constructed with the number of threads, in its own process."""

from .jax_peer import Jax
from .onnx_peer import OnnxRuntime
from .torch_peers import BestTorch, FlexTorch, NaiveTorch, RegroupedTorch

PEERS = {peer.name: peer for peer in (BestTorch, RegroupedTorch, NaiveTorch, FlexTorch, OnnxRuntime, Jax)}
# Peers without a compilation step.
QUICK = ("torch", "torch regrouped", "onnxruntime")
