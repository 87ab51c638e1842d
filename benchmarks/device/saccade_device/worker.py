"""One item of the plan in a process of its own: `device.py --worker` reads it as JSON and writes events as lines of JSON.

Events: {"begin": NAME} before a step; {"check": NAME, "passed", "worst", "words"}; {"instruction": [...]};
{"row": {...}}; {"info": {...}}; {"error": WORDS}; {"done": true} at the end. A driver that reports an error of an
earlier kernel is of no more use to the process: it ends with {"lost": WORDS}.
"""

import json
import pathlib
import sys

from . import cases, instructions, rows
from .driver import Driver


def emit(**event):
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


class Lost(Exception):
    """The driver refuses all further work of this process."""


class Worker:
    def __init__(self, folder, driver, torch):
        self.folder, self.driver, self.torch = folder, driver, torch

    def attempt(self, function):
        """The result of `function`, or the words of its error. Raises Lost if the driver is of no more use."""
        try:
            return function(), None
        except (RuntimeError, OSError) as error:
            words = " ".join(str(error).split())[:300]
        try:
            self.driver.synchronize()
        except RuntimeError:
            raise Lost(words) from None
        return None, words

    def checks(self, item):
        for entry in item["cases"]:
            emit(begin=entry["name"])
            found, words = self.attempt(lambda: cases.check(self.folder, entry, entry["library"], self.driver))
            passed, worst, words = found or (False, None, words)
            emit(check=entry["name"], passed=passed, worst=worst, words=words)

    def calls(self, item):
        """One call of each case, for a tool that watches the kernels."""
        for entry in item["cases"]:
            emit(begin=entry["name"])
            _, words = self.attempt(lambda: cases.Case(self.folder, entry, entry["library"], self.driver).call())
            if words:
                emit(check=entry["name"], passed=False, worst=None, words=words)
        self.driver.synchronize()

    def instructions(self, item):
        emit(begin=item["name"])
        found, error = self.attempt(lambda: instructions.check(self.driver, self.folder, item["instructions"]))
        lines, passed, words = found or ([], False, error)
        for line in lines:
            emit(instruction=line)
        emit(check=item["name"], passed=passed, worst=None, words=words)

    def ceilings(self, item):
        size = item["copy_bytes"]
        emit(begin="copy")
        memory = [self.driver.reserve(size) for _ in range(2)]
        time = min(self.driver.milliseconds(lambda: self.driver.copy(*memory, size), 5) for _ in range(5))
        self.driver.release()
        emit(ceiling="copy", rate=2 * size / time / 1e9, words=f"cuMemcpyDtoD of {size >> 20} MiB, read and written")
        if self.torch:
            n = item["gemm"]
            emit(begin="GEMM")
            a, b = (self.torch.randn(n, n, device="cuda", dtype=self.torch.bfloat16) for _ in range(2))
            stream = self.torch.cuda.ExternalStream(self.driver.stream)

            def multiply():
                with self.torch.cuda.stream(stream):
                    return a @ b

            self.torch.cuda.synchronize()
            time = min(self.driver.milliseconds(multiply, 10) for _ in range(5))
            emit(ceiling="GEMM", rate=2 * n**3 / time / 1e9, words=f"{n}³ in bf16 by PyTorch")

    def row(self, item):
        row, result = item["row"], {"errors": {}, "missing": {}}
        emit(begin="setup")
        made, error = self.attempt(lambda: rows.Row(self.folder, row, item["libraries"], self.driver))
        if error:
            return emit(row={**result, "failure": error})
        peers = None
        if self.torch and item["peers"]:
            from .peers import Peers
            emit(begin="PyTorch")
            peers = Peers(self.torch, made, item["peers"])
            result["missing"].update(peers.missing)
        for name, function in list(made.functions.items()):
            emit(begin=name)
            made.clear_results(name)
            _, error = self.attempt(lambda: function() or self.driver.synchronize())
            if error:
                result["missing"][name] = error
                del made.functions[name]
                continue
            error = None if item.get("once") else made.error(name)
            if error is None and peers:
                error, _ = self.attempt(lambda: peers.difference(made.results[name]))
            if error is None and not item.get("once"):
                error = made.difference(name)
            result["errors"][name] = error
        if item.get("once") or not made.functions:
            return emit(row=result)
        figures, notes = rows.measure(made, peers.functions if peers else {}, item["rounds"], item["seconds"],
                                      lambda name: emit(begin=name))
        result["milliseconds"], result["ratios"] = rows.summary(figures)
        return emit(row={**result, "notes": notes})

    def info(self, item):
        emit(info=self.driver.describe())

    def torch_info(self, item):
        torch = self.torch
        emit(info={"torch": f"PyTorch {torch.__version__} (CUDA {torch.version.cuda}, "
                            f"cuDNN {torch.backends.cudnn.version()})"})


def import_torch():
    """(torch, None), or (None, reason why it cannot be used)."""
    try:
        import torch
    except Exception as error:  # ImportError, and errors of libraries that do not fit the machine
        return None, "PyTorch is not installed" if isinstance(error, ImportError) else str(error)
    return torch, None


def main(folder, path, driver, wants_torch):
    """Runs the item in the file `path`, or on the standard input for "-", and the exit code."""
    torch, why = import_torch() if wants_torch else (None, None)
    text = sys.stdin.read() if path == "-" else pathlib.Path(path).read_text()
    if not text:  # the spare process is not needed
        return 0
    item = json.loads(text)
    try:
        if torch and not torch.cuda.is_available():
            torch, why = None, f"PyTorch {torch.__version__} finds no GPU"
        if item["do"] == "torch_info" and why:
            emit(info={"no torch": why})
        else:
            worker = Worker(folder, Driver(driver), torch)
            getattr(worker, item["do"])(item)
    except Lost as lost:
        emit(lost=str(lost))
        return 1
    except (OSError, RuntimeError) as error:
        emit(error=" ".join(str(error).split())[:300])
        return 1
    emit(done=True)
    return 0
