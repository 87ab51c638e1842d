"""Every operation that regions know, compiled, agrees with torch and NumPy element by element."""

import functools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from region_reference import Case, differences, run

generator = torch.Generator().manual_seed(1)
table = torch.rand(3, 19, generator=generator) - 0.5
cube = torch.rand(2, 9, 19, generator=generator) - 0.5
vector = torch.rand(40, generator=generator)
half, brain = vector.half(), vector.bfloat16()
double = vector.double()
flags = torch.rand(19, generator=generator) > 0.4
bytes_ = torch.randint(0, 256, (19,), dtype=torch.uint8, generator=generator)
small = torch.randint(-128, 128, (19,), dtype=torch.int8, generator=generator)
short = torch.randint(-5, 6, (19,), dtype=torch.int16, generator=generator)
words = torch.randint(-9, 9, (19,), dtype=torch.int32, generator=generator)
longs = torch.randint(-9, 9, (19,), generator=generator)
extremes = torch.tensor([float("inf"), float("-inf"), float("nan"), 1e30, -1e30, 2.5, -2.5, 0.0])
number = torch.tensor(0.75)
parameter = torch.nn.Parameter(torch.tensor([0.1, 0.2, 0.3]), requires_grad=False)


def grown(x, y):
    x += y
    x *= 0.5
    return x


# Both say what the same arguments mean; `x` is the module of functions.
SCORES = {
    "add": "s + 0.5 * h + j", "subtract": "2 - s - 0.1 * i", "multiply": "s * (h + 1) * 0.5",
    "divide": "s + j / (h + 2)", "negate": "-s + -h", "abs": "abs(s) + abs(i - j)", "exp": "x.exp(s) * 0.1",
    "exp2": "x.exp2(s)", "expm1": "x.expm1(s)", "log": "x.log(abs(s) + 1) + x.log(j + 1)", "log2": "x.log2(j + 1.5)",
    "log10": "x.log10(j + 1.5)", "log1p": "x.log1p(abs(s))", "sqrt": "x.sqrt(j + 0.5)", "sin": "x.sin(s)",
    "cos": "x.cos(j - i)", "tan": "x.tan(s * 0.3)", "sinh": "x.sinh(s)", "cosh": "x.cosh(s)",
    "tanh": "5 * x.tanh(s / 5)", "square": "x.square(s)", "sign": "x.sign(s) + x.sign(i - j)",
    "reciprocal": "x.reciprocal(j + 1.5)", "floor": "x.floor(s) + x.floor(j / 3)", "ceil": "x.ceil(s)",
    "trunc": "x.trunc(s * 3)", "minimum": "x.minimum(s, j * 0.1) + x.minimum(i, j)",
    "maximum": "x.maximum(s, j * 0.1) + x.maximum(i, j)", "clip": "x.clip(s, -0.5, 0.5) + x.clip(j - i, -2, 2)",
    "where": "x.where(i > j, s, s * 0.5) + x.where(j > 3, 1, 0)",
    "floor_divide": "s + j // 3 + (j - i) // 4 - j // (h + 1)", "remainder": "s + j % 3 + (j - i) % 4 + (i - j) % -3",
    "remainder of floats": "s + (j * 0.3 - 2) % 1.5 + (s * 2) % -0.7",
    "floor_divide of floats": "s + (j * 0.3 - 2) // 0.5 + 1.0 // (s + 10)", "fmod": "x.fmod(j - i, 3) + x.fmod(s, 0.3)",
    "power": "s ** 2 + s ** 3 + j ** 2 * 0.01", "negative power": "(j + 1.0) ** -2",
    "zeroth power": "s ** 0 + i ** 0 * 2",
    "root": "(j + 0.5) ** 0.5 + (j + 0.5) ** -0.5", "power of floats": "(abs(s) + 0.1) ** 1.3 + (j + 1) ** 0.25",
    "power of two": "2.0 ** (-0.5 * (h + 1)) * j + 2 ** h", "exponent": "1.7 ** s + 3.0 ** (h * 0.5)",
    "constant": "2.5 + 0 * s",
    "nan and inf": "x.where(x.isnan(s * float('nan')) & ~x.isinf(s) & x.isfinite(s), s, 0.0)", "plain number": "1",
    "dead": "(x.log(s - 100), s)[1]", "read": "s + table[h, j]", "chained": "s + table[h][j]",
    "cube": "s + cube[b, i, j] + cube[b][i, j]", "negative constant": "s + table[-1, j] + table[0][-2]",
    "negative computed": "s + vector[j - i] + table[h - 2, i - j]", "scalar capture": "s * number",
    "double": "s + double[j]", "read twice": "s + vector[j] * vector[j] + vector[i]", "bool": "s + flags[j]",
    "uint8": "s + bytes_[j] / 64 + (bytes_[j] // 7) * 0.01 + (bytes_[j] > 127)", "int8": "s + small[j] / 64",
    "int16": "s + short[j]", "int32": "s + words[j] % 4 + words[j] * 0.5", "int64": "s + longs[j] // 2",
    "fmin and fmax": "x.fmin(s, s * float('nan')) + x.fmax(j * 0.1, s) + x.fmin(i, j) "
        "+ x.fmax(number * float('nan'), s)",
    "hypot": "x.hypot(s, j * 0.5) + x.where(x.hypot(s * 0, s * 0) == 0, 1.0, 2.0)",
    "copysign": "x.copysign(s + 0.5, i - j + 0.5)", "logaddexp": "x.logaddexp(s, j * 0.5) - x.logaddexp(s * 9, s)",
    "logaddexp of infinities": "x.where(x.logaddexp(s - float('inf'), s - float('inf')) < -9, s, 2.0)",
    "nan_to_num": "x.nan_to_num(extremes[j % 2]) * 1e-39 + x.nan_to_num(s) "
        "+ x.nan_to_num(extremes[j % 3], nan=1.5, posinf=2.0, neginf=-3.0)",
    "index from a table": "s + vector[words[j]] + vector[longs[i]]", "half": "s + half[j]",
}  # fmt: skip
MASKS = {
    "less": "j <= i", "compare all": "(i < j) | (i <= h) | (i > j + 3) | (i >= 4) | (i == j) | (h != 1)",
    "bits": "((i ^ j) & 3 | h) != 0", "not": "~(i > j)", "remainder": "(i + j) % 3 != 0", "bit": "((i ^ j) & 4) != 0",
    "true": "True", "false": "False",
    "logic": "x.logical_and(i > 1, x.logical_or(j > 3, x.logical_not(h > 0))) | x.logical_xor(i > 3, j > 9)",
    "band": "abs(i - j) <= 3", "open band": "abs(i - j) < h + 1", "reversed": "3 >= abs(j - i)",
    "floats": "j * 0.5 < i + 0.25", "documents": "words[i] == words[j]", "lengths": "j < longs[b] + 9",
    "flags": "flags[j] & (words[j] > -3)", "bytes": "bytes_[j] >= bytes_[i]", "blocks": "i // 2 == j // 4",
    "product of booleans": "(i > 1) * (j > 2) * (h > 0)", "shifts": "(((1 << (j % 8)) & 85) | (j >> 2 == i)) != 0",
    "choice": "x.where(h == 1, i >= j, j % 2 == 0)", "nothing": "j < 0", "equal floats": "vector[j] != vector[i]",
    "nothing captured": "h < 2",
}  # fmt: skip
NUMPY_MASKS = {"division by nothing": "np.where(i > 0, j // i, 5) > 2"}  # torch raises
TORCH_ONLY = {
    "rsqrt": "torch.rsqrt(j + 0.5)", "sigmoid": "torch.sigmoid(s) + s.sigmoid()", "relu": "F.relu(s)",
    "silu": "F.silu(s)", "softplus": "F.softplus(s * 9)", "asin": "torch.asin(torch.sin(s)) + torch.acos(torch.cos(s))",
    "atan": "torch.atan(s)", "erf": "torch.erf(s) + torch.erfc(s)",
    "asinh": "torch.asinh(s) + torch.acosh(j + 1.5) + torch.atanh(torch.tanh(s * .3))",
    "atan2": "torch.atan2(s, j - 2.5)", "round": "torch.round(s * 2) + (j / 2).round()",
    "alpha": "torch.add(s, j, alpha=0.5) - torch.sub(s, i, alpha=2)",
    "rounding modes": "s + torch.div(j - i, 3, rounding_mode='floor') "
        "+ torch.div(j - i, 3, rounding_mode='trunc') + torch.div(s, 0.3, rounding_mode='trunc')",
    "casts": "s + (s * 3).to(torch.int64) + (s * 3).int() + j.float() + j.to(torch.int32) // 2 "
        "+ (s * 9).to(torch.int8) + (j > 3).to(torch.long)", "rounded cast": "s.to(torch.bfloat16).float() + s.half() + (j * 1001).half().float() * 1e-3 + (i * 77).to(torch.bfloat16).float() * 1e-3",
    "rounded constant": "s + s.new_full((), 0.1).to(torch.bfloat16).float() + i.new_full((), 4099).half()",
    "extents of rows": "s + len(cube[b]) * 0.1 + cube[b, i].shape[0] * 0.01",
    "log of zero": "s + torch.where(j > 2, torch.log((j - 2.0).clamp(min=0)).to(torch.long), 7)",
    "from what no integer is": "s + torch.where(extremes[j % 8].abs() < 9, extremes[j % 8], 2.0).long() "
        "+ torch.where(extremes[j % 8].abs() < 9, extremes[j % 8].long(), 3)",
    "gelu": "F.gelu(s) + F.gelu(s * 3, approximate='tanh') + F.gelu(double[j])",
    "units": "F.leaky_relu(s, 0.2) + F.leaky_relu(s) + F.elu(s, 0.7) + F.selu(s) + F.celu(s, 2.0) + F.hardtanh(s) "
        "+ F.relu6(s)",
    "defaults of operators": "aten.hardtanh(s) + aten.leaky_relu(s) + aten.elu(s) + aten.celu(s) + aten.softplus(s) + aten.gelu(s) "
        "+ aten.addcmul(s, j, i) + aten.addcdiv(s, s, i + 1.5) + aten.nan_to_num(s) + aten.rsub(s, j) + aten.round(s)",
    "masked_fill": "s.masked_fill(i > j, -2.5) + torch.masked_fill(j, j > 3, 7) "
        "+ s.clone().masked_fill_(h == 1, number)",
    "lerp": "torch.lerp(s, vector[j], 0.3) + s.lerp(vector[j], vector[i])",
    "addcmul": "torch.addcmul(s, vector[j], vector[i], value=0.5) + s.addcdiv(vector[j], vector[i] + 1, value=-2)",
    "frac": "s.frac() + torch.frac(s * 3)", "take": "s + torch.take(vector, j + h) + vector.take(longs[i] + 9)",
    "embedding": "s + F.embedding(h, table)[j] + torch.embedding(table, b)[i]",
    "half in range": "torch.nan_to_num(half[j] / 0.0).float() * 1e-5 + s",
    "clamps": "s.clamp(min=0) + j.clamp_max(4) + torch.clamp(s, number, j)",
    "made inside": "s + torch.tensor([0.5, 1.5, 2.5])[h] + torch.tensor(0.25) * j",
    "filled": "s + torch.full_like(s, 2) * i.new_ones(()) + torch.zeros_like(j) + s.new_full((), 3)",
    "changed in place": "s.clone().add_(j).mul_(0.5)", "sum in place": "torch.zeros(()).add_(s)",
    "cast in place": "s + small[j].clone().mul_(j) * 0.01 + s.clone().add_(double[j]) + bytes_[j].clone().sub_(j) * 0.01",
    "bfloat16": "s + brain[j]", "int8 wraps": "s + (small[j] * 2) / 64", "parameter": "s + parameter[h]",
    "uint8 wraps": "s + (bytes_[j] + 100) / 64", "detached": "s.detach() + j.view(()) + i.squeeze()",
    "transposed": "s + table.T[j, h] + table[:, 2][h]", "extents": "s + j / table.shape[1] + len(vector) * 0.01",
    "computed": "s + (table * 2)[h, j] + float(number)", "default": "s",
    "narrowed and widened": "s + (j * 30).to(torch.int8).long() * 0.01 + (j * 2**30).int().long() * 1e-9 "
        "+ (longs[j] * 99).to(torch.uint8).long()",
    "shifted bytes": "s + (bytes_[j] >> 9) + (bytes_[j] >> (j % 12)) + (bytes_[j] << (j % 12))",
    "sign of nan": "s + torch.sign(s * float('nan'))",
    "infinite power": "torch.where((abs(s) + 1.5) ** float('inf') > 9, s, 2.0)",
}  # fmt: skip
NUMPY_ONLY = {
    "inverse functions": "np.arcsin(np.sin(s)) + np.arccos(np.cos(s)) + np.arctan(s) + np.arctan2(s, j - 2.5)",
    "inverse hyperbolic": "np.arcsinh(s) + np.arccosh(j + 1.5) + np.arctanh(np.tanh(s * .3))",
    "rint": "np.rint(s * 2) + np.round(j / 2)",
    "casts": "s + (s * 3).astype(np.int64) + j.astype(np.float32) + j.astype(int) // 2",
    "ufuncs": "np.add(s, j) - np.subtract(s, i) * np.true_divide(j, 3) + np.float32(2) * s + np.int64(2) * j",
    "transposed": "s + table.T[j, h] + table[:, 2][h]", "extents": "s + j / table.shape[1] + len(vector) * 0.01",
    "rounded cast": "s.astype(np.float16).astype(np.float32) + s",
    "added in place": "grown(s, j)", "sign of nan": "s + np.isnan(np.sign(s * np.nan))",
    "computed": "s + (table * 2)[h, j] + float(number)",
    "cbrt": "np.cbrt(s) + np.cbrt(j - i)",
    "float power": "np.float_power(i + 1, -1) + np.float_power(j + 2**16, 4) * 1e-20 + np.float_power(s, 2)",
    "absolute": "np.abs(s) + np.fabs(s) + np.power(s, 2) + np.negative(s)",
}  # fmt: skip

WIDE = ("exp", "sin", "tanh", "clip", "power", "root", "power of floats", "remainder of floats", "half", "uint8", "read",
        "log", "divide", "exponent", "sqrt")

# Functions by name that are compiled as one program: the library, the role, the texts, the precision.
GROUPS = {
    "torch score": (torch, "score", SCORES, "f32"), "torch only": (torch, "score", TORCH_ONLY, "f32"),
    "torch mask": (torch, "mask", MASKS, "f32"),
    "torch f64": (torch, "score", {name: SCORES[name] for name in WIDE}, "f64"),
    "numpy score": (np, "score", SCORES, "f32"), "numpy only": (np, "score", NUMPY_ONLY, "f32"),
    "numpy mask": (np, "mask", {**MASKS, **NUMPY_MASKS}, "f32"),
}  # fmt: skip
NAMES = {
    torch: {**globals(), "x": torch, "F": torch.nn.functional, "aten": torch.ops.aten},
    np: {**{name: x.detach().numpy() for name, x in globals().items() if isinstance(x, torch.Tensor) and x is not brain},
         "np": np, "x": np, "grown": grown},
}


@functools.cache
def cases(group):
    """The cases of a group by name, all of them compiled and run."""
    library, role, texts, precision = GROUPS[group]
    arguments = "s, b, h, i, j" if role == "score" else "b, h, i, j"
    functions = {name: eval(f"lambda {arguments}: {text}", NAMES[library]) for name, text in texts.items()}
    found = {name: Case(name, **{role: function}, precision=precision) for name, function in functions.items()}
    run(list(found.values()))
    return found


@pytest.mark.parametrize(("group", "name"), [(group, name) for group in GROUPS for name in GROUPS[group][2]])
def test_operation_agrees_with_calls_for_every_element(group, name):
    case, library = cases(group)[name], GROUPS[group][0]
    if library is torch:
        score = torch.float32 if case.precision == "f32" else torch.float64
        wrong = differences([case], torch.tensor, lambda value: torch.tensor(value, dtype=score))
    else:
        with np.errstate(all="ignore"):
            wrong = differences([case], np.int64, np.float32)
    assert not wrong, "\n".join(wrong)
