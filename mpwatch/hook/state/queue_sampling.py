"""A sample of the items that a process puts into queues, by line of the program; queues' depths.

How full a queue is, is read from its semaphores on request.
"""

from __future__ import annotations

import collections
import itertools
import os
import sys
import weakref

from .. import wire
from ..safe import foreign_exceptions
from ..safe.exact import attributes, is_a, key_of
from ..safe.one_call import reserve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..safe.unpatched import System
    from .call_sites import CallSites

EVERY = 16
"""One `put` in this many is examined; a power of two."""
APART_NS = 10_000_000
"""A call is recorded if it took this long, or if none of its kind was recorded for this long."""
SITES = 256
WATCHED = 32
MEMBERS = 64
"""Members of one item that are examined; the rest of a long list is not."""
_TENSORS = 16
"""Tensors of one item that are examined."""
QUEUES_LIMIT = 128
"""Queues that are remembered."""
ROWS_AT_A_TIME = 32
"""Rows of queues between two calls of `reserve.wait`: the collector counts each."""
UNBOUNDED = 1 << 30
"""A queue without a limit has a larger `maxsize` than this (SEM_VALUE_MAX is 2^31 - 1)."""


class QueueSampling:
    """Examines some of the items that a process puts into queues."""

    __slots__ = (
        "_call_sites",
        "_note",
        "_record",
        "_sites",
        "_system",
        "_watched",
        "depths",
        "get_due_ns",
        "known",
        "put_due_ns",
    )

    def __init__(
        self,
        system: System,
        record: Callable[..., None],
        note: Callable[..., None],
        call_sites: CallSites,
    ) -> None:
        self._system = system
        self._record = record
        self._note = note
        self._call_sites = call_sites
        self.depths = QueueDepths()
        self.put_due_ns = self.get_due_ns = 0
        """The next call after this moment is recorded."""
        self.known = self.depths.known
        self._sites: dict[tuple[str, str, int], list[int]] = {}
        self._watched: collections.deque[tuple[Any, int, tuple[str, str, int]]] = collections.deque(
            maxlen=WATCHED
        )

    def settle(self, kind: int, queue: Any, began_ns: int, number: int, item: Any = None) -> None:
        """Record a call, and examine the item of one `put` in `EVERY`; never raises.

        Args:
            kind: QUEUE_PUT or QUEUE_GET.
            queue: The queue that was called.
            began_ns: When the call began.
            number: How many calls of this kind there were before.
            item: What was put.
        """
        key = key_of(queue)
        self._record(kind, began_ns, 0, 0, key, 0, number + 1)
        due_ns = self._system.monotonic_ns() + APART_NS
        if kind == wire.QUEUE_GET:
            self.get_due_ns = due_ns
        else:
            self.put_due_ns = due_ns
            if item is not None and not number % EVERY:
                self.examine(item)
        if key not in self.known:
            self.depths.add(queue)

    def record_next(self) -> None:
        """Make the next call of each kind be recorded."""
        self.put_due_ns = self.get_due_ns = 0

    def examine(self, item: Any) -> None:
        """Examine an item of the sample; never raises."""
        try:
            self._examine(item)
        except BaseException as error:
            if not foreign_exceptions.is_ours(error):
                raise

    def show(self) -> list[dict[str, Any]] | None:
        """The gauge `sites`: the lines that put most bytes, estimated from the sample."""
        rows = list(self._sites.items())
        rows.sort(key=lambda row: -row[1][1])
        return [
            {"function": site[0], "file": site[1], "line": site[2], "puts": puts, "bytes": size}
            for site, (puts, size) in rows[:10]
        ] or None

    def _examine(self, item: Any) -> None:
        self._check_watched()
        tensors = list(itertools.islice(_tensors(item), _TENSORS))
        if not tensors:
            return
        self._call_sites.will_be_shared(tensors[0])
        site = _site()
        row = self._sites.get(site)
        if row is None:
            if len(self._sites) >= SITES:
                return
            row = self._sites[site] = [0, 0]
        row[0] += EVERY
        row[1] += EVERY * sum(tensor.nbytes for tensor in tensors)
        self._watched.append((weakref.ref(tensors[0]), tensors[0]._version, site))

    def _check_watched(self) -> None:
        """Note tensors written since they were put: the consumer reads the new values."""
        for _ in range(len(self._watched)):
            reference, version, site = self._watched.popleft()
            tensor = reference()
            if tensor is None:
                continue
            if tensor._version > version:
                self._note(
                    "written-after-put",
                    function=site[0],
                    file=site[1],
                    line=site[2],
                    writes=tensor._version - version,
                    shape=list(tensor.shape),
                )
            else:
                self._watched.append((reference, version, site))


def _tensors(item: Any) -> Any:
    """The CPU tensors in an item: the item, or the first members of a tuple, list or dict."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    for candidate in itertools.islice(_members(item), MEMBERS):
        if type(candidate) is torch.Tensor and candidate.device.type == "cpu":
            yield candidate


def _members(item: Any) -> Any:
    """The members of a container, read without a method that the program may override."""
    if is_a(item, dict):
        return iter(dict.values(item))
    for base in (tuple, list):
        if is_a(item, base):
            return base.__iter__(item)
    return iter((item,))


def _site() -> tuple[str, str, int]:
    """The innermost frame outside the hook and the standard library's queues."""
    here = os.path.dirname(os.path.dirname(__file__))
    frame: Any = sys._getframe(3)
    while frame.f_back is not None:
        name = frame.f_code.co_filename
        if not name.startswith(here) and not name.endswith("multiprocessing/queues.py"):
            break
        frame = frame.f_back
    return frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno


class _Reference(weakref.ref):  # type: ignore[type-arg]
    __slots__ = ("key",)
    key: int


class QueueDepths:
    """The queues that this process has used and that still exist.

    Only the semaphores are kept: a queue that another thread held could be freed there.
    """

    __slots__ = ("_dead", "known")

    def __init__(self) -> None:
        self.known: dict[int, tuple[_Reference, Any, Any, int]] = {}
        """Reference, semaphore of free places, semaphore of readers, `maxsize`; by `key_of`."""
        self._dead: collections.deque[_Reference] = collections.deque()

    def add(self, queue: Any) -> None:
        """Remember a queue; never raises."""
        if len(self.known) >= QUEUES_LIMIT:
            self._forget_freed()
            if len(self.known) >= QUEUES_LIMIT:
                return
        try:
            # The callback is in C: a signal handler could raise in one written in Python.
            reference = _Reference(queue, self._dead.append)
            reference.key = key_of(queue)
            known = attributes(queue)
            places = attributes(known.get("_sem")).get("_semlock")
            readers = attributes(known.get("_rlock")).get("_semlock")
            maxsize = known.get("_maxsize", UNBOUNDED)
            self.known[reference.key] = reference, places, readers, maxsize
        except BaseException as error:
            if not foreign_exceptions.is_ours(error):
                raise

    def show(self) -> list[dict[str, Any]] | None:
        """The gauge `queues`; see `wire`."""
        self._forget_freed()
        rows = []
        for number, key in enumerate(tuple(self.known)):
            if number % ROWS_AT_A_TIME == 0:
                reserve.wait()
            row = self.known.get(key)
            if row is None:
                continue  # forgotten meanwhile
            _, places, readers, maxsize = row
            rows.append(
                {
                    "key": key,
                    "maxsize": maxsize if maxsize < UNBOUNDED else None,
                    "depth": None if places is None else maxsize - places._get_value(),
                    "is_being_read": None if readers is None else readers._is_zero(),
                }
            )
        rows.sort(key=lambda row: -(row["depth"] or 0))
        return rows or None

    def _forget_freed(self) -> None:
        """Forget queues that were freed; a new queue may have the same address."""
        while self._dead:
            reference = self._dead.popleft()
            row = self.known.get(reference.key)
            if row is not None and row[0] is reference:
                del self.known[reference.key]
