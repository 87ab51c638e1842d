"""The ops of StableHLO that the frontend claims, with the attributes of StableHLO's builders, as targets of
`drawn_operators`. The oracle is StableHLO's own interpreter."""

import functools
import inspect

import numpy as np
from drawn_operators import Case, Target
from interpreter import Refused, interpret
from jax._src.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import chlo, stablehlo
from stablehlo_drawn import RECIPES, TYPES, draw, literal, text_of

# Ops of control flow and constants, which test_jax_ops.py and test_stablehlo.py show.
ELSEWHERE = {"constant", "case", "if", "while", "custom_call", "chlo.constant"}
REFUSALS = {
    "precision": (r"reduce_precision", "a precision of 4 and 3 bits is not supported"),
    "interior": (r"(dynamic_)?pad", "padding between elements is not supported"),
    "windows": (r"convolution", "convolutions of dilated images, with batch groups or reversed windows"),
    "sums": (r"reduce_window", "only cumulative sums along one dimension"),
    "total order": (r"compare", "'TOTALORDER' is not supported"),
}
LIMITED = {"convolution": {"batch_group_count", "window_reversal", "lhs_dilation"}, "pad": {"interior_padding"}, "dynamic_pad": {"interior_padding"},
           "reduce_window": {"window_strides", "base_dilations", "window_dilations"}}  # fmt: skip
# Accumulators of a device; indices that are sorted may be read faster; StableHLO lets a caller say the group count of
# batches, and no program of JAX does.
WITHOUT_EFFECT = {"algorithm", "indices_are_sorted", "batch_group_count"}
WEIGHTS = {"dot_general": 6, "gather": 4, "dynamic_gather": 2, "broadcast_in_dim": 3, "dynamic_broadcast_in_dim": 2, "reduce": 3,
           "transpose": 2, "convolution": 3, "dynamic_update_slice": 2, "dynamic_slice": 2, "reduce_window": 2}  # fmt: skip
OPERANDS = {"operand", "operands_", "lhs", "rhs", "result", "results", "output", "inputs", "min", "max", "pred", "on_true",
            "on_false", "x", "padding_value", "start_indices", "update", "init_values", "output_shape", "output_dimensions"}  # fmt: skip


@functools.cache
def context():
    return mlir.make_ir_context()


def builders():
    """The classes of all ops by name, those of chlo with their prefix."""
    for dialect, prefix in ((stablehlo, "stablehlo."), (chlo, "")):
        for name in dir(dialect):
            found = getattr(dialect, name)
            if inspect.isclass(found) and hasattr(found, "OPERATION_NAME") and not name.endswith("Adaptor"):
                yield found.OPERATION_NAME.removeprefix(prefix), found


def generic(text):
    return ir.Module.parse(text).operation.get_asm(print_generic_op_form=True)


def maker(name):
    def make(random, element):
        op = draw(name, random, element)
        with context(), ir.Location.unknown():
            expected = [op.expected]
            if op.expected is None:
                text, given = text_of(op, widen=True)
                inputs = [ir.Attribute.parse(literal(each)) for each in given]
                found = stablehlo.eval_module(ir.Module.parse(text), inputs)
                expected = [np.array(each).reshape(shape).astype(TYPES[own]) if 0 not in shape else np.zeros(shape, TYPES[own])
                            for each, (shape, own) in zip(found, op.results)]  # fmt: skip
            text, given = text_of(op)
            arguments = {key: value for key, value in op.attributes.items() if value is not None}
            return Case(arguments, generic(text), given, expected)

    return make


def targets():
    classes = dict(builders())
    for name, (_, elements) in RECIPES.items():
        builder = inspect.signature(classes[name].__init__).parameters
        arguments = {each: parameter.default is not inspect.Parameter.empty for each, parameter in builder.items()
                     if each not in {"self", "loc", "ip", "slice_sizes"} | OPERANDS | WITHOUT_EFFECT}  # fmt: skip
        for each in ("edge_padding_low", "edge_padding_high", "interior_padding", "limit_indices", "strides"):
            if name.startswith(("dynamic", "real")):
                arguments.pop(each, None)  # operands there
        yield Target(name, arguments, elements, maker(name), frozenset(LIMITED.get(name, ())),
                     weight=WEIGHTS.get(name, 1))


def unknown():
    """Ops that the compiler knows and that are neither drawn nor shown elsewhere."""
    found = set()
    for name, _ in builders():
        own = name if "." in name else f"stablehlo.{name}"
        try:
            interpret(f'func.func @main() -> tensor<f32> {{ %0 = "{own}"() : () -> tensor<f32> return %0 : tensor<f32> }}', [])
            found.add(name)
        except Refused as error:
            if "this op is not supported" not in str(error):
                found.add(name)
    return found - set(RECIPES) - ELSEWHERE
