# Every <name>Tests executable in the build tree's test/Unit is a GoogleTest program.
import os

import lit.formats

config.name = "Saccade-Unit"
config.suffixes = []
config.test_exec_root = config.saccade_unit_dir
config.test_source_root = config.saccade_unit_dir
config.test_format = lit.formats.GoogleTest(".", "Tests")
config.environment["PATH"] = os.environ["PATH"]
