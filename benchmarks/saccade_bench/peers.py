"""Who is measured beside us; each is started with the number of threads, in a process of its own."""

from .jax_peer import Jax
from .onnx_peer import OnnxRuntime
from .torch_peers import BestTorch, FlexTorch, NaiveTorch, RegroupedTorch

PEERS = {peer.name: peer for peer in (BestTorch, RegroupedTorch, NaiveTorch, FlexTorch, OnnxRuntime, Jax)}
# Those that need no compilation of their own.
QUICK = ("torch", "torch regrouped", "onnxruntime")
