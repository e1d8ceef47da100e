"""The DataLoader: its iterator in main, its fetchers in the workers.

`_worker_loop` is named in pickles and stays untouched; it is seen through the fetcher it calls. So
is `__init__`: a wrapper around it would shift the line that its warnings point to.
"""

from __future__ import annotations

import sys

from .. import wire
from ..checks.iterable_samples import BATCHES, FirstSamples
from ..checks.rng import note_states
from ..lifecycle.patcher import Point, attribute
from ..safe import foreign_exceptions
from ..safe.exact import is_a
from .thread_errors import nothing_to_undo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from ..lifecycle.patcher import Undo
    from ..session import Session
    from ..state.loader_state import LoaderState


def _begin(session: Session, reading: LoaderState, iterator: Any) -> None:
    # A wrapper that somebody wrapped in turn is still called after the hook has left.
    if session.state != "off":
        reading.begin(iterator)


def _next_data(original: Callable[..., Any], session: Session) -> Callable[..., Any]:
    record, now, kind = session.record, session.system.monotonic_ns, wire.LOADER_NEXT
    find, of = session.loaders.find, session.loaders.of

    def next_data(self: Any) -> Any:
        began_ns = now()
        reading = find(id(self._worker_result_queue)) or of(self)
        if not reading.fixed:
            _guard(session, _begin, session, reading, self)
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


def _late(module: ModuleType, session: Session) -> Undo:
    """Hear of iterators that wait already, in a `_next_data` that nobody has wrapped."""
    if not any(_is_in_next_data(frame) for frame in sys._current_frames().values()):
        return nothing_to_undo
    return attribute(f"{_ITERATOR}._try_get_data", _try_get_data)(module, session)


def _is_in_next_data(frame: Any) -> bool:
    while frame is not None and frame.f_code.co_name != "_next_data":
        frame = frame.f_back
    return frame is not None


def _try_get_data(original: Callable[..., Any], session: Session) -> Callable[..., Any]:
    of, now = session.loaders.of, session.system.monotonic_ns

    def try_get_data(self: Any, *args: Any, **kwargs: Any) -> Any:
        reading = of(self)
        if reading.waiting_since_ns is None:
            _guard(session, _begin, session, reading, self)
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


def _try_put_index(original: Callable[..., Any], session: Session) -> Callable[..., Any]:
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
            reading = find(id(self._worker_result_queue)) or of(self)
            worker = reading.owners[batch] = self._task_info[batch][0]
            record(kind, began_ns, 0, 0, reading.key, worker, batch)
        return result

    return try_put_index


def _reset(original: Callable[..., Any], session: Session) -> Callable[..., Any]:
    record, now = session.record, session.system.monotonic_ns
    readings = session.loaders

    def reset(self: Any, *args: Any, **kwargs: Any) -> Any:
        began_ns = now()
        reading = readings.of(self)
        _guard(session, _begin, session, reading, self)
        record(wire.LOADER_START, began_ns, 0, 0, reading.key, 0, self._num_workers)
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            foreign_exceptions.unframe(error)
            raise
        _guard(session, reading.positions)
        return result

    return reset


def _shutdown_workers(original: Callable[..., Any], session: Session) -> Callable[..., Any]:
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


def _fetch(original: Callable[..., Any], session: Session) -> Callable[..., Any]:
    record, now, worker = session.record, session.system.monotonic_ns, session.worker
    begins, ends, head = wire.LOADER_FETCH_BEGIN, wire.LOADER_FETCH, FirstSamples()

    def fetch(self: Any, indices: Any) -> Any:
        if not worker.is_worker and not _recognise(session):
            return original(self, indices)
        began_ns = now()
        fetched = worker.fetched
        if not fetched:
            _guard(session, note_states, session, self.dataset, worker.number)
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
        if fetched < BATCHES and fetched == head.batches and hasattr(self, "dataset_iter"):
            _guard(session, head.take, session, worker, self.dataset, result)
        return result

    return fetch


def _recognise(session: Session) -> bool:
    """Whether this is a worker after all: the hook may have come in long after its birth."""
    info = getattr(sys.modules.get("torch.utils.data._utils.worker"), "_worker_info", None)
    if info is None or getattr(info, "worker_method", "multiprocessing") != "multiprocessing":
        return False
    session.worker.begin(info.id, 0)
    return True


def _gauges(module: ModuleType, session: Session) -> Undo:
    session.gauges["loaders"] = session.loaders.show
    session.gauges["worker"] = session.worker.show

    def undo() -> None:
        session.drop_gauges("loaders", "worker")
        session.loaders.end_all()

    return undo


def _guard(session: Session, look: Callable[..., Any], *args: Any) -> None:
    """Look at torch's private state; a torch that keeps it elsewhere costs that reading only."""
    try:
        look(*args)
    except Exception as error:
        if not foreign_exceptions.is_ours(error):
            raise
        session.patcher.missing[f"loader {look.__name__}"] = f"{type(error).__name__}: {error}"


_ITERATOR = "_MultiProcessingDataLoaderIter"
_DATALOADER = "torch.utils.data.dataloader"
_FETCH = "torch.utils.data._utils.fetch"
POINTS = (
    Point("loader gauges", _DATALOADER, _gauges),
    Point("loader _reset", _DATALOADER, attribute(f"{_ITERATOR}._reset", _reset)),
    Point("loader _next_data", _DATALOADER, attribute(f"{_ITERATOR}._next_data", _next_data)),
    Point("loader _try_get_data", _DATALOADER, _late),
    Point(
        "loader _try_put_index",
        _DATALOADER,
        attribute(f"{_ITERATOR}._try_put_index", _try_put_index),
    ),
    Point(
        "loader _shutdown_workers",
        _DATALOADER,
        attribute(f"{_ITERATOR}._shutdown_workers", _shutdown_workers),
    ),
    Point("map fetch", _FETCH, attribute("_MapDatasetFetcher.fetch", _fetch)),
    Point("iterable fetch", _FETCH, attribute("_IterableDatasetFetcher.fetch", _fetch)),
)
