"""Calls of PyTorch's operators drawn from their schemas: every overload of a claimed operator, every argument.

`draw(overload, rng)` gives arguments by name, without those that are left to their defaults. Arguments have values by
their names and types; operators whose operands depend on one another have a recipe in RECIPES.
"""

import math

import torch

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8]
DTYPES = [*FLOATS, *INTEGERS, torch.bool]
NUMBERS = [2, -1, 0.5, -0.3, 3, True, 0.1, 0, -2.5]
SPECIAL = [math.nan, math.inf, -math.inf, -0.0, 0.0]
# Arguments about memory and gradients, which the reader drops.
IGNORED = {"device", "layout", "pin_memory", "memory_format", "non_blocking", "copy", "implicit", "cudnn_enable",
           "padding_idx", "scale_grad_by_freq", "sparse", "sparse_grad"}  # fmt: skip


class Rng:
    """Random numbers for one call: shapes, dimensions and tensors of a dtype that is given from outside."""

    def __init__(self, random, dtype):
        self.random, self.dtype = random, dtype
        self.generator = torch.Generator().manual_seed(random.getrandbits(40))

    def choice(self, values):
        return self.random.choice(values)

    def chance(self, probability):
        return self.random.random() < probability

    def shape(self, least=0, most=4):
        extents = [1, 2, 3, 4, 2, 3, 0] if self.chance(0.2) else [1, 2, 3, 4, 2, 3]
        return [self.choice(extents) for _ in range(self.random.randint(least, most))]

    def tensor(self, shape, dtype=None, low=-4, high=4, special=False):
        dtype = dtype or self.dtype
        if dtype == torch.bool:
            return torch.rand(shape, generator=self.generator) < 0.5
        if not dtype.is_floating_point:
            return torch.randint(low, high + 1, shape, generator=self.generator).to(dtype)
        made = (torch.rand(shape, generator=self.generator, dtype=torch.float64) * (high - low) + low).to(dtype)
        if special and made.numel() and self.chance(0.25):
            for _ in range(2):
                made.view(-1)[self.random.randrange(made.numel())] = self.choice(SPECIAL)
        return made

    def broadcast(self, shape):
        """A shape that broadcasts with another."""
        kept = shape[self.random.randint(0, len(shape)):] if self.chance(0.5) else list(shape)
        return [1 if self.chance(0.3) else extent for extent in kept]

    def dim(self, rank):
        rank = max(rank, 1)
        return self.random.randint(-rank, rank - 1)

    def dims(self, rank, least=0):
        """Some dimensions, in any order, some from the end."""
        chosen = self.random.sample(range(rank), self.random.randint(min(least, rank), rank))
        return [each - rank if self.chance(0.5) else each for each in chosen]


# --- recipes: operands that depend on one another ----------------------------------------------------------------------


def matmul(r, names=("self", "other")):
    m, k, n = r.shape(3, 3)
    batch = r.shape(0, 2)
    kind = r.random.randint(0, 4)
    left = {0: [k], 1: [m, k], 2: [*batch, m, k], 3: [*batch, m, k], 4: [k]}[kind]
    right = {0: [k], 1: [k], 2: [k, n], 3: [*r.broadcast(batch), k, n], 4: [*batch, k, n]}[kind]
    return {names[0]: r.tensor(left), names[1]: r.tensor(right)}


def mm(r, names=("self", "mat2"), batch=()):
    m, k, n = r.shape(3, 3)
    return {names[0]: r.tensor([*batch, m, k]), names[1]: r.tensor([*batch, k, n])}


def addmm(r, batch=(), names=("mat1", "mat2")):
    product = mm(r, names, batch)
    shape = [*batch, product[names[0]].shape[-2], product[names[1]].shape[-1]]
    self = r.broadcast(shape) if not batch or r.chance(0.5) else shape
    real = r.dtype.is_floating_point
    numbers = [0, 0.5, 2, -1.5] if real else [0, 2, -1]
    return {"self": r.tensor(self), **product, "beta": r.choice(numbers), "alpha": r.choice(numbers)}


def linear(r):
    k, n = r.shape(2, 2)
    one = r.chance(0.2)
    return {"input": r.tensor([*r.shape(0, 2), k]), "weight": r.tensor([k] if one else [n, k]),
            "bias": r.tensor([] if one else [n])}  # fmt: skip


def convolution(r, ranks=(1, 2, 2, 3)):
    rank, groups = r.choice(ranks), r.choice([1, 1, 2, 3])
    each = lambda *numbers: [r.choice(numbers) for _ in range(rank)]
    size, stride, dilation, padding = each(1, 2, 3), each(1, 2, 3), each(1, 1, 2), each(0, 0, 1, 2)
    if r.chance(0.2):
        stride, dilation, padding = size, [1] * rank, [0] * rank
    image = [(n - 1) * d + r.choice([1, 2, n, n + 3]) for n, d in zip(size, dilation)]
    inner, filters = groups * r.choice([1, 2]), groups * r.choice([1, 2, 4])
    transposed = r.chance(0.3)
    weight = [inner, filters // groups] if transposed else [filters, inner // groups]
    extra = [r.random.randint(0, max(s, d) - 1) for s, d in zip(stride, dilation)] if transposed else [0] * rank
    batch = [r.choice([1, 2])] if r.chance(0.8) else []
    return {"input": r.tensor([*batch, inner, *image]), "weight": r.tensor([*weight, *size]), "bias": r.tensor([filters]),
            "stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "transposed": transposed,
            "output_padding": extra}  # fmt: skip


def conv2d(r):
    given = convolution(r, (2,))
    while given["transposed"]:
        given = convolution(r, (2,))
    return given


def conv2d_padding(r):
    given = conv2d(r)
    padding = r.choice(["valid", "same"])
    return given | {"padding": padding} | ({"stride": [1, 1]} if padding == "same" else {})


def batch_norm(r):
    shape = r.shape(2, 4)
    channels = shape[1]
    variance = r.tensor([channels])
    variance = variance.abs() + 0.5 if variance.is_floating_point() else variance
    return {"input": r.tensor(shape), "weight": r.tensor([channels]), "bias": r.tensor([channels]),
            "running_mean": r.tensor([channels]), "running_var": variance, "momentum": r.choice([0.1, 0.5]),
            "eps": r.choice([1e-5, 0.1, 2.0])}  # fmt: skip


def group_norm(r):
    groups = r.choice([1, 2, 3])
    channels = groups * r.choice([1, 2])
    return {"input": r.tensor([r.choice([1, 2]), channels, *r.shape(0, 2)]), "num_groups": groups, "weight": r.tensor([channels]),
            "bias": r.tensor([channels]), "eps": r.choice([1e-5, 0.1, 2.0]), "cudnn_enabled": r.choice([True, False])}  # fmt: skip


def norm(r):
    shape = r.shape(1, 4)
    normalized = shape[r.random.randint(0, len(shape) - 1):]
    return {"input": r.tensor(shape), "normalized_shape": normalized, "weight": r.tensor(normalized),
            "bias": r.tensor(normalized), "eps": r.choice([1e-5, 0.1, 2.0])}  # fmt: skip


def rms_norm(r):
    given = norm(r)
    return given | {"input": given["input"] * r.choice([1, 0.01])}


def attention(r):
    depth, width, rank = r.choice([1, 3, 4]), r.choice([2, 4]), r.choice([2, 3, 4, 4])
    n, m, group = r.choice([1, 3, 5]), r.choice([1, 4, 6]), r.choice([1, 1, 2])
    batch = r.shape(rank - 2, rank - 2) if rank > 2 else []
    batch = [max(each, 1) for each in batch]
    if batch and r.chance(0.3):
        batch[-1] = 1
    query = [*batch[:-1], batch[-1] * group] if batch else []
    gqa = bool(batch) and r.chance(0.7 if group > 1 else 0.2)
    if not batch:
        group = 1
    given = {"query": r.tensor([*query, n, depth]), "key": r.tensor([*batch, m, depth]),
             "value": r.tensor([*batch, m, width]), "dropout_p": 0.0, "scale": r.choice([0.5, 2.0]), "enable_gqa": gqa}  # fmt: skip
    if r.chance(0.3):
        return given | {"is_causal": r.chance(0.7)}
    mask = r.broadcast([*query, n]) + [m]
    return given | {"attn_mask": r.tensor(mask, r.choice([r.dtype, torch.bool]))}


def index(r, name="self"):
    shape = [max(each, 1) for each in r.shape(1, 4)]
    common = r.shape(0, 2)
    chosen = r.dims(len(shape), 1)
    indices = [None] * len(shape)
    for dim in chosen:
        extent = shape[dim]
        indices[dim] = r.tensor(r.broadcast(common), r.choice([torch.int64, torch.int32]), -extent, extent - 1)
    while indices and indices[-1] is None:
        indices.pop()
    return {name: r.tensor(shape), "indices": indices}


def index_dense(r):
    given = index(r)
    return given if None not in given["indices"] else given | {"indices": given["indices"][:0]}


def index_put(r):
    shape = [max(each, 1) for each in r.shape(1, 3)]
    if r.chance(0.3):  # a mask of some dimensions, and a value for all that it selects, or one for each
        first = r.random.randrange(len(shape))
        mask = r.tensor(shape[first:r.random.randint(first + 1, len(shape))], torch.bool)
        count = [int(mask.sum())] if first == 0 and r.chance(0.3) else []
        after = shape[first + mask.dim():]
        values = r.tensor([*count, *after] if count else r.choice([[], after]))
        return {"self": r.tensor(shape), "indices": [None] * first + [mask], "values": values, "accumulate": r.chance(0.2)}
    accumulates = r.chance(0.5)
    common = r.shape(0, 2) if accumulates else r.shape(1, 1)
    dims = sorted(r.random.sample(range(len(shape)), r.random.randint(1, len(shape))))
    indices = [None] * len(shape)
    if not accumulates:  # no position twice: PyTorch does not say which value is kept
        common = [min(common[0], shape[dims[0]])]
    for dim in dims:
        extent = shape[dim]
        own = r.broadcast(common) if accumulates else common
        indices[dim] = r.tensor(own, r.choice([torch.int64, torch.int32]), -extent, extent - 1)
    if not accumulates:
        places = torch.randperm(shape[dims[0]], generator=r.generator)[: common[0]]
        indices[dims[0]] = places - shape[dims[0]] * r.tensor(common, torch.bool).long()
    while indices[-1] is None:
        indices.pop()
    made = torch.zeros(shape)[tuple(slice(None) if each is None else each.long() for each in indices)].shape
    return {"self": r.tensor(shape), "indices": indices, "values": r.tensor(r.broadcast(list(made))), "accumulate": accumulates}


def index_put_dense(r):
    given = index_put(r)
    return given if None not in given["indices"] else given | {"indices": given["indices"][:0]}


def scatter(r, reductions=()):
    shape = [max(each, 1) for each in r.shape(1, 3)] if r.chance(0.9) else []
    dim = r.dim(len(shape))
    own = [r.random.randint(1, extent) for extent in shape]
    if shape:
        own[dim] = r.choice([0, 1, 2, 4])
    index = r.tensor(own, torch.int64, 0, shape[dim] - 1 if shape else 0)
    small = {"low": -2, "high": 2}  # of which products are exact
    src = r.tensor([extent + r.choice([0, 0, 1]) for extent in own], **small)
    given = {"self": r.tensor(shape, **small), "dim": dim, "index": index, "src": src, "value": r.choice([2, -1.5, 0.25, True])}
    return given | ({"reduce": r.choice(reductions)} if reductions else {})


def ordered(r, count=False):
    """Numbers of which no two are equal, as PyTorch leaves the order of equal ones open."""
    shape = [max(each, 1) for each in r.shape(1, 3)] if r.chance(0.9) else []
    dim = r.dim(len(shape))
    if shape and r.dtype == torch.bool:
        shape[dim] = min(shape[dim], 2)
    order = torch.rand(shape, generator=r.generator).argsort(dim if shape else 0) if shape else r.tensor([], torch.int64)
    given = {"self": (order - (0 if r.dtype == torch.bool else 1)).to(r.dtype), "dim": dim}
    return given | ({"k": r.random.randint(0, shape[dim] if shape else 1)} if count else {})


def sort_stable(r):
    if r.chance(0.5):
        return ordered(r) | {"stable": False}
    shape = r.shape(0, 3)
    return {"self": r.tensor(shape, special=True), "dim": r.dim(len(shape)), "stable": True}


def unfold(r):
    shape = [max(each, 1) for each in r.shape(1, 4)] if r.chance(0.9) else []
    dim = r.dim(len(shape))
    return {"self": r.tensor(shape), "dimension": dim, "size": r.random.randint(1, shape[dim] if shape else 1),
            "step": r.choice([1, 1, 2, 3])}  # fmt: skip


def diagonal(r):
    shape = r.shape(2, 4)
    first, second = r.random.sample(range(len(shape)), 2)
    return {"self": r.tensor(shape), "offset": r.random.randint(-3, 3), "dim1": first - len(shape) * r.chance(0.5), "dim2": second}


def repeats(r, with_self=True):
    shape = [max(each, 1) for each in r.shape(1, 3)]
    has_dim = r.chance(0.7)
    dim = r.dim(len(shape)) if has_dim else None
    count = shape[dim] if has_dim else math.prod(shape)
    numbers = r.tensor([1 if with_self and r.chance(0.2) else count], r.choice([torch.int64, torch.int32]), 0, 3)
    total = int(numbers.sum()) * (count if numbers.numel() == 1 and with_self else 1)
    given = {"repeats": numbers, "output_size": total}
    return given | {"self": r.tensor(shape), "dim": dim} if with_self else given


def index_select(r):
    shape = [max(each, 1) for each in r.shape(1, 4)]
    dim = r.dim(len(shape))
    return {"self": r.tensor(shape), "dim": dim, "index": r.tensor([r.choice([0, 1, 3])], torch.int64, 0, shape[dim] - 1)}


def gather(r):
    shape = [max(each, 1) for each in r.shape(1, 3)]
    dim = r.dim(len(shape))
    own = [r.random.randint(1, extent) for extent in shape]
    own[dim] = r.choice([0, 1, 5])
    return {"self": r.tensor(shape), "dim": dim, "index": r.tensor(own, torch.int64, 0, shape[dim] - 1)}


def embedding(r):
    rows, width = r.choice([1, 4]), r.choice([1, 3])
    return {"weight": r.tensor([rows, width]), "indices": r.tensor(r.shape(0, 2), r.choice([torch.int64, torch.int32]), 0, rows - 1)}


def bounds(r, shape, dim):
    extent = shape[dim]
    some = lambda: r.choice([r.random.randint(-extent - 2, extent + 2), extent, 0, 1 << 62])
    return {"dim": dim, "start": some(), "end": some(), "step": r.choice([1, 1, 2, 3])}


def slicing(r):
    shape = r.shape(1, 4)
    given = bounds(r, shape, r.dim(len(shape)))
    return {"self": r.tensor(shape), **given}


def slice_scatter(r):
    given = slicing(r)
    for name in ("dim", "start", "end", "step"):
        if r.chance(0.25):
            del given[name]
    part = torch.ops.aten.slice.Tensor(**given)
    return given | {"src": r.tensor(list(part.shape), r.choice([r.dtype, torch.float32]))}


def select(r):
    shape = [max(each, 1) for each in r.shape(1, 4)]
    dim = r.dim(len(shape))
    return {"self": r.tensor(shape), "dim": dim, "index": r.random.randint(-shape[dim], shape[dim] - 1)}


def select_scatter(r):
    given = select(r)
    return given | {"src": r.tensor(list(torch.ops.aten.select.int(**given).shape), r.choice([r.dtype, torch.float32]))}


def narrow(r):
    shape = r.shape(1, 4)
    dim = r.dim(len(shape))
    start = r.random.randint(-shape[dim], shape[dim])
    first = start + shape[dim] if start < 0 else start
    return {"self": r.tensor(shape), "dim": dim, "start": start, "length": r.random.randint(0, shape[dim] - first)}


def split_sizes(r, name):
    shape = r.shape(1, 4)
    dim = r.dim(len(shape))
    first = r.random.randint(0, shape[dim])
    return {"self": r.tensor(shape), name: [first, shape[dim] - first], "dim": dim}


def reshaping(r, name):
    shape = r.shape(0, 4)
    sizes = list(shape)
    r.random.shuffle(sizes)
    if len(sizes) > 1 and r.chance(0.5):
        sizes[:2] = [sizes[0] * sizes[1]]
    if r.chance(0.4):
        sizes.insert(r.random.randint(0, len(sizes)), 1)
    if sizes and 0 not in sizes and r.chance(0.4):
        sizes[r.random.randrange(len(sizes))] = -1
    return {"self": r.tensor(shape), name: sizes}


def reshape_as(r):
    given = reshaping(r, "other")
    return {"self": given["self"], "other": r.tensor(list(given["self"].reshape(given["other"]).shape))}


def unflatten(r):
    shape = [max(each, 1) for each in r.shape(1, 3)]
    dim = r.dim(len(shape))
    extent = shape[dim] = r.choice([4, 6])
    return {"self": r.tensor(shape), "dim": dim,
            "sizes": r.choice([[2, extent // 2], [extent // 2, -1], [-1, 2], [extent], [-1, 1, 2]])}  # fmt: skip


def expand(r, other=False):
    shape = r.shape(0, 3)
    own = r.broadcast(shape)
    added = [*r.shape(0, 1), *shape]
    if other:
        return {"self": r.tensor(own), "other": r.tensor(added)}
    kept = len(added) - len(own)
    return {"self": r.tensor(own), "size": [-1 if i >= kept and r.chance(0.3) and own[i - kept] == extent else extent
                                            for i, extent in enumerate(added)]}  # fmt: skip


def repeat(r, name):
    shape = r.shape(0, 3)
    return {"self": r.tensor(shape), name: [r.choice([1, 2, 3, 0]) for _ in range(len(shape) + r.choice([-1, 0, 1]))]}


def cat(r):
    shape = r.shape(1, 4)
    dim = r.dim(len(shape))
    tensors = []
    for _ in range(r.random.randint(1, 3)):
        own = list(shape)
        own[dim] = r.choice([0, 1, 2])
        tensors.append(r.tensor(own, r.choice([r.dtype, r.dtype, torch.float32])))
    if r.chance(0.1):
        tensors.insert(r.random.randint(0, len(tensors)), r.tensor([0]))
    return {"tensors": tensors, "dim": dim}


def stack(r):
    shape = r.shape(0, 3)
    return {"tensors": [r.tensor(shape) for _ in range(r.random.randint(1, 3))], "dim": r.dim(len(shape) + 1)}


def roll(r):
    shape = r.shape(1, 3)
    dims = r.dims(len(shape))
    return {"self": r.tensor(shape), "shifts": [r.random.randint(-5, 5) for _ in dims] or [3], "dims": dims}


def pad(r):
    shape = r.shape(1, 4)
    count = r.random.randint(0, len(shape))
    pads = []
    for i in range(count):
        extent = shape[-1 - i]
        low = r.random.randint(-extent, 2)
        pads += [low, r.random.randint(-extent - min(low, 0), 2)]
    return {"self": r.tensor(shape), "pad": pads, "value": r.choice([0.0, 2.5, -1.0, True])}


def pad_modes(r):
    given = pad(r)
    return given | {"mode": "reflect", "value": None} if r.chance(0.1) and len(given["pad"]) == 2 else \
        given | {"mode": "constant", "value": r.choice([0.0, 2.5, -1.0])}  # fmt: skip


def diff(r):
    shape = [max(each, 1) for each in r.shape(1, 3)]
    dim = r.dim(len(shape))
    own = list(shape)
    own[dim] = r.choice([1, 2])
    return {"self": r.tensor(shape), "dim": dim, "n": r.choice([1, 1, 1, 2]), "prepend": r.tensor(own), "append": r.tensor(own)}


def einsum(r):
    i, j, k, b = (r.choice([1, 2, 3]) for _ in range(4))
    equation, *shapes = r.choice([
        ("ij,jk->ik", [i, j], [j, k]), ("ij,jk", [i, j], [j, k]), ("bij,bjk->bki", [b, i, j], [b, j, k]),
        ("ib j,jkb->kbi", [i, b, j], [j, k, b]), ("...ij,jk->...ik", [b, i, j], [j, k]), ("ij->ji", [i, j]),
        ("ijb->b" if r.dtype.is_floating_point else "bij->jib", [i, j, b]), ("i,j->ij", [i], [j]), ("...i,...i->...", [b, i], [b, i]), ("abij,abjk->aikb", [b, k, i, j], [b, k, j, i]),
        ("ij,jk,kb->ib", [i, j], [j, k], [k, b]), ("ji,bj->bi", [j, i], [b, j])])  # fmt: skip
    return {"equation": equation, "tensors": [r.tensor(shape) for shape in shapes]}


def arange(r):
    numbers = [0, 1, 5, -3, 7] if r.chance(0.6) else [0.0, 0.5, 3.25, -1.5, 4]
    step = r.choice([1, 2, 3, -1] if type(numbers[1]) is int else [0.25, 1.5, -0.5])
    start, end = sorted((r.choice(numbers), r.choice(numbers)), reverse=step < 0)
    return {"start": start, "end": end, "step": step}


def as_strided(r):
    shape = [max(each, 1) for each in r.shape(1, 3)]
    own = r.tensor(shape)
    order = list(range(len(shape)))
    r.random.shuffle(order)
    own = own.permute(order)
    count = own.numel()
    size = [r.random.randint(1, 3) for _ in range(r.random.randint(0, 2))]
    stride = [r.random.randint(0, max(1, count // 4)) for _ in size]
    return {"self": own, "size": size, "stride": stride, "storage_offset": r.random.randint(0, 1)}


def flatten(r):
    shape = r.shape(0, 4)
    first, last = sorted(r.random.randrange(max(len(shape), 1)) for _ in range(2))
    back = lambda dim: dim - max(len(shape), 1) if r.chance(0.5) else dim
    return {"self": r.tensor(shape), "start_dim": back(first), "end_dim": back(last)}


def permute(r):
    shape = r.shape(0, 4)
    order = list(range(len(shape)))
    r.random.shuffle(order)
    return {"self": r.tensor(shape), "dims": [each - len(shape) if r.chance(0.5) else each for each in order]}


def copying(r):
    shape = r.shape(0, 3)
    return {"self": r.tensor(shape), "src": r.tensor(r.broadcast(shape), r.choice(DTYPES))}


def tensor_only(low, high):
    return lambda r: {"self": r.tensor(r.shape(), None, low, high, special=True)}


def dot(names):
    def recipe(r):
        count = r.choice([0, 1, 4])
        return {name: r.tensor([count]) for name in names}

    return recipe


def mv(r):
    m, k = r.shape(2, 2)
    return {"self": r.tensor([m, k]), "vec": r.tensor([k])}


def power(r):
    shape, real = r.shape(), r.dtype.is_floating_point
    base = r.tensor(shape, None, 0 if real and r.chance(0.7) else -4, 4)
    return {"self": base if r.chance(0.7) or not real else r.choice([2, 0.5, 3.0]),
            "exponent": r.tensor(r.broadcast(shape), None, -2 if real else 0, 3)}  # fmt: skip


def power_number(r):
    real = r.dtype.is_floating_point
    numbers = [2, 3, 0.5, -1, 0, 1, 1.7, -0.5, 4] if real else [0, 1, 2, 3, 4, 0.5, 2.0]
    exponent = r.choice(numbers)
    return {"self": r.tensor(r.shape(), None, 0 if r.chance(0.5) else -4, 4, special=exponent >= 0), "exponent": exponent}


def power_base(r):
    return {"self": r.choice([2, 0.5, 3.0, 1]), "exponent": r.tensor(r.shape(), None, 0, 4)}


def fold(r):
    return {"self": r.tensor(r.shape(1, 4), special=True), "dim": r.choice([0]), "half_to_float": False}


def softmax(r):
    shape = r.shape(0, 4)
    own = r.tensor(shape)
    if r.dtype.is_floating_point and own.dim() and r.chance(0.2):
        own[..., :1] = -math.inf
    return {"self": own, "dim": r.dim(len(shape)), "half_to_float": False}


def narrow_tensor(r):
    given = narrow(r)
    return given | {"start": torch.tensor(given["start"])}


def hardtanh(r):
    low, high = sorted(r.random.sample([-2, -1, 0.5, 2, 3, -0.5], 2))
    return {"self": r.tensor(r.shape(), special=True), "min_val": low, "max_val": high}


def dropout(r):
    return {"input": r.tensor(r.shape()), "p": r.choice([0.5, 0.0]), "train": r.chance(0.15)}


def where(r):
    shape = r.shape()
    return {"condition": r.tensor(r.broadcast(shape), torch.bool)}


RECIPES = {
    "matmul": matmul, "mm": mm, "bmm": lambda r: mm(r, batch=r.shape(1, 1)), "addmm": addmm,
    "baddbmm": lambda r: addmm(r, r.shape(1, 1), ("batch1", "batch2")), "linear": linear, "conv2d": conv2d,
    "conv2d.padding": conv2d_padding, "convolution": convolution, "_native_batch_norm_legit_no_training": batch_norm,
    "group_norm": group_norm, "layer_norm": norm, "native_layer_norm": norm,
    "rms_norm": rms_norm, "scaled_dot_product_attention": attention, "index": index, "index.Tensor_hacked_twin": index_dense,
    "index_put": index_put, "index_select": index_select, "gather": gather, "embedding": embedding, "slice": slicing,
    "slice_scatter": slice_scatter, "select": select, "select_scatter": select_scatter, "narrow": narrow,
    "narrow.Tensor": narrow_tensor, "split_with_sizes": lambda r: split_sizes(r, "split_sizes"),
    "split.sizes": lambda r: split_sizes(r, "split_size"), "split.default": lambda r: split_sizes(r, "split_sizes"),
    "view": lambda r: reshaping(r, "size"), "_unsafe_view": lambda r: reshaping(r, "size"),
    "view.dtype": lambda r: {"self": r.tensor(r.shape()), "dtype": r.dtype},
    "reshape": lambda r: reshaping(r, "shape"), "reshape_as": reshape_as, "view_as": reshape_as, "unflatten": unflatten,
    "expand": expand, "expand_as": lambda r: expand(r, True), "repeat": lambda r: repeat(r, "repeats"),
    "tile": lambda r: repeat(r, "dims"), "cat": cat, "stack": stack, "roll": roll, "constant_pad_nd": pad,
    "pad": pad_modes, "diff": diff, "einsum": einsum, "arange": arange, "as_strided": as_strided, "flatten": flatten,
    "permute": permute, "copy": copying, "dot": dot(["self", "tensor"]), "mv": mv, "pow.Tensor_Tensor": power,
    "pow.Tensor_Scalar": power_number, "pow.Scalar": power_base, "outer": lambda r: {
        "self": r.tensor(r.shape(1, 1)), "vec2": r.tensor(r.shape(1, 1), r.choice([r.dtype, torch.float32]))},
    "softmax": softmax, "_softmax": softmax, "log_softmax": softmax, "_log_softmax": softmax, "_safe_softmax": softmax,
    "scatter": scatter, "scatter_add": scatter, "scatter.reduce": lambda r: scatter(r, ["add", "multiply"]),
    "scatter.value_reduce": lambda r: scatter(r, ["add", "multiply"]),
    "scatter_reduce": lambda r: scatter(r, ["sum", "prod", "mean", "amax", "amin"]), "topk": lambda r: ordered(r, True),
    "sort": ordered, "sort.stable": sort_stable, "unfold": unfold, "diagonal": diagonal,
    "repeat_interleave.self_Tensor": repeats, "repeat_interleave.Tensor": lambda r: repeats(r, False),
    "hardtanh": hardtanh, "dropout": dropout, "native_dropout": dropout, "where": where, "t": lambda r: {
        "self": r.tensor(r.shape(0, 2))}, "adaptive_avg_pool1d": lambda r: {
        "self": r.tensor(r.shape(2, 3)), "output_size": r.choice([[1], [1], [1], [2]])}, "adaptive_avg_pool2d": lambda r: {
        "self": r.tensor(r.shape(3, 4)), "output_size": r.choice([[1, 1], [1, 1], [2, 1]])},
    "exp": tensor_only(-3, 3), "expm1": tensor_only(-3, 3), "log": tensor_only(-1, 4), "index_put.hacked_twin": index_put_dense,
}  # fmt: skip


# --- arguments by name and type ---------------------------------------------------------------------------------------


def own_shape(given):
    for value in given.values():
        if isinstance(value, torch.Tensor):
            return list(value.shape)
    return None


def value_of(argument, given, r):
    """A value for an argument without a recipe."""
    kind, name = str(argument.type).replace("Optional[", "").rstrip("]"), argument.name
    if kind.startswith("List["):
        kind = kind + "]"
    shape = own_shape(given)
    rank = len(shape or [])
    if kind == "Tensor":
        if shape is None:
            return r.tensor(r.shape(), special=r.has_specials)
        if name == "mask":
            return r.tensor(r.broadcast(shape), torch.bool)
        if name == "value":
            return r.tensor([], r.choice([r.dtype, torch.float32]))
        dtype = r.choice([r.dtype, r.dtype, r.dtype, r.choice(DTYPES)])
        return r.tensor([] if r.chance(0.1) else r.broadcast(shape), dtype, special=True)
    if name in ("dim", "dims", "dim0", "dim1") and kind == "List[int]":
        return r.dims(rank)
    if name in ("dim", "dim0", "dim1"):
        return r.dim(rank + (1 if r.is_new_dim else 0))
    if name in ("dtype", "out_dtype"):
        return r.choice([r.dtype, *DTYPES])
    if name == "size":
        return r.shape(0, 3)
    if kind == "bool":
        return r.chance(0.5)
    if name == "correction":
        return r.choice([0, 1, 2, 0.5])
    if kind == "number":
        return r.choice(NUMBERS)
    if kind == "int":
        return {"diagonal": r.random.randint(-4, 4), "chunks": r.random.randint(1, 4), "repeats": r.choice([0, 1, 2, 3]),
                "split_size": r.random.randint(1, 3), "decimals": r.random.randint(-1, 3)}.get(name, 1)  # fmt: skip
    if kind == "str":
        return r.choice({"rounding_mode": ["floor", "trunc"], "approximate": ["none", "tanh"]}[name])
    if kind == "List[Tensor]":
        return [r.tensor(shape or r.shape())]
    return r.choice([1.0, 0.5])


def draw(overload, random, dtype):
    """Arguments by name; those that are left out take their defaults."""
    schema = overload._schema
    name = schema.name.split("::")[1]
    r = Rng(random, dtype)
    r.is_new_dim = name in ("unsqueeze", "stack")
    # Welford's mean of an infinity is NaN, and PyTorch takes a square root for some powers of -0.
    has_type = any(argument.name == "dtype" for argument in schema.arguments)
    # No integer is infinite; PyTorch's gelu of an infinity depends on the vector unit.
    r.has_specials = not name.endswith("_mean") and name != "gelu" and not has_type
    recipe = RECIPES.get(f"{name}.{schema.overload_name or 'default'}", RECIPES.get(name))
    made = recipe(r) if recipe else {}
    given = {}
    for argument in schema.arguments:
        if argument.name in IGNORED:
            continue
        is_optional, is_known = str(argument.type).startswith("Optional"), argument.name in made
        if argument.has_default_value():
            # A recipe of a scatter has left out arguments itself, as its source depends on them.
            is_left = not is_known if name.endswith("_scatter") else random.random() < 0.35
            if is_left or (recipe and not is_known and "Tensor" in str(argument.type)):
                continue
        if is_known:
            value = made[argument.name]
        elif is_optional and random.random() < 0.2:
            value = None
        else:
            value = value_of(argument, {**made, **given}, r)
        given[argument.name] = value
    return given
