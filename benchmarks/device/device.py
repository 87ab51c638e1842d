"""Checks and times the bundle in this folder on the GPU of this machine, within a given time.

Requires Python 3.8 and an NVIDIA driver for CUDA 12.0 or newer. With PyTorch, its kernels are timed beside ours; `ncu` and
`compute-sanitizer` are used if they are on the PATH. The report device.md is written again after every step, also before
Ctrl-C or SIGTERM ends the run. Exit codes: 0 all checks pass, 1 a check or a row fails or is lost, 2 wrong usage, 4 no
usable GPU, 130 stopped.
"""

import argparse
import gzip
import json
import pathlib
import signal
import sys
import tempfile
import zlib

from saccade_device import plan, report, worker
from saccade_device.session import Session

PEERS = ("torch flash", "torch cudnn", "torch linear", "flex")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, help="output folder of the report")
    parser.add_argument("--minutes", type=float, default=10, help="minutes of the whole run (default: 10)")
    parser.add_argument("--groups", default=",".join(plan.NAMES),
                        help=f"what to run, separated by commas (default: {','.join(plan.NAMES)})")
    parser.add_argument("--only", default="", help="checks and rows whose name contains this")
    parser.add_argument("--peers", default=",".join(PEERS), help="peers to time, separated by commas")
    parser.add_argument("--rounds", type=int, default=9, help="rounds per row")
    parser.add_argument("--seconds", type=float, default=0.3, help="seconds per contender and row")
    parser.add_argument("--limit", type=float, default=20,
                        help="seconds of one step of a check before it is killed; rows have twice as many (default: 20)")
    parser.add_argument("--driver", help="a libcuda.so.1 to use instead of the machine's, e.g. the double of the tests")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--torch", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.out and not options.worker:
        parser.error("--out is required")
    for option, known in (("groups", plan.NAMES), ("peers", PEERS)):
        for name in filter(None, getattr(options, option).split(",")):
            if name not in known:
                parser.error(f"--{option}: found '{name}', expected some of {','.join(known)}")
    return options


def unpack(folder, scratch, manifest):
    """Unpacks the libraries of the bundle, and names the files in the manifest."""
    for files in manifest["libraries"].values():
        for target, name in files.items():
            library = scratch / name
            library.write_bytes(gzip.decompress((folder / f"{name}.gz").read_bytes()))
            files[target] = str(library)


def stop(number, frame):
    raise KeyboardInterrupt


def run(session, manifest, header):
    """Asks for the GPU and PyTorch, and runs the plan; (exit code, words) of an error that prevents it, or None."""
    gpu, end = session.probe("info")
    if not gpu:
        return 4, f"no usable GPU: {end.words}"
    torch, why = {}, "--driver is given"
    if not session.options.driver:
        torch, end = session.probe("torch_info", torch=True)
        why = torch.pop("no torch", end.words)
    targets, reasons = plan.usable_targets(manifest, gpu["capability"])
    if not targets:
        return 4, f"no usable GPU: {'; '.join(f'{target}: {why}' for target, why in reasons.items())}"
    header.update({**gpu, "torch": torch.get("torch") or f"no PyTorch ({why})"})
    session.log(report.heading(header, manifest))
    made = plan.Plan(manifest, targets, bool(torch), session.options)
    if not any(made.items.values()):
        return 2, f"nothing to run in the groups {session.options.groups} whose name contains '{session.options.only}'"
    session.left_out += [(target, reason) for target, reason in reasons.items()]
    session.write()
    session.run(made)
    return None


def main():
    options = parse()
    folder = pathlib.Path(__file__).resolve().parent
    if options.worker:
        return worker.main(folder, options.worker, options.driver or "libcuda.so.1", options.torch)
    manifest = json.loads((folder / "manifest.json").read_text())
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="saccade-") as scratch:
        try:
            unpack(folder, pathlib.Path(scratch), manifest)
        except (OSError, EOFError, zlib.error) as error:
            print(f"device.py: the bundle is not complete: {error}", file=sys.stderr)
            return 2
        return run_and_report(options, manifest, pathlib.Path(scratch))


def run_and_report(options, manifest, scratch):
    """Runs the plan and writes the report; the exit code."""
    header = {}

    def write():
        report.write(options.out, header, manifest, session)

    session = Session(pathlib.Path(__file__).resolve(), scratch, options, write, lambda line: print(line, flush=True))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    error = None
    try:
        error = run(session, manifest, header)
    except KeyboardInterrupt:
        session.stopped = f"stopped after {session.elapsed():.0f} s"
    finally:
        session.runner.close()
    if error:
        print(f"device.py: {error[1]}", file=sys.stderr)
        return error[0]
    if not header:
        return 130
    write()
    print((options.out / "device.md").read_text())
    if any(not each["passed"] for each in session.checks) or ("checks" in options.groups and not session.checks):
        return 1
    return 130 if session.stopped else 0


if __name__ == "__main__":
    sys.exit(main())
