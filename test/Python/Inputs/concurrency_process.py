"""Compiles and calls from several Python threads, and forks. Argument: the name of a function of this file."""

import concurrent.futures
import gc
import os
import sys
import threading
import time
import traceback

import numpy as np
import programs
from programs import refused

import saccade

random = np.random.default_rng(5)
attend = saccade.compile(programs.attention()).attend
long = random.standard_normal((3, 1, 16, 4096, 16)).astype(np.float32)


def check(seed, function=attend):
    """One call with its own lengths and values."""
    mine = np.random.default_rng(seed)
    q = mine.standard_normal((2, 3, 1 + seed % 40, 16)).astype(np.float32)
    k, v = mine.standard_normal((2, 2, 3, 2 + seed % 50, 16)).astype(np.float32)
    assert np.abs(function(q, k, v) - programs.expected_attention(q, k, v)).max() < 1e-5, seed


def call_at_once():
    """Calls of one function from several threads, refusals among them: messages do not get mixed up."""

    def call_often(thread):
        for seed in range(thread * 100, thread * 100 + 60):
            check(seed)
            wrong = np.zeros((1, 1, 1, 1000 + seed), np.float32)
            refused(ValueError, [f"found extent {1000 + seed}"], attend, wrong, wrong, wrong)
        return True

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(call_often, range(4)))


def compile_at_once():
    """Threads that ask for one program at once share one compilation; each gets its own diagnostics."""
    saccade.cache_clear()

    def compile_both(thread):
        check(thread, saccade.compile(programs.attention("f32", "shared")).shared)
        check(thread, saccade.compile(programs.attention("f32", f"own_{thread}"))[f"own_{thread}"])
        refused(saccade.CompileError, [f"'missing_{thread}'"], saccade.compile,
                f"func.func @f() {{\n call @missing_{thread}() : () -> ()\n return\n}}")  # fmt: skip
        return True

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(compile_both, range(4)))
    info = saccade.cache_info()
    assert info.modules == 5 and info.hits == 3 and info.compilations == 5 + 4, info


def count_during_a_call():
    """The GIL is released: this thread counts while another one is inside of one long call."""
    inside = threading.Event()
    span = []

    def one_long_call():
        inside.set()
        start = time.perf_counter()
        attend(*long)
        span.append(time.perf_counter() - start)

    thread = threading.Thread(target=one_long_call)
    thread.start()
    inside.wait()
    steps = 0
    while thread.is_alive():
        time.sleep(0.001)
        steps += 1
    thread.join()
    assert steps > 5 and steps > 0.05 * span[0] / 0.001, f"{steps} steps of 1 ms during a call of {span[0]:.3f} s"


def in_child(body):
    """Runs body in a forked child and asserts that it comes back in time."""
    child = os.fork()
    if child == 0:
        try:
            body()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    for _ in range(300):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert status == 0, status
            return
        time.sleep(0.1)
    os.kill(child, 9)
    os.waitpid(child, 0)
    raise AssertionError("the child hangs")


def fork_after_calls():
    """The child goes on with its parent's kernels, compiles and starts threads of its own."""
    call_at_once()
    attend(*long)

    def go_on():
        before = saccade.cache_info()
        for seed in range(20):
            check(seed)
        check(1, saccade.compile(programs.attention()).attend)
        check(2, saccade.compile(programs.attention("f32", "of_the_child")).of_the_child)
        after = saccade.cache_info()
        assert (after.hits - before.hits, after.compilations - before.compilations) == (1, 1), (before, after)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(check, range(8)))

    saccade.compile(programs.attention())
    in_child(go_on)
    check(3)


def fork_during_a_compilation():
    """The child does not wait for a thread that compiles, which it does not have."""
    call_at_once()
    busy = threading.Event()
    stop = threading.Event()
    numbers = [0]

    def compile_on():
        while not stop.is_set():
            busy.set()
            saccade.compile(programs.attention("f32", f"busy_{numbers[-1]}"))
            numbers.append(len(numbers))

    def compile_in_child():
        number = numbers[-1]
        check(number, saccade.compile(programs.attention("f32", f"busy_{number}"))[f"busy_{number}"])
        check(4)

    thread = threading.Thread(target=compile_on)
    thread.start()
    busy.wait()
    try:
        for _ in range(3):
            time.sleep(0.03)
            in_child(compile_in_child)
    finally:
        stop.set()
        thread.join()
    gc.collect()
    check(5)


globals()[sys.argv[1]]()
