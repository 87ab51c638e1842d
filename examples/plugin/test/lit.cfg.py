# The tests of the plugin. %{plugin} loads its passes, %{dialect} its dialect.
import os

import lit.formats

config.name = "ExamplePlugin"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir"]
config.test_source_root = os.path.dirname(__file__)
config.environment["PATH"] = os.pathsep.join([*config.tools, os.environ["PATH"]])
config.substitutions += [("%{plugin}", f"--load-pass-plugin={config.plugin}"),
                         ("%{dialect}", f"--load-dialect-plugin={config.plugin}")]  # fmt: skip
