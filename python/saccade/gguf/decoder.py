"""Writes a decoder as a program: one step for any number of new tokens of any number of texts, with caches of keys and
values that it updates."""

from __future__ import annotations

import dataclasses
import math

from saccade.gguf.body import Body, Region, Value, tensor_type
from saccade.gguf.container import Container
from saccade.gguf.errors import FileError
from saccade.gguf.rotary import rotate, tables
from saccade.gguf.settings import Settings, read
from saccade.gguf.weights import Weights

CACHES = ("f32", "f16", "bf16")
"""The element types of caches."""
ACTIVATIONS = ("f32", "bf16", "int8")
"""The types of activations in matmuls."""


@dataclasses.dataclass(frozen=True)
class Program:
    """A decoder. @main takes

    - tokens [b, n] i32: new tokens, the first of which follows `lengths`;
    - lengths [b] i32: the tokens that the caches have;
    - counts [b] i32: the number of new tokens of each text; others up to n are padding;
    - rows [b, r] i32: the new tokens, by number from 0, whose logits are computed;
    - for each layer keys and values [b, KV heads, positions, head size], which it updates;
    - the tensors of the file.

    Its result is the logits [b, r, vocabulary] of what follows each of the tokens `rows`.
    """

    text: str
    settings: Settings
    weights: dict[str, str]
    """The tensors that it reads, by the names of arguments."""
    cache: str
    """The element type of caches."""


def write(container: Container, cache: str = "f32", activations: str = "f32") -> Program:
    """Writes the program of a file.

    Args:
        cache: the element type of caches, one of CACHES.
        activations: the type of the activations that are multiplied with blocks, and, unless it is int8, with weights
            in bfloat16, one of ACTIVATIONS. Sums are f32.

    Raises:
        FileError: an architecture, an element type, a key or a tensor that is not supported or missing.
    """
    if cache not in CACHES:
        raise ValueError(f"cache is {cache!r:.80}, expected one of {', '.join(CACHES)}")
    if activations not in ACTIVATIONS:
        raise ValueError(f"activations is {activations!r:.80}, expected one of {', '.join(ACTIVATIONS)}")
    return _Decoder(container, read(container), cache, activations).program()


class _Decoder:
    def __init__(self, container: Container, settings: Settings, cache: str, activations: str):
        self.container, self.settings, self.cache, self.activations = container, settings, cache, activations
        self.body = body = Body()
        self.weights = Weights(container, body, activations)
        self.rounded: dict[str, Value] = {}
        self.tokens, self.rows = Value("%tokens", ("?", "?"), "i32"), Value("%rows", ("?", "?"), "i32")
        self.batch, self.new = body.dim(self.tokens, 0), body.dim(self.tokens, 1)
        self.all = body.product(self.batch, self.new)
        self.lengths, self.counts = (Value(name, (self.batch,), "i32") for name in ("%lengths", "%counts"))
        heads = self.settings.kv_heads, "?", self.settings.head_dim
        self.cache_type = tensor_type(("?", *heads), cache)

    def program(self) -> Program:
        settings, body = self.settings, self.body
        caches = [f"%{kind}_{layer}" for layer in range(settings.layers) for kind in ("keys", "values")]
        updated: list[str] = []
        x = self.embedded()
        ends = body.generic("b,b->b", [self.lengths, self.counts], (self.batch,), lambda at, length, count: at.op(
            "arith.addi", length, count, type="i32"), "i32")
        factors = None
        if self.weights.has("rope_freqs.weight"):
            factors = self.weights.vector("rope_freqs.weight", settings.rotary.size // 2)
        angles = {}
        for layer, window in enumerate(settings.windows):
            rotary = settings.window_rotary if window else settings.rotary
            if rotary not in angles:
                angles[rotary] = tables(body, rotary, self.lengths, self.new, self.all, factors)
            x = self.layer(layer, x, angles[rotary], ends, caches[2 * layer : 2 * layer + 2], updated)
        logits = self.logits(x)
        if unused := self.weights.unused():
            names = ", ".join(map(repr, unused[:6])) + " ..." * bool(unused[6:])
            raise FileError(f"{self.container.path}: {len(unused)} tensors are not those of the architecture "
                            f"{settings.architecture}: {names}")
        texts, new, rows = '{attn.dim_names = ["b"]}', '{attn.dim_names = ["b", "n"]}', '{attn.dim_names = ["b", "r"]}'
        arguments = [f"%tokens: tensor<?x?xi32> {new}", f"%lengths: tensor<?xi32> {texts}",
                     f"%counts: tensor<?xi32> {texts}", f"%rows: tensor<?x?xi32> {rows}"]
        arguments += [f'{name}: {self.cache_type} {{attn.dim_names = ["b", "", "s", ""], attn.updated_by = {i}}}'
                      for i, name in enumerate(caches)]
        arguments += self.weights.declarations()
        types = ", ".join([self.cache_type] * len(caches) + [logits.type])
        comment = f"// {settings.name!r:.200} of {len(caches) // 2} layers, {settings.architecture}"
        text = "\n".join([comment, f"func.func @main({', '.join(arguments)}) -> ({types}) {{", *body.lines,
                          f"  return {', '.join([*updated, logits.name])} : {types}", "}", ""])  # fmt: skip
        weights = {argument: tensor.name for argument, tensor in self.weights.arguments.items()}
        return Program(text, settings, weights, self.cache)

    def embedded(self) -> Value:
        """The vectors [all tokens, width] of the new tokens."""
        settings, body = self.settings, self.body
        ids = body.join(Value("%tokens", (self.batch, self.new), "i32"), 0, 2, self.all)
        x = self.weights.rows("token_embd.weight", ids, (settings.vocabulary, settings.width))
        if not settings.family.scales_embedding:
            return x
        return body.generic("rd->rd", [x], x.shape, lambda at, x: at.op(
            "arith.mulf", x, at.op("math.sqrt", at.constant(settings.width))))

    def layer(self, layer: int, x: Value, angles: tuple[Value, Value], ends: Value, caches: list[str],
              updated: list[str]) -> Value:
        for name in self.settings.family.norms:
            if not self.weights.has(f"blk.{layer}.{name}.weight"):
                raise FileError(f"{self.container.path}: the file has no tensor 'blk.{layer}.{name}.weight'")
        normed = self.norm(x, f"blk.{layer}.attn_norm")
        attended = self.attention(layer, normed, angles, ends, caches, updated)
        x = self.add(x, self.optional_norm(attended, f"blk.{layer}.post_attention_norm"))
        fed = self.feed(layer, self.norm(x, f"blk.{layer}.ffn_norm"))
        return self.add(x, self.optional_norm(fed, f"blk.{layer}.post_ffw_norm"))

    def attention(self, layer: int, x: Value, angles: tuple[Value, Value], ends: Value, caches: list[str],
                  updated: list[str]) -> Value:
        settings, body = self.settings, self.body
        depth = settings.head_dim
        heads = []
        for kind, count in (("q", settings.heads), ("k", settings.kv_heads), ("v", settings.kv_heads)):
            name = f"blk.{layer}.attn_{kind}"
            head = body.split(self.linear(x, name, count * depth), 1, (count, depth))
            head = self.optional_norm(head, f"{name}_norm")
            if kind != "v":
                head = rotate(body, head, angles, settings.family.is_interleaved)
            heads.append(body.split(head, 0, (self.batch, self.new)))
        kept = []
        for new, cache in zip(heads[1:], caches):
            stored = new if self.cache == "f32" else self.converted(new, "arith.truncf", self.cache)
            appended = body.emit(f"attn.append {stored.name}[b,s,h,d] to {cache}[b,h,s,d] at(%lengths : tensor<?xi32>) "
                                 f"count(%counts : tensor<?xi32>) : ({stored.type}, {self.cache_type}) -> "
                                 f"{self.cache_type}")
            updated.append(appended)
            value = Value(appended, (self.batch, settings.kv_heads, "?", depth), self.cache)
            if self.cache != "f32":
                value = value._replace(shape=(self.batch, settings.kv_heads, body.dim(value, 2), depth))
                value = self.converted(value, "arith.extf", "f32")
            kept.append(value)
        q, (k, v) = heads[0], kept
        clauses = ["q_len(%counts : tensor<?xi32>)", f"kv_len({ends.name} : tensor<?xi32>)",
                   f"scale({settings.scale:.17e})", "mask causal<bottom_right>"]
        if (window := settings.windows[layer]) is not None:
            clauses.append(_window(window))
        if settings.score_cap is not None:
            clauses.append(_capped_scores(settings.score_cap))
        out = body.emit(f"attn.attention {q.name}[b,s,h,d], {k.name}[b,h,s,d], {v.name}[b,h,s,d] {' '.join(clauses)} "
                        f"out[b,s,h,d] : ({q.type}, {k.type}, {v.type}) -> {q.type}")
        joined = body.join(body.join(Value(out, q.shape), 0, 2, self.all), 1, 2, settings.heads * depth)
        return self.linear(joined, f"blk.{layer}.attn_output", settings.width)

    def feed(self, layer: int, x: Value) -> Value:
        """The feed-forward network."""
        hidden = self.settings.hidden[layer]
        gate, up = (self.linear(x, f"blk.{layer}.ffn_{kind}", hidden) for kind in ("gate", "up"))
        activation = {"silu": _silu, "gelu": _gelu}[self.settings.family.activation]
        product = self.body.generic("rd,rd->rd", [gate, up], gate.shape,
                                    lambda at, x, y: at.op("arith.mulf", activation(at, x), y))  # fmt: skip
        return self.linear(product, f"blk.{layer}.ffn_down", self.settings.width)

    def logits(self, x: Value) -> Value:
        """The logits of what follows the tokens %rows."""
        settings, body = self.settings, self.body
        count = body.dim(self.rows, 1)
        asked = body.product(self.batch, count)
        x = body.split(x, 0, (self.batch, self.new))

        def taken(at: Region, row: str) -> str:
            zero, one = at.constant(0, "index"), at.constant(1, "index")
            last = at.op("arith.subi", self.new, one, type="index")
            place = at.cast("arith.index_cast", row, "i32", "index")
            place = at.op("arith.maxsi", at.op("arith.minsi", place, last, type="index"), zero, type="index")
            return at.extract(x, at.index("b"), place, at.index("d"))

        rows = Value("%rows", (self.batch, count), "i32")
        some = body.generic("br->brd", [rows], (self.batch, count, settings.width), taken)
        normed = self.norm(body.join(some, 0, 2, asked), "output_norm")
        output = "output" if self.weights.has("output.weight") else "token_embd"
        logits = self.linear(normed, output, settings.vocabulary)
        if (cap := settings.logit_cap) is not None:
            logits = body.generic("rd->rd", [logits], logits.shape, lambda at, x: _capped(at, x, cap))
        return body.split(logits, 0, (self.batch, count))

    def linear(self, x: Value, name: str, extent: int) -> Value:
        """x [rows, columns] times a matrix [extent, columns], and a bias if the file has one."""
        body = self.body
        rows, columns = x.shape
        assert isinstance(columns, int)
        matrix = self.weights.matrix(f"{name}.weight", extent, columns)
        if matrix.element == self.activations == "bf16":
            x = self.in_bf16(x)
        elif self.activations == "int8" and self.weights.is_quantized(f"{name}.weight"):
            x = self.in_int8(x)
        result = body.contract("rk,mk->rm", x, matrix, (rows, extent))
        if not self.weights.has(f"{name}.bias"):
            return result
        return body.generic("rm,m->rm", [result, self.weights.vector(f"{name}.bias", extent)], result.shape,
                            lambda at, x, y: at.op("arith.addf", x, y))  # fmt: skip

    def in_bf16(self, x: Value) -> Value:
        """Activations [rows, columns], rounded."""
        if x.name not in self.rounded:
            self.rounded[x.name] = self.body.generic("rk->rk", [x], x.shape, lambda at, x: at.cast(
                "arith.truncf", x, "f32", "bf16"), "bf16")
        return self.rounded[x.name]

    def in_int8(self, x: Value) -> Value:
        """Activations [rows, columns], rounded to 8 bits by blocks of 32."""
        if x.name not in self.rounded:
            self.rounded[x.name] = x._replace(name=self.body.emit(f"attn.fake_quantize {x.name} : {x.type}"))
        return self.rounded[x.name]

    def optional_norm(self, x: Value, name: str) -> Value:
        return self.norm(x, name) if self.weights.has(f"{name}.weight") else x

    def norm(self, x: Value, name: str) -> Value:
        """The root mean square norm (Zhang and Sennrich 2019) along the last dimension, times a weight."""
        body, width = self.body, x.shape[-1]
        assert isinstance(width, int)
        weight = self.weights.vector(f"{name}.weight", width)
        outer = "rh"[: len(x.shape) - 1]
        squares = body.generic(f"{outer}d->{outer}", [x], x.shape[:-1], lambda at, x, sum: at.op(
            "arith.addf", sum, at.op("arith.mulf", x, x)))

        def normed(at: Region, x: str, squares: str, weight: str) -> str:
            mean = at.op("arith.divf", squares, at.constant(width))
            root = at.op("math.rsqrt", at.op("arith.addf", mean, at.constant(self.settings.epsilon)))
            return at.op("arith.mulf", at.op("arith.mulf", x, root), weight)

        return body.generic(f"{outer}d,{outer},d->{outer}d", [x, squares, weight], x.shape, normed)

    def add(self, x: Value, y: Value) -> Value:
        return self.body.generic("rd,rd->rd", [x, y], x.shape, lambda at, x, y: at.op("arith.addf", x, y))

    def converted(self, value: Value, op: str, element: str) -> Value:
        return self.body.generic("bshd->bshd", [value], value.shape,
                                 lambda at, x: at.cast(op, x, value.element, element), element)  # fmt: skip


def _window(keys: int) -> str:
    """A mask of the last keys up to the query's own. Queries are the last positions of a text."""
    return ("mask(%b, %h, %i, %j) { %keys = attn.length key %queries = attn.length query "
            "%shift = arith.subi %keys, %queries : index %own = arith.addi %i, %shift : index "
            f"%before = arith.constant {keys - 1} : index %first = arith.subi %own, %before : index "
            "%holds = arith.cmpi sge, %j, %first : index attn.yield %holds : i1 }")


def _capped_scores(cap: float) -> str:
    at = Region("", "%x")
    result = _capped(at, "%s", cap)
    return f"score(%s, %b, %h, %i, %j) {{ {' '.join(at.lines)} attn.yield {result} : f32 }}"


def _capped(at: Region, x: str, cap: float) -> str:
    """cap · tanh(x / cap)"""
    limit = at.constant(cap)
    return at.op("arith.mulf", at.op("math.tanh", at.op("arith.divf", x, limit)), limit)


def _silu(at: Region, x: str) -> str:
    """x / (1 + exp(−x))"""
    power = at.op("math.exp", at.op("arith.negf", x))
    return at.op("arith.divf", x, at.op("arith.addf", power, at.constant(1.0)))


def _gelu(at: Region, x: str) -> str:
    """The approximation of GELU by tanh (Hendrycks and Gimpel 2016): x / 2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))"""
    cube = at.op("arith.mulf", at.op("arith.mulf", x, x), x)
    inner = at.op("arith.addf", x, at.op("arith.mulf", cube, at.constant(0.044715)))
    bent = at.op("math.tanh", at.op("arith.mulf", inner, at.constant(math.sqrt(2 / math.pi))))
    half = at.op("arith.mulf", x, at.constant(0.5))
    return at.op("arith.mulf", half, at.op("arith.addf", bent, at.constant(1.0)))
