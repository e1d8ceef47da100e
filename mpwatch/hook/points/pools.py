"""Pools of processes: how many tasks are outstanding, and which processes work on them.

Nothing is replaced. A `multiprocessing.pool.Pool` keeps what its finalizer needs in an entry of
`multiprocessing.util`'s table of finalizers, an executor in its manager thread. Only
numbers are read: a pool or a result that the hook's thread held could be freed there.
"""

from __future__ import annotations

import itertools
import operator
import os
import sys
from types import FunctionType, MethodType

from ..safe import foreign_exceptions
from ..safe.one_call import through

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType
    from typing import Any

    from ..context import Context
    from ..lifecycle.patcher import Undo

_TASKS, _WORKERS, _RESULTS = 0, 3, -1
"""Positions in the arguments of `Pool._terminate_pool`, Python 3.10 to 3.15."""


_callback = operator.attrgetter("_callback")
_function = operator.attrgetter("_callback.__func__")
_function_name = operator.attrgetter("_callback.__func__.__name__")
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

    A callback may be any callable of the program; the name is read from functions only.
    """
    if through((key,), registry.get, _callback, type)[0] is not MethodType:
        return False
    if through((key,), registry.get, _function, type)[0] is not FunctionType:
        return False
    return bool(through((key,), registry.get, _function_name)[0] == "_terminate_pool")


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


def add_gauge(module: ModuleType, session: Context) -> Undo:
    """Add the gauge `pools`."""
    session.gauges["pools"] = _pools
    return lambda: session.drop_gauges("pools")
