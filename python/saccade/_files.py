"""Files that are written as a whole: an error leaves the file of before."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator

Path = str | os.PathLike[str]


def check_writable(path: Path) -> None:
    """Raises the OSError of `write`, if the path is a folder or its folder takes no new file."""
    with _new(path):
        pass


def write(path: Path, text: str) -> None:
    """Writes a file under another name in the same folder, and renames it. An OSError names the path."""
    with _new(path) as (descriptor, temporary):
        with open(descriptor, "w", encoding="utf-8", closefd=False) as file:
            file.write(text)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)


@contextlib.contextmanager
def _new(path: Path) -> Iterator[tuple[int, str]]:
    """A new file in the folder of the path, which is removed at the end if it still has its name."""
    path = os.fspath(path)
    folder, name = os.path.split(path)
    try:
        if not name or os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        descriptor, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder or ".")
        try:
            yield descriptor, temporary
        finally:
            os.close(descriptor)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
