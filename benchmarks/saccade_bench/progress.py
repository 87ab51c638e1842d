"""A bar where somebody watches, nothing where the output goes to a file."""

import contextlib
import sys


@contextlib.contextmanager
def progress(total, text):
    """Gives a function to call at every step."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from tqdm import tqdm

    with tqdm(total=total, desc=text, leave=False, bar_format="{desc:32}{bar:30} {n_fmt}/{total_fmt} {remaining}") as bar:
        yield bar.update
