#!/usr/bin/env python3
# REQUIRES: numpy
# RUN: %python %s --seed 1 --count 6 --processes 4 --kills 12
"""Processes that share one disk cache and are killed at random: no wrong result, no waiting, no files left over.

Usage: disk_cache.py [--seed N] [--count N] [--processes N] [--kills N]. Each process compiles `count` different
programs in a random order and checks their results, again and again; a killed process is replaced. The directory is
pruned all the time, and entries are damaged. Afterwards a process must find or compile every program, and the
directory must hold whole entries only.
"""

import argparse
import collections
import os
import pathlib
import random
import signal
import sys
import tempfile
import time

import numpy as np

import saccade

LIMIT = 600  # seconds without progress, after which processes are taken to wait for each other
COLUMNS = "tensor<?x8xf32>"


def program(number):
    """Multiplies by `number`, then adds 1."""
    return f"""func.func @f(%x: {COLUMNS}) -> {COLUMNS} {{
  %c0 = arith.constant 0 : index
  %by = arith.constant {number}.0 : f32
  %one = arith.constant 1.0 : f32
  %n = tensor.dim %x, %c0 : {COLUMNS}
  %empty = tensor.empty(%n) : {COLUMNS}
  %y = linalg.map ins(%x : {COLUMNS}) outs(%empty : {COLUMNS}) (%in: f32, %init: f32) {{
    %product = arith.mulf %in, %by : f32
    %sum = arith.addf %product, %one : f32
    linalg.yield %sum : f32
  }}
  return %y : {COLUMNS}
}}
"""


def check(number):
    x = np.arange(24, dtype=np.float32).reshape(3, 8)
    result = saccade.compile(program(number)).f(x)
    if not np.array_equal(result, x * number + 1):
        print(f"program {number} gave {result.ravel()[:4]}", flush=True)
        os._exit(1)


def work(directory, max_bytes, seed, count, pipe):
    """The life of a process: compiles programs until it is killed, and reports each by a byte."""
    saccade.set_disk_cache(directory, max_bytes)
    saccade.set_num_threads(1)
    choose = random.Random(seed)
    while True:
        for number in choose.sample(range(count), count):
            check(number)
            info = saccade.cache_info()
            os.write(pipe, b"h" if info.disk_hits else b"c")
            saccade.cache_clear()  # so that the next look-up is on disk


def start(*arguments):
    child = os.fork()
    if child == 0:
        try:
            work(*arguments)
        finally:
            os._exit(2)
    return child


def stop(child):
    """Kills a process; exits if it has ended on its own, after a wrong result or an error."""
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        sys.exit(f"a process ended on its own with exit code {os.WEXITSTATUS(status)}")


def damage(directory, choose):
    """Changes, cuts or replaces an entry, as a failing disk could."""
    entries = sorted(directory.glob("*.entry"))
    if not entries:
        return
    entry, other = choose.choice(entries), choose.choice(entries)
    try:
        data = bytearray(entry.read_bytes())
        kind = choose.randrange(3)
        if kind == 0 and data:
            data[choose.randrange(len(data))] ^= 1 << choose.randrange(8)
        elif kind == 1:
            del data[choose.randrange(len(data) + 1) :]
        else:
            data = bytearray(other.read_bytes())
        entry.write_bytes(data)
    except FileNotFoundError:  # pruned meanwhile
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200, help="programs")
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--kills", type=int, default=400)
    options = parser.parse_args()
    choose = random.Random(options.seed)
    saccade.num_threads()  # loads the library once, before the processes are forked
    with tempfile.TemporaryDirectory(prefix="saccade-") as folder:
        directory = pathlib.Path(folder) / "cache"
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        seeds = iter(range(options.seed * 1_000_000, 1 << 62))

        def begin():
            # A third of the processes have a limit that is too small for all programs, and so remove entries.
            size = 8192 * options.count // 2 if choose.random() < 1 / 3 else 1 << 30
            return start(directory, size, next(seeds), options.count, writer)

        children = [begin() for _ in range(options.processes)]
        counts = collections.Counter()
        kills, last = 0, time.monotonic()
        # Ends once enough were killed and every program was requested several times.
        while kills < options.kills or counts.total() < 4 * options.count:
            time.sleep(choose.uniform(0, 0.1))
            try:
                counts.update(os.read(reader, 1 << 20).decode())
                last = time.monotonic()
            except BlockingIOError:
                if time.monotonic() - last > LIMIT:
                    sys.exit(f"no process has finished a program for {LIMIT} s")
            if kills < options.kills and counts.total() >= kills:
                victim = choose.randrange(len(children))
                stop(children[victim])
                children[victim] = begin()
                kills += 1
            if directory.exists():
                if choose.random() < 0.3:
                    damage(directory, choose)
                if (stamp := directory / "last-prune").exists():
                    os.utime(stamp, (0, 0))  # the next process that stores prunes
        for child in children:
            stop(child)

        saccade.set_disk_cache(directory)
        for number in range(options.count):
            check(number)
        found = saccade.cache_info()
        saccade.cache_clear()
        # Now every entry is whole, and the last store prunes.
        os.utime(directory / "last-prune", (0, 0))
        for number in range(options.count + 1):
            check(number)
        again = saccade.cache_info()
        if (again.disk_hits, again.compilations) != (options.count, 1):
            sys.exit(f"expected {options.count} programs on disk and one compilation, found {again}")
        left = [path.name for path in directory.iterdir() if path.suffix != ".entry" and path.name != "last-prune"]
        if left:
            sys.exit(f"files are left over: {left}")
    print(f"{options.processes} processes, {options.count} programs, {kills} killed: {counts['c']} compilations and "
          f"{counts['h']} hits on disk; afterwards {found.disk_hits} hits and {found.compilations} compilations")


if __name__ == "__main__":
    main()
