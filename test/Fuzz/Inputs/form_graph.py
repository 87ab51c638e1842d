"""The random attention program of one number of form_table.py: a graph with the form and features of its entry.

What the entry leaves open is drawn as `attention_graph.Graph` draws it: extents, layouts, the order and kind of steps.
Features that the entry does not name are absent, so that a cell of the table counts what it says.
"""


import numpy as np
from attention_graph import Graph
from form_plan import CPU_TARGETS
from region import Region

HEAD_SIZES = [8, 16, 24, 32, 40, 64, 64, 80, 96]
ODD_HEAD_SIZES = [1, 5, 12, 20, 33, 37, 50, 67]
LONG = range(17, 41)  # queries of a head that no target reads with split-KV
SHORT = range(1, 9)
# Products of extents, added over sequences: what the reference and the simulator evaluate.
WORK = 1_500_000


class FormRegion(Region):
    """Regions with a chosen kind of step."""

    def score_of(self, steps):
        self.type, s = self.graph.score, "%s"
        for step in steps:
            s = step(self, s)
        return self.close(f"score({self.argument('%s')}, %b, %h, %i, %jCAPTURES)", s, self.type)

    def any_score(self, s):
        others = [step for step in self.SCORES if step not in (Region.soft_cap, Region.bias_table, Region.temperature)]
        for _ in range(self.rng.choice([1, 2, 3])):
            s = self.rng.choice(others)(self, s)
        return s

    def weight_of(self, steps):
        self.type = self.graph.score
        result = self.rng.choice(steps)(self, "%p")
        return self.close(f"weight({self.argument('%p')}, %b, %h, %i, %jCAPTURES)", result, self.type)

    def normalizer(self):
        self.type = self.graph.score
        result = self.rng.choice([Region.sigmoid, Region.silu, Region.relu_squared, Region.shifted_sigmoid])(self, "%s")
        return self.close(f"normalizer({self.argument('%s')}, %b, %h, %i, %jCAPTURES)", result, self.type)

    def mask_of(self, holds):
        return self.close("mask(%b, %h, %i, %jCAPTURES)", holds, "i1")

    def documents(self):
        graph = self.graph
        count = max(graph.queries + graph.at[2], graph.keys + graph.at[3])
        element = self.rng.choice(["i32", "i64", "index"])
        numbers = np.sort(graph.numbers.integers(0, self.rng.choice([2, 4]), count))
        ids, type = self.capture("doc", numbers if self.rng.random() < 0.7 else numbers[::-1].copy(), element)
        mine, theirs = (self.emit(f"tensor.extract {ids}[{name}] : {type}") for name in ("%i", "%j"))
        return self.mask_of(self.emit(f"arith.cmpi eq, {mine}, {theirs} : {element}"))

    def flags(self):
        names = self.rng.choice(["j", "bj", "ij", "hj", "bhij"])
        flag = self.table("flags", names, lambda shape: self.graph.numbers.random(shape) < 0.8, "i1")
        return self.mask_of(flag if self.rng.random() < 0.5 else self.emit(f"arith.ori {flag}, {self.boolean(1)} : i1"))

    def empty_rows(self):
        """Every query of an even position attends to no key, or those that a tensor of flags chooses."""
        if self.rng.random() < 0.5:
            rest = self.emit(f"arith.remui %i, {self.index_constant(2)} : index")
            return self.mask_of(self.emit(f"arith.cmpi ne, {rest}, {self.index_constant(0)} : index"))

        def some(shape):
            holds = self.graph.numbers.random(shape) < 0.6
            holds.reshape(-1)[::3] = False
            return holds

        return self.mask_of(self.table("seen", self.rng.choice(["i", "hi", "bhi"]), some, "i1"))


class FormGraph(Graph):
    """`entry` has the form and features; what is random follows from the number."""

    MAKER = "form_table.py --number"

    def __init__(self, number, entry):
        self.entry = entry
        self.requested = set(self.entry.features)
        self.is_ragged = self.entry.form.startswith("ragged")
        self.has_lengths = self.entry.form.startswith("lengths")
        super().__init__(number)

    # --- extents -----------------------------------------------------------------------------------------------------

    def draw_sizes(self):
        rng, form = self.rng, self.entry.form
        self.element = self.entry.type
        self.score = "f64" if self.element == "f64" else "f32"
        sizes = ODD_HEAD_SIZES if "odd head size" in self.requested else HEAD_SIZES
        self.depth = rng.choice(sizes)
        self.value_depth = self.depth if rng.random() < 0.6 else rng.choice(sizes)
        self.kv_heads = rng.choice([2, 3]) if "KV heads" in self.requested else 1
        self.group = rng.choice([2, 3, 4]) if "grouped heads" in self.requested else 1
        self.heads = self.kv_heads * self.group
        self.batches = rng.randint(2, 4) if self.is_ragged or self.has_lengths else rng.randint(1, 3)
        lengths = self.draw_queries()
        keys = self.draw_keys(lengths)
        while self.batches > 2 and self.work(lengths, keys) > WORK:
            self.batches -= 1
            # Of a mixed batch the first two sequences are a short and a long one.
            lengths, keys = lengths[: self.batches], keys[: self.batches]
        while self.work(lengths, keys) > WORK:
            keys = [max(n * 2 // 3, 1) for n in keys]
        self.queries, self.keys = max(lengths), max(keys)
        self.schedule = self.split_tile = None
        # On a GPU, kernels of tensor cores have more rows than these.
        if "prefill" in form and rng.random() < 0.4 and self.entry.target in CPU_TARGETS:
            self.schedule = (rng.choice([12, 24]), 64)
        if "prefill" not in form and rng.random() < 0.75:
            self.split_tile = (rng.randint(8, 12), rng.choice([5, 16, 37, 64, 256]))
        self.draw_sequences(lengths, keys)

    def draw_queries(self):
        """The number of queries of each sequence; of dense operands, one number for all."""
        rng, form = self.rng, self.entry.form
        extents = LONG if "prefill" in form else SHORT
        if not self.is_ragged:
            return [rng.choice(extents)] * self.batches
        lengths = [rng.choice(extents) for _ in range(self.batches)]
        if form == "ragged mixed":
            lengths = [1, rng.choice(LONG), *(rng.choice([0, 1, rng.choice(SHORT), rng.choice(LONG)]) for _ in lengths)]
        elif rng.random() < 0.3:
            lengths[rng.randrange(1, self.batches)] = 0
        return lengths[: self.batches]

    def draw_keys(self, lengths):
        rng = self.rng
        longest = 130 if "prefill" in self.entry.form else 400
        if not self.is_ragged:
            return [rng.choice([max(lengths), rng.randint(1, longest), rng.randint(longest // 2, longest)])] * self.batches
        keys = [rng.choice([n, rng.randint(1, longest), rng.randint(longest // 2, longest)]) for n in lengths]
        return keys if max(keys) else [1, *keys[1:]]

    def work(self, lengths, keys):
        return sum(q * k for q, k in zip(lengths, keys)) * self.heads * (self.depth + self.value_depth)

    def draw_sequences(self, lengths, keys):
        """Which operands are ragged: queries and keys, or one of them."""
        rng = self.rng
        self.ragged, self.rows = {}, {"q": self.queries, "kv": self.keys}
        if not self.is_ragged:
            return
        roles = [["q", "kv"], ["q", "kv"], ["q"]] + ([] if self.entry.form == "ragged mixed" else [["kv"]])
        for role in rng.choice(roles):
            self.ragged[role] = lengths if role == "q" else keys
            self.rows[role] = sum(self.ragged[role]) + rng.choice([0, 0, 5])

    def draw_position(self):
        self.has_at = "position" in self.requested
        self.at = [self.rng.randint(0, 9) for _ in range(3)] + [self.rng.randint(1, 9)] if self.has_at else [0, 0, 0, 0]

    def draw_length_kind(self, role):
        scalar, tensor, none = 0.05, 0.2, 1.0
        if self.has_lengths:
            return self.rng.choice([tensor, tensor, tensor, scalar] if role == "kv" else [tensor, none])
        return none

    # --- operands ----------------------------------------------------------------------------------------------------

    def draw_extremes(self):
        self.hard = self.has_large_logits = self.nan_query = self.nan_key = False
        self.dynamic = self.rng.choice(["all", "none", "some"])

    def draw_dims(self, sizes, is_ragged=False):
        names = [d for d in "bhsd" if d != "b" or not is_ragged]
        orders = [names, [d for d in "bshd" if d in names]]
        dims = list(self.rng.choice(orders))
        while "layout" in self.requested and dims in orders:
            dims = self.rng.sample(names, len(names))
            if self.rng.random() < 0.4:
                dims = [d for d in dims if d not in "bh" or sizes[d] != 1]
        return dims

    def draw_strided(self):
        return "strides" in self.requested and self.rng.random() < 0.8

    # --- the op ------------------------------------------------------------------------------------------------------

    def draw_scale(self):
        if "scale" not in self.requested:
            return []
        scale = round(self.rng.choice([0.1, 0.25, 0.4, -0.25]) * self.rng.uniform(0.5, 1.5), 4)
        if self.rng.random() < 0.5:
            return [f"scale({scale!r})"]
        return [f"scale({self.add_scalar('scale', self.score, scale)} : {self.score})"]

    def draw_masks(self):
        rng, masks = self.rng, []
        if "causal" in self.requested:
            masks.append(f"mask causal<{rng.choice(['top_left', 'bottom_right', 'bottom_right', rng.randint(-3, 60)])}>")
        if "window" in self.requested:
            left, right = rng.choice([(rng.randint(0, 50), "*"), ("*", rng.randint(0, 50)),
                                      (rng.randint(0, 50), rng.randint(0, 50))])  # fmt: skip
            masks.append(f"mask window<{left}, {right}>")
        for feature, draw in [("documents", FormRegion.documents), ("captured mask", FormRegion.flags),
                              ("empty rows", FormRegion.empty_rows)]:  # fmt: skip
            if feature in self.requested:
                masks.append(draw(FormRegion(self)))
        return masks

    def draw_scores(self):
        steps = [step for feature, step in [("score region", FormRegion.any_score), ("soft-cap", Region.soft_cap),
                                            ("bias table", Region.bias_table), ("captured scalar", Region.temperature)]
                 if feature in self.requested]  # fmt: skip
        self.rng.shuffle(steps)
        return [FormRegion(self).score_of(steps)] if steps else []

    def draw_weights(self):
        kinds = {"weight region": [Region.gate, Region.keep],
                 "normalized weights": [Region.square, Region.sparser, Region.lift]}  # fmt: skip
        weights = [FormRegion(self, self.more).weight_of(steps) for feature, steps in kinds.items()
                   if feature in self.requested]  # fmt: skip
        if "normalizer" in self.requested:
            weights.append(FormRegion(self, self.more).normalizer())
        if "stick-breaking" in self.requested:
            weights.append("normalizer stick_breaking")
        return weights

    def draw_tallies(self):
        count = self.more.choice([1, 1, 2]) if "tally" in self.requested else 0
        return [Region(self, self.more).tally() for _ in range(count)]

    def draw_sink(self):
        return self.make_sink() if "sink" in self.requested else []

    def draw_lse(self):
        return "log-sum-exp" in self.requested

    def draw_lse_low(self):
        return False

    def draw_extrema(self, scores):
        return "max" in self.requested, "argmax" in self.requested
