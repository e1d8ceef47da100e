"""The first batches of each worker of an iterable dataset, to find data that is loaded twice.

A DataLoader cannot divide an iterable dataset; each worker has to select its share. Only the data
shows whether it does: the code for it may be in a library or a `worker_init_fn`.
"""

from __future__ import annotations

import binascii
import sys

from ..safe.exact import class_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ..context import Context

BATCHES = 2
"""Batches of each worker: labels repeat in the second one, samples do not."""
VALUES = 64
"""Members of a batch that are examined."""
LEAVES = 16
DEPTH = 3


class FirstSamples:
    """The first batches of one worker, as hashes of their parts."""

    __slots__ = ("batches", "parts")

    def __init__(self) -> None:
        self.batches = 0
        self.parts: dict[str, list[bytes]] = {}

    def take(self, session: Context, worker: Any, dataset: Any, batch: Any) -> None:
        """Examine a batch; note the hashes once there are `BATCHES`."""
        self.batches += 1
        for path, values in _leaves(batch, "", DEPTH):
            if path in self.parts or len(self.parts) < LEAVES:
                self.parts.setdefault(path, []).extend(values)
        if self.batches < BATCHES:
            return
        parts = {path: _summary(values) for path, values in self.parts.items()}
        self.parts = {}
        session.note(
            "first-samples",
            worker_id=worker.number,
            loader=worker.loader,
            dataset=class_name(type(dataset))[:128],
            parts=parts,
        )


def _summary(values: list[bytes]) -> list[Any]:
    """The hash of a part, the number of its values, and the number of different values."""
    return [f"{binascii.crc32(repr(values).encode()):08x}", len(values), len(set(values))]


def _leaves(thing: Any, path: str, depth: int) -> Iterator[tuple[str, list[bytes]]]:
    """The parts of a batch with their values as bytes; nothing of the program's is called."""
    kind = type(thing)
    if depth and kind is dict:
        for key, part in list(thing.items())[:LEAVES]:
            yield from _leaves(
                part, f"{path}[{key!r:.40}]" if type(key) is str else path, depth - 1
            )
    elif kind in (list, tuple) and thing:
        if all(type(each) in (str, int, float, bytes) for each in thing[:VALUES]):
            yield path, [repr(each)[:200].encode() for each in thing[:VALUES]]
        elif depth:
            for index, part in enumerate(thing[:LEAVES]):
                yield from _leaves(part, f"{path}[{index}]", depth - 1)
    else:
        raw, size = _memory(thing)
        if raw:
            yield path, [raw[at : at + size] for at in range(0, len(raw), size)]


def _memory(thing: Any) -> tuple[bytes, int]:
    """The first members of a tensor or array as bytes, and the size of one in bytes.

    Empty for a subclass, or under a mode of the program: both could run the program's code.
    """
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and type(thing) is torch.Tensor:
        if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack():
            return b"", 1
        if thing.device.type != "cpu" or not thing.is_contiguous() or thing.is_conj():
            return b"", 1
        size = thing.element_size()
        address, count = thing.data_ptr(), thing.numel()
    elif numpy is not None and type(thing) is numpy.ndarray and thing.flags.c_contiguous:
        if thing.dtype.hasobject:
            return b"", 1
        size, address, count = thing.itemsize, thing.ctypes.data, thing.size
    else:
        return b"", 1
    read = min(count, VALUES) * size
    # Torch and numpy have it loaded; a Python that was built without it has neither.
    import ctypes

    return (ctypes.string_at(address, read) if address and read else b""), max(1, size)
