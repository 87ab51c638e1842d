"""Saccade from Python: compile an attention graph and run it on NumPy arrays."""

from saccade.runner import Failed, run, tool

__version__ = "0.1.0"
__all__ = ["Failed", "run", "tool"]
