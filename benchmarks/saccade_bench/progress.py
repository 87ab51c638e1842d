"""A progress bar on a terminal; nothing if the output is redirected."""

import contextlib
import sys


@contextlib.contextmanager
def progress(total, text):
    """A context manager that gives a function to call after every step."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from tqdm import tqdm

    with tqdm(total=total, desc=text, leave=False, bar_format="{desc:32}{bar:30} {n_fmt}/{total_fmt} {remaining}") as bar:
        yield bar.update
