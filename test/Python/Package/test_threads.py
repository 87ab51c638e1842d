"""The runtime's pool of threads: PyTorch's where PyTorch is in the process, else one that all copies of the runtime
share; right results after a fork.
"""

import pytest


def test_pytorchs_threads_run_our_tasks(run_script, build):
    pytest.importorskip("torch")
    run_script("threads_process.py", build)


def test_copies_of_the_runtime_share_one_pool(run_script, build):
    run_script("threads_copies_process.py", build)


@pytest.mark.parametrize("interface", ["stable", "older"])
def test_pytorchs_pool_is_detected_once_it_is_loaded(run_script, build, interface):
    run_script("threads_detection_process.py", build, interface)


def test_a_runtime_first_loaded_in_a_child_leaves_pytorchs_pool_alone(run_script, build):
    run_script("threads_fork_process.py", build)
