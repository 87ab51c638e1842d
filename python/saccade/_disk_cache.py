"""Where compiled programs are kept between processes: the default directory, and its checks."""

from __future__ import annotations

import operator
import os

VARIABLE = "SACCADE_CACHE"
MAX_BYTES = 1 << 30


def default_directory() -> str | None:
    """`$XDG_CACHE_HOME/saccade`, by default `~/.cache/saccade`. The variable SACCADE_CACHE overrides it: an absolute
    path, or 0 for None, which disables the disk cache. Raises ValueError for any other value except 1."""
    value = os.environ.get(VARIABLE) or "1"  # an empty variable counts as unset
    if value == "0":
        return None
    if value != "1":
        if not os.path.isabs(value):
            raise ValueError(f"the environment variable {VARIABLE} is {value!r}, expected 0, 1 or an absolute path")
        return value
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the XDG specification ignores relative paths
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "saccade") if os.path.isabs(base) else None


def check(directory: str | os.PathLike[str] | None, max_bytes: int) -> tuple[str | None, int]:
    """The arguments of `saccade.set_disk_cache`, checked; the path is absolute."""
    try:
        max_bytes = operator.index(max_bytes)
    except TypeError:
        raise TypeError(f"max_bytes is {max_bytes!r:.80}, expected an int") from None
    if not 0 < max_bytes < 1 << 64:
        raise ValueError(f"max_bytes is {max_bytes}, expected 1 or more")
    if directory is None:
        return None, max_bytes
    if not isinstance(directory, (str, os.PathLike)):
        raise TypeError(f"directory is {directory!r:.80}, expected a path, or None for no disk cache")
    path = os.path.abspath(os.fsdecode(directory))
    if "\0" in path:
        raise ValueError(f"directory is {directory!r:.80}, expected a path without a null character")
    return path, max_bytes
