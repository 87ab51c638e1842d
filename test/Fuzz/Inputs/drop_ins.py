"""What the random calls of PyTorch's drop-ins share: layouts of memory, extreme rows, gradients, and how they are judged."""

import random

import torch

# Constants that are added to all scores of a row, which do not change its weights.
SHIFTS = [1e4, -1e4, 1e7, -1e7, 1e9, -1e9, 1e30, -1e30, "lowest"]
STRIDES = ["contiguous", "contiguous", "swapped", "sliced", "every second", "transposed", "one row", "negated"]
# A few roundings of a sum of the weights of a row.
SUM_ROUNDINGS = 16
CALLS_OF_A_FORM = 12


def add_options(parser):
    parser.add_argument("--no-shifts", action="store_true", help="add no constants to the scores of rows")
    return parser


def add_form_option(parser):
    parser.add_argument("--calls-of-a-form", type=int, default=CALLS_OF_A_FORM, metavar="N",
                        help="how many consecutive seeds share what a kernel is compiled for (default: %(default)s)")
    return parser


def options_of(args):
    """What the line that repeats a failure has before the seed."""
    return (f"--calls-of-a-form {args.calls_of_a_form} " * (args.calls_of_a_form != CALLS_OF_A_FORM)
            + "--no-shifts " * args.no_shifts)


def tensor(generator, shape, strides, type):
    """A tensor of normal numbers whose memory is laid out in one of the ways of STRIDES."""
    make = lambda extents: torch.randn(extents, generator=generator).to(type)
    if strides == "swapped" and len(shape) > 2:
        return make([*shape[:-3], shape[-2], shape[-3], shape[-1]]).transpose(-2, -3)
    if strides == "sliced":
        return make([*shape[:-1], 3 * shape[-1] + 1])[..., shape[-1]: 2 * shape[-1]]
    if strides == "every second":
        return make([*shape[:-1], 2 * shape[-1]])[..., ::2]
    if strides == "transposed":
        return make([*shape[:-2], shape[-1], shape[-2]]).mT
    if strides == "one row":
        return make([*shape[:-2], 1, shape[-1]]).expand(shape)
    if strides == "negated":
        return torch._neg_view(make(shape))
    return make(shape)


class Extremes:
    """The rows of a call that have extreme scores, and the tensors with gradients. They follow from a seed, apart from all
    else that follows from it; which tensors have gradients follows from the number of its form."""

    def __init__(self, seed, form, shifts):
        self.draw = random.Random(f"extremes {seed}")
        self.generator = torch.Generator().manual_seed(seed + (1 << 40))
        draw = self.draw
        self.has_shift = draw.random() < 0.5
        shift = draw.choice(SHIFTS)
        self.shift = shift if self.has_shift and shifts else None
        self.all_rows = draw.random() < 0.5
        self.scaled = draw.choice(["none", "none", "none", "a dominant score", "large values", "subnormal values",
                                   "zero queries"])
        draw = random.Random(f"gradients {form}")
        self.has_gradients = draw.random() < 0.6
        self.needs = [draw.random() < 0.6 for _ in range(8)]
        if not any(self.needs[:3]):
            self.needs[draw.randrange(3)] = True

    @property
    def features(self):
        shift = [f"shift {self.shift}"] if self.shift is not None else []
        names = "qkvm" if self.has_gradients else ""
        return [*shift, self.scaled, "gradients " + "".join(n for n, is_needed in zip(names, self.needs) if is_needed)]

    def shifts_of(self, rows, type):
        """[rows, 1], the constants of the rows; None without."""
        if self.shift is None or not rows:
            return None
        number = torch.finfo(type).min if self.shift == "lowest" else self.shift
        if abs(number) > torch.finfo(type).max:
            return None
        chosen = torch.rand(rows, 1, generator=self.generator) < (2 if self.all_rows else 0.5)
        return torch.where(chosen, torch.tensor(number, dtype=type), torch.zeros((), dtype=type))

    def apply(self, query, key, value):
        """The operands with some rows scaled; what is not scaled keeps its strides."""
        if self.scaled == "a dominant score" and query.shape[-2]:
            query = query.clone()
            query[..., -1, :] *= 60
        elif self.scaled == "large values":
            value = value * 1e3 if value.dtype == torch.float16 else value * 1e15
        elif self.scaled == "subnormal values" and value.dtype != torch.float16:
            value = value * 1e-39
        elif self.scaled == "zero queries":
            query = query * 0
        return query, key, value


def with_gradients(function, tensors, needs, weight):
    """The output of a function of tensors and the gradients, None for those that need none. Without keys the mask is in no
    graph, PyTorch's neither: its gradient is 0.

    weight: returns the gradient of the output, given its shape.
    """
    leaves = [x if x is None else x.detach().requires_grad_(is_needed) for x, is_needed in zip(tensors, needs)]
    output = function(*leaves)
    requested = [x for x in leaves if x is not None and x.requires_grad]
    found = iter(torch.autograd.grad(output, requested, weight(output.shape).to(output.dtype), allow_unused=True,
                                     materialize_grads=True))
    return output.detach(), [next(found) if x is not None and x.requires_grad else None for x in leaves]


def size_of_scores(query, key, scale):
    """A bound of the sum of the absolute products of a score: the roundings of a score are as large."""
    if not query.numel() or not key.numel():
        return 0.0
    query, key = [x.double().abs().flatten(0, -2).amax(0) for x in (query, key)]
    return (query @ key).item() * abs(query.shape[-1] ** -0.5 if scale is None else scale)


def sum_of_weights(gradient, weight, sees, scores):
    """None, or how far the weights of rows do not sum to 1, according to the gradient of the values.

    Args:
        gradient: [..., S, Ev].
        weight: [..., L, Ev], the gradient of the output.
        sees: [..., L, 1] or broadcastable, whether a row sees a key.
        scores: the size of scores, of which the backward pass may add the products in another order.
    """
    expected = (weight.double() * sees).flatten(0, -2).sum(0)
    found = gradient.double().flatten(0, -2).sum(0)
    size = (weight.double().abs() * sees).flatten(0, -2).sum(0)
    # Each element of the gradient is rounded, too.
    of_scores = scores * torch.finfo(torch.promote_types(gradient.dtype, torch.float32)).eps
    allowed = SUM_ROUNDINGS * torch.finfo(gradient.dtype).eps + of_scores
    error = ((found - expected).abs() / (size + gradient.double().abs().flatten(0, -2).sum(0) + 1e-300)).max().item()
    return None if error <= allowed else f"the weights of a row do not sum to 1: relative error {error:.3g}, {allowed:.3g} allowed"
