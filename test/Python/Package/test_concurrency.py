"""Python threads compile and call at once, other threads run meanwhile, and a fork goes on with its parent's kernels."""

import pytest


def test_calls_from_several_threads_do_not_mix_results_or_messages(run_script):
    run_script("concurrency_process.py", "call_at_once")


def test_threads_that_ask_for_one_program_share_one_compilation(run_script):
    run_script("concurrency_process.py", "compile_at_once")


def test_a_long_call_releases_the_gil(run_script):
    run_script("concurrency_process.py", "count_during_a_call")


def test_a_forked_child_goes_on_with_its_parents_kernels(run_script):
    run_script("concurrency_process.py", "fork_after_calls")


def test_a_fork_during_a_compilation_does_not_hang(run_script):
    run_script("concurrency_process.py", "fork_during_a_compilation")


def test_attention_from_two_threads_compiles_each_program_once(run_script):
    pytest.importorskip("torch")
    run_script("attention_threads_process.py")
