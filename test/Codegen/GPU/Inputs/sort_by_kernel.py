"""Sorts the output of `ptxas -v` by the names of kernels."""

import re
import sys

first, *kernels = re.split(r"(?m)^(?=.*Compiling entry function)", sys.stdin.read())
print(first, *sorted(kernels, key=lambda text: text.split("'")[1]), sep="")
