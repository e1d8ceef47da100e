"""The positions of the DataLoader iterators of this process, read by the hook's thread.

That thread holds none of the program's objects: an iterator that it held for a moment could be
freed there, and `__del__` of an iterator joins its workers. So it keeps a weak reference and reads
numbers through it in single calls (`one_call.through`). Copying them in the program's thread after
every batch took 1.5 us a batch, with or without an observer.
"""

from __future__ import annotations

import itertools
import operator
import weakref

from ..safe import foreign_exceptions
from ..safe.exact import attributes, class_name, key_of
from ..safe.one_call import dereference, through

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_positions = operator.attrgetter("_rcvd_idx", "_tasks_outstanding")
_tasks = operator.attrgetter("_task_info")


def _batch_size(iterator: Any) -> int | None:
    """Samples in a batch; `None` for a sampler that keeps it elsewhere."""
    size = attributes(attributes(iterator).get("_index_sampler")).get("batch_size")
    return size if type(size) is int else None


def _no_iterator() -> None:
    """Replacement for a weak reference while the iterator is not known."""


class LoaderState:
    """One iterator: its attributes, and what the wrappers observed."""

    __slots__ = (
        "batches",
        "fixed",
        "is_late",
        "iterator",
        "key",
        "owners",
        "pid",
        "waiting_since_ns",
    )

    def __init__(self, key: int, pid: int) -> None:
        self.key = key
        self.pid = pid
        self.batches = 0
        self.waiting_since_ns: int | None = None
        self.is_late = False
        """It waits in a `_next_data` that was called before the hook was attached."""
        self.fixed: dict[str, Any] = {}
        """Fields of the gauge that do not change; empty until `begin`."""
        self.owners: dict[int, int] = {}
        """Worker of each batch that was requested and not returned yet, by batch index.

        Torch's own table holds the batches too, so the hook's thread must not read it.
        """
        self.iterator: Any = _no_iterator

    def begin(self, iterator: Any) -> None:
        """Refer to an iterator that begins an epoch, or that is older than the hook."""
        tasks = getattr(iterator, "_task_info", {})
        self.owners = {batch: task[0] for batch, task in tuple(tasks.items())}
        self.iterator = weakref.ref(iterator)
        self.fixed = {
            "workers": iterator._num_workers,
            "prefetch": iterator._prefetch_factor,
            "persistent": iterator._persistent_workers,
            "pin_memory": iterator._pin_memory,
            "pids": [worker.pid for worker in iterator._workers],
            "dataset": class_name(type(iterator._dataset))[:128],
            "batch_size": _batch_size(iterator),
        }

    def drop_iterator(self) -> None:
        """Remove all references to the iterator."""
        self.iterator = _no_iterator

    def positions(self) -> dict[str, Any]:
        """The positions of the iterator, by field of the gauge.

        Raises:
            AttributeError: This torch keeps them elsewhere, or the iterator has ended or is not
                complete yet.
        """
        reference = (self.iterator,)
        ((received, outstanding),) = through(reference, dereference, _positions)
        (tasks,) = through(reference, dereference, _tasks, len)
        return {
            "rcvd": received,
            "outstanding": outstanding,
            "parked": max(0, tasks - outstanding),
            "owner": self.owners.get(received),
        }

    def show(self) -> dict[str, Any]:
        """Its row of the gauge `loaders`, without fields that this torch does not have."""
        row = {
            "key": self.key,
            "batches": self.batches,
            "waiting_since_ns": self.waiting_since_ns,
            **self.fixed,
        }
        try:
            row.update(self.positions())
        except AttributeError as error:
            if not foreign_exceptions.is_ours(error):
                raise
        return row


class LoaderStates:
    """All live iterators of this process."""

    __slots__ = ("_by_queue", "_keys", "_pid", "find")

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._keys = itertools.count(1)
        self._by_queue: dict[int, LoaderState] = {}
        self.find = self._by_queue.get
        """The state of the iterator whose result queue has this key, or `None`."""

    def of_queue(self, queue: Any) -> LoaderState:
        """The state of the iterator with this result queue, added if it is new."""
        reading = self._by_queue.get(key_of(queue))
        if reading is None:
            reading = self._by_queue[key_of(queue)] = LoaderState(next(self._keys), self._pid)
        return reading

    def of(self, iterator: Any) -> LoaderState:
        """The state of an iterator."""
        return self.of_queue(iterator._worker_result_queue)

    def end(self, iterator: Any) -> None:
        """Forget an iterator that shut down."""
        self._by_queue.pop(key_of(iterator._worker_result_queue), None)

    def end_all(self) -> None:
        """Forget every iterator: the hook is being detached."""
        self._by_queue.clear()

    def show(self) -> list[dict[str, Any]] | None:
        """The gauge `loaders`; a forked worker does not show those of its parent."""
        shown = [r.show() for r in tuple(self._by_queue.values()) if r.pid == self._pid]
        return shown or None

    def reset_in_child(self, pid: int) -> None:
        """Called in a forked child: iterators known so far belong to the parent."""
        self._pid = pid
        for reading in self._by_queue.values():
            reading.drop_iterator()
