"""Peers from PyTorch: SDPA with each backend, and FlexAttention, as functions without arguments."""


NAMES = ("torch flash", "torch cudnn", "flex")


def make(torch, row, requested, q, k, v, output=None, lse=None, output_gradient=None):
    """({name: function}, {name: reason why it is missing}) of the requested peers; with `output_gradient`, their gradients."""
    functions, missing = {}, {}
    if output_gradient is not None:
        q, k, v = inputs = [each.detach().requires_grad_() for each in (q, k, v)]
    builds = dict(zip(NAMES, (lambda: sdpa(torch, row, q, k, v, "FLASH_ATTENTION"),
                              lambda: sdpa(torch, row, q, k, v, "CUDNN_ATTENTION"),
                              lambda: flex(torch, row, q, k, v))))
    for name in requested:
        try:
            function = builds[name]()
            if output_gradient is not None:
                function = gradient(torch, function, inputs, output_gradient)
            function()
            torch.cuda.synchronize()
            functions[name] = function
        except Exception as error:  # the reason why the peer is missing
            missing[name] = " ".join(str(error).split())[:160] or type(error).__name__
    return functions, missing


def gradient(torch, function, inputs, output_gradient):
    """A function that computes the gradients of what `function` computes from `inputs`."""
    output = function()
    return lambda: torch.autograd.grad(output, inputs, output_gradient, retain_graph=True)


def sdpa(torch, row, q, k, v, backend):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    chosen = getattr(SDPBackend, backend)
    causal, grouped = row["mask"] == "causal", row["heads"] != row["kv_heads"]
    if causal and row["queries"] != row["keys"]:
        raise ValueError("is_causal aligns top left")

    def call():
        with sdpa_kernel(chosen):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)

    return call


def flex(torch, row, q, k, v):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._dynamo.reset()  # dynamo stops compiling a function after a few shapes
    compiled = torch.compile(flex_attention, dynamic=False)
    offset = row["keys"] - row["queries"]
    blocks = None
    if row["mask"] == "causal":
        blocks = create_block_mask(lambda b, h, i, j: i + offset >= j, None, None, row["queries"], row["keys"],
                                   device="cuda")
    grouped = row["heads"] != row["kv_heads"]
    return lambda: compiled(q, k, v, block_mask=blocks, enable_gqa=grouped)
