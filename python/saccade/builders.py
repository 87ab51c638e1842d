"""Transformer blocks as programs: self-attention, cross-attention, encoder layers and stacks of them.

A builder returns a `Block`: the program text, the names and shapes of its weights, and a call operator. Batch and
lengths are dynamic. Projection weights are [out, in], as in PyTorch.

    >>> block = saccade.builders.encoder(2, embed_dim=256, num_heads=4, ffn_dim=1024)
    >>> y = block(x, **block.init_weights(seed=0))
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from saccade import _parameters
from saccade._arrays import Array
from saccade.module import compile

if TYPE_CHECKING:
    import numpy

_Step = Callable[[tuple[Any, ...]], tuple[Any, ...]]
_ELEMENTS = ("f32", "bf16", "f16", "f64")
_MAPS = """#rows = affine_map<(m, n, k) -> (m, k)>
#weights = affine_map<(m, n, k) -> (n, k)>
#result = affine_map<(m, n, k) -> (m, n)>
#all = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (m)>
#column = affine_map<(m, n) -> (n)>
"""


def glorot_uniform(shape: tuple[int, ...], seed: int = 0, gain: float = 1.0) -> numpy.ndarray:
    """Glorot (Xavier) initialization, uniform (Glorot and Bengio 2010): float32 weights [..., out, in] from ±gain·√(6 /
    (in + out))."""
    import numpy

    limit = gain * math.sqrt(6 / (shape[-1] + shape[-2]))
    return numpy.random.default_rng(seed).uniform(-limit, limit, shape).astype(numpy.float32)


def glorot_normal(shape: tuple[int, ...], seed: int = 0, gain: float = 1.0) -> numpy.ndarray:
    """Glorot (Xavier) initialization, normal: standard deviation gain·√(2 / (in + out))."""
    import numpy

    deviation = gain * math.sqrt(2 / (shape[-1] + shape[-2]))
    return (numpy.random.default_rng(seed).standard_normal(shape) * deviation).astype(numpy.float32)


@dataclasses.dataclass(frozen=True)
class Block:
    """A program and the names of its inputs and weights."""

    program: str
    """The text: one public function, @block, that takes inputs, then weights."""
    inputs: tuple[str, ...]
    """The names of the inputs, in order: "x" [batch, length, embed_dim], "source" [batch, source length, source_dim],
    "lengths" [batch] (int32)."""
    weights: dict[str, tuple[int, ...]]
    """The shapes of the weights by name, in order."""

    def init_weights(self, seed: int = 0, init: Callable[..., Any] = glorot_uniform) -> dict[str, numpy.ndarray]:
        """Initial weights: `init(shape, seed)` for matrices, each with its own seed, 1 for gamma, 0 for biases and
        beta."""
        import numpy

        seeds = numpy.random.SeedSequence(seed).generate_state(len(self.weights))
        return {name: init(shape, int(own)) if len(shape) > 1 else
                numpy.full(shape, float(name.endswith("gamma")), numpy.float32)
                for own, (name, shape) in zip(seeds, self.weights.items())}  # fmt: skip

    def __call__(self, *inputs: Array, **weights: Array) -> Array:
        """Runs the block. It is compiled at the first call in a process.

        Raises:
            TypeError: missing or unknown weights or inputs.
        """
        if missing := sorted(self.weights.keys() ^ weights.keys()):
            raise TypeError(f"weights are {', '.join(self.weights)}; missing or unknown: {', '.join(missing)}")
        if len(inputs) != len(self.inputs):
            raise TypeError(f"inputs are {', '.join(self.inputs)}; found {len(inputs)}")
        return compile(self.program)["block"](*inputs, *(weights[name] for name in self.weights))


def multi_head_attention(embed_dim: int, num_heads: int, *, bias: bool = True, causal: bool = False,
                         padding: bool = False, element: str = "f32") -> Block:
    """Multi-head self-attention: projections of x to queries, keys and values, attention, and the output projection.

    Args:
        embed_dim: the width of tokens, a multiple of `num_heads`.
        num_heads: the number of heads.
        bias: whether projections have a bias.
        causal: applies a causal mask.
        padding: adds an input "lengths" [batch], int32: tokens from that index on are masked out.
        element: the type of inputs and weights, "f32", "bf16", "f16" or "f64".
    """
    writer = _Writer(element, padding, embed_dim=embed_dim, num_heads=num_heads)
    x = writer.input("x", embed_dim)
    y = writer.attention("", x, x, embed_dim, num_heads, bias, causal)
    return writer.block(y, embed_dim)


def cross_attention(embed_dim: int, source_dim: int, num_heads: int, *, bias: bool = True, padding: bool = False,
                    element: str = "f32") -> Block:
    """Attention of x [batch, length, embed_dim] over "source" [batch, source length, source_dim]; "lengths" is that of
    the source."""
    writer = _Writer(element, padding, embed_dim=embed_dim, source_dim=source_dim, num_heads=num_heads)
    x, source = writer.input("x", embed_dim), writer.input("source", source_dim)
    return writer.block(writer.attention("", x, source, embed_dim, num_heads, bias, causal=False), embed_dim)


def encoder_layer(embed_dim: int, num_heads: int, ffn_dim: int, *, activation: str = "relu", norm_first: bool = False,
                  padding: bool = False, causal: bool = False, element: str = "f32") -> Block:
    """A Transformer encoder layer: attention and a feed-forward network, each with residual and layer norm; see
    `encoder`."""
    return encoder(1, embed_dim, num_heads, ffn_dim, activation=activation, norm_first=norm_first, padding=padding,
                   causal=causal, element=element)


def encoder(layers: int, embed_dim: int, num_heads: int, ffn_dim: int, *, activation: str = "relu",
            norm_first: bool = False, padding: bool = False, causal: bool = False, element: str = "f32") -> Block:
    """A stack of encoder layers (Vaswani et al. 2017). Weights of layer i start with "i_".

    Args:
        layers: the number of layers.
        embed_dim, num_heads: as in `multi_head_attention`.
        ffn_dim: the inner width of the feed-forward network.
        activation: "relu" or "gelu" (exact, with erf).
        norm_first: applies layer norm before attention and feed-forward network (pre-norm) instead of after the
            residuals.
        padding, causal, element: as in `multi_head_attention`.
    """
    if not isinstance(activation, str) or activation not in ("relu", "gelu"):
        raise ValueError(f"activation is {activation!r}, expected 'relu' or 'gelu'")
    writer = _Writer(element, padding, embed_dim=embed_dim, num_heads=num_heads, ffn_dim=ffn_dim)
    if not 1 <= _parameters.integer("layers", layers) < 1 << 16:
        raise ValueError(f"layers is {layers}, expected 1 to {(1 << 16) - 1}")
    x = writer.input("x", embed_dim)
    for i in range(layers):
        name = f"{i}_"
        attend: _Step = lambda y: writer.attention(name, y, y, embed_dim, num_heads, True, causal)
        widen: _Step = lambda y: writer.activate(writer.project(f"{name}w1", y, ffn_dim, True), ffn_dim, activation)
        feed: _Step = lambda y: writer.project(f"{name}w2", widen(y), embed_dim, True)
        for number, part in enumerate((attend, feed), 1):
            norm: _Step = lambda y: writer.norm(f"{name}norm{number}", y, embed_dim)
            x = writer.add(x, part(norm(x)), embed_dim) if norm_first else norm(writer.add(x, part(x), embed_dim))
    return writer.block(x, embed_dim)


class _Writer:
    """Writes @block. Between methods, tokens are 2-D values [tokens, width]: (name, token count, batch, length, width).
    """

    def __init__(self, element: str, padding: bool, **extents: int):
        for name, extent in extents.items():
            _parameters.integer(name, extent, 1)
        if not isinstance(element, str) or element not in _ELEMENTS:
            raise ValueError(f"element is {element!r:.80}, expected one of {', '.join(_ELEMENTS)}")
        self.element, self.padding = element, padding
        self.sum = "f64" if element == "f64" else "f32"
        self.inputs: list[tuple[str, str]] = []
        self.weights: dict[str, tuple[int, ...]] = {}
        self.lines: list[str] = []
        self.count = 0

    def matrix(self, *extents: int | str, element: str | None = None) -> str:
        return "tensor<" + "".join(f"{extent}x" for extent in extents) + (element or self.element) + ">"

    def emit(self, text: str) -> str:
        """Adds `%name = text` and returns the name."""
        self.count += 1
        self.lines.append(f"  %t{self.count} = {text}")
        return f"%t{self.count}"

    def input(self, name: str, width: int) -> tuple[str, str, str, str, int]:
        """Adds an input and returns it as [tokens, width]: the value, token count, batch, length and width."""
        kind, flat = self.matrix("?", "?", width), self.matrix("?", width)
        self.inputs.append((name, kind))
        batch = self.emit(f"tensor.dim %{name}, %c0 : {kind}")
        length = self.emit(f"tensor.dim %{name}, %c1 : {kind}")
        value = self.emit(f"tensor.collapse_shape %{name} [[0, 1], [2]] : {kind} into {flat}")
        return value, self.emit(f"tensor.dim {value}, %c0 : {flat}"), batch, length, width

    def weight(self, name: str, *shape: int) -> str:
        self.weights[name] = shape
        return f"%w_{name}"

    def project(self, name: str, x: tuple[Any, ...], out: int, bias: bool) -> tuple[Any, ...]:
        """x Wᵀ + b."""
        value, count, batch, length, width = x
        w, to, kind = self.weight(name, out, width), self.matrix("?", out), self.matrix("?", width)
        start = self.emit(f"tensor.empty({count}) : {to}")
        if bias:
            b = self.weight(f"{name}_bias", out)
            start = self.emit(f"linalg.broadcast ins({b} : {self.matrix(out)}) outs({start} : {to}) dimensions = [0]")
        else:
            start = self.emit(f"linalg.fill ins(%zero : {self.element}) outs({start} : {to}) -> {to}")
        y = self.emit(f"linalg.matmul indexing_maps = [#rows, #weights, #result] ins({value}, {w} : {kind}, "
                      f"{self.matrix(out, width)}) outs({start} : {to}) -> {to}")  # fmt: skip
        return y, count, batch, length, out

    def attention(self, name: str, x: tuple[Any, ...], source: tuple[Any, ...], width: int, heads: int, bias: bool,
                  causal: bool) -> tuple[Any, ...]:
        if width % heads:
            raise ValueError(f"embed_dim is {width}, expected a multiple of the {heads} heads")
        size = width // heads
        kind, flat = self.matrix("?", "?", heads, size), self.matrix("?", width)

        def split(role: str, of: tuple[Any, ...]) -> str:
            y = self.project(f"{name}{role}", of, width, bias)
            return self.emit(f"tensor.expand_shape {y[0]} [[0, 1], [2, 3]] output_shape [{y[2]}, {y[3]}, {heads}, "
                             f"{size}] : {flat} into {kind}")  # fmt: skip

        q, k, v = split("q", x), split("k", source), split("v", source)
        clauses = (" kv_len(%lengths : tensor<?xi32>)" * self.padding) + (" mask causal<top_left>" * causal)
        o = self.emit(f"attn.attention {q}[b,s,h,d], {k}[b,s,h,d], {v}[b,s,h,d]{clauses} "
                      f": ({kind}, {kind}, {kind}) -> {kind}")
        joined = self.emit(f"tensor.collapse_shape {o} [[0, 1], [2, 3]] : {kind} into {flat}")
        return self.project(f"{name}o", (joined, *x[1:4], width), width, bias)

    def generic(self, maps: str, iterators: str, inputs: list[tuple[str, str]], out: tuple[str, str], body: str) -> str:
        """A linalg.generic with block arguments %a0, %a1, ... and %out."""
        names, types = ", ".join(name for name, _ in inputs), ", ".join(type for _, type in inputs)
        elements = [type.split("x")[-1].rstrip(">") for _, type in [*inputs, out]]
        arguments = ", ".join(f"%{f'a{i}' if i < len(inputs) else 'out'}: {type}" for i, type in enumerate(elements))
        lines = "\n".join(f"    {line}" for line in body.strip().split("\n"))
        return self.emit(f"linalg.generic {{indexing_maps = [{maps}], iterator_types = [{iterators}]}} "
                         f"ins({names} : {types}) outs({out[0]} : {out[1]}) {{\n"
                         f"  ^bb0({arguments}):\n{lines}\n  }} -> {out[1]}")  # fmt: skip

    def wide(self, names: list[str]) -> tuple[str, dict[str, str]]:
        """Code that extends block arguments to the accumulation type, and the names of the results."""
        if self.element == self.sum:
            return "", {name: f"%{name}" for name in names}
        lines = "".join(f"%{name}w = arith.extf %{name} : {self.element} to {self.sum}\n" for name in names)
        return lines, {name: f"%{name}w" for name in names}

    def narrow(self, name: str) -> str:
        if self.element == self.sum:
            return f"linalg.yield {name} : {self.element}"
        return f"%narrow = arith.truncf {name} : {self.sum} to {self.element}\nlinalg.yield %narrow : {self.element}"

    def elementwise(self, x: tuple[Any, ...], others: list[str], width: int, body: str, result: str) -> tuple[Any, ...]:
        kind = self.matrix("?", width)
        out = self.emit(f"tensor.empty({x[1]}) : {kind}")
        inputs = [(value, kind) for value in (x[0], *others)]
        maps = ", ".join(["#all"] * (len(inputs) + 1))
        widened, _ = self.wide([f"a{i}" for i in range(len(inputs))])
        y = self.generic(maps, '"parallel", "parallel"', inputs, (out, kind), widened + body + self.narrow(result))
        return (y, *x[1:])

    def add(self, x: tuple[Any, ...], y: tuple[Any, ...], width: int) -> tuple[Any, ...]:
        _, names = self.wide(["a0", "a1"])
        return self.elementwise(x, [y[0]], width, f"%r = arith.addf {names['a0']}, {names['a1']} : {self.sum}\n", "%r")

    def activate(self, x: tuple[Any, ...], width: int, activation: str) -> tuple[Any, ...]:
        _, names = self.wide(["a0"])
        a, t = names["a0"], self.sum
        if activation == "relu":
            body = f"%zero_w = arith.constant 0.0 : {t}\n%r = arith.maximumf {a}, %zero_w : {t}\n"
        else:
            body = (f"%half = arith.constant 0.5 : {t}\n%one = arith.constant 1.0 : {t}\n"
                    f"%root = arith.constant {math.sqrt(0.5)!r} : {t}\n%u = arith.mulf {a}, %root : {t}\n"
                    f"%e = math.erf %u : {t}\n"
                    f"%f = arith.addf %e, %one : {t}\n%g = arith.mulf %f, %half : {t}\n"
                    f"%r = arith.mulf {a}, %g : {t}\n")  # fmt: skip
        return self.elementwise(x, [], width, body, "%r")

    def norm(self, name: str, x: tuple[Any, ...], width: int) -> tuple[Any, ...]:
        """(x − mean) / √(variance + 1e-5) · gamma + beta, over the width."""
        kind, row, column, t = self.matrix("?", width), self.matrix("?", element=self.sum), self.matrix(width), self.sum
        gamma, beta = self.weight(f"{name}_gamma", width), self.weight(f"{name}_beta", width)
        empty = self.emit(f"tensor.empty({x[1]}) : {row}")
        start = self.emit(f"linalg.fill ins(%zero_sum : {t}) outs({empty} : {row}) -> {row}")
        widened, names = self.wide(["a0"])
        a = names["a0"]
        rows, both = '"parallel", "reduction"', '"parallel", "parallel"'
        sums = self.generic("#all, #row", rows, [(x[0], kind)], (start, row),
                            f"{widened}%r = arith.addf %out, {a} : {t}\nlinalg.yield %r : {t}")  # fmt: skip
        centred = f"{widened}%width = arith.constant {float(width)!r} : {t}\n%mean = arith.divf %a1, %width : {t}\n" \
                  f"%c = arith.subf {a}, %mean : {t}\n"  # fmt: skip
        squares = self.generic("#all, #row, #row", rows, [(x[0], kind), (sums, row)], (start, row),
                               f"{centred}%s = arith.mulf %c, %c : {t}\n%r = arith.addf %out, %s : {t}\n"
                               f"linalg.yield %r : {t}")  # fmt: skip
        more, names = self.wide(["a3", "a4"])
        out = self.emit(f"tensor.empty({x[1]}) : {kind}")
        y = self.generic("#all, #row, #row, #column, #column, #all", both,
                         [(x[0], kind), (sums, row), (squares, row), (gamma, column), (beta, column)], (out, kind),
                         f"{centred}{more}%v = arith.divf %a2, %width : {t}\n%epsilon = arith.constant 1.0e-5 : {t}\n"
                         f"%g = arith.addf %v, %epsilon : {t}\n%i = math.rsqrt %g : {t}\n%u = arith.mulf %c, %i : {t}\n"
                         f"%p = arith.mulf %u, {names['a3']} : {t}\n%r = arith.addf %p, {names['a4']} : {t}\n"
                         + self.narrow("%r"))  # fmt: skip
        return (y, *x[1:])

    def block(self, y: tuple[Any, ...], width: int) -> Block:
        kind = self.matrix("?", "?", width)
        if self.padding:
            self.inputs.append(("lengths", "tensor<?xi32>"))
        result = self.emit(f"tensor.expand_shape {y[0]} [[0, 1], [2]] output_shape [{y[2]}, {y[3]}, {width}] "
                           f": {self.matrix('?', width)} into {kind}")  # fmt: skip
        arguments = [f"%{name}: {type}" for name, type in self.inputs]
        arguments += [f"%w_{name}: {self.matrix(*shape)}" for name, shape in self.weights.items()]
        text = (f"{_MAPS}\nfunc.func @block({', '.join(arguments)}) -> {kind} {{\n"
                f"  %c0 = arith.constant 0 : index\n  %c1 = arith.constant 1 : index\n"
                f"  %zero = arith.constant 0.0 : {self.element}\n  %zero_sum = arith.constant 0.0 : {self.sum}\n"
                + "\n".join(self.lines) + f"\n  return {result} : {kind}\n}}\n")  # fmt: skip
        return Block(text, tuple(name for name, _ in self.inputs), self.weights)
