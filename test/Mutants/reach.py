"""How tests tell which mutants they reach."""

import re

VARIABLES = ("SACCADE_MUTANT", "SACCADE_MUTANT_HITS")
FOLDER = "SACCADE_MUTANT_HITS_OF_TESTS"
"""The folder of one file a test of lit."""


def file_of(test: str) -> str:
    """The name of the file for the mutants that a test reaches."""
    return re.sub(r"\W+", "_", test)
