"""The operators of PyTorch that the frontend claims, overload by overload, as targets of `drawn_operators`."""

import copy

import ml_dtypes
import torch
from drawn_operators import Case, NotAccepted, Target
from torch_calls import program_of
from torch_drawn import DTYPES, IGNORED, draw

from saccade.torch.operators import OPERATORS

# By number, which overloads are refused with which words.
REFUSALS = {
    "training": (r"(native_)?dropout\..*", "dropout in training is not supported"),
    "mask of dropout": (r"native_dropout\..*", "result 1 is not supported"),
    "pooling": (r"adaptive_avg_pool..\..*", "only pooling with an output size of 1"),
    "images of integers": (r"conv.*", "expected one to three spatial dimensions"),
    "differences": (r"diff\..*", "'n' is 2, expected 1"),
    "accumulate": (r"index_put\..*", "'accumulate' is not supported where a mask selects elements"),
    "order of norm": (r"linalg_vector_norm\..*", "found a norm of order"),
    "softmax of integers": (r".*softmax\..*|logsumexp\..*|adaptive.*", "expected floating point"),
    "run-time sizes": (r"narrow\.Tensor", "must be constant or computed from shapes"),
    "copies that data count": (r"repeat_interleave\..*Tensor", "pass its sum as 'output_size'"),
    "outer of mixed types": (r"outer\..*|einsum\..*", "expected numbers of one type"),
    "bits of a view": (r"view\.dtype", "reinterpreting a tensor as another type"),
    "where without values": (r"where\.default", "the result shape depends on the data"),
    "heads of attention": (r"scaled_dot_product_attention\..*", "a batch of the (key|value): found 1, expected"),
    "bounds of a range": (r"arange\..*", "has floating-point bounds, expected integers"),
    "mode of pad": (r"pad\..*", "the mode 'reflect' is not supported"),
}
# Arguments of which one value is supported; the others are among REFUSALS.
LIMITED = {
    "dropout": {"train"}, "native_dropout": {"train", "p"}, "adaptive_avg_pool1d": {"output_size"},
    "adaptive_avg_pool2d": {"output_size"}, "diff": {"n"},
    "linalg_vector_norm": {"ord"}, "pad": {"mode"},
}  # fmt: skip
# Arguments without an effect on results: a probability in inference, and the order of contraction.
WITHOUT_EFFECT = {("_native_batch_norm_legit_no_training", "momentum"), ("einsum", "path"), ("repeat_interleave", "output_size"), ("scaled_dot_product_attention", "dropout_p"),
                  ("_softmax", "half_to_float"), ("_log_softmax", "half_to_float")}  # fmt: skip
WEIGHTS = {"index": 3, "einsum": 3, "slice": 2, "slice_scatter": 2, "scaled_dot_product_attention": 6, "matmul": 3, "linear": 2,
           "sum": 2, "gather": 2, "as_strided": 2, "expand": 2, "roll": 2, "layer_norm": 2, "cat": 2}  # fmt: skip
# Operators whose operands or results are complex, which test_torch_complex.py tests.
COMPLEX = {"_conj", "_conj_physical", "complex", "polar", "view_as_complex", "view_as_real"}
# Overloads that PyTorch does not run on a CPU, or that the exporter never makes.
NOT_RUN = {"addmm.dtype", "baddbmm.dtype", "bmm.dtype", "mm.dtype", "einsum.sublist", "to.device"}


def overloads():
    """Each functional overload on tensors of each operator."""
    for name in sorted(OPERATORS - COMPLEX):
        packet = getattr(torch.ops.aten, name)
        for each in packet.overloads():
            overload = getattr(packet, each)
            schema = overload._schema
            if schema.is_mutable or any(argument.is_out for argument in schema.arguments) or f"{name}.{each}" in NOT_RUN:
                continue
            if not schema.returns or not all("Tensor" in str(result.type) for result in schema.returns):
                continue
            kinds = {str(argument.type) for argument in schema.arguments}
            if not any(word in str(schema) for word in ("Dimname", "Dict", "Generator", "prim_")) and "List[t]" not in kinds:
                yield f"{name}.{each}", overload


def array(tensor):
    tensor = tensor.contiguous()
    return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if tensor.dtype == torch.bfloat16 else tensor.numpy()


def maker(name, overload):
    def make(random, dtype):
        given = draw(overload, random, dtype)
        kept = copy.deepcopy(given) if "as_strided" not in name else given
        try:
            results = overload(**given)
        except (RuntimeError, IndexError, ValueError, TypeError, ZeroDivisionError):
            raise NotAccepted from None
        listed = results if isinstance(results, (tuple, list)) else [results]
        if not listed:
            raise NotAccepted
        text, inputs = program_of(overload, kept, results)
        return Case(kept, text, [array(each) for each in inputs], [array(each) for each in listed])

    return make


def unspecified(found, expected):
    """The elements of empty tensors are unspecified."""
    return "" if (found.dtype, found.shape) == (expected.dtype, expected.shape) else f"found {found}"


def targets():
    for name, overload in overloads():
        own = name.split(".")[0]
        arguments = {each.name: each.has_default_value() for each in overload._schema.arguments
                     if each.name not in IGNORED and (own, each.name) not in WITHOUT_EFFECT}  # fmt: skip
        yield Target(name, arguments, DTYPES, maker(name, overload), frozenset(LIMITED.get(own, ())),
                     unspecified if "empty" in own else None, WEIGHTS.get(own, 1))  # fmt: skip
