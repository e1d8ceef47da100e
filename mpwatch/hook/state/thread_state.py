"""State of a thread, and of a worker, between two wrapped calls."""

from __future__ import annotations

import functools

from .. import checks
from ..safe.exact import attributes, full_name, key_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..safe.unpatched import System

    class Here:
        """Thread-local access to the state of each thread."""

        own: ThreadState


POOL_WORKERS = ("multiprocessing.pool.worker", "concurrent.futures.process._process_worker")
"""What the processes of pools run; the first argument is the queue of their tasks."""
_STARS = (("multiprocessing.pool", "mapstar"), ("multiprocessing.pool", "starmapstar"))
_CALL = ("concurrent.futures.process", "_CallItem")
_CHUNK = ("concurrent.futures.process", "_process_chunk")


class ThreadState:
    """State of one thread between two wrapped calls."""

    __slots__ = (
        "began_ns",
        "exception",
        "missed_key",
        "shared_key",
        "shares",
        "storages_path",
    )

    def __init__(self) -> None:
        self.missed_key: Any = None
        """The key that SharedCache did not have; the next storage stored is a new mapping."""
        self.began_ns = 0
        """When this thread began to fetch a descriptor or a storage; 0 once it has it."""
        self.shared_key: Any = None
        """`SHARING` while this thread shares a storage, then the key of that storage."""
        self.shares = 0
        """Storages shared since this thread began to pickle something for a new process."""
        self.storages_path: str | None = None
        """Path to the part of the object that holds them, if they are many."""
        self.exception: tuple[str, list[list[Any]] | None] = ("", None)
        """Type of the exception that ended `Process.run` in this thread, and its frames."""


def make_here(system: System) -> Here:
    """A thread-local with one attribute: access costs as much as five ordinary attributes.

    Its class is made once: a class is a reference cycle, which only `gc` would free.
    """
    kind = _kinds.get(system.local)
    if kind is None:
        kind = _kinds[system.local] = type("Here", (system.local,), {"__init__": _begin_thread})
    here: Here = kind()
    return here


def _begin_thread(here: Any) -> None:
    """Called in each thread at its first access."""
    here.own = ThreadState()


_kinds: dict[Any, Any] = {}
SHARING = object()


class Worker:
    """This process as a worker of a DataLoader, or of a pool of processes, if it is one."""

    __slots__ = (
        "done",
        "fetched",
        "is_busy",
        "is_worker",
        "job",
        "loader",
        "number",
        "since_ns",
        "source",
        "task",
    )

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Reset: this process is not a worker."""
        self.is_worker = False
        self.is_busy = False
        """Whether it receives tasks from queues, as a worker of a DataLoader or of a pool."""
        self.number = 0
        self.loader = 0
        self.task = 0
        """Batch index of the last task received from the index queue."""
        self.since_ns: int | None = None
        self.fetched = 0
        self.source = 0
        """`key_of` of the queue from which the worker of a pool receives tasks, else 0."""
        self.job: dict[str, Any] | None = None
        """The task of a pool's worker."""
        self.done = 0

    def begin(self, number: int, loader: int) -> None:
        """Become worker `number` of the loader with this key, 0 if the key is not known."""
        self.clear()
        self.is_worker = self.is_busy = True
        self.number, self.loader = number, loader

    def show(self) -> dict[str, Any] | None:
        """The gauge `worker`; see `wire`."""
        if not self.is_worker:
            return None
        index = None
        if self.since_ns is not None:
            index = checks.load_on_hook_thread("values").index_in_fetch()
        return {
            "worker_id": self.number,
            "loader": self.loader or None,
            "task": None if self.since_ns is None else self.task,
            "since_ns": self.since_ns,
            "index": index,
            "fetched": self.fetched,
        }

    def recognise_pool(self, target: Any, arguments: Any) -> None:
        """Become the worker of a pool if the target of a new process is a pool's."""
        name = ".".join(full_name(target))
        if name in POOL_WORKERS and type(arguments) is tuple and arguments:
            self.source = key_of(arguments[0])
            self.is_busy = True

    def begin_job(self, taken: Any, now_ns: int) -> None:
        """Begin the task received from a pool's queue; `None` asks the worker to exit.

        A Pool sends (job, part, function, arguments, keywords), an executor an object.
        """
        if type(taken) is tuple and len(taken) == 5:
            job, part, function, arguments, _ = taken
            # `map` wraps the function and a share of its arguments.
            inner = arguments[0][0] if full_name(function) in _STARS else function
        elif full_name(type(taken)) == _CALL:
            known = attributes(taken)
            job, part, inner = known["work_id"], None, known["fn"]
            if type(inner) is functools.partial and full_name(inner) == _CHUNK:
                inner = inner.args[0]
        else:
            return
        self.job = {
            "job": job,
            "part": part,
            "function": ".".join(full_name(inner))[:256],
            "since_ns": now_ns,
        }

    def end_job(self) -> None:
        """End the task: the worker asks for another."""
        if self.job is not None:
            self.job = None
            self.done += 1

    def show_job(self) -> dict[str, Any] | None:
        """The gauge `job`; see `wire`."""
        if not self.source:
            return None
        return {"job": None, **(self.job or {}), "done": self.done}
