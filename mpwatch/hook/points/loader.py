"""The DataLoader: its iterator in the main process, its fetchers in the workers.

Two functions are not replaced. `_worker_loop` is named in pickles, so a worker is observed through
the fetcher that it calls. A wrapper of `__init__` would change the line of its warnings.
"""

from __future__ import annotations

import sys

from .. import checks, wire
from ..lifecycle.patcher import attribute
from ..safe import foreign_exceptions
from ..safe.exact import is_a, key_of
from ..state.call_sites import place_here
from .exits import nothing_to_undo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from ..context import Context
    from ..lifecycle.patcher import Undo
    from ..state.loader_state import LoaderState

FIRST_BATCHES = 2
"""Number of batches of each worker that `checks.iterable_samples` compares."""
ITERATOR = "_MultiProcessingDataLoaderIter"


def begin(session: Context, reading: LoaderState, iterator: Any) -> None:
    """Follow an iterator from now on, unless the hook is detached."""
    # A wrapper that another library has wrapped in turn is still called after detaching.
    if session.state != "off":
        reading.begin(iterator)
        # All wrappers that call this run in the thread that iterates.
        reading.fixed["place"] = place_here()


def wrap_next_data(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Record each batch that the program receives, and since when it waits for one."""
    record, now, kind = session.record, session.system.monotonic_ns, wire.LOADER_NEXT
    find, of = session.loaders.find, session.loaders.of

    def next_data(self: Any) -> Any:
        began_ns = now()
        reading = find(key_of(self._worker_result_queue)) or of(self)
        if not reading.fixed:
            _guard(session, begin, session, reading, self)
        reading.waiting_since_ns = began_ns
        batch = self._rcvd_idx
        try:
            result = original(self)
        except BaseException as error:
            reading.waiting_since_ns = None
            if not is_a(error, StopIteration):
                session.failed(kind, began_ns, error, loader=reading.key, batch=batch)
            foreign_exceptions.unframe(error)
            raise
        reading.waiting_since_ns = None
        reading.batches += 1
        reading.owners.pop(batch, None)
        record(kind, began_ns, 0, 0, reading.key, 0, batch)
        return result

    return next_data


def wrap_try_get_data_if_waiting(module: ModuleType, session: Context) -> Undo:
    """Observe iterators that are already waiting in an unwrapped `_next_data`."""
    if not any(_is_in_next_data(frame) for frame in sys._current_frames().values()):
        return nothing_to_undo
    return attribute(f"{ITERATOR}._try_get_data", _wrap_try_get_data)(module, session)


def _is_in_next_data(frame: Any) -> bool:
    while frame is not None and frame.f_code.co_name != "_next_data":
        frame = frame.f_back
    return frame is not None


def _wrap_try_get_data(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    of, now = session.loaders.of, session.system.monotonic_ns

    def try_get_data(self: Any, *args: Any, **kwargs: Any) -> Any:
        reading = of(self)
        if reading.waiting_since_ns is None:
            _guard(session, begin, session, reading, self)
            reading.waiting_since_ns = now()
            reading.is_late = True
        is_over = True
        try:
            result = original(self, *args, **kwargs)
            is_over = result[0]
            return result
        except BaseException as error:
            foreign_exceptions.unframe(error)
            raise
        finally:
            if reading.is_late and is_over:
                reading.is_late = False
                reading.waiting_since_ns = None

    return try_get_data


def wrap_try_put_index(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Record each batch that is requested from a worker."""
    record, now, kind = session.record, session.system.monotonic_ns, wire.LOADER_PUT_INDEX
    find, of = session.loaders.find, session.loaders.of

    def try_put_index(self: Any) -> Any:
        began_ns = now()
        batch = self._send_idx
        try:
            result = original(self)
        except BaseException as error:
            foreign_exceptions.unframe(error)
            raise
        if self._send_idx > batch and batch in self._task_info:
            reading = find(key_of(self._worker_result_queue)) or of(self)
            worker = reading.owners[batch] = self._task_info[batch][0]
            record(kind, began_ns, 0, 0, reading.key, worker, batch)
        return result

    return try_put_index


def wrap_reset(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Record the start of an epoch."""
    record, now = session.record, session.system.monotonic_ns
    readings = session.loaders

    def reset(self: Any, *args: Any, **kwargs: Any) -> Any:
        began_ns = now()
        reading = readings.of(self)
        _guard(session, begin, session, reading, self)
        record(wire.LOADER_START, began_ns, 0, 0, reading.key, 0, self._num_workers)
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            foreign_exceptions.unframe(error)
            raise
        _guard(session, reading.positions)
        return result

    return reset


def wrap_shutdown_workers(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Record the end of an iterator; note one that another process ends."""
    record, now = session.record, session.system.monotonic_ns
    readings = session.loaders

    def shutdown_workers(self: Any) -> Any:
        began_ns = now()
        if not getattr(self, "_shutdown", True):
            reading = readings.of(self)
            if reading.pid != session.identity.pid:
                session.note("foreign-shutdown", owner=reading.pid, loader=reading.key)
            record(wire.LOADER_STOP, began_ns, 0, 0, reading.key)
        try:
            return original(self)
        except BaseException as error:
            foreign_exceptions.unframe(error)
            raise
        finally:
            if hasattr(self, "_worker_result_queue"):
                readings.end(self)

    return shutdown_workers


def wrap_fetch(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Record the beginning and end of each fetch in a worker."""
    record, now, worker = session.record, session.system.monotonic_ns, session.worker
    begins, ends, first = wire.LOADER_FETCH_BEGIN, wire.LOADER_FETCH, _FirstBatches()

    def fetch(self: Any, indices: Any) -> Any:
        if not worker.is_worker and not _recognise(session):
            return original(self, indices)
        began_ns = now()
        fetched = worker.fetched
        if not fetched:
            _guard(session, _note_states, session, self.dataset, worker.number)
            _guard(session, session.origins.begin_worker, self.dataset, self.collate_fn)
        worker.since_ns = began_ns
        number, task, loader = worker.number, worker.task, worker.loader
        record(begins, began_ns, 0, 0, loader, number, task)
        try:
            result = original(self, indices)
        except BaseException as error:
            worker.since_ns = None
            worker.fetched = fetched + 1
            if not is_a(error, StopIteration):
                session.failed(ends, began_ns, error, worker_id=number, batch=task)
            record(ends, began_ns, wire.FLAG_RAISED, 0, loader, number, task)
            foreign_exceptions.unframe(error)
            raise
        worker.since_ns = None
        worker.fetched = fetched + 1
        record(ends, began_ns, 0, 0, loader, number, task)
        if fetched < FIRST_BATCHES and fetched == first.count and hasattr(self, "dataset_iter"):
            _guard(session, first.take, session, worker, self.dataset, result)
        return result

    return fetch


class _FirstBatches:
    """Passes the first batches of an iterable dataset to `checks.iterable_samples`."""

    __slots__ = ("_samples", "count")

    def __init__(self) -> None:
        self.count = 0
        self._samples: Any = None

    def take(self, session: Context, worker: Any, dataset: Any, batch: Any) -> None:
        """Examine one batch."""
        self.count += 1
        if self._samples is None:
            self._samples = checks.load("iterable_samples").FirstSamples()
        self._samples.take(session, worker, dataset, batch)


def _note_states(session: Context, dataset: Any, worker_id: int) -> None:
    checks.load("rng").note_states(session, dataset, worker_id)


def _recognise(session: Context) -> bool:
    """Whether this process is a worker that was started before the hook was attached."""
    info = getattr(sys.modules.get("torch.utils.data._utils.worker"), "_worker_info", None)
    if info is None or getattr(info, "worker_method", "multiprocessing") != "multiprocessing":
        return False
    session.worker.begin(info.id, 0)
    return True


def add_gauges(module: ModuleType, session: Context) -> Undo:
    """Add the gauges `loaders` and `worker`."""
    session.gauges["loaders"] = session.loaders.show
    session.gauges["worker"] = session.worker.show

    def undo() -> None:
        session.drop_gauges("loaders", "worker")
        session.loaders.end_all()

    return undo


def _guard(session: Context, read: Callable[..., Any], *args: Any) -> None:
    """Read private state of torch; where a version keeps it elsewhere, only this is missing."""
    try:
        read(*args)
    except BaseException as error:
        if not foreign_exceptions.is_ours(error):
            raise
        session.patcher.missing[f"loader {read.__name__}"] = f"{type(error).__name__}: {error}"
