"""Pools of processes: how many tasks are outstanding, which processes work on them, failed tasks.

For the gauge nothing is replaced. A `multiprocessing.pool.Pool` keeps what its finalizer needs in
an entry of `multiprocessing.util`'s table of finalizers, an executor in its manager thread. Only
numbers are read: a pool or a result that the hook's thread held could be freed there.

A worker wraps the exception of a task for its way to the parent. There it is raised when the
program asks for the result: if it never does, nobody sees it.
"""

from __future__ import annotations

import itertools
import operator
import os
import sys
from collections import deque
from types import MethodType

from ..safe import foreign_exceptions
from ..safe.exact import attributes, is_a, key_of
from ..safe.one_call import through

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType
    from typing import Any

    from ..context import Context
    from ..lifecycle.patcher import Undo

_TASKS, _WORKERS, _RESULTS = 0, 3, -1
"""Positions in the arguments of `Pool._terminate_pool`, Python 3.10 to 3.15."""


_callback = operator.attrgetter("_callback")
_function = operator.attrgetter("_callback.__func__")
_pid = operator.attrgetter("_pid")
_args = operator.attrgetter("_args")
_results = operator.itemgetter(_RESULTS)
_tasks = operator.itemgetter(_TASKS)
_workers = operator.itemgetter(_WORKERS)
_qsize = operator.methodcaller("qsize")
_worker_pid = operator.attrgetter("_popen.pid")
_pending = operator.attrgetter("pending_work_items")
_work_ids = operator.attrgetter("work_ids_queue")
_processes = operator.attrgetter("processes")


def _pools() -> list[dict[str, Any]] | None:
    """The gauge `pools`; see `wire`."""
    return [*_process_pools(), *_executors()] or None


def _is_pools(registry: dict[Any, Any], key: Any) -> bool:
    """Whether an entry of the table of finalizers belongs to a pool.

    A callback may be any callable of the program, and its function may have the name of a pool's.
    """
    pool: Any = sys.modules.get("multiprocessing.pool")
    if pool is None or through((key,), registry.get, _callback, type)[0] is not MethodType:
        return False
    own = pool.Pool._terminate_pool.__func__
    return through((key,), registry.get, _function, key_of) == [key_of(own)]


def _process_pools() -> Iterator[dict[str, Any]]:
    here = os.getpid()
    registry = getattr(sys.modules.get("multiprocessing.util"), "_finalizer_registry", {})
    for key in tuple(registry):
        # A plain fork copies the table; the pools in it belong to the parent.
        try:
            if not _is_pools(registry, key) or through((key,), registry.get, _pid)[0] != here:
                continue
            (jobs,) = through((key,), registry.get, _args, _results, tuple)
            (queued,) = through((key,), registry.get, _args, _tasks, _qsize)
            workers = map(_workers, map(_args, map(registry.get, (key,))))
            pids = through(itertools.chain.from_iterable(workers), _worker_pid)
        except (AttributeError, RuntimeError) as error:
            # The pool has ended meanwhile.
            if not foreign_exceptions.is_ours(error):
                raise
            continue
        yield {
            "kind": "Pool",
            "outstanding": len(jobs),
            "oldest": min(jobs, default=None),
            "queued": queued,
            "pids": pids,
        }


def _executors() -> Iterator[dict[str, Any]]:
    active: dict[int, Any] = getattr(sys.modules.get("threading"), "_active", {})
    module = sys.modules.get("concurrent.futures.process")
    manager = getattr(module, "_ExecutorManagerThread", None)
    for ident in tuple(active):
        try:
            if through((ident,), active.get, type)[0] is not manager:
                continue
            (jobs,) = through((ident,), active.get, _pending, tuple)
            (queued,) = through((ident,), active.get, _work_ids, _qsize)
            (pids,) = through((ident,), active.get, _processes, list)
        except (AttributeError, RuntimeError, TypeError) as error:
            if not foreign_exceptions.is_ours(error):
                raise
            continue
        yield {
            "kind": "ProcessPoolExecutor",
            "outstanding": len(jobs),
            "oldest": min(jobs, default=None),
            "queued": queued,
            "pids": pids,
        }


FAILURES_KEPT = 32
"""Kinds of failed tasks that a process counts; further ones are counted together."""


def wrap_wrapping(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Note why tasks fail: the first of a kind, the second, the fourth, and so on.

    Both wrappers of exceptions, `multiprocessing.pool.ExceptionWithTraceback` and
    `concurrent.futures.process._ExceptionWithTraceback`, are made from the exception and its
    traceback, in the worker, right where the task has failed (CPython 3.10 to 3.15). So is that of
    `multiprocess.pool` (0.70), the copy of multiprocessing that pickles with dill. Its workers are
    plain forks for the hook, in which it sleeps until it is woken.
    """
    counts: dict[Any, int] = {}

    def initialise(self: Any, *args: Any, **kwargs: Any) -> None:
        fields = None
        try:
            fields = _failed_task(counts, args[0])
        except BaseException as error:
            if not foreign_exceptions.is_ours(error):
                raise
        try:
            original(self, *args, **kwargs)
        except BaseException as error:
            foreign_exceptions.unframe(error)
            raise
        if fields is not None:
            session.wake()
            session.note("exception", tid=session.system.get_native_id(), **fields)

    return initialise


def wrap_set_exception(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Note why calls in a pool of threads fail, where nothing has asked for their results yet.

    The thread that ran the call passes its exception to the future: `concurrent.futures.thread` of
    CPython 3.10 to 3.15. Processes are left to `wrap_wrapping`, which sees the traceback.
    """
    counts: dict[Any, int] = {}

    def set_exception(self: Any, *args: Any, **kwargs: Any) -> Any:
        fields = None
        try:
            is_task = bool(args) and sys._getframe(1).f_globals.get("__name__") == _THREADS
            if is_task and is_a(args[0], BaseException) and not _is_asked(self):
                fields = _failed_task(counts, args[0])
        except BaseException as error:
            if not foreign_exceptions.is_ours(error):
                raise
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            foreign_exceptions.unframe(error)
            raise
        if fields is not None:
            tid = session.system.get_native_id()
            session.note("exception", tid=tid, **{**fields, "pool": "threads"})
        return result

    return set_exception


def _is_asked(future: Any) -> bool:
    """Whether a thread waits for a future, or a callback is to see its result."""
    known = attributes(future)
    waiting = attributes(known.get("_condition")).get("_waiters")
    return any(map(_has_any, (known.get("_done_callbacks"), known.get("_waiters"), waiting)))


def _has_any(found: Any) -> bool:
    return type(found) in (list, deque) and len(found) > 0


_THREADS = "concurrent.futures.thread"


def _failed_task(counts: dict[Any, int], error: BaseException) -> dict[str, Any] | None:
    """The fields of a note; `None` where failures of this kind have been noted often enough."""
    frames = foreign_exceptions.frames_of(error)
    name = foreign_exceptions.type_of(error)
    kind: Any = (name, *frames[0][1:]) if frames else name
    kind = kind if kind in counts or len(counts) < FAILURES_KEPT else ""
    count = counts[kind] = counts.get(kind, 0) + 1
    if count & (count - 1):
        return None
    return {"where": "task", "count": count, **foreign_exceptions.described(error)}


def add_gauge(module: ModuleType, session: Context) -> Undo:
    """Add the gauge `pools`."""
    session.gauges["pools"] = _pools
    return lambda: session.drop_gauges("pools")
