"""The objects of a program that has run for a while before the hook was attached.

The scan runs once, on the thread that attaches the hook. Nearly all objects are in tables
that multiprocessing and torch keep anyway: queues and locks are registered for a fork, storages
that were sent or received are in SharedCache. Only DataLoader iterators and SimpleQueues are in no
table. They are found by `gc.get_referrers` of their class, which walks over all containers without
counting references, so that pages that a forked worker shares with its parent stay shared;
`gc.get_objects` would copy them all. A worker of a DataLoader is not searched: it iterates over no
loader, and there may be as many workers as cpus, each of which would take 50 to 100 ms. Nor is a
program that has none of the registered locks and queues of which iterators and SimpleQueues are
made, such as one that has just begun: that saves 14 ms with torch imported (CPython 3.11).

Tensors are not tested for being shared: a mode of the program (`TorchFunctionMode`,
`torch.compile`) would see the call. A segment that was never sent is known from its mapping.
"""

from __future__ import annotations

import gc
import sys

from .. import wire
from ..points.sharing import keys_of, size_of
from ..safe import exact, foreign_exceptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from ..context import Context

BLOCKS_LIMIT = 12_000_000
"""Number of memory blocks above which a program is not searched.

The search takes 7 to 40 ns a block (CPython 3.11 with torch, 0.6 to 10 million blocks), and no
other thread runs meanwhile. Reading their number takes 0.1 ms a million.
"""
STORAGES_LIMIT = 1024
_WITHOUT_LOCKS = (
    "multiprocessing.resource_sharer",
    "multiprocessing.util",
    "torch.multiprocessing.reductions",
)
"""Modules whose objects are registered for a fork in every program that has imported torch."""
BUDGET_NS = 50_000_000
"""Cpu time for SharedCache, and again for all queues and loaders; one takes 2 to 20 us."""


class LateAttachScan:
    """Adds existing objects to the state of the hook, and counts them for the hello."""

    __slots__ = ("_session", "summary")

    def __init__(self, session: Context) -> None:
        self._session = session
        self.summary: dict[str, Any] = {
            "took_ms": 0.0,
            "cpu_ms": 0.0,
            "loaders": 0,
            "storages": 0,
            "storage_bytes": 0,
            "queues": 0,
            "problem": None,
        }

    def take(self) -> None:
        """Scan once; objects that cannot be read are left out."""
        system = self._session.system
        began_ns, cpu_ns = system.monotonic_ns(), system.thread_time_ns()
        steps = (
            ("storages", self._add_storages),
            ("queues and loaders", self._add_instances),
            ("worker", self._become_worker),
        )
        for what, step in steps:
            try:
                step()
            except BaseException as error:
                if not foreign_exceptions.is_ours(error):
                    raise
                self.summary["problem"] = f"{what}: {type(error).__name__}: {error}"[:200]
        self.summary["took_ms"] = round((system.monotonic_ns() - began_ns) / 1e6, 3)
        self.summary["cpu_ms"] = round((system.thread_time_ns() - cpu_ns) / 1e6, 3)

    def _add_storages(self) -> None:
        """Record storages that were sent or received; one freed here may be in a queue."""
        reductions: Any = sys.modules.get("torch.multiprocessing.reductions")
        cache = getattr(reductions, "shared_cache", None)
        if cache is None:
            return
        entries = list(cache.items())
        for key, reference in self._within_budget(entries[-STORAGES_LIMIT:], "SharedCache"):
            is_alive = not reference.expired()
            size = size_of(reference) if is_alive else 0
            flags = wire.FLAG_FILE_SYSTEM if type(key) is bytes else 0
            first, second = keys_of(key)
            began_ns = self._session.system.monotonic_ns()
            self._session.record(wire.KNOWN, began_ns, flags, size, first, second, len(entries))
            self.summary["storages"] += is_alive
            self.summary["storage_bytes"] += size
        if len(entries) > STORAGES_LIMIT:
            self._leave_out(f"{len(entries) - STORAGES_LIMIT} older entries of SharedCache")

    def _add_instances(self) -> None:
        """Add queues and iterators, if the program has imported their modules."""
        registered = registered_for_forks()
        if not registered:
            return
        queue = getattr(sys.modules.get("multiprocessing.queues"), "Queue", ())
        found: list[Any] = [each for each in registered if issubclass(type(each), queue)]
        if _worker_info() is None and any(map(_is_part, registered)):
            found += self._unregistered()
        for each in self._within_budget(found, "queues and loaders"):
            if hasattr(each, "_worker_result_queue"):
                self._add_iterator(each)
            elif hasattr(each, "_reader"):
                self._session.items.depths.add(each)
                self.summary["queues"] += 1

    def _unregistered(self) -> list[Any]:
        """The iterators and simple queues of a program that is not too large for the search."""
        blocks = sys.getallocatedblocks()
        if blocks <= BLOCKS_LIMIT:
            return _instances(tuple(_classes_in_no_table()))
        self._leave_out(
            f"the search for loaders and simple queues was left out ({blocks / 1e6:.0f} million"
            " blocks of memory): each is known from its next use on"
        )
        return []

    def _add_iterator(self, iterator: Any) -> None:
        """Add a live iterator, and record the batches that its workers have not returned."""
        if getattr(iterator, "_shutdown", True) or not hasattr(iterator, "_task_info"):
            return  # it has ended, or is not complete yet
        session = self._session
        owner: int = iterator._workers[0]._parent_pid
        reading = session.loaders.of(iterator)
        reading.pid = owner
        reading.begin(iterator)
        if owner != session.identity.pid:
            return  # a forked copy: the batches belong to the parent
        self.summary["loaders"] += 1
        began_ns = session.system.monotonic_ns()
        for batch, task in tuple(iterator._task_info.items()):
            if len(task) == 1:
                session.record(wire.LOADER_PUT_INDEX, began_ns, 0, 0, reading.key, task[0], batch)

    def _become_worker(self) -> None:
        """Become the DataLoader worker that this process is, before its next fetch."""
        info = _worker_info()
        if info is not None and not self._session.worker.is_worker:
            self._session.worker.begin(info.id, 0)

    def _within_budget(self, items: Iterable[Any], what: str) -> Iterator[Any]:
        """Yield items until the time budget is used up."""
        now = self._session.system.thread_time_ns
        until_ns = now() + BUDGET_NS
        for item in items:
            if now() > until_ns:
                self._leave_out(f"not all {what}: there was no more time")
                return
            yield item

    def _leave_out(self, what: str) -> None:
        self.summary["problem"] = what
        self._session.problems.append(f"on arrival: {what}")


def _worker_info() -> Any:
    """Torch's `WorkerInfo` of this process; `None` if it is not a worker.

    Where workers are threads, their process is the one that iterates.
    """
    info = getattr(sys.modules.get("torch.utils.data._utils.worker"), "_worker_info", None)
    kind = getattr(info, "worker_method", "multiprocessing")
    return info if kind == "multiprocessing" else None


def registered_for_forks() -> list[Any]:
    """Objects registered with multiprocessing for a fork: every Queue and every lock."""
    util: Any = sys.modules["multiprocessing.util"]
    return list(util._afterfork_registry.values())


def _is_part(registered: Any) -> bool:
    """Whether a registered object can be a part of an iterator or a SimpleQueue: not of these."""
    return exact.module_of_class(type(registered)) not in _WITHOUT_LOCKS


def _classes_in_no_table() -> Iterator[type]:
    """Classes of DataLoader iterators and SimpleQueues, and their subclasses."""
    for module, name in (
        ("torch.utils.data.dataloader", "_MultiProcessingDataLoaderIter"),
        ("multiprocessing.queues", "SimpleQueue"),
    ):
        found = getattr(sys.modules.get(module), name, None)
        if isinstance(found, type):
            yield from _with_derived(found)


def _with_derived(found: type) -> Iterator[type]:
    yield found
    derived: list[type] = type.__subclasses__(found)
    for each in derived:
        yield from _with_derived(each)


def _instances(classes: tuple[type, ...]) -> list[Any]:
    """All objects of exactly these classes; `isinstance` could run the program's code."""
    return [each for each in gc.get_referrers(*classes) if type(each) in classes]
