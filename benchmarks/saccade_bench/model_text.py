"""Encoder models as MLIR programs in the form that importers produce; weights are arguments marked `attn.constant`."""

import dataclasses
import math

import numpy as np


@dataclasses.dataclass(frozen=True)
class Encoder:
    """A Transformer encoder of identical layers over embedded tokens [batch, sequence, width]."""

    name: str
    layers: int
    width: int
    heads: int
    inner: int  # width of the feed-forward layer
    is_pre_norm: bool  # layer norm before attention and FFN (ViT), else after each residual (BERT)
    epsilon: float
    batch: int  # of the measured input
    sequence: int

    @property
    def depth(self):
        return self.width // self.heads

    @property
    def flops(self):
        """FLOPs of the matmuls of one call."""
        tokens = self.batch * self.sequence
        weights = 4 * self.width**2 + 2 * self.width * self.inner
        return self.layers * (2 * tokens * weights + 4 * tokens * self.sequence * self.width)

    def parameters(self):
        """(name, shape) of all weights in argument order; matrices are [in, out], as in ONNX."""
        d, f = self.width, self.inner
        for layer in range(self.layers):
            yield from ((f"{name}_{layer}", shape) for name, shape in [
                ("wq", (d, d)), ("bq", (d,)), ("wk", (d, d)), ("bk", (d,)), ("wv", (d, d)), ("bv", (d,)),
                ("wo", (d, d)), ("bo", (d,)), ("g1", (d,)), ("h1", (d,)), ("w1", (d, f)), ("b1", (f,)),
                ("w2", (f, d)), ("b2", (d,)), ("g2", (d,)), ("h2", (d,))])  # fmt: skip
        if self.is_pre_norm:
            yield from [("g", (d,)), ("h", (d,))]

    def weights(self):
        """Random weights in f32 by name, scaled so that activations keep their size."""
        random = np.random.default_rng(11)
        made = {}
        for name, shape in self.parameters():
            values = random.standard_normal(shape, np.float32)
            scale = 1 / math.sqrt(shape[0]) if len(shape) == 2 else 0.1
            made[name] = values * np.float32(scale) + np.float32(1 if name[0] == "g" else 0)
        return made


MODELS = {
    "minilm": Encoder("minilm", 6, 384, 12, 1536, False, 1e-12, 32, 128),
    "vit-base": Encoder("vit-base", 12, 768, 12, 3072, True, 1e-6, 8, 197),
}

# Indexing maps of the loops b, s, n.
TOKEN, ROW, COLUMN = ("affine_map<(b, s, n) -> (b, s, n)>", "affine_map<(b, s, n) -> (b, s)>",
                      "affine_map<(b, s, n) -> (n)>")  # fmt: skip


class Writer:
    """Writes one function; methods append ops and return the name of the result. Computation is in f32."""

    def __init__(self, model, type):
        self.model, self.type, self.lines, self.count = model, type, [], 0

    def add(self, text):
        self.count += 1
        self.lines.append(f"  %{self.count} = {text}")
        return f"%{self.count}"

    def tensor(self, *shape, type=None):
        return f"tensor<{'x'.join('?' if each is None else str(each) for each in shape)}x{type or self.type}>"

    def empty(self, *shape, type=None):
        sizes = [size for size, each in zip(("%batch", "%sequence"), shape) if each is None]
        return self.add(f"tensor.empty({', '.join(sizes)}) : {self.tensor(*shape, type=type)}")

    def filled(self, *shape):
        kind = self.tensor(*shape, type="f32")
        return self.add(f"linalg.fill ins(%zero : f32) outs({self.empty(*shape, type='f32')} : {kind}) -> {kind}")

    def generic(self, maps, iterators, inputs, out, out_type, body):
        """A linalg.generic with inputs (name, type). `body` takes the f32 operand names and the accumulator, and returns
        (lines, name of the f32 result)."""
        lines, scalars = [], []
        kinds = [kind[:-1].split("x")[-1] for _, kind in inputs] + [out_type[:-1].split("x")[-1]]
        arguments = ", ".join(f"%a{i}: {kind}" for i, kind in enumerate(kinds))
        for i, kind in enumerate(kinds[:-1]):
            if kind == "f32":
                scalars.append(f"%a{i}")
            else:
                lines.append(f"%w{i} = arith.extf %a{i} : {kind} to f32")
                scalars.append(f"%w{i}")
        more, result = body(*scalars, f"%a{len(inputs)}")
        lines += more
        if kinds[-1] != "f32":
            lines.append(f"%narrow = arith.truncf {result} : f32 to {kinds[-1]}")
            result = "%narrow"
        text = "\n".join(f"      {line}" for line in [*lines, f"linalg.yield {result} : {kinds[-1]}"])
        names, types = ", ".join(name for name, _ in inputs), ", ".join(kind for _, kind in inputs)
        roles = ", ".join(f'"{each}"' for each in iterators)
        return self.add(f"linalg.generic {{indexing_maps = [{', '.join(maps)}], iterator_types = [{roles}]}}\n"
                        f"    ins({names} : {types}) outs({out} : {out_type}) {{\n    ^bb0({arguments}):\n{text}\n"
                        f"    }} -> {out_type}")  # fmt: skip

    def linear(self, x, depth, weight, bias, width):
        maps = ["affine_map<(b, s, n, k) -> (b, s, k)>", "affine_map<(b, s, n, k) -> (k, n)>",
                "affine_map<(b, s, n, k) -> (b, s, n)>"]  # fmt: skip
        wide = self.tensor(None, None, width, type="f32")
        matmul = self.generic(maps, ["parallel", "parallel", "parallel", "reduction"],
                               [(x, self.tensor(None, None, depth)), (weight, self.tensor(depth, width))],
                               self.filled(None, None, width), wide,
                               lambda a, b, out: ([f"%m = arith.mulf {a}, {b} : f32",
                                                   f"%r = arith.addf {out}, %m : f32"], "%r"))  # fmt: skip
        return self.pointwise([(matmul, wide, TOKEN), (bias, self.tensor(width), COLUMN)], width,
                              lambda a, b, out: ([f"%r = arith.addf {a}, {b} : f32"], "%r"))  # fmt: skip

    def pointwise(self, inputs, width, body, type=None):
        kind = self.tensor(None, None, width, type=type)
        maps = [place for _, _, place in inputs] + [TOKEN]
        return self.generic(maps, ["parallel"] * 3, [(name, each) for name, each, _ in inputs],
                            self.empty(None, None, width, type=type), kind, body)  # fmt: skip

    def sum_of_rows(self, inputs, body):
        maps = [place for _, _, place in inputs] + [ROW]
        return self.generic(maps, ["parallel", "parallel", "reduction"], [(name, each) for name, each, _ in inputs],
                            self.filled(None, None), self.tensor(None, None, type="f32"), body)  # fmt: skip

    def norm(self, x, gamma, beta):
        d, whole, row = self.model.width, self.tensor(None, None, self.model.width), self.tensor(None, None, type="f32")
        total = self.sum_of_rows([(x, whole, TOKEN)], lambda a, out: ([f"%r = arith.addf {out}, {a} : f32"], "%r"))
        centre = ["%mean = arith.divf {}, %width : f32", "%c = arith.subf {}, %mean : f32"]
        squares = self.sum_of_rows([(x, whole, TOKEN), (total, row, ROW)], lambda a, t, out: ([
            centre[0].format(t), centre[1].format(a), "%q = arith.mulf %c, %c : f32",
            f"%r = arith.addf {out}, %q : f32"], "%r"))  # fmt: skip
        inputs = [(x, whole, TOKEN), (total, row, ROW), (squares, row, ROW), (gamma, self.tensor(d), COLUMN),
                  (beta, self.tensor(d), COLUMN)]  # fmt: skip
        return self.pointwise(inputs, d, lambda a, t, q, g, h, out: ([
            centre[0].format(t), centre[1].format(a), f"%v = arith.divf {q}, %width : f32",
            "%e = arith.addf %v, %epsilon : f32", "%i = math.rsqrt %e : f32", "%u = arith.mulf %c, %i : f32",
            f"%s = arith.mulf %u, {g} : f32", f"%r = arith.addf %s, {h} : f32"], "%r"))  # fmt: skip

    def sum(self, x, y):
        whole = self.tensor(None, None, self.model.width)
        return self.pointwise([(x, whole, TOKEN), (y, whole, TOKEN)], self.model.width,
                              lambda a, b, out: ([f"%r = arith.addf {a}, {b} : f32"], "%r"))  # fmt: skip

    def gelu(self, x):
        f = self.model.inner
        return self.pointwise([(x, self.tensor(None, None, f), TOKEN)], f, lambda a, out: ([
            f"%t = arith.mulf {a}, %inverse_sqrt2 : f32", "%f = math.erf %t : f32", "%o = arith.addf %f, %one : f32",
            "%p = arith.mulf %o, %half : f32", f"%r = arith.mulf {a}, %p : f32"], "%r"))  # fmt: skip

    def transposed(self, x, source, kind):
        """Transposes [b, s, h, d] to [b, h, s, d] or back with an explicit op, as exporters do."""
        empty = self.add(f"tensor.empty(%batch, %sequence) : {kind}")
        return self.add(f"linalg.transpose ins({x} : {source}) outs({empty} : {kind}) permutation = [0, 2, 1, 3]")

    def attention(self, x, layer):
        d, h, e = self.model.width, self.model.heads, self.model.depth
        flat, split, kind = self.tensor(None, None, d), self.tensor(None, None, h, e), self.tensor(None, h, None, e)
        heads = []
        for each in "qkv":
            y = self.linear(x, d, f"%w{each}_{layer}", f"%b{each}_{layer}", d)
            y = self.add(f"tensor.expand_shape {y} [[0], [1], [2, 3]] output_shape [%batch, %sequence, {h}, {e}] : "
                         f"{flat} into {split}")  # fmt: skip
            heads.append(self.transposed(y, split, kind))
        q, k, v = heads
        o = self.add(f"attn.attention {q}[b,h,s,d], {k}[b,h,s,d], {v}[b,h,s,d] : ({kind}, {kind}, {kind}) -> {kind}")
        o = self.transposed(o, kind, split)
        o = self.add(f"tensor.collapse_shape {o} [[0], [1], [2, 3]] : {split} into {flat}")
        return self.linear(o, d, f"%wo_{layer}", f"%bo_{layer}", d)

    def feed_forward(self, x, layer):
        d, f = self.model.width, self.model.inner
        hidden = self.gelu(self.linear(x, d, f"%w1_{layer}", f"%b1_{layer}", f))
        return self.linear(hidden, f, f"%w2_{layer}", f"%b2_{layer}", d)

    def layer(self, x, layer):
        first, second = ((f"%g{i}_{layer}", f"%h{i}_{layer}") for i in (1, 2))
        if self.model.is_pre_norm:
            x = self.sum(x, self.attention(self.norm(x, *first), layer))
            return self.sum(x, self.feed_forward(self.norm(x, *second), layer))
        x = self.norm(self.sum(x, self.attention(x, layer)), *first)
        return self.norm(self.sum(x, self.feed_forward(x, layer)), *second)

    def program(self):
        model, x = self.model, "%x"
        for layer in range(model.layers):
            x = self.layer(x, layer)
        if model.is_pre_norm:
            x = self.norm(x, "%g", "%h")
        whole = self.tensor(None, None, model.width)
        arguments = "".join(f",\n    %{name}: {self.tensor(*shape)} {{attn.constant}}"
                            for name, shape in model.parameters())  # fmt: skip
        body = "\n".join(self.lines)
        return f"""func.func @main(%x: {whole}{arguments}) -> {whole} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %half = arith.constant 0.5 : f32
  %inverse_sqrt2 = arith.constant 0.70710678 : f32
  %width = arith.constant {float(model.width)} : f32
  %epsilon = arith.constant {model.epsilon:.1e} : f32
  %batch = tensor.dim %x, %c0 : {whole}
  %sequence = tensor.dim %x, %c1 : {whole}
{body}
  return {x} : {whole}
}}
"""


def program(model, type):
    """The text of a model in one element type, f32 or bf16."""
    return Writer(model, type).program()
