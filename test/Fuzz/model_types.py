#!/usr/bin/env python3
# REQUIRES: torch, transformers
# UNSUPPORTED: asan, tsan
# RUN: %python %s --type albert --seconds 60
"""Model types of Transformers with attn_implementation="saccade" against "eager".

Usage: model_types.py [--type NAME]... [--first N] [--count N] [--seconds S] [--memory GIB] [--records FILE] [--page]

Each type is built from a shrunken configuration in a process of its own, and called without and with padding; outputs
and gradients are compared. A call of Saccade's attention function is counted, not assumed. --records appends one line of
JSON per type and skips types that it has; --page writes docs/reference/model-types.md from the records. The exit code is
1 if a type is wrong.
"""

import argparse
import dataclasses
import json
import math
import os
import pathlib
import re
import resource
import signal
import sys
import time
import traceback
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test" / "Python" / "Inputs"))
warnings.simplefilter("ignore")

import model_type_page
import shrunken_models
import torch
import transformers

import saccade
import saccade.transformers

TOLERANCE = 1e-4  # of f32 outputs, relative to the largest element
GRADIENT_TOLERANCE = 1e-3  # of the norm of all gradients
EXACT_TOLERANCE = 1e-6  # of f64, where f32 is not conclusive


@dataclasses.dataclass
class Record:
    """What was found of one model type. `result`: "served", "as sdpa", "own code", "no attention",
    "refused", "wrong" or "not built"."""

    type: str
    result: str = "not built"
    model: str = ""
    calls: int = 0
    own: int = 0  # attention of PyTorch's own operators beside these calls
    error: float = 0.0
    gradient_error: float | None = None
    reason: str = ""
    seconds: float = 0.0


class OwnAttention(torch.overrides.TorchFunctionMode):
    """Counts attention in PyTorch's operators: calls of SDPA, and softmax in modules that are called attention."""

    SDPA = (torch.nn.functional.scaled_dot_product_attention, torch.nn.functional.multi_head_attention_forward)
    SOFTMAX = (torch.softmax, torch.nn.functional.softmax, torch.Tensor.softmax)

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in self.SDPA or (function in self.SOFTMAX and args and args[0].ndim >= 3 and _is_in_attention()):
            self.count += 1
        return function(*args, **(kwargs or {}))


def _is_in_attention():
    """Whether the module that runs is called attention; others use softmax for experts or to mix streams."""
    frame = sys._getframe(2)
    while frame is not None:
        for name in ("self", "module"):  # functions of attention take the module
            module = frame.f_locals.get(name)
            if isinstance(module, torch.nn.Module) and not isinstance(module, torch.nn.Softmax):
                return re.search(r"att(ention|n|end)|MHA", type(module).__name__, re.IGNORECASE) is not None
        frame = frame.f_back
    return False


def counted():
    """Registers the attention function with a counter of its calls, and returns the counter."""
    count = [0]

    def attention_forward(*args, **kwargs):
        count[0] += 1
        return saccade.transformers.attention_forward(*args, **kwargs)

    transformers.AttentionInterface.register(saccade.transformers.NAME, attention_forward)
    return count


def outputs_of(model, given, implementation):
    model.set_attn_implementation(implementation)
    for module in model.modules():
        # Models of an older form do not let it be set later, only when they are built.
        if isinstance(module, transformers.PreTrainedModel) and module.config._attn_implementation != implementation:
            module.config._attn_implementation_internal = implementation
    torch.manual_seed(2)
    found = shrunken_models.tensors_of(model(**given))
    return {name: value for name, value in found.items() if "attentions" not in name}  # weights, of "eager" only


def built(model_type):
    """(model, inputs) of the first shrunken configuration whose model runs with "eager"."""
    config_class, model_class = shrunken_models.classes_of(model_type)
    reasons = []
    for options in ({}, {"images": False}, {"sizes": False}, {"sizes": False, "images": False}):
        try:
            config = shrunken_models.shrunken(config_class, **options)
            model = shrunken_models.build(model_class, config)
        except Exception as error:
            reasons.append(_short(error))
            continue
        for given in shrunken_models.candidate_inputs(model, config):
            try:
                with torch.no_grad():
                    found = outputs_of(model, given, "eager")
            except Exception as error:
                reasons.append(_short(error))
                continue
            if found and all(value.isfinite().all() for value in found.values()):
                return model, given
            reasons.append("outputs are not finite" if found else "no floating-point outputs")
    if os.environ.get("SHOW_REASONS"):
        print("\n".join(reasons))
    raise RuntimeError(reasons[0] if reasons else "no inputs")


def check(model_type):
    record, start = Record(model_type), time.monotonic()
    try:
        model, given = built(model_type)
    except Exception as error:
        record.reason = _short(error)
        return record
    record.model = type(model).__name__
    count = counted()
    try:
        compare(record, model, given, count)
    except NotImplementedError as error:
        record.result, record.reason = "refused", _short(error)
    except Exception as error:
        record.result = "refused" if "saccade" in str(error) or 'expected attn_implementation="eager"' in str(error) else "wrong"
        record.reason = _short(error)
        if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
            record.result, record.reason = "not built", "takes more memory than --memory"
        if os.environ.get("SHOW_REASONS"):
            traceback.print_exc()
    record.seconds = round(time.monotonic() - start, 1)
    return record


def compare(record, model, given, count):
    masks = {}
    with torch.no_grad():
        for name, mask in shrunken_models.paddings(model, given).items():
            arguments = given if mask is None else {**given, "attention_mask": mask}
            try:
                expected = outputs_of(model, arguments, "eager")
                if mask is not None:
                    expected = without_padding(expected, outputs_of(model, other_padding(arguments), "eager"), mask)
            except Exception:
                continue
            if not all(rows(value, mask).isfinite().all() for value in expected.values()):
                continue
            masks[name] = mask
            count[0] = 0
            with OwnAttention() as own:
                found = outputs_of(model, arguments, "saccade")
            record.calls, record.own = max(record.calls, count[0]), max(record.own, own.count)
            found = {key: value for key, value in found.items() if key in expected} if mask is not None else found
            error = error_of(expected, found, mask)
            if not error <= TOLERANCE:
                error = exact_error(model, arguments, mask, expected) if error == error else error
                if not error <= EXACT_TOLERANCE:
                    sdpa = outputs_of(model, arguments, "sdpa") if model._supports_sdpa else {}
                    is_as_sdpa = sdpa and error_of({key: sdpa[key] for key in expected}, found, mask) <= TOLERANCE
                    record.result, record.error = "as sdpa" if is_as_sdpa else "wrong", error
                    record.reason = f"padding {name}: error {error:.1e}"
                    return
            record.error = max(record.error, error)
    record.result = "served" if record.calls else "own code" if record.own else "no attention"
    if record.calls:
        compare_gradients(record, model, given, masks.get("right"))


def compare_gradients(record, model, given, mask):
    arguments = given if mask is None else {**given, "attention_mask": mask}
    gradients = []
    for implementation in ("eager", "saccade"):
        model.zero_grad()
        try:
            loss = sum(weighted(rows(value, mask)) for value in outputs_of(model, arguments, implementation).values() if value.requires_grad)
            loss.backward()
        except Exception:
            if implementation == "eager":
                return
            raise
        gradients.append({name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None})
    expected, found = gradients
    norm = torch.stack([each.double().norm() for each in expected.values()]).norm()
    if not norm.isfinite():
        return
    error = max((each.double() - found[name].double()).norm() for name, each in expected.items()) / norm
    record.gradient_error = float(error)
    if not error <= GRADIENT_TOLERANCE:
        record.result, record.reason = "wrong", f"gradients: error {error:.1e}"


def weighted(value):
    """The mean with random weights. Squares would have no gradient where the last layer normalizes."""
    return (value * torch.randn(value.shape, generator=torch.Generator().manual_seed(4)).to(value)).mean()


def error_of(expected, found, mask):
    if expected.keys() != found.keys():
        return float("nan")
    errors = [0.0]
    for name, value in expected.items():
        difference = rows((found[name] - value).abs(), mask)
        if difference.numel():
            errors.append(float(difference.max() / rows(value, mask).abs().max().clamp_min(1e-6)))
    return max(errors) if all(error == error for error in errors) else float("nan")


def rows(value, mask):
    """The rows of tokens; those of padding have no meaning."""
    return value[mask.bool()] if mask is not None and value.shape[:2] == mask.shape else value


def other_padding(given):
    """The inputs with other tokens in place of padding."""
    given, padding = dict(given), given["attention_mask"] == 0
    if "input_ids" in given:
        given["input_ids"] = torch.where(padding, given["input_ids"].flip(0, 1), given["input_ids"])
    else:
        given["inputs_embeds"] = torch.where(padding[..., None], -given["inputs_embeds"], given["inputs_embeds"])
    return given


def without_padding(expected, other, mask):
    """The outputs that do not depend on tokens of padding: "eager" gives queries that attend to no key the mean of all
    values, and Saccade gives them 0."""
    return {name: value for name, value in expected.items()
            if torch.allclose(rows(value, mask), rows(other[name], mask), rtol=1e-4, atol=1e-5)}  # fmt: skip


def exact_error(model, given, mask, names):
    """The error in f64: an f32 error may be that of a model that amplifies rounding."""
    try:
        model.double()
        given = {name: value.double() if value.is_floating_point() else value for name, value in given.items()}
        expected, found = (outputs_of(model, given, each) for each in ("eager", "saccade"))
        return error_of(*({name: each[name] for name in names} for each in (expected, found)), mask)
    except Exception:  # a model without f64
        return math.inf
    finally:
        model.float()


def _short(error):
    """The first line of an exception."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"{type(error).__name__}: {text}"[:240]


def isolated(model_type, seconds, memory):
    """`check` in a child process with limits."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        resource.setrlimit(resource.RLIMIT_AS, (memory << 30, memory << 30))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        signal.alarm(8 * seconds)
        if not os.environ.get("SHOW_REASONS"):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1), os.dup2(null, 2)
        try:
            record = check(model_type)
        except BaseException as error:
            record = Record(model_type, reason=_short(error))
        os.write(write, json.dumps(dataclasses.asdict(record)).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if text:
        return Record(**json.loads(text))
    ended = os.waitstatus_to_exitcode(status)
    if ended in (-signal.SIGALRM, -signal.SIGXCPU, -signal.SIGKILL):
        return Record(model_type, reason=f"takes more than {seconds} s")
    return Record(model_type, "wrong", reason=f"ended by {ended}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--type", action="append", help="a model type; may be repeated")
    parser.add_argument("--first", "--first-seed", type=int, default=0, help="the index of the first type, modulo their number")
    parser.add_argument("--count", type=int, help="the number of types; default: all")
    parser.add_argument("--seconds", type=int, default=25, help="processor time of a type")
    parser.add_argument("--memory", type=int, default=12, help="address space of a type in GiB")
    parser.add_argument("--records", type=pathlib.Path, help="file of records")
    parser.add_argument("--page", action="store_true", help="write the page from the records")
    args = parser.parse_args()
    torch.set_num_threads(1)
    types = shrunken_models.model_types()
    first = args.first % len(types)
    types = args.type or (types[first:] + types[:first])[: args.count]
    known = [json.loads(line) for line in args.records.read_text().splitlines()] if args.records and args.records.exists() else []
    known = {each["type"]: Record(**each) for each in known}
    failed = 0
    for i, each in enumerate(types):
        if each in known:
            continue
        record = isolated(each, args.seconds, args.memory)
        known[each] = record
        failed += record.result == "wrong"
        print(f"{i + 1}/{len(types)} {each}: {record.result}, {record.calls} calls, {record.own} own, error {record.error:.1e}, "
              f"gradients {record.gradient_error}, {record.seconds} s {record.reason}", flush=True)
        if args.records:
            with args.records.open("a") as file:
                file.write(json.dumps(dataclasses.asdict(record)) + "\n")
    if args.page:
        records = {name: dataclasses.asdict(each) for name, each in known.items()}
        model_type_page.write(records, transformers.__version__, len(shrunken_models.model_types()))
    print(f"{failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
