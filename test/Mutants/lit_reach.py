"""Used by lit in the copy of the tree: passes the number of the mutant on to tests, and collects which mutants each
test reaches."""

import copy
import os

import lit.formats
from reach import FOLDER, VARIABLES, file_of


def install(config):
    """Extends a configuration of lit."""
    for name in VARIABLES:
        if name in os.environ:
            config.environment[name] = os.environ[name]
    if FOLDER in os.environ:
        config.test_format.__class__ = Recording


class Recording(lit.formats.ShTest):
    """A ShTest that records the mutants it reaches."""

    def execute(self, test, lit_config):
        path = os.path.join(os.environ[FOLDER], file_of(test.getFullName()))
        test.config = copy.copy(test.config)
        test.config.environment = dict(test.config.environment, SACCADE_MUTANT_HITS=path)
        return super().execute(test, lit_config)
