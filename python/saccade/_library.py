"""ctypes bindings of libsaccade.so, declared as in saccade-c/saccade.h and loaded at the first use.

The library is stored in the package's own folder, and its symbols are private to it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import operator
import os
import pathlib
import threading
from collections.abc import Callable, Iterator
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any, NamedTuple, NoReturn

from saccade import _disk_cache
from saccade._opaque import opaque
from saccade.errors import CompileError, Diagnostic, warn

PATH = pathlib.Path(__file__).with_name("lib") / "libsaccade.so"

SEVERITIES = ("note", "warning", "error", "remark")
DiagnosticHandler = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)


class Option(ctypes.Structure):
    """SaccadeOption."""

    _fields_ = [("name", c_char_p), ("value", c_char_p)]


class DataType(ctypes.Structure):
    """DLDataType."""

    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class ValueInfo(ctypes.Structure):
    """SaccadeValueInfo."""

    _fields_ = [
        ("name", c_char_p),
        ("type", c_char_p),
        ("dtype", DataType),
        ("rank", c_int32),
        ("extents", POINTER(c_int64)),
        ("updated_by", c_int32),
    ]


class _CacheCounts(ctypes.Structure):
    _fields_ = [(name, c_uint64) for name in ("hits", "compilations", "modules", "disk_hits", "disk_misses")]


PHASES = ("pipeline", "codegen", "link")
"""The phases of a compilation: the stages on MLIR, machine code, and its link into the process."""


class _CompileTimes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_double) for name in PHASES]


class _StageTime(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("seconds", ctypes.c_double)]


class CacheInfo(NamedTuple):
    """Compilation statistics of this process since the last `cache_clear`. A program is counted at each `compile`, and
    at the first call of `attention` for each kernel; later calls of `attention` use the kernel directly and are not
    counted."""

    hits: int
    """Requested programs that this process already had."""
    compilations: int
    """Programs that were compiled."""
    modules: int
    """Compiled programs that are in the cache of this process now."""
    disk_hits: int
    """Requested programs that another process had compiled; see `set_disk_cache`."""
    disk_misses: int
    """Requested programs that were not found on disk."""


_PROGRAM = [c_void_p, c_char_p, c_size_t, c_char_p, POINTER(Option), c_size_t]
# name: (result, arguments)
_FUNCTIONS = {
    "saccade_last_error": (c_char_p, []),
    "saccade_version": (c_char_p, []),
    "saccade_context_create": (c_void_p, []),
    "saccade_context_set_diagnostic_handler": (None, [c_void_p, DiagnosticHandler, c_void_p]),
    "saccade_context_set_disk_cache": (c_int, [c_void_p, c_char_p, c_uint64]),
    "saccade_option_help": (c_char_p, []),
    "saccade_compile": (c_int, [*_PROGRAM, POINTER(c_void_p)]),
    "saccade_explain": (c_int, [*_PROGRAM, c_char_p, POINTER(c_void_p)]),
    "saccade_explain_json": (c_int, [*_PROGRAM, c_char_p, POINTER(c_void_p)]),
    "saccade_print_stage": (c_int, [*_PROGRAM, c_char_p, POINTER(c_void_p)]),
    "saccade_task_times_begin": (None, []),
    "saccade_task_times_end": (c_int, [POINTER(c_void_p)]),
    "saccade_text_free": (None, [c_void_p]),
    "saccade_cache_info": (_CacheCounts, [c_void_p]),
    "saccade_cache_clear": (None, [c_void_p]),
    "saccade_cache_clear_disk": (c_int, [c_void_p]),
    "saccade_module_compile_times": (_CompileTimes, [c_void_p]),
    "saccade_module_num_stages": (c_size_t, [c_void_p]),
    "saccade_module_stage_at": (_StageTime, [c_void_p, c_size_t]),
    "saccade_module_release": (None, [c_void_p]),
    "saccade_module_num_functions": (c_size_t, [c_void_p]),
    "saccade_module_function_at": (c_void_p, [c_void_p, c_size_t]),
    "saccade_function_name": (c_char_p, [c_void_p]),
    "saccade_function_num_inputs": (c_size_t, [c_void_p]),
    "saccade_function_num_results": (c_size_t, [c_void_p]),
    "saccade_function_value": (ValueInfo, [c_void_p, c_size_t]),
    "saccade_function_result_shapes": (c_int, [c_void_p, c_void_p, c_size_t, POINTER(c_int64)]),
    "saccade_function_call": (c_int, [c_void_p, c_void_p, c_size_t]),
    "saccade_function_call_on_stream": (c_int, [c_void_p, c_void_p, c_size_t, c_void_p]),
    "saccade_function_device_type": (c_int32, [c_void_p]),
    "saccade_function_tvm_ffi": (c_void_p, [c_void_p]),
    "saccade_set_num_threads": (None, [c_int32]),
    "saccade_num_threads": (c_int32, []),
    "saccade_torch_register": (c_int, [c_void_p]),
}


@functools.cache
def library() -> ctypes.CDLL:
    """The loaded library; calls into it release the GIL. Raises ImportError if it cannot be loaded."""
    if not PATH.exists():
        raise ImportError(f"saccade's compiler is not installed: there is no {PATH}", path=str(PATH))
    try:
        loaded = ctypes.CDLL(str(PATH))
    except OSError as error:
        raise ImportError(
            f"saccade's compiler cannot be loaded: {error}. It requires the shared libraries of LLVM and MLIR 22 "
            "(on Debian: libllvm22 and libmlir-22), unless it was installed from a wheel",
            path=str(PATH),
        ) from error
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


# SaccadeResult values, except SACCADE_COMPILE_ERROR; SaccadeStatus values of a call are the same.
ERRORS = {1: TypeError, 2: ValueError, 3: MemoryError, 5: NotImplementedError, 6: RuntimeError}


def raise_error(result: int, diagnostics: tuple[Diagnostic, ...] = ()) -> NoReturn:
    """Raises the exception for a SaccadeResult other than SACCADE_OK, with the message of this thread."""
    message = library().saccade_last_error().decode(errors="replace")
    if result in ERRORS:
        raise ERRORS[result](message)
    texts = "\n".join(diagnostic.text for diagnostic in diagnostics)
    raise CompileError(texts or message, diagnostics)


# --- the context of this process --------------------------------------------------------------------------------------

_context: int | None = None
_given: tuple[str | None, int] | None = None  # the directory and size that `set_disk_cache` was given
_lock = threading.Lock()
# A fork must not copy the lock while another thread holds it.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
_of_thread = threading.local()


@DiagnosticHandler  # type: ignore[untyped-decorator]
def _handle_diagnostic(severity: int, text: bytes, _user: object) -> None:
    collected = getattr(_of_thread, "diagnostics", None)
    if collected is not None:
        collected.append(Diagnostic.parse(SEVERITIES[severity], text.decode(errors="replace")))


def context() -> int:
    """The single compiler context of this process, with the kernels compiled so far; a forked child keeps using it."""
    global _context, _given
    with _lock:
        if _context is None:
            created = library().saccade_context_create()
            if created is None:
                raise MemoryError("no memory for a compiler context")
            library().saccade_context_set_diagnostic_handler(created, _handle_diagnostic, None)
            _context = created
            # The caller did not choose the default directory: an unsafe one is a warning, issued once.
            if _keep_on_disk(created, *_disk_choice()) and _given is None:
                fault = library().saccade_last_error().decode(errors="replace")
                _given = None, _disk_cache.MAX_BYTES
                warn(f"{fault}; {_disk_cache.VARIABLE}=0 disables this cache")
        return _context


def _keep_on_disk(context: int, directory: str | None, max_bytes: int) -> int:
    path = None if directory is None else os.fsencode(directory)
    result: int = library().saccade_context_set_disk_cache(context, path, max_bytes)
    return result


@contextlib.contextmanager
def compiling() -> Iterator[tuple[int, list[Diagnostic]]]:
    """The context, and a list that collects the diagnostics of compilations in this thread."""
    collected: list[Diagnostic] = []
    _of_thread.diagnostics = collected
    try:
        yield context(), collected
    finally:
        _of_thread.diagnostics = None


def compile_times(module: Any) -> dict[str, Any]:
    """The seconds of the phases of the compilation of a module, and "stages", those of the stages of its pipeline."""
    times = library().saccade_module_compile_times(module)
    stages = [library().saccade_module_stage_at(module, i) for i in range(library().saccade_module_num_stages(module))]
    return {**{name: getattr(times, name) for name in PHASES},
            "stages": {stage.name.decode(): stage.seconds for stage in stages}}  # fmt: skip


@opaque
def cache_info() -> CacheInfo:
    """Statistics of the compilations and cache hits of this process; see `CacheInfo`."""
    counts = library().saccade_cache_info(context())
    return CacheInfo(*(getattr(counts, name) for name in CacheInfo._fields))


def _disk_choice() -> tuple[str | None, int]:
    return (_disk_cache.default_directory(), _disk_cache.MAX_BYTES) if _given is None else _given


@opaque
def set_disk_cache(directory: str | os.PathLike[str] | None, max_bytes: int = _disk_cache.MAX_BYTES) -> None:
    """Keeps compiled programs in files, from which other processes take them without compiling.

    Args:
        directory: the directory, created with the permissions 0700 when a program is stored; None keeps no files. The
            default is `$XDG_CACHE_HOME/saccade`, or `~/.cache/saccade`; the environment variable SACCADE_CACHE is 0 for
            no files, or another directory.
        max_bytes: the size of the directory beyond which the least recently used files are removed.

    Raises:
        ValueError: the directory belongs to another user, others can write it, or it is no directory.
        TypeError: an argument of another type.

    Any number of processes may share a directory and may be killed at any time. A file that is damaged or was written
    by another build of the compiler is not used. A directory that cannot be written keeps no files.
    """
    global _given
    choice = _disk_cache.check(directory, max_bytes)
    _given = choice
    if error := _keep_on_disk(context(), *choice):
        _given = None, choice[1]  # as the context is now
        raise_error(error)


@opaque
def disk_cache() -> str | None:
    """The directory in which compiled programs are kept; None if they are not. See `set_disk_cache`."""
    return _disk_choice()[0]


_caches: list[Callable[[], None]] = []


def on_cache_clear(clear: Callable[[], None]) -> None:
    """Registers a function that `cache_clear` calls to drop references to programs held elsewhere."""
    _caches.append(clear)


@opaque
def cache_clear(*, disk: bool = False) -> None:
    """Removes all compiled programs of this process, including those of `attention`, and resets the statistics. Memory
    is freed with the last module or function that is still referenced. With `disk`, also removes the files of
    `set_disk_cache`; raises OSError if one cannot be removed."""
    if disk and library().saccade_cache_clear_disk(context()):
        raise OSError(library().saccade_last_error().decode(errors="replace"))
    library().saccade_cache_clear(context())
    for clear in _caches:
        clear()


@opaque
def set_num_threads(threads: int) -> None:
    """Sets the maximum number of threads of a call, including the calling one; 0 uses the machine's count.

    If PyTorch is imported, its thread pool is used and `torch.set_num_threads` applies instead.
    """
    try:
        threads = operator.index(threads)
    except TypeError:
        raise TypeError(f"threads is {threads!r:.80}, expected an int: 0 (the machine's count) or more") from None
    if threads < 0:
        raise ValueError(f"found {threads} threads, expected 0 (the machine's count) or more")
    library().saccade_set_num_threads(threads)


@opaque
def num_threads() -> int:
    """The maximum number of threads of a call, including the calling one."""
    threads: int = library().saccade_num_threads()
    return threads
