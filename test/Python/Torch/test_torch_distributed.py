"""Attention over distributed sequences, in 4 processes and in groups of 2; Inputs/distributed_attention.py and
Inputs/distributed_gradients.py have the checks. `./dev soak` runs more cases."""

import pytest

pytest.importorskip("torch")


def test_processes(run_script):
    assert "checks in each of 4 processes" in run_script("distributed_attention.py")


def test_gradients_are_those_of_one_process(run_script):
    assert "checks of gradients in each of 4 processes" in run_script("distributed_gradients.py")
