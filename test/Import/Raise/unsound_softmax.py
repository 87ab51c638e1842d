# Softmaxes that differ from that of attention by one step are not raised, or with the step. Each has a twin without the
# step, which is raised.
# RUN: %python %s %S/Inputs

import subprocess
import sys

sys.path.insert(0, sys.argv[1])
from graphs import function

PIPELINE = "builtin.module(func.func(attn-raise-attention,canonicalize,cse))"
PAIRS, ROWS = "tensor<4x4xf32>", "tensor<4xf32>"
FLAGS, BIAS = ", %c: tensor<4x4xi1>", f", %bias: {PAIRS}"
PROGRAM = f"""func.func @{{name}}(%q: tensor<4x8xf32>, %k: tensor<8x4xf32>, %v: tensor<4x8xf32>{{arguments}}) -> tensor<4x8xf32> {{{{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : {PAIRS}
  %z = linalg.fill ins(%zero : f32) outs(%e : {PAIRS}) -> {PAIRS}
  %s = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : {PAIRS}) -> {PAIRS}
{{body}}
  %oe = tensor.empty() : tensor<4x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : {PAIRS}, tensor<4x8xf32>) outs(%oz : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}}}}
"""


def number(name, value, shape=PAIRS):
    return f"  %{name} = arith.constant dense<{value}> : {shape}\n"


def pairs(name, op):
    return f"  %{name} = {op} : {PAIRS}\n"


def softmax(scores, weights="%p"):
    return f"  {weights} = linalg.softmax dimension(1) ins({scores} : {PAIRS}) outs(%e : {PAIRS}) -> {PAIRS}\n"


def reduced(op, source, start):
    return f"linalg.reduce {{ {op} }} ins({source} : {PAIRS}) outs({start} : {ROWS}) dimensions = [1]"


def wide(rows):
    return f"linalg.broadcast ins({rows} : {ROWS}) outs(%e : {PAIRS}) dimensions = [1]"


def exponentials(start="0xFF800000", scores="%s", of=None):
    """%exp = exp(%below), where the row maximum (of other numbers), which begins at `start`, is subtracted from the scores."""
    return f"""  %low = arith.constant {start} : f32
  %re = tensor.empty() : {ROWS}
  %rl = linalg.fill ins(%low : f32) outs(%re : {ROWS}) -> {ROWS}
  %rz = linalg.fill ins(%zero : f32) outs(%re : {ROWS}) -> {ROWS}
  %max = {reduced("arith.maximumf", of or scores, "%rl")}
  %wide = {wide("%max")}
  %below = arith.subf {scores}, %wide : {PAIRS}
  %exp = math.exp %below : {PAIRS}
"""


def divided(by):
    return f"  %sums = {wide(by)}\n" + pairs("p", "arith.divf %exp, %sums")


def sum_of(source="%exp"):
    return f"  %sum = {reduced('arith.addf', source, '%rz')}\n"


def more_than_sum(guard, start="0xFF800000", of="%s"):
    return exponentials(start, of=of) + sum_of() + number("guard", guard, ROWS) + over_more("%exp")


def over_more(top):
    return f"  %more = arith.addf %sum, %guard : {ROWS}\n" + divided("%more").replace("%exp", top)


def scaled_exponents(factor):
    """exp((s − max) · factor), over a sum to which a tiny number is added."""
    exponents = exponentials().replace("math.exp %below", "math.exp %scaled")
    before, after = exponents.split("  %exp")
    return (before + number("factor", factor) + pairs("scaled", "arith.mulf %below, %factor") + "  %exp" + after + sum_of() +
            number("guard", "1.0e-9", ROWS) + over_more("%exp"))


def masked_exponentials(over):
    return (exponentials() + number("none", "0.0") + f"  %kept = arith.select %c, %exp, %none : tensor<4x4xi1>, {PAIRS}\n" +
            sum_of("%kept") + number("guard", "1.0e-9", ROWS) + over.replace("%exp", "%kept"))


def replaced_sum(predicate, by="0.0"):
    return (exponentials() + sum_of() + number("nothing", by, ROWS) + number("one", "1.0", ROWS) +
            f"  %is = arith.cmpf {predicate}, %sum, %nothing : {ROWS}\n"
            f"  %other = arith.select %is, %sum, %one : tensor<4xi1>, {ROWS}\n" + divided("%other"))


def biased_rows(by):
    """A bias of each row is added to the scores; with −∞ the row has no keys, and a guard of the sum makes it 0."""
    return (f"  %rows = {wide('%bias')}\n" + pairs("b", "arith.addf %s, %rows") + exponentials("-3.0e38", "%b") + sum_of() +
            number("nothing", "0.0", ROWS) + number("one", "1.0", ROWS) +
            f"  %is = arith.cmpf oeq, %sum, %nothing : {ROWS}\n"
            f"  %other = arith.select %is, %one, %sum : tensor<4xi1>, {ROWS}\n" + divided(by))


def weights_of_rows(op):
    """The weights under a row bias, as `op` changes them."""
    return biased_rows("%sum").replace("%p =", "%w =") + number("nil", "0.0") + number("half", "0.5") + pairs("p", op)


def by_difference(op, of):
    """exp(s − (max ± log Σ)) and the like: `op` combines the maximum %max and the logarithm %log, `of` the score and that."""
    return (exponentials() + sum_of() + f"  %log = math.log %sum : {ROWS}\n  %rest = {op} : {ROWS}\n"
            f"  %all = {wide('%rest')}\n" + pairs("lower", of) + pairs("p", "math.exp %lower"))


def empty_rows(combiner, predicate, start, low="0xFF800000"):
    """The weights of a row are 0 if all scores (or some) are −∞, or another number."""
    return (hidden("0xFF800000") + number("low", low) + f"  %is = arith.cmpf {predicate}, %h, %low : {PAIRS}\n"
            f"  %start = arith.constant {start}\n  %re = tensor.empty() : tensor<4xi1>\n"
            "  %rs = linalg.fill ins(%start : i1) outs(%re : tensor<4xi1>) -> tensor<4xi1>\n"
            f"  %row = linalg.reduce {{ {combiner} }} ins(%is : tensor<4x4xi1>) outs(%rs : tensor<4xi1>) dimensions = [1]\n"
            "  %te = tensor.empty() : tensor<4x4xi1>\n"
            "  %rows = linalg.broadcast ins(%row : tensor<4xi1>) outs(%te : tensor<4x4xi1>) dimensions = [1]\n" +
            softmax("%h", "%w") + number("nil", "0.0") + f"  %p = arith.select %rows, %nil, %w : tensor<4x4xi1>, {PAIRS}\n")


def zero_for_nan(term, op=None):
    """Weights that are 0 where they would be NaN, or that `op` changes; %t is added to the scores."""
    guard = f"  %nan = arith.cmpf uno, %w, %w : {PAIRS}\n  %p = arith.select %nan, %nil, %w : tensor<4x4xi1>, {PAIRS}\n"
    return (number("three", "3.0") + number("nil", "0.0") + pairs("u", "math.log %bias") +
            pairs("least", "arith.minimumf %bias, %three") + pairs("t", term) + pairs("m", "arith.addf %s, %t") +
            softmax("%m", "%w") + (pairs("p", op) if op else guard))


def hidden_twice():
    return (exponentials() + number("none", "0.0") + f"  %e1 = arith.select %c, %exp, %none : tensor<4x4xi1>, {PAIRS}\n"
            f"  %e2 = arith.select %g, %none, %e1 : tensor<4x4xi1>, {PAIRS}\n" + sum_of("%e2") +
            divided("%sum").replace("%exp", "%e2"))


def by_logarithm(source):
    return (exponentials() + number("none", "0.0") + f"  %kept = arith.select %c, %exp, %none : tensor<4x4xi1>, {PAIRS}\n" +
            sum_of(source) + f"  %log = math.log %sum : {ROWS}\n  %logs = {wide('%log')}\n" +
            pairs("lower", "arith.subf %below, %logs") + pairs("p", "math.exp %lower"))


def hidden(by):
    return number("hidden", by) + f"  %h = arith.select %c, %s, %hidden : tensor<4x4xi1>, {PAIRS}\n"


def scaled(scores, factor):
    return scores + number("factor", factor) + pairs("m", "arith.mulf %h, %factor") + softmax("%m")


def times(*factors):
    scaled = [number(f"n{i}", n) + pairs(f"s{i + 1}", f"arith.mulf %s{i}, %n{i}") for i, n in enumerate(factors)]
    return "".join(scaled).replace("%s0", "%s") + softmax(f"%s{len(factors)}")


def beside_scaled(op):
    return (number("small", "0.001") + pairs("t", "arith.mulf %bias, %small") + hidden("-1.0e4") + pairs("m", op) + softmax("%m"))


def with_least(op):
    """The masked scores and %t, the least of them of each key."""
    return (hidden("-1.0e4") + f"  %most = arith.constant 0x7F800000 : f32\n  %le = tensor.empty() : {ROWS}\n"
            f"  %lm = linalg.fill ins(%most : f32) outs(%le : {ROWS}) -> {ROWS}\n"
            f"  %least = {reduced('arith.minimumf', '%h', '%lm').replace('[1]', '[0]')}\n"
            f"  %t = {wide('%least').replace('[1]', '[0]')}\n" + pairs("m", op) + softmax("%m"))


def bits(given, cast):
    return (f"  %cast = arith.bitcast %b : {given} to {cast}\n  %t = arith.extf %cast : {cast} to {PAIRS}\n" +
            pairs("m", "arith.addf %s, %t") + softmax("%m"))


def floor(at):
    return number("floor", at) + pairs("h", "arith.maximumf %s, %floor")


def term_of_flags(flags):
    return (hidden("0xFF800000") + f"  %f = arith.uitofp {flags} : tensor<4x4xi1> to {PAIRS}\n" +
            pairs("t", "arith.mulf %bias, %f") + pairs("m", "arith.addf %h, %t") + softmax("%m"))


def integers(set_value, unset):
    return (number("set", set_value, "tensor<4x4xi32>") + number("unset", unset, "tensor<4x4xi32>") +
            "  %i = arith.select %c, %set, %unset : tensor<4x4xi1>, tensor<4x4xi32>\n"
            f"  %f = arith.sitofp %i : tensor<4x4xi32> to {PAIRS}\n" + number("large", "-1.0e9") +
            pairs("t", "arith.mulf %f, %large") + pairs("m", "arith.addf %s, %t") + softmax("%m"))


def real_flags(op, by, large="-3.0e38"):
    """Keys are hidden by (1 + f · by) · large, for a float f from 0 to 1."""
    return (number("by", by) + number("one", "1.0") + number("large", large) + pairs("n", "arith.mulf %bias, %by") +
            pairs("f", op) + pairs("t", "arith.mulf %f, %large") + pairs("m", "arith.addf %s, %t") + softmax("%m"))


def with_term(term):
    """A term %t beside a mask whose numbers are −10000."""
    return hidden("-1.0e4") + term + pairs("m", "arith.addf %h, %t") + softmax("%m")


def computed_scale(*ops):
    """The scores times a scalar %x that ops compute from %two."""
    return ("  %two = arith.constant 2.0 : f32\n" + "".join(f"  {op} : f32\n" for op in ops) +
            f"  %t = tensor.splat %x : {PAIRS}\n" + pairs("m", "arith.mulf %s, %t") + softmax("%m"))


def over(divisor):
    return number("by", divisor) + pairs("h", "arith.divf %s, %by") + softmax("%h")


def changed(op, by):
    return hidden("0xFF800000") + softmax("%h", "%w") + number("number", by) + pairs("p", op)


# Functions that are finite, that are bounded, that may be −∞, and that are NaN for some numbers; all of a finite number.
FINITE = ["math.absf", "math.sin", "math.cos", "math.exp", "math.exp2", "math.expm1"]
BOUNDED = ["math.tanh", "math.erf"]
UNBOUNDED = ["math.log", "math.log2", "math.log10", "math.log1p", "math.atanh"]
INVALID = ["math.sqrt", "math.rsqrt", "math.acos", "math.asin"]
# Functions that give 0 for 0, and others.
KEEP_ZERO = ["math.absf", "math.sin", "math.expm1", "math.tanh", "math.erf", "math.sqrt"]
MOVE_ZERO = ["math.exp", "math.exp2", "math.cos", "math.acos", "math.log", "math.cosh", "math.rsqrt"]


def name_of(op):
    return op.partition(".")[2]


def unhidden(term):
    """Weights that are 1 for a weight of 0; %t is added to the scores."""
    return (number("three", "3.0") + pairs("t", term) + pairs("m", "arith.addf %s, %t") + softmax("%m", "%w") +
            pairs("p", "math.exp %w"))


def two_softmaxes(first):
    """The sum of the weights of `first` and of the scores, both of which %c masks."""
    return (number("low", "0xFF800000") + first + f"  %h1 = arith.select %c, %m, %low : tensor<4x4xi1>, {PAIRS}\n"
            f"  %h2 = arith.select %c, %s, %low : tensor<4x4xi1>, {PAIRS}\n" + softmax("%h1", "%w1") + softmax("%h2", "%w2") +
            pairs("p", "arith.addf %w2, %w1"))


# Arguments, body, what the raised function must contain and what it must not.
RAISED, REFUSED = (["attn.attention"], []), ([], ["attn.attention"])
MASKED, UNMASKED = (["attn.attention", "mask("], []), (["attn.attention"], ["mask("])
CASES = {
    # exp / (1 + Σ exp) is the weight beside a sink of the score of the maximum.
    "number_added_to_sum": ("", more_than_sum("1.0"), *REFUSED),
    "tiny_number_added_to_sum": ("", more_than_sum("1.0e-9"), *RAISED),
    "small_number_added_to_sum": ("", more_than_sum("2.0e-6"), *REFUSED),
    # With a maximum of at least 0 the sum may be smaller than the number added to it.
    "maximum_from_a_score": ("", more_than_sum("1.0e-9", "0.0"), *REFUSED),
    "maximum_from_a_sentinel": ("", more_than_sum("1.0e-9", "-3.0e38"), *RAISED),
    # The divisor is always 1.
    "sum_replaced_unless_negative": ("", replaced_sum("olt"), *REFUSED),
    "sum_replaced_unless_zero": ("", replaced_sum("oeq"), *REFUSED),
    "sum_replaced_if_zero": ("", replaced_sum("une"), *RAISED),
    "sum_replaced_unless_positive": ("", replaced_sum("ogt"), *RAISED),
    "sum_replaced_if_one": ("", replaced_sum("une", "1.0"), *REFUSED),
    "sum_replaced_unless_above_one": ("", replaced_sum("ogt", "1.0"), *REFUSED),
    # Only numbers are known to be tiny, and only beside a sum of at least 1: of the own maximum, of all keys.
    "argument_added_to_sum": (f", %guard: {ROWS}", exponentials() + sum_of() + over_more("%exp"), *REFUSED),
    "maximum_of_a_bias": (BIAS, more_than_sum("1.0e-9", of="%bias"), *REFUSED),
    "maximum_of_half": ("", number("half", "0.5") + pairs("h", "arith.mulf %s, %half") + more_than_sum("1.0e-9", of="%h"),
                        *REFUSED),
    "exponents_times_two": ("", scaled_exponents("2.0"), *RAISED),
    "exponents_times_minus_two": ("", scaled_exponents("-2.0"), *REFUSED),
    "number_added_to_masked_sum": (FLAGS, masked_exponentials(over_more("%kept")), *REFUSED),
    "masked_sum": (FLAGS, masked_exponentials(divided("%sum")), *MASKED),
    # A row without keys, whose bias is −∞, gets the weights 0 from a guard, and NaN without one.
    "row_bias_before_a_guarded_sum": (f", %bias: {ROWS}", biased_rows("%other"), ["attn.attention", "captures(%arg3"], []),
    "row_bias_before_a_sum": (f", %bias: {ROWS}", biased_rows("%sum"), ["attn.attention"], ["captures("]),
    # The weights of hidden keys are not 0.
    "logarithm_of_masked_sum": (FLAGS, by_logarithm("%kept"), *REFUSED),
    "logarithm_of_sum": (FLAGS, by_logarithm("%exp"), *RAISED),
    "logarithm_added": ("", by_difference("math.log %sum", "arith.addf %below, %all"), *REFUSED),
    "logarithm_subtracted": ("", by_difference("math.log %sum", "arith.subf %below, %all"), *RAISED),
    "maximum_minus_logarithm": ("", by_difference("arith.subf %max, %log", "arith.subf %s, %all"), *REFUSED),
    "maximum_plus_logarithm": ("", by_difference("arith.addf %max, %log", "arith.subf %s, %all"), *RAISED),
    # Only a row of which all keys are hidden has no keys.
    "zero_for_rows_with_a_hidden_key": (FLAGS, empty_rows("arith.ori", "oeq", "false"), ["attn.attention", "weight("], []),
    "zero_for_rows_without_hidden_keys": (FLAGS, empty_rows("arith.andi", "one", "true"), ["attn.attention", "weight("], []),
    "zero_for_rows_without_keys": (FLAGS, empty_rows("arith.andi", "oeq", "true"), ["attn.attention"], ["weight("]),
    # Rows with keys may have one score for all of them.
    **{f"zero_for_rows_of_{name}": (FLAGS, empty_rows("arith.andi", "oeq", "true", low), ["attn.attention", "weight("], [])
       for name, low in (("zeros", "0.0"), ("ones", "1.0"), ("largest", "0x7F800000"), ("lowest", "-3.0e38"))},
    "hidden_by_two_masks": (", %g: tensor<4x4xi1>" + FLAGS, hidden_twice(), ["attn.attention", "mask(", "arith.andi", "arith.xori"], []),
    # A number in place of NaN, which the bias −∞ of a row makes.
    **{f"{name_of(op)}_of_row_weights": (f", %bias: {ROWS}", weights_of_rows(f"{op} %w, %{other}"),
                                         ["attn.attention", *expects], forbids)
       for op, other, expects, forbids in (
           ("arith.maxnumf", "nil", ["captures(%arg3"], []), ("arith.maximumf", "nil", [], ["captures("]),
           ("arith.minnumf", "nil", ["captures(%arg3"], []), ("arith.minimumf", "nil", [], ["captures("]),
           ("math.powf", "half", ["captures(%arg3"], []), ("arith.mulf", "half", [], ["captures("]))},
    # A score of NaN makes the weights of its row NaN, for which such an op gives a number.
    **{f"{name_of(op)}_of_weights_of_logarithm": (BIAS, zero_for_nan("math.log %bias", f"{op} %w, %nil"), *expected)
       for op, expected in (("arith.maxnumf", REFUSED), ("arith.maximumf", RAISED),
                            ("arith.minnumf", REFUSED), ("arith.minimumf", RAISED))},
    # A guard replaces NaN, which a score of ∞ or NaN makes of all weights of a row.
    **{f"zero_for_nan_of_{name}": (BIAS, zero_for_nan(term), *(RAISED if is_number else REFUSED)) for name, term, is_number in (
        ("bias", "arith.addf %bias, %three", True), ("half_bias", "arith.divf %bias, %three", True),
        ("capped_bias", "math.tanh %bias", True), ("exponential", "math.exp %bias", True),
        ("negative_bias", "arith.negf %bias", False), ("quotient", "arith.divf %three, %bias", False),
        ("logarithm", "math.log %bias", False), ("root", "math.sqrt %bias", False),
        ("magnitude", "math.absf %bias", False), ("sine", "math.sin %bias", False), ("cosine", "math.cos %bias", False),
        *((f"{name_of(op)}_of_scores", f"{op} %s", True) for op in FINITE + BOUNDED),
        *((f"{name_of(op)}_of_scores", f"{op} %s", False) for op in UNBOUNDED + INVALID),
        ("quotient_of_scores", "arith.divf %s, %s", False), ("remainder_of_scores", "arith.remf %s, %three", False),
        ("greatest", "arith.maximumf %bias, %three", True), ("least", "arith.addf %least, %three", True),
        ("negative_least", "arith.subf %three, %least", False), ("capped_logarithm", "math.tanh %u", False))},
    # Such a score, which is −∞, has a weight that is not 0.
    **{f"weights_of_{name_of(op)}": (BIAS, unhidden(f"{op} %s"), *(RAISED if op not in UNBOUNDED else REFUSED))
       for op in FINITE + BOUNDED + UNBOUNDED},
    "weights_of_a_quotient": (BIAS, unhidden("arith.divf %three, %s"), *REFUSED),
    "weights_of_half": (BIAS, unhidden("arith.divf %s, %three"), *RAISED),
    # A bias of −∞ hides a key from one of two softmaxes.
    "two_masked_softmaxes": (FLAGS + BIAS, two_softmaxes(pairs("m", "arith.addf %s, %s")), *MASKED),
    "two_masked_softmaxes_one_with_a_bias": (FLAGS + BIAS, two_softmaxes(pairs("m", "arith.addf %s, %bias")), *REFUSED),
    # A key with the score 2e9 is not hidden.
    "mask_before_negative_scale": (FLAGS, scaled(hidden("-1.0e9"), "-2.0"), *UNMASKED),
    "mask_before_positive_scale": (FLAGS, scaled(hidden("-1.0e9"), "2.0"), *MASKED),
    # The product is −2e9 for all keys.
    "floor_before_negative_scale": ("", scaled(floor("1.0e9"), "-2.0"), ["maximumf"], []),
    "floor_before_positive_scale": ("", scaled(floor("-1.0e9"), "2.0"), ["attn.attention"], ["maximumf"]),
    # The number is −1000 after scaling, where visible keys may have less, or it is −100.
    "small_number_before_a_large_scale": (FLAGS, scaled(hidden("-10.0"), "100.0"), *UNMASKED),
    "number_before_a_small_scale": (FLAGS, scaled(hidden("-1.0e4"), "0.01"), *UNMASKED),
    "large_number_before_a_small_scale": (FLAGS, scaled(hidden("-1.0e6"), "0.01"), *MASKED),
    # A scale of one term is not one of the others.
    "scaled_term_before_hidden_keys": (FLAGS + BIAS, beside_scaled("arith.addf %t, %h"), *MASKED),
    "scaled_term_after_hidden_keys": (FLAGS + BIAS, beside_scaled("arith.addf %h, %t"), *MASKED),
    # The least score of a key over all queries may be the number that hides it.
    "least_of_hidden_scores_subtracted": (FLAGS, with_least("arith.subf %h, %t"), *UNMASKED),
    "least_of_hidden_scores_added": (FLAGS, with_least("arith.addf %h, %t"), *UNMASKED),
    "scores_subtracted_from_hidden_scores": (FLAGS, with_term(pairs("t", "arith.negf %s")), *MASKED),
    # The bits of a number are not its value.
    "bits_of_a_bias": (", %b: tensor<4x4xi16>", bits("tensor<4x4xi16>", "tensor<4x4xbf16>"), ["attn.attention", "captures("], []),
    "bits_of_another_float": (", %b: tensor<4x4xf16>", bits("tensor<4x4xf16>", "tensor<4x4xbf16>"),
                              ["attn.attention", "arith.bitcast"], []),
    # The product of the factors is too large for f32; that of all three is not.
    "scores_times_large_numbers": ("", times("1.0e30", "1.0e30"), ["scale(1.0000000150474662E+30", "score("], ["0x7F800000"]),
    "scores_times_large_and_small_numbers": ("", times("1.0e30", "2.0e-30"), ["attn.attention", "scale(2.0"], ["score("]),
    # Only flags that the mask requires may be dropped.
    "flags_of_a_term": (", %g: tensor<4x4xi1>" + FLAGS + BIAS, term_of_flags("%g"), ["attn.attention", "uitofp"], []),
    "flags_of_the_mask": (FLAGS + BIAS, term_of_flags("%c"), ["attn.attention"], ["uitofp"]),
    # A score that is 1e9 higher is not hidden.
    "integers_that_raise_others": (FLAGS, integers(0, -1), *UNMASKED),
    "integers_that_hide_others": (FLAGS, integers(0, 1), *MASKED),
    "integers_that_raise_set_scores": (FLAGS, integers(-1, 0), *UNMASKED),
    "integers_that_hide_set_scores": (FLAGS, integers(1, 0), *MASKED),
    # A factor of 1 + f hides all keys.
    "flags_subtracted_from_one": (BIAS, real_flags("arith.addf %n, %one", "-1.0"), *MASKED),
    "one_minus_flags": (BIAS, real_flags("arith.subf %one, %n", "1.0"), *MASKED),
    # A flag may be as near to 1 as 1 − 2⁻²⁴, and scores up to −500 are masked.
    "one_minus_flags_times_enough": (BIAS, real_flags("arith.subf %one, %n", "1.0", "-8388608000.0"), *MASKED),
    "one_minus_flags_times_too_little": (BIAS, real_flags("arith.subf %one, %n", "1.0", "-8388607488.0"), *UNMASKED),
    "flags_added_to_one": (BIAS, real_flags("arith.addf %n, %one", "1.0"), *UNMASKED),
    "half_of_flags_subtracted": (BIAS, real_flags("arith.addf %n, %one", "-0.5"), *UNMASKED),
    # Constants that scalar ops compute are numbers, however long the chain.
    "scale_of_numbers": ("", computed_scale("%a = math.sqrt %two", "%b = arith.divf %a, %two", "%c = arith.mulf %b, %two",
                                            "%x = arith.mulf %c, %c"), ["attn.attention", "scale(2.0"], ["score("]),
    "scale_of_a_scalar": (", %n: f32", computed_scale("%a = math.tanh %n", "%x = arith.divf %a, %two"),
                          ["attn.attention", "math.tanh", "score("], []),
    # Numbers that f32 does not have are not computed.
    "scores_over_a_tiny_number": ("", over("1.0e-39"), ["attn.attention", "arith.divf"], ["0x7F800000"]),
    "scores_over_a_small_number": ("", over("0.001953125"), ["attn.attention", "scale(5.12"], ["arith.divf"]),
    # A weight of 0 becomes ∞.
    "number_over_weights": (FLAGS, changed("arith.divf %number, %w", "0.5"), *REFUSED),
    "weights_over_number": (FLAGS, changed("arith.divf %w, %number", "0.5"), *RAISED),
    "weights_to_negative_power": (FLAGS, changed("math.powf %w, %number", "-0.5"), *REFUSED),
    "weights_to_positive_power": (FLAGS, changed("math.powf %w, %number", "1.5"), *RAISED),
    # A weight of 0 must stay 0. The region computes the others, and reads no tensor of weights.
    **{f"{name_of(op)}_of_weights": (FLAGS, changed(f"{op} %w", "0.5"), ["attn.attention", op], ["linalg.softmax"])
       for op in KEEP_ZERO},
    **{f"{name_of(op)}_of_weights": (FLAGS, changed(f"{op} %w", "0.5"), *REFUSED) for op in MOVE_ZERO},
    **{f"{name_of(op)}_{by.replace('.', '_').replace('-', 'minus_')}_of_weights":
       (FLAGS, changed(f"{op} %w, %number", by), *(RAISED if keeps else REFUSED))
       for op, by, keeps in (("arith.addf", "0.5", False), ("arith.subf", "0.5", False), ("arith.mulf", "0.5", True),
                             ("arith.maximumf", "0.5", False), ("arith.maximumf", "0.0", True), ("arith.minimumf", "-0.5", False),
                             ("arith.minimumf", "0.0", True), ("arith.maxnumf", "0.5", False), ("arith.minnumf", "-0.5", False))},
}

# A term may make up for the number that hides a key if it is as large, whatever computes it, and not if it is negative.
SPLAT, SOME = "dense<{n}>", "dense<[[0.0, {n}, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0]]>"
TERMS = {
    "number": f"  %t = arith.constant {SPLAT} : {PAIRS}\n",
    "constant": f"  %t = arith.constant {SOME} : {PAIRS}\n",
    "negated_constant": f"  %n = arith.constant {SOME.replace('{n}', '{minus}')} : {PAIRS}\n" + pairs("t", "arith.negf %n"),
    "subtracted_constant": (f"  %n = arith.constant {SOME.replace('{n}', '{minus}')} : {PAIRS}\n" +
                            pairs("t", "arith.subf %bias, %n")),
    "number_if_set": (number("no", "0.0") + f"  %n = arith.constant {SPLAT} : {PAIRS}\n"
                      f"  %t = arith.select %g, %n, %no : tensor<4x4xi1>, {PAIRS}\n"),
    "number_unless_set": (number("no", "0.0") + f"  %n = arith.constant {SPLAT} : {PAIRS}\n"
                          f"  %t = arith.select %g, %no, %n : tensor<4x4xi1>, {PAIRS}\n"),
    "flag_times_number": (f"  %n = arith.constant {SPLAT} : {PAIRS}\n  %f = arith.uitofp %g : tensor<4x4xi1> to {PAIRS}\n" +
                          pairs("t", "arith.mulf %f, %n")),
}
for name, term in TERMS.items():
    for sign, (n, minus), expected in (("large", ("2.0e4", "-2.0e4"), UNMASKED), ("low", ("-2.0e4", "2.0e4"), MASKED)):
        body = with_term(term.replace("{n}", n).replace("{minus}", minus))
        CASES[f"{sign}_{name}_beside_hidden_keys"] = (", %g: tensor<4x4xi1>" + FLAGS + BIAS, body, *expected)

# Keys are hidden by 1 − f if f is from 0 to 1, whatever computes it: others might raise a score.
INTS, BYTES = PAIRS.replace("f32", "i32"), PAIRS.replace("f32", "i8")


def elements(zero, one, n):
    """A constant of zeros and ones, of which one element is `n`."""
    return f"arith.constant dense<[[{zero}, {one}, {one}, {one}], [{one}, {n}, {one}, {zero}], {[one] * 4}, {[zero] * 4}]>"


REAL_FLAGS = {
    "product": ("arith.mulf %x, %y", True), "maximum": ("arith.maximumf %x, %y", True),
    "minimum": ("arith.minimumf %x, %y", True), "reversed": ("arith.subf %one, %x", True),
    "half": ("arith.mulf %x, %half", True), "zeros_and_ones": (elements(0.0, 1.0, 0.5), True),
    "sum": ("arith.addf %x, %y", False), "difference": ("arith.subf %x, %y", False), "double": ("arith.mulf %x, %two", False),
    "at_least_2": ("arith.maximumf %x, %two", False), "negated": ("arith.negf %x", False), "exponential": ("math.exp %x", False),
    "score": ("arith.mulf %x, %s", False), "twos": (elements(0.0, 1.0, 2.0), False),
    "minus_ones": (elements(0.0, 1.0, -1.0), False),
}  # fmt: skip
INTEGER_FLAGS = {
    "argument": ("arith.muli %i, %i", True), "either": ("arith.ori %i, %k1", True), "both": ("arith.andi %i, %k1", True),
    "other": ("arith.xori %i, %k1", True), "maximum": ("arith.maxsi %i, %k0", True), "chosen": ("arith.select %c, %i, %k1", True),
    "constant": (elements(0, 1, 0), True), "sum": ("arith.addi %i, %k1", False),
    "difference": ("arith.subi %i, %k1", False), "or_2": ("arith.ori %i, %k2", False), "at_least_2": ("arith.maxsi %i, %k2", False),
    "if_chosen_2": ("arith.select %c, %i, %k2", False), "unless_chosen_2": ("arith.select %c, %k2, %i", False),
    "twos": (elements(0, 1, 2), False), "minus_ones": (elements(0, 1, -1), False),
}  # fmt: skip
# Keys are hidden by f · −1e9, or by (1 − f) · −1e9, if f is 0 or hides all others. It has two values of 8 bits.
TWO = {f"{a}_or_{b}".replace("-", "minus_"): (f"arith.select %c, %set, %unset : tensor<4x4xi1>, {BYTES}", "i8", a, b)
       for a, b in ((0, 1), (1, 0), (0, -1), (-1, 0), (1, -1), (-1, 1), (1, 2), (2, 0), (0, 100), (100, 1))}
TWO["flag"] = ("", "i1", -1, 0)
TWO["unsigned_flag"] = (f"arith.extui %c : tensor<4x4xi1> to {BYTES}", "i8", 1, 0)
TWO["signed_flag"] = (f"arith.extsi %c : tensor<4x4xi1> to {BYTES}", "i8", -1, 0)
for name, (op, element, *values) in TWO.items():
    for conversion in ("sitofp", "uitofp"):
        for is_reversed in (False, True):
            mask = 255 if element == "i8" else 1
            read = [value if conversion == "sitofp" else value & mask for value in values]
            factors = [1 - value if is_reversed else value for value in read]
            is_mask = 0 in factors and min(factors) >= 0 and max(factors) > 0
            # Large unsigned numbers are not read.
            is_mask &= conversion == "sitofp" or "select" not in op or min(values) >= 0
            source = f"  %f = arith.{conversion} %c : {FLAGS[6:]} to {PAIRS}\n"
            if op:
                source = (number("set", values[0], BYTES) + number("unset", values[1], BYTES) +
                          f"  %i = {op}\n  %f = arith.{conversion} %i : {BYTES} to {PAIRS}\n")
            body = (source + number("one", "1.0") + number("large", "-1.0e9") + pairs("r", "arith.subf %one, %f") +
                    pairs("t", f"arith.mulf {'%r' if is_reversed else '%f'}, %large") + pairs("m", "arith.addf %s, %t") +
                    softmax("%m"))
            CASES[f"{conversion}_of_{name}{'_from_one' if is_reversed else ''}"] = (FLAGS, body, *(MASKED if is_mask else UNMASKED))

GIVEN = f", %x: {PAIRS}, %y: {PAIRS}, %i: {INTS}{FLAGS}"


def flags(op):
    """%f, computed by `op` from floats, or converted from integers."""
    constants = "".join(number(name, value) for name, value in (("one", "1.0"), ("half", "0.5"), ("two", "2.0")))
    constants += "".join(number(f"k{n}", n, INTS) for n in range(3)) + number("large", "-3.0e38")
    is_real = op in [each for each, _ in REAL_FLAGS.values()]
    types = f"tensor<4x4xi1>, {PAIRS if is_real else INTS}" if "select" in op else PAIRS if is_real else INTS
    made = f"  %f = {op} : {types}\n" if is_real else f"  %n = {op} : {types}\n  %f = arith.sitofp %n : {INTS} to {PAIRS}\n"
    return (constants + made + pairs("r", "arith.subf %one, %f") + pairs("t", "arith.mulf %r, %large") +
            pairs("m", "arith.addf %s, %t") + softmax("%m"))


for kind, table in (("real", REAL_FLAGS), ("integer", INTEGER_FLAGS)):
    for name, (op, is_flag) in table.items():
        CASES[f"{kind}_flags_{name}"] = (GIVEN, flags(op), *(MASKED if is_flag else UNMASKED))

text = "".join(PROGRAM.format(name=name, arguments=arguments, body=body) for name, (arguments, body, *_) in CASES.items())
done = subprocess.run(["saccade-opt", f"--pass-pipeline={PIPELINE}"], input=text, capture_output=True, text=True)
assert done.returncode == 0, done.stderr
failures = []
for name, (_, _, expects, forbids) in CASES.items():
    raised = function(done.stdout, name)
    failures += [f"{name}: no '{each}' in\n{raised}" for each in expects if each not in raised]
    failures += [f"{name}: '{each}' in\n{raised}" for each in forbids if each in raised]
assert not failures, "\n".join(failures)
