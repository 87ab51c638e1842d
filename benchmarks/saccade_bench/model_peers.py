"""The encoder models of `model_text` in PyTorch and ONNX, with the same weights."""


from .onnx_peer import IR_VERSION, OPSET


def torch_model(model, weights, type):
    """A function of a torch tensor [batch, sequence, width], written as in model libraries: linear layers,
    `scaled_dot_product_attention`, `layer_norm`, `gelu`. Q, K and V come from one fused projection."""
    import torch
    from torch.nn import functional

    kind = {"f32": torch.float32, "bf16": torch.bfloat16}[type]
    part = {name: torch.from_numpy(array).to(kind) for name, array in weights.items()}
    linear = {}
    for i in range(model.layers):
        for name in ("o", "1", "2"):
            linear[name, i] = part[f"w{name}_{i}"].t().contiguous(), part[f"b{name}_{i}"]
        linear["qkv", i] = (torch.cat([part[f"w{each}_{i}"].t() for each in "qkv"]).contiguous(),
                            torch.cat([part[f"b{each}_{i}"] for each in "qkv"]))  # fmt: skip

    def norm(x, gamma, beta):
        return functional.layer_norm(x, (model.width,), part[gamma], part[beta], model.epsilon)

    def attention(x, i):
        batch, sequence, _ = x.shape
        qkv = functional.linear(x, *linear["qkv", i]).view(batch, sequence, 3, model.heads, model.depth)
        q, k, v = (each.transpose(1, 2) for each in qkv.unbind(2))
        heads = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        return functional.linear(heads, *linear["o", i])

    def feed_forward(x, i):
        return functional.linear(functional.gelu(functional.linear(x, *linear["1", i])), *linear["2", i])

    def run(x):
        for i in range(model.layers):
            if model.is_pre_norm:
                x = x + attention(norm(x, f"g1_{i}", f"h1_{i}"), i)
                x = x + feed_forward(norm(x, f"g2_{i}", f"h2_{i}"), i)
            else:
                x = norm(x + attention(x, i), f"g1_{i}", f"h1_{i}")
                x = norm(x + feed_forward(x, i), f"g2_{i}", f"h2_{i}")
        return norm(x, "g", "h") if model.is_pre_norm else x

    return run


def onnx_model(model, weights):
    """The serialized ONNX model: operators as exporters write them, and `Attention` on [batch, sequence, width]."""
    from onnx import TensorProto, helper, numpy_helper

    nodes, constants = [], dict(weights)

    def node(operator, *inputs, **options):
        name = f"t{len(nodes)}"
        nodes.append(helper.make_node(operator, list(inputs), [name], **options))
        return name

    def linear(x, name):
        return node("Add", node("MatMul", x, f"w{name}"), f"b{name}")

    def norm(x, gamma, beta):
        return node("LayerNormalization", x, gamma, beta, epsilon=model.epsilon, axis=-1)

    def attention(x, i):
        q, k, v = (linear(x, f"{each}_{i}") for each in "qkv")
        return linear(node("Attention", q, k, v, q_num_heads=model.heads, kv_num_heads=model.heads), f"o_{i}")

    def feed_forward(x, i):
        return linear(node("Gelu", linear(x, f"1_{i}")), f"2_{i}")

    x = "x"
    for i in range(model.layers):
        if model.is_pre_norm:
            x = node("Add", x, attention(norm(x, f"g1_{i}", f"h1_{i}"), i))
            x = node("Add", x, feed_forward(norm(x, f"g2_{i}", f"h2_{i}"), i))
        else:
            x = norm(node("Add", x, attention(x, i)), f"g1_{i}", f"h1_{i}")
            x = norm(node("Add", x, feed_forward(x, i)), f"g2_{i}", f"h2_{i}")
    if model.is_pre_norm:
        x = norm(x, "g", "h")
    shape = [None, None, model.width]
    graph = helper.make_graph(nodes, model.name, [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info(x, TensorProto.FLOAT, shape)],
                              [numpy_helper.from_array(array, name) for name, array in constants.items()])  # fmt: skip
    opset = helper.make_opsetid("", OPSET)
    return helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION).SerializeToString()
