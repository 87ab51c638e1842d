"""A random attention program with its arguments, determined by a seed.

It draws element types, extents (odd ones, now and then 0), grouped heads, head sizes, the layout of every
operand, strides, static and dynamic shapes, masks, score and weight regions, tallies, sinks, captures, lengths, scale,
position, tiles, ragged sequences, further results, and extreme logits. `Graph(seed)` has `text` (a
module with one entry), `arguments` (for saccade-run) and `features` (what it exercises, for the coverage report).
"""

import random

import numpy as np
from region import Region

TYPES = ["f32"] * 8 + ["bf16"] * 5 + ["f16"] * 4 + ["f64"] * 3
EDGES = [1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 95, 96, 97, 127, 128, 129, 130]


class Argument:
    """A value of the entry: its name, its type in the module and what it holds (None: a scalar given as text)."""

    def __init__(self, name, mlir_type, values, element):
        self.name, self.mlir_type, self.values, self.element = name, mlir_type, values, element


def tensor_type(shape, element, dynamic=()):
    return "tensor<" + "".join("?x" if i in dynamic else f"{n}x" for i, n in enumerate(shape)) + element + ">"


class Graph:
    MAKER = "random_graphs.py --seed"

    def __init__(self, seed, split_kv=False, is_quantized=False):
        """`split_kv`: as many as are read in place, or one more, with chunks of keys of any size. `is_quantized`: the
        program permits dot products of int8."""
        self.seed = seed
        self.split_kv = split_kv
        self.is_quantized = is_quantized
        self.rng = random.Random(seed)
        # Separate generators, so that existing seeds draw the same values.
        self.more = random.Random(f"{seed} weights")
        self.tables = random.Random(f"{seed} tables")
        self.numbers = np.random.default_rng(seed)
        self.arguments = []
        self.features = set()
        self.prologue = []  # ops in front of the attention
        self.captures = []
        self.draw_sizes()
        self.draw_position()
        self.draw_lengths()
        self.draw_operands()
        self.draw_attention()

    # --- extents -----------------------------------------------------------------------------------------------------

    def extent(self):
        draw = self.rng.random()
        if draw < 0.02:
            return 0
        if draw < 0.09:
            return self.rng.randint(131, 1200)  # several tiles
        return self.rng.choice(EDGES) if draw < 0.5 else self.rng.randint(1, 130)

    def draw_sizes(self):
        rng = self.rng
        self.element = rng.choice(TYPES)
        self.score = "f64" if self.element == "f64" else "f32"
        self.depth = rng.choice([8, 16, 32, 40, 64, 64, 80, 96, 128]) if rng.random() < 0.6 else rng.randint(1, 130)
        self.value_depth = self.depth if rng.random() < 0.6 else rng.choice([1, 5, 8, 24, 32, 64, 128, 130])
        self.batches = 0 if rng.random() < 0.01 else rng.choice([1, 1, 2, 3])
        self.kv_heads = rng.choice([1, 1, 2, 3])
        self.group = rng.choice([1, 1, 1, 2, 3, 4, 8])
        self.heads = self.kv_heads * self.group
        self.queries = self.extent()
        self.keys = self.queries if rng.random() < 0.35 else self.extent()
        # Several tiles of keys: many keys, or small tiles.
        if rng.random() < 0.06:
            self.batches, self.kv_heads, self.group, self.heads = min(self.batches, 1), 1, 1, 1
            self.queries, self.keys = rng.randint(1, 40), rng.randint(600, 1300)
            self.note("several hundred keys")
        self.schedule = (rng.choice([12, 24]), 64) if rng.random() < 0.4 else None
        self.split_tile = None
        if self.split_kv:
            self.queries = rng.randint(1, 9)
            self.keys = self.queries if rng.random() < 0.1 else self.keys
            self.split_tile = (rng.randint(8, 12), rng.choice([5, 16, 37, 64, 256])) if rng.random() < 0.8 else None
        # The reference is slow: large problems lose heads, batches, then head_dim.
        while self.batches * self.heads * self.queries * self.keys * (self.depth + self.value_depth) > 6e6:
            if self.group > 1:
                self.group = 1
            elif self.kv_heads > 1:
                self.kv_heads -= 1
            elif self.batches > 1:
                self.batches -= 1
            else:
                self.keys = self.keys * 2 // 3
            self.heads = self.kv_heads * self.group
        self.draw_ragged()
        self.note(f"type {self.element}")
        self.note("d_v ≠ d_k", self.depth != self.value_depth)
        self.note("grouped queries", self.group > 1)
        self.note("several tiles of keys", self.keys > 512)
        self.note("several tiles of queries", self.queries > 384)
        self.note("an extent of 0", 0 in (self.batches, self.queries, self.keys))
        self.note("more queries than keys", self.queries > self.keys)
        self.note("more keys than queries", self.queries < self.keys)
        self.note("small tiles", self.schedule is not None)
        self.note("several tiles of keys", self.keys > (64 if self.schedule else 512))

    def draw_ragged(self):
        """Draws whether queries, keys or both are ragged. `self.ragged` has the lengths of their sequences by role, one per
        batch; `self.rows` the number of rows of the tensors."""
        rng = random.Random(f"{self.seed} packed")
        self.ragged, self.rows = {}, {"q": self.queries, "kv": self.keys}
        if rng.random() >= 0.15:
            return
        most = int(6e6 // max(self.heads * self.queries * self.keys * (self.depth + self.value_depth), 1))
        self.batches = rng.randint(min(self.batches, 1), max(1, min(most, 6)))
        for role in rng.choice([["q", "kv"]] * 3 + [["q"], ["kv"]]):
            longest = self.rows[role]
            lengths = [rng.choice([0, 1, longest, rng.randint(0, longest)]) for _ in range(self.batches)]
            self.ragged[role] = [min(length, longest) for length in lengths]
            self.rows[role] = sum(self.ragged[role]) + rng.choice([0, 0, 0, 5])
            self.note("rows of no sequence", self.rows[role] > sum(self.ragged[role]))
            self.note("a sequence of 0", 0 in self.ragged[role])
            self.note("a sequence of 1", 1 in self.ragged[role])
        self.note("ragged " + " and ".join(self.ragged))
        self.note("no sequence", self.batches == 0)

    def note(self, feature, holds=True):
        if holds:
            self.features.add(feature)

    # --- arguments ---------------------------------------------------------------------------------------------------

    def add_scalar(self, stem, mlir_type, value):
        name = f"%{stem}{len(self.arguments)}"
        self.arguments.append(Argument(name, mlir_type, value, mlir_type))
        return name

    def add_tensor(self, stem, values, element, dynamic=()):
        name = f"%{stem}{len(self.arguments)}"
        self.arguments.append(Argument(name, tensor_type(values.shape, element, dynamic), values, element))
        return name

    def draw_position(self):
        """`at`: where element 0 stands. Regions see absolute positions, so captured tables must reach that far."""
        self.at = [self.rng.randint(0, 9) for _ in range(4)] if self.rng.random() < 0.15 else [0, 0, 0, 0]
        self.has_at = any(self.at)
        self.note("at", self.has_at)

    def draw_lengths(self):
        """Lengths end at absolute positions. `self.ends` is the number of valid queries and keys of each batch. Lengths
        out of range are computed in the program: they are clamped, while arguments out of range are refused."""
        self.ends, self.length_clauses = {}, []
        for role, extent, start in [("q", self.queries, self.at[2]), ("kv", self.keys, self.at[3])]:
            draw = self.draw_length_kind(role)
            rows = sum(self.ragged[role]) if role in self.ragged else extent
            ends = [extent] * max(self.batches, 1)
            wild = self.rng.choice([-7, extent + 5]) if self.rng.random() < 0.1 else extent
            if draw < 0.12:
                ends = [self.rng.choice([wild, self.rng.randint(0, extent)])] * max(self.batches, 1)
                name = self.add_scalar(f"{role}_len", "index", ends[0] + start)
                if not 0 <= ends[0] <= rows:
                    zero = self.add_scalar("zero", "index", 0)
                    self.prologue.append(f"%{role}_computed = arith.addi {name}, {zero} : index")
                    name = f"%{role}_computed"
                self.length_clauses.append(f"{role}_len({name} : index)")
                self.note(f"{role}_len index")
            elif draw < 0.3:
                ends = [self.rng.choice([0, wild, self.rng.randint(0, extent)]) for _ in range(self.batches)]
                element = self.rng.choice(["i32", "i64", "index"])
                dynamic = (0,) if self.rng.random() < 0.5 else ()
                name = self.add_tensor(f"{role}_len", np.array(ends, np.int64).reshape(-1) + start, element, dynamic)
                kind = self.arguments[-1].mlir_type
                limits = self.ragged.get(role, [rows] * len(ends))
                if not all(0 <= end <= limit for end, limit in zip(ends, limits)):
                    zero = self.add_tensor("zero", np.zeros(len(ends), np.int64), element, dynamic)
                    self.prologue.append(f"%{role}_computed = arith.addi {name}, {zero} : {kind}")
                    name = f"%{role}_computed"
                self.length_clauses.append(f"{role}_len({name} : {kind})")
                self.note(f"{role}_len tensor")
                self.note("a length of 0", 0 in ends)
            self.note("a length beyond the extent", any(end > extent for end in ends))
            self.note("a negative length", any(end + start < 0 for end in ends))
            lengths = self.ragged.get(role, [extent] * len(ends))
            self.ends[role] = [min(max(end, 0), length) for end, length in zip(ends, lengths)]
            if role in self.ragged:
                offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
                element = self.rng.choice(["i32", "i64", "index"])
                name = self.add_tensor(f"{role}_offsets", offsets, element, (0,) if self.rng.random() < 0.5 else ())
                self.length_clauses.append(f"cu_seqlens_{role[0]}({name} : {self.arguments[-1].mlir_type})")

    def draw_length_kind(self, role):
        """Below 0.12: one length for all batches; below 0.3: a tensor of lengths; else no length of this role."""
        return self.rng.random()

    # --- query, key, value -------------------------------------------------------------------------------------------

    def draw_dims(self, sizes, is_ragged=False):
        """Some order of b, h, s, d; b and h may be left out where they are 1, and b must if the sequences are ragged."""
        dims = [d for d in "bhsd" if not (d in "bh" and sizes[d] == 1 and self.rng.random() < 0.4)]
        dims = [d for d in dims if not (is_ragged and d == "b")]
        draw = self.rng.random()
        if draw < 0.25:
            dims = [d for d in "bshd" if d in dims]
        elif draw < 0.55:
            self.rng.shuffle(dims)
        self.note("layout " + "".join(dims))
        self.note("depth is not innermost", dims[-1] != "d")
        return dims

    def draw_values(self, role, dims, sizes):
        shape = [sizes[d] for d in dims]
        values = self.numbers.standard_normal(shape)
        if self.hard and role != "value":
            # Logits of ±1e4; in f16 the operands must stay in range.
            values *= 60 if role == "query" else 1e4 / 60 / max(self.depth, 1) ** 0.5
        s = dims.index("s")
        if self.nan_query and role == "query" and sizes["s"]:
            np.moveaxis(values, s, 0)[self.rng.randrange(sizes["s"])] = np.nan
        if self.nan_key and role == "key" and sizes["s"]:
            np.moveaxis(values, s, 0)[self.rng.randrange(sizes["s"])] = np.nan
        # Elements after a length must not matter.
        side = "q" if role == "query" else "kv"
        ends = self.ends[side]
        if side in self.ragged:
            rows, start = np.moveaxis(values, s, 0), 0
            for end, length in zip(ends, self.ragged[side]):
                rows[start + end : start + length] = self.rng.choice([np.nan, np.inf, 1e30])
                start += length
            rows[start:] = self.rng.choice([np.nan, np.inf, 1e30])
            return values.astype(np.float64)
        for batch in range(sizes["b"]):
            if ends[batch] < sizes["s"]:
                one = np.moveaxis(values, dims.index("b"), 0)[batch] if "b" in dims else values
                axis = s - ("b" in dims and dims.index("b") < s)
                np.moveaxis(one, axis, 0)[ends[batch] :] = self.rng.choice([np.nan, np.inf, 1e30])
                self.note("rubbish beyond a length")
        return values.astype(np.float64)

    def draw_strided(self):
        return self.rng.random() < 0.22

    def draw_operand(self, role, sizes):
        """Makes the argument and, where it is strided, its slice. Returns name, dims and type."""
        dims = self.draw_dims(sizes, ("q" if role == "query" else "kv") in self.ragged)
        values = self.draw_values(role, dims, sizes)
        if self.draw_strided() and values.size:
            return self.draw_slice(role, dims, values)
        free = [i for i, d in enumerate(dims) if d != "d"]
        dynamic = {"all": free, "none": [], "some": [i for i in free if self.rng.random() < 0.5]}[self.dynamic]
        name = self.add_tensor(role[0], values, self.element, dynamic)
        return name, dims, self.arguments[-1].mlir_type, {dims[i] for i in dynamic}

    def draw_slice(self, role, dims, values):
        """A larger tensor of which the operand is a part: an offset and a stride for every dimension, maybe one more
        dimension of which it is one plane (as a fused projection has it)."""
        rng = self.rng
        strides = [rng.choice([1, 1, 1, 2, 3]) for _ in dims]
        offsets = [rng.randint(0, 3) for _ in dims]
        source = [o + (n - 1) * t + 1 + rng.randint(0, 2) for o, n, t in zip(offsets, values.shape, strides)]
        sizes = list(values.shape)
        plane = rng.randint(0, len(dims)) if rng.random() < 0.4 else None
        if plane is not None:
            for entries, entry in [(strides, 1), (offsets, rng.randint(0, 2)), (source, 3), (sizes, 1)]:
                entries.insert(plane, entry)
        whole = self.numbers.standard_normal(source)
        index = tuple(slice(o, o + (n - 1) * t + 1, t) for o, n, t in zip(offsets, sizes, strides))
        whole[index] = values.reshape(sizes)
        name = self.add_tensor(role[0], whole, self.element)
        result = tensor_type(values.shape, self.element)
        join = lambda numbers: ", ".join(map(str, numbers))
        self.prologue.append(f"%{role} = tensor.extract_slice {name}[{join(offsets)}] [{join(sizes)}] [{join(strides)}]"
                             f" : {self.arguments[-1].mlir_type} to {result}")
        self.note("strided operand")
        self.note("inner stride ≠ 1", strides[-1] != 1 or plane == len(dims))
        self.note("a plane of a larger tensor", plane is not None)
        return f"%{role}", dims, result, set()

    def draw_extremes(self):
        rng = self.rng
        self.hard = self.has_large_logits = rng.random() < 0.15
        self.nan_query, self.nan_key = rng.random() < 0.04, rng.random() < 0.04
        self.dynamic = rng.choice(["all", "all", "none", "some"])
        self.note("logits of ±1e4", self.hard)
        self.note("NaN in a query", self.nan_query)
        self.note("NaN in a key", self.nan_key)
        self.note(f"dynamic extents: {self.dynamic}")

    def draw_operands(self):
        self.draw_extremes()
        sizes = {"b": self.batches, "h": self.heads, "s": self.rows["q"], "d": self.depth}
        self.query = self.draw_operand("query", sizes)
        sizes = {"b": self.batches, "h": self.kv_heads, "s": self.rows["kv"], "d": self.depth}
        self.key = self.draw_operand("key", sizes)
        self.value = self.draw_operand("value", {**sizes, "d": self.value_depth})

    # --- the op ------------------------------------------------------------------------------------------------------

    def draw_scale(self):
        draw = self.rng.random()
        if draw < 0.5:
            return []
        scale = round(self.rng.choice([0.1, 0.25, 1.0, -0.5]) * self.rng.uniform(0.5, 1.5), 4)
        # One standard deviation of the logits.
        self.has_large_logits |= abs(scale) * self.depth ** 0.5 > 8
        if draw < 0.75:
            self.note("constant scale")
            return [f"scale({scale!r})"]
        self.note("scale at run time")
        return [f"scale({self.add_scalar('scale', self.score, scale)} : {self.score})"]

    def draw_masks(self):
        rng, masks = self.rng, []
        for _ in range(rng.choice([0, 0, 0, 1, 1, 1, 1, 2, 2, 3])):
            kind = rng.choice(["top_left", "bottom_right", "offset", "window", "window", "region", "region", "region"])
            self.note(f"mask: {kind}")
            if kind == "offset":
                masks.append(f"mask causal<{rng.choice([-200, 200, rng.randint(-20, 20)])}>")
            elif kind == "window":
                left, right = (rng.choice(["*", rng.randint(0, 5), rng.randint(0, 60)]) for _ in range(2))
                masks.append(f"mask window<{left}, {right}>")
            elif kind == "region":
                masks.append(Region(self).mask())
            else:
                masks.append(f"mask causal<{kind}>")
        self.note("several masks", len(masks) > 1)
        return masks

    def draw_sink(self):
        if self.more.random() >= 0.15 or (not self.keys and 0 not in self.query[3]):
            return []
        return self.make_sink()

    def make_sink(self):
        rng = self.more
        element = rng.choice([self.score, self.element])
        self.note("a sink")
        if rng.random() < 0.3:
            return [f"sink({self.add_scalar('sink', element, round(rng.uniform(-3, 3), 2))} : {element})"]
        values = np.array([rng.choice([rng.uniform(-3, 3), rng.uniform(-3, 3), 40.0, -np.inf]) for _ in range(self.heads)])
        name = self.add_tensor("sink", values, element, (0,) if rng.random() < 0.5 else ())
        self.note("a sink of −inf", bool(np.isneginf(values).any()))
        return [f"sink({name} : {self.arguments[-1].mlir_type})"]

    def draw_scores(self):
        return [Region(self).score()] if self.rng.random() < 0.45 else []

    def draw_weights(self):
        return [Region(self, self.more).weight()] if self.more.random() < 0.15 else []

    def draw_tallies(self):
        return [Region(self, self.more).tally() for _ in range(self.more.choice([0] * 12 + [1, 1, 2]))]

    def draw_lse(self):
        return self.rng.random() < 0.35

    def draw_lse_low(self):
        """Whether the op returns the low part of the log-sum-exp, with which states have other maxima."""
        return random.Random(f"low {self.seed}").random() < 0.6

    def draw_extrema(self, scores):
        """Whether the op returns the row maximum, and its position."""
        has_max, has_argmax = self.more.random() < 0.12, self.more.random() < 0.12
        # Rounding chooses among scores that are nearly equal, as regions and large logits make them.
        is_smooth = not (self.hard or self.nan_key or self.nan_query or self.is_quantized
                         or any("score(" in text for text in scores))
        return has_max, has_argmax and is_smooth

    def draw_attention(self):
        rng = self.rng
        operands = [self.query, self.key, self.value]
        scale = self.draw_scale()
        masks = self.draw_masks()
        scores = self.draw_scores()
        at = [self.add_scalar("at", "index", n) for n in self.at] if self.has_at else []

        weights = self.draw_weights()
        tallies = self.draw_tallies()
        if (self.nan_query or self.nan_key) and any("select" in text for text in weights):
            # The result of a weight region for masked keys is unspecified.
            for argument in self.arguments:
                if isinstance(argument.values, np.ndarray) and argument.values.dtype.kind == "f":
                    argument.values[np.isnan(argument.values)] = 1
        scores += weights + [text for text, _ in tallies]
        self.note("a weight region", bool(weights))
        self.note("tallies", bool(tallies))

        # The captures are known after all regions are drawn.
        names = ", ".join(f"%c{i}" for i in range(len(self.captures)))
        regions = [text.replace("CAPTURES", ", " + names if names else "") for text in masks + scores]
        clauses = []
        if self.captures:
            clauses.append(f"captures({', '.join(c.name for c in self.captures)} : "
                           f"{', '.join(c.mlir_type for c in self.captures)})")
        clauses += self.length_clauses + scale
        if self.is_quantized and self.element != "f64":
            clauses.append("qk_type(i8)")
        if at:
            clauses.append(f"at({', '.join(at)})")
        lse = self.draw_lse()
        low = lse and self.draw_lse_low()
        self.note("log-sum-exp", lse)
        self.note("low part of the log-sum-exp", low)
        clauses += self.draw_sink()
        has_max, has_argmax = self.draw_extrema(scores)
        self.note("max", has_max)
        self.note("argmax", has_argmax)

        sizes = {"b": self.batches, "h": self.heads, "s": self.rows["q"], "d": self.value_depth}
        dims = self.query[1] if rng.random() < 0.6 else self.draw_dims(sizes, "q" in self.ragged)
        self.note("output in another layout", dims != self.query[1])
        if dims != self.query[1]:
            clauses.append(f"out[{','.join(dims)}]")
        element = self.score if rng.random() < 0.2 else self.element
        self.note("output in the score type", element != self.element)
        known = lambda d: d not in self.query[3]
        result = lambda names, kind: tensor_type([sizes[d] for d in names], kind,
                                                 [i for i, d in enumerate(names) if d != "d" and not known(d)])
        results = [result(dims, element)]
        names = ["%o"]
        rows = [d for d in "bhs" if d in dims]
        for is_there, name, kind in [(lse, "%lse", self.score), (low, "%lse_low", self.score), (has_max, "%max", self.score),
                                     (has_argmax, "%argmax", "i64")]:
            if is_there:
                results.append(result(rows, kind))
                names.append(name)
                regions.append(name[1:])
        for i, (_, bins) in enumerate(tallies):
            dynamic = [k for k, d in enumerate(rows) if not known(d)]
            results.append(tensor_type([sizes[d] for d in rows] + [bins], self.score, dynamic))
            names.append(f"%tally{i}")
        after = []
        if rows == [d for d in "bhs" if d in self.query[1]] and not (tallies or has_max or has_argmax):
            after = self.draw_matrix(clauses, regions, names, results)
        self.text = self.print_module(operands, clauses, regions, names, results, after)

    def draw_matrix(self, clauses, regions, names, results):
        """Lines of an attn.weights with the log-sum-exp of the attention. Adds its result. In f32 the rounding of a large
        score or log-sum-exp moves a weight beyond the bound of the check."""
        is_large = self.score == "f32" and any(text.startswith("score") for text in regions)
        if is_large or "%lse_low" not in names or self.ragged or self.is_quantized or self.has_large_logits:
            return []
        if random.Random(f"{self.seed} matrix").random() >= 0.5:
            return []
        self.note("weights as a tensor")
        rows = results[1]
        matrix = rows.replace(self.score, f"{'?' if 's' in self.key[3] else self.rows['kv']}x{self.score}")
        own = [text for text in clauses + regions if text.startswith(("captures", "q_len", "kv_len", "scale", "at(", "mask",
                                                                      "score", "weight"))]  # fmt: skip
        own += [f"{name[1:]}({name} : {rows})" for name in names[1:]]
        both = [self.query, self.key]
        lines = [f"%matrix = attn.weights {', '.join(f'{name}[{chr(44).join(dims)}]' for name, dims, _, _ in both)}", *own,
                 f": ({', '.join(type for _, _, type, _ in both)}) -> {matrix}"]
        names.append("%matrix")
        results.append(matrix)
        return lines

    def print_module(self, operands, clauses, regions, values, results, after):
        of_attention = values[: len(values) - bool(after)]
        all_types = ", ".join(results)
        named = ", ".join(f"{name}[{','.join(dims)}]" for name, dims, _, _ in operands)
        types = ", ".join(type for _, _, type, _ in operands)
        parameters = ", ".join(f"{a.name}: {a.mlir_type}" for a in self.arguments)
        all_results = f"({', '.join(results[: len(of_attention)])})"
        lines = [f"// Made by {self.MAKER} {self.seed}",
                 f"func.func @graph({parameters}) -> ({all_types}) {{"]
        lines += [f"  {op}" for op in self.prologue]
        lines.append(f"  {', '.join(of_attention)} = attn.attention {named}")
        lines += [f"    {clause}" for clause in clauses + regions]
        attributes = []
        if self.split_tile:
            attributes.append(f"split_kv = #attn.split_kv<queries = 8, rows = {self.split_tile[0]}, cols = {self.split_tile[1]}>")
        if self.schedule:
            attributes.append(f"schedule = #attn.schedule<rows = {self.schedule[0]}, cols = {self.schedule[1]}>")
        if attributes:
            lines.append(f"    {{{', '.join(attributes)}}}")
        lines.append(f"    : ({types}) -> {all_results}")
        lines += [f"  {line}" for line in after]
        lines += [f"  return {', '.join(values)} : {all_types}", "}"]
        return "\n".join(lines) + "\n"
