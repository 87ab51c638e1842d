"""The programs of the bundle as MLIR. Every size is dynamic except the head size; the entry has the name of the kind."""

import dataclasses

ALIBI = """score(%s, %b, %h, %i, %j, %sl) {
      %m = tensor.extract %sl[%h] : tensor<?xf32>
      %d = arith.subi %j, %i : index
      %d32 = arith.index_cast %d : index to i32
      %df = arith.sitofp %d32 : i32 to f32
      %bias = arith.mulf %m, %df : f32
      %r = arith.addf %s, %bias : f32
      attn.yield %r : f32
    }"""
SOFTCAP = """score(%s, %b, %h, %i, %j) {
      %cap = arith.constant 20.0 : f32
      %x = arith.divf %s, %cap : f32
      %t = math.tanh %x : f32
      %r = arith.mulf %t, %cap : f32
      attn.yield %r : f32
    }"""
DOCUMENTS = """mask(%b, %h, %i, %j, %ids) {
      %x = tensor.extract %ids[%i] : tensor<?xi32>
      %y = tensor.extract %ids[%j] : tensor<?xi32>
      %same = arith.cmpi eq, %x, %y : i32
      attn.yield %same : i1
    }"""
# The sum of weights by key modulo 8.
TALLY = """tally<8>(%s, %b, %h, %i, %j) {
      %eight = arith.constant 8 : index
      %one = arith.constant 1.0 : f32
      %bin = arith.remui %j, %eight : index
      attn.yield %bin, %one : index, f32
    }"""
CAUSAL = "mask causal<bottom_right>"
SCORES = {"": "", "alibi": ALIBI, "softcap": SOFTCAP}
# A clause that reads a tensor: its name and type, and the words before the other clauses.
READS = {"alibi": ("slope", "tensor<?xf32>", "captures(%slope : tensor<?xf32>)"),
         "documents": ("ids", "tensor<?xi32>", "captures(%ids : tensor<?xi32>)"),
         "sink": ("sink", "tensor<?xf32>", "sink(%sink : tensor<?xf32>)")}


# Scripts of variants: the family of kernels, and the keys of a step of warps.
VARIANTS = {"simt": 'family = "simt"', "keys32": 'family = "sm_80" keys = 32', "keys64": 'family = "sm_80" keys = 64'}


@dataclasses.dataclass(frozen=True)
class Kind:
    """One attention program."""

    dtype: str
    depth: int
    mask: str = "full"  # or "causal", "documents", or "window31": causal, and at most 31 keys before that of the query
    score: str = ""
    sink: bool = False
    tally: bool = False
    lse: bool = False
    gradient: bool = False  # also the entry of gradients
    paged: bool = False  # keys and values are in pages of any size
    variant: str = ""  # of VARIANTS, instead of what the compiler chooses, or "rows64": queries of a task

    @property
    def name(self):
        parts = [self.dtype, f"d{self.depth}", self.mask] + [self.score] * bool(self.score)
        parts += [part for part in ("sink", "tally", "lse", "gradient", "paged") if getattr(self, part)]
        return "_".join(parts + [self.variant] * bool(self.variant))

    @property
    def script(self):
        """The transform script of a variant, to be run before `codegen.kernels`, or None."""
        if self.variant not in VARIANTS:
            return None
        return f"""module attributes {{transform.with_named_sequence}} {{
  transform.named_sequence @__transform_main(%program: !transform.any_op {{transform.readonly}}) {{
    %tasks = transform.structured.match ops{{["func.func"]}} attributes {{attn.task}} in %program
        : (!transform.any_op) -> !transform.any_op
    %kernels = transform.attn.map_to_gpu %tasks : (!transform.any_op) -> !transform.any_op
    transform.attn.lower_attention %kernels {VARIANTS[self.variant]} : !transform.any_op
    transform.yield
  }}
}}
"""

    @property
    def window(self):
        """Visible keys before that of a query, None for all."""
        return int(self.mask[len("window"):]) if self.mask.startswith("window") else None

    @property
    def is_causal(self):
        return self.mask == "causal" or self.window is not None

    @property
    def mask_text(self):
        if self.mask == "documents":
            return DOCUMENTS
        return CAUSAL * self.is_causal + (f" mask window<{self.window}, *>" if self.window is not None else "")

    @property
    def reads(self):
        """The clauses that read a tensor, in the order of the arguments."""
        return [clause for clause in (self.score, self.mask, "sink" if self.sink else "") if clause in READS]

    def program(self):
        tensor = f"tensor<?x?x?x{self.depth}x{self.dtype}>"
        names = ["q", "kp", "vp"] if self.paged else ["q", "k", "v"]
        arguments = [f"%{name}: {tensor}" for name in names] + ["%table: tensor<?x?xi32>"] * self.paged
        arguments += [f"%{READS[clause][0]}: {READS[clause][1]}" for clause in self.reads]
        results = [tensor] + ["tensor<?x?x?xf32>"] * self.lse + ["tensor<?x?x?x8xf32>"] * self.tally
        clauses = [READS[clause][2] for clause in self.reads] + [self.mask_text, SCORES[self.score]]
        clauses += [TALLY] * self.tally + ["lse"] * self.lse
        rows = int(self.variant[len("rows"):]) if self.variant.startswith("rows") else 0
        schedule = f" {{schedule = #attn.schedule<rows = {rows}, cols = 16384>}}" if rows else ""
        pages = "".join(f"  %{x} = attn.paged %{x}p[b,h,s,d], %table : {tensor}, tensor<?x?xi32> -> {tensor}\n"
                        for x in "kv") if self.paged else ""
        values = ", ".join(f"%r{i}" for i in range(len(results)))
        return (f"func.func @{self.name}({', '.join(arguments)}) -> ({', '.join(results)})"
                f"{' attributes {attn.gradient}' * self.gradient} {{\n{pages}"
                f"  {values} = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]\n"
                + "".join(f"    {clause}\n" for clause in clauses if clause)
                + f"   {schedule} : ({tensor}, {tensor}, {tensor}) -> ({', '.join(results)})\n"
                f"  return {values} : {', '.join(results)}\n}}\n")


@dataclasses.dataclass(frozen=True)
class Linear:
    """x wᵀ + bias in a 16-bit type, with sums in f32."""

    dtype: str

    @property
    def name(self):
        return f"{self.dtype}_linear"

    def program(self):
        matrix, sums, t = f"tensor<?x?x{self.dtype}>", "tensor<?x?xf32>", self.dtype
        return f"""func.func @{self.name}(%x: {matrix}, %w: {matrix}, %bias: tensor<?x{t}>) -> {matrix} {{
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %x, %c0 : {matrix}
  %n = tensor.dim %w, %c0 : {matrix}
  %e = tensor.empty(%m, %n) : {sums}
  %z = linalg.fill ins(%zero : f32) outs(%e : {sums}) -> {sums}
  %y = linalg.generic {{indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>,
                                        affine_map<(i, j, k) -> (i, j)>],
                       iterator_types = ["parallel", "parallel", "reduction"]}}
      ins(%x, %w : {matrix}, {matrix}) outs(%z : {sums}) {{
    ^bb0(%a: {t}, %b: {t}, %s: f32):
      %af = arith.extf %a : {t} to f32
      %bf = arith.extf %b : {t} to f32
      %p = arith.mulf %af, %bf : f32
      %r = arith.addf %s, %p : f32
      linalg.yield %r : f32
  }} -> {sums}
  %o = tensor.empty(%m, %n) : {matrix}
  %r = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>,
                                        affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}}
      ins(%y, %bias : {sums}, tensor<?x{t}>) outs(%o : {matrix}) {{
    ^bb0(%s: f32, %b: {t}, %unused: {t}):
      %bf = arith.extf %b : {t} to f32
      %sum = arith.addf %s, %bf : f32
      %v = arith.truncf %sum : f32 to {t}
      linalg.yield %v : {t}
  }} -> {matrix}
  return %r : {matrix}
}}
"""
