"""Random regions of attention: scalar code over positions, captures, and a score or a weight."""

import numpy as np

COMPARISONS = ["eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"]


class Region:
    """Prints one region of a graph; its captures are added to the graph. Text has the word CAPTURES
    where the region arguments of all captures go, for they are known only when every region is drawn."""

    def __init__(self, graph, rng=None):
        self.graph, self.rng = graph, rng or graph.rng
        self.lines, self.count = [], 0

    def emit(self, text):
        name = f"%{self.count}"
        self.count += 1
        self.lines.append(f"{name} = {text}")
        return name

    def feature(self, text):
        self.graph.note(text)

    def index_constant(self, value):
        return self.emit(f"arith.constant {value} : index")

    def close(self, head, result, type):
        body = "".join(f"      {line}\n" for line in self.lines)
        return f"{head} {{\n{body}      attn.yield {result} : {type}\n    }}"

    def mask(self):
        self.lines, self.count = [], 0
        holds = self.boolean(self.rng.choice([0, 1, 1, 2, 2, 3]))
        return self.close("mask(%b, %h, %i, %jCAPTURES)", holds, "i1")

    def score(self):
        self.type = self.graph.score
        s = "%s"
        for _ in range(self.rng.choice([1, 1, 1, 2, 3])):
            s = self.rng.choice(self.SCORES)(self, s)
        argument = "%s: f64" if self.type == "f64" else "%s"
        return self.close(f"score({argument}, %b, %h, %i, %jCAPTURES)", s, self.type)

    def argument(self, name):
        return f"{name}: f64" if self.type == "f64" else name

    def weight(self):
        self.lines, self.count, self.type = [], 0, self.graph.score
        p = "%p"
        for _ in range(self.rng.choice([1, 1, 2])):
            p = self.rng.choice(self.WEIGHTS)(self, p)
        return self.close(f"weight({self.argument('%p')}, %b, %h, %i, %jCAPTURES)", p, self.type)

    def tally(self):
        """Also returns the number of bins."""
        self.lines, self.count, self.type = [], 0, self.graph.score
        bins = self.rng.choice([1, 2, 5, 16, 33, 70])
        bin = self.rng.choice(self.BINS)(self, bins)
        amount = self.rng.choice([lambda: self.number(1.0), lambda: "%s", lambda: self.bias("amount", "j")])()
        if self.rng.random() < 0.4:
            self.feature("a tally of some keys")
            zero, condition = self.number(0.0), self.boolean(1)
            amount = self.emit(f"arith.select {condition}, {amount}, {zero} : {self.type}")
        text = self.close(f"tally<{bins}>({self.argument('%s')}, %b, %h, %i, %jCAPTURES)", f"{bin}, {amount}",
                          f"index, {self.type}")
        return text, bins

    # --- captures ----------------------------------------------------------------------------------------------------

    def capture(self, stem, values, element, dynamic=True):
        """The region argument of a new captured tensor, or of a scalar where `values` is a number, and its type."""
        graph = self.graph
        if np.isscalar(values):
            graph.add_scalar(stem, element, values)
        else:
            some = range(values.ndim) if dynamic and self.rng.random() < 0.5 else ()
            graph.add_tensor(stem, values, element, some)
        graph.captures.append(graph.arguments[-1])
        return f"%c{len(graph.captures) - 1}", graph.arguments[-1].mlir_type

    def table(self, stem, names, make, element):
        """A captured tensor over some of b, h, q, k, read at the position at hand. It reaches the absolute end."""
        graph = self.graph
        ends = dict(zip("bhij", [graph.batches, graph.heads, graph.queries, graph.keys]))
        starts = dict(zip("bhij", graph.at))
        table, type = self.capture(stem, make([max(1, ends[n] + starts[n]) for n in names]), element)
        return self.emit(f"tensor.extract {table}[{', '.join('%' + n for n in names)}] : {type}")

    def bias(self, stem, names):
        """An element of a table of any float type, cast to the type of the score."""
        element = self.rng.choice([self.type, self.type, "f16", "bf16", "f32"])
        value = self.table(stem, names, self.graph.numbers.standard_normal, element)
        if element == self.type:
            return value
        self.feature(f"captured {element} widened to {self.type}")
        return self.emit(f"arith.extf {value} : {element} to {self.type}")

    # --- positions ---------------------------------------------------------------------------------------------------

    def index(self, depth):
        """An index expression; divisors are positive constants, numbers stay small."""
        rng = self.rng
        if depth <= 0 or rng.random() < 0.3:
            return self.index_leaf()
        kind = rng.choice(["addi", "subi", "muli", "floordivsi", "divsi", "remsi", "divui", "remui", "maxsi", "minsi", "select"])
        self.feature(f"arith.{kind} on index")
        left = self.index(depth - 1)
        if kind == "select":
            condition, right = self.boolean(depth - 1), self.index(depth - 1)
            return self.emit(f"arith.select {condition}, {left}, {right} : index")
        if kind in ("divui", "remui"):
            zero = self.index_constant(0)
            left = self.emit(f"arith.maxsi {left}, {zero} : index")
        if "div" in kind or "rem" in kind:
            right = self.index_constant(rng.choice([1, 2, 3, 4, 7, 8, 16]))
        elif kind == "muli":
            right = self.index_constant(rng.randint(-3, 3))
        else:
            right = self.index(depth - 1)
        return self.emit(f"arith.{kind} {left}, {right} : index")

    def index_leaf(self):
        rng, graph = self.rng, self.graph
        draw = rng.random()
        if draw < 0.62:
            return rng.choice(["%i", "%j", "%i", "%j", "%h", "%b"])
        if draw < 0.8:
            return self.index_constant(rng.randint(-3, 40))
        if draw < 0.88:
            self.feature("attn.length")
            return self.emit(f"attn.length {rng.choice(['query', 'key'])}")
        if draw < 0.93:
            self.feature("captured index")
            return self.capture("n", rng.randint(0, 60), "index")[0]
        self.feature("captured integers")
        names = rng.choice(["i", "j", "bj", "b", "h"])
        element = rng.choice(["i32", "i64", "i8"])
        if graph.tables.random() < 0.25:
            element = "index"
        self.feature(f"captured integers of {element}")
        value = self.table("ids", names, lambda shape: graph.numbers.integers(0, 5, shape), element)
        return value if element == "index" else self.emit(f"arith.index_cast {value} : {element} to index")

    # --- conditions --------------------------------------------------------------------------------------------------

    def boolean(self, depth):
        rng = self.rng
        draw = rng.random()
        if depth > 0 and draw < 0.55:
            kind = rng.choice(["andi", "ori", "ori", "xori", "select", "cmpi"])
            left, right = self.boolean(depth - 1), self.boolean(depth - 1)
            self.feature(f"{kind} of conditions")
            if kind == "select":
                return self.emit(f"arith.select {self.boolean(depth - 1)}, {left}, {right} : i1")
            if kind == "cmpi":
                return self.emit(f"arith.cmpi eq, {left}, {right} : i1")
            return self.emit(f"arith.{kind} {left}, {right} : i1")
        if draw < 0.65:
            self.feature("captured flags")
            names = rng.choice(["j", "bj", "ij", "h", "bhij"])
            return self.table("flags", names, lambda shape: self.graph.numbers.random(shape) < 0.7, "i1")
        if draw < 0.75:
            self.feature("document ids")
            graph = self.graph
            n = max(graph.queries + graph.at[2], graph.keys + graph.at[3], 1)
            element = graph.tables.choice(["i32", "i32", "i64", "index"])
            numbers = np.sort(graph.numbers.integers(0, 4, n))
            order = graph.tables.choice(["rising", "rising", "falling", "any"])
            if order == "falling":
                numbers = numbers[::-1].copy()
            elif order == "any":
                graph.tables.shuffle(numbers)
            self.feature(f"document ids of {element}, {order}")
            ids, type = self.capture("doc", numbers, element)
            mine = self.emit(f"tensor.extract {ids}[%i] : {type}")
            theirs = self.emit(f"tensor.extract {ids}[%j] : {type}")
            return self.emit(f"arith.cmpi eq, {mine}, {theirs} : {element}")
        if draw < 0.77:
            self.feature("constant condition")
            return self.emit(f"arith.constant {rng.choice(['true', 'false'])}")
        if draw < 0.82:
            self.feature("captured number compared")
            threshold, type = self.capture("x", rng.uniform(0, 40), "f32")
            narrow = self.emit("arith.index_cast %j : index to i32")
            number = self.emit(f"arith.sitofp {narrow} : i32 to f32")
            return self.emit(f"arith.cmpf {rng.choice(['olt', 'oge', 'ult', 'one'])}, {number}, {threshold} : f32")
        if draw < 0.86:
            self.feature("tensor.dim in a region")
            table, type = self.capture("t", np.zeros(self.rng.randint(1, 60)), "f32")
            zero = self.index_constant(0)
            size = self.emit(f"tensor.dim {table}, {zero} : {type}")
            return self.emit(f"arith.cmpi slt, %j, {size} : index")
        comparison = rng.choice(COMPARISONS[:6] if rng.random() < 0.85 else COMPARISONS)
        self.feature(f"arith.cmpi {comparison}")
        left, right = self.index(rng.choice([0, 1, 2])), self.index(rng.choice([0, 1, 2]))
        return self.emit(f"arith.cmpi {comparison}, {left}, {right} : index")

    # --- scores ------------------------------------------------------------------------------------------------------

    def number(self, value):
        return self.emit(f"arith.constant {value:.6e} : {self.type}")

    def op(self, name, *operands):
        if "." not in name:
            name = f"arith.{name}"
        self.feature(f"{name} on scores")
        return self.emit(f"{name} {', '.join(operands)} : {self.type}")

    def to_number(self, index):
        """An index cast to the type of the score."""
        wide = self.rng.choice(["i32", "i64"])
        return self.emit(f"arith.sitofp {self.emit(f'arith.index_cast {index} : index to {wide}')} : {wide} to {self.type}")

    def distance(self):
        return self.to_number(self.emit("arith.subi %j, %i : index"))

    def alibi(self, s):
        slope = self.bias("slope", "h")
        return self.op("addf", s, self.op("mulf", slope, self.distance()))

    def soft_cap(self, s):
        cap = self.number(self.rng.choice([5.0, 20.0, 50.0]))
        return self.op("mulf", self.op("math.tanh", self.op("divf", s, cap)), cap)

    def bias_table(self, s):
        return self.op("addf", s, self.bias("bias", self.rng.choice(["j", "i", "hij", "bhij", "ij", "bj", "h"])))

    def relative_bias(self, s):
        span = self.rng.choice([2, 7, 16])
        table, type = self.capture("rel", self.graph.numbers.standard_normal(2 * span + 1), self.type)
        shifted = self.emit(f"arith.addi {self.emit('arith.subi %j, %i : index')}, {self.index_constant(span)} : index")
        low = self.emit(f"arith.maxsi {shifted}, {self.index_constant(0)} : index")
        place = self.emit(f"arith.minsi {low}, {self.index_constant(2 * span)} : index")
        self.feature("relative bias")
        return self.op("addf", s, self.emit(f"tensor.extract {table}[{place}] : {type}"))

    def wave(self, s):
        angle = self.op("mulf", self.to_number(self.index(1)), self.number(0.3))
        return self.op("addf", s, self.op(self.rng.choice(["math.sin", "math.cos"]), angle))

    def decay(self, s):
        """s − log(1 + |j − i|), and similar functions."""
        distance = self.op("math.absf", self.distance())
        grown = self.op("addf", distance, self.number(1.0))
        kind = self.rng.choice(["math.log", "math.sqrt", "math.rsqrt", "math.log2"])
        return self.op("subf", s, self.op(kind, grown))

    def temperature(self, s):
        return self.op("mulf", s, self.capture("t", self.rng.uniform(0.2, 2.0), self.type)[0])

    def choose(self, s):
        lower = self.op("subf", s, self.number(1.5))
        self.feature("select of scores")
        return self.emit(f"arith.select {self.boolean(1)}, {lower}, {s} : {self.type}")

    def clamp(self, s):
        return self.op("minimumf", self.op("maximumf", s, self.number(-3.0)), self.number(4.0))

    def bounded(self, s):
        """s + 2·sigmoid(s), written with exp."""
        one = self.number(1.0)
        falling = self.op(self.rng.choice(["math.exp", "math.exp2"]), self.op("negf", self.clamp(s)))
        return self.op("addf", s, self.op("divf", one, self.op("addf", falling, one)))

    def fused(self, s):
        self.feature("math.fma on scores")
        return self.emit(f"math.fma {s}, {self.number(0.5)}, {self.bias('bias', 'j')} : {self.type}")

    def erf(self, s):
        return self.op("addf", s, self.op("math.erf", self.clamp(s)))

    # --- weights -----------------------------------------------------------------------------------------------------

    def gate(self, p):
        self.feature("gated weights")
        return self.op("mulf", p, self.bias("gate", self.rng.choice(["j", "i", "hij", "h"])))

    def keep(self, p):
        self.feature("weights dropped by position")
        zero = self.number(0.0)
        return self.emit(f"arith.select {self.boolean(1)}, {p}, {zero} : {self.type}")

    def square(self, p):
        self.feature("squared weights")
        return self.op("mulf", p, p)

    def sparser(self, p):
        self.feature("weights less a constant")
        return self.op("maximumf", self.op("subf", p, self.number(0.01)), self.number(0.0))

    def lift(self, p):
        self.feature("weights and a constant")
        return self.op("addf", p, self.number(0.125))

    WEIGHTS = [gate, gate, keep, square, sparser, lift]

    # --- weights of scores alone ------------------------------------------------------------------------------------- --------------------------------------------------------------------------------------------------------

    def sigmoid(self, s):
        self.feature("sigmoids as weights")
        power = self.emit(f"math.exp {self.emit(f'arith.negf {s} : {self.type}')} : {self.type}")
        one = self.number(1.0)
        return self.op("divf", one, self.op("addf", power, one))

    def shifted_sigmoid(self, s):
        return self.op("mulf", self.sigmoid(self.op("subf", s, self.number(2.0))), self.bias("gate", "h"))

    def silu(self, s):
        return self.op("mulf", self.op("mulf", s, self.sigmoid(s)), self.number(0.03125))

    def relu_squared(self, s):
        self.feature("squared scores as weights")
        positive = self.op("maximumf", s, self.number(0.0))
        return self.op("mulf", positive, positive)

    # --- bins --------------------------------------------------------------------------------------------------------

    def one_bin(self, bins):
        self.feature("one bin for all")
        return self.index_constant(self.rng.choice([0, bins - 1, bins]))

    def bin_of_row(self, bins):
        self.feature("a bin a row")
        return self.rng.choice(["%i", "%h", "%b"])

    def blocks(self, bins):
        self.feature("bins of neighbouring keys")
        return self.emit(f"arith.floordivsi %j, {self.index_constant(self.rng.choice([1, 3, 16, 64]))} : index")

    def distances(self, bins):
        self.feature("bins by distance")
        ends = self.rng.sample(["%i", "%j"], 2)
        middle = self.index_constant(bins // 2)
        bin = self.emit(f"arith.addi {self.emit(f'arith.subi {ends[0]}, {ends[1]} : index')}, {middle} : index")
        if self.rng.random() < 0.6:
            bin = self.emit(f"arith.maxsi {bin}, {self.index_constant(0)} : index")
            bin = self.emit(f"arith.minsi {bin}, {self.index_constant(bins - 1)} : index")
        return bin

    def drawn_bins(self, bins):
        self.feature("bins by any expression")
        return self.index(2)

    def bins_by_length(self, bins):
        self.feature("bins of a share of the keys")
        length, count = self.emit("attn.length key"), self.index_constant(bins)
        size = self.emit(f"arith.ceildivui {length}, {count} : index")
        return self.emit(f"arith.divui %j, {self.emit(f'arith.maxui {size}, {self.index_constant(1)} : index')} : index")

    def segments(self, bins):
        self.feature("bins by a captured id of keys")
        ids = self.table("segment", "j", lambda shape: np.sort(self.graph.numbers.integers(-1, bins + 1, shape)), "i32")
        return self.emit(f"arith.index_cast {ids} : i32 to index")

    BINS = [one_bin, bin_of_row, blocks, distances, distances, drawn_bins, bins_by_length, segments]

    SCORES = [alibi, alibi, soft_cap, soft_cap, bias_table, bias_table, relative_bias, wave, decay, temperature, choose,
              clamp, bounded, fused, erf]
