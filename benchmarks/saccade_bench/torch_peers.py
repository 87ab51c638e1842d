"""PyTorch as a peer: scaled_dot_product_attention, unfused attention, and FlexAttention."""

import math

import numpy as np

from .workers import Worker

# Peers that materialize the score matrix skip cases where it is larger.
MAX_SCORE_BYTES = 1 << 30


def additive_mask(case):
    """[queries, keys] in f32: 0 for visible pairs, -inf for masked ones."""
    mask = np.full((case.queries, case.keys), -np.inf, np.float32)
    for query in range(case.queries):
        begin, end = case.visible_keys(query)
        mask[query, begin:end] = 0
    return mask


class TorchWorker(Worker):
    """Base of the PyTorch contenders: sets the number of threads; tensors share the memory of the input arrays."""

    package = "torch"

    def __init__(self, threads):
        import torch

        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self.torch = torch

    def tensor(self, array):
        if array.dtype == np.uint16:
            return self.torch.from_numpy(array.view(np.int16)).view(self.torch.bfloat16)
        return self.torch.from_numpy(array)

    def heads_first(self, case, inputs):
        """Query, key and value as [b, h, s, d] views."""
        return [case.by_row(self.tensor(array)) for array in inputs[:3]]

    def score_mask(self, case, inputs, flag_for_causal):
        """The additive score mask in the type of the inputs, or None."""
        parts = [self.tensor(inputs[3])] if case.has_bias else []
        if case.window or (case.mask == "causal" and not (flag_for_causal and not parts)):
            parts.append(self.torch.from_numpy(additive_mask(case)).to(self.tensor(inputs[0]).dtype))
        return sum(parts[1:], parts[0]).contiguous() if parts else None

    def bind(self, case, inputs):
        function = self.function(case, inputs)
        result = None

        def call():
            nonlocal result
            with self.torch.inference_mode():
                result = function()

        # by_row expects the layout of the case.
        return call, lambda: case.by_row(result).double().numpy()


class BestTorch(TorchWorker):
    """scaled_dot_product_attention with its flags if possible, else with a precomputed mask; addmm(out=) for GEMM."""

    name = "torch"

    def function(self, case, inputs):
        torch = self.torch
        if case.kind.operation == "gemm":
            lhs, rhs, bias = map(self.tensor, inputs)
            weights = rhs.t().contiguous().t()  # the layout of a linear layer
            output = torch.empty(case.output_shape, dtype=lhs.dtype)
            return lambda: torch.addmm(bias, lhs, weights, out=output)
        query, key, value = self.heads_first(case, inputs)
        options = {"enable_gqa": True} if case.kv_heads != case.heads else {}
        mask = self.score_mask(case, inputs, flag_for_causal=True)
        if mask is not None:
            options["attn_mask"] = mask
        elif case.mask == "causal":
            options["is_causal"] = True
        return lambda: torch.nn.functional.scaled_dot_product_attention(query, key, value, **options)


class RegroupedTorch(TorchWorker):
    """scaled_dot_product_attention in decode; the queries of a KV head are folded into the query dimension."""

    name = "torch regrouped"

    @staticmethod
    def supports(case):
        return case.is_decode and case.heads != case.kv_heads and not case.has_bias

    def function(self, case, inputs):
        query, key, value = self.heads_first(case, inputs)
        query = query.reshape(case.batch, case.kv_heads, -1, case.depth)
        attention = self.torch.nn.functional.scaled_dot_product_attention
        return lambda: attention(query, key, value).view(case.batch, case.heads, 1, case.depth)


class NaiveTorch(TorchWorker):
    """Unfused attention: matmul, mask, softmax, matmul; the query heads of a KV head share one matmul."""

    name = "torch naive"

    @staticmethod
    def supports(case):
        return case.kind.operation == "attention" and case.score_bytes <= MAX_SCORE_BYTES

    def function(self, case, inputs):
        torch = self.torch
        query, key, value = self.heads_first(case, inputs)
        mask = self.score_mask(case, inputs, flag_for_causal=False)
        scale = 1 / math.sqrt(case.depth)
        grouped = (case.batch, case.kv_heads, -1, case.depth)
        split = (case.batch, case.heads, case.queries, case.keys)

        def compute():
            scores = torch.matmul((query * scale).reshape(grouped), key.transpose(-2, -1))
            if mask is not None:
                scores.view(split).add_(mask)
            weights = torch.softmax(scores, -1)
            return torch.matmul(weights, value).view(case.batch, case.heads, case.queries, case.depth)

        return compute


class FlexTorch(TorchWorker):
    """FlexAttention, compiled for each case; block mask and compilation are timed separately."""

    name = "flex"

    @staticmethod
    def supports(case):
        return case.kind.operation == "attention" and case.type != "f64"

    def __init__(self, threads):
        super().__init__(threads)
        from torch.nn.attention import flex_attention

        self.flex = flex_attention

    def function(self, case, inputs):
        torch = self.torch
        query, key, value = self.heads_first(case, inputs)
        options = {"enable_gqa": True} if case.kv_heads != case.heads else {}
        if case.mask != "full":
            window = case.window or case.keys
            visible = lambda b, h, i, j: (j <= i) & (i - j < window) if case.window else j <= i
            with self.outside_timing("block mask"):
                options["block_mask"] = self.flex.create_block_mask(visible, None, None, case.queries, case.keys,
                                                                    device="cpu")
        if case.has_bias:
            table = self.tensor(inputs[3])
            options["score_mod"] = lambda score, b, h, i, j: score + table[h, i, j]
        torch.compiler.reset()
        compiled = torch.compile(self.flex.flex_attention, dynamic=False, fullgraph=True)
        with self.outside_timing("first call"), torch.inference_mode():
            compiled(query, key, value, **options)
        return lambda: compiled(query, key, value, **options)
