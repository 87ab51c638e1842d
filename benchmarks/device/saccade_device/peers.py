"""Peers from PyTorch on the stream of the driver: SDPA with each backend, its linear layer, and FlexAttention.

They get copies of the tensors of a row. A peer that raises is missing, with its reason.
"""

from .artifact import bytes_of

SHORT = 16  # peers with at most this number of queries are replayed as graphs, because launches take longer than kernels


class Peers:
    """The peers of a row as functions without arguments, and the reasons why others are missing."""

    def __init__(self, torch, row, names):
        self.torch, self.row, self.peer = torch, row, row.row["peer"]
        self.stream = torch.cuda.ExternalStream(row.driver.stream)
        self.functions, self.missing = {}, {}
        builds = {"torch flash": lambda: self.sdpa("FLASH_ATTENTION"), "torch cudnn": lambda: self.sdpa("CUDNN_ATTENTION"),
                  "torch linear": self.linear, "flex": self.flex}
        with torch.cuda.stream(self.stream):
            self.inputs = [self.tensor(i).requires_grad_(bool(self.peer.get("gradient"))) for i in self.peer["inputs"]]
            for name in names:
                try:
                    self.functions[name] = self.prepare(builds[name]())
                except Exception as error:  # of any kind: the reason why the peer is missing
                    self.missing[name] = " ".join(str(error).split())[:160] or type(error).__name__

    def tensor(self, i):
        """A copy of a tensor of the row."""
        torch, spec = self.torch, self.row.row["tensors"][i]
        dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "i32": torch.int32}[spec["dtype"]]
        copy = torch.empty(spec["shape"], dtype=dtype, device="cuda")
        self.row.driver.copy(copy.data_ptr(), self.row.addresses[i], bytes_of(spec["dtype"], spec["shape"]))
        self.row.driver.synchronize()
        return copy

    def prepare(self, function):
        """The function, called once, on the stream of the driver; a short one as a graph."""
        torch = self.torch
        if self.peer.get("gradient"):
            function = self.gradient(function)
        function()
        torch.cuda.synchronize()
        if self.row.row["tensors"][self.peer["inputs"][0]]["shape"][-2] <= SHORT:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=self.stream):
                function()
            function = graph.replay

        def call():
            with torch.cuda.stream(self.stream):
                return function()

        return call

    def gradient(self, function):
        """A function that computes the gradients of what `function` computes from the inputs."""
        output = function()
        output_gradient = self.tensor(self.peer["output_gradient"])
        return lambda: self.torch.autograd.grad(output, self.inputs, output_gradient, retain_graph=True)

    def difference(self, results):
        """Relative difference in norm of a contender's results from those of the first peer, None without peers."""
        if not self.functions:
            return None
        expected = next(iter(self.functions.values()))()
        expected = expected if isinstance(expected, tuple) else (expected,)
        if any(each is None for each in expected):  # a graph returns nothing
            return None
        differences = []
        for other, i in zip(expected, results):
            ours = self.tensor(i).double()
            other = other.detach()
            differences.append(((ours - other.double()).norm() / other.double().norm()).item())
        return max(differences, key=lambda x: x if x == x else float("inf"))

    def sdpa(self, backend):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        chosen, peer = getattr(SDPBackend, backend), self.peer
        q, k, v = self.inputs

        def call():
            with sdpa_kernel(chosen):
                return self.torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, is_causal=peer["mask"] == "causal", enable_gqa=peer["grouped"])

        return call

    def linear(self):
        return lambda: self.torch.nn.functional.linear(*self.inputs)

    def flex(self):
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        torch, peer, (q, k, v) = self.torch, self.peer, self.inputs
        torch._dynamo.reset()  # dynamo stops compiling a function after a few shapes
        compiled = torch.compile(flex_attention, dynamic=False)
        blocks, ids = None, None
        if "ids" in peer:
            ids = self.tensor(peer["ids"])
        window = int(peer["mask"][len("window"):]) if peer["mask"].startswith("window") else None
        masks = {"causal": lambda b, h, i, j: i >= j, "documents": lambda b, h, i, j: ids[i] == ids[j],
                 "window": lambda b, h, i, j: (i >= j) & (i - j <= window)}
        mask = masks.get("window" if window is not None else peer["mask"])
        if mask:
            blocks = create_block_mask(mask, None, None, q.shape[-2], k.shape[-2], device="cuda")
        return lambda: compiled(q, k, v, block_mask=blocks, enable_gqa=peer["grouped"])
