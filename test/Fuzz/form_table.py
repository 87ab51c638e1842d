#!/usr/bin/env python3
# REQUIRES: numpy
# RUN: %python %s --quick --check-page
"""Random programs of every form × feature × target × type against the float64 reference, and the table of them.

Usage: form_table.py [--first-seed N] [--count N] [--quick] [--all] [--number N] [--jobs N] [--record FILE] [--page]
                     [--check-page] [--normalizers] [--stick-breaking]

Inputs/form_plan.py says which form, features, target and type each number has, Inputs/form_graph.py draws the program.
A program passes if it is accepted, agrees with the reference, and has the kernels of its form: on a GPU they ran, on a
CPU they were compiled, as a third of the programs show.

--record adds a line for each program to a CSV file and leaves out the numbers that are in it; --all does so for the whole
plan and the file of the page. --page writes docs/reference/forms.md from that file. --check-page shows that the page is
made from that file, that the file follows from the plan, and that no cell of the table is empty, refused or wrong.
--normalizers gives each program a normalizer in place of the softmax, without the features that need one;
--stick-breaking does so with stick-breaking, on CPUs.
"""

import argparse
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, str(pathlib.Path(__file__).parent / "Inputs"))
import form_page
from form_graph import FormGraph
from form_plan import FORMS, GPU_TARGETS, PROGRAMS, QUICK, TARGETS, make_plan, with_normalizer, with_stick_breaking
from random_graphs import write


def command_of(entry, number):
    if entry.target not in GPU_TARGETS:
        return ["saccade-run", "--threads=2", f"--target={entry.target}"]
    # Every third program sums and approximates as inexactly as hardware may.
    arithmetic = "hardware" if number % 3 == 2 else "rounded"
    return ["saccade-run", "--device=ptxsim", f"--target={entry.target}", f"--arithmetic={arithmetic}", "--explain"]


def expected_kernels(entry):
    """Patterns that the report of kernels must contain, and those that it must not."""
    both = entry.form == "ragged mixed"
    long, short = both or "prefill" in entry.form, both or "split-KV" in entry.form
    if entry.target not in GPU_TARGETS:
        family = re.escape(entry.target)
        kernels = {rf"kernel family {family} packed": long, rf"kernel family {family} unpacked": short}
        return [pattern for pattern, is_needed in kernels.items() if is_needed], []
    on_tensor_cores = entry.target == "sm_80" and entry.type in ("f16", "bf16")
    family = "sm_80" if on_tensor_cores else "simt"
    # The tensor-core kernel of split-KV has no other parts of a state.
    others = {"tally", "max", "argmax", "normalized weights"} & set(entry.features)
    kernels = {f"kernel family {family}, ran": long,
               f"kernel family {'simt' if others else family}, split-KV, ran": short}  # fmt: skip
    # A list of work items serves ragged batches: the kernels of both forms run, and one of them finds no item.
    hidden = [] if short or entry.form.startswith("ragged") else ["split-KV, ran"]
    return [pattern for pattern, is_needed in kernels.items() if is_needed], hidden


def execute(line):
    try:
        result = subprocess.run(line, capture_output=True, text=True, timeout=300)
        return result.returncode, result.stdout + result.stderr
    except subprocess.TimeoutExpired:
        return None, "error: still running after 300 s"


def outcome_of(number, entry, graph, folder):
    """One of form_page.OUTCOMES, the command and its output."""
    line = [*command_of(entry, number), *write(graph, folder), "--check", f"--guard={'begin' if number % 2 else 'end'}"]
    code, output = execute(line)
    if code in (1, 4):
        return "refused", line, output
    if code != 0:
        return "differs" if code == 5 else "fails", line, output
    if entry.target not in GPU_TARGETS:
        # Compiling again for the report costs a third of the time.
        if number // CYCLE % 3:
            return "agrees", line, output
        _, output = execute(["saccade-compile", line[3], f"--target={entry.target}", "--explain"])
        # Without a visible pair there is no task.
        if re.search(r"pairs: [\d,]+, (at most )?0 visible", output):
            return "agrees", line, output
    needed, hidden = expected_kernels(entry)
    is_right = all(re.search(pattern, output) for pattern in needed) and not any(re.search(p, output) for p in hidden)
    return "agrees" if is_right else "another form", line, output


def run(number, folder, keep):
    """The outcome of a program and, unless it agrees, the text of its failure."""
    entry = PLAN[number % PROGRAMS]
    graph = FormGraph(number, entry)
    outcome, line, output = outcome_of(number, entry, graph, folder / str(number))
    if outcome == "agrees":
        return number, outcome, None
    write(graph, keep / f"form-{number}")
    line = [part.replace(str(folder / str(number)), str(keep / f"form-{number}")) for part in line]
    told = [text for text in output.split("\n") if "error:" in text or "check result" in text or "family" in text]
    shown = "\n".join(f"    {text}" for text in told[:6] or output.strip().split("\n")[-4:])
    head = f"FAIL test/Fuzz/form_table.py --number {number}: {outcome}: {entry}"
    return number, outcome, f"{head}\n{shown}\n    {shlex.join(line)}"


def run_all(numbers, keep, record, jobs):
    failures = 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as workers:
        for number, outcome, failure in workers.map(lambda n: run(n, pathlib.Path(folder), keep), numbers):
            if failure:
                failures += 1
                print(failure, flush=True)
            if record:
                form_page.add(record, number, PLAN[number % PROGRAMS], outcome)
    print(f"{len(numbers)} programs, {failures} failures")
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--first-seed", type=int, default=0, help="the first number")
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="the numbers that cover every pair")
    parser.add_argument("--all", action="store_true", help="the whole plan, recorded for the page")
    parser.add_argument("--number", type=int, help="run and print only this program")
    parser.add_argument("--record", type=pathlib.Path, help="the CSV file that outcomes are added to")
    parser.add_argument("--jobs", type=int, default=2, help="how many programs run at a time")
    parser.add_argument("--check-page", action="store_true")
    parser.add_argument("--page", action="store_true", help="write the page from the recorded file")
    parser.add_argument("--keep", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "saccade-forms")
    parser.add_argument("--normalizers", action="store_true", help="weights are functions of a score without a sum")
    parser.add_argument("--stick-breaking", action="store_true", help="weights are those of stick-breaking")
    args = parser.parse_args()
    if args.normalizers:
        PLAN[:] = [with_normalizer(entry) for entry in PLAN]
    if args.stick_breaking:
        PLAN[:] = [with_stick_breaking(entry, number) for number, entry in enumerate(PLAN)]
    numbers = list(range(args.first_seed, args.first_seed + args.count))
    if args.number is not None:
        numbers = [args.number]
        print(FormGraph(args.number, PLAN[args.number % PROGRAMS]).text)
    elif args.quick:
        numbers = list(range(QUICK))
    elif args.all:
        numbers, args.record = list(range(PROGRAMS)), form_page.RECORD
    known = {row.number for row in form_page.read(args.record)} if args.record and args.record.exists() else set()
    numbers = [number for number in numbers if number not in known]
    failures = run_all(numbers, args.keep, args.record, args.jobs) if numbers else 0
    if args.page:
        form_page.write()
    if args.check_page:
        for mistake in form_page.unseen(PLAN):
            failures += 1
            print(f"--check-page does not notice {mistake}")
        for problem in form_page.problems(PLAN):
            failures += 1
            print(f"{form_page.PAGE.name}: {problem}")
    return 1 if failures else 0


PLAN = make_plan()
CYCLE = len(FORMS) * len(TARGETS)  # so many programs have every form with every target

if __name__ == "__main__":
    sys.exit(main())
