"""Random nodes of com.microsoft's operators that ONNX Runtime accepts on a CPU."""

import dataclasses

import numpy as np

LOWEST = np.finfo(np.float32).min


@dataclasses.dataclass
class Node:
    inputs: list
    """Arrays; None for an optional input that is missing."""
    attributes: dict
    outputs: list
    """Whether the model has each output."""
    names: dict = dataclasses.field(default_factory=dict)
    """(input, dimension) -> the name of an extent that a model may leave open."""
    forms: list = dataclasses.field(default_factory=list)
    looseness: float = 1.0
    """A factor of the bound of errors: sums with -10000 lose bits."""
    constants: set = dataclasses.field(default_factory=set)
    """Inputs that are weights of the model."""


def floats(values, *shape, type=np.float32):
    return values.standard_normal(shape).astype(type)


# --- activations and norms --------------------------------------------------------------------------------------------


def activation(has_bias, attributes=lambda rng: {}):
    def draw(rng, values):
        shape = [rng.randint(1, 4) for _ in range(rng.randint(0, 2))] + [rng.choice((1, 7, 16, 33))]
        x = 3 * floats(values, *shape)
        bias = floats(values, shape[-1]) if has_bias is True or (has_bias and rng.random() < 0.5) else None
        inputs = [x] if has_bias is False else [x, bias]
        return Node(inputs, attributes(rng), [True], {(0, i): f"d{i}" for i in range(len(shape) - 1)})

    return draw


def skip_norm(has_mean):
    def draw(rng, values):
        type = rng.choice((np.float32, np.float32, np.float16))
        batch, length, width = rng.randint(1, 3), rng.randint(2, 9), rng.choice((8, 16, 33, 768))
        is_flat = rng.random() < 0.2
        shape = [length, width] if is_flat else [batch, length, width]
        skips = [shape] if is_flat else [shape, shape, [1, length, width], [length, width]]
        skip = rng.choice(skips)
        optional = lambda: floats(values, width, type=type) if rng.random() < 0.5 else None
        inputs = [floats(values, *shape, type=type), floats(values, *skip, type=type), floats(values, width, type=type)]
        inputs += [optional(), optional()] if has_mean else [optional()]
        attributes = {"epsilon": rng.choice((1e-5, 1e-6, 1e-12))} if rng.random() < 0.7 else {}
        names = {} if is_flat else {(0, 0): "b", (0, 1): "s"}
        if skip == shape and not is_flat:
            names |= {(1, 0): "b", (1, 1): "s"}
        elif not is_flat:
            names[1, len(skip) - 2] = "s"
        requested = [True, False, False, rng.random() < 0.6]
        return Node(inputs, attributes, requested if requested[3] else [True], names, [f"skip of {len(skip)}"])

    return draw


def embed_norm(rng, values):
    batch, length, width = rng.randint(1, 3), rng.randint(1, 9), rng.choice((8, 16, 33))
    words, positions, segments = 13, 12, 2
    ids = values.integers(0, words, (batch, length)).astype(np.int32)
    has_segments, has_mask, has_positions = (rng.random() < 0.5 for _ in range(3))
    table = lambda rows: floats(values, rows, width)
    inputs = [
        ids, values.integers(0, segments, (batch, length)).astype(np.int32) if has_segments else None, table(words),
        table(positions), table(segments) if has_segments else None, floats(values, width), floats(values, width),
        values.integers(0, 2, (batch, length)).astype(np.int32) if has_mask else None,
        values.integers(0, positions, (batch, length)).astype(np.int32) if has_positions else None]
    names = {(i, 0): "b" for i in (0, 1, 7, 8)} | {(i, 1): "s" for i in (0, 1, 7, 8)}
    return Node(inputs, {"epsilon": 1e-12} if rng.random() < 0.5 else {}, [True, True, rng.random() < 0.5], names)


# --- attention --------------------------------------------------------------------------------------------------------


def padding(rng, values, batch, queries, keys, forms):
    """A padding mask, the names of its open extents, and its form."""
    form = rng.choice(("none", "lengths", "more", "keys", "keys", "queries", *forms))
    if form == "none":
        return None, {}, form
    lengths = values.integers(0 if rng.random() < 0.2 else 1, keys + 1, batch)
    if form == "lengths":
        return lengths.astype(np.int32), {0: "b"}, form
    if form == "ranges":
        starts = np.array([values.integers(0, max(int(end), 1)) for end in lengths])
        return np.concatenate([lengths, starts]).astype(np.int32), {0: "twice"}, form
    if form == "more":
        rest = values.integers(0, keys + 1, 2 * batch + 2)
        return np.concatenate([lengths, rest]).astype(np.int32), {0: "more"}, form
    shape = (batch, keys) if form == "keys" else (batch, queries, keys)
    mask = values.integers(-1 if rng.random() < 0.2 else 0, 2, shape).astype(np.int32)
    if rng.random() < 0.3:
        mask[0] = 0  # every key of a sequence is padding
    return mask, {0: "b", len(shape) - 1: "t"} | ({1: "s"} if form == "queries" else {}), form


def score_bias(rng, values, batch, heads, queries, keys):
    if rng.random() < 0.6:
        return None, {}
    shape = (rng.choice((1, batch)), rng.choice((1, heads)), queries, keys)
    bias = floats(values, *shape)
    if rng.random() < 0.3:
        bias[:, :, rng.randrange(queries)] = LOWEST
    return bias, {2: "s", 3: "t"} | ({0: "b"} if shape[0] == batch and batch > 1 else {})


def attention(rng, values):
    batch, length, past, heads = rng.randint(2, 3), rng.randint(2, 9), rng.choice((0, 0, 3, 8)), rng.choice((1, 2, 4))
    size, size_of_value, width = rng.choice((4, 8, 16)), rng.choice((4, 8, 16)), rng.choice((6, 16))
    if past or rng.random() < 0.5:
        size_of_value = size
    sizes = [heads * size, heads * size, heads * size_of_value]
    mask, names, form = padding(rng, values, batch, length, past + length, ["ranges"])
    bias, names_of_bias = (None, {}) if past else score_bias(rng, values, batch, heads, length, length)
    inputs = [floats(values, batch, length, width), floats(values, width, sum(sizes)) / width**0.5, floats(values, sum(sizes)),
              mask, floats(values, 2, batch, heads, past, size) if past else None, bias]
    attributes = {"num_heads": heads}
    if size_of_value != size or rng.random() < 0.3:
        attributes["qkv_hidden_sizes"] = sizes
    attributes |= options(rng)
    wants_present = size_of_value == size and (past or rng.random() < 0.3)
    open_names = {(0, 0): "b", (0, 1): "s"} | {(3, i): name for i, name in names.items()}
    open_names |= {(4, 1): "b", (4, 3): "p"} | {(5, i): name for i, name in names_of_bias.items()}
    return Node(inputs, attributes, [True, True] if wants_present else [True], open_names, [form], 1.0 if form == "none" else 100.0)


def options(rng):
    made = {}
    if rng.random() < 0.5:
        made["unidirectional"] = rng.choice((0, 1))
    if rng.random() < 0.3:
        made["scale"] = rng.choice((0.0, 0.3))
    if rng.random() < 0.4:
        made["mask_filter_value"] = rng.choice((float(LOWEST), -1.0, -1e9))
    return made


def multi_head_attention(rng, values):
    batch, queries, past, heads = rng.randint(2, 3), rng.randint(2, 9), rng.choice((0, 0, 3, 8)), rng.choice((1, 2, 4))
    size, size_of_value = rng.choice((4, 8, 16)), rng.choice((4, 8, 16))
    is_other = not past and rng.random() < 0.3
    keys = rng.randint(2, 9) if is_other or (not past and rng.random() < 0.3) else queries
    if past or is_other or rng.random() < 0.5:
        size_of_value = size
    width, width_of_value = heads * size, heads * size_of_value
    mask, names, form = padding(rng, values, batch, queries, past + keys, [])
    bias, names_of_bias = score_bias(rng, values, batch, heads, queries, past + keys)
    shaped = lambda depth: (batch, heads, keys, depth) if is_other else (batch, keys, heads * depth)
    cache = lambda depth: floats(values, batch, heads, past, depth) if past else None
    inputs = [floats(values, batch, queries, width), floats(values, *shaped(size)), floats(values, *shaped(size_of_value)),
              floats(values, 2 * width + width_of_value) if rng.random() < 0.5 else None, mask, bias, cache(size), cache(size)]
    attributes = {"num_heads": heads} | options(rng)
    length = 2 if is_other else 1
    open_names = {(0, 0): "b", (0, 1): "s", (1, 0): "b", (2, 0): "b", (1, length): "k", (2, length): "k"}
    open_names |= {(4, i): name for i, name in names.items()} | {(5, i): name for i, name in names_of_bias.items()}
    open_names |= {(6, 0): "b", (7, 0): "b", (6, 2): "p", (7, 2): "p"}
    wants = bool(past) or (not is_other and size_of_value == size and rng.random() < 0.3)
    outputs = [True, wants, wants] if wants else [True]
    return Node(inputs, attributes, outputs, open_names, [form, "other"] if is_other else [form], 1.0 if form == "none" else 100.0)


def rotary_embedding(rng, values):
    batch, length, heads, half = rng.randint(1, 3), rng.randint(1, 9), rng.choice((1, 2, 4)), rng.choice((2, 4, 8))
    rows, form = 24, rng.choice(("whole", "partial", "of four"))
    size = 2 * half + (rng.choice((2, 6)) if form == "partial" else 0)
    is_of_four = form == "of four"
    x = floats(values, batch, heads, length, size) if is_of_four else floats(values, batch, length, heads * size)
    is_offset = rng.random() < 0.4
    positions = values.integers(0, rows - length, (1,)) if is_offset else values.integers(0, rows, (batch, length))
    attributes = {"interleaved": rng.choice((0, 1))}
    if form == "partial":
        attributes |= {"num_heads": heads, "rotary_embedding_dim": 2 * half}
    elif not is_of_four and rng.random() < 0.5:
        attributes["num_heads"] = heads
    names = {(0, 0): "b", (0, 2 if is_of_four else 1): "s"} | ({} if is_offset or batch == 1 else {(1, 0): "b", (1, 1): "s"})
    if batch == 1 or length == 1:
        names = {}
    return Node([x, positions, floats(values, rows, half), floats(values, rows, half)], attributes, [True], names, [form])


def group_query_attention(rng, values):
    kv_heads, group, size = rng.choice((1, 2)), rng.choice((1, 2, 3)), rng.choice((8, 16, 32))
    heads = kv_heads * group
    form = rng.choice(("prompt", "prompt with a cache", "step", "step", "several"))
    batch = 1 if form == "several" else rng.randint(1, 3)
    is_prompt = form.startswith("prompt")
    new = rng.randint(2, 9) if is_prompt or form == "several" else 1
    before = 0 if is_prompt else rng.randint(1, 12)
    total = before + new
    # The longest sequence has all positions.
    lengths = [total] + [rng.randint(1 if is_prompt else new, total) for _ in range(batch - 1)]
    is_kept = rng.random() < 0.5
    held = None if form == "prompt" else total + rng.randint(0, 5) if is_kept else before
    if form == "prompt with a cache":
        held = total + rng.randint(0, 5)
    is_packed = rng.random() < 0.5
    q, k, v = (floats(values, batch, new, n * size) for n in (heads, kv_heads, kv_heads))
    cache = [floats(values, batch, kv_heads, held, size) if held else None for _ in range(2)]
    attributes = {"num_heads": heads, "kv_num_heads": kv_heads}
    attributes |= {name: value for name, value, odds in (
        ("scale", rng.choice((0.0, 0.2, -0.3)), 0.4), ("softcap", rng.choice((0.0, 2.0)), 0.4),
        ("local_window_size", rng.choice((1, 2, 4)), 0.4), ("smooth_softmax", rng.choice((1, 0, -1)), 0.3)) if rng.random() < odds}
    if is_prompt and "local_window_size" in attributes:
        lengths = [total] * batch  # the runtime reads what is behind the keys for queries behind the end of a sequence
    tables, positions = [None, None], None
    if size % 16 == 0 and rng.random() < 0.6:
        half = 8 if size == 32 and rng.random() < 0.5 else size // 2
        attributes |= {"do_rotary": 1} | ({"rotary_interleaved": 1} if rng.random() < 0.4 else {})
        tables = [floats(values, 32, half), floats(values, 32, half)]
        if rng.random() < 0.4:
            start = np.maximum(np.array(lengths)[:, None] - new, 0) + values.integers(0, 9, (batch, 1))
            positions = (start + np.arange(new)).astype(np.int64)
    bias = None
    if rng.random() < 0.3:
        bias = floats(values, rng.choice((1, batch)), rng.choice((1, heads)), new, total)
    sink = floats(values, heads) if rng.random() < 0.3 else None
    queries = [np.concatenate([q, k, v], -1), None, None] if is_packed else [q, k, v]
    inputs = [*queries, *cache, np.array(lengths, np.int32) - 1, np.array(total, np.int32), *tables, positions, bias, sink]
    names = {(i, 0): "b" for i in (0, 1, 2, 3, 4, 5)} | {(i, 1): "s" for i in (0, 1, 2)} if batch > 1 and new > 1 else {}
    names |= {(3, 2): "held", (4, 2): "held"}
    return Node(inputs, attributes, [True, True, True], names, [form, "kept" if is_kept else "grows"], 10.0, {6})


NODES = {
    "BiasGelu": activation(True),
    "FastGelu": activation("sometimes"),
    "Gelu": activation(False),
    "QuickGelu": activation(False, lambda rng: {"alpha": rng.choice((1.0, 1.702, 0.0))} if rng.random() < 0.7 else {}),
    "SkipLayerNormalization": skip_norm(True),
    "SkipSimplifiedLayerNormalization": skip_norm(False),
    "EmbedLayerNormalization": embed_norm,
    "Attention": attention,
    "MultiHeadAttention": multi_head_attention,
    "GroupQueryAttention": group_query_attention,
    "RotaryEmbedding": rotary_embedding,
}
