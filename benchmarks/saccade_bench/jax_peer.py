"""JAX as a peer: jax.nn.dot_product_attention, compiled for each case."""

import os

import numpy as np

from .torch_peers import MAX_SCORE_BYTES
from .workers import Worker


class Jax(Worker):
    """Takes [b, s, h, d] inputs for every layout of the case; causal and window are flags of the function."""

    name = "jax"
    package = "jax"

    @staticmethod
    def supports(case):
        return case.kind.operation == "attention" and case.type != "f64" and case.score_bytes <= MAX_SCORE_BYTES

    def __init__(self, threads):
        # XLA uses as many threads as the process has processors, which are limited to `threads`.
        os.environ["JAX_PLATFORMS"] = "cpu"
        import jax
        import ml_dtypes

        self.jax, self.bfloat16 = jax, ml_dtypes.bfloat16

    def array(self, array):
        return self.jax.numpy.array(array.view(self.bfloat16) if array.dtype == np.uint16 else array)

    def bind(self, case, inputs):
        compact = [np.ascontiguousarray(case.by_row(array).swapaxes(1, 2)) for array in inputs[:3]]
        query, key, value = map(self.array, compact)
        bias = self.array(inputs[3])[None] if case.has_bias else None
        options = {"is_causal": case.mask == "causal"}
        if case.window:
            options["local_window_size"] = (case.window - 1, 0)
        function = self.jax.nn.dot_product_attention
        attention = self.jax.jit(lambda q, k, v, table: function(q, k, v, bias=table, **options))
        with self.outside_timing("first call"):
            attention(query, key, value, bias).block_until_ready()
        result = None

        def call():
            nonlocal result
            result = attention(query, key, value, bias).block_until_ready()

        return call, lambda: case.by_row(np.asarray(result).astype(np.float64).swapaxes(1, 2))
