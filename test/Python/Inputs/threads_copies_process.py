"""Loads copies of the runtime in libraries that do not see one another: they share one pool, which outlives its library.
Argument: the root of the build tree.
"""

import _ctypes
import sys

from probe import Probe, in_child, threads_of_process

first, second = Probe(sys.argv[1]), Probe(sys.argv[1])
assert first.library.probe_run is not second.library.probe_run and first.hook() is None

# The symbol lies in the library that was loaded first, the table in the one that is called first.
second.set_threads(3)
assert first.threads() == 3 and first.hook() == second.hook() is not None
before = threads_of_process()
used = second.run()
after = threads_of_process()
assert len(after - before) == 2 and used <= after, (before, after, used)
assert first.run() <= after and threads_of_process() == after, "another copy started threads of its own"
in_child(lambda: (first.run(), second.run()))

# Threads sleep in the code of the second copy, and the first holds its table: it stays.
_ctypes.dlclose(second.library._handle)
assert first.run() <= after and first.threads() == 3
third = Probe(sys.argv[1])
assert third.run() <= after and third.hook() == first.hook()
