"""The peers of the CPU benchmark. Each is constructed with the number of threads, in its own process."""

NAMES = ("torch", "torch regrouped", "torch naive", "flex", "onnxruntime", "jax")
# Peers without a compilation step.
QUICK = ("torch", "torch regrouped", "onnxruntime")


def load():
    """The classes of the peers by name. They need NumPy, and their constructors the peer."""
    from .jax_peer import Jax
    from .onnx_peer import OnnxRuntime
    from .torch_peers import BestTorch, FlexTorch, NaiveTorch, RegroupedTorch

    classes = {peer.name: peer for peer in (BestTorch, RegroupedTorch, NaiveTorch, FlexTorch, OnnxRuntime, Jax)}
    assert tuple(classes) == NAMES
    return classes
