"""Pools of processes: how much is outstanding, and which processes do it.

Nothing is replaced. A `multiprocessing.pool.Pool` keeps all that its end needs in an entry of
`multiprocessing.util`'s table of finalizers, an executor in the thread that manages it. Only
numbers are taken: a pool or a result held by the hook's thread could end there.
"""

from __future__ import annotations

import os
import sys

from ..patching import Point

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType
    from typing import Any

    from ..patching import Undo
    from ..session import Session

_TASKS, _WORKERS, _RESULTS = 0, 3, -1
"""Positions in the arguments of `Pool._terminate_pool`, Python 3.10 to 3.15."""


def _pools() -> list[dict[str, Any]] | None:
    """The gauge `pools`; see `wire`."""
    return [*_process_pools(), *_executors()] or None


def _process_pools() -> Iterator[dict[str, Any]]:
    here = os.getpid()
    registry = getattr(sys.modules.get("multiprocessing.util"), "_finalizer_registry", {})
    for finalizer in tuple(registry.values()):
        callback = getattr(finalizer, "_callback", None)
        # A plain fork copies the table; the pools in it remain the parent's.
        if getattr(callback, "__name__", "") != "_terminate_pool" or finalizer._pid != here:
            continue
        arguments = finalizer._args
        jobs = tuple(arguments[_RESULTS])
        yield {
            "kind": "Pool",
            "outstanding": len(jobs),
            "oldest": min(jobs, default=None),
            "queued": arguments[_TASKS].qsize(),
            "pids": [worker.pid for worker in tuple(arguments[_WORKERS])],
        }


def _executors() -> Iterator[dict[str, Any]]:
    active: dict[int, Any] = getattr(sys.modules.get("threading"), "_active", {})
    for thread in tuple(active.values()):
        if type(thread).__name__ != "_ExecutorManagerThread":
            continue
        jobs = tuple(thread.pending_work_items)
        yield {
            "kind": "ProcessPoolExecutor",
            "outstanding": len(jobs),
            "oldest": min(jobs, default=None),
            "queued": thread.work_ids_queue.qsize(),
            "pids": list(thread.processes or ()),
        }


def _gauge(module: ModuleType, session: Session) -> Undo:
    session.gauges["pools"] = _pools
    return lambda: session.drop_gauges("pools")


POINTS = (Point("pools gauge", "multiprocessing.util", _gauge),)
