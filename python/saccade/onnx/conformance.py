"""Runs ONNX's node tests through `saccade.onnx.backend`: python -m saccade.onnx.conformance [--op OP ...]

--all runs every supported operator. Shapes, axes and similar inputs must be constant at compile time, so these inputs
of a test case become constants. Cases that are rejected with a diagnostic are counted separately by --all and by --op
with --may-refuse. --raised runs nothing: it counts the decomposed cases that are raised to one attn.attention op, and
prints the compiler's remarks on the others.

The test cases are those of the package onnx, collected once. Each operator runs in a fork of that process, so a
crash fails its operator alone. The output is a table with the failed cases and their reasons; the exit code is 1 if any
case failed, or if an operator has no case that passed.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import multiprocessing
import multiprocessing.connection
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

OPERATORS = {"Attention": 186, "CausalConvWithState": 26, "FlexAttention": 22, "LinearAttention": 28,
             "RotaryEmbedding": 16}
"""The operators of attention and of its layers, and the number of test cases of each."""

SUPPORTED = """
    Abs Add And Attention BatchNormalization BitwiseAnd BitwiseOr BitwiseXor Cast CastLike CausalConvWithState Ceil
    Clip Concat ConstantOfShape Conv Cos CumSum Div Dropout Einsum Elu Equal Erf Exp Expand Flatten FlexAttention
    Floor Gather GatherElements GatherND Gelu Gemm Greater GreaterOrEqual Identity If IsNaN LayerNormalization
    LeakyRelu Less LessOrEqual LinearAttention Log LogSoftmax Loop MatMul Max Min Mod Mul Neg Not Or Pad Pow
    RMSNormalization Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin
    ReduceProd ReduceSum ReduceSumSquare Relu Reshape RotaryEmbedding Round Scan ScatterElements ScatterND Shape
    Sigmoid Sign Sin Size Slice Softmax Softplus Split Sqrt Squeeze Sub Sum Swish Tanh Tile Transpose Trilu Unsqueeze
    Where Xor""".split()
"""The operators that --all runs."""

_SHAPES = {"ConstantOfShape": (0,), "CumSum": (1,), "Expand": (1,), "If": (0,), "Loop": (0, 1), "Pad": (1, 3),
           "Range": (0, 1, 2), "Reshape": (1,), "Slice": (1, 2, 3, 4), "Split": (1,), "Squeeze": (1,), "Tile": (1,),
           "Trilu": (1,), "Unsqueeze": (1,)}
"""Inputs that must be constant at compile time; for reductions the second one."""

_REFUSED = {"Not"}
"""Operators all of whose cases are refused: models of operator set 1."""

MIN_RAISED_SHARE = 0.9
"""The minimum share of decomposed cases that must be raised to one attention."""


@dataclasses.dataclass
class Outcome:
    """The result of a case."""

    case: str
    reason: str  # empty if it passed
    seconds: float
    is_refused: bool = False  # rejected with a diagnostic before execution


@dataclasses.dataclass
class Raising:
    """The result of raising a decomposed case."""

    case: str
    attentions: int  # attn.attention ops after the raising stage
    remarks: list[str]  # why softmaxes were not raised, or why the program was rejected

    @property
    def is_raised(self) -> bool:
        """Whether it was raised to one attention."""
        return self.attentions == 1


def run_operator(operator: str, pattern: str = "") -> list[Outcome]:
    """Runs the cases of an operator whose names contain `pattern`, in this process."""
    outcomes = []
    for case in _cases(operator, pattern):
        start = time.perf_counter()
        reason = _run(case)
        is_refused = reason.startswith(("ModelError:", "CompileError:"))
        outcomes.append(Outcome(case.name, reason, time.perf_counter() - start, is_refused))
    return outcomes


def raise_operator(operator: str, pattern: str = "") -> list[Raising]:
    """Compiles the decomposed cases of an operator in this process, up to the raising stage."""
    return [_raise(case) for case in _cases(operator, pattern) if "_expanded" in case.name]


@functools.cache
def _all_cases() -> dict[str, list[Any]]:
    """The cases by operator. A decomposed case follows the one of its operator, which has one node."""
    warnings.simplefilter("ignore")
    import numpy as np
    from onnx.backend.test.case.node import collect_testcases

    found: dict[str, list[Any]] = {}
    operators: dict[str, str] = {}
    with np.errstate(all="ignore"):
        for case in collect_testcases(None):
            name = case.name.split("_expanded")[0]
            operator = operators.setdefault(name, case.model.graph.node[-1].op_type)
            found.setdefault(operator, []).append(case)
    return found


def _cases(operator: str, pattern: str) -> list[Any]:
    return [case for case in _all_cases().get(operator, ()) if pattern in case.name]


def _with_constants(case: Any) -> Any:
    """The case with compile-time inputs as initializers of its model, if it has one data set."""
    from onnx import TensorProto, helper, numpy_helper

    graph = case.model.graph
    names = {node.input[i] for node in graph.node
             for i in _SHAPES.get(node.op_type, (1,) if node.op_type.startswith("Reduce") else ())
             if i < len(node.input)}
    if len(case.data_sets) != 1 or not any(value.name in names for value in graph.input):
        return case
    model = type(case.model)()
    model.CopyFrom(case.model)
    del model.graph.input[:]
    kept = []
    inputs, outputs = case.data_sets[0]
    for value, data in zip(graph.input, inputs):
        if value.name not in names:
            model.graph.input.append(value)
            kept.append(data)
        elif isinstance(data, TensorProto):
            model.graph.initializer.append(data)
        else:
            data_type = value.type.tensor_type.elem_type
            tensor = helper.make_tensor(value.name, data_type, data.shape, data.flatten().tolist()) \
                if data.dtype.kind == "V" else numpy_helper.from_array(data, value.name)
            model.graph.initializer.append(tensor)
    return dataclasses.replace(case, model=model, data_sets=[(kept, outputs)])


def _run(case: Any) -> str:
    import numpy as np
    from onnx import TensorProto, numpy_helper

    from saccade.onnx import backend

    def to_array(data: Any) -> Any:
        return numpy_helper.to_array(data) if isinstance(data, TensorProto) else data

    try:
        case = _with_constants(case)
        model = backend.prepare(case.model)
        for inputs, outputs in case.data_sets:
            inputs, outputs = [to_array(each) for each in inputs], [to_array(each) for each in outputs]
            for i, (found, expected) in enumerate(zip(model.run(inputs), outputs, strict=True)):
                found, expected = np.asarray(found), np.asarray(expected)
                if found.dtype != expected.dtype or found.shape != expected.shape:
                    return (f"output {i} is {found.dtype}{list(found.shape)}, "
                            f"expected {expected.dtype}{list(expected.shape)}")
                if not np.allclose(found.astype(np.float64), expected.astype(np.float64), rtol=_rtol(case, expected),
                                   atol=_atol(case, expected), equal_nan=True):
                    with np.errstate(invalid="ignore"):
                        error = np.nanmax(np.abs(found.astype(np.float64) - expected.astype(np.float64)))
                    return f"output {i} differs by {error:.2g}"
    except Exception as error:  # any exception fails the case
        return f"{type(error).__name__}: {error}".strip()
    return ""


def _rtol(case: Any, expected: Any) -> float:
    """ONNX's tolerance, at least the precision of a 16-bit type."""
    digits = {"float16": 2e-3, "bfloat16": 1.6e-2}
    return max(float(case.rtol), digits.get(expected.dtype.name, 0.0))


def _atol(case: Any, expected: Any) -> float:
    digits = {"float16": 1e-3, "bfloat16": 8e-3}
    return max(float(case.atol), digits.get(expected.dtype.name, 0.0))


def _raise(case: Any) -> Raising:
    import saccade
    from saccade._library import library
    from saccade.module import make_text
    from saccade.onnx.errors import ModelError
    from saccade.onnx.reader import read_model

    try:
        source = read_model(case.model, case.name).text.encode()
        options = (("target", "host"), ("remarks", "true"))
        text, said = make_text(library().saccade_print_stage, source, case.name, options, "transforms")
    except (ModelError, saccade.CompileError) as error:
        return Raising(case.name, 0, [str(error).splitlines()[0]])
    return Raising(case.name, text.count("attn.attention "),
                   [each.message for each in said if each.severity == "remark"])


def _in_processes(operators: list[str], pattern: str, kind: type, jobs: int) -> list[list[Any]]:
    """The results of each operator, from at most `jobs` processes at a time."""
    _all_cases()
    run: Callable[[str, str], list[Any]] = raise_operator if kind is Raising else run_operator
    context = multiprocessing.get_context("fork")
    results: dict[str, list[Any]] = {}
    running: dict[Any, tuple[str, Any]] = {}

    def answer(operator: str, end: Any) -> None:
        end.send(run(operator, pattern))
        end.close()

    todo = list(operators)
    while todo or running:
        while todo and len(running) < jobs:
            operator = todo.pop(0)
            end, own = context.Pipe(duplex=False)
            process = context.Process(target=answer, args=(operator, own))
            process.start()
            own.close()
            running[end] = (operator, process)
        for ready in multiprocessing.connection.wait(list(running)):
            reader: Any = ready
            operator, process = running.pop(reader)
            try:
                results[operator] = reader.recv()
                process.join()
            except EOFError:
                process.join()
                text = f"exit code {process.exitcode}"
                results[operator] = [Raising(operator, 0, [text]) if kind is Raising else Outcome(operator, text, 0)]
    return [results[operator] for operator in operators]


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m saccade.onnx.conformance",
                                     description="Runs ONNX's own node tests.")
    parser.add_argument("--op", action="append", help=f"an operator, again for more; without: {', '.join(OPERATORS)}")
    parser.add_argument("--all", action="store_true", help="all supported operators, with --may-refuse")
    parser.add_argument("--others", action="store_true", help="--all without the operators of attention")
    parser.add_argument("--may-refuse", action="store_true", help="a case may be rejected with a diagnostic")
    parser.add_argument("--match", default="", help="only cases whose names contain this")
    parser.add_argument("--jobs", type=int, default=2, help="the number of concurrent processes")
    parser.add_argument("--raised", action="store_true",
                        help="run nothing; count the cases in plain ops that become one attention")
    options = parser.parse_args()
    others = [each for each in SUPPORTED if each not in OPERATORS]
    operators = options.op or (SUPPORTED if options.all else others if options.others else list(OPERATORS))
    if options.raised and not options.op:
        operators = ["Attention", "FlexAttention"]
    may_refuse = options.all or options.others or options.may_refuse
    kind = Raising if options.raised else Outcome
    results = _in_processes(operators, options.match, kind, options.jobs)
    if options.raised:
        return _print_raised([each for raisings in results for each in raisings])
    passed = refused = total = without = 0
    for operator, outcomes in zip(operators, results):
        failed = [each for each in outcomes if each.reason]
        for each in failed:
            lines = each.reason.splitlines() or [""]
            print(f"{'refused' if may_refuse and each.is_refused else 'failed'} {each.case}: {lines[0]}")
        seconds = sum(each.seconds for each in outcomes)
        print(f"{operator}: {len(outcomes) - len(failed)} of {len(outcomes)} passed in {seconds:.1f} s")
        if len(failed) == len(outcomes) and operator not in _REFUSED:
            print(f"failed {operator}: no case passed")
            without += 1
        passed, total = passed + len(outcomes) - len(failed), total + len(outcomes)
        refused += sum(each.is_refused for each in failed) if may_refuse else 0
    print(f"{passed} of {total} passed" + (f", {refused} refused" if refused else ""))
    return 0 if passed + refused == total and passed and not without else 1


def _print_raised(cases: list[Raising]) -> int:
    for each in cases:
        print(f"{'raised' if each.is_raised else 'not raised'}: {each.case}"
              + ("" if each.is_raised else f", {each.attentions} attentions"))
        for remark in each.remarks:
            print(f"  {remark}")
    count, alone = sum(each.is_raised for each in cases), sum(each.is_raised and not each.remarks for each in cases)
    print(f"{count} of {len(cases)} raised to one attention, {alone} with no softmax left")
    return 0 if cases and count >= MIN_RAISED_SHARE * len(cases) else 1


if __name__ == "__main__":
    sys.exit(main())
