"""Whether gradients of what a traced function computes from captured tensors are recorded."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class _Mode(threading.local):
    has_grad = False
    is_transformed = False


_mode = _Mode()


def is_recording() -> bool:
    """Whether the caller of the function that is traced records gradients. Tracing itself runs without grad mode."""
    return _mode.has_grad


def is_transformed() -> bool:
    """Whether stand-ins without elements replace captured tensors, because torch.func transforms the caller."""
    return _mode.is_transformed


@contextlib.contextmanager
def recording_mode(has_grad: bool, is_transformed: bool) -> Iterator[None]:
    """Sets `is_recording` and `is_transformed` in this block and thread."""
    before = _mode.has_grad, _mode.is_transformed
    _mode.has_grad, _mode.is_transformed = has_grad, is_transformed
    try:
        yield
    finally:
        _mode.has_grad, _mode.is_transformed = before
