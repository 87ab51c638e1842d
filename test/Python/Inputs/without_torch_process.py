"""Runs test files in a process that can import neither torch nor TVM-FFI."""

import sys

sys.modules["torch"] = None
sys.modules["tvm_ffi"] = None

import pytest

sys.exit(pytest.main(["-p", "no:xdist", "-p", "no:cacheprovider", "--override-ini", "addopts=", *sys.argv[1:]]))
