"""What a process hands to others: a sample of what goes into queues, from which line, and more."""

from __future__ import annotations

import collections
import itertools
import os
import sys
import weakref

from .. import wire
from ..checks.dangling_views import DanglingViews
from ..checks.shared_parameters import SharedParameters
from ..safe import foreign_exceptions
from ..safe.exact import is_a
from .queue_depth import QueueDepths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..session import Session

EVERY = 16
"""One `put` in so many is looked at; a power of two."""
APART_NS = 10_000_000
"""A call of a queue is recorded if it took as long, or if that long none of its kind was."""
SITES = 256
WATCHED = 32
_MEMBERS = 64
"""Members of one item looked at: numbers in a list of a million are not gone through."""
_TENSORS = 16
"""Tensors of one item looked at."""


class QueueSampling:
    """Looks at some of the items a process puts into queues."""

    __slots__ = (
        "_session",
        "_sites",
        "_watched",
        "depths",
        "get_due_ns",
        "handed",
        "known",
        "put_due_ns",
        "views",
    )

    def __init__(self, session: Session) -> None:
        self._session = session
        self.depths = QueueDepths()
        self.handed = SharedParameters(session)
        self.views = DanglingViews(session)
        self.put_due_ns = self.get_due_ns = 0
        """The next call after this moment is recorded."""
        self.known = self.depths.known
        self._sites: dict[tuple[str, str, int], list[int]] = {}
        self._watched: collections.deque[tuple[Any, int, tuple[str, str, int]]] = collections.deque(
            maxlen=WATCHED
        )

    def settle(self, kind: int, queue: Any, began_ns: int, number: int, item: Any = None) -> None:
        """Do for one call in some what is not done for each; never raises.

        Args:
            kind: QUEUE_PUT or QUEUE_GET.
            queue: Whose call it was.
            began_ns: When that began.
            number: How many came before it.
            item: What was put.
        """
        session, key = self._session, id(queue)
        session.record(kind, began_ns, 0, 0, key, 0, number + 1)
        due_ns = session.system.monotonic_ns() + APART_NS
        if kind == wire.QUEUE_GET:
            self.get_due_ns = due_ns
        else:
            self.put_due_ns = due_ns
            if item is not None and not number % EVERY:
                self.look(item)
        if key not in self.known:
            self.depths.meet(queue)

    def hurry(self) -> None:
        """Let the next call of each kind be recorded."""
        self.put_due_ns = self.get_due_ns = 0

    def look(self, item: Any) -> None:
        """Take notice of an item that is in the sample; never raises."""
        try:
            self._look(item)
        except Exception as error:
            if not foreign_exceptions.is_ours(error):
                raise

    def show(self) -> list[dict[str, Any]] | None:
        """The gauge `sites`: lines that put most bytes, estimated from the sample."""
        rows = list(self._sites.items())
        rows.sort(key=lambda row: -row[1][1])
        return [
            {"function": site[0], "file": site[1], "line": site[2], "puts": puts, "bytes": size}
            for site, (puts, size) in rows[:10]
        ] or None

    def _look(self, item: Any) -> None:
        self._check_watched()
        tensors = list(itertools.islice(_tensors(item), _TENSORS))
        if not tensors:
            return
        self._session.origins.will_be_shared(tensors[0])
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
        """Note tensors written since they were put; what a consumer reads then has changed too."""
        for _ in range(len(self._watched)):
            reference, version, site = self._watched.popleft()
            tensor = reference()
            if tensor is None:
                continue
            if tensor._version > version:
                self._session.note(
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
    """The CPU tensors in an item: itself, or the first members of a tuple, list or dictionary."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    for candidate in itertools.islice(_members(item), _MEMBERS):
        if type(candidate) is torch.Tensor and candidate.device.type == "cpu":
            yield candidate


def _members(item: Any) -> Any:
    """What a container holds, read without a method that the program may have overridden."""
    if is_a(item, dict):
        return iter(dict.values(item))
    for base in (tuple, list):
        if is_a(item, base):
            return base.__iter__(item)
    return iter((item,))


def _site() -> tuple[str, str, int]:
    """The innermost frame that is neither ours nor the standard library's queue."""
    here = os.path.dirname(os.path.dirname(__file__))
    frame: Any = sys._getframe(3)
    while frame.f_back is not None:
        name = frame.f_code.co_filename
        if not name.startswith(here) and not name.endswith("multiprocessing/queues.py"):
            break
        frame = frame.f_back
    return frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno
