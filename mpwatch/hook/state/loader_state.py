"""The DataLoader iterators of this process, so that the hook's thread can say how they stand.

That thread holds none of the program's objects: an iterator that it held for a moment could be
freed there, and `__del__` of an iterator joins its workers. So it keeps a weak reference and takes
numbers through it in single calls (`one_call.through`). To copy them in the program's thread after
every batch took 1.5 us a batch whether an observer asked or not.
"""

from __future__ import annotations

import itertools
import operator
import weakref

from ..safe import foreign_exceptions
from ..safe.one_call import dereference, through

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_positions = operator.attrgetter("_rcvd_idx", "_send_idx", "_tasks_outstanding")
_tasks = operator.attrgetter("_task_info")


def _nobody() -> None:
    """Stand for a weak reference to an iterator that is not known."""


class LoaderState:
    """What is known of one iterator: by its attributes, and by what passed through the wrappers."""

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
        """It waits in a `_next_data` that began before the hook came in."""
        self.fixed: dict[str, Any] = {}
        """What does not change, in the words of the gauge; empty until `begin`."""
        self.owners: dict[int, int] = {}
        """Worker of each batch that was handed out and has not been returned, by batch index.

        Torch's own table holds the batches too, so it is not for the hook's thread to look into.
        """
        self.iterator: Any = _nobody

    def begin(self, iterator: Any) -> None:
        """Take hold of an iterator that begins an epoch, or that was there before the hook."""
        tasks = getattr(iterator, "_task_info", {})
        self.owners = {batch: task[0] for batch, task in tuple(tasks.items())}
        self.iterator = weakref.ref(iterator)
        self.fixed = {
            "workers": iterator._num_workers,
            "prefetch": iterator._prefetch_factor,
            "persistent": iterator._persistent_workers,
            "pin_memory": iterator._pin_memory,
            "pids": [worker.pid for worker in iterator._workers],
            "dataset": type(iterator._dataset).__qualname__[:128],
        }

    def let_go(self) -> None:
        """Hold nothing of the iterator any more."""
        self.iterator = _nobody

    def positions(self) -> dict[str, Any]:
        """How far it is.

        Raises:
            AttributeError: A torch that keeps it elsewhere, or an iterator that has ended or is
                still being made.
        """
        reference = (self.iterator,)
        ((received, sent, outstanding),) = through(reference, dereference, _positions)
        (tasks,) = through(reference, dereference, _tasks, len)
        return {
            "rcvd": received,
            "sent": sent,
            "outstanding": outstanding,
            "parked": max(0, tasks - outstanding),
            "owner": self.owners.get(received),
        }

    def show(self) -> dict[str, Any]:
        """Its row of the gauge `loaders`; what a torch does not have stays away."""
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
        """The reading of the iterator whose result queue has this `id`, if there is one."""

    def of_queue(self, queue: Any) -> LoaderState:
        """The reading of the iterator with this result queue, begun where it is new."""
        reading = self._by_queue.get(id(queue))
        if reading is None:
            reading = self._by_queue[id(queue)] = LoaderState(next(self._keys), self._pid)
        return reading

    def of(self, iterator: Any) -> LoaderState:
        """The reading of an iterator."""
        return self.of_queue(iterator._worker_result_queue)

    def end(self, iterator: Any) -> None:
        """Forget an iterator that shut down."""
        self._by_queue.pop(id(iterator._worker_result_queue), None)

    def end_all(self) -> None:
        """Forget every iterator: the hook leaves."""
        self._by_queue.clear()

    def show(self) -> list[dict[str, Any]] | None:
        """The gauge `loaders`; a forked worker does not show those of its parent."""
        shown = [r.show() for r in tuple(self._by_queue.values()) if r.pid == self._pid]
        return shown or None

    def be_child(self, pid: int) -> None:
        """Be in a forked child: iterators seen so far belong to the parent."""
        self._pid = pid
        for reading in self._by_queue.values():
            reading.let_go()
