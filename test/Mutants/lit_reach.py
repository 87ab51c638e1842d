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
        is_unit = isinstance(config.test_format, lit.formats.GoogleTest)
        config.test_format.__class__ = RecordingGoogleTest if is_unit else RecordingShTest


def _record(test):
    test.config = copy.copy(test.config)
    path = os.path.join(os.environ[FOLDER], file_of(test.getFullName()))
    test.config.environment = dict(test.config.environment, SACCADE_MUTANT_HITS=path)


class RecordingShTest(lit.formats.ShTest):
    """A ShTest that records the mutants it reaches."""

    def execute(self, test, lit_config):
        _record(test)
        return super().execute(test, lit_config)


class RecordingGoogleTest(lit.formats.GoogleTest):
    """A GoogleTest that records the mutants it reaches."""

    def execute(self, test, lit_config):
        _record(test)
        return super().execute(test, lit_config)
