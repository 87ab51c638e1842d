"""Torch tensors that compiled code reads later than they were given, and whether they have changed since.

PyTorch counts the writes to a tensor in its version, which views and detached tensors share. Other memory, from
`tensor.data = ...`, `module.to(...)` or a storage that was freed, shows in the address of the elements, and another
parameter in its place in the dictionary of its module. Fused optimizers and optimizers of other libraries write without
a version, so a step of any optimizer counts as a write to its parameters.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import Any

from saccade import _arrays

Owner = tuple[dict[str, Any], str]
"""The dictionary of a module's parameters or buffers that has a tensor, and its key there."""


class Watched:
    """Tensors by name. They are not kept alive."""

    __slots__ = ("_names", "_owners", "_references", "_probes", "_versions", "_owned", "_others", "_storages",
                 "_is_stepped", "__weakref__")  # fmt: skip

    def __init__(self, tensors: Mapping[str, Any], are_versioned: set[str], owners: Mapping[str, Owner]):
        """Watches the addresses of all tensors, and the versions of those whose names are in `are_versioned`."""
        owned = {name: owners[name] for name in tensors if name in owners}
        others = [name for name in tensors if name not in owned]
        self._names = [*owned, *others]
        self._owners = list(owned.values())
        self._references = [weakref.ref(tensors[name]) for name in others]
        self._probes = [_probe(tensors[name]) for name in tensors if name in are_versioned]
        self._versions = [probe._version for probe in self._probes]
        self._owned = [tensors[name].data_ptr() for name in owned]  # addresses, also if an owner has others by now
        self._others = [tensors[name].data_ptr() for name in others]
        self._storages = {tensors[name].untyped_storage().data_ptr() for name in tensors if name in are_versioned}
        self._is_stepped = False
        if self._probes:
            _follow_optimizers(self)

    def is_changed(self) -> bool:
        """Whether a tensor has been written to or has other memory since this object was made. It takes about 0.15 µs a
        tensor."""
        if self._is_stepped:
            return True
        try:
            if self._owned and self._owned != [owner[key].data_ptr() for owner, key in self._owners]:
                return True
            if self._others and self._others != [reference().data_ptr() for reference in self._references]:  # type: ignore[union-attr]
                return self._is_changed_without_the_gone()
            return self._versions != [probe._version for probe in self._probes]
        except (AttributeError, KeyError, RuntimeError):  # a tensor is gone, or has no memory
            return self._is_changed_without_the_gone()

    def _is_changed_without_the_gone(self) -> bool:
        """`is_changed` after a tensor without another holder is gone: it cannot get other memory. The other
        tensors are watched from now on."""
        count = len(self._owners)
        kept = [(name, reference, address) for name, reference, address in
                zip(self._names[count:], self._references, self._others) if reference() is not None]  # fmt: skip
        if len(kept) == len(self._references):
            return True
        self._names = self._names[:count] + [name for name, _, _ in kept]
        self._references, self._others = [each[1] for each in kept], [each[2] for each in kept]
        return self.is_changed()

    def tensors(self) -> dict[str, Any]:
        """The tensors as they are now, without those that are gone."""
        found = [owner.get(key) for owner, key in self._owners] + [reference() for reference in self._references]
        return {name: x for name, x in zip(self._names, found) if x is not None}


_lock = threading.Lock()
_stepped: weakref.WeakSet[Watched] = weakref.WeakSet()
"""What steps of optimizers change."""
_has_hook = False


def _follow_optimizers(watched: Watched) -> None:
    """Lets `watched` see steps of optimizers."""
    global _has_hook
    with _lock:
        _stepped.add(watched)
        if not _has_hook:
            from torch.optim.optimizer import register_optimizer_step_post_hook  # imported late: only users have torch

            register_optimizer_step_post_hook(_arrays.torch_module().compiler.disable(_see_step))
            _has_hook = True


def _see_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    """Called after each step of any optimizer."""
    if not _stepped:
        return
    parameters = [x for group in optimizer.param_groups for x in group["params"] if x.requires_grad]
    storages = {x.untyped_storage().data_ptr() for x in parameters if x.layout == _arrays.torch_module().strided}
    with _lock:
        for watched in _stepped:
            watched._is_stepped |= not storages.isdisjoint(watched._storages)


def is_versioned(x: Any) -> bool:
    """Whether PyTorch counts the writes to x. It does not for tensors that were made in inference mode."""
    return _arrays.is_torch(x) and not x.is_inference()


def check_storage(name: str, x: Any) -> None:
    """Raises ValueError for a torch tensor whose storage was freed or is too small for its elements."""
    if not _arrays.is_torch(x) or x.numel() == 0:
        return
    last = x.storage_offset() + sum((extent - 1) * stride for extent, stride in zip(x.shape, x.stride()))
    needed, found = (last + 1) * x.element_size(), x.untyped_storage().nbytes()
    if found < needed:
        raise ValueError(f"{name} has a storage of {found} bytes, expected at least {needed}: it was freed or resized")


def _probe(x: Any) -> Any:
    """A tensor without memory that has the version of x."""
    probe = x.detach()
    probe.data = x.new_empty(0)
    return probe
